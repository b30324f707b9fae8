"""Which copy each offset is read from: entries of all copies that lie between two offsets are resolved together.

Followers copy a leader's batches byte by byte, so nearly all entries are the same in all copies, and any copy can be read. If entries
overlap but differ, one copy was compacted further than another, was written by another program, or has offsets that two leaders
assigned. Then their records are compared. Pieces of copies, in the order of offsets, become ranges: neighbours in a file are one range.
"""

from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.copies.examine import BASE, COUNT, CRC, EPOCH, LAST, MESSAGE, POSITION, SIZE, WIDTH, WRAPS, Examined, LostStretch, misplaced
from kolumn.core.arrays import Flags, Int64s
from kolumn.damage.findings import Damage
from kolumn.decode.pipeline import scan_ranges
from kolumn.options import Options
from kolumn.source.segments import HIGHEST, Range
from kolumn.source.storage import parent

LANE, ROW, LOW, STOP, WHOLE = range(5)
"""Columns of pieces: the part, the entry of its segment, the offsets [LOW, STOP) of it that are used, and whether those are all."""
_CONTESTED_BYTES = 32 << 20  # bytes whose records are compared at a time
_COLUMNS = ("offset", "position", "timestampMs", "key", "value")


class CopyPart(NamedTuple):
    """Entries [start, end) of a segment; ``rank`` is the preference of its copy, 0 is preferred most."""

    examined: Examined
    start: int
    end: int
    rank: int


Member = tuple[CopyPart, int]  # a part that has an entry, and the entry's row in the part's segment


@dataclass
class Claimed:
    lane: int
    examined: Examined
    rank: int  # preference of its copy; 0 is preferred most
    rows: list[int]
    members: dict[int, list[Member]]  # for each row, all segments that have the same entry


@dataclass(frozen=True)
class Disagreement:
    """Two copies have different records at an offset. Each side has its copies, and the row of its entry in the first of them."""

    offset: int
    left: tuple[list[Examined], int]
    right: tuple[list[Examined], int]


def resolve(parts: list[CopyPart], options: Options) -> Int64s | Disagreement | None:
    """Take each offset once: pieces, int64 of shape (n, 5), in the order of offsets; or two different records at an offset. None if entries
    turned out to be damaged: they have become stretches of their segments, and the window has to be resolved again."""
    window = _Window(parts)
    if give_up_misplaced(window.odd()):
        return None
    contested = window.contested()
    if window.give_up_insides(np.flatnonzero(contested)):
        return None
    pieces = [window.whole(np.flatnonzero(~contested))]
    for group in window.groups(np.flatnonzero(contested)):
        claimed = claim(window.claims(group), options)
        if not isinstance(claimed, np.ndarray):
            return claimed
        pieces.append(claimed)
    joined = np.concatenate(pieces)
    return joined[np.argsort(joined[:, LOW], kind="stable")]


class Group(NamedTuple):
    """An entry and all copies that have it at its offsets; entries with the same bytes have the same ``number``."""

    number: int
    base: int
    last: int
    members: list[Member]


