"""What is intact in one segment, and which offsets are in doubt because of damage.

A segment is one *strand* of entries, whose offsets and leader epochs never go back. Only where they do, because files of two brokers
were mixed or a batch was written twice, a segment is several.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np

from kolumn.copies.elections import Strand, placed, strands
from kolumn.core.arrays import Flags, Int64s, Row, Rows
from kolumn.core.errors import Code, CorruptBatchError
from kolumn.damage.intact import LARGEST_SPAN
from kolumn.damage.segment_end import absent_after
from kolumn.decode.host.run import runs
from kolumn.formats import layouts, table
from kolumn.formats.entries import Entries
from kolumn.log.pieces import entry_rows
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import HIGHEST, Segment

POSITION, SIZE, BASE, LAST, COUNT, CRC, EPOCH, WRAPS, MESSAGE, WIDTH = range(10)
"""Columns of `Examined.entries`; WRAPS is 1 for wrappers around messages, MESSAGE for messages of formats 0 and 1 that wrap none."""
_KEPT = (table.POSITION, table.SIZE, table.BASE_OFFSET, table.LAST_OFFSET, table.COUNT, table.CRC, table.LEADER_EPOCH)
_APART = 16 << 20  # entries that are further apart are not loaded together


@dataclass(frozen=True)
class LostStretch:
    """Bytes [start, end) of a segment in which nothing was intact; ``low`` and ``high`` are the offsets that may be lost there, derived
    from the intact entries around it and from damaged headers."""

    start: int
    end: int
    low: int
    high: int | None  # None at the end of a partition's last segment, where it is not known
    floor: int  # last intact offset before it
    claim: int | None = None  # if ``high`` is None: the last offset in a damaged header, if only that entry is in the stretch
    fault: CorruptBatchError | None = None  # what reading the bytes would not find: a right checksum and a damaged offset

    @property
    def highest(self) -> int:
        return HIGHEST if self.high is None else self.high


_start, _low, _highest = attrgetter("start"), attrgetter("low"), attrgetter("highest")


@dataclass
class Examined:
    """A segment of one of the copies, or one strand of it."""

    segment: Segment
    folder: str
    entries: Int64s  # intact ones, of shape (n, `WIDTH`), in the order of their offsets, which do not overlap; a damaged epoch is -1
    stretches: list[LostStretch]  # in the order of the file
    start: int  # first offset that it could have
    limit: int | None = None  # highest offset that it can have
    headers: list[tuple[int, int, int]] = field(default_factory=list)  # as in `Strand`
    doubts: list[tuple[int, int, int]] = field(default_factory=list)
    done: int = 0  # entries that a merge has processed
    beyond: int = 0  # stretches that it has processed
    strand: Strand | None = None  # one of the log's strands: how far it belongs to the log

    @property
    def alone(self) -> Segment:
        """The segment without its neighbours: another copy may have the entries that are missing after it in its directory."""
        return replace(self.segment, following=None, preceding=None, orphans=())

    @property
    def stale(self) -> int:
        """The offset from which on it is not part of the log."""
        return HIGHEST if self.strand is None else self.strand.stale

    @property
    def last(self) -> int:
        return int(self.entries[-1, LAST]) if len(self.entries) else self.start - 1

    def floor(self, i: int) -> int:
        return int(self.entries[i - 1, LAST]) if i else self.start - 1

    def without(self, row: int, fault: CorruptBatchError | None) -> None:
        """Discard an entry: a stretch takes its place."""
        gone = self.entries[row]
        high = int(self.entries[row + 1, BASE]) - 1 if row + 1 < len(self.entries) else self.limit
        start = int(gone[POSITION])
        stretch = LostStretch(start, start + int(gone[SIZE]), self.floor(row) + 1, high, self.floor(row), fault=fault)
        self.entries = np.delete(self.entries, row, axis=0)
        i = bisect_left(self.stretches, start, key=_start)
        self.stretches.insert(i, stretch)
        self.beyond = min(self.beyond, i)

    def is_inside(self, row: int, other: "Examined", other_row: int) -> bool:
        """Whether an entry lies inside a damaged one that another copy has intact. Then it is a message of a wrapper, or only looks like an
        entry. The damaged stretch before it has to begin with that very entry: in both copies it follows the same offset. Where headers of
        damaged entries fill the stretch, it ends there. The intact entry has to contain the same bytes: otherwise something else was
        damaged here."""
        position = int(self.entries[row, POSITION])
        before = bisect_right(self.stretches, position, key=_start) - 1
        if before < 0:
            return False
        stretch = self.stretches[before]
        follows = other.floor(other_row) <= stretch.floor < int(other.entries[other_row, BASE])
        is_told = any(stretch.low <= low <= stretch.highest for low, _, _ in self.headers)
        is_covered = follows and not is_told and stretch.start + int(other.entries[other_row, SIZE]) > position
        return is_covered and self._bytes(row) in other._bytes(other_row)

    def _bytes(self, row: int) -> bytes:
        begin, end = int(self.entries[row, POSITION]), int(self.entries[row, POSITION] + self.entries[row, SIZE])
        with SegmentFile(self.segment) as file:
            return bytes(file.read(begin, end))

    def sound(self, low: int, high: int) -> list[tuple[int, int]]:
        """Parts of [low, high] that are undamaged in this segment; offsets without records count as undamaged."""
        low, high = max(low, self.start), min(high, self.last)
        parts = [(low, high)] if low <= high else []
        first = bisect_left(self.stretches, low, key=_highest)
        for stretch in self.stretches[first : bisect_right(self.stretches, high, key=_low)]:
            parts = subtract(parts, stretch.low, stretch.highest)
        return parts


def subtract(parts: list[tuple[int, int]], low: int, high: int) -> list[tuple[int, int]]:
    """Ranges of offsets (ends included) without [low, high]."""
    if low > high:
        return parts
    rest = [piece for first, last in parts for piece in ((first, min(last, low - 1)), (max(first, high + 1), last))]
    return [(first, last) for first, last in rest if first <= last]


def examine(segment: Segment, folder: str, limit: int | None, options: Options) -> list[Examined]:
    """Compare every checksum of a segment and find its intact entries and damaged stretches: its strands in file order, nearly always one.
    ``folder`` is the directory of its copy. ``limit`` is the highest offset that the segment can have, since the next one of its directory
    begins after it; None for the last one."""
    walk = replace(options, errors="skip", check_crcs=True, columns=("offset",), include_control=True)
    with SegmentFile(segment) as file:
        tables = [_known(file, rows, walk) for rows in entry_rows(file, walk)] or [(np.empty((0, WIDTH), np.int64), np.empty(0, np.bool_))]
        examined = _strands(segment, folder, limit, tables)
        last = examined[-1]
        if not last.stretches or last.stretches[-1].end < segment.size:
            last.stretches += _absent(file, last)
    return examined


def _absent(file: SegmentFile, strand: Examined) -> list[LostStretch]:
    """Offsets that index files prove to be missing although the log shows no damage: a stretch of no bytes."""
    trouble = absent_after(file, strand.last)
    # Entries missing before the first segment look like retention; the first offsets of the copies are compared instead.
    if trouble is None or trouble.lost is None or trouble.lost[0] < strand.start:
        return []
    return [LostStretch(file.size, file.size, *trouble.lost, strand.last, fault=trouble.error)]


def _strands(segment: Segment, folder: str, limit: int | None, tables: list[tuple[Int64s, Flags]]) -> list[Examined]:
    """The strands of a segment, from rows of its entries and flags of the intact ones."""
    rows: Int64s = np.concatenate([table for table, _ in tables])
    good: Flags = np.concatenate([flags for _, flags in tables])
    start = segment.base_offset
    assert start is not None
    intact = good & (rows[:, BASE] >= start) & (rows[:, LAST] >= rows[:, BASE])
    if limit is not None:
        intact &= rows[:, LAST] <= limit
    some = rows[intact]
    intact[np.flatnonzero(intact)] = placed(some[:, BASE], some[:, LAST], some[:, (CRC, SIZE)], start)
    entries = rows[intact]
    entries[:, EPOCH], cuts = strands(entries[:, BASE], entries[:, LAST], entries[:, EPOCH])
    begins = [0, *entries[cuts, POSITION].tolist()]
    highest = limit if limit is not None or not len(cuts) else int(entries[:, LAST].max())
    rest, is_good, examined = rows[~intact], good[~intact], []
    for own, begin, end in zip(np.split(entries, cuts), begins, [*begins[1:], segment.size], strict=True):
        lowest = start if not begin else int(own[0, BASE])
        strand = Examined(segment, folder, own, [], lowest, limit if end == segment.size else highest)
        inside = slice(*np.searchsorted(rest[:, POSITION], (begin, end)))
        _add_stretches(strand, rest[inside], is_good[inside], begin, end)
        examined.append(strand)
    return examined


def _known(file: SegmentFile, entries: Entries, options: Options) -> tuple[Int64s, Flags]:
    """The kept columns of some entries, and which are intact. Wrappers are decompressed, since only that tells offsets."""
    messages = layouts.among(entries.layout, layouts.MESSAGES)
    wrapped = messages & (entries.codec != 0)
    unknown = np.any([column == table.UNKNOWN for column in (entries.base_offset, entries.last_offset, entries.count)], axis=0)
    told = np.flatnonzero((wrapped | unknown) & entries.is_intact)
    if len(told):
        entries = entries.copy()
        cuts = np.flatnonzero(np.diff(entries.position[told]) > _APART) + 1
        for group in np.split(told, cuts):
            entries.array[group] = _inflated(file, entries[group], options).array
    kept = np.column_stack([entries.array[:, _KEPT], wrapped, messages & ~wrapped])
    # Which format it is decides where a header has its epoch, and whether it has one.
    kept[entries.code == Code.BAD_MAGIC, EPOCH] = -1
    return kept, entries.is_intact


def _inflated(file: SegmentFile, entries: Entries, options: Options) -> Entries:
    start = entries[0].position
    source = file.read(start, entries[-1].end)
    entries = entries.copy()
    for run, some in runs(source, start, entries, options, need_key=False, in_parts=True):
        # A wrapper with a wrong message is as it was written, in every copy.
        partial = [*run.parts]
        some.code[partial] = 0
        told = some.last_offset[partial]
        counts = np.where(some.is_intact, run.records, 0)
        offsets = np.frombuffer(run.columns.offset, np.int64, run.rows)
        full = np.flatnonzero(counts)
        if len(full):
            first = (np.cumsum(counts) - counts)[full]
            some.base_offset[full] = np.minimum.reduceat(offsets, first)
            some.last_offset[full] = np.maximum.reduceat(offsets, first)
        some.last_offset[partial] = np.maximum(some.last_offset[partial], told)
        some.count = counts
    return entries


def _add_stretches(strand: Examined, rest: Rows, good: Flags, begin: int, end: int) -> None:
    """Find the stretches between the intact entries; ``rest`` are the others, of which those in ``good`` have only a wrong offset."""
    entries = strand.entries
    starts = np.concatenate([[begin], entries[:, POSITION] + entries[:, SIZE]])
    ends = np.append(entries[:, POSITION], end)
    for i in np.flatnonzero(ends > starts).tolist():
        inside = slice(*np.searchsorted(rest[:, POSITION], (starts[i], ends[i])))
        high = int(entries[i, BASE]) - 1 if i < len(entries) else strand.limit
        whole = LostStretch(int(starts[i]), int(ends[i]), strand.floor(i) + 1, high, strand.floor(i))
        strand.stretches += _parts(whole, rest[inside].tolist(), good[inside].tolist(), strand.segment.path)
        before, after = (some[some >= 0] for some in (entries[:i, EPOCH], entries[i:, EPOCH]))
        lowest, highest = before[-1] if len(before) else 0, after[0] if len(after) else HIGHEST
        strand.headers += _headers(whole, rest[inside], int(lowest), int(highest), HIGHEST if high is None else high + 1)
        if high is not None:
            strand.doubts.append((whole.low, high, whole.end - whole.start))


def _headers(whole: LostStretch, rows: Rows, before: int, after: int, base_after: int) -> list[tuple[int, int, int]]:
    """First and last offset and leader epoch of damaged entries, if their headers fill a stretch one after the other and fit to its ends.
    ``before`` and ``after`` are leader epochs known before and after it; the next intact entry begins at offset ``base_after``."""
    chain: list[tuple[int, int, int]] = []
    reach, epoch, position = whole.floor, before, whole.start
    for start, size, base, last, _, _, own in rows[:, : EPOCH + 1].tolist():
        if start != position or not (reach < base <= last and own >= epoch):
            return []
        chain.append((base, last, own))
        reach, epoch, position = last, own, position + size
    return chain if position == whole.end and reach < base_after and epoch <= after else []


def _parts(whole: LostStretch, rows: list[list[int]], good: list[bool], path: str) -> list[LostStretch]:
    """A stretch, cut at credible damaged headers, which contain first offsets, and around entries with a damaged offset."""
    parts, rest, claim, reach = [], whole, None, whole.low - 1
    highest = whole.low + LARGEST_SPAN if whole.high is None else whole.high
    for row, sound in zip(rows, good, strict=True):
        position, end, base, last = row[POSITION], row[POSITION] + row[SIZE], row[BASE], row[LAST]
        # A damaged wrapper has no first offset in its header: it begins after the entry before it.
        base = reach + 1 if base == table.UNKNOWN else base
        claim, reach = None, last if reach < last <= highest else reach
        if position < rest.start:
            continue
        if sound:
            if position > rest.start:
                parts.append(replace(rest, end=position))
            parts.append(replace(rest, start=position, end=end, fault=misplaced(path, row, rest.low, whole.high)))
            rest = replace(rest, start=end)
        elif position > rest.start and rest.low < base <= last <= highest:
            parts.append(replace(rest, end=position, high=base - 1))
            rest = replace(rest, start=position, low=base)
        if position == rest.start and end == whole.end and rest.low <= base <= last <= highest:
            claim = last
    if rest.high is None:
        rest = replace(rest, claim=claim)
    return [*parts, rest] if rest.start < whole.end else parts


def misplaced(path: str, row: Row | list[int], low: int, high: int | None) -> CorruptBatchError:
    """Error for an entry with a damaged offset; ``row`` is one of `Examined.entries`."""
    expected = f"offsets from {low} on" if high is None else f"offsets from {low} to {high}"
    return CorruptBatchError(
        path, int(row[POSITION]), Code.BASE_OFFSET, base_offset=int(row[BASE]), expected=expected, found=f"{row[BASE]} to {row[LAST]}"
    )
