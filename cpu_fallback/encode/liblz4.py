"""Finds a liblz4 whose compressor compiled code can call."""

from functools import lru_cache

from kolumn.cpu_fallback.machine.address import function_address, library

PLACES = ("lz4.block._block", "liblz4.so.1")
"""A module, and a library of the system, that export liblz4."""


@lru_cache(maxsize=1)
def function() -> int:
    """Address of ``LZ4_compress_default``; 0 if there is no library."""
    for place in PLACES:
        try:
            return function_address(library(place).LZ4_compress_default)
        except (OSError, AttributeError):
            continue
    return 0
