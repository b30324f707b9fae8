"""The GPU that a task uses, and the argument of a transform on cuDF. The GPU packages are replaced by stand-ins, so no GPU is needed."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

import kolumn
from kolumn.core.errors import ArgumentError, MissingError
from kolumn.core.schema import record_schema
from kolumn.kernels.machine import device
from kolumn.log.transactions import with_transactions
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.source.segments import Range
from kolumn.spark_plugin import rapids
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read import frames
from kolumn.spark_plugin.read import task as reading
from kolumn.spark_plugin.read.frames import apply, read_segments
from kolumn.spark_plugin.read.schema import spark_schema
from kolumn.spark_plugin.read.splits import Split, resolve
from kolumn.spark_plugin.session import gpu_task
from kolumn.spark_plugin.write.staged import ExportJob, ExportLayout, write_job


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
    """Two devices of 1000 GiB; returns the list of calls for them."""
    done: list[Any] = []
    runtime = SimpleNamespace(
        getDeviceCount=lambda: 2, memGetInfo=lambda: (900 << 30, 1000 << 30), driverGetVersion=lambda: 13000, CUDARuntimeError=RuntimeError
    )  # fmt: skip
    cuda = SimpleNamespace(
        runtime=runtime, Device=lambda i: SimpleNamespace(use=lambda: done.append(i)), set_allocator=lambda one: done.append(one),
        get_allocator=lambda: "CuPy's",
    )  # fmt: skip
    resources = SimpleNamespace(
        CudaMemoryResource=Untouched,
        CudaAsyncMemoryResource=lambda: "async",
        get_per_device_resource=lambda number: Untouched(),
        LimitingResourceAdaptor=lambda upstream, limit: (upstream, limit),
        set_per_device_resource=lambda number, pool: done.append((number, pool)),
    )
    modules = {
        "cupy": SimpleNamespace(cuda=cuda, get_default_memory_pool=lambda: SimpleNamespace(malloc="CuPy's")),
        "rmm": SimpleNamespace(mr=resources),
        "rmm.mr": resources,
        "rmm.allocators": SimpleNamespace(),
        "rmm.allocators.cupy": SimpleNamespace(rmm_cupy_allocator="rmm"),
        "cudf": SimpleNamespace(DataFrame=Frame),
    }
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


class Untouched:
    """In place of the resource that RMM begins with."""


@pytest.mark.parametrize(
    ("pool", "limit"),
    [
        # 900 GiB are free.
        (SimpleNamespace(), 800 << 30),
        (SimpleNamespace(get_allocation_limit=lambda: 5 << 30), 5 << 30),
        (SimpleNamespace(pool_size=lambda: 90 << 30), 800 << 30),
    ],
)
def test_what_the_process_has_set_stays(pool: Any, limit: int, gpu: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pools would share a device of which one may hold nearly all."""
    monkeypatch.setattr(sys.modules["rmm.mr"], "get_per_device_resource", lambda number: pool)
    monkeypatch.setattr(sys.modules["cupy"].cuda, "get_allocator", lambda: "the caller's")
    device.open_device(1, device.SHARE)
    assert gpu == [1]
    assert (device._opened, device._limit) == ([1], [limit])


def test_a_pool_that_holds_nearly_all(gpu: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["rmm.mr"], "get_per_device_resource", lambda number: SimpleNamespace(pool_size=lambda: 90 << 30))
    monkeypatch.setattr(sys.modules["cupy"].cuda.runtime, "memGetInfo", lambda: (10 << 30, 1000 << 30))
    device.open_device(0, device.SHARE)
    assert gpu == [0, "rmm"]
    assert device._limit == [100 << 30]


def test_a_gpu_that_is_too_small_for_its_workers(gpu: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["cupy"].cuda.runtime, "memGetInfo", lambda: (15 << 30, 16 << 30))
    for name, value in ((gpu_task.SHARE, "0.3"), (gpu_task.JVM_SHARE, "0.5"), (gpu_task.WORKERS, "16")):
        monkeypatch.setenv(name, value)
    with pytest.raises(
        ArgumentError, match=r"a GPU of 16\.0 GiB: 50% for the JVM, 30% for 16 Python workers.*fewer cores, or smaller shares"
    ):
        gpu_task.use_gpu()


