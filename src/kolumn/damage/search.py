"""Finding the next intact entry of a segment after damage.

How far a damaged entry's header is trusted depends on what is known about it:

1. Its CRC does not cover its length. If the running CRC of its bytes equals the stored one, only the length is damaged,
   and the entry ends there: nothing inside it is searched.
2. As long as the lengths lead to an intact entry, or exactly to the end, the chain holds. The entry is skipped whole, unless the
   offsets before and after it leave a gap that intact entries inside it fit: with missing bytes or a wrong length, a length can lead
   to where another entry ends. If the end of the file follows the gap, those entries have to lead to that end too.
3. Otherwise every later position is a candidate. A candidate is accepted if its CRC is right, its offset is above the last intact one
   and above the range that the damaged entry claims, and the bytes after it fit. A record's value may contain the bytes of
   whole batches; their offsets or the bytes after them reveal that. After a header that is not credible, entries whose offsets continue
   the log's and one another need no fitting bytes after them: damage may follow.
"""

from typing import NamedTuple

from kolumn.core.errors import Code
from kolumn.cpu_fallback.check.search import crc_match
from kolumn.cpu_fallback.check.walk import HEADERS
from kolumn.damage.intact import (
    CHAIN_ENTRIES,
    CRC_BUDGET,
    LARGEST_SPAN,
    OPEN,
    WINDOW,
    Claim,
    RunOfEntries,
    Runs,
    Stretch,
    claim_of_bytes,
    claim_of_row,
    claim_without_magic,
    first_of,
    shapes,
)
from kolumn.formats import entry, table
from kolumn.formats.entries import Entry
from kolumn.log.headers import first_offset

TRUE_END_BYTES = 16 << 20
"""Bytes in which the true end of an entry with a bad length is searched."""
GAP_CRCS = 16
"""How many times the bytes of a skipped entry may be checksummed while entries are searched inside it."""
OVERLAP = 7
"""How many bytes two intact entries may share: the last bytes of one may be missing, and equal the zeros at the beginning of the next
one's offset."""
GAPLESS = 2
"""How many entries whose offsets follow one another are believed although damage follows them, if the damage before them has at least a
byte for each missing offset."""
COPIES = 8
"""How many places that begin like a damaged entry are examined."""


class Resume(NamedTuple):
    """Where to continue after a damaged entry; ``alone`` means that, judging by the offsets, no other entry was lost."""

    position: int
    alone: bool


