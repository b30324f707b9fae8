"""What nvCOMP is asked for: no broken bytes, and a chunk at once, with room by guess that does not decide about the rows."""

import ctypes
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kolumn
from kit.draft_segments import FORMATS, Maker
from kit.emulated import Emulated, run_loops
from kit.encoder import Record, batch, with_crc
from kit.mutate import make_segment
from kit.outcome import COLUMNS, outcome
from kolumn.codecs import LZ4, ZSTD
from kolumn.cpu_fallback.inflate.blocks import magics
from kolumn.decode.device import chunk as on_device
from kolumn.decode.device import inflate as on_nvcomp
from kolumn.kernels.machine import device as current

CODECS = {"lz4": LZ4, "zstd": ZSTD}
"""Streams are as Java writes them: without sizes."""
MOST = 8 << 20
"""Bytes of a part: some 60 zstd frames as large as they could be, or all of a log as they are."""
BATCHES, VALUES, VALUE = 150, 16, 1000


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_device, "MOST_BYTES", MOST)
    monkeypatch.setattr(on_nvcomp, "_seen", threading.local())


def usual(b: int, i: int) -> bytes:
    """A fourth of it says all."""
    return random.Random(1000 * b + i).randbytes(VALUE // 4) * 4


def constant(b: int, i: int) -> bytes:
    return b"%03d" % b * 300


def log(path: Path, codec: str, value: Any, batches: int = BATCHES) -> Path:
    entries = []
    for b in range(batches):
        records = [Record(VALUES * b + i, None, value(b, i), 0) for i in range(VALUES)]
        entries.append(batch(records, codec=CODECS[codec]))
    path.write_bytes(b"".join(entries))
    return path


def asked(path: Path, device: Emulated, **options: Any) -> tuple[int, int]:
    """How many parts and calls a read takes that gives what the CPU gives, without the CPU's codecs."""
    options |= {"columns": ["offset", "value"]}
    expected = outcome(path, backend="cpu", **options)
    device.launched.clear()
    assert outcome(path, backend="gpu", threads=1, **options) == expected
    found = device.launched["fields"], device.launched["inflate"]
    assert kolumn.verify(path, backend="gpu", threads=1).inflated_by_cpu == 0
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_a_chunk_is_one_part_and_one_call(codec: str, tmp_path: Path, device: Emulated) -> None:
    assert asked(log(tmp_path / "a.log", codec, usual), device) == (1, 1)


@pytest.mark.parametrize("codec", CODECS)
def test_an_outlier_is_asked_for_once_more(codec: str, tmp_path: Path, device: Emulated) -> None:
    path = log(tmp_path / "a.log", codec, lambda b, i: (constant if b == 70 else usual)(b, i))
    assert asked(path, device) == (1, 2)


@pytest.mark.parametrize("codec", CODECS)
def test_every_block_is_an_outlier(codec: str, tmp_path: Path, device: Emulated) -> None:
    """Parts are then no larger than without a guess; the next chunk knows better."""
    path = log(tmp_path / "a.log", codec, constant, 300)
    parts, calls = asked(path, device)
    assert 1 < parts < 300
    assert calls == parts + 1


@pytest.mark.parametrize("codec", CODECS)
def test_ratios_that_jump(codec: str, tmp_path: Path, device: Emulated) -> None:
    """From chunk to chunk, with a batch of 16 MiB between them that is larger than a part."""

    def value(b: int, i: int) -> bytes:
        return bytes(1 << 20) if b == 75 else (constant if b // 15 % 2 else usual)(b, i)

    parts, calls = asked(log(tmp_path / "a.log", codec, value), device, chunk_bytes=50_000)
    assert parts < calls < BATCHES


def test_a_block_that_stays_broken_goes_to_the_cpu(tmp_path: Path, device: Emulated) -> None:
    """With a right checksum. It has its full room once, and the other blocks theirs."""
    records = [Record(i, None, random.Random(i).randbytes(500).hex().encode(), 0) for i in range(VALUES)]
    path = log(tmp_path / "a.log", "zstd", usual, 3)
    whole = bytearray(batch(records, codec=CODECS["zstd"]))
    whole[-1000:-900] = bytes(100)
    path.write_bytes(path.read_bytes() + with_crc(bytes(whole)))
    for options in ({}, {"errors": "skip"}):
        one, other = (outcome(path, backend=backend, **options) for backend in ("cpu", "gpu"))
        assert one == other
    assert device.launched["inflate"] == 4


class Recording(Emulated):
    """Keeps the blocks that are to be decompressed."""

    blocks: list[bytes]

    def inflate(self, kind: int, sources: Any, sizes: Any, room: Any, targets: Any) -> tuple[Any, Any]:
        self.blocks += [ctypes.string_at(at, size) for at, size in zip(sources.tolist(), sizes.tolist(), strict=True)]
        return super().inflate(kind, sources, sizes, room, targets)


@pytest.mark.parametrize("check_crcs", [False, True])
def test_nothing_with_a_wrong_checksum_is_decompressed(check_crcs: bool, tmp_path: Path) -> None:
    """Of entries of every format and codec: rows and errors are the CPU's."""
    path, seen = tmp_path / "a.log", 0
    device = Recording(run_loops)
    for seed in range(60):
        rng = random.Random(seed)
        format = ("kafka", *FORMATS)[seed % 2 * (1 + seed // 2 % len(FORMATS))]
        entries = make_segment(rng) if format == "kafka" else [one.data for one in Maker(format, rng).segment(8)]
        damaged = [one[:-1] + bytes([one[-1] ^ 0x10]) if rng.random() < 0.5 else one for one in entries]
        path.write_bytes(b"".join(damaged))
        device.blocks, right = [], b"".join(one for one, before in zip(damaged, entries, strict=True) if one == before)
        options: dict[str, Any] = {"columns": COLUMNS, "format": format, "errors": "skip", "check_crcs": check_crcs}
        expected = outcome(path, backend="cpu", **options)
        with current.using(device):
            assert outcome(path, backend="gpu", **options) == expected, seed
        assert all(block in right for block in device.blocks), seed
        seen += len(device.blocks)
    assert seen > 50


@pytest.mark.parametrize("seed", range(3))
def test_headers_of_gzip_are_found(seed: int) -> None:
    """As a search finds them, in bytes of which most begin one."""
    rng = random.Random(seed)
    data = np.array(rng.choices([0x1F, 0x8B, 0x08, 0], [8, 8, 8, 4], k=4000), np.uint8)
    start = np.array([rng.randrange(3900) for _ in range(500)])
    stop = start + np.array([rng.randrange(40) for _ in range(500)])
    found = np.zeros(500, bool)
    magics(data.ctypes.data, start, stop, found)
    assert found.tolist() == [b"\x1f\x8b\x08" in data[a:b].tobytes() for a, b in zip(start, stop, strict=True)]
    assert 0.1 < found.mean() < 0.9
