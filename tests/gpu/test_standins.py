"""Kolumn's CUDA runtime on stand-ins for CUDA: what comes before what, and whether the stand-ins see what is wrong."""

import ctypes
import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest.mock import Mock

import cupy
import numpy as np
import pytest
from cupy.cuda import cub

from kit.standins import GUARD, LEGACY, PROCESSORS, Standins, real, standing_in
from kolumn.core import recycle
from kolumn.core.errors import KolumnError
from kolumn.core.recycle import SMALLEST
from kolumn.kernels import check
from kolumn.kernels.columns.gather import sizes
from kolumn.kernels.machine import cuda, device, staging
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
    shown, size = memory.__cuda_array_interface__["data"], memory.size
    address = memory.address
    assert shown == (address, False)
    standins.ask(LEGACY, lambda: found.append(ctypes.string_at(address, size)))
    return found


def test_it_is_freed_after_others_have_read(standins: Standins, runtime: Any) -> None:
    """They read after it is written, and the host waits for nothing."""
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
    """To memory that others read, and to memory in a cycle with the runtime, as in a traceback, which a later collection finds."""

    def work() -> Any:
        for number in range(5):
            cycle: list[Any] = [device.runtime(), device.runtime().upload(DATA + number)]
            cycle.append(cycle)
        return device.runtime().upload(DATA)

    for _ in range(2):
        with ThreadPoolExecutor(1) as pool:
            memory: Any = pool.submit(work).result()
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


