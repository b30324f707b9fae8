"""What two copies of topic-partitions have that is not the same: `kolumn.diff` against a reference that reads every record."""

import json
import random
import shutil
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit import oracle
from kit.asked import invoked, offsets, put
from kit.corpus import HERE as CORPUS
from kit.elections import Case, is_doubtful, make
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch, message, wrapper
from kit.fuzz import FIRST, MUTANTS, failing
from kit.merge_reference import contents, same
from kit.streams import GZIP
from kit.tiers import aiven_of, tier_of
from kolumn.decode.host import chunks

TIME = 1_700_000_000_000
KINDS = {"only in A", "only in B", "content differs", "damaged in A", "damaged in B"}


def rows(first: int, count: int, mark: str = "") -> list[Record]:
    return [Record(at, b"k%d" % (at % 5), b"%d%s" % (at, mark.encode()), TIME + at % 1000) for at in range(first, first + count)]


def tens(first: int, stop: int, mark: str = "", **how: Any) -> list[bytes]:
    return [batch(rows(at, 10, mark), **how) for at in range(first, stop, 10)]


def pair(folder: Path, a: list[bytes], b: list[bytes], bases: tuple[int, int] = (0, 0)) -> tuple[Path, Path]:
    """Folders of one partition with a segment each."""
    put(folder / "a" / "t-0", *a, base=bases[0])
    put(folder / "b" / "t-0", *b, base=bases[1])
    return folder / "a" / "t-0", folder / "b" / "t-0"


def told(found: kolumn.Difference, *more: str) -> list[tuple[Any, ...]]:
    names = ("kind", "firstOffset", "lastOffset", "records", *more)
    return [tuple(row[name] for name in names) for row in found.differences.to_pylist()]


# The reference: every intact record of both sides, by offset.


def expected(case: Case) -> dict[int, str]:
    """The kind of each offset that differs, of calm logs: what is damaged in them has its header."""
    known: list[dict[int, oracle.Row]] = []
    hurt: list[set[int]] = []
    for files in case.copies[:2]:
        entries, gaps = contents(files)
        known.append({row.offset: row for entry in entries for row in entry.rows})
        hurt.append({at for gap in gaps for base, last, _ in gap.headers() or () for at in range(base, last + 1)})
    kinds = {}
    for at in sorted(known[0].keys() | known[1].keys()):
        left, right = known[0].get(at), known[1].get(at)
        if left is None or right is None:
            side, other = "AB" if right is None else "BA"
            lost = hurt["AB".index(other)]
            kinds[at] = f"damaged in {other}" if at in lost else f"only in {side}"
        elif not same(left, right):
            kinds[at] = "content differs"
    return kinds


def compare(seed: int, folder: Path) -> None:
    """Calm logs of brokers: each record that differs is listed with its kind, and no other."""
    case = make(seed, folder, calm=True)
    if len(case.folders) < 2 or not all(case.copies[:2]):
        return
    wanted = expected(case)
    found = kolumn.diff(*case.folders[:2], records=True, check_crcs=True)
    ends = [row for row in found.differences.to_pylist() if (row["reason"] or "").startswith("end of segment")]
    for row in ends:
        # An index lists entries that its segment does not have; the reference reads no index.
        wanted |= {at: row["kind"] for at in range(row["firstOffset"], row["lastOffset"] + 1) if at in wanted}
    assert {row["offset"]: row["kind"] for row in found.records.to_pylist()} == wanted, case.traits
    spans = [(kind, low, high) for kind, low, high, _ in told(found) if high is not None]
    for at, kind in wanted.items():
        assert any(own == kind and low <= at <= high for own, low, high in spans), (at, case.traits)
    quick = kolumn.diff(*case.folders[:2], check_crcs=True)
    assert told(quick, "leaderEpochA", "leaderEpochB") == told(found, "leaderEpochA", "leaderEpochB"), case.traits


