"""Decoders of C libraries that compiled code calls, so that their output is in the CPU's cache when its records are read.

If a library cannot be called, payloads of its codec are decompressed by a Python package (`arena`).
"""

import threading
from typing import NamedTuple

from kolumn.cpu_fallback.inflate.libisal import State
from kolumn.cpu_fallback.inflate.libzstd import Context

_local = threading.local()


class Decoder(NamedTuple):
    """Addresses of a function and of its state between calls; 0 if there is no library."""

    function: int
    state: int


class Decoders(NamedTuple):
    """``isal_inflate_stateless`` with an ``inflate_state``, ``ZSTD_decompressDCtx`` with a ``ZSTD_DCtx``.

    ``contents`` is 1 if content checksums of lz4 frames are compared.
    """

    deflate: Decoder
    zstd: Decoder
    contents: int


def decoders(contents: bool = False) -> Decoders:
    """This thread's decoders. Another thread must not use them."""
    if not hasattr(_local, "own"):
        deflate, zstd = _local.memory = State(), Context()
        _local.own = Decoders(Decoder(deflate.function, deflate.state), Decoder(zstd.function, zstd.state), 0)
    own: Decoders = _local.own
    return own._replace(contents=1) if contents else own
