"""Memory for columns that ends where a page begins that nobody may touch: a loop that writes past its columns ends the process."""

import ctypes
import mmap

import numpy as np

from kolumn.core import recycle
from kolumn.cpu_fallback import columns

# Looked up once: an object of `CDLL` defines a class, which would take longer than the call.
_mprotect = ctypes.CDLL(None).mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def guard_columns() -> None:
    """Let everything that this process decodes from now on be in such memory. Nothing is reused, so it is for a process of its own."""
    recycle._waiting.most = columns.TOGETHER = 0
    recycle._class_of = lambda size: (size, 1)
    recycle.allocate_by(ending_at_a_page, smallest=1)


def ending_at_a_page(size: int) -> np.ndarray:
    """Memory of so many bytes before such a page."""
    page = mmap.PAGESIZE
    whole = -(-size // page) * page
    memory = mmap.mmap(-1, whole + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert _mprotect(start + whole, page, 0) == 0
    return np.frombuffer(memory, np.uint8, size, whole - size)
