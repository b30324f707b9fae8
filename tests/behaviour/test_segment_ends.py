"""Ends of segments: cut, zeroed, emptied, missing, duplicated and foreign files are reported by every way of reading."""

import json
import os
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import kolumn
from kit import corpus
from kit.partitions import BASES, END, INJURIES, SOURCE, Injury, log
from kolumn.cli import app
from kolumn.core.errors import Code

COMPACTED = ("compact-", "upgraded-compact-", "v0-compact-", "v1-compact-")


@pytest.mark.parametrize("injury", INJURIES, ids=lambda one: one.name)
def test_every_way_of_reading_reports_it(injury: Injury, tmp_path: Path) -> None:
    folder = injury.to(tmp_path)
    verified(injury, folder)
    for options in ({"threads": 1}, {"threads": 3}, {"threads": 2, "chunk_bytes": 1}):
        read(injury, folder, **options)
    named(folder)
    by_command(injury, folder)
    # The list of batches ends where the log is cut, as a read does. Damage that only offsets show does not concern single batches.
    assert kolumn.batches(folder, errors="skip").filter(pa.compute.field("crcValid"))["count"].null_count == 0
    if injury.damage:
        with pytest.raises(kolumn.CorruptBatchError):
            kolumn.batches(folder)


def verified(injury: Injury, folder: Path) -> None:
    report = kolumn.verify(folder)
    damage = report.damage.to_pylist()
    assert [(one["baseOffset"], one["lastOffset"]) for one in damage] == list(injury.damage)
    for one, reason in zip(damage, injury.reasons, strict=True):
        assert reason in one["reason"]
    assert [(one["kind"], one["offset"], one["lastOffset"]) for one in report.remarks.to_pylist()] == list(injury.remarks)
    assert all(one["evidence"] and one["remark"] for one in report.remarks.to_pylist())
    assert report.records == injury.records
    assert report.ok is not bool(injury.damage)


def read(injury: Injury, folder: Path, **options: int) -> None:
    skipped = kolumn.Skipped()
    table = kolumn.read(folder, errors="skip", on_damage=skipped, **options)
    assert table.num_rows == injury.records
    told = kolumn.verify(folder).damage.to_pylist()
    mine = [(one.segment, one.position, one.size, one.base_offset, one.last_offset, one.reason) for one in skipped.damage]
    assert mine == [tuple(one[name] for name in ("segment", "position", "size", "baseOffset", "lastOffset", "reason")) for one in told]
    if injury.damage:
        with pytest.raises(kolumn.CorruptBatchError) as caught:
            kolumn.read(folder, **options)
        assert any(reason in str(caught.value) for reason in injury.reasons)
    else:
        assert kolumn.read(folder, **options).equals(table)


def named(folder: Path) -> None:
    """A segment has the same report if it is named by itself, by a glob, or by its directory."""
    whole = kolumn.verify(folder)
    matched = kolumn.verify(f"{folder}/*.log")
    assert matched.damage.equals(whole.damage)
    assert matched.remarks.equals(whole.remarks)
    assert matched.segments.sort_by("segment").equals(whole.segments.sort_by("segment"))
    for state in whole.segments.to_pylist():
        assert kolumn.verify(state["segment"]).segments.to_pylist() == [state]


def by_command(injury: Injury, folder: Path) -> None:
    found = CliRunner().invoke(app, ["verify", str(folder)])
    assert found.exit_code == (1 if injury.damage else 0), found.output
    verdict = found.output.splitlines()[-1]
    assert verdict.startswith("OK") is not bool(injury.damage)
    assert ("remark" in verdict) == bool(injury.remarks) or injury.damage
    told = json.loads(CliRunner().invoke(app, ["verify", "--json", str(folder)]).output)
    assert len(told["damage"]) == len(injury.damage)
    cat = CliRunner().invoke(app, ["cat", str(folder)])
    assert cat.exit_code == (1 if injury.damage else 0)


