"""The parts of the connector's Python side: ranges of comparisons, totals of headers, estimates, and batches in shared memory."""

import gc
import json
import os
import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kolumn
from kit.corpus import HERE as CORPUS
from kit.corpus import cases
from kolumn.core import recycle
from kolumn.decode.pipeline import scan_ranges
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.source.segments import Range, Segment
from kolumn.spark_plugin.connector.conditions import boxes, is_decided, is_useful
from kolumn.spark_plugin.connector.questions import answer
from kolumn.spark_plugin.connector.shared import SharedBlocks, can_describe, from_start
from kolumn.spark_plugin.connector.statistics import COUNT, FIRST, LAST, NEWEST, estimate, tells, totals_of
from kolumn.spark_plugin.connector.work import Work, are_ordered, ascending, by_partition, places, unpacked
from kolumn.spark_plugin.connector.worker import CONSTANT
from kolumn.spark_plugin.read.options import LoadOptions
from kolumn.spark_plugin.read.splits import Split, plan_splits

TOPIC = CORPUS / "v2-java" / "java-zstd-0"
KEYS: Any = {("a", 0): 1, ("a", 1): 2, ("b", 0): 3, (None, None): 4}
COLUMNS = ("topic", "partition", "offset", "timestamp", "value")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ([">", "offset", 5], (6, None, None, None)),
        (["AND", [">=", "offset", 5], ["<", "offset", 9]], (5, 9, None, None)),
        (["AND", ["<=", "offset", 9], ["IN", "offset", [7, None, 3]]], (3, 8, None, None)),
        (["=", "offset", 2**63 - 1], (2**63 - 1, None, None, None)),
        (["AND", [">", "offset", 2**63 - 1], ["<", "offset", -5]], None),
        # Microseconds become milliseconds, outwards: records have whole milliseconds.
        (["AND", [">", "timestamp", 1_500], ["<", "timestamp", 3_000]], (None, None, 1, 3)),
        (["AND", [">=", "timestamp", 2_000], ["<=", "timestamp", 3_000]], (None, None, 2, 4)),
        (["<", "timestamp", 3_001], (None, None, None, 4)),
        (["OR", ["<", "offset", 3], ["=", "offset", 8]], (None, 9, None, None)),
        (["OR", ["<", "offset", 3], [">", "timestamp", 3_000]], (None, None, None, None)),
        (["NOT", ["OR", ["<", "offset", 3], [">=", "offset", 9]]], (3, 9, None, None)),
        (["AND", ["?"], ["<", "offset", 3]], (None, 3, None, None)),
        (["OR", ["?"], ["<", "offset", 3]], (None, None, None, None)),
        (["NOT", ["AND", ["?"], ["<", "offset", 3]]], (None, None, None, None)),
        (["OR", ["AND", ["=", "topic", "a"], ["<", "offset", 3]], ["AND", ["=", "topic", "b"], [">", "offset", 7]]], (None, 3, None, None)),
        (["<", "offset", None], None),
        (["<=>", "offset", 4], (4, 5, None, None)),
        (["<=>", "timestamp", None], (None, None, None, None)),
        (["NOT", ["IN", "offset", [1]]], (None, None, None, None)),
        (["IS_NULL", "timestamp"], (None, None, None, None)),
        (["ALWAYS_FALSE"], None),
    ],
)
def test_conditions_become_ranges(condition: Any, expected: tuple[int | None, ...] | None) -> None:
    found = boxes([condition], {("a", 0): 1}, COLUMNS)
    assert found == ({} if expected is None else {("a", 0): expected})


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (["=", "topic", "a"], [("a", 0), ("a", 1)]),
        (["IN", "partition", [1, 2]], [("a", 1)]),
        (["NOT", ["IN", "partition", [1, 2]]], [("a", 0), ("b", 0)]),
        # Null is neither in a list nor outside of it, and nothing is outside of a list with a null.
        (["NOT", ["IN", "partition", [1, None]]], []),
        (["IN", "partition", [1, None]], [("a", 1)]),
        (["<>", "topic", "a"], [("b", 0)]),
        (["IS_NULL", "topic"], [(None, None)]),
        (["NOT", ["IS_NULL", "topic"]], [("a", 0), ("a", 1), ("b", 0)]),
        (["<=>", "topic", None], [(None, None)]),
        (["NOT", ["<=>", "topic", "a"]], [("b", 0), (None, None)]),
        (["STARTS_WITH", "topic", "b"], [("b", 0)]),
        (["NOT", ["OR", ["ENDS_WITH", "topic", "b"], ["CONTAINS", "topic", "z"]]], [("a", 0), ("a", 1)]),
        (["AND", [">", "topic", "a"], ["<=", "partition", 0]], [("b", 0)]),
    ],
)
def test_topic_partitions_are_chosen(condition: Any, expected: list[Any]) -> None:
    assert is_decided(condition, COLUMNS)
    assert list(boxes([condition], KEYS, COLUMNS)) == expected


