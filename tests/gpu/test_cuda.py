"""What the runtime asks of CuPy, as far as that can be seen without a device."""

import ctypes
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="make gpu-packages")
pytest.importorskip("rmm", reason="make gpu-packages")

import cupy
from cupy.cuda import cub

from kolumn.kernels.machine import cuda


@pytest.mark.parametrize(("width", "kind"), [(4, np.int32), (8, np.int64)])
def test_running_sums_need_no_compiler(width: int, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's binding of CUB gets the memory as it is; the kernels are in its library."""
    monkeypatch.setattr(cupy, "cumsum", lambda *_, **__: pytest.fail("cupy.cumsum compiles a kernel"))

    def scan(values: Any, operation: int) -> Any:
        assert operation == cub.CUPY_CUB_CUMSUM
        assert (values.dtype, values.shape) == (kind, (5,))
        there = np.frombuffer((ctypes.c_char * values.nbytes).from_address(values.data.ptr), kind)
        there[:] = np.cumsum(there)
        return values

    monkeypatch.setattr(cub, "device_scan", scan)
    host = np.arange(8, dtype=kind)
    runtime: Any = SimpleNamespace(_device=0, stream=nullcontext())
    cuda.CudaRuntime.running_sum(runtime, SimpleNamespace(address=host.ctypes.data), 5, width)  # type: ignore[arg-type]
    assert host.tolist() == [0, 1, 3, 6, 10, 5, 6, 7]


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


def test_where_no_memory_can_be_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(size: int, flags: int) -> Any:
        raise cupy.cuda.runtime.CUDARuntimeError(2)

    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lambda: 0)
    monkeypatch.setattr(cuda, "_used", {0})
    monkeypatch.setattr(cupy.cuda, "PinnedMemory", refused)
    with pytest.raises(MemoryError, match="no 100 bytes of page-locked memory"):
        cuda.page_locked(100)