class _Window:
    """Entries of several segments; entries that are the same in several segments are grouped."""

    def __init__(self, parts: list[CopyPart]) -> None:
        self.parts = parts
        rows = np.concatenate([part.examined.entries[part.start : part.end] for part in parts])
        lane = np.concatenate([np.full(part.end - part.start, i) for i, part in enumerate(parts)])
        number = np.concatenate([np.arange(part.start, part.end) for part in parts])
        rank = np.array([part.rank for part in parts], np.int64)[lane]
        is_cut = rows[:, LAST] >= np.array([part.examined.stale for part in parts], np.int64)[lane]
        # Of copies of one entry those count first that belong to the log as a whole, and whose epoch is in order.
        order = np.lexsort((rank, rows[:, EPOCH] < 0, is_cut, rows[:, SIZE], rows[:, CRC], rows[:, LAST], rows[:, BASE]))
        self.rows, self.lane, self.number, self.is_cut = rows[order], lane[order], number[order], is_cut[order]
        identity = self.rows[:, (BASE, LAST, CRC, SIZE)]
        first = np.ones(len(order), np.bool_)
        first[1:] = (identity[1:] != identity[:-1]).any(axis=1)
        self.first = np.flatnonzero(first)
        self.copies = np.diff(np.append(self.first, len(order)))
        self.unique = self.rows[self.first]

    def members(self, i: int) -> list[Member]:
        some = slice(int(self.first[i]), int(self.first[i] + self.copies[i]))
        return [(self.parts[lane], row) for lane, row in zip(self.lane[some].tolist(), self.number[some].tolist(), strict=True)]

    def contested(self) -> Flags:
        """Flags of the entries that overlap others, or of which not all records belong to the log."""
        base, last = self.unique[:, BASE], self.unique[:, LAST]
        begins = np.ones(len(base), np.bool_)
        begins[1:] = base[1:] > np.maximum.accumulate(last)[:-1]
        self.cluster = np.cumsum(begins) - 1
        return (np.bincount(self.cluster)[self.cluster] > 1) | self.is_cut[self.first] if len(base) else begins

    def give_up_insides(self, contested: Int64s) -> bool:
        """Discard messages of damaged wrappers, which look like entries if the codec stored them uncompressed. They lie at the offsets of a
        wrapper in another copy, and in this copy damage begins where that wrapper begins."""
        wrappers: dict[int, list[Member]] = {}
        for i in contested[self.unique[contested, WRAPS] == 1].tolist():
            wrappers.setdefault(int(self.cluster[i]), []).extend(self.members(i))
        wrong: dict[tuple[int, int], Examined] = {}
        for i in contested[self.unique[contested, MESSAGE] == 1].tolist():
            for part, row in self.members(i) if int(self.cluster[i]) in wrappers else ():
                if any(part.examined.is_inside(row, other.examined, wrapper) for other, wrapper in wrappers[int(self.cluster[i])]):
                    wrong[id(part.examined), row] = part.examined
        for (_, row), examined in _last_first(wrong):
            examined.without(row, None)
        return bool(wrong)

    def groups(self, contested: Int64s) -> list[Int64s]:
        """Contested entries in groups of some MiB; overlapping entries are in the same group."""
        if not len(contested):
            return []
        sizes = np.cumsum(self.unique[contested, SIZE])
        begins = np.flatnonzero(np.append(True, np.diff(self.cluster[contested]) > 0))
        number = np.repeat(sizes[begins] // _CONTESTED_BYTES, np.diff(np.append(begins, len(contested))))
        return list(np.split(contested, np.flatnonzero(np.diff(number)) + 1))

    def whole(self, chosen: Int64s) -> Int64s:
        """Pieces of whole entries, each from the preferred copy."""
        first = self.first[chosen]
        rows = self.rows[first]
        return np.stack([self.lane[first], self.number[first], rows[:, BASE], rows[:, LAST] + 1, np.ones(len(first), np.int64)], axis=1)

    def claims(self, group: Int64s) -> list[Claimed]:
        """The contested entries of each segment: its rows, and which other copies have the same ones."""
        claims: dict[int, Claimed] = {}
        for i in group.tolist():
            lane, row = int(self.lane[self.first[i]]), int(self.number[self.first[i]])
            part = self.parts[lane]
            claimed = claims.setdefault(lane, Claimed(lane, part.examined, part.rank, [], {}))
            claimed.rows.append(row)
            claimed.members[row] = self.members(i)
        return list(claims.values())

    def odd(self) -> list[Group]:
        """Entries that some copies lack, and whose bytes also exist at another offset, in this window or after it."""
        folders = len({part.examined.folder for part in self.parts})
        odd = np.flatnonzero(self.copies < folders)
        if not len(odd):
            return []
        here = self.unique[odd]
        tables, members = [here], [self.members(i) for i in odd.tolist()]
        for part in self.parts:
            rows = part.examined.entries[part.end :]
            is_later = np.isin(rows[:, CRC], here[:, CRC]) & (rows[:, BASE] < part.examined.stale)
            later = np.flatnonzero(is_later) + part.end
            tables.append(part.examined.entries[later])
            members += [[(part, row)] for row in later.tolist()]
        rows = np.concatenate(tables)
        same = np.stack([rows[:, CRC], rows[:, SIZE], rows[:, LAST] - rows[:, BASE], rows[:, COUNT]], axis=1)
        _, number, count = np.unique(same, axis=0, return_inverse=True, return_counts=True)
        twice = np.flatnonzero(count[number.ravel()] > 1)
        return [Group(int(number.ravel()[i]), int(rows[i, BASE]), int(rows[i, LAST]), members[i]) for i in twice.tolist()]


def _last_first(wrong: dict[tuple[int, int], Examined]) -> list[tuple[tuple[int, int], Examined]]:
    """Rows to discard, from the last to the first, so that those that are left keep their numbers."""
    return sorted(wrong.items(), key=lambda item: -item[0][1])


def give_up_misplaced(odd: list[Group]) -> bool:
    """Discard entries whose offset is damaged but still in order: other copies have the same bytes at an offset that fits better."""
    wrong: dict[tuple[int, int], Examined] = {}
    alike: dict[int, list[Group]] = {}
    for group in odd:
        alike.setdefault(group.number, []).append(group)
    for groups in alike.values():
        for loser, winner in permutations(groups, 2):
            if _belongs(loser, winner):
                wrong |= {(id(part.examined), row): part.examined for part, row in loser.members}
    for (_, row), examined in _last_first(wrong):
        give_up(examined, row)
    return bool(wrong)


def give_up(examined: Examined, row: int) -> None:
    entries = examined.entries
    high = int(entries[row + 1, BASE]) - 1 if row + 1 < len(entries) else examined.limit
    examined.without(row, misplaced(examined.segment.path, entries[row].tolist(), examined.floor(row) + 1, high))


def less_believed(left: Examined, row: int, right: Examined, right_row: int) -> bool | None:
    """Whether of two entries with the same bytes at different offsets the first one's is damaged; None if their bytes differ. It is the one
    with fewer intact neighbours in its file; of two with as many, the one with the higher offset, since most damage changes an offset by
    much."""
    mine, theirs = left.entries[row], right.entries[right_row]
    if (mine[[CRC, SIZE]] != theirs[[CRC, SIZE]]).any() or mine[BASE] == theirs[BASE]:
        return None
    own, others = _neighbours(left.entries, row), _neighbours(right.entries, right_row)
    return own < others if own != others else bool(mine[BASE] > theirs[BASE])


def _neighbours(entries: Int64s, row: int) -> int:
    """How many intact entries adjoin an entry in its file."""
    ends, starts = entries[:, POSITION] + entries[:, SIZE], entries[:, POSITION]
    return int(row > 0 and ends[row - 1] == starts[row]) + int(row + 1 < len(entries) and ends[row] == starts[row + 1])


def _belongs(loser: Group, winner: Group) -> bool:
    """Whether an entry originally had the offset of another entry with the same bytes, before its own offset was damaged."""
    folders, others = ({part.examined.folder for part, _ in group.members} for group in (loser, winner))
    if loser.base == winner.base or folders & others:
        return False
    for part, row in loser.members:
        entries = part.examined.entries
        if part.examined.floor(row) >= winner.base or (row + 1 < len(entries) and winner.last >= entries[row + 1, BASE]):
            return False
        if any(_has_room(part.examined, row, other.examined, other_row) for other, other_row in winner.members):
            return False
    own = max(_touches(member, loser) for member in loser.members), len(folders)
    if own[0]:
        # Damage hardly ever produces exactly the next offset, or the one in the segment's name.
        return False
    other = max(_touches(member, winner) for member in (*winner.members, *loser.members)), len(others)
    if own != other:
        return own < other
    # The same bytes follow the same offset, so one of the two offsets is damaged, and most damage changes an offset by much.
    floors = ({part.examined.floor(row) for part, row in group.members} for group in (loser, winner))
    return bool(set.intersection(*floors)) and winner.base < loser.base


def _has_room(examined: Examined, row: int, other: Examined, other_row: int) -> bool:
    """Whether the damaged bytes before or after an entry are those of the other one, which is next to the same neighbour in its copy. Then
    the log had the same records twice."""
    entries, others = examined.entries, other.entries
    size = int(entries[row, SIZE])
    if others[other_row, BASE] < entries[row, BASE]:
        return examined.floor(row) == other.floor(other_row) and _gap(entries, row) >= _gap(others, other_row) + size
    if row + 1 == len(entries) or other_row + 1 == len(others):
        return False
    return bool(entries[row + 1, BASE] == others[other_row + 1, BASE]) and _gap(entries, row + 1) >= _gap(others, other_row + 1) + size


def _gap(entries: Int64s, row: int) -> int:
    """Bytes between an entry and the intact one before it."""
    return int(entries[row, POSITION] - (entries[row - 1, POSITION] + entries[row - 1, SIZE] if row else 0))


def _touches(member: Member, group: Group) -> int:
    """How many of an entry's neighbours would adjoin the group's offsets, if the entry had them. Only neighbours that adjoin it in the file
    count too: if damage lies between them, other offsets lie between them."""
    examined, row = member[0].examined, member[1]
    entries = examined.entries
    end = int(entries[row, POSITION] + entries[row, SIZE])
    leads = end == (int(entries[row + 1, POSITION]) if row + 1 < len(entries) else examined.segment.size)
    following = entries[row + 1, BASE] - 1 if row + 1 < len(entries) else examined.limit
    return int(not _gap(entries, row) and examined.floor(row) + 1 == group.base) + int(leads and group.last == following)


def claim(claims: list[Claimed], options: Options) -> Int64s | Disagreement | None:
    """Divide the offsets among the copies as pieces: first to the copy with most records there, then the rest to the others. None if an
    entry could not be decoded and has become a stretch."""
    tables = []
    for claimed in claims:
        table, bad = _records(claimed, options)
        for row in sorted(bad, reverse=True):
            for part, member_row in claimed.members[row]:
                part.examined.without(member_row, None)
        if bad:
            return None
        tables.append(table)
    disagreement = _disagreement(claims, tables)
    return disagreement if disagreement is not None else _shared(claims, tables)


def _records(claimed: Claimed, options: Options) -> tuple[pa.Table, list[int]]:
    """Records of a segment's contested entries, and the rows of entries that cannot be decoded although their checksum is right."""
    examined = claimed.examined
    entries = examined.entries[claimed.rows]
    starts, ends = entries[:, POSITION], entries[:, POSITION] + entries[:, SIZE]
    order = np.argsort(starts)
    cuts = np.flatnonzero(starts[order][1:] != ends[order][:-1]) + 1
    ranges = [
        Range(examined.alone, int(starts[part[0]]), int(ends[part[-1]]), examined.floor(claimed.rows[part[0]]))
        for part in np.split(order, cuts)
    ]
    walk = replace(options, columns=_COLUMNS, typed=(), errors="skip", threads=1, include_control=True)
    damage: list[Damage] = []
    batches = list(scan_ranges(ranges, walk, damage=damage.append))
    table = pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in _COLUMNS})
    # Of an entry with a wrong record the others are read.
    read = set(_int64(table, "position").tolist()) if damage else set()
    row_of = {int(examined.entries[row, POSITION]): row for row in claimed.rows}
    bad = [row_of[piece.position] for piece in damage if piece.position not in read]
    return table.filter(pa.array(_int64(table, "offset") < examined.stale)), bad


