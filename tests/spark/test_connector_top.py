"""The first rows of an order: what the plan leaves out by headers is never among them. The reference reads everything and sorts it."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.corpus import cases
from kit.encoder import LOG_APPEND_TIME, Record, batch, control_batch
from kit.fuzz import FIRST
from kit.queries import own_logs
from kolumn.spark_plugin.connector.questions import answer
from kolumn.spark_plugin.connector.work import Work, unpacked
from kolumn.spark_plugin.read.splits import Split
from kolumn.spark_plugin.read.task import read_split

COLUMNS = ["topic", "partition", "offset", "timestamp"]
By = list[tuple[str, bool, bool]]


def asked(path: Path, by: By, rows: int, **options: str) -> dict[str, Any]:
    given = {"path": str(path), "columns": ",".join(COLUMNS), **options}
    schema = answer({"op": "schema", "options": given})["schema"]
    plain = {"conditions": [], "found": [], "limit": -1, "totals": [], "slots": 2, "keyed": False, "mustBeKeyed": False}
    return {"op": "plan", "options": given, "schema": schema, "asked": schema, **plain, "top": {"by": by, "rows": rows}}


def planned(question: dict[str, Any]) -> tuple[pa.Table, int]:
    """What the tasks of a plan read, and how many bytes they are given."""
    found: Any = answer(question)
    assert "error" not in found, found
    options, splits = unpacked(found["work"], Work).options, [unpacked(text, Split) for text in found["splits"]]
    batches = [one.select(COLUMNS) for split in splits for one in read_split(split, options, print)]
    size = sum(part.end - part.start for split in splits for part in split.ranges)
    return pa.Table.from_batches(batches, kolumn.read(question["options"]["path"], columns=COLUMNS, threads=1).schema), size


def ordered(table: pa.Table, by: By, rows: int) -> list[tuple[Any, ...]]:
    """The sort keys of the first rows, by a sort that knows nulls and directions."""
    found = [tuple(row[name] for name, _, _ in by) for row in table.to_pylist()]
    for i, (_, descending, nulls_first) in reversed([*enumerate(by)]):
        nulls, others = [row for row in found if row[i] is None], [row for row in found if row[i] is not None]
        others.sort(key=lambda row, i=i: row[i].encode() if isinstance(row[i], str) else row[i], reverse=descending)  # type: ignore[misc]
        found = nulls + others if nulls_first else others + nulls
    return found[:rows]


def orders(chance: random.Random) -> By:
    names = chance.choice([["offset"], ["timestamp"], COLUMNS, ["offset", "partition"], ["topic", "offset"], ["timestamp", "offset"]])
    if chance.random() < 0.4:
        names = chance.sample(COLUMNS, chance.randint(1, 4))
    return [(name, chance.random() < 0.6, chance.random() < 0.3) for name in names]


def compare(path: Path, chance: random.Random, times: int) -> None:
    whole = kolumn.read(path, columns=COLUMNS, threads=1)
    for _ in range(times):
        by, rows = orders(chance), chance.choice([1, 2, 10, 100, 3000])
        found, _ = planned(asked(path, by, rows))
        assert ordered(found, by, rows) == ordered(whole, by, rows), (path, by, rows)


@pytest.mark.sample
@pytest.mark.parametrize("case", cases(), ids=str)
def test_segments_of_brokers(case: Any) -> None:
    compare(case.directory, random.Random(FIRST), 8)


@pytest.mark.parametrize("number", range(4))
def test_random_logs(tmp_path: Path, number: int) -> None:
    chance = random.Random(FIRST + number)
    compare(own_logs(tmp_path / "logs", chance), chance, 25)


def test_headers_of_all_kinds(tmp_path: Path) -> None:
    """Holes of compaction, control records at the end, times that go back, are unset or equal, and a batch that is not all there."""
    chance = random.Random(FIRST)
    for partition in range(3):
        data, offset = b"", chance.randrange(10)
        for _ in range(60):
            time = 1_700_000_000_000 + chance.randrange(5000)
            offsets = [offset + i for i in sorted(chance.sample(range(8), chance.randint(1, 6)))]
            times = chance.choice([[-1] * 8, [time] * 8, [time + chance.randrange(50) for _ in range(8)]])
            records = [Record(one, None, b"v", at) for one, at in zip(offsets, times, strict=False)]
            data += chance.choice([
                batch(records, base_offset=offset, last_offset=offset + 7),
                # The largest timestamp was never set, or is that of the broker's clock.
                batch(records, base_offset=offset, max_timestamp=-1),
                batch(records, flags=LOG_APPEND_TIME, max_timestamp=time),
                # Nothing is left of it but its place.
                batch([], base_offset=offset, last_offset=offset + 7),
                control_batch(offset, chance.randrange(2), timestamp=time + 10**6),
            ])  # fmt: skip
            offset += 8 + chance.choice([0, 0, 30])
        # One has no topic.
        folder = tmp_path / (f"t-{partition}" if partition else "nameless")
        folder.mkdir()
        (folder / f"{0:020d}.log").write_bytes(data + batch([Record(offset, None, b"half", 1_800_000_000_000)])[:-5])
    compare(tmp_path / "*", chance, 100)


def test_little_is_read_where_headers_tell(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    for partition in range(3):
        times = pa.array([1_700_000_000_000_000 + 1000 * i for i in range(4000)], pa.timestamp("us", "UTC"))
        kolumn.write(pa.table({"value": pa.array([b"x" * 50] * 4000), "timestamp": times}), root / f"t-{partition}", batch_bytes=4000)
    newest: By = [("offset", True, False)]
    whole = sum(path.stat().st_size for path in root.rglob("*.log"))
    assert [len(planned(asked(root, by, 10))[0]) for by in (newest, [("offset", False, True)], [("timestamp", True, False)])] < [300] * 3
    only = planned(asked(root, [("topic", False, True), ("partition", True, True), ("offset", True, False)], 10))
    assert set(only[0]["partition"].to_pylist()) == {2}
    assert only[1] < whole / 3 + 1
    for by in ([("timestamp", False, True)], [("timestamp", True, True)], [("?", False, True), *newest]):
        question = asked(root, by, 10)
        assert not answer(question | {"op": "top"})["told"]
        assert planned(question)[1] == whole
    for options in ({"errors": "skip"}, {"checkCrcs": "true"}, {"isolationLevel": "read_committed"}, {"startOffset": "3"}):
        assert not answer(asked(root, newest, 10, **options) | {"op": "top"})["told"]
    # What a join finds out comes after the plan: rows that it takes would be among the first.
    assert len(planned(asked(root, newest, 10) | {"found": [["<", "offset", 5]]})[0]) == 15


def test_deleted_records_are_none_of_the_first(tmp_path: Path) -> None:
    data = b"".join(batch([Record(10 * i + k, None, b"x", 1000 - i) for k in range(10)]) for i in range(20))
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(data)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 55\n")
    for by in ([("offset", False, True)], [("timestamp", True, False)]):
        found, _ = planned(asked(tmp_path, by, 3, includeDeletedRecords="false"))
        whole = kolumn.read(tmp_path, columns=COLUMNS, include_deleted_records=False, threads=1)
        assert ordered(found, by, 3) == ordered(whole, by, 3)
        assert found.num_rows < whole.num_rows == 145


def test_many_topic_partitions_are_looked_at_by_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for partition in range(5):
        data = b"".join(batch([Record(10 * i + partition, None, b"x", i)]) for i in range(20))
        (tmp_path / f"t-{partition}").mkdir()
        (tmp_path / f"t-{partition}" / f"{0:020d}.log").write_bytes(data)
    question = asked(tmp_path, [("offset", True, False)], 3)
    expected = answer(question)
    monkeypatch.setattr("kolumn.spark_plugin.connector.work.MANY", 5)
    job: Any = answer(question)
    found = [answer({"op": "piece", "piece": piece})["found"] for piece in job["job"]]
    assert answer(question | {"pieces": found}) == expected
    assert sorted(planned(question | {"pieces": found})[0]["offset"].to_pylist()) == [192, 193, 194]
