"""Records by ``mapInArrow``: on this route RAPIDS moves Arrow batches from the workers directly into GPU memory.

RAPIDS accepts neither binary columns nor structs there. Therefore payloads leave the worker as strings, which use the same buffers
under another type, and are cast to binary last. Headers leave it as a list of keys and a list of values.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, Unpack

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from kolumn.backend import choose
from kolumn.core import keywords
from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import known_keywords
from kolumn.options import Options
from kolumn.readers.gpu import resident_options
from kolumn.source.segments import Range
from kolumn.spark_plugin.read.options import NOT_IN_SPARK, SPLIT_BYTES, LoadOptions
from kolumn.spark_plugin.read.schema import arrow_schema, conformed, say_spark_types, spark_schema
from kolumn.spark_plugin.read.splits import plan_splits, with_types_of
from kolumn.spark_plugin.read.task import read_task
from kolumn.spark_plugin.session.gpu_task import use_gpu
from kolumn.spark_plugin.session.session import by_job, slots, use_this_python

if TYPE_CHECKING:
    from kolumn.kernels.columns.table import DeviceTable

Transform = Callable[[Any], Any]
"""From a decoded batch to the batch that is passed on: both are a pyarrow.RecordBatch, or both a cudf.DataFrame."""

KEYS, VALUES = "headerKeys", "headerValues"
_PAYLOADS = ("binary", "string")
_FRAMES = ("arrow", "cudf")


@known_keywords(NOT_IN_SPARK)
def read_segments(
    spark: SparkSession,
    source: keywords.Source,
    *,
    payload: keywords.Payload = "binary",
    transform: Transform | None = None,
    schema: StructType | str | None = None,
    frame: Literal["arrow", "cudf"] = "arrow",
    split_bytes: int | None = None,
    **options: Unpack[keywords.ReadOptions],
) -> DataFrame:
    """Read Kafka log segments into a DataFrame whose rows can be moved to a GPU without conversion to JVM rows.

    Parameters
    ----------
    spark : SparkSession
    source : str, PathLike or iterable of those
        As for `kolumn.read`. Segments are found and splits are planned during this call, on the driver, from headers alone.
    payload : str
        "binary": key and value have the type of Spark's Kafka source. "string": they stay strings that contain the same bytes,
        valid UTF-8 or not; RAPIDS can then group and join by them.
    transform : callable, optional
        Called in the worker with each decoded batch (a pyarrow.RecordBatch with the requested columns, key and value binary);
        returns the batch to pass on. A batch is only a part of a task: aggregates of it must be aggregated again in Spark.
    frame : str
        "arrow", or "cudf": ``transform`` takes and returns a cudf.DataFrame on the task's GPU, keys and values as strings, timestamps
        without a time zone. With ``backend="gpu"`` the frame is over the columns as they were decoded; else they are copied to the GPU.
    schema : StructType or str, optional
        Columns that ``transform`` returns, as DDL or as a StructType; columns are matched by name and cast where safe.
    split_bytes : int
        Approximate maximum of log bytes that one task reads. Default: 128 MiB; 512 MiB with ``transform``, since little leaves the worker.
    columns, start_offset, …
        All others as in `kolumn.scan`; ``threads`` and ``binary`` are rejected.

    Returns
    -------
    DataFrame
        It is lazy. Rows are in the order of the log within each task.

    Raises
    ------
    ArgumentError
        An option is unknown, a value is not allowed, the source has no segments, or one of ``transform`` and ``schema`` is given
        without the other. Errors in workers are raised as a PySparkException when the DataFrame is used.
    """
    use_this_python(spark)
    for name, value, allowed in (("payload", payload, _PAYLOADS), ("frame", frame, _FRAMES)):
        if value not in allowed:
            raise ArgumentError(f"{name}={value!r}: expected one of {', '.join(allowed)}")
    if (transform is None) != (schema is None):
        raise ArgumentError("transform and schema go together: schema names the columns that transform returns")
    if split_bytes is None:
        split_bytes = SPLIT_BYTES if transform is None else 4 * SPLIT_BYTES
    asked = LoadOptions.given(source, split_bytes, slots(spark), **options)
    splits = [split.ranges for split in plan_splits(asked, by_job(spark))]
    asked = with_types_of(asked)
    say_spark_types(asked)
    known = asked.decode.schema
    wire = crossing_schema(known) if schema is None else _typed(schema)

    def work(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        expected = arrow_schema(wire)
        for number in (value.as_py() for batch in numbers for value in batch.column(0)):
            decode = asked.decode if transform is None else _decoded_as(asked.decode, frame, splits[number])
            batches = read_task([(splits[number], decode)])
            made = ([crossing(batch)] if transform is None else apply(transform, batch, expected, frame) for batch in batches)
            yield from conformed(chain.from_iterable(made), expected)

    crossed = spark.range(0, len(splits), 1, len(splits)).mapInArrow(work, wire)
    return crossed if transform is not None else crossed.select(*(_column(field, payload) for field in known))


def _decoded_as(options: Options, frame: str, ranges: Sequence[Range]) -> Options:
    """In the worker: columns of ranges that a GPU decodes for cuDF stay there."""
    if frame == "cudf" and choose(options.backend) == "gpu":
        return resident_options(options, "string", ranges) or options
    return options


def crossing_schema(known: pa.Schema) -> StructType:
    """Spark types in which columns leave a worker: no binary, and no structs but typed values."""
    fields = []
    for field, own in zip(spark_schema(known), known, strict=True):
        if field.name == "headers":
            fields += [StructField(name, ArrayType(StringType())) for name in (KEYS, VALUES)]
        else:
            fields.append(StructField(field.name, StringType() if is_payload(own) else field.dataType))
    return StructType(fields)


def crossing(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Record columns with the types of `crossing_schema`; no bytes are copied or read."""
    arrays: dict[str, pa.Array] = {}
    for name in batch.schema.names:
        column = batch.column(name)
        if name == "headers":
            arrays[KEYS] = _member(column, "key")
            arrays[VALUES] = _member(column, "value").view(pa.list_(pa.string()))
        else:
            arrays[name] = column.view(pa.string()) if is_payload(batch.schema.field(name)) else column
    return pa.RecordBatch.from_pydict(arrays)


