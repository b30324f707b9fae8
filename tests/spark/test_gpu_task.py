"""The GPU that a task uses, and the argument of a transform on cuDF, with stand-ins for the GPU packages."""

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

import kolumn
from kit.plain_spark import Builder
from kolumn.copies.transactions import with_transactions
from kolumn.core.errors import ArgumentError, MissingError
from kolumn.core.schema import HEADERS, record_schema
from kolumn.kernels.machine import device
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.source.segments import Range
from kolumn.spark_plugin import rapids
from kolumn.spark_plugin.read import frames
from kolumn.spark_plugin.read import task as reading
from kolumn.spark_plugin.read.frames import apply, read_segments
from kolumn.spark_plugin.read.options import LoadOptions
from kolumn.spark_plugin.read.schema import spark_schema
from kolumn.spark_plugin.read.splits import Split
from kolumn.spark_plugin.session import gpu_task


def test_choice() -> None:
    for addresses, visible, partition, devices, expected in (
        (["3"], None, 0, 4, 3),  # Spark names the GPU
        (["3"], "2,3", 0, 2, 1),  # CUDA numbers only visible GPUs
        (["3"], "GPU-4fb1", 0, 1, 0), (["3"], None, 0, 1, 0),  # isolated
        ([], "1", 5, 1, 0), ([], "2,3", 5, 2, 0), ([], None, 5, 4, 1), ([], "", 6, 4, 2),
    ):  # fmt: skip
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
    """Two devices of 1000 GiB; returns the list of calls for them."""
    done: list[Any] = []
    runtime = SimpleNamespace(getDeviceCount=lambda: 2, memGetInfo=lambda: (900 << 30, 1000 << 30), driverGetVersion=lambda: 13000)
    runtime.CUDARuntimeError = RuntimeError
    cuda = SimpleNamespace(runtime=runtime, set_allocator=done.append, get_allocator=lambda: "CuPy's")
    cuda.Device = lambda number: SimpleNamespace(use=lambda: done.append(number))
    resources = SimpleNamespace(CudaMemoryResource=Untouched, CudaAsyncMemoryResource=lambda: "async")
    resources.get_per_device_resource = lambda _: Untouched()
    resources.LimitingResourceAdaptor = lambda upstream, limit: (upstream, limit)
    resources.set_per_device_resource = lambda number, pool: done.append((number, pool))
    modules = {
        "cupy": SimpleNamespace(cuda=cuda, get_default_memory_pool=lambda: SimpleNamespace(malloc="CuPy's")),
        "rmm": SimpleNamespace(mr=resources), "rmm.mr": resources, "rmm.allocators": SimpleNamespace(),
        "rmm.allocators.cupy": SimpleNamespace(rmm_cupy_allocator="rmm"), "cudf": SimpleNamespace(DataFrame=Frame),
    }  # fmt: skip
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(gpu_task, "_used", None)
    for name in ("_opened", "_limit"):
        monkeypatch.setattr(device, name, [])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return done


def test_one_pool_for_a_worker(gpu: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpu_task.SHARE, "0.4")
    monkeypatch.setenv(gpu_task.WORKERS, "8")
    monkeypatch.setattr(gpu_task, "share_locked", gpu.append)
    assert [gpu_task.use_gpu() for _ in range(3)] == [0, 0, 0]
    assert gpu == [0, 0, (0, ("async", 50 << 30)), "rmm", 8]
    assert device._limit == [50 << 30]
    # A GPU that is too small for its workers.
    monkeypatch.setattr(gpu_task, "_used", None)
    monkeypatch.setattr(sys.modules["cupy"].cuda.runtime, "memGetInfo", lambda: (15 << 30, 16 << 30))
    for name, value in ((gpu_task.SHARE, "0.3"), (gpu_task.JVM_SHARE, "0.5"), (gpu_task.WORKERS, "16")):
        monkeypatch.setenv(name, value)
    with pytest.raises(ArgumentError, match=r"of 16\.0 GiB: 50% for the JVM, 30% for 16 Python workers.*fewer cores, or smaller shares"):
        gpu_task.use_gpu()


def test_a_worker_without_a_share_opens_no_gpu(gpu: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_task, "_used", None)
    monkeypatch.setenv(gpu_task.SHARE, "0")
    for _ in range(2):
        with pytest.raises(ArgumentError, match=r"gives workers no memory of the GPU: leave backend out, .*python_share=0\.3"):
            gpu_task.use_gpu()
    assert not gpu


