"""Staged segments become part of a log directory: all of them, or none where anything is wrong with one."""

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from kolumn import storage
from kolumn.errors import ArgumentError, KolumnError
from kolumn.source import Segment, find_segments
from kolumn.spark_plugin.bounds import log_end
from kolumn.spark_plugin.staging import files_of


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


def publish(target: str, staging: str, pieces: list[Piece], overwrite: bool, format: str = "kafka") -> None:
    """Move staged segments to their places.

    Parameters
    ----------
    target : str
        The log directory, or its URL.
    staging : str
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
            _check_behind(storage.within(target, name), own[0], format)
    moves = _replaced(target, staging) if overwrite else []
    _move(moves + [move for piece in pieces for move in _files(piece, target)])


def end_of(folder: str, format: str) -> int | None:
    """Where the log of a topic-partition ends; None where there is none."""
    there = storage.look(folder)
    if there is None or not there.is_folder or not any(one.name.endswith(".log") for one in storage.listing(folder)):
        return None
    return log_end([replace(segment, format=format) for segment in find_segments(folder)])


def _check_behind(folder: str, piece: Piece, format: str) -> None:
    end = end_of(folder, format)
    if end is not None and piece.first < end:
        raise ArgumentError(f"{folder}: its log ends at offset {end}, and records from {piece.first} on were to be appended")


def _replaced(target: str, staging: str) -> list[tuple[str, str]]:
    """Topic-partitions that are there: object stores move file by file."""
    folders = sorted({storage.parent(segment.path) for segment in _segments(target)})
    places = [(folder, storage.within(staging, "replaced", storage.base_name(folder))) for folder in folders]
    if not storage.is_url(target):
        return places
    files = [(file.name, place) for folder, place in places for file in storage.listing(folder)]
    return [(name, storage.within(place, storage.base_name(name))) for name, place in files]


def _segments(target: str) -> list[Segment]:
    try:
        return find_segments(target)
    except ArgumentError:
        return []


def _files(piece: Piece, target: str) -> list[tuple[str, str]]:
    return [(name, storage.within(target, piece.name, storage.base_name(name))) for name in files_of(piece.folder)]


def _move(moves: list[tuple[str, str]]) -> None:
    done: list[tuple[str, str]] = []
    try:
        for source, place in moves:
            storage.make_folder(storage.parent(place))
            if storage.look(place) is not None:
                raise KolumnError(f"{place} is there already")
            storage.move(source, place)
            done.append((source, place))
    except BaseException:
        for source, place in reversed(done):
            storage.move(place, source)
            # Only one that is empty; behind a URL an empty one is as good as none.
            with suppress(OSError):
                os.rmdir(storage.parent(place))
        raise
