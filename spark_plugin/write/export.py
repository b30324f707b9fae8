"""`export`, a name of version 0.1: a stream into Parquet, whose own sink commits it.

That version had an exporter with its own journal, manifests and locks. Sinks of streams commit by themselves, and kills at any of their
steps leave the same rows, once each. Three things are lost. Other readers than Spark may see files that a killed run has left, unless they
ask ``_spark_metadata`` which ones count: the formats of tables are the remedy. ``replicas="merge"`` has to be a batch read. And the workers
wrote Parquet faster than Spark does.
"""

import json
import os
import re
from contextlib import suppress
from datetime import datetime
from typing import Literal, Unpack
from warnings import warn

from pyspark.sql import SparkSession

from kolumn.core import keywords
from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.core.keywords import known_keywords
from kolumn.source.segments import named_parts
from kolumn.source.storage import base_name, listing, look, read_bytes, within
from kolumn.spark_plugin.read.options import NOT_IN_SPARK, SPLIT_BYTES, camel, local
from kolumn.spark_plugin.session.session import use_this_python

_DAY = "date_add(DATE'1970-01-01', int(floor(unix_micros(timestamp) / 86400000000D))) AS day"
"""In UTC, whatever the session's time zone is."""


@known_keywords(
    NOT_IN_SPARK
    | {"filesystem": "option 'filesystem': Spark's file systems write; name a URL that it knows"}
    | {"row_group_rows": "option 'row_group_rows': Spark's setting parquet.block.size says how large row groups are"}
)
def export(
    spark: SparkSession,
    source: keywords.Source,
    target: str,
    format: Literal["parquet"] = "parquet",
    *,
    by_day: bool = False,
    compression: keywords.Compression = "zstd",
    split_bytes: int = SPLIT_BYTES,
    fail_on_data_loss: bool = True,
    **options: Unpack[keywords.RecordOptions],
) -> None:
    """Stream the records that the target does not have yet into Parquet. Deprecated: write the stream, ``docs/howto/tables.md``.

    Files are below ``topic=…/partition=…/[day=…/]``. The state is Spark's checkpoint in ``_checkpoint`` of the target. Spark reads every
    record once; another reader takes the files that ``_spark_metadata`` names, since a killed run may leave others.

    Parameters
    ----------
    spark : SparkSession
    source : str, PathLike or iterable of those: every segment needs a topic and a partition
    target : str, a folder or URL that Spark can write to
    format : "parquet"
    by_day : bool, for folders of UTC days of the timestamps below each partition's
    compression, split_bytes : str, int
        A codec of Parquet, "none" for no compression; approximate maximum of log bytes that one task reads.
    fail_on_data_loss : bool
        Whether it is an error if the log does not continue where the target ends.
    columns, start_offset, …
        All others as in `kolumn.scan`; ``threads`` and ``binary`` are rejected.

    Raises
    ------
    ArgumentError
        The target was made by version 0.1; the text has the offsets from which a stream goes on.
    pyspark.errors.StreamingQueryException
        The stream has failed, for example because the log does not go on where the target ends.
    """
    warn(
        "kolumn.spark_plugin.export goes in the next version: write a stream (docs/howto/tables.md)",
        DeprecationWarning,
        stacklevel=3,
    )
    use_this_python(spark)
    if format != "parquet":
        raise ArgumentError(f"format={format!r}: expected 'parquet'; the format of the log is always found out")
    _refuse_older(local(target))
    if (columns := options.get("columns")) is not None:
        columns = [columns] if isinstance(columns, str) else list(columns)
        options["columns"] = list(dict.fromkeys([*columns, "topic", "partition", "offset", *(["timestamp"] if by_day else [])]))
    texts = {camel(name): _text(value) for name, value in options.items() if value is not None}
    texts |= {"paths": json.dumps([local(os.fspath(part)) for part in named_parts(source)]), "splitBytes": str(split_bytes)}
    texts |= {"startingOffsets": "earliest", "failOnDataLoss": _text(fail_on_data_loss)}
    records = spark.readStream.format("kolumn").options(**texts).load()
    writer = (records.selectExpr("*", _DAY) if by_day else records).writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.partitionBy("topic", "partition", *(["day"] if by_day else [])).option("compression", compression)
    writer.option("checkpointLocation", within(target, "_checkpoint")).start(target).awaitTermination()


def _text(value: object) -> str:
    """An option as Spark passes it on."""
    if isinstance(value, dict):
        paths = all(isinstance(name, str) and "/" in str(path) for name, path in value.items())
        return ",".join(f"{name}={path}" for name, path in value.items()) if paths else json.dumps(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value).lower() if isinstance(value, bool) else ",".join(value) if isinstance(value, list | tuple) else str(value)


def _refuse_older(target: str) -> None:
    """Raise `ArgumentError` for a target of version 0.1, with the offsets after its last run."""
    names: list[str] = []
    with suppress(KolumnError):
        # At a URL that pyarrow does not know no export could be.
        folder = within(target, "_kolumn")
        names = sorted(base_name(entry.name) for entry in listing(folder)) if look(folder) is not None else []
    done, begun = ([name for name in names if re.fullmatch(rf"\d{{8,}}{kind}\.json", name)] for kind in ("", r"\.intent"))
    if not done and not begun:
        return
    known = json.loads(read_bytes(within(folder, done[-1])) or b"{}").get("partitions", {}) if done else {}
    offsets = {topic: {partition: own["next"] for partition, own in some.items()} for topic, some in known.items()}
    first = f"First `kolumn tidy` of version 0.1 has to complete {begun[-1]}. " if begun else ""
    raise ArgumentError(
        f"{target} was made by the exporter of version 0.1, and this one does not go on with it. {first}Stream into another folder, from "
        f".option('startingOffsets', '{json.dumps(offsets)}')"
    )