def is_payload(field: pa.Field) -> bool:
    """Whether a column contains a producer's bytes, and not text."""
    return bool(field.type == pa.binary())


def _member(headers: pa.ListArray, name: str) -> pa.ListArray:
    """One field of a list of structs, as a list that shares the validity and offset buffers."""
    values = headers.values.field(name)
    type_ = pa.list_(pa.field("element", values.type))
    return pa.ListArray.from_buffers(type_, len(headers), headers.buffers()[:2], headers.null_count, headers.offset, [values])


def _column(field: pa.Field, payload: str) -> Column:
    name = field.name
    if name == "headers":
        kafka = f"transform(arrays_zip({KEYS}, {VALUES}), x -> struct(x.{KEYS} AS key, CAST(x.{VALUES} AS BINARY) AS value))"
        return sql.expr(kafka).alias(name)
    column = sql.col(name)
    return column.cast("binary").alias(name) if is_payload(field) and payload == "binary" else column


def _typed(schema: StructType | str) -> StructType:
    if isinstance(schema, StructType):
        return schema
    parsed = StructType.fromDDL(schema)
    if not isinstance(parsed, StructType):
        raise ArgumentError(f"schema={schema!r}: expected columns with types, as 'name type, ...'")
    return parsed


def apply(transform: Transform, batch: "pa.RecordBatch | DeviceTable", expected: pa.Schema, frame: str) -> list[pa.RecordBatch]:
    """Apply ``transform`` to a batch, in the worker. Raises `ArgumentError` if it returns another type, or other columns than expected."""
    if frame == "arrow":
        returned = transform(batch)
        if not isinstance(returned, pa.RecordBatch):
            raise ArgumentError(f"transform has to return a pyarrow.RecordBatch, it returned {type(returned).__name__}")
        batches = [returned]
    else:
        batches = _on_gpu(transform, batch)
    names = batches[0].schema.names
    if set(names) != set(expected.names) or len(names) != len(expected):
        raise ArgumentError(f"transform returned the columns {names}, the schema has {expected.names}")
    return batches


def _on_gpu(transform: Transform, batch: "pa.RecordBatch | DeviceTable") -> list[pa.RecordBatch]:
    use_gpu()
    from kolumn.kernels.columns.assemble import from_cudf, from_pylibcudf, named, to_cudf

    frame = to_cudf(batch) if isinstance(batch, pa.RecordBatch) else from_pylibcudf(*named(batch))
    returned = transform(frame)
    if type(returned) is not type(frame):
        raise ArgumentError(f"transform has to return a cudf.DataFrame, it returned {type(returned).__name__}")
    return from_cudf(returned)
