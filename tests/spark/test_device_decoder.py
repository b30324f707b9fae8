"""What a JVM does on its GPU when a worker says so, by stand-ins for RAPIDS' classes and for CUDA's driver. The worker is a script."""

import os
import struct
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from kit import device_columns, scripted_worker
from kit.decode_calls import Calls, as_column, running
from kit.own_libcuda import LAUNCH_FAILED, OUT_OF_MEMORY, PROCESSORS, OwnLibcuda
from kit.plain_spark import soon
from kit.scripted_worker import Jvm, block, kept

pytestmark = pytest.mark.timeout(120)
FIELDS: dict[str, tuple[list[Any], pa.DataType, str]] = {
    "bool": ([True, None, False, True], pa.bool_(), "BOOL8"),
    "int8": ([-128, 127, None, 1], pa.int8(), "INT8"),
    "int16": ([-1, 2, 3, None], pa.int16(), "INT16"),
    "int32": ([1, 2, 3, 4], pa.int32(), "INT32"),
    "int64": ([1 << 60, None, -3, 4], pa.int64(), "INT64"),
    "uint8": ([1, 255, 3, 4], pa.uint8(), "UINT8"),
    "float32": ([1.5, None, -2.5, 0.0], pa.float32(), "FLOAT32"),
    "float64": ([1e300, 2.0, None, 4.0], pa.float64(), "FLOAT64"),
    "timestamp": ([1, 2, None, 1 << 50], pa.timestamp("us", "UTC"), "TIMESTAMP_MICROSECONDS"),
    "date": ([1, None, 3, 40000], pa.date32(), "TIMESTAMP_DAYS"),
    "decimal32": ([Decimal("1.23"), None, Decimal("-9.99"), Decimal("0.01")], pa.decimal32(5, 2), "DECIMAL32 scale:-2"),
    "decimal64": ([Decimal("1.234"), None, Decimal("-9.999"), Decimal("0.001")], pa.decimal64(12, 3), "DECIMAL64 scale:-3"),
    "decimal128": ([Decimal("1.2345"), None, Decimal("-9.9999"), Decimal("1e20")], pa.decimal128(38, 4), "DECIMAL128 scale:-4"),
    "string": (["", "é", None, "abc"], pa.string(), "STRING"),
    "empty": (["", "", "", ""], pa.string(), "STRING"),
    "bytes": ([b"\0\xff", None, b"", b"xyz"], pa.binary(), "LIST"),
    "list": ([[1, None], [], None, [4]], pa.list_(pa.int64()), "LIST"),
    "headers": (
        [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], [], None, [{"key": "", "value": b""}]],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        "LIST",
    ),
    "struct": ([{"x": 1, "y": "a"}, None, {"x": None, "y": ""}, {"x": 4}], pa.struct({"x": pa.int8(), "y": pa.string()}), "STRUCT"),
    "nulls": ([None] * 4, pa.string(), "STRING"),
}  # fmt: skip


def rows(start: int = 0, stop: int = 4) -> pa.RecordBatch:
    """Rows of all kinds of columns."""
    return pa.RecordBatch.from_pydict({name: pa.array(values[start:stop], kind) for name, (values, kind, _) in FIELDS.items()})


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnLibcuda]:
    with OwnLibcuda(tmp_path_factory.mktemp("libraries")) as found:
        yield found


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory, gpu: OwnLibcuda) -> Iterator[Calls]:
    folder = tmp_path_factory.mktemp("decoder")
    python = folder / "python"
    # The connector starts it as: python -P -m MODULE.
    python.write_text(f"#!/bin/sh\nexec {sys.executable} {scripted_worker.__file__}\n")
    python.chmod(0o755)
    with running(folder, python, gpu) as found:
        yield found


def struct_of(found: Any, split: int = 0) -> pa.RecordBatch:
    """The records of a split as Arrow sees them."""
    column = found["column"]
    (items,) = column["children"]
    ends = np.frombuffer(bytes.fromhex(column["offsets"]), np.int32)
    kinds = [kind for _, kind, _ in FIELDS.values()]
    arrays = [device_columns.as_type(as_column(child), kind) for child, kind in zip(items["children"], kinds, strict=True)]
    whole = pa.RecordBatch.from_arrays(arrays, names=list(FIELDS))
    whole.validate(full=True)
    return whole.slice(ends[split], ends[split + 1] - ends[split]) if len(ends) else whole


