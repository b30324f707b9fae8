"""Writers to an object store, and exports, are killed at any step: each row is there once after the next run or after `kolumn.tidy`."""

import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import kolumn
from faults.url_writers import WRITERS
from faults.writers import make_source
from kit.faults import MAKES, Outcome, Warm, Writer
from kit.fuzz import STEPS, tried
from kit.object_store import objects

each_writer = pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
_RUN = re.compile(r"[0-9a-f]{32}")


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm("url_writers") as started:
        yield started


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_source(tmp_path_factory.mktemp("source") / "log")


def visible(target: Path) -> dict[str, bytes]:
    """Files that readers see, and manifests; random names of runs are removed."""
    found = {
        name: data for name, data in objects(target).items() if "/staging/" not in name and not name.startswith((".kolumn-", "orders-0/."))
    }
    return {_RUN.sub("run", name): _RUN.sub("run", data.decode("latin-1")).encode("latin-1") for name, data in found.items()}


class Trial:
    """A writer with a target that is made again for each run, and its correct contents."""

    def __init__(self, warm: Warm, writer: Writer, source: Path, scratch: Path) -> None:
        self.warm, self.writer, self.source = warm, writer, source
        self.target = scratch / "target"
        self.url = str(self.target) if writer.name == "export" else f"objects://{self.target}"
        self.before = self.fresh()
        self.whole = self.run()
        assert self.whole.code == 0, self.whole.text
        self.names = next(i for i, step in enumerate(self.whole.steps, 1) if step.path.endswith(("/redo.json", ".intent.json")))
        self.after = visible(self.target)
        assert self.after != self.before
        assert objects(self.target).keys() - self.hidden() == objects(self.target).keys()

    def fresh(self) -> dict[str, bytes]:
        shutil.rmtree(self.target.parent, ignore_errors=True)
        self.target.mkdir(parents=True)
        if self.writer.before is not None:
            self.writer.before(self.source, self.target)
        return visible(self.target)

    def hidden(self) -> set[str]:
        return {name for name in objects(self.target) if ".kolumn-" in name or "/staging/" in name or name.endswith(".intent.json")}

    def run(self, at: int = 0, action: str = "") -> Outcome:
        return self.warm.run(self.writer, self.source, self.target, at, action)

    def steps(self) -> list[int]:
        """Numbers of steps: some before the journal is written, more from there on, and the last one."""
        count = len(self.whole.steps)
        return sorted({*tried(range(1, self.names), 3), *tried(range(self.names, count), 6), count})

    def check_no_loss(self, where: str) -> None:
        """Visible files are old or new, and no file that has to stay is missing."""
        found = visible(self.target)
        for name, data in found.items():
            assert data in (self.before.get(name), self.after.get(name)) or name.endswith(".intent.json"), f"{where}: {name}"
        assert self.before.items() & self.after.items() <= found.items(), where

    def check_tidy(self, where: str) -> None:
        """After `kolumn.tidy` files are old or new, nothing is left over, and a second call finds nothing."""
        before = objects(self.target)
        said = [str(one).split(": ", 1)[1] for one in kolumn.tidy(self.url, older_than_hours=0, dry_run=True)]
        assert objects(self.target) == before
        done = kolumn.tidy(self.url, older_than_hours=0)
        assert [str(one).split(": ", 1)[1] for one in done] == said
        assert {one.action for one in done} <= {"completed", "removed"}, where
        assert visible(self.target) in (self.before, self.after), where
        assert self.hidden() == set(), where
        assert kolumn.tidy(self.url, older_than_hours=0) == []

    def check_next_run(self, where: str) -> None:
        done = visible(self.target)
        again = self.run()
        if again.code != 0:
            # The killed run was complete, or has been completed.
            assert again.code == 2, again.text
            assert self.writer.refuses in again.text
            assert not self.writer.replaces, (where, done)
        assert visible(self.target) == self.after, where
        assert not [name for name in self.hidden() if name.endswith((".intent.json", "/redo.json"))], where


@pytest.fixture(scope="module")
def trials(warm: Warm, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Writer], Trial]:
    """The trial of a writer, which all tests share: each of their runs begins with a fresh target."""
    return cache(lambda writer: Trial(warm, writer, source, tmp_path_factory.mktemp(writer.name) / "scratch"))


@pytest.fixture
def trial(trials: Callable[[Writer], Trial], writer: Writer) -> Trial:
    return trials(writer)


@each_writer
def test_killed(trial: Trial) -> None:
    for number, at in enumerate(trial.steps()):
        # Before there is a journal, `tidy` and the next run do the same: they remove what was staged.
        for tidied in (False, True) if STEPS != "few" and at >= trial.names else (bool(number % 2),):
            trial.fresh()
            where = f"killed at step {at}: {trial.whole.steps[at - 1]}"
            assert trial.run(at, "kill").code == -9, where
            trial.check_no_loss(where)
            if tidied:
                trial.check_tidy(where)
            trial.check_next_run(where)
            trial.check_tidy(where)


@each_writer
@pytest.mark.slow
def test_killed_and_killed_again(trial: Trial) -> None:
    """The run that completes a killed one may be killed as well."""
    count = len(trial.whole.steps)
    for number, first in enumerate(tried(range(max(1, count - 40), count + 1), 3)):
        for second in range(1 + number % 3, 20, 6):
            trial.fresh()
            trial.run(first, "kill")
            trial.run(second, "kill")
            trial.check_no_loss(f"killed at step {first}, then at {second}")
            trial.check_next_run(f"killed at step {first}, then at {second}")


@each_writer
def test_errors(trial: Trial) -> None:
    """Every operation that needs room is refused once: nothing has changed or, if files are replaced, the next run completes the commit."""
    steps = [at for at, step in enumerate(trial.whole.steps, 1) if step.name in MAKES]
    for at in tried(steps, 3):
        trial.fresh()
        outcome = trial.run(at, "full")
        where = f"no room at step {at}: {trial.whole.steps[at - 1]}"
        assert outcome.code in (0, 3), (where, outcome.text)
        assert "Traceback" not in outcome.text
        trial.check_no_loss(where)
        if not trial.writer.replaces:
            assert visible(trial.target) == (trial.after if outcome.code == 0 else trial.before), where
        trial.check_next_run(where)
        trial.check_tidy(where)
