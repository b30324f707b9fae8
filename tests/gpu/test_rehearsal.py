"""Checks and bench for a machine with a GPU are rehearsed on stand-ins for CUDA: each step runs, and finds what it should."""

import json
import sys
import time
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from bench import data, gpu_decode, gpu_model, gpu_steps

import kit.corpus
import kolumn
from kit.outcome import COLUMNS
from kit.standins import real, standing_in
from kolumn.kernels import check
from kolumn.kernels.fields import hop
from kolumn.kernels.machine import runtime as protocol
from kolumn.kernels.machine.cuda import DeviceMemory
from kolumn.options import Options

pytestmark = pytest.mark.skipif(real(), reason="CUDA has a device here: `make gpu-check` runs them on it")


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A module of its own for each test; what the checks change outside of it comes back."""
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setenv("PLACE", str(tmp_path / "place"))
    spec = spec_from_file_location("gpu_checks", Path(__file__).parents[2] / "bench" / "gpu_checks.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    few = kit.corpus.cases()[:5]
    monkeypatch.setattr(kit.corpus, "cases", lambda: few)
    for owner, name in ((hop, "FEW"), (hop, "LARGE"), (hop, "LONG"), (check, "WARPS")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    for kind in (DeviceMemory, protocol.View):
        monkeypatch.setattr(kind, "bytes", None, raising=False)
    with standing_in():
        yield module


ARGUMENTS = {"mutants": ["0.5", "7"], "large": ["256"]}
SAME = {"env": 0, "smoke": 15, "tiny": 15, "corpus": 12, "mutants": 2, "large": 26, "resident": 5}
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
    kept = {"what": "this one", "options": str({"columns": COLUMNS}), "hex": b"some".hex()}
    assert json.loads((tmp_path / "different.jsonl").read_text()) == kept
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [line.get("DIFFERENT") or line["FAILED"] for line in lines] == ["this one", "another"]
    assert "ZeroDivisionError" in lines[1]["trace"]


def test_steps_of_the_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a small part of the data. Lines have a prediction where the model has one."""
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    monkeypatch.setattr(gpu_steps, "OVERLAPS", gpu_steps.OVERLAPS[:2])
    # Each function, and each codec and format once. libcudf needs a GPU.
    more = ("parquet", "files gzip", "files snappy", *(f"batches {size}" for size in gpu_steps.BATCHES[1:]))
    steps = [step for step in gpu_steps.STEPS if step not in more]
    with standing_in():
        assert gpu_decode.main(tmp_path, small=True, only=steps) == 0
    found = json.loads((tmp_path / "gpu_decode.json").read_text())
    assert (found["gpu"], found["predicted_for"], found["small"], found["errors"]) == ("stand-in", "H200", True, {})
    lines = found["lines"]
    assert lines["equal the CPU's"]["damaged_batches_found"] == 1 + lines["equal the CPU's"]["of"] // 100
    timed = {name: line for name, line in lines.items() if "ms" in line}
    assert all(line["ms"] > 0 for line in timed.values())
    codecs = [codec for codec in data.CODECS if codec != "none"]
    for name in [
        gpu_steps.COPY,
        *(f"{1024 if size == 16 else 64} MiB in batches of {size} KiB: {what}" for size in (16, 1024) for what in ("checksums", "columns")),
        f"{gpu_steps.OVERLAPPED}: 3 threads, 64 MiB",
        *(f"{codec}: nvCOMP, batches of 16 KiB" for codec in codecs),
        *(f"{codec}: a chunk to columns, batches of 16 KiB" for codec in data.CODECS),
        *gpu_model.VALUES,
        *(f"{way}: kernel {kernel}" for way, kernels in gpu_model.VALUES.items() for kernel in kernels),
    ]:
        assert timed[name]["predicted"] > 0, name
    for codec in ("none", "zstd", "lz4"):
        assert lines[f"{codec}: batches that the CPU decompressed"]["count"] == 0
        assert {f"{codec}: files to Arrow by the {backend}, {Options.of().threads} threads" for backend in ("CPU", "GPU")} <= timed.keys()


def test_parquet_beside_a_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """libcudf needs a GPU: here nothing reads the files that are written for it."""
    read: list[Any] = []
    options = SimpleNamespace(builder=lambda source: SimpleNamespace(build=lambda: source))
    parquet = SimpleNamespace(ParquetReaderOptions=options, read_parquet=read.append)
    libcudf = SimpleNamespace(SourceInfo=lambda paths: Path(*paths).stat().st_size, parquet=parquet)
    monkeypatch.setitem(sys.modules, "pylibcudf.io", libcudf)
    monkeypatch.setattr("rmm.pylibrmm.stream.DEFAULT_STREAM", SimpleNamespace(synchronize=lambda: None))
    monkeypatch.setattr(kolumn, "read_pylibcudf", lambda *_, **__: time.sleep(0.001))
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    bench = gpu_steps.Bench(small=True)
    gpu_steps.parquet(bench)
    sizes = [bench.lines[f"libcudf's reader of Parquet, {codec}"]["file_bytes"] for codec in ("none", "snappy", "zstd")]
    assert read == [size for size in sizes for _ in range(4)]
    assert bench.lines["read_pylibcudf"]["GB/s"] > 0


def test_a_step_that_fails_keeps_none_from_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found is there after each step."""
    seen: list[dict[str, Any]] = []

    def good(bench: Any) -> None:
        seen.append(json.loads((tmp_path / "gpu_decode.json").read_text()))
        bench.add("found", gpu_model.EACH_SUM, 1000, 2.0)

    lacking = Mock(side_effect=ModuleNotFoundError("No module named 'some'"))

    def bad(bench: Any) -> None:
        bench.say("before it failed", count=1)
        raise ValueError("no such thing")

    monkeypatch.setattr(gpu_decode, "STEPS", {"lacking": lacking, "bad": bad, "good": good})
    with standing_in():
        assert gpu_decode.main(tmp_path) == 1
        found = json.loads((tmp_path / "gpu_decode.json").read_text())
        assert gpu_decode.main(tmp_path, seconds=-1) == 1
    assert list(seen[0]["lines"]) == ["before it failed"]
    assert "ValueError: no such thing" in seen[0]["errors"]["bad"]
    assert found["lines"]["found"] == {"ms": 1.2e-05, "GB/s": 83.33, "predicted": 2000.0}
    assert (list(found["errors"]), found["left_out"]) == (["bad"], {"lacking": "No module named 'some'"})
    assert json.loads((tmp_path / "gpu_decode.json").read_text())["errors"] == dict.fromkeys(("lacking", "bad", "good"), "no time left")


def test_a_step_that_is_cut_off_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_decode, "STEPS", {"long": lambda bench: sys.exit(124)})
    with standing_in(), pytest.raises(SystemExit):
        gpu_decode.main(tmp_path)
    assert json.loads((tmp_path / "gpu_decode.json").read_text())["errors"] == {"long": "cut off"}
