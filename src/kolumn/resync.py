"""Finding the way back to the entries of a segment behind damage.

What is known of a damaged entry decides how far to trust it:

1. Its CRC does not cover its length. Where the running CRC of its bytes meets the stored one, only the length is damaged,
   and the entry ends there: nothing inside it is looked at.
2. While the lengths lead to an intact entry, or exactly to the end, the chain holds and the entry is skipped whole.
3. Else every later position is a candidate. One counts if its CRC is right, its offset lies above the last good one and
   above the range that the damaged entry claims, and what follows it fits: a record's value may itself hold the bytes of
   whole batches, but their offsets or the bytes behind them give them away.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kolumn.cpu_fallback.search import candidate, crc_match, plausible
from kolumn.cpu_fallback.walk import HEADERS, MORE, check, walk
from kolumn.errors import Code
from kolumn.formats import entry, kip98_draft, layouts, legacy, table, v2, v3_compact
from kolumn.segment_file import SegmentFile

WINDOW = 4 << 20
TRUE_END_BYTES = 16 << 20
"""How far the true end of an entry with a bad length is looked for."""
CHAIN_ENTRIES = 64
CHAIN_BYTES = 32 << 20
"""How much of the chain behind a candidate is looked at."""
LARGEST_SPAN = 1 << 31
"""Offsets in a segment: its indexes count from the base offset in 32 bits (``LogSegment.canConvertToRelativeOffset``)."""
CRC_BUDGET = 1 << 30
"""Bytes that may be checksummed in one search: bounds the time that hostile bytes can take."""


@dataclass
class Chain:
    """A run of intact entries.

    Attributes
    ----------
    start, stop : int
        Positions.
    first_offset, last_offset : int
    entries : int
    ends_well : bool
        It runs to the end of the file, or further than anyone looked.
    followed : bool
        What comes behind it looks like the header of the next entry.
    """

    start: int
    stop: int
    first_offset: int
    last_offset: int
    entries: int
    ends_well: bool = True
    followed: bool = True


def _shapes(head: np.ndarray, size: int, format: int) -> Iterator[tuple[int, int, int, bool]]:
    """What the entry at ``head`` may be, whatever its length says: smallest size, first byte under the CRC, the CRC's place and kind."""
    if format == layouts.V3_FORMAT:
        for at in range(9, 14):
            if size >= v2.HEADER and head[at + 4] == v3_compact.MAGIC:
                yield at + v3_compact.SMALLEST_LENGTH, at + 9, at + 5, True
    magic = int(head[16])
    layout = layouts.layout_of(format, magic)
    if layout == layouts.V2 and size >= v2.HEADER:
        yield v2.HEADER, v2.CRC_FROM, 17, True
    elif layout == layouts.KIP98:
        yield kip98_draft.HEADER, kip98_draft.CRC_FROM, 12, False
    elif layouts.holds_messages(layout):
        yield legacy.SMALLEST_ENTRY, legacy.CRC_FROM, 12, False


def _header(head: np.ndarray, row: np.ndarray, format: int) -> bool:
    """Fill a row from the header of a batch whose length may be wrong; False where it is none that says how many records it has."""
    if format == layouts.V3_FORMAT:
        for at in range(9, 14):
            if head[at + 4] == v3_compact.MAGIC:
                return v3_compact.fill(head, 0, at, HEADERS, row) == Code.OK
    return layouts.layout_of(format, int(head[16])) == layouts.V2 and v2.header(head, 0, v2.HEADER, row) == Code.OK


