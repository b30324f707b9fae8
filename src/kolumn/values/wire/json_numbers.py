"""Numbers of JSON: integers of 64 bits, and decimal numbers that are certainly rounded right. Varints, and numbers as the bits of IEEE 754
numbers, by integer arithmetic: the same on every backend, rounded to nearest, ties to even. Words are eight bytes at any address,
little-endian. A backend replaces arithmetic of whole words by instructions, and may replace `longer_at`, `little32` and `little64`.

    number   -? (0 | 1-9 0-9*) (. 0-9+)? ([eE] [+-]? 0-9+)?

The digits of a number without its point have to be less than 2**63. Decimal numbers are rounded as by Daniel Lemire, "Number parsing at a
gigabyte per second" (2021), section 5: the digits times a power of five of 128 bits. What this does not decide is left to others: more
digits, numbers that overflow or are not normal. ``numbers`` is the address of a table of int64: for each count of digits from 0 to 8 the
largest number after which as many digits may fit, and the power of ten; then powers of five from `LEAST` to `MOST`, two words each, the
high one first.
"""

from ctypes import c_int64

from kolumn.formats.memory import i8_at, load8
from kolumn.formats.varint import varint64
from kolumn.formats.words import load64

_ALL = (1 << 64) - 1


def load_word(at: int) -> int:
    """Eight bytes, signed."""
    return c_int64.from_address(at).value


def put_word8(at: int, value: int) -> None:
    """Store eight bytes: the low 64 bits of ``value``."""
    c_int64.from_address(at).value = value


def wrapped(value: int) -> int:
    """The low 64 bits of a number, signed."""
    return ((value - _SIGN) & _ALL) + _SIGN


def product(left: int, right: int) -> tuple[int, int]:
    """High and low word of the product of two words, which are taken without a sign."""
    both = (left & _ALL) * (right & _ALL)
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
    return 0 if left <= 0 else (load_word(end - 8) >> (64 - 8 * left)) & ((1 << (8 * left)) - 1)


LEAST, MOST = -342, 308  # Exponents of the powers of five.
POWERS = 144  # Where the powers of five begin in the table, in bytes.
MOST_EXPONENT = 308  # Largest exponent that is read.
_TENS = 72
_ZERO, _MINUS, _PLUS, _POINT, _E = (ord(character) for character in "0-+.e")
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
    while True:
        word = word_at(at, end) ^ _ZEROS
        stop = ((word + _ABOVE_NINE) | word) & _HIGH
        if stop != 0:
            return at + first_byte(stop)
        at += 8


def after_number(at: int, end: int) -> int:
    """Address after a number without a sign whose value does not matter; -1 if there is none."""
    begin = at
    at = digits_end(at, end)
    if at == begin or (at - begin > 1 and load8(begin, 0) == _ZERO):
        return -1
    if at < end and load8(at, 0) == _POINT:
        begin = at + 1
        at = digits_end(begin, end)
        if at == begin:
            return -1
    if at < end and load8(at, 0) | 0x20 == _E:
        begin = at + 1
        sign = load8(begin, 0) if begin < end else 0
        if (sign == _PLUS) | (sign == _MINUS):
            begin += 1
        at = digits_end(begin, end)
        if at == begin:
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
    return -1 if scale <= 0 or scale >= 0x7FF else (scale << 52) | (fraction & _FRACTION)


def float_of_double(bits: int) -> int:
    """Bits of the float32 nearest to a decimal number whose nearest float64 has these bits, without a sign; -1 if it is not decided. A
    number between two float32 is on the same side of their middle as its float64, unless that is the middle itself.
    """
    if bits == 0:
        return 0
    scale, rest = (bits >> 52) - 896, bits & 0x1FFFFFFF
    if scale <= 0 or scale >= 0xFE or rest == 0x10000000:
        return -1
    return (scale << 23) + ((bits & _FRACTION) >> 29) + (1 if rest > 0x10000000 else 0)


MORE = -0x7F7F7F7F7F7F7F80  # The highest bit of each of eight bytes, which says that there is another byte.


