"""Kolumn and others read the same records from what either of them writes: kafka-python, aiokafka, and Kafka's own classes."""

import struct
from pathlib import Path

import aiokafka.record.default_records as aiokafka_v2
import aiokafka.record.legacy_records as aiokafka_old
import aiokafka.record.memory_records as aiokafka_reader
import kafka.record.default_records as kafka_python_v2
import kafka.record.legacy_records as kafka_python_old
import kafka.record.memory_records as kafka_python_reader
import pyarrow as pa
import pytest

import kolumn
from foreign.test_java import difference, java
from kit import oracle
from kit.corpus import HERE as CORPUS
from kit.differential import COLUMNS
from kit.encoder import Record
from kit.streams import CODECS, LZ4
from kolumn.core.schema import HEADERS

LIBRARIES = {
    "kafka-python": (kafka_python_v2, kafka_python_old, kafka_python_reader),
    "aiokafka": (aiokafka_v2, aiokafka_old, aiokafka_reader),
}
WAYS = [(magic, codec) for magic in (0, 1, 2) for codec in range(5) if codec < 4 or magic == 2]
CLIENTS = [
    pytest.param(name, magic, codec, id=f"{name}-v{magic}-{CODECS[codec]}")
    for name in LIBRARIES for magic, codec in WAYS
    # aiokafka rejects the historic checksum of lz4 in format 0, and kafka-python needs another package for it.
    if (magic, codec) != (0, LZ4)
]  # fmt: skip
T, BASE = 1_700_000_000_000, 5_000_000_000


def read_by(name: str, path: Path) -> list[tuple]:
    """Offsets, keys, values, timestamps and headers of the records that a library reads."""
    reader, found = LIBRARIES[name][2].MemoryRecords(path.read_bytes()), []
    while reader.has_next():
        batch = reader.next_batch()
        assert batch.validate_crc()
        # Both represent the missing timestamp of a format 0 record, in different ways.
        found += [(r.offset, r.key, r.value, -1 if r.timestamp is None else r.timestamp, list(r.headers)) for r in batch]
    return found


def rows(table: pa.Table, magic: int) -> list[tuple]:
    """The same of a table."""
    return [
        (
            row["offset"], row["key"], row["value"], row["timestampMs"] if magic else -1,
            [tuple(header.values()) for header in row.get("headers", [])],
        )
        for row in table.to_pylist()
    ]  # fmt: skip


def few(magic: int) -> list[Record]:
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


@pytest.mark.sample
@pytest.mark.parametrize(("name", "magic", "codec"), CLIENTS)
def test_what_other_clients_write(tmp_path: Path, name: str, magic: int, codec: int) -> None:
    records, path = few(magic), tmp_path / "00000000005000000000.log"
    path.write_bytes(build(name, magic, codec, records))
    found = kolumn.read(path, columns=COLUMNS)
    expected = [(r.offset, r.key, r.value, r.timestamp, [(header.decode(), value) for header, value in r.headers]) for r in records]
    assert rows(found, magic) == expected == read_by(name, path)
    assert (set(found["magic"].to_pylist()), set(found["codec"].to_pylist())) == ({magic}, {CODECS[codec]})
    if magic == 2:
        fields = found.select(["producerId", "producerEpoch", "sequence"])
        assert [tuple(row.values()) for row in fields.to_pylist()] == [(4000, 3, 17 + i) for i in range(5)]
    assert kolumn.verify(path).ok


def sample(magic: int) -> pa.Table:
    """Null and empty keys and values, values larger than any codec's block, gaps between offsets."""
    count = 400
    columns = {
        "offset": pa.array([BASE + 2 * i for i in range(count)]),
        "timestampMs": pa.array([T + 37 * i % 11 for i in range(count)]),
        "key": pa.array([None if i % 7 == 0 else b"" if i % 5 == 0 else b"key %d" % i for i in range(count)], pa.binary()),
        "value": pa.array(
            [None if i % 11 == 0 else b"value %d " % i * (90 * i if i % 50 == 1 else i % 40) for i in range(count)], pa.binary()
        ),
    }
    if magic == 2:
        headers = [[{"key": "a", "value": b"1"}, {"key": "", "value": None}][: i % 3] for i in range(count)]
        columns["headers"] = pa.array(headers, HEADERS)
    return pa.table(columns)


@pytest.mark.sample
@pytest.mark.parametrize(("name", "magic", "codec"), CLIENTS)
def test_other_clients_read_the_same(tmp_path: Path, name: str, magic: int, codec: int) -> None:
    (path,) = kolumn.write(sample(magic), tmp_path / "written.log", magic=magic, codec=CODECS[codec])
    assert read_by(name, Path(path)) == rows(sample(magic), magic)


@pytest.mark.slow
def test_kafkas_own_classes_read_the_same(jars: str, tmp_path: Path) -> None:
    segments = []
    for magic, codec in WAYS:
        kolumn.write(sample(magic), tmp_path / f"{magic}-{codec}.log", magic=magic, codec=CODECS[codec])
        segments.append((tmp_path / f"{magic}-{codec}.log").read_bytes())
    for case in ("transactional/txn-zstd-0", "idempotent/idempotent-1", "v2-append-time/append-time-0"):
        table = kolumn.read(CORPUS / case, columns=COLUMNS, include_control=True)
        (path,) = kolumn.write(table, tmp_path / f"{Path(case).name}.log", codec="zstd")
        segments.append(Path(path).read_bytes())
    for data, line in zip(segments, java(jars, tmp_path / "segment", segments, crc=True), strict=True):
        found = oracle.read(data)
        assert (found.first_error, found.stop) == (None, "end")
        assert found.rows()
        assert difference(line, found, data) is None
