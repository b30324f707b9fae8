"""The library in the connector's jar, and the stand-ins for RAPIDS' Java: a JVM calls both on the device of `kit.own_libcuda`."""

import ctypes
import gc
import gzip
import os
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import cramjam
import lz4.block
import numpy as np
import pyarrow as pa
import pytest
import zstandard
from py4j.protocol import Py4JJavaError

import kolumn
from kit import own_jvm
from kit.class_files import ClassFile
from kit.encoder import Record, batch
from kit.own_jvm import Jvm, JvmDevice, JvmMemory, arrow, running
from kit.own_libcuda import PROCESSORS, OwnLibcuda, compile_library
from kit.ptx import Machine
from kit.streams import CODECS, NONE
from kolumn.core.errors import MissingError
from kolumn.formats.codecs import DEFLATE, LZ4_BLOCK, SNAPPY_BLOCK, ZSTD_FRAME
from kolumn.kernels.build import load_all
from kolumn.kernels.machine import device as current
from kolumn.kernels.machine.nvcomp import NAMES, Library
from kolumn.kernels.machine.runtime import PAD
from kolumn.spark_plugin import connector_jar, rapids
from kolumn.spark_plugin.session import build as building

NOT_THERE, NO_CODECS = -1, -(2**63)
OUT_OF_MEMORY, INVALID_IMAGE, INVALID_CONTEXT, NOT_FOUND, ILLEGAL_ADDRESS, LAUNCH_FAILED = 2, 200, 201, 500, 700, 719

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_jvm.compile_classes(tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnLibcuda]:
    with OwnLibcuda(tmp_path_factory.mktemp("libraries")) as found:
        yield found


@pytest.fixture(scope="module")
def only_jvm(classes: Path, gpu: OwnLibcuda) -> Iterator[Jvm]:
    with running(classes, gpu.environment) as found:
        found.driver("use")
        yield found


@pytest.fixture
def jvm(only_jvm: Jvm, gpu: OwnLibcuda) -> Iterator[Jvm]:
    """The one of this file; a test leaves nothing open, and nothing wrong."""
    yield only_jvm
    gc.collect()
    assert (only_jvm.open_objects, gpu.live, gpu.locked, gpu.faults) == ((0, 0, 0), {}, {}, [])


@pytest.fixture
def faults(jvm: Jvm, gpu: OwnLibcuda) -> Iterator[list[str]]:
    """What is wrong, for tests that do something wrong."""
    yield gpu.faults
    gpu.faults.clear()


def segment(folder: Path, codec: int) -> Path:
    """Some batches of records with headers, keys that are null and values of many lengths."""
    rows = [Record(i, None if i % 7 == 0 else b"key %d" % i, b"value" * (i % 50), 1000 + i, ((b"h", b"x" * i),)) for i in range(300)]
    path = folder / "topic-0" / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(b"".join(batch(rows[at : at + 60], codec=codec) for at in range(0, len(rows), 60)))
    return path.parent


@pytest.mark.parametrize("codec", range(len(CODECS)), ids=CODECS)
def test_a_read_through_the_library_has_the_same_rows(jvm: Jvm, gpu: OwnLibcuda, codec: int, tmp_path: Path) -> None:
    source, before = segment(tmp_path, codec), gpu.asked.copy()
    with current.using(JvmDevice(jvm)):
        found = kolumn.read(source, backend="gpu", trusted=True, threads=1)
    assert found.equals(kolumn.read(source))
    assert len(found) == 300
    asked = gpu.asked - before
    assert (asked["launched check"] > 0, asked["inflate"] > 0) == (True, codec != NONE)


