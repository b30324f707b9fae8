"""A split on an executor's GPU, steered by the connector's worker: the rows, errors and counts of the worker that decodes on the CPU."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bench import gpu_model
from pyspark.sql.types import ArrayType, BinaryType, StructField, StructType

import kolumn
from kit.avro_values import encoded
from kit.corpus import HERE as CORPUS
from kit.corpus import cases
from kit.device_columns import as_type
from kit.emulated import Emulated, HostMemory, run_loops
from kit.encoder import Record, batch
from kit.executor import EVERY, Executor, FailureError, asked, mutants, on_cpu
from kit.fuzz import MUTANTS
from kolumn.core import recycle
from kolumn.kernels.values.uploaded import uploaded
from kolumn.spark_plugin.connector import resident
from kolumn.spark_plugin.connector.work import Work, packed
from kolumn.spark_plugin.read.schema import arrow_schema
from kolumn.spark_plugin.read.splits import Split


@pytest.fixture
def executor() -> Iterator[Executor]:
    HostMemory.overrun.clear()
    made = Executor(Emulated(run_loops))
    try:
        yield made
    finally:
        made.close()
        recycle.allocate_by(None)
        recycle.lock_by(None)
        recycle.share_locked(1)
    assert not HostMemory.overrun


def on_gpu(executor: Executor, split: Split, work: Work) -> tuple[pa.Table, dict[str, Any]] | str:
    try:
        batches, counted = executor.decode(packed(work), packed(split), arrow_schema(work.schema))
    except FailureError as error:
        return str(error).partition("\n\n")[0]
    return pa.Table.from_batches(batches), counted


def same(executor: Executor, split: Split, work: Work) -> Any:
    """Compare the two; returns what the CPU says."""
    one, other = on_cpu(split, work), on_gpu(executor, split, work)
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
        return one
    for name in one[0].column_names:
        # Lists with other borders of chunks are not always called equal.
        found, expected = (table[0][name].combine_chunks() for table in (other, one))
        assert found.equals(expected), (name, found, expected)
    assert {**other[1], "decodeMs": 0} == {**one[1], "decodeMs": 0}
    return one


READABLE = [case for case in cases() if case.segments]


@pytest.mark.parametrize("trusted", ["true", "false"])
def test_corpus(trusted: str, executor: Executor) -> None:
    rows = 0
    for case in READABLE[:: 1 if trusted == "true" else 3]:
        for options in ({"columns": EVERY, "includeControl": "true"}, {"errors": "skip"}):
            splits, work = asked(case.directory, trusted=trusted, **options)
            for split in splits:
                found = same(executor, split, work)
                rows += 0 if isinstance(found, str) else found[0].num_rows
    assert rows > 1000
    assert {"C", "U", "L", "R", "G", "B"} <= {*executor.frames}
    assert ("I" in executor.frames) == (trusted == "true")
    # While the CPU reads and decompresses, others may have the GPU.
    assert executor.frames["W"] > 50


@pytest.mark.parametrize(
    "options",
    [
        {"payload": "string", "columns": "headers,key,value"}, {"columns": "offset,topic,partition,segment,codec"},
        {"startOffset": "5", "endOffset": "40"}, {"isolationLevel": "read_committed", "columns": "offset,transaction,value"},
        {"checkCrcs": "false"}, {"startTimestamp": "1", "columns": "timestampMs,value,isControl,controlType", "includeControl": "true"},
        {"splitBytes": "2000"},
    ],
    ids=str,
)  # fmt: skip
def test_options(options: dict[str, str], executor: Executor) -> None:
    for case in READABLE[::2]:
        splits, work = asked(case.directory, **options)
        for split in splits[:20]:
            same(executor, split, work)


def test_members_that_nobody_asked_for_are_left_out(executor: Executor, tmp_path: Path) -> None:
    """With nested pruning Spark asks for some members of headers, in its own order."""
    headers: list[tuple[tuple[bytes, bytes | None], ...]] = [((b"a", b"1"), (b"b", None)), (), ((b"c", b""),)]
    (tmp_path / "0.log").write_bytes(batch([Record(i, None, b"v", 0, headers=one) for i, one in enumerate(headers)]))
    (split,), work = asked(tmp_path / "0.log", columns="headers,value")
    inner = StructType([StructField("value", BinaryType())])
    work = replace(work, schema=StructType([StructField("value", BinaryType()), StructField("headers", ArrayType(inner))]))
    found = same(executor, split, work)
    assert found[0].column("headers").to_pylist() == [[{"value": value} for _, value in one] for one in headers]


DECIMAL = {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "default": ""}


def test_names_that_are_not_text_are_javas(executor: Executor, tmp_path: Path) -> None:
    """Of headers; also where a word of eight bytes ends with them, and where only what lies after the last one is not ASCII."""
    for number, names in enumerate([[b"\xed\xa0\x80", b"a" * 8], [b"a" * 7 + b"\xc3"], [b"abc"], [b"", "äöü".encode()]]):
        path = tmp_path / f"{number}.log"
        path.write_bytes(batch([Record(0, None, b"\xff" * 16, 0, tuple((name, b"\xff") for name in names))]))
        (split,), work = asked(path, columns="headers,value")
        found = same(executor, split, work)
        assert [one["key"] for one in found[0].column("headers").to_pylist()[0]] == [name.decode("utf-8", "kolumn.java") for name in names]


OTHERS: list[dict[str, Any]] = [
    {"name": "e", "type": {"type": "enum", "name": "t.E", "symbols": ["x", "y"]}, "default": "x"},
    {"name": "f", "type": {"type": "fixed", "name": "t.F", "size": 2}, "default": "ab"},
]
INNER = [{"name": "x", "type": "long"}, {"name": "y", "type": "string"}]
AVRO: dict[str, Any] = {
    "type": "record", "name": "t.R", "fields": [
        {"name": "i", "type": "int"}, {"name": "s", "type": ["null", "string"]},
        {"name": "a", "type": {"type": "array", "items": "long"}},
        {"name": "r", "type": ["null", {"type": "record", "name": "t.S", "fields": INNER}]},
        {"name": "m", "type": {"type": "map", "values": "double"}},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Values of Avro, some of which are none, in several segments."""
    path, rng = tmp_path_factory.mktemp("typed") / "t-0", random.Random(1)
    values: list[bytes | None] = []
    for row in range(300):
        a, m = list(range(row % 4)), {f"k{k}": k / 2 for k in range(row % 3)}
        one = {"i": row, "s": rng.choice([None, "text"]), "a": a, "r": rng.choice([None, {"x": row, "y": "y"}]), "m": m}
        values.append(rng.choice([encoded(AVRO, one)] * 8 + [None, b"none"]))
    kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), path, batch_bytes=1000)
    return path


