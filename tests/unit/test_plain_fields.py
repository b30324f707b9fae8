"""`plain_fields` returns the same as `fields` or nothing, and it reads all plain records."""

import random

import pytest

from kit.encoder import Record, record_body, varint
from kit.oracle import _text
from kolumn.core import text
from kolumn.core.errors import Code
from kolumn.formats import v2

SIZES = (None, 0, 1, 5, 63, 64, 100, 3000)
DELTAS = (0, 1, 63, 64, 8191)


def record(chance: random.Random, skip: int, most: int = 8191) -> bytes:
    """A record without headers whose numbers are at most ``most``, with its length."""
    key, value = (None if size is None else chance.randbytes(size) for size in chance.choices(SIZES, k=2))
    times = [*DELTAS, -1, -64, -65, -8192, most]
    one = Record(chance.choice([*DELTAS, most]), key, value, chance.choice(times))
    body = record_body(one, 0, 0)[1 - skip :]
    return varint(len(body)) + body


def both(buf: bytes, at: int, end: int, skip: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Results of both functions. The buffer ends two bytes after the end, so that reading more fails."""
    assert len(buf) == end + 2
    return v2.plain_fields(buf, at, end, skip), v2.fields(buf, at, end, skip)


@pytest.mark.parametrize("skip", [0, 1])
def test_plain_records_are_taken(skip: int) -> None:
    chance = random.Random(skip)
    for _ in range(2000):
        before, whole = bytes(chance.randrange(3)), record(chance, skip)
        end = len(before) + len(whole)
        plain, full = both(before + whole + chance.randbytes(2), len(before), end, skip)
        assert (plain, full[:2] + full[8:]) == (full[1:8], (Code.OK, end, end, 0))


@pytest.mark.parametrize("skip", [0, 1])
def test_nothing_else_is_said(skip: int) -> None:
    chance, taken, left = random.Random(skip), 0, 0
    for _ in range(40_000):
        whole = bytearray(record(chance, skip, 1 << 20))
        for _ in range(chance.randrange(4)):
            place = min(chance.randrange(len(whole)), chance.randrange(16))
            whole[place % len(whole)] = chance.choice([0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFF, chance.randrange(256)])
        end = max(len(whole) + chance.choice([0, 0, 0, 0, 0, 0, -1, -2, -5, 5]), 0)
        data = bytes(whole) + chance.randbytes(7)
        plain, full = both(data[: end + 2], 0, end, skip)
        if plain[0] >= 0:
            assert plain == full[1:8], whole.hex()
            assert (full[0], full[8], full[9]) == (Code.OK, full[1], 0), whole.hex()
            taken += 1
        elif full[0] == Code.OK:
            left += 1
    assert taken > 10_000
    assert left > 100
    assert both(bytes(2), 0, 0, skip)[0] == (-1, 0, 0, 0, 0, 0, 0)


def test_records_with_headers_are_read_the_short_way_as_the_long_way() -> None:
    chance, taken, left = random.Random(3), 0, 0
    for _ in range(20_000):
        sizes = chance.choices((0, 1, 5, 70), k=chance.randrange(1, 4))
        headers = tuple((chance.randbytes(size), chance.choice((None, b"", b"v", bytes(200)))) for size in sizes)
        body = record_body(Record(chance.choice(DELTAS), b"key", chance.choice((None, b"value")), 7, headers), 0, 0)
        whole = bytearray(varint(len(body)) + body)
        for _ in range(chance.choice((0, 0, 1, 3))):
            whole[chance.randrange(len(whole))] = chance.choice([0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFF, chance.randrange(256)])
        data = bytes(whole) + bytes(2)
        short, full = v2.short_fields(data, 0, len(whole)), v2.fields(data, 0, len(whole))
        if short.next < 0 or full.code != Code.OK:
            continue
        assert short == full[1:8]
        at = full.headers
        for _ in range(min(full.header_count, 10)):
            one, expected = v2.plain_header(data, at, full.next), v2.record_header(data, at, full.next)
            if one.next < 0:
                left += 1
                break
            assert one == expected
            taken, at = taken + 1, one.next
    assert taken > 10_000
    assert left > 100


# Malformed text is decoded to as many replacement characters as in Java.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"key", "key"), ("日本語 😀".encode(), "日本語 😀"), (b"\x80a", "\ufffda"), (b"\xc0\x80", "\ufffd\ufffd"), (b"\xc3", "\ufffd"),
        # a surrogate, overlong, beyond U+10FFFF
        (b"\xed\xa0\x80|", "\ufffd|"), (b"\xed\xbb\xd1\x8e", "\ufffd\u044e"), (b"\xe0\x80\x80", "\ufffd" * 3),
        (b"\xf4\x90\x80\x80", "\ufffd" * 4), (b"\xf8\x88\x80\x80\x80", "\ufffd" * 5),
        # cut, by the end or not
        (b"\xe2\x82", "\ufffd"), (b"\xe2\x82|", "\ufffd|"), (b"\xf0\x9f\x98", "\ufffd"), (b"\xf0\x9f\x98|", "\ufffd|"),
        (b"\xf0\x9f|", "\ufffd|"),
    ],
)  # fmt: skip
def test_as_java(data: bytes, expected: str) -> None:
    assert text.decode(data) == expected


def test_any_bytes_as_the_independent_reader_has_them() -> None:
    rng = random.Random(5)
    pool = [0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF]
    for _ in range(50_000):
        data = bytes(rng.choice(pool) for _ in range(rng.randrange(8)))
        assert text.decode(data) == _text(data), data
