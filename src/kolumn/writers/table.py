"""An Arrow table converted to contiguous arrays: the fields of each record in a log."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Flags, Int64s
from kolumn.core.errors import ArgumentError
from kolumn.core.schema import HEADERS, RAW_HEADERS, RECORD_COLUMNS
from kolumn.cpu_fallback.encode.messages import ArrowPayloads, RecordsToEncode
from kolumn.formats import layouts

ABSENT = {
    "timestampType": 0,
    "producerId": -1,
    "producerEpoch": -1,
    "sequence": -1,
    "leaderEpoch": -1,
    "isTransactional": 0,
    "isControl": 0,
}
"""Columns that belong to a batch, and their values if the table does not have the column or it is null."""
_BINARY = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_STRING = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)

_OF_BATCHES = {"headers", "isTransactional", "producerId", "producerEpoch", "sequence", "leaderEpoch"}
"""Columns that messages cannot store."""


def stored_columns(records: pa.RecordBatch, layout: int) -> pa.RecordBatch:
    """Records of a log without the columns that a layout cannot store."""
    if not layouts.holds_messages(layout):
        return records
    absent = _OF_BATCHES if layouts.has_typed_control(layout) else {*_OF_BATCHES, "isControl"}
    return records.select([name for name in records.schema.names if name not in absent])


@dataclass
class RecordsIn:
    """Some rows of a table as addresses, which are valid as long as this object exists.

    ``headers`` is the number of headers of all rows. ``numbers`` has the columns that belong to a batch, if the table has them (`ABSENT`).
    ``cut`` flags rows that must begin an entry. Records ``from_log`` are kept as they are, even those that `write` rejects. ``found`` holds
    results of `once`.
    """

    records: RecordsToEncode
    offset: Int64s
    timestamp: Int64s
    headers: int
    numbers: dict[str, Int64s]
    table: pa.Table
    alive: list[Any] = field(default_factory=list)
    cut: Flags | None = None
    from_log: bool = False
    found: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, find: Callable[["RecordsIn"], Any]) -> Any:
        """What a format finds out about all rows; it is asked for with every part of them."""
        if name not in self.found:
            self.found[name] = find(self)
        return self.found[name]


def check_columns(schema: pa.Schema) -> None:
    """Raise `ArgumentError` if a column is not a record column, or has a wrong type.

    Columns that say where a record was read (topic, partition, segment, position, magic, codec, …) are ignored.
    """
    for name, kind in zip(schema.names, schema.types, strict=True):
        if name not in RECORD_COLUMNS:
            raise ArgumentError(f"column {name!r}: records have no column of that name; they have {', '.join(RECORD_COLUMNS)}")
        expected = RECORD_COLUMNS[name]
        if name in ("key", "value"):
            fits = any(is_kind(kind) for is_kind in _BINARY + _STRING) or pa.types.is_null(kind)
        elif name == "timestamp":
            fits = pa.types.is_timestamp(kind)
        elif name in ABSENT or name in ("offset", "timestampMs"):
            fits = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
        else:
            continue
        if not fits and name != "headers":
            raise ArgumentError(f"column {name!r}: expected {expected}, found {kind}")
    if len(set(schema.names)) < len(schema.names):
        raise ArgumentError(f"columns {', '.join(schema.names)}: each may occur only once")


def take_apart(table: pa.Table, next_offset: int) -> RecordsIn:
    """Addresses and arrays of a table's rows; without a column ``offset``, offsets start at ``next_offset``."""
    rows, names = table.num_rows, set(table.schema.names)
    alive: list[Any] = []

    def payloads(name: str) -> ArrowPayloads:
        return payloads_of(_flat(table[name], pa.binary()) if name in names else pa.nulls(rows, pa.binary()), alive)

    offset = _integers(table["offset"], "offset") if "offset" in names else np.arange(next_offset, next_offset + rows, dtype=np.int64)
    timestamp = _timestamps(table, names)
    count, header_ends, header_key, header_value = _headers(table, names, alive)
    records = RecordsToEncode(
        rows, payloads("key"), payloads("value"), header_ends, header_key, header_value, offset.ctypes.data, timestamp.ctypes.data
    )
    numbers = {name: _integers(_filled(table[name], absent), name) for name, absent in ABSENT.items() if name in names}
    if "timestampType" in numbers:
        numbers["timestampType"] = np.maximum(numbers["timestampType"], 0)
    return RecordsIn(records, offset, timestamp, count, numbers, table, [*alive, offset, timestamp])


