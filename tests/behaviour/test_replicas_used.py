"""Other readers of several copies of a topic-partition, or readers that refuse them: ranges, transactions, batches, Parquet, writers."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import kolumn
from kit.corpus import Case
from kit.encoder import TRANSACTIONAL, batch, control_batch
from kit.partitions import SOURCE
from kit.replicas import CASES, copy, flip, last_bytes, logs, merged, read, records, write_log

THREADS = pytest.mark.parametrize("threads", [1, 4])


@THREADS
def test_ranges_of_offsets_and_times(tmp_path: Path, threads: int) -> None:
    one, other = copy(SOURCE, tmp_path / "b1"), copy(SOURCE, tmp_path / "b2")
    last_bytes(one, lambda number: number % 2 == 0)
    last_bytes(other, lambda number: number % 2 == 1)
    expected = read(SOURCE)
    chance = random.Random(7)
    for _ in range(10):
        start, end = sorted(chance.sample(range(len(expected)), 2))
        limits = {"start_offset": expected["offset"][start].as_py(), "end_offset": expected["offset"][end].as_py()}
        assert merged(one, other, threads=threads, **limits).equals(read(SOURCE, **limits))
        limits = {"start_timestamp": expected["timestampMs"][start].as_py(), "end_timestamp": expected["timestampMs"][end].as_py() + 1}
        assert merged(one, other, threads=threads, **limits).equals(read(SOURCE, **limits))


TRANSACTIONAL_CASES = [case for case in CASES if case.directory.with_name(case.directory.name + ".committed.parquet").exists()]


@pytest.mark.parametrize("way", ["damaged", "halves", "one range"])
@pytest.mark.parametrize("case", TRANSACTIONAL_CASES, ids=str)
def test_transactions(case: Case, tmp_path: Path, way: str) -> None:
    """Markers are damaged in one copy, and transactions begin in one directory and end in the other."""
    options = {"isolation_level": "read_committed", "columns": ["offset", "value", "transaction"]}
    one, other = copy(case.directory, tmp_path / "b1"), copy(case.directory, tmp_path / "b2")
    if way == "halves":
        for number, (mine, theirs) in enumerate(zip(logs(one), logs(other), strict=True)):
            (theirs if number % 2 == 0 else mine).unlink()
    else:
        last_bytes(one, lambda number: number % 2 == 0)
        last_bytes(other, lambda number: number % 2 == 1)
    if way == "one range":
        last = pc.max(kolumn.read(case.directory, columns=["offset"], include_control=True)["offset"]).as_py()
        options |= {"start_offset": last // 3, "end_offset": last // 2}
    how = {} if way == "halves" else {"replicas": "merge"}
    assert kolumn.read([one, other], **how, **options).equals(kolumn.read(case.directory, **options))
    if way == "damaged":
        # Single segments of both: the transactions of neighbouring segments count too.
        some = [logs(one)[0], logs(other)[0]]
        assert kolumn.read(some, **how, **options).equals(kolumn.read(logs(case.directory)[0], **options))


def test_an_open_transaction_of_one_half(tmp_path: Path) -> None:
    def data(offset: int) -> bytes:
        return batch(records(offset, 1), flags=TRANSACTIONAL, producer_id=7)

    one = write_log(tmp_path / "a", (0, [data(0), control_batch(1, 1), data(2)]))
    other = write_log(tmp_path / "b", (3, [data(3), control_batch(4, 0), data(5), control_batch(6, 1)]))
    assert kolumn.read([one, other], columns=["offset"], isolation_level="read_committed")["offset"].to_pylist() == [0, 5]


def test_batches_and_statistics(tmp_path: Path) -> None:
    from kolumn.tools.statistics import collect

    one, other = copy(SOURCE, tmp_path / "b1"), copy(SOURCE, tmp_path / "b2")
    last_bytes(one, lambda number: number % 2 == 0)
    last_bytes(other, lambda number: number % 2 == 1)
    columns = ["position", "baseOffset", "lastOffset", "crcValid"]
    assert kolumn.batches([one, other], replicas="merge").select(columns).equals(kolumn.batches(SOURCE).select(columns))
    (mine,), (theirs,) = (collect(source, lambda done: None, replicas="merge", errors="raise") for source in ([one, other], SOURCE))
    for name in ("bytes", "batches", "records", "firstOffset", "lastOffset", "damaged"):
        assert mine[name] == theirs[name]


def test_writers_do_not_double(tmp_path: Path) -> None:
    copies = [copy(SOURCE, tmp_path / "b1"), copy(SOURCE, tmp_path / "b2")]
    calls: list[Callable[..., Any]] = [
        kolumn.convert,
        kolumn.compact,
        lambda *given, **options: kolumn.clean(*given, retention_ms=1 << 50, **options),
    ]
    for number, call in enumerate(calls):
        target = tmp_path / f"target{number}"
        for options in ({}, {"replicas": "merge"}):
            with pytest.raises(kolumn.ArgumentError, match=r"are in .*b1.* and in .*b2"):
                call(copies, target, **options)
            assert not target.exists()
        call(copies, target, replicas="first")
    with pytest.raises(kolumn.ArgumentError, match=r"are in .*b1.* and in .*b2"):
        kolumn.space(copies)
    # Two halves are one log, of which each of these two would see only a half.
    logs(copies[0])[0].unlink()
    for path in logs(copies[1])[1:]:
        path.unlink()
    for call in calls[1:]:
        with pytest.raises(kolumn.ArgumentError, match="one directory at a time"):
            call(copies, tmp_path / "halves")
    done = kolumn.convert(copies, tmp_path / "halves")
    assert read(tmp_path / "halves")["offset"].equals(read(SOURCE)["offset"])
    assert len(done.segments) == len(logs(SOURCE))


def test_a_merge_can_be_written_as_segments(tmp_path: Path) -> None:
    """The error of `convert` recommends this."""
    one, other = copy(SOURCE, tmp_path / "b1"), copy(SOURCE, tmp_path / "b2")
    last_bytes(one, lambda number: number % 2 == 0)
    last_bytes(other, lambda number: number % 2 == 1)
    kolumn.write(kolumn.scan([one, other], replicas="merge", include_headers=True), tmp_path / "new")
    columns = ["offset", "key", "value", "timestampMs", "headers"]
    assert read(tmp_path / "new", columns=columns).equals(read(SOURCE, columns=columns))


@pytest.mark.parametrize("way", ["merge", "halves"])
def test_parquet(tmp_path: Path, way: str) -> None:
    import pyarrow.dataset as ds
    from typer.testing import CliRunner

    from kolumn.cli import app

    one, other = copy(SOURCE, tmp_path / "b1"), copy(SOURCE, tmp_path / "b2")
    if way == "merge":
        last_bytes(one, lambda number: number % 2 == 0)
        last_bytes(other, lambda number: number % 2 == 1)
    else:
        logs(one)[1].unlink()
        for path in (logs(other)[0], *logs(other)[2:]):
            path.unlink()
    target = tmp_path / "lake"
    arguments = ["to-parquet", str(one), str(other), str(target)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == (2 if way == "merge" else 0)
    if way == "merge":
        assert not target.exists()
        result = CliRunner().invoke(app, [*arguments, "--replicas", "merge"])
        assert result.exit_code == 0, result.output
    found = ds.dataset(target, partitioning="hive").to_table(columns=["offset", "value"]).sort_by("offset")
    assert found.equals(kolumn.read(SOURCE, columns=["offset", "value"]).combine_chunks())
    assert len(list(target.rglob("*.parquet"))) == len(logs(SOURCE))


def test_verify_looks_at_every_copy(tmp_path: Path) -> None:
    one, other = copy(SOURCE, tmp_path / "b1"), copy(SOURCE, tmp_path / "b2")
    flip(logs(other)[0], 100)
    report = kolumn.verify([one, other])
    assert report.damage["segment"].to_pylist() == [str(logs(other)[0])]
    assert report.segments.num_rows == 2 * len(logs(SOURCE))


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(kolumn.ArgumentError, match="replicas='both': expected one of raise, first, merge"):
        kolumn.read(SOURCE, replicas="both")
