"""The columns: names, types, units, nullability, in one table."""

from collections.abc import Iterable
from functools import lru_cache

import pyarrow as pa

from kolumn.core.errors import ArgumentError, unknown

HEADERS, RAW_HEADERS = (
    pa.list_(pa.field("element", pa.struct([pa.field("key", kind), pa.field("value", pa.binary())]))) for kind in (pa.string(), pa.binary())
)
"""Type of the column ``headers``, and of headers whose keys are bytes: those of a log need not be UTF-8, and rewriters keep them."""

RECORD_COLUMNS: dict[str, pa.DataType] = {
    # The columns of Spark's Kafka source, in its order.
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
    # Columns on request.
    "producerId": pa.int64(),
    "producerEpoch": pa.int16(),
    "sequence": pa.int32(),
    "leaderEpoch": pa.int32(),
    "isTransactional": pa.bool_(),
    "isControl": pa.bool_(),
    "controlType": pa.string(),
    "transaction": pa.string(),
    "tombstone": pa.bool_(),
    "magic": pa.int8(),
    "codec": pa.string(),
    "segment": pa.string(),
    "position": pa.int64(),
    "timestampMs": pa.int64(),
    "timestampSeconds": pa.int32(),
    "brokerTimestampMs": pa.int64(),
    "batchType": pa.int8(),
    "rawOffset": pa.int64(),
}
"""Record columns and their Arrow types; every one is nullable, as in Spark's Kafka source.

``timestamp`` is null if the record has none; ``timestampMs`` is the raw field, -1 for none. ``timestampType`` is -1 none,
0 CreateTime, 1 LogAppendTime. ``position`` is the byte position of the record's entry in ``segment``. ``timestampSeconds`` and
``brokerTimestampMs`` are the two timestamps of an enriched message, null in other formats and if it has none. ``batchType`` and
``rawOffset`` are null in other formats than Redpanda's: the type of the batch, 1 for records of clients, and the offset in its log.
"""

DEFAULT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")

BATCH_SCHEMA = pa.schema(
    [
        ("segment", pa.string()),
        ("position", pa.int64()),
        ("size", pa.int64()),
        ("baseOffset", pa.int64()),
        ("lastOffset", pa.int64()),
        ("count", pa.int32()),
        ("magic", pa.int8()),
        ("codec", pa.string()),
        ("crc", pa.int64()),
        ("crcValid", pa.bool_()),
        ("timestampType", pa.int32()),
        ("baseTimestampMs", pa.int64()),
        ("maxTimestampMs", pa.int64()),
        ("producerId", pa.int64()),
        ("producerEpoch", pa.int16()),
        ("baseSequence", pa.int32()),
        ("leaderEpoch", pa.int32()),
        ("isTransactional", pa.bool_()),
        ("isControl", pa.bool_()),
        ("deleteHorizonMs", pa.int64()),
        ("batchType", pa.int8()),
    ]
)
"""One row for each entry. ``baseOffset`` and ``count`` are null for wrappers of formats 0 and 1, ``crcValid`` if the CRC was
not compared, ``deleteHorizonMs`` if the batch has none, ``batchType`` in other formats than Redpanda's, whose offsets here are raw."""

DAMAGE_SCHEMA = pa.schema(
    [("segment", pa.string()), ("position", pa.int64()), ("size", pa.int64()), ("baseOffset", pa.int64()),
     ("lastOffset", pa.int64()), ("reason", pa.string()), ("recordsLost", pa.int64()), ("kind", pa.string())]
)  # fmt: skip
"""One row for each stretch of a segment that a read leaves out; offsets and ``recordsLost`` are null if the damage hides them. ``kind`` is
"damage", or "limit": the batch is intact, and larger than ``max_batch_bytes`` or ``max_ratio`` allow."""

REMARK_SCHEMA = pa.schema(
    [("segment", pa.string()), ("position", pa.int64()), ("offset", pa.int64()), ("remark", pa.string()), ("kind", pa.string()),
     ("lastOffset", pa.int64()), ("evidence", pa.string())]
)  # fmt: skip
"""One row for each remark: a fact that is not damage, but that users should know. Kinds: `kolumn.damage.findings.Kind`. ``offset`` and
``lastOffset`` are the first and the last offset concerned; ``evidence`` contains the proof, such as the name of a file."""

