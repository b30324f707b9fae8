"""Files that tasks have written, in a folder on the target's file system, until the driver moves them to their places.

Staged segments become part of a log directory: all of them, or no segment if anything is wrong with one.
"""

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from kolumn.copies.copies import log_end
from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.source import storage
from kolumn.source.names import LOG, file_name
from kolumn.source.segments import SIDE_FILES, find_segments
from kolumn.source.storage import FolderEntry
from kolumn.writers.commit.liveness import WAIT_S, committing, hold, is_ours, write_owner
from kolumn.writers.commit.run import STREAMS, commit, discard, new_folder, pending, recover, settle
from kolumn.writers.commit.staged_file import StagedFile, make_folders, writing
from kolumn.writers.outgoing import send

_VERSION = 1  # of a stream's file


class Staging:
    """One job's folder below a target, a path or URL. Its name is not that of a topic-partition, so readers ignore it.

    The job, of a kind such as "write", lives as long as this process or, with ``by_jvm``, as the JVM that has started it. A job that is
    known by a ``number`` has one folder at a time: this process takes it over from others of the same JVM, and removes it otherwise.
    Raises `KolumnError` if the folder cannot be made.
    """

    def __init__(self, target: str, name: str, by_jvm: bool = False, number: str = "") -> None:
        self.root = target
        self.name = new_folder(target, name, number)
        # At a URL a folder exists once a file is in it: object stores have no empty folders.
        if storage.is_url(self.name):
            return
        if number and is_ours(Path(self.name), by_jvm):
            write_owner(Path(self.name), by_jvm)
            return
        if number and os.path.lexists(self.name):
            with suppress(FileNotFoundError):
                action, why = settle(target, self.name, old_s=0)
                if action == "left":
                    raise KolumnError(f"{self.name}: {why}: expected no other run of this stream. Stop that one first")
        with writing(self.name):
            make_folders(Path(self.name).parent)
        write_owner(_make(Path(self.name)), by_jvm)

    @contextmanager
    def attempt(self) -> Iterator[tuple[Path, str]]:
        """A new folder that no other attempt of a task has: the path to write to, and its name. Raises `KolumnError` if the job is over."""
        name = storage.within(self.name, uuid.uuid4().hex)
        if not storage.is_url(name):
            yield _make(Path(name)), name
            return
        with TemporaryDirectory(prefix="kolumn-") as folder:
            yield Path(folder), name
            send(Path(folder), name)

    def remove(self) -> None:
        """Remove the whole folder, unless a later run needs it to complete a commit.

        At a URL, a task that Spark has not stopped yet may still leave files there; readers ignore them.
        """
        discard(self.name)


def _make(folder: Path) -> Path:
    with writing(folder):
        folder.mkdir(mode=0o700)
    return folder


def move_all(root: str, staging: str, moves: list[tuple[str, str]], gone: Sequence[str] = ()) -> None:
    """Move staged files to their names below a folder and remove the files ``gone``: all of this is done, or nothing."""
    if storage.is_url(root):
        commit(root, staging, moves, gone)
        return
    with writing(staging):
        # Another run must not take the commit for that of a dead one.
        lock = hold(Path(staging), WAIT_S)
    try:
        commit(root, staging, moves, gone)
    finally:
        os.close(lock)


def files_of(folder: str) -> list[str]:
    """Names of the files in an attempt's folder, in the order in which they must appear at their places: segments last."""
    return sorted((file.name for file in storage.listing(folder)), key=storage.logs_last)


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


@dataclass(frozen=True)
class Epoch:
    """One epoch of a stream, which Spark may run again: the target's file of the stream has the number of the last one that is in it."""

    stream: str
    number: int
    checkpoint: str = ""
    """Where the query's checkpoint is, as far as that is known: a copy of it has the same id."""

    def file(self, target: str) -> str:
        """The stream's file in a target."""
        return storage.within(target, STREAMS, f"{self.stream}.json")

    def is_committed(self, target: str) -> bool:
        """Whether the target has this epoch. Raises `KolumnError` if the stream's file says something else than a number, or if the epoch
        is that of a query with another checkpoint."""
        name = self.file(target)
        if storage.look(name) is None:
            return False
        try:
            state = json.loads(storage.read_bytes(name) or b"")
            version, last, checkpoint = int(state["version"]), int(state["epoch"]), str(state.get("checkpoint", ""))
        except (ValueError, TypeError, KeyError) as error:
            raise KolumnError(f"{name}: expected the number of the stream's last epoch, found something else: {error}") from error
        if version != _VERSION:
            raise KolumnError(f"{name} has version {version}, this Kolumn knows {_VERSION}: update it")
        if self.number <= last and "" not in (checkpoint, self.checkpoint) and checkpoint != self.checkpoint:
            raise KolumnError(
                f"{name}: epoch {self.number} was written by the query whose checkpoint is {checkpoint}, and this one's is "
                f"{self.checkpoint}, with the same id: it was copied or moved. Start a copy with a new checkpoint; if it was moved, "
                'write its new place into that file as "checkpoint"'
            )
        return self.number <= last

    def stage(self, staging: str) -> str:
        """Write the stream's next file into a job's folder, and return its name."""
        folder = storage.within(staging, uuid.uuid4().hex)
        name = storage.within(folder, f"{self.stream}.json")
        data = json.dumps({"version": _VERSION, "epoch": self.number, "checkpoint": self.checkpoint}).encode()
        if storage.is_url(staging):
            storage.put(name, data)
        else:
            _make(Path(folder))
            with StagedFile(Path(name)) as file:
                file.write(data)
        return name


