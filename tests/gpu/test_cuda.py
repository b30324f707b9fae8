"""What the runtime asks of CuPy, beside what it does on stand-ins (`test_standins.py`)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("cupy", reason="make gpu-packages")
pytest.importorskip("rmm", reason="make gpu-packages")

import cupy
from cupy.cuda import cub

from kolumn.kernels.machine import cuda, device


def test_cub_is_compiled_for_the_architectures() -> None:
    code = Path(cub.__file__).read_bytes()
    for kind in (b"iii", b"lll"):
        assert b"DeviceScanKernelINS2_10policy_hubI" + kind in code
    assert b"SM_750_800_860_890_900_1000" in code
    assert b"nvrtc" not in code


def test_page_locked_memory_after_the_device_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lambda: 0)
    monkeypatch.setattr(cuda, "_used", {1})
    monkeypatch.setattr(cupy.cuda, "PinnedMemory", Mock(side_effect=cupy.cuda.runtime.CUDARuntimeError(2)))
    with pytest.raises(AssertionError, match="before the device was chosen"):
        cuda.page_locked(100)
    monkeypatch.setattr(cuda, "_used", {0})
    with pytest.raises(MemoryError, match="cannot get 100 bytes of page-locked memory"):
        cuda.page_locked(100)


def test_every_thread_takes_the_device_that_was_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new thread's current device is device 0."""
    used: list[int] = []
    for name, known in {"_given": [], "_opened": [3], "_limit": [1000], "_pinned": [True], "_idle": [], "count": lambda: 4}.items():
        monkeypatch.setattr(device, name, known)
    monkeypatch.setattr(cuda, "use", used.append)
    monkeypatch.setattr(cuda, "CudaRuntime", lambda memory: SimpleNamespace(memory=memory, synchronize=lambda: None))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: device.runtime().memory).result() == 1000
    assert used == [3]


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
