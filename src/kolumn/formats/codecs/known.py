"""The framing functions of all codecs by number, callable from compiled code. Loops and kernels over framings import it."""

from collections.abc import Callable
from typing import Any

from kolumn.formats.codecs import GZIP, LZ4, NONE, SNAPPY, STORED, ZSTD, gzip, lz4, snappy, zstd
from kolumn.formats.layout import chosen
from kolumn.formats.memory import Buffer
from kolumn.formats.words import known, scalar

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names of the codecs, by number."""
COUNT = len(NAMES)


def _plain_header(buf: Buffer, at: int, end: int, magic: int) -> tuple[int, int, int]:
    return 0, at, 0


def _plain_block(buf: Buffer, at: int, end: int, state: int) -> tuple[int, int, int, int, int, int]:
    """The whole payload, which is not compressed."""
    return 0, end, at, end, end - at, STORED


def is_whole(codec: int, state: int) -> bool:
    """Whether a payload is one block: without a codec, of gzip (all members), and of snappy without the xerial header."""
    return codec <= GZIP or (codec == SNAPPY and state == snappy.RAW)


CHOSEN: list[Callable[..., Any]] = [_plain_header, _plain_block, is_whole]
# lz4 comes first in the chain of comparisons, because it is the most common codec in logs.
header = chosen({LZ4: lz4.header, NONE: _plain_header, GZIP: gzip.header, SNAPPY: snappy.header, ZSTD: zstd.header}, CHOSEN)
block = chosen({LZ4: lz4.block, NONE: _plain_block, GZIP: gzip.block, SNAPPY: snappy.block, ZSTD: zstd.block}, CHOSEN)
"""``(codec, buf, at, end, magic or state)``: `header` and `block` of the codec's file, see `kolumn.formats.codecs`."""
scalar(lz4, snappy, zstd, gzip)
known(CHOSEN)