def _filled(column: pa.ChunkedArray, absent: int) -> pa.ChunkedArray:
    """A column with the value ``absent`` in place of nulls."""
    if not column.null_count:
        return column
    return pc.fill_null(column, pa.scalar(bool(absent) if pa.types.is_boolean(column.type) else absent, column.type))


def _flat(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """A column as one array of a type."""
    whole = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.array([], column.type), *column.chunks])
    if whole.type == kind:
        return whole
    if kind == pa.binary() and pa.types.is_string(whole.type):
        return whole.view(kind)
    return whole.cast(kind)


def _integers(column: pa.ChunkedArray, name: str) -> Int64s:
    if column.null_count:
        raise ArgumentError(f"column {name!r}: {column.null_count} rows are null, and every record has one")
    return np.ascontiguousarray(_flat(column, pa.int64()).to_numpy(zero_copy_only=False))


def _timestamps(table: pa.Table, names: set[str]) -> Int64s:
    """Milliseconds, -1 for no timestamp. ``timestampMs``, the raw field, is used before ``timestamp``."""
    if "timestampMs" in names:
        return _integers(_filled(table["timestampMs"], -1), "timestampMs")
    if "timestamp" not in names:
        return np.full(table.num_rows, -1, np.int64)
    moments = pc.cast(table["timestamp"], pa.timestamp("ms", tz=table["timestamp"].type.tz), safe=False)
    return _integers(pc.fill_null(moments.cast(pa.int64()), -1), "timestamp")


def payloads_of(column: pa.Array, alive: list[Any]) -> ArrowPayloads:
    """Addresses of a binary column; ``alive`` gets what has to be kept as long as they are used."""
    valid, ends, data = column.buffers()
    alive.append(column)
    if ends is None:
        zero = np.zeros(len(column) + 1, np.int32)
        alive.append(zero)
        start, first = zero.ctypes.data, 0
    else:
        start, first = ends.address, column.offset
    low, size = (data.address, data.size) if data is not None else (0, 0)
    has_nulls = valid is not None and column.null_count > 0
    return ArrowPayloads(start + 4 * first, low, low + size, valid.address if has_nulls else 0, column.offset)


_NOTHING = ArrowPayloads(0, 0, 0, 0, 0)


def _headers(table: pa.Table, names: set[str], alive: list[Any]) -> tuple[int, int, ArrowPayloads, ArrowPayloads]:
    if "headers" not in names:
        return 0, 0, _NOTHING, _NOTHING
    try:
        # Keys need not be UTF-8 if they come from a log.
        headers = _flat(table["headers"], HEADERS if table["headers"].type == HEADERS else RAW_HEADERS)
    except pa.ArrowException as error:
        raise ArgumentError(f"column 'headers': expected {HEADERS}, found {table['headers'].type}") from error
    if headers.null_count:
        headers = pa.ListArray.from_arrays(*_without_nulls(headers))
    # Flattened for these rows alone: the values may contain those of rows outside of a slice.
    keyless = headers.flatten().field("key").null_count
    if keyless:
        raise ArgumentError(f"column 'headers': {keyless} headers have no key, and every header needs one")
    ends = headers.buffers()[1]
    if ends is None:
        return 0, 0, _NOTHING, _NOTHING
    alive.append(headers)
    count = pc.sum(pc.list_value_length(headers)).as_py() or 0
    keys, values = headers.values.field("key").view(pa.binary()), headers.values.field("value")
    return count, ends.address + 4 * headers.offset, payloads_of(keys, alive), payloads_of(values, alive)


def _without_nulls(headers: pa.ListArray) -> tuple[pa.Array, pa.Array]:
    """Offsets and values of lists, with null lists replaced by empty ones."""
    sizes = pc.fill_null(pc.list_value_length(headers), 0).to_numpy()
    return pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)), headers.flatten()
