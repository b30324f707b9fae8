"""Segments that `kolumn.write` makes: an independent reader and Kolumn read the same from them. Also: Parquet by several threads."""

import random
import tempfile
import threading
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kolumn
import kolumn.core.schema
from kit import oracle
from kit.asked import offsets
from kit.corpus import Case, cases
from kit.differential import COLUMNS, rows_of
from kit.encoder import LOG_APPEND_TIME, TRANSACTIONAL, Record, batch, control_batch, message
from kit.fuzz import FIRST, examples
from kit.inflate import inflate
from kit.outcome import raises
from kit.replicas import flip
from kit.strategies import segments
from kit.streams import SNAPPY
from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.damage.findings import Damage
from kolumn.decode.pipeline import scan_ranges
from kolumn.options import Options
from kolumn.readers.plan import plan_read
from kolumn.tools import parquet
from kolumn.tools.parquet import write_parquet

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEPT = [name for name in COLUMNS if name not in ("magic", "codec", "position")]
"""Columns that a record keeps when it is written again."""
SEGMENT = "00000000000000000000.log"


def everything(source: object) -> pa.Table:
    return kolumn.read(source, columns=COLUMNS, include_control=True)


def kept(table: pa.Table) -> pa.Table:
    """The columns that survive a write; records without a timestamp type are written as CreateTime."""
    kind = pc.max_element_wise(table["timestampType"], pa.scalar(0, pa.int32()))
    return table.set_column(table.schema.get_field_index("timestampType"), "timestampType", kind).select(KEPT).combine_chunks()


