"""Kolumn's CUDA runtime on stand-ins for CUDA: what comes before what, and whether the stand-ins see what is wrong."""

import ctypes
import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cupy
import numpy as np
import pytest
from cupy.cuda import cub

from kit.standins import GUARD, LEGACY, Standins, real, standing_in
from kolumn.core.recycle import SMALLEST
from kolumn.kernels.columns.gather import sizes
from kolumn.kernels.machine import cuda, device
from kolumn.kernels.machine.runtime import PAD

pytestmark = pytest.mark.skipif(real(), reason="CUDA has a device here, which is in use")
DATA = np.arange(1000, dtype=np.int64)


@pytest.fixture
def standins() -> Iterator[Standins]:
    with standing_in() as found:
        yield found


@pytest.fixture
def runtime(standins: Standins) -> Any:
    return device.runtime()


def read(standins: Standins, memory: Any) -> list[bytes]:
    """What another library reads of memory that it is shown, once its stream gets there."""
    found: list[bytes] = []
    address, size = memory.__cuda_array_interface__["data"][0], memory.size
    standins.ask(LEGACY, lambda: found.append(ctypes.string_at(address, size)))
    return found


def test_others_read_after_it_is_written(standins: Standins, runtime: Any) -> None:
    """The host waits for nothing."""
    memory = runtime.upload(DATA)
    found = read(standins, memory)
    standins.wait(LEGACY)
    assert found == [DATA.tobytes()]


def test_it_is_freed_after_others_have_read(standins: Standins, runtime: Any) -> None:
    memory = runtime.upload(DATA)
    found = read(standins, memory)
    del memory
    runtime.synchronize()
    assert standins.in_use()
    standins.wait(LEGACY)
    assert found == [DATA.tobytes()]
    assert not standins.in_use()


def test_it_is_freed_after_what_its_own_stream_does_with_it(standins: Standins, runtime: Any) -> None:
    memory = runtime.upload(DATA)
    read(standins, memory)
    standins.wait(LEGACY)
    with runtime.stream:
        values = cupy.ndarray((len(DATA),), np.int64, cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(memory.address, 8000, None, 0), 0))
        cub.device_scan(values, cub.CUPY_CUB_CUMSUM)
    del memory, values
    assert standins.in_use()
    runtime.synchronize()
    assert not standins.in_use()


