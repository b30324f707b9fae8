"""Where a GPU is asked for and there is none, the call says so: before anything is read, and not with the first batch."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import kolumn
from kolumn.decode.pipeline import scan_ranges
from kolumn.kernels.machine import device
from kolumn.options import Options
from kolumn.readers import plan
from kolumn.tools import statistics
from kolumn.tools.parquet import write_parquet

CALLS: dict[str, Callable[[Path], Any]] = {
    "scan": lambda path: kolumn.scan(path, backend="gpu"),
    "read": lambda path: kolumn.read(path, backend="gpu"),
    "verify": lambda path: kolumn.verify(path, backend="gpu"),
    "read_pylibcudf": kolumn.read_pylibcudf,
    "statistics": lambda path: statistics.collect(path, print, backend="gpu"),
    "ranges": lambda _: scan_ranges(iter([]), Options.of(backend="gpu")),
    "parquet": lambda path: next(write_parquet([plan.ReadPlan(Mock(), Options.of(backend="gpu"), [])], str(path), 1, "none", False)),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_call_says_it(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Mock(side_effect=kolumn.MissingError("a GPU was asked for, and CUDA has none"))
    monkeypatch.setattr(device, "count", missing)
    monkeypatch.setattr(device, "_local", type(device._local)())
    monkeypatch.setattr(plan, "find_segments", lambda *_: pytest.fail("the source was looked at before the GPU was"))
    with pytest.raises(kolumn.MissingError, match="a GPU was asked for"):
        CALLS[call](tmp_path)


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where CuPy sees a device, RMM may still be missing."""
    monkeypatch.setattr(device, "count", lambda: 1)
    monkeypatch.setattr(device, "_local", type(device._local)())
    monkeypatch.setitem(sys.modules, "kolumn.kernels.machine.cuda", None)
    with pytest.raises(kolumn.MissingError, match=r"a GPU was asked for: .* \(`kolumn doctor` says more\): pip install .*'cupy-cuda13x>"):
        device.runtime()