def _disagreement(claims: list[Claimed], tables: list[pa.Table]) -> Disagreement | None:
    """The lowest offset at which two copies differ; of one directory first, since that is decided by what was written later."""
    differences: list[tuple[bool, int, int, int, int, int]] = []
    folders = [parent(claimed.examined.segment.path) for claimed in claims]
    offsets = [_int64(table, "offset") for table in tables]
    for i, j in combinations(range(len(claims)), 2):
        common, mine, theirs = np.intersect1d(offsets[i], offsets[j], return_indices=True)
        if not len(common):
            continue
        differ = np.flatnonzero(~_equal(tables[i].take(pa.array(mine)), tables[j].take(pa.array(theirs))))
        if len(differ):
            k = int(differ[0])
            differences.append((folders[i] != folders[j], int(common[k]), i, j, int(mine[k]), int(theirs[k])))
    if not differences:
        return None
    _, offset, i, j, record, other_record = min(differences)
    return Disagreement(offset, _side(claims, tables, i, record), _side(claims, tables, j, other_record))


def _side(claims: list[Claimed], tables: list[pa.Table], i: int, record: int) -> tuple[list[Examined], int]:
    """Copies that have the same record as copy ``i``: in the same entry, or batched otherwise."""
    examined, offset = claims[i].examined, tables[i]["offset"][record].as_py()
    copies = {id(examined): examined}
    for claimed, table in zip(claims, tables, strict=True):
        for same in np.flatnonzero(_int64(table, "offset") == offset).tolist():
            if _equal(table.slice(same, 1), tables[i].slice(record, 1))[0]:
                copies |= {id(part.examined): part.examined for part, _ in claimed.members[_row_of(claimed.examined, table, same)]}
    return list(copies.values()), _row_of(examined, tables[i], record)


