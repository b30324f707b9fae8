"""Where the log of a topic-partition ends now."""

from kolumn.cpu_fallback.check.checksums import check
from kolumn.entries.headers import headers
from kolumn.replicas.copies import copies
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Segment


def log_end(segments: list[Segment]) -> int:
    """The offset after the last complete entry of a partition. Reads the headers of the last segment, or that of each copy.

    An entry whose checksum is wrong at the very end counts as half written: a file that was allocated in advance has room for
    all of it before it has the bytes. For a partition without entries the result is the base offset of its last segment.
    """
    for folders in copies(segments).values():
        return max(log_end(own) for own in folders.values())
    for segment in reversed(segments):
        last = _last_offset(segment)
        if last is not None:
            return last + 1
    return segments[-1].base_offset or 0


def _last_offset(segment: Segment) -> int | None:
    last = [entries[i : i + 1] for entries in headers(segment) for i in range(max(len(entries) - 2, 0), len(entries))]
    with SegmentFile(segment) as file:
        for entry in reversed(last[-2:]):
            checked, start = entry.copy(), entry[0].position
            check(file.read(start, entry[0].end).ctypes.data, start, checked.array)
            if checked[0].is_intact:
                return checked[0].last_offset
    # Two damaged entries in a row are damage, not a write in progress: the read reports them.
    return last[-1][0].last_offset if last else None
