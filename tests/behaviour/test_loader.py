"""Which files of a folder are the log, as a broker loads them after a crash, and what its index files and other side files say."""

import json
import os
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kolumn
from kit.asked import invoked
from kit.command_line import run
from kit.corpus import HERE, cases
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch
from kit.loader_folders import GOLDEN, Files, content, random_files, real_name, write
from kit.outcome import raises
from kit.replicas import copy, flip, write_log
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.tools.report.gather import gather
from kolumn.tools.statistics import overview

FOLDERS = json.loads(GOLDEN.read_text())


def live(folder: Path) -> dict[str, str]:
    """Segments that are not empty as a broker would name them after its start, and the files that they are now."""
    try:
        found = [one for one in live_segments(folder, Options()).segments if one.size and one.base_offset is not None]
    except kolumn.ArgumentError:
        # There is no segment in it.
        return {}
    return {f"{one.base_offset}.log": re.sub(r"^0*(?=\d)", "", Path(one.path).name) for one in found}


@pytest.mark.sample
@pytest.mark.parametrize("one", FOLDERS, ids=lambda one: one["name"])
def test_the_segments_are_those_that_the_newest_broker_loads(one: dict[str, Any], tmp_path: Path) -> None:
    files: Files = one["files"]
    write(tmp_path / "t-0", files)
    answers = [answer for answer in one["live"].values() if not isinstance(answer, str)]
    # If no version starts on the folder, all of it is read.
    assert live(tmp_path / "t-0") == (answers[-1] if answers else {name: name for name in files if re.fullmatch(r"\d+\.log", name)})


LOG = "00000000000000000000.log"
ID = "0123456789abcdef0123456789abcdef"


def disk(folder: Path) -> Path:
    write(folder / "t-0", {"0.log": [0, 5], "0.index": 0, "=leader-epoch-checkpoint": 0, "5.snapshot": 0})
    (folder / "meta.properties").touch()
    return folder


def left_out(folder: Path) -> list[tuple[str, str, int | None, int | None]]:
    rows = kolumn.verify(folder).left_out.to_pylist()
    return [(os.path.relpath(one["path"], folder), one["kind"], one["files"], one["records"]) for one in rows]


@pytest.mark.sample
@pytest.mark.parametrize("files", [*(one["files"] for one in FOLDERS), *(random_files(seed) for seed in range(2000, 2040))])
def test_every_log_is_either_read_or_left_out(files: Files, tmp_path: Path) -> None:
    write(tmp_path / "t-0", files)
    try:
        report = kolumn.verify(tmp_path / "t-0")
    except kolumn.ArgumentError:
        # There is no segment in it.
        return
    read = {Path(path).name for path in report.segments["segment"].to_pylist()}
    rows = {Path(one["path"]).name: one for one in report.left_out.to_pylist()}
    suffixes = (".log", ".log.swap", ".log.cleaned", ".log.deleted")
    logs = {real_name(name): offsets for name, offsets in files.items() if name.endswith(suffixes)}
    assert not read & rows.keys()
    assert logs.keys() <= read | rows.keys()
    for name in logs.keys() & rows.keys():
        assert rows[name]["records"] == (len(range(*logs[name])) if logs[name] else 0)


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    """What a compaction replaces or did not finish, what no broker wrote, links to nothing, and records that headers do not tell."""
    write(tmp_path / "t-0", {"0.log": [0, 10], "10.log": [10, 12], "0.log.swap": [5, 10], "20.log": [20, 21]})
    assert left_out(tmp_path / "t-0") == [(LOG, "replaced", 1, 10)]
    write(tmp_path / "u-0", {"0.log": [0, 10], "10.log": [10, 12], "0.log.cleaned": [5, 10], "0.index.cleaned": 0, "10.log.swap": [10, 11]})
    assert left_out(tmp_path / "u-0") == [(f"{LOG}.cleaned", "unfinished", 2, 5), ("00000000000000000010.log.swap", "unfinished", 1, 1)]
    source = disk(tmp_path / "d")
    assert left_out(source) == []
    (source / "t-0" / "notes.txt").write_text("notes")
    write(source / "backup" / "t-0", {"0.log": [0, 3]})
    write(source / "old", {"0.log": [0, 4], "0.index": 0})
    (source / "old" / "deeper").mkdir()
    assert left_out(source) == [("backup", "foreign", 1, 3), ("old", "foreign", 2, 4), ("t-0/notes.txt", "foreign", 1, None)]
    reasons = kolumn.verify(source).left_out["reason"].to_pylist()
    assert [one.endswith("what is in its folders is not counted") for one in reasons] == [False, True, False]
    source = disk(tmp_path / "links")
    (source / "t-0" / "00000000000000000005.log").symlink_to(tmp_path / "unmounted")
    os.mkfifo(source / "t-0" / "00000000000000000007.log")
    assert left_out(source) == [(f"t-0/{number:020}.log", "unusable", 1, None) for number in (5, 7)]
    source = disk(tmp_path / "other")
    (source / "t-0" / "00000000000000000005.log.deleted").write_bytes(b"no segment" * 20)
    (source / "t-0" / "00000000000000000009.log.deleted").write_bytes(content("x", [9, 12])[:-3])
    assert [one[3] for one in left_out(source)] == [None, 2]