SEGMENT_SCHEMA = pa.schema(
    [("segment", pa.string()), ("size", pa.int64()), ("validBytes", pa.int64()), ("batches", pa.int64()), ("records", pa.int64()),
     ("tail", pa.string()), ("tailBytes", pa.int64()), ("state", pa.string())]
)  # fmt: skip
"""One row for each segment. ``state`` is "rolled", "active" (the last one of its directory), or "unknown" if names contain no offsets.
``tail`` is "truncated" or "zeros" for the normal states of an active segment, else null."""

LEFT_OUT_SCHEMA = pa.schema(
    [("path", pa.string()), ("kind", pa.string()), ("files", pa.int64()), ("bytes", pa.int64()), ("records", pa.int64()),
     ("reason", pa.string())]
)  # fmt: skip
"""One row for each segment, folder, or group of files in a folder that a read does not return. Kinds: `kolumn.log.live.LeftOut`.
What ``path`` names can be read by itself. ``records`` are those that headers tell, without control records; null if they do not."""

PROBLEMS = pa.list_(pa.string())
PAYLOAD_COLUMNS: dict[str, pa.DataType] = {"Valid": pa.bool_(), "SchemaId": pa.int64(), "Problems": PROBLEMS, "Raw": pa.binary()}
"""Columns beside a typed ``value`` or ``key``, named ``valueValid`` and so on.

``valueProblems`` has the dotted paths of the fields that are null because they could not be decoded, "$" for the whole value and
"$[]" for elements of one that is a list or a map. It is null where there are none: in the rows with ``valueValid``, and those of null.
"""

LOST_VALUES_SCHEMA = pa.schema(
    [("column", pa.string()), ("field", pa.string()), ("lost", pa.int64()), ("values", pa.int64()), ("offset", pa.int64()),
     ("segment", pa.string())]
)  # fmt: skip
"""One row for each field of typed keys or values that could not be decoded everywhere: its dotted path, "$" for a value as a whole; in how
many of so many ``values`` that are not null it was lost, and where first."""


def beside(column: str) -> dict[str, pa.DataType]:
    """Columns beside a typed column, by their names."""
    return {f"{column}{suffix}": type for suffix, type in PAYLOAD_COLUMNS.items()}


def resolve_columns(columns: Iterable[str] | None, include_headers: bool, typed: Iterable[str] = ()) -> tuple[str, ...]:
    """Names of the record columns to return, in order, where ``typed`` columns are decoded. An ArgumentError if a column is unknown, named
    twice, or goes with a typed column that is not typed."""
    typed = tuple(typed)
    if columns is None:
        added = [f"{column}{suffix}" for column in typed for suffix in PAYLOAD_COLUMNS if suffix != "Raw"] if typed else []
        return (*DEFAULT_COLUMNS, "headers", *added) if include_headers else (*DEFAULT_COLUMNS, *added)
    names = tuple(columns)
    known = {*RECORD_COLUMNS, *(name for column in typed for name in beside(column))}
    for name in names:
        if name not in known:
            for column in ("key", "value"):
                if name in beside(column):
                    raise ArgumentError(f"column {name}: it goes with {column}_format")
            raise ArgumentError(unknown("column", name, [*RECORD_COLUMNS, *sorted(known - {*RECORD_COLUMNS})]))
    if len(set(names)) < len(names):
        raise ArgumentError(f"a column is named twice: {', '.join(names)}")
    return (*names, "headers") if include_headers and "headers" not in names else names


@lru_cache(maxsize=64)
def record_schema(columns: tuple[str, ...], binary: str = "contiguous") -> pa.Schema:
    """Arrow schema of the record columns; ``binary="view"`` makes key and value binary_view."""
    types = dict(RECORD_COLUMNS)
    if binary == "view":
        types["key"] = types["value"] = pa.binary_view()
    return pa.schema([pa.field(name, types[name]) for name in columns])
