"""Formats beside Kafka's: a new one is one file; rules of the drafts beyond layouts. Single wrong records in entries of all formats."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit import drafts
from kit.asked import offsets, skipping
from kit.differential import rows_of
from kit.encoder import TRANSACTIONAL, Record, batch, message, raw_batch
from kit.oracle import Row, sound_rows
from kit.outcome import raises
from kit.replicas import write_log
from kit.wrong_records import ONE, TIME, WRONG, Case, cases
from kolumn.core.errors import Code
from kolumn.decode.host.headers import headers
from kolumn.source.segments import Segment

PROGRAM = """
import struct, sys, zlib, gzip
from pathlib import Path
import kolumn
folder = Path(sys.argv[1])

def message(delta, key, value):
    body = struct.pack(">iqi", delta, 1700000000000 + delta, -1 if key is None else len(key)) + (key or b"") + value
    return struct.pack(">i", len(body)) + body

def entry(base, messages, codec=0):
    payload = b"".join(message(i, *one) for i, one in enumerate(messages))
    covered = struct.pack(">bbiq", 2, codec, len(messages), 1700000000099) + (gzip.compress(payload, mtime=0) if codec else payload)
    return struct.pack(">qiI", base, len(covered) + 4, zlib.crc32(covered)) + covered

def rows(first):
    return [(b"key %d" % i if i % 3 else None, b"value %d " % i * (i % 7)) for i in range(first, first + 10)]

log = folder / "topic-0"
log.mkdir()
entries = [entry(first, rows(first), int(first % 20 == 10)) for first in range(0, 60, 10)]
segment = log / f"{0:020}.log"
segment.write_bytes(b"".join(entries))

def expect(table, offsets):
    known = {first + i: one for first in range(0, 60, 10) for i, one in enumerate(rows(first))}
    assert table["offset"].to_pylist() == offsets, table["offset"].to_pylist()
    assert list(zip(table["key"].to_pylist(), table["value"].to_pylist())) == [known[offset] for offset in offsets]
    assert table["timestampMs"].to_pylist() == [1700000000000 + offset % 10 for offset in offsets]

options = dict(format="fifth", columns=("offset", "timestampMs", "key", "value"))
expect(kolumn.read(log, **options), list(range(60)))
expect(kolumn.read(log, start_offset=25, **options), list(range(25, 60)))
table = kolumn.batches(log, format="fifth")
assert table["baseOffset"].to_pylist() == list(range(0, 60, 10)) and table["codec"].to_pylist() == ["none", "gzip"] * 3
assert kolumn.verify(log, format="fifth").ok
assert kolumn.losses(source_format="fifth", format="kafka", magic=0) == ["LogAppendTime types", "timestamps"]
kolumn.convert(log, folder / "shipped", source_format="fifth")
expect(kolumn.read(folder / "shipped", columns=options["columns"]), list(range(60)))

# The second entry's length is damaged: the third one is found by its checksum.
data = bytearray(segment.read_bytes())
data[len(entries[0]) + 8 : len(entries[0]) + 12] = b"\\x00\\x7f\\x00\\x00"
segment.write_bytes(data)
expect(kolumn.read(log, errors="skip", **options), [*range(10), *range(20, 60)])
try:
    kolumn.read(log, **options)
except kolumn.CorruptBatchError as error:
    assert error.position == len(entries[0])
else:
    raise AssertionError("no error")

from kit.emulated import Emulated, run_loops
from kolumn.kernels.machine import device
segment.write_bytes(b"".join(entries))
with device.using(Emulated(run_loops)):
    expect(kolumn.read(log, backend="gpu", **options), list(range(60)))
