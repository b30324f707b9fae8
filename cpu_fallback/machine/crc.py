"""CRC-32C and CRC-32 by ISA-L, which the package ``isal`` exports; by tables where it does not.

CRC-32C of short runs is computed by the CPU's instruction for it, and of long ones by `beside` where carry-less multiplications are
16 or 32 bytes wide: ISA-L is slower for either.
"""

from ctypes import addressof, c_int64
from functools import cache
from typing import Any

from kolumn.cpu_fallback.machine.address import call, function_address, library, load8, load32, load64
from kolumn.cpu_fallback.machine.beside import moving, side_by_side
from kolumn.cpu_fallback.machine.processor import has
from kolumn.formats import crc
from kolumn.formats.machine_code.deferred import intrinsic, ir, overload, register_jitable, types

INSTRUCTION = has("sse4.2")
"""Whether CRC-32C may use the CPU's instruction."""
_WIDE = has("vpclmulqdq") and has("avx512f")
WIDTH = 0 if _WIDE or not (INSTRUCTION and has("pclmul")) else 32 if has("vpclmulqdq") else 16
"""Bytes of a carry-less multiplication in `beside`; 0 if ISA-L takes all long runs."""
_ADDRESSES = {name: c_int64() for name in ("crc32_iscsi", "crc32_gzip_refl")}
"""Addresses of ISA-L's functions, 0 if there are none: variables of object code, as ``kolumn.`` and the name."""
SYMBOLS = {f"kolumn.{name}" for name in _ADDRESSES}


@cache
def link() -> bool:
    """Let LLVM find the `SYMBOLS`, before it loads object code; whether ISA-L has the functions."""
    from llvmlite import binding

    for name, variable in _ADDRESSES.items():
        binding.add_symbol(f"kolumn.{name}", addressof(variable))
    try:
        isal = library("isal.isal_zlib")
        found = {name: function_address(getattr(isal, name)) for name in _ADDRESSES}
    except (OSError, AttributeError):
        return False
    for name, place in found.items():
        _ADDRESSES[name].value = place
    return True


def _address_of(name: str) -> Any:
    @intrinsic
    def function(typing: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word, variable = ir.IntType(64), f"kolumn.{name}"
            return builder.load(builder.module.globals.get(variable) or ir.GlobalVariable(builder.module, word, variable))

        return types.int64(), emit

    return function


_iscsi, _gzip_refl = map(_address_of, _ADDRESSES)


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


@register_jitable
def _by_instruction(register: int, at: int, end: int) -> int:
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


_VECTORS, _STREAMS, _WORDS = 2, 4, 2
"""What a turn of `_by_both` takes: the multiplications and the words take about as long as each other."""
TURN = _VECTORS * (WIDTH or 16) + _STREAMS * _WORDS * 8
MOST = 128
"""Turns until the parts are joined."""
FEW = 256
"""Bytes of a run from which on the instruction, one word after the other, is slower than `_by_both` and ISA-L."""
_FOLDED = (WIDTH or 16) // 8
_take = side_by_side(WIDTH or 16, _VECTORS, _STREAMS, _WORDS)
_over_streams, _over_bytes = moving(8 * _WORDS, _STREAMS * MOST), moving(1, TURN)


@register_jitable
def _by_both(register: int, at: int, end: int) -> int:
    turns, left = (end - at) // TURN, (end - at) % TURN
    # Nothing depends on it before the end, so the CPU does it beside the first turns.
    last = _by_instruction(0, end - left, end)
    while turns > 0:
        # At least two turns are left for the next time.
        now = turns if turns <= MOST else min(turns - 2, MOST)
        words = _take(register, at, now)
        register = 0
        for word in words[:_FOLDED]:
            register = _crc_step(register, word)
        joined = _over_streams(register, _STREAMS * now)
        for k in range(1, _STREAMS):
            joined ^= _over_streams(words[_FOLDED + k - 1], (_STREAMS - k) * now)
        register = _crc_step(0, joined) ^ words[_FOLDED + _STREAMS - 1]
        at += now * TURN
        turns -= now
    return _crc_step(0, _over_bytes(register, left)) ^ last


@register_jitable
def _by_isal(at: int, end: int) -> int:
    """Register of CRC-32C. The function inverts nothing, and takes an int for the size: no entry is larger."""
    function = _iscsi()
    if function == 0:
        return crc.crc_bytes(crc.CRC32C, 0xFFFFFFFF, at, 0, end - at)
    return call(function, (at, end - at, 0xFFFFFFFF)) & 0xFFFFFFFF


@register_jitable(forceinline=True)
def _castagnoli(at: int, end: int) -> int:
    if INSTRUCTION and end - at < FEW:
        return _by_instruction(0xFFFFFFFF, at, end)
    return _by_both(0xFFFFFFFF, at, end) if WIDTH > 0 else _by_isal(at, end)


@overload(crc.crc32c, target="cpu")
def _crc32c(buf, at, end):  # type: ignore[no-untyped-def]
    return lambda buf, at, end: _castagnoli(buf + at, buf + end) ^ 0xFFFFFFFF


@register_jitable
def _ieee(at: int, end: int) -> int:
    """CRC-32. The function takes and returns it inverted, as zlib's does."""
    function = _gzip_refl()
    if function == 0:
        return crc.crc_bytes(crc.CRC32, 0xFFFFFFFF, at, 0, end - at) ^ 0xFFFFFFFF
    return call(function, (0, at, end - at)) & 0xFFFFFFFF


@overload(crc.crc32, target="cpu")
def _crc32(buf, at, end):  # type: ignore[no-untyped-def]
    return lambda buf, at, end: _ieee(buf + at, buf + end)
