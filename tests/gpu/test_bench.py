"""The bench of a GPU runs only on one: its steps run here on the emulated device."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from bench import data, gpu_decode, gpu_model, gpu_steps, machine

import kolumn
from kit.emulated import Emulated
from kolumn.decode.host.chunks import chunks
from kolumn.kernels.machine import device as current
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import find_segments


def test_steps(device: Emulated, tmp_path: Path) -> None:
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
            assert device.asked["waits"] == gpu_model.WAITS.get(name, device.asked["waits"]), name
            found = device.launched.get("check", 0), device.launched.get("fields", 0)
            chunk_count = -(-3 * len(one) // (1 << 20))
            assert found == {"checksums": (1, 0), "columns": (0, 1), gpu_steps.OVERLAPPED: (chunk_count,) * 2}.get(name, (0, 0)), name


def test_without_a_gpu_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(current, "count", Mock(side_effect=kolumn.MissingError("there is no NVIDIA driver")))
    assert (gpu_decode.main(tmp_path), capsys.readouterr().out) == (3, "no GPU here, nothing measured: there is no NVIDIA driver\n")
    assert not list(tmp_path.iterdir())


def test_codecs_of_the_model() -> None:
    """A chunk takes longer than its copy and what nvCOMP takes; the share of each codec that is assumed is what `bench.data` writes."""
    size = 1 << 20
    for codec, left in gpu_model.COMPRESSED.items():
        raw = sum(map(len, data.batches(codec, size)))
        assert raw / sum(map(len, data.batches("none", size))) == pytest.approx(left, abs=0.01)
        copied_and_inflated = raw / gpu_model.PAGE_LOCKED + gpu_model.inflate(codec, size)
        assert gpu_model.chunk(codec, raw, gpu_model.plain(size, size >> 14)) > copied_and_inflated


@pytest.mark.parametrize(
    ("device", "card"), [("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA A100-SXM4-80GB", "A100"), ("NVIDIA L4", "L4"), ("NVIDIA L40S", "H200")]
)
def test_the_model_is_of_the_card(device: str, card: str) -> None:
    """`NVIDIA L40S` is none that is known."""
    try:
        assert (gpu_model.choose(device), gpu_model.CARDS[card]) == (card, (gpu_model.MULTIPROCESSORS, gpu_model.MEMORY))
        other = gpu_model.predictions()["columns"]["ms"]
    finally:
        gpu_model.choose("NVIDIA H200")
    assert (other > gpu_model.predictions()["columns"]["ms"]) == (card != "H200")


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_large_batches_of_the_bench_can_be_read(codec: str, tmp_path: Path) -> None:
    """A frame of lz4 whose header says 64 KiB has no larger blocks."""
    path = tmp_path / "a.log"
    path.write_bytes(b"".join(data.batches(codec, 1 << 20, 256 << 10)))
    assert kolumn.read(path, backend="cpu").num_rows == data.records(path.read_bytes()) > 0


def test_a_result_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a copy of the tree may have none."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.describe()["commit"] == ""
