"""What nvCOMP's library says of itself without a GPU: that its functions are there and take what we pass."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kit.emulated import Emulated, run_loops
from kolumn.core.errors import MissingError
from kolumn.formats.codecs import DEFLATE, LZ4_BLOCK, SNAPPY_BLOCK, ZSTD_FRAME
from kolumn.kernels.machine.nvcomp import NAMES, TEMPORARY_BYTES, DecompressOptions, Decompressor


@pytest.fixture(scope="module")
def library() -> Decompressor:
    try:
        return Decompressor()
    except MissingError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("kind", NAMES)
def test_blocks_are_inflated_where_they_are(library: Decompressor, kind: int) -> None:
    """Addresses of compressed blocks and of their room need not be multiples of anything; those of temporary memory are."""
    query = getattr(library.library, f"nvcompBatched{NAMES[kind]}DecompressGetRequiredAlignments")
    query.argtypes = [DecompressOptions, ctypes.c_void_p]
    found = (ctypes.c_size_t * 3)()
    assert query(DecompressOptions(), found) == 0
    source, target, temporary = found
    assert (source, target, temporary in (1, 8)) == (1, 1, True)


def test_zstd_needs_temporary_memory_and_more_for_more(library: Decompressor) -> None:
    assert [library.temporary(kind, 1000, 65536, 65536000) for kind in (LZ4_BLOCK, SNAPPY_BLOCK, DEFLATE)] == [0] * 3
    one, many = (library.temporary(ZSTD_FRAME, count, 65536, 65536 * count) for count in (1, 1000))
    assert 65536 < one < many


def test_groups_share_temporary_memory_and_one_wait(library: Decompressor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block is asked for once, at its own place in every array, in groups that fit the pool."""
    calls: list[tuple[Any, ...]] = []
    device: Any = Emulated(run_loops)
    device.stream = SimpleNamespace(ptr=7)
    small = Decompressor(memory=12 * 1000)
    assert (small.most, library.most) == (1000, TEMPORARY_BYTES)
    monkeypatch.setattr(small, "temporary", lambda kind, count, largest, total: count * largest)

    def function(kind: int, name: str, arguments: list[Any]) -> Any:
        return lambda *given: calls.append(given) or 0

    monkeypatch.setattr(small, "_function", function)
    n, room = 8, np.array([400, 400, 400, 5000, 10, 10, 10, 10])
    out, fine = small.run(device, ZSTD_FRAME, np.arange(n), np.arange(n) + 10, room, np.arange(n) + 20)
    counts = [given[4] for given in calls]
    assert counts == [2, 1, 1, 4]
    begins = np.cumsum([0, *counts]).tolist()
    first = calls[0]
    for given, start in zip(calls, begins[:-1], strict=True):
        assert [given[k] - first[k] for k in (0, 1, 2, 7)] == [8 * start] * 4
        assert (given[3] - first[3], given[9] - first[9], given[10]) == (8 * start, 4 * start, 7)
    assert (device.asked["waits"], out.tolist(), fine.tolist()) == (1, [0] * n, [True] * n)


def test_blocks_and_answers_are_at_their_places(library: Decompressor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a library that copies: a block with a status, and one that says it wrote more than it had room for, are not fine."""
    source, target = np.arange(1, 65, dtype=np.uint8), np.zeros(64, np.uint8)
    sizes, room = np.array([4, 8, 16, 2]), np.array([8, 8, 12, 2])
    device: Any = Emulated(run_loops)
    device.stream = SimpleNamespace(ptr=7)
    whole, places = library._function, 16 * np.arange(4)
    asked: list[Any] = []

    def copy(sources: int, lengths: int, rooms: int, out: int, count: int, temporary: int, need: int, targets: int, *rest: Any) -> int:
        assert asked[-2:] == [(ZSTD_FRAME, 4, 12, 30), need]
        given = [np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(at)) for at in (sources, lengths, rooms, targets, out)]
        assert [one.tolist() for one in given[1:4]] == [sizes.tolist(), room.tolist(), (target.ctypes.data + places).tolist()]
        for at, length, most, to in zip(*given[:4], strict=True):
            ctypes.memmove(int(to), int(at), int(min(length, most)))
        given[4][:] = given[1]
        (ctypes.c_int32 * count).from_address(rest[1])[1] = 12
        return 0

    monkeypatch.setattr(library, "_function", lambda kind, name, arguments: copy if name == "Async" else whole(kind, name, arguments))
    monkeypatch.setattr(library, "temporary", lambda *given: asked.append(given) or 1000)
    taken = device.empty
    monkeypatch.setattr(device, "empty", lambda size: asked.append(size) or taken(size))
    out, fine = library.run(device, ZSTD_FRAME, source.ctypes.data + places, sizes, room, target.ctypes.data + places)
    assert (out.tolist(), fine.tolist()) == ([4, 8, 16, 2], [True, False, False, True])
    for place, size in zip(places.tolist(), [4, 8, 12, 2], strict=True):
        assert target[place : place + 16].tolist() == [*range(place + 1, place + 1 + size), *[0] * (16 - size)]


def test_functions_are_there(library: Decompressor) -> None:
    """The last test: it changes what the functions take."""
    assert all(library._function(kind, "Async", []) is not None for kind in NAMES)
