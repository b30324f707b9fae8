"""Conversion of every format to every other one, with its losses; brokers' offsets and conversion for consumers; cleaning by age."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kolumn
from kit import drafts
from kit.asked import offsets, put
from kit.corpus import HERE as DATA
from kit.draft_segments import FORMATS, Maker
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch, message, wrapper
from kit.fuzz import examples
from kit.outcome import raises
from kit.paths import GENERAL, without
from kolumn.core.arrays import Bytes, Int64s
from kolumn.core.errors import ArgumentError, CorruptBatchError
from kolumn.log.pieces import pieces
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.source.segment_file import side_bytes
from kolumn.source.segments import find_segments
from kolumn.source.side_files import ENRICHED_INDEX, index_in
from kolumn.writers import entries as encoded_entries

TIME = 1_700_000_000_000
TARGETS = [("kafka", 0), ("kafka", 1), ("kafka", 2), ("enriched", 1), ("kip98-draft", 2), ("v3-compact", 3), ("kip87", 2)]
HEADED = {("kafka", 2), ("kip98-draft", 2), ("v3-compact", 3)}
FULL = {("kafka", 2), ("v3-compact", 3)}
CASES = ["v0", "v1", "v1-append-time", "v2-java", "v2-append-time", "idempotent", "transactional", "compacted", "upgraded", "v2-empty"]


def _columns(source: str, target: tuple[str, int]) -> list[str]:
    columns = ["offset", "key", "value"]
    if target != ("kafka", 0):
        columns.append("timestampMs")
    if target in HEADED and source in ("kafka", "kip98-draft", "v3-compact"):
        columns += ["producerId", "producerEpoch", "sequence", "isTransactional"]
    if target in FULL and source in ("kafka", "v3-compact"):
        columns += ["headers", "leaderEpoch"]
    return columns


@pytest.mark.sample
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target[0]}-{target[1]}")
@pytest.mark.parametrize("source", FORMATS)
def test_drafts(tmp_path: Path, source: str, target: tuple[str, int]) -> None:
    for seed in range(examples(15)):
        path = tmp_path / f"{seed}.log"
        path.write_bytes(b"".join(entry.data for entry in Maker(source, random.Random(seed)).segment(12)))
        out = tmp_path / f"{seed}-out.log"
        codec = "lz4" if source == "v3-compact" and target not in FULL else None
        asked: dict[str, Any] = {"format": target[0], "magic": target[1], "source_format": source, "codec": codec}
        if target not in HEADED and pc.any(kolumn.batches(path, format=source)["isTransactional"]).as_py():
            raises(ArgumentError, "transactional", kolumn.convert, path, out, **asked)
            assert not out.exists()
            continue
        done = kolumn.convert(path, out, **asked)
        columns = _columns(source, target)
        before, after = kolumn.read(path, columns=columns, format=source), kolumn.read(out, columns=columns, format=target[0])
        for name in columns:
            expected = before[name].combine_chunks()
            if name == "value" and done.lost["payloads of tombstones"]:
                dead = kolumn.read(path, columns=["tombstone"], format=source)["tombstone"].combine_chunks()
                expected = pc.if_else(dead, pa.scalar(None, pa.binary()), expected)
            assert after[name].combine_chunks().equals(expected), (source, target, name)
        assert set(done.lost) <= set(kolumn.losses(source, *target))
        assert kolumn.verify(out, format=target[0]).ok
        assert done.records == kolumn.verify(out, format=target[0]).records


@pytest.mark.sample
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target[0]}-{target[1]}")
@pytest.mark.parametrize("case", CASES)
def test_segments_of_brokers(tmp_path: Path, case: str, target: tuple[str, int]) -> None:
    codec = None if target in FULL else "gzip"
    dropped = target not in HEADED
    done = kolumn.convert(DATA / case, tmp_path, format=target[0], magic=target[1], codec=codec, drop_transactions=dropped)
    columns = [*_columns("kafka", target), "transaction"]
    for folder in sorted(path for path in (DATA / case).iterdir() if path.is_dir()):
        for level in ("read_uncommitted", "read_committed"):
            before = kolumn.read(folder, columns=columns, isolation_level=level)
            after = kolumn.read(tmp_path / folder.name, columns=columns, format=target[0], isolation_level=level)
            if dropped:
                # Nothing is withheld after an open one, because there is none.
                whole = kolumn.read(folder, columns=columns)
                before = whole.filter(pc.is_in(whole["transaction"], pa.array(["none", "committed"]))).drop("transaction")
                after = after.drop("transaction")
            assert after.equals(before), folder.name
    assert set(done.lost) <= set(kolumn.losses("kafka", *target))
    assert kolumn.verify(tmp_path, format=target[0]).ok


@pytest.mark.parametrize("between", [("v3-compact", 3), ("kip98-draft", 2)])
def test_there_and_back(path: Path, tmp_path: Path, between: tuple[str, int]) -> None:
    """Format 2 to a draft and back: every batch is unchanged, and byte for byte the same if nothing was compressed or lost."""
    records = [Record(10 + 2 * i, b"k%d" % i, b"v" * i, TIME + i) for i in range(5)]
    producer = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 5}
    data = batch(records, **producer) + batch([], base_offset=30, last_offset=39, **producer)
    data += batch([Record(40, b"k0", b"", TIME)], base_offset=40, last_offset=90)
    if between[0] == "v3-compact":
        data += batch([Record(91, None, None, TIME, ((b"h", b"1"),))], flags=TRANSACTIONAL) + control_batch(92, 1)
    else:
        # The draft has no base timestamp and no leader epoch.
        data = batch(records, leader_epoch=-1, **producer)
    path.write_bytes(data)
    kolumn.convert(path, tmp_path / "b.log", format=between[0], magic=between[1])
    kolumn.convert(tmp_path / "b.log", tmp_path / "c.log", source_format=between[0])
    assert (tmp_path / "c.log").read_bytes() == data


def test_messages_become_batches_and_batches_of_format_3_have_ten_bytes_less(path: Path, tmp_path: Path) -> None:
    """The savings in the KIP: the length takes 3 bytes, the last offset delta 2, the base timestamp 6, its delta 3: 61 bytes become 51."""
    records = [Record(i, None, b"x" * 120, TIME + i * 100) for i in range(200)]
    path.write_bytes(batch(records))
    kolumn.convert(path, tmp_path / "b.log", format="v3-compact")
    assert path.stat().st_size - (tmp_path / "b.log").stat().st_size == 10 + 200
    data = b"".join(message(0, Record(i, b"k", b"v" * 50, -1)) for i in range(100)) + wrapper(1, [Record(200, b"a", b"b", TIME)], 1)
    (tmp_path / "a.log").write_bytes(data)
    done = kolumn.convert(tmp_path / "a.log", tmp_path / "d.log", batch_bytes=1000)
    rows = kolumn.batches(tmp_path / "d.log").to_pylist()
    assert [row["codec"] for row in rows] == ["none"] * (len(rows) - 1) + ["gzip"]
    assert all(row["size"] <= 1000 for row in rows)
    assert (done.records, dict(done.lost)) == (101, {})
    kolumn.convert(tmp_path / "a.log", tmp_path / "c.log", timestamp=TIME + 5)
    found = kolumn.read(tmp_path / "c.log", columns=["timestampMs", "timestampType"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [(TIME + 5, 1)] * 100 + [(TIME, 0)]


def test_deletes_lose_their_payload_and_that_is_counted(tmp_path: Path) -> None:
    data = b"".join(drafts.flagged(Record(i, b"k%d" % i, b"why", TIME), drafts.TOMBSTONE * (i % 2)) for i in range(5))
    (tmp_path / "a.log").write_bytes(data + drafts.flagged(Record(9, b"z", None, TIME)))
    done = kolumn.convert(tmp_path / "a.log", tmp_path / "b.log", magic=1, source_format="kip87")
    assert dict(done.lost) == {"payloads of tombstones": 2, "records without a value that become tombstones": 1}
    kolumn.convert(tmp_path / "b.log", tmp_path / "c.log", format="kip87")
    for name, format in (("b.log", "kafka"), ("c.log", "kip87")):
        found = kolumn.read(tmp_path / name, format=format, columns=["tombstone"])["tombstone"].to_pylist()
        assert found == [False, True, False, True, False, True]


def test_transactions_are_refused_or_dropped(tmp_path: Path) -> None:
    def of(producer: int, offset: int) -> bytes:
        return batch([Record(offset, None, b"%d" % producer, TIME)], flags=TRANSACTIONAL, producer_id=producer, producer_epoch=0)

    data = of(1, 0) + of(2, 1) + of(3, 2) + control_batch(3, 1, producer_id=1) + control_batch(4, 0, producer_id=2)
    path = tmp_path / "a.log"
    path.write_bytes(data)
    words = r"a\.log: position 0, base offset 0: the batch is transactional"
    raises(ArgumentError, words, kolumn.convert, path, tmp_path / "b.log", magic=1)
    done = kolumn.convert(path, tmp_path / "b.log", magic=1, drop_transactions=True)
    assert kolumn.read(tmp_path / "b.log", columns=["value"])["value"].to_pylist() == [b"1"]
    assert {name: done.lost[name] for name in done.lost if "records of" in name or "markers" in name} == {
        "records of aborted transactions": 1, "records of open transactions": 1, "COMMIT and ABORT markers": 2,
    }  # fmt: skip


def test_markers_change_their_numbers(path: Path, tmp_path: Path) -> None:
    """0 is ABORT in format 2 and COMMIT in the KIP-98 draft."""
    path.write_bytes(control_batch(0, 0) + control_batch(1, 1))
    kolumn.convert(path, tmp_path / "b.log", format="kip98-draft")
    columns = ["key", "controlType"]
    there = kolumn.read(tmp_path / "b.log", format="kip98-draft", columns=columns, include_control=True).to_pylist()
    assert [tuple(row.values()) for row in there] == [(b"\0\0\0\1", "ABORT"), (b"\0\0\0\0", "COMMIT")]
    kolumn.convert(tmp_path / "b.log", tmp_path / "c.log", source_format="kip98-draft")
    back = kolumn.read(tmp_path / "c.log", columns=columns, include_control=True)
    assert back.equals(kolumn.read(path, columns=columns, include_control=True))


def test_what_makes_no_sense(path: Path, tmp_path: Path) -> None:
    path.write_bytes(batch([Record(0, b"a", b"b", TIME)], codec=4))
    for options, text in (
        ({"format": "csv"}, "unknown format 'csv'"), ({"source_format": "csv"}, "format='csv'"), ({"codec": "brotli"}, "codec='brotli'"),
        ({"magic": 3}, "magic=3"), ({"magic": 1}, "codec zstd is what batches of the source have"),
        ({"columns": ["key"]}, "unknown option 'columns'"),
    ):  # fmt: skip
        raises(ArgumentError, text, kolumn.convert, path, tmp_path / "b.log", **options)
        assert not (tmp_path / "b.log").exists()


def header_keys(source: Path, format: str = "kafka") -> list[bytes]:
    """Keys of the headers in the order of the log, as they are in its bytes."""
    options = Options.of(format=format)
    records = (piece.records for segment in live_segments(source, options).one_log() for piece in pieces(segment, options))
    return [header["key"] for table in records for headers in table["headers"].to_pylist() for header in headers]


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_header_keys_are_kept_byte_for_byte(tmp_path: Path, codec: str) -> None:
    """Those that are not UTF-8 too: two of them must not become one."""
    keys = [b"caf\xe9", b"caf\xc3\xa9", b"\xff\xfe", b"\xed\xa0\x80", b"", b"plain", "\ufffd".encode()]
    records = [Record(i, b"k%d" % (i % 2), b"v", TIME, tuple((key, b"%d" % i) for key in keys)) for i in range(4)]
    source = put(tmp_path / "h-0", batch(records[:3]), batch(records[3:], codec=1)).parent
    for off in ((), (GENERAL,)):
        with without(*off):
            out, at = tmp_path / f"out-{len(off)}", 4 * keys
            assert kolumn.convert(source, out / "codec", codec=codec).lost == {}
            assert header_keys(out / "codec" / "h-0") == at
            kolumn.convert(source, out / "3", format="v3-compact", codec=codec)
            kolumn.convert(out / "3" / "h-0", out / "back", source_format="v3-compact")
            assert header_keys(out / "3" / "h-0", "v3-compact") == header_keys(out / "back" / "h-0") == at
            assert kolumn.compact(source, out / "compact", include_active=True).retained == 2
            assert header_keys(out / "compact" / "h-0") == 2 * keys


def test_header_keys_as_bytes_are_written(tmp_path: Path) -> None:
    kind = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    kolumn.write(pa.table({"headers": pa.array([[{"key": b"\xff", "value": None}]], kind), "value": [b"v"]}), tmp_path / "h-0")
    assert header_keys(tmp_path / "h-0") == [b"\xff"]
    assert kolumn.read(tmp_path / "h-0", columns=["headers"])["headers"].to_pylist() == [[{"key": "\ufffd", "value": None}]]


RECORDS = [Record(i, b"k%d" % i, None if i == 1 else b"v%d" % i, TIME + i) for i in range(3)]


def rows(data: bytes, tmp_path: Path, format: str = "kafka") -> list[tuple[Any, ...]]:
    path = tmp_path / "read.log"
    path.write_bytes(data)
    columns = ["offset", "key", "value", "timestampMs", "timestampType", "magic"]
    return [tuple(row.values()) for row in kolumn.read(path, columns=columns, format=format).to_pylist()]


def expected(first: int, magic: int, time: bool = True) -> list[tuple[Any, ...]]:
    return [(first + r.offset, r.key, r.value, r.timestamp if time else -1, 0 if magic else -1, magic) for r in RECORDS]


@pytest.fixture
def compressions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Codecs of the payloads that are compressed during the test, in order."""
    calls: list[int] = []
    real, real_all = encoded_entries.compress, encoded_entries.compress_all

    def counted(codec: int, *rest: Any) -> bytes:
        calls.append(codec)
        return real(codec, *rest)

    def all_counted(codec: int, source: Int64s, *rest: Any) -> tuple[Bytes, Int64s] | None:
        made = real_all(codec, source, *rest)
        calls.extend([codec] * len(source) if made is not None else [])
        return made

    monkeypatch.setattr("kolumn.writers.entries.compress", counted)
    monkeypatch.setattr("kolumn.writers.entries.compress_all", all_counted)
    return calls


