"""CRC-32C at the speed of the CPU: the SSE4.2 instruction where there is one, else slicing-by-8.

The instruction takes 8 bytes a cycle but has a latency of three, so long runs are cut into three streams of equal
length, which are joined by multiplying with x^(8 * length) modulo the polynomial (four 256-entry tables):

    |<---- LONG ---->|<---- LONG ---->|<---- LONG ---->|        crc = shift(shift(a) ^ b) ^ c
          a                b                c
"""

import os
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic, overload, register_jitable

from kolumn.cpu_fallback.address import load64
from kolumn.formats import crc, memory

LONG = 1344
SHORT = 168
INSTRUCTION = binding.get_host_cpu_features().get("sse4.2", False) and os.environ.get("KOLUMN_CRC") != "portable"
"""Whether CRC-32C uses the CPU's instruction; KOLUMN_CRC=portable turns it off."""


@intrinsic
def _crc_step(typing: Any, register: Any, word: Any) -> Any:
    """CRC-32C register after eight bytes, by the ``crc32`` instruction."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        name = "llvm.x86.sse42.crc32.64.64"
        word = ir.IntType(64)
        step = builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(word, [word, word]), name)
        return builder.call(step, args)

    return types.int64(types.int64, types.int64), emit


_OVER_LONG = crc.shift_tables(LONG, crc.CASTAGNOLI)
_OVER_SHORT = crc.shift_tables(SHORT, crc.CASTAGNOLI)


@register_jitable
def _shift(t: np.ndarray, register: int) -> int:
    return t[0, register & 0xFF] ^ t[1, (register >> 8) & 0xFF] ^ t[2, (register >> 16) & 0xFF] ^ t[3, (register >> 24) & 0xFF]


@register_jitable
def _three_streams(register: int, at: int, end: int, size: int, t: np.ndarray) -> tuple[int, int]:
    while at + 3 * size <= end:
        second, third = 0, 0
        for i in range(at, at + size, 8):
            register = _crc_step(register, load64(i))
            second = _crc_step(second, load64(i + size))
            third = _crc_step(third, load64(i + 2 * size))
        register = _shift(t, _shift(t, register) ^ second) ^ third
        at += 3 * size
    return register, at


@register_jitable
def _by_instruction(buf: int, at: int, end: int) -> int:
    register, at = _three_streams(0xFFFFFFFF, buf + at, buf + end, LONG, _OVER_LONG)
    register, at = _three_streams(register, at, buf + end, SHORT, _OVER_SHORT)
    while at + 8 <= buf + end:
        register = _crc_step(register, load64(at))
        at += 8
    while at < buf + end:
        register = crc.CRC32C[0, (register ^ memory.load8(0, at)) & 0xFF] ^ (register >> 8)
        at += 1
    return register ^ 0xFFFFFFFF


if INSTRUCTION:

    @overload(crc.crc32c)
    def _crc32c(buf, at, end):  # type: ignore[no-untyped-def]
        return lambda buf, at, end: _by_instruction(buf, at, end)

else:
    register_jitable(crc.crc32c)
