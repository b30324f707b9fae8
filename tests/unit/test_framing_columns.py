"""Prefixes and headers of values: what is recognised of single values, by the loop, and in columns of every Arrow type of bytes."""

import pickle
import random
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from ctypes import addressof, c_char, string_at
from itertools import product
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

import kolumn
from kit.guarded import ending_at_a_page
from kit.outcome import raises
from kolumn.core.schema import HEADERS
from kolumn.cpu_fallback.values.framing import NO_ID, NO_SCHEMA, WIDTH, add_key, recognise_prefixes
from kolumn.values.decoder import Bodies
from kolumn.values.framing import FRAMINGS, Framer
from kolumn.values.schemas.collections import ListedSchemas
from kolumn.values.schemas.schema import Registered, Schema, fingerprint_of
from kolumn.values.wire import framing as kinds
from kolumn.values.wire.framing import APICURIO, CONFLUENT, CONFLUENT_GUID, GLUE, GLUE_ZLIB, NONE, PREFIXES, SINGLE_OBJECT, recognise

GUID = UUID("12345678-9abc-def0-0fed-cba987654321")
ONE = Schema("AVRO", '{"type":"record","name":"O","fields":[{"name":"id","type":"long"}]}', id=1)
TWO = Schema("PROTOBUF", 'syntax="proto3"; message M {}', id=2, guid=GUID)
BARE = Schema("AVRO", '"string"')
SCHEMAS = ListedSchemas([Registered("o", 1, ONE), Registered("m", 1, TWO)])
FIXED = Schema("AVRO", '"long"', id=77)
RABIN = b"\xc3\1" + fingerprint_of(ONE).to_bytes(8, "little")
ROWS: list[tuple[bytes | None, bytes | None, int, int | None, int | None]] = [
    # value, body or None, framing, id of the schema that is found, valueSchemaId
    (b"\0\0\0\0\1body", b"body", kinds.CONFLUENT, 1, 1),
    (None, None, kinds.NONE, None, None),
    (b"\0\0\0\0\2second, and longer than a view", b"second, and longer than a view", kinds.CONFLUENT, 2, 2),
    (b"\0\0\0\0\1", b"", kinds.CONFLUENT, 1, 1),
    (b"\0\0\0\1\1unknown", None, kinds.CONFLUENT, None, 257),
    (b"", None, kinds.NONE, None, None),
    (b"\1" + GUID.bytes + b"x", b"x", kinds.CONFLUENT_GUID, 2, 2),
    (b"\1" + bytes(16) + b"x", None, kinds.CONFLUENT_GUID, None, None),
    (b"\0\0\0\0\0\0\0\0\2eight", b"eight", kinds.APICURIO, 2, 2),
    (b"\3\0" + GUID.bytes + b"glue", b"glue", kinds.GLUE, 2, 2),
    (b"\3\5" + GUID.bytes + zlib.compress(b"glue" * 9), b"glue" * 9, kinds.GLUE, 2, 2),
    (RABIN + b"single", b"single", kinds.SINGLE_OBJECT, 1, 1),
    (None, None, kinds.NONE, None, None),
    (b"no prefix", None, kinds.NONE, None, None),
    (b"\0\0\0\0\1body", b"body", kinds.CONFLUENT, 1, 1),
]
TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]


def bodies(found: Bodies) -> list[bytes | None]:
    return [None if size < 0 else string_at(int(at), int(size)) for at, size in zip(found.address, found.length, strict=True)]


def schemas(found: Bodies) -> list[Schema | None]:
    return [None if index < 0 else found.schemas[index] for index in found.schema.tolist()]


def numbers(found: Bodies) -> list[int | None]:
    return [None if one is None else one.id for one in schemas(found)]


