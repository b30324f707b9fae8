"""The way on after damage, for all that reads a range entry by entry."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import TypeVar

from kolumn.damage.findings import Trouble
from kolumn.decode.result import Tally
from kolumn.decode.segment_end import go_on
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range

_Item = TypeVar("_Item")


def resumed(
    file: SegmentFile, one: Range, errors: str, found: Tally, until_trouble: Callable[[Range], Generator[_Item, None, Trouble | None]]
) -> Iterator[_Item]:
    """Read a range, and go on after damage where the options say so.

    Parameters
    ----------
    file : SegmentFile
    one : Range
    errors : str
        "raise" ends it at the first trouble.
    found : Tally
        Gets the damage.
    until_trouble : callable
        Reads what is left of the range, up to its end or to where the chain of entries is lost, and returns the trouble.

    Raises
    ------
    CorruptBatchError
        The chain of entries is lost, with ``errors="raise"``.
    """
    rest = one
    while True:
        trouble = yield from until_trouble(rest)
        try:
            following = go_on(file, trouble, one.end, errors, found)
        finally:
            # An error's traceback has this frame: it would keep what was read in memory until a collection.
            del trouble
        if following is None:
            return
        position, floor = following
        rest = replace(one, start=position, floor=floor)
