"""Bytes of a segment by position: of a file that the operating system reads, or of memory."""

from typing import Any

from kolumn.machine_code.deferred import cgutils, intrinsic, ir, register_jitable, types


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