print("done")
"""


@pytest.mark.slow
def test_one_file_makes_a_format(tmp_path: object) -> None:
    environment = {**os.environ, "KOLUMN_FORMATS": "kit.fifth_draft", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


@pytest.mark.parametrize(("format", "data", "code", "text"), WRONG, ids=[f"{one[0]}-{one[2].name}-{i}" for i, one in enumerate(WRONG)])
def test_what_is_wrong_is_named(path: Path, format: str, data: bytes, code: Code, text: str) -> None:
    writers: dict[str, Callable[[Record], bytes]] = {"enriched": drafts.tagged, "kip87": drafts.flagged}
    good = writers.get(format, partial(message, 0))
    path.write_bytes(data + good(Record(5, b"a", b"b", TIME)))
    caught = raises(kolumn.CorruptBatchError, text, kolumn.read, path, format=format)
    assert (caught.code, caught.position) == (code, 0)
    assert isinstance(caught, kolumn.FormatError) == (code in (Code.MESSAGE_TYPE, Code.BAD_MAGIC, Code.CODEC_NOT_ALLOWED))
    assert kolumn.read(path, format=format, columns=["offset"], errors="skip")["offset"].to_pylist() == [5]
    report = kolumn.verify(path, format=format)
    assert (report.ok, report.records) == (False, 1)


def test_tags_that_are_unknown_or_many(path: Path) -> None:
    cut = drafts.time_tag(TIME) + b"\x63\x20"
    twice = drafts.time_tag(1) + drafts.count_tag(7) + drafts.time_tag(TIME + 1)
    data = drafts.tagged(ONE, seconds=9, tags=cut) + drafts.tagged(Record(1, None, b"", 0), seconds=9, tags=twice)
    data += drafts.tagged(Record(2, None, b"", 0), seconds=9, tags=None) + drafts.tagged(Record(3, None, b"", 0), seconds=-1, tag_length=0)
    path.write_bytes(data)
    columns = ["timestampMs", "timestampSeconds", "brokerTimestampMs"]
    assert [tuple(row.values()) for row in kolumn.read(path, format="enriched", columns=columns).to_pylist()] == [
        (TIME, 9, TIME), (TIME + 1, 9, TIME + 1), (9000, 9, None), (-1, None, None),
    ]  # fmt: skip
    # An enriched header has no maximum size: the walk over headers requests as many bytes as the tags have.
    path.write_bytes(drafts.tagged(Record(0, None, b"x" * 70_000, -1), tags=drafts.time_tag(TIME) * 9000) * 2)
    assert kolumn.batches(path, format="enriched", check_crcs=False)["maxTimestampMs"].to_pylist() == [TIME, TIME]


def test_compact_and_shipped_in_one_file(path: Path) -> None:
    records = [drafts.bare_record(Record(7, b"a", b"b", TIME), 7, TIME)]
    real = drafts.compact_batch(7, records, last_delta=0, base_timestamp=TIME, max_delta=0, leader_epoch=0x03030303)
    path.write_bytes(real + batch([Record(8, b"c", b"d", TIME)]) + message(1, Record(9, None, b"e", TIME)) + real)
    found = kolumn.read(path, format="v3-compact", columns=["offset", "magic"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [(7, 3), (8, 2), (9, 1), (7, 3)]
    path.write_bytes(real + real[:-1] + bytes([real[-1] ^ 1]))
    raises(kolumn.CorruptBatchError, f"position {len(real)}, base offset 7: crc", kolumn.read, path, format="v3-compact")


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_checksums_decide_where_both_frames_fit(path: Path, right: bool) -> None:
    """A shipped batch whose size begins with 0x20, a varint of 32, and whose leader epoch has a 3 at the position of format 3's magic."""
    data = bytearray(raw_batch(bytes((0x20 << 24) + 100), 0, leader_epoch=0x00030000))
    assert data[8] == 0x20
    data[-1] ^= not right
    path.write_bytes(data)
    [first, *rest] = kolumn.batches(path, format="v3-compact", errors="skip").to_pylist()
    assert (first["magic"], first["size"], first["crcValid"], rest) == ((2, len(data), True, []) if right else (3, 41, False, rest))
    [first, *_] = kolumn.batches(path, format="v3-compact", errors="skip", check_crcs=False).to_pylist()
    assert first["magic"] == 3


def test_kip98_transactions(tmp_path: Path) -> None:
    """Markers are messages of a set; two markers in one set may end two transactions of their producer."""

    def part(offset: int, producer: int, *messages: tuple[int, bytes, bool]) -> bytes:
        made = [drafts.set_message(Record(at, key, None if control else b"v", TIME), offset, control) for at, key, control in messages]
        return drafts.message_set(offset, made, messages[-1][0] - offset + 1, flags=TRANSACTIONAL, producer=(producer, 0, 0))

    abort, commit = b"\0\0\0\1", b"\0\0\0\0"
    data = part(0, 1, (0, b"a", False), (1, abort, True), (2, b"b", False), (3, commit, True)) + part(4, 2, (4, b"c", False))
    folder = write_log(tmp_path, (0, [data, message(0, Record(5, b"d", b"v", -1))]))
    states = kolumn.read(folder, format="kip98-draft", columns=["offset", "transaction"]).to_pylist()
    assert [tuple(row.values()) for row in states] == [(0, "aborted"), (2, "committed"), (4, "open"), (5, "none")]
    given = [({}, [2]), ({"open_transactions": "skip"}, [2, 5]), ({"open_transactions": "include"}, [2, 4, 5])]
    for options, kept in given:
        assert offsets(folder, format="kip98-draft", isolation_level="read_committed", **options) == kept


