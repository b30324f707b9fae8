"""Prefixes of values: what the function in plain Python and the compiled loop recognise, and that they read no byte after a value."""

import os
import random
import subprocess
import sys
from ctypes import addressof, c_char
from uuid import UUID

import numpy as np
import pytest

from kolumn.cpu_fallback.values.framing import NO_ID, NO_SCHEMA, WIDTH, add_key, recognise_prefixes
from kolumn.values.wire import framing
from kolumn.values.wire.framing import APICURIO, CONFLUENT, CONFLUENT_GUID, GLUE, GLUE_ZLIB, NONE, PREFIXES, SINGLE_OBJECT, recognise

GUID = UUID("c51114bb-7982-6d3d-df42-4decde26a07b")
HIGH = int.from_bytes(GUID.bytes[:8], "big", signed=True)
LOW = int.from_bytes(GUID.bytes[8:], "big", signed=True)
BODY = b"\x0a\x02\x06abc"
PREFIXED = {
    "confluent id 1": (b"\0\0\0\0\1", CONFLUENT, 0, 1),
    "confluent id 2**31 - 1": (b"\0\x7f\xff\xff\xff", CONFLUENT, 0, 2**31 - 1),
    "confluent negative id": (b"\0\xff\xff\xff\xfe", CONFLUENT, 0, -2),
    "confluent GUID": (b"\1" + GUID.bytes, CONFLUENT_GUID, HIGH, LOW),
    "apicurio globalId": (b"\0\0\0\0\0\0\0\0\7", APICURIO, 0, 7),
    "glue": (b"\3\0" + GUID.bytes, GLUE, HIGH, LOW),
    "glue, compressed": (b"\3\5" + GUID.bytes, GLUE_ZLIB, HIGH, LOW),
    "single object": (b"\xc3\1" + (0xFEDCBA9876543210).to_bytes(8, "little"), SINGLE_OBJECT, 0, 0xFEDCBA9876543210 - 2**64),
}


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
def test_each_prefix_is_recognised(prefix: bytes, kind: int, high: int, low: int) -> None:
    for body in (BODY, b""):
        assert recognise(prefix + body, 0, len(prefix + body), PREFIXES) == (kind, len(prefix), high, low)
    assert recognise(b"\0\0" + prefix, 2, 2 + len(prefix), PREFIXES) == (kind, len(prefix), high, low)
    assert recognise(prefix + BODY, 0, len(prefix + BODY), PREFIXES & ~(1 << kind) & ~(1 << CONFLUENT | 1 << APICURIO)) == (NONE, 0, 0, 0)
    assert len(prefix) <= 18


@pytest.mark.parametrize(("prefix", "kind", "high", "low"), PREFIXED.values(), ids=PREFIXED)
def test_no_byte_after_a_payload_is_read(prefix: bytes, kind: int, high: int, low: int) -> None:
    """A shorter prefix is none, or a shorter one. ``bytes`` raise an error for a position after their end."""
    for size in range(len(prefix)):
        found, length, _, _ = recognise(prefix[:size], 0, size, PREFIXES)
        assert (found, length) == ((CONFLUENT, 5) if kind == APICURIO and size >= 5 else (NONE, 0))


def test_ids_of_four_and_of_eight_bytes() -> None:
    four, eight = 1 << CONFLUENT, 1 << APICURIO
    value = b"\0\0\0\0\0\0\0\0\7body"
    assert recognise(value, 0, len(value), four)[:2] == (CONFLUENT, 5)
    assert recognise(value, 0, len(value), eight)[:2] == (APICURIO, 9)
    assert recognise(value, 0, len(value), four | eight)[:2] == (APICURIO, 9)
    # The id 0 of four bytes, with a body of three bytes.
    assert recognise(value, 0, 8, four | eight)[:2] == (CONFLUENT, 5)
    large = b"\0" + (1 << 40).to_bytes(8, "big")
    assert recognise(large, 0, 9, eight) == (APICURIO, 9, 0, 1 << 40)
    assert recognise(large, 0, 9, four | eight) == (CONFLUENT, 5, 0, 1 << 8)


