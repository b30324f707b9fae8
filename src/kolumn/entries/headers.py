"""Batch tables from headers alone, and where to cut a range."""

from collections.abc import Iterator
from dataclasses import replace

from kolumn.entries.last_offsets import with_last_offsets
from kolumn.formats import table
from kolumn.formats.entries import Entries
from kolumn.plan.chunks import header_rows
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range, Segment


def headers(segment: Segment, start: int = 0, end: int | None = None) -> Iterator[Entries]:
    """Batch tables of the entries of a segment that begin in bytes [start, end), payloads not read, up to where the chain of entries ends.

    Last offsets are filled in in all rows.
    """
    with SegmentFile(segment) as file:
        for entries in header_rows(file, start, file.size if end is None else end):
            yield with_last_offsets(file, entries)


def cut(one: Range, target_bytes: int) -> list[Range]:
    """Cut a range at entries into parts of about ``target_bytes``; reads headers only.

    If the chain of entries breaks, the rest is one part, and its reader handles the damage. Together the parts are the whole range;
    an empty range has one empty part.
    """
    if one.end - one.start <= target_bytes:
        return [one]
    parts, rest = [], one
    last = rest.floor
    for entries in headers(one.segment, one.start, one.end):
        columns = entries.position, entries.base_offset, entries.last_offset
        for position, base, offset in zip(*(column.tolist() for column in columns), strict=True):
            if position - rest.start >= target_bytes:
                parts.append(replace(rest, end=position))
                rest = replace(rest, start=position, floor=last)
            last = base if offset == table.UNKNOWN else offset
    return [*parts, rest]