@pytest.mark.parametrize("codec", [1, 2, 3])
@pytest.mark.parametrize("offset", [0, 2], ids=["blank", "last"])
def test_a_wrapper_of_format_1_gets_eight_bytes(tmp_path: Path, compressions: list[int], codec: int, offset: int) -> None:
    sent = wrapper(1, RECORDS, codec, offset=offset, inner_base=0)
    done = kolumn.broker.assign_offsets(sent, 5000, magic=1)
    assert done.data[8:] == sent[8:]
    assert (done.next_offset, done.in_place, done.compressions, compressions) == (5003, 1, 0, [])
    assert rows(done.data, tmp_path) == expected(5000, 1)


def test_gaps_are_closed_or_refused(tmp_path: Path, compressions: list[int]) -> None:
    holes = [Record(at, r.key, r.value, r.timestamp) for at, r in zip((0, 1, 7), RECORDS, strict=True)]
    sent = wrapper(1, holes, 1, offset=7, inner_base=0)
    done = kolumn.broker.assign_offsets(sent, 5000)
    assert (done.next_offset, done.compressions, compressions) == (5003, 1, [1])
    assert rows(done.data, tmp_path) == expected(5000, 1)
    raises(ArgumentError, "inner offset 7 where 2 was expected", kolumn.broker.assign_offsets, sent, 5000, noncontiguous="reject")
    done = kolumn.broker.assign_offsets(wrapper(0, RECORDS, 1), 5000)
    assert (done.in_place, done.compressions, compressions) == (0, 1, [1, 1])
    assert rows(done.data, tmp_path) == expected(5000, 0, time=False)


