"""The Arrow record batch of a decoded run: its columns, and those from the batch table and the segment."""

import logging
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Flags, Int64s
from kolumn.core.buffers import constant, flags, keep, numbers, optional_strings, strings
from kolumn.core.errors import shown
from kolumn.core.recycle import take
from kolumn.core.schema import RAW_HEADERS, record_schema
from kolumn.core.text import in_column
from kolumn.cpu_fallback.columns import ones
from kolumn.cpu_fallback.fields.target import LARGEST, NO_TIME, microseconds
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

Parts = Sequence[tuple[Segment, int]]  # segments whose records follow one another in a run, and how many rows each has


class HostPart(NamedTuple):
    """A run, and the rows of the batch table that it was decoded from."""

    run: Run
    entries: Entries


def record_batch(run: Run, entries: Entries, parts: Parts, options: Options, raw_headers: bool = False) -> pa.RecordBatch:
    """Arrow record batch of a decoded run, without the rows outside of the requested ranges; with ``raw_headers`` their keys are bytes."""
    schema, columns = _columns(options.columns, options.binary, raw_headers)
    builder = _Builder(run, entries, parts)
    arrays = []
    for name, make, dtype in columns:
        arrays.append(getattr(run.columns, name).array(dtype, run.sources) if make is None else make(builder, dtype))
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    mask: Flags | None = None
    if options.start_offset is not None or options.end_offset is not None:
        mask = _within(builder.offset, options.start_offset, options.end_offset)
    if options.start_timestamp is not None or options.end_timestamp is not None:
        timed = _within(builder.timestamp, options.start_timestamp, options.end_timestamp) & (builder.timestamp != -1)
        mask = timed if mask is None else mask & timed
    if not options.include_control and builder.drafts and builder.control.any():
        data = ~builder.control
        mask = data if mask is None else mask & data
    return batch if mask is None or mask.all() else keep(batch, mask)


def _within(values: Int64s, low: int | None, high: int | None) -> Flags:
    inside = np.ones(len(values), bool)
    if low is not None:
        inside &= values >= low
    if high is not None:
        inside &= values < high
    return inside


