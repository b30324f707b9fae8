"""Compaction: the same results as brokers' own cleaners on real topics, and each rule by itself."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit import drafts
from kit.corpus import HERE as DATA
from kit.encoder import CONTROL, TRANSACTIONAL, Record, batch, control_batch, message, wrapper
from kit.outcome import raises
from kit.paths import without
from kit.replicas import flip, write_log
from kolumn.core.paths import FILTER

TIME = 1_700_000_000_000
DAY = 86_400_000
RECORD_COLUMNS = [
    "offset", "key", "value", "timestampMs", "timestampType", "headers", "producerId", "producerEpoch", "sequence", "leaderEpoch",
    "isTransactional", "isControl", "controlType",
]  # fmt: skip
BATCH_COLUMNS = [
    "baseOffset", "lastOffset", "count", "magic", "codec", "timestampType", "baseTimestampMs", "maxTimestampMs", "producerId",
    "producerEpoch", "baseSequence", "leaderEpoch", "isTransactional", "isControl", "deleteHorizonMs",
]  # fmt: skip

ROUNDS: list[tuple[str, list[int], int, int]] = [
    # case, base offsets of the cleaned segments (brokers keep those as *.log.deleted for a while), time, delete.retention.ms
    ("compacted/compact-txn-0", [0, 1243], 1795289919663 - DAY, DAY),
    ("compacted/compact-txn-gone-0", [0, 785, 1183], 1795203549027, 500),
    ("compacted-old/v0-compact-none-0", [], 2 * TIME, DAY),
    ("compacted-old/v0-compact-gzip-0", [], 2 * TIME, DAY),
    ("compacted-old/v0-compact-snappy-0", [], 2 * TIME, DAY),
    ("compacted-old/v1-compact-lz4-0", [], 2 * TIME, DAY),
]


@pytest.mark.parametrize(("case", "cleaned", "now", "retention"), ROUNDS, ids=[one[0].split("/")[1] for one in ROUNDS])
def test_as_the_brokers_cleaner(tmp_path: Path, case: str, cleaned: list[int], now: int, retention: int) -> None:
    roots = [DATA, *map(Path, filter(None, [os.environ.get("KOLUMN_CORPUS")]))]
    folder = next((root / case for root in roots if list((root / case).glob("*.log.deleted"))), None)
    if folder is None:
        pytest.skip("the segments that the broker cleaned are not in this corpus")
    before = tmp_path / "before" / folder.name
    before.mkdir(parents=True)
    names = [f"{offset:020}.log.deleted" for offset in cleaned] or [path.name for path in folder.glob("*.log.deleted")]
    for name in names:
        shutil.copy2(folder / name, before / name.removesuffix(".deleted"))
    shutil.copy2(max(folder.glob("*.log")), before)
    done = kolumn.compact(before, tmp_path / "after", now=now, delete_retention_ms=retention)
    after = tmp_path / "after" / folder.name
    assert done.retained < done.records
    for rows in (_records, lambda log: kolumn.batches(log).select(BATCH_COLUMNS)):
        assert _unique(rows(after)) == _unique(rows(folder))
    assert kolumn.verify(after).ok


@pytest.fixture(autouse=True, params=[(), (FILTER,)], ids=["filtered", "decoded"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    with without(*request.param):
        yield


def _unique(table: pa.Table) -> list[str]:
    """Sorted rows without duplicates: segments of earlier rounds may overlap with their cleaned versions."""
    return sorted({repr(row) for row in table.to_pylist()})


def _records(folder: Path) -> pa.Table:
    return kolumn.read(folder, columns=RECORD_COLUMNS, include_control=True)


@pytest.mark.parametrize("case", ["compacted", "compacted-old"])
def test_a_cleaned_log_stays_as_it_is(tmp_path: Path, case: str) -> None:
    for folder in sorted(path for path in (DATA / case).iterdir() if path.is_dir()):
        again = kolumn.compact(folder, tmp_path, now=TIME)
        assert again.records == again.retained, folder.name
        assert _records(tmp_path / folder.name).equals(_records(folder)), folder.name


def _log(folder: Path, *segments: bytes) -> Path:
    return write_log(folder, *((1000 * i, [data]) for i, data in enumerate(segments)))


def _compact(tmp_path: Path, *segments: bytes, format: str = "kafka", **options: Any) -> Path:
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    kolumn.compact(_log(folder, *segments), folder / "out", format=format, include_active=True, **{"now": TIME, **options})
    return folder / "out" / "t-0"


def _kept(folder: Path, format: str = "kafka") -> list[tuple[int, bytes | None, bytes | None]]:
    rows = kolumn.read(folder, columns=["offset", "key", "value"], format=format).to_pylist()
    return [(row["offset"], row["key"], row["value"]) for row in rows]


def _offsets(folder: Path, format: str = "kafka") -> list[int]:
    return [offset for offset, *_ in _kept(folder, format)]


def _rows(folder: Path, *columns: str, format: str = "kafka") -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in kolumn.batches(folder, format=format).select(columns).to_pylist()]


def records(*pairs: tuple[bytes | None, bytes | None], first: int = 0) -> list[Record]:
    return [Record(first + i, key, value, TIME + i) for i, (key, value) in enumerate(pairs)]


SOME = records((b"a", b"1"), (b"b", b"2"), (None, b"3"), (b"a", b"4"), (b"c", None))
LEFT = [(1, b"b", b"2"), (3, b"a", b"4"), (4, b"c", None)]


def test_the_last_of_each_key_stays_where_it_is(tmp_path: Path) -> None:
    out = _compact(tmp_path, batch(SOME, codec=1, producer_id=7, producer_epoch=1, base_sequence=10))
    assert _kept(out) == LEFT
    assert _rows(out, "baseOffset", "lastOffset", "baseSequence", "codec") == [(0, 4, 10, "gzip")]
    # The batch gets a delete horizon because of its tombstone.
    assert _rows(out, "deleteHorizonMs", "baseTimestampMs", "maxTimestampMs") == [(TIME + DAY, TIME + DAY, TIME + 4)]
    assert kolumn.read(out, columns=["sequence"])["sequence"].to_pylist() == [11, 13, 14]


def test_tombstones_go_after_their_horizon(tmp_path: Path) -> None:
    kolumn.compact(_log(tmp_path, batch(SOME)), tmp_path / "one", include_active=True, now=TIME)
    for name, now, left in (("two", TIME + DAY - 1, [1, 3, 4]), ("three", TIME + DAY, [1, 3])):
        kolumn.compact(tmp_path / "one", tmp_path / name, include_active=True, now=now)
        assert _offsets(tmp_path / name) == left


def test_the_active_segment_stays_and_clean_records_go_because_of_dirty_ones(tmp_path: Path) -> None:
    source = _log(tmp_path, batch(SOME), batch(records((b"a", b"5"), first=1000)))
    kolumn.compact(source, tmp_path / "out", now=TIME)
    assert _offsets(tmp_path / "out") == [1, 3, 4, 1000]
    dirty = _log(tmp_path / "dirty", batch(SOME), batch(records((b"b", b"5"), first=1000)))
    kolumn.compact(dirty, tmp_path / "on", now=TIME, include_active=True, first_dirty_offset=1000)
    assert _offsets(tmp_path / "on") == [0, 3, 4, 1000]


def test_empty_batches_of_producers_that_are_known_and_expired(tmp_path: Path) -> None:
    own = {"producer_id": 7, "producer_epoch": 0}
    data = batch(records((b"a", b"1")), base_sequence=0, **own) + batch(records((b"a", b"2"), first=1), base_sequence=1, **own)
    data += batch(records((b"a", b"3"), first=2), producer_id=8, producer_epoch=0, base_sequence=0) + batch(records((None, b""), first=3))
    # The first batch is removed; the second is the last one of its producer; the fourth ends the round.
    assert _rows(_compact(tmp_path, data), "baseOffset", "count", "baseSequence") == [(1, 0, 1), (2, 1, 0), (3, 0, -1)]
    data = batch(records((b"a", b"1")), producer_id=7, base_sequence=0) + batch(records((b"a", b"2"), first=1))
    assert _rows(_compact(tmp_path, data, now=TIME + DAY), "baseOffset") == [(1,)]


def test_transactions(tmp_path: Path) -> None:
    def of(producer: int, offset: int, key: bytes) -> bytes:
        return batch(records((key, b"%d" % producer), first=offset), flags=TRANSACTIONAL, producer_id=producer, producer_epoch=3)

    data = of(7, 0, b"a") + of(8, 1, b"a") + of(8, 2, b"b") + control_batch(3, 0, producer_id=8, timestamp=TIME)
    data += control_batch(4, 1, producer_id=7, timestamp=TIME) + control_batch(5, 1, producer_id=9, timestamp=TIME)
    out = _compact(tmp_path, data)
    assert _kept(out) == [(0, b"a", b"7")]
    # The last batch of the aborted transaction stays without records, for its sequence. The marker at 9 gets a horizon: its data is gone.
    left = [(0, 1, None), (2, 0, None), (3, 1, None), (4, 1, None), (5, 1, TIME + DAY)]
    assert _rows(out, "baseOffset", "count", "deleteHorizonMs") == left
    kolumn.compact(out, tmp_path / "later", include_active=True, now=TIME + DAY)
    assert _rows(tmp_path / "later", "baseOffset") == [(0,), (3,), (4,), (5,)]


def test_what_compaction_leaves_alone(tmp_path: Path) -> None:
    data = batch(records((b"a", b"0")))
    opened = batch(records((b"a", b"1"), first=1000), flags=TRANSACTIONAL, producer_id=7, producer_epoch=0)
    out = _compact(tmp_path, data, opened + batch(records((b"a", b"2"), first=1001)))
    assert _offsets(out) == [0, 1000, 1001]
    out = _compact(tmp_path, batch([Record(0, b"\0\0\0\2", b"", TIME)], flags=CONTROL) + batch(records((b"a", b"1"), first=1)))
    assert kolumn.read(out, columns=["offset"], include_control=True)["offset"].to_pylist() == [0, 1]


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages(tmp_path: Path, magic: int, codec: int) -> None:
    data = wrapper(magic, SOME, codec) if codec else b"".join(message(magic, record) for record in SOME)
    out = _compact(tmp_path, data)
    assert _kept(out) == LEFT
    last = [offset for (offset,) in _rows(out, "lastOffset")]
    assert (len(last), last[-1]) == (1 if codec else 3, 4)


def test_kip87_goes_by_the_bit(tmp_path: Path) -> None:
    inner = [drafts.flagged(record, drafts.TOMBSTONE * (record.offset == 3)) for record in SOME[:2] + SOME[3:]]
    source = _log(tmp_path, b"".join(inner))
    old = TIME / 1000 - 2 * 86400
    os.utime(source / f"{0:020}.log", (old, old))
    out = tmp_path / "out"
    # A clean segment: the tombstones before its end are old enough.
    kolumn.compact(source, out, format="kip87", include_active=True, first_dirty_offset=5, delete_retention_ms=0, now=TIME)
    rows = kolumn.read(out, format="kip87", columns=["offset", "tombstone"]).to_pylist()
    assert [(row["offset"], row["tombstone"]) for row in rows] == [(0, False), (1, False), (4, False)]


def test_sets_are_merged_as_drafts_do_and_on_request(tmp_path: Path) -> None:
    def sets(first: int, honoured: bool) -> bytes:
        inner = [drafts.tagged(Record(i * 2 if honoured else 50 + i, b"k%d" % (first + i), b"v", -1)) for i in range(3)]
        return drafts.tagged_wrapper(first, inner, 1, flags=drafts.HONOURED if honoured else 0)

    out = _compact(tmp_path, sets(10, True) + sets(20, False), format="enriched")
    assert _offsets(out, "enriched") == [10, 12, 14, 20, 21, 22]
    assert _rows(out, "baseOffset", "count", format="enriched") == [(10, 6)]
    out = _compact(tmp_path, wrapper(1, SOME[:2], 1) + wrapper(1, SOME[3:], 1), merge_bytes=1 << 20)
    assert _offsets(out) == [1, 3, 4]
    assert _rows(out, "lastOffset") == [(4,)]


def test_kip98_sets(tmp_path: Path) -> None:
    one = drafts.message_set(0, [drafts.set_message(r, 0) for r in SOME[:2]], 2, producer=(7, 0, 5), max_timestamp=TIME)
    two = drafts.message_set(2, [drafts.set_message(r, 2) for r in SOME[2:4]], 9, producer=(7, 0, 7), max_timestamp=TIME)
    out = _compact(tmp_path, one + two, format="kip98-draft")
    assert _rows(out, "baseOffset", "lastOffset", "baseSequence", format="kip98-draft") == [(0, 1, 5), (2, 10, 7)]
    assert _offsets(out, "kip98-draft") == [1, 3]
    messages = [
        drafts.set_message(Record(0, b"a", b"aborted", TIME), 0), drafts.set_message(Record(1, b"\0\0\0\1", None, TIME), 0, control=True),
        drafts.set_message(Record(2, b"b", b"committed", TIME), 0), drafts.set_message(Record(3, b"\0\0\0\0", None, TIME), 0, control=True),
    ]  # fmt: skip
    data = drafts.message_set(0, messages, 4, flags=TRANSACTIONAL, producer=(7, 0, 0), max_timestamp=TIME)
    out = _compact(tmp_path, data, format="kip98-draft")
    rows = kolumn.read(out, format="kip98-draft", columns=["offset", "controlType"], include_control=True).to_pylist()
    assert [tuple(row.values()) for row in rows] == [(1, "ABORT"), (2, None), (3, "COMMIT")]


def test_damage_is_left_out_and_told(tmp_path: Path) -> None:
    source = _log(tmp_path, batch(SOME[:2]) + batch(records((b"z", b"1"), first=5)))
    flip(source / f"{0:020}.log", 70)
    raises(kolumn.CorruptBatchError, "", kolumn.compact, source, tmp_path / "out", include_active=True)
    assert not (tmp_path / "out" / "t-0" / f"{0:020}.log").exists()
    assert len(kolumn.compact(source, tmp_path / "out", include_active=True, errors="skip").damage) == 1
    assert _offsets(tmp_path / "out") == [5]
