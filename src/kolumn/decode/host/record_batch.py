"""The columns from the batch table, and the Arrow record batch with all columns."""

import logging
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Bytes, Flags, Int64s
from kolumn.core.buffers import constant, flags, keep, numbers, optional_strings, strings
from kolumn.core.errors import shown
from kolumn.core.recycle import take
from kolumn.core.schema import RAW_HEADERS, record_schema
from kolumn.core.text import in_column
from kolumn.cpu_fallback.columns.columns import ones
from kolumn.cpu_fallback.columns.timestamps import microseconds
from kolumn.cpu_fallback.fields.target import LARGEST, NO_TIME
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.decode.host.run import Run
from kolumn.formats import layouts, table, v2
from kolumn.formats.codecs.known import NAMES
from kolumn.formats.entries import Entries
from kolumn.options import Options
from kolumn.source.segments import Segment

logger = logging.getLogger("kolumn")
_told: set[str] = set()
"""Paths of segments that a warning was about."""
_LARGEST_SEQUENCE = 2**31 - 1

_REPEATED = {
    "timestampType": table.TIMESTAMP_TYPE,
    "producerId": table.PRODUCER_ID,
    "producerEpoch": table.PRODUCER_EPOCH,
    "leaderEpoch": table.LEADER_EPOCH,
    "isTransactional": table.TRANSACTIONAL,
    "magic": table.MAGIC,
    "position": table.POSITION,
}


class HostPart(NamedTuple):
    """A run, and the rows of the batch table that it was decoded from."""

    run: Run
    entries: Entries

    def batch(self, segment: Segment, options: Options) -> pa.RecordBatch:
        """As `decode.decoder.DecodedPart.batch`."""
        return record_batch(self.run, self.entries, [(segment, self.run.columns.rows)], options)


Parts = Sequence[tuple[Segment, int]]
"""Segments whose records follow one another in a run, and how many rows each has."""


def record_batch(run: Run, entries: Entries, parts: Parts, options: Options, raw_headers: bool = False) -> pa.RecordBatch:
    """Arrow record batch of a decoded run, without the rows outside of the requested ranges; with ``raw_headers`` their keys are bytes."""
    schema, columns = _columns(options.columns, options.binary, raw_headers)
    builder = _Builder(run, entries, parts)
    batch = pa.RecordBatch.from_arrays([make(builder, kind) for make, kind in columns], schema=schema)
    mask = _in_range(builder, options)
    if not options.include_control and len(run.columns.attributes) and builder.messages.some_control:
        data = ~builder.messages.control
        mask = data if mask is None else mask & data
    return batch if mask is None else keep(batch, mask)


class MessageFlags:
    """Flags of single records of a run: shipped formats flag control batches, some drafts flag each message."""

    def __init__(self, run: Run, entries: Entries) -> None:
        self.run, self.entries = run, entries

    @cached_property
    def _layout(self) -> Any:
        # The functions of `layouts` are typed for numbers, and take arrays too.
        return np.repeat(self.entries.layout, self.run.records)

    @cached_property
    def _attributes(self) -> Bytes:
        return self.run.columns.attributes[: self.run.rows]

    @property
    def _drafts(self) -> bool:
        return len(self.run.columns.attributes) > 0

    @cached_property
    def control(self) -> Flags:
        """Flags of the control records."""
        found = np.repeat(self.entries.control, self.run.records) != 0
        if self._drafts:
            found |= self._attributes & layouts.control_bit(self._layout) != 0
        return found

    @property
    def some_control(self) -> bool:
        """Whether single messages are control records, which the headers of their entries do not tell."""
        return self._drafts and bool(self.control.any())

    @property
    def tombstone(self) -> Flags:
        """Flags of the tombstones: records without a value, or in `kip87` messages with the tombstone bit."""
        found = self.run.columns.value.null_flags & ~self.control
        if self._drafts:
            by_bit = self._attributes & layouts.flagged_bit(self._layout) != 0
            found = np.where(by_bit, self._attributes & layouts.tombstone_bit(self._layout) != 0, found)
        return found

    def control_type(self, row: int, key: bytes | None) -> str:
        """Name of a control record's type, from its key or from the attributes of an enriched message."""
        layout = int(self._layout[row])
        if layouts.has_typed_control(layout):
            number = (int(self._attributes[row]) & 15) - layouts.control_bit(layout)
        else:
            in_key = v2.control_type(key or b"")
            number = -1 if in_key is None else in_key
        return layouts.CONTROL_NAMES[layouts.control_name(layout, number)]

    def seconds(self, kind: pa.DataType) -> pa.Array:
        """Timestamps of enriched messages in seconds, as stored."""
        if not self._drafts:
            return pa.nulls(self.run.rows, kind)
        values = self.run.columns.seconds[: self.run.rows]
        return numbers(values, kind, values == -1)

    def broker_timestamp(self, timestamp: Int64s) -> pa.Array:
        """Timestamps that brokers assigned to enriched messages, in milliseconds."""
        if not self._drafts:
            return pa.nulls(self.run.rows, pa.int64())
        given = self._attributes & layouts.tagged_bit(self._layout) != 0
        return numbers(timestamp[: self.run.rows], pa.int64(), ~given)


