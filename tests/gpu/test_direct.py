"""kvikio, as far as there need be none: what its answers mean, and what Kolumn's runtime reads by it."""

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.outcome import COLUMNS, outcome
from kolumn.kernels.machine import staging
from kolumn.source.segment_file import SegmentFile


@pytest.fixture
def kvikio(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Something in place of kvikio; its file gives ``bytes_read``, or raises it."""

    class CuFile:
        def __init__(self, path: str) -> None:
            self.path = path

        def __enter__(self) -> "CuFile":
            return self

        def __exit__(self, *error: object) -> None:
            stand_in.closed += 1

        def read(self, memory: Any, size: int, file_offset: int) -> int:
            stand_in.asked.append((self.path, size, file_offset))
            if isinstance(stand_in.bytes_read, Exception):
                raise stand_in.bytes_read
            return int(stand_in.bytes_read)

    stand_in: Any = ModuleType("kvikio")
    stand_in.CuFile, stand_in.bytes_read, stand_in.asked, stand_in.closed = CuFile, 0, [], 0
    stand_in.defaults = ModuleType("kvikio.defaults")
    stand_in.cufile_driver = ModuleType("kvikio.cufile_driver")
    for name in ("", ".defaults", ".cufile_driver"):
        monkeypatch.setitem(sys.modules, f"kvikio{name}", getattr(stand_in, name[1:]) if name else stand_in)
    staging.available.cache_clear()
    yield stand_in
    staging.available.cache_clear()


@pytest.mark.parametrize(("compat", "there", "expected"), [(False, True, True), (True, True, False), (False, False, False)])
def test_only_where_it_goes_past_the_host(kvikio: Any, compat: bool, there: bool, expected: bool) -> None:
    kvikio.defaults.is_compat_mode_preferred = lambda: compat
    kvikio.cufile_driver.get = lambda name: {"is_gds_available": there}[name]
    assert staging.available() is expected


def test_without_kvikio(kvikio: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kvikio", None)
    assert not staging.available()


@pytest.mark.parametrize(
    ("answer", "worked"), [(1000, True), (999, False), (RuntimeError("no libcuda"), False), (OSError(5, "I/O"), False)]
)
def test_what_did_not_come_whole_is_left_to_the_host(kvikio: Any, answer: Any, worked: bool) -> None:
    kvikio.bytes_read = answer
    assert staging.load("/a.log", 4096, SimpleNamespace(size=1000)) is worked
    assert (kvikio.asked, kvikio.closed) == ([("/a.log", 1000, 4096)], 1)


@pytest.fixture
def no_gpu() -> None:
    for package in ("cupy", "rmm"):
        pytest.importorskip(package, reason="make gpu-packages")
    from kit.standins import real

    if real():
        pytest.skip("a GPU has a kvikio of its own")


@pytest.fixture
def reads(no_gpu: None, device: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Kolumn's own runtime reads past the host: kvikio, which knows no streams, writes at once."""
    seen = []

    def load(path: str, start: int, memory: Any) -> bool:
        seen.append(path)
        there = memory.__cuda_array_interface__
        data = Path(path).read_bytes()[start : start + memory.size]
        ctypes.memmove(there["data"][0], data, len(data))
        return len(data) == memory.size

    monkeypatch.setattr(staging, "available", lambda: True)
    monkeypatch.setattr(staging, "load", load)
    return seen


def log(path: Path, **how: Any) -> Path:
    rows = {"key": [b"%d" % i for i in range(20_000)], "value": [b"words and words of %d" % i for i in range(20_000)]}
    kolumn.write(pa.table(rows), path, **how)
    return path


@pytest.mark.gpu
def test_no_codec_needs_the_bytes_on_the_host(reads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = SegmentFile.read

    def headers(file: SegmentFile, start: int, end: int, *how: Any) -> Any:
        assert end - start < 5_000, "the host reads a chunk"
        return read(file, start, end, *how)

    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        path = log(tmp_path / f"{codec}-0", codec=codec)
        expected = outcome(path, columns=COLUMNS, backend="cpu")
        with monkeypatch.context() as patch:
            patch.setattr(SegmentFile, "read", headers)
            assert outcome(path, columns=COLUMNS, backend="gpu").equals(expected)
    assert len(reads) == 5


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("written", "read", "loads"),
    [
        ({"magic": 0, "codec": "gzip"}, {}, 0), ({"magic": 1, "codec": "lz4"}, {}, 0), ({"magic": 1, "codec": "none"}, {}, 0),
        ({"codec": "zstd"}, {"trusted": False}, 0), ({"codec": "none"}, {"trusted": False}, 1),
    ],
    ids=str,
)  # fmt: skip
def test_what_the_host_has_to_see(written: dict[str, Any], read: dict[str, Any], loads: int, reads: list[str], tmp_path: Path) -> None:
    """Messages of formats 0 and 1, and what its own codecs decompress."""
    path = log(tmp_path / "t-0", **written)
    expected = outcome(path, columns=COLUMNS, backend="cpu", **read)
    assert outcome(path, columns=COLUMNS, backend="gpu", **read).equals(expected)
    assert len(reads) == loads
