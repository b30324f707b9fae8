"""``writeStream.format("kolumn")``: the segments of an epoch, and its number, get their names in one commit.

Spark makes a writer for each epoch before its tasks, in a Python of the driver, and another one in another Python that commits or aborts.
Both know the options alone. So the staging folder's name comes from these: it is the stream's, one epoch after the other. The tasks
know the id of the query, which lasts as long as its checkpoint, and say it to the commit.
"""

import logging
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.formats.layouts import FORMAT_NAMES
from kolumn.spark_plugin.write.staging import Epoch, StagedSegments, Staging, publish
from kolumn.spark_plugin.write.writer import QUERY_ID, WriteOptions, check_write, lowered, write_segments
from kolumn.writers.commit.run import recover

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as _ArrowWriter
except ImportError:  # pyspark 4.0
    _ArrowWriter = object  # type: ignore[assignment, misc]

ID_OF_TASK = "sql.streaming.queryId"
"""The property of a job that has the id of its streaming query (``StreamExecution.QUERY_ID_KEY``)."""
_OF_THE_QUERY = ("checkpointlocation", "queryname")
logger = logging.getLogger("kolumn")


@dataclass
class WrittenEpoch(WriterCommitMessage):
    """The segments that a task of the query ``stream`` has written."""

    stream: str
    pieces: list[StagedSegments]


class StreamWriter(_ArrowWriter):
    """Appends each epoch of a query to a log directory, once, as `SegmentWriter` does with a DataFrame."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if _ArrowWriter is object:
            raise ArgumentError('writeStream.format("kolumn"): expected Spark 4.1 or later; foreachBatch with df.write works on this one')
        if overwrite:
            raise ArgumentError('output mode complete would replace the log in each epoch: expected append, outputMode("append")')
        given = lowered(options)
        self.options = WriteOptions.of({name: text for name, text in options.items() if name.lower() not in _OF_THE_QUERY})
        check_write(self.options, schema)
        self.checkpoint = given.get("checkpointlocation", "")
        known_by = given.get(QUERY_ID.lower()) or self.checkpoint
        if not known_by:
            raise ArgumentError(
                'no checkpointLocation: name it in the query, .option("checkpointLocation", path). A default of the session is enough '
                "with the connector's jar alone"
            )
        # This has to be done before anything looks for the end of a log.
        recover(self.options.path)
        self.staging = Staging(self.options.path, "stream", by_jvm=True, number=uuid.uuid5(uuid.NAMESPACE_URL, known_by).hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenEpoch:
        """Write the rows of one task; every attempt has its own folder."""
        context = TaskContext.get()
        stream = context.getLocalProperty(ID_OF_TASK) if context is not None else None
        if not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", stream or ""):
            raise KolumnError(f"Spark's property {ID_OF_TASK} of a task: expected the id of the query, found {stream!r}")
        return WrittenEpoch(str(stream), write_segments(iterator, self.options, self.staging))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Move the segments of an epoch to their places, on the driver; those of one that is there already are removed."""
        written = [message for message in messages if isinstance(message, WrittenEpoch)]
        pieces = [piece for message in written for piece in message.pieces]
        try:
            if pieces:
                epoch = Epoch(written[0].stream, batchId, self.checkpoint)
                if not publish(self.options.path, self.staging.name, pieces, False, FORMAT_NAMES[self.options.how.format], epoch):
                    text = "%s: the log has epoch %d of the stream %s already; its rows are not written again"
                    logger.warning(text, self.options.path, batchId, epoch.stream)
        finally:
            self.staging.remove()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove the segments that the tasks have written. A commit whose process died was completed when this writer was made."""
        self.staging.remove()
