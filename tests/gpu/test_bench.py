"""The bench of a GPU runs only on one: its steps run here on the emulated device."""

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kolumn
from kit.emulated import Emulated
from kolumn.decode.host.chunks import chunks
from kolumn.kernels.machine import device as current
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import find_segments


@pytest.fixture
def gpu_decode(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, which is beside the tests."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    return import_module("bench.gpu_decode")


@pytest.fixture
def gpu_steps(gpu_decode: Any) -> Any:
    return import_module("bench.gpu_steps")


def test_steps(gpu_steps: Any, device: Emulated, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    kolumn.write(pa.table({"value": [b"x" * 100] * 20_000}), path)
    one = np.fromfile(path, np.uint8)
    (segment,) = find_segments(str(path))
    with SegmentFile(segment) as file:
        rows = np.concatenate([chunk.entries.array for chunk in chunks(file, 0, file.size, 1 << 20)])
    with ThreadPoolExecutor(3) as pool:
        steps = gpu_steps.steps_of(np.empty(3 * len(one), np.uint8), one, rows, 3, 1 << 20, pool)
        assert set(steps) > {gpu_steps.COPY, gpu_steps.OVERLAPPED}
        for name, step in steps.items():
            device.launched.clear()
            device.asked.clear()
            step()
            assert device.asked["waits"] == gpu_steps.gpu_model.WAITS.get(name, device.asked["waits"]), name
            found = device.launched.get("check", 0), device.launched.get("fields", 0)
            chunk_count = -(-3 * len(one) // (1 << 20))
            assert found == {"checksums": (1, 0), "columns": (0, 1), gpu_steps.OVERLAPPED: (chunk_count,) * 2}.get(name, (0, 0)), name


def test_without_a_gpu_nothing_is_measured(
    gpu_decode: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The step of `make gpu-check` has failed then."""

    def none() -> int:
        raise kolumn.MissingError("there is no NVIDIA driver")

    monkeypatch.setattr(current, "count", none)
    assert (gpu_decode.main(tmp_path), capsys.readouterr().out) == (3, "no GPU here, nothing measured: there is no NVIDIA driver\n")
    assert not list(tmp_path.iterdir())


def test_codecs_of_the_model(gpu_decode: Any) -> None:
    """A chunk takes longer than its copy and what nvCOMP takes; the share of each codec that is assumed is what `bench.data` writes."""
    model, size = gpu_decode.gpu_model, 1 << 20
    for codec, left in model.COMPRESSED.items():
        raw = sum(map(len, gpu_decode.data.batches(codec, size)))
        assert raw / sum(map(len, gpu_decode.data.batches("none", size))) == pytest.approx(left, abs=0.01)
        assert model.chunk(codec, raw, model.plain(size, size >> 14)) > raw / model.PAGE_LOCKED + model.inflate(codec, size)


@pytest.mark.parametrize(
    ("device", "card"), [("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA A100-SXM4-80GB", "A100"), ("NVIDIA L4", "L4"), ("NVIDIA L40S", "H200")]
)
def test_the_model_is_of_the_card(gpu_decode: Any, device: str, card: str) -> None:
    """`NVIDIA L40S` is none that is known."""
    model = gpu_decode.gpu_model
    try:
        assert (model.choose(device), model.CARDS[card]) == (card, (model.MULTIPROCESSORS, model.MEMORY))
        other = model.predictions()["columns"]["ms"]
    finally:
        model.choose("NVIDIA H200")
    assert (other > model.predictions()["columns"]["ms"]) == (card != "H200")


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_large_batches_of_the_bench_can_be_read(gpu_decode: Any, codec: str, tmp_path: Path) -> None:
    """A frame of lz4 whose header says 64 KiB has no larger blocks."""
    path = tmp_path / "a.log"
    path.write_bytes(b"".join(gpu_decode.data.batches(codec, 1 << 20, 256 << 10)))
    assert kolumn.read(path, backend="cpu").num_rows == gpu_decode.data.records(path.read_bytes()) > 0


def test_a_result_without_git(gpu_decode: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a copy of the tree may have none."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_decode.machine.describe()["commit"] == ""
