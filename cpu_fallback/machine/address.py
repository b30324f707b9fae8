"""Loads, stores and copies at raw addresses, calls of C functions, and bytes of a segment by position.

Compiled helpers take raw addresses because Numba counts the references to an array, atomically, at every call that takes an array.
The caller must keep the memory alive outside the compiled function.
"""

import ctypes
from importlib import import_module
from typing import Any

from kolumn.core.deferred import arrayobj, cgutils, instruction, intrinsic, ir, register_jitable, types

STEP = 32
PAD = 64
"""Bytes that every source and target buffer has after its last used byte, so that copies in whole steps need no loop for the rest."""


def _pointer(builder: Any, address: Any, type: Any) -> Any:
    return builder.inttoptr(address, type.as_pointer())


def _store(width: int) -> Any:
    @instruction
    def store(builder: Any, address: Any, value: Any) -> None:
        word = value if width == 64 else builder.trunc(value, ir.IntType(width))
        builder.store(word, _pointer(builder, address, ir.IntType(width))).align = 1

    return store


def _load(width: int) -> Any:
    @instruction
    def load(builder: Any, address: Any) -> Any:
        word = builder.load(_pointer(builder, address, ir.IntType(width)))
        word.align = 1
        return word if width == 64 else builder.zext(word, ir.IntType(64))

    return load


def _copy(width: int) -> Any:
    @instruction
    def copy(builder: Any, target: Any, source: Any) -> None:
        vector = ir.VectorType(ir.IntType(8), width)
        word = builder.load(_pointer(builder, source, vector))
        word.align = 1
        builder.store(word, _pointer(builder, target, vector)).align = 1

    return copy


load8, load32, load64 = _load(8), _load(32), _load(64)
store8, store32, store64 = _store(8), _store(32), _store(64)
"""Words at an address, little-endian, unaligned. The narrow ones have no sign."""
copy16, copy32 = _copy(16), _copy(STEP)
"""Copy 16 or 32 bytes from the second address to the first, unaligned. It is one load and one store, so the two may overlap."""


@intrinsic
def borrowed(typing: Any, array: Any) -> Any:
    """The same array without an owner. Numba counts no references to its slices, which saves an atomic operation for each."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = arrayobj.make_array(signature.args[0])(context, builder, args[0])
        view.meminfo, view.parent = view.meminfo.type(None), view.parent.type(None)
        return view._getvalue()

    return array(array), emit


@intrinsic
def select(typing: Any, condition: Any, a: Any, b: Any) -> Any:
    """``a`` if ``condition`` else ``b``, without a branch."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        chosen = builder.select(args[0], args[1], args[2])
        chosen.set_metadata("unpredictable", builder.module.add_metadata([]))
        return chosen

    return types.int64(types.boolean, types.int64, types.int64), emit


@instruction
def trailing_zeros(builder: Any, word: Any) -> Any:
    """Number of zeros below the lowest set bit of a word that is not 0."""
    return builder.cttz(word, ir.IntType(1)(1))


@instruction
def load8_early(builder: Any, address: Any) -> Any:
    """As `load8`, where it stands: of two such loads LLVM does not make one, which would have to wait until its address is chosen."""
    return builder.zext(builder.load_atomic(_pointer(builder, address, ir.IntType(8)), "unordered", 1), ir.IntType(64))


def _prefetch(write: int) -> Any:
    @instruction
    def prefetched(builder: Any, address: Any) -> None:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte, word, word, word]), "llvm.prefetch.p0i8"
        )
        builder.call(function, [builder.inttoptr(address, byte), word(write), word(3), word(1)])

    return prefetched


prefetch, prefetch_read = _prefetch(1), _prefetch(0)
"""Prefetch the cache line at an address, for a write or to read it. Any address is allowed."""


@intrinsic
def call(typing: Any, function: Any, words: Any) -> Any:
    """Call the C function at an address with a tuple of words, which may be pointers or sizes; returns its result as a word."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        kind = ir.FunctionType(word, words.count * [word])
        return builder.call(_pointer(builder, args[0], kind), cgutils.unpack_tuple(builder, args[1]))

    return types.int64(types.int64, types.UniTuple(types.int64, words.count)), emit


def library(place: str) -> ctypes.CDLL:
    """The shared object of an extension module, or the one with this file name; an OSError if there is none."""
    if ".so" in place:
        return ctypes.CDLL(place)
    try:
        # Imported, since another thread may be importing it, until when it has no spec.
        found = import_module(place).__file__
    except ImportError:
        found = None
    if found is None:
        raise OSError(f"no module {place}")
    return ctypes.CDLL(found)


def function_address(function: Any) -> int:
    """Address of a function of a shared object."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@register_jitable
def set_bit(bitmap: int, bit: int, value: int) -> None:
    """Set or clear a bit of an Arrow bitmap (least significant bit first)."""
    byte = bitmap + (bit >> 3)
    mask = 1 << (bit & 7)
    store8(byte, load8(byte) | mask if value else load8(byte) & ~mask)


@register_jitable(forceinline=True)
def copy_padded(target: int, source: int, size: int) -> None:
    """Copy ``size`` bytes; reads and writes up to 31 bytes after them, so source and target need `PAD`."""
    done = 0
    while done < size:
        copy32(target + done, source + done)
        done += STEP


def _external(builder: Any, name: str, *given: Any) -> Any:
    """Call a function of the C library, which returns a word."""
    type = ir.FunctionType(ir.IntType(64), [one.type for one in given])
    return builder.call(cgutils.get_or_insert_function(builder.module, type, name), given)


@instruction
def _pread(builder: Any, file: Any, target: Any, size: Any, position: Any) -> Any:
    """``ssize_t pread(int, void *, size_t, off_t)``."""
    return _external(builder, "pread", builder.trunc(file, ir.IntType(32)), target, size, position)


@instruction
def _memcpy(builder: Any, target: Any, source: Any, size: Any) -> Any:
    """``void *memcpy(void *, const void *, size_t)``."""
    return _external(builder, "memcpy", target, source, size)


@register_jitable
def fetch(file: int, target: int, size: int, position: int) -> int:
    """Copy bytes of a segment to an address; returns how many, or a negative number. ``file`` is a file descriptor, or minus the address of
    the segment in memory. Then ``position + size`` must not be larger than it."""
    if file >= 0:
        return _pread(file, target, size, position)
    _memcpy(target, position - file, size)
    return size