@pytest.mark.sample
@pytest.mark.parametrize("case", cases(), ids=str)
def test_what_a_broker_wrote_comes_back(case: Case, tmp_path: Path) -> None:
    table = everything(case.directory)
    codec = random.Random(f"{FIRST} {case}").choice(CODECS)
    if table.num_rows and (pc.min(pc.subtract(table["offset"][1:], table["offset"][:-1])).as_py() or 1) <= 0:
        table = table.slice(0, 1)
    kolumn.write(table, tmp_path / "t-0", codec=codec, segment_bytes=100_000)
    found = kolumn.read(sorted((tmp_path / "t-0").glob("*.log")), columns=COLUMNS, include_control=True) if table.num_rows else table
    assert kept(found).equals(kept(table))
    for path in (tmp_path / "t-0").glob("*.log"):
        segment = oracle.read(path.read_bytes())
        assert (segment.first_error, segment.stop) == (None, "end")
        assert segment.rows() == rows_of(everything(path))


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(segments(), st.sampled_from(CODECS), st.integers(1, 4000), st.integers(1, 5), st.integers(1, 4))
def test_anything_comes_back(segment: tuple[bytes, list[oracle.Row]], codec: str, batch_bytes: int, most: int, step: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        source, target = Path(scratch, "source-0", SEGMENT), Path(scratch, "target-0", SEGMENT)
        source.parent.mkdir()
        target.parent.mkdir()
        source.write_bytes(segment[0])
        table = everything(source)
        batches = [part for at in range(0, table.num_rows, step) for part in table.slice(at, step).to_batches()]
        reader = pa.RecordBatchReader.from_batches(table.schema, batches)
        offsets = table["offset"].to_pylist()
        if any(one >= other for one, other in zip([-1, *offsets], offsets, strict=False)):
            raises(ArgumentError, "offsets have to increase", kolumn.write, reader, target)
            return
        kolumn.write(reader, target, codec=codec, batch_bytes=batch_bytes, batch_records=most)
        found = oracle.read(target.read_bytes())
        assert (found.first_error, found.stop) == (None, "end")
        assert kept(everything(target)).equals(kept(table))
        assert found.rows() == rows_of(everything(target))
        assert max((len(entry.rows) for entry in found.entries), default=0) <= most


def table_of(records: list[Record], **columns: Any) -> pa.Table:
    headers = [[{"key": key.decode(), "value": value} for key, value in record.headers] for record in records]
    plain = {
        "offset": pa.array([record.offset for record in records], pa.int64()),
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
        "timestampMs": pa.array([record.timestamp for record in records], pa.int64()),
        "headers": pa.array(headers, kolumn.core.schema.HEADERS),
    }
    return pa.table(plain | {name: [value] * len(records) for name, value in columns.items()})


RECORDS = [
    Record(7, b"key", b"value", 1_700_000_000_000),
    Record(8, None, b"", 1_700_000_000_007, ((b"a", b"1"), (b"\xc3\xa9", None))),
    Record(70_000, b"", None, 1_600_000_000_000),
    Record(70_001, b"k" * 200, b"v" * 20_000, -1),
]
SENT = {"producerId": 2**40, "producerEpoch": 3, "isTransactional": True, "leaderEpoch": 0}


@pytest.mark.parametrize(
    ("records", "columns", "fields"),
    [
        (RECORDS, {}, {"leader_epoch": -1}),
        (RECORDS, {"leaderEpoch": 5}, {"leader_epoch": 5}),
        (RECORDS, SENT, {"producer_id": 2**40, "producer_epoch": 3, "flags": TRANSACTIONAL}),
        ([Record(i, None, b"x", 99) for i in range(3)], {"timestampType": 1, "leaderEpoch": 0}, {"flags": LOG_APPEND_TIME}),
    ],
)
def test_bytes_of_batches(tmp_path: Path, records: list[Record], columns: dict[str, Any], fields: dict[str, Any]) -> None:
    kolumn.write(table_of(records, **columns), tmp_path / SEGMENT, batch_bytes=1 << 20)
    assert (tmp_path / SEGMENT).read_bytes() == batch(records, **fields)


@pytest.mark.parametrize("format", ["kafka", "kip98-draft", "enriched", "redpanda"])
def test_types_of_markers_are_named(tmp_path: Path, format: Any) -> None:
    """In any case; of a record that is none the column says nothing. A key with another number gets the right one."""
    table = pa.table({
        "isControl": [False, True, True, True], "controlType": ["?", "commit", "Abort", "COMMIT"],
        "key": pa.array([b"k", None, b"\0\0\0\1", b"\0\0\0\0\7"], pa.binary()),
    })  # fmt: skip
    kolumn.write(table, tmp_path / "t-0", format=format)
    found = kolumn.read(tmp_path / "t-0", format=format, include_control=True, columns=["key", "value", "controlType"]).to_pylist()
    assert [row["controlType"] for row in found] == [None, "COMMIT", "ABORT", "COMMIT"]
    if format == "kafka":
        assert [(row["key"], row["value"]) for row in found[1:]] == [
            (b"\0\0\0\1", bytes(6)), (b"\0\0\0\0", None), (b"\0\0\0\1\7", None),
        ]  # fmt: skip


def test_bytes_of_markers(tmp_path: Path) -> None:
    markers = control_batch(5, 0) + control_batch(6, 1)
    kolumn.write(everything(markers), tmp_path / SEGMENT)
    assert (tmp_path / SEGMENT).read_bytes() == markers


@pytest.mark.sample
@pytest.mark.parametrize("case", cases(), ids=str)
def test_what_a_broker_wrote_comes_back_as_messages(case: Case, tmp_path: Path) -> None:
    # Formats and codecs take turns from commit to commit.
    magic, codec = random.Random(f"{FIRST} {case}").choice([*product((0, 1), ("none", "gzip", "snappy", "lz4"))])
    table = kolumn.read(case.segments or case.directory, columns=["offset", "key", "value", "timestampMs", "timestampType"])
    offsets = table["offset"].to_pylist()
    table = table.filter(pa.array([i == 0 or offset > offsets[i - 1] for i, offset in enumerate(offsets)], pa.bool_()))
    if any(offset >= following for offset, following in pairwise(table["offset"].to_pylist())):
        table = table.slice(0, 1)
    kolumn.write(table, tmp_path / SEGMENT, magic=magic, codec=codec)
    found = everything(tmp_path / SEGMENT)
    assert kept(found).select(["offset", "key", "value"]).equals(table.select(["offset", "key", "value"]).combine_chunks())
    if magic == 0:
        assert set(found["timestampMs"].to_pylist()) <= {-1}
    else:
        assert found["timestampMs"].to_pylist() == table["timestampMs"].to_pylist()
        assert found["timestampType"].to_pylist() == [max(type, 0) for type in table["timestampType"].to_pylist()]
    segment = oracle.read((tmp_path / SEGMENT).read_bytes())
    assert (segment.first_error, segment.stop) == (None, "end")
    assert segment.rows() == rows_of(found)


PLAIN = [Record(7, b"key", b"value", 1_700_000_000_000), Record(9, None, b"", 1_700_000_000_007), Record(70_000, b"", None, -1)]


@pytest.mark.parametrize("magic", [0, 1])
def test_bytes_of_messages_and_wrappers(tmp_path: Path, magic: int) -> None:
    kolumn.write(table_of(PLAIN), tmp_path / SEGMENT, magic=magic)
    assert (tmp_path / SEGMENT).read_bytes() == b"".join(message(magic, record) for record in PLAIN)
    with pytest.raises(ArgumentError, match=f"column 'headers': 2 headers, and format {magic} has none; drop the column, or write magic=2"):
        kolumn.write(table_of(RECORDS), tmp_path / "headers.log", magic=magic)
    for kind in (0, 1):
        records = [Record(r.offset, r.key, r.value, 99 if kind else r.timestamp) for r in PLAIN]
        (path,) = kolumn.write(table_of(records, timestampType=kind), tmp_path / f"{kind}.log", magic=magic, codec="snappy")
        bits = LOG_APPEND_TIME if kind and magic else 0
        inner = b"".join(message(magic, Record(r.offset - 7 * magic, r.key, r.value, r.timestamp), bits) for r in records)
        written = Path(path).read_bytes()
        # What a compressor finds depends on its version: only the value's decompressed bytes are known.
        value = written[26 + 8 * magic :]
        assert inflate(SNAPPY, value, magic) == inner
        assert written == message(magic, Record(70_000, None, value, max(r.timestamp for r in records)), SNAPPY | bits)


def test_pieces_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = kolumn.read(next(case.directory for case in cases() if case.directory.name == "java-zstd-0"), include_headers=True)
    (whole,) = kolumn.write(table, tmp_path / "whole.log")
    monkeypatch.setattr("kolumn.writers.write.ROWS", 50)
    (cut,) = kolumn.write(table, tmp_path / "cut.log")
    monkeypatch.setattr("kolumn.writers.write.BYTES", 5000)
    (small,) = kolumn.write(pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=7)), tmp_path / "small.log")
    assert Path(whole).read_bytes() == Path(cut).read_bytes() == Path(small).read_bytes()


