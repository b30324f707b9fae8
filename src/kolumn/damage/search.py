"""Where the chain of entries of a chunk continues after damage, and the search for the next intact entry of a segment.

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

from enum import Enum
from typing import NamedTuple

import numpy as np

from kolumn.core.errors import Code
from kolumn.cpu_fallback.check import HEADERS, crc_match
from kolumn.cpu_fallback.machine.checksum import crc32c
from kolumn.damage.findings import Damage, Trouble, damage_of, header_error
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
    claimed_size,
    first_of,
    shapes,
)
from kolumn.decode.host.chunks import Chunk
from kolumn.decode.host.headers import first_offset
from kolumn.formats import entry, layouts, table
from kolumn.formats.entries import Entries, Entry
from kolumn.formats.layout import Outline
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile

TRUE_END_BYTES = 16 << 20  # bytes in which the true end of an entry with a bad length is searched
GAP_CRCS = 16  # how many times the bytes of a skipped entry may be checksummed while entries are searched inside it
OVERLAP = 7
"""How many bytes two intact entries may share: the last bytes of one may be missing, and equal the zeros at the beginning of the next
one's offset."""
GAPLESS = 2
"""How many entries whose offsets follow one another are believed although damage follows them, if the damage before them has at least a
byte for each missing offset."""
WIDEST_LENGTH = 5  # bytes of a length of format 3
COPIES = 8  # how many places that begin like a damaged entry are examined


class Floor(Enum):
    """Placeholder for the last offset before a chunk."""

    NOT_YET_KNOWN = "chunks before it are being decoded"


class Chain(NamedTuple):
    """How far the chain of entries holds in a chunk."""

    entries: Entries  # those up to the place where the chain is lost, including damaged ones
    damage: list[Damage]
    trouble: Trouble | None = None  # where the chain is lost
    undecided: bool = False
    """There is damage before the first intact entry. It cannot be judged until the offsets before the chunk are known."""


def chain_of(file: SegmentFile, chunk: Chunk, options: Options, floor: int | Floor) -> Chain:
    """Follow the chain of entries in a chunk whose checksums were compared.

    Of the options only ``errors`` is used; ``floor`` is the last offset of the last intact entry before the chunk, -1 without one.
    """
    entries, damage = chunk.entries, list[Damage]()
    intact = np.flatnonzero(entries.is_intact)
    for i in np.flatnonzero(entries.code):
        row = entries[i]
        before = entries[intact[: np.searchsorted(intact, i)][-1:]]
        if not len(before) and floor is Floor.NOT_YET_KNOWN and options.errors == "skip":
            return Chain(entries[:0], damage, undecided=True)
        low = before.last_known_offset(-1 if floor is Floor.NOT_YET_KNOWN else floor)
        position, size = row.position, row.size
        source, origin = chunk.bytes_of(file, row)
        held = source[position - origin :][:size]
        error = header_error(file.path, row, held)
        resume, alone = None, True
        if options.errors == "skip":
            if row.code == Code.HEADER_CRC and crc32c(held, row.crc_from, row.crc_seed) == row.crc:
                # The checksum of its records says that it ends there.
                damage.append(damage_of(row, error, size, low))
                continue
            search = Search(file)
            resume = search.true_end(position, position + size - 1, low)
            following = entries[i + 1] if i + 1 < len(entries) and entries.code[i + 1] == Code.OK else None
            if resume is None and (on := search.after(row, low, following)) is not None:
                resume, alone = on
                if resume == position + size:
                    damage.append(damage_of(row, error, size, low))
                    continue
        return Chain(entries[:i], damage, Trouble(position, low, error, resume, row, alone=alone))
    return Chain(entries, damage)


