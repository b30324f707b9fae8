"""Staged segments become part of a log directory: all of them, or none where anything is wrong with one."""

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path

from kolumn.errors import ArgumentError, KolumnError
from kolumn.source import Segment, find_segments
from kolumn.spark_plugin.bounds import log_end


@dataclass(frozen=True)
class Piece:
    """Segments of one topic-partition that one task has written: a staged folder, and their first and last offset."""

    topic: str
    partition: int
    folder: str
    first: int
    last: int

    @property
    def name(self) -> str:
        """Of the topic-partition's folder."""
        return f"{self.topic}-{self.partition}"


def publish(target: Path, staging: Path, pieces: list[Piece], overwrite: bool, format: str = "kafka") -> None:
    """Move staged segments to their places.

    Parameters
    ----------
    target : Path
        The log directory.
    staging : Path
        A folder on the same file system, for what ``overwrite`` replaces.
    pieces : list of Piece
    overwrite : bool
        Whether the topic-partitions that are there go away, all of them.
    format : str
        Of the logs.

    Raises
    ------
    ArgumentError
        Offsets that overlap, between tasks or with what is there. Nothing has changed then.
    KolumnError
        A file can't be moved. What was moved has been moved back.
    """
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
            _check_behind(target / name, own[0], format)
    moves = _replaced(target, staging) if overwrite else []
    _move(moves + [move for piece in pieces for move in _files(piece, target)])


def end_of(folder: Path, format: str) -> int | None:
    """Where the log of a topic-partition ends; None where there is none."""
    if not folder.is_dir() or not any(folder.glob("*.log")):
        return None
    return log_end([replace(segment, format=format) for segment in find_segments(folder)])


def _check_behind(folder: Path, piece: Piece, format: str) -> None:
    end = end_of(folder, format)
    if end is not None and piece.first < end:
        raise ArgumentError(f"{folder}: its log ends at offset {end}, and records from {piece.first} on were to be appended")


def _replaced(target: Path, staging: Path) -> list[tuple[Path, Path]]:
    """Topic-partitions that are there."""
    folders = {Path(segment.path).parent for segment in _segments(target)}
    return [(folder, staging / "replaced" / folder.name) for folder in sorted(folders)]


def _segments(target: Path) -> list[Segment]:
    try:
        return find_segments(target)
    except ArgumentError:
        return []


def _files(piece: Piece, target: Path) -> list[tuple[Path, Path]]:
    """The logs come last: an index without its log is no segment."""
    staged = sorted(Path(piece.folder).iterdir(), key=lambda path: (path.suffix == ".log", path.name))
    return [(path, target / piece.name / path.name) for path in staged]


def _move(moves: list[tuple[Path, Path]]) -> None:
    done: list[tuple[Path, Path]] = []
    try:
        for source, place in moves:
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.exists():
                raise KolumnError(f"{place} is there already")
            source.rename(place)
            done.append((source, place))
    except BaseException as error:
        for source, place in reversed(done):
            place.rename(source)
            with suppress(OSError):
                os.rmdir(place.parent)
        if isinstance(error, OSError):
            raise KolumnError(f"{error.filename}: cannot be moved to its place: {error.strerror}") from error
        raise
