"""Segments damaged by hand, with the known results of Kafka's own record classes."""

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit import oracle
from kit.drafts import bare_record, compact_batch, message_set, set_message
from kit.encoder import Record, batch, control_batch, message, raw_batch, record_body, varint, with_crc, wrapper
from kit.paths import GENERAL, without
from kit.streams import GZIP, LZ4, SNAPPY, XERIAL, ZSTD, compress
from kolumn.core.paths import MESSAGES, SHORT, STREAMED

T = 1_700_000_000_000


def records(base: int, count: int = 3) -> list[Record]:
    return [Record(base + i, b"key", b"value %d" % i, T + i) for i in range(count)]


GOOD = [batch(records(100)), batch(records(103)), batch(records(106))]
FIRST, BOTH = len(GOOD[0]), len(GOOD[0]) + len(GOOD[1])


def payload(count: int = 3) -> bytes:
    bodies = [record_body(record, 103, T) for record in records(103, count)]
    return b"".join(varint(len(body)) + body for body in bodies)


def packed(codec: int, stream: bytes, count: int = 3) -> bytes:
    return raw_batch(stream, count, base_offset=103, attributes=codec, last_delta=2, base_timestamp=T, max_timestamp=T + 2)


def middle(entry: bytes) -> bytes:
    """The entry between two intact ones."""
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
# name: bytes, position of the error (None: no error), offsets that are read with errors="skip"
CASES: dict[str, tuple[bytes, int | None, list[int]]] = {
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
    "lz4, block checksum is": (
        middle(packed(LZ4, (lambda s: s[:-5] + bytes([s[-5] ^ 1]) + s[-4:])(compress(LZ4, payload(), "block-checksum")))), FIRST, WITHOUT,
    ),
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
    "message with a key beyond its end": (
        middle(changed(one(105), 26, struct.pack(">i", 99), fix=True)), FIRST, WITHOUT,
    ),
    "format 1 with 21 bytes": (middle(with_crc(one(105)[:8] + struct.pack(">i", 21) + one(105)[12:33])), FIRST, WITHOUT),
    "negative key length is null": (
        middle(changed(message(1, Record(105, None, b"v", T)), 26, struct.pack(">i", -7), fix=True)),
        None, [100, 101, 102, 105, 106, 107, 108],
    ),
    "lz4 of format 0 with its historic header checksum": (
        middle(wrapper(0, records(103), LZ4)), None, ALL,
    ),
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000100.log"


@pytest.mark.sample
@pytest.mark.parametrize("name", CASES)
def test_case(path: Path, name: str) -> None:
    data, position, offsets = CASES[name]
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
                with pytest.raises(kolumn.CorruptBatchError) as caught:
                    read()
                texts.add(str(caught.value))
                assert caught.value.position == position
                assert report.damage["position"].to_pylist() == [position]
            assert report.records == len(offsets)
    assert len(texts) == (position is not None)
    if "Java" not in name:
        assert oracle.read(data).first_error == position


def test_a_compressed_stream_that_grows_without_end(path: Path) -> None:
    path.write_bytes(packed(GZIP, gzip.compress(bytes(200 << 20))))
    for options in ({"max_batch_bytes": 1 << 20}, {"max_ratio": 100}):
        with pytest.raises(kolumn.LimitError):
            kolumn.read(path, **options)


@pytest.mark.parametrize("kind", range(-1, 9))
def test_control_types(path: Path, kind: int) -> None:
    names = ["ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS"]
    path.write_bytes(control_batch(100, kind))
    (row,) = kolumn.read(path, columns=["controlType"], include_control=True).to_pylist()
    assert row["controlType"] == (names[kind] if 0 <= kind < len(names) else "UNKNOWN")


LARGEST = (1 << 63) - 1


def kip98(records: list[Record]) -> bytes:
    base = records[0].offset
    return message_set(base, [set_message(record, base) for record in records], len(records))


def compact(records: list[Record]) -> bytes:
    base, bodies = records[0].offset, [bare_record(record, records[0].offset, T) for record in records]
    return compact_batch(base, bodies, last_delta=len(records) - 1, base_timestamp=T, max_delta=0)


BATCHES: dict[str, Callable[[list[Record]], bytes]] = {"kafka": batch, "kip98-draft": kip98, "v3-compact": compact}


def wrapping(layout: str) -> tuple[bytes, bytes]:
    """Twenty records of which the last offset is the largest in 64 bits, and the same with ten offsets that do not fit."""
    twenty = [Record(i, b"k", b"v%d" % i, T) for i in range(20)]

    def moved(base: int) -> bytes:
        return struct.pack(">q", base) + BATCHES[layout](twenty)[8:]

    return moved(LARGEST - 19), moved(LARGEST - 9)


WAYS: dict[str, dict[str, Any]] = {
    "streamed": {"threads": 1},
    "planned ahead": {"threads": 2},
    "with headers": {"threads": 1, "columns": ["offset", "headers"]},
    "chunk by chunk": {"threads": 1, "chunk_bytes": 1},
}


@pytest.mark.parametrize("off", [(), (GENERAL,)], ids=["fast", GENERAL])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BATCHES)
def test_offsets_do_not_wrap(name: str, way: str, off: tuple[str, ...], tmp_path: Path) -> None:
    """The checksum does not cover the base offset. One with which the last offset exceeds 64 bits is damage."""
    with without(*off):
        offsets_do_not_wrap(name, way, tmp_path)


def offsets_do_not_wrap(name: str, way: str, tmp_path: Path) -> None:
    fits, wraps = wrapping(name)
    path = tmp_path / "a.log"
    path.write_bytes(fits)
    assert kolumn.read(path, format=name, **WAYS[way])["offset"].to_pylist() == list(range(LARGEST - 19, LARGEST + 1))
    first = BATCHES[name](records(100))
    path.write_bytes(first + wraps)
    with pytest.raises(kolumn.CorruptBatchError, match=r"last offset: .* 64 bits can hold, found a last offset that wraps") as caught:
        kolumn.read(path, format=name, **WAYS[way])
    assert caught.value.position == len(first)
    assert kolumn.read(path, format=name, errors="skip", **WAYS[way])["offset"].to_pylist() == [100, 101, 102]
    (damage,) = kolumn.verify(path, format=name).damage.to_pylist()
    assert (damage["position"], damage["size"], damage["recordsLost"]) == (len(first), len(wraps), None)