class Search:
    """Finds the next intact entry of one file.

    Parameters
    ----------
    file : SegmentFile
    """

    def __init__(self, file: SegmentFile) -> None:
        self.file = file
        self._budget = CRC_BUDGET

    def next_entry(self, position: int, floor: int, truncated: bool = False) -> int | None:
        """Position at which to go on behind the damage at ``position``; None where nothing intact follows.

        Parameters
        ----------
        position : int
            Of the entry that is damaged or whose length is.
        floor : int
            Last offset before it, -1 for none.
        truncated : bool
            The entry claims to end behind the file: that is normal for the last one, so a single candidate is not enough.
        """
        self._budget = CRC_BUDGET
        end = self.true_end(position, self.file.size, floor)
        if end is not None:
            return end
        found, landing = self._by_checksums(position, floor, truncated), self._landing(position)
        if found is None or landing is None:
            return landing if found is None else found
        return min(found, landing)

    def _landing(self, position: int) -> int | None:
        """First intact entry that lengths lead to, however little sense the headers on the way make."""
        for _ in range(CHAIN_ENTRIES):
            row = self._entry(position, self.file.size)
            if row is None:
                return None
            if row[table.CODE] == Code.OK:
                return position
            position += int(row[table.SIZE])
        return None

    def _by_checksums(self, position: int, floor: int, truncated: bool) -> int | None:
        """First position at which an intact entry begins that fits what is around it."""
        floor = max(floor, self._claimed_last(position, floor))
        best: Chain | None = None
        for chain in self._chains(position + 1, floor):
            if best is not None and chain.first_offset > best.last_offset:
                return best.start
            if best is None or chain.ends_well or chain.entries > best.entries:
                best = chain
            if best.ends_well:
                return best.start
        enough = 2 if truncated else 1
        return best.start if best is not None and best.followed and best.entries >= enough else None

    def true_end(self, position: int, limit: int, floor: int) -> int | None:
        """Where the entry at ``position`` ends by its CRC, before ``limit``; None where no end fits."""
        size = min(self.file.size - position, TRUE_END_BYTES)
        if size < entry.OVERHEAD + entry.SMALLEST:
            return None
        head = self.file.read(position, position + min(size, HEADERS))
        for smallest, crc_from, crc_at, castagnoli in _shapes(head, size, self.file.format):
            wanted = int.from_bytes(bytes(head[crc_at : crc_at + 4]), "big")
            end = self._crc_meets(position, crc_from, wanted, castagnoli, smallest, min(position + size, limit), floor)
            if end is not None:
                return end
        return None

    def _crc_meets(self, position: int, crc_from: int, wanted: int, castagnoli: bool, smallest: int, stop: int, floor: int) -> int | None:
        """Where the running CRC of an entry of at least ``smallest`` bytes is the one that it stores, and something sensible follows."""
        at, register = position + crc_from, 0xFFFFFFFF
        while at < stop:
            loaded = min(at + WINDOW, stop)
            source, origin = self.file.read(at, loaded), at
            while at < loaded:
                found, register = crc_match(source.ctypes.data, origin, at, loaded, register, wanted, castagnoli)
                at = loaded if found < 0 else found
                if found >= position + smallest and self._goes_on(found, floor):
                    return int(found)
        return None

    def chain_holds(self, position: int, size: int, floor: int) -> bool:
        """Whether lengths lead from the entry of ``size`` bytes at ``position`` to an intact entry or exactly to the end."""
        position += size
        for _ in range(CHAIN_ENTRIES):
            if position == self.file.size:
                return True
            row = self._entry(position, self.file.size)
            if row is not None and row[table.CODE] == Code.OK:
                return True
            if row is None or not self._plausible(position, floor):
                return self._tail(position)
            position += int(row[table.SIZE])
        return False

    def _goes_on(self, position: int, floor: int) -> bool:
        if position == self.file.size or self._tail(position):
            return True
        return self._plausible(position, floor)

    def _plausible(self, position: int, floor: int) -> bool:
        left = self.file.size - position
        if left < legacy.SMALLEST_ENTRY:
            return False
        head = self.file.read(position, min(position + HEADERS, self.file.size))
        return bool(plausible(head.ctypes.data, position, position, self.file.size, floor, self.file.format))

    def _tail(self, position: int) -> bool:
        """Zeros to the end: preallocation."""
        return self.file.size - position > entry.PREFIX and not self.file.read(position, position + 1)[0] and self.file.zeros_from(position)

    def _claimed_last(self, position: int, floor: int) -> int:
        """Last offset that the damaged entry's own header claims, where that header can be believed."""
        if self.file.size - position < v2.HEADER:
            return floor
        head = self.file.read(position, min(position + HEADERS, self.file.size))
        row = np.zeros(table.WIDTH, np.int64)
        if not _header(head, row, self.file.format):
            return floor
        base, last, count = (int(row[i]) for i in (table.BASE_OFFSET, table.LAST_OFFSET, table.COUNT))
        # The next offset in the log, and one record for each offset: damage does not look like that.
        believed = base == floor + 1 and count == last - base + 1 > 0
        return last if believed else floor

    def _entry(self, position: int, end: int) -> np.ndarray | None:
        """Row of the entry at ``position`` with its CRC checked; None where it is not framed."""
        if end - position <= entry.PREFIX:
            return None
        rows = np.zeros((1, table.WIDTH), np.int64)
        loaded = min(position + HEADERS, end)
        count, size = self._walk_one(position, loaded, end, rows)
        if count == 0 and size:
            count, size = self._walk_one(position, min(position + size, end), end, rows)
        if count == 0 or self._budget < rows[0, table.SIZE]:
            return None
        size = int(rows[0, table.SIZE])
        self._budget -= size
        source = self.file.read(position, position + size)
        check(source.ctypes.data, position, rows)
        return rows[0]

    def _walk_one(self, position: int, loaded: int, end: int, rows: np.ndarray) -> tuple[int, int]:
        head = self.file.read(position, loaded)
        whole = self.file.format == layouts.V3_FORMAT and loaded == end
        count, _, code, size = walk(head.ctypes.data, position, loaded, position + 1, end, position, self.file.format, whole, whole, rows)
        return int(count), int(size) if code == MORE else 0

    def _chains(self, start: int, floor: int) -> Iterator[Chain]:
        """Runs of intact entries from ``start`` on, none inside another."""
        at = start
        while at < self.file.size - entry.PREFIX and self._budget > 0:
            loaded = min(at + WINDOW, self.file.size)
            source = self.file.read(at, loaded)
            # A header that the window cuts is seen whole in the next one.
            stop = loaded if loaded == self.file.size else loaded - HEADERS
            origin, chain = at, None
            while at < stop and chain is None:
                at, self._budget = candidate(
                    source.ctypes.data, origin, at, stop, loaded, self.file.size, floor, self.file.format, self._budget
                )
                if at < stop:
                    chain = self._chain(at, floor)
                    at += 1
            if chain is not None:
                yield chain
                at = chain.stop

    def _chain(self, position: int, floor: int) -> Chain | None:
        start, first, last, entries = position, 0, floor, 0
        while entries < CHAIN_ENTRIES and position - start < CHAIN_BYTES:
            if position == self.file.size:
                return Chain(start, position, first, last, entries)
            row = self._entry(position, self.file.size)
            if row is None or row[table.CODE] != Code.OK:
                break
            low = int(row[table.LAST_OFFSET] if row[table.BASE_OFFSET] == table.UNKNOWN else row[table.BASE_OFFSET])
            if low <= last or (last >= 0 and low - last > LARGEST_SPAN):
                break
            first, last = first if entries else low, table.last_offset(row.reshape(1, -1), low)
            entries += 1
            position += int(row[table.SIZE])
        else:
            return Chain(start, position, first, last, entries)
        if not entries:
            return None
        ends_well = self._tail(position) or self._cut_entry(position, last)
        return Chain(start, position, first, last, entries, ends_well, self._plausible(position, last))

    def _cut_entry(self, position: int, last: int) -> bool:
        """Whether an entry that was cut short begins here: its header is whole and goes on where the chain stopped."""
        left = self.file.size - position
        if left < v2.HEADER:
            return False
        head = self.file.read(position, min(position + HEADERS, self.file.size))
        size = int.from_bytes(bytes(head[8:12]), "big", signed=True) + entry.OVERHEAD
        if self.file.format == layouts.V3_FORMAT:
            code, compact_size = v3_compact.entry(head, 0, len(head))
            size = compact_size if code == Code.TRUNCATED else size
        return size > left and bool(plausible(head.ctypes.data, position, position, position + size, last, self.file.format))
