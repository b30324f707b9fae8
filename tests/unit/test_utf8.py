"""Malformed text is decoded to as many replacement characters as in Java."""

import random

import pytest

from kit.oracle import _text
from kolumn.arrow import utf8


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
    assert utf8.decode(data) == expected


def test_any_bytes_as_the_independent_reader_has_them() -> None:
    rng = random.Random(5)
    pool = [0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF]
    for _ in range(50_000):
        data = bytes(rng.choice(pool) for _ in range(rng.randrange(8)))
        assert utf8.decode(data) == _text(data), data
