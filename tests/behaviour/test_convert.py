"""Conversion of every format to every other one: losses are listed before and counted after, and nothing else is lost."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kolumn
from kit import drafts
from kit.draft_segments import FORMATS, Maker
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch, message, wrapper
from kit.fuzz import examples
from kit.paths import GENERAL, without
from kolumn.core.errors import ArgumentError
from kolumn.log.pieces import pieces
from kolumn.options import Options
from kolumn.readers.plan import live_segments

DATA = Path(__file__).parent.parent / "data" / "corpus"
TIME = 1_700_000_000_000
TARGETS = [("kafka", 0), ("kafka", 1), ("kafka", 2), ("enriched", 1), ("kip98-draft", 2), ("v3-compact", 3), ("kip87", 2)]
HEADED = {("kafka", 2), ("kip98-draft", 2), ("v3-compact", 3)}
FULL = {("kafka", 2), ("v3-compact", 3)}
CASES = ["v0", "v1", "v1-append-time", "v2-java", "v2-append-time", "idempotent", "transactional", "compacted", "upgraded", "v2-empty"]


def _columns(source: str, target: tuple[str, int]) -> list[str]:
    """Columns that the conversion keeps."""
    columns = ["offset", "key", "value"]
    if target != ("kafka", 0):
        columns.append("timestampMs")
    if target in HEADED and source in ("kafka", "kip98-draft", "v3-compact"):
        columns += ["producerId", "producerEpoch", "sequence", "isTransactional"]
    if target in FULL and source in ("kafka", "v3-compact"):
        columns += ["headers", "leaderEpoch"]
    return columns


def _same(before: Path, after: Path, source: str, target: tuple[str, int], lost: Any, **options: Any) -> None:
    columns = _columns(source, target)
    one, other = (kolumn.read(p, columns=columns, format=f, **options) for p, f in ((before, source), (after, target[0])))
    for name in columns:
        expected, found = one[name].combine_chunks(), other[name].combine_chunks()
        if name == "value" and lost["payloads of tombstones"]:
            dead = kolumn.read(before, columns=["tombstone"], format=source, **options)["tombstone"].combine_chunks()
            expected = pc.if_else(dead, pa.scalar(None, pa.binary()), expected)
        assert found.equals(expected), (source, target, name)
    assert set(lost) <= set(kolumn.losses(source, *target))
    assert kolumn.verify(after, format=target[0]).ok


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
        transactional = target not in HEADED and pc.any(kolumn.batches(path, format=source)["isTransactional"]).as_py()
        if transactional:
            with pytest.raises(ArgumentError, match="transactional"):
                kolumn.convert(path, out, **asked)
            assert not out.exists()
            continue
        done = kolumn.convert(path, out, **asked)
        _same(path, out, source, target, done.lost)
        assert done.records == kolumn.verify(out, format=target[0]).records


@pytest.mark.sample
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target[0]}-{target[1]}")
@pytest.mark.parametrize("case", CASES)
def test_segments_of_brokers(tmp_path: Path, case: str, target: tuple[str, int]) -> None:
    codec = None if target in FULL else "gzip"
    dropped = {"drop_transactions": True} if target not in HEADED else {}
    done = kolumn.convert(DATA / case, tmp_path, format=target[0], magic=target[1], codec=codec, **dropped)
    for folder in sorted(path for path in (DATA / case).iterdir() if path.is_dir()):
        columns = _columns("kafka", target)
        before = kolumn.read(folder, columns=[*columns, "transaction"])
        if dropped:
            before = before.filter(pc.is_in(before["transaction"], pa.array(["none", "committed"])))
        before = before.drop("transaction")
        after = kolumn.read(tmp_path / folder.name, columns=columns, format=target[0])
        assert after.equals(before), folder.name
    assert set(done.lost) <= set(kolumn.losses("kafka", *target))
    assert kolumn.verify(tmp_path, format=target[0]).ok


@pytest.mark.parametrize("between", [("v3-compact", 3), ("kip98-draft", 2)])
def test_there_and_back(tmp_path: Path, between: tuple[str, int]) -> None:
    """Format 2 to a draft and back: every batch is unchanged, and byte for byte the same if nothing was compressed or lost."""
    records = [Record(10 + 2 * i, b"k%d" % i, b"v" * i, TIME + i) for i in range(5)]
    producer = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 5}
    data = (
        batch(records, **producer)
        + batch([], base_offset=30, last_offset=39, **producer)
        + batch([Record(40, b"k0", b"", TIME)], base_offset=40, last_offset=90)
    )
    if between[0] == "v3-compact":
        data += batch([Record(91, None, None, TIME, ((b"h", b"1"),))], flags=TRANSACTIONAL) + control_batch(92, 1)
    else:
        # The draft has no base timestamp and no leader epoch.
        data = batch(records, leader_epoch=-1, **producer)
    path = tmp_path / "a.log"
    path.write_bytes(data)
    kolumn.convert(path, tmp_path / "b.log", format=between[0], magic=between[1])
    kolumn.convert(tmp_path / "b.log", tmp_path / "c.log", source_format=between[0])
    assert (tmp_path / "c.log").read_bytes() == data


def test_ten_bytes_a_batch_and_one_a_record(tmp_path: Path) -> None:
    """The savings in the KIP: the length takes 3 bytes, the last offset delta 2, the base timestamp 6, its delta 3: 61 bytes become 51."""
    records = [Record(i, None, b"x" * 120, TIME + i * 100) for i in range(200)]
    path = tmp_path / "a.log"
    path.write_bytes(batch(records))
    kolumn.convert(path, tmp_path / "b.log", format="v3-compact")
    assert path.stat().st_size - (tmp_path / "b.log").stat().st_size == 10 + 200


def test_messages_become_batches(tmp_path: Path) -> None:
    data = b"".join(message(0, Record(i, b"k", b"v" * 50, -1)) for i in range(100)) + wrapper(1, [Record(200, b"a", b"b", TIME)], 1)
    (tmp_path / "a.log").write_bytes(data)
    done = kolumn.convert(tmp_path / "a.log", tmp_path / "b.log", batch_bytes=1000)
    rows = kolumn.batches(tmp_path / "b.log").to_pylist()
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
    assert kolumn.read(tmp_path / "b.log", columns=["tombstone"])["tombstone"].to_pylist() == [False, True, False, True, False, True]
    kolumn.convert(tmp_path / "b.log", tmp_path / "c.log", format="kip87")
    assert kolumn.read(tmp_path / "c.log", format="kip87", columns=["tombstone"])["tombstone"].to_pylist()[:5] == [
        False,
        True,
        False,
        True,
        False,
    ]


def test_transactions_are_refused_or_dropped(tmp_path: Path) -> None:
    def of(producer: int, offset: int) -> bytes:
        return batch([Record(offset, None, b"%d" % producer, TIME)], flags=TRANSACTIONAL, producer_id=producer, producer_epoch=0)

    data = of(1, 0) + of(2, 1) + of(3, 2) + control_batch(3, 1, producer_id=1) + control_batch(4, 0, producer_id=2)
    path = tmp_path / "a.log"
    path.write_bytes(data)
    with pytest.raises(ArgumentError, match=r"a\.log: position 0, base offset 0: the batch is transactional"):
        kolumn.convert(path, tmp_path / "b.log", magic=1)
    done = kolumn.convert(path, tmp_path / "b.log", magic=1, drop_transactions=True)
    assert kolumn.read(tmp_path / "b.log", columns=["value"])["value"].to_pylist() == [b"1"]
    assert {name: done.lost[name] for name in done.lost if "records of" in name or "markers" in name} == {
        "records of aborted transactions": 1, "records of open transactions": 1, "COMMIT and ABORT markers": 2,
    }  # fmt: skip


def test_markers_change_their_numbers(tmp_path: Path) -> None:
    """0 is ABORT in format 2 and COMMIT in the KIP-98 draft."""
    path = tmp_path / "a.log"
    path.write_bytes(control_batch(0, 0) + control_batch(1, 1))
    kolumn.convert(path, tmp_path / "b.log", format="kip98-draft")
    columns = ["key", "controlType"]
    there = kolumn.read(tmp_path / "b.log", format="kip98-draft", columns=columns, include_control=True).to_pylist()
    assert [tuple(row.values()) for row in there] == [(b"\0\0\0\1", "ABORT"), (b"\0\0\0\0", "COMMIT")]
    kolumn.convert(tmp_path / "b.log", tmp_path / "c.log", source_format="kip98-draft")
    back = kolumn.read(tmp_path / "c.log", columns=columns, include_control=True)
    assert back.equals(kolumn.read(path, columns=columns, include_control=True))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"format": "csv"}, "unknown format 'csv'"),
        ({"magic": 3}, "magic=3"),
        ({"source_format": "csv"}, "format='csv'"),
        ({"codec": "brotli"}, "codec='brotli'"),
        ({"magic": 1}, "codec zstd is what batches of the source have"),
        ({"columns": ["key"]}, "unknown option 'columns'"),
    ],
)
def test_what_makes_no_sense(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(batch([Record(0, b"a", b"b", TIME)], codec=4))
    with pytest.raises(ArgumentError, match=text):
        kolumn.convert(path, tmp_path / "b.log", **options)
    assert not (tmp_path / "b.log").exists()


@pytest.mark.parametrize("target", [("v3-compact", 3), ("kip98-draft", 2)])
def test_committed_reads_of_what_was_converted(tmp_path: Path, target: tuple[str, int]) -> None:
    kolumn.convert(DATA / "transactional", tmp_path, format=target[0], codec="gzip")
    columns = ["topic", "offset", "key", "value", "transaction"]
    for level in ("read_committed", "read_uncommitted"):
        expected = kolumn.read(DATA / "transactional", columns=columns, isolation_level=level)
        assert kolumn.read(tmp_path, columns=columns, format=target[0], isolation_level=level).equals(expected)


def header_keys(source: Path, format: str = "kafka") -> list[bytes]:
    """Keys of the headers in the order of the log, as they are in its bytes."""
    options = Options.of(format=format)
    return [
        header["key"]
        for segment in live_segments(source, options).one_log()
        for piece in pieces(segment, options)
        for headers in piece.records["headers"].to_pylist()
        for header in headers
    ]


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_header_keys_are_kept_byte_for_byte(tmp_path: Path, codec: str) -> None:
    """Those that are not UTF-8 too: two of them must not become one."""
    keys = [b"caf\xe9", b"caf\xc3\xa9", b"\xff\xfe", b"\xed\xa0\x80", b"", b"plain", "\ufffd".encode()]
    source = tmp_path / "h-0"
    source.mkdir()
    records = [Record(i, b"k%d" % (i % 2), b"v", TIME, tuple((key, b"%d" % i) for key in keys)) for i in range(4)]
    (source / f"{0:020}.log").write_bytes(batch(records[:3]) + batch(records[3:], codec=1))
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