def test_kernels_run_as_ptx_with_every_access_checked(classes: Path, tmp_path: Path) -> None:
    pytest.importorskip("nvidia.cu13", reason="compilers for CUDA: pip install '.[dev]'")
    machine, source = Machine(races=True), segment(tmp_path, NONE)
    with OwnLibcuda(tmp_path / "libraries", machine) as gpu, running(classes, gpu.environment) as jvm:
        jvm.driver("use")
        with current.using(JvmDevice(jvm)):
            assert kolumn.read(source, backend="gpu", threads=1).equals(kolumn.read(source))
        assert machine.ran["check"] > 0
        gc.collect()
        assert gpu.live == {}


def test_errors_have_cudas_names_and_texts(jvm: Jvm, gpu: OwnLibcuda) -> None:
    kernel, taken = load_all()["marks"], JvmMemory(jvm, 8, PAD)
    text = b"// .version 8.0 of nothing but kolumn_marks"
    assert jvm.driver("loadModule", b"no code at all", [0])[0] == INVALID_IMAGE
    module = jvm.do("loadModule", text, [0])
    assert jvm.driver("getFunction", module, "kolumn_other", [0])[0] == NOT_FOUND
    function = jvm.do("getFunction", module, kernel.entry, [0])
    for call, name, given in (
        ("cuLaunchKernel", "launch", (function, 1, kernel.block, [0] * 9)),
        ("cuMemcpyHtoDAsync_v2", "copyToDevice", (taken.address, 0, 0)),
        ("cuMemcpyDtoHAsync_v2", "copyToHost", (0, taken.address, 0)),
        ("cuMemcpyDtoDAsync_v2", "copyOnDevice", (taken.address, taken.address, 0)),
        ("cuMemsetD8Async", "setZero", (taken.address, 8)),
        ("cuStreamSynchronize", "synchronize", ()),
    ):
        gpu.fail(call, LAUNCH_FAILED)
        assert (jvm.driver(name, *given)[0], jvm.driver(name, *given)[0]) == (LAUNCH_FAILED, 0), name
    assert jvm.explain(LAUNCH_FAILED) == "CUDA_ERROR_LAUNCH_FAILED (719): unspecified launch failure"
    assert jvm.explain(12345) == "CUDA error (12345): unknown to the driver"
    with pytest.raises(Py4JJavaError, match=r"IllegalStateException: copying: CUDA_ERROR_OUT_OF_MEMORY \(2\): out of memory"):
        jvm.driver("check", OUT_OF_MEMORY, "copying")


def test_a_launch_passes_any_number_of_arguments(jvm: Jvm, gpu: OwnLibcuda) -> None:
    """The driver looks at those that the kernel has."""
    kernel, before = load_all()["marks"], gpu.asked["launched marks"]
    function = jvm.do("getFunction", jvm.do("loadModule", b"// kolumn_marks", [0]), kernel.entry, [0])
    jvm.do("launch", function, 1, kernel.block, [0] * 50_000)
    assert gpu.asked["launched marks"] == before + 1


def test_memory_of_the_host_is_locked_once(jvm: Jvm, gpu: OwnLibcuda) -> None:
    place = jvm.calls.held(bytes(8192))
    jvm.do("lock", place, 8192)
    assert gpu.locked == {place: 8192}
    assert jvm.driver("lock", place + 4096, 1)[0] == 712
    jvm.do("unlock", place)
    assert jvm.driver("unlock", place)[0] == 713
    jvm.calls.release(place)


def test_each_thread_gets_the_context(jvm: Jvm) -> None:
    steps = [["synchronize"], ["multiprocessors", [0]], ["use"], ["synchronize"], ["multiprocessors", [0]]]
    assert list(jvm.calls.elsewhere(steps)) == [INVALID_CONTEXT, INVALID_CONTEXT, None, 0, 0]
    assert list(jvm.driver("multiprocessors", [0])[1]) == [PROCESSORS]


