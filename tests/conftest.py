"""What holds for all tests."""

import importlib
import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kit.fuzz import AGAIN, FIRST

# Under nohup, and in the background of a shell, processes ignore these from their start, and so would all that the tests start.
with suppress(ValueError):
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)

# No test switches the power off: tests of steps say whether files are flushed, and none has to wait for a disk.
os.fsync = lambda fd: None

# Tests read what people see on a terminal; those of pipes remove this.
os.environ["KOLUMN_OUTPUT"] = "text"
# GNU readline, which a debugger loads, tells new processes the width of the terminal, though `os.environ` does not have it.
with suppress(ImportError):
    importlib.import_module("readline")
# Nor do they have PYTHONUNBUFFERED, with which an output that cannot be written fails at another place.
for name in ("COLUMNS", "LINES", "PYTHONUNBUFFERED"):
    os.environ.pop(name, None)
    os.unsetenv(name)

# Processes that tests start, Spark's workers among them, import the test kit too.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files go to processes one at a time, but for those that ask for the Spark session: one process has it, which takes 2 GiB."""
    from xdist.scheduler import LoadFileScheduling

    class OneSession(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "with a session" if needs_session(file) else file

    return OneSession(config, log) if config.getoption("dist") == "loadfile" else None


@cache
def needs_session(file: str) -> bool:
    """Whether a file of tests, by its path from the root, asks for the fixture."""
    text = (Path(__file__).parents[1] / file).read_text()
    return "spark: SparkSession" in text or 'getfixturevalue("spark")' in text


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """In CI, where Hypothesis would draw the same examples each time, its seed is the one of the fuzz tests."""
    if os.environ.get("CI") and config.pluginmanager.hasplugin("hypothesispytest"):
        config.option.hypothesis_profile, config.option.hypothesis_seed = "default", str(FIRST)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The name of a segment whose first offset is 0."""
    return tmp_path / f"{0:020}.log"


SAMPLE = 4
"""One in so many cases of a test with the marker ``sample`` is quick; the others are slow. Commits take turns."""
LEFT_OUT = pytest.StashKey[int]()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Take samples, and count what they leave out.

    In several processes, what goes to one of them comes first, so that the others have enough to do meanwhile.
    """
    sampled: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample"):
            sampled.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for test, cases in sampled.items():
        # Not every fourth one, which might be the same value of a parameter again and again.
        quick = random.Random(f"{FIRST} {test}").sample(cases, -(-len(cases) // SAMPLE))
        for item in cases:
            if item not in quick:
                item.add_marker("slow")
    yield
    config.stash[LEFT_OUT] = sum(map(len, sampled.values())) - sum(item.get_closest_marker("sample") is not None for item in items)
    if hasattr(config, "workerinput"):
        config.workeroutput["left out"] = config.stash[LEFT_OUT]  # type: ignore[attr-defined]
        items.sort(key=lambda item: not needs_session(item.nodeid.split("::")[0]))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every process collects all tests."""
    node.config.stash[LEFT_OUT] = node.workeroutput.get("left out", 0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What was left out, and how a run that failed is repeated."""
    if left := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(f"{left} cases of samples left out: .ci/run has them all")
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        ci = "CI=true " if os.environ.get("CI") else ""
        terminalreporter.write_line(f"to repeat it: {ci}{AGAIN} python -m pytest ...")
