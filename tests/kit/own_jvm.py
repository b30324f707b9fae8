"""A JVM on the device of `kit.own_libcuda`, asked by py4j: it has the connector's jar and the stand-ins for RAPIDS.

`JvmDevice` stands where `kit.emulated.Emulated` stands: what Kolumn asks of a device goes through `kolumn.Driver` and its library.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from kit import ptx
from kolumn.core.arrays import AnyArray, Bytes, Flags, Int64s
from kolumn.core.errors import MissingError
from kolumn.kernels.machine.kernel import Kernel
from kolumn.kernels.machine.runtime import PAD
from kolumn.spark_plugin import connector_jar
from kolumn.spark_plugin.session import build as building
from kolumn.spark_plugin.session.java import find_java

CALLS = Path(__file__).parent / "native" / "Calls.java"


def compile_classes(folder: Path) -> Path:
    """Stand-ins, and what lets Python call the connector's classes. Skips the test where Eclipse's compiler cannot be fetched."""
    try:
        building.compile_java(folder, CALLS)
    except MissingError as error:
        if "could not be fetched" not in str(error) or os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    # The connector's own classes are those of the jar that is shipped.
    for path in folder.glob("kolumn/*.class"):
        if path.name != "Calls.class":
            path.unlink()
    return folder


@dataclass
class Jvm:
    """The JVM."""

    gateway: Any

    def driver(self, name: str, *given: Any) -> list[Any]:
        """Call a method of `kolumn.Driver`: what it returns, and the arrays of numbers that it was given."""
        return list(self.calls.call("Driver", name, list(given)))

    def do(self, name: str, *given: Any) -> int:
        """Call one that must work; the first number of the array that it was given, if it was given one."""
        status, *arrays = self.driver(name, *given)
        assert status == 0, f"{name}{given}: {self.explain(status)}"
        return int(arrays[0][0]) if arrays else 0

    def explain(self, code: int) -> str:
        """The text of an error."""
        return str(self.driver("explain", code)[0])

    @property
    def calls(self) -> Any:
        """The class `Calls`."""
        return self.gateway.jvm.kolumn.Calls

    @property
    def cudf(self) -> Any:
        """The package of the stand-ins."""
        return self.gateway.jvm.ai.rapids.cudf

    @property
    def open_objects(self) -> tuple[int, int, int]:
        """Buffers, views and columns that nobody has closed."""
        counts = self.cudf.StandIn
        return counts.BUFFERS, counts.VIEWS, counts.COLUMNS

    def kind(self, name: str) -> Any:
        """A type of columns."""
        return getattr(self.cudf.DType, name)

    def optional(self, number: int) -> Any:
        """An Optional of a Long."""
        return self.calls.optional(number)


@contextmanager
def running(classes: Path, environment: dict[str, str], *options: str) -> Iterator[Jvm]:
    """A JVM with the connector's jar, assertions enabled, and more options."""
    jars = Path(pyspark.__file__).parent / "jars"
    (py4j,) = jars.glob("py4j-*.jar")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        port, token, process = launch_gateway(
            jarpath=str(py4j),
            classpath=os.pathsep.join([str(connector_jar()), str(classes), str(jars / "*")]),
            # A wrong use of JNI ends the JVM.
            javaopts=["-ea", "-Xcheck:jni", *options],
            die_on_exit=True,
            java_path=str(find_java() / "bin" / "java"),
            enable_auth=True,
            return_proc=True,
        )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    try:
        yield Jvm(gateway)
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(60)


def arrow(jvm: Jvm, column: Any, kind: pa.DataType) -> pa.Array:
    """The rows of a column or view of the stand-ins, whose type is that of Arrow's ``kind``."""
    rows, nulls = column.getRowCount(), column.getNullCount()
    valid, data, offsets = (_bytes(jvm, one) for one in (column.getValid(), column.getData(), column.getOffsets()))
    children = []
    assert column.getNumChildren() == kind.num_fields
    for number in range(kind.num_fields):
        view = column.getChildColumnView(number)
        children.append(arrow(jvm, view, kind.field(number).type))
        view.close()
    # Columns of no rows have no buffers.
    data, offsets = data or pa.py_buffer(b""), offsets or pa.py_buffer(bytes(4))
    if pa.types.is_boolean(kind):
        data = pa.py_buffer(np.packbits(np.frombuffer(data, np.uint8) != 0, bitorder="little"))
    text, nested = pa.types.is_string(kind), pa.types.is_struct(kind)
    buffers = [offsets, data] if text else [] if nested else [offsets] if pa.types.is_list(kind) else [data]
    found = pa.Array.from_buffers(kind, rows, [valid, *buffers], nulls, children=children)
    found.validate(full=True)
    return found