class Search(Runs):
    """Finds the next intact entry of one file."""

    def next_entry(self, position: int, floor: int, truncated: bool = False) -> int | None:
        """Position at which to continue after the damage at ``position``; None if no intact entry follows.

        Parameters
        ----------
        position : int
            Position of the entry that is damaged or whose length is damaged.
        floor : int
            Last offset before it, -1 for none.
        truncated : bool
            The entry claims to end after the end of the file. That is normal for the last entry, so one candidate is not enough.
        """
        self._budget = CRC_BUDGET
        end = self.true_end(position, self.file.size, floor)
        if end is not None:
            return end
        overlapping = self._overlapping(position, floor)
        if overlapping is not None:
            return overlapping
        found, landing = self._by_checksums(position, floor, truncated), self._landing(position)
        # Lengths may lead through the messages of a damaged wrapper: their offsets are relative to it, and hardly above the floor.
        if landing is not None and (found is None or (landing[0] < found and landing[1] > floor)):
            found = landing[0]
        again = self._again(position, self.file.size if found is None else found, floor)
        return found if again is None else again

    def after(self, row: Entry, floor: int, following: Entry | None = None) -> Resume | None:
        """Where to continue after a damaged entry, if its length leads to a credible place: at its end, or at an intact entry inside it.

        Parameters
        ----------
        row : int64 array
            Of the damaged entry.
        floor : int
            Last offset before it, -1 for none.
        following : int64 array, optional
            Row of the entry at its end, if that is known to be intact.
        """
        end = int(row.position + row.size)
        link = (end, following, first_of(following)) if following is not None else self._link(end, floor)
        if link is None:
            return None
        stop, intact, ceiling = link
        claim, start = self._claim(row, floor, ceiling), row.position + 1
        first = claim.last if claim.first is None or claim.exact else claim.first
        # The usual case ends here: a damaged batch that claims all offsets between its neighbours.
        if ceiling - claim.last <= 1 and (claim.exact or first == claim.last):
            return Resume(end, True)
        stretch = Stretch(start, end, stop, claim.last, ceiling, exact=True, strict=ceiling == OPEN)
        chains = [self._inside(stretch, intact)]
        if first < claim.last:
            # Its last offset may be the damaged field.
            chains.append(self._inside(stretch._replace(floor=first, strict=True), intact))
        chain = min((one for one in chains if one is not None), key=lambda one: one.start, default=None)
        if chain is None:
            again = self._again(start - 1, stop, floor) if stop > end else None
            return Resume(end, True) if again is None else Resume(again, False)
        return Resume(chain.start, claim.last > floor and chain.first_offset == claim.last + 1)

    def _claim(self, row: Entry, floor: int, ceiling: int) -> Claim:
        if row.code != Code.BAD_MAGIC:
            return claim_of_row(row, floor, ceiling)
        position = row.position
        return claim_without_magic(self._head(position), self.file.size - position, self.file.format, floor, ceiling)

    def _inside(self, stretch: Stretch, intact: Entry | None) -> RunOfEntries | None:
        """Entries in a stretch that fit the gap of offsets before the ``intact`` one."""
        if intact is not None:
            stretch = stretch._replace(floor=max(stretch.floor, first_of(intact) - LARGEST_SPAN))
        self._budget = min(CRC_BUDGET, GAP_CRCS * (stretch.end - stretch.start))
        best = self._best(stretch)
        if best is None or intact is None or intact.base_offset != table.UNKNOWN or stretch.ceiling < first_of(intact):
            return best
        # A wrapper's header contains only its last offset.
        first = first_offset(self.file, intact)
        return best if best.last_offset < first else self._best(stretch._replace(ceiling=first))

    def _landing(self, position: int) -> tuple[int, int] | None:
        """Position and first offset of the first intact entry that lengths lead to; headers on the way may be invalid."""
        for _ in range(CHAIN_ENTRIES):
            row = self._entry(position, self.file.size)
            if row is None:
                return None
            if row.is_intact:
                return position, first_of(row)
            position += row.size
        return None

    def _by_checksums(self, position: int, floor: int, truncated: bool) -> int | None:
        """First position of an intact entry that fits the entries around it."""
        size = self.file.size
        claim = claim_of_bytes(self._head(position), size - position, self.file.format, floor)
        end = self._claimed_end(position)
        best = self._best(Stretch(position + 1, size, size, claim.last if claim.exact else floor, claim=claim, sure=floor, claimed_end=end))
        if best is None:
            return None
        crosses = best.first_offset == claim.following and best.start < end < best.stop
        # Whole batches inside of a value rarely have offsets that continue the log's.
        missing = best.first_offset - max(floor, self._lowest - 1) - 1
        goes_on = claim.first is None and best.gapless >= GAPLESS and missing <= best.start - position
        fits = best.ends_well or (claim.exact and crosses) or (best.followed and best.entries >= (2 if truncated else 1)) or goes_on
        return best.start if fits else None

    def _claimed_end(self, position: int) -> int:
        """Where the entry ends according to its length, if the length field has 32 bits."""
        return position + entry.OVERHEAD + int.from_bytes(bytes(self._head(position)[8:12]), "big", signed=True)

    def _overlapping(self, position: int, floor: int) -> int | None:
        """An intact entry that begins in the last bytes of the one before ``position``: the missing bytes equal the bytes that follow."""
        size, start = self.file.size, max(position - OVERLAP, 0)
        best = self._best(Stretch(start, position, size, floor)) if start < position else None
        return None if best is None else best.start

    def _again(self, position: int, stop: int, floor: int) -> int | None:
        """Position of an intact copy of the damaged entry at ``position``, before ``stop``: a block may have been written twice."""
        stop = min(stop, position + TRUE_END_BYTES)
        head = self._head(position)
        # Offset and length; in format 3 the length has another size, and precedes leader epoch and magic.
        ends = [crc_at - 5 if castagnoli and crc_at != 17 else 12 for _, _, crc_at, castagnoli in shapes(head, len(head), self.file.format)]
        for begins in {bytes(head[:end]) for end in (*ends, 12)}:
            at, tries = position + 1, 0
            while at < stop and tries < COPIES:
                loaded = min(at + WINDOW, self.file.size)
                found = bytes(self.file.read(at, loaded)[: loaded - at]).find(begins)
                if found < 0:
                    at = loaded if loaded == self.file.size else loaded - HEADERS
                    continue
                row = self._entry(at + found, self.file.size)
                if at + found < stop and row is not None and row.is_intact and first_of(row) > floor:
                    return at + found
                at, tries = at + found + 1, tries + 1
        return None

    def true_end(self, position: int, limit: int, floor: int) -> int | None:
        """Where the entry at ``position`` ends according to its CRC, before ``limit``; None if no end fits."""
        size = min(self.file.size - position, TRUE_END_BYTES)
        if size < entry.OVERHEAD + entry.SMALLEST:
            return None
        head = self.file.read(position, position + min(size, HEADERS))
        for smallest, crc_from, crc_at, castagnoli in shapes(head, size, self.file.format):
            wanted = int.from_bytes(bytes(head[crc_at : crc_at + 4]), "big")
            end = self._crc_meets(position, crc_from, wanted, castagnoli, smallest, min(position + size, limit), floor)
            if end is not None:
                return end
        return None

    def _crc_meets(self, position: int, crc_from: int, wanted: int, castagnoli: bool, smallest: int, stop: int, floor: int) -> int | None:
        """Where the running CRC of an entry of at least ``smallest`` bytes equals its stored CRC, and valid bytes follow."""
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

    def _link(self, position: int, floor: int) -> tuple[int, Entry | None, int] | None:
        """Where lengths lead from ``position`` on: an intact entry, the end of the file, or zeros up to it.

        Returns
        -------
        position : int
        row : Entry, optional
            The intact entry.
        ceiling : int
            First offset of that entry, or of a damaged entry on the way.
        """
        ceiling = OPEN
        for _ in range(CHAIN_ENTRIES):
            if position == self.file.size:
                return position, None, ceiling
            row = self._entry(position, self.file.size)
            if row is not None and row.is_intact:
                return position, row, min(ceiling, first_of(row))
            if row is None or not self._plausible(position, floor):
                return (position, None, ceiling) if self._tail(position) else None
            ceiling = min(ceiling, first_of(row))
            position += row.size
        return None

    def _goes_on(self, position: int, floor: int) -> bool:
        if position == self.file.size or self._tail(position):
            return True
        return self._plausible(position, floor)
