"""Is the state of a compacted topic the latest committed record of each key, at any time, in bounded memory?"""

import json
import random
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.asked import invoked, put
from kit.corpus import HERE
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch, message
from kit.fuzz import FIRST
from kit.outcome import raises
from kit.random_logs import KINDS, TIME, Log, source_of
from kit.settled import in_folder
from kolumn.tools.latest import LEFT_OUT
from kolumn.writers import spilled

COMMIT = 1
NEVER = 2**62


def latest(source: object, **options: Any) -> list[tuple[int, bytes, bytes]]:
    table = kolumn.latest(source, columns=["offset", "key", "value"], **options)
    return [(row["offset"], row["key"], row["value"]) for row in table.to_pylist()]


def left_out(source: object, **options: Any) -> list[dict[str, int]]:
    """What was left out of each partition, as far as it was."""
    rows = json.loads(kolumn.latest(source, **options).schema.metadata[LEFT_OUT])
    return [{name: row[name] for name in list(row)[2:] if row[name]} for row in rows]


def plainly(
    folder: Path, moment: int = NEVER, end: int = NEVER, of_open: str = "stop"
) -> tuple[list[tuple[int, bytes, bytes]], dict[str, int]]:
    """The same by a dictionary, and the counts of what is left out."""
    rows = in_folder(folder)
    stable = min((row.offset for row, state in rows if state == "open" and of_open == "stop"), default=NEVER)
    gone = {"aborted", "open"} if of_open == "skip" else {"aborted"}
    known, later = dict[bytes, Any](), set[bytes]()
    counts = dict.fromkeys(("without_key", "without_timestamp", "after_stable", "unknown_keys"), 0)
    for row, state in rows:
        within = row.timestampMs <= moment and row.offset <= end
        if row.isControl or state in gone:
            continue
        if row.offset >= stable:
            counts["after_stable"] += within
        elif row.key is None:
            counts["without_key"] += within
        elif moment < NEVER and row.timestampMs < 0:
            counts["without_timestamp"] += 1
        elif within:
            known[row.key] = row
        else:
            later.add(row.key)
    offsets = {row.offset for row, _ in rows}
    if min(offsets) > 0 or len(offsets) <= max(offsets):
        counts["unknown_keys"] = len(later - known.keys())
    state_of_keys = sorted((row.offset, row.key, row.value) for row in known.values() if row.value is not None)
    return state_of_keys, {name: count for name, count in counts.items() if count}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keys and rows go to files after a few of them, of which nothing is left."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(spilled, "KEYS_BYTES", 700)
    monkeypatch.setattr(spilled, "ROWS_BYTES", 2000)
    yield
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("turn", range(16))
def test_random_logs(turn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(FIRST + turn)
    log = Log(FIRST + turn, rng.choice([KINDS, KINDS, ("plain", "dead", "transactions")]), rng.choice([3, 40, 1000]))
    source = source_of(tmp_path, [log.segment(rng.randrange(1, 25)) for _ in range(3)])
    if turn % 2:
        monkeypatch.setattr(spilled, "KEYS_BYTES", rng.choice([300, 1000, 5000]))
        monkeypatch.setattr(spilled, "ROWS_BYTES", rng.choice([1, 5000]))
    options: dict[str, Any] = rng.choice([{}, {"threads": 1}, {"chunk_bytes": 1, "threads": 2}])
    for of_open in ("stop", "skip", "include"):
        assert latest(source, open_transactions=of_open, **options) == plainly(source, of_open=of_open)[0]
    for _ in range(2):
        moment, end = TIME + rng.randrange(-3000, log.offset * 1000), rng.randrange(-1, log.offset + 2)
        expected, counts = plainly(source, moment=moment)
        assert latest(source, as_of=moment, **options) == expected
        assert left_out(source, as_of=moment) == [one for one in (counts,) if one]
        expected, counts = plainly(source, end=end)
        assert latest(source, as_of_offset=end, **options) == expected
        assert left_out(source, as_of_offset=end) == [one for one in (counts,) if one]


@pytest.mark.parametrize("name", ["compact-none-0", "compact-lz4-0", "compact-zstd-0", "compact-txn-0", "compact-txn-gone-0"])
def test_topics_that_brokers_compacted(name: str) -> None:
    folder = HERE / "compacted" / name
    assert latest(folder) == plainly(folder)[0]
    moments = sorted(row.timestampMs for row, _ in in_folder(folder))
    for moment in moments[:: len(moments) // 5]:
        expected, counts = plainly(folder, moment=moment)
        assert latest(folder, as_of=moment) == expected
        assert left_out(folder, as_of=moment) == [one for one in (counts,) if one]


def test_compaction_does_not_change_the_state(tmp_path: Path) -> None:
    """Kolumn's own compaction, and the files that a broker's compaction has renamed."""
    log = Log(FIRST, ("plain", "dead"), 30)
    source = source_of(tmp_path / "before", [log.segment(20), log.segment(20)])
    kolumn.compact(source, tmp_path / "after", include_active=True, now=TIME)
    assert latest(tmp_path / "after" / "t-0") == latest(source)
    folder = HERE / "compacted" / "compact-txn-0"
    moment = max(row.timestampMs for row, _ in in_folder(folder)) - 2000
    more = latest(folder, as_of=moment, include_deleted_segments=True)
    assert len(more) >= len(latest(folder, as_of=moment))


def test_what_cannot_be_known_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path / "t-0", batch([Record(0, b"a", b"1", 10), Record(2, b"b", b"2", 30)], last_offset=2))
    put(tmp_path / "t-1", batch([Record(0, b"a", b"1", 10), Record(1, b"b", b"2", 30)]))
    put(tmp_path / "t-2", batch([Record(5, b"b", b"2", 30)]), base=5)
    put(tmp_path / "t-3", message(0, Record(0, b"a", b"1")), batch([Record(1, None, b"x", 1)]))
    open_batch = batch([Record(1, b"b", b"2", 1)], flags=TRANSACTIONAL, producer_id=5, producer_epoch=0, base_sequence=0)
    put(tmp_path / "t-4", batch([Record(0, b"a", b"1", 10)]), open_batch, batch([Record(2, b"a", b"3", 10)]))
    assert left_out(tmp_path, as_of=20) == [
        {"unknown_keys": 1}, {"unknown_keys": 1}, {"without_key": 1, "without_timestamp": 1}, {"after_stable": 2},
    ]  # fmt: skip
    assert "2 keys have later records alone" in caplog.text
    assert "(t-0 and 1 more)" in caplog.text
    assert latest(tmp_path / "t-4") == [(0, b"a", b"1")]
    assert left_out(tmp_path / "t-1", as_of=20) == []


def test_moments(tmp_path: Path) -> None:
    put(tmp_path / "t-0", *(batch([Record(i, b"k", b"%d" % i, 1000 * i)]) for i in range(4)))
    second = datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    for moment in (2000, "2000", "1970-01-01T00:00:02", second):
        assert latest(tmp_path, as_of=moment) == [(2, b"k", b"2")]
    assert [latest(tmp_path, as_of=moment)[0][0] for moment in (0, 999, 1000, 2999, "yesterday", "7d")] == [0, 0, 1, 2, 3, 3]
    assert [len(latest(tmp_path, as_of_offset=offset)) for offset in (-1, 0, 9)] == [0, 1, 1]
    raises(kolumn.ArgumentError, "name one", kolumn.latest, tmp_path, as_of=1, as_of_offset=1)
    raises(kolumn.ArgumentError, "as_of='noon'", kolumn.latest, tmp_path, as_of="noon")
    raises(kolumn.ArgumentError, "as_of_offset='1'", kolumn.latest, tmp_path, as_of_offset="1")


def test_a_transaction_counts_by_how_it_ended(tmp_path: Path) -> None:
    def part(offset: int, value: bytes) -> bytes:
        record = Record(offset, b"k", value, 10 * offset)
        return batch([record], flags=TRANSACTIONAL, producer_id=7, producer_epoch=3, base_sequence=offset)

    entries = [part(0, b"1"), control_batch(1, COMMIT, timestamp=90), part(2, b"2"), control_batch(3, 1 - COMMIT, timestamp=90)]
    put(tmp_path / "t-0", *entries)
    assert latest(tmp_path, as_of=50) == latest(tmp_path) == [(0, b"k", b"1")]


def test_columns_and_typed_values(tmp_path: Path) -> None:
    records = [Record(i, b"k%d" % (i % 3), json.dumps({"n": i}).encode(), i, ((b"h", b"%d" % i),)) for i in range(10)]
    put(tmp_path / "t-0", batch(records))
    options: dict[str, Any] = {"value_format": "json", "value_schema": {"n": "int64"}}
    table = kolumn.latest(tmp_path, columns=["value", "segment"], include_headers=True, **options)
    read = kolumn.read(tmp_path, columns=["value", "segment"], include_headers=True, **options)
    assert table.equals(read.slice(7))
    assert kolumn.latest(tmp_path).equals(kolumn.read(tmp_path).slice(7))
    assert kolumn.latest(tmp_path, as_of_offset=-1).schema.equals(kolumn.read(tmp_path).schema)


def test_copies_and_damage(tmp_path: Path) -> None:
    data = [batch([Record(i, b"k%d" % (i % 3), b"%d" % i, 1)]) for i in range(8)]
    put(tmp_path / "a" / "t-0", *data[:6])
    put(tmp_path / "b" / "t-0", *data)
    both = [tmp_path / "a", tmp_path / "b"]
    assert [offset for offset, _, _ in latest(both, replicas="merge")] == [5, 6, 7]
    wrong = bytearray(data[6])
    wrong[-1] ^= 1
    put(tmp_path / "c" / "t-0", *data[:6], bytes(wrong), data[7])
    raises(kolumn.CorruptBatchError, "", kolumn.latest, tmp_path / "c")
    skipped = kolumn.Skipped()
    assert [offset for offset, _, _ in latest(tmp_path / "c", errors="skip", on_damage=skipped)] == [3, 5, 7]
    assert skipped.stretches == 1


def test_a_table_in_a_file_outlives_everything(tmp_path: Path, small: None) -> None:
    folder = tmp_path / "t-0"
    put(folder, *(batch([Record(i, b"%d" % i, bytes(300), i)]) for i in range(200)))
    before = pa.total_allocated_bytes()
    table = kolumn.latest(folder)
    allocated = pa.total_allocated_bytes() - before
    for path in folder.iterdir():
        path.unlink()
    assert table["offset"].to_pylist() == list(range(200))
    assert set(table["value"].to_pylist()) == {bytes(300)}
    assert allocated < table.nbytes


def test_nothing_is_left_after_an_error(tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [bytearray(batch([Record(i, b"%d" % i, bytes(300), i)])) for i in range(200)]
    entries[150][-1] ^= 1
    put(tmp_path / "t-0", *map(bytes, entries))
    raises(kolumn.CorruptBatchError, "", kolumn.latest, tmp_path)

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    raises(kolumn.KolumnError, "No space left on device. TMPDIR names another", kolumn.latest, tmp_path, errors="skip")


def test_lines(tmp_path: Path) -> None:
    put(tmp_path / "t-0", batch([Record(0, b"a", b"1", 10), Record(1, b"b", b"2", 10), Record(2, b"a", None, 20)]))
    lines = invoked("latest", "--json", "--columns", "key,value", tmp_path).stdout.splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["b"]
    assert invoked("latest", "--text", "--columns", "key", "--as-of", "1970-01-01T00:00:00.010", tmp_path).stdout == "key='a'\nkey='b'\n"
    assert invoked("latest", "--as-of-offset", "0", "--as-of", "1", tmp_path).exit_code == 2
