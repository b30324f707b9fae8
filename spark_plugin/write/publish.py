"""Staged segments become part of a log directory: all of them, or no segment if anything is wrong with one."""

import os
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path

from kolumn.copies.ends import log_end
from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.source import storage
from kolumn.source.names import LOG
from kolumn.source.segments import SIDE_FILES, Segment, find_segments
from kolumn.source.storage import FolderEntry
from kolumn.spark_plugin.write.staging import files_of, move_all
from kolumn.writers.commit.liveness import committing
from kolumn.writers.commit.run import recover

_OWN = (LOG, *SIDE_FILES)
"""Suffixes of the files that Kolumn's writers write into a topic-partition folder."""
_NAMED = 5


@dataclass(frozen=True)
class StagedSegments:
    """Segments of one topic-partition that one task has written: a staged folder, and their first and last offset."""

    topic: str
    partition: int
    folder: str
    first: int
    last: int

    @property
    def name(self) -> str:
        """Name of the topic-partition's folder."""
        return f"{self.topic}-{self.partition}"


def publish(target: str, staging: str, pieces: list[StagedSegments], overwrite: bool, format: str = "kafka") -> None:
    """Move staged segments from a job's folder to their places in a log directory; ``overwrite`` removes all topic-partitions in it.

    Raises
    ------
    ArgumentError
        Offsets overlap, between tasks or with the existing log, or ``overwrite`` would remove files that Kolumn did not write.
        Nothing has changed then.
    KolumnError
        Another run on this machine is committing to the log directory, a file cannot be moved, or staged files no longer exist.
        Files that were moved have been moved back; ``overwrite`` is completed by the next job.
    """
    with nullcontext() if storage.is_url(target) else committing(Path(target)):
        _publish(target, staging, pieces, overwrite, format)


def _publish(target: str, staging: str, pieces: list[StagedSegments], overwrite: bool, format: str) -> None:
    recover(target, own=staging)
    pieces = sorted((piece for piece in pieces if piece.last >= 0), key=lambda piece: (piece.name, piece.first))
    for name, group in groupby(pieces, key=lambda piece: piece.name):
        own = list(group)
        for one, other in pairwise(own):
            if other.first <= one.last:
                raise ArgumentError(
                    f"{name}: one task has the offsets {one.first} to {one.last}, another {other.first} to {other.last}. "
                    'Bring a partition into one task, or cut it by offsets: df.repartition("topic", "partition")'
                )
        if not overwrite:
            _check_follows(storage.within(target, name), own[0], format)
    gone = _replaced(target) if overwrite else []
    move_all(target, staging, [move for piece in pieces for move in _files(piece, target)], gone)


def end_of(folder: str, format: str) -> int | None:
    """Where the log of a topic-partition ends; None if there is no log."""
    there = storage.look(folder)
    if there is None or not there.is_folder or not any(one.name.endswith(".log") for one in storage.listing(folder)):
        return None
    return log_end([replace(segment, format=format) for segment in find_segments(folder)])


def _check_follows(folder: str, piece: StagedSegments, format: str) -> None:
    end = end_of(folder, format)
    if end is not None and piece.first < end:
        raise ArgumentError(f"{folder}: its log ends at offset {end}, and records from {piece.first} on were to be appended")


def _replaced(target: str) -> list[str]:
    """Files of all topic-partitions that exist; a link to a folder is listed as a link.

    Raises
    ------
    ArgumentError
        One of them is not a file that Kolumn writes.
    """
    names: list[str] = []
    foreign: list[str] = []
    for folder in sorted({storage.parent(segment.path) for segment in _segments(target)}):
        if storage.is_url(target):
            there = storage.listing(folder)
        elif os.path.samefile(folder, target):
            raise ArgumentError(f"{target} holds segments itself: name a log directory, which has a folder for each topic-partition")
        elif os.path.islink(folder):
            names.append(folder)
            continue
        else:
            there = [FolderEntry(one.path, 0, one.is_symlink() or not one.is_file()) for one in os.scandir(folder)]
        for one in there:
            (names if not one.is_folder and one.name.endswith(_OWN) else foreign).append(one.name)
    if foreign:
        some = ", ".join(sorted(foreign)[:_NAMED])
        raise ArgumentError(
            f"{target}: overwrite removes every topic-partition, and {len(foreign)} files or folders in them were not written by Kolumn: "
            f"{some}: move them away, or name another target"
        )
    return names


def _segments(target: str) -> list[Segment]:
    try:
        return find_segments(target)
    except ArgumentError:
        return []


def _files(piece: StagedSegments, target: str) -> list[tuple[str, str]]:
    """Where each file of a piece is, and where it goes."""
    there = storage.look(piece.folder)
    names = files_of(piece.folder) if there is not None and there.is_folder else []
    if not any(storage.base_name(name) == f"{piece.first:020}{LOG}" for name in names):
        raise KolumnError(f"{piece.folder}: segments of {piece.name} that were staged no longer exist: somebody has removed them")
    return [(name, storage.within(target, piece.name, storage.base_name(name))) for name in names]