def test_what_is_named_is_not_left_out(tmp_path: Path) -> None:
    source = disk(tmp_path / "d")
    write(source / f"t-1.{ID}-stray", {"0.log": [0, 3]})
    write(source / "t-2.short-delete", {"0.log": [0, 4], "4.log": [4, 5], "9.log.deleted": [9, 10]})
    report = kolumn.verify([source, source / f"t-1.{ID}-stray", os.path.relpath(source / "t-2.short-delete" / LOG)])
    assert report.records == 5 + 3 + 4
    assert [(one["kind"], one["files"], one["records"]) for one in report.left_out.to_pylist()] == [("deleted", 2, 1)]
    write(tmp_path / "2" / "d" / f"t-1.{ID}-stray", {"0.log": [0, 3]})
    raises(kolumn.ArgumentError, f"t-1.{ID}-stray' is a stray replica, which is read if it is named", kolumn.verify, tmp_path / "2" / "d")
    write(tmp_path / "2" / "t-0", {"0.index": 0, "0.log.deleted": [0, 3]})
    words = r"0\.log\.deleted' is a segment that brokers delete, which is read if it is named"
    raises(kolumn.ArgumentError, words, kolumn.verify, tmp_path / "2" / "t-0")


def test_every_command_says_so_and_its_exit_code_is_the_same(tmp_path: Path) -> None:
    source = disk(tmp_path / "d")
    write(source / f"t-1.{ID}-future", {"0.log": [0, 3]})
    rows = kolumn.verify(source).left_out.to_pylist()
    assert [one["records"] for one in rows] == [3]
    assert overview(source).left_out == gather(source).left_out == rows
    assert kolumn.recover(source, tmp_path / "out").left_out.to_pylist() == rows
    for command in ("verify", "recover", "overview"):
        as_json, as_text = (["-o", tmp_path / name] if command == "recover" else [] for name in ("json", "text"))
        done = run(command, "--json", source, *as_json)
        assert (done.returncode, json.loads(done.stdout)["leftOut"]) == (0, rows)
        done = run(command, source, *as_text)
        assert (done.returncode, f"t-1.{ID}-future" in done.stdout, rows[0]["reason"] in done.stdout) == (0, True, True)
    page = tmp_path / "page.html"
    assert run("report", source, "-o", page).returncode == 0
    assert rows[0]["reason"] in page.read_text()


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


@pytest.mark.sample
@pytest.mark.parametrize(("name", "directory"), CASES, ids=[name for name, _ in CASES])
def test_index_files_are_those_of_the_broker(name: str, directory: Path, tmp_path: Path) -> None:
    folder = copy(directory, tmp_path)
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
    folder = copy(directory, tmp_path)
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


def test_preallocated_indexes_and_those_that_are_wrong(tmp_path: Path) -> None:
    directory = DIRECTORIES[next(name for name in DIRECTORIES if name.endswith("/prealloc-0"))]
    folder = copy(directory, tmp_path)
    kolumn.rebuild_index(folder)
    for name, data in indexes(folder).items():
        before = (directory / name).read_bytes()
        assert data
        assert before[: len(data) - 12] == data[: len(data) - 12]
        assert not any(before[len(data) :])
    folder = copy(HERE / "transactional" / "txn-open-0", tmp_path / "wrong")
    kept = {path: path.read_bytes() for path in (*folder.glob("*.log"), folder / "leader-epoch-checkpoint")}
    rows = kolumn.read(folder, isolation_level="read_committed")
    for file in indexes(folder):
        (folder / file).write_bytes(b"\xff" * 100)
    done = kolumn.rebuild_index(folder.parent)
    assert {path: path.read_bytes() for path in kept} == kept
    assert kolumn.read(folder, isolation_level="read_committed") == rows
    assert done.transaction_entries == kolumn.side_files(folder)["transactionIndex"].num_rows > 0
    assert sorted(Path(name).name for name in done.files) == sorted(indexes(folder))