def batches(*given: pa.RecordBatch) -> dict[str, Any]:
    """For `tables`."""
    return {"batches": [one.serialize().to_pybytes() for one in given], "schema": given[0].schema.serialize().to_pybytes()}


def tables(jvm: Jvm) -> None:
    schema = pa.ipc.read_schema(pa.py_buffer(jvm.given["schema"]))
    for one in jvm.given["batches"]:
        jvm.table(pa.ipc.read_record_batch(pa.py_buffer(one), schema))
    jvm.end(tables=len(jvm.given["batches"]))


def test_each_kind_of_column_comes_out_as_it_was_sent(calls: Calls) -> None:
    found = calls.fine(tables, given=batches(rows()))
    assert struct_of(found).to_pylist() == rows().to_pylist()
    assert [one["type"] for one in found["column"]["children"][0]["children"]] == [type_ for _, _, type_ in FIELDS.values()]
    assert (found["column"]["type"], found["column"]["rows"], found["metrics"]) == ("LIST", 1, [{"tables": 1}])


def test_tables_follow_each_other_in_the_row_of_their_split(calls: Calls) -> None:
    first, second, third = rows(0, 3), rows(0, 0), rows(2, 4)
    found = calls.fine(tables, given=batches(first, second, third))
    assert struct_of(found).to_pylist() == first.to_pylist() + third.to_pylist()
    found = calls.fine(tables, tables, given=batches(first, third))
    assert [struct_of(found, split).to_pylist() for split in range(2)] == [first.to_pylist() + third.to_pylist()] * 2
    assert (found["column"]["rows"], found["metrics"]) == (2, [{"tables": 2}] * 2)


def test_a_table_without_records_costs_no_copy_of_the_others(calls: Calls) -> None:
    alone = calls.fine(tables, given=batches(rows()))
    found = calls.fine(tables, given=batches(rows(0, 0), rows(), rows(0, 0)))
    assert struct_of(found).to_pylist() == rows().to_pylist()
    empty = calls.fine(tables, given=batches(rows(0, 0)))
    # The last allocation is that of the list's offsets.
    assert found["allocations"] - 1 == alone["allocations"] - 1 + 2 * (empty["allocations"] - 1)


def test_splits_without_records_have_their_types(calls: Calls) -> None:
    for count, given in ((1, [rows(0, 0)]), (2, [rows(0, 0)]), (1, [rows(0, 0), rows(0, 0)])):
        found = calls.fine(*[tables] * count, given=batches(*given))
        assert [struct_of(found, split).num_rows for split in range(count)] == [0] * count
        assert found["column"]["rows"] == count
    found = calls.fine(tables, given=batches(rows(0, 0)), splits=[])
    assert (found["column"]["rows"], struct_of(found).num_rows) == (0, 0)
    found = calls(tables, given=batches(rows()), splits=[])
    assert "0 splits have 4 records" in found["error"]


