"""Finds runs of intact entries among damaged bytes: entries with a right checksum, judged by how well the bytes after them fit.

What of a damaged entry's header is credible: its offsets, and where its checksum is.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from kolumn.core.arrays import Bytes
from kolumn.core.errors import Code
from kolumn.cpu_fallback.check import HEADERS, MORE, candidate, check, plausible, wrapped
from kolumn.decode.host.chunks import Loaded, walk_entries
from kolumn.decode.host.headers import first_offset
from kolumn.formats import entry, layouts, legacy, memory, table, v2
from kolumn.formats.entries import Entries, Entry
from kolumn.formats.layout import Outline
from kolumn.source.segment_file import SegmentFile

LARGEST_SPAN = 1 << 31
"""Offsets in a segment: its indexes count from the base offset in 32 bits (``LogSegment.canConvertToRelativeOffset``)."""
WINDOW = 4 << 20
CHAIN_ENTRIES = 64
CHAIN_BYTES = 32 << 20  # maximum bytes of the chain after a candidate that are followed
CRC_BUDGET = 1 << 30  # bytes that may be checksummed in one search; this bounds the time for a crafted file
SMALLEST_MESSAGE = entry.OVERHEAD + legacy.SMALLEST_V1
"""Bytes of the smallest message of format 1. In a wrapper its offset is relative to the first one's: as many messages precede it."""
OPEN = (1 << 63) - 1  # upper bound of offsets if no entry follows

_Identity = tuple[int, int, int, int]


class Claim(NamedTuple):
    """Offsets of a damaged entry, according to its header."""

    last: int  # the last offset; the last intact offset before the entry, if the header is not credible
    exact: bool = False
    """The entry begins with the next offset of the log and has one record for each offset: a damaged header would hardly do so. Or a
    checksum of its own says that the header is as it was written."""
    following: int | None = None
    """The offset after the entry, if it begins with the next offset of the log, even if its count is wrong; that next offset itself, if the
    header is not credible at all."""
    first: int | None = None


def first_of(row: Entry) -> int:
    """First offset of an entry according to its header; a wrapper's header contains only the last one, which is returned then."""
    return row.last_offset if row.base_offset == table.UNKNOWN else row.base_offset


def claim_of_row(row: Entry, floor: int, ceiling: int) -> Claim:
    """Claim of an entry whose header was read, limited to the offsets between ``floor`` and ``ceiling``, those of its neighbours."""
    base, last, count = first_of(row), row.last_known_offset, row.count
    if _is_sealed(row, row.layout) and floor < base <= last < ceiling:
        return Claim(last, True, first=base)
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
    sealed = _is_sealed(row, layouts.own_layout(format))
    sane = sealed or 0 < count <= last - base + 1 or count == table.UNKNOWN
    return Claim(last if sane else floor, sealed or (next and count == last - base + 1), last + 1 if next else None, base)


def _is_sealed(row: Entry, layout: int) -> bool:
    """Whether the header of an entry has a checksum of its own, which is right."""
    return row.code != Code.HEADER_CRC and layout != layouts.NO_LAYOUT and layouts.LAYOUTS[layout].sealed


def claim_without_magic(head: Bytes, left: int, format: int, floor: int, ceiling: int) -> Claim:
    """Claim of an entry whose magic may be wrong: every format whose header would be valid here is tried."""
    head = np.array(head)
    for magic in (2, 1, 0):
        head[16] = magic
        claim = claim_of_bytes(head, left, format, floor)
        if floor < claim.last < ceiling:
            return claim
    return Claim(floor)


def claimed_size(head: Bytes | bytes, format: int) -> int:
    """Size of the entry that begins with ``head``, by its length field; 0 if no entry is so small. For `v3_compact` as in the formats that
    may be mixed with it."""
    if layouts.has_no_magics(format):
        return int(layouts.own_frame(format, head, 0, OPEN)[1])
    return memory.i32_at(head, entry.SIZE_AT) + entry.OVERHEAD


