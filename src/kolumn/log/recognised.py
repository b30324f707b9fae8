"""Which segments are Redpanda's, where the caller named no format: those with its names, and what begins with its batch and has no base
offset in its name."""

import struct
from dataclasses import replace

import numpy as np

from kolumn.formats import redpanda
from kolumn.source.segments import Segment
from kolumn.source.storage import is_url

FORMAT = redpanda.FORMAT.name
_SIZE, _KIND = struct.Struct("<4xi"), 16
_LARGEST = 1 << 30


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
    return _begins_with_a_batch(_head(segment))


def _head(segment: Segment) -> bytes:
    if segment.memory is not None:
        return bytes(memoryview(segment.memory)[: redpanda.HEADER])
    try:
        with open(segment.path, "rb") as file:
            return file.read(redpanda.HEADER)
    except OSError:
        return b""


def _begins_with_a_batch(head: bytes) -> bool:
    """Whether some bytes are a header with the right checksum, which costs more to compare than the fields that Kafka has elsewhere."""
    if len(head) < redpanda.HEADER or not redpanda.HEADER <= _SIZE.unpack_from(head)[0] <= _LARGEST or not head[_KIND]:
        return False
    return redpanda.has_header(np.frombuffer(head, np.uint8), 0)