@pytest.mark.parametrize(
    "type", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view(), pa.string_view(), pa.null()]
)
def test_any_type_of_payload(tmp_path: Path, type: pa.DataType) -> None:
    values = [None] * 3 if pa.types.is_null(type) else ["a", None, "b" * 100]
    table = pa.table({"value": pa.array(["dropped", *values] if values[0] else [None, *values], type).slice(1)})
    kolumn.write(table, tmp_path / SEGMENT, base_offset=40)
    found = kolumn.read(tmp_path / SEGMENT)
    assert found["value"].to_pylist() == [None if value is None else value.encode() for value in values]
    assert found["offset"].to_pylist() == [40, 41, 42]
    assert found["timestamp"].null_count == found["key"].null_count == 3


def test_slices_nulls_times_and_headers_without_keys(tmp_path: Path) -> None:
    headers = pa.array([[{"key": "lost", "value": b"x"}], None, [{"key": "a", "value": None}], []], kolumn.core.schema.HEADERS)
    times = pa.array([0, None, 1_700_000_000_123_456_789, 0], pa.timestamp("ns"))
    table = pa.table({"key": ["-", "k", None, ""], "headers": headers, "timestamp": times}).slice(1)
    kolumn.write(table, tmp_path / SEGMENT)
    found = kolumn.read(tmp_path / SEGMENT, columns=["key", "headers", "timestampMs", "value"])
    assert found["key"].to_pylist() == [b"k", None, b""]
    assert found["headers"].to_pylist() == [[], [{"key": "a", "value": None}], []]
    assert found["timestampMs"].to_pylist() == [-1, 1_700_000_000_123, 0]
    headers = pa.array([[{"key": None, "value": b"x"}], [{"key": "k", "value": b"x"}]], kolumn.core.schema.HEADERS)
    raises(ArgumentError, "1 headers have no key", kolumn.write, pa.table({"headers": headers}), tmp_path / "2" / SEGMENT)
    kolumn.write(pa.table({"headers": headers}).slice(1), tmp_path / "2" / SEGMENT)
    assert kolumn.read(tmp_path / "2" / SEGMENT, columns=["headers"])["headers"].to_pylist() == [[{"key": "k", "value": b"x"}]]


