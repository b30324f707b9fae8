"""What `verify` says of ends of segments that are cut, zeroed or foreign, and of intact batches that a reader may trip over."""

import json
import os
import random
import re
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kolumn
from kit import corpus
from kit.asked import invoked, offsets, put, skipping
from kit.encoder import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Record, batch, control_batch, message, with_crc, wrapper
from kit.outcome import raises
from kit.partitions import BASES, END, INJURIES, SOURCE, Injury, log
from kit.replicas import copy, write_log
from kit.streams import GZIP, LZ4, NONE, ZSTD
from kolumn.core.errors import Code
from kolumn.source.segments import find_segments

COMPACTED = ("compact-", "upgraded-compact-", "v0-compact-", "v1-compact-")


def said(path: Path) -> tuple[int, str]:
    done = invoked("verify", path)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, done.output


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
        raises(kolumn.CorruptBatchError, "", kolumn.batches, folder)


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
    table, skipped = skipping(folder, **options)
    assert table.num_rows == injury.records
    told = kolumn.verify(folder).damage.to_pylist()
    mine = [(one.segment, one.position, one.size, one.base_offset, one.last_offset, one.reason) for one in skipped.damage]
    assert mine == [tuple(one[name] for name in ("segment", "position", "size", "baseOffset", "lastOffset", "reason")) for one in told]
    if injury.damage:
        caught = raises(kolumn.CorruptBatchError, "", kolumn.read, folder, **options)
        assert any(reason in str(caught) for reason in injury.reasons)
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
    code, output = said(folder)
    assert code == (1 if injury.damage else 0), output
    verdict = output.splitlines()[0]
    assert verdict.startswith("OK") is not bool(injury.damage)
    assert ("remark" in verdict) == bool(injury.remarks) or injury.damage
    told = json.loads(invoked("verify", "--json", folder).output)
    assert len(told["damage"]) == len(injury.damage)
    assert invoked("cat", folder).exit_code == (1 if injury.damage else 0)


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
        base, folder = rng.choice(BASES[:-1]), copy(SOURCE, tmp_path / str(number))
        os.truncate(log(folder, base), rng.randrange(log(folder, base).stat().st_size))
        following = BASES[BASES.index(base) + 1]
        left = [offset for offset in offsets(folder, errors="skip") if base <= offset < following]
        assert left == list(range(base, base + len(left)))
        (damage,) = kolumn.verify(folder).damage.to_pylist()
        assert (damage["baseOffset"], damage["lastOffset"]) == (base + len(left), following - 1)


