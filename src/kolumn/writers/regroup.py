"""Records and entries in another layout: records are changed so that it can store them, what is lost is counted, and entries are made.

Batches stay together, single messages are combined up to a size. Batches of format 2 become messages of formats 0 and 1 without a codec
as bytes, without columns, as far as that loses nothing else.
"""

import struct
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Bytes, Flags, Int64s
from kolumn.core.errors import ArgumentError
from kolumn.core.paths import DOWN_CONVERSION, turned_off
from kolumn.core.recycle import take
from kolumn.cpu_fallback.encode.rewrite import down_convert
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.decode.host import aborted
from kolumn.decode.host.aborted import Transactions
from kolumn.decode.host.run import Payloads
from kolumn.formats import layout as contents
from kolumn.formats import layouts, legacy, redpanda, table, v2
from kolumn.formats.codecs import NONE, ZSTD
from kolumn.formats.codecs.known import NAMES
from kolumn.formats.entries import Entries
from kolumn.log.pieces import Piece, payloads_of_batches
from kolumn.options import Options
from kolumn.writers.encoders import ENCODERS, in_parts
from kolumn.writers.entries import ABSENT, Encoded, EntrySettings, Groups, RecordsIn

LOST_ABORTED = "records of aborted transactions"
LOST_OPEN = "records of open transactions"
_HEADED = (*layouts.BATCHES, *layouts.SETS)  # layouts whose header stays valid when records are missing
_KEPT = [
    table.BASE_OFFSET, table.LAST_OFFSET, table.TIMESTAMP_TYPE, table.BASE_TIMESTAMP, table.MAX_TIMESTAMP, table.PRODUCER_ID,
    table.PRODUCER_EPOCH, table.BASE_SEQUENCE, table.LEADER_EPOCH, table.TRANSACTIONAL, table.CONTROL,
]  # fmt: skip
_WHOLE, _PACKED, _SINGLE = range(3)
"""Treatment of an entry: it keeps its header, its records stay together, or its single record may be combined with others."""
_LARGEST = 2**31 - 1
_MESSAGES = 4096  # messages that are written at a time: their table has to stay in the CPU's cache


class Losses(Counter[str]):
    def note(self, what: str, count: int) -> None:
        if count:
            self[what] += count


def with_data(entries: Entries, lost: Losses) -> Flags:
    """Flags of batches of Redpanda that hold records of clients; the others are counted as lost."""
    elsewhere, data = entries.batch_type == redpanda.ELSEWHERE, entries.batch_type == redpanda.DATA
    lost.note(contents.ELSEWHERE, int(elsewhere.sum()))
    lost.note(contents.OWN_TYPES, int((~data & ~elsewhere).sum()))
    return data


@dataclass(frozen=True)
class Changes:
    """The requested conversion: into ``how``, with ``timestamp`` as LogAppendTime in ms for records that have no timestamp.
    ``transactions`` are those of the partition, if transactional records are to be dropped."""

    how: EntrySettings
    timestamp: int | None
    transactions: Transactions | None

    @property
    def held(self) -> frozenset[str]:
        """The properties of records that the target can store, in addition to offsets, keys and values."""
        return layouts.LAYOUTS[self.how.layout].holds[self.how.magic]


@dataclass
class Regrouped:
    """Records that become entries of one layout and with one codec. If ``entries`` are given, these keep their header fields, and ``first``
    is the first record of each; otherwise they follow from the records."""

    given: RecordsIn
    how: EntrySettings
    first: Int64s | None = None
    entries: Entries | None = None

    def groups(self) -> Groups:
        encoder = ENCODERS[self.how.layout]
        if self.entries is None or self.first is None:
            return encoder.group(self.given, self.how, last=True)
        return encoder.regroup(self.given, self.first, self.entries, self.how)


def regroup(piece: Piece, changes: Changes, codec: int | None, lost: Losses) -> Iterator[Encoded]:
    """Encode the records of a piece in the target's layout; parameters and errors are those of `regrouped`."""
    for part in regrouped(piece, changes, codec, lost):
        yield from in_parts(part.given, part.groups(), part.how)