def test_what_is_outside_of_memory_is_found(jvm: Jvm, gpu: OwnLibcuda, faults: list[str]) -> None:
    memory = JvmMemory(jvm, 100, 100)
    address = memory.address
    assert jvm.driver("setZero", address, 101)[0] == ILLEGAL_ADDRESS
    ctypes.memset(address + 100, 0, 1)
    del memory
    outside = f"bytes outside of 100 bytes at {address:#x} were written"
    assert faults == [f"cuMemsetD8Async[{address}, 101, 2]: 101 bytes at {address:#x} are in no memory that was allocated", outside]


def test_no_more_memory_is_javas_error(jvm: Jvm, gpu: OwnLibcuda) -> None:
    gpu.fail("allocate", OUT_OF_MEMORY)
    with pytest.raises(Py4JJavaError, match="OutOfMemoryError: Could not allocate native memory"):
        jvm.cudf.DeviceMemoryBuffer.allocate(8)


@pytest.mark.parametrize("version", [5, 6])
def test_both_versions_of_nvcomp_decompress(classes: Path, tmp_path: Path, version: int) -> None:
    pieces = {kind: NAMES[kind].encode() * 1000 for kind in NAMES}
    with OwnLibcuda(tmp_path, nvcomp=version) as gpu, running(classes, gpu.environment) as jvm:
        jvm.driver("use")
        device = JvmDevice(jvm)
        for kind, whole in pieces.items():
            blocks = [np.frombuffer(one, np.uint8) for one in (COMPRESS[kind](whole), b"nothing that a codec knows", COMPRESS[kind](whole))]
            sources, rooms = [device.upload(one) for one in blocks], [device.empty(len(whole)) for _ in blocks]
            sizes, room = np.array([len(one) for one in blocks]), np.array([len(whole)] * 3)
            out, fine = device.inflate(kind, addresses(sources), sizes, room, addresses(rooms))
            assert (fine.tolist(), out[fine].tolist()) == ([True, False, True], [len(whole)] * 2)
            assert device.download(rooms[2], len(whole)).tobytes() == whole
        assert jvm.driver("temporaryBytes", ZSTD_FRAME, 3, 1000, 2000) == [3000]
        gpu.fail("temporary", 11)
        gpu.fail("inflate", 13)
        assert jvm.driver("temporaryBytes", ZSTD_FRAME, 3, 1000, 2000) == [-12]
        assert jvm.driver("inflate", ZSTD_FRAME, *[0] * 9) == [13]
        del sources, rooms
        gc.collect()
        assert gpu.live == {}


COMPRESS: dict[int, Callable[[bytes], bytes]] = {
    LZ4_BLOCK: lambda data: lz4.block.compress(data, store_size=False),
    SNAPPY_BLOCK: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    ZSTD_FRAME: lambda data: zstandard.ZstdCompressor().compress(data),
    DEFLATE: lambda data: gzip.compress(data),
}


def test_nvcomp_is_found_where_it_is_said_to_be(classes: Path, tmp_path: Path) -> None:
    if any(is_installed(f"libnvcomp.so.{version}") for version in (5, 6)):
        pytest.skip("the linker finds nvCOMP on this machine")
    with OwnLibcuda(tmp_path / "libraries", nvcomp=0) as gpu, running(classes, gpu.environment) as jvm:
        jvm.driver("use")
        assert jvm.driver("temporaryBytes", ZSTD_FRAME, 1, 1, 1) == [NO_CODECS]
        assert jvm.driver("inflate", ZSTD_FRAME, *[0] * 9) == [NOT_THERE]
        assert jvm.explain(NOT_THERE) == "neither libnvcomp.so.6 nor libnvcomp.so.5 was found"
        assert jvm.driver("useCodecs", str(tmp_path / "nothing.so")) == [NOT_THERE]
        assert re.match(rf"no nvCOMP: {tmp_path}/nothing.so: cannot open", jvm.explain(NOT_THERE))
        compile_library(tmp_path / "libnvcomp.so.6", "-DNVCOMP=6")
        jvm.do("useCodecs", str(tmp_path / "libnvcomp.so.6"))
        assert jvm.driver("temporaryBytes", ZSTD_FRAME, 1, 10, 1) == [10]
        assert [jvm.driver("temporaryBytes", kind, 1, 10, 1) for kind in (-1, 0, 1, 6)] == [[NO_CODECS]] * 4


