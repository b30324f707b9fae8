"""What nvCOMP is asked for: no broken bytes, and nothing with less room than it can need."""

import ctypes
import random
from pathlib import Path
from typing import Any

import pytest

from kit.draft_segments import FORMATS, Maker
from kit.emulated import Emulated, run_loops
from kit.encoder import Record, batch
from kit.mutate import make_segment
from kit.outcome import COLUMNS, outcome
from kolumn.formats.codecs import LZ4, ZSTD
from kolumn.kernels.machine import device as current


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


@pytest.mark.parametrize(("codec", "most"), [(LZ4, 64 << 10), (ZSTD, 128 << 10)])
def test_room_is_what_a_block_can_need(codec: int, most: int, tmp_path: Path) -> None:
    """With less nvCOMP wrote past it (zstd), or cut the block without a word (lz4). As Java writes them, streams do not say their sizes."""
    given: list[int] = []

    class Room(Emulated):
        def inflate(self, kind: int, sources: Any, sizes: Any, room: Any, targets: Any) -> tuple[Any, Any]:
            given.extend(room.tolist())
            return super().inflate(kind, sources, sizes, room, targets)

    path = tmp_path / "a.log"
    path.write_bytes(batch([Record(i, None, random.Random(i).randbytes(100), 0) for i in range(20)], codec=codec))
    with current.using(Room(run_loops)):
        assert outcome(path, backend="gpu") == outcome(path, backend="cpu")
    assert given == [most] * len(given) != []