def _header(head: Bytes, row: Entry, format: int) -> bool:
    """Fill a row from a header whose length may be wrong; False if it is not a header, or has values that no writer writes."""
    framed = layouts.FORMATS[format].own_believable
    believed = None if framed is None else framed(head, row.array)
    if believed is not None:
        return believed
    layout = layouts.LAYOUTS.get(layouts.layout_of(format, int(head[16])))
    return layout is not None and layout.believable is not None and layout.believable(head, row.array)


def shapes(head: Bytes, size: int, format: int) -> Iterator[Outline]:
    """How the entry at ``head`` may be laid out, ignoring its length field."""
    framed = layouts.FORMATS[format].own_shapes
    if framed is not None:
        yield from framed(head, size)
    layout = layouts.LAYOUTS.get(layouts.layout_of(format, int(head[16])))
    if layout is not None and (size >= layout.smallest or not layout.castagnoli):
        yield Outline(layout.smallest, layout.crc_from, memory.u32_at(head, layout.crc_at), layout.castagnoli)


class Stretch(NamedTuple):
    """The bytes in which intact entries are searched, and the offsets that they may have."""

    start: int
    stop: int  # entries begin before it
    end: int  # entries end here at the latest: the end of the file, or an intact entry
    floor: int
    ceiling: int = OPEN  # offsets of entries lie strictly between floor and ceiling
    exact: bool = False  # lengths lead to the end, so no entry is cut there
    strict: bool = False  # runs of entries have to lead to the end too
    claim: Claim = Claim(-1)  # that of the damaged entry
    sure: int | None = None  # last offset before the entries, -1 without one, if the floor is an offset that the damaged entry claims
    claimed_end: int = -1  # where the damaged entry ends by its length: batches inside a record's value end before that


@dataclass
class RunOfEntries:
    """A run of intact entries in the bytes [start, stop)."""

    start: int
    stop: int
    first_offset: int
    last_offset: int
    entries: int
    gapless: int = 0  # how many entries, from the first one on, begin with the offset after the one before them
    ends_well: bool = True  # it extends to the end of the file, or past the bytes that were searched
    followed: bool = True  # the bytes after it look like the header of the next entry
    identities: frozenset[_Identity] = frozenset()  # of its entries: base and last offset, size, checksum

    def repeats(self, before: "RunOfEntries") -> bool:
        """Whether all its entries with offsets of a run before this one are entries of that run: a block was written twice."""
        again = {identity for identity in self.identities if identity[0] <= before.last_offset}
        return bool(again) and again <= before.identities


