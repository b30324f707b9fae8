"""All codecs, and their functions by number.

Makes the framing functions of all codecs callable from compiled code. Modules with loops or kernels over framings import this one.
"""

from collections.abc import Callable
from typing import Any

from kolumn.formats.codecs import codec, gzip, lz4, snappy, zstd
from kolumn.formats.codecs import codec as plain
from kolumn.formats.layout import chosen
from kolumn.formats.machine_code import scalar

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
"""Functions of `kolumn.formats.codecs.codec.Codec`, by the codec's number."""


scalar.scalar(lz4, codec, lz4, snappy, zstd, gzip)
scalar.known(CHOSEN)
