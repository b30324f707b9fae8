"""Segments in a tier are read as a broker's: by name, each offset once, together with the folder of the broker."""

import base64
import logging
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kolumn
from kit.asked import invoked, watched
from kit.corpus import HERE as CORPUS
from kit.encoder import Record, batch
from kit.outcome import raises
from kit.replicas import copy, flip, write_log
from kit.tiers import checkpoint, put, tier_of, uuid_of
from kolumn.copies import transactions

LOG = CORPUS / "transactional" / "txn-zstd-0"
BASES = [int(path.stem) for path in sorted(LOG.glob("*.log"))]
COLUMNS = ["topic", "partition", "offset", "key", "value", "timestampMs"]
COMMITTED: dict[str, Any] = {"isolation_level": "read_committed"}
T = f"t-0-{uuid_of('t')}"


def rows(*source: Path, **options: Any) -> Any:
    return kolumn.read(list(source), columns=COLUMNS, **options)


def values(*source: Path, **options: Any) -> list[tuple[int, str]]:
    found = kolumn.read(list(source), columns=["offset", "value"], payload="string", **options)
    return [tuple(row.values()) for row in found.to_pylist()]


def numbered(first: int, last: int, word: str = "x", epoch: int = 0) -> list[bytes]:
    rows = [Record(offset, value=f"{word}{offset}".encode()) for offset in range(first, last + 1)]
    return [batch(rows[i : i + 10], leader_epoch=epoch) for i in range(0, len(rows), 10)]


def expected(first: int, last: int, word: str = "x") -> list[tuple[int, str]]:
    return [(offset, f"{word}{offset}") for offset in range(first, last + 1)]


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    return tier_of(LOG, tmp_path / "tier")


def test_a_tier_has_the_rows_of_the_closed_segments(tier: Path) -> None:
    closed = rows(LOG, end_offset=BASES[-1])
    assert closed.num_rows > 300
    for source in (tier, tier.parent, Path(f"{tier.parent}/*")):
        assert rows(source).equals(closed)
    report = kolumn.verify(tier.parent)
    assert (report.ok, report.remarks.num_rows) == (True, 0)
    for command, printed in (("verify", "OK: 4 segments"), ("stats", "txn-zstd")):
        done = invoked(command, tier.parent)
        assert (done.exit_code, printed in done.stdout) == (0, True)
    # One file of a tier knows the transactions of the others.
    alone = [row for path in sorted(tier.glob("*.log")) for row in rows(path, **COMMITTED)["offset"].to_pylist()]
    assert alone == rows(tier, **COMMITTED)["offset"].to_pylist()
    whole = rows(tier)
    for number, (log, size) in enumerate(zip(sorted(tier.glob("*.log")), (3000, 0, 5000, 7000), strict=False)):
        Path(f"{tier}/{log.name[:20]}-{uuid_of(str(number))}.log").write_bytes(log.read_bytes()[:size])
    assert rows(tier).equals(whole)
    assert rows(tier, replicas="merge").equals(whole)


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("replicas", ["raise", "first", "merge"])
def test_a_tier_and_the_folder_of_the_broker_are_one_log(tmp_path: Path, tier: Path, level: str, replicas: Any) -> None:
    """The broker has only its last segments, some of them are in the tier too."""
    whole = rows(LOG, isolation_level=level)
    for kept in (1, 2, 3):
        local = copy(LOG, tmp_path / f"b{kept}")
        for path in (path for base in BASES[:-kept] for path in local.glob(f"{base:020d}.*")):
            path.unlink()
        for source in ([tier, local], [local, tier.parent], [local.parent, tier.parent]):
            assert rows(*source, isolation_level=level, replicas=replicas).equals(whole)
        assert kolumn.verify([tier, local]).remarks.num_rows == 0


