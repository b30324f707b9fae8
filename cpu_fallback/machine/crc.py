"""CRC-32C and CRC-32 by ISA-L, which the package ``isal`` exports; by tables where it does not."""

from ctypes import addressof, c_int64
from functools import cache
from typing import Any

from kolumn.core.deferred import cgutils, implement, instruction, ir, register_jitable
from kolumn.cpu_fallback.machine.address import call, function_address, library
from kolumn.formats import crc
from kolumn.formats.words import store32, store64

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
    @instruction
    def function(builder: Any) -> Any:
        variable = f"kolumn.{name}"
        return builder.load(builder.module.globals.get(variable) or ir.GlobalVariable(builder.module, ir.IntType(64), variable))

    return function


_iscsi, _gzip_refl = map(_address_of, _ADDRESSES)


@register_jitable
def _crc32c_from(register: int, buf: int, at: int, end: int) -> int:
    """CRC-32C. The function inverts nothing, and takes an int for the size: no entry is larger."""
    function = _iscsi()
    if function == 0:
        return crc.crc_bytes(crc.CRC32C, register, buf, at, end) ^ 0xFFFFFFFF
    return (call(function, (buf + at, end - at, register)) ^ 0xFFFFFFFF) & 0xFFFFFFFF


@register_jitable
def _crc32c(buf: int, at: int, end: int) -> int:
    return crc.crc32c_from(0xFFFFFFFF, buf, at, end)


@instruction
def _scratch(builder: Any) -> Any:
    """Address of 40 bytes on the stack."""
    return builder.ptrtoint(cgutils.alloca_once(builder, ir.ArrayType(ir.IntType(64), 5)), ir.IntType(64))


@register_jitable
def _crc32c_of_words(a: int, b: int, c: int, d: int, e: int) -> int:
    words = _scratch()
    store64(words, a)
    store64(words + 8, b)
    store64(words + 16, c)
    store64(words + 24, d)
    store32(words + 32, e)
    return crc.crc32c_from(0xFFFFFFFF, words, 0, 36)


@register_jitable
def _crc32(buf: int, at: int, end: int) -> int:
    """CRC-32. The function takes and returns it inverted, as zlib's does."""
    function = _gzip_refl()
    if function == 0:
        return crc.crc_bytes(crc.CRC32, 0xFFFFFFFF, buf, at, end) ^ 0xFFFFFFFF
    return call(function, (0, buf + at, end - at)) & 0xFFFFFFFF


implement(crc.crc32c_from, _crc32c_from, target="cpu")
implement(crc.crc32c, _crc32c, target="cpu")
implement(crc.crc32c_of_words, _crc32c_of_words, target="cpu")
implement(crc.crc32, _crc32, target="cpu")