@pytest.mark.parametrize("flags", [0, drafts.HONOURED])
def test_enriched_wrappers_are_not_even_inflated(tmp_path: Path, flags: int) -> None:
    inner = [drafts.tagged(r, tags=drafts.time_tag(r.timestamp)) for r in RECORDS]
    sent = drafts.tagged_wrapper(0, inner, 1, flags=flags, tags=drafts.count_tag(3)) * 2
    done = kolumn.broker.assign_offsets(sent, 5000, format="enriched")
    assert (done.next_offset, done.in_place, done.inflations, done.compressions) == (5006, 2, 0, 0)
    assert [row[0] for row in rows(done.data, tmp_path, "enriched")] == list(range(5000, 5006))


def test_mirrors(tmp_path: Path, compressions: list[int]) -> None:
    """Sets without keys are passed on unchanged, and their holes are closed; sets with keys are decompressed."""
    plain = [drafts.tagged(Record(at, None, b"v%d" % at, -1)) for at in (0, 3, 9)]
    keyed = [drafts.tagged(Record(at, b"k", b"v%d" % at, -1)) for at in (0, 3)]
    one = drafts.tagged_wrapper(100, plain, 1, flags=drafts.HONOURED | drafts.NON_KEYED, tags=drafts.count_tag(3))
    mixed = one + drafts.tagged_wrapper(200, keyed, 2, tags=drafts.count_tag(2)) + drafts.tagged(Record(300, b"k", b"v", -1))
    done = kolumn.broker.mirror(mixed)
    assert (done.passed_on, done.inflations, done.compressions, compressions) == (1, 1, 1, [2])
    assert done.data[18 : len(one)] == one[18:]
    assert rows(one, tmp_path, "enriched")[-1][0] == 109
    arrived = kolumn.broker.assign_offsets(done.data, 5000, format="enriched")
    assert arrived.inflations == 0
    assert [row[:3] for row in rows(arrived.data, tmp_path, "enriched")] == [
        (5000, None, b"v0"), (5001, None, b"v3"), (5002, None, b"v9"), (5003, b"k", b"v0"), (5004, b"k", b"v3"), (5005, b"k", b"v"),
    ]  # fmt: skip


