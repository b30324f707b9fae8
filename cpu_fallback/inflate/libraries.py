"""Decoders of C libraries that compiled code calls, so that their output is in the CPU's cache when its records are read.

ISA-L's decoder of deflate streams, which the package ``isal`` exports, and a libzstd. If a library cannot be called, payloads of its codec
are decompressed by a Python package (`arena`).
"""

import ctypes
import threading
import zlib
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import zstandard

from kolumn.cpu_fallback.machine.address import PAD, function_address, library

PLACE = "isal.isal_zlib"


class Head(ctypes.Structure):
    """First fields of ``struct inflate_state`` of igzip_lib.h. Internal tables and settings of the library follow them."""

    _fields_ = (
        ("next_out", ctypes.c_void_p), ("avail_out", ctypes.c_uint32), ("total_out", ctypes.c_uint32),
        ("next_in", ctypes.c_void_p), ("read_in", ctypes.c_uint64), ("avail_in", ctypes.c_uint32),
    )  # fmt: skip


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


PLACES = ("backports.zstd._zstd", "libzstd.so.1", "zstandard._cffi")
"""Modules, and a library of the system, that export libzstd. The last one is slower: it lacks libzstd's assembly for Huffman codes."""
_MAJOR, _MINOR, _PATCH = zstandard.ZSTD_VERSION
# Older versions accept damaged payloads that this one rejects, and the result of a read must not depend on the machine.
_OLDEST = 10000 * _MAJOR + 100 * _MINOR + _PATCH


class Context:
    """Addresses of a ``ZSTD_DCtx``, freed with this object, and of ``ZSTD_decompressDCtx``; both 0 if there is no library."""

    function, state = 0, 0

    def __init__(self) -> None:
        _, self.library = _libzstd_library()
        if self.library is not None:
            self.state = self.library.ZSTD_createDCtx() or 0
            self.function = function_address(self.library.ZSTD_decompressDCtx) if self.state else 0

    def __del__(self) -> None:
        if self.state:
            self.library.ZSTD_freeDCtx(self.state)


def name() -> str:
    """Version of the library and where it was found; empty if there is no library."""
    place, zstd = _libzstd_library()
    if zstd is None:
        return ""
    number = zstd.ZSTD_versionNumber()
    return f"libzstd {number // 10000}.{number // 100 % 100}.{number % 100} of {place}"


@lru_cache(maxsize=1)
def _libzstd_library() -> tuple[str, Any]:
    """Where the library was found, and the library with typed functions; None if no library can be loaded or has these functions."""
    for place in PLACES:
        zstd = _load(place)
        if zstd is not None:
            return place, zstd
    return "", None


def _load(place: str) -> Any:
    try:
        zstd = library(place)
        zstd.ZSTD_createDCtx.restype = ctypes.c_void_p
        zstd.ZSTD_freeDCtx.argtypes = (ctypes.c_void_p,)
        return zstd if zstd.ZSTD_decompressDCtx and zstd.ZSTD_versionNumber() >= _OLDEST else None
    except (OSError, AttributeError):
        return None


LZ4_PLACES = ("lz4.block._block", "liblz4.so.1")
"""A module, and a library of the system, that export liblz4."""


@cache
def liblz4(function: str) -> int:
    """Address of a function of liblz4; 0 if there is no library."""
    for place in LZ4_PLACES:
        try:
            return function_address(getattr(library(place), function))
        except (OSError, AttributeError):
            continue
    return 0


_local = threading.local()


class Decoder(NamedTuple):
    """Addresses of a function and of its state between calls; 0 if there is no library."""

    function: int
    state: int


class Decoders(NamedTuple):
    """``isal_inflate_stateless`` with an ``inflate_state``, ``LZ4_decompress_safe``, ``ZSTD_decompressDCtx`` with a ``ZSTD_DCtx``.
    ``contents`` is 1 if content checksums of lz4 frames are compared."""

    deflate: Decoder
    lz4: Decoder
    zstd: Decoder
    contents: int


def decoders(contents: bool = False) -> Decoders:
    """This thread's decoders. Another thread must not use them."""
    if not hasattr(_local, "own"):
        deflate, zstd = _local.memory = State(), Context()
        _local.own = Decoders(
            Decoder(deflate.function, deflate.state), Decoder(liblz4("LZ4_decompress_safe"), 0), Decoder(zstd.function, zstd.state), 0
        )
    own: Decoders = _local.own
    return own._replace(contents=1) if contents else own
