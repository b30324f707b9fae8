"""Segments of real brokers, and those damaged by hand: every row, column and error is that of Kafka's own record classes."""

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kolumn
from kit import oracle
from kit.corpus import BATCH_NAMES, RECORD_NAMES, Case, cases
from kit.drafts import bare_record, compact_batch, message_set, set_message
from kit.encoder import Record, batch, control_batch, message, raw_batch, record_body, varint, with_crc, wrapper
from kit.fuzz import TURN
from kit.outcome import raises
from kit.paths import GENERAL, without
from kit.streams import GZIP, LZ4, SNAPPY, XERIAL, ZSTD, compress
from kolumn.core.paths import MESSAGES, SHORT, STREAMED

COLUMNS = [*RECORD_NAMES, "segment", "topic", "partition", "timestamp", "tombstone"]
CASES = cases()


def read(case: Case, **options: Any) -> pa.Table:
    return kolumn.read(case.segments or case.directory, **{"columns": COLUMNS, "include_control": True, **options})


def same(found: Any, expected: Any) -> None:
    """Both have the same values and nulls in the same order; the message names the first row that differs."""
    found, expected = found.combine_chunks(), expected.combine_chunks()
    if pa.types.is_binary_view(found.type):
        found = found.cast(pa.binary())
    expected = expected.cast(found.type)
    assert (len(found), found.null_count) == (len(expected), expected.null_count)
    if not found.equals(expected):
        pairs = enumerate(zip(found, expected, strict=True))
        row, (one, other) = next((row, pair) for row, pair in pairs if pair[0].as_py() != pair[1].as_py())
        pytest.fail(f"row {row}: {one!r}, expected {other!r}")


def same_table(found: pa.Table, expected: pa.Table) -> None:
    for name, other in RECORD_NAMES.items():
        if name in found.column_names:
            same(found[name], expected[other])


