"""The rule by which copies of a partition become one log, slowly and plainly: DESIGN.md states it. Shares no code with Kolumn."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise, permutations
from pathlib import Path
from typing import NamedTuple

from kit import oracle

NEVER = 1 << 64
"""Above every offset and every leader epoch."""
Known = tuple[int, int, int]
"""First and last offset of a stretch, and the leader epoch that it has."""


class File(NamedTuple):
    """A segment, and the positions at which intact entries begin."""

    base: int
    path: Path
    intact: tuple[int, ...]


class Entry(NamedTuple):
    """An intact entry; ``file`` and ``position`` say where it lies, ``epoch`` is -1 in formats without leader epochs."""

    file: int
    position: int
    end: int
    base: int
    last: int
    epoch: int
    rows: list[oracle.Row]


class Gap(NamedTuple):
    """Damaged bytes between intact entries of a file, or between one and an end of the file.

    No offset in it is below ``lowest``, the segment's base offset if it is the first in the file; if it is the last, none is as high as
    ``limit``, the base offset of the next segment.
    """

    file: int
    position: int
    data: bytes
    lowest: int
    limit: int

    def headers(self) -> list[Known] | None:
        """What the headers in it say, if their lengths lead through all of it."""
        found, at = [], 0
        while len(self.data) - at >= 61:
            base, size, epoch, magic = struct.unpack_from(">qiib", self.data, at)
            if magic != 2 or size < 49:
                return None
            found.append((base, base + struct.unpack_from(">i", self.data, at + 23)[0], epoch))
            at += 12 + size
        return found if at == len(self.data) else None


def contents(files: list[File]) -> tuple[list[Entry], list[Gap]]:
    """Entries and gaps of a copy in order."""
    entries: list[Entry] = []
    gaps: list[Gap] = []
    files = sorted(files)
    for i, file in enumerate(files):
        data, limit = file.path.read_bytes(), files[i + 1].base if i + 1 < len(files) else NEVER
        own = [read_entry(i, data, at) for at in sorted(file.intact)]
        entries += own
        for start, end in zip([0, *(one.end for one in own)], [*(one.position for one in own), len(data)], strict=True):
            if start < end:
                gaps.append(Gap(i, start, data[start:end], -NEVER if start else file.base, NEVER if end < len(data) else limit))
    return entries, gaps


def read_entry(file: int, data: bytes, at: int) -> Entry:
    """The intact entry at a position of a file's data."""
    end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    read = oracle.read_entry(data[at:end], at)
    assert read.error is None, (file, at, read.error)
    if data[at + 16] == 2:
        epoch, delta = struct.unpack_from(">i", data, at + 12)[0], struct.unpack_from(">i", data, at + 23)[0]
        return Entry(file, at, end, read.base_offset, read.base_offset + delta, epoch, read.rows)
    return Entry(file, at, end, read.rows[0].offset, read.rows[-1].offset, -1, read.rows)


def topic_ids(files: list[File]) -> Iterator[str]:
    """The topic id beside the segments, if there is one."""
    for path in {file.path.parent / "partition.metadata" for file in files}:
        if path.exists():
            yield from (line[10:] for line in path.read_text().splitlines() if line.startswith("topic_id: "))


NO_COPIES = "not copies of one log"


class Stretch(NamedTuple):
    """Damaged bytes whose leader epochs nothing tells, and between which offsets they lie, both excluded."""

    after: int
    before: int
    size: int