def test_segments_and_their_indexes(tmp_path: Path) -> None:
    rng = random.Random(1)
    records = [Record(10 + 3 * i, None, rng.randbytes(rng.randint(0, 900)), rng.randint(0, 10**6)) for i in range(3000)]
    paths = kolumn.write(table_of(records), tmp_path / "t-0", batch_bytes=3000, segment_bytes=200_000)
    assert sorted(paths) == paths == sorted(map(str, (tmp_path / "t-0").glob("*.log")))
    assert len(paths) > 5
    for path in map(Path, paths):
        assert kolumn.batches(path)["baseOffset"][0].as_py() == int(path.stem)
        assert path.stat().st_size <= 200_000
    # Those of a broker, by `tests/behaviour/test_loader.py`.
    indexes = {path: path.read_bytes() for path in (tmp_path / "t-0").glob("*index")}
    kolumn.rebuild_index(tmp_path / "t-0", index_interval_bytes=4096)
    assert (len(indexes), {path: path.read_bytes() for path in indexes}) == (2 * len(paths), indexes)
    assert offsets(tmp_path / "t-0", start_offset=3001, end_offset=3100) == [r.offset for r in records if 3001 <= r.offset < 3100]
    assert kolumn.write(table_of([]), tmp_path / "empty-0") == []
    assert list((tmp_path / "empty-0").iterdir()) == []
    kolumn.write(table_of([]), tmp_path / SEGMENT)
    assert (tmp_path / SEGMENT).read_bytes() == b""


