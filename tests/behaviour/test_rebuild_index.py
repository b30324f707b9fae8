"""`rebuild_index` writes what a broker wrote, and `side_files` reads what a broker keeps next to segments."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import kolumn
from kit.corpus import HERE, cases
from kolumn.cli import app
from kolumn.core.errors import ArgumentError, CorruptBatchError

SUFFIXES = (".index", ".timeindex", ".txnindex")
INTERVALS = {"transactional/txn-librdkafka-0": 4096, "transactional": 512, "v2-java": 1024, "v0": 1024, "v1": 1024}
"""Brokers' index.interval.bytes, where they were configured."""
OTHER = {"compacted-old", "upgraded", "v1-append-time", "v1-native", "v0-none-0", "v1-none-0", "internal", "unclean"}
"""Of what a broker of these wrote at once, a produced set or a buffer of the cleaner, it has one entry at most: the offset at its end and
the position of its beginning. A log does not tell which entries were written at once. Or it was not closed, and zeros are not cut off."""
DIRECTORIES = {str(case): case.directory for case in cases()}
CASES = sorted(item for item in DIRECTORIES.items() if not OTHER & {*item[1].parts})
NEARLY = sorted(item for item in DIRECTORIES.items() if OTHER & {*item[1].parts})


def indexes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in SUFFIXES}


def copied(folder: Path, to: Path) -> Path:
    return Path(shutil.copytree(folder, to / folder.name))


@pytest.mark.sample
@pytest.mark.parametrize(("name", "directory"), CASES, ids=[name for name, _ in CASES])
def test_index_files_are_those_of_the_broker(name: str, directory: Path, tmp_path: Path) -> None:
    folder = copied(directory, tmp_path)
    before = indexes(folder)
    for file in before:
        (folder / file).unlink()
    kolumn.rebuild_index(folder, index_interval_bytes=INTERVALS.get(name) or INTERVALS.get(name.partition("/")[0], 4096))
    if "compact-txn" in name:
        # The cleaner keeps entries of transactions whose batches are all gone; a broker that recovers does not find them.
        before, after = ({file: data for file, data in one.items() if "txn" not in file} for one in (before, indexes(folder)))
        assert after == before
        committed = [kolumn.read(one, columns=["offset", "value"], isolation_level="read_committed") for one in (directory, folder)]
        assert committed[0].equals(committed[1])
    else:
        assert indexes(folder) == before


@pytest.mark.sample
@pytest.mark.parametrize(("name", "directory"), NEARLY, ids=[name for name, _ in NEARLY])
def test_where_a_log_does_not_tell_how_it_was_written_lookups_lead_to_the_same_entries(name: str, directory: Path, tmp_path: Path) -> None:
    """As a broker looks up: from the position that the index names on it walks to the offset, or to the first batch with a timestamp."""
    folder = copied(directory, tmp_path)
    before = indexes(folder)
    interval = INTERVALS.get(name.partition("/")[0], 4096)
    kolumn.rebuild_index(folder, index_interval_bytes=interval, errors="skip")
    after = indexes(folder)
    for log in folder.glob("*.log"):
        batches = kolumn.batches(log, errors="skip").to_pylist()
        ends = np.array([row["lastOffset"] for row in batches], np.int64) - int(log.stem)
        starts = np.array([row["position"] for row in batches], np.int64)
        times = np.maximum.accumulate(np.array([row["maxTimestampMs"] or -1 for row in batches], np.int64))
        largest = max((row["size"] for row in batches), default=0)
        for files, own in ((before, False), (after, True)):
            offsets = np.frombuffer(files.get(f"{log.stem}.index", b""), [("offset", ">i4"), ("position", ">i4")])
            offsets = offsets[: np.count_nonzero(offsets["position"])]
            found = lookup(offsets["offset"], ends, offsets["position"])
            assert (found <= starts).all()
            assert {*offsets["position"].tolist()} <= {*starts.tolist()}
            timed = np.frombuffer(files.get(f"{log.stem}.timeindex", b""), [("time", ">i8"), ("offset", ">i4")])
            timed = timed[: np.count_nonzero(timed["time"])]
            from_time = lookup(offsets["offset"], lookup(timed["time"], times, timed["offset"]), offsets["position"])
            assert (from_time <= starts[np.searchsorted(times, times)]).all()
            if own:
                assert (starts - found <= interval + 2 * largest).all()
                assert all(ends[starts == at] == offset for offset, at in offsets.tolist())


