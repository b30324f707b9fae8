"""Segments of Redpanda: the corpus with its headers swapped has the rows of Kafka's read, whichever way it is read; and batches of
Redpanda's own."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kolumn
from kit import redpanda
from kit.asked import offsets, skipping
from kit.corpus import Case, cases
from kit.differential import rows_of
from kit.encoder import Record, batch, control_batch, with_crc
from kit.fuzz import TURN
from kit.outcome import COLUMNS
from kit.paths import GENERAL, without
from kit.redpanda_mutants import COLUMNS as RAW_COLUMNS
from kolumn.decode.host.chunks import next_border
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import find_segments

OWN = ("leaderEpoch", "segment", "batchType", "rawOffset")
"""Columns that a swap changes."""
NAMES = [name for name in COLUMNS if name not in OWN]
CASES = [case for case in cases() if case.expected_batches()["magic"].unique().to_pylist() == [2]]
REPOSITORY = [case for case in CASES if "data" in case.directory.parts]
OTHERWISE: list[dict[str, Any]] = [
    {},
    {"binary": "view", "threads": 1},
    {"threads": 2, "chunk_bytes": 20_000},
    {"threads": 1, "chunk_bytes": 500, "binary": "view"},
    {"check_crcs": False, "threads": 2},
    {"errors": "skip", "threads": 1},
    {"threads": 3, "memory_bytes": 5000},
]


def swapped(case: Case, folder: Path) -> Path:
    """The case's segments in Redpanda's layout."""
    target = folder / case.directory.name
    target.mkdir(parents=True)
    for path in case.directory.glob("*.log"):
        (target / path.name).write_bytes(redpanda.swapped(path.read_bytes()))
    return target


def read(source: Any, **options: Any) -> pa.Table:
    return kolumn.read(source, **{"format": "redpanda", "columns": NAMES, **options}).combine_chunks()


def kafkas(source: Any, **options: Any) -> pa.Table:
    return kolumn.read(source, **{"columns": NAMES, **options}).combine_chunks()


def put(folder: Path, data: bytes, base: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base:020}.log"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_rows_of_kafka(case: Case, tmp_path: Path) -> None:
    folder, turn = swapped(case, tmp_path), (TURN + CASES.index(case)) % len(OTHERWISE)
    for options in OTHERWISE if os.environ.get("CI") else OTHERWISE[turn : turn + 1]:
        for control in (True, False):
            expected = kafkas(case.directory, include_control=control, **options)
            assert read(folder, include_control=control, **options).equals(expected)
            with without(GENERAL):
                assert read(folder, include_control=control, **options).equals(expected)
        assert read(folder, columns=["offset", "value"], **options).equals(kafkas(case.directory, columns=["offset", "value"], **options))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_plain_reader_finds_the_same(case: Case, tmp_path: Path) -> None:
    for path in sorted(swapped(case, tmp_path).iterdir()):
        plain = redpanda.read(path.read_bytes())
        assert (plain.stop, plain.first_error) == ("end", None)
        assert len(list(redpanda.headers(path.read_bytes()))) == len(plain.entries)
        found = kolumn.read(path, format="redpanda", columns=RAW_COLUMNS, include_control=True)
        assert rows_of(found.rename_columns(["offset", *RAW_COLUMNS[1:]])) == plain.rows()


@pytest.mark.parametrize("case", REPOSITORY, ids=str)
def test_ranges(case: Case, tmp_path: Path) -> None:
    folder, known = swapped(case, tmp_path), case.expected()
    for name, of in (("offset", "offset"), ("timestamp_ms", "timestamp")):
        values = sorted(known[name].to_pylist()) or [0]
        for low, high in ((0.3, 0.6), (0.0, 0.1), (0.9, 1.0)):
            start, end = (values[round(share * (len(values) - 1))] for share in (low, high))
            asked: dict[str, Any] = {f"start_{of}": start, f"end_{of}": end}
            assert read(folder, **asked).equals(kafkas(case.directory, **asked)), asked
            del asked[f"end_{of}"]
            assert read(folder, **asked, threads=1, binary="view").equals(kafkas(case.directory, **asked, binary="view")), asked


@pytest.mark.parametrize("case", REPOSITORY, ids=str)
def test_batches_and_verify(case: Case, tmp_path: Path) -> None:
    folder = swapped(case, tmp_path)
    found, expected = (kolumn.batches(source, format=form) for source, form in ((folder, "redpanda"), (case.directory, "kafka")))
    other = {"segment", "leaderEpoch", "deleteHorizonMs", "batchType"}
    names = [name for name in found.column_names if name not in other]
    assert found.select(names).equals(expected.select(names))
    assert found["batchType"].unique().to_pylist() == [redpanda.DATA]
    assert expected["batchType"].null_count == len(expected)
    by_headers = kolumn.batches(folder, format="redpanda", check_crcs=False)
    assert by_headers["crcValid"].null_count == len(by_headers)
    one, other_report = kolumn.verify(folder, format="redpanda"), kolumn.verify(case.directory)
    assert (one.ok, one.records, one.batches) == (True, other_report.records, other_report.batches)


TRANSACTIONS = [case for case in CASES if pc.any(case.expected()["is_transactional"]).as_py()]


@pytest.mark.parametrize("case", TRANSACTIONS, ids=str)
def test_transactions(case: Case, tmp_path: Path) -> None:
    """Without side files: by markers alone."""
    folder = swapped(case, tmp_path / "redpanda")
    plain = tmp_path / "kafka" / case.directory.name
    plain.mkdir(parents=True)
    for path in case.directory.glob("*.log"):
        (plain / path.name).write_bytes(path.read_bytes())
    committed = {"isolation_level": "read_committed"}
    going_on = [{**committed, "open_transactions": one} for one in ("skip", "include")]
    for options in (committed, *going_on, {"columns": ["offset", "transaction"]}, {"include_control": True}):
        assert read(folder, **options).equals(kafkas(plain, **options)), options
    one, other = kolumn.Skipped(), kolumn.Skipped()
    read(folder, on_damage=one, **committed)
    kafkas(plain, on_damage=other, **committed)
    assert one.stopped == other.stopped


def test_scan_memory_and_urls(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    case = next(case for case in REPOSITORY if len(list(case.directory.glob("*.log"))) == 1 and len(case.expected()))
    folder, expected = swapped(case, tmp_path), kafkas(case.directory)
    assert pa.Table.from_batches(kolumn.scan(folder, format="redpanda", columns=NAMES)).combine_chunks().equals(expected)
    [path] = folder.iterdir()
    names = [name for name in NAMES if name not in ("topic", "partition")]
    in_memory = kolumn.read(path.read_bytes(), format="redpanda", columns=names).combine_chunks()
    assert in_memory.equals(expected.select(names))
    store = fsspec.filesystem("memory")
    store.pipe(f"/redpanda/{folder.name}/{path.name}", path.read_bytes())
    try:
        for options in ({}, {"binary": "view"}, {"chunk_bytes": 2000, "threads": 2}, {"start_offset": 3}):
            url = f"memory://redpanda/{folder.name}"
            assert read(url, **options).equals(kafkas(case.directory, **options)), options
    finally:
        store.rm("/redpanda", recursive=True)


def test_threads_share_a_file(tmp_path: Path) -> None:
    """A large file is cut where two batches seem to follow one another."""
    value = b"all of these records are alike, " * 8
    entries = [batch([Record(8 * i + k, b"%d" % k, value, 5) for k in range(8)]) for i in range(9000)]
    kafka, rp = put(tmp_path / "k" / "t-0", b"".join(entries)), put(tmp_path / "r" / "t-0", redpanda.swapped(b"".join(entries)))
    borders = {}
    for name, path in (("kafka", kafka), ("redpanda", rp)):
        [segment] = find_segments(path)
        with SegmentFile(replace(segment, format=name)) as file:
            borders[name] = next_border(file, 0, file.size, file.size // 3, 2)
    starts = [at for at, *_ in redpanda.headers(rp.read_bytes())]
    assert borders["redpanda"] == borders["kafka"]
    assert borders["redpanda"] in starts
    for options in ({"threads": 2}, {"threads": 1}, {"threads": 2, "binary": "view"}, {"start_offset": 40_000, "end_offset": 40_003}):
        assert read(rp, **options).drop("topic").equals(kafkas(kafka, **options).drop("topic")), options


def test_typed_values(tmp_path: Path) -> None:
    values = [b'{"a": %d, "b": "x%d"}' % (i, i) for i in range(50)]
    entries = [batch([Record(5 * i + k, None, values[5 * i + k], 1) for k in range(5)], codec=i % 5) for i in range(10)]
    path = put(tmp_path / "t-0", redpanda.swapped(b"".join(entries)))
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    found = read(path, columns=["offset", "value"], value_format="json", value_schema=schema)
    assert found["value"].to_pylist() == [{"a": i, "b": f"x{i}"} for i in range(50)]


def few(base: int, count: int = 3) -> bytes:
    return batch([Record(base + i, b"k", b"v%d" % (base + i), 1000 + i) for i in range(count)])


def test_batches_of_its_own(tmp_path: Path) -> None:
    """They are no rows unless control records are asked for, and what nobody can decode never is."""
    kinds = (2, 3, redpanda.TX_FENCE, redpanda.ARCHIVAL, 29, 36, 7, 39, 0, -56, -1, 25)
    log = redpanda.mixed(few(0) + few(3) + few(6), {0: kinds[:4], 1: kinds[4:9], 3: kinds[9:]})
    path = put(tmp_path / "t-0", log.data + b"".join(redpanda.own_batch(log.end + i, kind) for i, kind in enumerate(kinds[9:])))
    raw = read(path, columns=["rawOffset", "batchType", "isControl"])
    assert raw["rawOffset"].to_pylist() == list(log.offsets)
    assert raw["batchType"].unique().to_pylist() == [1]
    assert not any(raw["isControl"].to_pylist())
    every = read(path, columns=["rawOffset", "batchType", "isControl", "value", "isTransactional"], include_control=True)
    own = every.filter(pc.field("isControl"))
    assert own["batchType"].to_pylist() == [2, 3, redpanda.TX_FENCE, redpanda.ARCHIVAL, 25]
    assert own["value"].to_pylist() == [b"own"] * 5
    assert not any(own["isTransactional"].to_pylist())
    assert every.num_rows == raw.num_rows + 5
    with without(GENERAL):
        assert read(path, columns=every.column_names, include_control=True).equals(every)
    listed = kolumn.batches(path, format="redpanda")
    assert sorted(listed["batchType"].to_pylist()) == sorted([1, 1, 1, *kinds])
    assert all(listed["crcValid"].to_pylist())
    assert kolumn.verify(path, format="redpanda").ok


def test_what_a_batch_without_a_known_type_holds_is_not_looked_at(tmp_path: Path) -> None:
    """Its checksums are."""
    noise = few(3)[:61] + bytes(range(100, 170))
    for kind in (0, 7, 29, 36, 39, -56):
        whole = _sealed(noise, kind)
        path = put(tmp_path / str(kind), redpanda.swapped(few(0)) + whole + redpanda.swapped(few(6)))
        assert read(path, columns=["rawOffset"], include_control=True)["rawOffset"].to_pylist() == [0, 1, 2, 6, 7, 8]
        assert kolumn.verify(path, format="redpanda").ok
        path.write_bytes(redpanda.swapped(few(0)) + whole[:-1] + b"\0" + redpanda.swapped(few(6)))
        _, left = skipping(path, format="redpanda", columns=["rawOffset"])
        assert [(one.position, one.base_offset) for one in left.damage] == [(len(redpanda.swapped(few(0))), 3)]
    path.write_bytes(redpanda.swapped(few(0)) + _sealed(noise, 1) + redpanda.swapped(few(6)))
    assert not kolumn.verify(path, format="redpanda").ok


def _sealed(kafka: bytes, kind: int) -> bytes:
    """A batch of Redpanda with whatever is behind the header, and both checksums right."""
    resized = kafka[:8] + (len(kafka) - 12).to_bytes(4, "big") + kafka[12:]
    return redpanda.of_kafka(with_crc(resized), kind=kind)


def test_types_of_kafkas_control_batches_are_told(tmp_path: Path) -> None:
    path = put(tmp_path / "t-0", redpanda.swapped(few(0) + control_batch(3, 1) + control_batch(4, 0)))
    assert offsets(path, format="redpanda") == [0, 1, 2]
    found = read(path, columns=["offset", "controlType"], include_control=True)
    assert found["controlType"].to_pylist() == [None, None, None, "COMMIT", "ABORT"]
