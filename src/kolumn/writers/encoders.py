"""Rows become entries: an encoder for each kind of layout.

Batches of formats 2 and 3 and of Redpanda, message sets of the KIP-98 draft, messages of formats 0 and 1 and of KIP-87, and enriched
messages. Messages are one entry each, or with a codec several are in a wrapper.
"""

from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import AnyArray, Bytes, Int64s
from kolumn.core.errors import ArgumentError
from kolumn.core.recycle import take
from kolumn.cpu_fallback.encode import batches, messages, sets, tagged
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.formats import enriched, kip87, kip98_draft, layouts, legacy, redpanda, v2
from kolumn.formats.codecs import NONE, ZSTD
from kolumn.formats.entries import Entries
from kolumn.writers.entries import ABSENT, Encoded, EntrySettings, Groups, RecordsIn, batch_rows, cuts, lay_out, place, refuse_large, whole

_ENTRIES = 4096  # entries that are encoded at a time
_LARGEST_SECONDS = 2**31 - 1


class Encoder:
    """Encodes entries of some layouts with their loops; raises `ArgumentError` for a record that the layout cannot store. ``has_bodies``:
    the loops note the size of each record's body, in an array with a row for each record."""

    loops: ModuleType
    has_bodies = True

    def group(self, given: RecordsIn, how: EntrySettings, last: bool) -> Groups:
        """Decide which rows share an entry; see `entries.whole`."""
        self.prepare(given, how)
        rows = given.records.rows
        first, size, body = np.empty(rows, np.int64), np.empty(rows, np.int64), self._bodies(rows)
        most = 1 if how.codec == NONE and not self.has_bodies else how.batch_records
        bodies = () if body is None else (body.ctypes.data,)
        count = self.loops.split(
            given.records, *self.extra(given, how), cuts(given), how.batch_bytes, most, *bodies, first, size
        )  # fmt: skip
        return whole(given, first, size, count, last, body)

    def regroup(self, given: RecordsIn, first: Int64s, entries: Entries, how: EntrySettings) -> Groups:
        """Keep given entries, rows of the batch table with their header fields: ``first`` is the first row of each."""
        rows, size = given.records.rows, np.empty(len(first), np.int64)
        body = self._bodies(rows)
        bodies = () if body is None else (entries.array, body.ctypes.data)
        self.loops.measure(given.records, *self.extra(given, how), first, rows, *bodies, size)
        return Groups(first, size, rows, entries, body)

    def put(self, given: RecordsIn, groups: Groups, how: EntrySettings) -> Encoded:
        entries = groups.rows(given, how)
        laid = lay_out(groups, entries, self.header_sizes(entries, groups.size, how))
        self.fill(given, groups, how, entries.array, laid.data.ctypes.data + laid.start)
        encoded = place(laid, entries, self.header_sizes, how)
        self.seal(encoded.data.ctypes.data, encoded.entries.array, how)
        return encoded

    def _bodies(self, rows: int) -> AnyArray | None:
        return np.empty(rows, np.int32) if self.has_bodies else None

    def prepare(self, given: RecordsIn, how: EntrySettings) -> None:
        """Refuse records that the layout cannot store, and leave out columns that it drops without an error."""

    def extra(self, given: RecordsIn, how: EntrySettings) -> tuple[int, ...]:
        return ()

    def header_sizes(self, entries: Entries, size: Int64s, how: EntrySettings) -> Int64s:
        raise NotImplementedError

    def fill(self, given: RecordsIn, groups: Groups, how: EntrySettings, rows: Int64s, to: Int64s) -> None:
        """Write the records of each entry to its address in ``to``; ``rows`` are the entries' rows of the batch table."""
        raise NotImplementedError

    def seal(self, data: int, rows: Int64s, how: EntrySettings) -> None:
        self.loops.seal(data, rows)


class _Batches(Encoder):
    loops = batches

    def extra(self, given: RecordsIn, how: EntrySettings) -> tuple[int, ...]:
        return (layouts.attribute_bytes(how.layout),)

    def header_sizes(self, entries: Entries, size: Int64s, how: EntrySettings) -> Int64s:
        headers = np.full(len(entries), v2.HEADER, np.int64)
        if len(entries) and entries.layout[0] not in (v2.LAYOUT.number, redpanda.LAYOUT.number):
            batches.compact_headers(entries.array, size, headers)
        return headers

    def fill(self, given: RecordsIn, groups: Groups, how: EntrySettings, rows: Int64s, to: Int64s) -> None:
        assert groups.body is not None
        skip = layouts.attribute_bytes(how.layout)
        batches.fill(given.records, skip, groups.first, groups.stop, rows, groups.body.ctypes.data, to)


