"""What holds for all tests."""

import importlib
import os
import signal
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

# Under nohup, and in the background of a shell, processes ignore these from their start, and so would all that the tests start.
with suppress(ValueError):
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)

# No test switches the power off: tests of steps say whether files are flushed, and none has to wait for a disk.
os.fsync = lambda file: None

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
    """Of several processes, one has the Spark session."""
    from kit.one_session import OneSession

    return OneSession(config, log) if config.getoption("dist") == "loadfile" else None


MANY, SAMPLE = 6, 4
"""A test with ``MANY`` cases or more keeps about one in ``SAMPLE``; the others are slow.

Tests of kernels keep all: DESIGN.md says which faults they find. What runs them again by CUDA's calls, the marker ``gpu``, does not.
"""


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Take samples of tests with many cases, and leave out parts of tests that run whole.

    In several processes, what goes to one of them comes first, so that the others have enough to do meanwhile.
    """
    own = {_function(item) for item in items if item.get_closest_marker("slow") or item.get_closest_marker("part")}
    cases = Counter(map(_function, items))
    for item in items:
        # By a checksum: every fourth one would be the same value of a parameter again and again.
        whole = _function(item) in own or item.nodeid.startswith("tests/gpu/")
        sampled = cases[_function(item)] >= MANY and (item.get_closest_marker("gpu") or not whole)
        if sampled and zlib.crc32(item.nodeid.encode()) % SAMPLE:
            item.add_marker("slow")
    yield
    whole = {_function(item) for item in items if item.get_closest_marker("slow")}
    parts = [item for item in items if item.get_closest_marker("part") and _function(item) in whole]
    if parts:
        config.hook.pytest_deselected(items=parts)
        items[:] = [item for item in items if item not in parts]
    if hasattr(config, "workerinput"):
        from kit.one_session import needs_session

        items.sort(key=lambda item: not needs_session(item.nodeid.split("::")[0]))


def _function(item: pytest.Item) -> str:
    """A test without its parameters."""
    return item.nodeid.partition("[")[0]
