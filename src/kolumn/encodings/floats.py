"""Numbers as the bits of IEEE 754 numbers, by integer arithmetic: the same on every backend. Rounding is to nearest, ties to even."""

_SIGN = -(2**63)
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
    """Bits of a positive number."""
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
