"""`kolumn audit`: does it find what contradicts Kafka's rules, tell compaction from loss, and say nothing of logs that are right?"""

import json
import random
import shutil
import struct
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import crc32c
import pytest

import kolumn
from kit import producers
from kit.asked import invoked, put
from kit.corpus import HERE, Case, cases
from kit.encoder import LOG_APPEND_TIME, TRANSACTIONAL, Record, batch, control_batch
from kit.fuzz import FIRST, TURN, none_fails
from kit.outcome import raises
from kolumn.tools.auditing import partition, sequences

T = 1_700_000_000_000
NOW = T + 60_000
SUMMED = ("compaction", "damage", "lost", "marker", "unknown")
COUNTED = ("aborted", "batches", "committed", "duplicates", "fenced", "gaps", "records", "resets")


def found(source: Any, *severities: str, **options: Any) -> list[tuple[str, str, int]]:
    """Severity, kind and first offset of the findings."""
    rows = kolumn.audit(source, **{"now": NOW, **options}).findings.to_pylist()
    return [(row["severity"], row["kind"], row["firstOffset"]) for row in rows if not severities or row["severity"] in severities]


def data(offset: int, sequence: int, *, count: int = 1, producer: int = 7, epoch: int = 0, flags: int = 0) -> bytes:
    records = [Record(offset + i, b"k", b"v", T) for i in range(count)]
    return batch(records, flags=flags, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def within(offset: int, sequence: int, **more: Any) -> bytes:
    return data(offset, sequence, flags=TRANSACTIONAL, **more)


def marker(offset: int, kind: int = 1, *, producer: int = 7, epoch: int = 0, coordinator: int = 1) -> bytes:
    return control_batch(offset, kind, producer_id=producer, producer_epoch=epoch, coordinator_epoch=coordinator, timestamp=T)


# Logs of real brokers.


@pytest.mark.parametrize("case", cases(), ids=str)
def test_no_log_of_a_broker_has_an_error(case: Case) -> None:
    done = kolumn.audit(case.directory)
    wrong = [row for row in done.findings.to_pylist() if row["severity"] != "note"]
    opened = kolumn.open_transactions(case.directory).to_pylist()
    assert [(row["producerId"], row["firstOffset"]) for row in done.transactions.to_pylist()] == [
        (row["producerId"], row["firstOffset"]) for row in opened
    ]
    # Of those logs some were left with transactions that nobody has ended, and of some offsets nothing tells why they are absent.
    assert {row["kind"] for row in wrong} <= {"open-transaction", "offsets-unknown"}
    begun = [row["firstOffset"] for row in opened if row["firstOffset"] is not None]
    assert [row["firstOffset"] for row in wrong if row["kind"] == "open-transaction"] == begun
    assert done.ok == (not wrong)
    # Earlier formats have records in wrappers, whose headers do not count them; they have no producers, and no transactions.
    assert {row["kind"] for row in wrong} <= {"open-transaction"} or "old" in str(case) or "v" in case.directory.parent.name[:1]


@pytest.mark.parametrize("case", [case for case in cases() if case.directory.parent.name in ("transactional", "compacted")], ids=str)
def test_every_offset_has_its_reason(case: Case) -> None:
    done = kolumn.audit(case.directory)
    (row,) = done.partitions.to_pylist()
    rows = kolumn.read(case.directory, columns=["offset", "isControl", "transaction"], include_control=True).to_pylist()
    states = Counter(one["transaction"] for one in rows if not one["isControl"])
    assert row["records"] + sum(row[name] for name in SUMMED) == row["lastOffset"] - row["logStartOffset"] + 1
    assert (row["records"], row["marker"]) == (sum(states.values()), sum(one["isControl"] for one in rows))
    # Transactions of which the log has no marker any more are not counted as aborted.
    assert row["aborted"] == states["aborted"]
    stable = row["lastStableOffset"]
    assert row["recordsAboveStable"] == sum(one["offset"] >= stable and not one["isControl"] for one in rows)
    sums: Counter[str] = Counter()
    for one in done.offsets.to_pylist():
        sums[one["reason"]] += one["offsets"]
    assert {name: row[name] for name in sums} == sums


MARKERS = [
    (case, row)
    for case in cases()
    if case.directory.parent.name == "transactional" and case.directory.parent.parent == HERE
    for row in case.expected_batches().to_pylist()
    if row["is_control"]
]


@pytest.mark.parametrize("has_files", [True, False])
def test_a_marker_that_was_taken_out_is_found(tmp_path: Path, has_files: bool) -> None:
    """Of every marker one turn; nothing else of the log changes."""
    missed = []
    for number, (case, row) in enumerate(MARKERS):
        if (number + TURN) % 5:
            continue
        offset, producer = row["last_offset"], row["producer_id"]
        log = tmp_path / str(number) / case.directory.name
        shutil.copytree(case.directory, log)
        for path in list(log.iterdir()):
            if not has_files and path.suffix != ".log":
                path.unlink()
        segment = max(path for path in log.glob("*.log") if int(path.stem) <= offset)
        raw, start = segment.read_bytes(), row["position"]
        segment.write_bytes(raw[:start] + raw[start + row["size"] :])
        findings = kolumn.audit(log).findings.to_pylist()
        own = [one for one in findings if one["producerId"] == producer and one["severity"] != "note"]
        is_end = offset == case.expected()["offset"].to_pylist()[-1]
        kinds = {one["kind"] for one in own if one["firstOffset"] == offset}
        # Without the side files a log that ends before a marker is one that had not been written yet.
        expected = kinds & {"marker-missing", "marker-suspected"} or (is_end and {one["kind"] for one in own} & {"open-transaction"})
        missed += [] if expected else [(str(case), offset, producer, findings)]
        shutil.rmtree(log)
    assert missed == []


def test_markers_that_were_taken_out_together_keep_their_offsets(tmp_path: Path) -> None:
    """Two that follow each other, and random ones: one finding for each that is sure, and none names a wrong offset."""
    rng, by_log = random.Random(FIRST), {case: [row for other, row in MARKERS if other is case] for case, _ in MARKERS}
    exact = 0
    for number, (case, rows) in enumerate(by_log.items()):
        pairs = [[a, b] for a, b in pairwise(rows) if b["last_offset"] == a["last_offset"] + 1]
        for which, gone in enumerate([*pairs[TURN % 3 :: 3], *(rng.sample(rows, rng.randint(2, len(rows) // 2)) for _ in range(3))]):
            log = tmp_path / f"{number}-{which}" / case.directory.name
            shutil.copytree(case.directory, log)
            for row in sorted(gone, key=lambda row: -row["last_offset"]):
                segment = max(path for path in log.glob("*.log") if int(path.stem) <= row["last_offset"])
                raw, start = segment.read_bytes(), row["position"]
                segment.write_bytes(raw[:start] + raw[start + row["size"] :])
            findings = [row for row in kolumn.audit(log).findings.to_pylist() if row["kind"] == "marker-missing"]
            truth = {(row["last_offset"], row["producer_id"]) for row in gone}
            for row in findings:
                # None that is sure may leave out the offset that is true.
                own = {offset for offset, producer in truth if producer == row["producerId"]}
                assert any(row["firstOffset"] <= offset <= row["lastOffset"] for offset in own), (case, gone, row)
            told = [(row["firstOffset"], row["producerId"]) for row in findings if row["firstOffset"] == row["lastOffset"]]
            assert len(findings) <= len(truth), (case, gone, findings)
            assert len(told) == len({*told}), (case, gone, findings)
            exact += len(told)
            shutil.rmtree(log)
    assert exact > 0


def test_what_is_known_of_one_marker_decides_about_others(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    opened = [within(i, 0, producer=i) for i in range(4)]
    # The markers of 0 and 1 were at 4 and 5, in either order, so those of 2 and 3 were at 8 and 10.
    follow = [within(6, 0, producer=0, epoch=1), within(7, 0, producer=1, epoch=1), within(9, 0, producer=2, epoch=1)]
    put(log, *opened, *follow, within(11, 0, producer=3, epoch=1))
    index = log / f"{0:020}.txnindex"

    def missing() -> dict[int, tuple[int, int, str]]:
        rows = [row for row in kolumn.audit(log, now=NOW).findings.to_pylist() if row["kind"].startswith("marker")]
        assert {row["kind"] for row in rows} == {"marker-missing"}
        return {row["producerId"]: (row["firstOffset"], row["lastOffset"], row["detail"]) for row in rows}

    found = missing()
    assert {producer: row[:2] for producer, row in found.items()} == {0: (4, 5), 1: (4, 5), 2: (8, 8), 3: (10, 10)}
    assert "it was at one of 4, 5" in found[0][2]
    index.write_bytes(struct.pack(">hqqqq", 0, 1, 1, 5, 5))
    assert {producer: row[:2] for producer, row in missing().items()} == {0: (4, 4), 1: (5, 5), 2: (8, 8), 3: (10, 10)}


def test_a_transaction_that_spans_leaders_is_noted(tmp_path: Path) -> None:
    def led(entry: bytes, leader: int) -> bytes:
        return entry[:12] + struct.pack(">i", leader) + entry[16:]

    put(tmp_path / "t-0", led(within(0, 0), 0), led(within(1, 1), 0), led(within(2, 2), 2), led(within(3, 3), 2), led(marker(4), 2))
    put(tmp_path / "u-0", led(within(0, 0), 0), led(marker(1), 2), led(within(2, 1), 2), led(marker(3), 2))
    (row,) = kolumn.audit(tmp_path, now=NOW).findings.to_pylist()
    assert (row["severity"], row["kind"], row["topic"], row["firstOffset"]) == ("note", "transaction-spans-leaders", "t", 2)
    assert "spans leader epochs 0 and 2" in row["detail"]


def test_a_marker_after_the_end_of_the_log_is_a_warning(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    put(log, within(0, 0), data(1, 0, producer=9))
    snapshot(log, 3, (7, 0, 0, 0, -1), (9, 0, 0, 1, -1))
    (row,) = (row for row in kolumn.audit(log, now=NOW).findings.to_pylist() if row["kind"] == "marker-missing")
    assert (row["severity"], row["firstOffset"], row["lastOffset"]) == ("warning", 2, 2)
    # Two files tell of the end.
    (log / f"{0:020}.timeindex").write_bytes(struct.pack(">qi", T, 3))
    snapshot(log, 4, (7, 0, 0, 0, -1), (9, 0, 0, 1, -1))
    assert [one[1] for one in found(log)].count("ends-early") == 1


# Producers.


def same_as_the_rules(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    segments = producers.random_log(rng, folder / "t-0")
    rules = producers.Rules()
    for header in producers.headers(b"".join(segments)):
        rules.append(header)
    done = kolumn.audit(folder, now=NOW)
    ours = {(row["producerId"], row["producerEpoch"]): {name: row[name] for name in COUNTED} for row in done.producers.to_pylist()}
    theirs: dict[tuple[int, int], dict[str, int]] = {}
    for (producer, epoch, name), count in rules.counts.items():
        theirs.setdefault((producer, epoch), dict.fromkeys(COUNTED, 0))[name] = count
    assert ours == theirs
    opened = {producer: entry.open for producer, entry in rules.entries.items() if entry.open is not None}
    assert {row["producerId"]: row["firstOffset"] for row in done.transactions.to_pylist()} == opened
    kinds = {"duplicate", "sequence-gap", "sequence-reset", "coordinator-epoch", "marker-without-data", "fenced-epoch"}
    told = {(row["kind"], row["firstOffset"], row["producerId"]) for row in done.findings.to_pylist() if row["kind"] in kinds}
    said = {one for one in rules.found if one[0] in kinds}
    # Fenced batches in a row are one finding.
    assert told <= said
    assert {one for one in said - told if one[0] != "fenced-epoch"} == set()
    assert {one[2] for one in told if one[0] == "fenced-epoch"} == {one[2] for one in said if one[0] == "fenced-epoch"}
    missing = [row for row in done.findings.to_pylist() if row["kind"] == "marker-missing"]
    assert {row["producerId"] for row in missing} == {one[2] for one in rules.found if one[0] == "marker-missing"}


def test_random_producers_are_judged_by_kafkas_rules() -> None:
    none_fails(same_as_the_rules, 150, "kit.producers")


def test_the_reference_sees_each_kind() -> None:
    """The random logs break every rule, and some break none."""
    kinds: Counter[str] = Counter()
    clean = 0
    for seed in range(FIRST, FIRST + 60):
        rules = producers.Rules()
        for header in producers.headers(b"".join(_log(seed))):
            rules.append(header)
        kinds.update({one[0] for one in rules.found})
        clean += not rules.found
    assert clean > 0
    assert min(kinds[kind] for kind in ("duplicate", "sequence-gap", "sequence-reset", "fenced-epoch", "coordinator-epoch")) > 0


def _log(seed: int) -> list[bytes]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return producers.random_log(random.Random(seed), Path(folder))


def test_what_breaks_a_rule_is_told_with_what_was_expected(tmp_path: Path) -> None:
    last = 2**31 - 1
    put(tmp_path / "wraps-0", data(0, last - 1, count=2), data(2, 0), data(3, 1))
    ended = (marker(1, producer=9, epoch=2), within(2, 77, producer=9, epoch=2), marker(3, producer=9, epoch=2))
    put(tmp_path / "begins-0", data(0, 5000), *ended)
    assert found(tmp_path) == []
    for name, entries, expected in (
        ("gap", (data(0, 0), data(1, 4)), ("error", "sequence-gap", 1, "expected sequence 1, found 4: 3 records")),
        ("again", (data(0, 0), data(1, 1), data(2, 0)), ("error", "duplicate", 2, "sequences 0 to 0 are in the log a second time")),
        ("reset", (data(0, 40, count=9), data(9, 0)), ("warning", "sequence-reset", 9, "expected sequence 49, found 0")),
        ("zombie", (data(0, 0, epoch=3), data(1, 1, epoch=2)), ("error", "fenced-epoch", 1, "epoch 2 after epoch 3")),
        ("late", (data(0, 0, epoch=3), data(1, 2, epoch=4)), ("error", "sequence-gap", 1, "the first one of epoch 4, found 2")),
        ("old", (within(0, 0), marker(1, coordinator=4), marker(2, coordinator=3)), ("warning", "coordinator-epoch", 2, "epoch 3")),
        ("plain", (within(0, 0), data(1, 1)), ("error", "marker-missing", 1, "a batch without a transaction follows")),
        ("merged", (within(0, 0), within(1, 0, epoch=1), marker(2, epoch=1)), ("error", "marker-missing", 1, "epoch 1 begins")),
        ("twice", (within(0, 0), marker(1), marker(2)), ("note", "marker-without-data", 2, "written twice")),
    ):  # fmt: skip
        put(tmp_path / name / "t-0", *entries)
        rows = kolumn.audit(tmp_path / name, now=NOW).findings.to_pylist()
        rows = [row for row in rows if row["kind"] != "marker-without-data" or name == "twice"]
        assert [(row["severity"], row["kind"], row["firstOffset"]) for row in rows] == [expected[:3]], name
        assert expected[3] in rows[0]["detail"], (name, rows[0]["detail"])
        assert (rows[0]["topic"], rows[0]["producerId"]) == ("t", 7)


def test_a_damaged_header_is_not_believed(tmp_path: Path) -> None:
    for field, size in ((51, 2), (53, 4)):
        entries = [data(i, i) for i in range(6)]
        wrong = bytearray(entries[3])
        wrong[field : field + size] = b"\x11" * size
        put(tmp_path / str(field) / "t-0", *entries[:3], bytes(wrong), *entries[4:])
        told = found(tmp_path / str(field))
        assert ("error", "damage", 3) in told, (field, told)
        assert not {kind for _, kind, _ in told} & {"duplicate", "sequence-reset", "fenced-epoch"}


def test_a_damaged_offset_hides_nothing(tmp_path: Path) -> None:
    entries = [data(i, i) for i in range(6)]
    wrong = bytearray(entries[3])
    wrong[0] = 0x7F
    put(tmp_path / "t-0", *entries[:3], bytes(wrong), *entries[4:], data(6, 7))
    told = found(tmp_path)
    assert [one for one in told if one[0] == "error"] == [("error", "damage", None), ("error", "sequence-gap", 6)]
    assert ("note", "sequence-gap", 4) in told
    assert "offsets-back" not in {kind for _, kind, _ in told}


def test_sequences_that_compaction_removed_are_no_gaps(tmp_path: Path) -> None:
    put(tmp_path / "lost" / "t-0", *(data(i, i) for i in range(4)), data(6, 6))
    put(tmp_path / "lost" / "t-0", data(7, 7), data(9, 9), base=7)
    told = found(tmp_path / "lost")
    assert ("error", "offsets-lost", 8) in told
    assert ("warning", "offsets-unknown", 4) in told
    assert [one for one in told if one[1] == "sequence-gap"] == [("note", "sequence-gap", 6), ("note", "sequence-gap", 9)]
    # A batch whose header claims more than it has shows that the cleaner was there.
    cleaned = batch([Record(4, b"k", b"v", T)], base_offset=0, last_offset=5, producer_id=7, producer_epoch=0, base_sequence=0)
    put(tmp_path / "clean" / "t-0", cleaned, data(8, 8))
    put(tmp_path / "clean" / "t-0", data(9, 9), base=9)
    assert found(tmp_path / "clean") == []
    (row,) = kolumn.audit(tmp_path / "clean").partitions.to_pylist()
    assert (row["compaction"], row["lost"], row["records"]) == (7, 0, 3)


def nothing_is_said_of_a_compacted_log(seed: int, folder: Path) -> None:
    """Batches of data are removed from a log that is right, as the cleaner does it: it leaves a batch with fewer records than before."""
    rng = random.Random(seed)
    segments = producers.random_log(rng, folder / "t-0", strange=0)
    signed = False
    for path in sorted((folder / "t-0").glob("*.log"))[: len(segments) - 1]:
        raw, kept = path.read_bytes(), bytearray()
        for header, start, end in producers.placed(raw):
            one = bytearray(raw[start:end])
            if not signed and not header.is_control and header.records > 1:
                one[57:61], signed = (header.records - 1).to_bytes(4, "big"), True
            elif signed and not header.is_control and rng.random() < 0.5:
                continue
            kept += one
        path.write_bytes(kept)
    told = [one for one in found(folder) if one[1] not in ("open-transaction", "timestamps-back")]
    assert not signed or told == []


def test_random_compacted_logs_have_no_findings() -> None:
    none_fails(nothing_is_said_of_a_compacted_log, 100, "kit.producers")


# Transactions.


def state(offset: int, name: str, producer: int, status: int, partitions: list[int]) -> bytes:
    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    body = struct.pack(">hqhib", 0, producer, 3, 60_000, status) + struct.pack(">i", 1) + text("orders")
    body += struct.pack(f">i{len(partitions)}iqq", len(partitions), *partitions, T, T - 10)
    return batch([Record(offset, struct.pack(">h", 0) + text(name), body, T)])


def test_what_coordinators_say_is_compared(tmp_path: Path) -> None:
    put(tmp_path / "orders-0", *(within(i, 0, producer=i + 1, epoch=3) for i in range(5)))
    alone = kolumn.audit(tmp_path, now=NOW)
    assert (alone.ok, alone.transactions.num_rows) == (True, 5)
    assert len(found(tmp_path, now=NOW + 900_000)) == 5
    assert len(found(tmp_path, open_longer_than_ms=60_000)) == 5
    assert found(tmp_path, open_longer_than_ms=60_001) == []
    states = (("a", 1, 1, [0]), ("b", 2, 4, []), ("c", 3, 5, []), ("d", 4, 1, [1]))
    put(tmp_path / "__transaction_state-0", *(state(i, *given) for i, given in enumerate(states)))
    done = kolumn.audit(tmp_path, now=NOW)
    rows = {row["firstOffset"]: row for row in done.findings.to_pylist() if row["topic"] == "orders"}
    assert {offset: (row["severity"], row["kind"], row["transactionalId"]) for offset, row in rows.items()} == {
        1: ("error", "marker-missing", "b"), 2: ("error", "marker-missing", "c"), 3: ("error", "hanging-transaction", "d"),
        4: ("warning", "hanging-transaction", None),
    }  # fmt: skip
    assert "the coordinator says CompleteCommit (b), the marker is missing here" in rows[1]["detail"]
    assert "CompleteAbort" in rows[2]["detail"]
    (row,) = (row for row in done.partitions.to_pylist() if row["topic"] == "orders")
    assert (row["lastStableOffset"], row["recordsAboveStable"], row["openTransactions"]) == (0, 5, 5)
    assert row["bytesAboveStable"] == (tmp_path / "orders-0" / f"{0:020}.log").stat().st_size


def test_two_transactions_that_became_one_are_suspected(tmp_path: Path) -> None:
    put(tmp_path / "t-0", within(0, 0), data(1, 0, producer=1), within(3, 1), marker(4))
    put(tmp_path / "t-0", data(5, 1, producer=1), base=5)
    rows = kolumn.audit(tmp_path, now=NOW).findings.to_pylist()
    (row,) = (row for row in rows if row["kind"] == "marker-suspected")
    assert (row["firstOffset"], row["producerId"], row["severity"]) == (2, 7, "warning")
    # A marker after the place ended the transaction, so none can have been there.
    put(tmp_path / "other-0", within(0, 0), data(1, 0, producer=1), marker(3), within(4, 1), marker(5))
    assert [one for one in found(tmp_path / "other-0") if one[1].startswith("marker")] == []


def snapshot(folder: Path, offset: int, *rows: tuple[int, int, int, int, int]) -> None:
    """A snapshot of producers: id, epoch, last sequence, last offset, first offset of the open transaction."""
    body = struct.pack(">i", len(rows))
    for producer, epoch, sequence, last, begun in rows:
        body += struct.pack(">qhiqiqiq", producer, epoch, sequence, last, 0, T, 1, begun)
    (folder / f"{offset:020}.snapshot").write_bytes(struct.pack(">hI", 1, crc32c.crc32c(body)) + body)


def test_snapshots_of_producers_are_compared_with_the_log(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    put(log, within(0, 0), data(1, 0, producer=9))
    put(log, data(3, 1, producer=9), data(4, 2, producer=9), base=3)
    snapshot(log, 3, (7, 0, 0, 0, 0), (9, 0, 0, 1, -1))
    assert [one for one in found(log) if one[0] == "error"] == []
    # Its transaction was over at offset 3, so a marker was at offset 2.
    snapshot(log, 3, (7, 0, 0, 0, -1), (9, 0, 0, 1, -1))
    rows = [row for row in kolumn.audit(log, now=NOW).findings.to_pylist() if row["severity"] == "error"]
    assert [(row["kind"], row["firstOffset"], row["producerId"]) for row in rows] == [("marker-missing", 2, 7)]
    assert ("lost", 2, 2) in reasons(log)
    # Producer 8 had written a record there.
    snapshot(log, 3, (7, 0, 0, 0, 0), (8, 0, 5, 2, -1))
    assert ("error", "records-missing", 2) in found(log)
    # The broker stopped at offset 6, and the log ends before.
    snapshot(log, 6, (7, 0, 0, 0, 0), (9, 0, 3, 5, -1))
    assert ("warning", "ends-early", 5) in found(log)
    (log / f"{6:020}.snapshot").write_bytes(b"no snapshot")
    assert ("warning", "ends-early", 5) not in found(log)


def test_the_transaction_index_is_compared_with_the_log(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    put(log, within(0, 0), data(1, 0, producer=9), data(3, 1, producer=9))
    index = log / f"{0:020}.txnindex"
    index.write_bytes(struct.pack(">hqqqq", 0, 7, 0, 2, 2))
    (row,) = (row for row in kolumn.audit(log, now=NOW).findings.to_pylist() if row["kind"] == "marker-missing")
    assert (row["severity"], row["firstOffset"], row["producerId"]) == ("error", 2, 7)
    assert "ABORT marker at offset 2 ends the transaction that began at offset 0" in row["detail"]
    # Of an offset that is there, and of one after the end of the log, it proves nothing.
    for offset in (1, 4):
        index.write_bytes(struct.pack(">hqqqq", 0, 7, 0, offset, offset))
        assert "marker-missing" not in {kind for _, kind, _ in found(log)}


# Times.


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((T, T - 5000, T + 1), [("note", "timestamps-back", 1)]),
        ((T, NOW + 10, T), [("note", "timestamps-ahead", 1), ("note", "timestamps-back", 2)]),
        ((T, NOW + 3_600_001), [("warning", "timestamps-ahead", 1)]),
        ((T, T // 1000, T + 1), [("warning", "timestamp-unit", 1)]),
        ((T, T * 1000, T + 1), [("warning", "timestamp-unit", 1)]),
        ((T, T * 1_000_000, T + 1), [("warning", "timestamp-unit", 1)]),
        ((T, -1, T), [("note", "timestamps-none", 1)]),
        ((T, 2**60 // 100 * 3), [("warning", "timestamps-ahead", 1)]),
        ((0, 1, T), []),
    ],
)
def test_timestamps_that_are_none_of_their_records(tmp_path: Path, times: tuple[int, ...], expected: list[tuple[str, str, int]]) -> None:
    put(tmp_path / "t-0", *(batch([Record(i, b"k", b"v", time)]) for i, time in enumerate(times)))
    assert found(tmp_path) == expected


def test_times_of_the_broker(tmp_path: Path) -> None:
    def appended(offset: int, time: int) -> bytes:
        return batch([Record(offset, b"k", b"v", T - 99)], flags=LOG_APPEND_TIME, max_timestamp=time)

    put(tmp_path / "t-0", appended(0, T), appended(1, T - 7), appended(2, T + 1))
    (row,) = kolumn.audit(tmp_path, now=NOW).findings.to_pylist()
    assert (row["severity"], row["kind"], row["firstOffset"], "by 7 ms" in row["detail"]) == ("warning", "append-time-back", 1, True)
    put(tmp_path / "u-0", appended(0, T), batch([Record(1, b"k", b"v", T)]))
    assert ("note", "timestamp-types", 1) in found(tmp_path / "u-0")


# Offsets.


def reasons(source: Any) -> list[tuple[str, int, int]]:
    rows = kolumn.audit(source, now=NOW).offsets.to_pylist()
    return [(row["reason"], row["firstOffset"], row["lastOffset"]) for row in rows]


def test_absent_offsets_have_the_reason_that_is_in_evidence(tmp_path: Path) -> None:
    def plain(*offsets: int, base: int = 0, name: str = "t-0", folder: Path = tmp_path) -> Path:
        return put(folder / name, *(batch([Record(i, b"k", b"v", T)]) for i in offsets), base=base)

    plain(7, 8, base=7)
    assert reasons(tmp_path) == [("retention", 0, 6)]
    plain(10, 11, 14, base=10)
    assert reasons(tmp_path) == [("retention", 0, 6), ("unknown", 9, 9), ("lost", 12, 13)]
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    checkpoint.write_text("0\n1\nt 0 10\n")
    assert reasons(tmp_path) == [("retention", 0, 6), ("compaction", 9, 9), ("lost", 12, 13)]
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 10\n")
    assert reasons(tmp_path) == [("retention", 0, 6), ("retention", 7, 9), ("lost", 12, 13)]
    many = tmp_path / "many"
    plain(*range(0, 60, 3), folder=many)
    plain(60, base=60, folder=many)
    assert reasons(many) == [("compaction", 1, 59)]
    assert kolumn.audit(many, now=NOW).ok


def test_damage_and_missing_segments(tmp_path: Path) -> None:
    entries = [data(i, i) for i in range(9)]
    wrong = bytearray(entries[4])
    wrong[8:12] = b"\x7f\xff\xff\xff"
    put(tmp_path / "a" / "t-0", *entries[:4], bytes(wrong), *entries[5:])
    put(tmp_path / "a" / "t-0", data(9, 9), base=9)
    assert reasons(tmp_path / "a") == [("damage", 4, 4)]
    assert {kind for _, kind, _ in found(tmp_path / "a", "error")} == {"damage"}
    put(tmp_path / "b" / "t-0", *entries[:3])
    put(tmp_path / "b" / "t-0", *entries[6:], base=6)
    (tmp_path / "b" / "t-0" / f"{3:020}.index").write_bytes(struct.pack(">ii", 2, 100))
    assert ("error", "offsets-lost", 3) in found(tmp_path / "b")


def test_offsets_that_go_back(tmp_path: Path) -> None:
    put(tmp_path / "t-0", data(0, 0), data(3, 3), data(2, 2))
    assert ("warning", "offsets-back", 2) in found(tmp_path)


def test_copies_are_merged(tmp_path: Path) -> None:
    entries = [data(i, i) for i in range(9)]
    for name, missing in (("a", 3), ("b", 6)):
        wrong = bytearray(entries[missing])
        wrong[-1] ^= 1
        put(tmp_path / name / "t-0", *entries[:missing], bytes(wrong), *entries[missing + 1 :])
    done = kolumn.audit([tmp_path / "a", tmp_path / "b"], now=NOW)
    assert (done.ok, done.partitions.to_pylist()[0]["records"]) == (True, 9)
    for name in ("a", "b"):
        log = tmp_path / name / "t-0" / f"{0:020}.log"
        raw = bytearray(log.read_bytes())
        raw[len(entries[0]) * 8 - 1] ^= 1
        log.write_bytes(bytes(raw))
    both = [tmp_path / "a", tmp_path / "b"]
    assert kolumn.audit(both, now=NOW).ok
    assert ("error", "damage", 7) in found(both, check_crcs=True)
    assert [row["reason"] for row in kolumn.audit(both, now=NOW, check_crcs=True).offsets.to_pylist()] == ["damage"]


# What is above a limit, wrong arguments, the command.


def test_what_is_above_a_limit_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "MOST_FINDINGS", 3)
    monkeypatch.setattr(sequences, "MOST_PRODUCERS", 2)
    monkeypatch.setattr(sequences, "MOST_EPOCHS", 4)
    put(tmp_path / "t-0", *(data(i, 2 * i) for i in range(9)), *(data(9 + i, 0, producer=50 + i) for i in range(4)))
    put(tmp_path / "u-0", *(data(i, 0, epoch=i) for i in range(9)))
    done = kolumn.audit(tmp_path, now=NOW)
    assert (done.findings.num_rows, done.ok) == (3, False)
    said = {(row["path"], row["records"], row["reason"].split(":")[0]) for row in done.left_out.to_pylist()}
    assert said == {
        ("t-0", 5, "more findings"), ("t-0", 3, "batches of more producers than are known at a time were not judged"),
        ("u-0", 5, "runs of batches of more epochs than the table of producers has"),
    }  # fmt: skip
    assert done.partitions.to_pylist()[0]["errors"] == 8


def test_arguments_and_sources(tmp_path: Path) -> None:
    log = put(tmp_path / "t-0", data(0, 0), data(1, 5))
    raises(kolumn.ArgumentError, "expected 0 or more ms", kolumn.audit, log, open_longer_than_ms=-1)
    raises(kolumn.ArgumentError, "", kolumn.audit, tmp_path / "none")
    other = tmp_path / "any name.bin"
    other.write_bytes(log.read_bytes())
    for source in (log, other, log.read_bytes(), [log, other]):
        assert ("error", "sequence-gap", 1) in found(source)
    assert kolumn.audit(other, topic="x", partition=3).findings["topic"].to_pylist() == ["x"]
    assert "sequence-gap" in kolumn.audit(log)._repr_html_()


def test_the_report_has_a_picture_of_the_worst_partitions(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="reports need matplotlib")
    put(tmp_path / "good-0", data(0, 0), data(1, 1))
    page = tmp_path / "report.html"
    assert invoked("report", tmp_path, "-o", page).exit_code == 0
    assert "Nothing needs attention" in page.read_text()
    assert "Where it is in the log" not in page.read_text()
    for i in range(9):
        put(tmp_path / f"bad-{i}", within(0, 0), marker(1), within(2, 1, producer=8), data(4, 9))
        put(tmp_path / f"bad-{i}", data(5, 10), data(8, 13), base=5)
    invoked("report", tmp_path, "-o", page)
    text = page.read_text()
    assert "Not drawn: 1 more partition with findings or open transactions." in text
    assert "bad-1, offsets 0 to 8: 1 committed, 1 open, 2 absent stretches, 3 warnings, 2 errors" in text
    assert text.count("<svg") > 1


def test_the_command(tmp_path: Path) -> None:
    put(tmp_path / "good-0", data(0, 0), data(1, 1))
    done = invoked("audit", "--text", "--now", NOW, tmp_path)
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "OK: nothing needs attention: 1 partition, 2 batches")
    put(tmp_path / "bad-0", data(0, 0), data(1, 9), within(2, 10))
    done = invoked("audit", "--text", "--now", NOW, "--open-longer-than-ms", 1, tmp_path)
    assert done.exit_code == 1
    assert "error: sequence-gap: bad-0 at offset 1, producer 7 epoch 0: expected sequence 1, found 9" in done.stdout
    assert done.stdout.startswith("2 findings need attention: ")
    done = invoked("audit", "--json", "--now", NOW, tmp_path)
    rows = json.loads(done.stdout)
    assert (done.exit_code, rows["ok"], rows["findings"][0]["kind"]) == (1, False, "sequence-gap")
    assert set(rows) == {"ok", "findings", "producers", "transactions", "offsets", "partitions", "leftOut"}
    assert invoked("audit", tmp_path / "none").exit_code == 2