class _Sets(Encoder):
    """Message sets of the KIP-98 draft. Leader epochs are left out without an error."""

    loops = sets

    def prepare(self, given: RecordsIn, how: EntrySettings) -> None:
        if how.codec == ZSTD:
            raise ArgumentError("codec='zstd': format kip98-draft has the codecs none, gzip, snappy and lz4")
        if given.headers:
            raise ArgumentError(f"column 'headers': {given.headers} headers, and format kip98-draft has none; drop the column")
        given.numbers.pop("leaderEpoch", None)

    def header_sizes(self, entries: Entries, size: Int64s, how: EntrySettings) -> Int64s:
        return np.full(len(entries), kip98_draft.HEADER, np.int64)

    def fill(self, given: RecordsIn, groups: Groups, how: EntrySettings, rows: Int64s, to: Int64s) -> None:
        control = given.numbers.get("isControl")
        marks = None if control is None else np.ascontiguousarray(control.astype(np.uint8))
        for row in () if marks is None else np.flatnonzero(marks).tolist():
            key = given.table["key"][row].as_py() if "key" in given.table.schema.names else None
            if key is None or len(key) < 4:
                raise ArgumentError(f"column 'key': the control record at offset {given.offset[row]} needs a version and a type, 4 bytes")
        sets.fill(given.records, 0 if marks is None else marks.ctypes.data, groups.first, groups.stop, rows, to)


class _Messages(Encoder):
    """Messages of formats 0 and 1 and of KIP-87. Producer ids, epochs and sequences of idempotent producers, leader epochs, and in format 0
    timestamps are left out without an error."""

    loops = messages
    has_bodies = False

    def prepare(self, given: RecordsIn, how: EntrySettings) -> None:
        _refuse(given, how)
        if how.magic == 0:
            given.timestamp = np.full(given.records.rows, -1, np.int64)
            given.records = given.records._replace(timestamp=given.timestamp.ctypes.data)
            given.numbers.pop("timestampType", None)
        given.numbers = {name: values for name, values in given.numbers.items() if name == "timestampType"}

    def extra(self, given: RecordsIn, how: EntrySettings) -> tuple[int, ...]:
        return (how.magic,)

    def header_sizes(self, entries: Entries, size: Int64s, how: EntrySettings) -> Int64s:
        return np.where(entries.codec == NONE, 0, legacy.message_size(how.magic, -1, 0))

    def put(self, given: RecordsIn, groups: Groups, how: EntrySettings) -> Encoded:
        if groups.entries is not None or how.codec != NONE or not len(groups.first):
            return super().put(given, groups, how)
        marks, types = _tombstone_bits(given, how), given.numbers.get("timestampType")
        refuse_large(groups, 0)
        size = int(groups.size.sum())
        room, _ = take(size + PAD)
        data, entries = np.frombuffer(room, np.uint8), Entries.room(len(groups.first))
        row = batch_rows(given, groups.first[:1], int(groups.first[0]) + 1, how).array[0]
        messages.put_singles(
            given.records, how.magic, marks, 0 if types is None else types.ctypes.data, int(groups.first[0]), entries.array, row,
            data.ctypes.data,
        )  # fmt: skip
        return Encoded(data[:size], entries)

    def fill(self, given: RecordsIn, groups: Groups, how: EntrySettings, rows: Int64s, to: Int64s) -> None:
        messages.fill(given.records, how.magic, _tombstone_bits(given, how), groups.first, groups.stop, rows, to)

    def seal(self, data: int, rows: Int64s, how: EntrySettings) -> None:
        messages.wrap(data, rows, how.magic)


class _TaggedMessages(Encoder):
    """Enriched messages. Producer fields and leader epochs are left out without an error."""

    loops = tagged
    has_bodies = False

    def prepare(self, given: RecordsIn, how: EntrySettings) -> None:
        _refuse(given, how, allows_control=True)
        given.numbers = {name: values for name, values in given.numbers.items() if name == "isControl"}

    def extra(self, given: RecordsIn, how: EntrySettings) -> tuple[int, ...]:
        return (times_of(given).tagged.ctypes.data,)

    def header_sizes(self, entries: Entries, size: Int64s, how: EntrySettings) -> Int64s:
        return np.where(entries.codec == NONE, 0, enriched.message_size(tagged.WRAPPER_TAGS, -1, 0))

    def fill(self, given: RecordsIn, groups: Groups, how: EntrySettings, rows: Int64s, to: Int64s) -> None:
        times, types = times_of(given), given.once("types", _message_types)
        addresses = (times.tagged.ctypes.data, types.ctypes.data, times.seconds.ctypes.data)
        tagged.fill(given.records, *addresses, groups.first, groups.stop, rows, to)

    def seal(self, data: int, rows: Int64s, how: EntrySettings) -> None:
        tagged.wrap(data, rows)


def _refuse(given: RecordsIn, how: EntrySettings, allows_control: bool = False) -> None:
    name = layouts.FORMAT_NAMES[how.format] if how.layout != legacy.LAYOUT.number else str(how.magic)
    if how.codec == ZSTD:
        raise ArgumentError(f"codec='zstd': format {name} has the codecs none, gzip, snappy and lz4")
    for column, what in (("isControl", "control records"), ("isTransactional", "records of transactions")):
        values = given.numbers.get(column)
        if values is not None and (values != ABSENT[column]).any() and not (allows_control and column == "isControl"):
            raise ArgumentError(f"column {column!r}: format {name} has no {what}; leave those rows out, or write magic=2")
    if given.headers:
        raise ArgumentError(f"column 'headers': {given.headers} headers, and format {name} has none; drop the column, or write magic=2")


