"""No codec: a payload is one block, stored as it is."""

from kolumn.codecs import STORED
from kolumn.codecs.codec import Codec
from kolumn.formats.attributes import NONE
from kolumn.formats.memory import Buffer


def header(buf: Buffer, at: int, end: int, magic: int) -> tuple[int, int, int]:
    """Nothing stands in front of the block."""
    return 0, at, 0


def block(buf: Buffer, at: int, end: int, state: int) -> tuple[int, int, int, int, int, int]:
    """All bytes."""
    return 0, end, at, end, end - at, STORED


def is_whole(state: int) -> bool:
    """There is one block."""
    return True


CODEC = Codec("none", NONE, header, block, is_whole)
