"""Manifests of an export's target: numbered files that make a run part of the target as a whole, or not at all.

    _kolumn/staging/<run>/…          files of attempts, good and bad; readers of Parquet skip names with an underscore
    _kolumn/<number>.intent.json     which staged files belong where, and the next manifest; from here on the run is only completed
    _kolumn/<number>.json            written last: the run is part of the target

A run that finds an intent without its manifest completes it first, so a driver may die at any moment. Others may be able to write to a
target: therefore an intent is rejected unless it only moves files from an export's staging folder to an export's places.
"""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyarrow import fs

from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.source.storage import forget
from kolumn.writers.commit.liveness import OLD_HOURS, locked, newest_in
from kolumn.writers.commit.staged_file import sync, writing

FOLDER = "_kolumn"
VERSION = 1

_RUN = re.compile(r"[0-9a-f]{32}")
_DRAFT = re.compile(r"\d{8,}(?:\.intent)?\.json")
_STAGED = re.compile(rf"{FOLDER}/staging/[0-9a-f]{{32}}/[0-9a-f]{{32}}\.parquet")
_FINAL = re.compile(r"topic=[^/]+/partition=\d+/(?:day=[^/]+/)?\d{20}-[0-9a-f]{32}\.parquet")


@dataclass
class Manifest:
    """The state of a target, after ``number`` runs that have added files.

    ``settings`` must be the same in every run: columns, ranges, partitioning. ``partitions`` has for each topic and partition (as text,
    since JSON keys are text) the ``first`` offset, ``next``, where the next run starts, and ``rows``; ``topics`` the id of each topic, if
    the log contains it. ``files`` are those of the last run: ``path`` below the target, ``topic``, ``partition``, ``rows``, ``first`` and
    ``last``.
    """

    number: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    partitions: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    files: list[dict[str, Any]] = field(default_factory=list)
    version: int = VERSION
    topics: dict[str, str] = field(default_factory=dict)

    def next_offset(self, topic: str, partition: int) -> int | None:
        """Where the next run starts in a partition; None for a new partition."""
        known = self.partitions.get(topic, {}).get(str(partition))
        return None if known is None else known["next"]

    def after(self, files: list[dict[str, Any]]) -> "Manifest":
        partitions = {topic: {number: dict(entry) for number, entry in numbers.items()} for topic, numbers in self.partitions.items()}
        for file in files:
            new = {"first": file["first"], "next": file["last"] + 1, "rows": 0}
            entry = partitions.setdefault(file["topic"], {}).setdefault(str(file["partition"]), new)
            entry["first"] = min(entry["first"], file["first"])
            entry["next"] = max(entry["next"], file["last"] + 1)
            entry["rows"] += file["rows"]
        return Manifest(self.number + 1, self.settings, partitions, files, topics=self.topics)