class _Builder:
    """Makes the columns. Shipped formats flag control batches, some drafts flag each message: of these there are ``attributes``."""

    def __init__(self, run: Run, entries: Entries, parts: Parts) -> None:
        self.run, self.columns, self.entries, self.parts, self.rows = run, run.columns, entries, parts, run.columns.rows
        self.drafts = len(run.columns.attributes) > 0

    @cached_property
    def layout(self) -> Any:
        # The functions of `layouts` are typed for numbers, and take arrays too.
        return np.repeat(self.entries.layout, self.run.records)

    @cached_property
    def attributes(self) -> Any:
        return self.columns.attributes[: self.rows]

    @cached_property
    def control(self) -> Flags:
        """Flags of the control records."""
        found = self.repeat(self.entries.control) != 0
        if self.drafts:
            found |= self.attributes & layouts.control_bit(self.layout) != 0
        return found

    @cached_property
    def offset(self) -> Int64s:
        return np.frombuffer(self.columns.offset, np.int64, self.rows)

    @cached_property
    def timestamp(self) -> Int64s:
        return np.frombuffer(self.columns.timestamp, np.int64, self.rows)

    def timestamps(self, dtype: pa.DataType) -> pa.Array:
        """As they were decoded."""
        return pa.Array.from_buffers(dtype, self.rows, [None, self.columns.timestamp], 0)

    def repeat(self, values: Int64s) -> Int64s:
        """A column of the entries, with each entry's value repeated for each of its records."""
        return np.repeat(values, self.run.records)

    def of_table(self, dtype: pa.DataType, column: int) -> pa.Array:
        """A column of the batch table."""
        values = self.entries.array[:, column]
        if (values == values[0]).all():
            return constant(int(values[0]), dtype, self.rows)
        repeated = self.repeat(values)
        return flags(repeated != 0) if pa.types.is_boolean(dtype) else numbers(repeated, dtype)

    def of_segment(self, dtype: pa.DataType, attribute: str) -> pa.Array:
        """A column of what is the same for all records of a segment."""
        values, counts = list[Any](), list[int]()
        for segment, rows in self.parts:
            value = getattr(segment, attribute)
            if values and values[-1] == value:
                counts[-1] += rows
            elif rows or len(self.parts) == 1:
                values.append(value)
                counts.append(rows)
        if len(values) > 1 and pa.types.is_integer(dtype):
            known = np.repeat([-1 if value is None else value for value in values], counts)
            return numbers(known, dtype, known < 0)
        pieces = []
        for value, rows in zip(values, counts, strict=True):
            pieces.append(constant(in_column(value) if isinstance(value, str) else value, dtype, rows))
        return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)

    def codec(self, dtype: pa.DataType) -> pa.Array:
        """Name of the codec of each record's entry."""
        codecs = self.entries.codec
        if (codecs == codecs[0]).all() and codecs[0] < len(NAMES):
            return constant(NAMES[codecs[0]], dtype, self.rows)
        return pa.DictionaryArray.from_arrays(numbers(self.repeat(codecs), pa.int8()), strings(NAMES)).cast(dtype)

    def microseconds(self, dtype: pa.DataType) -> pa.Array:
        """Timestamps in us; null where a record has none."""
        rows = self.rows
        if self.columns.microseconds:
            if not self.run.untimed:
                return self.timestamps(dtype)
            none = np.frombuffer(self.columns.timestamp, np.int64, rows) == NO_TIME
            self._tell_of_far_times()
            valid = pa.py_buffer(np.packbits(~none, bitorder="little"))
            return pa.Array.from_buffers(dtype, rows, [valid, self.columns.timestamp], int(none.sum()))
        (values, target), valid = take(8 * rows + PAD), ones(rows)
        source = self.timestamp.view()
        source.flags.writeable = False
        nulls = microseconds(source, np.frombuffer(target, np.int64, rows), valid.address)
        if nulls:
            self._tell_of_far_times()
        return pa.Array.from_buffers(dtype, rows, [valid if nulls else None, values], nulls)

    def _tell_of_far_times(self) -> None:
        """Warn once for each segment if headers have timestamps whose microseconds do not fit 64 bits."""
        far = np.flatnonzero((self.entries.array[:, table.MAX_TIMESTAMP] > LARGEST) & (self.run.records > 0))
        if not len(far):
            return
        before = np.cumsum(self.run.records) - self.run.records
        which = np.searchsorted(np.cumsum([rows for _, rows in self.parts]), before[far], side="right")
        for number in np.unique(which).tolist():
            path, entry = self.parts[number][0].path, self.entries[far[which == number][0]]
            if path not in _told:
                _told.add(path)
                logger.warning(
                    "%s: position %d: the timestamp %d does not fit microseconds, and expected are milliseconds. It is null in the column "
                    "timestamp, as in each such batch of the segment; the column timestampMs has the number",
                    shown(path), entry.position, entry.max_timestamp,
                )  # fmt: skip

    def sequence(self, dtype: pa.DataType) -> pa.Array:
        """Base sequence + offset delta, wrapping from 2^31 - 1 to 0 (``DefaultRecordBatch.incrementSequence``).

        Java computes in 32 bits, where the test for the wrap overflows for a negative delta, so that a negative delta wraps too.
        """
        base = self.repeat(self.entries.base_sequence)
        delta = self.offset - self.repeat(self.entries.base_offset)
        sequence = base + delta
        sequence[(delta < 0) | (sequence > _LARGEST_SEQUENCE)] -= _LARGEST_SEQUENCE + 1
        sequence[base < 0] = -1
        return numbers(sequence.astype(np.int32), dtype)

    def is_control(self, dtype: pa.DataType) -> pa.Array:
        return flags(self.control) if self.drafts and self.control.any() else self.of_table(dtype, table.CONTROL)

    def control_type(self, dtype: pa.DataType) -> pa.Array:
        """Type of each control record, from its key or from the attributes of an enriched message; null for other records."""
        control = np.flatnonzero(self.control)
        if not len(control):
            return pa.nulls(self.rows, pa.string())
        names: list[str | None] = [None] * self.rows
        key = self.columns.key
        keys = key.array(pa.binary_view() if key.views is not None else pa.binary(), self.run.sources)
        for row in control.tolist():
            layout = int(self.layout[row])
            if layouts.has_typed_control(layout):
                number = (int(self.attributes[row]) & 15) - layouts.control_bit(layout)
            else:
                in_key = v2.control_type(keys[row].as_py() or b"")
                number = -1 if in_key is None else in_key
            names[row] = layouts.CONTROL_NAMES[layouts.control_name(layout, number)]
        return optional_strings(names)

    def leader_epoch(self, dtype: pa.DataType) -> pa.Array:
        """As the headers say; of Redpanda's segments, as their names do."""
        is_named = any(segment.raft is not None for segment, _ in self.parts)
        return self.of_segment(dtype, "term") if is_named else self.of_table(dtype, table.LEADER_EPOCH)

    def batch_type(self, dtype: pa.DataType) -> pa.Array:
        """Type of Redpanda's batches."""
        types = self.entries.batch_type
        return self.of_table(dtype, table.BATCH_TYPE) if types.all() else numbers(self.repeat(types), dtype, self.repeat(types) == 0)

    def raw_offset(self, dtype: pa.DataType) -> pa.Array:
        """Offsets of Redpanda's records as they were decoded, before they are translated to consumer offsets."""
        if self.entries.batch_type.all():
            return pa.Array.from_buffers(dtype, self.rows, [None, self.columns.offset], 0)
        return numbers(self.offset, dtype, self.repeat(self.entries.batch_type) == 0)

    def tombstone(self, dtype: pa.DataType) -> pa.Array:
        """Flags of the tombstones: records without a value, or in `kip87` messages with the tombstone bit."""
        found = self.columns.value.null_flags & ~self.control
        if self.drafts:
            by_bit = self.attributes & layouts.flagged_bit(self.layout) != 0
            found = np.where(by_bit, self.attributes & layouts.tombstone_bit(self.layout) != 0, found)
        return flags(found)

    def seconds(self, dtype: pa.DataType) -> pa.Array:
        """Timestamps of enriched messages in seconds, as stored."""
        if not self.drafts:
            return pa.nulls(self.rows, dtype)
        values = self.columns.seconds[: self.rows]
        return numbers(values, dtype, values == -1)

    def broker_timestamp(self, dtype: pa.DataType) -> pa.Array:
        """Timestamps that brokers assigned to enriched messages, in milliseconds."""
        if not self.drafts:
            return pa.nulls(self.rows, pa.int64())
        return numbers(self.timestamp, pa.int64(), self.attributes & layouts.tagged_bit(self.layout) == 0)


