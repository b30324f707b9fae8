"""`explain`: the plan of a read, as tables and as text."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Unpack

import pyarrow as pa

from kolumn.backend import choose
from kolumn.copies.tiers import tiered
from kolumn.core import keywords
from kolumn.core.errors import KolumnError, shown
from kolumn.core.keywords import known_keywords
from kolumn.core.paths import MESSAGES, STREAMED, is_on
from kolumn.core.schema import LEFT_OUT_SCHEMA
from kolumn.core.text import in_column
from kolumn.formats import v2
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
_FIRST_BYTES = 17
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
        Files, folders and segments that the read does not return, with the reason; columns of `kolumn.core.schema.LEFT_OUT_SCHEMA`.
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
            f"{_count(self.partitions.num_rows, 'partition')}, {_count(self.ranges.num_rows, 'range')}, "
            f"{sum(self.partitions['bytesRead'].to_pylist())} of {sum(self.partitions['bytes'].to_pylist())} bytes are read, "
            f"by {_count(self.threads, 'thread')} in chunks of {self.chunk_bytes} bytes, decoded on the {self.backend.upper()}",
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
    chosen = Options.of(**options)
    return explained(plan_read(source, chosen))


def explained(plan: ReadPlan) -> ReadExplanation:
    """The plan as tables."""
    options, backend = plan.options, choose(plan.options.backend)
    ranges = [_range_row(one, options, backend) for one in plan.ranges]
    left_out = [*plan.live.left_out().to_pylist(), *_unread(plan)]
    return ReadExplanation(
        pa.Table.from_pylist(_partition_rows(plan), PARTITIONS_SCHEMA),
        pa.Table.from_pylist(ranges, RANGES_SCHEMA),
        pa.Table.from_pylist(left_out, LEFT_OUT_SCHEMA),
        options.schema,
        backend,
        options.threads,
        options.chunk_bytes,
    )


def _partition_rows(plan: ReadPlan) -> list[dict[str, Any]]:
    segments: dict[Any, list[Segment]] = {}
    for segment in plan.live.segments:
        segments.setdefault((segment.topic, segment.partition), []).append(segment)
    ranges: dict[Any, list[Range]] = {key: [] for key in segments}
    for one in plan.ranges:
        ranges.setdefault((one.segment.topic, one.segment.partition), []).append(one)
    tiers = tiered(plan.live.segments)
    return [_partition_row(key, own, ranges[key], key in tiers, plan.options) for key, own in segments.items()]


def _partition_row(key: Any, own: list[Segment], ranges: list[Range], is_tiered: bool, options: Options) -> dict[str, Any]:
    folders = Counter(parent(one.path) or "." for one in own)
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
    known = next((one.transactions for one in ranges if one.transactions is not None), None)
    return {
        "topic": None if key[0] is None else in_column(key[0]),
        "partition": key[1],
        "copies": len(folders),
        "log": log,
        "segments": len(own),
        "bytes": sum(one.size for one in own),
        "bytesRead": sum(one.end - one.start for one in ranges),
        "abortedTransactions": None if known is None else len(known.aborted),
        "openTransactions": None if known is None else len(known.open),
    }


def _range_row(one: Range, options: Options, backend: str) -> dict[str, Any]:
    segment = one.segment
    decoder, reason = ("none", str(one.fault)) if one.fault is not None else _decoder(segment, options, backend)
    return {
        "path": in_column(segment.path),
        "topic": None if segment.topic is None else in_column(segment.topic),
        "partition": segment.partition,
        "position": one.start,
        "bytes": one.end - one.start,
        "startOffset": one.start_offset,
        "endOffset": one.end_offset,
        "decoder": decoder,
        "reason": reason,
    }


def _decoder(segment: Segment, options: Options, backend: str) -> tuple[str, str]:
    """What decodes a segment, and why; damage and batches of unusual size are decoded stage by stage, whatever this says."""
    if backend == "gpu":
        return "kernels", "backend is gpu"
    if options.format != "kafka":
        return "stage by stage", f"format {options.format} is a draft"
    if segment.memory is not None or segment.manifest is not None or is_url(segment.path):
        return "block by block", "unless its first batch is of an unknown magic; the first bytes of remote segments are not read for a plan"
    magic = _magic(segment)
    if magic is None:
        return "none", "there is no batch"
    if magic > v2.MAGIC:
        return "stage by stage", f"magic {magic} is unknown"
    path = STREAMED if magic == v2.MAGIC else MESSAGES
    return ("block by block", f"format {magic}") if is_on(path) else ("stage by stage", f"KOLUMN_PATHS turns {path} off")


def _magic(segment: Segment) -> int | None:
    """Magic of the first entry, from the first 17 bytes; None if there are none."""
    try:
        with SegmentFile(segment) as file:
            first = file.read(0, min(_FIRST_BYTES, segment.size))
    except KolumnError:
        return None
    return int(first[16]) if segment.size >= _FIRST_BYTES and first[:16].any() else None


def _unread(plan: ReadPlan) -> list[dict[str, Any]]:
    """Rows for live segments of which nothing is read."""
    read = {one.segment.path for one in plan.ranges}
    keys = {(one.segment.topic, one.segment.partition, parent(one.segment.path)) for one in plan.ranges}
    known = {key[:2] for key in keys}
    rows = []
    for one in plan.live.segments:
        if one.path in read:
            continue
        key = (one.topic, one.partition, parent(one.path))
        is_copy = key not in keys and key[:2] in known
        if one.size == 0:
            kind, reason = "empty", "it has no bytes"
        elif is_copy:
            kind, reason = "copy", f"replicas={plan.options.replicas!r}: another copy of the partition has its offsets"
        else:
            kind, reason = "range", "its offsets and timestamps are outside of those that are asked for, or below the log start offset"
        rows.append({"path": shown(one.path), "kind": kind, "files": 1, "bytes": one.size, "records": None, "reason": reason})
    return rows


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"