class Untouched:
    """In place of the resource that RMM begins with."""


def test_what_the_process_has_set_stays(gpu: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pools would share a device of which one may hold nearly all."""
    of_cupy, runtime = sys.modules["cupy"].cuda, sys.modules["cupy"].cuda.runtime
    # A pool that holds nearly all, with 10 GiB that are free beside it; then 900 GiB are free.
    full = SimpleNamespace(pool_size=lambda: 90 << 30)
    for pool, free, allocator, number, calls, limit in (
        (full, 10, "CuPy's", 0, [0, "rmm"], 100),
        (full, 900, "the caller's", 1, [1], 800),
        (SimpleNamespace(), 900, "the caller's", 1, [1], 800),
        (SimpleNamespace(get_allocation_limit=lambda: 5 << 30), 900, "the caller's", 1, [1], 5),
    ):
        for known in (gpu, device._opened, device._limit):
            known.clear()
        monkeypatch.setattr(sys.modules["rmm.mr"], "get_per_device_resource", lambda _, pool=pool: pool)
        monkeypatch.setattr(runtime, "memGetInfo", lambda free=free: (free << 30, 1000 << 30))
        monkeypatch.setattr(of_cupy, "get_allocator", lambda allocator=allocator: allocator)
        device.open_device(number, device.SHARE)
        assert (gpu, device._opened, device._limit) == (calls, [number], [limit << 30])


SIZES = [(8, 1), (8, 8), (16, 4), (16, 32), (24, 16), (40, 2), (40, 32), (80, 1), (80, 8), (141, 4), (141, 16), (192, 2), (192, 32)]


@pytest.mark.parametrize(("gigabytes", "workers"), SIZES)
def test_all_processes_on_a_gpu_together(gigabytes: int, workers: int, gpu: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is accepted leaves every process its pool and its context; what is refused would not."""
    total, accepted, refused = gigabytes * 10**9, 0, 0
    monkeypatch.setattr(sys.modules["cupy"].cuda.runtime, "memGetInfo", lambda: (total, total))
    monkeypatch.setattr(device, "memory", lambda _: None)
    monkeypatch.setattr(gpu_task, "share_locked", lambda _: None)
    for jvm, python in product((0.0, 0.25, 0.5, 0.7, 0.9), (0.05, 0.2, 0.3, 0.45)):
        if jvm + python > 0.95:
            continue
        builder: Any = Builder()
        rapids.configure(builder, jar="local:///opt/rapids.jar", cluster="yarn", cores=workers, jvm_share=jvm, python_share=python)
        for name, value in builder.items():
            if name.startswith("spark.executorEnv.KOLUMN"):
                monkeypatch.setenv(name.removeprefix("spark.executorEnv."), value)
        pool = float(builder["spark.rapids.memory.gpu.maxAllocFraction"]) * total
        monkeypatch.setattr(gpu_task, "_used", None)
        for name in ("_opened", "_limit"):
            monkeypatch.setattr(device, name, [])
        contexts = (workers + 1) * gpu_task.CONTEXT_BYTES
        try:
            gpu_task.use_gpu()
        except ArgumentError:
            refused += 1
            assert pool + python * total + contexts > total - workers - 1
        else:
            accepted += 1
            (taken,) = device._limit
            assert pool + int(1 / float(builder["spark.task.resource.gpu.amount"])) * taken + contexts <= total
            assert taken > 0
    assert accepted + refused > 10
    assert accepted or gigabytes < 80
    assert refused or gigabytes > 8


BATCH = pa.record_batch({"key": pa.array([b"\xff", None]), "offset": [1, 2]})
SCHEMA = pa.schema({"key": pa.string(), "offset": pa.int64()})


def test_a_transform_on_cudf(gpu: list[Any]) -> None:
    (found,) = apply(lambda frame: frame, BATCH, SCHEMA, "cudf")
    assert found.column("key").view(pa.binary()).to_pylist() == [b"\xff", None]
    for some, offsets in ((lambda table: table.slice(1), [2]), (lambda table: table.schema.empty_table(), [])):
        (found,) = apply(lambda frame, some=some: Frame(some(frame.table)), BATCH, SCHEMA, "cudf")
        assert found.column("offset").to_pylist() == offsets
    for wrong, message in (
        (lambda frame: frame.table, r"transform has to return a cudf\.DataFrame, it returned Table"),
        (lambda frame: Frame(frame.table.select(["key"])), "transform returned the columns"),
    ):
        with pytest.raises(ArgumentError, match=message):
            apply(wrong, BATCH, SCHEMA, "cudf")
    # Bytes are strings at any depth, as libcudf knows no others.
    times = pa.array([1, None], pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"headers": pa.array([[("a", b"\xff")], []], HEADERS), "timestamp": times})
    seen: list[pa.Schema] = []
    apply(lambda frame: (seen.append(frame.table.schema), frame)[1], batch, batch.schema, "cudf")
    assert [str(one.type) for one in seen[0]] == ["list<element: struct<key: string, value: string>>", "timestamp[us]"]


