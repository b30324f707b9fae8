"""The decompression engine: what the driver says of it, and the flag of the pool whose memory may go through it."""

import ctypes
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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


def by(monkeypatch: pytest.MonkeyPatch, driver: Driver | None) -> None:
    def load(name: str) -> Driver:
        assert name == "libcuda.so.1"
        if driver is None:
            raise OSError(name)
        return driver

    monkeypatch.setattr(ctypes, "CDLL", load)


def test_what_the_driver_says(monkeypatch: pytest.MonkeyPatch) -> None:
    by(monkeypatch, Driver())
    assert nvcomp.engines() == [((), 0), (("deflate", "lz4"), 4 << 20)]
    by(monkeypatch, Driver(old=True))
    assert nvcomp.engines() == [((), 0), ((), 0)]
    for none in (None, Driver(broken=True)):
        by(monkeypatch, none)
        assert nvcomp.engines() == []


def test_attributes_and_the_flag_are_those_of_cuda() -> None:
    driver = pytest.importorskip("cuda.bindings.driver", reason="make gpu-packages")
    names = driver.CUdevice_attribute
    assert (names.CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, names.CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH) == (136, 137)
    codecs = [getattr(driver.CUmemDecompressAlgorithm, f"CU_MEM_DECOMPRESS_ALGORITHM_{name.upper()}") for name in nvcomp._CODECS]
    assert [int(one) for one in codecs] == [1, 2, 4]


def test_the_pool_has_the_flag_where_there_is_an_engine(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    runtime = pytest.importorskip("cuda.bindings.runtime", reason="make gpu-packages")
    made: list[Any] = []

    def create(properties: Any) -> tuple[Any, Any]:
        made.append((int(properties.usage), properties.location.id, properties.allocType, properties.location.type))
        return runtime.cudaError_t.cudaSuccess, "pool"

    def set_attribute(pool: Any, attribute: Any, value: Any) -> tuple[Any]:
        made.append((pool, attribute, int(value)))
        return (runtime.cudaError_t.cudaSuccess,)

    rmm = SimpleNamespace(CudaAsyncMemoryResource=lambda: "plain", CudaAsyncViewMemoryResource=lambda pool: ("view", pool))
    monkeypatch.setitem(sys.modules, "rmm", SimpleNamespace(mr=rmm))
    monkeypatch.setitem(sys.modules, "rmm.mr", rmm)
    monkeypatch.setattr(runtime, "cudaMemPoolCreate", create)
    monkeypatch.setattr(runtime, "cudaMemPoolSetAttribute", set_attribute)
    by(monkeypatch, Driver())
    assert (nvcomp.memory(0), made) == ("plain", [])
    assert nvcomp.memory(1) == ("view", "pool")
    pinned, place = runtime.cudaMemAllocationType.cudaMemAllocationTypePinned, runtime.cudaMemLocationType.cudaMemLocationTypeDevice
    assert (made[0], made[1]) == ((2, 1, pinned, place), ("pool", runtime.cudaMemPoolAttr.cudaMemPoolAttrReleaseThreshold, 2**64 - 1))
    monkeypatch.setattr(runtime, "cudaMemPoolCreate", lambda _: (runtime.cudaError_t.cudaErrorNotSupported, None))
    assert nvcomp.memory(1) == "plain"
    assert "GPU 1: its decompression engine is not used: cudaMemPoolCreate" in caplog.text


def test_the_doctor_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_driver", lambda: "")
    monkeypatch.setattr(doctor, "_engines", lambda: [[[], 0], [["deflate", "lz4"], 4 << 20]])
    found = doctor._gpu()
    assert found["decompression engine 0"] == "none: kernels decompress"
    assert found["decompression engine 1"] == "deflate, lz4 up to 4096 KiB a block; memory for it is asked for"


@pytest.mark.parametrize(
    ("line", "installed", "driver", "said"),
    [
        ("Kernel Module  535.104.05  Sat", [*doctor._OF_GPU], "535.104.05", r"can't run: NVIDIA driver 535\.104\.05: CUDA 13 needs 580"),
        ("Open Kernel Module for x86_64  580.65.06  Release Build", [*doctor._OF_GPU], "580.65.06", "can run"),
        ("", [*doctor._OF_GPU], "there", "can run"),
        (None, [], "none", "can't run: no NVIDIA driver; without CuPy, .*: pip install 'kolumn"),
        ("Module  580.1", ["cupy-cuda12x"], "580.1", "cupy-cuda12x: for another CUDA than 13, first pip uninstall cupy-cuda12x; without"),
    ],
)  # fmt: skip
def test_the_doctor_knows_why_not(
    line: str | None, installed: list[str], driver: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A driver or packages of another CUDA."""
    version = tmp_path / "version"
    if line is not None:
        version.write_text(f"NVRM version: NVIDIA UNIX {line}\nGCC version:  13.2.0\n")
    monkeypatch.setattr(doctor, "open", lambda _: version.open(), raising=False)
    monkeypatch.setattr(doctor, "_engines", list)
    monkeypatch.setattr(doctor, "_version", lambda name: "1" if name in installed else None)
    found = doctor._gpu()
    assert found["NVIDIA driver"] == driver
    assert re.search(said, found["backend"])


def test_the_question_is_asked_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = SimpleNamespace(stdout='[[["snappy"], 4194304]]')
    asked: list[Any] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: asked.append(command) or answer)
    assert doctor._engines() == [[["snappy"], 4194304]]
    exec(compile(asked[0][2], "question", "exec"), {})