def _row_of(examined: Examined, table: pa.Table, record: int) -> int:
    return int(np.searchsorted(examined.entries[:, POSITION], table["position"][record].as_py()))


def _equal(left: pa.Table, right: pa.Table) -> Flags:
    """Flags of the records that are equal; a record without a timestamp also equals one with a timestamp."""
    import pyarrow.compute as pc

    same = np.ones(len(left), np.bool_)
    for name in ("key", "value"):
        mine, theirs = left[name], right[name]
        equal = pc.fill_null(pc.equal(mine, theirs), False)
        same &= np.asarray(pc.or_(equal, pc.and_(pc.is_null(mine), pc.is_null(theirs))))
    times, other_times = _int64(left, "timestampMs"), _int64(right, "timestampMs")
    return same & ((times == other_times) | (times == -1) | (other_times == -1))


def _shared(claims: list[Claimed], tables: list[pa.Table]) -> Int64s:
    order = sorted(range(len(claims)), key=lambda i: (-len(tables[i]), claims[i].rank))
    offset = np.concatenate([_int64(tables[i], "offset") for i in order])
    lane = np.concatenate([np.full(len(tables[i]), claims[i].lane) for i in order])
    row = np.concatenate([np.searchsorted(claims[i].examined.entries[:, POSITION], _int64(tables[i], "position")) for i in order])
    # The first record of each offset is that of the preferred copy.
    taken, index = np.unique(offset, return_index=True)
    lanes, rows = lane[index], row[index]
    starts = np.flatnonzero(np.append(True, (np.diff(lanes) != 0) | (np.diff(rows) != 0))) if len(taken) else np.empty(0, np.int64)
    pieces, by_lane = [], {claimed.lane: claimed.examined for claimed in claims}
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(taken)], strict=True) if len(taken) else ():
        own = int(lanes[start]), int(rows[start])
        examined = by_lane[own[0]]
        is_whole = int(examined.entries[own[1], LAST]) < examined.stale
        complete = is_whole and end - start == int(((lane == own[0]) & (row == own[1])).sum())
        pieces.append((*own, int(taken[start]), int(taken[end - 1]) + 1, int(complete)))
    return _apart(np.array(pieces, np.int64).reshape(-1, 5), by_lane)


