"""Segments of real brokers, row by row and column by column, against what Kafka's own record classes read from them."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import kolumn

HERE = Path(__file__).resolve().parent.parent / "data" / "corpus"
CHECKPOINT = re.compile(r"\d{20}-\d{10}\.checkpoint")

# Our record column -> the corpus' column.
RECORDS = {
    "position": "batch_position",
    "magic": "magic",
    "codec": "codec",
    "offset": "offset",
    "timestampMs": "timestamp_ms",
    "timestampType": "timestamp_type",
    "key": "key",
    "value": "value",
    "headers": "headers",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "sequence": "sequence",
    "leaderEpoch": "leader_epoch",
    "isTransactional": "is_transactional",
    "isControl": "is_control",
}
BATCHES = {
    "position": "position",
    "size": "size",
    "lastOffset": "last_offset",
    "magic": "magic",
    "codec": "codec",
    "crc": "crc",
    "crcValid": "is_valid",
    "timestampType": "timestamp_type",
    "maxTimestampMs": "max_timestamp",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "baseSequence": "base_sequence",
    "leaderEpoch": "leader_epoch",
    "isTransactional": "is_transactional",
    "isControl": "is_control",
    "deleteHorizonMs": "delete_horizon_ms",
}
VARIANTS = {
    "plain": {},
    "view": {"binary": "view"},
    "tiny chunks": {"chunk_bytes": 3000, "threads": 1},
    "three threads": {"chunk_bytes": 50_000, "threads": 3},
    "no checksums": {"check_crcs": False},
    "skip": {"errors": "skip"},
}


@dataclass(frozen=True)
class Case:
    directory: Path

    @property
    def segments(self) -> list[str]:
        """Segments and snapshots in the order of the expected files: by name."""
        return [str(f) for f in sorted(self.directory.iterdir()) if f.suffix == ".log" or CHECKPOINT.fullmatch(f.name)]

    def table(self, kind: str) -> pa.Table:
        return pq.read_table(f"{self.directory}.{kind}.parquet")


def cases() -> list[Case]:
    roots = [HERE]
    if os.environ.get("KOLUMN_CORPUS"):
        roots.append(Path(os.environ["KOLUMN_CORPUS"]))
    suffix = ".expected.parquet"
    found = {f.name: Case(Path(str(f).removesuffix(suffix))) for root in roots for f in sorted(root.glob(f"*/*{suffix}"))}
    return [found[name] for name in sorted(found)]


CASES = cases()


def assert_same(got: pa.Table, want: pa.Table, names: dict[str, str]) -> None:
    assert got.num_rows == want.num_rows
    for ours, theirs in names.items():
        left, right = got[ours].to_pylist(), want[theirs].to_pylist()
        if left != right:
            row = next(i for i, (a, b) in enumerate(zip(left, right, strict=True)) if a != b)
            pytest.fail(f"{ours}, row {row}: {left[row]!r} instead of {right[row]!r}")


def test_there_is_a_corpus():
    assert len(CASES) > 40


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.directory.name)
def test_records(case, variant):
    got = kolumn.read(case.segments, columns=list(RECORDS), include_control=True, **VARIANTS[variant])
    assert_same(got, case.table("expected"), RECORDS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.directory.name)
def test_directory_and_default_columns(case):
    want = case.table("expected")
    want = want.filter(pc.and_(pc.ends_with(want["segment"], ".log"), pc.invert(want["is_control"])))
    got = kolumn.read(case.directory)
    assert got.column_names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert_same(got, want, {"key": "key", "value": "value", "offset": "offset", "timestampType": "timestamp_type"})
    topic, _, partition = case.directory.name.rpartition("-")
    assert set(got["topic"].to_pylist()) <= {topic}
    assert set(got["partition"].to_pylist()) <= {int(partition)}
    ms = [None if t == -1 else t for t in want["timestamp_ms"].to_pylist()]
    assert [None if t is None else t // 1000 for t in got["timestamp"].cast(pa.int64()).to_pylist()] == ms


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.directory.name)
def test_batches(case):
    want = case.table("batches")
    got = kolumn.batches(case.segments)
    assert_same(got, want, BATCHES)
    for ours, theirs in (("baseOffset", "base_offset"), ("count", "count_or_null")):
        wrapped = [magic < 2 and codec != "none" for magic, codec in zip(*(want[c].to_pylist() for c in ("magic", "codec")), strict=True)]
        values = zip(got[ours].to_pylist(), want[theirs].to_pylist(), want["magic"].to_pylist(), wrapped, strict=True)
        # Java counts messages of formats 0 and 1 by iterating, so it gives no count for them.
        assert all(g is None if hidden else (g == w or (w is None and magic < 2 and g == 1)) for g, w, magic, hidden in values)
    headers = kolumn.batches(case.segments, check_crcs=False)
    assert headers.drop(["crcValid"]).equals(got.drop(["crcValid"]))
    assert headers["crcValid"].null_count == headers.num_rows


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.directory.name)
def test_verify(case):
    segments = json.loads(Path(f"{case.directory}.segments.json").read_text())
    report = kolumn.verify(case.segments)
    assert report.ok
    found = report.segments.to_pylist()
    for got, want in zip(found, segments, strict=True):
        assert got["size"] == want["file_size"]
        assert (got["validBytes"], got["batches"], got["records"]) == (want["valid_bytes"], want["batches"], want["records"])
        assert got["tailBytes"] == want["file_size"] - want["valid_bytes"]
        assert (got["tail"] is None) == (got["tailBytes"] == 0)
    if case.directory.name.startswith("truncated"):
        assert found[-1]["tail"] == "truncated"
    if case.directory.name.startswith("prealloc"):
        assert found[-1]["tail"] == "zeros"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.directory.name)
def test_ranges(case):
    """Offset and timestamp ranges, by index files where they help, give what a filter gives."""
    want = case.table("expected")
    want = want.filter(pc.ends_with(want["segment"], ".log"))
    if not want.num_rows:
        return
    offsets, times = want["offset"].to_pylist(), sorted(t for t in want["timestamp_ms"].to_pylist() if t != -1)
    low, high = offsets[len(offsets) // 3], offsets[2 * len(offsets) // 3]
    for start, end in ((low, high), (high, None), (None, low), (offsets[-1], offsets[-1] + 1), (offsets[-1] + 1, None)):
        got = kolumn.read(case.directory, columns=["offset"], include_control=True, start_offset=start, end_offset=end)
        assert got["offset"].to_pylist() == [o for o in offsets if (start is None or o >= start) and (end is None or o < end)]
    if times:
        for since, until in ((times[len(times) // 3], times[2 * len(times) // 3]), (times[-1], None), (None, times[0] + 1)):
            got = kolumn.read(case.directory, columns=["offset"], include_control=True, start_timestamp=since, end_timestamp=until)
            keep = [t != -1 and (since is None or t >= since) and (until is None or t < until) for t in want["timestamp_ms"].to_pylist()]
            assert got["offset"].to_pylist() == [o for o, kept in zip(offsets, keep, strict=True) if kept]


@pytest.mark.parametrize("case", CASES[:8], ids=lambda case: case.directory.name)
def test_lying_index_files_change_nothing(case, tmp_path):
    want = case.table("expected")
    offsets = want.filter(pc.ends_with(want["segment"], ".log"))["offset"].to_pylist()
    copy = tmp_path / case.directory.name
    copy.mkdir()
    for file in case.directory.iterdir():
        data = bytearray(file.read_bytes())
        if file.suffix in (".index", ".timeindex"):
            data[-3:] = b"\x01" * min(3, len(data))
            data += data[-8 if file.suffix == ".index" else -12 :]
        (copy / file.name).write_bytes(data)
    for start in offsets[:: max(1, len(offsets) // 5)]:
        got = kolumn.read(copy, columns=["offset"], include_control=True, start_offset=start, start_timestamp=-(2**62))
        timed = dict(zip(offsets, want["timestamp_ms"].to_pylist(), strict=False))
        assert got["offset"].to_pylist() == [o for o in offsets if o >= start and timed[o] != -1]
