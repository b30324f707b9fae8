"""Records of the entries in which two logs differ, compared by their offsets."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.copies.transactions import of_ranges
from kolumn.core.arrays import Flags, Int64s
from kolumn.core.buffers import keep
from kolumn.damage.findings import Damage, Tally
from kolumn.decode.pipeline import scan_ranges
from kolumn.formats import v2
from kolumn.log.pieces import Piece, intact, pieces_of
from kolumn.source.segments import HIGHEST, Range, Segment
from kolumn.source.side_files import Epochs
from kolumn.tools.comparing.sides import HIGH, LOW, PART, POSITION, SIZE, Side
from kolumn.writers.last_offsets import LatestOffsets

COMPARED = {
    "key": 0, "value": 0, "timestampMs": 1, "timestampType": 1, "headers": v2.MAGIC, "producerId": v2.MAGIC, "producerEpoch": v2.MAGIC,
    "sequence": v2.MAGIC, "isTransactional": v2.MAGIC, "isControl": v2.MAGIC,
}  # fmt: skip
"""Fields of a record that are compared, and the first format that can hold them."""
COLUMNS = ("offset", *COMPARED, "leaderEpoch", "magic", "codec")
ROW = "row"
_BLOCK = 1 << 18  # bytes of a segment, whose runs of rows are read together
_OF_KEYS = ("offset", "key", "transaction", "isControl", "leaderEpoch")


class LostOffsets(NamedTuple):
    low: int
    high: int
    damage: Damage
    row: Int64s
    is_new: bool  # not told by the walk of headers, nor when an earlier window opened the entry


@dataclass
class Records:
    """The records of some rows of a side up to an offset, in order. ``batch`` is read and not compared yet; its column ``row`` has the
    number of a record's row. ``lost`` is damage that was found."""

    side: Side
    rows: Int64s
    high: int
    batch: pa.RecordBatch | None = None
    ended: bool = False
    last: int = -1
    lost: list[LostOffsets] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._walk, rows = self._read(), self.rows
        apart = (rows[1:, PART] != rows[:-1, PART]) | (rows[1:, POSITION] != rows[:-1, POSITION] + rows[:-1, SIZE])
        self._stretch = np.append(np.cumsum(np.insert(apart, 0, False)[: len(rows)]), -1)

    def stretches(self, rows: Int64s) -> Int64s:
        """A number for each row that is the same for rows with no other entry between them in the file; -1 for the row -1."""
        return self._stretch[rows]

    def load(self, offset: int) -> None:
        """Read until there is a record above an offset."""
        while not self.ended and (self.batch is None or self.last <= offset):
            more = next(self._walk, None)
            self.ended = more is None
            if more is not None and more.num_rows:
                self.last = int(more["offset"][-1].as_py())
                self.batch = more if self.batch is None else pa.concat_batches([self.batch, more])

    def take(self, high: int) -> pa.RecordBatch | None:
        """The records up to an offset."""
        if self.batch is None:
            return None
        count = int(np.searchsorted(offsets_of(self.batch), high, side="right"))
        taken, rest = self.batch.slice(0, count), self.batch.slice(count)
        self.batch = rest if rest.num_rows else None
        return taken if count else None

    def _read(self) -> Iterator[pa.RecordBatch]:
        if not len(self.rows):
            return
        starts = np.flatnonzero(np.insert(np.diff(self._stretch[:-1]) != 0, 0, True))
        begin, end = self.rows[starts, POSITION], self.rows[np.append(starts[1:], len(self.rows)) - 1][:, [POSITION, SIZE]].sum(axis=1)
        # Runs of rows in one block are read together: to begin a read takes longer.
        block = np.stack([self.rows[starts, PART], begin // _BLOCK, (end - 1) // _BLOCK], axis=1)
        apart = (np.diff(block, axis=0) != 0).any(axis=1) | (begin[1:] < end[:-1])
        bounds = [*starts.tolist(), len(self.rows)]
        for first, stop in pairwise([0, *(np.flatnonzero(apart) + 1).tolist(), len(starts)]):
            yield from self._read_runs(bounds[first : stop + 1])

    def _read_runs(self, bounds: list[int]) -> Iterator[pa.RecordBatch]:
        """Records of several runs at once, or one by one if anything is damaged; ``bounds`` are the rows with which they begin, and end."""
        rows = self.rows[bounds[0] : bounds[-1]]
        whole = self._intact(rows) if len(bounds) > 2 else None
        if whole is not None:
            yield from (self._wanted(piece, bounds[0], rows) for piece in whole)
            return
        for start, stop in pairwise(bounds):
            yield from self._read_run(start, self.rows[start:stop])

    def _intact(self, rows: Int64s) -> list[Piece] | None:
        """The entries of rows with others between them; None if anything there is damaged."""
        options, found, pieces = self.side.reading(), Tally(), list[Piece]()
        segment, start, end = self._place(rows)
        for source, origin, entries in intact(segment, options, found, Range(segment, start, end, int(rows[0, LOW]) - 1)):
            some = entries[np.isin(entries.position, rows[:, POSITION])]
            pieces += pieces_of(source, origin, some, segment, options, COLUMNS, found.damage)
        return None if found.damage or sum(len(piece.entries) for piece in pieces) != len(rows) else pieces

    def _place(self, rows: Int64s) -> tuple[Segment, int, int]:
        return self.side.ranges[int(rows[0, PART])].segment, int(rows[0, POSITION]), int(rows[-1, POSITION] + rows[-1, SIZE])

    def _read_run(self, number: int, rows: Int64s) -> Iterator[pa.RecordBatch]:
        """Records of neighbouring rows; ``number`` is that of the first row."""
        options = self.side.reading()
        segment, start, end = self._place(rows)
        found, told = Tally(), 0
        for source, origin, entries in intact(segment, options, found, Range(segment, start, end, int(rows[0, LOW]) - 1)):
            for piece in pieces_of(source, origin, entries, segment, options, COLUMNS, found.damage):
                told = self._note(found, told, rows, end)
                yield self._wanted(piece, number, rows)
        self._note(found, told, rows, end)

    def _wanted(self, piece: Piece, number: int, rows: Int64s) -> pa.RecordBatch:
        """The records of a piece whose offsets count, in growing order; others are noted as damage."""
        row = np.repeat(np.searchsorted(rows[:, POSITION], piece.entries.position, side="right") - 1, piece.counts)
        offset = offsets_of(piece.records)
        batch = piece.records.append_column(ROW, pa.array(row + number))
        inside = (offset >= rows[row, LOW]) & (offset <= np.minimum(rows[row, HIGH], self.high))
        reach = np.maximum.accumulate(np.append(self.last, offset))[:-1]
        grows = offset > reach
        for i in np.flatnonzero(inside & ~grows)[:1].tolist():
            text = f"offset of a record: expected one above {reach[i]}, found {offset[i]}"
            damage = Damage(self.side.path(rows[row[i]]), int(rows[row[i], POSITION]), int(rows[row[i], SIZE]), None, None, text, None)
            self.lost.append(LostOffsets(int(offset[i]), int(offset[i]), damage, rows[row[i]], self.side.found(damage)))
        return batch if (inside & grows).all() else keep(batch, inside & grows)

    def _note(self, found: Tally, told: int, rows: Int64s, end: int) -> int:
        for damage in found.damage[told:]:
            inside = rows[
                (rows[:, POSITION] < damage.position + max(damage.size, 1)) & (rows[:, POSITION] + rows[:, SIZE] > damage.position)
            ]
            # What follows the entries was found by the walk of headers.
            if damage.position < end and len(inside):
                low, high = int(inside[:, LOW].min()), int(inside[:, HIGH].max())
                base, last = damage.base_offset, damage.last_offset
                if base is not None and last is not None and low <= base <= last <= high:
                    low, high = base, last
                self.lost.append(LostOffsets(low, high, damage, inside[0], self.side.found(damage)))
        return len(found.damage)


def offsets_of(batch: pa.RecordBatch) -> Int64s:
    return np.asarray(batch["offset"])


class Pair(NamedTuple):
    """Records of both sides up to an offset. ``offset`` has each offset once; ``at`` are for A and for B the number of the record with it,
    -1 without one. ``fields`` are flags of the pairs that differ in a field."""

    offset: Int64s
    batches: tuple[pa.RecordBatch | None, pa.RecordBatch | None]
    at: tuple[Int64s, Int64s]
    fields: dict[str, Flags]

    @property
    def is_different(self) -> Flags:
        different = np.zeros(len(self.offset), bool)
        for flags in self.fields.values():
            different |= flags
        return different

    def of(self, side: int, column: str, otherwise: int) -> Int64s:
        """An integer column by ``offset``; ``otherwise`` where the side has no record."""
        batch, at = self.batches[side], self.at[side]
        if batch is None:
            return np.full(len(self.offset), otherwise, np.int64)
        values = pc.fill_null(batch[column].cast(pa.int64()), otherwise).to_numpy(zero_copy_only=False)
        return np.where(at >= 0, values[np.maximum(at, 0)], otherwise)

    def record(self, side: int, number: int) -> dict[str, Any] | None:
        batch, at = self.batches[side], int(self.at[side][number])
        found: list[dict[str, Any]] = [] if batch is None or at < 0 else batch.slice(at, 1).to_pylist()
        return found[0] if found else None

    def sizes(self, side: int) -> Int64s:
        """Bytes of keys and values."""
        batch, at = self.batches[side], self.at[side]
        if batch is None:
            return np.zeros(len(self.offset), np.int64)
        total = sum(
            pc.fill_null(pc.binary_length(batch[name]).cast(pa.int64()), 0).to_numpy(zero_copy_only=False) for name in ("key", "value")
        )
        return np.where(at >= 0, total[np.maximum(at, 0)], 0)


def pairs(a: Records, b: Records) -> Iterator[Pair]:
    """Compare the records of two sides, a bounded number at a time."""
    reached = -1
    while True:
        a.load(reached)
        b.load(reached)
        if a.batch is None and b.batch is None:
            return
        reached = min(HIGHEST if one.ended else one.last for one in (a, b))
        taken = a.take(reached), b.take(reached)
        if taken != (None, None):
            yield _paired(*taken)


def _paired(a: pa.RecordBatch | None, b: pa.RecordBatch | None) -> Pair:
    offsets = [np.empty(0, np.int64) if batch is None else offsets_of(batch) for batch in (a, b)]
    is_aligned = np.array_equal(offsets[0], offsets[1])
    offset = offsets[0] if is_aligned else np.union1d(*offsets)
    at = [np.full(len(offset), -1, np.int64) for _ in offsets]
    for numbers, own in zip(at, offsets, strict=True):
        numbers[np.searchsorted(offset, own)] = np.arange(len(own))
    fields: dict[str, Flags] = {}
    both = np.flatnonzero((at[0] >= 0) & (at[1] >= 0))
    if a is not None and b is not None and len(both):
        left, right = (a, b) if is_aligned else (a.take(pa.array(at[0][both])), b.take(pa.array(at[1][both])))
        magic = np.minimum(left["magic"].to_numpy(), right["magic"].to_numpy())
        for name, least in COMPARED.items():
            flags = _unequal(left[name], right[name]) & (magic >= least)
            if flags.any():
                fields[name] = np.zeros(len(offset), bool)
                fields[name][both[flags]] = True
    return Pair(offset, (a, b), (at[0], at[1]), fields)


def _unequal(left: pa.Array, right: pa.Array) -> Flags:
    if left.equals(right):
        return np.zeros(len(left), bool)
    if pa.types.is_nested(left.type):
        return np.array([one != other for one, other in zip(left.to_pylist(), right.to_pylist(), strict=True)])
    null = pc.xor(pc.is_null(left), pc.is_null(right))
    return pc.if_else(null, True, pc.fill_null(pc.not_equal(left, right), False)).to_numpy(zero_copy_only=False)


class LiveKeys:
    """The last offset of each key on both sides, without records of aborted transactions, for a compacted topic: of all records, which are
    read when the first differing one is asked about. Memory is that of two `LatestOffsets`. ``parted`` says from leader epochs and log ends
    where the leaders parted."""

    def __init__(self, sides: tuple[Side, Side], parted: Callable[[list[Epochs], list[int]], int | None]) -> None:
        self.sides, self._parted = sides, parted
        self._read: tuple[list[_Latest], int] | None = None

    def counts(self, pair: Pair, which: Flags) -> Flags:
        """Whether records of a pair tell the state of their keys: each is the last one of its key on its side. The other side has no later
        one, which could have made compaction remove it there, unless it never got there; nor has compaction removed a tombstone."""
        counts = np.zeros(len(pair.offset), bool)
        for side in (0, 1):
            batch, at = pair.batches[side], pair.at[side]
            rows = np.flatnonzero(which & (at >= 0))
            if batch is None or not len(rows):
                continue
            latest, parted = self._known()
            records, offset = batch.take(pa.array(at[rows])), pair.offset[rows]
            own, other = latest[side], latest[1 - side]
            last = np.where(offset < own.stable, own.offsets.last(records["key"]), own.unstable.last(records["key"]))
            later = other.offsets.last(records["key"])
            removed = np.asarray(pc.is_null(records["value"])) & (later < 0) & (offset < other.stable)
            counts[rows] |= (last == offset) & ((later <= offset) | (offset >= parted)) & ~removed
        return counts

    def _known(self) -> "tuple[list[_Latest], int]":
        if self._read is None:
            read = [_Latest.of(side) for side in self.sides]
            parted = self._parted([tuple(one.epochs) for one in read], [one.end for one in read])
            self._read = read, HIGHEST if parted is None else parted
        return self._read


@dataclass
class _Latest:
    """What a read of all keys tells: their last offsets below ``stable``, the last stable offset, from which on a cleaner removes nothing,
    and those from there on; leader epochs with their first offsets, and the log end."""

    stable: int = HIGHEST
    offsets: LatestOffsets = field(default_factory=LatestOffsets)
    unstable: LatestOffsets = field(default_factory=LatestOffsets)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0

    @classmethod
    def of(cls, side: Side) -> "_Latest":
        options = replace(side.reading(), columns=_OF_KEYS, include_control=True, on_progress=None)
        readable = [part for part in side.ranges if part.fault is None]
        transactions = of_ranges(readable, options)
        latest = cls(min((first for _, first in transactions.open), default=HIGHEST))
        for batch in scan_ranges([replace(part, transactions=transactions) for part in readable], options, side.unread.append):
            latest.add(batch)
        return latest

    def add(self, batch: pa.RecordBatch) -> None:
        lives = np.asarray(pc.fill_null(pc.not_equal(batch["transaction"], "aborted"), True)) & ~np.asarray(batch["isControl"])
        kept = batch if lives.all() else keep(batch, lives)
        stable = offsets_of(kept) < self.stable
        for latest, which in ((self.offsets, stable), (self.unstable, ~stable)):
            some = kept if which.all() else keep(kept, which)
            latest.add(some["key"], some["offset"])
        self.end = max(self.end, min(int(offsets_of(batch).max(initial=-1)) + 1, HIGHEST))
        epoch = pc.fill_null(batch["leaderEpoch"].cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
        newest = np.maximum.accumulate(np.append(self.epochs[-1][0] if self.epochs else -1, epoch))
        begins = np.flatnonzero(newest[1:] > newest[:-1])
        self.epochs += zip(epoch[begins].tolist(), offsets_of(batch)[begins].tolist(), strict=True)