def lookup(keys: Any, wanted: Any, places: Any) -> Any:
    """For each of some numbers the place of the largest key that is not above it, 0 if there is none."""
    return np.concatenate(([0], places.astype(np.int64)))[np.searchsorted(keys.astype(np.int64), wanted, "right")]


def test_preallocated_indexes_are_the_same_without_their_zeros(tmp_path: Path) -> None:
    directory = next(case.directory for case in cases() if case.directory.name == "prealloc-0")
    folder = copied(directory, tmp_path)
    kolumn.rebuild_index(folder)
    for name, data in indexes(folder).items():
        before = (directory / name).read_bytes()
        assert data
        assert before[: len(data) - 12] == data[: len(data) - 12]
        assert not any(before[len(data) :])


def test_the_log_is_read_alone_and_reads_are_the_same(tmp_path: Path) -> None:
    folder = copied(HERE / "transactional" / "txn-open-0", tmp_path)
    logs = {path.name: path.read_bytes() for path in folder.glob("*.log")}
    kept = (folder / "leader-epoch-checkpoint").read_bytes()
    rows = kolumn.read(folder, isolation_level="read_committed")
    for file in indexes(folder):
        (folder / file).write_bytes(b"\xff" * 100)
    done = kolumn.rebuild_index(tmp_path)
    assert {path.name: path.read_bytes() for path in folder.glob("*.log")} == logs
    assert (folder / "leader-epoch-checkpoint").read_bytes() == kept
    assert kolumn.read(folder, isolation_level="read_committed") == rows
    assert done.transaction_entries == kolumn.side_files(folder)["transactionIndex"].num_rows > 0
    assert sorted(Path(name).name for name in done.files) == sorted(indexes(folder))


def test_damage_is_an_error_or_left_out(tmp_path: Path) -> None:
    table = pa.table({"value": [b"x" * 50] * 400})
    kolumn.write(table, tmp_path / "orders-0", batch_bytes=500, segment_bytes=1 << 20, index_interval_bytes=1000)
    path = tmp_path / "orders-0" / f"{0:020}.log"
    before, data = indexes(path.parent), bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptBatchError, match="position"):
        kolumn.rebuild_index(path.parent, index_interval_bytes=1000)
    assert indexes(path.parent) == before
    seen: list[kolumn.Damage] = []
    done = kolumn.rebuild_index(path.parent, index_interval_bytes=1000, errors="skip", on_damage=seen.append)
    assert (len(seen), done.skipped.stretches) == (1, 1)
    found = kolumn.side_files(path.parent)["offsetIndex"].to_pylist()
    starts = {row["position"]: row["lastOffset"] for row in kolumn.batches(path, errors="skip").to_pylist()}
    assert len(found) > 10
    assert all(starts[row["position"]] == row["offset"] for row in found)
    result = CliRunner().invoke(app, ["rebuild-index", str(path.parent), "--errors", "skip"])
    assert (result.exit_code, "index files with" in result.stdout) == (1, True)


def test_a_stale_transaction_index_is_removed(tmp_path: Path) -> None:
    kolumn.write(pa.table({"value": [b"x"] * 10}), tmp_path / "orders-0")
    stale = tmp_path / "orders-0" / f"{0:020}.txnindex"
    stale.write_bytes(bytes(34))
    done = kolumn.rebuild_index(tmp_path / "orders-0")
    assert done.removed == (str(stale),)
    assert not stale.exists()


