"""nvCOMP: what its library says of itself without a GPU, and what it is asked for: no broken bytes, and nothing with too little room."""

import ctypes
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kit.draft_segments import FORMATS, Maker
from kit.emulated import Emulated, run_loops
from kit.encoder import Record, batch
from kit.mutate import make_segment
from kit.outcome import COLUMNS, outcome
from kolumn.core.errors import MissingError
from kolumn.formats.codecs import DEFLATE, LZ4, LZ4_BLOCK, SNAPPY_BLOCK, ZSTD, ZSTD_FRAME
from kolumn.kernels.machine import device as current
from kolumn.kernels.machine.nvcomp import NAMES, TEMPORARY_BYTES, DecompressOptions, Decompressor


@pytest.fixture(scope="module")
def library() -> Decompressor:
    try:
        return Decompressor()
    except MissingError as error:
        pytest.skip(str(error))


def test_blocks_are_inflated_where_they_are(library: Decompressor) -> None:
    """Addresses of compressed blocks and of their room need not be multiples of anything; those of temporary memory are."""
    for name in NAMES.values():
        query = getattr(library.library.loaded, f"nvcompBatched{name}DecompressGetRequiredAlignments")
        query.argtypes = [DecompressOptions, ctypes.c_void_p]
        found = (ctypes.c_size_t * 3)()
        assert query(DecompressOptions(), found) == 0
        source, target, temporary = found
        assert (source, target, temporary in (1, 8)) == (1, 1, True)


def test_zstd_needs_temporary_memory_and_more_for_more(library: Decompressor) -> None:
    assert [library.library.temporary(None, kind, 1000, 65536, 65536000) for kind in (LZ4_BLOCK, SNAPPY_BLOCK, DEFLATE)] == [0] * 3
    one, many = (library.library.temporary(None, ZSTD_FRAME, count, 65536, 65536 * count) for count in (1, 1000))
    assert 65536 < one < many


def test_groups_share_temporary_memory_and_one_wait(library: Decompressor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block is asked for once, at its own place in every array, in groups that fit the pool."""
    calls: list[tuple[Any, ...]] = []
    device: Any = Emulated(run_loops)
    device.stream = SimpleNamespace(ptr=7)
    small = Decompressor(memory=12 * 1000)
    assert (small.most, library.most) == (1000, TEMPORARY_BYTES)
    monkeypatch.setattr(small.library, "temporary", lambda device, kind, count, largest, total: count * largest)
    monkeypatch.setattr(small.library, "_function", lambda *_: lambda *given: calls.append(given) or 0)
    n, room = 8, np.array([400, 400, 400, 5000, 10, 10, 10, 10])
    out, fine = small.run(device, ZSTD_FRAME, np.arange(n), np.arange(n) + 10, room, np.arange(n) + 20)
    counts = [given[4] for given in calls]
    assert counts == [2, 1, 1, 4]
    first = calls[0]
    for given, start in zip(calls, (0, 2, 3, 4), strict=True):
        assert [given[k] - first[k] for k in (0, 1, 2, 7)] == [8 * start] * 4
        assert (given[3] - first[3], given[9] - first[9], given[10]) == (8 * start, 4 * start, 7)
    assert (device.asked["waits"], out.tolist(), fine.tolist()) == (1, [0] * n, [True] * n)


def test_blocks_and_answers_are_at_their_places(library: Decompressor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a library that copies: a block with a status, and one that says it wrote more than it had room for, are not fine."""
    source, target = np.arange(1, 65, dtype=np.uint8), np.zeros(64, np.uint8)
    sizes, room = np.array([4, 8, 16, 2]), np.array([8, 8, 12, 2])
    device: Any = Emulated(run_loops)
    device.stream = SimpleNamespace(ptr=7)
    inner: Any = library.library
    whole, places, asked = inner._function, 16 * np.arange(4), list[Any]()

    def copy(sources: int, lengths: int, rooms: int, out: int, count: int, temporary: int, need: int, targets: int, *rest: Any) -> int:
        assert asked[-2:] == [(ZSTD_FRAME, 4, 12, 30), need]
        given = [np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(at)) for at in (sources, lengths, rooms, targets, out)]
        assert [one.tolist() for one in given[1:4]] == [sizes.tolist(), room.tolist(), (target.ctypes.data + places).tolist()]
        for at, length, most, to in zip(*given[:4], strict=True):
            ctypes.memmove(int(to), int(at), int(min(length, most)))
        given[4][:] = given[1]
        (ctypes.c_int32 * count).from_address(rest[1])[1] = 12
        return 0

    monkeypatch.setattr(inner, "_function", lambda kind, name, arguments: copy if name == "Async" else whole(kind, name, arguments))
    monkeypatch.setattr(inner, "temporary", lambda device, *given: asked.append(given) or 1000)
    taken = device.empty
    monkeypatch.setattr(device, "empty", lambda size: asked.append(size) or taken(size))
    out, fine = library.run(device, ZSTD_FRAME, source.ctypes.data + places, sizes, room, target.ctypes.data + places)
    assert (out.tolist(), fine.tolist()) == ([4, 8, 16, 2], [True, False, False, True])
    for place, size in zip(places.tolist(), [4, 8, 12, 2], strict=True):
        assert target[place : place + 16].tolist() == [*range(place + 1, place + 1 + size), *[0] * (16 - size)]


