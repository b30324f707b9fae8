"""Type in which the file of each codec declares its framing.

No codec: a payload is one block that is not compressed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kolumn.formats.codecs import STORED
from kolumn.formats.layout import NONE
from kolumn.formats.memory import Buffer


@dataclass(frozen=True, eq=False)
class Codec:
    """A codec. Its functions are scalar functions: they are compiled to machine code.

    Attributes
    ----------
    name : str
    number : int
        Its value in bits 0 to 2 of an entry's attributes.
    header : callable
        ``(buf, at, end, magic)``: flaw, position of the first block, state; ``magic`` is that of the entry.
    block : callable
        ``(buf, at, end, state)``: flaw, position after the block, position of its first byte and after its last, the most bytes that it can
        decompress to, kind.
    is_whole : callable
        ``(state)``: whether a payload consists of one block.
    """

    name: str
    number: int
    header: Callable[..., tuple[int, int, int]]
    block: Callable[..., tuple[int, int, int, int, int, int]]
    is_whole: Callable[[int], bool]


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