class Runs:
    """Finds runs of intact entries in one file."""

    def __init__(self, file: SegmentFile) -> None:
        self.file = file
        self._budget = CRC_BUDGET
        self._lowest = file.segment.base_offset or 0

    def _best(self, stretch: Stretch) -> RunOfEntries | None:
        """The run of intact entries that fits best."""
        best: RunOfEntries | None = None
        seen: deque[RunOfEntries] = deque(maxlen=CHAIN_ENTRIES)
        for chain in self._chains(stretch):
            before = [run for run in seen if 0 < chain.first_offset - run.last_offset <= LARGEST_SPAN or chain.repeats(run)]
            if before:
                # Entries that follow others in file and offset, or are the same, confirm each other. Of two that exclude each other, the
                # later one is used: copies of entries are in the damaged entry's own bytes.
                first = max(reversed(before), key=lambda run: run.entries)
                chain = replace(
                    chain,
                    start=first.start,
                    first_offset=first.first_offset,
                    last_offset=max(first.last_offset, chain.last_offset),
                    entries=first.entries + chain.entries,
                    identities=first.identities | chain.identities,
                )
                chain.ends_well |= not stretch.strict
            if best is None or chain.ends_well or chain.entries > best.entries:
                best = chain
            if best.ends_well:
                return best
            seen.append(chain)
        return None if stretch.strict else best

    def _chains(self, stretch: Stretch) -> Iterator[RunOfEntries]:
        """Runs of intact entries that begin in a stretch; no run lies inside another."""
        position, end = stretch.start, stretch.end
        inside, messages_end, most = stretch.floor, 0, stretch.floor + LARGEST_SPAN
        while position < min(stretch.stop, end - entry.PREFIX) and self._budget > 0:
            # One byte more in front, since a stretch begins inside the damaged entry.
            loaded = min(position + (WINDOW if stretch.stop - position > HEADERS else 2 * HEADERS), end)
            origin = max(position - 1, 0)
            source, seen = self.file.read(origin, loaded), origin
            # A header that is cut by this window is complete in the next one.
            stop, chain = min(stretch.stop, loaded if loaded == end else loaded - HEADERS), None
            while position < stop and chain is None:
                position, self._budget = candidate(
                    source.ctypes.data, origin, position, stop, loaded, end, stretch.floor, stretch.ceiling, self.file.format, self._budget
                )
                if position < stop:
                    if self._is_message(source, position - origin):
                        inside, messages_end = wrapped(source.ctypes.data, origin, seen, position, inside, most, messages_end)
                        seen = position
                    if position >= messages_end or layouts.offset_at(self.file.format, source, position - origin) > inside:
                        chain = self._chain(position, stretch)
                    position += 1
            if chain is not None:
                yield chain
                position = chain.stop

    def _is_message(self, source: Bytes, start: int) -> bool:
        """Whether an entry is an uncompressed message of format 0 or 1: it may be an inner message of a damaged wrapper."""
        return layouts.layout_of(self.file.format, int(source[start + 16])) == legacy.LAYOUT.number and not source[start + 17] & 7

    def _chain(self, position: int, stretch: Stretch) -> RunOfEntries | None:
        start, first, last, entries, leftover = position, 0, stretch.floor, 0, stretch.claim.first is None
        # If nothing else determines the offsets of a log, the claim of a damaged entry does not either.
        anywhere = stretch.sure == -1 and self.file.segment.base_offset is None
        identities, again, gapless = set[_Identity](), 0, 0
        while entries + again < CHAIN_ENTRIES and position - start < CHAIN_BYTES:
            if position == stretch.end:
                return RunOfEntries(start, position, first, last, entries, identities=frozenset(identities))
            row = self._entry(position, stretch.end)
            if row is None or not row.is_intact:
                break
            low, high = first_of(row), row.last_known_offset
            identity = low, high, row.size, row.crc
            if entries and (high <= stretch.floor or identity in identities):
                # A block was written twice.
                position, again = position + row.size, again + 1
                continue
            far = last >= 0 and low - last > LARGEST_SPAN and (entries > 0 or not anywhere)
            if low <= last or high >= stretch.ceiling or far:
                break
            is_relative = entries > 0 or low < (position - stretch.start) // SMALLEST_MESSAGE
            leftover = leftover and row.layout == legacy.LAYOUT.number and row.magic == 1 and is_relative
            if leftover and row.base_offset == table.UNKNOWN:
                # The first wrapper after messages: if it does not continue their offsets, they are the rest of another wrapper whose
                # header is lost, and their offsets are relative to that wrapper's first.
                if entries and first_offset(self.file, row) != last + 1:
                    start, entries, identities, gapless = position, 0, set(), 0
                leftover = False
            gapless += gapless == entries and (not entries or low == last + 1)
            first, last = first if entries else low, high
            entries += 1
            identities.add(identity)
            position += row.size
        else:
            return RunOfEntries(start, position, first, last, entries, identities=frozenset(identities))
        if not entries:
            return None
        ends_well = self._leads_to(position, last, stretch.end) or self._tail(position)
        if not stretch.exact:
            # If nothing came before, and the header is not credible, any offset fits.
            sure = entries > 1 or stretch.claim.following in (first, self._lowest) or start < stretch.claimed_end < position
            near = stretch.claim.first is None or stretch.floor >= 0 or first - stretch.claim.last <= LARGEST_SPAN
            ends_well = ends_well or (near and self._cut_entry(position, last, sure))
        followed = self._plausible(position, last)
        return RunOfEntries(start, position, first, last, entries, gapless, ends_well, followed, frozenset(identities))

    def _leads_to(self, position: int, floor: int, end: int) -> bool:
        """Whether the lengths of valid headers lead exactly to ``end``; of the last header only offset and length need to be valid."""
        for _ in range(CHAIN_ENTRIES):
            if position == end:
                return True
            row = self._entry(position, end)
            if row is None:
                return False
            if not self._plausible(position, floor):
                return position + row.size == end and floor < first_of(row) <= floor + LARGEST_SPAN
            position += row.size
        return False

    def _cut_entry(self, position: int, last: int, sure: bool) -> bool:
        """Whether an incomplete entry begins here: the existing part of its header continues where the chain stopped.

        ``sure`` means that the chain is more than a single entry, which could lie anywhere.
        """
        left = self.file.size - position
        head = self._head(position)
        if left < v2.HEADER:
            return self._cut_header(bytes(head[:left]), last, sure)
        size = claimed_size(head, self.file.format)
        if layouts.has_own_frame(self.file.format):
            code, compact_size = layouts.own_frame(self.file.format, head, 0, len(head))
            size = compact_size if code == Code.TRUNCATED else size
        return size > left and bool(plausible(head.ctypes.data, position, position, position + size, last, self.file.format))

    def _cut_header(self, head: bytes, last: int, sure: bool) -> bool:
        """Whether bytes begin like the header of an entry that comes after the offset ``last``."""
        is_late = layouts.has_no_magics(self.file.format)
        if len(head) < (entry.PREFIX if is_late else 8):
            if is_late:
                # A checksum and a length are in front of the offset.
                return sure
            # Few bytes prove nothing: offsets begin with zeros, and values may end with zeros.
            shift = 64 - 8 * len(head)
            return sure and (last + 1) >> shift <= int.from_bytes(head, "big") <= (last + LARGEST_SPAN) >> shift
        if not last < layouts.offset_at(self.file.format, head, 0) <= last + LARGEST_SPAN:
            return False
        if len(head) < entry.PREFIX or layouts.has_own_frame(self.file.format):
            return True
        return claimed_size(head, self.file.format) > len(head) and layouts.layout_of(self.file.format, head[16]) != layouts.NO_LAYOUT

    def _head(self, position: int) -> Any:
        return self.file.read(position, min(position + HEADERS, self.file.size))

    def _plausible(self, position: int, floor: int) -> bool:
        if self.file.size - position < legacy.SMALLEST_ENTRY:
            return False
        head = self._head(position)
        return bool(plausible(head.ctypes.data, position, position, self.file.size, floor, self.file.format))

    def _tail(self, position: int) -> bool:
        """Whether only zeros follow up to the end: preallocated space."""
        return self.file.size - position > entry.PREFIX and not self.file.read(position, position + 1)[0] and self.file.zeros_from(position)

    def _entry(self, position: int, end: int) -> Entry | None:
        """The entry at ``position`` with its CRC checked; None if the bytes are not an entry."""
        if end - position <= entry.PREFIX:
            return None
        entries = Entries.zeros(1)
        count, size = self._walk_one(position, min(position + HEADERS, end), end, entries)
        if count == 0 and size:
            count, size = self._walk_one(position, min(position + size, end), end, entries)
        size = entries[0].size
        if count == 0 or self._budget < size:
            return None
        self._budget -= size
        source = self.file.read(position, position + size)
        check(source.ctypes.data, position, entries.array)
        return entries[0]

    def _walk_one(self, position: int, loaded: int, end: int, entries: Entries) -> tuple[int, int]:
        whole = layouts.has_own_frame(self.file.format) and loaded == end
        held = Loaded(self.file.read(position, loaded), position, loaded, end)
        count, _, code, size = walk_entries(held, position, position + 1, self.file.format, entries, whole=whole, decide=whole)
        return count, size if code == MORE else 0
