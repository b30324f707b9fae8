"""Spark types of the columns, and Arrow batches in the schema and size that Spark expects.

Types of typed columns in Spark, and their columns in those types: Spark has no unsigned numbers, labels or times of day.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import Payload
from kolumn.options import Options
from kolumn.spark_plugin.options.read import LoadOptions

_WIDER = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(), pa.date64(): pa.date32(), pa.large_string(): pa.string(), pa.large_binary(): pa.binary(),
    pa.string_view(): pa.string(), pa.binary_view(): pa.binary(),
}  # fmt: skip
_INTERVAL = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("nanoseconds", pa.int64())])
_INTERVAL_LAYOUT = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])


def spark_type(kind: pa.DataType) -> pa.DataType:
    """The type of Arrow that Spark has for a type.

    Labels (dictionaries) are strings, unsigned numbers the next wider ones (uint64 is decimal(20,0)), times of day numbers of their unit,
    moments microseconds, bytes of one length bytes, intervals of months structs, decimals of more than 38 digits strings.
    """
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, spark_type(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(spark_type(kind.key_type), spark_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", spark_type(kind.value_type)))
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_time(kind):
        return pa.int64()
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if kind == pa.month_day_nano_interval():
        return _INTERVAL
    if pa.types.is_decimal256(kind):
        return pa.string()
    return _WIDER.get(kind, kind)


def in_spark(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in the type that Spark expects, which `spark_type` says but for the names of members. Copies what has another type.

    Spark may ask for some of a struct's members; then the names say which.
    """
    own = column.type
    if own == kind:
        return column
    nulls = column.is_null() if column.null_count else None
    if own == pa.month_day_nano_interval():
        return in_spark(_interval(column), kind)
    if pa.types.is_struct(own):
        names = [one.name for one in own]
        places = range(len(names)) if len(names) == kind.num_fields else [names.index(one.name) for one in kind]
        members = [in_spark(column.field(i), one.type) for i, one in zip(places, kind, strict=True)]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=nulls)
    if pa.types.is_map(own):
        entries = [in_spark(member, one) for member, one in ((column.keys, kind.key_type), (column.items, kind.item_type))]
        pairs = pa.StructArray.from_arrays(entries, fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], column.null_count, column.offset, [pairs])
    if pa.types.is_list(own):
        values = in_spark(column.values, kind.value_type)
        return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], column.null_count, column.offset, [values])
    if pa.types.is_binary(own) and pa.types.is_string(kind):
        # The same bytes, valid UTF-8 or not.
        return pa.Array.from_buffers(kind, len(column), column.buffers(), column.null_count, column.offset)
    if pa.types.is_time32(own):
        column = column.cast(pa.int32())
    return column.cast(kind, safe=not pa.types.is_temporal(own))


def _interval(column: pa.Array) -> pa.StructArray:
    """The interval's three numbers, which Arrow keeps one after the other."""
    data = column.buffers()[1]
    rows = np.frombuffer(data, _INTERVAL_LAYOUT)[column.offset : column.offset + len(column)]
    members = [pa.array(np.ascontiguousarray(rows[name])) for name in _INTERVAL_LAYOUT.names or ()]
    return pa.StructArray.from_arrays(members, fields=list(_INTERVAL), mask=column.is_null() if column.null_count else None)


# Larger batches only make Spark slower: it converts each batch into rows before it requests the next.
MAX_ROWS = 50_000
MAX_BYTES = 8 << 20


def spark_schema(schema: pa.Schema, payload: Payload = "binary") -> StructType:
    """The Spark types of Arrow columns, every one nullable at every level, as in Spark's Kafka source.

    With ``payload="string"`` keys and values that are not decoded are strings of the same bytes.
    """
    known = pa.schema([pa.field(one.name, spark_type(_as(payload, one))) for one in schema])
    return from_arrow_schema(known, prefer_timestamp_ntz=True).toNullable()


def _as(payload: Payload, one: pa.Field) -> pa.DataType:
    return pa.string() if payload == "string" and one.name in ("key", "value") and pa.types.is_binary(one.type) else one.type


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark compares batches with, including the name of a list's child."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # pyspark 4.1 has no such argument, and accepts UTC as it is
        return to_arrow_schema(schema)


def check_schema(schema: StructType, decode: Options, payload: Payload = "binary") -> tuple[str, ...]:
    """Compare the schema of a read, which may be the user's own, with the columns that exist.

    Parameters
    ----------
    schema : StructType
    decode : Options
        With the types of its typed columns.
    payload : str
        Whether keys and values are binary or strings.

    Returns
    -------
    tuple of str
        The names of the columns, in order.

    Raises
    ------
    ArgumentError
        A column does not exist, has another type, or is declared NOT NULL.
    """
    given = schema.fieldNames()
    chosen = decode if given == decode.schema.names else decode.with_columns(given)
    expected = spark_schema(chosen.schema, payload)
    if given != expected.fieldNames():
        fields = ", ".join(expected.fieldNames())
        raise ArgumentError(f"the schema has the columns {', '.join(given)}, the read has {fields}: leave the schema out, and select")
    for field, known in zip(schema, expected, strict=True):
        if field.dataType != known.dataType:
            raise ArgumentError(f"column {field.name} is {known.dataType.simpleString()}, not {field.dataType.simpleString()}")
        if not field.nullable:
            raise ArgumentError(f"column {field.name} is nullable: leave out NOT NULL")
    return chosen.columns


def with_columns(options: LoadOptions, schema: StructType) -> LoadOptions:
    """The options with the columns of a schema. If the options name columns too, both must be the same."""
    columns = check_schema(schema, options.decode, options.payload)
    if options.names_columns and columns != options.decode.columns:
        asked = ", ".join(options.decode.columns)
        raise ArgumentError(f"the schema has the columns {', '.join(columns)}, the options ask for {asked}: give one of the two")
    return options.only(columns)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Slice a batch into sizes that suit Spark, in exactly the schema that Spark expects. Slices share the buffers."""
    whole = in_schema(batch, schema)
    rows = min(MAX_ROWS, max(1, whole.num_rows * MAX_BYTES // max(1, whole.nbytes)))
    for start in range(0, whole.num_rows, rows):
        yield whole.slice(start, rows)


def in_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns that a schema names, in its order and its types. Columns that have their type already share the buffers."""
    return pa.RecordBatch.from_arrays([in_spark(batch.column(field.name), field.type) for field in schema], schema=schema)
