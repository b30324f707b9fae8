"""Spark types of the columns, and Arrow batches in the schema and size that Spark expects.

Spark has no unsigned numbers, labels or times of day: typed columns have other types there.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import Payload
from kolumn.spark_plugin.read.options import LoadOptions

_WIDER = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(), pa.date64(): pa.date32(), pa.large_string(): pa.string(), pa.large_binary(): pa.binary(),
    pa.string_view(): pa.string(), pa.binary_view(): pa.binary(),
}  # fmt: skip
_INTERVAL = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("nanoseconds", pa.int64())])
_INTERVAL_LAYOUT = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])


def spark_type(own: pa.DataType) -> pa.DataType:
    """The type of Arrow that Spark has for a type.

    Labels (dictionaries) are strings, unsigned numbers the next wider ones (uint64 is decimal(20,0)), times of day numbers of their unit,
    moments microseconds, bytes of one length bytes, intervals of months structs, decimals of more than 38 digits strings.
    """
    if pa.types.is_struct(own):
        return pa.struct([pa.field(field.name, spark_type(field.type)) for field in own])
    if pa.types.is_map(own):
        return pa.map_(spark_type(own.key_type), spark_type(own.item_type))
    if pa.types.is_list(own) or pa.types.is_large_list(own):
        return pa.list_(pa.field("element", spark_type(own.value_type)))
    if pa.types.is_dictionary(own):
        return spark_type(own.value_type)
    if pa.types.is_timestamp(own):
        return pa.timestamp("us", tz=None if own.tz is None else "UTC")
    if pa.types.is_duration(own):
        return pa.duration("us")
    if pa.types.is_time(own):
        return pa.int64()
    if pa.types.is_fixed_size_binary(own):
        return pa.binary()
    if own == pa.month_day_nano_interval():
        return _INTERVAL
    if pa.types.is_decimal256(own):
        return pa.string()
    return _WIDER.get(own, own)


def in_spark(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A column in the type that Spark expects, which `spark_type` says but for the names of members. Copies what has another type.

    Spark may ask for some of a struct's members; then the names say which.
    """
    own = column.type
    if own == wanted:
        return column
    if own == pa.month_day_nano_interval():
        return in_spark(_interval(column), wanted)
    if pa.types.is_struct(own):
        names = [field.name for field in own]
        positions = range(len(names)) if len(names) == wanted.num_fields else [names.index(field.name) for field in wanted]
        members = [in_spark(column.field(i), field.type) for i, field in zip(positions, wanted, strict=True)]
        return pa.StructArray.from_arrays(members, fields=list(wanted), mask=_nulls(column))
    if pa.types.is_map(own):
        entries = [in_spark(member, type_) for member, type_ in ((column.keys, wanted.key_type), (column.items, wanted.item_type))]
        values = pa.StructArray.from_arrays(entries, fields=[wanted.key_field, wanted.item_field])
    elif pa.types.is_list(own):
        values = in_spark(column.values, wanted.value_type)
    elif pa.types.is_binary(own) and pa.types.is_string(wanted):
        # The same bytes, valid UTF-8 or not.
        return pa.Array.from_buffers(wanted, len(column), column.buffers(), column.null_count, column.offset)
    else:
        column = column.cast(pa.int32()) if pa.types.is_time32(own) else column
        return column.cast(wanted, safe=not pa.types.is_temporal(own))
    return pa.Array.from_buffers(wanted, len(column), column.buffers()[:2], column.null_count, column.offset, [values])


def _nulls(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None


def _interval(column: pa.Array) -> pa.StructArray:
    """The interval's three numbers, which Arrow keeps one after the other."""
    data = column.buffers()[1]
    rows = np.frombuffer(data, _INTERVAL_LAYOUT)[column.offset : column.offset + len(column)]
    members = [pa.array(np.ascontiguousarray(rows[name])) for name in _INTERVAL_LAYOUT.names or ()]
    return pa.StructArray.from_arrays(members, fields=list(_INTERVAL), mask=_nulls(column))


MAX_ROWS, MAX_BYTES = 50_000, 8 << 20
"""Larger batches only make Spark slower: it converts each batch into rows before it requests the next."""


def spark_schema(schema: pa.Schema, payload: Payload = "binary") -> StructType:
    """The Spark types of Arrow columns, every one nullable at every level, as in Spark's Kafka source.

    With ``payload="string"`` keys and values that are not decoded are strings of the same bytes.
    """

    def as_string(field: pa.Field) -> bool:
        return payload == "string" and field.name in ("key", "value") and pa.types.is_binary(field.type)

    known = pa.schema([pa.field(field.name, pa.string() if as_string(field) else spark_type(field.type)) for field in schema])
    return from_arrow_schema(known, prefer_timestamp_ntz=True).toNullable()


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark compares batches with, including the name of a list's child."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # pyspark 4.0 and 4.1 have no such argument, and accept UTC as it is
        return to_arrow_schema(schema)


def with_columns(options: LoadOptions, schema: StructType) -> LoadOptions:
    """The options with the columns of a schema, which may be the user's own. If the options name columns too, both must be the same.

    The options have the types of their typed columns. Raises `ArgumentError` if a column does not exist, has another type, or is NOT NULL.
    """
    given, decode = schema.fieldNames(), options.decode
    chosen = decode if given == decode.schema.names else decode.with_columns(given)
    expected = spark_schema(chosen.schema, options.payload)
    if given != expected.fieldNames():
        fields = ", ".join(expected.fieldNames())
        raise ArgumentError(f"the schema has the columns {', '.join(given)}, the read has {fields}: leave the schema out, and select")
    for field, known in zip(schema, expected, strict=True):
        if field.dataType != known.dataType:
            raise ArgumentError(f"column {field.name} is {known.dataType.simpleString()}, not {field.dataType.simpleString()}")
        if not field.nullable:
            raise ArgumentError(f"column {field.name} is nullable: leave out NOT NULL")
    if options.names_columns and chosen.columns != decode.columns:
        columns, asked = ", ".join(chosen.columns), ", ".join(decode.columns)
        raise ArgumentError(f"the schema has the columns {columns}, the options ask for {asked}: give one of the two")
    return options.only(chosen.columns)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Slice a batch into sizes that suit Spark, in exactly the schema that Spark expects. Slices share the buffers."""
    whole = in_schema(batch, schema)
    rows = min(MAX_ROWS, max(1, whole.num_rows * MAX_BYTES // max(1, whole.nbytes)))
    for start in range(0, whole.num_rows, rows):
        yield whole.slice(start, rows)


def in_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns that a schema names, in its order and its types. Columns that have their type already share the buffers."""
    return pa.RecordBatch.from_arrays([in_spark(batch.column(field.name), field.type) for field in schema], schema=schema)