def test_the_loop_does_what_the_function_does() -> None:
    rng = random.Random(20)
    payloads: list[bytes | None] = [None, b""]
    for _ in range(20_000):
        prefix, *_ = rng.choice(list(PREFIXED.values()))
        value = bytearray(prefix + BODY[: rng.randrange(7)])
        for _ in range(rng.choice((0, 0, 1, 2))):
            value[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
        payloads += [bytes(value[: rng.randrange(len(value) + 1)] if rng.random() < 0.3 else value)] * rng.choice((1, 1, 4))
        payloads.append(rng.choice((None, rng.randbytes(rng.randrange(24)))))
    for wanted in (PREFIXES, 0, *(1 << kind for kind in range(1, SINGLE_OBJECT + 1)), 1 << CONFLUENT | 1 << APICURIO):
        assert compiled(payloads, wanted) == [expected(one, wanted) for one in payloads]


@pytest.mark.parametrize(("prefix", "kind", "high", "low"), PREFIXED.values(), ids=PREFIXED)
def test_every_byte_of_a_prefix_counts(prefix: bytes, kind: int, high: int, low: int) -> None:
    """With any bit flipped, a prefix is another one or none, and never has the same schema."""
    flipped = []
    for position in range(len(prefix)):
        for bit in range(8):
            value = bytearray(prefix + BODY)
            value[position] ^= 1 << bit
            flipped.append(bytes(value))
            assert recognise(value, 0, len(value), PREFIXES) != (kind, len(prefix), high, low)
    rows = compiled([value for other in flipped for value in (prefix + BODY, other)], PREFIXES, _known(flipped, (kind, high, low)))
    assert {row[3] for row in rows[::2]} == {5}
    assert {row[3] for row in rows[1::2]} == {NO_SCHEMA}


def _known(others: list[bytes], key: tuple[int, int, int]) -> dict[tuple[int, int, int], tuple[int, int]]:
    found = {}
    for value in others:
        kind, _, high, low = recognise(value, 0, len(value), PREFIXES)
        if kind != NONE:
            found[kind, high, low] = (NO_SCHEMA, NO_ID)
    return found | {key: (5, 50)}


def test_an_unknown_key_stops_the_loop() -> None:
    table = np.zeros((64, WIDTH), np.int64)
    assert add_key(table, CONFLUENT, 0, 1, 0, 1)
    assert not add_key(table, CONFLUENT, 0, 1, 0, 1)
    held = [(c_char * 9).from_buffer_copy(b"\0\0\0\0" + bytes((id,)) + b"body") for id in (1, 1, 2, 1)]
    at, length = np.array([addressof(one) for one in held], np.int64), np.full(4, 9, np.int64)
    rest = np.zeros((4, 4), np.int64)
    assert recognise_prefixes(at, length, *rest, 0, PREFIXES, NO_SCHEMA, False, table) == 2
    assert length.tolist() == [4, 4, 9, 9]
    add_key(table, CONFLUENT, 0, 2, 1, 2)
    assert recognise_prefixes(at, length, *rest, 2, PREFIXES, NO_SCHEMA, False, table) == 4
    assert length.tolist() == [4] * 4
    assert rest[3].tolist() == [0, 0, 1, 0]


# Each payload ends where its page does, and the page after it can't be read.
GUARDED = """
import ctypes, mmap, random
import numpy as np
from kolumn.cpu_fallback.values.framing import WIDTH, recognise_prefixes
from kolumn.values.wire.framing import PREFIXES
size = mmap.PAGESIZE
area = mmap.mmap(-1, 2 * size)
start = ctypes.addressof(ctypes.c_char.from_buffer(area))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.mprotect(ctypes.c_void_p(start + size), ctypes.c_size_t(size), 0) == 0
rng = random.Random(7)
table = np.zeros((64, WIDTH), np.int64)
rows = 0
for first in (b"\\0", b"\\0\\0\\0\\0\\1", b"\\1", b"\\3\\0", b"\\3\\5", b"\\xc3\\1"):
    for length in range(0, 26):
        payload = (first + rng.randbytes(26))[:length]
        ctypes.memmove(start + size - length, payload, length)
        at, lengths = np.full(3, start + size - length), np.full(3, length)
        rest = np.zeros((4, 3), np.int64)
        assert recognise_prefixes(at, lengths, *rest, 0, PREFIXES, 0, True, table) == 3
        assert (at + lengths == start + size).all()
        rows += 3
print(rows)
"""


def test_the_loop_reads_no_byte_after_a_payload() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run([sys.executable, "-c", GUARDED], env=environment, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (0, "468\n"), answer.stderr


def test_the_constants_differ() -> None:
    names = ("NONE", "CONFLUENT", "CONFLUENT_GUID", "APICURIO", "GLUE", "GLUE_ZLIB", "SINGLE_OBJECT", "CONFLUENT_HEADER")
    values = [getattr(framing, name) for name in (*names, "APICURIO_HEADER", "AZURE")]
    assert len(set(values)) == 10
    assert all(1 << value & PREFIXES for value in values[1:7])
