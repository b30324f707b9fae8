"""Spark types of the columns, and Arrow batches in the schema and size that Spark expects."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from kolumn.errors import ArgumentError
from kolumn.keywords import Payload
from kolumn.options import Options
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.types import in_spark, spark_type

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
