"""The GPU that a task uses, and the argument of a transform on cuDF. The GPU packages are replaced by stand-ins, so no GPU is needed."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

import kolumn
from kolumn.api import segments_of
from kolumn.errors import ArgumentError, MissingError
from kolumn.kernels.machine import device
from kolumn.log.transactions import with_transactions
from kolumn.options import Options
from kolumn.schema import record_schema
from kolumn.source.segments import Range
from kolumn.spark_plugin.options.read import ReadOptions
from kolumn.spark_plugin.parquet_export.staged import Job, Layout, write_job
from kolumn.spark_plugin.read import task as reading
from kolumn.spark_plugin.read.bounds import resolve
from kolumn.spark_plugin.read.frames import apply, read_segments
from kolumn.spark_plugin.read.schema import spark_schema
from kolumn.spark_plugin.read.splits import Split
from kolumn.spark_plugin.session import gpu_task


@pytest.mark.parametrize(
    ("addresses", "visible", "partition", "devices", "expected"),
    [
        (["3"], None, 0, 4, 3),  # Spark names the GPU
        (["3"], "2,3", 0, 2, 1),  # CUDA numbers only visible GPUs
        (["3"], "GPU-4fb1", 0, 1, 0),  # isolated, with a name of its own
        (["3"], None, 0, 1, 0),  # isolated, and CUDA_VISIBLE_DEVICES is not set
        ([], "1", 5, 1, 0),
        ([], "2,3", 5, 2, 0),
        ([], None, 5, 4, 1),
        ([], "", 6, 4, 2),
    ],
)
def test_choice(addresses: list[str], visible: str | None, partition: int, devices: int, expected: int) -> None:
    assert gpu_task.choose(addresses, visible, partition, devices) == expected


class Frame:
    """Stand-in for a cudf.DataFrame; it rejects types that libcudf does not know."""

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
    """Two devices of 1000 bytes; returns the list of calls for them."""
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


class Reached(Exception):  # noqa: N818
    """Raised when a task requests its GPU."""


def take_nothing(*_: Any) -> None:
    raise Reached


class Stub:
    """Stand-in for a session; it keeps the function that would be sent to the tasks."""

    sparkContext = SimpleNamespace(defaultParallelism=1, master="yarn", pythonExec=sys.executable)  # noqa: N815
    sent: Any = None

    def range(self, *_: int) -> "Stub":
        return self

    def mapInArrow(self, work: Any, _: Any) -> "Stub":  # noqa: N802
        self.sent = work
        return self


NUMBERS = pa.record_batch({"id": [0]})


def test_every_door_takes_the_tasks_gpu(segment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read, `read_segments` and `export` each request the GPU that Spark gave to the task, before they decode."""
    monkeypatch.setattr(reading, "use_gpu", take_nothing)
    monkeypatch.setattr(reading, "scan_ranges", lambda *_, **__: pytest.fail("decoded before the GPU was taken"))
    options = Options.of(backend="gpu")
    (found,) = segments_of(segment, options)
    split = Split((Range.whole(found),))
    with pytest.raises(Reached):
        next(reading.read_split(split, ReadOptions((str(segment),), 1 << 20, False, options), print))
    stub: Any = Stub()
    read_segments(stub, segment, transform=lambda batch: batch, schema=spark_schema(record_schema(["offset"])), backend="gpu")
    with pytest.raises(Reached):
        next(stub.sent([NUMBERS]))
    layout = Layout(fs.LocalFileSystem(), str(tmp_path), options, False, 1000, "none")
    with pytest.raises(Reached):
        next(write_job(Job("t", 0, None, split.ranges), layout))


def test_only_one_function_runs_tasks() -> None:
    """A new way to read in a task has to call it."""
    texts = {path.name: path.read_text() for path in Path(reading.__file__).parents[1].rglob("*.py")}
    users = {name for name, text in texts.items() if "scan_ranges(" in text}
    assert users == {"task.py", "positions.py", "jobs.py"}
    # The last two make plans on the driver.
    assert all('backend="cpu"' in texts[name] for name in users - {"task.py"})


def test_the_driver_opens_no_gpu(segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "runtime", lambda: pytest.fail("a GPU was opened to plan"))
    monkeypatch.setenv("KOLUMN_BACKEND", "gpu")
    times = kolumn.read(segment, columns=["offset", "timestampMs"], backend="cpu")
    middle = times["timestampMs"][times.num_rows // 2].as_py()
    expected = next(offset for offset, time in zip(*times.to_pydict().values(), strict=True) if time >= middle)
    for backend in ("gpu", "auto"):
        asked = ReadOptions.of({"path": str(segment), "backend": backend, "startingTimestamp": str(middle)})
        groups = asked.wanted.choose(segments_of(asked.paths, asked.decode))
        assert resolve(asked.start, groups, asked.decode) == dict.fromkeys(groups, expected)
        draft = Options.of(backend=backend, format="kip98-draft", isolation_level="read_committed", errors="skip")
        assert len(with_transactions([Range.whole(one) for one in segments_of(segment, draft)], draft)) == 1