def regrouped(piece: Piece, changes: Changes, codec: int | None, lost: Losses) -> Iterator[Regrouped]:
    """Records of a piece as the target's layout can store them, in the order of the log; ``codec`` None keeps that of each entry. Losses
    are added to ``lost``. Raises `ArgumentError` if the target does not support the codec."""
    entries, how = piece.entries, changes.how
    treatments = _treatments(piece, changes)
    codecs = entries.codec if codec is None else np.where(entries.control == 1, NONE, codec)
    if not layouts.holds_records(how.layout) and (codecs == ZSTD).any():
        name, why = layouts.FORMAT_NAMES[how.format], "is what batches of the source have" if codec is None else "is asked for"
        raise ArgumentError(f"codec zstd {why}, and format {name} with magic {how.magic} has {', '.join(NAMES[:ZSTD])}: give codec=")
    if contents.HORIZONS not in changes.held:
        lost.note(contents.HORIZONS, int(entries.delete_horizon.sum()))
    lost.note(contents.EMPTY, int(((piece.counts == 0) & (treatments != _WHOLE)).sum()))
    bounds = [0, *(np.flatnonzero((np.diff(treatments) != 0) | (np.diff(codecs) != 0)) + 1).tolist(), len(entries)]
    for start, stop in pairwise(bounds):
        own, counts = replace(how, codec=int(codecs[start])), piece.counts[start:stop]
        entry, layout = np.repeat(np.arange(start, stop), counts), np.repeat(entries.layout[start:stop], counts)
        records = piece.records.slice(int(piece.counts[:start].sum()), int(counts.sum()))
        records, entry = _retargeted(records, entry, layout, changes, lost)
        if treatments[start] == _WHOLE:
            yield _whole(records, entry - start, entries[start:stop], own)
        elif records.num_rows:
            given = RecordsIn.of_log(records)
            if treatments[start] == _PACKED:
                own = replace(own, batch_bytes=_LARGEST, batch_records=_LARGEST)
                given.cut = np.append(False, np.diff(entry) != 0)
            yield Regrouped(given, own)


def _treatments(piece: Piece, changes: Changes) -> Int64s:
    layout, counts = piece.entries.layout, piece.counts
    treatments = np.where(np.isin(layout, _HEADED) | (piece.entries.codec != NONE), _PACKED, _SINGLE)
    if changes.how.layout in _HEADED and changes.transactions is None and changes.timestamp is None:
        control = np.asarray(piece.records["isControl"]).astype(np.int64)
        marked = np.add.reduceat(np.append(control, 0), piece.first) * (counts > 0)
        treatments[np.isin(layout, _HEADED) & ((marked == 0) | (marked == counts))] = _WHOLE
    return treatments


def _whole(records: pa.RecordBatch, entry: Int64s, source: Entries, how: EntrySettings) -> Regrouped:
    """Entries with their original header fields; ``entry`` is the number of each record's entry."""
    given = RecordsIn.of_log(records)
    counts = np.bincount(entry, minlength=len(source))
    first = np.cumsum(counts) - counts
    entries = Entries.zeros(len(source))
    entries.array[:, _KEPT] = source.array[:, _KEPT]
    entries.layout, entries.magic, entries.codec = how.layout, how.magic, np.where(counts > 0, how.codec, NONE)
    entries.count = counts
    if not layouts.is_set(how.layout):
        entries.delete_horizon = source.delete_horizon
        drafts = layouts.among(source.layout, layouts.SETS)
        if drafts.any():
            some = drafts & (counts > 0)
            entries.base_timestamp[some] = given.timestamp[first[some]]
            entries.control[some] = given.numbers["isControl"][first[some]]
    return Regrouped(given, how, first, entries)


def _retargeted(records: pa.RecordBatch, entry: Int64s, layout: Int64s, changes: Changes, lost: Losses) -> tuple[pa.RecordBatch, Int64s]:
    """Records (`pieces.COLUMNS`) as the target can store them, and the entry of each; losses are added to ``lost``. ``entry`` and
    ``layout`` are the number of the source's entry and its layout, for each record."""
    keep = _kept(records, layout, changes, lost)
    if not keep.all():
        records, entry = records.filter(pa.array(keep)), entry[keep]
    columns = dict(zip(records.schema.names, records.columns, strict=True))
    _change_timestamps(columns, changes, lost)
    _change_producers(columns, changes, lost)
    if contents.DELETES not in changes.held:
        _change_tombstones(columns, lost)
    if contents.HEADERS not in changes.held:
        lost.note(contents.HEADERS, pc.sum(pc.list_value_length(columns.pop("headers"))).as_py() or 0)
    if contents.MARKERS in changes.held:
        columns["key"] = _control_keys(columns, changes.how.layout)
    return pa.RecordBatch.from_pydict(columns), entry


