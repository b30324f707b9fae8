"""Entries of several copies that overlap and differ: their records decide which copy an offset is read from."""

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pyarrow as pa

from kolumn.copies.examine import BASE, EPOCH, HIGHEST, LAST, POSITION, SIZE, Examined
from kolumn.core.arrays import Flags, Int64s
from kolumn.damage.findings import Damage
from kolumn.decode.pipeline import scan_ranges
from kolumn.options import Options
from kolumn.source.segments import Range
from kolumn.source.storage import parent

_COLUMNS = ("offset", "position", "timestampMs", "key", "value")


@dataclass
class Claimed:
    """Contested entries of one segment.

    Attributes
    ----------
    lane : int
        Number of the segment's part of the window.
    examined : Examined
    rank : int
        Preference of its copy; 0 is preferred most.
    rows : list of int
        Rows in the segment's entries.
    members : dict
        For each row, all segments that have the same entry, and its row there.
    """

    lane: int
    examined: Examined
    rank: int
    rows: list[int]
    members: dict[int, list[tuple[Examined, int]]]


@dataclass(frozen=True)
class Disagreement:
    """Two copies have different records at an offset. Each side has its copies, and the row of its entry in the first of them."""

    offset: int
    one: tuple[list[Examined], int]
    other: tuple[list[Examined], int]

    @property
    def epochs(self) -> tuple[int, int]:
        """Leader epochs of the two entries, -1 if the format has no leader epochs."""
        return _epoch(self.one), _epoch(self.other)


def _epoch(side: tuple[list[Examined], int]) -> int:
    return int(side[0][0].entries[side[1], EPOCH])


def claim(claims: list[Claimed], options: Options) -> Int64s | Disagreement | None:
    """Divide the offsets among the copies: first to the copy with most records there, then the rest to the others.

    Returns
    -------
    int64 array of shape (n, 5), Disagreement or None
        Pieces, as in `window`; or the disagreement; or None if an entry could not be decoded and has become a stretch.
    """
    tables = []
    for one in claims:
        table, bad = _records(one, options)
        for row in sorted(bad, reverse=True):
            for examined, at in one.members[row]:
                examined.without(at, None)
        if bad:
            return None
        tables.append(table)
    found = _disagreement(claims, tables)
    return found if found is not None else _shared(claims, tables)


def _records(one: Claimed, options: Options) -> tuple[pa.Table, list[int]]:
    """Records of a segment's contested entries, and the rows of entries that cannot be decoded although their checksum is right."""
    examined = one.examined
    entries = examined.entries[one.rows]
    starts, ends = entries[:, POSITION], entries[:, POSITION] + entries[:, SIZE]
    order = np.argsort(starts)
    cuts = np.flatnonzero(starts[order][1:] != ends[order][:-1]) + 1
    ranges = [
        Range(examined.alone, int(starts[part[0]]), int(ends[part[-1]]), examined.floor(one.rows[part[0]]))
        for part in np.split(order, cuts)
    ]
    walk = replace(options, columns=_COLUMNS, typed=(), errors="skip", threads=1, include_control=True)
    damage: list[Damage] = []
    batches = list(scan_ranges(ranges, walk, damage=damage.append))
    table = pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in _COLUMNS})
    # Of an entry with a wrong record the others are read.
    read = set(_int64(table, "position").tolist()) if damage else set()
    at = {int(examined.entries[row, POSITION]): row for row in one.rows}
    bad = [at[piece.position] for piece in damage if piece.position not in read]
    return table.filter(pa.array(_int64(table, "offset") < examined.stale)), bad


def _disagreement(claims: list[Claimed], tables: list[pa.Table]) -> Disagreement | None:
    """The lowest offset at which two copies differ; of one directory first, since that is decided by what was written later."""
    found: list[tuple[bool, int, int, int, int, int]] = []
    places = [parent(one.examined.segment.path) for one in claims]
    offsets = [_int64(table, "offset") for table in tables]
    for i, j in combinations(range(len(claims)), 2):
        common, mine, theirs = np.intersect1d(offsets[i], offsets[j], return_indices=True)
        if not len(common):
            continue
        differ = np.flatnonzero(~_equal(tables[i].take(pa.array(mine)), tables[j].take(pa.array(theirs))))
        if len(differ):
            k = int(differ[0])
            found.append((places[i] != places[j], int(common[k]), i, j, int(mine[k]), int(theirs[k])))
    if not found:
        return None
    _, offset, one, other, record, other_record = min(found)
    return Disagreement(offset, _side(claims, tables, one, record), _side(claims, tables, other, other_record))


def _side(claims: list[Claimed], tables: list[pa.Table], of: int, record: int) -> tuple[list[Examined], int]:
    """Copies that have the same record as one of them: in the same entry, or batched otherwise."""
    one, offset = claims[of], tables[of]["offset"][record].as_py()
    row = int(np.searchsorted(one.examined.entries[:, POSITION], tables[of]["position"][record].as_py()))
    found = {id(one.examined): one.examined}
    for claim, table in zip(claims, tables, strict=True):
        for at in np.flatnonzero(_int64(table, "offset") == offset).tolist():
            if _equal(table.slice(at, 1), tables[of].slice(record, 1))[0]:
                same = int(np.searchsorted(claim.examined.entries[:, POSITION], table["position"][at].as_py()))
                found |= {id(examined): examined for examined, _ in claim.members[same]}
    return list(found.values()), row


def _equal(one: pa.Table, other: pa.Table) -> Flags:
    """Flags of the records that are equal; a record without a timestamp also equals one with a timestamp."""
    import pyarrow.compute as pc

    same = np.ones(len(one), np.bool_)
    for name in ("key", "value"):
        mine, theirs = one[name], other[name]
        equal = pc.fill_null(pc.equal(mine, theirs), False)
        same &= np.asarray(pc.or_(equal, pc.and_(pc.is_null(mine), pc.is_null(theirs))))
    mine, theirs = _int64(one, "timestampMs"), _int64(other, "timestampMs")
    return same & ((mine == theirs) | (mine == -1) | (theirs == -1))


def _shared(claims: list[Claimed], tables: list[pa.Table]) -> Int64s:
    order = sorted(range(len(claims)), key=lambda i: (-len(tables[i]), claims[i].rank))
    offset = np.concatenate([_int64(tables[i], "offset") for i in order])
    lane = np.concatenate([np.full(len(tables[i]), claims[i].lane) for i in order])
    row = np.concatenate([np.searchsorted(claims[i].examined.entries[:, POSITION], _int64(tables[i], "position")) for i in order])
    # The first record of each offset is that of the preferred copy.
    taken, index = np.unique(offset, return_index=True)
    lanes, rows = lane[index], row[index]
    starts = np.flatnonzero(np.append(True, (np.diff(lanes) != 0) | (np.diff(rows) != 0))) if len(taken) else np.empty(0, np.int64)
    pieces, by_lane = [], {one.lane: one.examined for one in claims}
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