class _Builder:
    def __init__(self, run: Run, entries: Entries, parts: Parts) -> None:
        self.run, self.entries, self.parts, self.rows = run, entries, parts, run.columns.rows

    @cached_property
    def messages(self) -> MessageFlags:
        return MessageFlags(self.run, self.entries)

    @cached_property
    def offset(self) -> Int64s:
        return np.frombuffer(self.run.columns.offset, np.int64, self.rows)

    @cached_property
    def timestamp(self) -> Int64s:
        return np.frombuffer(self.run.columns.timestamp, np.int64, self.rows)

    def key(self, kind: pa.DataType) -> pa.Array:
        return self.run.columns.key.array(kind, self.run.sources)

    def value(self, kind: pa.DataType) -> pa.Array:
        return self.run.columns.value.array(kind, self.run.sources)

    def offsets(self, kind: pa.DataType) -> pa.Array:
        return pa.Array.from_buffers(kind, self.rows, [None, self.run.columns.offset], 0)

    def timestamps(self, kind: pa.DataType) -> pa.Array:
        """As they were decoded."""
        return pa.Array.from_buffers(kind, self.rows, [None, self.run.columns.timestamp], 0)

    def repeat(self, values: Int64s) -> Int64s:
        """A column of the entries, with each entry's value repeated for each of its records."""
        return np.repeat(values, self.run.records)

    def repeated(self, column: int, kind: pa.DataType) -> pa.Array:
        """A column of the batch table."""
        values = self.entries.array[:, column]
        if (values == values[0]).all():
            return constant(int(values[0]), kind, self.rows)
        repeated = self.repeat(values)
        return flags(repeated != 0) if pa.types.is_boolean(kind) else numbers(repeated, kind)

    def of_segment(self, attribute: str, kind: pa.DataType) -> pa.Array:
        """A column of what is the same for all records of a segment."""
        if len(self.parts) == 1:
            found = getattr(self.parts[0][0], attribute)
            return constant(in_column(found) if isinstance(found, str) else found, kind, self.rows)
        pieces = list[tuple[str | int | None, int]]()
        for segment, rows in self.parts:
            found = getattr(segment, attribute)
            if pieces and pieces[-1][0] == found:
                pieces[-1] = found, pieces[-1][1] + rows
            else:
                pieces.append((found, rows))
        columns = [constant(in_column(found) if isinstance(found, str) else found, kind, rows) for found, rows in pieces if rows]
        return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)

    def codec(self, kind: pa.DataType) -> pa.Array:
        """Name of the codec of each record's entry."""
        codecs = self.entries.codec
        if (codecs == codecs[0]).all() and codecs[0] < len(NAMES):
            return constant(NAMES[codecs[0]], kind, self.rows)
        return pa.DictionaryArray.from_arrays(numbers(self.repeat(codecs), pa.int8()), strings(NAMES)).cast(kind)

    def microseconds(self, kind: pa.DataType) -> pa.Array:
        """Timestamps in us; null where a record has none."""
        rows = self.rows
        if self.run.columns.microseconds:
            if not self.run.untimed:
                return self.timestamps(kind)
            none = self.timestamp == NO_TIME
            self._tell_of_far_times()
            valid = pa.py_buffer(np.packbits(~none, bitorder="little"))
            return pa.Array.from_buffers(kind, rows, [valid, self.run.columns.timestamp], int(none.sum()))
        (values, target), valid = take(8 * rows + PAD), ones(rows)
        source = self.timestamp.view()
        source.flags.writeable = False
        nulls = microseconds(source, np.frombuffer(target, np.int64, rows), valid.address)
        if nulls:
            self._tell_of_far_times()
        return pa.Array.from_buffers(kind, rows, [valid if nulls else None, values], nulls)

    def _tell_of_far_times(self) -> None:
        """Warn once for each segment if headers have timestamps whose microseconds do not fit 64 bits."""
        far = np.flatnonzero(self.entries.max_timestamp > LARGEST)
        if not len(far):
            return
        before = np.cumsum(self.run.records) - self.run.records
        which = np.searchsorted(np.cumsum([rows for _, rows in self.parts]), before[far], side="right")
        for number in np.unique(which).tolist():
            path, own = self.parts[number][0].path, self.entries[far[which == number]]
            if path not in _told:
                _told.add(path)
                logger.warning(
                    "%s: position %d: the timestamp %d does not fit microseconds, and expected are milliseconds. It is null in the column "
                    "timestamp, as in each such batch of the segment; the column timestampMs has the number",
                    shown(path), own[0].position, own[0].max_timestamp,
                )  # fmt: skip

    def sequence(self) -> Int64s:
        """Base sequence + offset delta, wrapping from 2^31 - 1 to 0 (``DefaultRecordBatch.incrementSequence``).

        Java computes in 32 bits, where the test for the wrap overflows for a negative delta, so that a negative delta wraps too.
        """
        base = self.repeat(self.entries.base_sequence)
        delta = self.offset - self.repeat(self.entries.base_offset)
        sequence = base + delta
        sequence[(delta < 0) | (sequence > _LARGEST_SEQUENCE)] -= _LARGEST_SEQUENCE + 1
        sequence[base < 0] = -1
        return sequence.astype(np.int32)

    def control_type(self, kind: pa.DataType) -> pa.Array:
        """Type of each control record; null for other records."""
        control = np.flatnonzero(self.messages.control)
        if len(control):
            names: list[str | None] = [None] * self.rows
            keys = self.key(pa.binary_view() if self.run.columns.key.views is not None else pa.binary())
            for row in control.tolist():
                names[row] = self.messages.control_type(row, keys[row].as_py())
            return optional_strings(names)
        return pa.nulls(self.rows, pa.string())