def every_command(jvm: Jvm) -> None:
    # More than there is room for at a time.
    big, packed = bytes(range(256)) * 40000, jvm.given["packed"]
    memory = jvm.allocate(len(big) + 100, zeros=True)
    assert jvm.download((memory, 300), (memory + len(big), 100)) == bytes(400)
    jvm.upload(memory, big)
    jvm.upload(memory + len(big), b"after it")
    assert jvm.download((memory + 1, len(big) - 1), (memory, 0), (memory + len(big), 100)) == big[1:] + b"after it" + bytes(92)
    number, descriptor = block(b"0123456789")
    jvm.map(number, descriptor, 10)
    jvm.copy(memory + 2, number, 3, 7)
    jvm.wait()
    assert jvm.download((memory, 10)) == b"\0\x013456789\x09"
    # It is the same memory, so what is written there is copied without more ado.
    os.pwrite(descriptor, b"abc", 3)
    jvm.copy(memory, number, 3, 3)
    assert jvm.download((memory, 3)) == b"abc"
    jvm.drop(number)
    for width, kind in ((4, "i"), (8, "q")):
        numbers = [5, -1, 1 << 20, 7]
        jvm.upload(memory, struct.pack(f"<4{kind}", *numbers))
        jvm.running_sum(memory, 4, width)
        jvm.running_sum(memory, 0, width)
        assert struct.unpack(f"<4{kind}", jvm.download((memory, 4 * width))) == (5, 4, 4 + (1 << 20), 11 + (1 << 20))
    other = jvm.allocate(1)
    jvm.free(other)
    jvm.kernel(7, "kolumn_microseconds", b"// kolumn_microseconds")
    jvm.upload(memory, struct.pack("<3q", 5, -1, 7))
    jvm.launch(7, 1, 256, 3, memory, memory + 256, memory + 512)
    assert struct.unpack("<3q3i", jvm.download((memory + 256, 24), (memory + 512, 12))) == (5000, 0, 7000, 0, -1, 0)
    # nvCOMP: a block of zstd, where it is, its bytes, the room for it, what came out, its target and its status.
    jvm.codecs("a path that is not needed")
    jvm.upload(memory, struct.pack("<8q", memory + 512, len(packed), 100, 0, memory + 1024, 0, 0, 0))
    jvm.upload(memory + 512, packed)
    temporary = jvm.temporary(5, 1, 100, 100)
    room = jvm.allocate(temporary)
    places = (memory, memory + 8, memory + 16, memory + 24)
    assert jvm.inflate(5, 1, *places, room, temporary, memory + 32, memory + 40) == 0
    assert jvm.download((memory + 24, 8), (memory + 40, 4), (memory + 1024, 100)) == struct.pack("<qi", 100, 0) + b"z" * 100
    names = ("op", "shared", "gpus", "partition", "arch", "multiprocessors", "memory")
    jvm.table(pa.record_batch({"x": pa.array([1, 2])}))
    jvm.end(question={name: jvm.question[name] for name in names})


PACKED = {"packed": zstandard.compress(b"z" * 100)}


def test_each_command_does_what_it_says(calls: Calls) -> None:
    found = calls.fine(every_command, given=PACKED, shared=False)
    (metrics,) = found["metrics"]
    assert metrics["question"] == {
        "op": "decode", "shared": False, "gpus": [], "partition": 0, "arch": 90, "multiprocessors": PROCESSORS, "memory": 8 << 30
    }  # fmt: skip


def small(jvm: Jvm) -> None:
    jvm.table(pa.record_batch({"x": pa.array([1, 2])}))
    jvm.end(pid=os.getpid())


@pytest.mark.slow
def test_what_rapids_throws_is_thrown_on_at_each_allocation(calls: Calls) -> None:
    both = [rows(0, 3), rows(2, 4)]
    whole = calls.fine(tables, tables, given=batches(*both))
    for at in range(whole["allocations"]):
        found = calls(tables, tables, given=batches(*both), failAllocation=at)
        assert found["isRetry"], (at, found["error"])
    # The worker was told each time, and is the same one still.
    (before, after) = (calls.fine(small)["metrics"] for _ in range(2))
    assert before == after


def launches_nothing(jvm: Jvm) -> None:
    jvm.kernel(1, "kernel", jvm.given["image"])
    memory = jvm.allocate(100)
    jvm.launch(jvm.given["launched"], 1, 32, memory, 5)
    # It has not heard of the failure yet.
    number, descriptor = block(b"0123456789")
    kept["block"] = number
    jvm.map(number, descriptor, 10)
    jvm.upload(memory, bytes(5 << 20))
    jvm.free(memory)
    jvm.wait()
    raise AssertionError("it goes on after a failure")


def uses_the_block(jvm: Jvm) -> None:
    memory = jvm.allocate(100)
    jvm.copy(memory, kept["block"], 4, 6)
    found = jvm.download((memory, 6)).decode()
    jvm.table(pa.record_batch({"x": pa.array([1, 2])}))
    jvm.end(found=found)