def test_batches_get_a_base_offset_and_messages_the_brokers_time(tmp_path: Path) -> None:
    compact = drafts.compact_batch(0, [drafts.bare_record(r, 0, TIME) for r in RECORDS], last_delta=4, base_timestamp=TIME, max_delta=2)
    done = kolumn.broker.assign_offsets(compact + batch(RECORDS, codec=4), 100, format="v3-compact")
    assert (done.next_offset, done.in_place, done.inflations) == (108, 2, 0)
    assert [row[0] for row in rows(done.data, tmp_path, "v3-compact")] == [100, 101, 102, 105, 106, 107]
    # Mixed entries come out in one format.
    done = kolumn.broker.assign_offsets(_sent(0, 0) + _sent(1, 2) + batch(RECORDS), 7, magic=2)
    assert done.next_offset == 16
    assert [(row[0], row[5]) for row in rows(done.data, tmp_path)] == [(offset, 2) for offset in range(7, 16)]
    done = kolumn.broker.assign_offsets(_sent(0, 1), 0, magic=1, timestamp=TIME)
    assert [row[3:5] for row in rows(done.data, tmp_path)] == [(TIME, 1)] * 3
    done = kolumn.broker.assign_offsets(_sent(0, 0), 0, magic=2, timestamp=TIME)
    assert [row[3:] for row in rows(done.data, tmp_path)] == [(TIME, 1, 2)] * 3