@pytest.mark.parametrize("name", ["x.log", "0" * 20 + ".log", "server.log.gz", "server.properties"])
@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"[2026-01-01 12:00:00,000] INFO starting (kafka.server.KafkaServer)\n" * 40, "text"), ("Ünïcode\n".encode() * 4, "text"),
        (b"broker.id=0\n", "text"), (b"\x1f\x8b\x08\x08" + b"\x9c\x01\x02\x03" * 30, "gzip"),
        (b"\x28\xb5\x2f\xfd\x24\x05" + b"\x29\0\0" * 20, "zstd"), (b"PK\x03\x04\x14\0\0\0\x08\0" + b"\xab" * 60, "a ZIP or JAR file"),
        (b"PAR1\x15\x04\x15\x10" + b"\x80" * 60, "a Parquet file"), (random.Random(1).randbytes(5000), "bytes in which no batch begins"),
    ],
)  # fmt: skip
def test_no_segment(tmp_path: Path, name: str, data: bytes, what: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    assert said(path) == (1, f"{path}: not a Kafka log segment: {what} ({len(data)} bytes)\n")
    for read in (kolumn.read, partial(kolumn.read, threads=1), kolumn.batches):
        caught = raises(kolumn.FormatError, "expected a Kafka log segment", read, path)
        assert caught.code == Code.NOT_A_SEGMENT
    assert kolumn.read(path, errors="skip").num_rows == 0


def test_side_files_are_no_segments_and_nothing_is_ok_in_which_nothing_was_read(path: Path) -> None:
    for suffix, what in (("index", "an offset index"), ("timeindex", "a time index"), ("snapshot", "a producer snapshot")):
        code, output = said(next(path for path in sorted(SOURCE.glob(f"*.{suffix}")) if path.stat().st_size))
        assert (code, what in output, "OK" in output) == (1, True, False)
    for size, verdict in ((0, "EMPTY: 1 segment"), (4096, "NO BATCH: 1 segment")):
        path.write_bytes(bytes(size))
        code, output = said(path)
        assert (code, verdict in output, "OK" in output) == (0, True, False)


def test_a_damaged_head_is_still_a_segment(tmp_path: Path) -> None:
    text = b"text that somebody wrote over the head of a segment"
    path = write_log(tmp_path, (370, [text, log(SOURCE, 370).read_bytes()[len(text) :]]))
    report = kolumn.verify(path)
    assert report.records == 188 - 15
    assert {"crc", "batch length"} & set(re.findall("crc|batch length", report.damage["reason"][0].as_py()))
    caught = raises(kolumn.CorruptBatchError, "", kolumn.read, path)
    assert caught.code != Code.NOT_A_SEGMENT


def test_a_broker_that_appends_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Index entries that were written after the log was read do not prove damage."""
    folder = copy(SOURCE, tmp_path)
    last = log(folder, BASES[-1])
    whole = last.read_bytes()
    last.write_bytes(whole[:5000])
    segments = find_segments(folder)
    last.write_bytes(whole)
    monkeypatch.setattr("kolumn.readers.plan.find_segments", lambda *given: segments)
    report = kolumn.verify(folder)
    assert (report.ok, report.remarks.num_rows) == (True, 0)
    assert report.records < END


def test_copies_and_names_that_are_not_utf8(tmp_path: Path) -> None:
    """`verify` checks each copy of a partition by itself, and reports that there are several."""
    report = kolumn.verify([copy(SOURCE, tmp_path / name).parent for name in ("b1", "b2")])
    assert (report.ok, report.records) == (True, 2 * END)
    (remark,) = report.remarks.to_pylist()
    assert (remark["kind"], remark["offset"], remark["lastOffset"]) == ("copies", 0, END - 1)
    assert "b1" in remark["remark"]
    assert "b2" in remark["remark"]
    folder = os.fsencode(tmp_path / "2") + b"/caf\xe9-0"
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
        code, output = said(tmp_path / name)
        assert (code, len(output.splitlines()), "OK" in output) == (1 if text else 0, 1, False), (name, output)


NOW = 1_700_000_000_000


def records(first: int, count: int, timestamp: int = NOW) -> list[Record]:
    return [Record(offset, b"k", b"v%d" % offset, timestamp + offset) for offset in range(first, first + count)]


def plain(magic: int, some: Sequence[Record]) -> bytes:
    return b"".join(message(magic, one) for one in some)


ENTRIES: dict[str, Callable[[Sequence[Record]], bytes]] = {
    "batch": batch,
    "gzip": lambda some: batch(some, codec=GZIP),
    "zstd": lambda some: batch(some, codec=ZSTD),
    "messages": lambda some: plain(1, some),
    "old messages": lambda some: plain(0, some),
    "wrapper": lambda some: wrapper(1, some, GZIP),
}


def segment(folder: Path, *parts: bytes, base: int = 0) -> Path:
    return put(folder / "t-0", *parts, base=base).parent


def remarked(folder: Path) -> list[tuple[str, int, tuple[int | None, int | None], str]]:
    """Kind, position, offsets and text of the remarks of an undamaged log, in any pieces that it can be read in."""
    reports = [kolumn.verify(folder, **how) for how in ({}, {"threads": 1}, {"threads": 3, "chunk_bytes": 1})]
    count = kolumn.read(folder, include_control=True).num_rows
    for report in reports:
        assert (report.damage.num_rows, report.records, report.remarks) == (0, count, reports[0].remarks)
    rows = reports[0].remarks.to_pylist()
    return [(row["kind"], row["position"], (row["offset"], row["lastOffset"]), row["remark"]) for row in rows]


def check(folder: Path, kind: str, position: int, offsets: tuple[int, int], *words: str) -> None:
    """There is one remark, with these words."""
    [(*found, text)] = remarked(folder)
    assert found == [kind, position, offsets]
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize("made", ENTRIES.values(), ids=ENTRIES)
def test_offsets_that_go_back(made: Callable[[Sequence[Record]], bytes], tmp_path: Path) -> None:
    before, again = made(records(0, 10)) + made(records(10, 20)), made(records(15, 20))
    words = f"go back once: at position {len(before)} 29 is followed by 15; 15 records have an offset that is not above all before"
    check(segment(tmp_path, before, again, made(records(35, 5))), "offsets-back", len(before), (15, 29), words)


def test_offsets_that_go_back_often_or_to_absent_records(tmp_path: Path) -> None:
    """The batches of the second log overlap, and none of their records do; in the third one they go back to where none were."""
    parts = [message(1, records(0, 1)[0])] * 3000
    check(segment(tmp_path / "1", *parts), "offsets-back", len(parts[0]), (0, 0), "go back 2999 times", "2999 records have")
    first = batch(records(0, 10), last_offset=29)
    check(segment(tmp_path / "2", first, batch(records(15, 5))), "offsets-back", len(first), (15, 29), "; 0 records have")
    (remark,) = remarked(segment(tmp_path / "3", batch(records(0, 1)), batch(records(100, 10)), batch(records(50, 10))))
    assert remark[0] == "offsets-back"
    assert "109 is followed by 50; 10 records have" in remark[-1]


def test_offsets_between_segments(tmp_path: Path) -> None:
    first = batch(records(0, 10))
    segment(tmp_path, first, batch(records(10, 10)))
    folder = segment(tmp_path, batch(records(15, 20)), base=15)
    check(folder, "offsets-back", len(first), (15, 19), "19 is followed by 15")
    assert offsets(folder) == [*range(20), *range(15, 35)]
    # Its offsets do not reach the next segment: they begin beyond.
    segment(tmp_path / "2", batch(records(0, 10)), batch(records(1 << 20, 10)))
    report = kolumn.verify(segment(tmp_path / "2", batch(records(20, 5)), base=20))
    assert [one["reason"].partition(":")[0] for one in report.damage.to_pylist()] == ["offset"]


@pytest.mark.parametrize("codec", [NONE, GZIP, LZ4])
def test_offsets_that_do_not_grow_in_a_batch(codec: int, tmp_path: Path) -> None:
    good, shuffled = batch(records(0, 3)), [Record(offset, None, b"v", NOW) for offset in (3, 5, 4, 5, 6)]
    folder = segment(tmp_path, good, batch(shuffled, codec=codec), batch(records(7, 3)), batch(records(10, 3)))
    check(folder, "offsets-in-batch", len(good), (4, 5), "inside of 1 batch: in the first one 5 is followed by 4")


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_a_largest_timestamp_that_is_not_set_or_below_a_record(codec: int, tmp_path: Path) -> None:
    good, odd = batch(records(0, 3)), [batch(records(first, 3), codec=codec, max_timestamp=-1) for first in (3, 6)]
    words = f"is unset in 2 batches: in the first one -1 in its header, {NOW + 5} in a record"
    check(segment(tmp_path / "1", good, *odd), "max-timestamp", len(good), (3, 5), words)
    words = f"is below a record's in 1 batch: in the first one {NOW + 4} in its header, {NOW + 5} in a record"
    low = batch(records(3, 3), codec=codec, max_timestamp=NOW + 4)
    check(segment(tmp_path / "2", good, low), "max-timestamp", len(good), (3, 5), words)
    good, low, later = (wrapper(1, records(first, 3), GZIP, timestamp=time) for first, time in ((0, None), (3, NOW + 4), (6, None)))
    check(segment(tmp_path / "3", good, low, later), "max-timestamp", len(good), (3, 5))


@pytest.mark.parametrize(("scale", "unit"), [(1000, "microseconds"), (10**6, "nanoseconds")])
def test_timestamps_in_another_unit(scale: int, unit: str, tmp_path: Path) -> None:
    some = records(0, 20)
    some[7] = Record(7, None, b"v", NOW * scale)
    words = f"1 timestamp outside of the years 1 to 9999; this looks like {unit}: the first one is {NOW * scale} at offset 7"
    for name in ("batch", "messages", "wrapper"):
        position = len(plain(1, some[:7])) if name == "messages" else 0
        check(segment(tmp_path / name, ENTRIES[name](some)), "far-timestamp", position, (7, 7), words)


def test_timestamps_far_away(tmp_path: Path) -> None:
    latest, earliest = 253_402_300_799_999, -62_135_596_800_000
    for number, times in enumerate(([latest, earliest, -2], [2**63 - 1], [-(2**63)], [latest + 1], [earliest - 1])):
        some = [Record(offset, None, b"v", time) for offset, time in enumerate(times)]
        found = remarked(segment(tmp_path / str(number), batch(some, base_timestamp=0)))
        assert [remark[0] for remark in found] == ["far-timestamp"] * (number > 0), times
        assert all(str(times[0]) in remark[-1] for remark in found)


@pytest.mark.parametrize("make", [batch, partial(wrapper, 1), partial(wrapper, 0)], ids=["batch", "wrapper", "old wrapper"])
def test_an_lz4_frame_whose_content_checksum_is_wrong(make: Callable[..., bytes], tmp_path: Path) -> None:
    parts = [make(records(first, 10), codec=LZ4, style="content-checksum") for first in range(0, 100, 10)]
    assert remarked(segment(tmp_path, *parts)) == []
    parts[3] = with_crc(parts[3][:-1] + bytes([parts[3][-1] ^ 1]))
    words = "the content checksum of 1 lz4 frame is wrong"
    check(segment(tmp_path, *parts), "content-checksum", sum(map(len, parts[:3])), (30, 39), words)


def test_nothing_is_remarked_of_what_brokers_write(tmp_path: Path) -> None:
    """Append times, holes that compaction leaves, batches that it emptied, markers without a timestamp, aborted transactions."""
    kept = [Record(offset, b"k", b"v", NOW + offset) for offset in (20, 23, 27)]
    parts = [
        batch(records(0, 5), flags=LOG_APPEND_TIME, max_timestamp=NOW - 99),
        wrapper(1, records(5, 5), GZIP, flags=LOG_APPEND_TIME, timestamp=NOW - 99),
        wrapper(0, records(10, 3), GZIP),
        plain(1, records(13, 3)),
        batch(kept, base_offset=18, last_offset=29, max_timestamp=NOW + 10**6),
        batch([], base_offset=30, last_offset=34, max_timestamp=NOW),
        batch(records(40, 5), flags=TRANSACTIONAL, producer_id=7),
        control_batch(45, 0, timestamp=-1),
        batch([Record(46, b"\0\0\0\2", b"", -1)], flags=CONTROL),
        batch([Record(47, None, b"v", -1), Record(48, None, b"v", NOW)]),
    ]
    assert remarked(segment(tmp_path, *parts)) == []
    assert remarked(segment(tmp_path / "empty", batch([], base_offset=0, last_offset=4))) == []


def test_remarks_do_not_follow_damage_and_are_one_row_for_many_batches(tmp_path: Path) -> None:
    """Between two intact batches lies a damaged one; what was before still counts."""
    parts = [batch(records(first, 10)) for first in (0, 10, 20, 5)]
    parts[1] = parts[1][:-1] + b"?"
    report = kolumn.verify(segment(tmp_path, *parts))
    assert [(one["kind"], one["offset"], one["lastOffset"]) for one in report.remarks.to_pylist()] == [("offsets-back", 5, 29)]
    assert report.damage.num_rows == 1
    folder = segment(tmp_path / "2", np.tile(np.frombuffer(batch(records(0, 1), max_timestamp=-1), np.uint8), 20000).tobytes())
    report = kolumn.verify(folder)
    assert report.remarks["kind"].to_pylist() == ["offsets-back", "max-timestamp"]
    assert "unset in 20000 batches" in report.remarks["remark"][1].as_py()