class Search(Runs):
    """Finds the next intact entry of one file."""

    def next_entry(self, position: int, floor: int, truncated: bool = False) -> int | None:
        """Position at which to continue after the damaged entry, or damaged length, at ``position``; None if no intact entry follows.

        ``floor`` is the last offset before it, -1 for none. With ``truncated`` the entry claims to end after the end of the file. That is
        normal for the last entry, so one candidate is not enough.
        """
        self._budget = CRC_BUDGET
        end = self.true_end(position, self.file.size, floor)
        if end is not None:
            return end
        # An intact entry may begin in the last bytes of the one before: the missing bytes equal the bytes that follow.
        start = max(position - OVERLAP, 0)
        overlapping = self._best(Stretch(start, position, self.file.size, floor)) if start < position else None
        if overlapping is not None:
            return overlapping.start
        following, landing = self._by_checksums(position, floor, truncated), self._landing(position)
        # Lengths may lead through the messages of a damaged wrapper: their offsets are relative to it, and hardly above the floor.
        if landing is not None and (following is None or (landing[0] < following and landing[1] > floor)):
            following = landing[0]
        again = self._again(position, self.file.size if following is None else following, floor)
        return following if again is None else again

    def after(self, row: Entry, floor: int, following: Entry | None = None) -> tuple[int, bool] | None:
        """Where to continue after a damaged entry, if its length leads to a credible place: at its end, or at an intact entry inside it.

        ``floor`` is the last offset before it, -1 for none; ``following`` is the entry at its end, if that is known to be intact. The flag
        says whether, judging by the offsets, no other entry was lost.
        """
        end = int(row.position + row.size)
        link = (end, following, first_of(following)) if following is not None else self._link(end, floor)
        if link is None:
            return None
        stop, intact, ceiling = link
        if intact is not None and self._is_inner(intact, row):
            return None
        claim, start = self._claim(row, floor, ceiling), row.position + 1
        first = claim.last if claim.first is None or claim.exact else claim.first
        # The usual case ends here: a damaged batch that claims all offsets between its neighbours.
        if ceiling - claim.last <= 1 and (claim.exact or first == claim.last):
            return end, True
        stretch = Stretch(start, end, stop, claim.last, ceiling, exact=True, strict=ceiling == OPEN)
        chains = [self._inside(stretch, intact)]
        if first < claim.last:
            # Its last offset may be the damaged field.
            chains.append(self._inside(stretch._replace(floor=first, strict=True), intact))
        chain = min((chain for chain in chains if chain is not None), key=lambda chain: chain.start, default=None)
        if chain is None:
            again = self._again(start - 1, stop, floor) if stop > end else None
            return (end, True) if again is None else (again, False)
        return chain.start, claim.last > floor and chain.first_offset == claim.last + 1

    def _is_inner(self, message: Entry, damaged: Entry) -> bool:
        """Whether a message at the end of the damaged entry, by its length, is inside an intact wrapper that begins before that end."""
        end = message.position
        if end != damaged.position + damaged.size or message.layout not in layouts.MESSAGES or message.codec:
            return False
        self._budget = CRC_BUDGET
        runs = self._chains(Stretch(damaged.position + 1, end, self.file.size, -1))
        return any(run.stop > end and not self._leads_to(run.start, -1, end) for run in runs)

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
        size, head = self.file.size, self._head(position)
        claim = claim_of_bytes(head, size - position, self.file.format, floor)
        # Where the entry ends according to its length, if the length field has 32 bits.
        end = position + claimed_size(head, self.file.format)
        best = self._best(Stretch(position + 1, size, size, claim.last if claim.exact else floor, claim=claim, sure=floor, claimed_end=end))
        if best is None:
            return None
        crosses = best.first_offset == claim.following and best.start < end < best.stop
        # Whole batches inside of a value rarely have offsets that continue the log's.
        missing = best.first_offset - max(floor, self._lowest - 1) - 1
        goes_on = claim.first is None and best.gapless >= GAPLESS and missing <= best.start - position
        fits = best.ends_well or (claim.exact and crosses) or (best.followed and best.entries >= (2 if truncated else 1)) or goes_on
        return best.start if fits else None

    def _again(self, position: int, stop: int, floor: int) -> int | None:
        """Position of an intact copy of the damaged entry at ``position``, before ``stop``: a block may have been written twice."""
        stop = min(stop, position + TRUE_END_BYTES)
        head = self._head(position)
        marks = [shape.mark for shape in shapes(head, len(head), self.file.format)]
        for begins in {bytes(head[:mark]) for mark in (*marks, 12)}:
            start, tries = position + 1, 0
            while start < stop and tries < COPIES:
                loaded = min(start + WINDOW, self.file.size)
                distance = bytes(self.file.read(start, loaded)[: loaded - start]).find(begins)
                if distance < 0:
                    start = loaded if loaded == self.file.size else loaded - HEADERS
                    continue
                copy = start + distance
                row = self._entry(copy, self.file.size)
                if copy < stop and row is not None and row.is_intact and first_of(row) > floor:
                    return copy
                start, tries = copy + 1, tries + 1
        return None

    def true_end(self, position: int, limit: int, floor: int) -> int | None:
        """Where the entry at ``position`` ends according to its CRC, before ``limit``; None if no end fits."""
        size = min(self.file.size - position, TRUE_END_BYTES)
        if size < entry.OVERHEAD + entry.SMALLEST:
            return None
        head = self.file.read(position, position + min(size, HEADERS))
        for shape in shapes(head, size, self.file.format):
            end = self._crc_meets(position, shape, min(position + size, limit), floor)
            if end is not None and not self._begins_later(position, end):
                return end
        return None

    def _begins_later(self, position: int, end: int) -> bool:
        """Whether it is an intact entry a few bytes later that ends at ``end``: a length of format 3 has one to five bytes, so the same
        checksum can be read after bytes that are left of a damaged entry."""
        if not layouts.has_own_frame(self.file.format):
            return False
        later = (self._entry(position + shift, end) for shift in range(1, WIDEST_LENGTH))
        return any(row is not None and row.is_intact and row.position + row.size == end for row in later)

    def _crc_meets(self, position: int, shape: Outline, stop: int, floor: int) -> int | None:
        """Where the running CRC of an entry equals its stored CRC, and valid bytes follow."""
        start, register = position + shape.crc_from, int(shape.register)
        while start < stop:
            loaded = min(start + WINDOW, stop)
            source, origin = self.file.read(start, loaded), start
            while start < loaded:
                end, register = crc_match(source.ctypes.data, origin, start, loaded, register, shape.wanted, shape.castagnoli)
                start = loaded if end < 0 else end
                if end >= position + shape.smallest and (end == self.file.size or self._tail(end) or self._plausible(end, floor)):
                    return int(end)
        return None

    def _link(self, position: int, floor: int) -> tuple[int, Entry | None, int] | None:
        """Where lengths lead from ``position`` on: an intact entry, the end of the file, or zeros up to it.

        Returns the position, the intact entry if there is one, and the first offset of that entry or of a damaged one on the way.
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