_Make = Callable[[_Builder, pa.DataType], pa.Array]
_BUILT: dict[str, _Make] = {
    "key": _Builder.key,
    "value": _Builder.value,
    "headers": lambda made, kind: made.run.columns.headers_array(kind),
    "offset": _Builder.offsets,
    "timestampMs": _Builder.timestamps,
    "timestamp": _Builder.microseconds,
    "topic": lambda made, kind: made.of_segment("topic", kind),
    "partition": lambda made, kind: made.of_segment("partition", kind),
    "segment": lambda made, kind: made.of_segment("path", kind),
    "codec": _Builder.codec,
    "sequence": lambda made, kind: numbers(made.sequence(), kind),
    "isControl": lambda made, kind: flags(made.messages.control) if made.messages.some_control else made.repeated(table.CONTROL, kind),
    "tombstone": lambda made, kind: flags(made.messages.tombstone),
    "controlType": _Builder.control_type,
    "timestampSeconds": lambda made, kind: made.messages.seconds(kind),
    "brokerTimestampMs": lambda made, kind: made.messages.broker_timestamp(made.timestamp),
}


@lru_cache(maxsize=64)
def _columns(names: tuple[str, ...], binary: str, raw_headers: bool) -> tuple[pa.Schema, list[tuple[_Make, pa.DataType]]]:
    """The schema of some columns, and for each what makes it."""
    schema = record_schema(names, binary)
    if raw_headers and "headers" in names:
        schema = schema.set(schema.get_field_index("headers"), pa.field("headers", RAW_HEADERS))
    return schema, [(_BUILT.get(field.name) or _repeats(_REPEATED[field.name]), field.type) for field in schema]


def _repeats(column: int) -> _Make:
    return lambda made, kind: made.repeated(column, kind)


def _in_range(made: _Builder, options: Options) -> Flags | None:
    """Mask of the rows that the ranges keep, or None if they keep all."""
    keep = None
    for name, low, high in (
        ("offset", options.start_offset, options.end_offset),
        ("timestamp", options.start_timestamp, options.end_timestamp),
    ):
        if low is None and high is None:
            continue
        values = made.offset if name == "offset" else made.timestamp
        inside = np.ones(len(values), bool)
        if low is not None:
            inside &= values >= low
        if high is not None:
            inside &= values < high
        if name == "timestamp":
            inside &= values != -1
        keep = inside if keep is None else keep & inside
    return None if keep is None or keep.all() else keep
