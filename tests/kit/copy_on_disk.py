"""A copy of a partition on a disk: its intact entries, whose places the caller knows and nobody searches, and what lies between them."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kit import oracle

NEVER = 1 << 64
"""Above every offset and every leader epoch."""
Known = tuple[int, int, int]
"""First and last offset of a stretch, and the leader epoch that it has."""


class File(NamedTuple):
    """A segment, and the positions at which intact entries begin."""

    base: int
    path: Path
    intact: tuple[int, ...]


class Entry(NamedTuple):
    """An intact entry; ``file`` and ``position`` say where it lies, ``epoch`` is -1 in formats without leader epochs."""

    file: int
    position: int
    end: int
    base: int
    last: int
    epoch: int
    rows: list[oracle.Row]


class Gap(NamedTuple):
    """Damaged bytes between intact entries of a file, or between one and an end of the file.

    No offset in it is below ``lowest``, the segment's base offset if it is the first in the file; if it is the last, none is as high as
    ``limit``, the base offset of the next segment.
    """

    file: int
    position: int
    data: bytes
    lowest: int
    limit: int

    def headers(self) -> list[Known] | None:
        """What the headers in it say, if their lengths lead through all of it."""
        found, at = [], 0
        while len(self.data) - at >= 61:
            base, size, epoch, magic = struct.unpack_from(">qiib", self.data, at)
            if magic != 2 or size < 49:
                return None
            found.append((base, base + struct.unpack_from(">i", self.data, at + 23)[0], epoch))
            at += 12 + size
        return found if at == len(self.data) else None


def contents(files: list[File]) -> tuple[list[Entry], list[Gap]]:
    """Entries and gaps of a copy in order."""
    entries: list[Entry] = []
    gaps: list[Gap] = []
    files = sorted(files)
    for i, file in enumerate(files):
        data, limit = file.path.read_bytes(), files[i + 1].base if i + 1 < len(files) else NEVER
        own = [read_entry(i, data, at) for at in sorted(file.intact)]
        entries += own
        for start, end in zip([0, *(one.end for one in own)], [*(one.position for one in own), len(data)], strict=True):
            if start < end:
                gaps.append(Gap(i, start, data[start:end], -NEVER if start else file.base, NEVER if end < len(data) else limit))
    return entries, gaps


def read_entry(file: int, data: bytes, at: int) -> Entry:
    """The intact entry at a position of a file's data."""
    end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    read = oracle.read_entry(data[at:end], at)
    assert read.error is None, (file, at, read.error)
    if data[at + 16] == 2:
        epoch, delta = struct.unpack_from(">i", data, at + 12)[0], struct.unpack_from(">i", data, at + 23)[0]
        return Entry(file, at, end, read.base_offset, read.base_offset + delta, epoch, read.rows)
    return Entry(file, at, end, read.rows[0].offset, read.rows[-1].offset, -1, read.rows)


def topic_ids(files: list[File]) -> Iterator[str]:
    """The topic id beside the segments, if there is one."""
    for path in {file.path.parent / "partition.metadata" for file in files}:
        if path.exists():
            yield from (line[10:] for line in path.read_text().splitlines() if line.startswith("topic_id: "))
