"""Rules of the drafts beyond layouts: errors name the bad field, checksums tell formats apart, transactions, remarks."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit import drafts
from kit.encoder import TRANSACTIONAL, Record, batch, message, raw_batch
from kit.wrong_drafts import ONE, TIME, WRONG
from kolumn.core.errors import ArgumentError, Code, CorruptBatchError, FormatError
from kolumn.log.headers import headers
from kolumn.source.segments import Segment


@pytest.mark.parametrize(("format", "data", "code", "text"), WRONG, ids=[f"{one[0]}-{one[2].name}-{i}" for i, one in enumerate(WRONG)])
def test_what_is_wrong_is_named(tmp_path: Path, format: str, data: bytes, code: Code, text: str) -> None:
    good = {"enriched": drafts.tagged, "kip87": drafts.flagged}.get(format, lambda record: message(0, record))(Record(5, b"a", b"b", TIME))
    path = tmp_path / "a.log"
    path.write_bytes(data + good)
    with pytest.raises(CorruptBatchError, match=text) as caught:
        kolumn.read(path, format=format)
    assert (caught.value.code, caught.value.position) == (code, 0)
    assert isinstance(caught.value, FormatError) == (code in (Code.MESSAGE_TYPE, Code.BAD_MAGIC, Code.CODEC_NOT_ALLOWED))
    assert kolumn.read(path, format=format, columns=["offset"], errors="skip")["offset"].to_pylist() == [5]
    report = kolumn.verify(path, format=format)
    assert (report.ok, report.records) == (False, 1)


def test_what_follows_an_unknown_tag_is_ignored(tmp_path: Path) -> None:
    cut = drafts.time_tag(TIME) + b"\x63\x20"
    twice = drafts.time_tag(1) + drafts.count_tag(7) + drafts.time_tag(TIME + 1)
    data = drafts.tagged(ONE, seconds=9, tags=cut) + drafts.tagged(Record(1, None, b"", 0), seconds=9, tags=twice)
    data += drafts.tagged(Record(2, None, b"", 0), seconds=9, tags=None) + drafts.tagged(Record(3, None, b"", 0), seconds=-1, tag_length=0)
    path = tmp_path / "a.log"
    path.write_bytes(data)
    columns = ["timestampMs", "timestampSeconds", "brokerTimestampMs"]
    assert [tuple(row.values()) for row in kolumn.read(path, format="enriched", columns=columns).to_pylist()] == [
        (TIME, 9, TIME), (TIME + 1, 9, TIME + 1), (9000, 9, None), (-1, None, None),
    ]  # fmt: skip


def test_tags_beyond_the_window_of_headers(tmp_path: Path) -> None:
    """An enriched header has no maximum size: the walk over headers requests as many bytes as the tags have."""
    data = drafts.tagged(Record(0, None, b"x" * 70_000, -1), tags=drafts.time_tag(TIME) * 9000) * 2
    path = tmp_path / "a.log"
    path.write_bytes(data)
    found = kolumn.batches(path, format="enriched", check_crcs=False)
    assert found["maxTimestampMs"].to_pylist() == [TIME, TIME]


def test_compact_and_shipped_in_one_file(tmp_path: Path) -> None:
    records = [drafts.bare_record(Record(7, b"a", b"b", TIME), 7, TIME)]
    real = drafts.compact_batch(7, records, last_delta=0, base_timestamp=TIME, max_delta=0, leader_epoch=0x03030303)
    path = tmp_path / "a.log"
    path.write_bytes(real + batch([Record(8, b"c", b"d", TIME)]) + message(1, Record(9, None, b"e", TIME)) + real)
    found = kolumn.read(path, format="v3-compact", columns=["offset", "magic"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [(7, 3), (8, 2), (9, 1), (7, 3)]
    damaged = bytearray(real + real)
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptBatchError, match=f"position {len(real)}, base offset 7: crc"):
        kolumn.read(path, format="v3-compact")


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_checksums_decide_where_both_frames_fit(tmp_path: Path, right: bool) -> None:
    """A shipped batch whose size begins with 0x20, a varint of 32, and whose leader epoch has a 3 at the position of format 3's magic."""
    data = bytearray(raw_batch(bytes((0x20 << 24) + 100), 0, leader_epoch=0x00030000))
    assert data[8] == 0x20
    data[-1] ^= not right
    path = tmp_path / "a.log"
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
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(data + message(0, Record(5, b"d", b"v", -1)))
    states = kolumn.read(folder, format="kip98-draft", columns=["offset", "transaction"]).to_pylist()
    assert [tuple(row.values()) for row in states] == [(0, "aborted"), (2, "committed"), (4, "open"), (5, "none")]
    committed = kolumn.read(folder, format="kip98-draft", columns=["offset"], isolation_level="read_committed")
    assert committed["offset"].to_pylist() == [2]


def test_sequences_and_epochs_wrap(tmp_path: Path) -> None:
    data = drafts.message_set(0, [drafts.set_message(Record(i, None, b"", TIME), 0) for i in range(4)], 4, producer=(1, 32767, 2**31 - 2))
    path = tmp_path / "a.log"
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
    with pytest.raises(ArgumentError, match="the record at offset 1 has no value and is not a tombstone"):
        kolumn.write(pa.table(columns | {"tombstone": [True, False, None]}), tmp_path / "b.log", format="kip87")
    (tmp_path / "c.log").write_bytes(
        drafts.flagged(Record(9, b"a", None, TIME)) + drafts.flagged(Record(10, b"a", None, TIME), drafts.TOMBSTONE)
    )
    report = kolumn.verify(tmp_path / "c.log", format="kip87")
    assert report.ok
    assert report.remarks.select(["position", "offset"]).to_pylist() == [{"position": 0, "offset": 9}]


def test_headers_know_where_enriched_sets_end(tmp_path: Path) -> None:
    """Planning in Spark needs the last offset of every segment, although it is known only after decompression."""

    def wrapper(offset: int, *inner: int) -> bytes:
        return drafts.tagged_wrapper(offset, [drafts.tagged(Record(i, None, b"", -1)) for i in inner], 1, tags=drafts.count_tag(len(inner)))

    path = tmp_path / "a.log"
    path.write_bytes(wrapper(0, 0, 1) + wrapper(10, 0, 5) + wrapper(20, 0, 7))
    assert kolumn.batches(path, format="enriched")["lastOffset"].to_pylist() == [None, None, None]
    segment = Segment(str(path), None, None, None, path.stat().st_size, "enriched")
    assert [entries.last_offset.tolist() for entries in headers(segment)] == [[9, 19, 27]]


@pytest.mark.parametrize("format", ["csv", "Kafka", ""])
def test_unknown_formats(tmp_path: Path, format: Any) -> None:
    with pytest.raises(ArgumentError, match="expected one of kafka, enriched, kip98-draft, v3-compact, kip87"):
        kolumn.read(tmp_path, format=format)
