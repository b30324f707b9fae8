"""How a log is compacted: which records are the last of their key (pass one), what else stays, and how it is written (pass two).

As ``Cleaner.buildOffsetMap``, ``Cleaner.shouldRetainRecord``, ``CleanedTransactionMetadata`` and ``MemoryRecords.filterTo`` of Kafka 3.9.
An entry that keeps all its records is copied. Batches of format 2 are filtered as bytes (`cpu_fallback/encode/rewrite.py`); what that
leaves, and all other entries, become columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Bytes, Flags, Int64s
from kolumn.core.paths import FILTER, turned_off
from kolumn.core.recycle import take
from kolumn.cpu_fallback.encode.batches import seal
from kolumn.cpu_fallback.encode.rewrite import EMPTIED, LONGER, WHOLE, filter_records
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.damage.findings import Tally
from kolumn.decode.host.aborted import ABORTED, Transactions
from kolumn.decode.host.headers import headers
from kolumn.decode.host.run import Payloads
from kolumn.formats import layouts, table, v2
from kolumn.formats.codecs import NONE
from kolumn.formats.entries import Entries, Entry
from kolumn.log.pieces import Piece, intact, payloads_of_batches, pieces, pieces_of
from kolumn.options import Options
from kolumn.source.segments import Segment
from kolumn.writers.encoders import ENCODERS
from kolumn.writers.entries import Encoded, EntrySettings, PayloadRoom, RecordsIn, Splice, place, stored_columns
from kolumn.writers.last_offsets import LatestOffsets
from kolumn.writers.rewriting.convert import part, with_known_offsets

_OF_KEYS = ("offset", "key", "producerId", "isTransactional", "isControl")
_SEEN = [table.PRODUCER_ID, table.PRODUCER_EPOCH, table.MAX_TIMESTAMP, table.LAST_OFFSET, table.CONTROL]
"""Columns of the batch table that tell what a producer did."""


def per_entry(flags: Flags, counts: Int64s) -> Int64s:
    """Number of flagged records of each entry; the entries have ``counts`` records, one after the other."""
    total, ends = np.append(0, np.cumsum(flags)), np.cumsum(counts)
    return total[ends] - total[ends - counts]


@dataclass
class Producers:
    """The last batch of each active producer. It stays, without records if necessary, since it contains the producer's sequence.
    ``ProducerStateManager``: a data batch of a new epoch replaces the last one, a marker of a new epoch removes it."""

    expiration_ms: int
    now: int
    last: dict[int, tuple[int, int | None, int]] = field(default_factory=dict)

    def see_all(self, segments: list[Segment]) -> list[int]:
        """See the entries of a partition by their headers; returns the last offset of each segment, -1 of one without entries."""
        last = [-1] * len(segments)
        for i, segment in enumerate(segments):
            for entries in headers(segment):
                self.see(entries)
                last[i] = max(last[i], int(entries.last_offset.max()))
        return last

    def see(self, entries: Entries) -> None:
        some = entries.array[entries.producer_id >= 0]
        for producer, epoch, time, offset, control in some[:, _SEEN].tolist():
            if control:
                known = self.last.get(producer, (epoch, None, time))
                offset = known[1] if known[0] == epoch else None
            self.last[producer] = epoch, offset, time

    def is_last(self, entries: Entries) -> Flags:
        flags = np.zeros(len(entries), bool)
        rows = np.flatnonzero(entries.producer_id >= 0)
        for i, (producer, own_epoch, _, last, control) in zip(rows.tolist(), entries.array[rows][:, _SEEN].tolist(), strict=True):
            epoch, offset, time = self.last.get(producer, (0, None, None))
            if time is not None and self.now - time < self.expiration_ms:
                flags[i] = last == offset if offset is not None else control == 1 and own_epoch == epoch
        return flags


@dataclass
class Round:
    """One cleaning round of a partition, of the offsets from ``first_dirty`` to before ``end``, at the time ``now`` in ms. ``observed`` are
    the producers of which a batch of the current transaction was seen; tombstones stay ``retention_ms``."""

    latest: LatestOffsets
    transactions: Transactions
    producers: Producers
    first_dirty: int
    end: int
    now: int
    retention_ms: int
    observed: set[int] = field(default_factory=set)

    @property
    def new_horizon(self) -> int:
        """The delete horizon of batches that get one in this round, in ms."""
        return self.now + self.retention_ms

    def discarded(self, entries: Entries) -> Flags:
        """Flags of the batches that no reader needs: those of aborted transactions, and markers of transactions without other batches."""
        flags = np.zeros(len(entries), bool)
        rows = np.flatnonzero(entries.transactional | entries.control)
        if not len(rows):
            return flags
        some = entries[rows]
        columns = (column.tolist() for column in (rows, some.producer_id, some.transactional, some.control, self.aborted(some)))
        for i, producer, transactional, control, aborted in zip(*columns, strict=True):
            if control:
                flags[i] = bool(transactional) and producer not in self.observed
                self.observed.discard(producer)
            else:
                self.observed.add(producer)
                flags[i] = aborted
        return flags

    def aborted(self, entries: Entries) -> Flags:
        """Flags of the data batches of aborted transactions; never of KIP-98 sets, since a transaction may end inside a set."""
        whole = (entries.transactional == 1) & ~layouts.among(entries.layout, layouts.SETS)
        return self.transactions.states(entries.producer_id, entries.base_offset, whole) == ABORTED

    def aborted_records(self, piece: Piece) -> Flags:
        """Flags of the records of aborted transactions, except control records."""
        in_sets = layouts.among(piece.entries.layout, layouts.SETS)
        if not (piece.entries.transactional.any() or in_sets.any()):
            return np.zeros(piece.records.num_rows, bool)
        flags, sets = np.repeat(self.aborted(piece.entries), piece.counts), np.repeat(in_sets, piece.counts)
        if sets.any():
            producer, offset = (piece.records[name].to_numpy() for name in ("producerId", "offset"))
            flags |= self.transactions.states(producer, offset, sets & np.asarray(piece.records["isTransactional"])) == ABORTED
        return flags & ~np.asarray(piece.records["isControl"])

    def add_keys(self, segment: Segment, options: Options) -> None:
        """Pass one: add the records of a segment that may replace earlier records of their keys to the last offsets."""
        for piece in pieces(segment, options, columns=_OF_KEYS):
            records = piece.records
            usable = ~np.asarray(records["isControl"]) & ~self.aborted_records(piece)
            usable &= records["offset"].to_numpy() >= self.first_dirty
            keys, offsets = records["key"], records["offset"]
            if not usable.all():
                keys, offsets = (column.filter(pa.array(usable)) for column in (keys, offsets))
            self.latest.add(keys, offsets)

    def retained(self, piece: Piece, discard: Flags, legacy_deletes: bool) -> Flags:
        """Flags of the records that stay; ``discard`` flags the entries of which no record does. ``legacy_deletes`` says whether tombstones
        of formats without a delete horizon stay."""
        records, counts = piece.records, piece.counts
        offset, control = records["offset"].to_numpy(), np.asarray(records["isControl"])
        keyed, dead = np.asarray(pc.is_valid(records["key"])), np.asarray(records["tombstone"])
        latest = self.latest.is_latest(offset)
        if (offset < self.first_dirty).any():
            latest |= (offset < self.first_dirty) & ~self.latest.known(records["key"])
        stays = keyed & latest
        if dead.any():
            horizon = np.repeat(np.where(piece.entries.delete_horizon == 1, piece.entries.base_timestamp, self.now + 1), counts)
            has_horizon = np.repeat(layouts.among(piece.entries.layout, layouts.BATCHES), counts)
            stays &= ~dead | np.where(has_horizon, self.now < horizon, legacy_deletes)
        stays |= (offset >= self.end) | control
        return stays & ~np.repeat(discard, counts) & ~self.aborted_records(piece)


COPY, REBUILD, EMPTY, DROP, MERGE = range(5)  # fates of entries


class Fate(NamedTuple):
    """The fate of each entry of a piece, flags of the records that stay, and of the entries that get a delete horizon now."""

    entries: Int64s
    keep: Flags
    horizon: Flags


def _stay_empty(entries: Entries, round: Round) -> Flags:
    return round.producers.is_last(entries) | (entries.last_offset + 1 == round.end)


@dataclass
class Cleaner:
    """Cleans one segment; ``merge`` combines neighbouring compressed message sets, up to the bytes that ``how`` allows a batch. The layout,
    magic and codec of ``how`` are those of each entry. ``records`` and ``retained`` count those before and after."""

    segment: Segment
    round: Round
    options: Options
    how: EntrySettings
    legacy_deletes: bool
    merge: bool
    tally: Tally = field(default_factory=Tally)
    records: int = 0
    retained: int = 0

    def cleaned(self) -> Iterator[Encoded]:
        for source, origin, entries in intact(self.segment, self.options, self.tally):
            plain = entries.layout == v2.LAYOUT.number
            bounds = [0, *(np.flatnonzero(np.diff(plain)) + 1).tolist(), len(entries)]
            for start, stop in pairwise(bounds):
                if start == stop:
                    continue
                if plain[start]:
                    yield from self._batches(source, origin, entries[start:stop])
                    continue
                for piece in self._pieces(source, origin, entries[start:stop]):
                    what = self._fate(piece, self.round.discarded(piece.entries))
                    yield from _rewritten(piece, what, self.round.new_horizon, self.how)

    def _pieces(self, source: Bytes, origin: int, entries: Entries) -> Iterator[Piece]:
        return pieces_of(source, origin, entries, self.segment, self.options, damage=self.tally.damage)

    def _fate(self, piece: Piece, discard: Flags) -> Fate:
        """Decide about the entries of a piece, and count; ``discard`` is what `Round.discarded` says of them."""
        entries, counts, round = piece.entries, piece.counts, self.round
        expired = (entries.delete_horizon == 1) & (entries.base_timestamp <= round.now)
        keep = round.retained(piece, np.where(entries.control == 1, discard & expired, discard), self.legacy_deletes)
        self.records, self.retained = self.records + len(keep), self.retained + int(keep.sum())
        kept = per_entry(keep, counts)
        dead = per_entry(keep & np.asarray(piece.records["tombstone"]), counts) > 0
        headed = layouts.among(entries.layout, layouts.BATCHES)
        horizon = headed & (entries.delete_horizon != 1) & (dead | (discard & (entries.control == 1))) & (kept > 0)
        fates = np.where((kept == counts) & ~horizon & ~piece.partial, COPY, REBUILD)
        fates[kept == 0] = np.where(headed & _stay_empty(entries, round), EMPTY, DROP)[kept == 0]
        if self.merge:
            fates[layouts.among(entries.layout, layouts.MESSAGES) & (entries.codec != NONE) & (kept > 0)] = MERGE
        return Fate(fates, keep, horizon)

    def _batches(self, source: Bytes, origin: int, entries: Entries) -> Iterator[Encoded]:
        discard, out = self.round.discarded(entries), Splice(source, origin, entries.copy())
        left = np.ones(len(entries), bool)
        if FILTER not in turned_off() and len(self.round.latest.marks()[1]):
            plain = (entries.control == 0) & (entries.timestamp_type == table.CREATE_TIME) & ~discard
            plain &= (entries.base_offset >= self.round.first_dirty) & (entries.last_offset < self.round.end)
            rows = np.flatnonzero(plain)
            for some, payloads, good in payloads_of_batches(source, origin, entries[rows], self.options):
                for codec in np.unique(some.codec[good]).tolist():
                    chosen = np.flatnonzero(good & (some.codec == codec))
                    done = self._filter(some[chosen], Payloads(*(column[chosen] for column in payloads)), codec, rows[chosen], out)
                    left[done] = False
                rows = rows[len(some) :]
        needed = np.flatnonzero(left)
        for piece in self._pieces(source, origin, entries[needed]) if len(needed) else ():
            rows = np.searchsorted(entries.position, piece.entries.position)
            what = self._fate(piece, discard[rows])
            out.put(rows[what.entries != DROP], in_place(piece, what, self.round.new_horizon, self.how))
        if out.stays.any():
            yield out.encoded()

    def _filter(self, entries: Entries, payloads: Payloads, codec: int, rows: Int64s, out: Splice) -> Int64s:
        """Put what stays of batches with one codec into ``out``, where they have ``rows``; returns the rows that are done."""
        (lowest, marks), round = self.round.latest.marks(), self.round
        how = replace(self.how, layout=v2.LAYOUT.number, magic=v2.MAGIC, codec=codec)
        gap, made = np.full(len(entries), v2.HEADER if codec == NONE else 0, np.int64), np.empty(len(entries), np.int64)
        counts = entries.count.copy()
        room, _ = take(int((payloads.size + gap + LONGER * counts).sum()) + PAD)
        data = np.frombuffer(room, np.uint8)
        filter_records(
            entries.array, payloads.address, payloads.size, gap, marks.ctypes.data, lowest, len(marks), round.now,
            round.new_horizon, data.ctypes.data, made,
        )  # fmt: skip
        whole, dropped, good = made == WHOLE, (made == EMPTIED) & ~_stay_empty(entries, round), made >= 0
        out.keep(rows[whole])
        if good.any():
            laid = PayloadRoom(data, np.cumsum(made[good] + gap[good]) - made[good], made[good])
            encoded = place(laid, entries[good], ENCODERS[how.layout].header_sizes, how)
            seal(encoded.data.ctypes.data, encoded.entries.array)
            out.put(rows[good], encoded)
        done = whole | dropped | good
        self.records += int(counts[done].sum())
        self.retained += int(entries.count[whole | good].sum())
        return rows[done]


def _rewritten(piece: Piece, what: Fate, new_horizon: int, how: EntrySettings) -> Iterator[Encoded]:
    layout, magic, codec = piece.entries.layout, piece.entries.magic, piece.entries.codec
    merged = what.entries == MERGE
    changes = merged[1:] & ((np.diff(layout) != 0) | (np.diff(magic) != 0) | (np.diff(codec) != 0))
    bounds = [0, *(np.flatnonzero(changes | (merged[1:] != merged[:-1])) + 1).tolist(), len(piece.entries)]
    for start, stop in pairwise(bounds):
        if start == stop:
            return
        some, first = part(piece, start, stop), int(piece.counts[:start].sum())
        keep = what.keep[first : first + some.records.num_rows]
        if merged[start]:
            settings = _like(some.entries[0], how)
            given = RecordsIn.of_log(stored_columns(some.records.filter(pa.array(keep)), settings.layout))
            encoder = ENCODERS[settings.layout]
            yield encoder.put(given, encoder.group(given, settings, last=True), settings)
        else:
            yield in_place(some, Fate(what.entries[start:stop], keep, what.horizon[start:stop]), new_horizon, how)


def _like(entry: Entry, how: EntrySettings) -> EntrySettings:
    return replace(how, layout=entry.layout, magic=entry.magic, codec=entry.codec)


def in_place(piece: Piece, what: Fate, new_horizon: int, how: EntrySettings) -> Encoded:
    """Entries that are copied, and between them those that are encoded again: all that are alike at once, wherever they are. Those that get
    a delete horizon get ``new_horizon``, in ms."""
    fates, out = what.entries, Splice(piece.source, piece.origin, with_known_offsets(piece))
    out.keep(np.flatnonzero(fates == COPY))
    kept = per_entry(what.keep, piece.counts)
    alike = np.stack([fates, piece.entries.layout, piece.entries.magic, piece.entries.codec], axis=1)
    for group in np.unique(alike[(fates == REBUILD) | (fates == EMPTY)], axis=0):
        chosen = (alike == group).all(axis=1)
        records = piece.records.filter(pa.array(np.repeat(chosen, piece.counts) & what.keep))
        rows = np.flatnonzero(chosen)
        settings = _like(piece.entries[int(rows[0])], how)
        out.put(rows, rebuilt(records, piece.entries[rows], kept[rows], what.horizon[rows], new_horizon, settings))
    return out.encoded()


def rebuilt(records: pa.RecordBatch, source: Entries, kept: Int64s, horizon: Flags, new_horizon: int, how: EntrySettings) -> Encoded:
    """Encode the entries with their retained records; base offset, last offset, sequence and producer are kept."""
    given = RecordsIn.of_log(stored_columns(records, how.layout))
    first, last, some = np.cumsum(kept) - kept, np.cumsum(kept) - 1, kept > 0
    entries = source.copy()
    entries.count = kept
    if layouts.holds_messages(how.layout):
        entries.base_offset[some], entries.last_offset[some] = given.offset[first[some]], given.offset[last[some]]
    elif layouts.holds_records(how.layout):
        set_before = entries.delete_horizon == 1
        entries.base_timestamp[some & ~set_before] = given.timestamp[first[some & ~set_before]]
        entries.base_timestamp[horizon] = new_horizon
        entries.base_timestamp[~some] = -1
        entries.delete_horizon = (set_before | horizon) & some
    entries.codec[~some] = NONE
    created = some & (entries.timestamp_type != table.LOG_APPEND_TIME)
    if created.any():
        highest = np.maximum.reduceat(given.timestamp, first[some])
        entries.max_timestamp[created] = highest[created[some]]
    encoder = ENCODERS[how.layout]
    return encoder.put(given, encoder.regroup(given, first, entries, how), how)