def test_damage_is_an_error_or_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"value": [b"x" * 50] * 400})
    kolumn.write(table, tmp_path / "orders-0", batch_bytes=500, segment_bytes=1 << 20, index_interval_bytes=1000)
    path = tmp_path / "orders-0" / f"{0:020}.log"
    before = indexes(path.parent)
    flip(path, 5000)
    raises(kolumn.CorruptBatchError, "position", kolumn.rebuild_index, path.parent, index_interval_bytes=1000)
    assert indexes(path.parent) == before
    seen: list[kolumn.Damage] = []
    done = kolumn.rebuild_index(path.parent, index_interval_bytes=1000, errors="skip", on_damage=seen.append)
    assert (len(seen), done.skipped.stretches) == (1, 1)
    found = kolumn.side_files(path.parent)["offsetIndex"].to_pylist()
    starts = {row["position"]: row["lastOffset"] for row in kolumn.batches(path, errors="skip").to_pylist()}
    assert len(found) > 10
    assert all(starts[row["position"]] == row["offset"] for row in found)
    monkeypatch.chdir(tmp_path)
    raises(kolumn.CorruptBatchError, r"^orders-0/0+\.log: position", kolumn.rebuild_index, "orders-0")
    assert kolumn.rebuild_index("orders-0", errors="skip").files[0] == f"orders-0/{0:020}.index"
    result = invoked("rebuild-index", path.parent, "--errors", "skip")
    assert (result.exit_code, "index files with" in result.stdout) == (1, True)


def test_a_stale_transaction_index_is_removed(tmp_path: Path) -> None:
    kolumn.write(pa.table({"value": [b"x"] * 10}), tmp_path / "orders-0")
    stale = tmp_path / "orders-0" / f"{0:020}.txnindex"
    stale.write_bytes(bytes(34))
    assert kolumn.rebuild_index(tmp_path / "orders-0").removed == (str(stale),)
    assert not stale.exists()
    raises(kolumn.ArgumentError, "not at a URL", kolumn.rebuild_index, "s3://bucket/orders-0")
    raises(kolumn.ArgumentError, "not a directory", kolumn.rebuild_index, tmp_path / "nothing")
    raises(kolumn.ArgumentError, "at least 1", kolumn.rebuild_index, tmp_path, index_interval_bytes=0)


def test_side_files_of_a_log_directory() -> None:
    found = kolumn.side_files(HERE / "transactional")
    assert found["malformed"].num_rows == 0
    names = {name: table.num_rows for name, table in found.items()}
    assert names["offsetIndex"] > 100 < names["timeIndex"]
    assert {"txn-open-0", "txn-lz4-0"} <= {file.split("/")[-2] for file in found["partitionMetadata"]["file"].to_pylist()}
    one = next(row for row in found["transactionIndex"].to_pylist() if "txn-open-0" in row["file"])
    marker = kolumn.read(HERE / "transactional" / "txn-open-0", include_control=True, columns=["offset", "controlType", "producerId"])
    assert {"offset": one["lastOffset"], "controlType": "ABORT", "producerId": one["producerId"]} in marker.to_pylist()
    snapshots = found["producerSnapshot"].to_pylist()
    assert {"producerId", "producerEpoch", "lastSequence", "lastOffset", "currentTransactionFirstOffset"} <= snapshots[0].keys()


def test_side_files_that_are_not_what_they_say_and_those_of_a_tier(tmp_path: Path) -> None:
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
    assert kolumn.side_files(tmp_path / f"{base}.index")["offsetIndex"].num_rows == 1
    raises(kolumn.ArgumentError, "not a side file", kolumn.side_files, tmp_path / "meta.properties")
    raises(kolumn.ArgumentError, "no such file", kolumn.side_files, tmp_path / "nothing")
    folder = tmp_path / "tier" / "orders-0-Vw3KoSE4SombDB9SyHsnQQ"
    folder.mkdir(parents=True)
    stem = f"{2002:020}-xooEt7qrSpueXljI5HgLgw"
    (folder / f"{stem}.index").write_bytes(b"\0\0\0\5\0\0\x10\0")
    (folder / f"{stem}.leader_epoch_checkpoint").write_text("0\n1\n0 0\n")
    found = kolumn.side_files(tmp_path / "tier")
    assert (found["offsetIndex"]["offset"].to_pylist(), found["leaderEpochs"].num_rows) == ([2007], 1)


BROKERS = sorted({case.directory for case in cases() if any(case.directory.glob("*.log"))})


def found(folder: Path) -> list[str]:
    report = kolumn.verify(folder, check_crcs=False)
    assert report.ok
    return [row["remark"] for row in report.remarks.to_pylist() if row["kind"] == "side-file"]