def test_a_kernel_is_loaded_once_for_all_workers(calls: Calls, gpu: OwnLibcuda) -> None:
    calls.fine(all_steps)
    before = gpu.asked.copy()
    calls.end_workers()
    calls.fine(all_steps)
    made = gpu.asked - before
    assert (made["cuModuleLoadData"], made["launched microseconds"]) == (0, 1)


@pytest.mark.parametrize(
    ("image", "launched", "error"),
    [
        (b"no code", 1, "loading the kernel kernel: CUDA_ERROR_INVALID_IMAGE (200)"),
        (b"// nothing of that name", 1, "finding the kernel kernel: CUDA_ERROR_NOT_FOUND (500)"),
        (b"// kernel", 2, "launches a kernel that it did not send: 2"),
    ],
)
def test_a_kernel_that_fails_stops_the_worker_where_it_asks(calls: Calls, image: bytes, launched: int, error: str) -> None:
    found = calls(launches_nothing, given={"image": image, "launched": launched})
    assert error in found["error"]
    # What it said meanwhile of its memory holds.
    assert calls.fine(uses_the_block)["metrics"] == [{"found": "456789"}]


def all_steps(jvm: Jvm) -> None:
    memory = jvm.allocate(1024, zeros=True)
    number, descriptor = block(b"0123456789")
    jvm.map(number, descriptor, 10)
    jvm.copy(memory, number, 0, 10)
    jvm.upload(memory + 256, struct.pack("<3q", 5, -1, 7))
    jvm.running_sum(memory + 256, 3, 8)
    jvm.kernel(8, "kolumn_microseconds", b"// kolumn_microseconds")
    jvm.launch(8, 1, 256, 3, memory + 256, memory + 512, memory + 768)
    jvm.wait()
    assert jvm.download((memory, 10), (memory + 512, 24)) == b"0123456789" + struct.pack("<3q", 5000, 4000, 11000)
    jvm.drop(number)
    jvm.table(pa.record_batch({"x": pa.array([1, 2])}))
    jvm.table(pa.record_batch({"x": pa.array([1, 2])}))
    jvm.end(pid=os.getpid())


def test_each_call_of_the_driver_may_fail(calls: Calls, gpu: OwnLibcuda) -> None:
    before = gpu.asked.copy()
    pid = calls.fine(all_steps)["metrics"]
    made = gpu.asked - before
    assert {"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemsetD8Async", "cuLaunchKernel"} < made.keys()
    for call in made.keys() - {"free", "launched microseconds", "cuMemHostUnregister", "cuCtxSetCurrent", "cuDevicePrimaryCtxRetain"}:
        for at in range(made[call]):
            gpu.fail(call, OUT_OF_MEMORY if call == "allocate" else LAUNCH_FAILED, at)
            found = calls(all_steps)
            if call == "cuMemHostRegister_v2":
                # Then copies take the way that they take without.
                assert found["metrics"] == pid
            else:
                expected = "OutOfMemoryError" if call == "allocate" else "CUDA_ERROR_LAUNCH_FAILED (719)"
                assert expected in found["error"], (call, at, found)
    assert calls.fine(all_steps)["metrics"] == pid


def fails(jvm: Jvm) -> None:
    jvm.allocate(100)
    jvm.table(pa.record_batch({"x": pa.array([1, 2])}))
    jvm.fail("kolumn: no such log")


@pytest.mark.slow
def test_tasks_of_a_process_decode_at_the_same_time(calls: Calls, gpu: OwnLibcuda) -> None:
    calls.end_workers()
    found = calls.fine(all_steps, all_steps, threads=4)
    all_of_them = [found, *found["others"]]
    assert [one["column"] for one in all_of_them] == [found["column"]] * 4
    # A worker has one task at a time, and other tasks of its own.
    assert len({one["metrics"][0]["pid"] for one in all_of_them}) > 1