def test_no_false_alarm() -> None:
    """Segments of real brokers have no damage, and offsets are missing only in compacted logs. Snapshots beside a log are named."""
    for case in corpus.cases():
        report = kolumn.verify(case.directory)
        assert report.ok, case.directory
        compacted = case.directory.name.startswith(COMPACTED)
        kinds = {one["kind"] for one in report.remarks.to_pylist()}
        assert compacted or kinds == ({"snapshots"} if any(case.directory.glob("0*.checkpoint")) else set()), (case.directory, kinds)


def test_random_cuts(tmp_path: Path) -> None:
    """A rolled segment may be cut at any position: the whole records are read, and the others are reported."""
    rng = random.Random(20)
    for number in range(60):
        base = rng.choice(BASES[:-1])
        folder = tmp_path / str(number) / SOURCE.name
        shutil.copytree(SOURCE, folder)
        os.truncate(log(folder, base), rng.randrange(log(folder, base).stat().st_size))
        report = kolumn.verify(folder)
        following = BASES[BASES.index(base) + 1]
        found = [offset for offset in kolumn.read(folder, errors="skip")["offset"].to_pylist() if base <= offset < following]
        assert found == list(range(base, base + len(found)))
        damage = report.damage.to_pylist()
        assert [(one["baseOffset"], one["lastOffset"]) for one in damage] == [(base + len(found), following - 1)]