@dataclass
class Strand:
    """Intact entries whose offsets and leader epochs never go back, headers of damaged ones, damage without; superseded from `stale` on."""

    copy: int
    entries: list[Entry]
    headers: list[Known] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    stale: int = NEVER

    def runs(self) -> list[Known]:
        """What its intact entries know of leader epochs: neighbours of the same epoch are one run, with what lies between them."""
        return _joined([(one.base, one.last, one.epoch) for one in self.entries if one.epoch >= 0])

    def rank(self) -> tuple[int, int]:
        """The newest leader epoch comes first, then the strand that ends later."""
        return -max(one.epoch for one in self.entries), -self.entries[-1].last

    def row(self, offset: int) -> oracle.Row | None:
        """Its record at an offset, unless that is superseded."""
        return next((row for one in self.entries for row in one.rows if row.offset == offset < self.stale), None)

    def look(self, gap: Gap, epochs: set[int]) -> None:
        """Note what the headers in damaged bytes tell, if they fit, or that nothing tells what was there."""
        before, after = [one for one in self.entries if one[:2] < gap[:2]], [one for one in self.entries if one[:2] > gap[:2]]
        known = [*((one.base, one.last, one.epoch) for one in before), *self.headers]
        floor = max([*(last for _, last, _ in known), gap.lowest - 1])
        ceiling = after[0].base if after else NEVER
        low, high = max((epoch for *_, epoch in known), default=-1), next((one.epoch for one in after if one.epoch >= 0), NEVER)
        headers = [(floor, floor, low), *(gap.headers() or ())]
        rising = all(one[1] < other[0] and one[2] <= other[2] for one, other in pairwise([*headers, (ceiling, ceiling, high)]))
        if len(headers) > 1 and rising and all(base <= last and epoch in epochs for base, last, epoch in headers[1:]):
            self.headers += headers[1:]
        elif after:
            self.stretches.append(Stretch(floor, min(ceiling, gap.limit), len(gap.data)))


@dataclass
class Merged:
    """The log: for each offset the rows that copies have there, which are the same. And what is intact and not in it, with its copy."""

    rows: dict[int, list[oracle.Row]]
    superseded: list[tuple[int, oracle.Row]]


def merged(copies: list[list[File]]) -> Merged | str:
    """Make one log of copies, or say that they are none."""
    if len({one for files in copies for one in topic_ids(files)}) > 1:
        return NO_COPIES
    strands = all_strands(copies)
    lineage = Lineage()
    for strand in sorted(strands, key=Strand.rank):
        strand.stale = lineage.stale(strand)
        lineage.add(strand)
    rows: dict[int, list[oracle.Row]] = {}
    for offset in sorted({row.offset for strand in strands for entry in strand.entries for row in entry.rows}):
        found: list[tuple[Strand, oracle.Row]] = []
        lost: list[oracle.Row] = []
        for strand in reversed(strands):
            if (row := strand.row(offset)) is not None:
                if any(other.copy == strand.copy and not same(row, there) for other, there in found):
                    strand.stale = offset
                    lost.append(row)
                else:
                    found.append((strand, row))
        # What a folder wrote anew is superseded in the other folders too.
        for strand, row in [one for one in found if any(same(one[1], row) for row in lost)]:
            strand.stale = offset
            found.remove((strand, row))
        if (lost and not found) or any(not same(row, other) for _, row in found for _, other in found):
            return NO_COPIES
        rows |= {offset: [row for _, row in found]} if found else {}
    every = ((strand.copy, row) for strand in strands for entry in strand.entries for row in entry.rows if row.offset >= strand.stale)
    return Merged(rows, [(copy, row) for copy, row in every if not any(same(row, other) for other in rows.get(row.offset, ()))])


def same(one: oracle.Row, other: oracle.Row) -> bool:
    """Whether two rows are the same record; format 0 has no timestamps."""
    return one[3:5] == other[3:5] and (one.timestampMs == other.timestampMs or 0 in (one.magic, other.magic))


def all_strands(copies: list[list[File]]) -> list[Strand]:
    """The strands of copies, with what lies damaged in each of them. A header counts if something intact has its leader epoch."""
    read = [contents(files) for files in copies]
    epochs = {one.epoch for entries, _ in read for one in entries} - {-1}
    found: list[Strand] = []
    for copy, (entries, gaps) in enumerate(read):
        strands = _cut(copy, entries)
        for gap in gaps:
            before, after = [one for one in entries if one[:2] < gap[:2]][-1:], [one for one in entries if one[:2] > gap[:2]][:1]
            beside = [one for one in before + after if one.file == gap.file] or before or after
            for strand in (one for one in strands if beside and beside[0] in one.entries):
                strand.look(gap, epochs)
        found += strands
    return found


def _cut(copy: int, entries: list[Entry]) -> list[Strand]:
    """Entries as strands. A file that overlaps others of its folder has strands of its own."""
    own = {i: [one for one in entries if one.file == i] for i in {one.file for one in entries}}
    spans = [(i, min(one.base for one in some), max(one.last for one in some)) for i, some in own.items()]
    apart = {i for (i, low, high), (_, begin, end) in permutations(spans, 2) if low <= end and begin <= high}
    strands: list[Strand] = []
    for one in entries:
        before = strands[-1].entries if strands else [one]
        is_alone = before[-1].file != one.file and not apart.isdisjoint((before[-1].file, one.file))
        if not strands or is_alone or one.base <= before[-1].last or 0 <= one.epoch < max(other.epoch for other in before):
            strands.append(Strand(copy, []))
        strands[-1].entries.append(one)
    return strands


