"""Batch tables from headers alone, and where to cut a range.

Offsets that headers do not contain: last offsets of enriched wrappers, whose relative offsets may have holes, and first offsets.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kolumn.core.arrays import Int64s
from kolumn.cpu_fallback.check import check
from kolumn.decode.host.chunks import header_rows
from kolumn.decode.host.run import decode_run
from kolumn.formats import table
from kolumn.formats.entries import Entries, Entry
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range, Segment

_OPTIONS = Options(columns=("offset",), include_control=True, errors="skip")


def with_last_offsets(file: SegmentFile, entries: Entries) -> Entries:
    """Fill in unknown last offsets in ``entries`` of the batch table: from the next entry, and for the last entry by decompressing it. An
    entry whose records cannot be read gets its base offset."""
    for i in np.flatnonzero(entries.last_offset == table.UNKNOWN).tolist():
        if i + 1 < len(entries):
            last = int(entries.base_offset[i + 1]) - 1
        else:
            offsets = _offsets(file, entries[i : i + 1].copy())
            last = -1 if offsets is None else int(offsets.max())
        entries.last_offset[i] = max(last, entries[i].base_offset)
    return entries


def first_offset(file: SegmentFile, row: Entry) -> int:
    """First offset of an intact entry, from its records; from its header if they cannot be read."""
    offsets = _offsets(file, row.alone())
    return row.last_offset if offsets is None else int(offsets.min())


def _offsets(file: SegmentFile, alone: Entries) -> Int64s | None:
    """Offsets of the records of one entry, as far as they can be read; None if none can."""
    start, end = alone[0].position, alone[0].end
    if end > file.size:
        return None
    source = file.read(start, end)
    if check(source.ctypes.data, start, alone.array) != 0:
        return None
    run = decode_run(source, start, alone, replace(_OPTIONS, format=file.segment.format), need_key=False, in_parts=True)
    return np.frombuffer(run.columns.offset, np.int64, run.rows) if run.rows else None


def headers(segment: Segment, start: int = 0, end: int | None = None) -> Iterator[Entries]:
    """Batch tables of the entries of a segment that begin in bytes [start, end), payloads not read, up to where the chain of entries ends.
    Last offsets are filled in in all rows."""
    with SegmentFile(segment) as file:
        for entries in header_rows(file, start, file.size if end is None else end):
            yield with_last_offsets(file, entries)


def position_of(span: Range, stop: int) -> int:
    """Where the records of a range with offsets below ``stop`` end; at its end if headers do not tell."""
    for entries in headers(span.segment, span.start, span.end):
        after = np.flatnonzero((entries.base_offset >= stop) | (entries.last_offset >= stop - 1))
        if len(after):
            first = entries[after[0]]
            return first.position if first.base_offset >= stop else first.end
    return span.end


def cut(span: Range, target_bytes: int) -> list[Range]:
    """Cut a range at entries into parts of about ``target_bytes``; reads headers only. If the chain of entries breaks, the rest is one
    part, and its reader handles the damage. Together the parts are the whole range; an empty range has one empty part."""
    if span.end - span.start <= target_bytes:
        return [span]
    parts, rest = [], span
    last = rest.floor
    for entries in headers(span.segment, span.start, span.end):
        columns = entries.position, entries.base_offset, entries.last_offset
        for position, base, offset in zip(*(column.tolist() for column in columns), strict=True):
            if position - rest.start >= target_bytes:
                parts.append(replace(rest, end=position))
                rest = replace(rest, start=position, floor=last)
            last = base if offset == table.UNKNOWN else offset
    return [*parts, rest]