def number_of_word(word: int) -> int:
    """The number of a varint that begins a word and ends in it; of the whole word if it does not end there."""
    last = ~word & MORE
    # The bytes up to the last one; then sevens become fourteens, twenty-eights, and one number.
    word &= last ^ (last - 1)
    word = (word & 0x007F007F007F007F) | ((word & 0x7F007F007F007F00) >> 1)
    word = (word & 0x00003FFF00003FFF) | ((word & 0x3FFF00003FFF0000) >> 2)
    return (word & 0x000000000FFFFFFF) | ((word & 0x0FFFFFFF00000000) >> 4)


def long_at(at: int, end: int) -> tuple[int, int]:
    """Zig-zag varint of up to ten bytes, and the address after it; -1 if it is longer or does not end before ``end``."""
    if at < end:
        byte = load8(at, 0)
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), at + 1
    return longer_at(at, end)


def size_at(at: int, end: int) -> tuple[int, int]:
    """As `long_at`, faster for numbers from 0 to 63: what comes after a length waits for it."""
    if at < end:
        byte = load8(at, 0)
        if byte & 0x81 == 0:
            return byte >> 1, at + 1
    return longer_at(at, end)


def longer_at(at: int, end: int) -> tuple[int, int]:
    """As `long_at`."""
    return varint64(0, at, end)


def after_long(at: int, end: int) -> int:
    """As `long_at` without the value. A backend may have a faster one."""
    return long_at(at, end)[1]


def little32(at: int) -> int:
    return load8(at, 0) | (load8(at, 1) << 8) | (load8(at, 2) << 16) | (load8(at, 3) << 24)


def little64(at: int) -> int:
    high = load8(at, 4) | (load8(at, 5) << 8) | (load8(at, 6) << 16) | (i8_at(at, 7) << 24)
    return little32(at) | (high << 32)


def big_endian(at: int, size: int, word: int) -> int:
    """64 bits of a big-endian two's complement number of ``size`` bytes, at least one; word 0 is the lowest one."""
    sign = i8_at(at, 0) >> 7
    value = 0
    for k in range(8):
        index = size - 1 - 8 * word - k
        byte = i8_at(at, index) if index >= 0 else sign
        value |= (byte if k == 7 else byte & 0xFF) << (8 * k)
    return value


_SIGN32 = 1 << 31


def double_of(value: int) -> int:
    """Bits of the float64 nearest to an int64, as a signed integer."""
    return _rounded(value, 52, 1023, _SIGN)


def float_of(value: int) -> int:
    """Bits of the float32 nearest to an int64."""
    return _rounded(value, 23, 127, _SIGN32)


def _rounded(value: int, digits: int, bias: int, sign: int) -> int:
    if value == 0:
        return 0
    if value == _SIGN:
        return sign | ((63 + bias) << digits)
    size = value if value > 0 else -value
    length = bit_length(size)
    shift = length - digits - 1
    if shift <= 0:
        kept = size << -shift
    else:
        kept, rest, half = size >> shift, size & ((1 << shift) - 1), 1 << (shift - 1)
        if rest > half or (rest == half and kept & 1 != 0):
            kept += 1
    # The highest bit of ``kept`` is not stored; if rounding carried into the next one, the exponent grows by itself.
    bits = ((length - 2 + bias) << digits) + kept
    return bits if value > 0 else bits | sign


def bit_length(value: int) -> int:
    length = 0
    while value > 0:
        value >>= 1
        length += 1
    return length


def double_of_float(bits: int) -> int:
    """Bits of the float64 with the value of a float32, given by its bits, as a signed integer."""
    sign = _SIGN if bits & _SIGN32 != 0 else 0
    exponent, digits = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    if exponent == 0xFF:
        return sign | (0x7FF << 52) | (digits << 29)
    if exponent != 0:
        return sign | ((exponent + 896) << 52) | (digits << 29)
    if digits == 0:
        return sign
    length = bit_length(digits)
    return sign | (((length + 873) << 52) + ((digits << (53 - length)) - (1 << 52)))