def test_sequences_and_epochs_wrap(path: Path, tmp_path: Path) -> None:
    data = drafts.message_set(0, [drafts.set_message(Record(i, None, b"", TIME), 0) for i in range(4)], 4, producer=(1, 32767, 2**31 - 2))
    path.write_bytes(data)
    found = kolumn.read(path, format="kip98-draft", columns=["sequence", "producerEpoch"])
    assert found["sequence"].to_pylist() == [2**31 - 2, 2**31 - 1, 0, 1]
    # The next set begins where the span of this one ends, and the epoch after the largest one is 0.
    table = pa.table({"offset": [4], "producerId": [1], "producerEpoch": [0], "sequence": [2], "value": [b"x"]})
    kolumn.write(table, tmp_path / "b.log", format="kip98-draft")
    assert kolumn.batches(tmp_path / "b.log", format="kip98-draft")["baseSequence"].to_pylist() == [2]


def test_tombstones_of_kip87(tmp_path: Path) -> None:
    columns = {"offset": [0, 1, 2], "key": [b"a"] * 3, "value": [b"why", None, b"v"], "tombstone": [True, None, None]}
    kolumn.write(pa.table(columns), tmp_path / "a.log", format="kip87", codec="gzip")
    assert kolumn.read(tmp_path / "a.log", format="kip87", columns=["tombstone"])["tombstone"].to_pylist() == [True, True, False]
    with pytest.raises(kolumn.ArgumentError, match="the record at offset 1 has no value and is not a tombstone"):
        kolumn.write(pa.table(columns | {"tombstone": [True, False, None]}), tmp_path / "b.log", format="kip87")
    bits = (0, drafts.TOMBSTONE)
    (tmp_path / "c.log").write_bytes(b"".join(drafts.flagged(Record(9 + i, b"a", None, TIME), bit) for i, bit in enumerate(bits)))
    report = kolumn.verify(tmp_path / "c.log", format="kip87")
    assert report.ok
    assert report.remarks.select(["position", "offset"]).to_pylist() == [{"position": 0, "offset": 9}]


def test_headers_know_where_enriched_sets_end(path: Path) -> None:
    """Planning in Spark needs the last offset of every segment, although it is known only after decompression."""

    def wrapper(offset: int, *inner: int) -> bytes:
        return drafts.tagged_wrapper(offset, [drafts.tagged(Record(i, None, b"", -1)) for i in inner], 1, tags=drafts.count_tag(len(inner)))

    path.write_bytes(wrapper(0, 0, 1) + wrapper(10, 0, 5) + wrapper(20, 0, 7))
    assert kolumn.batches(path, format="enriched")["lastOffset"].to_pylist() == [None, None, None]
    segment = Segment(str(path), None, None, None, path.stat().st_size, "enriched")
    assert [entries.last_offset.tolist() for entries in headers(segment)] == [[9, 19, 27]]


def test_unknown_formats(tmp_path: Path) -> None:
    words = "expected one of kafka, enriched, kip98-draft, v3-compact, kip87"
    for format in ("csv", "Kafka", ""):
        raises(kolumn.ArgumentError, words, kolumn.read, tmp_path, format=format)


WAYS: list[dict[str, Any]] = [{}, {"binary": "view"}, {"chunk_bytes": 100}, {"threads": 2, "chunk_bytes": 200}, {"memory_bytes": 300}]
COLUMNS = list(Row._fields)


@pytest.mark.sample
@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.name)
def test_what_can_be_read_is_read(path: Path, case: Case) -> None:
    path.write_bytes(case.data)
    whole, at = None if case.format != "kafka" else [], 0
    while whole is not None and at < len(case.data):
        end = at + 12 + int.from_bytes(case.data[at + 8 : at + 12], "big")
        whole += sound_rows(case.data[at:end], at)
        at = end
    for options in WAYS:
        table, skipped = skipping(path, columns=COLUMNS, format=case.format, **options)
        assert table["offset"].to_pylist() == case.offsets
        assert whole is None or rows_of(table) == whole
        (damage,) = skipped.damage
        assert case.lost is None or damage.records_lost == case.lost
        if damage.base_offset is not None and damage.last_offset is not None and case.lost:
            assert 3 <= damage.base_offset <= damage.last_offset <= 12
            assert damage.last_offset - damage.base_offset + 1 >= case.lost
    report = kolumn.verify(path, format=case.format)
    assert (report.records, report.batches, report.damage.num_rows) == (len(case.offsets), 2, 1)
    caught = raises(kolumn.CorruptBatchError, "", kolumn.read, path, format=case.format)
    assert caught.field in report.damage["reason"][0].as_py()
    assert caught.position == report.damage["position"][0].as_py()


