"""The walk over entries in memory, with named arguments and results; its loop is `kolumn.cpu_fallback.check.walk`."""

from typing import NamedTuple

from kolumn.core.arrays import Bytes
from kolumn.cpu_fallback.check.walk import walk
from kolumn.formats.entries import Entries


class Loaded(NamedTuple):
    """Bytes of a segment in memory.

    Attributes
    ----------
    source : uint8 array
        The bytes from position ``origin`` on, padded.
    origin, loaded, end : int
        Positions in the segment: of the first byte, after the last byte that is in memory, and of the segment's end.
    """

    source: Bytes
    origin: int
    loaded: int
    end: int

    @classmethod
    def whole(cls, source: Bytes, end: int) -> "Loaded":
        """A segment of ``end`` bytes that is in memory as a whole."""
        return cls(source, 0, end, end)


class Walked(NamedTuple):
    """How a walk ended.

    Attributes
    ----------
    entries : int
        How many were found.
    position : int
        Where the walk stopped.
    code : int
        OK at the requested stop; `MORE` or `FULL` if the bytes or the table ended first; else why the chain of entries ends there.
    size : int
        Of the entry at ``position``, or 0 if it is not known.
    """

    entries: int
    position: int
    code: int
    size: int


def walk_entries(held: Loaded, start: int, stop: int, format: int, entries: Entries, *, whole: bool, decide: bool) -> Walked:
    """Fill the batch table from the entries that begin at positions [start, stop).

    Parameters
    ----------
    held : Loaded
    start, stop : int
        Both are boundaries of entries.
    format : int
        Index into `layouts.FORMATS`.
    entries : Entries
        Room for rows.
    whole : bool
        Whether entries must be loaded to their end; otherwise headers are enough.
    decide : bool
        Whether checksums decide between layouts; only with ``whole``.
    """
    source, origin, loaded, end = held
    return Walked(*walk(source.ctypes.data, start, loaded, stop, end, origin, format, whole, decide, entries.array))
