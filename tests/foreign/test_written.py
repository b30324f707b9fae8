"""Segments of `kolumn.write` are read by others: kafka-python, aiokafka, and Kafka's own classes."""

from pathlib import Path

import aiokafka.record.memory_records as aiokafka_reader
import kafka.record.memory_records as kafka_python_reader
import pyarrow as pa
import pytest

import kolumn
from foreign.test_java import difference, java
from kit import oracle
from kit.differential import COLUMNS
from kit.streams import LZ4

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
READERS = {"kafka-python": kafka_python_reader, "aiokafka": aiokafka_reader}
WAYS = [(magic, codec) for magic in (0, 1, 2) for codec in range(5) if codec < 4 or magic == 2]
HEADERS = kolumn.read(CORPUS / "v2-java" / "java-zstd-0", columns=["headers"], end_offset=0).schema.field("headers").type


def sample(magic: int) -> pa.Table:
    """Null and empty keys and values, values larger than any codec's block, gaps between offsets."""
    rows = 400
    columns = {
        "offset": pa.array([5_000_000_000 + 2 * i for i in range(rows)]),
        "timestampMs": pa.array([1_700_000_000_000 + 37 * i % 11 for i in range(rows)]),
        "key": pa.array([None if i % 7 == 0 else b"" if i % 5 == 0 else b"key %d" % i for i in range(rows)], pa.binary()),
        "value": pa.array(
            [None if i % 11 == 0 else b"value %d " % i * (90 * i if i % 50 == 1 else i % 40) for i in range(rows)], pa.binary()
        ),
    }
    if magic == 2:
        headers = [[{"key": "a", "value": b"1"}, {"key": "", "value": None}][: i % 3] for i in range(rows)]
        columns["headers"] = pa.array(headers, HEADERS)
    return pa.table(columns)


@pytest.mark.sample
@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(("magic", "codec"), WAYS)
def test_other_clients_read_the_same(tmp_path: Path, name: str, magic: int, codec: int) -> None:
    if (magic, codec) == (0, LZ4):
        pytest.skip("aiokafka refuses the historic checksum of lz4 in format 0, kafka-python asks for one more package")
    table = sample(magic)
    (path,) = kolumn.write(table, tmp_path / "written.log", magic=magic, codec=CODECS[codec])
    reader = READERS[name].MemoryRecords(Path(path).read_bytes())
    found = []
    while reader.has_next():
        batch = reader.next_batch()
        assert batch.validate_crc()
        found += [(r.offset, r.key, r.value, -1 if r.timestamp is None else r.timestamp, list(r.headers)) for r in batch]
    wanted = [
        (
            row["offset"], row["key"], row["value"], row["timestampMs"] if magic else -1,
            [tuple(header.values()) for header in row.get("headers", [])],
        )
        for row in table.to_pylist()
    ]  # fmt: skip
    assert found == wanted


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
