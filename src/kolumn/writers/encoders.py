"""Which module encodes which layout."""

from collections.abc import Iterator
from typing import Protocol

from kolumn.core.arrays import Int64s
from kolumn.formats import enriched, layouts
from kolumn.formats.entries import Entries
from kolumn.writers import batches, messages, sets, tagged
from kolumn.writers.entries import Encoded, EntrySettings, Groups
from kolumn.writers.table import RecordsIn

_ENTRIES = 4096
"""Entries that are encoded at a time."""


class Encoder(Protocol):
    """What encodes a layout: a module with these functions."""

    def group(self, given: RecordsIn, how: EntrySettings, last: bool) -> Groups:
        """Decide which rows share an entry."""

    def regroup(self, given: RecordsIn, first: Int64s, entries: Entries, how: EntrySettings) -> Groups:
        """Keep given entries: ``first`` is the first row of each."""

    def header_sizes(self, entries: Entries, size: Int64s, how: EntrySettings) -> Int64s:
        """Bytes of the headers of entries whose payloads have ``size`` bytes."""

    def put(self, given: RecordsIn, groups: Groups, how: EntrySettings) -> Encoded:
        """Write the entries."""


_FILES: dict[int, Encoder] = {
    **dict.fromkeys(layouts.BATCHES, batches),
    **dict.fromkeys(layouts.SETS, sets),
    **dict.fromkeys(layouts.MESSAGES, messages),
    enriched.LAYOUT.number: tagged,
}


def encoder(layout: int) -> Encoder:
    """The module that encodes a layout."""
    return _FILES[layout]


def encode(given: RecordsIn, how: EntrySettings, last: bool) -> tuple[Encoded, int]:
    """Encode the rows that make complete entries; returns these and how many rows they have.

    Unless ``last``, more rows follow, and the last entry is left for the next call. Raises `ArgumentError` if the layout cannot store a
    record.
    """
    file = encoder(how.layout)
    groups = file.group(given, how, last)
    return file.put(given, groups, how), groups.stop


def in_parts(given: RecordsIn, groups: Groups, how: EntrySettings) -> Iterator[Encoded]:
    """Encode groups, some entries at a time: messages are many, and their table has to stay in the CPU's cache."""
    file = encoder(how.layout)
    for start in range(0, len(groups.first), _ENTRIES):
        yield file.put(given, groups.part(start, min(start + _ENTRIES, len(groups.first))), how)
