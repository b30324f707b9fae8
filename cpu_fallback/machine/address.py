"""Loads, stores and copies at raw addresses, calls of C functions, and bytes of a segment by position.

Compiled helpers take raw addresses because Numba counts the references to an array, atomically, at every call that takes an array.
The caller must keep the memory alive outside the compiled function.
"""

import ctypes
from importlib.util import find_spec
from typing import Any

from kolumn.formats.machine_code.deferred import arrayobj, cgutils, intrinsic, ir, register_jitable, types

STEP = 32
PAD = 64
"""Bytes that every source and target buffer has after its last used byte, so that copies in whole steps need no loop for the rest."""


def _pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _store(width: int) -> Any:
    @intrinsic
    def store(typing: Any, address: Any, value: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.IntType(width)
            word = args[1] if width == 64 else builder.trunc(args[1], kind)
            builder.store(word, _pointer(builder, args[0], kind)).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emit

    return store


store8, store16, store32, store64 = _store(8), _store(16), _store(32), _store(64)


@intrinsic
def load64(typing: Any, address: Any) -> Any:
    """Eight bytes at ``address`` as a little-endian int64, unaligned."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = builder.load(_pointer(builder, args[0], ir.IntType(64)))
        word.align = 1
        return word

    return types.int64(types.int64), emit


def _load(width: int) -> Any:
    @intrinsic
    def load(typing: Any, address: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = builder.load(_pointer(builder, args[0], ir.IntType(width)))
            word.align = 1
            return builder.zext(word, ir.IntType(64))

        return types.int64(types.int64), emit

    return load


load16, load32 = _load(16), _load(32)
"""Two and four bytes at an address as a little-endian unsigned integer, unaligned."""


def _copy(width: int) -> Any:
    @intrinsic
    def copy(typing: Any, target: Any, source: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            vector = ir.VectorType(ir.IntType(8), width)
            word = builder.load(_pointer(builder, args[1], vector))
            word.align = 1
            builder.store(word, _pointer(builder, args[0], vector)).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emit

    return copy


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


@intrinsic
def trailing_zeros(typing: Any, word: Any) -> Any:
    """Number of zeros below the lowest set bit of a word that is not 0."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.int64(types.int64), emit


@intrinsic
def load8(typing: Any, address: Any) -> Any:
    """Byte at ``address`` as an int64."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.load(_pointer(builder, args[0], ir.IntType(8))), ir.IntType(64))

    return types.int64(types.int64), emit


@intrinsic
def load8_early(typing: Any, address: Any) -> Any:
    """As `load8`, where it stands: of two such loads LLVM does not make one, which would have to wait until its address is chosen."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = builder.load_atomic(_pointer(builder, args[0], ir.IntType(8)), "unordered", 1)
        return builder.zext(byte, ir.IntType(64))

    return types.int64(types.int64), emit


def _prefetch(write: int) -> Any:
    @intrinsic
    def prefetched(typing: Any, address: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
            name = "llvm.prefetch.p0i8"
            ask = builder.module.globals.get(name) or ir.Function(
                builder.module, ir.FunctionType(ir.VoidType(), [byte, word, word, word]), name
            )
            builder.call(ask, [_pointer(builder, args[0], ir.IntType(8)), word(write), word(3), word(1)])
            return context.get_dummy_value()

        return types.void(types.int64), emit

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
        spec = find_spec(place)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise OSError(f"no module {place}")
    return ctypes.CDLL(spec.origin)


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


def _external(name: str, narrow: int | None = None) -> Any:
    """A function of the C library, whose arguments and result are words; argument ``narrow`` is an int of 32 bits."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        given = [builder.trunc(one, ir.IntType(32)) if k == narrow else one for k, one in enumerate(args)]
        kind = ir.FunctionType(word, [one.type for one in given])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), given)

    return emit


@intrinsic
def _pread(typing: Any, file: Any, target: Any, size: Any, position: Any) -> Any:
    """``ssize_t pread(int, void *, size_t, off_t)``."""
    return types.int64(types.int64, types.int64, types.int64, types.int64), _external("pread", narrow=0)


@intrinsic
def _memcpy(typing: Any, target: Any, source: Any, size: Any) -> Any:
    """``void *memcpy(void *, const void *, size_t)``."""
    return types.int64(types.int64, types.int64, types.int64), _external("memcpy")


@register_jitable
def fetch(file: int, target: int, size: int, position: int) -> int:
    """Copy bytes of a segment to an address; returns how many, or a negative number.

    ``file`` is a file descriptor, or minus the address of the segment in memory. Then ``position + size`` must not be larger than it.
    """
    if file >= 0:
        return _pread(file, target, size, position)
    _memcpy(target, position - file, size)
    return size
