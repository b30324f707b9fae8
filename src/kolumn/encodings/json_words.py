"""Words of text: eight bytes at any address, little-endian, and arithmetic of whole words. A backend replaces these by instructions."""

from ctypes import c_int64

_SIGN = 1 << 63
_ALL = (1 << 64) - 1


def load_word(at: int) -> int:
    """Eight bytes, signed."""
    return c_int64.from_address(at).value


def put_word8(at: int, value: int) -> None:
    """Store eight bytes: the low 64 bits of ``value``."""
    c_int64.from_address(at).value = value


def wrapped(value: int) -> int:
    """The low 64 bits of a number, signed."""
    return ((value + _SIGN) & _ALL) - _SIGN


def product(one: int, other: int) -> tuple[int, int]:
    """High and low word of the product of two words, which are taken without a sign."""
    both = (one & _ALL) * (other & _ALL)
    return wrapped(both >> 64), wrapped(both)


def leading_zeros(word: int) -> int:
    """Zeros above the highest set bit of a positive word."""
    return 64 - word.bit_length()


def first_byte(bits: int) -> int:
    """Number of the lowest byte with a bit set; there is one."""
    return ((bits & -bits).bit_length() - 1) >> 3


def word_at(at: int, end: int) -> int:
    """Up to eight bytes that begin at ``at``, zeros from ``end`` on. The eight bytes before ``end`` may be read."""
    left = end - at
    if left >= 8:
        return load_word(at)
    if left <= 0:
        return 0
    return (load_word(end - 8) >> (64 - 8 * left)) & ((1 << (8 * left)) - 1)
