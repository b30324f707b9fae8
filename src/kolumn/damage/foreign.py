"""Recognising files that are not Kafka log segments, and naming what they are instead."""

import re

from kolumn.core.errors import Code, CorruptBatchError, FormatError
from kolumn.formats import entry, layouts
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Segment
from kolumn.source.storage import base_name

_LOOKED_AT = 512
_SMALLEST_WRONG = 2
"""Number of wrong fields from which on the first bytes are not a header: damage to a segment seldom affects two fields."""
_LARGEST_OFFSET = 1 << 56
"""No log reaches this offset: a thousand million records a second for two years."""

_NAMES = (
    (r"\d{20}(-\S+)?\.index", "an offset index"),
    (r"\d{20}(-\S+)?\.timeindex", "a time index"),
    (r"\d{20}(-\S+)?\.txnindex", "a transaction index"),
    (r"\d{20}(-\S+)?\.snapshot", "a producer snapshot"),
    (r".*-checkpoint", "a checkpoint file"),
    (r"partition\.metadata", "the metadata of a partition"),
)
_SIGNATURES = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"PK\x03\x04", "a ZIP or JAR file"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"GIF8", "a GIF picture"),
    (b"%PDF", "a PDF document"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"Obj\x01", "an Avro file"),
    (b"ORC", "an ORC file"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\x7fELF", "a program"),
    (b"\xca\xfe\xba\xbe", "a Java class"),
)


def looks_like(file: SegmentFile) -> str | None:
    """Description of a file whose first bytes are not an entry's header; None if they can be a header, possibly damaged."""
    for pattern, what in _NAMES:
        if re.fullmatch(pattern, base_name(file.path)):
            return what
    head = bytes(file.read(0, min(_LOOKED_AT, file.size))[: min(_LOOKED_AT, file.size)])
    if not head or not _is_strange(head, file):
        return None
    return _signature(head) or ("text" if _is_text(head) else "bytes in which no batch begins")


def _is_strange(head: bytes, file: SegmentFile) -> bool:
    if not any(head):
        # The file begins with preallocated zeros.
        return False
    looks = _is_text(head) or _signature(head) is not None
    if layouts.has_own_frame(file.format) or len(head) <= entry.PREFIX:
        return looks
    offset, size = (int.from_bytes(head[start:stop], "big", signed=True) for start, stop in ((0, 8), (8, 12)))
    wrong = (
        looks,
        not _can_be(offset, file.segment),
        size < entry.SMALLEST or size > file.size - entry.OVERHEAD,
        layouts.layout_of(file.format, head[entry.MAGIC_AT]) == layouts.NO_LAYOUT,
    )
    return sum(wrong) >= _SMALLEST_WRONG


def _signature(head: bytes) -> str | None:
    return next((what for signature, what in _SIGNATURES if head.startswith(signature)), None)


def _can_be(offset: int, segment: Segment) -> bool:
    """Whether the first batch of a segment can have this base offset, or a wrapper of formats 0 and 1 this last one."""
    lowest = 0 if segment.base_offset is None else segment.base_offset
    return lowest <= offset < (segment.following or _LARGEST_OFFSET)


def _is_text(head: bytes) -> bool:
    control = sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in head)
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character may be cut only at the end.
        if error.start < len(head) - 3:
            return False
    return control == 0


def not_a_segment(path: str, size: int, what: str) -> CorruptBatchError:
    """The error for a file that is not a segment."""
    return FormatError(path, 0, Code.NOT_A_SEGMENT, found=f"{what} ({size} byte{'' if size == 1 else 's'})")