def test_tools_make_one_broker_folder_of_a_tier_and_the_rest(tmp_path: Path) -> None:
    """Its segments have a broker's names, and transactions may end in another folder than that in which they begin."""
    expected, names = kolumn.convert(LOG, tmp_path / "whole", drop_transactions=True), [path.name for path in sorted(LOG.glob("*.log"))]
    for i, base in enumerate(BASES[1:]):
        tier, local = tier_of(LOG, tmp_path / f"t{i}", BASES[: i + 1]), copy(LOG, tmp_path / f"b{i}")
        for path in (path for name in names[: i + 1] for path in local.glob(f"{name[:20]}.*")):
            path.unlink()
        done = kolumn.convert([tier, local], tmp_path / f"c{i}", drop_transactions=True)
        assert done.lost == expected.lost, base
        assert rows(tmp_path / f"c{i}").equals(rows(tmp_path / "whole")), base
        for tool in (kolumn.compact, partial(kolumn.apply_retention, retention_ms=1, now=0)):
            target = tmp_path / f"{i}" / getattr(tool, "__name__", "retention")
            tool([tier, local], target)
            assert [path.name for path in sorted(target.rglob("*.log"))] == names
        for path in tier.glob("*.log"):
            shutil.copy(path, local)
        assert rows(local).equals(rows(LOG))