def _tombstone_bits(given: RecordsIn, how: EntrySettings) -> int:
    """Address of the tombstone bit of each message, 0 for a layout without one."""
    return given.once("tombstones", _tombstones).ctypes.data if layouts.LAYOUTS[how.layout].tombstone_bit else 0


def _tombstones(given: RecordsIn) -> Bytes:
    """The tombstone bit of each message: from the column ``tombstone``, or where it is null, set if there is no value."""
    names = given.table.schema.names
    flags = empty = pc.is_null(given.table["value"]) if "value" in names else pa.array(np.ones(given.records.rows, bool))
    if "tombstone" in names:
        flags = pc.coalesce(given.table["tombstone"].cast(pa.bool_()), empty)
        wrong = pc.and_not(empty, flags)
        if pc.any(wrong).as_py() and not given.from_log:
            row = pc.index(wrong, True).as_py()
            raise ArgumentError(
                f"column 'tombstone': the record at offset {given.offset[row]} has no value and is not a tombstone; readers of "
                "older formats would take it for one; give it a value, or leave tombstone null"
            )
    return np.asarray(flags).astype(np.uint8) * np.uint8(kip87.TOMBSTONE)


class MessageTimes(NamedTuple):
    """``seconds`` (int32) of each message, and flags (uint8) of the messages that also need a broker timestamp."""

    seconds: AnyArray
    tagged: Bytes


def times_of(given: RecordsIn) -> MessageTimes:
    """Timestamps in whole seconds; a message whose timestamp is not a whole second is flagged, since it also needs milliseconds."""
    times: MessageTimes = given.once("times", _times)
    return times


def _times(given: RecordsIn) -> MessageTimes:
    exact, names = given.timestamp, given.table.schema.names
    seconds = exact // 1000
    seconds = np.where((seconds < 0) | (seconds > _LARGEST_SECONDS), -1, seconds)
    # Cheaper than a remainder.
    flags = np.where(seconds < 0, exact != -1, exact != seconds * 1000)
    if "brokerTimestampMs" in names and given.table["brokerTimestampMs"].null_count < len(exact):
        flags |= pc.is_valid(given.table["brokerTimestampMs"]).to_numpy()
    if "timestampSeconds" in names and given.table["timestampSeconds"].null_count < len(exact):
        known = pc.is_valid(given.table["timestampSeconds"]).to_numpy()
        stored = pc.fill_null(given.table["timestampSeconds"].cast(pa.int64()), -1).to_numpy()
        seconds = np.where(known & (flags | (stored * 1000 == exact)), stored, seconds)
    return MessageTimes(np.ascontiguousarray(seconds.astype(np.int32)), np.ascontiguousarray(flags.astype(np.uint8)))


def _message_types(given: RecordsIn) -> Bytes:
    """Types of enriched messages: a plain message, or a type of control record."""
    types, control = np.zeros(given.records.rows, np.uint8), given.numbers.get("isControl")
    if control is None or not control.any():
        return types
    names = given.table["controlType"].to_pylist() if "controlType" in given.table.schema.names else [None] * len(types)
    for row in np.flatnonzero(control).tolist():
        if names[row] not in enriched.CONTROL_TYPES:
            raise ArgumentError(
                f"column 'controlType': {names[row]} at offset {given.offset[row]}: expected one of {', '.join(enriched.CONTROL_TYPES)}"
            )
        types[row] = enriched.FIRST_CONTROL + enriched.CONTROL_TYPES.index(names[row])
    return types


ENCODERS: dict[int, Encoder] = {
    **dict.fromkeys(layouts.BATCHES, _Batches()), **dict.fromkeys(layouts.SETS, _Sets()), **dict.fromkeys(layouts.MESSAGES, _Messages()),
    enriched.LAYOUT.number: _TaggedMessages(),
}  # fmt: skip
"""The encoder of each layout."""


def encode(given: RecordsIn, how: EntrySettings, last: bool) -> tuple[Encoded, int]:
    """Encode the rows that make complete entries; returns these and how many rows they have. Unless ``last``, more rows follow, and the
    last entry is left for the next call."""
    groups = ENCODERS[how.layout].group(given, how, last)
    return ENCODERS[how.layout].put(given, groups, how), groups.stop


def in_parts(given: RecordsIn, groups: Groups, how: EntrySettings) -> Iterator[Encoded]:
    """Encode groups, some entries at a time: messages are many, and their table has to stay in the CPU's cache."""
    for start in range(0, len(groups.first), _ENTRIES):
        yield ENCODERS[how.layout].put(given, groups.part(start, min(start + _ENTRIES, len(groups.first))), how)