def _sent(magic: int, codec: int) -> bytes:
    if codec:
        return wrapper(magic, RECORDS, codec, offset=0, inner_base=0)
    return b"".join(message(magic, record) for record in RECORDS)


@pytest.mark.parametrize("codec", [0, 1, 3])
@pytest.mark.parametrize("disk", [0, 1])
@pytest.mark.parametrize("produced", [0, 1])
@pytest.mark.parametrize("fetched", [0, 1])
def test_produce_and_fetch(tmp_path: Path, codec: int, disk: int, produced: int, fetched: int) -> None:
    """The cases of KIP-31: phase 1 has format 0 on disk, phase 2 format 1."""
    written = kolumn.broker.assign_offsets(_sent(produced, codec), 40, magic=disk)
    untouched = produced == disk and not (codec and disk == 0)
    assert written.in_place == ((1 if codec else 3) if untouched else 0)
    assert written.compressions == (0 if untouched or not codec else 1)
    timed = produced == 1 and disk == 1
    assert rows(written.data, tmp_path) == expected(40, disk, timed)
    sent = kolumn.broker.for_fetch(written.data, fetched)
    assert sent.zero_copy == (disk <= fetched)
    assert (sent.data == written.data) == sent.zero_copy
    kept = min(disk, fetched)
    assert rows(sent.data, tmp_path) == expected(40, kept, timed and kept == 1)


