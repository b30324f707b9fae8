"""`bench/gpu_check.py`, the one command for a machine with a GPU: what it runs, skips and reports, with stand-ins for the machine."""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "gpu_check.py"


def loaded(path: Path) -> Any:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def check() -> Any:
    return loaded(SCRIPT)


@pytest.fixture
def machine(check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH; it has an nvidia-smi that lists one GPU, and no package is missing."""
    tools = tmp_path / "bin"
    tools.mkdir()
    tool(tools, "nvidia-smi", "echo 'GPU 0: a GPU'")
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setattr(check, "missing", lambda _: [])
    return tools


def tool(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def summary(folder: Path) -> Any:
    return json.loads((folder / "summary.json").read_text())


def test_no_gpu(check: Any, machine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool(machine, "nvidia-smi", "exit 9")
    assert check.main(tmp_path / "out") == 3
    assert "no GPU here" in capsys.readouterr().out
    assert summary(tmp_path / "out")["steps"] == {}


def test_a_bare_machine(
    check: Any, machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("PATH", f"{machine}:/usr/bin:/bin")
    monkeypatch.setattr(check, "find_spec", lambda name: None if name in ("rmm", "cramjam", "kvikio") else name)
    assert check.main(tmp_path / "out") == 3
    assert "pip install cramjam rmm-cu13" in capsys.readouterr().out
    assert summary(tmp_path / "out")["missing, some steps are skipped"] == ["kvikio-cu13"]


def test_every_step_has_its_file(check: Any, machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that fails does not keep the others from running."""
    python = machine / "python"
    tool(machine, "python", 'echo "$@"; case "$*" in *"-m pytest"*) exit 1;; esac')
    monkeypatch.setattr(sys, "executable", str(python))
    tool(machine, "compute-sanitizer", 'echo "$@"; case "$*" in *racecheck*) exit 9;; esac')
    out = tmp_path / "out"
    assert check.main(out) == 1
    assert summary(out)["steps"] == {"tests": 1, "bench": 0, "memcheck": 0, "racecheck": 9}
    assert f"--junitxml={out}/tests.xml" in (out / "tests.log").read_text()
    assert (out / "bench.log").read_text() == f"-m bench.gpu_decode {out}\n"
    assert "--tool memcheck --error-exitcode 9" in (out / "memcheck.log").read_text()


def test_without_the_sanitizer(check: Any, machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(machine, "python", "exit 0")
    monkeypatch.setattr(sys, "executable", str(machine / "python"))
    assert check.main(tmp_path / "out") == 0
    found = summary(tmp_path / "out")["steps"]
    assert found["memcheck"] == found["racecheck"] == "skipped: compute-sanitizer is not installed"


def test_the_small_read_is_there(check: Any) -> None:
    """What the sanitizer is to watch is a program that runs, here on the CPU on both sides."""
    program = check.READ.format(path=str(check.SEGMENT)).replace("'gpu'", "'cpu'")
    exec(compile(program, "read", "exec"), {})


def test_files_whose_packages_are_missing_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the step of the tests has failed, though all that could run did. The test kit's packages count too."""
    conftest = loaded(SCRIPT.parents[1] / "tests" / "gpu" / "conftest.py")
    monkeypatch.setattr(conftest, "_is_there", lambda module: module != "fastavro")
    assert conftest.lacking() == {"fastavro": ["test_nested_values.py", "test_ptx_budgets.py", "test_registry_values.py"]}