def test_offsets_too_far_from_each_other_or_from_the_name(tmp_path: Path) -> None:
    records = [Record(0, None, None, 0), Record(2**31, None, None, 0), Record(2**40, None, None, 0)]
    paths = kolumn.write(table_of(records), tmp_path / "t-0")
    assert [int(Path(path).stem) for path in paths] == [0, 2**31, 2**40]
    raises(ArgumentError, "more than a segment can hold", kolumn.write, table_of(records), tmp_path / SEGMENT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t-0"]
    # Offsets in the indexes are relative to the one in the segment's name, in 32 bits: offsets too far from it are not in them.
    far = pa.table({"offset": [1 << 40, (1 << 40) + 1], "timestampMs": [5, 6], "value": [b"x" * 5000, b"y"]})
    (path,) = kolumn.write(far, tmp_path / "2" / SEGMENT, index_interval_bytes=1, batch_bytes=100)
    assert Path(path).with_suffix(".index").stat().st_size == Path(path).with_suffix(".timeindex").stat().st_size == 0
    assert kolumn.read(path, columns=["offset"], start_offset=(1 << 40) + 1).num_rows == 1
    near = far.set_column(0, "offset", pa.array([100, 101]))
    (path,) = kolumn.write(near, tmp_path / "2" / f"{90:020}.log", index_interval_bytes=1, batch_bytes=100)
    assert Path(path).with_suffix(".index").read_bytes()[:4] == (11).to_bytes(4, "big")
    assert kolumn.read(path, columns=["offset"], start_offset=101).num_rows == 1


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"value": ["x"]}, {"codec": "brotli"}, "codec='brotli': expected one of none, gzip, snappy, lz4, zstd"),
        ({"value": ["x"]}, {"codec": "lz4", "level": 3}, "level=3: lz4 has no levels"),
        ({"value": ["x"]}, {"codec": "gzip", "level": 10}, "level=10: gzip has levels 0 to 9"),
        ({"value": ["x"]}, {"magic": 3}, "magic=3: format 'kafka' has 0, 1, 2"),
        ({"value": ["x"]}, {"magic": 1, "codec": "zstd"}, "codec='zstd': format 1 has the codecs none, gzip, snappy and lz4"),
        ({"isControl": [True]}, {"magic": 1}, "column 'isControl': format 1 has no control records"),
        ({"isControl": [True], "controlType": ["done"]}, {}, "column 'controlType': 'done': expected one of ABORT, COMMIT, LEADER_CHANGE,"),
        ({"isControl": [True], "controlType": ["SNAPSHOT_FOOTER"]}, {"format": "kip98-draft"}, "expected one of COMMIT, ABORT$"),
        ({"isTransactional": [True]}, {"magic": 0}, "column 'isTransactional': format 0 has no records of transactions"),
        ({"value": ["x"]}, {"format": "csv"}, "unknown format 'csv'"),
        ({"value": ["x"]}, {"batch_records": 0}, "expected at least 1"),
        ({"vaule": ["x"]}, {}, "column 'vaule': records have no column of that name"),
        ({"value": [1]}, {}, "column 'value': expected binary, found int64"),
        ({"offset": ["1"]}, {}, "column 'offset': expected int64, found string"),
        ({"timestamp": [1]}, {}, "column 'timestamp': expected timestamp"),
        ({"headers": ["x"]}, {}, "column 'headers': expected list"),
        ({"offset": [1, None]}, {}, "column 'offset': 1 rows are null"),
        ({"offset": [3, 3]}, {}, "column 'offset': 3 follows 3: offsets have to increase"),
        ({"offset": [-1]}, {}, "column 'offset': -1 follows -1: offsets have to increase, from 0 or more"),
        ({"topic": [b"\xff"]}, {}, "column 'topic': expected string, found binary: Invalid UTF8"),
        ({"topic": [["t"]]}, {}, "column 'topic': expected string, found list<.*: Unsupported cast"),
        ({"partition": [0.5]}, {}, "column 'partition': expected int32, found double: .*0.5"),
        ({"partition": ["one"]}, {}, "column 'partition': expected int32, found string: .*'one'"),
        ({"offset": [1]}, {"base_offset": 1}, "base_offset=1: the table has a column 'offset'"),
    ],
)
def test_what_makes_no_sense_leaves_nothing(tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], message: str) -> None:
    for target in (tmp_path / "t-0", tmp_path / SEGMENT):
        raises(ArgumentError, message, kolumn.write, pa.table(columns), target, **options)
    assert list(tmp_path.iterdir()) == []


