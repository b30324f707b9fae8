"""What the runtime asks of CuPy, as far as that can be seen without a device."""

import ctypes
import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="make gpu-packages")
pytest.importorskip("rmm", reason="make gpu-packages")

import cupy
from cupy.cuda import cub

from kolumn.core import recycle
from kolumn.core.errors import KolumnError
from kolumn.kernels import check
from kolumn.kernels.columns.gather import sizes
from kolumn.kernels.machine import cuda, device, staging
from kolumn.kernels.machine.kernel import Kernel
from kolumn.kernels.machine.runtime import PAD
from kolumn.kernels.machine.staging import Block, Streams


class CurrentStream:
    """In place of a stream of CuPy's, on which it works while the context lasts."""

    ptr, current = 5, False

    def __enter__(self) -> None:
        self.current = True

    def __exit__(self, *_: object) -> None:
        self.current = False

    def synchronize(self) -> None:
        """Nothing is under way."""


@pytest.mark.parametrize(("most", "asked"), [(5, [5]), (4, [4, 2]), (3, [3, 3]), (2, [2] * 4)])
@pytest.mark.parametrize(("width", "kind"), [(4, np.int32), (8, np.int64)])
def test_running_sums_need_no_compiler(width: int, kind: Any, most: int, asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's binding of CUB gets the memory as it is; the kernels are in its library. It counts items in an int."""
    sums: list[int] = []
    assert np.array(cuda._SUMMED, np.int32) == cuda._SUMMED
    monkeypatch.setattr(cuda, "_SUMMED", most)
    monkeypatch.setattr(cupy, "cumsum", lambda *_, **__: pytest.fail("cupy.cumsum compiles a kernel"))

    def scan(values: Any, operation: int) -> Any:
        assert (operation, values.dtype, values.ndim, values.data.mem.size) == (cub.CUPY_CUB_CUMSUM, kind, 1, 5 * width)
        sums.append(values.size)
        assert stream.current
        there = np.frombuffer((ctypes.c_char * values.nbytes).from_address(values.data.ptr), kind)
        there[:] = np.cumsum(there)
        return values

    monkeypatch.setattr(cub, "device_scan", scan)
    host = np.arange(8, dtype=kind)
    stream = CurrentStream()
    runtime: Any = SimpleNamespace(_device=0, stream=stream)
    cuda.CudaRuntime.running_sum(runtime, SimpleNamespace(address=host.ctypes.data), 5, width)
    assert (host.tolist(), sums) == ([0, 1, 3, 6, 10, 5, 6, 7], asked)


def test_cub_is_compiled_for_the_architectures() -> None:
    code = Path(cub.__file__).read_bytes()
    for kind in (b"iii", b"lll"):
        assert b"DeviceScanKernelINS2_10policy_hubI" + kind in code
    assert b"SM_750_800_860_890_900_1000" in code
    assert b"nvrtc" not in code


def test_page_locked_memory_after_the_device_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lambda: 0)
    monkeypatch.setattr(cuda, "_used", {1})
    with pytest.raises(AssertionError, match="before the device was chosen"):
        cuda.page_locked(100)

    # Where no memory can be locked.
    def refused(size: int, flags: int) -> Any:
        raise cupy.cuda.runtime.CUDARuntimeError(2)

    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lambda: 0)
    monkeypatch.setattr(cuda, "_used", {0})
    monkeypatch.setattr(cupy.cuda, "PinnedMemory", refused)
    with pytest.raises(MemoryError, match="cannot get 100 bytes of page-locked memory"):
        cuda.page_locked(100)


class Pool:
    """In place of RMM's pool: host memory, at multiples of 256 as RMM's is."""

    def __init__(self) -> None:
        self.there: dict[int, Any] = {}
        self.freed: list[tuple[int, str]] = []

    def allocate(self, size: int, stream: str) -> int:
        assert stream == "own"
        whole = np.full(size + 256, 0xA5, np.uint8)
        address = whole.ctypes.data + -whole.ctypes.data % 256
        self.there[address] = whole
        return address

    def deallocate(self, address: int, size: int, stream: str) -> None:
        assert len(self.there.pop(address)) == size + 256
        self.freed.append((size, stream))


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    """The pool of a device of host memory, to which CuPy's copies go."""
    found = Pool()
    monkeypatch.setattr("rmm.mr.get_current_device_resource", lambda: found)

    def copy(to: int, source: int, size: int, kind: int, stream: int) -> None:
        assert stream == CurrentStream.ptr
        ctypes.memmove(to, source, size)

    def fill(to: int, value: int, size: int, stream: int) -> None:
        assert stream == CurrentStream.ptr
        ctypes.memset(to, value, size)

    monkeypatch.setattr(cupy.cuda.runtime, "memcpyAsync", copy)
    monkeypatch.setattr(cupy.cuda.runtime, "memsetAsync", fill)
    return found


