"""A log changes at any step of a read: all planned rows are read, or an error names the file; rows never go missing."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.changes import CHANGES, Others, make_log, table, write
from faults.readers import READERS, Reader, Rows, fresh
from kit.fuzz import STEPS, tried
from kit.looks import Looks, Operation
from kolumn.core.errors import KolumnError
from kolumn.source.segments import find_segments


class Trials:
    """A log that is made again for each run, and the rows that each reader finds in each of its states."""

    def __init__(self, scratch: Path) -> None:
        self.scratch, self.log = scratch, scratch / "log"
        self.source = make_log(scratch / "source", scratch / "made")
        self.others = Others(scratch / "others")
        self._found: dict[tuple[str, str], list[Rows | None]] = {}

    def restart(self, change: str) -> list[Operation]:
        """Restore the original log; returns the parts of a change."""
        shutil.rmtree(self.log, ignore_errors=True)
        shutil.copytree(self.source, self.log)
        return list(CHANGES[change](self.log, self.others))

    def run(self, reader: Reader, before: Any) -> Rows:
        return sorted(reader.read(reader.plan(before, self.log), self.log, fresh(self.scratch / "to")), key=repr)

    def states(self, reader: Reader, change: str) -> list[Rows | None]:
        """Correct results after each number of parts of a change, beginning with 0; None if only an error is correct."""
        if (reader.name, change) not in self._found:
            operations = self.restart(change)
            before = reader.before(self.log)
            states: list[Rows | None] = [self.run(reader, before)]
            for operation in operations:
                operation()
                try:
                    states.append(self.run(reader, before))
                except KolumnError:
                    states.append(None)
            self._found[reader.name, change] = states
        return self._found[reader.name, change]

    def changed(self, reader: Reader, change: str, at: int, apart: bool) -> tuple[Looks, Rows | KolumnError]:
        """Run a reader, and make a change at one of its steps."""
        operations = self.restart(change)
        before, looks = reader.before(self.log), Looks(self.log, at, operations, apart)
        with pytest.MonkeyPatch.context() as patch:
            looks.install(patch)
            try:
                return looks, self.run(reader, before)
            except KolumnError as error:
                return looks, error

    def check(self, reader: Reader, change: str, at: int, apart: bool) -> bool:
        """Check the result of such a run; returns whether it has rows."""
        states = self.states(reader, change)
        looks, found = self.changed(reader, change, at, apart)
        where = f"{reader.name}, {change} at step {at}: {looks.steps[at - 1] if at <= len(looks.steps) else 'none'}"
        if isinstance(found, KolumnError):
            # The error of a stream for a deleted partition names no file.
            assert str(self.log) in str(found) or "t-0: " in str(found), f"{where}: names no file: {found}"
            return False
        known = len(states) - 1 if looks.planned is None else looks.planned
        right = [state for state in states[: known + 1] if state is not None]
        assert any(found == state for state in right), f"{where}: {len(found)} rows, expected one of {[len(one) for one in right]}"
        return True


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    return Trials(tmp_path_factory.mktemp("reads"))


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_changed_at_a_step(trials: Trials, reader: Reader) -> None:
    read = refused = 0
    # If few steps are tried, each reader tries half of the changes.
    for change in list(CHANGES)[READERS.index(reader) % 2 :: 2] if STEPS == "few" else CHANGES:
        looks, found = trials.changed(reader, change, 0, apart=False)
        assert found == trials.states(reader, change)[0]
        for apart in (False, True)[: min(2, len(trials.states(reader, change)) - 1)]:
            steps = list(range(1, len(looks.steps) + 1))
            # Others for each reader and change.
            random.Random(f"{reader.name} {change}").shuffle(steps)
            for at in tried(steps, 2):
                if trials.check(reader, change, at, apart):
                    read += 1
                else:
                    refused += 1
    # Both results must occur: a test in which all runs succeed, or all fail, would prove nothing.
    least = 0 if STEPS == "few" else len(CHANGES) // 8
    assert read > least
    assert refused > least


MANY = 120


class Torn:
    """A listing of a folder in two system calls: names up to the middle are read, then the folder changes, then the others are read."""

    def __init__(self, path: str, happens: list[Callable[[], None]], scandir: Callable[[str], Any]) -> None:
        self._path, self._happens, self._scandir = path, happens, scandir

    def __enter__(self) -> Iterator[Any]:
        early = sorted(self._scandir(self._path), key=lambda one: one.name)
        middle = early[len(early) // 2].name
        for happens in self._happens[:1]:
            happens()
            self._happens.pop(0)
        late = sorted(self._scandir(self._path), key=lambda one: one.name)
        return iter([one for one in early if one.name < middle] + [one for one in late if one.name >= middle])

    def __exit__(self, *error: object) -> None:
        pass


def many(folder: Path) -> Path:
    """A partition of many segments, one of which the cleaner is about to rename to its final name."""
    made = write(table(0, 1), folder.parent / "made" / "t-0").read_bytes()
    folder.mkdir(parents=True)
    for number in range(MANY):
        (folder / f"{number:020}.log").write_bytes(made)
    return folder


@pytest.mark.parametrize("old", [True, False], ids=["old", "in-the-same-tick"])
def test_a_name_changes_while_a_large_folder_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool) -> None:
    """The file gets a name that the listing has passed already. The folder's time may not show it, because it changes in ticks."""
    folder = many(tmp_path / "t-0")
    swap = folder / f"{1:020}.log.swap"
    swap.write_bytes((folder / f"{0:020}.log").read_bytes())
    # The file is late among the names first, and early after it is renamed.
    swap = swap.rename(folder / "zzz")
    scandir, stat = os.scandir, os.stat
    times = stat(folder).st_mtime_ns if not old else 10**18

    def renamed() -> None:
        swap.rename(folder / f"{0:019}a.log")
        if not old:
            os.utime(folder, ns=(times, times))

    os.utime(folder, ns=(times, times))
    happens = [renamed]
    monkeypatch.setattr(os, "scandir", lambda path: Torn(path, happens, scandir))
    found = [one.path for one in find_segments(folder)]
    assert happens == []
    assert len(found) == MANY + 1


def test_a_large_folder_that_never_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = many(tmp_path / "t-0")
    numbers = iter(range(1000))
    happens = [(lambda: (folder / f"new-{next(numbers)}").touch())] * 1000
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: Torn(path, happens, scandir))
    with pytest.raises(KolumnError, match=rf"{folder}: cannot be listed: files in it got other names each of \d+ times"):
        find_segments(folder)
