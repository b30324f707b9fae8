"""Numbers of JSON: integers of 64 bits, and decimal numbers that are certainly rounded right.

    number   -? (0 | 1-9 0-9*) (. 0-9+)? ([eE] [+-]? 0-9+)?

The digits of a number without its point have to be less than 2**63. Decimal numbers are rounded as by Daniel Lemire, "Number parsing at a
gigabyte per second" (2021), section 5: the digits times a power of five of 128 bits. Everything that this does not decide is left to
others: more digits, numbers that overflow or are not normal.

``numbers`` is the address of a table of int64: for each count of digits from 0 to 8 the largest number after which as many digits may fit,
and the power of ten; then powers of five from `LEAST` to `MOST`, two words each, the high one first.
"""

from kolumn.encodings.json_words import first_byte, leading_zeros, product, word_at, wrapped
from kolumn.formats.memory import load8
from kolumn.machine_code.words import load64

LEAST, MOST = -342, 308
"""Exponents of the powers of five."""
POWERS = 144
"""Where the powers of five begin in the table, in bytes."""
MOST_EXPONENT = 308
"""Largest exponent that is read."""
MOST_DIGITS = 40
"""Most digits before and after the point of a number that is passed over; its exponent has at most two."""
_TENS = 72
_ZERO, _MINUS, _PLUS, _POINT, _E = (ord(one) for one in "0-+.e")
_ZEROS, _ABOVE_NINE, _HIGH = 0x3030303030303030, 0x7676767676767676, -0x7F7F7F7F7F7F7F80
_PAIRS, _HUNDREDS, _ONES = 0x000000FF000000FF, 0x000F424000000064, 0x0000271000000001
_SIGN = -(2**63)
_NEVER_TIES, _FRACTION = 0x1FF, (1 << 52) - 1


def eight_digits(word: int) -> int:
    """The number of eight digits, each a byte from 0 to 9, the first one in the lowest byte."""
    word = word * 10 + (word >> 8)
    return (((word & _PAIRS) * _HUNDREDS + ((word >> 16) & _PAIRS) * _ONES) >> 32) & 0xFFFFFFFF


def digits_at(numbers: int, value: int, at: int, end: int) -> tuple[int, int]:
    """``value`` with the digits after it, and the address after them; -1 if they are too many."""
    while True:
        word = word_at(at, end) ^ _ZEROS
        stop = ((word + _ABOVE_NINE) | word) & _HIGH
        count = 8 if stop == 0 else first_byte(stop)
        if count > 0:
            if value > load64(numbers + 8 * count):
                return 0, -1
            value = wrapped(value * load64(numbers + _TENS + 8 * count) + eight_digits(wrapped(word << (64 - 8 * count))))
            if value < 0:
                return 0, -1
            at += count
        if count < 8:
            return value, at


def digits_end(at: int, end: int) -> int:
    """Address after digits."""
    while True:
        word = word_at(at, end) ^ _ZEROS
        stop = ((word + _ABOVE_NINE) | word) & _HIGH
        if stop != 0:
            return at + first_byte(stop)
        at += 8


def after_number(at: int, end: int) -> int:
    """Address after a number without a sign whose value does not matter; -1 if there is none, or if a reader could refuse its length."""
    begin = at
    at = digits_end(at, end)
    if at == begin or at - begin > MOST_DIGITS or (at - begin > 1 and load8(begin, 0) == _ZERO):
        return -1
    if at < end and load8(at, 0) == _POINT:
        begin = at + 1
        at = digits_end(begin, end)
        if at == begin or at - begin > MOST_DIGITS:
            return -1
    if at < end and load8(at, 0) | 0x20 == _E:
        begin = at + 1
        sign = load8(begin, 0) if begin < end else 0
        if (sign == _PLUS) | (sign == _MINUS):
            begin += 1
        at = digits_end(begin, end)
        if at == begin or at - begin > 2:
            return -1
    return at


def integer_at(numbers: int, at: int, end: int) -> tuple[int, int]:
    """An integer without a sign, and the address after it; -1 if there is none, or it begins with a zero that does not belong there."""
    value, after = digits_at(numbers, 0, at, end)
    if after <= at or (after - at > 1 and load8(at, 0) == _ZERO):
        return 0, -1
    return value, after


def decimal_at(numbers: int, at: int, end: int) -> tuple[int, int, int]:
    """Digits and exponent of ten of a number without a sign, and the address after it; -1 if there is none, or it is not decided."""
    value, at = integer_at(numbers, at, end)
    exponent = 0
    if at >= 0 and at < end and load8(at, 0) == _POINT:
        begin = at + 1
        value, at = digits_at(numbers, value, begin, end)
        if at <= begin:
            return 0, 0, -1
        exponent = begin - at
    if at >= 0 and at < end and load8(at, 0) | 0x20 == _E:
        begin = at + 1
        sign = load8(begin, 0) if begin < end else 0
        if (sign == _PLUS) | (sign == _MINUS):
            begin += 1
        power, at = digits_at(numbers, 0, begin, end)
        if at <= begin or power > MOST_EXPONENT:
            return 0, 0, -1
        exponent += -power if sign == _MINUS else power
    return value, exponent, at


def double_of_decimal(numbers: int, digits: int, exponent: int) -> int:
    """Bits of the float64 nearest to digits * 10**exponent, ties to even; -1 if it is not decided. ``digits`` is not negative."""
    if digits == 0:
        return 0
    if exponent < LEAST or exponent > MOST:
        return -1
    shift = leading_zeros(digits)
    word = wrapped(digits << shift)
    power = numbers + POWERS + 16 * (exponent - LEAST)
    high, low = product(word, load64(power))
    if high & _NEVER_TIES == _NEVER_TIES:
        # The part that was cut off the power of five may matter.
        more, _ = product(word, load64(power + 8))
        low = wrapped(low + more)
        if (more ^ _SIGN) > (low ^ _SIGN):
            high = wrapped(high + 1)
        if low == -1 and (exponent < -27 or exponent > 55):
            return -1
    top = (high >> 63) & 1
    # 54 bits: one more than a float64 has.
    fraction = (high >> (top + 9)) & ((1 << (55 - top)) - 1)
    scale = ((217706 * exponent) >> 16) + 63 + top - shift + 1023
    if (low == 0 or low == 1) and exponent >= -4 and exponent <= 23 and fraction & 3 == 1 and wrapped(fraction << (top + 9)) == high:
        # Exactly in the middle of two numbers, and the lower one is even.
        fraction -= 1
    fraction = (fraction + (fraction & 1)) >> 1
    if fraction >> 53 != 0:
        fraction >>= 1
        scale += 1
    if scale <= 0 or scale >= 0x7FF:
        return -1
    return (scale << 52) | (fraction & _FRACTION)


def float_of_double(bits: int) -> int:
    """Bits of the float32 nearest to a decimal number whose nearest float64 has these bits, without a sign; -1 if it is not decided.

    A number between two float32 is on the same side of their middle as its float64, unless that is the middle itself.
    """
    if bits == 0:
        return 0
    scale, rest = (bits >> 52) - 896, bits & 0x1FFFFFFF
    if scale <= 0 or scale >= 0xFE or rest == 0x10000000:
        return -1
    return (scale << 23) + ((bits & _FRACTION) >> 29) + (1 if rest > 0x10000000 else 0)
