"""What can be read of an entry in which a record is wrong: the sound records, and in words which ones are lost."""

from dataclasses import dataclass

import numpy as np

from kolumn.arrays import Bytes, Rows
from kolumn.cpu_fallback.fields.sound import INDEX, OFFSET, sound_records
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.damage.findings import Lost
from kolumn.errors import Code
from kolumn.formats import layouts, table
from kolumn.formats.entries import Entry
from kolumn.options import Options

NAMED = 10
"""Most wrong records of an entry that are named one by one."""


@dataclass
class Part:
    """The sound records of an entry.

    Attributes
    ----------
    row : Entry
        The entry without the other records, and without a code.
    payload : uint8 array
        Its records or messages, padded.
    in_place : bool
        Whether they begin where the payload did; otherwise they are in memory of their own.
    lost : Lost
    """

    row: Entry
    payload: Bytes
    in_place: bool
    lost: Lost


def readable_part(entry: Entry, payload: Bytes, options: Options, in_place: bool) -> Part | None:
    """The sound records of a damaged entry with a right checksum; None if there are none.

    ``payload`` is decompressed and padded; with ``in_place`` it is overwritten.
    """
    if entry.code == Code.TOO_LARGE:
        return None
    size = len(payload)
    memory = payload if in_place else np.empty(size + PAD, np.uint8)
    row, wrong = entry.copy(), np.empty((NAMED, 2), np.int64)
    row.code = 0
    kept, left, bad, framed, broken, before, after = sound_records(
        row.array, payload.ctypes.data, size, memory.ctypes.data, layouts.FORMAT_NAMES.index(options.format), options.check_crcs, wrong
    )
    if not kept:
        return None
    records = _records_lost(entry, kept, bad, framed, broken >= 0)
    text = _words(kept, bad, framed if broken < 0 else None, wrong[: min(bad, NAMED)])
    return Part(row, memory[:left], in_place, Lost(records, _offsets(entry, before, after, records), text))


def _span(entry: Entry) -> int | None:
    """How many offsets an entry has by its header."""
    if table.UNKNOWN in (entry.base_offset, entry.last_offset):
        return None
    return entry.last_offset - entry.base_offset + 1


def _records_lost(entry: Entry, kept: int, bad: int, framed: int, broken: bool) -> int | None:
    """How many records are lost, by the header's count as far as that is possible."""
    span = _span(entry)
    count = entry.count if span is not None and 0 <= entry.count <= span else None
    if not broken:
        return bad + max(0, (count or 0) - framed)
    return count - kept if count is not None and count >= kept else None


def _offsets(entry: Entry, before: int, after: int, records: int | None) -> tuple[int, int] | None:
    """Between which offsets the lost records are: between their neighbours, as far as these have offsets in order."""
    if _span(entry) is None and table.UNKNOWN in (before, after):
        return None
    first = entry.base_offset if before == table.UNKNOWN else before + 1
    last = entry.last_offset if after == table.UNKNOWN else after - 1
    if last - first + 1 >= max(records or 0, 1):
        return first, last
    return (entry.base_offset, entry.last_offset) if (_span(entry) or 0) > 0 else None


def _words(kept: int, bad: int, framed: int | None, wrong: Rows) -> str:
    """What is left out, and that the rest is read; ``framed`` is None if nobody can tell where records begin after the first wrong one."""
    read = f"{kept} {'other ' if bad else ''}record{'s are' if kept != 1 else ' is'} read"
    if framed is None:
        return f"{read}, up to where nobody can tell any more where a record begins"
    if not bad:
        return read
    names = [f"{one[INDEX]}" + (f" (offset {one[OFFSET]})" if one[OFFSET] != table.UNKNOWN else "") for one in wrong.tolist()]
    if bad > len(names):
        names.append(f"{bad - len(names)} more")
    return f"left out: record{'s' if bad != 1 else ''} {', '.join(names)}; {read}"
