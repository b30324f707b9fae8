"""Checks for a machine with a GPU are rehearsed on stand-ins for CUDA: each step runs, and finds what it should."""

import json
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from bench import data

import kit.corpus
from kit.outcome import COLUMNS
from kit.standins import real, standing_in
from kolumn.kernels import check
from kolumn.kernels.fields import slices
from kolumn.kernels.machine import runtime as protocol
from kolumn.kernels.machine.cuda import DeviceMemory

pytestmark = pytest.mark.skipif(real(), reason="CUDA has a device here: `make gpu-check` runs them on it")


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A module of its own for each test; what the checks change outside of it comes back."""
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setenv("PLACE", str(tmp_path / "place"))
    spec = spec_from_file_location("gpu_checks", Path(__file__).parents[2] / "bench" / "gpu_checks.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    few = kit.corpus.cases()[:4]
    monkeypatch.setattr(kit.corpus, "cases", lambda: few)
    for owner, name in ((slices, "FEW"), (slices, "LARGE"), (slices, "LONG"), (check, "WARPS")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    for owner in (DeviceMemory, protocol.View):
        monkeypatch.setattr(owner, "bytes", None, raising=False)
    with standing_in():
        yield module


ARGUMENTS = {"mutants": ["0.5", "7"], "large": ["256"]}
SAME = {"env": 0, "smoke": 15, "tiny": 15, "corpus": 12, "mutants": 2, "large": 26, "resident": 7}
"""How many reads are the same as the CPU's, at least."""


@pytest.mark.parametrize("step", SAME)
def test_checks(checks: Any, step: str, tmp_path: Path) -> None:
    assert set(checks.STEPS) == set(SAME)
    checks.STEPS[step](*ARGUMENTS.get(step, []))
    file = tmp_path / "results.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    assert not checks.TALLY.keys() & {"FAILED", "DIFFERENT"}, lines
    assert checks.TALLY["same"] + sum(line.get("same", 0) for line in lines) >= SAME[step]


def test_what_differs_is_kept(checks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the bytes, to look at afterwards; an error is told with its trace, and the next one is looked at."""
    path = tmp_path / "a.log"
    path.write_bytes(b"some")
    monkeypatch.setattr("kit.outcome.outcome", lambda path, backend, **_: f"error of the {backend}")
    checks._same("corpus", "this one", path)
    monkeypatch.setattr("kit.outcome.outcome", lambda *_, **__: 1 / 0)
    checks._same("corpus", "another", path)
    assert json.loads((tmp_path / "different.jsonl").read_text()) == {
        "what": "this one",
        "options": str({"columns": COLUMNS}),
        "hex": b"some".hex(),
    }
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [line.get("DIFFERENT") or line["FAILED"] for line in lines] == ["this one", "another"]
    assert "ZeroDivisionError" in lines[1]["trace"]
