"""All codecs, and their functions by number."""

from collections.abc import Callable
from typing import Any

from kolumn.codecs import gzip, lz4, plain, snappy, zstd
from kolumn.formats.layout import chosen

CODECS = tuple(file.CODEC for file in (plain, gzip, snappy, lz4, zstd))
COUNT = len(CODECS)
NAMES = tuple(codec.name for codec in CODECS)
"""Names of the codecs, by number."""
assert [codec.number for codec in CODECS] == list(range(COUNT))

CHOSEN: list[Callable[..., Any]] = []
"""Functions made by `chosen`, which the compilers have to know too."""
# lz4 comes first in the chain of comparisons, because it is the most common codec in logs.
_ORDER = sorted(CODECS, key=lambda codec: codec is not lz4.CODEC)
header = chosen({codec.number: codec.header for codec in _ORDER}, CHOSEN)
block = chosen({codec.number: codec.block for codec in _ORDER}, CHOSEN)
is_whole = chosen({codec.number: codec.is_whole for codec in _ORDER}, CHOSEN)
"""Functions of `kolumn.codecs.codec.Codec`, by the codec's number."""