@pytest.mark.parametrize(
    ("options", "on_device"),
    [
        ({"valueFormat": "avro", "valueSchema": json.dumps(AVRO)}, True),
        ({"valueFormat": "avro", "valueSchema": json.dumps(AVRO), "valueAs": "columns", "columns": "offset,value,valueRaw"}, True),
        ({"valueFormat": "avro", "valueSchema": json.dumps({**AVRO, "fields": [*AVRO["fields"][:1], DECIMAL]})}, False),
        ({"valueFormat": "avro", "valueSchema": json.dumps({**AVRO, "fields": [*AVRO["fields"][:1], *OTHERS]})}, False),
        ({"valueFormat": "json", "valueSchema": '{"a": "int8", "b": "bool", "e": "date32"}'}, False),
        ({"valueFormat": "fixed", "valueSchema": '{"a": "uint16"}'}, False),
    ],
    ids=["avro", "fields", "decimal", "enum", "json", "fixed"],
)  # fmt: skip
def test_typed_values(options: dict[str, str], on_device: bool, typed: Path, executor: Executor) -> None:
    splits, work = asked(typed, **options)
    for split in splits:
        assert same(executor, split, work)[0].num_rows
    assert any(name in executor.device.launched for name in ("parse_values", "measure_values", "flat_values")) == on_device


def test_a_limit_ends_a_split(executor: Executor, tmp_path: Path) -> None:
    """A table has a chunk; Spark takes of the last one what it needs."""
    for number in range(4):
        (tmp_path / f"{1000 * number:020}.log").write_bytes(
            batch([Record(1000 * number + i, None, b"v", 0) for i in range(10)], base_offset=1000 * number)
        )
    (split,), work = asked(tmp_path, columns="offset")
    work = replace(work, limit=15)
    batches, counted = executor.decode(packed(work), packed(split), arrow_schema(work.schema))
    assert ([one.num_rows for one in batches], counted["records"]) == ([10, 10], 20)


def test_without_memory_that_both_map(tmp_path: Path) -> None:
    """Bytes go through the pipe."""
    executor = Executor(Emulated(run_loops), shared=False)
    values = [random.Random(i).randbytes(1000) for i in range(300)]
    kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), tmp_path / "t-0")
    (split,), work = asked(tmp_path / "t-0")
    same(executor, split, work)
    executor.close()
    assert executor.frames["U"] > 5
    assert not executor.frames["M"] + executor.frames["C"]


def test_nothing_is_a_table_without_rows(executor: Executor) -> None:
    _, work = asked(CORPUS / "v2-java" / "java-zstd-0", columns=EVERY)
    batches, _ = executor.decode(packed(work), packed(Split(())), arrow_schema(work.schema))
    assert [one.num_rows for one in batches] == [0]