def test_ranges_are_filters(path: Path) -> None:
    (case,) = (case for case in cases() if case.name == "2 0 three")
    path.write_bytes(case.data)
    for start in range(22):
        for end in (start + 1, start + 4, 30):
            assert offsets(path, errors="skip", start_offset=start, end_offset=end) == [one for one in case.offsets if start <= one < end]


@pytest.mark.parametrize("name", ["2 0 three", "2 1 first", "2 0 beyond", "2 0 length", "2 0 no count", "1 last", "0 middle"])
def test_what_is_rewritten_has_no_wrong_records(path: Path, tmp_path: Path, name: str) -> None:
    (case,) = (case for case in cases() if case.name == name)
    folder = write_log(tmp_path, (0, [case.data]))
    expected = kolumn.read(folder, errors="skip", columns=["offset", "key", "value", "timestampMs"])
    for magic in (0, 1, 2):
        target = tmp_path / f"converted-{magic}-0"
        skipped = kolumn.convert(folder, target, magic=magic, errors="skip").skipped
        columns = expected.column_names if magic else ["offset", "key", "value"]
        assert kolumn.read(target, columns=columns).equals(expected.select(columns))
        assert (skipped.stretches, skipped.records) == (1, case.lost)
    kolumn.compact(folder, tmp_path / "compacted-0", errors="skip", include_active=True)
    keyed = [row for row in expected.to_pylist() if row["key"] is not None]
    assert kolumn.read(tmp_path / "compacted-0", columns=expected.column_names).to_pylist() == keyed
    assert kolumn.space(folder, errors="skip")[0].records == len(expected)


@pytest.mark.parametrize("name", ["2 0 middle", "2 2 middle", "1 middle", "1 first", "1 last", "0 three"])
def test_a_batch_with_a_wrong_record_is_the_same_in_every_copy(tmp_path: Path, name: str) -> None:
    """It is kept byte for byte, and what cannot be read of it is reported once."""
    (case,) = (case for case in cases() if case.name == name)
    copies = [write_log(tmp_path / broker, (0, [case.data])) for broker in ("one", "two")]
    table, skipped = skipping(copies, replicas="merge", columns=["offset"])
    assert (table["offset"].to_pylist(), skipped.stretches, skipped.records) == (case.offsets, 1, case.lost)
    for source in (copies[0], copies):
        done = kolumn.recover(source, tmp_path / f"recovered-{len(str(source))}")
        (folder,) = done.partitions["folder"].to_pylist()
        assert b"".join(path.read_bytes() for path in sorted(Path(folder).glob("*.log"))) == case.data
        assert [(row["kind"], row["recordsLost"]) for row in done.lost.to_pylist()] == [("unreadable", case.lost)]


def test_lost_records_are_named(path: Path) -> None:
    said = {}
    for case in cases():
        path.write_bytes(case.data)
        said[case.name] = kolumn.verify(path, format=case.format).damage["reason"][0].as_py().split("; ", 1)[1:]
    assert said["2 0 middle"] == ["left out: record 5 (offset 8); 9 other records are read"]
    assert said["2 0 three"] == ["left out: records 1 (offset 4), 2 (offset 5), 8 (offset 11); 7 other records are read"]
    assert said["2 0 all but one"][0].endswith("7 (offset 10), 8 (offset 11); 1 other record is read")
    assert said["2 0 length"] == ["4 other records are read, up to where nobody can tell any more where a record begins"]
    assert (said["2 0 too many"], said["2 0 all"]) == (["10 records are read"], [])
    assert said["1 middle"] == ["left out: record 5 (offset 8); 9 other records are read"]
    # Each code has a number, and so a text, of its own.
    error = kolumn.CorruptBatchError("a.log", 7, kolumn.core.errors.Code.SEGMENT_END)
    assert str(error).startswith("a.log: position 7: end of segment: expected entries up to the base offset of the next segment.")
