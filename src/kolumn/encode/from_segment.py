"""Bytes of a segment become bytes of a new file as they are."""

from kolumn.commit.staged_file import StagedFile
from kolumn.source.segment_file import SegmentFile

_LEAST = 1 << 18
"""Bytes that are worth a copy by the system: fewer are collected until as many are written at once."""
_AT_A_TIME = 8 << 20


def write_from(file: SegmentFile, start: int, stop: int, out: StagedFile) -> None:
    """Write bytes [start, stop) of a segment; raises `KolumnError` if they cannot be read or written."""
    if file.has_path and stop - start >= _LEAST:
        start += out.copy(file.descriptor, start, stop - start)
    for begin in range(start, stop, _AT_A_TIME):
        end = min(begin + _AT_A_TIME, stop)
        out.write(file.read(begin, end)[: end - begin])
