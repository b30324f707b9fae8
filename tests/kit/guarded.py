"""Memory that ends where a page begins that nobody may touch: who writes past columns, or reads past a payload, ends the process."""

import ctypes
import mmap
from collections.abc import Sequence

import numpy as np

from kolumn.core import recycle
from kolumn.core.arrays import Bytes
from kolumn.cpu_fallback import columns
from kolumn.values.decoder import Bodies
from kolumn.values.schemas.schema import Schema

# Looked up once: an object of `CDLL` defines a class, which would take longer than the call.
_mprotect = ctypes.CDLL(None).mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def guard_columns() -> None:
    """Let everything that this process decodes from now on be in such memory. Nothing is reused, so it is for a process of its own."""
    recycle._waiting.most = columns.TOGETHER = 0
    recycle._class_of = lambda size: (size, 1)
    recycle.allocate_by(ending_at_a_page, smallest=1)


def ending_at_a_page(size: int) -> Bytes:
    """Memory of so many bytes before such a page."""
    page = mmap.PAGESIZE
    whole = -(-size // page) * page
    memory = mmap.mmap(-1, whole + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert _mprotect(start + whole, page, 0) == 0
    return np.frombuffer(memory, np.uint8, size, whole - size)


class Guarded:
    """Payloads, each in such memory."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self.held = [ending_at_a_page(len(value)) for value in values]
        self.at = [memory.ctypes.data for memory in self.held]
        for memory, value in zip(self.held, values, strict=True):
            memory.data[:] = value


def bodies(
    values: Sequence[bytes | None], schema: int | Sequence[int] = -1, schemas: Sequence[Schema] = (), *, prefix: int | Sequence[int] = 0,
    framing: int | Sequence[int] = 0, bare: bool = False,
) -> Bodies:  # fmt: skip
    """Bodies of payloads, from their prefixes on; None is a row without a value. Numbers hold for all rows, or there is one for each."""
    guarded = Guarded([value or b"" for value in values])
    count = len(values)
    prefixes, framings, writers = (np.broadcast_to(np.asarray(one, np.int64), count).copy() for one in (prefix, framing, schema))
    length = np.array([-1 if value is None else len(value) for value in values], np.int64)
    at = np.array(guarded.at, np.int64).reshape(count)
    return Bodies(at + prefixes, np.where(length < 0, -1, length - prefixes), prefixes, framings, writers, list(schemas), bare, guarded)
