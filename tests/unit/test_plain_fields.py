"""`plain_fields` returns the same as `fields` or nothing, and it reads all plain records."""

import random

import pytest

from kit.encoder import Record, overlong, record_body, varint
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
        end = len(whole) + chance.choice([0, 0, -1, 5])
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


def test_what_is_left_to_the_long_way() -> None:
    body = record_body(Record(1, b"k", b"v", 2), 0, 0)
    header = record_body(Record(1, b"k", b"v", 2, ((b"h", b"w"),)), 0, 0)
    for why, data in {
        "a header": varint(len(header)) + header,
        "three bytes": overlong(varint(len(body)), 3) + body,
        "a count of two bytes": varint(len(body) + 1) + body[:-1] + b"\x80\x00",
        "a negative offset delta": varint(len(body)) + body.replace(b"\x02\x02k", b"\x01\x02k"),
        "null as -2": varint(len(body) - 1) + body.replace(b"\x02k", b"\x03"),
    }.items():
        plain, full = both(data + bytes(2), 0, len(data), 1)
        assert full[:2] == (Code.OK, len(data)), why
        assert plain[0] == -1, why


@pytest.mark.parametrize("missing", [1, 2, 5])
def test_the_end_is_kept(missing: int) -> None:
    body = record_body(Record(1, b"key", b"value", 2), 0, 0)
    data = (varint(len(body)) + body)[:-missing]
    assert v2.plain_fields(data + bytes(2), 0, len(data)) == (-1, 0, 0, 0, 0, 0, 0)
    assert v2.plain_fields(bytes(2), 0, 0) == (-1, 0, 0, 0, 0, 0, 0)


def test_records_with_headers_are_read_the_short_way_as_the_long_way() -> None:
    chance, taken, left = random.Random(3), 0, 0
    for _ in range(20_000):
        headers = tuple(
            (chance.randbytes(chance.choice((0, 1, 5, 70))), chance.choice((None, b"", b"v", bytes(200))))
            for _ in range(chance.randrange(1, 4))
        )
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
        (b"key", "key"),
        ("日本語 😀".encode(), "日本語 😀"),
        (b"\x80a", "\ufffda"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xc3", "\ufffd"),
        (b"\xed\xa0\x80|", "\ufffd|"),  # a surrogate
        (b"\xed\xbb\xd1\x8e", "\ufffd\u044e"),
        (b"\xe0\x80\x80", "\ufffd\ufffd\ufffd"),  # overlong
        (b"\xe2\x82", "\ufffd"),  # cut by the end
        (b"\xe2\x82|", "\ufffd|"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xf0\x9f\x98|", "\ufffd|"),
        (b"\xf0\x9f|", "\ufffd|"),
        (b"\xf4\x90\x80\x80", "\ufffd" * 4),  # beyond U+10FFFF
        (b"\xf8\x88\x80\x80\x80", "\ufffd" * 5),
    ],
)
def test_as_java(data: bytes, expected: str) -> None:
    assert text.decode(data) == expected


def test_any_bytes_as_the_independent_reader_has_them() -> None:
    rng = random.Random(5)
    pool = [0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF]
    for _ in range(50_000):
        data = bytes(rng.choice(pool) for _ in range(rng.randrange(8)))
        assert text.decode(data) == _text(data), data
