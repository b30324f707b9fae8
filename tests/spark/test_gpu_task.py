"""Which GPU a task takes, and what a transform on cuDF is given, with stand-ins for the GPU packages: no machine here has one."""

import sys
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kolumn.errors import ArgumentError, MissingError
from kolumn.kernels import device
from kolumn.spark_plugin import gpu_task
from kolumn.spark_plugin.frames import apply


@pytest.mark.parametrize(
    ("addresses", "visible", "partition", "devices", "expected"),
    [
        (["3"], None, 0, 4, 3),  # Spark says it
        (["3"], "2,3", 0, 2, 1),  # CUDA counts what is visible
        (["3"], "GPU-4fb1", 0, 1, 0),  # isolated, under a name of its own
        (["3"], None, 0, 1, 0),  # isolated, nothing said
        ([], "1", 5, 1, 0),
        ([], "2,3", 5, 2, 0),
        ([], None, 5, 4, 1),
        ([], "", 6, 4, 2),
    ],
)
def test_choice(addresses: list[str], visible: str | None, partition: int, devices: int, expected: int) -> None:
    assert gpu_task.choose(addresses, visible, partition, devices) == expected


class Frame:
    """In place of a cudf.DataFrame: it refuses the types that libcudf does not know."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    @classmethod
    def from_arrow(cls, table: pa.Table) -> "Frame":
        assert not any(pa.types.is_binary(field.type) for field in table.schema)
        return cls(table)

    def to_arrow(self, preserve_index: bool) -> pa.Table:
        assert not preserve_index
        return self.table


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Two devices of 1000 bytes; returns what was done to them."""
    done: list[Any] = []
    runtime = SimpleNamespace(getDeviceCount=lambda: 2, memGetInfo=lambda: (900, 1000), CUDARuntimeError=RuntimeError)
    cuda = SimpleNamespace(
        runtime=runtime, Device=lambda i: SimpleNamespace(use=lambda: done.append(i)), set_allocator=lambda one: done.append(one)
    )
    resources = SimpleNamespace(
        CudaAsyncMemoryResource=lambda: "async",
        LimitingResourceAdaptor=lambda upstream, limit: (upstream, limit),
        set_per_device_resource=lambda number, pool: done.append((number, pool)),
    )
    modules = {
        "cupy": SimpleNamespace(cuda=cuda),
        "rmm": SimpleNamespace(mr=resources),
        "rmm.mr": resources,
        "rmm.allocators": SimpleNamespace(),
        "rmm.allocators.cupy": SimpleNamespace(rmm_cupy_allocator="rmm"),
        "cudf": SimpleNamespace(DataFrame=Frame),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(gpu_task, "_used", None)
    monkeypatch.setattr(device, "_opened", [])
    monkeypatch.setattr(device, "_share_with_numba", lambda: done.append("numba"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return done


def test_one_pool_for_a_worker(gpu: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpu_task.SHARE, "0.4")
    monkeypatch.setenv(gpu_task.WORKERS, "8")
    assert [gpu_task.use_gpu() for _ in range(3)] == [0, 0, 0]
    assert gpu == [0, (0, ("async", 50)), "rmm", "numba"]


BATCH = pa.record_batch({"key": pa.array([b"\xff", None]), "offset": [1, 2]})
SCHEMA = pa.schema({"key": pa.string(), "offset": pa.int64()})


def test_a_transform_on_cudf(gpu: list[Any]) -> None:
    (found,) = apply(lambda frame: Frame(frame.table.slice(1)), BATCH, SCHEMA, "cudf")
    assert found.column("offset").to_pylist() == [2]
    (found,) = apply(lambda frame: frame, BATCH, SCHEMA, "cudf")
    assert found.column("key").view(pa.binary()).to_pylist() == [b"\xff", None]
    (found,) = apply(lambda frame: Frame(frame.table.schema.empty_table()), BATCH, SCHEMA, "cudf")
    assert found.num_rows == 0
    with pytest.raises(ArgumentError, match=r"transform has to return a cudf\.DataFrame, it returned Table"):
        apply(lambda frame: frame.table, BATCH, SCHEMA, "cudf")
    with pytest.raises(ArgumentError, match="transform returned the columns"):
        apply(lambda frame: Frame(frame.table.select(["key"])), BATCH, SCHEMA, "cudf")


@pytest.mark.parametrize("missing", ["cupy", "rmm.mr", "cudf"])
def test_what_is_missing_is_named(gpu: list[Any], missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingError, match=rf"was asked for: .*{missing}.*pip install 'kolumn\[gpu\]'"):
        apply(lambda frame: frame, BATCH, SCHEMA, "cudf")


def test_no_device(gpu: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> int:
        raise RuntimeError("cudaErrorNoDevice")

    monkeypatch.setattr(sys.modules["cupy"].cuda.runtime, "getDeviceCount", none)
    with pytest.raises(MissingError, match="CUDA has none: cudaErrorNoDevice"):
        gpu_task.use_gpu()