def test_what_conditions_say_of_other_columns() -> None:
    """A field of a value may have the name of a record column."""
    condition = ["AND", ["=", "topic", "a"], ["<", "offset", 3]]
    assert boxes([condition], KEYS, ("value",)) == dict.fromkeys(KEYS, (None,) * 4)
    assert (is_useful(condition, ("value",)), is_useful(condition, COLUMNS)) == (False, True)
    assert not is_decided(condition, COLUMNS)
    assert not is_decided(["=", "topic", "a"], ("value",))


@pytest.mark.parametrize("case", cases()[::4], ids=str)
def test_totals_of_headers_are_those_of_records(case: Any) -> None:
    options, every = Options.of(threads=1), frozenset({COUNT, FIRST, LAST, NEWEST})
    narrow = options.with_columns(["offset", "timestampMs"])
    for segment in live_segments(case.directory, options).one_log():
        records = pa.Table.from_batches(scan_ranges([Range.whole(segment)], narrow), narrow.schema)
        found, newest = totals_of(Range.whole(segment), options, every), pc.max(records["timestampMs"]).as_py()
        ends = pc.min_max(records["offset"]).as_py()
        assert (found.count, found.first, found.last) == (records.num_rows, ends["min"], ends["max"])
        assert found.newest_ms == (None if newest is None or newest < 0 else newest)


def test_when_headers_tell() -> None:
    others = ("checkCrcs=true", "startOffset=3", "isolationLevel=read_committed", "errors=skip", "endingTimestamp=5")
    for text in (f"path={TOPIC}", "includeControl=true", *others):
        options = LoadOptions.of({"path": str(TOPIC), **dict([text.split("=")])})
        assert tells(options) == (text not in others)


def test_an_estimate_is_of_decompressed_rows() -> None:
    """Too small a size would make Spark send the table to every executor."""
    options = Options.of(threads=1)
    ranges = [Range.whole(segment) for segment in live_segments(TOPIC, options).one_log()]
    table = kolumn.read(TOPIC, threads=1)
    found = estimate(ranges, options)
    assert 0.7 < found.rows / table.num_rows < 1.4
    assert 0.5 < found.bytes / table.nbytes < 2
    narrow = estimate(ranges, options.with_columns(["offset", "partition"]))
    assert narrow.bytes == 12 * narrow.rows
    assert estimate([], options).rows == 0


def question(**more: object) -> dict[str, object]:
    options = {"path": str(TOPIC)}
    schema = answer({"op": "schema", "options": options})["schema"]
    asked = {"type": "struct", "fields": [one for one in json.loads(str(schema))["fields"] if one["name"] in ("offset", "partition")]}
    plain = {"conditions": [], "found": [], "limit": -1, "totals": [], "slots": 2, "keyed": False, "mustBeKeyed": False}
    return {"op": "plan", "options": options, "schema": schema, "asked": json.dumps(asked), **plain, **more}


def test_a_plan_reads_the_columns_that_are_asked_for() -> None:
    found: Any = answer(question(conditions=[[">", "offset", 40]], found=[["<", "offset", 90]]))
    assert unpacked(found["work"], Work).options.decode.columns == ("partition", "offset")
    (split,) = (unpacked(text, Split) for text in found["splits"])
    assert list(split.bounds.values()) == [(41, 90)]
    # A condition and an option: the narrower counts.
    both = {"options": {"path": str(TOPIC), "startingOffsets": '{"java-zstd": {"0": 60}}'}}
    found = answer(question(conditions=[[">", "offset", 40]]) | both)
    assert [unpacked(text, Split).bounds for text in found["splits"]] == [{("java-zstd", 0): (60, None)}]

    def planned(**more: object) -> int:
        splits: Any = answer(question(**more))["splits"]
        return sum(one.end - one.start for text in splits for one in unpacked(text, Split).ranges)

    # A limit reads no more than headers say it needs.
    assert planned(limit=1) < planned() / 4
    assert planned(limit=10**9) == planned()