def column(values: Iterable[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


def headers(*rows: list[tuple[str, bytes | None]] | None) -> pa.Array:
    return pa.array([None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows], HEADERS)


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("start", [0, 3])
def test_rows_of_all_framings_in_one_column(kind: pa.DataType, start: int) -> None:
    whole = pa.array([one[0] for one in ROWS], kind)
    found, ids = Framer("auto", SCHEMAS).bodies(whole.slice(start))
    rows = ROWS[start:]
    assert (bodies(found), found.framing.tolist()) == ([one[1] for one in rows], [one[2] for one in rows])
    assert numbers(found) == [one[3] for one in rows]
    assert (ids.to_pylist(), ids.type) == ([one[4] for one in rows], pa.int64())
    assert not found.bare
    for row, (value, body, kind, *_) in enumerate(rows):
        if value is not None and body is not None:
            whole = string_at(int(found.address[row] - found.prefix[row]), int(found.length[row] + found.prefix[row]))
            assert whole == (value[:18] + body if kind == kinds.GLUE else value)


@pytest.mark.parametrize("kind", [*TYPES, pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_empty_columns_and_columns_of_nulls(kind: pa.DataType) -> None:
    for values in ([], [None, None]):
        found, ids = Framer("auto", SCHEMAS).bodies(pa.array(values, kind))
        assert (bodies(found), ids.to_pylist()) == (values, values)
    assert len(Framer("auto", SCHEMAS).bodies(pa.array([b"\0\0\0\0\1x".decode()] if "string" in str(kind) else [b"x"], kind))[0]) == 1


def test_framings_by_name() -> None:
    values = [one[0] for one in ROWS]
    wanted = {
        "none": set(), "confluent": {kinds.CONFLUENT, kinds.CONFLUENT_GUID}, "apicurio": {kinds.CONFLUENT, kinds.APICURIO},
        "apicurio-8": {kinds.APICURIO}, "glue": {kinds.GLUE}, "single-object": {kinds.SINGLE_OBJECT},
    }  # fmt: skip
    for name, own in wanted.items():
        found, _ = Framer(name, SCHEMAS).bodies(column(values))
        assert set(found.framing.tolist()) - {kinds.NONE} == own
    raises(kolumn.ArgumentError, r"unknown framing 'confluen'.*confluent", Framer, "confluen", SCHEMAS)
    raises(kolumn.ArgumentError, "int64", Framer("auto", SCHEMAS).bodies, pa.array([1]))


def test_with_one_schema_a_prefix_is_left_out_where_it_is_recognised() -> None:
    """Without any schema bodies have that of the reader."""
    values = [b"\0\0\0\0\7x", None, b"plain", b"\1" + GUID.bytes]
    found, ids = Framer("auto").bodies(column(values))
    assert (bodies(found), found.bare, found.schema.tolist()) == ([b"x", None, b"plain", b""], True, [-1] * 4)
    assert ids.to_pylist() == [7, None, None, None]
    found, ids = Framer("none").bodies(column(values))
    assert (bodies(found), found.bare, ids.to_pylist()) == (values, False, [None] * 4)
    found, _ = Framer("confluent").bodies(column(values))
    assert (bodies(found), found.bare) == ([b"x", None, None, b""], False)
    values = [b"\0\0\0\0\7x", None, b"plain"]
    told = headers([("__value_schema_id", b"\1" + GUID.bytes)], [], [])
    for given, own, numbers in ((None, [b"x", None, b"plain"], [7, None, None]), (told, [values[0], None, b"plain"], [None] * 3)):
        found, ids = Framer("auto").bodies(column(values), given)
        assert (bodies(found), found.bare, found.schemas, found.schema.tolist(), ids.to_pylist()) == (own, True, (), [-1] * 3, numbers)


class Counted:
    """A collection that counts how often it is asked, and knows every third id."""

    def __init__(self) -> None:
        self.asked: Counter[int] = Counter()

    def by_id(self, id: int) -> Schema | None:
        self.asked[id] += 1
        return Schema("AVRO", f'"{id}"', id=id) if id % 3 == 0 else None


def test_each_key_is_looked_up_once() -> None:
    asked = Counted()
    framer = Framer("confluent", asked)
    values = [b"\0" + (id % 5000).to_bytes(4, "big") + b"x" for id in range(20_000)]
    with ThreadPoolExecutor(1) as pool:
        pool.submit(framer.bodies, column(values)).result()
    for _ in range(2):
        found, ids = framer.bodies(column(values))
    assert (set(asked.asked.values()), len(asked.asked), ids.to_pylist()) == ({1}, 5000, [id % 5000 for id in range(20_000)])
    assert numbers(found) == [id % 5000 if id % 5000 % 3 == 0 else None for id in range(20_000)]
    assert framer.schemas == found.schemas


def test_unknown_keys_are_forgotten_when_there_are_many() -> None:
    """Values that only look as if they had a prefix have any number of keys."""
    framer = Framer("confluent", SCHEMAS)
    values = [b"\0" + id.to_bytes(4, "big") + b"x" for id in range(3, 140_000)] + [b"\0\0\0\0\1x"]
    found, _ = framer.bodies(column(values))
    assert (found.schema >= 0).sum() == 1
    assert len(framer._own.table.rows) <= 1 << 19
    assert len(framer._indexes) <= (1 << 17) + 1


def test_threads_see_the_same_schemas_at_the_same_places() -> None:
    framer = Framer("confluent", Counted())

    def work(seed: int) -> tuple[list[int], list[Bodies]]:
        own = [3 * ((seed + 7 * row) % 300) for row in range(3000)]
        return own, [framer.bodies(column(b"\0" + id.to_bytes(4, "big") for id in own))[0] for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(4)))
    for own, founds in results:
        for found in founds:
            assert (found.schemas, numbers(found)) == (framer.schemas[: len(found.schemas)], own)


def test_framers_go_to_other_processes() -> None:
    framer = Framer("auto", SCHEMAS, is_key=True, max_value_bytes=9)
    framer.bodies(column([ROWS[0][0]]))
    copy = pickle.loads(pickle.dumps(framer))
    assert (copy._made.args[0], copy._made.keywords) == ("auto", {"is_key": True, "max_value_bytes": 9, "skip": 0})
    assert bodies(copy.bodies(column([ROWS[0][0]]))[0]) == [b"body"]


def test_compressed_values_are_bounded_and_checked() -> None:
    whole = zlib.compress(b"a" * 1000)
    streams = [whole, whole[:-1], whole + b"x", b"", b"junk", zlib.compress(b"a" * 1001), zlib.compress(b"")]
    values = [b"\3\5" + GUID.bytes + one for one in streams]
    found, _ = Framer("glue", SCHEMAS, max_value_bytes=1000).bodies(column(values))
    assert (bodies(found), set(found.framing.tolist())) == ([b"a" * 1000, None, None, None, None, None, b""], {kinds.GLUE})
    # Without a registry they may be values that only look as if they were compressed.
    found, _ = Framer("auto", max_value_bytes=1000).bodies(column(values))
    assert (bodies(found), found.prefix.tolist()) == ([b"a" * 1000, *values[1:6], b""], [18, 0, 0, 0, 0, 0, 18])
    value = b"\3\5" + GUID.bytes + zlib.compress(bytes(64 << 20))
    framer = Framer("glue", SCHEMAS, max_value_bytes=1000)
    tracemalloc.start()
    try:
        assert bodies(framer.bodies(column([value]))[0]) == [None]
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_header_comes_before_a_prefix() -> None:
    """As in Confluent's deserializers: the last header of the name, then the prefix."""
    name, plain = "__value_schema_id", b"\0\0\0\0\1body"
    told = headers(
        [(name, b"\0\0\0\0\1"), ("x", b"y"), (name, b"\1" + GUID.bytes)], [], None, [(name, b"\0\0\0\0\1"), (name, b"\1" + GUID.bytes)],
        [(name, None)], [(name, b"\1" + bytes(16))], [(name, b"nonsense")], [("__key_schema_id", b"\1" + GUID.bytes)],
    )  # fmt: skip
    values = column([plain] * 8)
    framer = Framer("auto", SCHEMAS)
    assert framer.needs_headers
    found, ids = framer.bodies(values, told)
    assert numbers(found) == [2, 1, 1, 2, 1, None, None, 1]
    assert bodies(found) == [plain, b"body", b"body", plain, b"body", None, None, b"body"]
    assert ids.to_pylist() == [2, 1, 1, 2, 1, None, None, 1]
    named = kinds.CONFLUENT_HEADER
    assert found.framing.tolist() == [named, 1, 1, named, 1, named, named, 1]
    part, _ = framer.bodies(values.slice(3, 3), told.slice(3, 3))
    assert bodies(part) == bodies(found)[3:6]
    keys, _ = Framer("confluent-header", SCHEMAS, is_key=True).bodies(values, told)
    assert bodies(keys) == [None] * 7 + [plain]
    null, ids = framer.bodies(column([None]), told.slice(0, 1))
    assert (bodies(null), null.framing.tolist(), ids.to_pylist()) == ([None], [kinds.NONE], [None])
    fixed, _ = Framer("confluent-header").bodies(values, told)
    assert bodies(fixed) == [plain] * 8
    raises(kolumn.ArgumentError, "headers", Framer("confluent-header", SCHEMAS).bodies, values)


@pytest.mark.parametrize("views", [False, True])
def test_headers_of_apicurio_and_azure(views: bool) -> None:
    number = (2).to_bytes(8, "big")
    azure = b"avro/binary+" + GUID.hex.encode()
    told = headers(
        [("apicurio.value.globalId", number)], [("apicurio.value.globalId", (9).to_bytes(8, "big")), ("apicurio.value.contentId", number)],
        [("apicurio.value.globalId", b"\2")], [("content-type", azure)], [("content-type", b"\xa1\x2c" + azure)],
        [("content-type", b"application/json")],
    )  # fmt: skip
    if views:
        told = told.cast(pa.list_(pa.struct([("key", pa.string_view()), ("value", pa.binary_view())])))
    found, ids = Framer("auto", SCHEMAS).bodies(column([b"body"] * 6), told)
    assert (bodies(found), ids.to_pylist()) == ([b"body", b"body", None, b"body", b"body", None], [2, 2, None, 2, 2, None])
    assert found.framing.tolist() == [kinds.APICURIO_HEADER] * 3 + [kinds.AZURE] * 2 + [kinds.NONE]
    for name, rows in (("apicurio-header", [True, True, False, False, False, False]), ("azure", [False] * 3 + [True, True, False])):
        found, _ = Framer(name, SCHEMAS).bodies(column([b"body"] * 6), told)
        assert [one is not None for one in bodies(found)] == rows
    assert {name for name in FRAMINGS if Framer(name, SCHEMAS).needs_headers} == {"auto", "confluent-header", "apicurio-header", "azure"}
    # Where all rows have one schema, headers would change nothing.
    assert not Framer("auto").needs_headers


def test_apicurios_headers_name_messages_and_encodings() -> None:
    number, message, encoding = ("apicurio.value.globalId", (2).to_bytes(8, "big")), "apicurio.protobuf.type", "apicurio.value.encoding"
    told = headers(
        [number, (message, b"M")], [number, (message, b"\xff")], [number], [(message, b"M")], [number, (encoding, b"BINARY")],
        [number, (encoding, b"JSON")], [("apicurio.value.artifactId", b"orders-1")], [number, ("apicurio.protobuf.type.key", b"M")],
        [number, (message, b"")],
    )  # fmt: skip
    found, ids = Framer("auto", SCHEMAS).bodies(column([b"body"] * 9), told)
    assert [None if one is None else one.message for one in schemas(found)] == ["M", "\ufffd", "", None, "", "", None, "", None]
    assert [one is not None for one in bodies(found)] == [True, True, True, False, True, False, False, True, False]
    assert ids.to_pylist() == [2, 2, 2, None, 2, 2, None, 2, 2]
    # Without a registry the message is that of the reader's file, whose index is -1.
    found, _ = Framer("apicurio-header").bodies(column([b"body"] * 9), told)
    assert [None if one is None else (one.text, one.message) for one in schemas(found)] == [("", "M"), ("", "\ufffd")] + [None] * 7
    assert [one is not None for one in bodies(found)] == [True, True, True, True, True, False, True, True, False]


def test_messages_that_headers_choose() -> None:
    """They are forgotten when there are many; message indexes are a part of the schema."""
    number = ("apicurio.value.globalId", (2).to_bytes(8, "big"))
    told = headers(*([number, ("apicurio.protobuf.type", b"%d" % row)] for row in range(6000)), [number, ("apicurio.protobuf.type", b"7")])
    framer = Framer("auto", SCHEMAS)
    found, _ = framer.bodies(column([b"body"] * 6001), told)
    assert (len(framer.schemas), found.schemas[found.schema[6000]].message) == (4096, "7")
    told = headers(*([("__value_schema_id", b"\1" + GUID.bytes + rest)] for rest in (b"\0", b"\2\2", b"\4\2\0", b"", b"\4\2", b"\2\2\2")))
    found, ids = Framer("auto", SCHEMAS).bodies(column([b"body"] * 6), told)
    assert [None if one is None else one.message_indexes for one in schemas(found)] == [(0,), (1,), (1, 0), (), None, None]
    assert ids.to_pylist() == [2, 2, 2, 2, None, None]


def test_what_glues_serializer_writes() -> None:
    """Output of ``SerializationDataEncoder`` of software.amazon.glue:schema-registry-serde 1.1.27, plain and compressed."""
    guid = UUID("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63")
    text = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"},{"name":"s","type":"string"}]}'
    plain = "0300b7b4a7f09c964e4aa687fb5de9ef0c630a0668c3a9"
    payload = column([bytes.fromhex(plain), bytes.fromhex("0305b7b4a7f09c964e4aa687fb5de9ef0c63789ce362cb38bc120003b601e5")])
    found, _ = Framer("auto", ListedSchemas([Registered("r", 1, Schema("AVRO", text, guid=guid))])).bodies(payload)
    assert (bodies(found), found.schema.tolist()) == ([bytes.fromhex("0a0668c3a9")] * 2, [0, 0])


OWN = UUID("c51114bb-7982-6d3d-df42-4decde26a07b")
HIGH = int.from_bytes(OWN.bytes[:8], "big", signed=True)
LOW = int.from_bytes(OWN.bytes[8:], "big", signed=True)
BODY = b"\x0a\x02\x06abc"
PREFIXED = {
    "confluent id 1": (b"\0\0\0\0\1", CONFLUENT, 0, 1), "confluent id 2**31 - 1": (b"\0\x7f\xff\xff\xff", CONFLUENT, 0, 2**31 - 1),
    "confluent negative id": (b"\0\xff\xff\xff\xfe", CONFLUENT, 0, -2), "confluent GUID": (b"\1" + OWN.bytes, CONFLUENT_GUID, HIGH, LOW),
    "apicurio globalId": (b"\0\0\0\0\0\0\0\0\7", APICURIO, 0, 7), "glue": (b"\3\0" + OWN.bytes, GLUE, HIGH, LOW),
    "glue, compressed": (b"\3\5" + OWN.bytes, GLUE_ZLIB, HIGH, LOW),
    "single object": (b"\xc3\1" + (0xFEDCBA9876543210).to_bytes(8, "little"), SINGLE_OBJECT, 0, 0xFEDCBA9876543210 - 2**64),
}  # fmt: skip


def compiled(payloads: list[bytes | None], wanted: int, known: dict[tuple[int, int, int], tuple[int, int]] | None = None) -> list[tuple]:
    """Framing, prefix, length of the body and index of the schema of each payload, by the loop. Without ``known`` every key has index 0."""
    held = [(c_char * len(one)).from_buffer_copy(one) if one else None for one in payloads]
    at = np.array([addressof(one) if one else 0 for one in held], np.int64)
    first = at.copy()
    length = np.array([-1 if one is None else len(one) for one in payloads], np.int64)
    prefix, kinds = np.zeros((2, len(at)), np.int64)
    ids, schema = np.full((2, len(at)), -1, np.int64)
    table = np.zeros((1024, WIDTH), np.int64)
    for key, (index, id) in (known or {}).items():
        add_key(table, *key, index, id)
    rows = recognise_prefixes(at, length, prefix, kinds, ids, schema, 0, wanted, NO_SCHEMA, known is None, table)
    assert rows == len(at)
    assert all(at - first == np.where(length >= 0, prefix, 0))
    return list(zip(kinds.tolist(), prefix.tolist(), length.tolist(), schema.tolist(), ids.tolist(), strict=True))


def expected(payload: bytes | None, wanted: int) -> tuple:
    if payload is None:
        return NONE, 0, -1, NO_SCHEMA, NO_ID
    kind, size, _, low = recognise(payload, 0, len(payload), wanted)
    number = low if kind in (CONFLUENT, APICURIO) else NO_ID
    return kind, size, len(payload) - size if kind else -1, 0 if kind else NO_SCHEMA, number


@pytest.mark.parametrize(("prefix", "kind", "high", "low"), PREFIXED.values(), ids=PREFIXED)
def test_each_prefix_is_recognised_and_each_of_its_bytes_counts(prefix: bytes, kind: int, high: int, low: int) -> None:
    for body in (BODY, b""):
        assert recognise(prefix + body, 0, len(prefix + body), PREFIXES) == (kind, len(prefix), high, low)
    assert recognise(b"\0\0" + prefix, 2, 2 + len(prefix), PREFIXES) == (kind, len(prefix), high, low)
    assert recognise(prefix + BODY, 0, len(prefix + BODY), PREFIXES & ~(1 << kind) & ~(1 << CONFLUENT | 1 << APICURIO)) == (NONE, 0, 0, 0)
    assert len(prefix) <= 18
    # A shorter prefix is none, or a shorter one. ``bytes`` raise an error for a position after their end.
    for size in range(len(prefix)):
        found, length, _, _ = recognise(prefix[:size], 0, size, PREFIXES)
        assert (found, length) == ((CONFLUENT, 5) if kind == APICURIO and size >= 5 else (NONE, 0))
    # With any bit flipped, a prefix is another one or none, and never has the same schema.
    flipped, known = [], {(kind, high, low): (5, 50)}
    for place, bit in product(range(len(prefix)), range(8)):
        value = prefix[:place] + bytes([prefix[place] ^ 1 << bit]) + prefix[place + 1 :] + BODY
        other, length, *key = recognise(value, 0, len(value), PREFIXES)
        assert (other, length, *key) != (kind, len(prefix), high, low)
        known |= {(other, key[0], key[1]): (NO_SCHEMA, NO_ID)} if other != NONE and (other, *key) != (kind, high, low) else {}
        flipped += [prefix + BODY, value]
    rows = compiled(flipped, PREFIXES, known)
    assert ({row[3] for row in rows[::2]}, {row[3] for row in rows[1::2]}) == ({5}, {NO_SCHEMA})


def test_ids_of_four_and_of_eight_bytes() -> None:
    four, eight = 1 << CONFLUENT, 1 << APICURIO
    value = b"\0\0\0\0\0\0\0\0\7body"
    assert (recognise(value, 0, len(value), four)[:2], recognise(value, 0, len(value), eight)[:2]) == ((CONFLUENT, 5), (APICURIO, 9))
    assert recognise(value, 0, len(value), four | eight)[:2] == (APICURIO, 9)
    # The id 0 of four bytes, with a body of three bytes.
    assert recognise(value, 0, 8, four | eight)[:2] == (CONFLUENT, 5)
    large = b"\0" + (1 << 40).to_bytes(8, "big")
    assert (recognise(large, 0, 9, eight), recognise(large, 0, 9, four | eight)) == ((APICURIO, 9, 0, 1 << 40), (CONFLUENT, 5, 0, 1 << 8))


def test_the_loop_does_what_the_function_does() -> None:
    rng = random.Random(20)
    payloads: list[bytes | None] = [None, b""]
    for _ in range(5000):
        prefix, *_ = rng.choice(list(PREFIXED.values()))
        value = bytearray(prefix + BODY[: rng.randrange(7)])
        for _ in range(rng.choice((0, 0, 1, 2))):
            value[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
        payloads += [bytes(value[: rng.randrange(len(value) + 1)] if rng.random() < 0.3 else value)] * rng.choice((1, 1, 4))
        payloads.append(rng.choice((None, rng.randbytes(rng.randrange(24)))))
    for wanted in (PREFIXES, 0, *(1 << kind for kind in range(1, SINGLE_OBJECT + 1)), 1 << CONFLUENT | 1 << APICURIO):
        assert compiled(payloads, wanted) == [expected(one, wanted) for one in payloads]


LOOP: Callable[..., int] = recognise_prefixes
"""Its arguments come by a star."""


def test_an_unknown_key_stops_the_loop() -> None:
    table = np.zeros((64, WIDTH), np.int64)
    assert add_key(table, CONFLUENT, 0, 1, 0, 1)
    assert not add_key(table, CONFLUENT, 0, 1, 0, 1)
    held = [(c_char * 9).from_buffer_copy(b"\0\0\0\0" + bytes((id,)) + b"body") for id in (1, 1, 2, 1)]
    at, length = np.array([addressof(one) for one in held], np.int64), np.full(4, 9, np.int64)
    rest = np.zeros((4, 4), np.int64)
    assert (LOOP(at, length, *rest, 0, PREFIXES, NO_SCHEMA, False, table), length.tolist()) == (2, [4, 4, 9, 9])
    add_key(table, CONFLUENT, 0, 2, 1, 2)
    assert (LOOP(at, length, *rest, 2, PREFIXES, NO_SCHEMA, False, table), length.tolist()) == (4, [4] * 4)
    assert rest[3].tolist() == [0, 0, 1, 0]


def test_the_loop_reads_no_byte_after_a_payload() -> None:
    """Each payload ends where a page begins that nobody may read."""
    rng, table = random.Random(7), np.zeros((64, WIDTH), np.int64)
    for first in (b"\0", b"\0\0\0\0\1", b"\1", b"\3\0", b"\3\5", b"\xc3\1"):
        for size in range(26):
            memory = ending_at_a_page(max(size, 1))
            memory[:size] = np.frombuffer(first + rng.randbytes(26), np.uint8, size)
            end = memory.ctypes.data + len(memory)
            at, lengths, rest = np.full(3, end - size), np.full(3, size), np.zeros((4, 3), np.int64)
            assert LOOP(at, lengths, *rest, 0, PREFIXES, 0, True, table) == 3
            assert (at + lengths == end).all()


def test_the_constants_differ() -> None:
    names = ("NONE", "CONFLUENT", "CONFLUENT_GUID", "APICURIO", "GLUE", "GLUE_ZLIB", "SINGLE_OBJECT", "CONFLUENT_HEADER")
    values = [getattr(kinds, name) for name in (*names, "APICURIO_HEADER", "AZURE")]
    assert len(set(values)) == 10
    assert all(1 << value & PREFIXES for value in values[1:7])