def test_sums_copies_and_zeros(runtime: Any) -> None:
    """Host memory of uploads is used again when they are over."""
    held = [runtime.upload(DATA + number) for number in range(5)]
    for memory in held:
        runtime.running_sum(memory, len(DATA), 8)
    found = runtime.downloads([(memory, memory.size - 8, 8) for memory in held])
    assert [one.view(np.int64).tolist() for one in found] == [np.cumsum(DATA + number)[1:].tolist() for number in range(5)]
    whole = np.arange(SMALLEST // 8, dtype=np.int64)
    assert runtime.download(runtime.upload(whole), SMALLEST).tobytes() == whole.tobytes()
    pieces = runtime.pieces([10, 3000], zeros=True)
    assert not any(map(np.any, runtime.downloads([(piece, piece.size, 0) for piece in pieces])))


def test_a_thread_that_ends_leaves_its_stream(standins: Standins) -> None:
    for _ in range(2):
        with ThreadPoolExecutor(1) as pool:
            memory: Any = pool.submit(lambda: device.runtime().upload(DATA)).result()
        gc.collect()
        assert read(standins, memory) == []
        standins.wait(LEGACY)
    assert len(device._idle) == 1


def test_page_locked_memory_is_kept_until_it_is_copied(standins: Standins, runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, wait = list[int](), standins.wait
    monkeypatch.setattr(standins, "wait", lambda stream: (kept.append(len(runtime._sent)), wait(stream)))
    held = runtime.upload(DATA)
    runtime.synchronize()
    assert (kept, runtime._sent, held.size) == ([1], [], DATA.nbytes)


def test_a_runtime_is_lent_when_nothing_is_under_way(standins: Standins, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that takes it sends something of its own."""
    sent, idle = list[int](), device._idle

    class Idle(list[Any]):
        def append(self, runtime: Any) -> None:
            sent.append(len(runtime._sent))
            super().append(runtime)

    monkeypatch.setattr(device, "_idle", Idle())
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: device.runtime().upload(DATA) and None).result()
    gc.collect()
    idle += device._idle
    assert sent == [0]


def test_another_piece_of_an_allocation_is_shown(standins: Standins, runtime: Any) -> None:
    """Others wait for what was asked of it since they were shown the first piece."""
    first, second = runtime.pieces([8, DATA.nbytes])
    read(standins, first)
    standins.wait(LEGACY)
    cupy.cuda.runtime.memcpyAsync(second.address, DATA.ctypes.data, DATA.nbytes, cupy.cuda.runtime.memcpyHostToDevice, runtime.stream.ptr)
    found = read(standins, second)
    standins.wait(LEGACY)
    assert found == [DATA.tobytes()]


def _launched(blocks: int, *args: Any) -> Callable[[Standins, Any], None]:
    def launch(standins: Standins, runtime: Any) -> None:
        with runtime.stream:
            standins.function(sizes.entry, "sizes.ptx")((blocks,), (sizes.block,), args)

    return launch


def _freed(standins: Standins, own: Any, *as_sizes: int) -> None:
    address = standins.allocate(100, own)
    for size in as_sizes:
        standins.deallocate(address, size, own)


def _of_the_wrong_kind(standins: Standins, runtime: Any) -> None:
    memory = runtime.empty(8000)
    cupy.cuda.runtime.memcpyAsync(memory.address, DATA.ctypes.data, 8000, cupy.cuda.runtime.memcpyDeviceToHost, runtime.stream.ptr)
    runtime.synchronize()


ARGS = tuple(map(np.int64, range(len(sizes.args._fields))))


@pytest.mark.parametrize(
    ("wrong", "seen"),
    [
        (
            lambda standins, runtime: standins.wait_event(runtime.stream.ptr, cupy.cuda.runtime.eventCreateWithFlags(0)),
            "no stream was asked for",
        ),
        (lambda standins, runtime: _freed(standins, runtime._streams.own, 101), "freed as 101"),
        (lambda standins, runtime: _freed(standins, runtime._streams.own, 100, 100), "freed twice"),
        (lambda _, runtime: ctypes.memset((memory := runtime.empty(100)).address + 100 + PAD + GUARD, 0, len([memory])), "written outside"),
        (lambda _, runtime: ctypes.memset(runtime.empty(100).address, 0, 1), "written after they were freed"),
        (
            lambda _, runtime: runtime.downloads([(cuda.DeviceMemory(runtime.empty(100).block, 100), 101, 500)]),
            "outside of an allocation",
        ),
        (_of_the_wrong_kind, "wrong addresses"),
        (lambda standins, runtime: standins.allocate(100, runtime._streams.own), "100 bytes are left"),
        (_launched(2, np.int64(1), *ARGS), "blocks of"),
        (_launched(1, np.int64(1)), "parameters"),
        (_launched(1, 1, *range(len(ARGS))), "parameters"),
        (lambda standins, _: standins.function(sizes.entry, "sizes.ptx")((1,), (sizes.block,), (np.int64(1), *ARGS)), "none of Kolumn's"),
        (lambda standins, _: standins.asked_by_kolumn(cupy.cuda.Stream().ptr, lambda: None), "is destroyed"),
    ],
)
def test_stand_ins_see(wrong: Callable[[Standins, Any], None], seen: str) -> None:
    def whole() -> None:
        with standing_in() as standins:
            wrong(standins, device.runtime())

    with pytest.raises(AssertionError, match=seen):
        whole()