def test_stopped_at_any_answer(executor: Executor) -> None:
    """The JVM has enough, or no memory: the worker ends, and the next split is read by the same one, whose blocks stay mapped."""
    (split,), work = asked(CORPUS / "v2-java" / "java-zstd-0", columns=EVERY)
    expected = on_gpu(executor, split, work)
    assert not isinstance(expected, str)
    before, asked_for = executor.frames["M"], sum(executor.frames[name] for name in "AGYTI")
    executor.frames.clear()
    for executor.stop_at in (*range(1, asked_for, 7), asked_for):
        executor.decode(packed(work), packed(split), arrow_schema(work.schema))
    executor.stop_at = -1
    again = on_gpu(executor, split, work)
    assert not isinstance(again, str)
    assert again[0].equals(expected[0])
    assert (before > 0, executor.frames["M"]) == (True, 0)


def test_what_a_chunk_asks_for(executor: Executor, tmp_path: Path) -> None:
    """Each answer, and each call of the driver, takes time in which a task does not copy: as many as the model of the bench says."""
    rows = 1_100_000
    values = pa.array([b"v" * 100], pa.binary()).take(pa.array(np.zeros(rows, np.int64)))
    kolumn.write(pa.table({"key": pa.array([b"key%08d" % i for i in range(rows)], pa.binary()), "value": values}), tmp_path / "t-0")
    (split,), work = asked(tmp_path / "t-0", columns="key,value,offset,timestamp", splitBytes=str(1 << 30))
    executor.decode(packed(work), packed(split), arrow_schema(work.schema))
    copies = executor.frames["C"] + executor.frames["U"]
    assert {**executor.device.asked, "uploads": copies} == gpu_model.EXECUTOR
    assert executor.frames["B"] == 1
    assert sum(executor.frames[name] for name in "AGY") == gpu_model.EXECUTOR["waits"] + gpu_model.EXECUTOR["allocations"]


def test_more_than_a_list_can_hold(executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the column and an option, which helps."""
    for number in range(8):
        data = batch([Record(10 * number + i, None, b"v" * 100, 0) for i in range(10)], base_offset=10 * number)
        (tmp_path / f"{10 * number:020}.log").write_bytes(data)
    monkeypatch.setattr(resident, "MOST", 2500)
    (split,), work = asked(tmp_path, columns="offset,value")
    found = on_gpu(executor, split, work)
    assert isinstance(found, str)
    assert "column 'value' of this split would have more than 2500 rows or bytes" in found
    assert "set the option splitBytes to a quarter of what it is" in found
    size = sum(part.end - part.start for part in split.ranges)
    for one in asked(tmp_path, columns="offset,value", splitBytes=str(size // 4))[0]:
        same(executor, one, work)


def test_no_nvcomp_on_the_machine_of_the_executor(executor: Executor) -> None:
    """The error says what to do: to install it, or to let the CPU decompress."""
    executor.temporary = -(2**63)
    (split,), work = asked(CORPUS / "v2-java" / "java-zstd-0", trusted="true")
    found = on_gpu(executor, split, work)
    assert isinstance(found, str)
    assert found.startswith("MissingError: nvCOMP was not found: pip install nvidia-libnvcomp-cu13 (on the machine of the executor")
    same(executor, split, asked(CORPUS / "v2-java" / "java-zstd-0", trusted="false")[1])


def test_mutants(executor: Executor, tmp_path: Path) -> None:
    """Of the shipped formats and the drafts: rows, errors and counts."""
    found = [isinstance(same(executor, *one), str) for one in mutants(tmp_path, max(100, MUTANTS // 100))]
    assert sum(found) > len(found) // 10 > 5
    assert executor.frames["X"] == sum(found)


def test_types_of_columns() -> None:
    """What the host decodes goes to the device as it is."""
    device: Any = Emulated(run_loops)
    rows: list[Any] = [1, None, 3]
    for type_ in (pa.int8(), pa.int64(), pa.uint16(), pa.float64(), pa.date32(), pa.timestamp("us", "UTC"), pa.decimal128(30, 2)):
        column = pa.array(rows, pa.int64()).cast(pa.int32() if type_ == pa.date32() else type_).cast(type_)
        found = uploaded(device, column)
        assert as_type(found, type_).equals(column), type_
    for digits, width in ((9, np.int32), (18, np.int64)):
        decimals = uploaded(device, pa.array([-1, None, 10**7], pa.decimal128(digits, 0)), narrow=True)
        held: Any = decimals.data
        assert held.bytes.view(width)[[0, 2]].tolist() == [-1, 10**7]
    nested = pa.map_(pa.string(), pa.list_(pa.struct([("b", pa.bool_()), ("v", pa.binary())])))
    column = pa.array([[("k", [{"b": True, "v": b"x"}, None]), ("l", None)], None, []], nested)
    for one in (column, column[:0]):
        found = uploaded(device, one)
        assert as_type(found, nested).equals(one)
    with pytest.raises(kolumn.ArgumentError, match="month_day_nano_interval"):
        uploaded(device, pa.array([None], pa.month_day_nano_interval()))