def test_damage_gives_nobody_an_offset() -> None:
    sent = _sent(1, 0)[:-1] + b"?"
    for data, words in ((sent, r"<entries>: position .*crc"), (sent[:-3], "bytes left")):
        raises(CorruptBatchError, words, kolumn.broker.assign_offsets, data, 0)
    raises(ArgumentError, "noncontiguous='keep'", kolumn.broker.assign_offsets, b"", 0, noncontiguous="keep")
    assert kolumn.broker.assign_offsets(b"", 9).next_offset == 9


HOUR = 3_600_000


def _log(folder: Path, format: str, times: list[int], **options: Any) -> Path:
    rows = len(times)
    table = pa.table({"offset": range(rows), "timestampMs": times, "value": [b"v%d" % i for i in range(rows)]})
    kolumn.write(table, folder / "t-0", format=format, segment_bytes=2000, index_interval_bytes=200, batch_bytes=300, **options)
    return folder / "t-0"


@pytest.mark.parametrize("format", ["enriched", "kafka", "kip98-draft"])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_the_head_goes(tmp_path: Path, format: str, codec: str) -> None:
    source = _log(tmp_path, format, [TIME + i * HOUR for i in range(200)], codec=codec)
    segments = len(find_segments(source))
    done = kolumn.apply_retention(source, tmp_path / "out", format=format, retention_ms=100 * HOUR, now=TIME + 200 * HOUR)
    kept = offsets(tmp_path / "out", format=format)
    first = kept[0]
    # The log is cut between entries, never inside one, so the first entry may begin with older records.
    [own] = [row for row in kolumn.batches(source, format=format).to_pylist() if row["baseOffset"] == first]
    assert own["maxTimestampMs"] >= TIME + 100 * HOUR
    assert kept == list(range(first, 200))
    assert first <= 100
    assert len(done.dropped) + len(done.segments) == segments
    assert len(done.cut) <= 1
    assert kolumn.verify(tmp_path / "out", format=format).ok
    again = kolumn.apply_retention(tmp_path / "out", tmp_path / "again", format=format, retention_ms=100 * HOUR, now=TIME + 200 * HOUR)
    assert (again.dropped, again.cut) == ([], {})
    assert offsets(tmp_path / "again", format=format) == kept