@pytest.mark.parametrize(("most", "asked"), [(5, [5]), (4, [4, 2]), (3, [3, 3]), (2, [2] * 4)])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_running_sums_need_no_compiler(kind: Any, most: int, asked: list[int], runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's binding of CUB has the kernels in its library. It counts items in an int."""
    assert np.array(cuda._SUMMED, np.int32) == cuda._SUMMED
    sums, scan = list[int](), cub.device_scan
    monkeypatch.setattr(cuda, "_SUMMED", most)
    monkeypatch.setattr(cupy, "cumsum", lambda *_, **__: pytest.fail("cupy.cumsum compiles a kernel"))
    monkeypatch.setattr(cub, "device_scan", lambda values, operation: sums.append(values.size) or scan(values, operation))
    memory = runtime.upload(np.arange(8, dtype=kind))
    runtime.running_sum(memory, 5, memory.size // 8)
    assert (runtime.download(memory, memory.size).view(kind).tolist(), sums) == ([0, 1, 3, 6, 10, 5, 6, 7], asked)


def test_pieces_of_one_allocation(standins: Standins, runtime: Any) -> None:
    wanted = [1, 255, 256, 0, 1000]
    pieces = runtime.pieces(wanted, zeros=True)
    runtime.synchronize()
    (whole,) = standins.pieces.values()
    ends = [*(piece.address for piece in pieces[1:]), whole.address + whole.size]
    for piece, size, end in zip(pieces, wanted, ends, strict=True):
        assert (piece.size, piece.address % PAD, end - piece.address >= size + PAD) == (size, 0, True)
        assert not any(ctypes.string_at(piece.address, size + PAD))
    last = pieces.pop()
    del pieces, piece
    runtime.synchronize()
    assert standins.in_use()
    del last
    runtime.synchronize()
    assert not standins.in_use()


def test_memory_is_asked_of_a_pool_and_goes_back_to_it(standins: Standins, runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, standins.resource.limit = runtime.empty(10), 511
    with pytest.raises(KolumnError, match="the GPU has no room for 512 bytes: out_of_memory"):
        runtime.empty(200)
    monkeypatch.setattr("rmm.mr.get_current_device_resource", lambda: None)
    del memory
    runtime.synchronize()
    assert not standins.in_use()


@pytest.mark.parametrize("locked", [False, True])
def test_bytes_go_there_and_come_back(locked: bool, runtime: Any) -> None:
    """By way of page-locked memory, where there is any, which is not in use afterwards."""
    recycle.lock_by(cuda.page_locked if locked else None)
    data = np.random.default_rng(1).integers(0, 1 << 60, (3, 500_000))
    memory = runtime.upload(data)
    assert bool(recycle._locked.used) is locked
    back, part, nothing = runtime.downloads([(memory, data.nbytes, 0), (memory, 80, 16), (memory, 0, 0)])
    assert (back.tobytes(), part.tobytes(), len(nothing)) == (data.tobytes(), data.tobytes()[16:96], 0)
    assert not recycle._locked.used
    assert runtime.upload(np.zeros(0)).size == 0


def test_page_locked_memory_is_sent_as_it_is(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any part of it, whoever has it: another copy on the host would be the slowest step."""
    pinned = Mock(side_effect=lambda size, flags: bytearray(size))
    with monkeypatch.context() as patch:
        patch.setattr(cupy.cuda, "PinnedMemory", pinned)
        host = cuda.page_locked(1000)
    pinned.assert_called_once_with(1000, cupy.cuda.runtime.hostAllocPortable)
    address = host.ctypes.data
    for part in (host, host[200:700], host[999:]):
        part[:] = len(part) % 251
        sent = runtime.upload(part)
        assert (recycle.locked_bytes(), runtime._sent[-1] is part) == (0, True)
        runtime.synchronize()
        assert ctypes.string_at(sent.address, len(part)) == bytes(part)
    assert not cuda.is_page_locked(address + 1000)
    runtime.upload(np.zeros(8))
    assert recycle.locked_bytes() > 0
    runtime.synchronize()
    del host
    assert cuda.is_page_locked(address + 999)
    del part
    assert not cuda.is_page_locked(address)


def test_an_interrupt_waits_for_copies(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device may be writing to page-locked memory, which is used again as soon as nobody has it."""
    called = Mock()
    called.copy.side_effect = KeyboardInterrupt
    monkeypatch.setattr(cupy.cuda.runtime, "memcpyAsync", called.copy)
    monkeypatch.setattr(runtime.stream, "synchronize", called.wait)
    with pytest.raises(KeyboardInterrupt):
        runtime.download(runtime.empty(100), 100)
    assert [name for name, *_ in called.mock_calls] == ["copy", "wait"]


def test_launches(standins: Standins, runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the thread's stream; as many blocks as the device has room for where a kernel finds its items itself; not of no items."""
    asked: list[Any] = []

    def launch(kernel: str, arch: int, grid: Any, block: Any, args: Any) -> None:
        assert standins.current() == runtime.stream.ptr
        assert all(type(one) is np.int64 for one in args)
        asked.append((kernel, arch, grid, block, args))

    with monkeypatch.context() as patch:
        patch.setattr(cuda, "_function", lambda kernel, arch: partial(launch, kernel.name, arch))
        for kernel, n in ((sizes, 0), (sizes, 256 * 20 + 1), (check.check, 0), (check.check, 8 * 9), (check.check, 10_000)):
            runtime.launch(kernel, n, tuple(range(3)))
    assert asked == [
        ("sizes", 90, (21,), (256,), (5121, 0, 1, 2)),
        ("check", 90, (9,), (256,), (72, 0, 1, 2)),
        ("check", 90, (32 * PROCESSORS,), (256,), (10_000, 0, 1, 2)),
    ]


def test_files_go_where_nothing_is_under_way(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the page of the first byte on, after the memory is there."""
    done: list[Any] = []
    monkeypatch.setattr(runtime.stream, "synchronize", lambda: done.append("wait"))
    monkeypatch.setattr(staging, "load", lambda path, start, memory: done.append((path, start, memory)) or path == "there")
    memory = runtime.load("there", staging.PAGE + 10, staging.PAGE + 30)
    assert runtime.load("gone", 0, 10) is None
    waited, (path, start, whole), *_ = done
    assert (waited, path, start, whole.size, memory.size) == ("wait", "there", staging.PAGE, 30, 20)
    assert memory.address == whole.__cuda_array_interface__["data"][0] + 10
    done.clear()


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
        (lambda one, runtime: one.wait_event(runtime.stream.ptr, cupy.cuda.runtime.eventCreateWithFlags(0)), "no stream was asked for"),
        (lambda standins, runtime: _freed(standins, runtime._streams.own, 101), "freed as 101"),
        (lambda standins, runtime: _freed(standins, runtime._streams.own, 100, 100), "freed twice"),
        (lambda _, runtime: ctypes.memset((memory := runtime.empty(100)).address + 100 + PAD + GUARD, 0, len([memory])), "written outside"),
        (lambda _, runtime: ctypes.memset(runtime.empty(100).address, 0, 1), "written after they were freed"),
        (lambda _, runtime: runtime.downloads([(cuda.DeviceMemory(runtime.empty(100).block, 100), 101, 500)]), "outside of an allocation"),
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
    with pytest.raises(AssertionError, match=seen), standing_in() as standins:
        wrong(standins, device.runtime())
