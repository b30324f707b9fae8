"""Where segments are: files, directories, globs, URLs and lists become `Segment`s. Knows names, not formats.

    <log directory>/<topic>-<partition>/<20-digit base offset>.log

``.deleted`` and ``.cleaned`` files are no live data; a ``.swap`` file is the finished replacement of segments that a crash
left in place (`kolumn.plan.replaced` finds out which). Directories named ``…-delete``, ``…-stray`` and ``…-future`` are left
out of a log directory.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from kolumn import storage
from kolumn.errors import ArgumentError
from kolumn.storage import Entry

LOG = ".log"
SWAP = ".log.swap"
CLEANED = ".log.cleaned"

_BASE_OFFSET = re.compile(r"[0-9]{20}")
_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)(?:\.[0-9a-f]{32}-(?P<state>delete|future|stray))?")


@dataclass(frozen=True)
class Segment:
    """A segment file.

    Attributes
    ----------
    path : str
    topic, partition
        From the directory's name, split at the last dash; None where it is not ``topic-partition``.
    base_offset : int, optional
        From the file's name, where it has Kafka's 20 digits.
    size : int
        Bytes, when it was looked at. A segment is never read beyond that.
    format : str
        How the caller says that it is to be read; carried, not looked at.
    """

    path: str
    topic: str | None
    partition: int | None
    base_offset: int | None
    size: int
    format: str = "kafka"

    @property
    def is_swap(self) -> bool:
        """Whether this replaces other segments of its directory."""
        return self.path.endswith(SWAP)


@dataclass(frozen=True)
class Range:
    """Bytes [start, end) of a segment, cut at entries: what a task gets in place of the bytes themselves.

    ``floor`` is the last offset before ``start``, -1 for none: behind damage it tells entries from their look-alikes.
    ``transactions`` is what `kolumn.transactions` needs, where what became of them matters.
    """

    segment: Segment
    start: int
    end: int
    floor: int = -1
    transactions: Any = field(default=None, compare=False)

    @classmethod
    def whole(cls, segment: Segment) -> "Range":
        """All of a segment."""
        return cls(segment, 0, segment.size, (segment.base_offset or 0) - 1)


def find_segments(source: Any, topic: str | None = None, partition: int | None = None) -> list[Segment]:
    """Segments of ``source``, in the order of topic, partition and base offset within each of its parts.

    Parameters
    ----------
    source : str, PathLike or iterable of those
        A segment file of any name, a topic-partition directory, a log directory of many, or a glob of such; on this machine or behind a
        URL, which may be a bucket's prefix.
    topic, partition
        In place of what directory names say.

    Raises
    ------
    ArgumentError
        Nothing is there, or no segment is in it.
    """
    parts = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not parts:
        raise ArgumentError("no source given: name a segment file, a topic-partition directory, a log directory or a glob")
    segments: list[Segment] = []
    for part in parts:
        segments += _find(os.fspath(part))
    unique = list(dict.fromkeys(segments))
    if topic is not None:
        unique = [replace(segment, topic=topic) for segment in unique]
    if partition is not None:
        unique = [replace(segment, partition=partition) for segment in unique]
    return unique


def _find(name: str) -> list[Segment]:
    name = storage.plain(name)
    found = storage.look(name)
    if found is None:
        caught = storage.matches(name)
        if not caught:
            raise ArgumentError(f"{name}: no such file or directory")
        return [segment for one in caught for segment in _matched(one)]
    if not found.is_folder:
        return [_segment(found)]
    segments = _in_directory(found.name)
    if not segments:
        raise ArgumentError(f"{name}: no segment (*.log) in this directory nor in topic-partition directories below it")
    return segments


def _matched(found: Entry) -> list[Segment]:
    """A glob often catches index files and checkpoints too: only directories and segments count."""
    if found.is_folder:
        return _in_directory(found.name)
    return [_segment(found)] if found.name.endswith((LOG, SWAP, ".checkpoint")) else []


def _in_directory(folder: str) -> list[Segment]:
    entries = storage.listing(folder)
    files = [one for one in entries if not one.is_folder]
    here = _live([_segment(file) for file in files if file.name.endswith((LOG, SWAP))], files)
    below = [
        one for one in entries if one.is_folder and (match := _PARTITION.fullmatch(storage.base_name(one.name))) and not match["state"]
    ]
    order = sorted(below, key=lambda child: _topic_partition(storage.base_name(child.name)))
    return here + [segment for child in order for segment in _in_directory(child.name)]


def _live(segments: list[Segment], files: list[Entry]) -> list[Segment]:
    """Without swap files at or above the lowest ``.cleaned`` one: Kafka deletes those on start-up, their round was not finished."""
    cleaned = [offset for file in files if file.name.endswith(CLEANED) and (offset := _base_offset(file.name)) is not None]
    lowest = min(cleaned, default=None)
    live = [s for s in segments if not (s.is_swap and lowest is not None and s.base_offset is not None and s.base_offset >= lowest)]
    return sorted(live, key=lambda s: (-1 if s.base_offset is None else s.base_offset, s.path))


def _segment(file: Entry) -> Segment:
    name = file.name if storage.is_url(file.name) else os.path.abspath(file.name)
    topic, partition = _topic_partition(storage.base_name(storage.parent(name)))
    return Segment(file.name, topic or None, partition if topic else None, _base_offset(name), file.size)


def _topic_partition(name: str) -> tuple[str, int]:
    match = _PARTITION.fullmatch(name)
    return (match["topic"], int(match["partition"])) if match else ("", -1)


def _base_offset(name: str) -> int | None:
    """From Kafka's segment names alone: a snapshot's name says where it ends."""
    digits, _, suffix = storage.base_name(name).partition(".")
    return int(digits) if suffix.startswith("log") and _BASE_OFFSET.fullmatch(digits) else None


def sources(source: Any) -> Iterable[str]:
    """Names in a source argument, for messages."""
    return [os.fspath(source)] if isinstance(source, str | os.PathLike) else [os.fspath(part) for part in source]
