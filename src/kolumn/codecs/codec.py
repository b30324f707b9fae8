"""What the file of a codec says of itself."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Codec:
    """A codec. Functions are scalar: they become machine code.

    Attributes
    ----------
    name : str
    number : int
        Bits 0 to 2 of the attributes of entries.
    header : callable
        ``(buf, at, end, magic)``: flaw, place of the first block, state; ``magic`` is that of the entry.
    block : callable
        ``(buf, at, end, state)``: flaw, place after the block, its first byte and the one after its last, how many bytes it can inflate to,
        kind.
    is_whole : callable
        ``(state)``: whether the first block is all that a payload has.
    """

    name: str
    number: int
    header: Callable[..., tuple[int, int, int]]
    block: Callable[..., tuple[int, int, int, int, int, int]]
    is_whole: Callable[[int], bool]