def test_what_is_missing_is_named(gpu: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in ("cupy", "rmm.mr", "cudf"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, missing, None)
            with pytest.raises(MissingError, match=rf"was asked for: .*{missing}.*pip install .*cupy-cuda13x"):
                apply(lambda frame: frame, BATCH, SCHEMA, "cudf")
    monkeypatch.setattr(gpu_task, "_used", None)
    device._opened.clear()
    runtime = sys.modules["cupy"].cuda.runtime
    # With a CuPy that is for the driver's CUDA there are devices.
    runtime.driverGetVersion, runtime.runtimeGetVersion = lambda: 12080, lambda: 13000
    with pytest.raises(MissingError, match=r"the NVIDIA driver knows CUDA 12\.8: Kolumn's kernels are for CUDA 13, install a newer driver"):
        gpu_task.use_gpu()
    runtime.getDeviceCount = Mock(side_effect=RuntimeError("cudaErrorOfSomeKind"))
    for driver, visible, message in (
        (0, "", r"there is no NVIDIA driver \(libcuda\.so\.1\): install one that knows CUDA 13: cudaError"),
        (12080, "", r"the NVIDIA driver knows CUDA 12\.8, and CuPy is for CUDA 13: install a newer driver: cudaError"),
        (13000, "", "CUDA has none: cudaError"),
        (13020, "7", "CUDA has none, with CUDA_VISIBLE_DEVICES=7: cudaError"),
    ):
        runtime.driverGetVersion = lambda driver=driver: driver
        if visible:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        with pytest.raises(MissingError, match=f"a GPU was asked for, and {message}.*; see `kolumn doctor`"):
            gpu_task.use_gpu()


class Reached(Exception):  # noqa: N818
    """Raised when a task requests its GPU."""


class Stub:
    """Stand-in for a session; it keeps the function that would be sent to the tasks."""

    def __init__(self) -> None:
        settings: dict[str, str] = {}
        self.sparkContext = SimpleNamespace(defaultParallelism=1, master="yarn", pythonExec=sys.executable, getConf=lambda: settings)
        self.conf = SimpleNamespace(getAll=settings)
        self.sent: Any = None
        self.range = self.select = lambda *_: self

    def mapInArrow(self, work: Any, _: Any) -> "Stub":  # noqa: N802
        self.sent = work
        return self

    def rows(self) -> pa.Table:
        return pa.Table.from_batches(list(self.sent([pa.record_batch({"id": [0]})])))


def test_every_door_takes_the_tasks_gpu(segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "use_gpu", Mock(side_effect=Reached))
    monkeypatch.setattr(reading, "scan_ranges", lambda *_, **__: pytest.fail("decoded before the GPU was taken"))
    options = Options.of(backend="gpu")
    (found,) = live_segments(segment, options).one_log()
    split = Split((Range.whole(found),))
    with pytest.raises(Reached):
        next(reading.read_split(split, LoadOptions((str(segment),), 1 << 20, False, options), print))
    stub: Any = Stub()
    read_segments(stub, segment, transform=lambda batch: batch, schema=spark_schema(record_schema(("offset",))), backend="gpu")
    with pytest.raises(Reached):
        stub.rows()


@pytest.fixture
def cudf(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The emulated device, and frames over its columns, which counts the bytes that it copies to the host."""
    pytest.importorskip("pylibcudf", reason="make gpu-packages")
    from kit import libcudf
    from kit.emulated import Emulated, run_loops

    monkeypatch.setitem(sys.modules, "cudf", SimpleNamespace(DataFrame=Frame))

    def from_pylibcudf(table: Any, metadata: dict[str, Any]) -> Frame:
        return Frame(pa.table([libcudf.to_arrow(column) for column in table.columns()], names=metadata["columns"]))

    monkeypatch.setattr(Frame, "from_pylibcudf", staticmethod(from_pylibcudf), raising=False)
    monkeypatch.setattr(Frame, "from_arrow", lambda _: pytest.fail("copied to the GPU once more"))
    for module in (reading, frames):
        monkeypatch.setattr(module, "use_gpu", lambda: 0)
    emulated: Any = Emulated(run_loops)
    download, emulated.downloaded = emulated.download, 0

    def counted(memory: Any, size: int, start: int = 0) -> Any:
        emulated.downloaded += size
        return download(memory, size, start)

    monkeypatch.setattr(emulated, "download", counted)
    with device.using(emulated):
        yield emulated


def test_frames_of_a_gpu_are_over_its_columns(segment: Path, cudf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["offset", "timestamp", "key", "value"]
    whole = kolumn.read(segment, columns=names, backend="cpu")
    expected, stub = whole.drop_columns("key"), Stub()
    how: Any = {"frame": "cudf", "backend": "gpu", "columns": names}
    how |= {"transform": lambda frame: Frame(frame.table.drop_columns("key")), "schema": spark_schema(expected.schema)}
    read_segments(stub, segment, **how)
    assert stub.rows().cast(expected.schema).equals(expected)
    assert cudf.downloaded < whole.nbytes / 10
    # Without a transform there is no frame.
    monkeypatch.setattr(frames, "_column", lambda field, payload: None)
    read_segments(stub, segment, frame="cudf", backend="gpu", columns=["offset"])
    assert stub.rows() == kolumn.read(segment, columns=["offset"], backend="cpu")


def test_typed_values_of_frames_are_decoded_on_the_gpu(tmp_path: Path, cudf: Any) -> None:
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": {"type": "array", "items": "int"}}]
    schema = {"type": "record", "name": "r", "fields": fields}
    values = [b"\2\2\4\0", b"?", None, b"\6\0"] * 99
    kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), tmp_path / "t-0")
    how: Any = {"columns": ["offset", "value", "valueValid"], "value_format": "avro", "value_schema": schema, "value_as": "columns"}
    expected = kolumn.read(tmp_path / "t-0", backend="cpu", **how)
    stub: Any = Stub()
    read_segments(stub, tmp_path / "t-0", transform=lambda frame: frame, schema=spark_schema(expected.schema), frame="cudf", backend="gpu",
                  **how)  # fmt: skip
    found = stub.rows()
    assert found.to_pylist() == expected.to_pylist()
    assert cudf.launched["write_values"] == 1


def test_only_one_function_runs_tasks() -> None:
    """A new way to read in a task has to call it."""
    texts = {path.name: path.read_text() for path in Path(reading.__file__).parents[1].rglob("*.py")}
    users = {name for name, text in texts.items() if "scan_ranges(" in text}
    assert users == {"task.py", "options.py", "statistics.py"}
    # All but the first make plans on the driver.
    assert all('backend="cpu"' in texts[name] for name in users - {"task.py"})


def test_the_driver_opens_no_gpu(segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "runtime", lambda: pytest.fail("a GPU was opened to plan"))
    monkeypatch.setenv("KOLUMN_BACKEND", "gpu")
    offsets, times = kolumn.read(segment, columns=["offset", "timestampMs"], backend="cpu").to_pydict().values()
    middle = times[len(times) // 2]
    expected = next(offset for offset, time in zip(offsets, times, strict=True) if time >= middle)
    for backend in ("gpu", "auto"):
        asked = LoadOptions.of({"path": str(segment), "backend": backend, "startingTimestamp": str(middle)})
        groups = asked.wanted.choose(live_segments(asked.paths, asked.decode).one_log())
        assert asked.start.resolve(groups, asked.decode) == dict.fromkeys(groups, expected)
        draft = Options.of(backend=backend, format="kip98-draft", isolation_level="read_committed", errors="skip")
        assert len(with_transactions([Range.whole(one) for one in live_segments(segment, draft).one_log()], draft)) == 1