def compare_hurt(seed: int, folder: Path) -> None:
    """Logs with any damage, in any format and order: no record that differs is silent, and equal logs are equal."""
    case = make(seed, folder)
    if len(case.folders) < 2 or not all(case.copies[:2]):
        return
    found = kolumn.diff(*case.folders[:2], check_crcs=True)
    first: list[dict[int, oracle.Row]] = []
    for files, folder in zip(case.copies[:2], case.folders[:2], strict=True):
        own: dict[int, oracle.Row] = {}
        found_by_reads = {*offsets(folder, errors="skip", include_control=True)}
        for entry in contents(files)[0]:
            for row in entry.rows:
                if row.offset in found_by_reads:
                    own.setdefault(row.offset, row)
        first.append(own)
    spans = [(low, low if high is None else high) for kind, low, high, _ in told(found) if kind in KINDS]
    if is_doubtful(case) or any("base offset: " in (row["reason"] or "") for row in found.differences.to_pylist()):
        # Which of two entries is in its place cannot be known.
        return
    for at in first[0].keys() | first[1].keys():
        left, right = first[0].get(at), first[1].get(at)
        if left is None or right is None or not same(left, right):
            assert any(low <= at <= high for low, high in spans), (at, case.traits)
    for folder in case.folders[:2]:
        itself = kolumn.diff(folder, folder, check_crcs=True)
        assert {kind[:7] for kind, *_ in told(itself)} <= {"damaged"}, case.traits