def test_whole_partitions_are_in_order(tmp_path: Path) -> None:
    options = LoadOptions.of({"path": str(TOPIC)})
    splits, keys = by_partition(plan_splits(options), 2, always=False)
    assert keys == [("java-zstd", 0)]
    assert are_ordered(splits, keys)
    assert not are_ordered(splits * 2, keys * 2)
    # Segments whose names do not say so, as copies may have.
    folder = tmp_path / TOPIC.name
    folder.mkdir()
    for base in (0, 10**6):
        shutil.copy(TOPIC / f"{0:020d}.log", folder / f"{base:020d}.log")
    splits, keys = by_partition([Split(tuple(Range.whole(one) for one in live_segments(folder, Options.of()).one_log()))], 2, always=False)
    assert keys is not None
    assert not are_ordered(splits, keys)
    assert ascending(np.array([3, 5]), 2) == 5
    for wrong, last in (([3, 3], 1), ([3, 4], 3)):
        with pytest.raises(kolumn.KolumnError, match="offsets do not ascend"):
            ascending(np.array(wrong), last)


def test_many_segments_are_cut_by_a_job_and_counted_by_several_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        shutil.copytree(TOPIC, tmp_path / f"t-{number}")
    counted = question(totals=["count"]) | {"options": {"path": str(tmp_path)}}
    found: Any = answer(counted)
    monkeypatch.setattr("kolumn.spark_plugin.connector.questions._FEW", 1)
    several: Any = answer(counted)
    assert (len(found["splits"]), sorted(len(unpacked(text, Split).ranges) for text in several["splits"])) == (1, [5, 5])
    asked = question() | {"options": {"path": str(tmp_path), "splitBytes": "50000"}}
    expected = answer(asked)
    for name, most in (("MANY", 5), ("_PIECE", 2)):
        monkeypatch.setattr(f"kolumn.spark_plugin.connector.work.{name}", most)
    job: Any = answer(asked)
    assert len(job["job"]) == -(-len(live_segments(tmp_path, Options.of()).one_log()) // 2)
    found = [answer({"op": "piece", "piece": one})["found"] for one in job["job"]]
    assert answer({**asked, "pieces": found}) == expected
    # A segment that came meanwhile is cut all the same.
    shutil.copytree(TOPIC, tmp_path / "t-5")
    more: Any = answer({**asked, "pieces": found})
    assert len({one.segment.partition for text in more["splits"] for one in unpacked(text, Split).ranges}) == 6


def test_ranges_in_hdfs_are_named() -> None:
    paths = ("hdfs://name:8020/kafka/a-0/0.log", "/kafka/a-0/0.log", "hdfs://name/kafka/a-0/0.log?user=secret")
    ranges = [Range(Segment(path, "a", 0, 0, 100), 10, 90) for path in paths]
    assert places([Split(()), Split((ranges[1],))]) is None
    assert places([Split((ranges[1],)), Split((ranges[0], ranges[2]))]) == [
        [],
        [("hdfs://name:8020/kafka/a-0/0.log", 10, 90), ("hdfs://name/kafka/a-0/0.log", 10, 90)],
    ]


def test_errors_are_answers() -> None:
    for asked, message in (({"options": {"path": str(TOPIC), "colums": "x"}}, "did you mean 'columns'"), ({}, "KeyError")):
        assert message in str(answer({"op": "schema", **asked})["error"])


@pytest.fixture
def blocks() -> Iterator[SharedBlocks]:
    made = SharedBlocks()
    made.use()
    yield made
    recycle.allocate_by(None)


class Mapped:
    """What the JVM does with a description: opens blocks by their descriptors, and puts the batch together."""

    def __init__(self) -> None:
        self.known: dict[int, Path] = {}

    def batch(self, text: bytes, schema: pa.Schema) -> tuple[int, pa.RecordBatch]:
        position = 0

        def take(layout: str) -> list[int]:
            nonlocal position
            position += struct.calcsize(f">{layout}")
            return list(struct.unpack_from(f">{layout}", text, position - struct.calcsize(f">{layout}")))

        for _ in range(take("i")[0]):
            del self.known[take("i")[0]]
        for _ in range(take("i")[0]):
            block, descriptor, _ = take("iiq")
            self.known[block] = Path(f"/proc/self/fd/{descriptor}")
        batch, rows, nodes = take("iii")
        take("qq" * nodes)
        buffers = []
        for _ in range(take("i")[0]):
            block, start, size = take("iqq")
            buffers.append(None if block < 0 else pa.py_buffer(self.known[block].read_bytes()[start : start + size]))
        arrays = []
        for field in schema:
            count = 3 if pa.types.is_binary(field.type) or pa.types.is_string(field.type) else 2
            own, buffers = buffers[:count], buffers[count:]
            own[1:] = [pa.py_buffer(b"") if buffer is None else buffer for buffer in own[1:]]
            arrays.append(pa.Array.from_buffers(field.type, rows, own))
        return batch, pa.RecordBatch.from_arrays(arrays, schema=schema)


def test_memory_is_used_again_only_when_it_was_released(blocks: SharedBlocks) -> None:
    mapped, texts = Mapped(), []
    table = kolumn.read(TOPIC, threads=1)
    for batch in kolumn.scan(TOPIC, threads=1, chunk_bytes=1 << 16):
        texts.append((blocks.describe(from_start(batch), CONSTANT), batch.schema))
    del batch
    gc.collect()
    # Nothing was released, so all batches are still what they were.
    parts = [mapped.batch(text, schema) for text, schema in texts]
    assert pa.Table.from_batches([part for _, part in parts]).equals(table)
    assert blocks.held == len(parts)
    blocks.release(tuple(number for number, _ in parts))
    assert blocks.held == 0


def test_blocks_do_not_add_up(blocks: SharedBlocks) -> None:
    """A process may not open many files, and the blocks that go are closed."""
    before, mapped = len(os.listdir("/proc/self/fd")), Mapped()
    for _ in range(5):
        for batch in kolumn.scan(TOPIC, threads=1, chunk_bytes=1 << 16):
            number, found = mapped.batch(blocks.describe(from_start(batch), CONSTANT), batch.schema)
            assert found.equals(batch)
            blocks.release((number,))
            assert len(blocks) <= 8
    assert len(os.listdir("/proc/self/fd")) - before <= 10


def test_small_buffers_do_not_keep_large_blocks(blocks: SharedBlocks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of all sizes come and go, as in a long session, and a few of them stay for a while."""
    monkeypatch.setattr("kolumn.spark_plugin.connector.shared._MOST", 1 << 26)
    monkeypatch.setattr(blocks, "_most", 1 << 26)
    chance, held = random.Random(5), []
    for _ in range(3000):
        buffer, _ = recycle.take(int(1 << 12 << chance.randrange(10)) + chance.randrange(1 << 12))
        held.append(buffer)
        if len(held) > 20:
            del held[chance.randrange(20)]
        # Blocks that are held may lie in arenas of their own.
        assert blocks.size <= (1 << 26) + 21 * (1 << 24)
    del buffer, held
    recycle.give_back()
    assert blocks.size <= 1 << 24


def test_what_can_be_described() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [[1], [2, 3], None], "b": ["x", "y", "z"]})
    assert from_start(batch) is batch
    moved = from_start(batch.slice(1))
    assert moved.equals(batch.slice(1))
    assert all(column.offset == 0 for column in moved.columns)
    assert can_describe(pa.schema([("m", pa.map_(pa.string(), pa.list_(pa.struct([("d", pa.decimal128(20, 0))]))))]))
    for type_ in (pa.null(), pa.struct([("n", pa.null())]), pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.null())):
        assert not can_describe(pa.schema([("x", type_)]))


def test_damage_is_no_total(tmp_path: Path) -> None:
    path, data, options = tmp_path / f"{0:020d}.log", bytearray((TOPIC / f"{0:020d}.log").read_bytes()), Options.of(threads=1)
    data[len(data) // 2 : len(data) // 2 + 20000] = b"\xff" * 20000
    path.write_bytes(data)
    (segment,) = live_segments(path, options).one_log()
    with pytest.raises(kolumn.CorruptBatchError):
        totals_of(Range.whole(segment), options, frozenset({COUNT}))