FROM_TABLE = {
    "timestampType": table.TIMESTAMP_TYPE,
    "producerId": table.PRODUCER_ID,
    "producerEpoch": table.PRODUCER_EPOCH,
    "isTransactional": table.TRANSACTIONAL,
    "magic": table.MAGIC,
    "position": table.POSITION,
}
"""Columns that have one value for all records of an entry, and where the batch table has it."""
SAME_IN_MESSAGES = FROM_TABLE.keys() - {"position"}
"""Those that are equal in all messages that the streamed path decodes as one row."""
_Make = Callable[[_Builder, pa.DataType], pa.Array]
_BUILT: dict[str, _Make | None] = {
    # Of these the run has columns.
    "key": None,
    "value": None,
    "headers": lambda made, dtype: made.columns.headers_array(dtype),
    "offset": lambda made, dtype: pa.Array.from_buffers(dtype, made.rows, [None, made.columns.offset], 0),
    "timestampMs": _Builder.timestamps,
    "timestamp": _Builder.microseconds,
    "topic": partial(_Builder.of_segment, attribute="topic"),
    "partition": partial(_Builder.of_segment, attribute="partition"),
    "segment": partial(_Builder.of_segment, attribute="path"),
    "codec": _Builder.codec,
    "sequence": _Builder.sequence,
    "isControl": _Builder.is_control,
    "tombstone": _Builder.tombstone,
    "controlType": _Builder.control_type,
    "timestampSeconds": _Builder.seconds,
    "brokerTimestampMs": _Builder.broker_timestamp,
    "leaderEpoch": _Builder.leader_epoch,
    "batchType": _Builder.batch_type,
    "rawOffset": _Builder.raw_offset,
    **{name: partial(_Builder.of_table, column=column) for name, column in FROM_TABLE.items()},
}


@lru_cache(maxsize=64)
def _columns(names: tuple[str, ...], binary: str, raw_headers: bool) -> tuple[pa.Schema, list[tuple[str, _Make | None, pa.DataType]]]:
    """The schema of some columns, and for each what makes it."""
    schema = record_schema(names, binary)
    if raw_headers and "headers" in names:
        schema = schema.set(schema.get_field_index("headers"), pa.field("headers", RAW_HEADERS))
    return schema, [(field.name, _BUILT[field.name], field.type) for field in schema]
