"""Spark types of the columns, and Arrow batches in the schema and size that Spark expects.

Spark has no unsigned numbers, labels or times of day: typed columns have other types there (`kolumn.values.narrowing`).
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import Payload
from kolumn.spark_plugin.read.options import LoadOptions
from kolumn.values.narrowing import Narrowed, narrowed_type, say_narrowed


def spark_type(own: pa.DataType) -> pa.DataType:
    """The type of Arrow that Spark has for a type: `kolumn.values.narrowing` says which."""
    return narrowed_type(own, "Spark")


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


def say_spark_types(options: LoadOptions) -> None:
    """Log what Spark does not have of the types of keys and values that a read asks for."""
    if options.decode.typed:
        say_narrowed(options.decode.schema, "Spark")


def conformed(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches in sizes that suit Spark, in exactly the schema that Spark expects; what that could not hold is logged at the end."""
    narrowed = Narrowed(schema)
    for batch in batches:
        yield from sized(narrowed.batch(batch))
    narrowed.say()


def sized(whole: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slice a batch into sizes that suit Spark. Slices share the buffers."""
    rows = min(MAX_ROWS, max(1, whole.num_rows * MAX_BYTES // max(1, whole.nbytes)))
    for start in range(0, whole.num_rows, rows):
        yield whole.slice(start, rows)
