"""CRC-32C and CRC-32 by carry-less multiplication or by the CPU's instruction for CRC-32C, otherwise by tables.

The instruction takes 8 bytes a cycle, with a latency of three cycles. Multiplications of 16 or 32 bytes are about as fast, and other units
of the CPU do them. So long runs are cut into parts for both (`side_by_side`), unless multiplications take 64 bytes, which is faster.

Without multiplications long runs are cut into three streams of equal length, which are joined by a multiplication with x^(8 * length)
modulo the polynomial (four tables of 256 entries):

    |<---- LONG ---->|<---- LONG ---->|<---- LONG ---->|        crc = shift(shift(a) ^ b) ^ c
          a                b                c
"""

import os
from typing import Any

import numpy as np

from kolumn.cpu_fallback.machine.address import load8, load32, load64
from kolumn.cpu_fallback.machine.fold import folding, moving, side_by_side, widest
from kolumn.cpu_fallback.machine.processor import has
from kolumn.formats import crc
from kolumn.machine_code.deferred import intrinsic, ir, overload, register_jitable, types

LONG = 1344
SHORT = 168
_CHOICE = os.environ.get("KOLUMN_CRC", "fold")
"""Value of KOLUMN_CRC: "portable" uses only tables, "instruction" uses no multiplications."""
INSTRUCTION = _CHOICE != "portable" and has("sse4.2")
"""Whether CRC-32C may use the CPU's instruction."""
WIDTH = widest() if INSTRUCTION and _CHOICE == "fold" else 0
"""Bytes that one carry-less multiplication takes; 0 if there are no multiplications."""
KIND = f"fold{WIDTH}" if WIDTH else "instruction" if INSTRUCTION else "portable"
_NARROW, _AT_ONCE = 16, 4
_LEAST = 2 * _NARROW


def _step(bits: int, register_bits: int) -> Any:
    @intrinsic
    def step(typing: Any, register: Any, word: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            name, whole = f"llvm.x86.sse42.crc32.{register_bits}.{bits}", ir.IntType(64)
            kinds = ir.IntType(register_bits), ir.IntType(bits)
            made = builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(kinds[0], kinds), name)
            given = [arg if kind == whole else builder.trunc(arg, kind) for arg, kind in zip(args, kinds, strict=True)]
            found = builder.call(made, given)
            return found if register_bits == 64 else builder.zext(found, whole)

        return types.int64(types.int64, types.int64), emit

    return step


_crc_step, _crc_step4, _crc_step1 = _step(64, 64), _step(32, 32), _step(8, 32)
"""CRC-32C register after eight bytes, after four, and after one, by the ``crc32`` instruction."""


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
def _by_instruction(register: int, at: int, end: int) -> int:
    register, at = _three_streams(register, at, end, LONG, _OVER_LONG)
    register, at = _three_streams(register, at, end, SHORT, _OVER_SHORT)
    return _rest(register, at, end)


@register_jitable
def _rest(register: int, at: int, end: int) -> int:
    while at + 8 <= end:
        register = _crc_step(register, load64(at))
        at += 8
    if at + 4 <= end:
        register = _crc_step4(register, load32(at))
        at += 4
    while at < end:
        register = _crc_step1(register, load8(at))
        at += 1
    return register


_fold_castagnoli = folding(WIDTH or _NARROW, _AT_ONCE, crc.CASTAGNOLI)
_fold_ieee = folding(WIDTH or _NARROW, _AT_ONCE, crc.IEEE)
_fold_little = folding(_NARROW, 1, crc.IEEE)
_BLOCK = _AT_ONCE * (WIDTH or _NARROW)


@register_jitable
def _castagnoli_by_folding(register: int, at: int, end: int) -> int:
    blocks = (end - at) // _BLOCK
    if blocks > 0:
        words = _fold_castagnoli(register, at, blocks)
        register = 0
        for word in words:
            register = _crc_step(register, word)
        at += blocks * _BLOCK
    return _rest(register, at, end)


_VECTORS, _STREAMS, _WORDS = 2, 4, 2
"""What a turn of `_by_both` takes: the multiplications and the words take about as long as each other."""
TURN = _VECTORS * (WIDTH or _NARROW) + _STREAMS * _WORDS * 8
MOST = 128
"""Turns until the parts are joined."""
FEW = 1024
"""Bytes of a run from which on it is cut into parts: joining them costs about as much as 200 bytes."""
_take = side_by_side(WIDTH or _NARROW, _VECTORS, _STREAMS, _WORDS)
_over_streams, _over_bytes = moving(8 * _WORDS, _STREAMS * MOST), moving(1, TURN)
_TURN, _MOST, _FEW, _FOLDED = TURN, MOST, FEW, (WIDTH or _NARROW) // 8


@register_jitable
def _by_both(register: int, at: int, end: int) -> int:
    turns, left = (end - at) // _TURN, (end - at) % _TURN
    # Nothing depends on it before the end, so the CPU does it beside the first turns.
    last = _rest(0, end - left, end)
    while turns > 0:
        # At least two turns are left for the next time.
        now = turns if turns <= _MOST else min(turns - 2, _MOST)
        words = _take(register, at, now)
        register = 0
        for word in words[:_FOLDED]:
            register = _crc_step(register, word)
        joined = _over_streams(register, _STREAMS * now)
        for k in range(1, _STREAMS):
            joined ^= _over_streams(words[_FOLDED + k - 1], (_STREAMS - k) * now)
        register = _crc_step(0, joined) ^ words[_FOLDED + _STREAMS - 1]
        at += now * _TURN
        turns -= now
    return _crc_step(0, _over_bytes(register, left)) ^ last


@register_jitable(forceinline=True)
def _by_size(register: int, at: int, end: int) -> int:
    if end - at >= _FEW:
        return _by_both(register, at, end)
    # Narrow multiplications are not faster than the instruction.
    return _castagnoli_by_folding(register, at, end) if WIDTH > _NARROW else _by_instruction(register, at, end)


@register_jitable
def _by_table(words: Any) -> int:
    """Register of CRC-32 after some words, starting from zero."""
    register = 0
    for word in words:
        register = crc.eight_bytes(crc.CRC32, (register ^ word) & 0xFFFFFFFF, (word >> 32) & 0xFFFFFFFF)
    return register


@register_jitable
def _ieee_by_folding(register: int, at: int, end: int) -> int:
    blocks = (end - at) // _BLOCK
    if blocks > 0:
        register = _by_table(_fold_ieee(register, at, blocks))
        at += blocks * _BLOCK
    if end - at >= _LEAST:
        blocks = (end - at) // _NARROW
        register = _by_table(_fold_little(register, at, blocks))
        at += blocks * _NARROW
    return crc.crc_bytes(crc.CRC32, register, 0, at, end)


if INSTRUCTION:
    _castagnoli = _by_instruction if WIDTH == 0 else _by_size if WIDTH <= 32 else _castagnoli_by_folding

    @overload(crc.crc32c)
    def _crc32c(buf, at, end):  # type: ignore[no-untyped-def]
        return lambda buf, at, end: _castagnoli(0xFFFFFFFF, buf + at, buf + end) ^ 0xFFFFFFFF

else:
    register_jitable(crc.crc32c)


if WIDTH:

    @overload(crc.crc32, target="cpu")
    def _crc32(buf, at, end):  # type: ignore[no-untyped-def]
        return lambda buf, at, end: _ieee_by_folding(0xFFFFFFFF, buf + at, buf + end) ^ 0xFFFFFFFF