class Recording(Emulated):
    """Keeps the blocks that are to be decompressed, and their room."""

    blocks: list[bytes]
    room: list[int]

    def inflate(self, kind: int, sources: Any, sizes: Any, room: Any, targets: Any) -> tuple[Any, Any]:
        self.blocks += [ctypes.string_at(at, size) for at, size in zip(sources.tolist(), sizes.tolist(), strict=True)]
        self.room += room.tolist()
        return super().inflate(kind, sources, sizes, room, targets)


@pytest.fixture
def device() -> Iterator[Any]:
    recording: Any = Recording(run_loops)
    recording.blocks, recording.room = [], []
    with current.using(recording):
        yield recording


@pytest.mark.parametrize("check_crcs", [False, True])
def test_nothing_with_a_wrong_checksum_is_decompressed(check_crcs: bool, device: Any, tmp_path: Path) -> None:
    """Of entries of every format and codec: rows and errors are the CPU's."""
    path, seen = tmp_path / "a.log", 0
    for seed in range(60):
        rng = random.Random(seed)
        format = ("kafka", *FORMATS)[seed % 2 * (1 + seed // 2 % len(FORMATS))]
        entries = make_segment(rng) if format == "kafka" else [one.data for one in Maker(format, rng).segment(8)]
        damaged = [one[:-1] + bytes([one[-1] ^ 0x10]) if rng.random() < 0.5 else one for one in entries]
        path.write_bytes(b"".join(damaged))
        device.blocks, right = [], b"".join(one for one, before in zip(damaged, entries, strict=True) if one == before)
        options: dict[str, Any] = {"columns": COLUMNS, "format": format, "errors": "skip", "check_crcs": check_crcs}
        assert outcome(path, backend="gpu", **options) == outcome(path, backend="cpu", **options), seed
        assert all(block in right for block in device.blocks), seed
        seen += len(device.blocks)
    assert seen > 50


@pytest.mark.parametrize(("codec", "most"), [(LZ4, 64 << 10), (ZSTD, 128 << 10)])
def test_room_is_what_a_block_can_need(codec: int, most: int, device: Any, tmp_path: Path) -> None:
    """With less nvCOMP wrote past it (zstd), or cut the block without a word (lz4). As Java writes them, streams do not say their sizes."""
    path = tmp_path / "a.log"
    path.write_bytes(batch([Record(i, None, random.Random(i).randbytes(100), 0) for i in range(20)], codec=codec))
    assert outcome(path, backend="gpu") == outcome(path, backend="cpu")
    assert {*device.room} == {most}


def test_functions_are_there(library: Decompressor) -> None:
    """The last test: it changes what the functions take."""
    assert all(library.library._function(kind, "Async", []) is not None for kind in NAMES)