def _bytes(jvm: Jvm, buffer: Any) -> pa.Buffer | None:
    return None if buffer is None else pa.py_buffer(jvm.calls.bytes(buffer))


class JvmMemory:
    """A buffer of RAPIDS."""

    def __init__(self, jvm: Jvm, size: int, room: int) -> None:
        self.buffer = jvm.cudf.DeviceMemoryBuffer.allocate(room)
        self.address, self.size = self.buffer.getAddress(), size

    def __del__(self) -> None:
        self.buffer.close()


@dataclass
class JvmDevice:
    """As `kolumn.kernels.machine.runtime.Runtime` says, by `kolumn.Driver` in a JVM and RAPIDS' memory."""

    jvm: Jvm
    memory: int = 1 << 30
    reads_files: bool = False
    kept: dict[str, Any] = field(default_factory=dict)
    _functions: dict[str, int] = field(default_factory=dict)

    def empty(self, size: int) -> JvmMemory:
        # A size of 0 has an address, too.
        return JvmMemory(self.jvm, size, size + PAD)

    def zeros(self, size: int) -> JvmMemory:
        memory = self.empty(size)
        self.jvm.do("setZero", memory.address, size)
        return memory

    def pieces(self, sizes: Sequence[int], zeros: bool = False) -> list[JvmMemory]:
        return [self.zeros(size) if zeros else self.empty(size) for size in sizes]

    def upload(self, data: AnyArray) -> JvmMemory:
        memory = self.empty(data.nbytes)
        source = self.jvm.calls.held(data.tobytes())
        self.jvm.do("copyToDevice", memory.address, source, data.nbytes)
        self.jvm.calls.release(source)
        return memory

    def load(self, path: str, start: int, end: int) -> None:
        raise NotImplementedError

    def download(self, memory: JvmMemory, size: int, start: int = 0) -> Bytes:
        target = self.jvm.calls.held(bytes(size))
        self.jvm.do("copyToHost", target, memory.address + start, size)
        self.synchronize()
        found = self.jvm.calls.read(target, size)
        self.jvm.calls.release(target)
        return np.frombuffer(found, np.uint8).copy()

    def downloads(self, wanted: Sequence[tuple[JvmMemory, int, int]]) -> list[Bytes]:
        return [self.download(*one) for one in wanted]

    def collected(self, wanted: Sequence[tuple[JvmMemory, int, int]]) -> Callable[[], list[Bytes]]:
        found = self.downloads(wanted)
        return lambda: found

    def launch(self, kernel: Kernel, n: int, args: tuple[int, ...]) -> None:
        if n:
            if kernel.name not in self._functions:
                module = self.jvm.do("loadModule", ptx.shipped(kernel).encode(), [0])
                self._functions[kernel.name] = self.jvm.do("getFunction", module, kernel.entry, [0])
            self.jvm.do("launch", self._functions[kernel.name], kernel.grid(n, 1), kernel.block, [n, *map(int, args)])

    def rest(self) -> None:
        pass

    def synchronize(self) -> None:
        self.jvm.do("synchronize")

    def running_sum(self, memory: JvmMemory, count: int, width: int) -> None:
        cudf, kind = self.jvm.cudf, self.jvm.kind({4: "INT32", 8: "INT64"}[width])
        view = cudf.ColumnView(kind, count, self.jvm.optional(0), memory.buffer, None)
        sums = view.scan(cudf.ScanAggregation.sum(), cudf.ScanType.INCLUSIVE)
        self.jvm.do("copyOnDevice", memory.address, sums.getData().getAddress(), count * width)
        view.close()
        sums.close()

    def inflate(self, kind: int, sources: Int64s, sizes: Int64s, room: Int64s, targets: Int64s) -> tuple[Int64s, Flags]:
        n = len(sources)
        given, answer = self.upload(np.stack([sources, sizes, room, targets])), self.zeros(12 * n)
        need = self.jvm.driver("temporaryBytes", kind, n, int(room.max()), int(room.sum()))[0]
        temporary, rows = self.empty(need), [given.address + 8 * n * row for row in range(4)]
        status = self.jvm.driver(
            "inflate", kind, *rows[:3], answer.address, n, temporary.address, need, rows[3], answer.address + 8 * n
        )[0]  # fmt: skip
        assert status == 0, status
        found = self.download(answer, 12 * n)
        return found[: 8 * n].view(np.int64), found[8 * n :].view(np.int32) == 0