def test_an_error_of_the_worker_is_sparks(calls: Calls) -> None:
    before = calls.fine(small)["metrics"]
    found = calls(fails)
    assert found["error"].startswith("org.apache.spark.SparkRuntimeException: [PYTHON_DATA_SOURCE_ERROR]")
    assert "kolumn: no such log" in found["error"]
    assert (calls.fine(small)["metrics"], found["metrics"]) == (before, [])


def dies(jvm: Jvm) -> None:
    import signal

    jvm.copy_from_a_block()
    jvm.say(jvm.given["said"])
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("said", [b"", b"U\0\0\1\0", b"A\x40\0\0\0"])
def test_a_worker_that_dies_leaves_nothing(calls: Calls, gpu: OwnLibcuda, said: bytes) -> None:
    """Of what it has announced only what came was taken memory for: a gigabyte is more than this JVM has."""
    calls.end_workers()
    found = calls(dies, given={"said": said})
    assert "ended with exit code 137 (killed: perhaps its machine or container ran out of memory)" in found["error"]
    assert gpu.locked == {}
    calls.fine(small)


def dies_when_asked_again(jvm: Jvm) -> None:
    if kept.setdefault("asked", os.getpid()) and kept.get("again"):
        sys.exit(3)
    kept["again"] = True
    jvm.table(pa.record_batch({"x": pa.array([1, 2])}))
    jvm.end(pid=os.getpid())


@pytest.mark.slow
def test_another_worker_is_asked_if_an_idle_one_had_died(calls: Calls) -> None:
    calls.end_workers()
    (first, second) = (calls.fine(dies_when_asked_again)["metrics"] for _ in range(2))
    assert first != second


def sleeps(jvm: Jvm) -> None:
    import time

    jvm.copy_from_a_block()
    time.sleep(60)


@pytest.mark.slow
def test_a_task_that_is_cancelled_leaves_nothing(calls: Calls, gpu: OwnLibcuda) -> None:
    calls.end_workers()
    calls.fine(small)
    start = time.monotonic()
    found = calls(sleeps, interruptMs=500)
    assert time.monotonic() - start < 30
    assert "UncheckedIOException: java.nio.channels.ClosedByInterruptException" in found["error"]
    assert gpu.locked == {}
    calls.fine(small)


@pytest.mark.slow
def test_a_worker_that_hangs_is_killed_when_its_task_is_or_its_time_is_over(calls: Calls, gpu: OwnLibcuda) -> None:
    calls.end_workers()
    start = time.monotonic()
    assert "TaskKilledException" in calls(sleeps, killMs=500)["error"]
    calls.ask({"conf": {"timeoutSeconds": 1}})
    found = calls(sleeps)
    calls.ask({"conf": {"timeoutSeconds": 600}})
    assert time.monotonic() - start < 30
    assert "did not answer within 1 s, so it was killed" in found["error"]
    assert "larger spark.kolumn.worker.timeoutSeconds" in found["error"]
    assert gpu.locked == {}
    calls.fine(small)


def tells_of_memory(jvm: Jvm) -> None:
    jvm.table(pa.record_batch({"x": pa.array([1, 2])}))
    jvm.end(shared=jvm.question["shared"], processes=[os.getpid(), os.getppid()])


_STARTER = """
import os, subprocess, sys
print("a program that starts a worker greets first")
sys.stdout.flush()
for _ in range(3):
    os.write({make}, b"not the secret: " * 300)
sys.exit(subprocess.run([sys.executable, *sys.argv[1:]]).returncode)
"""