def test_frames_of_other_libraries(tmp_path: Path) -> None:
    """As they are. An index that pandas makes of a filter is no column of records."""
    pd, pl, duckdb = (pytest.importorskip(name, reason="kolumn[all] has it") for name in ("pandas", "polars", "duckdb"))
    rows = {"key": ["a", "b", "c"], "value": ["1", "2", None], "timestampMs": [1, 2, 3]}
    frame = pd.DataFrame(rows)
    tables = {
        "pandas": frame[frame["key"] != "a"],
        "indexed": frame[frame["key"] != "a"].set_index("key"),
        "polars": pl.DataFrame(rows).filter(pl.col("key") != "a").with_columns(topic=pl.Series(["polars", None])),
        "duckdb": duckdb.sql("SELECT * FROM frame WHERE key <> 'a'"),
    }
    expected = [(0, 2, "b", "2"), (1, 3, "c", None)]
    assert len(frame)
    for name, table in tables.items():
        kolumn.write(table, tmp_path / f"{name}-0")
        found = kolumn.read(tmp_path / f"{name}-0", columns=["offset", "timestampMs", "key", "value"], payload="string")
        assert list(map(tuple, map(dict.values, found.to_pylist()))) == expected
    raises(ArgumentError, r"found LazyFrame: \.collect\(\) makes it one", kolumn.write, pl.LazyFrame(rows), tmp_path / "lazy-0")
    raises(ArgumentError, r"frame of pandas or Polars, or a relation of DuckDB, found dict", kolumn.write, rows, tmp_path / "dict-0")
    for series in (pl.Series(["a"]), pd.Series(["a"])):
        raises(ArgumentError, r"found Series: \.to_frame\('value'\) makes it one", kolumn.write, series, tmp_path / "series-0")
    for other, said in (
        (pa.chunked_array([["a"]]), "found ChunkedArray, and Arrow makes no table of it: .* non-struct"),
        (pd.DataFrame({"value": ["a", 1]}), "found DataFrame, .*: Expected bytes.*; Conversion failed for column value"),
    ):
        raises(ArgumentError, said, kolumn.write, other, tmp_path / "other-0")
    gaps = frame.assign(partition=[3, None, 3])
    kolumn.write(gaps, tmp_path / "gaps-3")
    raises(ArgumentError, "'partition': found 3, and the folder is gaps-0: write to gaps-3, or", kolumn.write, gaps, tmp_path / "gaps-0")


def test_categories_are_texts(tmp_path: Path) -> None:
    pd, pl = (pytest.importorskip(name, reason="kolumn[all] has it") for name in ("pandas", "polars"))
    rows = {"key": ["a", "b", "a"], "value": ["1", None, "1"], "topic": ["t", "t", None]}
    tables = [pl.DataFrame(rows, schema=dict.fromkeys(rows, type)) for type in (pl.Categorical, pl.Enum(["a", "b", "1", "t"]))]
    for number, table in enumerate([*tables, pd.DataFrame(rows).assign(partition=[2, 2, None]).astype("category")]):
        kolumn.write(table, tmp_path / f"t-{number}")
        found = kolumn.read(tmp_path / f"t-{number}", columns=["key", "value"], payload="string")
        assert found.to_pydict() == {name: rows[name] for name in ("key", "value")}
    inner = tables[0].select(value=pl.struct("key"))
    kolumn.write(inner, tmp_path / "json-0", value_format="json", value_schema={"key": "string"})
    assert kolumn.read(tmp_path / "json-0")["value"].to_pylist() == [b'{"key":"a"}', b'{"key":"b"}', b'{"key":"a"}']


@pytest.mark.parametrize(
    ("topic", "partition", "said"),
    [
        ("events", [0, 1], r"column 'partition': found 0, 1, and a folder is one topic-partition: write each.*== 1\)"),
        (["a", "b"], 0, r"column 'topic': found a, b.*'topic'\) == 'b'\)"),
        ("events", 1, r"column 'partition': found 1, and the folder is events-0: write to events-1, or leave .* out"),
        ("other", 0, r"column 'topic': found other, and the folder is events-0: write to other-0"),
        ("events", 0, None), (None, None, None), ([b"events", None], [None, 0], None),
    ],
)  # fmt: skip
def test_a_folder_takes_one_topic_partition(tmp_path: Path, topic: Any, partition: Any, said: str | None) -> None:
    topics, partitions = (one if isinstance(one, list) else [one] * 2 for one in (topic, partition))
    table = pa.table({"value": [b"a", b"b"], "topic": topics, "partition": pa.array(partitions, pa.int32())})
    for target in (tmp_path / "events-0", tmp_path / "segment" / "events-0" / f"{0:020}.log"):
        if said is None:
            kolumn.write(table, target)
        else:
            raises(ArgumentError, said, kolumn.write, table, target)
            assert not target.exists()
    # A folder whose name has no number is any.
    if not isinstance(topic, list) and not isinstance(partition, list):
        kolumn.write(table, tmp_path / "any")