@pytest.mark.parametrize("gigabytes", [8, 16, 24, 40, 80, 141, 192])
@pytest.mark.parametrize("workers", [1, 2, 4, 8, 16, 32])
def test_all_processes_on_a_gpu_together(gigabytes: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is accepted leaves every process its pool and its context; what is refused would not."""
    total, taken = gigabytes * 10**9, []
    resources = SimpleNamespace(
        LimitingResourceAdaptor=lambda _, limit: taken.append(limit), set_per_device_resource=lambda *_: None,
        get_per_device_resource=lambda _: Untouched(), CudaMemoryResource=Untouched,
    )  # fmt: skip
    calls = SimpleNamespace(
        memGetInfo=lambda: (total, total), getDeviceCount=lambda: 1, driverGetVersion=lambda: 13000, CUDARuntimeError=OSError
    )
    cuda = SimpleNamespace(Device=lambda _: SimpleNamespace(use=lambda: None), set_allocator=print, get_allocator=print, runtime=calls)
    for name, module in {
        "cupy": SimpleNamespace(cuda=cuda, get_default_memory_pool=lambda: SimpleNamespace(malloc=None)),
        "rmm": SimpleNamespace(mr=resources), "rmm.mr": resources,
        "rmm.allocators": SimpleNamespace(), "rmm.allocators.cupy": SimpleNamespace(rmm_cupy_allocator=None),
    }.items():  # fmt: skip
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(device, "memory", lambda _: None)
    monkeypatch.setattr(gpu_task, "share_locked", lambda _: None)
    for name in ("_opened", "_limit"):
        monkeypatch.setattr(device, name, [])
    accepted = refused = 0
    for jvm in (0.0, 0.25, 0.5, 0.7, 0.9):
        for python in (0.05, 0.2, 0.3, 0.45):
            if jvm + python > 0.95:
                continue
            settings = rapids.configure(
                Settings(), jar="local:///opt/rapids.jar", cluster="yarn", cores=workers, jvm_share=jvm, python_share=python
            )  # type: ignore[arg-type]
            for name, value in settings.items():  # type: ignore[attr-defined]
                if name.startswith("spark.executorEnv.KOLUMN"):
                    monkeypatch.setenv(name.removeprefix("spark.executorEnv."), value)
            pool = float(settings["spark.rapids.memory.gpu.maxAllocFraction"]) * total  # type: ignore[index]
            monkeypatch.setattr(gpu_task, "_used", None)
            taken.clear()
            contexts = (workers + 1) * gpu_task.CONTEXT_BYTES
            try:
                gpu_task.use_gpu()
            except ArgumentError:
                refused += 1
                assert pool + python * total + contexts > total - workers - 1
            else:
                accepted += 1
                tasks = int(1 / float(settings["spark.task.resource.gpu.amount"]))  # type: ignore[index]
                assert pool + tasks * taken[0] + contexts <= total
                assert taken[0] > 0
    assert accepted + refused > 10
    assert accepted or gigabytes < 80
    assert refused or gigabytes > 8


class Settings(dict[str, str]):
    """What a session's builder is given."""

    def config(self, map: dict[str, str]) -> "Settings":
        self.update(map)
        return self


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


@pytest.mark.parametrize(
    ("driver", "visible", "message"),
    [
        (0, None, r"there is no NVIDIA driver \(libcuda\.so\.1\): install one that knows CUDA 13: cudaError"),
        (12080, None, r"the NVIDIA driver knows CUDA 12\.8, and CuPy is for CUDA 13: install a newer driver: cudaError"),
        (13000, None, "CUDA has none: cudaError"),
        (13020, "7", "CUDA has none, with CUDA_VISIBLE_DEVICES=7: cudaError"),
    ],
)
def test_no_device(gpu: list[Any], driver: int, visible: str | None, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> int:
        raise RuntimeError("cudaErrorOfSomeKind")

    runtime = sys.modules["cupy"].cuda.runtime
    runtime.getDeviceCount, runtime.driverGetVersion, runtime.runtimeGetVersion = none, lambda: driver, lambda: 13000
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(MissingError, match=f"a GPU was asked for, and {message}.*; see `kolumn doctor`"):
        gpu_task.use_gpu()


def test_a_driver_that_is_older_than_the_kernels(gpu: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With a CuPy that is for the driver's CUDA there are devices."""
    monkeypatch.setattr(sys.modules["cupy"].cuda.runtime, "driverGetVersion", lambda: 12080)
    with pytest.raises(MissingError, match=r"the NVIDIA driver knows CUDA 12\.8: Kolumn's kernels are for CUDA 13, install a newer driver"):
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

    def select(self, *_: Any) -> "Stub":
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
    (found,) = live_segments(segment, options).one_log()
    split = Split((Range.whole(found),))
    with pytest.raises(Reached):
        next(reading.read_split(split, LoadOptions((str(segment),), 1 << 20, False, options), print))
    stub: Any = Stub()
    read_segments(stub, segment, transform=lambda batch: batch, schema=spark_schema(record_schema(["offset"])), backend="gpu")
    with pytest.raises(Reached):
        next(stub.sent([NUMBERS]))
    layout = ExportLayout(fs.LocalFileSystem(), str(tmp_path), options, False, 1000, "none")
    with pytest.raises(Reached):
        next(write_job(ExportJob("t", 0, None, split.ranges), layout))


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
    emulated = Emulated(run_loops)
    monkeypatch.setattr(emulated, "download", Counted(emulated.download))
    with device.using(emulated):
        yield emulated


def test_frames_of_a_gpu_are_over_its_columns(segment: Path, cudf: Any) -> None:
    """What a GPU decodes for a transform on cuDF is not copied to the host and back."""
    names = ["offset", "timestamp", "key", "value"]
    expected = kolumn.read(segment, columns=names, backend="cpu")
    wire = spark_schema(pa.schema([("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")), ("value", pa.binary())]))
    stub: Any = Stub()
    read_segments(stub, segment, transform=lambda frame: Frame(frame.table.drop_columns("key")), schema=wire, frame="cudf",
                  backend="gpu", columns=names)  # fmt: skip
    found = pa.Table.from_batches(list(stub.sent([NUMBERS])))
    assert found.cast(expected.drop_columns("key").schema).equals(expected.drop_columns("key"))
    assert cudf.download.bytes < expected.nbytes / 10


def test_without_a_transform_there_is_no_frame(segment: Path, cudf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_column", lambda field, payload: None)
    stub: Any = Stub()
    read_segments(stub, segment, frame="cudf", backend="gpu", columns=["offset"])
    assert pa.Table.from_batches(list(stub.sent([NUMBERS]))) == kolumn.read(segment, columns=["offset"], backend="cpu")


def test_typed_values_of_frames_are_decoded_on_the_gpu(tmp_path: Path, cudf: Any) -> None:
    """By the programs of `read_cudf`."""
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": {"type": "array", "items": "int"}}],
    }
    values = [b"\2\2\4\0", b"?", None, b"\6\0"] * 99
    kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), tmp_path / "t-0")
    how: Any = {"columns": ["offset", "value", "valueValid"], "value_format": "avro", "value_schema": schema, "value_as": "columns"}
    expected = kolumn.read(tmp_path / "t-0", backend="cpu", **how)
    stub: Any = Stub()
    read_segments(stub, tmp_path / "t-0", transform=lambda frame: frame, schema=spark_schema(expected.schema), frame="cudf", backend="gpu",
                  **how)  # fmt: skip
    found = pa.Table.from_batches(list(stub.sent([NUMBERS])))
    assert found.to_pylist() == expected.to_pylist()
    assert cudf.launched["write_values"] == 1


