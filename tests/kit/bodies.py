"""Payloads as `kolumn.values.decoder.Bodies`, in memory that ends where they end."""

import ctypes
import mmap
from collections.abc import Sequence

import numpy as np

from kolumn.values.decoder import Bodies
from kolumn.values.schemas.schema import Schema


class Guarded:
    """Payloads of which each ends where a page that nobody may read begins: a read after one is a crash."""

    def __init__(self, values: Sequence[bytes]) -> None:
        page = mmap.PAGESIZE
        libc = ctypes.CDLL(None, use_errno=True)
        sizes = [-(-len(value) // page) * page + page for value in values]
        self.map = mmap.mmap(-1, max(sum(sizes), page))
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.at, place = [], 0
        for value, size in zip(values, sizes, strict=True):
            begin = place + size - page - len(value)
            self.map[begin : begin + len(value)] = value
            self.at.append(self.start + begin)
            place += size
            assert libc.mprotect(ctypes.c_void_p(self.start + place - page), page, 0) == 0


def bodies(
    values: Sequence[bytes | None], *, prefix: int | Sequence[int] = 0, framing: int | Sequence[int] = 0, schema: int | Sequence[int] = -1,
    schemas: Sequence[Schema] = (), bare: bool = False,
) -> Bodies:  # fmt: skip
    """Bodies of payloads, from their prefixes on; None is a row without a value. Numbers hold for all rows, or there is one for each."""
    guarded = Guarded([value or b"" for value in values])
    count = len(values)
    prefixes, framings, writers = (np.broadcast_to(np.asarray(one, np.int64), count).copy() for one in (prefix, framing, schema))
    length = np.array([-1 if value is None else len(value) for value in values], np.int64)
    at = np.array(guarded.at, np.int64).reshape(count)
    return Bodies(at + prefixes, np.where(length < 0, -1, length - prefixes), prefixes, framings, writers, list(schemas), bare, guarded)
