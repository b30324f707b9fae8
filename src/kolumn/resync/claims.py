"""Credible parts of a damaged entry's header: its offsets, and where its checksum is."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kolumn.arrays import Bytes
from kolumn.formats import layouts, table, v2
from kolumn.formats.entries import Entries, Entry

LARGEST_SPAN = 1 << 31
"""Offsets in a segment: its indexes count from the base offset in 32 bits (``LogSegment.canConvertToRelativeOffset``)."""


class Claim(NamedTuple):
    """Offsets of a damaged entry, according to its header.

    Attributes
    ----------
    last : int
        The last offset; the last intact offset before the entry, if the header is not credible.
    exact : bool
        The entry begins with the next offset of the log and has one record for each offset: a damaged header would hardly do so.
    following : int, optional
        The offset after the entry, if it begins with the next offset of the log, even if its count is wrong; that next offset
        itself, if the header is not credible at all.
    first : int, optional
        The first offset.
    """

    last: int
    exact: bool = False
    following: int | None = None
    first: int | None = None


def first_of(row: Entry) -> int:
    """First offset of an entry according to its header; a wrapper's header contains only the last one, which is returned then."""
    return row.last_offset if row.base_offset == table.UNKNOWN else row.base_offset


def claim_of_row(row: Entry, floor: int, ceiling: int) -> Claim:
    """Claim of an entry whose header was read, limited to the offsets between ``floor`` and ``ceiling``, those of its neighbours."""
    base, last, count = first_of(row), row.last_known_offset, row.count
    ceiling = min(ceiling, max(floor, 0) + LARGEST_SPAN)
    if floor < base <= last < ceiling and count <= last - base + 1 and (count >= 0 or count == table.UNKNOWN):
        return Claim(last, base == floor + 1 and count == last - base + 1, first=base)
    return Claim(base if floor < base < ceiling else floor)


def claim_of_bytes(head: Bytes, left: int, format: int, floor: int) -> Claim:
    """Claim of the entry of at most ``left`` bytes that begins with ``head``, ignoring its length field. Invalid headers are ignored."""
    row = Entries.zeros(1)[0]
    if left < v2.HEADER or not _header(head, row, format):
        return Claim(floor, following=floor + 1)
    base, last, count = first_of(row), row.last_known_offset, row.count
    if not floor < base <= last:
        return Claim(floor)
    next = base == floor + 1
    sane = 0 < count <= last - base + 1 or count == table.UNKNOWN
    return Claim(last if sane else floor, next and count == last - base + 1, last + 1 if next else None, base)


def claim_without_magic(head: Bytes, left: int, format: int, floor: int, ceiling: int) -> Claim:
    """Claim of an entry whose magic may be wrong: every format whose header would be valid here is tried."""
    head = np.array(head)
    for magic in (2, 1, 0):
        head[16] = magic
        claim = claim_of_bytes(head, left, format, floor)
        if floor < claim.last < ceiling:
            return claim
    return Claim(floor)


def _header(head: Bytes, row: Entry, format: int) -> bool:
    """Fill a row from a header whose length may be wrong; False if it is not a header, or has values that no writer writes."""
    framed = layouts.FORMATS[format].own_believable
    believed = None if framed is None else framed(head, row.array)
    if believed is not None:
        return believed
    known = layouts.LAYOUTS.get(layouts.layout_of(format, int(head[16])))
    return known is not None and known.believable is not None and known.believable(head, row.array)


def shapes(head: Bytes, size: int, format: int) -> Iterator[tuple[int, int, int, bool]]:
    """Possible layouts of the entry at ``head``, ignoring its length field: (smallest size, CRC start, CRC place, is CRC-32C)."""
    framed = layouts.FORMATS[format].own_shapes
    if framed is not None:
        yield from framed(head, size)
    known = layouts.LAYOUTS.get(layouts.layout_of(format, int(head[16])))
    if known is not None and (size >= known.smallest or not known.castagnoli):
        yield known.smallest, known.crc_from, known.crc_at, known.castagnoli