def _apart(pieces: Int64s, by_lane: dict[int, Examined]) -> Int64s:
    """Pieces that are not whole entries where their headers' offsets reach into those of others, as compaction leaves them."""
    ends = [by_lane[lane].entries[row, (BASE, LAST)].tolist() for lane, row in pieces[:, :2].tolist()]
    reach, following = -1, [*pieces[1:, 2].tolist(), HIGHEST]
    for piece, (base, last), after in zip(pieces, ends, following, strict=True):
        piece[4] &= base > reach and last < after
        reach = int(last if piece[4] else piece[3] - 1)
    return pieces


def _int64(table: pa.Table, name: str) -> Int64s:
    return table[name].to_numpy().astype(np.int64)


Bounded = tuple[Range, int, int]  # a range, and the lowest and highest offset that it can have


class Joined:
    """Ranges of the log. If the reader compares checksums it detects damage that no copy heals; otherwise it may read wrong records."""

    def __init__(self, check_crcs: bool) -> None:
        self.check_crcs = check_crcs
        self.ranges: list[Bounded] = []

    def add(self, parts: list[CopyPart], pieces: Int64s, lost: list[tuple[Examined, LostStretch]]) -> None:
        """Add the pieces of a window, and the stretches in it that are damaged in every copy."""
        items = [*ranges_of(parts, pieces), *(self._stretch(examined, stretch) for examined, stretch in lost)]
        for span, low, high in sorted(items, key=lambda item: item[1]):
            self._append(span, low, high)

    def tail(self, examined: Examined, stretch: LostStretch) -> None:
        self._append(*self._stretch(examined, stretch))

    def _stretch(self, examined: Examined, stretch: LostStretch) -> Bounded:
        low, high = stretch.low, 2**63 - 2 if stretch.high is None else stretch.high
        span = replace(
            Range.whole(examined.segment), start=stretch.start, end=stretch.end, floor=stretch.floor, fault=stretch.fault,
            start_offset=low, end_offset=low if self.check_crcs else high + 1,
        )  # fmt: skip
        return span, low, high

    def _append(self, span: Range, low: int, high: int) -> None:
        if self.ranges:
            last, lowest, highest = self.ranges[-1]
            if not (last.is_bounded or span.is_bounded) and last.segment == span.segment and last.end == span.start:
                self.ranges[-1] = replace(last, end=span.end), lowest, max(high, highest)
                return
        self.ranges.append((span, low, high))


