"""kvikio, as far as there need be none: what its answers mean, and what Kolumn's runtime reads by it."""

import ctypes
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

import kolumn
from kit.outcome import COLUMNS, outcome
from kolumn.kernels.machine import staging
from kolumn.source.segment_file import SegmentFile


@pytest.fixture
def kvikio(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    stand_in = MagicMock()
    for name, module in {"": stand_in, ".defaults": stand_in.defaults, ".cufile_driver": stand_in.cufile_driver}.items():
        monkeypatch.setitem(sys.modules, f"kvikio{name}", module)
    yield stand_in
    staging.available.cache_clear()


def test_only_where_it_goes_past_the_host(kvikio: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for compat, there, expected in ((False, True, True), (True, True, False), (False, False, False)):
        kvikio.defaults.is_compat_mode_preferred = lambda compat=compat: compat
        kvikio.cufile_driver.get = lambda name, there=there: {"is_gds_available": there}[name]
        staging.available.cache_clear()
        assert staging.available() is expected
    monkeypatch.setitem(sys.modules, "kvikio", None)
    staging.available.cache_clear()
    assert not staging.available()


@pytest.mark.parametrize(
    ("answer", "worked"), [(1000, True), (999, False), (RuntimeError("no libcuda"), False), (OSError(5, "I/O"), False)]
)
def test_what_did_not_come_whole_is_left_to_the_host(kvikio: Any, answer: Any, worked: bool) -> None:
    opened, memory = kvikio.CuFile.return_value, SimpleNamespace(size=1000)
    opened.__enter__.return_value.read.side_effect = [answer]
    assert staging.load("/a.log", 4096, memory) is worked
    kvikio.CuFile.assert_called_once_with("/a.log")
    opened.__enter__.return_value.read.assert_called_once_with(memory, 1000, 4096)
    opened.__exit__.assert_called_once()


@pytest.fixture
def reads(device: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Kolumn's own runtime reads past the host: kvikio, which knows no streams, writes at once."""
    if import_module("kit.standins").real():
        pytest.skip("a GPU has a kvikio of its own")
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
