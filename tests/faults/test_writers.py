"""A writer is ended at any step: no incomplete file has its final name, no source is changed, and the next run succeeds."""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import kolumn
from faults.writers import WRITERS, make_source
from kit.faults import MAKES, Outcome, Step, Warm, Writer, files, tree
from kit.fuzz import tried
from kolumn.commit.run import remove_leftovers

each_writer = pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm("writers") as started:
        yield started


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_source(tmp_path_factory.mktemp("source") / "log")


class Trial:
    """A writer with a target that is made again for each run, and its correct contents."""

    def __init__(self, warm: Warm, writer: Writer, source: Path, scratch: Path) -> None:
        self.warm, self.writer, self.source = warm, writer, source
        self.target = scratch / "target"
        self.untouched = tree(source)
        self.before = self.fresh()
        self.whole = self.run()
        assert self.whole.code == 0, self.whole.text
        self.after = tree(self.target)
        assert files(self.after, hidden=True) == {}
        assert files(self.after) != files(self.before)

    def fresh(self) -> dict[str, bytes | None]:
        shutil.rmtree(self.target.parent, ignore_errors=True)
        self.target.mkdir(parents=True)
        if self.writer.before is not None:
            self.writer.before(self.source, self.target)
        return tree(self.target)

    def run(self, at: int = 0, action: str = "", mask: int | None = None) -> Outcome:
        return self.warm.run(self.writer, self.source, self.target, at, action, mask)

    def steps(self, few: int) -> list[int]:
        """Numbers of steps: some before the journal is written, some from there on, and the last one."""
        count = len(self.whole.steps)
        names = next(i for i, step in enumerate(self.whole.steps, 1) if step.path.endswith("/journal.partial"))
        return sorted({*tried(range(1, names), few), *tried(range(names, count), few), count})

    def check_visible(self) -> None:
        """Files with final names are complete, with their old or their new contents."""
        for name, data in files(tree(self.target)).items():
            assert data in (self.before.get(name), self.after.get(name)), f"{name} is neither old nor new"
        assert tree(self.source) == self.untouched

    def check_old_or_new(self, where: str) -> None:
        found = tree(self.target)
        assert files(found, hidden=True) == {}, where
        assert files(found) in (files(self.before), files(self.after)), where

    def check_next_run(self, where: str) -> None:
        done = files(tree(self.target))
        again = self.run()
        if again.code != 0:
            # Killed after the last name was given: then that run was complete.
            assert again.code == 2, again.text
            assert self.writer.refuses in again.text
            assert done == files(self.after), where
            assert not self.writer.replaces
        assert tree(self.target) == self.after, where
        assert tree(self.source) == self.untouched


@pytest.fixture(scope="module")
def trials(warm: Warm, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Writer], Trial]:
    """The trial of a writer, which all tests share: each of their runs begins with a fresh target."""
    return cache(lambda writer: Trial(warm, writer, source, tmp_path_factory.mktemp(writer.name) / "scratch"))


@pytest.fixture
def trial(trials: Callable[[Writer], Trial], writer: Writer) -> Trial:
    return trials(writer)


@each_writer
def test_killed(trial: Trial) -> None:
    for at in trial.steps(4):
        trial.fresh()
        where = f"killed at step {at}: {trial.whole.steps[at - 1]}"
        assert trial.run(at, "kill").code == -9, where
        trial.check_visible()
        if at % 2:
            found = tree(trial.target)
            would = kolumn.tidy(trial.target, dry_run=True)
            assert tree(trial.target) == found, where
            assert kolumn.tidy(trial.target) == would, where
            assert {one.action for one in would} <= {"undone", "removed"}, where
            trial.check_old_or_new(where)
            assert kolumn.tidy(trial.target) == [], where
        trial.check_next_run(where)


