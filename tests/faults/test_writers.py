"""Writers are ended at any step: files are old or new, no source is changed, and the next run or `kolumn.tidy` leaves all or none new."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import kolumn
from faults.writers import WRITERS, make_source
from kit.faults import MAKES, Outcome, Step, Warm, Writer, tree
from kit.fuzz import STEPS, tried
from kit.object_store import objects

LOCAL = [writer for writer in WRITERS if not writer.scheme]
_RUN = re.compile(r"[0-9a-f]{32}")
_HIDDEN = re.compile(r"\.kolumn-(?!streams)|/staging(?:/|$)|\.intent\.json$")


def each(writers: list[Writer]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("writer", writers, ids=lambda writer: writer.name)


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm() as started:
        yield started


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_source(tmp_path_factory.mktemp("source") / "log")


class Trial:
    """A writer with a target that is made again for each run, and its correct contents."""

    def __init__(self, warm: Warm, writer: Writer, source: Path, scratch: Path) -> None:
        self.warm, self.writer, self.source = warm, writer, source
        self.target = scratch / "target"
        self.url = f"{writer.scheme}{self.target}"
        self.untouched = tree(source)
        self.before = self.fresh()
        self.whole = self.run()
        assert self.whole.code == 0, self.whole.text
        self.names = next(i for i, step in enumerate(self.whole.steps, 1) if "redo.json" in step.path or ".intent.json" in step.path)
        self.after = self.visible()
        assert self.after != self.before
        assert self.hidden() == set()

    def fresh(self) -> dict[str, bytes | None]:
        shutil.rmtree(self.target.parent, ignore_errors=True)
        self.target.mkdir(parents=True)
        if self.writer.before is not None:
            self.writer.before(self.source, self.target)
        return self.visible()

    def run(self, at: int = 0, action: str = "", mask: int | None = None) -> Outcome:
        return self.warm.run(self.writer, self.source, self.target, at, action, mask)

    def visible(self) -> dict[str, bytes | None]:
        """What readers see, and manifests; without random names of runs, and without folders where the writer makes none."""
        found = {name: data for name, data in tree(self.target).items() if not _HIDDEN.search(name)}
        if self.writer in LOCAL:
            return found
        texts = {name: data.decode("latin-1") for name, data in found.items() if data is not None}
        return {_RUN.sub("run", name): _RUN.sub("run", text).encode("latin-1") for name, text in texts.items()}

    def hidden(self) -> set[str]:
        return {name for name in objects(self.target) if _HIDDEN.search(name)}

    def steps(self, few: int) -> list[int]:
        """Numbers of steps: some before the journal is written, more from there on, and the last one."""
        count = len(self.whole.steps)
        return sorted({*tried(range(1, self.names), few), *tried(range(self.names, count), 2 * few), count})

    def check_visible(self, where: str) -> None:
        """Each file has its old or its new contents, and no file that has to stay is missing."""
        found = self.visible()
        for name, data in found.items():
            assert data in (self.before.get(name), self.after.get(name)), f"{where}: {name} is neither old nor new"
        assert self.before.items() & self.after.items() <= found.items(), where
        assert tree(self.source) == self.untouched

    def check_tidy(self, where: str) -> None:
        """`kolumn.tidy` does what it says it would do; then all files are old, or all are new, and nothing is left over."""
        found = tree(self.target)
        would = kolumn.tidy(self.url, older_than_hours=0, dry_run=True)
        assert tree(self.target) == found, where
        done = kolumn.tidy(self.url, older_than_hours=0)
        assert [(one.path, one.action) for one in done] == [(one.path, one.action) for one in would], where
        assert {one.action for one in done} <= {"completed", "removed"}, where
        files = [{name: data for name, data in one.items() if data is not None} for one in (self.visible(), self.before, self.after)]
        assert files[0] in files[1:], where
        assert self.hidden() == set(), where
        assert kolumn.tidy(self.url, older_than_hours=0) == [], where

    def check_next_run(self, where: str) -> None:
        again = self.run()
        if again.code != 0:
            # The killed run was complete, or has been completed.
            assert again.code == 2, (where, again.text)
            assert self.writer.refuses in again.text, where
            assert not self.writer.replaces, where
        assert self.visible() == self.after, where
        # At a URL, only their age tells that staged files belong to a dead run.
        assert {name for name in self.hidden() if not self.writer.scheme or name.endswith((".intent.json", "/redo.json"))} == set(), where
        assert tree(self.source) == self.untouched


@pytest.fixture(scope="module")
def trials(warm: Warm, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Writer], Trial]:
    """The trial of a writer, which all tests share: each of their runs begins with a fresh target."""
    return cache(lambda writer: Trial(warm, writer, source, tmp_path_factory.mktemp(writer.name) / "scratch"))


@pytest.fixture
def trial(trials: Callable[[Writer], Trial], writer: Writer) -> Trial:
    return trials(writer)


@each(WRITERS)
def test_killed(trial: Trial) -> None:
    for number, at in enumerate(trial.steps(2)):
        # Before there is a journal, `tidy` and the next run do the same: they remove what was staged.
        for tidied in (False, True) if STEPS == "all" and at >= trial.names else (bool(number % 2),):
            trial.fresh()
            where = f"killed at step {at}: {trial.whole.steps[at - 1]}"
            assert trial.run(at, "kill").code == -9, where
            trial.check_visible(where)
            if tidied:
                trial.check_tidy(where)
            trial.check_next_run(where)
            if trial.writer.scheme:
                trial.check_tidy(where)


@each([writer for writer in WRITERS if writer.scheme or "overwrite" in writer.name])
def test_killed_and_killed_again(trial: Trial) -> None:
    """The run that completes a killed one may be killed as well."""
    for number, first in enumerate(trial.steps(2)[-2:] if STEPS != "all" else trial.steps(2)[-40::3]):
        # What the second run completes is nearly the same after neighbouring steps, so they share its steps.
        for second in range(1, 14, 6) if STEPS != "all" else range(1 + number % 3, 20, 3):
            trial.fresh()
            where = f"killed at step {first}, then at {second}"
            trial.run(first, "kill")
            trial.run(second, "kill")
            trial.check_visible(where)
            trial.check_next_run(where)


@each([writer for writer in LOCAL if writer.arguments])
@pytest.mark.parametrize(("action", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_signals(trial: Trial, action: str, code: int) -> None:
    for at in trial.steps(2):
        trial.fresh()
        outcome = trial.run(at, action)
        where = f"{action} at step {at}: {trial.whole.steps[at - 1]}"
        # After the last name was given, the run may end before the signal arrives.
        assert outcome.code in (code, 0), (where, outcome.text)
        assert "Traceback" not in outcome.text, where
        trial.check_visible(where)
        trial.check_tidy(where)


@each(WRITERS)
def test_full_disk(trial: Trial) -> None:
    """Every operation that needs room is refused once: nothing has changed or, if files are replaced, the next run completes the commit."""
    for at in tried([at for at, step in enumerate(trial.whole.steps, 1) if step.name in MAKES], 4):
        trial.fresh()
        outcome = trial.run(at, "full")
        where = f"no room at step {at}: {trial.whole.steps[at - 1]}"
        if outcome.code:
            assert outcome.code == 3, (where, outcome.text)
            assert "No space left on device" in outcome.text, where
            assert "Traceback" not in outcome.text, where
        trial.check_visible(where)
        if not trial.writer.replaces:
            assert trial.visible() == (trial.after if outcome.code == 0 else trial.before), where
        trial.check_next_run(where)
        trial.check_tidy(where)


@each(LOCAL)
def test_order_on_disk(trial: Trial) -> None:
    """Against a loss of power, a file is synced after its last byte and before it gets its name; names are synced before the run ends."""
    synced: set[str] = set()
    renamed: set[str] = set()
    there = {str(trial.target), *(str(trial.target / name) for name in trial.before)}
    for step in trial.whole.steps:
        name = step.path.removesuffix(".partial")
        if step.name in ("write", "open", "fchmod"):
            synced.discard(name)
        elif step.name == "fsync":
            synced.add(name)
            renamed.discard(name)
        elif step.name in ("rename", "link", "replace") or (step.name == "mkdir" and step.path not in there):
            if step.path.endswith((".log", ".index", ".timeindex", ".parquet", ".json")) and _HIDDEN.search(step.path):
                assert step.path in synced, step
            renamed.add(os.path.dirname(step.path))
        if step == Step("rename", step.path) and step.path.endswith("/redo.json"):
            assert renamed <= {os.path.dirname(step.path)}, "the journal is written before staged names are on disk"
        if step == Step("unlink", step.path) and step.path.endswith("/redo.json"):
            assert not {one for one in renamed if not _HIDDEN.search(one)}, "the journal is removed before names are on disk"
            return
    raise AssertionError("no run without a journal")


@each(LOCAL)
def test_modes(trial: Trial) -> None:
    """Other users cannot read staged files; their access to files with final names depends on the user's mask."""
    for mask in (0o000, 0o077):
        with trial.warm.on_one_core():
            trial.fresh()
            whole = trial.run(mask=mask)
            assert whole.code == 0
            written = [trial.target / name for name, data in trial.visible().items() if data is not None and data != trial.before.get(name)]
            assert {oct(path.stat().st_mode & 0o777) for path in written} == {oct(0o666 & ~mask)}
            folders = [trial.target / name for name, data in trial.visible().items() if data is None and name not in trial.before]
            assert {oct(path.stat().st_mode & 0o777) for path in folders} <= {oct(0o777 & ~mask)}
            writes = [at for at, step in enumerate(whole.steps, 1) if step.name == "write" and "redo.json" not in step.path]
            # The steps at the first and at the last byte that is written.
            for at in (writes[0], writes[-1]):
                trial.fresh()
                trial.run(at, "kill", mask=mask)
                (staging,) = trial.target.parent.rglob(".kolumn-*.partial")
                inside = [staging, *staging.rglob("*")]
                assert {oct(path.stat().st_mode & 0o777) for path in inside if path.is_dir()} == {oct(0o700)}
                drafts = [path for path in inside if path.name.endswith(".partial") and path.is_file()]
                assert {oct(path.stat().st_mode & 0o777) for path in drafts} == {oct(0o600)}
