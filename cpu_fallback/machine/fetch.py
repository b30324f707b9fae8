"""Bytes of a segment by position: of a file that the operating system reads, or of memory."""

from numba import types
from numba.extending import register_jitable

_pread = types.ExternalFunction("pread", types.int64(types.int32, types.int64, types.int64, types.int64))
"""``ssize_t pread(int, void *, size_t, off_t)`` of the C library."""
_memcpy = types.ExternalFunction("memcpy", types.int64(types.int64, types.int64, types.int64))
"""``void *memcpy(void *, const void *, size_t)``."""


@register_jitable
def fetch(file: int, target: int, size: int, position: int) -> int:
    """Copy bytes of a segment to an address; returns how many, or a negative number.

    ``file`` is a file descriptor, or minus the address of the segment in memory. Then ``position + size`` must not be larger than it.
    """
    if file >= 0:
        return _pread(file, target, size, position)
    _memcpy(target, position - file, size)
    return size