@pytest.mark.parametrize("name", ["x.log", "0" * 20 + ".log", "server.log.gz", "server.properties"])
@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"[2026-01-01 12:00:00,000] INFO starting (kafka.server.KafkaServer)\n" * 40, "text"),
        ("Ünïcode\n".encode() * 4, "text"),
        (b"broker.id=0\n", "text"),
        (b"\x1f\x8b\x08\x08" + b"\x9c\x01\x02\x03" * 30, "gzip"),
        (b"\x28\xb5\x2f\xfd\x24\x05" + b"\x29\0\0" * 20, "zstd"),
        (b"PK\x03\x04\x14\0\0\0\x08\0" + b"\xab" * 60, "a ZIP or JAR file"),
        (b"PAR1\x15\x04\x15\x10" + b"\x80" * 60, "a Parquet file"),
        (random.Random(1).randbytes(5000), "bytes in which no batch begins"),
    ],
    ids=["log4j", "utf-8", "properties", "gzip", "zstd", "zip", "parquet", "noise"],
)
def test_no_segment(tmp_path: Path, name: str, data: bytes, what: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    found = CliRunner().invoke(app, ["verify", str(path)])
    assert found.exit_code == 1
    assert found.output == f"{path}: not a Kafka log segment: {what} ({len(data)} bytes)\n"
    for options in ({}, {"threads": 1}):
        with pytest.raises(kolumn.FormatError, match="expected a Kafka log segment") as caught:
            kolumn.read(path, **options)
        assert caught.value.code == Code.NOT_A_SEGMENT
    assert kolumn.read(path, errors="skip").num_rows == 0
    with pytest.raises(kolumn.FormatError, match="expected a Kafka log segment"):
        kolumn.batches(path)


@pytest.mark.parametrize(
    ("suffix", "what"), [("index", "an offset index"), ("timeindex", "a time index"), ("snapshot", "a producer snapshot")]
)
def test_side_files_are_no_segments(suffix: str, what: str) -> None:
    path = next(one for one in sorted(SOURCE.glob(f"*.{suffix}")) if one.stat().st_size)
    found = CliRunner().invoke(app, ["verify", str(path)])
    assert (found.exit_code, what in found.output, "OK" in found.output) == (1, True, False)


@pytest.mark.parametrize(("size", "verdict"), [(0, "EMPTY: 1 segment"), (4096, "NO BATCH: 1 segment")])
def test_nothing_is_ok_in_which_nothing_was_read(tmp_path: Path, size: int, verdict: str) -> None:
    path = tmp_path / "t-0" / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(bytes(size))
    found = CliRunner().invoke(app, ["verify", str(path)])
    assert found.exit_code == 0
    assert verdict in found.output
    assert "OK" not in found.output


def test_a_damaged_head_is_still_a_segment(tmp_path: Path) -> None:
    """A damaged first header is reported as damage, and the intact entries after it are read."""
    data = log(SOURCE, 370).read_bytes()
    path = tmp_path / "t-0" / f"{370:020}.log"
    path.parent.mkdir()
    path.write_bytes(b"text that somebody wrote over the head of a segment" + data[51:])
    report = kolumn.verify(path)
    assert report.records == 188 - 15
    assert "crc" in report.damage["reason"][0].as_py() or "batch length" in report.damage["reason"][0].as_py()
    with pytest.raises(kolumn.CorruptBatchError) as caught:
        kolumn.read(path)
    assert caught.value.code != Code.NOT_A_SEGMENT


def test_a_broker_that_appends_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Index entries that were written after the log was read do not prove damage."""
    from kolumn.source.segments import find_segments

    folder = tmp_path / SOURCE.name
    shutil.copytree(SOURCE, folder)
    last = log(folder, BASES[-1])
    whole = last.read_bytes()
    last.write_bytes(whole[:5000])
    found = find_segments(folder)
    last.write_bytes(whole)
    monkeypatch.setattr("kolumn.readers.plan.find_segments", lambda *given: found)
    report = kolumn.verify(folder)
    assert report.ok
    assert report.remarks.num_rows == 0
    assert report.records < END


def test_copies_are_remarked(tmp_path: Path) -> None:
    """`verify` checks each copy of a partition by itself, and reports that there are several."""
    for name in ("b1", "b2"):
        shutil.copytree(SOURCE, tmp_path / name / SOURCE.name)
    report = kolumn.verify([tmp_path / "b1", tmp_path / "b2"])
    assert report.ok
    assert report.records == 2 * END
    (remark,) = report.remarks.to_pylist()
    assert (remark["kind"], remark["offset"], remark["lastOffset"]) == ("copies", 0, END - 1)
    assert "b1" in remark["remark"]
    assert "b2" in remark["remark"]


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9-0"
    shutil.copytree(SOURCE, os.fsdecode(folder))
    for suffix in ("log", "index", "timeindex"):
        log(Path(os.fsdecode(folder)), 370, suffix).unlink()
    report = kolumn.verify(os.fsdecode(folder))
    assert report.remarks["kind"].to_pylist() == ["offset-gap"]
    assert r"caf\xe9-0" in report.remarks["segment"][0].as_py()


def test_files_of_a_kafka_installation(tmp_path: Path) -> None:
    """Each of them gets one line, which never contains "OK"."""
    line = "[2026-01-01 12:00:00,000] INFO [KafkaServer id=1] started (kafka.server.KafkaServer)\n"
    files = {
        "logs/server.log": line * 500,
        "logs/server.log.2026-01-01-00": line,
        "logs/state-change.log": "",
        "logs/kafkaServer-gc.log": "[0.004s][info][gc] Using G1\n",
        "config/server.properties": "broker.id=0\nlog.dirs=/tmp/kafka-logs\n",
        "config/log4j2.yaml": "Configuration:\n  Properties:\n",
        "config/empty.properties": "\n",
        "data/meta.properties": "#\n#Thu Jan 01\nversion=1\n",
        "data/recovery-point-offset-checkpoint": "0\n1\norders 0 900\n",
        "data/cleaner-offset-checkpoint": "0\n0\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        found = CliRunner().invoke(app, ["verify", str(tmp_path / name)])
        assert found.exit_code == (1 if text else 0), (name, found.output)
        assert len(found.output.splitlines()) == 1, (name, found.output)
        assert "OK" not in found.output
        assert found.exception is None or isinstance(found.exception, SystemExit)