class Lineage:
    """What is known of the log's leader epochs by offset, and the damaged stretches of what belongs to it."""

    def __init__(self) -> None:
        self.known: list[Known] = []
        self.stretches: list[Stretch] = []

    def add(self, strand: Strand) -> None:
        """Add what a strand knows below its stale offset; what was known before stays."""
        for low, high, epoch in _joined(sorted([*strand.runs(), *strand.headers])):
            parts = {(low, min(high, strand.stale - 1))}
            for begin, end, _ in self.known:
                parts = {cut for one, other in parts for cut in ((one, min(other, begin - 1)), (max(one, end + 1), other))}
            self.known = sorted([*self.known, *((a, b, epoch) for a, b in parts if a <= b and not self._contradicts(a, epoch))])
        self.known = _joined(self.known)
        if strand.entries[0].base < strand.stale:
            self.stretches += [one for one in strand.stretches if one.after < strand.stale]

    def stale(self, strand: Strand) -> int:
        """The first offset from which on a strand does not belong to the log."""
        runs = strand.runs()
        # Who has what a leader wrote later has what it wrote before: what is not known is of the next epoch above, if the strand's is.
        ends = [*(end for _, end, _ in self.known[:-1]), NEVER] if self.known else []
        reach = zip([-NEVER, *ends], ends, (epoch for *_, epoch in self.known), strict=False)
        agreed = [min(high, end) for begin, end, epoch in reach for low, high, own in runs if own == epoch and low <= end and begin < high]
        after = max(agreed, default=-NEVER)
        found = [self._doubtful(strand, after, one) for one in self.stretches]
        for low, high, own in runs:
            found.append(self._first(max(low, after + 1), high, lambda at, own=own: self._contradicts(at, own)))
        return min(found, default=NEVER)

    def _first(self, low: int, high: int, wrong: Callable[[int], bool]) -> int:
        """The first offset from ``low`` to ``high`` for which something holds that changes only where something else is known."""
        places = sorted({low, *(begin for begin, _, _ in self.known), *(end + 1 for _, end, _ in self.known)})
        return next((at for at in places if low <= at <= high and wrong(at)), NEVER)

    def _epochs(self, offset: int) -> tuple[int | None, int | None]:
        """The leader epochs known last up to an offset, and first from it on: the same if the offset's own is known."""
        below = [epoch for begin, _, epoch in self.known if begin <= offset]
        above = [epoch for _, end, epoch in self.known if end >= offset]
        return (below[-1] if below else None), (above[0] if above else None)

    def _contradicts(self, offset: int, own: int) -> bool:
        below, above = self._epochs(offset)
        return (below is not None and own < below) or (above is not None and own > above)

    def _doubtful(self, strand: Strand, agreed: int, place: Stretch) -> int:
        """The first offset of a strand in a damaged stretch of the log between two epochs, unless its entries are what lay there."""
        below, above = self._epochs(place.after)[0], self._epochs(place.before)[1]
        near = [one for one in strand.entries if one.last > place.after and one.base < place.before]
        over = [one for one in near if one.epoch >= 0]
        parts = [(max(one.base, agreed + 1, place.after + 1), min(one.last, place.before - 1)) for one in over]
        found = [self._first(*part, lambda at: not any(begin <= at <= end for begin, end, _ in self.known)) for part in parts]
        if below == above or (first := min(found, default=NEVER)) == NEVER:
            return NEVER
        is_inside = place.after < near[0].base and near[-1].last < place.before
        adjoin = all(one.file != other.file or one.end == other.position for one, other in pairwise(near))
        return NEVER if is_inside and adjoin and sum(one.end - one.position for one in near) == place.size else first


def _joined(known: list[Known]) -> list[Known]:
    found: list[Known] = []
    for low, high, epoch in known:
        if found and found[-1][2] == epoch:
            low, high = found[-1][0], max(found.pop()[1], high)
        found.append((low, high, epoch))
    return found