def test_brokers_files_are_right() -> None:
    """Those of compacted logs, of logs whose first records were deleted, of crashed brokers, and of old ones."""
    assert len(BROKERS) > 20
    assert [(folder, remark) for folder in BROKERS for remark in found(folder)] == []


FIRST = f"{0:020}"
EPOCHS = "leader-epoch-checkpoint"
CHANGES = {
    "position": (f"{FIRST}.index", (">i", 12, 1500), "no batch begins there"),
    "offset": (f"{FIRST}.index", (">i", 0, 1), "batches before it go up to offset"),
    "size": (f"{FIRST}.index", bytes(13), "13 bytes, 5 more than 1 entries of 8 bytes take"),
    "size of times": (f"{FIRST}.timeindex", bytes(13), "13 bytes, 1 more than 1 entries of 12 bytes take"),
    "order": (f"{FIRST}.index", (">i", 16, 1), "offsets or positions do not grow"),
    "time": (f"{FIRST}.timeindex", (">q", 36, 1795203217958), "the largest timestamp up to offset"),
    "order of times": (f"{FIRST}.timeindex", (">q", 24, 5), "timestamps or offsets do not grow"),
    "marker": (f"{FIRST}.txnindex", (">q", 18, 12), "no ABORT marker of the producer"),
    "missing": (f"{FIRST}.txnindex", b"", "no entry for the transaction aborted at offset 85"),
    "version": (f"{FIRST}.txnindex", (">h", 0, 9), "version 9, expected 0"),
    "checksum": (f"{192:020}.snapshot", (">b", 20, 99), "checksum"),
    "epochs": (EPOCHS, b"0\n2\n0 0\n1 100\n", "epoch 1 at offset"),
    "order of epochs": (EPOCHS, b"0\n2\n1 0\n0 100\n", "do not grow"),
    "lines": (EPOCHS, b"0\n2\n0 0\n", "1 lines, expected 2"),
    "topic id": ("partition.metadata", b"version: 0\n", "expected the lines version: and topic_id:"),
}


@pytest.mark.parametrize(("name", "change", "text"), CHANGES.values(), ids=CHANGES)
def test_a_changed_file_is_named(name: str, change: Any, text: str, tmp_path: Path) -> None:
    """It has other contents, or another number at a place."""
    folder = copy(HERE / "transactional" / "txn-open-0", tmp_path)
    data = bytearray((folder / name).read_bytes())
    if isinstance(change, bytes):
        data = bytearray(change)
    else:
        struct.pack_into(change[0], data, *change[1:])
    (folder / name).write_bytes(data)
    remarks = found(folder)
    assert any(text in remark for remark in remarks), remarks
    # What can be written anew is right then.
    kolumn.rebuild_index(folder, index_interval_bytes=512)
    assert [remark for remark in found(folder) if "index:" in remark] == []


def test_nothing_is_said_of_what_kolumn_writes_and_of_holes(tmp_path: Path) -> None:
    times = [1_700_000_000_000 + i * 7 % 5000 for i in range(1000)]
    table = pa.table({"offset": range(5, 3005, 3), "timestampMs": times, "value": [b"x" * 40] * 1000})
    kolumn.write(table, tmp_path / "orders-0", batch_bytes=400, segment_bytes=9000, index_interval_bytes=500)
    assert found(tmp_path / "orders-0") == []
    # As a broker makes it; it has lines from the first batch of an epoch on.
    (tmp_path / "orders-0" / EPOCHS).write_bytes(b"")
    assert found(tmp_path / "orders-0") == []
    # A transaction whose batches compaction has removed, and an index that names offsets that are gone.
    first = batch([Record(10, b"k", b"v", 100)])
    second = batch([Record(20, b"k", b"v", 50)], flags=TRANSACTIONAL, producer_id=5, producer_epoch=0, last_offset=25)
    markers = [control_batch(offset, 0, producer_id=producer, producer_epoch=0) for offset, producer in ((30, 5), (40, 6))]
    folder = write_log(tmp_path, (0, [first, second, *markers]))
    (folder / f"{FIRST}.index").write_bytes(struct.pack(">ii", 25, len(first)))
    (folder / f"{FIRST}.timeindex").write_bytes(struct.pack(">qi", 120, 15))
    entries = struct.pack(">hqqqq", 0, 5, 18, 30, 31) + struct.pack(">hqqqq", 0, 6, 2, 40, 41)
    (folder / f"{FIRST}.txnindex").write_bytes(entries)
    (folder / EPOCHS).write_text("0\n1\n0 0\n")
    assert found(folder) == []