OTHERWISE: list[dict[str, Any]] = [
    {"binary": "view"},
    {"threads": 2, "chunk_bytes": 20_000},
    {"threads": 2, "chunk_bytes": 20_000, "binary": "view"},
    {"threads": 1, "chunk_bytes": 1},
    {"check_crcs": False, "threads": 2},
    {"errors": "skip", "threads": 1},
    {"threads": 3, "memory_bytes": 5000},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_everything_that_can_be_asked(case: Case) -> None:
    turn = (TURN + CASES.index(case)) % len(OTHERWISE)
    # All ways to read a case in CI; in `make test` the default, and one of the others, which take turns.
    for options in ({}, *(OTHERWISE if os.environ.get("CI") else OTHERWISE[turn : turn + 1])):
        records(case, options)
    derived_columns(case)
    ranges(case)
    expected = case.expected()
    same_table(read(case, include_control=not case.segments), expected.filter(~pc.field("is_control")))
    # A directory leaves snapshots out.
    expected = expected.filter(pc.ends_with(expected["segment"], ".log"))
    same_table(kolumn.read(case.directory, columns=COLUMNS, include_control=True), expected)
    batches(case)
    verified(case)


def records(case: Case, options: dict[str, Any]) -> None:
    if options.get("chunk_bytes") == 1:
        # A chunk for each entry, but of large logs some hundreds.
        options = options | {"chunk_bytes": 1 + sum(Path(path).stat().st_size for path in case.segments) // 300}
    same_table(read(case, **options), case.expected())
    with without(GENERAL):
        same_table(read(case, **options), case.expected())
    # Other loops decode records whose headers nobody asked for.
    same_table(read(case, columns=[name for name in COLUMNS if name != "headers"], **options), case.expected())


def derived_columns(case: Case) -> None:
    found, expected = read(case), case.expected()
    assert [Path(path).name for path in found["segment"].to_pylist()] == expected["segment"].to_pylist()
    topic, _, partition = case.directory.name.rpartition("-")
    assert found["topic"].unique().to_pylist() in ([topic], [])
    assert found["partition"].unique().to_pylist() in ([int(partition)], [])
    known = expected["timestamp_ms"].combine_chunks()
    moments = pc.if_else(pc.equal(known, -1), pa.scalar(None, pa.int64()), pc.multiply(known, 1000)).cast(pa.timestamp("us", tz="UTC"))
    same(found["timestamp"], pa.chunked_array([moments]))
    assert found["tombstone"].to_pylist() == pc.is_null(expected["value"]).to_pylist()


def ranges(case: Case) -> None:
    for name, of in (("offset", "offset"), ("timestamp_ms", "timestamp")):
        known = case.expected().filter(pc.field("timestamp_ms") != -1) if of == "timestamp" else case.expected()
        values = sorted(known[name].to_pylist()) or [0]
        for low, high in ((0.3, 0.6), (0.0, 0.1), (0.9, 1.0)):
            start, end = (values[round(share * (len(values) - 1))] for share in (low, high))
            within = known.filter((pc.field(name) >= start) & (pc.field(name) < end))
            same_table(read(case, **{f"start_{of}": start, f"end_{of}": end}), within)
            same_table(read(case, **{f"start_{of}": start, f"end_{of}": end}, binary="view"), within)
            same_table(read(case, **{f"start_{of}": start}, threads=1), known.filter(pc.field(name) >= start))


def batches(case: Case) -> None:
    found, expected = kolumn.batches(case.segments or case.directory), case.expected_batches()
    assert [Path(path).name for path in found["segment"].to_pylist()] == expected["segment"].to_pylist()
    for name, other in BATCH_NAMES.items():
        same(found[name], expected[other])
    wrapper = pc.and_(pc.less(expected["magic"], 2), pc.not_equal(expected["codec"], "none"))
    # Java reports no count for a message that is not a wrapper; it is one record.
    single = pc.and_(pc.less(expected["magic"], 2), pc.equal(expected["codec"], "none"))
    same(found["count"], pc.if_else(single, pa.scalar(1, pa.int32()), expected["count_or_null"].cast(pa.int32())))
    same(found["baseOffset"], pc.if_else(wrapper, pa.scalar(None, pa.int64()), expected["base_offset"]))
    by_headers = kolumn.batches(case.segments or case.directory, check_crcs=False)
    assert by_headers["crcValid"].null_count == by_headers.num_rows
    names = [name for name in by_headers.column_names if name != "crcValid"]
    assert by_headers.select(names).equals(found.select(names))


def verified(case: Case) -> None:
    report = kolumn.verify(case.segments or case.directory)
    assert (report.ok, report.damage.num_rows) == (True, 0)
    expected = case.expected_segments()
    rows = report.segments.to_pylist()
    assert [Path(row["segment"]).name for row in rows] == [segment["segment"] for segment in expected]
    for row, segment in zip(rows, expected, strict=True):
        assert (row["size"], row["validBytes"]) == (segment["file_size"], segment["valid_bytes"])
        assert (row["batches"], row["records"]) == (segment["batches"], segment["records"])
        left = segment["file_size"] - segment["valid_bytes"]
        tail = None if not left else "zeros" if "record size 0" in segment["stop"] else "truncated"
        assert (row["tail"], row["tailBytes"]) == (tail, left)
    assert report.batches == sum(segment["batches"] for segment in expected)
    assert report.records == sum(segment["records"] for segment in expected)
    assert report.bytes == sum(segment["file_size"] for segment in expected)


T = 1_700_000_000_000


def few(base: int, count: int = 3) -> list[Record]:
    return [Record(base + i, b"key", b"value %d" % i, T + i) for i in range(count)]


GOOD = [batch(few(100)), batch(few(103)), batch(few(106))]
FIRST, BOTH = len(GOOD[0]), len(GOOD[0]) + len(GOOD[1])


def payload(count: int = 3) -> bytes:
    bodies = [record_body(record, 103, T) for record in few(103, count)]
    return b"".join(varint(len(body)) + body for body in bodies)


def packed(codec: int, stream: bytes, count: int = 3) -> bytes:
    return raw_batch(stream, count, base_offset=103, attributes=codec, last_delta=2, base_timestamp=T, max_timestamp=T + 2)


def middle(entry: bytes) -> bytes:
    return GOOD[0] + entry + GOOD[2]


def changed(entry: bytes, at: int, new: bytes, fix: bool = False) -> bytes:
    data = entry[:at] + new + entry[at + len(new) :]
    return with_crc(data) if fix else data


def v1_wrapper(inner: bytes, offset: int = 105, codec: int = GZIP, magic: int = 1) -> bytes:
    return message(magic, Record(offset, None, compress(codec, inner, magic=magic), T), codec)


def one(offset: int, magic: int = 1, attributes: int = 0) -> bytes:
    return message(magic, Record(offset, b"k", b"v", T), attributes)


ALL, WITHOUT = list(range(100, 109)), [100, 101, 102, 106, 107, 108]
FIRST_OF_THREE = [100, 101, 102, 103, 106, 107, 108]
BLOCK, NO_KEY = compress(LZ4, payload(), "block-checksum"), message(1, Record(105, None, b"v", T))
# name: bytes, position of the error (None: no error), offsets that are read with errors="skip"
HAND_MADE: dict[str, tuple[bytes, int | None, list[int]]] = {
    "16 trailing zeros": (b"".join(GOOD) + bytes(16), None, ALL),
    "17 trailing zeros": (b"".join(GOOD) + bytes(17), None, ALL),
    "18 trailing zeros: preallocated": (b"".join(GOOD) + bytes(18), None, ALL),
    "4 KiB of trailing zeros": (b"".join(GOOD) + bytes(4096), None, ALL),
    "zeros and then a byte": (b"".join(GOOD) + bytes(100) + b"\1", 2 * FIRST + len(GOOD[2]), ALL),
    "17 trailing bytes of anything": (b"".join(GOOD) + b"\xff" * 17, None, ALL),
    "negative size": (middle(changed(GOOD[1], 8, b"\x80")), FIRST, WITHOUT),
    "size 13": (middle(changed(GOOD[1], 8, struct.pack(">i", 13))), FIRST, WITHOUT),
    "size 48": (middle(changed(GOOD[1], 8, struct.pack(">i", 48))), FIRST, WITHOUT),
    "huge size: Java loses the rest in silence": (middle(changed(GOOD[1], 8, struct.pack(">i", 1 << 30))), FIRST, WITHOUT),
    "magic 5: Java reads format 2": (middle(changed(GOOD[1], 16, b"\5")), FIRST, WITHOUT),
    "magic 0x80": (middle(changed(GOOD[1], 16, b"\x80")), FIRST, WITHOUT),
    "payload bit": (middle(changed(GOOD[1], 80, bytes([GOOD[1][80] ^ 1]))), FIRST, WITHOUT),
    "checksum bit": (middle(changed(GOOD[1], 17, bytes([GOOD[1][17] ^ 1]))), FIRST, WITHOUT),
    "leader epoch and offsets are outside the checksum": (middle(changed(GOOD[1], 12, b"\0\0\0\7")), None, ALL),
    "count - 1": (middle(packed(0, payload(), 2)), FIRST, ALL),
    "count + 1": (middle(packed(0, payload(), 4)), FIRST, ALL),
    "count 0": (middle(packed(0, payload(), 0)), FIRST, ALL),
    "count negative": (middle(packed(0, payload(), -1)), FIRST, ALL),
    "count huge": (middle(packed(0, payload(), (1 << 31) - 1)), FIRST, ALL),
    "lz4, count - 1": (middle(packed(LZ4, compress(LZ4, payload()), 2)), FIRST, ALL),
    "lz4, junk after the end mark": (middle(packed(LZ4, compress(LZ4, payload()) + b"junk")), None, ALL),
    "lz4, a second frame is junk too": (middle(packed(LZ4, compress(LZ4, payload(1)) + compress(LZ4, payload()))), FIRST, FIRST_OF_THREE),
    "lz4, no end mark": (middle(packed(LZ4, compress(LZ4, payload())[:-4])), FIRST, WITHOUT),
    "lz4, content checksum is not compared": (middle(packed(LZ4, compress(LZ4, payload(), "content-checksum")[:-1] + b"\0")), None, ALL),
    "lz4, block checksum is": (middle(packed(LZ4, BLOCK[:-5] + bytes([BLOCK[-5] ^ 1]) + BLOCK[-4:])), FIRST, WITHOUT),
    "lz4, header checksum wrong": (middle(packed(LZ4, changed(compress(LZ4, payload()), 6, b"\x83"))), FIRST, WITHOUT),
    "lz4, header checksum of format 0": (middle(packed(LZ4, compress(LZ4, payload(), magic=0))), FIRST, WITHOUT),
    "gzip, junk after the member": (middle(packed(GZIP, compress(GZIP, payload()) + b"junk" * 20)), None, ALL),
    "gzip, two members": (middle(packed(GZIP, compress(GZIP, payload(), "members"))), None, ALL),
    "gzip, trailer wrong": (middle(packed(GZIP, compress(GZIP, payload())[:-1] + b"\1")), FIRST, WITHOUT),
    "gzip, cut": (middle(packed(GZIP, compress(GZIP, payload())[:-9])), FIRST, WITHOUT),
    "snappy, 3 bytes after the last chunk": (middle(packed(SNAPPY, compress(SNAPPY, payload()) + b"abc")), None, ALL),
    "snappy, empty chunk": (middle(packed(SNAPPY, XERIAL + bytes(4))), FIRST, WITHOUT),
    "snappy, negative chunk": (middle(packed(SNAPPY, compress(SNAPPY, payload()) + b"\xff" * 4)), FIRST, WITHOUT),
    "zstd, junk after the frame": (middle(packed(ZSTD, compress(ZSTD, payload()) + b"junk")), FIRST, WITHOUT),
    "zstd, cut": (middle(packed(ZSTD, compress(ZSTD, payload(), "size")[:-1])), FIRST, WITHOUT),
    "codec 5": (middle(packed(5, payload())), FIRST, WITHOUT),
    "high attribute byte is ignored": (middle(packed(0xFF00 - (1 << 16), payload())), None, ALL),
    "inner offsets relative": (middle(v1_wrapper(one(0) + one(2))), None, [100, 101, 102, 103, 105, 106, 107, 108]),
    "inner offsets absolute in format 0": (middle(v1_wrapper(one(3, 0) + one(4, 0), magic=0)), None, [100, 101, 102, 3, 4, 106, 107, 108]),
    "wrapper offset 0: inner ones are absolute": (middle(v1_wrapper(one(3) + one(4), 0)), None, [100, 101, 102, 3, 4, 106, 107, 108]),
    "wrapper offset below the last inner one": (middle(v1_wrapper(one(0) + one(200))), FIRST, WITHOUT),
    "inner message cut: left out": (middle(v1_wrapper(one(2) + one(3)[:-1])), None, [100, 101, 102, 105, 106, 107, 108]),
    "11 bytes after the last inner message": (middle(v1_wrapper(one(2) + b"\xff" * 11)), None, [100, 101, 102, 105, 106, 107, 108]),
    "inner size 13": (middle(v1_wrapper(one(2) + struct.pack(">qi", 3, 13) + bytes(20))), FIRST, WITHOUT),
    "no inner message": (middle(v1_wrapper(b"")), FIRST, WITHOUT),
    "nested wrapper": (middle(v1_wrapper(v1_wrapper(one(0), 2))), FIRST, WITHOUT),
    "wrapper without value": (middle(message(1, Record(105, None, None, T), GZIP)), FIRST, WITHOUT),
    "zstd below format 2": (middle(v1_wrapper(one(2), codec=ZSTD)), FIRST, WITHOUT),
    "format 0 inside format 1": (middle(v1_wrapper(one(2, 0))), None, [100, 101, 102, 105, 106, 107, 108]),
    "format 1 inside format 0": (middle(v1_wrapper(one(105, 1), magic=0)), None, [100, 101, 102, 105, 106, 107, 108]),
    "message with a key beyond its end": (middle(changed(one(105), 26, struct.pack(">i", 99), fix=True)), FIRST, WITHOUT),
    "format 1 with 21 bytes": (middle(with_crc(one(105)[:8] + struct.pack(">i", 21) + one(105)[12:33])), FIRST, WITHOUT),
    "negative key length is null": (middle(changed(NO_KEY, 26, struct.pack(">i", -7), fix=True)), None, [*WITHOUT[:3], 105, *WITHOUT[3:]]),
    "lz4 of format 0 with its historic header checksum": (middle(wrapper(0, few(103), LZ4)), None, ALL),
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000100.log"


@pytest.mark.sample
@pytest.mark.parametrize("name", HAND_MADE)
def test_case(path: Path, name: str) -> None:
    data, position, offsets = HAND_MADE[name]
    path.write_bytes(data)

    def read(**options: Any) -> list[int]:
        return kolumn.read(path, columns=["offset"], **options)["offset"].to_pylist()

    texts = set[str]()
    for off in ((), (GENERAL,), (STREAMED,), (MESSAGES,), (SHORT,)):
        with without(*off):
            assert read(errors="skip") == offsets
            report = kolumn.verify(path)
            if position is None:
                assert read() == offsets
                assert report.ok
            else:
                caught = raises(kolumn.CorruptBatchError, "", read)
                texts.add(str(caught))
                assert (caught.position, report.damage["position"].to_pylist()) == (position, [position])
            assert report.records == len(offsets)
    assert len(texts) == (position is not None)
    if "Java" not in name:
        assert oracle.read(data).first_error == position


def test_control_types(path: Path) -> None:
    names = ["ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS"]
    path.write_bytes(b"".join(control_batch(101 + kind, kind) for kind in range(-1, 9)))
    found = kolumn.read(path, columns=["controlType"], include_control=True)["controlType"].to_pylist()
    assert found == ["UNKNOWN", *names, "UNKNOWN", "UNKNOWN"]


LARGEST = (1 << 63) - 1
WRAPS = r"last offset: .* 64 bits can hold, found a last offset that wraps"


def kip98(records: list[Record]) -> bytes:
    base = records[0].offset
    return message_set(base, [set_message(record, base) for record in records], len(records))


def compact(records: list[Record]) -> bytes:
    base, bodies = records[0].offset, [bare_record(record, records[0].offset, T) for record in records]
    return compact_batch(base, bodies, last_delta=len(records) - 1, base_timestamp=T, max_delta=0)


BATCHES: dict[str, Callable[[list[Record]], bytes]] = {"kafka": batch, "kip98-draft": kip98, "v3-compact": compact}

WAYS: dict[str, dict[str, Any]] = {
    "streamed": {"threads": 1},
    "planned ahead": {"threads": 2},
    "with headers": {"threads": 1, "columns": ["offset", "headers"]},
    "chunk by chunk": {"threads": 1, "chunk_bytes": 1},
}


@pytest.mark.parametrize("off", [(), (GENERAL,)], ids=["fast", GENERAL])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BATCHES)
def test_offsets_do_not_wrap(name: str, way: str, off: tuple[str, ...], path: Path) -> None:
    """The checksum does not cover the base offset. One with which the last offset exceeds 64 bits is damage."""
    twenty = BATCHES[name]([Record(i, b"k", b"v%d" % i, T) for i in range(20)])
    fits, wraps = (struct.pack(">q", LARGEST - count + 1) + twenty[8:] for count in (20, 10))
    first = BATCHES[name](few(100))
    with without(*off):
        path.write_bytes(fits)
        assert kolumn.read(path, format=name, **WAYS[way])["offset"].to_pylist() == list(range(LARGEST - 19, LARGEST + 1))
        path.write_bytes(first + wraps)
        caught = raises(kolumn.CorruptBatchError, WRAPS, kolumn.read, path, format=name, **WAYS[way])
        assert caught.position == len(first)
        assert kolumn.read(path, format=name, errors="skip", **WAYS[way])["offset"].to_pylist() == [100, 101, 102]
        (damage,) = kolumn.verify(path, format=name).damage.to_pylist()
        assert (damage["position"], damage["size"], damage["recordsLost"]) == (len(first), len(wraps), None)