class Counted:
    """Counts the bytes that are copied to the host."""

    def __init__(self, download: Any) -> None:
        self.download, self.bytes = download, 0

    def __call__(self, memory: Any, size: int, start: int = 0) -> Any:
        self.bytes += size
        return self.download(memory, size, start)


def test_headers_for_cudf(gpu: list[Any]) -> None:
    """Bytes are strings at any depth, as libcudf knows no others."""
    headers = pa.array([[("a", b"\xff")], []], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    batch = pa.record_batch({"headers": headers, "timestamp": pa.array([1, None], pa.timestamp("us", "UTC"))})
    seen: list[pa.Schema] = []
    apply(lambda frame: (seen.append(frame.table.schema), frame)[1], batch, batch.schema, "cudf")
    assert [str(one.type) for one in seen[0]] == ["list<item: struct<key: string, value: string>>", "timestamp[us]"]


def test_only_one_function_runs_tasks() -> None:
    """A new way to read in a task has to call it."""
    texts = {path.name: path.read_text() for path in Path(reading.__file__).parents[1].rglob("*.py")}
    users = {name for name, text in texts.items() if "scan_ranges(" in text}
    assert users == {"task.py", "positions.py", "export.py", "statistics.py"}
    # All but the first make plans on the driver.
    assert all('backend="cpu"' in texts[name] for name in users - {"task.py"})


def test_the_driver_opens_no_gpu(segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "runtime", lambda: pytest.fail("a GPU was opened to plan"))
    monkeypatch.setenv("KOLUMN_BACKEND", "gpu")
    times = kolumn.read(segment, columns=["offset", "timestampMs"], backend="cpu")
    middle = times["timestampMs"][times.num_rows // 2].as_py()
    expected = next(offset for offset, time in zip(*times.to_pydict().values(), strict=True) if time >= middle)
    for backend in ("gpu", "auto"):
        asked = LoadOptions.of({"path": str(segment), "backend": backend, "startingTimestamp": str(middle)})
        groups = asked.wanted.choose(live_segments(asked.paths, asked.decode).one_log())
        assert resolve(asked.start, groups, asked.decode) == dict.fromkeys(groups, expected)
        draft = Options.of(backend=backend, format="kip98-draft", isolation_level="read_committed", errors="skip")
        assert len(with_transactions([Range.whole(one) for one in live_segments(segment, draft).one_log()], draft)) == 1
