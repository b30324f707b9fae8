"""Batches written by kafka-python and aiokafka: Kolumn and the two libraries read the same records from them."""

import struct
from pathlib import Path
from typing import Any

import aiokafka.record.default_records as aiokafka_v2
import aiokafka.record.legacy_records as aiokafka_old
import aiokafka.record.memory_records as aiokafka_reader
import kafka.record.default_records as kafka_python_v2
import kafka.record.legacy_records as kafka_python_old
import kafka.record.memory_records as kafka_python_reader
import pytest

import kolumn
from kit.encoder import Record
from kit.streams import CODECS, LZ4, ZSTD

LIBRARIES = {
    "kafka-python": (kafka_python_v2, kafka_python_old, kafka_python_reader),
    "aiokafka": (aiokafka_v2, aiokafka_old, aiokafka_reader),
}
T, BASE = 1_700_000_000_000, 5_000_000_000
WRITERS = [
    pytest.param(name, magic, codec, id=f"{name}-v{magic}-{CODECS[codec]}")
    for name in LIBRARIES
    for magic in (0, 1, 2)
    for codec in range(5)
    # aiokafka rejects the historic checksum of lz4 in format 0, and kafka-python needs another package for it.
    if (codec != ZSTD or magic == 2) and (magic, codec) != (0, LZ4)
]


def sample(magic: int) -> list[Record]:
    """Null and empty keys and values, a value larger than an lz4 block, headers if the format has them."""
    headers = ((b"h", b"1"), (b"", b""), (b"h", None)) if magic == 2 else ()
    pairs = [(b"key", b"value"), (None, b"value" * 30_000), (b"", b""), (b"gone", None), (b"k" * 300, bytes(range(256)) * 4)]
    return [Record(BASE + i, key, value, T + (7, -20, 0, 3, 12)[i] if magic else -1, headers) for i, (key, value) in enumerate(pairs)]


def build(name: str, magic: int, codec: int, records: list[Record]) -> bytes:
    """Entries as the library would send them, with offsets as a broker would set them."""
    v2, old, _ = LIBRARIES[name]
    size = 1 << 20
    if magic == 2:
        builder = v2.DefaultRecordBatchBuilder(2, codec, 0, 4000, 3, 17, size)
    else:
        builder = old.LegacyRecordBatchBuilder(magic, codec, size)
    relative = magic == 2 or (magic == 1 and codec)
    for record in records:
        headers = [(name.decode(), value) for name, value in record.headers]
        builder.append(record.offset - BASE * bool(relative), record.timestamp, record.key, record.value, headers)
    data = bytes(builder.build())
    if magic == 2:
        return struct.pack(">q", BASE) + data[8:]
    return struct.pack(">q", records[-1].offset) + data[8:] if codec else data


def rows(path: Path) -> list[tuple]:
    columns = ["offset", "key", "value", "timestampMs", "headers", "magic", "codec"]
    return [tuple(row.values()) for row in kolumn.read(path, columns=columns).to_pylist()]


def expected(records: list[Record], magic: int, codec: int) -> list[tuple]:
    def headers(record: Record) -> list[dict[str, Any]]:
        return [{"key": name.decode(), "value": value} for name, value in record.headers]

    return [(r.offset, r.key, r.value, r.timestamp, headers(r), magic, CODECS[codec]) for r in records]


@pytest.mark.sample
@pytest.mark.parametrize(("name", "magic", "codec"), WRITERS)
def test_builder(tmp_path: Path, name: str, magic: int, codec: int) -> None:
    records = sample(magic)
    path = tmp_path / "00000000005000000000.log"
    path.write_bytes(build(name, magic, codec, records))
    assert rows(path) == expected(records, magic, codec)
    assert kolumn.verify(path).ok


@pytest.mark.sample
@pytest.mark.parametrize(("name", "magic", "codec"), WRITERS)
def test_the_library_reads_the_same(tmp_path: Path, name: str, magic: int, codec: int) -> None:
    path = tmp_path / "00000000005000000000.log"
    path.write_bytes(build(name, magic, codec, sample(magic)))
    reader = LIBRARIES[name][2].MemoryRecords(path.read_bytes())
    found = []
    while reader.has_next():
        batch = reader.next_batch()
        assert batch.validate_crc()
        # Both represent the missing timestamp of a format 0 record, in different ways.
        found += [(r.offset, r.key, r.value, -1 if r.timestamp is None else r.timestamp) for r in batch]
    assert found == [row[:4] for row in rows(path)]


def test_producer_fields(tmp_path: Path) -> None:
    for name in LIBRARIES:
        path = tmp_path / f"{name}.log"
        path.write_bytes(build(name, 2, 0, sample(2)))
        table = kolumn.read(path, columns=["producerId", "producerEpoch", "sequence"])
        assert [tuple(row.values()) for row in table.to_pylist()] == [(4000, 3, 17 + i) for i in range(5)]