@pytest.fixture(params=["whole", "few"])
def entries_at_a_time(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs of the kit are loaded as a whole, or a few entries at a time, so that stretches cross the borders of windows."""
    if request.param == "few":
        monkeypatch.setattr(chunks, "FIRST_HEADERS", 2)
        monkeypatch.setattr(chunks, "MOST_ENTRIES", 3)


@pytest.mark.usefixtures("entries_at_a_time")
def test_each_record_of_diverged_brokers_is_told() -> None:
    assert not failing(compare, range(FIRST, FIRST + MUTANTS // 10))


@pytest.mark.usefixtures("entries_at_a_time")
def test_no_difference_of_damaged_logs_is_silent() -> None:
    assert not failing(compare_hurt, range(FIRST, FIRST + MUTANTS // 10))


# What is said of it.


def test_equal_logs_in_other_segments_are_identical(tmp_path: Path) -> None:
    entries = tens(0, 100)
    a, b = pair(tmp_path, entries, entries[:3])
    put(b, *entries[3:8], base=30)
    put(b, *entries[8:], base=80)
    found = kolumn.diff(a, b)
    assert (found.identical, found.equal, found.differences.num_rows) == (True, True, 0)
    (row,) = found.partitions.to_pylist()
    assert [row[name] for name in ("logStartA", "logEndA", "recordsA", "recordsB", "divergenceOffset")] == [0, 100, 100, 100, None]


def test_records_in_other_batches_and_codecs_are_equal(tmp_path: Path) -> None:
    whole = batch(rows(0, 30), codec=GZIP)
    found = kolumn.diff(*pair(tmp_path, tens(0, 40), [whole, *tens(30, 40)]))
    assert (found.equal, found.identical) == (True, False)
    assert told(found, "side", "reason") == [("storage differs", 0, 29, 30, "both", "codecs none and gzip, other batches")]


@pytest.mark.parametrize("magic", [0, 1])
def test_other_formats_are_compared_as_far_as_they_hold(magic: int, tmp_path: Path) -> None:
    some = [Record(one.offset, one.key, one.value, one.timestamp, ((b"h", b"v"),)) for one in rows(0, 6)]
    plain = [Record(one.offset, one.key, one.value, one.timestamp if magic else -1) for one in some]
    old = [*(message(magic, one) for one in plain[:3]), wrapper(magic, plain[3:], GZIP)]
    found = kolumn.diff(*pair(tmp_path, [batch(some)], old))
    assert found.equal, told(found)
    assert {kind for kind, *_ in told(found)} == {"storage differs"}
    plain[4] = Record(4, b"k4", b"other", plain[4].timestamp)
    put(tmp_path / "b" / "t-0", *(message(magic, one) for one in plain))
    found = kolumn.diff(tmp_path / "a" / "t-0", tmp_path / "b" / "t-0", records=True)
    (row,) = found.records.to_pylist()
    assert (row["offset"], row["fields"], row["valueSizeA"], row["valueSizeB"]) == (4, ["value"], 1, 5)


def test_where_leaders_parted(tmp_path: Path) -> None:
    common = tens(0, 50)
    a, b = pair(tmp_path, [*common, *tens(50, 80, "old")], [*common, *tens(50, 60, "new", leader_epoch=1)])
    found = kolumn.diff(a, b)
    names = ("commonEpoch", "divergenceOffset", "beyondA", "beyondB", "firstDifference", "isEqual")
    (row,) = found.partitions.to_pylist()
    assert [row[name] for name in names] == [0, 50, 30, 10, 50, False]
    assert told(found, "leaderEpochA", "leaderEpochB", "reason") == [
        ("content differs", 50, 59, 10, 0, 1, "value"), ("only in A", 60, 79, 20, 0, None, "above B's log end"),
    ]  # fmt: skip
    # A checkpoint knows of an election before any record; one that batches contradict does not count.
    put(b, *common)
    (b / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 50\n")
    assert kolumn.diff(a, b).partitions["divergenceOffset"].to_pylist() == [50]
    (b / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 20\n")
    assert kolumn.diff(a, b).partitions["divergenceOffset"].to_pylist() == [None]


def test_records_beyond_the_divergence_are_counted_in_stretches_that_span_it(tmp_path: Path) -> None:
    common = tens(0, 50)
    lost = [batch([one for one in rows(50, 40, "old") if one.offset % 4 == 0], base_offset=50, last_offset=89)]
    a, b = pair(tmp_path, [*common, *lost], [*common, *tens(70, 90, "new", leader_epoch=1)])
    found = kolumn.diff(a, b)
    (row,) = found.partitions.to_pylist()
    assert (row["divergenceOffset"], row["beyondA"], row["beyondB"]) == (70, 5, 20)
    swapped = kolumn.diff(b, a).partitions.to_pylist()[0]
    assert (swapped["beyondA"], swapped["beyondB"]) == (20, 5)


def test_retention_and_lag_have_their_reasons(tmp_path: Path) -> None:
    entries = tens(0, 60)
    found = kolumn.diff(*pair(tmp_path, entries[2:], entries[:5], (20, 0)))
    assert told(found, "reason") == [
        ("only in B", 0, 19, 20, "below A's log start"), ("only in A", 50, 59, 10, "above B's log end"),
    ]  # fmt: skip
    found = kolumn.diff(*pair(tmp_path / "cut", [*entries[:2], b"\xff" * 300], entries[:5]))
    assert told(found, "reason")[-1] == ("only in B", 20, 49, 30, "above A's log end, which is damaged")
    found = kolumn.diff(*pair(tmp_path / "x", entries, [*entries[:2], *entries[4:]]))
    assert told(found, "reason") == [("only in A", 20, 39, 20, None)]


def test_rows_name_producers_times_and_places(tmp_path: Path) -> None:
    a, b = pair(tmp_path, [*tens(0, 20), *tens(20, 40, producer_id=7, producer_epoch=1, base_sequence=0)], tens(0, 20))
    (row,) = kolumn.diff(a, b).differences.to_pylist()
    assert (row["producers"], row["segmentA"], row["segmentB"]) == ([7], str(a / f"{0:020}.log"), None)
    assert (row["positionA"], row["bytes"]) == (sum(map(len, tens(0, 20))), sum(map(len, tens(20, 40, producer_id=7, base_sequence=0))))
    assert [round(row[name].timestamp() * 1000) for name in ("firstTimestamp", "lastTimestamp")] == [TIME + 20, TIME + 39]


def test_damage_inside_of_equal_batches_is_seen_by_checksums_alone(tmp_path: Path) -> None:
    a, b = pair(tmp_path, tens(0, 50), tens(0, 50))
    path = a / f"{0:020}.log"
    data, at = bytearray(path.read_bytes()), len(b"".join(tens(0, 20))) + 80
    data[at] ^= 1
    path.write_bytes(data)
    assert kolumn.diff(a, b).identical
    found = kolumn.diff(a, b, check_crcs=True, records=True)
    assert told(found) == [("damaged in A", 20, 29, 10)]
    assert found.records["kind"].to_pylist() == ["damaged in A"] * 10
    assert not found.equal


def test_bytes_that_are_no_batch_are_damage_of_one_side(tmp_path: Path) -> None:
    entries = tens(0, 50)
    a, b = pair(tmp_path, [*entries[:2], b"\xff" * 200, *entries[4:]], entries)
    assert told(kolumn.diff(a, b)) == [("damaged in A", 20, 39, 20)]


@pytest.mark.parametrize("byte", [10, 11, 24, 26, 59], ids=["length", "small length", "last offset", "near last offset", "count"])
def test_headers_that_others_contradict_are_read_with_checksums(byte: int, tmp_path: Path) -> None:
    entries = tens(0, 300)
    for hurt in (15, 29):
        wrong = bytearray(entries[hurt])
        wrong[byte] ^= 4 if byte in (11, 26) else 16
        a, b = pair(tmp_path / str(hurt), entries, [*entries[:hurt], bytes(wrong), *entries[hurt + 1 :]])
        found = kolumn.diff(a, b, records=True)
        assert {row["offset"] for row in found.records.to_pylist()} == set(range(10 * hurt, 10 * hurt + 10))
        if hurt == 15:
            assert told(found) == told(kolumn.diff(a, b)) == [("damaged in B", 150, 159, 10)]


def test_unfinished_ends_are_no_damage(tmp_path: Path) -> None:
    entries = tens(0, 50)
    for tail in (bytes(500), entries[3][:40]):
        a, b = pair(tmp_path / str(len(tail)), [*entries[:3], tail], entries)
        assert told(kolumn.diff(a, b), "reason") == [("only in B", 30, 49, 20, "above A's log end")]


def compacted(records: list[Record], dirty: int) -> list[bytes]:
    """As a cleaner leaves a log: of the records below an offset the last one of each key, each in its batch of ten."""
    last = {one.key: one.offset for one in records}
    kept = [one for one in records if one.offset >= dirty or last[one.key] == one.offset]
    tens_of = {one.offset // 10: [other for other in kept if other.offset // 10 == one.offset // 10] for one in kept}
    return [batch(own, base_offset=10 * ten, last_offset=10 * ten + 9) for ten, own in tens_of.items()]


def test_what_compaction_removed_is_no_difference(tmp_path: Path) -> None:
    records = [*rows(0, 60), *(Record(at, b"gone", b"x" if at < 65 else None, TIME + at) for at in range(60, 70)), *rows(70, 30)]
    a, b = pair(tmp_path, compacted(records, 40), compacted([one for one in records if one.key != b"gone"], 90))
    assert not kolumn.diff(a, b).equal
    found = kolumn.diff(a, b, compacted=True)
    assert found.equal, told(found)
    # The last record of a key, and a tombstone of a key that the other side still has.
    for key, at in ((b"k1", 96), (b"k2", 97)):
        lost = [one for one in records if one.key != b"gone" and one.offset != at]
        if key == b"k2":
            changed = [Record(at, key, None, TIME + at) if one.offset == at else one for one in records]
            a, b = pair(tmp_path / "tomb", compacted(changed, 40), compacted(lost, 90))
        else:
            a, b = pair(tmp_path / "lost", compacted(records, 40), compacted(lost, 90))
        found = kolumn.diff(a, b, compacted=True, records=True)
        assert [(row["kind"], row["offset"], row["keyA"]) for row in found.records.to_pylist() if row["kind"] == "only in A"] == [
            ("only in A", at, key)
        ]


def test_damage_that_a_read_of_all_keys_finds_is_told(tmp_path: Path) -> None:
    a, b = pair(tmp_path, tens(0, 50), tens(0, 40))
    path = a / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(data)
    assert told(kolumn.diff(a, b)) == [("only in A", 40, 49, 10)]
    assert ("damaged in A", 0, 9, 10) in told(kolumn.diff(a, b, compacted=True))


def test_aborted_records_are_no_state_of_a_compacted_topic(tmp_path: Path) -> None:
    open_one = batch(rows(10, 5, "x"), flags=TRANSACTIONAL, producer_id=3, producer_epoch=0, base_sequence=0)
    abort = control_batch(15, 0, producer_id=3, producer_epoch=0)
    a, b = pair(tmp_path, [*tens(0, 10), open_one, abort, *tens(20, 30)], [*tens(0, 10), abort, *tens(20, 30)])
    assert not kolumn.diff(a, b).equal
    assert kolumn.diff(a, b, compacted=True).equal


def test_an_open_transaction_makes_nothing_dead(tmp_path: Path) -> None:
    going_on = batch([Record(10, b"k3", b"new", TIME)], flags=TRANSACTIONAL, producer_id=3, producer_epoch=0, base_sequence=0)
    after = batch([Record(11, b"k4", b"new", TIME)])
    a, b = pair(tmp_path, [batch(rows(3, 2)), going_on, after], [going_on, after])
    found = kolumn.diff(a, b, compacted=True, records=True)
    assert [(row["kind"], row["offset"]) for row in found.records.to_pylist()] == [("only in A", 3), ("only in A", 4)]
    commit = control_batch(12, 1, producer_id=3, producer_epoch=0)
    put(a, batch(rows(3, 2)), going_on, after, commit)
    put(b, going_on, after, commit)
    assert kolumn.diff(a, b, compacted=True).equal
    # Of the records above the last stable offset the last ones count.
    put(a, going_on, after, batch(rows(12, 1)))
    put(b, going_on, after)
    assert told(kolumn.diff(a, b, compacted=True)) == [("only in A", 12, 12, 1)]


def test_partitions_are_matched_and_one_sided_ones_are_told(tmp_path: Path) -> None:
    for side, partitions in (("a", ("t-0", "t-1", "u-0")), ("b", ("t-0", "t-1", "v-0"))):
        for name in partitions:
            put(tmp_path / side / name, *tens(0, 20))
        (tmp_path / side / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {side * 22}")
    found = kolumn.diff(tmp_path / "a", tmp_path / "b")
    assert [(row["topic"], row["partition"], row["isEqual"]) for row in found.partitions.to_pylist()] == [
        ("t", 0, True), ("t", 1, True), ("u", 0, False), ("v", 0, False),
    ]  # fmt: skip
    assert told(found, "reason") == [
        ("only in A", 0, 19, 20, "B has no such partition"),
        ("only in B", 0, 19, 20, "A has no such partition"),
    ]
    first = found.partitions.to_pylist()[0]
    assert (first["topicIdA"], first["topicIdB"], first["topicIdsDiffer"]) == ("a" * 22, "b" * 22, True)
    other = kolumn.diff(tmp_path / "a" / "u-0", tmp_path / "b" / "v-0")
    assert (other.identical, other.partitions["topic"].to_pylist(), other.partitions["nameB"].to_pylist()) == (True, ["u"], ["v-0"])


def test_copies_within_a_side_are_merged_if_asked(tmp_path: Path) -> None:
    entries = tens(0, 50)
    for name, own in (("1", entries[:3]), ("2", entries[1:])):
        put(tmp_path / name / "t-0", *own, base=0 if name == "1" else 10)
    put(tmp_path / "b" / "t-0", *entries)
    sides = [tmp_path / "1", tmp_path / "2"]
    with pytest.raises(kolumn.ArgumentError, match="replicas='merge'"):
        kolumn.diff(sides, tmp_path / "b")
    assert kolumn.diff(sides, tmp_path / "b", replicas="merge").identical
    assert told(kolumn.diff(sides, tmp_path / "b", replicas="first"), "reason") == [("only in B", 30, 49, 20, "above A's log end")]


def test_a_folder_and_its_tier_are_compared(tmp_path: Path) -> None:
    log = CORPUS / "transactional" / "txn-zstd-0"
    tier = tier_of(log, tmp_path / "tier")
    bases = sorted(int(path.stem) for path in log.glob("*.log"))
    end = kolumn.batches(log)["lastOffset"][-1].as_py()
    assert told(kolumn.diff(log, tier), "reason") == [("only in A", bases[-1], end, end - bases[-1] + 1, "above B's log end")]
    aiven_of(log, tmp_path / "aiven", 4096)
    found = kolumn.diff(log, tmp_path / "aiven")
    assert (found.identical, found.partitions["nameB"].to_pylist()) == (True, [None])


def test_the_number_of_listed_records_is_bounded(tmp_path: Path) -> None:
    a, b = pair(tmp_path, tens(0, 50), tens(0, 20))
    found = kolumn.diff(a, b, records=True, max_records=7)
    assert (found.records["offset"].to_pylist(), found.records_left_out) == (list(range(20, 27)), 23)
    with pytest.raises(kolumn.ArgumentError, match="max_records"):
        kolumn.diff(a, b, max_records=-1)
    with pytest.raises(kolumn.ArgumentError, match="errors"):
        kolumn.diff(a, b, errors="raise")


# Logs that nobody wrote so.


def test_offsets_that_go_back_are_told_and_equal_ones_are_equal(tmp_path: Path) -> None:
    entries = tens(0, 50)
    back = [*entries[:4], entries[1], entries[4]]
    a, b = pair(tmp_path, back, entries)
    assert told(kolumn.diff(a, b)) == [("damaged in A", 10, 19, 10)]
    assert kolumn.diff(a, a).identical


def test_overlapping_segments_and_wrong_base_offsets(tmp_path: Path) -> None:
    entries = tens(0, 60)
    a, b = pair(tmp_path, entries[:4], entries)
    put(a, *entries[2:], base=20)
    assert told(kolumn.diff(a, b)) == [("damaged in A", 20, 39, 20)]
    wrong = bytearray(b"".join(entries))
    at = len(b"".join(entries[:2]))
    wrong[at : at + 8] = (2**62).to_bytes(8, "big")
    a, b = pair(tmp_path / "x", [bytes(wrong)], entries)
    assert told(kolumn.diff(a, b)) == [("damaged in A", 20, 29, 10)]


@pytest.mark.parametrize("end", [2**63 - 1, 2**62, 2**31])
def test_offsets_near_the_end_of_their_type(end: int, tmp_path: Path) -> None:
    first = end - 9
    a, b = pair(tmp_path, [batch(rows(first, 10))], [batch(rows(first, 5)), batch(rows(first + 5, 5))], (first, first))
    assert told(kolumn.diff(a, b)) == [("storage differs", first, end, 10)]
    put(b, batch(rows(first, 5)), base=first)
    assert told(kolumn.diff(a, b)) == [("storage differs", first, first + 4, 5), ("only in A", first + 5, end, 5)]


def hostile(seed: int, folder: Path) -> None:
    """Random bytes, and batches with random headers: an answer in bounded time, and no record that is silently equal."""
    rng = random.Random(seed)
    entries = tens(0, 60)
    for side in "ab":
        data = bytearray(b"".join(entries))
        for _ in range(rng.randrange(6)):
            at = rng.randrange(len(data))
            data[at : at + 8] = rng.choice((rng.randbytes(8), bytes(8), b"\xff" * 8, (2**63 - 1).to_bytes(8, "big")))
        put(folder / side / "t-0", rng.choice((bytes(data), bytes(data), rng.randbytes(300), b"")))
    for how in ({}, {"check_crcs": True}, {"records": True}, {"compacted": True}):
        found = kolumn.diff(folder / "a", folder / "b", **how)
        if how == {"check_crcs": True} and found.equal:
            left, right = (kolumn.read(folder / side, errors="skip", columns=["offset", "value"]) for side in "ab")
            assert left.equals(right)


def test_hostile_bytes_are_compared() -> None:
    assert not failing(hostile, range(FIRST, FIRST + MUTANTS // 10))


def passed_over(data: bytes, entries: list[bytes], lasts: list[int]) -> set[int]:
    """Offsets of entries that a wrong length leads past, to the beginning of a later one: headers alone do not tell of them."""
    starts = dict(zip(accumulate(map(len, entries), initial=0), range(len(entries) + 1), strict=True))
    found = set[int]()
    for at, number in starts.items():
        after = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if after in starts and after > at and number < len(lasts):
            found |= set(range(lasts[number] + 1, lasts[starts[after] - 1] + 1))
    return found


def flipped(seed: int, folder: Path) -> None:
    """Bits of headers, lengths and ends are wrong on a side or both: no record that both sides read equally differs, or is missing."""
    rng = random.Random(seed)
    entries, lasts = list[bytes](), list[int]()
    passed = set[int]()
    for at in range(0, 200, 10):
        some = rows(at, 10)
        old = [wrapper(1, some, GZIP)] if rng.random() < 0.5 else [message(rng.randrange(2), one) for one in some]
        entries += [batch(some, codec=rng.choice((0, GZIP)))] if at >= 60 or seed % 2 else old
        lasts += [at + 9] if len(entries) == len(lasts) + 1 else range(at, at + 10)
    for side in "ab":
        data, hit = bytearray(b"".join(entries)), list[int]()
        for _ in range(rng.randrange(1, 4) if side == "b" or seed % 3 else 0):
            # Base offsets are judged by the entries around them: of several damaged ones in a row all may be taken for wrong.
            chosen = rng.randrange(len(entries))
            if any(abs(chosen - other) < 5 for other in hit):
                continue
            hit.append(chosen)
            start = len(b"".join(entries[:chosen]))
            byte = start + rng.choice((*range(61), *range(8, 12), 10, 11, 16, 23, 24, 25, 26))
            if byte < len(data):
                data[byte] ^= 1 << rng.randrange(8)
        if rng.random() < 0.2:
            data[rng.randrange(len(data)) :] = bytes(rng.randrange(300))
        put(folder / side / "t-0", bytes(data))
        passed |= passed_over(bytes(data), entries, lasts)
    whole = ["offset", "key", "value", "timestamp", "headers", "isTransactional", "producerId"]
    read = [kolumn.read(folder / side, errors="skip", include_control=True, columns=whole) for side in "ab"]
    a, b = ({row["offset"]: row for row in table.to_pylist()} for table in read)
    # No checksum covers a base offset: which of two batches with one offset is the right one cannot be known. Batches have ten records.
    twice = {at + k for table in read for at, count in Counter(table["offset"].to_pylist()).items() if count > 1 for k in range(-9, 10)}
    equal = {at for at in a.keys() & b.keys() if a[at] == b[at]} - twice
    for how in ({"records": True, "check_crcs": True}, {"records": True}):
        equal -= passed if "check_crcs" not in how else set()
        found = kolumn.diff(folder / "a", folder / "b", **how)
        unlike = {row["offset"] for row in found.records.to_pylist() if not row["kind"].startswith("damaged")}
        assert not unlike & equal, (how, sorted(unlike & equal))
        quick = kolumn.diff(folder / "a", folder / "b", check_crcs="check_crcs" in how)
        only = [(low, high) for kind, low, high, _ in told(quick) if kind in KINDS and not kind.startswith("damaged")]
        wrong = [at for at in equal if any(low <= at <= high for low, high in only)]
        assert not wrong, (how, sorted(wrong), told(quick))


def test_records_that_both_sides_read_are_equal_whatever_is_damaged_around_them() -> None:
    assert not failing(flipped, range(FIRST, FIRST + MUTANTS // 10))


def test_empty_sides(tmp_path: Path) -> None:
    a, b = pair(tmp_path, [], [])
    assert kolumn.diff(a, b).identical
    (tmp_path / "none").mkdir()
    with pytest.raises(kolumn.ArgumentError, match="no segment"):
        kolumn.diff(tmp_path / "none", b)
    assert kolumn.diff(b"", batch(rows(0, 3))).differences["records"].to_pylist() == [3]


def test_segments_of_real_brokers_are_equal_to_themselves(tmp_path: Path) -> None:
    for folder in sorted(CORPUS.glob("*/*-0"))[:12]:
        copy = shutil.copytree(folder, tmp_path / folder.parent.name / folder.name)
        assert kolumn.diff(folder, copy).identical, folder
        assert kolumn.diff(folder, copy, compacted=True, records=True).identical, folder


# The command.


def test_the_command_says_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    common = tens(0, 50)
    a, b = pair(tmp_path, [*common, *tens(50, 80, "old")], [*common, *tens(50, 60, "new", leader_epoch=1)])
    (a / "partition.metadata").write_text("version: 0\ntopic_id: " + "x" * 22)
    (b / "partition.metadata").write_text("version: 0\ntopic_id: " + "y" * 22)
    said = invoked("diff", a, b, "--text", "--records", "--max-records", "1")
    lines = said.output.splitlines()
    assert said.exit_code == 1
    assert lines[1].startswith("t-0: no replicas: two topics of this name")
    assert lines[2].startswith("t-0: the leaders parted at offset 50, after leader epoch 0: from there on A has 30 records that B lacks")
    assert "29 records more differ" in said.output
    assert lines[0] == "DIFFERENT: 1 of 1 partition"
    told_json = json.loads(invoked("diff", a, b, "--json", "--records").output)
    assert (told_json["equal"], len(told_json["records"]), told_json["records"][0]["keyAEncoding"]) == (False, 30, "utf-8")
    unread = "; checksums were not compared: --check-crcs does"
    assert invoked("diff", a, a, "--text").output == f"IDENTICAL: 1 partition{unread}\n"
    assert invoked("diff", a, a, "--text", "--check-crcs").output == "IDENTICAL: 1 partition\n"
    put(b, batch(rows(0, 50), codec=GZIP), *tens(50, 80, "old"))
    said = invoked("diff", a, b, "--text")
    expected = f"EQUAL: every record of 1 partition, stored otherwise in 1 stretch{unread}"
    assert (said.exit_code, said.output.splitlines()[0]) == (0, expected)


def test_equal_batches_are_not_read(tmp_path: Path) -> None:
    """Of 16 KiB batches less than a twentieth is read; `bench/diff.py` measures larger logs."""

    def read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    large = [batch([Record(at, None, bytes(16_300), TIME)]) for at in range(200)]
    a, b = pair(tmp_path, large, large)
    assert kolumn.diff(a, b).identical
    before = read()
    assert kolumn.diff(a, b).identical
    quick, before = read() - before, read()
    kolumn.diff(a, b, check_crcs=True)
    size = 2 * sum(map(len, large))
    assert quick < size / 20 < size <= read() - before


def test_equal_batches_between_others_are_no_part_of_a_stretch(tmp_path: Path) -> None:
    sides = [tmp_path / side / "t-0" / f"{0:020}.log" for side in "ab"]
    for log, end in zip(sides, (b"", b"!"), strict=True):
        log.parent.mkdir(parents=True)
        log.write_bytes(b"".join(batch([Record(i, b"k", b"v" + (end if i % 2 else b""), 0)]) for i in range(40)))
    found = kolumn.diff(*(log.parent for log in sides)).differences
    expected = [("content differs", i, i, 1) for i in range(1, 40, 2)]
    assert [tuple(row.values()) for row in found.select(["kind", "firstOffset", "lastOffset", "records"]).to_pylist()] == expected