def test_old_records_after_young_ones_stay_and_all_may_be_old_or_young(tmp_path: Path) -> None:
    source = _log(tmp_path / "old", "enriched", [TIME, TIME + 9 * HOUR, TIME, TIME])
    kolumn.apply_retention(source, tmp_path / "out", retention_ms=HOUR, now=TIME + 9 * HOUR)
    assert offsets(tmp_path / "out", format="enriched") == [1, 2, 3]
    source = _log(tmp_path, "enriched", [TIME] * 50)
    assert kolumn.apply_retention(source, tmp_path / "none", retention_ms=0, now=TIME + 1).segments == []
    done = kolumn.apply_retention(source, tmp_path / "all", retention_ms=HOUR, now=TIME + 1)
    assert (done.dropped, done.cut) == ([], {})
    assert (tmp_path / "all" / "t-0" / f"{0:020}.log").read_bytes() == (source / f"{0:020}.log").read_bytes()
    raises(ArgumentError, "retention_ms=-1", kolumn.apply_retention, source, tmp_path / "negative", retention_ms=-1)
    raises(ArgumentError, "already exists", kolumn.apply_retention, source, tmp_path / "all", retention_ms=HOUR, now=TIME)


def test_the_index_of_enriched_logs(tmp_path: Path) -> None:
    """An index entry is relative offset i32, largest timestamp so far i64, position i32. The last message always has an index entry."""
    source = _log(tmp_path, "enriched", [TIME, TIME + 5, TIME + 2] + [TIME] * 30)
    [segment, *_] = find_segments(source)
    index = index_in(side_bytes(segment, ".index"), ENRICHED_INDEX)
    rows = kolumn.batches(segment.path, format="enriched").to_pylist()
    assert (index["offset"][-1], index["position"][-1]) == (rows[-1]["baseOffset"], rows[-1]["position"])
    assert set(index["timestamp"]) == {TIME + 5}
    assert not list(source.glob("*.timeindex"))
    for offset in range(len(rows)):
        assert offsets(source, format="enriched", start_offset=offset)[0] == offset


@pytest.mark.parametrize("change", ["times", "positions", "gone"])
def test_a_wrong_index_changes_nothing(tmp_path: Path, change: str) -> None:
    source = _log(tmp_path, "enriched", [TIME + i * HOUR for i in range(60)])
    for path in source.glob("*.index"):
        data = bytearray(path.read_bytes())
        for at in range(0, len(data), 16):
            if change == "times":
                data[at + 4 : at + 12] = (TIME - HOUR).to_bytes(8, "big")
            elif change == "positions":
                data[at + 15] ^= 1
        path.unlink() if change == "gone" else path.write_bytes(data)
    kolumn.apply_retention(source, tmp_path / "out", retention_ms=30 * HOUR, now=TIME + 60 * HOUR)
    assert offsets(tmp_path / "out", format="enriched") == list(range(30, 60))


@pytest.mark.parametrize("damaged", [0, 1, 3])
def test_young_records_after_damage_stay(tmp_path: Path, damaged: int) -> None:
    """A damaged length ends the walk along the headers, not the log. Damaged entries stay too, because their age is not known."""
    table = pa.table({"offset": range(60), "timestampMs": [TIME] * 30 + [TIME + 9 * HOUR] * 30, "value": [b"v%d" % i for i in range(60)]})
    kolumn.write(table, tmp_path / "t-0", batch_bytes=100)
    path = tmp_path / "t-0" / f"{0:020}.log"
    rows = kolumn.batches(path).to_pylist()
    data = bytearray(path.read_bytes())
    start = rows[damaged]["position"]
    data[start + 8 : start + 12] = (1 << 28).to_bytes(4, "big")
    path.write_bytes(data)
    kept = offsets(path, errors="skip")
    done = kolumn.apply_retention(tmp_path / "t-0", tmp_path / "out", format="kafka", retention_ms=HOUR, now=TIME + 9 * HOUR)
    after = max(0, damaged - 1)
    assert done.cut == ({str(path): rows[after]["position"]} if after else {})
    found = offsets(tmp_path / "out", errors="skip")
    assert found == [offset for offset in kept if offset >= rows[after]["baseOffset"]]
    assert found[-30:] == list(range(30, 60))
