"""No codec: a payload is one block that is not compressed."""

from kolumn.codecs import STORED
from kolumn.codecs.codec import Codec
from kolumn.formats.attributes import NONE
from kolumn.formats.memory import Buffer


def header(buf: Buffer, at: int, end: int, magic: int) -> tuple[int, int, int]:
    """Position of the block; it has no header."""
    return 0, at, 0


def block(buf: Buffer, at: int, end: int, state: int) -> tuple[int, int, int, int, int, int]:
    """The block, which is the whole payload."""
    return 0, end, at, end, end - at, STORED


def is_whole(state: int) -> bool:
    """True: there is one block."""
    return True


CODEC = Codec("none", NONE, header, block, is_whole)