@pytest.mark.parametrize("make", ["os.memfd_create('kolumn')", "os.open('other', os.O_CREAT | os.O_RDWR)"])
def test_memory_of_another_process_is_not_taken_for_a_workers(calls: Calls, tmp_path: Path, make: str) -> None:
    """A program may start the worker, print, and wait for it: files that it has by the same numbers are none of the worker's blocks."""
    (tmp_path / "starter.py").write_text(_STARTER.format(make=make.replace("other", f"{tmp_path}/other")))
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path}/starter.py {scripted_worker.__file__}\n")
    python.chmod(0o755)
    assert calls.fine(tells_of_memory)["metrics"][0]["shared"] is True
    (found,) = calls.fine(tells_of_memory, python=str(python))["metrics"]
    assert found["shared"] is False
    calls.end_workers()
    commands = [Path("/proc", str(pid), "cmdline") for pid in found["processes"]]
    assert soon(lambda: not any(path.exists() and path.read_bytes() for path in commands))


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("/bin/false", "ended with exit code 1 at its start: are Kolumn, pyspark and pandas installed"),
        ("yes", "does not say what a worker says: is it a Python?"),
        ("kill -9 $$", "ended with exit code 137 at its start (killed"),
        ("/nowhere/python", "exit code 127"),
    ],
)
def test_a_program_that_is_no_worker(calls: Calls, tmp_path: Path, program: str, told: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    assert told in calls(small, python=str(python))["error"]


def goes_on(jvm: Jvm) -> None:
    import time

    for _ in range(1000):
        jvm.free(jvm.allocate(100))
        time.sleep(0.05)


def test_a_task_that_is_killed_without_an_interrupt_ends_at_the_next_command(calls: Calls) -> None:
    before = calls.fine(small)["metrics"]
    found = calls(goes_on, killMs=200)
    assert "TaskKilledException" in found["error"]
    assert calls.fine(small)["metrics"] == before


def test_workers_that_end_unlock_their_memory(calls: Calls, gpu: OwnLibcuda) -> None:
    calls.end_workers()
    calls.fine(launches_and_keeps)
    # A block, and room for small copies.
    assert len(gpu.locked) == 2
    # The thread that unlocks them is none of a task: CUDA would give it the first GPU, RAPIDS may have another.
    assert "kolumn-workers" in calls.end_workers()
    assert gpu.locked == {}


def launches_and_keeps(jvm: Jvm) -> None:
    jvm.copy_from_a_block()
    jvm.end()


def test_the_gpu_is_for_others_until_memory_is_needed(calls: Calls) -> None:
    assert calls.fine(small, small)["turns"] == ["release", "acquire"]
    # Without records no memory is needed, and afterwards RAPIDS goes on with what it has.
    assert calls.fine(tables, given=batches(rows(0, 0)))["turns"] == ["release", "acquire"]
    assert calls(fails)["turns"] == ["release", "acquire"]


def works_meanwhile(jvm: Jvm) -> None:
    memory = jvm.allocate(100, zeros=True)
    jvm.rest()
    jvm.rest()
    jvm.download((memory, 4))
    jvm.rest()
    jvm.table(pa.record_batch({"x": pa.array([1, 2])}))
    jvm.end()


def test_the_gpu_is_for_others_while_a_worker_works(calls: Calls) -> None:
    found = calls.fine(works_meanwhile)
    # While it waits for the first command, and for the one after each rest, RAPIDS knows that it goes on with nothing.
    assert (found["turns"], found["waits"]) == (["release", "acquire"] * 3, 4)


def test_rapids_says_that_nothing_works_any_more(calls: Calls) -> None:
    """As the cause, by which it ends the executor."""
    found = calls(launches_nothing, given={"image": b"no code", "launched": 1}, fatal="an illegal memory access was encountered")
    assert "CUDA_ERROR_INVALID_IMAGE" in found["error"]
    assert ["an illegal memory access was encountered" in cause for cause in found["causes"]] == [True]
    assert "causes" not in calls(launches_nothing, given={"image": b"no code", "launched": 1})


def wrong(jvm: Jvm) -> None:
    memory = jvm.allocate(128)
    number, descriptor = block(b"0123456789")
    jvm.map(number, descriptor, 10)
    jvm.map(100, 12345, 10)
    jvm.map(101, descriptor, 11)
    one, step = jvm.described("int8", 1, b"1"), jvm.given["step"]
    columns = {
        "kind": jvm.described("int7", 1, b"1"),
        "bytes": jvm.described("int64", 2, b"12345678"),
        "nulls": jvm.described("int8", 2, b"12", nulls=1),
        "children": jvm.described("int8", 1, b"1", children=[one]),
        "offsets": jvm.described("string", 2, b"12", children=[jvm.integers(None, 2)]),
        "rows": jvm.described("struct", 2, None, children=[one]),
        "member": one,
        "short": jvm.described("int8", 2, b"12")[:-1],
    }
    steps = {
        "free": lambda: jvm.free(memory + 1),
        "upload": lambda: jvm.upload(memory + 1, bytes(128)),
        "before": lambda: jvm.upload(memory - 1, b"1"),
        "copy": lambda: jvm.copy(memory, number, 1, 10),
        "block": lambda: jvm.copy(memory, 99, 0, 10),
        "mapped": lambda: jvm.copy(memory, 100, 0, 10),
        "long": lambda: jvm.copy(memory, 101, 0, 10),
        "download": lambda: jvm.download((memory, 4), (memory, 129)),
        "pieces": lambda: jvm.frame("G", struct.pack(">iqq", 2, memory, 4)),
        "sum": lambda: jvm.running_sum(memory, 17, 8),
        "width": lambda: jvm.running_sum(memory, 1, 2),
        "size": lambda: jvm.allocate(0),
        "truncated": lambda: jvm.frame("F", b"123"),
    }
    if step in steps:
        steps[step]()
    else:
        jvm.frame("B", struct.pack(">ii", 2, 1) + columns[step])
    if step == "pieces":
        jvm.answer(0)
    jvm.wait()


def without_a_table(jvm: Jvm) -> None:
    jvm.end()


def test_a_split_has_a_table(calls: Calls) -> None:
    before = calls.fine(small)["metrics"]
    assert "a worker ends without a table" in calls(without_a_table)["error"]
    assert calls.fine(small)["metrics"] == before


def makes_no_sense(jvm: Jvm) -> None:
    if jvm.given["later"]:
        jvm.launch(99, 1, 1)
        jvm.frame("K", b"1")
    else:
        jvm.frame("?", b"1")
    jvm.wait()


@pytest.mark.slow
@pytest.mark.parametrize("later", [False, True])
def test_a_worker_that_makes_no_sense_is_ended(calls: Calls, later: bool) -> None:
    before = calls.fine(small)["metrics"]
    found = calls(makes_no_sense, given={"later": later})
    assert "that it did not send: 99" in found["error"] if later else "a command 63 of 1 bytes is none" in found["causes"][-1]
    assert calls.fine(small)["metrics"] != before


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("free", "names device memory that it does not have: 0 bytes at"),
        ("upload", "names device memory that it does not have: 128 bytes at"),
        ("before", "names device memory that it does not have: 1 bytes at"),
        ("copy", "a copy names memory that there is not: 10 bytes from 1 of block"),
        ("block", "a copy names memory that there is not: 10 bytes from 0 of block 99"),
        ("mapped", "cannot be mapped: java.nio.file.NoSuchFileException"),
        ("long", "11 bytes of a block of 10 cannot be mapped"),
        ("download", "names device memory that it does not have: 129 bytes at"),
        ("pieces", "asks for 2 pieces of memory and names 1"),
        ("sum", "names device memory that it does not have: 136 bytes at"),
        ("width", "a running sum of 1 integers of 2 bytes"),
        ("size", "memory of 0 bytes is asked for"),
        ("truncated", "BufferUnderflowException"),
        ("kind", "a column of an unknown kind: int7"),
        ("bytes", "a column of 2 rows has 8 bytes: int64"),
        ("nulls", "a column of 2 rows, 1 of them null: int8"),
        ("children", "children of a column without: 1 instead of 0"),
        ("offsets", "2 rows come with 2 offsets of type int32"),
        ("rows", "rows of a member: 1 instead of 2"),
        ("member", "rows of a member: 1 instead of 2"),
        ("short", "BufferUnderflowException"),
    ],
)
def test_what_cannot_be_done_is_an_error_and_the_worker_goes_on(calls: Calls, step: str, error: str) -> None:
    before = calls.fine(small)["metrics"]
    found = calls(wrong, given={"step": step})
    assert error in found["error"], found["error"]
    assert calls.fine(small)["metrics"] == before