class ExportTarget:
    """A folder that contains an export, on any file system of pyarrow."""

    def __init__(self, files: fs.FileSystem, root: str) -> None:
        self.files, self.root, self._locked = files, root.rstrip("/"), False

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def staging(self, run: str) -> str:
        return self.path(f"{FOLDER}/staging/{run}")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the target, if it is on this machine. Raises `KolumnError` if another export is writing to it."""
        if not isinstance(self.files, fs.LocalFileSystem):
            yield
            return
        made = not os.path.lexists(self.root)
        with writing(self.root):
            os.makedirs(self.root, exist_ok=True)
        try:
            refusal = "another export is writing to it. Wait for its end, or name another target"
            with locked(Path(self.root), refusal) as self._locked:
                yield
        finally:
            self._locked = False
            if made:
                # The folder was made for the lock alone, if nothing was written.
                with suppress(OSError):
                    os.rmdir(self.root)

    def open(self) -> Manifest:
        self.settle()
        numbers = [int(stem) for stem in (name.removesuffix(".json") for name in self._names()) if stem.isdigit()]
        if not numbers:
            return Manifest()
        content = self._read(_name(max(numbers)))
        if content.get("version") != VERSION:
            raise ArgumentError(f"{self.root}: its manifest has version {content.get('version')}, this Kolumn knows {VERSION}: update it")
        return Manifest(**content)

    def publish(self, manifest: Manifest, moves: dict[str, str]) -> None:
        """Make staged files part of the target, such that the next run can complete this if the process dies in between. Raises
        `KolumnError` if another export has written to the target, or staged files were removed. Nothing has changed then."""
        intent = {"moves": moves, "manifest": asdict(manifest)}
        name = f"{manifest.number:08d}.intent.json"
        forget(self.files)
        lost = next((staged for staged in moves if not self._has(staged)), None)
        if lost is not None:
            raise KolumnError(f"{self.path(lost)} no longer exists: it was removed. Nothing was exported: run it again")
        if {name, _name(manifest.number)} & self._names():
            raise self._not_alone()
        self._write(name, intent)
        # Without a lock two exports may have come here at the same time; the file now contains the second one's intent.
        if not self._locked and self._read(name) != json.loads(json.dumps(intent)):
            raise self._not_alone()
        self._forward(intent)

    def settle(self, old_s: float = OLD_HOURS * 3600, dry_run: bool = False) -> list[tuple[str, str, str]]:
        """Complete intents, and remove the staged files of runs that died before theirs: the name of each, the action, a description. If
        the lock shows that no other run is alive, all staged files are removed; otherwise those older than ``old_s`` seconds."""
        forget(self.files)
        needed, done = set(), []
        for name in self._intents():
            moves = self._checked(name)["moves"]
            needed |= {staged.split("/")[2] for staged in moves} | _drafts(name)
            if not dry_run:
                # If its manifest exists already, only the clean-up is missing.
                if name.replace(".intent", "") in self._names():
                    self._end(name, moves)
                else:
                    self._forward(self._checked(name))
                for draft in _drafts(name) & set(self._staged()):
                    self._remove_staged(draft)
            done.append((name, "completed", f"an export was interrupted while it gave {len(moves)} files their names"))
        for name in self._staged():
            if name not in needed:
                why = self._left(name, old_s)
                if not why and not dry_run:
                    self._remove_staged(name)
                done.append((f"staging/{name}", "left" if why else "removed", why or "staged by an export that is dead"))
        return done

    def _left(self, name: str, old_s: float) -> str:
        newest = 0.0 if self._locked else newest_in(self.files, self.staging(name))
        if newest is not None and time.time() - newest >= old_s:
            return ""
        age = "nothing tells how old they are" if newest is None else f"the newest {(time.time() - newest) / 3600:.1f} h old"
        return f"staged by an export that may still run, {age}"

    def _staged(self) -> list[str]:
        listed = self.files.get_file_info(fs.FileSelector(self.path(f"{FOLDER}/staging"), allow_not_found=True))
        return sorted(info.base_name for info in listed if (_DRAFT if info.is_file else _RUN).fullmatch(info.base_name))

    def _remove_staged(self, name: str) -> None:
        (self.files.delete_dir if _RUN.fullmatch(name) else self.files.delete_file)(self.staging(name))

    def _names(self) -> set[str]:
        listed = self.files.get_file_info(fs.FileSelector(self.path(FOLDER), allow_not_found=True))
        return {info.base_name for info in listed if info.is_file}

    def _intents(self) -> list[str]:
        return sorted(name for name in self._names() if name.endswith(".intent.json") and name.partition(".")[0].isdigit())

    def _has(self, name: str) -> bool:
        return bool(self.files.get_file_info(self.path(name)).is_file)

    def _not_alone(self) -> KolumnError:
        return KolumnError(f"{self.root}: another export has written to it meanwhile. Nothing of this one is in it: run it again, alone")

    def pending(self) -> bool:
        return bool(self._intents())

    def discard(self, run: str) -> None:
        if self.files.get_file_info(self.staging(run)).type != fs.FileType.NotFound:
            self.files.delete_dir(self.staging(run))

    def _forward(self, intent: dict[str, Any]) -> None:
        for staged, final in intent["moves"].items():
            if self._has(staged):
                self.files.create_dir(self.path(final).rpartition("/")[0], recursive=True)
                self.files.move(self.path(staged), self.path(final))
            elif not self._has(final):
                raise KolumnError(f"{self.path(final)}: its records are lost: {self.path(staged)} was removed before it had this name")
        for folder in {final.rpartition("/")[0] for final in intent["moves"].values()}:
            to_disk(self.files, self.path(folder))
        self._write(_name(intent["manifest"]["number"]), intent["manifest"])
        self._end(f"{intent['manifest']['number']:08d}.intent.json", intent["moves"])

    def _end(self, name: str, moves: dict[str, str]) -> None:
        """Remove an intent whose manifest exists, and the rest of its staged files."""
        self.files.delete_file(self.path(f"{FOLDER}/{name}"))
        for run in {staged.split("/")[2] for staged in moves}:
            self.discard(run)

    def _checked(self, name: str) -> dict[str, Any]:
        """An intent, if an export can have written it: anyone with write access to the target could have put it there."""
        intent = self._read(name)
        moves, manifest = intent.get("moves"), intent.get("manifest")
        if not isinstance(moves, dict) or not isinstance(manifest, dict) or manifest.get("number") != int(name.partition(".")[0]):
            wrong: Any = "it lacks its moves or its manifest"
        else:
            names = *((staged, _STAGED) for staged in moves), *((final, _FINAL) for final in moves.values())
            wrong = next((path for path, known in names if not (isinstance(path, str) and known.fullmatch(path))), None)
        if wrong is not None:
            path = f"{self.path(FOLDER)}/{name}"
            raise KolumnError(f"{path}: no export wrote this: {wrong!r}. Nothing was moved. Find out who put it there, and remove it")
        return intent

    def _read(self, name: str) -> dict[str, Any]:
        with self.files.open_input_stream(self.path(f"{FOLDER}/{name}")) as stream:
            content: dict[str, Any] = json.loads(stream.read())
        return content

    def _write(self, name: str, content: dict[str, Any]) -> None:
        draft = self.path(f"{FOLDER}/staging/{name}")
        self.files.create_dir(self.path(f"{FOLDER}/staging"), recursive=True)
        with self.files.open_output_stream(draft) as stream:
            stream.write(json.dumps(content, indent=1).encode())
        to_disk(self.files, draft)
        self.files.move(draft, self.path(f"{FOLDER}/{name}"))
        to_disk(self.files, self.path(FOLDER))


def to_disk(files: fs.FileSystem, path: str) -> None:
    """Flush a file, or the names in a folder, to disk on local file systems; other file systems have guarantees of their own."""
    if isinstance(files, fs.LocalFileSystem):
        with writing(path):
            sync(path)


def _name(number: int) -> str:
    return f"{number:08d}.json"


def _drafts(intent: str) -> set[str]:
    return {intent, intent.replace(".intent", "")}