def _kept(records: pa.RecordBatch, layout: Int64s, changes: Changes, lost: Losses) -> Flags:
    control = np.asarray(records["isControl"])
    keep = np.ones(len(control), bool)
    if changes.transactions is not None:
        producer, offset = records["producerId"].to_numpy(), records["offset"].to_numpy()
        states = changes.transactions.states(producer, offset, np.asarray(records["isTransactional"]))
        for state, what in ((aborted.ABORTED, LOST_ABORTED), (aborted.OPEN, LOST_OPEN)):
            dropped = (states == state) & ~control
            lost.note(what, int(dropped.sum()))
            keep &= ~dropped
    if not control.any():
        return keep
    ends = np.asarray(pc.fill_null(pc.is_in(records["controlType"], pa.array(["COMMIT", "ABORT"])), False))
    typed = layouts.among(layout, layouts.TYPED_CONTROL)
    for what, which in (
        (contents.TYPED_CONTROL, control & typed),
        (contents.MARKERS, control & ~typed & ends),
        (contents.OTHER_CONTROL, control & ~typed & ~ends),
    ):
        if what not in changes.held or changes.transactions is not None:
            lost.note(what, int(which.sum()))
            keep &= ~which
    return keep


def _change_timestamps(columns: dict[str, pa.Array], changes: Changes, lost: Losses) -> None:
    time, type = columns["timestampMs"].to_numpy(), columns["timestampType"].to_numpy()
    if changes.timestamp is not None and contents.APPEND_TIMES in changes.held:
        columns["timestampMs"] = pa.array(np.where(time == -1, changes.timestamp, time))
        columns["timestampType"] = pa.array(np.where(time == -1, table.LOG_APPEND_TIME, type))
    if contents.TIMESTAMPS not in changes.held:
        lost.note(contents.TIMESTAMPS, int((time != -1).sum()))
    elif contents.APPEND_TIMES not in changes.held:
        lost.note(contents.APPEND_TIMES, int((type == table.LOG_APPEND_TIME).sum()))
    if contents.APPEND_TIMES not in changes.held:
        columns["timestampType"] = pa.array(np.full(len(time), table.CREATE_TIME, np.int32))
    if contents.SECONDS not in changes.held:
        seconds, broker = columns.pop("timestampSeconds"), columns.pop("brokerTimestampMs")
        if seconds.null_count < len(seconds):
            lost.note(contents.SECONDS, pc.sum(pc.and_(pc.is_valid(seconds), pc.is_valid(broker))).as_py() or 0)


def _change_producers(columns: dict[str, pa.Array], changes: Changes, lost: Losses) -> None:
    if contents.LEADER_EPOCHS not in changes.held:
        lost.note(contents.LEADER_EPOCHS, int((columns.pop("leaderEpoch").to_numpy() != -1).sum()))
    transactional = np.asarray(columns["isTransactional"])
    if (contents.TRANSACTIONS not in changes.held or changes.transactions is not None) and transactional.any():
        lost.note(contents.TRANSACTIONS, int(transactional.sum()))
        columns["isTransactional"] = pa.array(np.zeros(len(transactional), bool))
    if contents.PRODUCERS not in changes.held or changes.transactions is not None:
        gone = columns["producerId"].to_numpy() != -1
        if contents.PRODUCERS in changes.held:
            gone &= transactional
        lost.note(contents.PRODUCERS, int(gone.sum()))
        for name in ("producerId", "producerEpoch", "sequence") if gone.any() else ():
            columns[name] = pa.array(np.where(gone, ABSENT[name], columns[name].to_numpy()), columns[name].type)


