"""Decoders of C libraries for compiled code to call: their output is in the CPU's cache when its records are read.

Where a library can't be called, its payloads go through its package (`inflate`).
"""

import threading
from typing import NamedTuple

from kolumn.cpu_fallback.inflate.libisal import State
from kolumn.cpu_fallback.inflate.libzstd import Context

_local = threading.local()


class Decoder(NamedTuple):
    """Addresses of a function and of what it keeps between calls; 0 where there is no library."""

    function: int
    state: int


class Decoders(NamedTuple):
    """``isal_inflate_stateless`` with an ``inflate_state``, ``ZSTD_decompressDCtx`` with a ``ZSTD_DCtx``."""

    deflate: Decoder
    zstd: Decoder


def decoders() -> Decoders:
    """This thread's decoders: they must not go to another."""
    if not hasattr(_local, "own"):
        _local.own = State(), Context()
    deflate, zstd = _local.own
    return Decoders(Decoder(deflate.function, deflate.state), Decoder(zstd.function, zstd.state))