def test_places_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="not at a URL"):
        kolumn.rebuild_index("s3://bucket/orders-0")
    with pytest.raises(ArgumentError, match="not a directory"):
        kolumn.rebuild_index(tmp_path / "nothing")
    with pytest.raises(ArgumentError, match="at least 1"):
        kolumn.rebuild_index(tmp_path, index_interval_bytes=0)


def test_side_files_of_a_log_directory() -> None:
    found = kolumn.side_files(HERE / "transactional")
    assert found["malformed"].num_rows == 0
    names = {name: table.num_rows for name, table in found.items()}
    assert names["offsetIndex"] > 100 < names["timeIndex"]
    assert {"txn-open-0", "txn-lz4-0"} <= {file.split("/")[-2] for file in found["partitionMetadata"]["file"].to_pylist()}
    one = next(row for row in found["transactionIndex"].to_pylist() if "txn-open-0" in row["file"])
    marker = kolumn.read(HERE / "transactional" / "txn-open-0", include_control=True, columns=["offset", "controlType", "producerId"])
    by_offset = {row["offset"]: row for row in marker.to_pylist()}
    assert by_offset[one["lastOffset"]] == {"offset": one["lastOffset"], "controlType": "ABORT", "producerId": one["producerId"]}
    snapshots = found["producerSnapshot"].to_pylist()
    assert {"producerId", "producerEpoch", "lastSequence", "lastOffset", "currentTransactionFirstOffset"} <= snapshots[0].keys()


def test_side_files_that_are_not_what_they_say(tmp_path: Path) -> None:
    base = f"{7:020}"
    (tmp_path / f"{base}.index").write_bytes(b"\0\0\0\5\0\0\x10\0" + bytes(4096))
    (tmp_path / f"{base}.timeindex").write_bytes(b"\0\0\0\0\0\0\0\x09\0\0\0\3\0\0")
    (tmp_path / f"{base}.snapshot").write_bytes(b"\0\1" + bytes(8) + b"x")
    (tmp_path / f"{base}.txnindex").write_bytes(b"\0\1" + bytes(32))
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")
    (tmp_path / "partition.metadata").write_text("version: 0\ntopic_id: short")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n2\nmy topic 0 12\norders 3 99\n")
    (tmp_path / "meta.properties").write_text("version=1")
    found = kolumn.side_files(tmp_path)
    assert [(row["offset"], row["position"]) for row in found["offsetIndex"].to_pylist()] == [(12, 4096)]
    assert [(row["timestampMs"], row["offset"]) for row in found["timeIndex"].to_pylist()] == [(9, 10)]
    offsets = [(row["topic"], row["partition"], row["offset"]) for row in found["checkpoints"].to_pylist()]
    assert offsets == [("my topic", 0, 12), ("orders", 3, 99)]
    reasons = {row["file"].rpartition("/")[2].rpartition(".")[2]: row["reason"] for row in found["malformed"].to_pylist()}
    assert reasons.keys() == {"snapshot", "txnindex", "leader-epoch-checkpoint", "metadata"}
    assert "checksum" in reasons["snapshot"]
    assert reasons["leader-epoch-checkpoint"] == "1 lines, expected 2"
    alone = kolumn.side_files(tmp_path / f"{base}.index")
    assert alone["offsetIndex"].num_rows == 1
    with pytest.raises(ArgumentError, match="not a side file"):
        kolumn.side_files(tmp_path / "meta.properties")
    with pytest.raises(ArgumentError, match="no such file"):
        kolumn.side_files(tmp_path / "nothing")


def test_side_files_of_a_tier(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0-Vw3KoSE4SombDB9SyHsnQQ"
    folder.mkdir()
    stem = f"{2002:020}-xooEt7qrSpueXljI5HgLgw"
    (folder / f"{stem}.index").write_bytes(b"\0\0\0\5\0\0\x10\0")
    (folder / f"{stem}.leader_epoch_checkpoint").write_text("0\n1\n0 0\n")
    found = kolumn.side_files(tmp_path)
    assert found["offsetIndex"]["offset"].to_pylist() == [2007]
    assert found["leaderEpochs"].num_rows == 1
