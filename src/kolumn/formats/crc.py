"""The two checksums of Kafka: CRC-32 (IEEE, as in zlib) for formats 0 and 1, CRC-32C (Castagnoli) for format 2.

Both are reflected; their register starts with all bits set and is inverted at the end. The tables are those of slicing-by-8:

    TABLES[k][b] = CRC register after byte b and k zero bytes, so eight bytes cost eight independent look-ups
"""

import numpy as np

from kolumn.formats.memory import Buffer, load8, u32_little_at

CASTAGNOLI, IEEE = 0x82F63B78, 0xEDB88320


def slicing_tables(polynomial: int) -> np.ndarray:
    """Tables of a reflected polynomial: int64, shape (8, 256)."""
    tables, register = np.zeros((8, 256), np.int64), np.arange(256)
    for _ in range(8):
        register = (register >> 1) ^ np.where(register & 1, polynomial, 0)
    tables[0] = register
    for k in range(1, 8):
        tables[k] = tables[0][tables[k - 1] & 0xFF] ^ (tables[k - 1] >> 8)
    return tables


CRC32C, CRC32 = slicing_tables(CASTAGNOLI), slicing_tables(IEEE)


def multiply(a: int, b: int, polynomial: int) -> int:
    """Product of two reflected polynomials modulo ``polynomial``; bit 31 is the coefficient of x^0."""
    product = 0
    for bit in range(32):
        if (a >> (31 - bit)) & 1:
            product ^= b
        b = (b >> 1) ^ (polynomial if b & 1 else 0)
    return product


def power_of_x(exponent: int, polynomial: int) -> int:
    """x^exponent modulo ``polynomial``; for a negative exponent the inverse of the positive power."""
    # Both polynomials have the term x^0, so a step is reversible: the incoming bit tells whether the polynomial was added before the shift.
    square = 0x40000000 if exponent >= 0 else ((0x80000000 ^ polynomial) << 1) | 1
    power, left = 0x80000000, abs(exponent)
    while left:
        if left & 1:
            power = multiply(square, power, polynomial)
        square = multiply(square, square, polynomial)
        left >>= 1
    return power


def shift_tables(size: int, polynomial: int) -> np.ndarray:
    """Tables that move a register over ``size`` zero bytes, byte by byte of the register: int64, shape (4, 256)."""
    power, tables = power_of_x(8 * size, polynomial), np.zeros((4, 256), np.int64)
    for bit in range(32):
        # A product is a sum over bits: the bytes with this bit have its product added to that of their lower bits.
        k, first = bit // 8, 1 << (bit % 8)
        tables[k, first : 2 * first] = tables[k, :first] ^ multiply(power, 1 << bit, polynomial)
    return tables


def crc_eight(t, register: int, low: int, high: int) -> int:  # type: ignore[no-untyped-def]
    """Add eight bytes, loaded as two little-endian words, to a CRC register, by the slicing tables ``t``."""
    low ^= register
    first = t[7, low & 0xFF] ^ t[6, (low >> 8) & 0xFF] ^ t[5, (low >> 16) & 0xFF] ^ t[4, low >> 24]
    return first ^ t[3, high & 0xFF] ^ t[2, (high >> 8) & 0xFF] ^ t[1, (high >> 16) & 0xFF] ^ t[0, high >> 24]


def crc_bytes(t, register: int, buf: Buffer, at: int, end: int) -> int:  # type: ignore[no-untyped-def]
    """Add bytes [at, end) to a CRC register, by the slicing tables ``t``. The register is not inverted before or after."""
    while at + 8 <= end:
        register = crc_eight(t, register, u32_little_at(buf, at), u32_little_at(buf, at + 4))
        at += 8
    while at < end:
        register = t[0, (register ^ load8(buf, at)) & 0xFF] ^ (register >> 8)
        at += 1
    return register


def crc32c(buf: Buffer, at: int, end: int) -> int:
    """CRC-32C of bytes [at, end), unsigned."""
    return crc32c_from(0xFFFFFFFF, buf, at, end)


def crc32c_from(register: int, buf: Buffer, at: int, end: int) -> int:
    """CRC-32C of bytes [at, end) after others, which left the register so; unsigned."""
    return crc_bytes(CRC32C, register, buf, at, end) ^ 0xFFFFFFFF


def crc32c_of_words(a: int, b: int, c: int, d: int, e: int) -> int:
    """CRC-32C of four words of eight bytes and one of four, signed or not, as they are in memory in little-endian; unsigned."""
    register, t, low = 0xFFFFFFFF, CRC32C, 0xFFFFFFFF
    for word in (a, b, c, d):
        register = crc_eight(t, register, word & low, (word >> 32) & low)
    last = register ^ (e & low)
    register = t[3, last & 0xFF] ^ t[2, (last >> 8) & 0xFF] ^ t[1, (last >> 16) & 0xFF] ^ t[0, (last >> 24) & 0xFF]
    return register ^ 0xFFFFFFFF


def crc32(buf: Buffer, at: int, end: int) -> int:
    """CRC-32 of bytes [at, end), unsigned."""
    return crc_bytes(CRC32, 0xFFFFFFFF, buf, at, end) ^ 0xFFFFFFFF