def _change_tombstones(columns: dict[str, pa.Array], lost: Losses) -> None:
    """Tombstones with a value become tombstones without one, where the target has no flag: a null value marks them."""
    dead, empty = columns.pop("tombstone"), pc.is_null(columns["value"])
    alive = pc.and_not(pc.and_not(empty, dead), columns["isControl"])
    lost.note(contents.TOMBSTONES, pc.sum(alive).as_py() or 0)
    payload = pc.and_not(dead, empty)
    if (deleted := pc.sum(payload).as_py() or 0) > 0:
        lost.note(contents.DELETES, deleted)
        columns["value"] = pc.if_else(payload, pa.scalar(None, pa.binary()), columns["value"])


def _control_keys(columns: dict[str, pa.Array], layout: int) -> pa.Array:
    """Keys with control types numbered as in the layout: the numbers of COMMIT and ABORT are swapped in the KIP-98 draft."""
    control = np.asarray(columns["isControl"])
    if not control.any():
        return columns["key"]
    keys, names = columns["key"].to_pylist(), columns["controlType"].to_pylist()
    numbers = layouts.LAYOUTS[layout].control_types
    for row in np.flatnonzero(control).tolist():
        if names[row] in ("COMMIT", "ABORT"):
            keys[row] = keys[row][:2] + struct.pack(">h", numbers.index(names[row])) + keys[row][4:]
    return pa.array(keys, pa.binary())


def down_converted(
    source: Bytes, origin: int, entries: Entries, changes: Changes, codec: int | None, options: Options, lost: Losses
) -> Generator[Encoded, None, int]:
    """Write the first ones of some entries with right checksums as messages; the other parameters are those of `regrouped`. Returns how
    many entries became messages. What follows is another conversion, is damaged, or has contents that are lost one by one."""
    how, done = changes.how, 0
    if DOWN_CONVERSION in turned_off() or how.layout != legacy.LAYOUT.number or codec not in (None, NONE):
        return 0
    if changes.timestamp is not None or changes.transactions is not None:
        return 0
    other = (entries.layout != v2.LAYOUT.number) | (entries.timestamp_type != table.CREATE_TIME)
    other |= (entries.transactional | entries.control) != 0
    if codec is None:
        other |= entries.codec != NONE
    most = int(np.argmax(other)) if other.any() else len(entries)
    for left, payloads, good in payloads_of_batches(source, origin, entries[:most], options):
        stop = len(left) if good.all() else int(np.argmin(good))
        start, ends = 0, np.cumsum(left.count[:stop])
        while start < stop:
            before = int(ends[start - 1]) if start else 0
            end = max(int(np.searchsorted(ends, before + _MESSAGES, side="right")), start + 1)
            some = Payloads(*(column[start:end] for column in payloads))
            made, encoded = _messages(left[start:end], some, changes, lost)
            if len(encoded.entries):
                yield encoded
            start, done = start + made, done + made
            if start < end:
                return done
        if stop < len(left):
            break
    return done


def _messages(entries: Entries, payloads: Payloads, changes: Changes, lost: Losses) -> tuple[int, Encoded]:
    """Write batches as messages, up to one that has to become columns: how many batches, and the messages."""
    own, records, magic = Entries.zeros(1), int(entries.count.sum()), changes.how.magic
    own.magic, own.layout, own.codec, own.count = magic, changes.how.layout, NONE, 1
    own.producer_id = own.producer_epoch = own.base_sequence = own.leader_epoch = -1
    room, _ = take(int(payloads.size.sum()) + legacy.message_size(magic, 0, 0) * records + PAD)
    data, out = np.frombuffer(room, np.uint8), Entries.room(records)
    done, count, size, timed = down_convert(
        entries.array, payloads.address, payloads.size, magic, own.array[0], out.array, data.ctypes.data
    )  # fmt: skip
    entries = entries[:done]
    counts = entries.count
    for what, number in (
        (contents.HORIZONS, entries.delete_horizon.sum()),
        (contents.EMPTY, (counts == 0).sum()),
        (contents.LEADER_EPOCHS, counts[entries.leader_epoch != -1].sum()),
        (contents.PRODUCERS, counts[entries.producer_id != -1].sum()),
        (contents.TIMESTAMPS, timed),
    ):
        if what not in changes.held:
            lost.note(what, int(number))
    return done, Encoded(data[:size], out[:count])