def test_indexes_of_transactions_and_snapshots_are_used(tier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = watched(monkeypatch, transactions, "from_side_files")
    with_files = rows(tier, **COMMITTED)
    assert calls[0][-1].aborted
    for path in tier.glob("*.txnindex"):
        path.write_bytes(b"\1" + path.read_bytes()[1:])
    assert rows(tier, **COMMITTED).equals(with_files)
    for path in (*tier.glob("*.snapshot"), *tier.glob("*.txnindex")):
        path.unlink()
    assert rows(tier, **COMMITTED).equals(with_files)
    assert calls[2][-1] is None


def test_an_index_of_aborts_that_was_lost_is_not_taken_for_absent(tier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its snapshot is whole. A part of a log ends where a snapshot has no transaction of it, so that not all segments are walked."""

    def parts() -> list[pa.Table]:
        return [rows(tier, **COMMITTED, end_offset=end) for end in (None, *BASES[1:-1], BASES[2] + 17)]

    whole, walked = parts(), watched(monkeypatch, transactions, "_abort_markers")
    assert parts() == whole
    for path in tier.glob("*.txnindex"):
        saved = path.read_bytes()
        path.unlink()
        walked.clear()
        assert parts() == whole
        assert int(path.name[:20]) in {segment.base_offset for segment, _ in walked}
        path.write_bytes(saved)
    walked.clear()
    rows(tier, **COMMITTED, end_offset=10)
    assert BASES[-2] not in {segment.base_offset for segment, _ in walked}


def test_leader_epochs_that_are_not_those_of_the_batches_give_up_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One changed digit, of the segment that would be left out and of the one that would be believed."""
    folder = tmp_path / T
    put(folder, 0, numbered(0, 99), [(0, 0)])
    middle = put(folder, 100, [*numbered(100, 149), *numbered(150, 199, epoch=3)], [(0, 0), (3, 150)])
    last = put(folder, 200, numbered(200, 299, epoch=3), [(0, 0), (3, 150)])
    right = checkpoint([(0, 0), (3, 150)])
    for segment, *wrong in (
        (middle, (0, 0), (7, 150)), (middle, (0, 0), (2, 150)), (middle, (1, 0), (3, 150)), (middle, (0, 0), (3, 140)),
        (middle, (0, 0), (3, 350)), (last, (0, 0), (3, 350)), (last, (0, 0), (3, 152)),
    ):  # fmt: skip
        segment.with_suffix(".leader_epoch_checkpoint").write_text(checkpoint(wrong))
        raises(kolumn.KolumnError, rf"{segment.stem}.leader_epoch_checkpoint: leader epochs: expected those of", values, folder)
        caplog.clear()
        assert values(folder, errors="skip") == expected(0, 299)
        assert "the batches count" in caplog.text
        segment.with_suffix(".leader_epoch_checkpoint").write_text(right)


def test_copies_that_overlap_are_read_once(tmp_path: Path) -> None:
    folder = tmp_path / T
    for first, last, name in ((0, 99, ""), (50, 149, ""), (50, 119, "first try"), (150, 199, "")):
        put(folder, first, numbered(first, last), [(0, 0)], name)
    assert values(folder) == values(folder, replicas="merge") == expected(0, 199)
    assert values(folder, start_offset=70, end_offset=160) == expected(70, 159)
    assert kolumn.batches(folder).num_rows == 20
    assert kolumn.verify(folder).ok
    words = "only some of its offsets belong to the log"
    raises(kolumn.ArgumentError, words, kolumn.convert, folder, tmp_path / "made", format="kafka", magic=2)


def test_a_leader_that_was_given_up_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A leader of epoch 0 copied offsets up to 149; the leader of epoch 2 began with offset 100."""
    folder = tmp_path / T
    put(folder, 0, numbered(0, 49), [(0, 0)])
    put(folder, 50, numbered(50, 149, "lost"), [(0, 0)], "old leader")
    put(folder, 50, [*numbered(50, 99), *numbered(100, 129, "new", 2)], [(0, 0), (2, 100)])
    put(folder, 120, numbered(120, 149, "lost"), [(0, 0)], "old leader")
    put(folder, 130, numbered(130, 199, "new", 2), [(0, 0), (2, 100)])
    with caplog.at_level(logging.WARNING, "kolumn"):
        found = values(folder)
    assert found[:50] == expected(0, 49)
    assert [offset for offset, _ in found] == list(range(200))
    assert found[100:] == expected(100, 199, "new")
    assert "offsets 120 to 149 are of a leader whose log was given up" in caplog.text
    local = write_log(tmp_path / "b", (180, [*numbered(180, 189, "new", 2), *numbered(190, 229, "last", 5)]))
    (local / "leader-epoch-checkpoint").write_text(checkpoint([(2, 170), (5, 190)]))
    assert values(folder, local)[100:] == [*expected(100, 189, "new"), *expected(190, 229, "last")]


def test_copies_that_differ(tmp_path: Path) -> None:
    one, other = (put(tmp_path / T, 0, numbered(0, 49, word), [(0, 0)], word) for word in ("x", "longer"))
    caught = raises(kolumn.ArgumentError, "", values, tmp_path / T)
    assert all(word in str(caught) for word in (one.name, other.name, "offsets 0 to 49", "replicas='merge'"))
    assert values(one) == expected(0, 49)
    folder = tmp_path / "2" / T
    _, log = (put(folder, 0, numbered(0, 99), [(0, 0)], name) for name in ("", "damaged"))
    flip(log, 150)
    assert values(folder, replicas="merge") == expected(0, 99)
    assert not kolumn.verify(folder).ok
    raises(kolumn.CorruptBatchError, "", values, log)


def test_folders_under_prefixes_are_one_log(tmp_path: Path) -> None:
    """Plain copies with prefixes that spread the load of a bucket."""
    for number, log in enumerate(sorted(LOG.glob("*.log"))):
        folder = tmp_path / f"{number * 7 % 4:02x}" / "cluster" / LOG.name
        folder.mkdir(parents=True, exist_ok=True)
        for path in LOG.glob(f"{log.stem}.*"):
            shutil.copy(path, folder)
    for how in ({}, COMMITTED):
        assert rows(Path(f"{tmp_path}/*/cluster"), **how).equals(rows(LOG, **how))


@pytest.mark.parametrize("name", [f"t-{uuid_of('t')}", "t-0-short", f"t-x-{uuid_of('t')}", f"t-0-{uuid_of('t')[:-1]}_"])
def test_other_names_are_no_tier(tmp_path: Path, name: str) -> None:
    """A topic whose name looks like one with an id is none either: its segments have no ids."""
    put(tmp_path / name, 0, numbered(0, 9))
    raises(kolumn.ArgumentError, "no segment", rows, tmp_path)
    folder = write_log(tmp_path, (0, numbered(0, 9))).rename(tmp_path / f"{T}-5")
    assert kolumn.read(folder, columns=["topic", "partition"]).to_pylist()[0] == {"topic": T, "partition": 5}


@pytest.mark.skipif("KOLUMN_CORPUS" not in os.environ, reason="needs KOLUMN_CORPUS")
def test_a_tier_that_a_broker_wrote() -> None:
    """12 transactions, each third of them aborted: 7 of 10 thousand rows are committed."""
    folder = Path(os.environ["KOLUMN_CORPUS"]) / "tiered" / "kafka-4.3.0-local-tiered"
    if not folder.exists():
        pytest.skip("this corpus has no tier")
    found = rows(folder, isolation_level="read_committed")
    assert (found.num_rows, set(found["topic"].to_pylist())) == (7000, {"orders"})
    assert kolumn.verify(folder).ok


BEGUN = bytes.fromhex(
    "010000076f7264657273000000000000000100000000000000020000000300000000000000000300000000000000040000000000000000"
    "0a0000000000000063000000010000018bcfe568000000018bcfe568010300000000000000000000000a00000000020000000000000032"
    "00000010000301020001000101"
)
UPDATED = bytes.fromhex(
    "010100076f72646572730000000000000001000000000000000200000003000000000000000003000000000000000400000000010000018bcfe56802000100"
)
"""Records of RemoteLogMetadataSerde of Kafka 4.3.0, of the copy with this id:"""
COPY = bytes.fromhex("00000000000000030000000000000004")


def state(segment: Path, number: int) -> bytes:
    """The record by which a broker notes a state of a copy."""
    own = base64.urlsafe_b64decode(segment.name[21:43] + "==")
    return BEGUN.replace(COPY, own) if number == 0 else (UPDATED[:-2] + bytes([number, 0])).replace(COPY, own)


def test_copies_that_no_broker_reads_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By the states in `__remote_log_metadata`, which is in the source, or beside its folders."""
    folder = tmp_path / "tier" / f"orders-3-{uuid_of('orders')}"
    good = [put(folder, base, numbered(base, base + 49)) for base in (0, 50, 100)]
    # Two have intact batches of other records, as those of a leader that did not finish; of the last one nothing is noted.
    begun, deleted, _ = [put(folder, base, numbered(base, base + 99, "bad"), name="bad") for base in (0, 50, 150)]
    assert "bad0" in dict(values(folder)).values()
    events = [(one, number) for one in good for number in (0, 1)] + [(begun, 0), (deleted, 0), (deleted, 1), (deleted, 2)]
    notes = [batch([Record(i, value=state(one, number))]) for i, (one, number) in enumerate(events)]
    notes.append(batch([Record(len(notes), value=b"unknown, of orders")]))
    metadata = write_log(tmp_path / "logs", (0, notes)).rename(tmp_path / "logs" / "__remote_log_metadata-0")
    expect = [*expected(0, 149), *expected(150, 249, "bad")]
    caplog.clear()
    found = kolumn.read([folder, metadata], columns=["topic", "offset", "value"])
    mine = found.filter(pc.equal(found["topic"], "orders"))
    assert list(zip(mine["offset"].to_pylist(), mine["value"].cast(pa.string()).to_pylist(), strict=True)) == expect
    assert f"2 segments of a tier are left out, which brokers do not read by __remote_log_metadata: the first is {begun}" in caplog.text
    assert "COPY_SEGMENT_STARTED" in caplog.text
    local = write_log(tmp_path / "logs", (250, numbered(250, 259))).rename(tmp_path / "logs" / "orders-3")
    assert values(folder, local) == values(folder, local, replicas="merge") == [*expect, *expected(250, 259)]
    assert kolumn.verify([folder, local]).ok
