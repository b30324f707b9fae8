"""`explain`: the plan of a read, as tables and as text."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Unpack

import pyarrow as pa

from kolumn.backend import choose
from kolumn.copies.tiers import tiered
from kolumn.core import keywords
from kolumn.core.amounts import size
from kolumn.core.errors import KolumnError, shown
from kolumn.core.keywords import known_keywords
from kolumn.core.paths import MESSAGES, STREAMED, turned_off
from kolumn.core.results import counted
from kolumn.core.schema import LEFT_OUT_SCHEMA
from kolumn.core.text import in_column
from kolumn.damage.findings import rows_table
from kolumn.formats import layouts, v2
from kolumn.options import Options
from kolumn.readers.plan import ReadPlan, plan_read
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range, Segment
from kolumn.source.storage import is_url, parent

PARTITIONS_SCHEMA = pa.schema(
    [
        *(("topic", pa.string()), ("partition", pa.int64()), ("copies", pa.int64()), ("log", pa.string())),
        *(("segments", pa.int64()), ("bytes", pa.int64()), ("bytesRead", pa.int64())),
        *(("abortedTransactions", pa.int64()), ("openTransactions", pa.int64())),
    ]
)
"""One row for each topic-partition. ``log`` says how its copies become one log; transactions are null if the read does not ask for them."""
RANGES_SCHEMA = pa.schema(
    [
        *(("path", pa.string()), ("topic", pa.string()), ("partition", pa.int64()), ("position", pa.int64()), ("bytes", pa.int64())),
        *(("startOffset", pa.int64()), ("endOffset", pa.int64()), ("decoder", pa.string()), ("reason", pa.string())),
    ]
)
"""One row for each range of bytes that is read, in order. Records outside of the offsets are left out; null for no bound."""
_FIRST_BYTES = 17  # up to the magic of the first entry
_MOST = 20


@dataclass(frozen=True, repr=False)
class ReadExplanation:
    """What `kolumn.explain` returns; as text it is what ``kolumn explain`` prints.

    Attributes
    ----------
    partitions : pa.Table
        The topic-partitions, columns of `PARTITIONS_SCHEMA`.
    ranges : pa.Table
        What is read of which segment, and how, columns of `RANGES_SCHEMA`.
    left_out : pa.Table
        Files, folders and segments that the read does not return, with the reason; columns of `kolumn.schema.LEFT_OUT_SCHEMA`.
    schema : pa.Schema
        Columns that the read returns.
    backend : str
        "cpu" or "gpu".
    threads, chunk_bytes : int
        Chunks that are decoded at a time, and about how many bytes of a segment each has.
    """

    partitions: pa.Table
    ranges: pa.Table
    left_out: pa.Table
    schema: pa.Schema
    backend: str
    threads: int
    chunk_bytes: int

    def __repr__(self) -> str:
        lines = [
            f"{counted(self.partitions.num_rows, 'partition')}, {counted(self.ranges.num_rows, 'range')}, "
            f"{size(sum(self.partitions['bytesRead'].to_pylist()))} of {size(sum(self.partitions['bytes'].to_pylist()))} are read, "
            f"by {counted(self.threads, 'thread')} in chunks of {size(self.chunk_bytes)}, decoded on the {self.backend.upper()}",
            "columns: " + ", ".join(self.schema.names),
        ]
        for title, table in (("partitions", self.partitions), ("ranges", self.ranges), ("left out", self.left_out)):
            lines += ["", f"{title}:"] if table.num_rows else ["", f"{title}: none"]
            for row in table.slice(0, _MOST).to_pylist():
                lines.append("  " + ", ".join(f"{name}={shown(str(value))}" for name, value in row.items() if value is not None))
            if table.num_rows > _MOST:
                lines.append(f"  and {table.num_rows - _MOST} more")
        return "\n".join(lines)


@known_keywords()
def explain(source: keywords.Source, **options: Unpack[keywords.ReadOptions]) -> ReadExplanation:
    """Plan a read, and say what it would do, without reading a payload.

    Names, headers of batches and side files are read, as the read itself does before it decodes. Two options need more: with
    ``replicas="merge"`` the bytes of copies are compared, and the type of ``value_format="json"`` without a schema is inferred from the
    first values.

    Parameters
    ----------
    source : str, PathLike or iterable of those
        As in `kolumn.scan`.
    **options
        Those of `kolumn.scan`.

    Returns
    -------
    ReadExplanation

    Raises
    ------
    ArgumentError
        As `kolumn.scan` would raise it, before it reads.
    """
    plan = plan_read(source, Options.of(**options))
    backend = choose(plan.options.backend)
    return ReadExplanation(
        pa.Table.from_pylist(_partition_rows(plan), PARTITIONS_SCHEMA),
        rows_table((_range_row(part, plan.options, backend) for part in plan.ranges), RANGES_SCHEMA),
        pa.concat_tables([plan.live.left_out(), rows_table(_unread(plan), LEFT_OUT_SCHEMA)]),
        plan.options.schema,
        backend,
        plan.options.threads,
        plan.options.chunk_bytes,
    )


def _partition_rows(plan: ReadPlan) -> list[dict[str, Any]]:
    segments: dict[Any, list[Segment]] = {}
    for segment in plan.live.segments:
        segments.setdefault((segment.topic, segment.partition), []).append(segment)
    ranges: dict[Any, list[Range]] = {key: [] for key in segments}
    for part in plan.ranges:
        ranges.setdefault((part.segment.topic, part.segment.partition), []).append(part)
    tiers = tiered(plan.live.segments)
    return [_partition_row(key, own, ranges[key], key in tiers, plan.options) for key, own in segments.items()]


def _partition_row(key: Any, own: list[Segment], ranges: list[Range], is_tiered: bool, options: Options) -> dict[str, Any]:
    folders = Counter(parent(segment.path) or "." for segment in own)
    if len(folders) == 1:
        log = "one copy"
    elif is_tiered:
        log = "segments of the tier and of the broker's folder, each offset once"
    elif options.replicas == "merge":
        log = "all copies, each offset once, by leader epochs"
    elif options.replicas == "first":
        log = f"the first copy alone, {shown(next(iter(folders)))}"
    else:
        log = "all copies, which have no offset in common"
    transactions = next((part.transactions for part in ranges if part.transactions is not None), None)
    return {
        "topic": None if key[0] is None else in_column(key[0]),
        "partition": key[1],
        "copies": len(folders),
        "log": log,
        "segments": len(own),
        "bytes": sum(segment.size for segment in own),
        "bytesRead": sum(part.end - part.start for part in ranges),
        "abortedTransactions": None if transactions is None else len(transactions.aborted),
        "openTransactions": None if transactions is None else len(transactions.open),
    }


def _range_row(part: Range, options: Options, backend: str) -> tuple[object, ...]:
    segment = part.segment
    decoder, reason = ("none", str(part.fault)) if part.fault is not None else _decoder(segment, options, backend)
    place = in_column(segment.path), None if segment.topic is None else in_column(segment.topic), segment.partition
    return *place, part.start, part.end - part.start, part.start_offset, part.end_offset, decoder, reason


def _decoder(segment: Segment, options: Options, backend: str) -> tuple[str, str]:
    """What decodes a segment, and why; damage and batches of unusual size are decoded stage by stage, whatever this says."""
    if backend == "gpu":
        return "kernels", "backend is gpu"
    if segment.format != layouts.KAFKA_FORMAT.name:
        return _decoder_of(segment.format)
    if segment.memory is not None or segment.manifest is not None or is_url(segment.path):
        return "block by block", "unless its first batch is of an unknown magic; the first bytes of remote segments are not read for a plan"
    try:
        with SegmentFile(segment) as file:
            first = file.read(0, min(_FIRST_BYTES, segment.size))
    except KolumnError:
        return "none", "there is no batch"
    if segment.size < _FIRST_BYTES or not first[:16].any():
        return "none", "there is no batch"
    magic = int(first[16])
    if magic > v2.MAGIC:
        return "stage by stage", f"magic {magic} is unknown"
    path = STREAMED if magic == v2.MAGIC else MESSAGES
    return ("stage by stage", f"KOLUMN_PATHS turns {path} off") if path in turned_off() else ("block by block", f"format {magic}")


def _decoder_of(format: str) -> tuple[str, str]:
    """What decodes a segment in another format than Kafka's, and why."""
    if layouts.FORMAT_NAMES.index(format) not in layouts.STREAMED:
        return "stage by stage", f"format {format} is a draft"
    is_off = STREAMED in turned_off()
    return ("stage by stage", f"KOLUMN_PATHS turns {STREAMED} off") if is_off else ("block by block", f"format {format}")


def _unread(plan: ReadPlan) -> Iterator[tuple[object, ...]]:
    """Rows for live segments of which nothing is read."""
    read = {part.segment.path for part in plan.ranges}
    keys = {(part.segment.topic, part.segment.partition, parent(part.segment.path)) for part in plan.ranges}
    known = {key[:2] for key in keys}
    for segment in plan.live.segments:
        if segment.path in read:
            continue
        key = (segment.topic, segment.partition, parent(segment.path))
        if segment.size == 0:
            kind, reason = "empty", "it has no bytes"
        elif key not in keys and key[:2] in known:
            kind, reason = "copy", f"replicas={plan.options.replicas!r}: another copy of the partition has its offsets"
        else:
            kind, reason = "range", "its offsets and timestamps are outside the requested range, or below the log start offset"
        yield shown(segment.path), kind, 1, segment.size, None, reason