@pytest.mark.parametrize("writer", [writer for writer in WRITERS if "overwrite" in writer.name], ids=lambda writer: writer.name)
def test_killed_and_killed_again(trial: Trial) -> None:
    """The run that undoes a killed one may be killed as well."""
    count = len(trial.whole.steps)
    for number, first in enumerate(tried(range(max(1, count - 40), count + 1), 3)):
        # What the second run undoes is nearly the same after neighbouring steps, so they share its steps.
        for second in range(1 + number % 3, 14, 3):
            trial.fresh()
            trial.run(first, "kill")
            trial.run(second, "kill")
            trial.check_visible()
            trial.check_next_run(f"killed at step {first}, then at {second}")


@pytest.mark.parametrize("writer", [writer for writer in WRITERS if writer.arguments], ids=lambda writer: writer.name)
@pytest.mark.parametrize(("action", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_signals(trial: Trial, action: str, code: int) -> None:
    for at in trial.steps(2):
        trial.fresh()
        outcome = trial.run(at, action)
        where = f"{action} at step {at}: {trial.whole.steps[at - 1]}"
        # After the last name was given, the run may end before the signal arrives.
        assert outcome.code in (code, 0), (where, outcome.text)
        assert "Traceback" not in outcome.text, where
        trial.check_visible()
        remove_leftovers(trial.target)
        trial.check_old_or_new(where)


@each_writer
def test_full_disk(trial: Trial) -> None:
    """Every operation that needs room is refused once."""
    steps = [at for at, step in enumerate(trial.whole.steps, 1) if step.name in MAKES]
    for at in tried(steps, 4):
        trial.fresh()
        outcome = trial.run(at, "full")
        where = f"no room at step {at}: {trial.whole.steps[at - 1]}"
        if outcome.code:
            assert outcome.code == 3, (where, outcome.text)
            assert "No space left on device" in outcome.text
            assert "Traceback" not in outcome.text
        trial.check_old_or_new(where)
        trial.check_next_run(where)


@each_writer
def test_order_on_disk(trial: Trial) -> None:
    """Against a loss of power, a file is synced after its last byte and before it gets its name; names are synced before the run ends."""
    synced: set[str] = set()
    renamed: set[str] = set()
    steps = trial.whole.steps
    for step in steps:
        name = step.path.removesuffix(".partial")
        if step.name in ("write", "open", "fchmod"):
            synced.discard(name)
        elif step.name == "fsync":
            synced.add(name)
            renamed.discard(name)
        elif step.name in ("rename", "link", "replace"):
            if step.path.endswith((".log", ".index", ".timeindex", ".parquet")) and ".kolumn-" in step.path and "replaced" not in step.path:
                assert step.path in synced, step
            if ".kolumn-" not in step.path:
                renamed.add(os.path.dirname(step.path))
        if step == Step("unlink", step.path) and step.path.endswith("/journal"):
            assert renamed == set(), "the journal is removed before names are on disk"
            return
    raise AssertionError("no run without a journal")


@each_writer
def test_modes(trial: Trial) -> None:
    """Other users cannot read staged files; their access to files with final names depends on the user's mask."""
    for mask in (0o000, 0o077):
        with trial.warm.on_one_core():
            trial.fresh()
            whole = trial.run(mask=mask)
            assert whole.code == 0
            written = [trial.target / name for name, data in files(tree(trial.target)).items() if data != trial.before.get(name)]
            assert {oct(path.stat().st_mode & 0o777) for path in written} == {oct(0o666 & ~mask)}
            writes = [at for at, step in enumerate(whole.steps, 1) if step.name == "write" and not step.path.endswith("/journal.partial")]
            # The steps at the first and at the last byte that is written.
            for at in (writes[0], writes[-1]):
                trial.fresh()
                trial.run(at, "kill", mask=mask)
                (staging,) = trial.target.parent.rglob(".kolumn-*.partial")
                inside = [staging, *staging.rglob("*")]
                assert {oct(path.stat().st_mode & 0o777) for path in inside if path.is_dir()} == {oct(0o700)}
                drafts = [path for path in inside if path.name.endswith(".partial") and path.is_file()]
                assert {oct(path.stat().st_mode & 0o777) for path in drafts} == {oct(0o600)}
