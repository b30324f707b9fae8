"""ISA-L's decoder of deflate streams, which the package ``isal`` exports."""

import ctypes
import zlib
from functools import lru_cache
from typing import Any

import numpy as np

from kolumn.cpu_fallback.machine.address import PAD, function_address, library

PLACE = "isal.isal_zlib"


class Head(ctypes.Structure):
    """First fields of ``struct inflate_state`` of igzip_lib.h. Internal tables and settings of the library follow them."""

    _fields_ = (
        ("next_out", ctypes.c_void_p),
        ("avail_out", ctypes.c_uint32),
        ("total_out", ctypes.c_uint32),
        ("next_in", ctypes.c_void_p),
        ("read_in", ctypes.c_uint64),
        ("avail_in", ctypes.c_uint32),
    )


NEXT_OUT, AVAIL_OUT = Head.next_out.offset, Head.avail_out.offset
NEXT_IN, AVAIL_IN = Head.next_in.offset, Head.avail_in.offset
STATE_BYTES = 256 << 10
"""Bytes allocated for a state, more than twice its size."""


class State:
    """Addresses of an ``inflate_state`` and of ``isal_inflate_stateless``; both 0 if there is no library."""

    function, state = 0, 0

    def __init__(self) -> None:
        isal = _library()
        if isal is not None:
            self.memory = ctypes.create_string_buffer(STATE_BYTES)
            self.state, self.function = ctypes.addressof(self.memory), function_address(isal.isal_inflate_stateless)
            isal.isal_inflate_init(ctypes.byref(self.memory))


def available() -> bool:
    """Whether the library can be called."""
    return _library() is not None


@lru_cache(maxsize=1)
def _library() -> Any:
    try:
        isal = library(PLACE)
        return isal if _as_told(isal) else None
    except (OSError, AttributeError):
        return None


def _as_told(isal: Any) -> bool:
    """Whether a state begins with the fields of `Head`: this is tested before the library is used."""
    data = bytes(range(256)) * 2
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    stream = deflate.compress(data) + deflate.flush()
    source, target = np.frombuffer(stream + b"more", np.uint8), np.zeros(len(data) + PAD, np.uint8)
    memory = ctypes.create_string_buffer(STATE_BYTES)
    state, head = ctypes.byref(memory), Head.from_buffer(memory)
    isal.isal_inflate_init(state)
    head.next_in, head.avail_in = source.ctypes.data, len(source)
    head.next_out, head.avail_out = target.ctypes.data, len(target)
    done = isal.isal_inflate_stateless(state) == 0 and target[: len(data)].tobytes() == data
    return done and head.next_in == source.ctypes.data + len(stream) and head.next_out == target.ctypes.data + len(data)