def publish(
    target: str, staging: str, pieces: list[StagedSegments], overwrite: bool, format: str = "kafka", epoch: Epoch | None = None
) -> bool:
    """Move staged segments from a job's folder to their places in a log directory; ``overwrite`` removes all topic-partitions in it.

    Returns whether that was done: an ``epoch`` that the stream has committed before is not moved again.

    Raises `ArgumentError` if offsets overlap, between tasks or with the existing log, or if ``overwrite`` would remove files that Kolumn
    did not write: nothing has changed then. Raises `KolumnError` if another run on this machine is committing to the log directory, a file
    cannot be moved, or staged files no longer exist: what was moved has been moved back, and the next job completes an ``overwrite``.
    """
    with nullcontext() if storage.is_url(target) else committing(Path(target)):
        recover(target, own=staging)
        if epoch is not None and pending(staging):
            # The folder is the stream's: a commit of its last run died in the middle, after this run had begun.
            settle(target, staging)
        if epoch is not None and epoch.is_committed(target):
            return False
        pieces = sorted((piece for piece in pieces if piece.last >= 0), key=lambda piece: (piece.name, piece.first))
        for name, group in groupby(pieces, key=lambda piece: piece.name):
            own = list(group)
            for piece, following in pairwise(own):
                if following.first <= piece.last:
                    raise ArgumentError(
                        f"{name}: one task has the offsets {piece.first} to {piece.last}, another {following.first} to {following.last}. "
                        'Bring a partition into one task, or cut it by offsets: df.repartition("topic", "partition")'
                    )
            folder = storage.within(target, name)
            end = None if overwrite else end_of(folder, format)
            if end is not None and own[0].first < end:
                raise ArgumentError(f"{folder}: its log ends at offset {end}, and records from {own[0].first} on were to be appended")
        gone = _replaced(target) if overwrite else []
        moves = [move for piece in pieces for move in _files(piece, target)]
        if epoch is not None:
            moves.append((epoch.stage(staging), epoch.file(target)))
            gone += [epoch.file(target)] if storage.look(epoch.file(target)) is not None else []
        move_all(target, staging, moves, gone)
        return True


def end_of(folder: str, format: str) -> int | None:
    """Where the log of a topic-partition ends; None if there is no log."""
    there = storage.look(folder)
    if there is None or not there.is_folder or not any(file.name.endswith(LOG) for file in storage.listing(folder)):
        return None
    return log_end([replace(segment, format=format) for segment in find_segments(folder)])


def _replaced(target: str) -> list[str]:
    """Files of all topic-partitions that exist; a link to a folder is listed as a link.

    Raises `ArgumentError` if one of them is not a file that Kolumn writes.
    """
    names: list[str] = []
    foreign: list[str] = []
    try:
        segments = find_segments(target)
    except ArgumentError:
        segments = []
    for folder in sorted({storage.parent(segment.path) for segment in segments}):
        if storage.is_url(target):
            entries = storage.listing(folder)
        elif os.path.samefile(folder, target):
            raise ArgumentError(f"{target} holds segments itself: name a log directory, which has a folder for each topic-partition")
        elif os.path.islink(folder):
            names.append(folder)
            continue
        else:
            entries = [FolderEntry(entry.path, 0, entry.is_symlink() or not entry.is_file()) for entry in os.scandir(folder)]
        for entry in entries:
            (names if not entry.is_folder and entry.name.endswith((LOG, *SIDE_FILES)) else foreign).append(entry.name)
    if foreign:
        raise ArgumentError(
            f"{target}: overwrite removes every topic-partition, and {len(foreign)} files or folders in them were not written by Kolumn: "
            f"{', '.join(sorted(foreign)[:5])}: move them away, or name another target"
        )
    return names


def _files(piece: StagedSegments, target: str) -> list[tuple[str, str]]:
    """Where each file of a piece is, and where it goes."""
    there = storage.look(piece.folder)
    names = files_of(piece.folder) if there is not None and there.is_folder else []
    if not any(storage.base_name(name) == file_name(piece.first) for name in names):
        raise KolumnError(f"{piece.folder}: segments of {piece.name} that were staged no longer exist: somebody has removed them")
    return [(name, storage.within(target, piece.name, storage.base_name(name))) for name in names]