def test_nvcomp_itself_understands_what_it_is_asked(classes: Path) -> None:
    """It needs no GPU to say how much temporary memory it needs."""
    try:
        library = Library()
    except MissingError as error:
        pytest.skip(str(error))
    with running(classes, {}) as jvm:
        # There may be no driver.
        with suppress(Py4JJavaError):
            jvm.driver("use")
        jvm.do("useCodecs", library.loaded._name)
        for kind, count in product(NAMES, (1, 1000)):
            assert jvm.driver("temporaryBytes", kind, count, 65536, 65536 * count) == [
                library.temporary(None, kind, count, 65536, 65536 * count)
            ]
    assert library.temporary(None, ZSTD_FRAME, 1, 65536, 65536) > 0


def is_installed(library: str) -> bool:
    try:
        return bool(ctypes.CDLL(library))
    except OSError:
        return False


def test_where_it_cannot_be_used_the_error_says_why(classes: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    with running(classes, {}, f"-Djava.io.tmpdir={tmp_path / 'scratch'}") as jvm:
        system, arch = jvm.gateway.jvm.java.lang.System, os.uname().machine.replace("x86_64", "amd64")
        system.setProperty("os.arch", "riscv64")
        with pytest.raises(Py4JJavaError, match=r"IllegalStateException: decoding on a GPU .* is Linux on riscv64"):
            jvm.driver("use")
        system.setProperty("os.arch", arch)
        if not is_installed("libcuda.so.1"):
            for _ in range(2):
                with pytest.raises(Py4JJavaError, match=r"opening CUDA's driver: no CUDA driver: libcuda\.so\.1: cannot open shared"):
                    jvm.driver("use")
            assert jvm.driver("synchronize") == [NOT_THERE]
        assert not list((tmp_path / "scratch").iterdir())
    wrong = rf"could not be loaded from {tmp_path / 'nothing'} .*NoSuchFileException"
    with running(classes, {}, f"-Djava.io.tmpdir={tmp_path / 'nothing'}") as jvm, pytest.raises(Py4JJavaError, match=wrong):
        jvm.driver("use")


def test_a_driver_that_fails_or_is_too_old(classes: Path, tmp_path: Path) -> None:
    with OwnLibcuda(tmp_path) as gpu, running(classes, gpu.environment) as jvm:
        gpu.fail("cuInit", 100)
        with pytest.raises(Py4JJavaError, match=r"opening CUDA's driver: CUDA_ERROR_NO_DEVICE \(100\): no CUDA-capable device"):
            jvm.driver("use")
        gpu.fail("cuDevicePrimaryCtxRetain", OUT_OF_MEMORY)
        with pytest.raises(Py4JJavaError, match=r"using a GPU: CUDA_ERROR_OUT_OF_MEMORY"):
            jvm.driver("use")
        assert jvm.driver("use") == [None]
        assert jvm.driver("use") == [None]
        assert (gpu.asked["cuDevicePrimaryCtxRetain"], gpu.asked["cuCtxSetCurrent"]) == (2, 1)
    compile_library(tmp_path / "old" / "libcuda.so.1", "-DNVCOMP=5")
    wrong = r"libcuda\.so\.1 has no cuInit: its driver is too old"
    with running(classes, {"LD_LIBRARY_PATH": str(tmp_path / "old")}) as jvm, pytest.raises(Py4JJavaError, match=wrong):
        jvm.driver("use")


@dataclass
class Elf:
    """What a library of 64 bits says of itself, by its table of dynamic symbols."""

    machine: int
    needed: set[str]
    versions: set[str]
    functions: set[str]

    @classmethod
    def of(cls, data: bytes) -> "Elf":
        assert data[:6] == b"\x7fELF\x02\x01"
        (machine,), (start,) = struct.unpack_from("<H", data, 18), struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<2H", data, 58)
        sections = [struct.unpack_from("<2I4Q2I2Q", data, start + size * number) for number in range(count)]
        by_kind = {section[1]: section for section in sections}

        def text(section: Any, at: int) -> str:
            begin = sections[section[6]][4] + at
            return data[begin : data.index(b"\0", begin)].decode()

        dynamic, symbols = by_kind[6], by_kind[11]
        entries = struct.iter_unpack("<2Q", data[dynamic[4] : dynamic[4] + dynamic[5]])
        needed = {text(dynamic, value) for tag, value in entries if tag == 1}
        names = struct.iter_unpack("<IBBHQQ", data[symbols[4] : symbols[4] + symbols[5]])
        functions = {text(symbols, name) for name, _, _, where, _, _ in names if where}
        strings = sections[symbols[6]]
        versions = set(re.findall(r"GLIBC_[\d.]+", data[strings[4] : strings[4] + strings[5]].decode()))
        return cls(machine, needed, versions, functions)


def test_the_library_of_each_processor_needs_an_old_glibc_alone() -> None:
    with zipfile.ZipFile(connector_jar()) as jar:
        found = {processor: Elf.of(jar.read(f"kolumn/native/{processor}/libkolumn.so")) for processor in building.PROCESSORS}
    assert {processor: one.machine for processor, one in found.items()} == {"amd64": 62, "aarch64": 183}
    source = (building.JVM / "kolumn" / "Driver.java").read_text()
    methods = {f"Java_kolumn_Driver_{name}" for name in re.findall(r"static (?:synchronized )?native \w+ (\w+)\(", source)}
    assert len(methods) == 17
    for one in found.values():
        assert (one.functions, one.needed) == (methods, {"libc.so.6", "libdl.so.2"})
        assert max(tuple(map(int, version[6:].split("."))) for version in one.versions) <= (2, 17)


REFLECTED = [
    ("GpuSemaphore$", "releaseIfNecessary"), ("GpuSemaphore$", "acquireIfNecessary"), ("TaskRegistryTracker$", "withRmmPoolWait"),
]  # fmt: skip
"""Objects of RAPIDS that `GpuTurn` finds by their names, and their methods."""


def test_stand_ins_have_the_signatures_of_the_jar(classes: Path) -> None:
    try:
        jar = zipfile.ZipFile(rapids.find_jar())
    except MissingError as error:
        pytest.skip(str(error))
    own = set()
    with jar:
        names = set(jar.namelist())
        for path in sorted(classes.rglob("*.class")):
            name = path.relative_to(classes).as_posix()
            if not name.startswith(("ai/", "com/")):
                continue
            ours = ClassFile.of(path.read_bytes())
            if name not in names:
                own.add(name)
                continue
            real = ClassFile.of(jar.read(name))
            assert (name, ours.flags, ours.parent) == (name, real.flags, real.parent)
            assert ours.interfaces <= real.interfaces, name
            assert ours.members.items() <= real.members.items(), (name, ours.members.items() - real.members.items())
        for name, method in REFLECTED:
            members = ClassFile.of(jar.read(f"spark-shared/com/nvidia/spark/rapids/{name}.class")).members
            assert {"MODULE$", method} <= {str(one[0]) for one in members}, name
    assert own == {f"ai/rapids/cudf/{name}.class" for name in ("Column", "Column$Part", "StandIn", "View")}


def addresses(memories: list[JvmMemory]) -> Any:
    return np.array([one.address for one in memories])


@dataclass
class Shape:
    """A column of the stand-ins by its rows: it holds what it is made of until `close`."""

    jvm: Jvm
    closed: list[Any] = field(default_factory=list)
    memory: list[Any] = field(default_factory=list)

    def buffer(self, data: pa.Buffer | None) -> Any:
        """Memory with the bytes, or None."""
        if data is None:
            return None
        taken = self.jvm.cudf.DeviceMemoryBuffer.allocate(data.size + PAD)
        ctypes.memmove(taken.getAddress(), data.address, data.size)
        self.memory.append(taken)
        return taken

    def view(self, array: pa.Array) -> Any:
        """A view of an array that begins at its first row."""
        cudf, jvm, kind = self.jvm.cudf, self.jvm, array.type
        nulls, valid, rest = jvm.optional(array.null_count), self.buffer(array.buffers()[0]), array.buffers()[1:]
        if pa.types.is_struct(kind):
            found = cudf.ColumnView(jvm.kind("STRUCT"), len(array), nulls, valid, None, self.views(array.flatten()))
        elif pa.types.is_list(kind):
            found = cudf.ColumnView(jvm.kind("LIST"), len(array), nulls, valid, self.buffer(rest[0]), self.views([array.values]))
        elif pa.types.is_string(kind):
            data = self.buffer(rest[1] or pa.py_buffer(b""))
            found = cudf.ColumnView(jvm.kind("STRING"), len(array), nulls, data, valid, self.buffer(rest[0]))
        elif pa.types.is_decimal(kind):
            decimal = cudf.DType.create(cudf.DType.DTypeEnum.DECIMAL128, -kind.scale)
            found = cudf.ColumnView(decimal, len(array), nulls, self.buffer(rest[0]), valid)
        elif pa.types.is_boolean(kind):
            flags = self.buffer(pa.py_buffer(np.array(array.fill_null(False)).astype(np.uint8)))
            found = cudf.ColumnView(jvm.kind("BOOL8"), len(array), nulls, flags, valid)
        else:
            found = cudf.ColumnView(jvm.kind(str(kind).upper()), len(array), nulls, self.buffer(rest[0]), valid)
        self.closed.append(found)
        return found

    def views(self, arrays: list[pa.Array]) -> Any:
        """A Java array of their views."""
        found = self.jvm.gateway.new_array(self.jvm.cudf.ColumnView, len(arrays))
        for number, array in enumerate(arrays):
            found[number] = self.view(array)
        return found

    def close(self) -> None:
        for one in (*self.closed, *self.memory):
            one.close()


KIND = pa.struct(
    [
        ("number", pa.int64()), ("text", pa.string()), ("price", pa.decimal128(38, 2)), ("bytes", pa.list_(pa.uint8())),
        ("flag", pa.bool_()), ("inside", pa.struct([("list", pa.list_(pa.struct([("x", pa.int32())])))])),
    ]
)  # fmt: skip
ROWS: list[Any] = [
    {"number": 1, "text": "one", "price": Decimal("1.5"), "bytes": list(b"abc"), "flag": True,
     "inside": {"list": [{"x": 1}, None, {"x": None}]}},
    {"number": None, "text": None, "price": None, "bytes": None, "flag": None, "inside": None},
    {"number": -(2**63), "text": "", "price": Decimal(-1), "bytes": [], "flag": False, "inside": {"list": None}},
]  # fmt: skip


def test_concatenated_columns_are_those_of_arrow(jvm: Jvm) -> None:
    """Structs, with nulls in some of them, and as lists of them."""
    parts = [pa.array(ROWS[:1] * 9, KIND), pa.array([], KIND), pa.array([*ROWS, *ROWS], KIND)]
    shape, cudf = Shape(jvm), jvm.cudf
    joined = cudf.ColumnVector.concatenate(shape.views(parts))
    shape.closed.append(joined)
    assert arrow(jvm, joined, KIND).equals(pa.concat_arrays(parts))
    offsets = shape.view(pa.array([0, 9, 9, 15], pa.int32()))
    lists = joined.makeListFromOffsets(3, offsets)
    shape.closed.append(lists)
    assert arrow(jvm, lists, pa.list_(KIND)).to_pylist() == [part.to_pylist() for part in parts]
    with pytest.raises(Py4JJavaError, match="Concatenate requires 2 or more columns"):
        cudf.ColumnVector.concatenate(shape.views(parts[:1]))
    shape.close()


def test_no_memory_for_a_copy_leaves_nothing(jvm: Jvm, gpu: OwnLibcuda) -> None:
    shape = Shape(jvm)
    views, before = shape.views([pa.array(ROWS, KIND)] * 2), dict(gpu.live)
    for after in range(6):
        gpu.fail("allocate", OUT_OF_MEMORY, after)
        with pytest.raises(Py4JJavaError, match="OutOfMemoryError"):
            jvm.cudf.ColumnVector.concatenate(views)
        assert gpu.live == before
    shape.close()


def test_a_column_owns_its_buffers_and_not_its_childrens_views(jvm: Jvm, gpu: OwnLibcuda) -> None:
    shape, cudf = Shape(jvm), jvm.cudf
    child = shape.view(pa.array(ROWS, KIND))
    offsets = shape.buffer(pa.py_buffer(struct.pack("<2i", 0, 3)))
    handles = jvm.gateway.new_array(jvm.gateway.jvm.long, 1)
    handles[0] = child.getNativeView()
    whole = cudf.ColumnVector(jvm.kind("LIST"), 1, jvm.optional(0), None, None, offsets, shape.memory[:-1], handles)
    for one in shape.closed:
        one.close()
    assert arrow(jvm, whole, pa.list_(KIND)).to_pylist() == [ROWS]
    assert whole.incRefCount().getRefCount() == 2
    whole.close()
    assert gpu.live
    whole.close()
    assert (gpu.live, jvm.open_objects) == ({}, (0, 0, 0))
    with pytest.raises(Py4JJavaError, match="Close called too many times"):
        whole.close()


def test_buffers_last_as_long_as_their_slices(jvm: Jvm, gpu: OwnLibcuda) -> None:
    whole = jvm.cudf.DeviceMemoryBuffer.allocate(1000)
    part = whole.slice(512, 100)
    assert (part.getAddress() - whole.getAddress(), part.getLength(), whole.getRefCount()) == (512, 100, 2)
    whole.close()
    assert (list(gpu.live.values()), jvm.open_objects[0]) == ([1000], 2)
    with pytest.raises(Py4JJavaError, match="a slice of 101 bytes from 0 on"):
        part.slice(0, 101)
    part.close()
    assert gpu.live == {}


@pytest.mark.parametrize("width", [4, 8])
def test_sums_run_over_integers(jvm: Jvm, width: int) -> None:
    numbers = np.arange(-5, 995, dtype=f"i{width}") * 1000
    device = JvmDevice(jvm)
    memory = device.upload(numbers)
    device.running_sum(memory, len(numbers), width)
    assert device.download(memory, numbers.nbytes).view(numbers.dtype).tolist() == np.cumsum(numbers, dtype=numbers.dtype).tolist()


def test_stand_ins_refuse_what_libcudf_would(jvm: Jvm) -> None:
    shape, cudf = Shape(jvm), jvm.cudf
    text = pa.StringArray.from_buffers(2, pa.py_buffer(struct.pack("<3i", 0, 1, 2)), pa.py_buffer(b"ab"), pa.py_buffer(b"\x01"), 1)
    with pytest.raises(Py4JJavaError, match="AssertionError: Column has non-empty nulls"):
        shape.view(text)
    with pytest.raises(Py4JJavaError, match="data of 3 rows of INT64 expected, found null"):
        cudf.ColumnView(jvm.kind("INT64"), 3, jvm.optional(0), None, None)
    with pytest.raises(Py4JJavaError, match="1 nulls, and their bitmap is null"):
        cudf.ColumnView(jvm.kind("INT64"), 3, jvm.optional(1), shape.buffer(pa.py_buffer(bytes(24))), None)
    shape.close()
