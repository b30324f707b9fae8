"""Continuing after damage, for all readers that read a range entry by entry."""

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
    """Read a range, and continue after damage if ``errors`` allows it.

    Parameters
    ----------
    file : SegmentFile
    one : Range
    errors : str
        "raise" ends the read at the first trouble.
    found : Tally
        The damage is added to it.
    until_trouble : callable
        Reads the rest of the range, up to its end or to the place where the chain of entries is lost, and returns the trouble.

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
            # An error's traceback references this frame, which would keep the data read in memory until a garbage collection.
            del trouble
        if following is None:
            return
        position, floor = following
        rest = replace(one, start=position, floor=floor)