@pytest.fixture
def runtime(pool: Pool) -> Any:
    made: Any = object.__new__(cuda.CudaRuntime)
    made.stream = CurrentStream()
    made._streams = Streams("own", "others", "freeing", lambda before, after: None)
    made._sent = []
    return made


def test_pieces_of_one_allocation(runtime: Any, pool: Pool) -> None:
    sizes = [1, 255, 256, 0, 1000]
    pieces = runtime.pieces(sizes, zeros=True)
    (whole,) = pool.there.values()
    begins = [piece.address for piece in pieces]
    assert [piece.size for piece in pieces] == sizes
    assert all(begin % PAD == 0 for begin in begins)
    ends = [*begins[1:], whole.ctypes.data + len(whole)]
    assert all(end - begin >= size + PAD for begin, end, size in zip(begins, ends, sizes, strict=True))
    for piece in pieces:
        assert not any(ctypes.string_at(piece.address, piece.size + PAD))
    last = pieces.pop()
    del pieces, piece
    assert pool.freed == []
    del last
    assert ([stream for _, stream in pool.freed], pool.there) == (["own"], {})


def test_memory_goes_back_to_its_own_pool(runtime: Any, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = runtime.empty(10)
    monkeypatch.setattr("rmm.mr.get_current_device_resource", Pool)
    del memory
    assert len(pool.freed) == 1


def test_what_others_were_shown_is_freed_after_them(runtime: Any, pool: Pool) -> None:
    one, other = runtime.empty(10), runtime.empty(10)
    assert one.__cuda_array_interface__["data"] == (one.address, False)
    del one, other
    assert sorted(stream for _, stream in pool.freed) == ["freeing", "own"]


@pytest.mark.parametrize("locked", [False, True])
def test_bytes_go_there_and_come_back(locked: bool, runtime: Any) -> None:
    """By way of page-locked memory, which is not in use afterwards."""
    recycle.lock_by((lambda size: np.empty(size, np.uint8)) if locked else None)
    try:
        data = np.random.default_rng(1).integers(0, 1 << 60, (3, 500_000))
        memory = runtime.upload(data)
        assert bool(recycle._locked.used) is locked
        back, part, nothing = runtime.downloads([(memory, data.nbytes, 0), (memory, 80, 16), (memory, 0, 0)])
        assert (back.tobytes(), part.tobytes(), len(nothing)) == (data.tobytes(), data.tobytes()[16:96], 0)
        assert back.ctypes.data not in recycle._locked.used
        assert not recycle._locked.used
        assert runtime.upload(np.zeros(0)).size == 0
    finally:
        recycle.lock_by(None)


def test_page_locked_memory_is_sent_as_it_is(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any part of it, whoever has it: another copy on the host would be the slowest step."""
    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lambda: 0)
    monkeypatch.setattr(cuda, "_used", {0})

    def pinned(size: int, flags: int) -> bytearray:
        assert flags == cupy.cuda.runtime.hostAllocPortable
        return bytearray(size)

    monkeypatch.setattr(cupy.cuda, "PinnedMemory", pinned)
    monkeypatch.setattr(cupy.cuda, "PinnedMemoryPointer", lambda memory, offset: memory)
    recycle.lock_by(cuda.page_locked)
    try:
        host = cuda.page_locked(1000)
        address = host.ctypes.data
        for part in (host, host[200:700], host[999:]):
            part[:] = len(part) % 251
            sent = runtime.upload(part)
            assert recycle.locked_bytes() == 0
            assert runtime._sent.pop() is part
            assert ctypes.string_at(sent.address, len(part)) == bytes(part)
        assert not cuda.is_page_locked(address + 1000)
        runtime.upload(np.zeros(8))
        assert recycle.locked_bytes() > 0
        runtime.synchronize()
        del host
        assert cuda.is_page_locked(address + 999)
        del part
        assert not cuda.is_page_locked(address)
    finally:
        recycle.lock_by(None)
    assert cuda._page_locked == {}


def test_no_room(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(size: int, stream: str) -> int:
        raise MemoryError("out_of_memory: maximum pool size exceeded")

    monkeypatch.setattr("rmm.mr.get_current_device_resource", lambda: SimpleNamespace(allocate=refused))
    with pytest.raises(KolumnError, match="the GPU has no room for 512 bytes: out_of_memory"):
        runtime.empty(200)


def test_the_stream_of_cudf() -> None:
    """The one that is ordered with the streams of all threads, which cuDF may be told to work on."""
    assert cuda._OTHERS.__cuda_stream__() == (0, cupy.cuda.runtime.streamLegacy)


def test_an_interrupt_waits_for_copies(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device may be writing to page-locked memory, which is used again as soon as nobody has it."""
    waited: list[bool] = []

    def interrupted(*_: Any) -> Any:
        assert not waited
        raise KeyboardInterrupt

    monkeypatch.setattr(cupy.cuda.runtime, "memcpyAsync", interrupted)
    runtime.stream.synchronize = lambda: waited.append(True)
    with pytest.raises(KeyboardInterrupt):
        runtime.download(runtime.empty(100), 100)
    assert waited == [True]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A device is open, number 3; the devices that threads take."""
    used: list[int] = []
    for name, known in {"_given": [], "_opened": [3], "_limit": [1000], "_pinned": [True], "_idle": [], "count": lambda: 4}.items():
        monkeypatch.setattr(device, name, known)
    monkeypatch.setattr(cuda, "use", used.append)
    return used


def test_a_stream_outlives_what_is_freed_in_its_order(opened: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory in a cycle with its runtime, as in the traceback of an error, is found by a collection after the thread has ended."""
    made, freed, alive, waited = [], [], [], []

    class Ended:
        """In place of a stream, which CuPy destroys with its object."""

        def __init__(self) -> None:
            alive.append(True)

        def __del__(self) -> None:
            alive.pop()

    class OfThread:
        def __init__(self, limit: int) -> None:
            made.append(limit)
            self.streams = Streams(Ended(), Ended(), Ended(), lambda before, after: None)

        def synchronize(self) -> None:
            waited.append(True)

    def error(numbers: range) -> None:
        for number in numbers:
            found: Any = device.runtime()
            cycle: list[Any] = [found, Block(found.streams, number, 8, lambda stream: freed.append(bool(alive)))]
            cycle.append(cycle)

    monkeypatch.setattr(cuda, "CudaRuntime", OfThread)
    for begin in (0, 5):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(error, range(begin, begin + 5)).result()
        gc.collect()
    assert freed == [True] * 10
    # The second thread has the runtime of the first, with nothing under way.
    assert (made, len(waited)) == ([1000], 2)


def test_every_thread_takes_the_device_that_was_opened(opened: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A new thread's current device is device 0."""
    monkeypatch.setattr(cuda, "CudaRuntime", lambda memory: SimpleNamespace(memory=memory, synchronize=lambda: None))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: device.runtime().memory).result() == 1000
    assert opened == [3]


def test_launches(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the thread's stream; as many blocks as the device has room for where a kernel finds its items itself; not of no items."""
    asked: list[Any] = []

    def function(kernel: Kernel, arch: int) -> Any:
        def launch(grid: Any, block: Any, args: Any) -> None:
            assert runtime.stream.current
            assert all(type(one) is np.int64 for one in args)
            asked.append((kernel.name, arch, grid, block, args))

        return launch

    monkeypatch.setattr(cuda, "_function", function)
    runtime.arch, runtime._most_blocks = 90, 10
    for kernel, n in ((sizes, 0), (sizes, 256 * 20 + 1), (check.check, 0), (check.check, 8 * 9), (check.check, 10_000)):
        runtime.launch(kernel, n, tuple(range(3)))
    assert asked == [
        ("sizes", 90, (21,), (256,), (5121, 0, 1, 2)),
        ("check", 90, (9,), (256,), (72, 0, 1, 2)),
        ("check", 90, (10,), (256,), (10_000, 0, 1, 2)),
    ]


def test_files_go_where_nothing_is_under_way(runtime: Any, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the page of the first byte on, after the memory is there."""
    done: list[Any] = []
    monkeypatch.setattr(runtime.stream, "synchronize", lambda: done.append("wait"), raising=False)
    monkeypatch.setattr(staging, "load", lambda path, start, memory: done.append((path, start, memory)) or path == "there")
    memory = runtime.load("there", staging.PAGE + 10, staging.PAGE + 30)
    waited, (path, start, whole) = done
    assert (waited, path, start, whole.size, memory.size) == ("wait", "there", staging.PAGE, 30, 20)
    assert memory.address == whole.__cuda_array_interface__["data"][0] + 10
    assert runtime.load("gone", 0, 10) is None


def test_streams_wait_by_events_of_their_device_and_a_chosen_one_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []

    @contextmanager
    def current(device: int) -> Iterator[None]:
        done.append(("device", device))
        yield
        done.append("back")

    monkeypatch.setattr(cupy.cuda, "Device", current)
    for name in ("eventRecord", "streamWaitEvent", "eventDestroy"):
        monkeypatch.setattr(cupy.cuda.runtime, name, lambda *given, name=name: done.append((name, *given)))
    monkeypatch.setattr(cupy.cuda.runtime, "eventCreateWithFlags", lambda flags: "event")
    before, after = (SimpleNamespace(__cuda_stream__=lambda number=number: (0, number)) for number in (1, 2))
    cuda._order(3, before, after)
    assert done == [("device", 3), ("eventRecord", "event", 1), ("streamWaitEvent", 2, "event"), ("eventDestroy", "event"), "back"]
    used: list[int] = []
    monkeypatch.setattr(cupy.cuda, "Device", lambda number: SimpleNamespace(use=lambda: used.append(number)))
    monkeypatch.setattr(cuda, "_used", set())
    cuda.use(2)
    assert (used, cuda._used) == ([2], {2})
