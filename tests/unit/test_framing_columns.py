"""Columns of values taken apart: schemas and bodies of each row, of every Arrow type of bytes, by prefixes and by headers."""

import pickle
import threading
import tracemalloc
import zlib
from collections import Counter
from ctypes import string_at
from uuid import UUID

import pyarrow as pa
import pytest

import kolumn
from kolumn.core.schema import HEADERS
from kolumn.values.decoder import Bodies
from kolumn.values.framing import FRAMINGS, Framer
from kolumn.values.schemas.fingerprint import fingerprint_of
from kolumn.values.schemas.given import ListedSchemas
from kolumn.values.schemas.schema import Registered, Schema
from kolumn.values.wire import framing as kinds

GUID = UUID("12345678-9abc-def0-0fed-cba987654321")
ONE = Schema("AVRO", '{"type":"record","name":"O","fields":[{"name":"id","type":"long"}]}', id=1)
TWO = Schema("PROTOBUF", 'syntax="proto3"; message M {}', id=2, guid=GUID)
BARE = Schema("AVRO", '"string"')
SCHEMAS = ListedSchemas([Registered("o", 1, ONE), Registered("m", 1, TWO)])
FIXED = Schema("AVRO", '"long"', id=77)
RABIN = b"\xc3\1" + fingerprint_of(ONE).to_bytes(8, "little")
ROWS = [
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
    return [None if size < 0 else string_at(int(at), int(size)) for at, size in zip(found.at, found.length, strict=True)]


def schemas(found: Bodies) -> list[Schema | None]:
    return [None if index < 0 else found.schemas[index] for index in found.schema.tolist()]


def column(values: list[bytes | None], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind)


def headers(*rows: list[tuple[str, bytes | None]] | None) -> pa.Array:
    return pa.array([None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows], HEADERS)


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("start", [0, 3])
def test_rows_of_all_framings_in_one_column(kind: pa.DataType, start: int) -> None:
    whole = column([one[0] for one in ROWS], kind)
    found, ids = Framer("auto", SCHEMAS).bodies(whole.slice(start))
    rows = ROWS[start:]
    assert bodies(found) == [one[1] for one in rows]
    assert found.framing.tolist() == [one[2] for one in rows]
    assert [None if one is None else one.id for one in schemas(found)] == [one[3] for one in rows]
    assert ids.to_pylist() == [one[4] for one in rows]
    assert ids.type == pa.int64()
    assert not found.bare
    for row, (value, body, framing, *_) in enumerate(rows):
        if body is not None:
            whole = string_at(int(found.at[row] - found.prefix[row]), int(found.length[row] + found.prefix[row]))
            assert whole == (value[:18] + body if framing == kinds.GLUE else value)


@pytest.mark.parametrize("kind", [*TYPES, pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_empty_columns_and_columns_of_nulls(kind: pa.DataType) -> None:
    for values in ([], [None, None]):
        found, ids = Framer("auto", SCHEMAS).bodies(column(values, kind))
        assert bodies(found) == values
        assert ids.to_pylist() == values
    assert len(Framer("auto", SCHEMAS).bodies(column([b"\0\0\0\0\1x".decode()] if "string" in str(kind) else [b"x"], kind))[0]) == 1


def test_framings_by_name() -> None:
    values = [one[0] for one in ROWS]
    wanted = {
        "none": set(),
        "confluent": {kinds.CONFLUENT, kinds.CONFLUENT_GUID},
        "apicurio": {kinds.CONFLUENT, kinds.APICURIO},
        "apicurio-8": {kinds.APICURIO},
        "glue": {kinds.GLUE},
        "single-object": {kinds.SINGLE_OBJECT},
    }
    for name, own in wanted.items():
        found, _ = Framer(name, SCHEMAS).bodies(column(values, pa.binary()))
        assert set(found.framing.tolist()) - {kinds.NONE} == own
    with pytest.raises(kolumn.ArgumentError, match=r"unknown framing 'confluen'.*confluent"):
        Framer("confluen", SCHEMAS)
    with pytest.raises(kolumn.ArgumentError, match="either"):
        Framer("auto", SCHEMAS, FIXED)
    with pytest.raises(kolumn.ArgumentError, match="int64"):
        Framer("auto", SCHEMAS).bodies(pa.array([1]))


def test_with_one_schema_a_prefix_is_left_out_where_it_is_recognised() -> None:
    values = [b"\0\0\0\0\7x", None, b"plain", b"\1" + GUID.bytes]
    found, ids = Framer("auto", schema=FIXED).bodies(column(values, pa.binary()))
    assert (bodies(found), found.bare) == ([b"x", None, b"plain", b""], True)
    assert schemas(found) == [FIXED, None, FIXED, FIXED]
    assert ids.to_pylist() == [7, None, None, None]
    found, ids = Framer("none", schema=FIXED).bodies(column(values, pa.binary()))
    assert (bodies(found), found.bare) == (values, False)
    assert ids.to_pylist() == [None] * 4
    found, _ = Framer("confluent", schema=FIXED).bodies(column(values, pa.binary()))
    assert (bodies(found), found.bare) == ([b"x", None, None, b""], False)


def test_without_any_schema_bodies_have_that_of_the_reader() -> None:
    values = [b"\0\0\0\0\7x", None, b"plain"]
    told = headers([("__value_schema_id", b"\1" + GUID.bytes)], [], [])
    for given, own, numbers in ((None, [b"x", None, b"plain"], [7, None, None]), (told, [values[0], None, b"plain"], [None] * 3)):
        found, ids = Framer("auto").bodies(column(values, pa.binary()), given)
        assert (bodies(found), found.bare, found.schemas) == (own, True, ())
        assert found.schema.tolist() == [-1] * 3
        assert ids.to_pylist() == numbers


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
    other = threading.Thread(target=framer.bodies, args=(column(values, pa.binary()),))
    other.start()
    other.join()
    for _ in range(2):
        found, ids = framer.bodies(column(values, pa.binary()))
    assert set(asked.asked.values()) == {1}
    assert len(asked.asked) == 5000
    assert ids.to_pylist() == [id % 5000 for id in range(20_000)]
    assert [None if one is None else one.id for one in schemas(found)] == [
        id % 5000 if id % 5000 % 3 == 0 else None for id in range(20_000)
    ]
    assert framer.schemas == found.schemas


def test_unknown_keys_are_forgotten_when_there_are_many() -> None:
    """Values that only look as if they had a prefix have any number of keys."""
    framer = Framer("confluent", SCHEMAS)
    values = [b"\0" + id.to_bytes(4, "big") + b"x" for id in range(3, 200_000)] + [b"\0\0\0\0\1x"]
    found, _ = framer.bodies(column(values, pa.binary()))
    assert (found.schema >= 0).sum() == 1
    assert len(framer._own.table.rows) <= 1 << 19
    assert len(framer._known._indexes) <= (1 << 17) + 1


def test_threads_see_the_same_schemas_at_the_same_places() -> None:
    framer = Framer("confluent", Counted())
    results: dict[int, list[tuple[Schema | None, ...]]] = {}

    def work(seed: int) -> None:
        own = [3 * ((seed + 7 * row) % 300) for row in range(3000)]
        for _ in range(5):
            found, _ = framer.bodies(column([b"\0" + id.to_bytes(4, "big") for id in own], pa.binary()))
            results.setdefault(seed, []).append((own, found))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    last = framer.schemas
    for founds in results.values():
        for own, found in founds:
            assert found.schemas == last[: len(found.schemas)]
            assert [found.schemas[index].id for index in found.schema.tolist()] == own


def test_framers_go_to_other_processes() -> None:
    framer = Framer("auto", SCHEMAS, is_key=True, max_value_bytes=9)
    framer.bodies(column([ROWS[0][0]], pa.binary()))
    copy = pickle.loads(pickle.dumps(framer))
    assert copy._made.args[0] == "auto"
    assert copy._made.keywords == {"is_key": True, "max_value_bytes": 9}
    assert bodies(copy.bodies(column([ROWS[0][0]], pa.binary()))[0]) == [b"body"]


def test_compressed_values_are_bounded_and_checked() -> None:
    whole = zlib.compress(b"a" * 1000)
    streams = [whole, whole[:-1], whole + b"x", b"", b"junk", zlib.compress(b"a" * 1001), zlib.compress(b"")]
    values = [b"\3\5" + GUID.bytes + one for one in streams]
    found, _ = Framer("glue", SCHEMAS, max_value_bytes=1000).bodies(column(values, pa.binary()))
    assert bodies(found) == [b"a" * 1000, None, None, None, None, None, b""]
    assert set(found.framing.tolist()) == {kinds.GLUE}
    # Without a registry they may be values that only look as if they were compressed.
    found, _ = Framer("auto", max_value_bytes=1000).bodies(column(values, pa.binary()))
    assert bodies(found) == [b"a" * 1000, *values[1:6], b""]
    assert found.prefix.tolist() == [18, 0, 0, 0, 0, 0, 18]


def test_a_bomb_is_not_decompressed() -> None:
    value = b"\3\5" + GUID.bytes + zlib.compress(bytes(64 << 20))
    framer = Framer("glue", SCHEMAS, max_value_bytes=1000)
    tracemalloc.start()
    try:
        assert bodies(framer.bodies(column([value], pa.binary()))[0]) == [None]
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_header_comes_before_a_prefix() -> None:
    """As in Confluent's deserializers: the last header of the name, then the prefix."""
    name, plain = "__value_schema_id", b"\0\0\0\0\1body"
    told = headers(
        [(name, b"\0\0\0\0\1"), ("x", b"y"), (name, b"\1" + GUID.bytes)],
        [],
        None,
        [(name, b"\0\0\0\0\1"), (name, b"\1" + GUID.bytes)],
        [(name, None)],
        [(name, b"\1" + bytes(16))],
        [(name, b"nonsense")],
        [("__key_schema_id", b"\1" + GUID.bytes)],
    )
    values = column([plain] * 8, pa.binary())
    framer = Framer("auto", SCHEMAS)
    assert framer.needs_headers
    found, ids = framer.bodies(values, told)
    assert [None if one is None else one.id for one in schemas(found)] == [2, 1, 1, 2, 1, None, None, 1]
    assert bodies(found) == [plain, b"body", b"body", plain, b"body", None, None, b"body"]
    assert ids.to_pylist() == [2, 1, 1, 2, 1, None, None, 1]
    named = kinds.CONFLUENT_HEADER
    assert found.framing.tolist() == [named, 1, 1, named, 1, named, named, 1]
    part, _ = framer.bodies(values.slice(3, 3), told.slice(3, 3))
    assert bodies(part) == bodies(found)[3:6]
    keys, _ = Framer("confluent-header", SCHEMAS, is_key=True).bodies(values, told)
    assert bodies(keys) == [None] * 7 + [plain]
    null, ids = framer.bodies(column([None], pa.binary()), told.slice(0, 1))
    assert (bodies(null), null.framing.tolist(), ids.to_pylist()) == ([None], [kinds.NONE], [None])
    fixed, _ = Framer("confluent-header", schema=FIXED).bodies(values, told)
    assert bodies(fixed) == [plain] * 8
    with pytest.raises(kolumn.ArgumentError, match="headers"):
        Framer("confluent-header", SCHEMAS).bodies(values)


@pytest.mark.parametrize("views", [False, True])
def test_headers_of_apicurio_and_azure(views: bool) -> None:
    number = (2).to_bytes(8, "big")
    azure = b"avro/binary+" + GUID.hex.encode()
    told = headers(
        [("apicurio.value.globalId", number)],
        [("apicurio.value.globalId", (9).to_bytes(8, "big")), ("apicurio.value.contentId", number)],
        [("apicurio.value.globalId", b"\2")],
        [("content-type", azure)],
        [("content-type", b"\xa1\x2c" + azure)],
        [("content-type", b"application/json")],
    )
    if views:
        told = told.cast(pa.list_(pa.struct([("key", pa.string_view()), ("value", pa.binary_view())])))
    found, ids = Framer("auto", SCHEMAS).bodies(column([b"body"] * 6, pa.binary()), told)
    assert bodies(found) == [b"body", b"body", None, b"body", b"body", None]
    assert ids.to_pylist() == [2, 2, None, 2, 2, None]
    assert found.framing.tolist() == [kinds.APICURIO_HEADER] * 3 + [kinds.AZURE] * 2 + [kinds.NONE]
    for name, rows in (("apicurio-header", [True, True, False, False, False, False]), ("azure", [False] * 3 + [True, True, False])):
        found, _ = Framer(name, SCHEMAS).bodies(column([b"body"] * 6, pa.binary()), told)
        assert [one is not None for one in bodies(found)] == rows
    assert {name for name in FRAMINGS if Framer(name, SCHEMAS).needs_headers} == {"auto", "confluent-header", "apicurio-header", "azure"}
    # Where all rows have one schema, headers would change nothing.
    assert not Framer("auto").needs_headers


def test_apicurios_headers_name_messages_and_encodings() -> None:
    number, message, encoding = ("apicurio.value.globalId", (2).to_bytes(8, "big")), "apicurio.protobuf.type", "apicurio.value.encoding"
    told = headers(
        [number, (message, b"M")],
        [number, (message, b"\xff")],
        [number],
        [(message, b"M")],
        [number, (encoding, b"BINARY")],
        [number, (encoding, b"JSON")],
        [("apicurio.value.artifactId", b"orders-1")],
        [number, ("apicurio.protobuf.type.key", b"M")],
        [number, (message, b"")],
    )
    found, ids = Framer("auto", SCHEMAS).bodies(column([b"body"] * 9, pa.binary()), told)
    assert [None if one is None else one.message for one in schemas(found)] == ["M", "\ufffd", "", None, "", "", None, "", None]
    assert [one is not None for one in bodies(found)] == [True, True, True, False, True, False, False, True, False]
    assert ids.to_pylist() == [2, 2, 2, None, 2, 2, None, 2, 2]
    # Without a registry the message is that of the reader's file, whose index is -1.
    found, _ = Framer("apicurio-header").bodies(column([b"body"] * 9, pa.binary()), told)
    assert [None if one is None else (one.text, one.message) for one in schemas(found)] == [("", "M"), ("", "\ufffd")] + [None] * 7
    assert [one is not None for one in bodies(found)] == [True, True, True, True, True, False, True, True, False]


def test_messages_that_headers_choose_are_forgotten_when_there_are_many() -> None:
    number = ("apicurio.value.globalId", (2).to_bytes(8, "big"))
    told = headers(*([number, ("apicurio.protobuf.type", b"%d" % row)] for row in range(6000)), [number, ("apicurio.protobuf.type", b"7")])
    framer = Framer("auto", SCHEMAS)
    found, _ = framer.bodies(column([b"body"] * 6001, pa.binary()), told)
    assert len(framer.schemas) == 4096
    assert found.schemas[found.schema[6000]].message == "7"


def test_message_indexes_of_a_header_are_a_part_of_the_schema() -> None:
    told = headers(*([("__value_schema_id", b"\1" + GUID.bytes + rest)] for rest in (b"\0", b"\2\2", b"\4\2\0", b"", b"\4\2", b"\2\2\2")))
    found, ids = Framer("auto", SCHEMAS).bodies(column([b"body"] * 6, pa.binary()), told)
    assert [None if one is None else one.message_indexes for one in schemas(found)] == [(0,), (1,), (1, 0), (), None, None]
    assert ids.to_pylist() == [2, 2, 2, 2, None, None]


def test_what_glues_serializer_writes() -> None:
    """Output of ``SerializationDataEncoder`` of software.amazon.glue:schema-registry-serde 1.1.27, plain and compressed."""
    guid = UUID("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63")
    text = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"},{"name":"s","type":"string"}]}'
    plain = "0300b7b4a7f09c964e4aa687fb5de9ef0c630a0668c3a9"
    payload = pa.array([bytes.fromhex(plain), bytes.fromhex("0305b7b4a7f09c964e4aa687fb5de9ef0c63789ce362cb38bc120003b601e5")], pa.binary())
    found, _ = Framer("auto", ListedSchemas([Registered("r", 1, Schema("AVRO", text, guid=guid))])).bodies(payload)
    assert bodies(found) == [bytes.fromhex("0a0668c3a9")] * 2
    assert found.schema.tolist() == [0, 0]
