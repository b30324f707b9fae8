"""`kolumn.explain`: the plan of a read."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kolumn
from kolumn.source.segment_file import SegmentFile

CORPUS = Path(__file__).resolve().parents[1] / "data" / "corpus"
TOPIC = CORPUS / "v2-java" / "java-zstd-0"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two partitions, of which one is written to two log directories, and what a broker leaves beside them."""
    some = pa.table({"value": [bytes([65 + i % 26]) * 50 for i in range(4000)], "offset": pa.array(range(4000), pa.int64())})
    for name in ("disk-1/orders-0", "disk-1/orders-1", "disk-2/orders-0"):
        kolumn.write(some, tmp_path / name, segment_bytes=1 << 16)
    stray = tmp_path / "disk-1" / "orders-2.0123456789abcdef0123456789abcdef-stray"
    stray.mkdir()
    (stray / "00000000000000000000.log").write_bytes((tmp_path / "disk-1/orders-1/00000000000000000000.log").read_bytes())
    (tmp_path / "disk-1/orders-1/00000000000000000000.log.deleted").write_bytes(b"gone")
    return tmp_path


def test_ranges_are_what_a_read_decodes(log: Path) -> None:
    options = {"start_offset": 1500, "end_offset": 2500}
    plan = kolumn.explain(log / "disk-1" / "orders-1", **options)
    files = list((log / "disk-1" / "orders-1").glob("*.log"))
    every = sum(path.stat().st_size for path in files)
    assert plan.partitions.to_pylist() == [
        {
            "topic": "orders", "partition": 1, "copies": 1, "log": "one copy", "segments": len(files),
            "bytes": every, "bytesRead": pc.sum(plan.ranges["bytes"]).as_py(), "abortedTransactions": None, "openTransactions": None,
        }
    ]  # fmt: skip
    assert 0 < plan.partitions["bytesRead"][0].as_py() < every
    assert set(plan.ranges["decoder"].to_pylist()) == {"block by block"}
    assert set(plan.left_out["kind"].to_pylist()) >= {"range", "deleted"}
    assert plan.schema == kolumn.read(log / "disk-1" / "orders-1", **options).schema


def test_copies(log: Path) -> None:
    source = [log / "disk-1", log / "disk-2"]
    with pytest.raises(kolumn.ArgumentError, match="replicas"):
        kolumn.explain(source)
    first = kolumn.explain(source, replicas="first")
    by_partition = {row["partition"]: row for row in first.partitions.to_pylist()}
    assert (by_partition[0]["copies"], by_partition[1]["copies"]) == (2, 1)
    assert str(log / "disk-1" / "orders-0") in by_partition[0]["log"]
    copies = [row for row in first.left_out.to_pylist() if row["kind"] == "copy"]
    assert copies
    assert all("disk-2" in row["path"] for row in copies)
    merged = kolumn.explain(source, replicas="merge")
    assert "leader epochs" in {row["partition"]: row["log"] for row in merged.partitions.to_pylist()}[0]


def test_folders_that_are_left_out_are_named(log: Path) -> None:
    plan = kolumn.explain(log / "disk-1")
    assert {row["kind"]: Path(row["path"]).name for row in plan.left_out.to_pylist()}["stray"].endswith("-stray")
    assert "-stray" in str(plan)


def test_no_payload_is_read(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = SegmentFile.read
    sizes: list[int] = []

    def counted(file: SegmentFile, start: int, end: int, locked: bool = False) -> object:
        sizes.append(end - start)
        return read(file, start, end, locked)

    monkeypatch.setattr(SegmentFile, "read", counted)
    plan = kolumn.explain(log / "disk-1")
    assert plan.ranges.num_rows > 4
    assert sum(sizes) <= 17 * (plan.ranges.num_rows + plan.left_out.num_rows)


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from kolumn.core import paths

    monkeypatch.setenv("KOLUMN_PATHS", "-streamed")
    paths.turned_off.cache_clear()
    yield
    monkeypatch.undo()
    paths.turned_off.cache_clear()


def test_a_path_that_is_turned_off_is_said(general: None) -> None:
    row = kolumn.explain(TOPIC).ranges.to_pylist()[0]
    assert row["decoder"] == "stage by stage"
    assert "KOLUMN_PATHS" in row["reason"]


def test_transactions_are_counted() -> None:
    plan = kolumn.explain(CORPUS / "transactional", isolation_level="read_committed")
    assert pc.sum(plan.partitions["abortedTransactions"]).as_py() > 0


def test_drafts_and_options_that_do_not_exist() -> None:
    assert kolumn.explain(TOPIC, format="enriched", errors="skip").ranges["decoder"].to_pylist()[0] == "stage by stage"
    with pytest.raises(TypeError, match="start_offset"):
        kolumn.explain(TOPIC, startoffset=1)
