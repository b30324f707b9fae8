"""Which segments are Redpanda's, where the caller named no format: those with its names, and what begins with its batch and has no base
offset in its name."""

from dataclasses import replace

from kolumn.damage.segment_end import is_redpandas
from kolumn.formats import redpanda
from kolumn.formats.entry import MAGIC_AT
from kolumn.source.segments import Segment
from kolumn.source.storage import is_url

FORMAT = redpanda.FORMAT.name


def recognised(segments: list[Segment]) -> list[Segment]:
    """The segments, with the format of those that are Redpanda's. What has no name of a segment is looked at, except far away."""
    if all(segment.raft is None and segment.base_offset is not None for segment in segments):
        return segments
    return [replace(segment, format=FORMAT) if _is_redpandas(segment) else segment for segment in segments]


def _is_redpandas(segment: Segment) -> bool:
    if segment.raft is not None:
        # A damaged first batch must not change what a segment is.
        return True
    if segment.base_offset is not None or segment.size < redpanda.HEADER or segment.fault is not None:
        return False
    if segment.path.endswith(".checkpoint") or (segment.memory is None and is_url(segment.path)):
        return False
    head = _head(segment)
    # Type 0, where Kafka has its first magic, is none of Redpanda's.
    return head[MAGIC_AT : MAGIC_AT + 1] != b"\0" and is_redpandas(head)


def _head(segment: Segment) -> bytes:
    if segment.memory is not None:
        return bytes(memoryview(segment.memory)[: redpanda.HEADER])
    try:
        with open(segment.path, "rb") as file:
            return file.read(redpanda.HEADER)
    except OSError:
        return b""