def test_targets_that_are_refused(tmp_path: Path) -> None:
    table = pa.table({"value": ["x"]})
    (tmp_path / "file").touch()
    raises(KolumnError, r"file/t-0: cannot be written: Not a directory", kolumn.write, table, tmp_path / "file" / "t-0")
    raises(ArgumentError, "memory://bucket: name a folder in it", kolumn.write, table, "memory://bucket")
    for target in (f"{tmp_path}/t-0", f"{tmp_path}/{SEGMENT}", "memory://once/t-0", "memory://once/t-1/1.log"):
        kolumn.write(table, target)
        before = kolumn.read(target)
        for again in (target, target if target.endswith(".log") else f"{target}/"):
            raises(ArgumentError, "already exists", kolumn.write, pa.table({"value": ["y", "z"]}), again)
        assert kolumn.read(target) == before
    raises(ArgumentError, "expected a table or reader of pyarrow, .* found list", kolumn.write, [1], tmp_path / "u-0")


def test_a_reader_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def batches():  # type: ignore[no-untyped-def]
        yield pa.record_batch({"value": ["x"]})
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        kolumn.write(pa.RecordBatchReader.from_batches(pa.schema({"value": pa.string()}), batches()), tmp_path / "t-0")
    assert list(tmp_path.iterdir()) == []


SEGMENTS, ROWS = 5, 400


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rows = range(SEGMENTS * ROWS)
    table = pa.table({"key": [b"%d" % row for row in rows], "value": [b"v" * 100] * len(rows)})
    kolumn.write(table, tmp_path / "orders-0", segment_bytes=50_000, batch_bytes=5_000)
    return tmp_path / "orders-0"


def written(log: Path, target: Path, threads: int, **options: Any) -> tuple[list[int], list[int], list[Damage]]:
    chosen, damage = Options.of(threads=threads, **options), list[Damage]()
    each = list(write_parquet([plan_read(log, chosen)], str(target), 1 << 20, "zstd", False, damage.append))
    return [some[0].segment.base_offset or 0 for some, _ in each], [rows for _, rows in each], damage


def damaged(log: Path) -> list[Path]:
    some = sorted(log.glob("*.log"))[1::2]
    for path in some:
        flip(path, 9000)
    return some


def test_threads_write_the_same_files(tmp_path: Path, log: Path) -> None:
    damaged(log)
    one, three = (written(log, tmp_path / f"{threads}", threads, errors="skip") for threads in (1, 3))
    assert (one[:2], one[0]) == (three[:2], sorted(one[0]))
    assert [str(part.error) for part in one[2]] == [str(part.error) for part in three[2]]
    assert len(one[2]) == 2
    names = [sorted(path.relative_to(tmp_path / kind) for path in (tmp_path / kind).rglob("*.parquet")) for kind in "13"]
    assert names[0] == names[1]
    assert len(names[0]) == len(one[0]) >= SEGMENTS
    for name in names[0]:
        assert pq.read_table(tmp_path / "1" / name).equals(pq.read_table(tmp_path / "3" / name))


def test_several_files_are_written_at_a_time(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads meet, each in the first batch of its file."""
    met, first = threading.Barrier(2, timeout=60), [int(path.stem) for path in sorted(log.glob("*.log"))[:2]]

    def meeting(ranges: Any, options: Options, *more: Any) -> Any:
        assert options.threads == 1
        if ranges[0].segment.base_offset in first:
            met.wait()
        yield from scan_ranges(ranges, options, *more)

    monkeypatch.setattr(parquet, "scan_ranges", meeting)
    assert sum(written(log, tmp_path / "out", 2)[1]) == SEGMENTS * ROWS


def test_the_first_error_ends_all(tmp_path: Path, log: Path) -> None:
    first, _ = damaged(log)
    raises(kolumn.CorruptBatchError, first.name, written, log, tmp_path / "out", 4)
    assert not (tmp_path / "out").exists()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kolumn-parquet")]
