"""The decompression engine: what the driver says of it, and the flag of the pool whose memory may go through it."""

import ctypes
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from kolumn.cli import doctor
from kolumn.kernels.machine import nvcomp


class Driver:
    """In place of libcuda: device 0 has no engine, device 1 one for deflate and lz4; an old driver knows neither attribute."""

    def __init__(self, old: bool = False, broken: bool = False) -> None:
        self.old, self.broken = old, broken

    def cuInit(self, _: int) -> int:  # noqa: N802
        return 100 if self.broken else 0

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 2
        return 0

    def cuDeviceGet(self, handle: Any, number: int) -> int:  # noqa: N802
        handle._obj.value = number
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:  # noqa: N802
        if self.old:
            return 1
        value._obj.value = {(136, 1): 0b101, (137, 1): 4 << 20}.get((attribute, device.value), 0)
        return 0


def by(monkeypatch: pytest.MonkeyPatch, driver: Driver | type[Exception]) -> None:
    monkeypatch.setattr(ctypes, "CDLL", Mock(side_effect=[driver]))


def test_what_the_driver_says(monkeypatch: pytest.MonkeyPatch) -> None:
    by(monkeypatch, Driver())
    assert nvcomp.engines() == [((), 0), (("deflate", "lz4"), 4 << 20)]
    by(monkeypatch, Driver(old=True))
    assert nvcomp.engines() == [((), 0), ((), 0)]
    for none in (OSError, Driver(broken=True)):
        by(monkeypatch, none)
        assert nvcomp.engines() == []
    ctypes.CDLL.assert_called_once_with("libcuda.so.1")  # type: ignore[attr-defined]


def test_attributes_and_the_flag_are_those_of_cuda() -> None:
    driver = pytest.importorskip("cuda.bindings.driver", reason="make gpu-packages")
    names = driver.CUdevice_attribute
    assert (names.CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, names.CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH) == (136, 137)
    codecs = [getattr(driver.CUmemDecompressAlgorithm, f"CU_MEM_DECOMPRESS_ALGORITHM_{name.upper()}") for name in nvcomp._CODECS]
    assert [int(one) for one in codecs] == [1, 2, 4]


def test_the_pool_has_the_flag_where_there_is_an_engine(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    runtime = pytest.importorskip("cuda.bindings.runtime", reason="make gpu-packages")
    fine = runtime.cudaError_t.cudaSuccess
    create, set_attribute = Mock(return_value=(fine, "pool")), Mock(return_value=(fine,))
    rmm = SimpleNamespace(CudaAsyncMemoryResource=lambda: "plain", CudaAsyncViewMemoryResource=lambda pool: ("view", pool))
    monkeypatch.setitem(sys.modules, "rmm", SimpleNamespace(mr=rmm))
    monkeypatch.setitem(sys.modules, "rmm.mr", rmm)
    monkeypatch.setattr(runtime, "cudaMemPoolCreate", create)
    monkeypatch.setattr(runtime, "cudaMemPoolSetAttribute", set_attribute)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Driver())
    assert (nvcomp.memory(0), create.called) == ("plain", False)
    assert nvcomp.memory(1) == ("view", "pool")
    asked, (pool, attribute, most) = create.call_args.args[0], set_attribute.call_args.args
    assert (int(asked.usage), asked.location.id) == (2, 1)
    assert asked.allocType == runtime.cudaMemAllocationType.cudaMemAllocationTypePinned
    assert asked.location.type == runtime.cudaMemLocationType.cudaMemLocationTypeDevice
    assert (pool, attribute, int(most)) == ("pool", runtime.cudaMemPoolAttr.cudaMemPoolAttrReleaseThreshold, 2**64 - 1)
    monkeypatch.setattr(runtime, "cudaMemPoolCreate", lambda _: (runtime.cudaError_t.cudaErrorNotSupported, None))
    assert nvcomp.memory(1) == "plain"
    assert "GPU 1: its decompression engine is not used: cudaMemPoolCreate" in caplog.text


@pytest.mark.parametrize(
    ("line", "installed", "driver", "said"),
    [
        ("Kernel Module  535.104.05  Sat", [*doctor._OF_GPU], "535.104.05", r"can't run: NVIDIA driver 535\.104\.05: CUDA 13 needs 580"),
        ("Open Kernel Module for x86_64  580.65.06  Release Build", [*doctor._OF_GPU], "580.65.06", "can run"),
        ("", [*doctor._OF_GPU], "there", "can run"),
        (None, [], "none", "can't run: no NVIDIA driver; without CuPy, .*: pip install 'cuda-toolkit"),
        ("Module  580.1", ["cupy-cuda12x"], "580.1", "cupy-cuda12x: for another CUDA than 13, first pip uninstall cupy-cuda12x; without"),
    ],
)  # fmt: skip
def test_the_doctor_knows_engines_and_why_not(
    line: str | None, installed: list[str], driver: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    version = tmp_path / "version"
    if line is not None:
        version.write_text(f"NVRM version: NVIDIA UNIX {line}\nGCC version:  13.2.0\n")
    monkeypatch.setattr(doctor, "open", lambda _: version.open(), raising=False)
    monkeypatch.setattr(doctor, "_engines", lambda: [[[], 0], [["deflate", "lz4"], 4 << 20]])
    monkeypatch.setattr(doctor, "_version", lambda name: "1" if name in installed else None)
    found = doctor._gpu()
    assert found["NVIDIA driver"] == driver
    assert re.search(said, found["backend"])
    engines = ["none: kernels decompress", "deflate, lz4 up to 4096 KiB a block; memory for it is asked for"]
    assert [text for name, text in found.items() if name.startswith("decompression engine")] == ([] if driver == "none" else engines)


def test_the_question_is_asked_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Mock(return_value=SimpleNamespace(stdout='[[["snappy"], 4194304]]'))
    monkeypatch.setattr(subprocess, "run", asked)
    assert doctor._engines() == [[["snappy"], 4194304]]
    exec(compile(asked.call_args.args[0][2], "question", "exec"), {})