class Filled:
    """The entries that were taken from all copies in a window."""

    def __init__(self, parts: list[CopyPart], pieces: Int64s) -> None:
        entries = _entries(parts, pieces)
        self.base, self.last = entries[:, BASE], entries[:, LAST]
        self.size = np.append(0, np.cumsum(entries[:, SIZE]))
        self.partial = np.append(0, np.cumsum(pieces[:, WHOLE] == 0))

    def tiles(self, stretch: LostStretch) -> bool:
        """Whether entries taken from other copies have exactly the bytes of a damaged stretch."""
        if stretch.high is None:
            return False
        first, stop = int(np.searchsorted(self.base, stretch.low)), int(np.searchsorted(self.last, stretch.high, side="right"))
        if first >= stop or self.partial[stop] > self.partial[first]:
            return False
        return bool(self.size[stop] - self.size[first] == stretch.end - stretch.start)


def _entries(parts: list[CopyPart], pieces: Int64s) -> Int64s:
    entries = np.empty((len(pieces), WIDTH), np.int64)
    for lane in np.unique(pieces[:, LANE]).tolist():
        mine = pieces[:, LANE] == lane
        entries[mine] = parts[lane].examined.entries[pieces[mine, ROW]]
    return entries


def ranges_of(parts: list[CopyPart], pieces: Int64s) -> list[Bounded]:
    """Ranges of pieces that follow each other in one file."""
    if not len(pieces):
        return []
    entries = _entries(parts, pieces)
    start, size = entries[:, POSITION], entries[:, SIZE]
    goes_on = (pieces[1:, LANE] == pieces[:-1, LANE]) & (start[1:] == start[:-1] + size[:-1])
    goes_on &= (pieces[1:, WHOLE] == 1) & (pieces[:-1, WHOLE] == 1)
    firsts = np.flatnonzero(np.append(True, ~goes_on)).tolist()
    ranges = []
    for first, stop in zip(firsts, [*firsts[1:], len(pieces)], strict=True):
        examined, row = parts[int(pieces[first, LANE])].examined, int(pieces[first, ROW])
        low, high = int(pieces[first, LOW]), int(pieces[stop - 1, STOP]) - 1
        end = int(start[stop - 1] + size[stop - 1])
        span = replace(Range.whole(examined.alone), start=int(start[first]), end=end, floor=examined.floor(row))
        ranges.append((span if pieces[first, WHOLE] else replace(span, start_offset=low, end_offset=high + 1), low, high))
    return ranges
