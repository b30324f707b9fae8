"""Several directories of one topic-partition are one log if they do not overlap; damaged copies are merged into one whole log."""

import logging
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import kolumn
from kit import asked
from kit.asked import invoked, skipping
from kit.corpus import HERE as CORPUS
from kit.corpus import Case
from kit.encoder import TRANSACTIONAL, batch, control_batch, message, wrapper
from kit.fuzz import MUTANTS
from kit.outcome import raises
from kit.partitions import SOURCE
from kit.replicas import ALL_COLUMNS, CASES, check, copy, flip, last_bytes, logs, merged, read, records, write_log
from kolumn.copies.copies import overlaps
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.tools.statistics import collect


def offsets(*folders: Path, **options: Any) -> list[int]:
    return merged(*folders, **options)["offset"].to_pylist()


@pytest.fixture
def copies(tmp_path: Path) -> list[Path]:
    """Two copies of `SOURCE`."""
    return [copy(SOURCE, tmp_path / name) for name in ("b1", "b2")]


def tens(count: int, **how: Any) -> list[bytes]:
    """Batches of ten records each."""
    return [batch(records(10 * i, 10), **how) for i in range(count)]


def test_copies_are_an_error_that_says_what_to_do(copies: list[Path], tmp_path: Path) -> None:
    second, last = logs(copies[0])[1], pc.max(read(SOURCE)["offset"]).as_py()
    for source in (copies, [tmp_path / "b1", tmp_path / "b2"], f"{tmp_path}/b*", [second, copies[1]]):
        for call in (kolumn.read, kolumn.batches):
            caught = raises(kolumn.ArgumentError, "", call, source)
            text, first = str(caught), int(second.stem) if source[0] == second else 0
            assert text.startswith(f"many-segments-0: offsets {first} to {last if source == copies else ''}")
            assert all(word in text for word in (*map(str, copies), "replicas='merge'", "replicas='first'", "name one"))


def test_one_directory_by_several_names_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, linked = copy(SOURCE, tmp_path / "disk"), tmp_path / "file.d" / SOURCE.name
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    linked.mkdir(parents=True)
    for path in logs(folder):
        (linked / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    names = [folder, f"disk/../disk/{SOURCE.name}", tmp_path / "link" / SOURCE.name, "link", linked]
    assert read(names).equals(read(folder))
    assert read(names[::-1])["offset"].equals(read(folder)["offset"])


def remove(log: Path) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        log.with_suffix(suffix).unlink()


def halves(copies: list[Path]) -> list[Path]:
    """Every second entry of them is damaged, in turns, so that none is damaged in both; of long logs at both ends."""
    for i, folder in enumerate(copies):
        count = kolumn.batches(folder).num_rows
        last_bytes(folder, lambda number, i=i, count=count: number % 2 == i and (count < 3000 or min(number, count - number) < 200))
    return copies


@pytest.mark.parametrize("threads", [1, 4])
def test_parts_that_do_not_overlap_are_one_log(copies: list[Path], threads: int) -> None:
    """Segments of one partition alternate between two disks, which are named in any order."""
    for number, pair in enumerate(zip(*map(logs, copies), strict=True)):
        remove(pair[number % 2])
    expected = read(SOURCE)
    middle = expected["offset"][len(expected) // 2].as_py()
    for replicas in ("raise", "merge"):
        for folders in (copies, copies[::-1]):
            assert read(folders, replicas=replicas, threads=threads).equals(expected)
            part = read(folders, replicas=replicas, threads=threads, start_offset=middle, end_offset=middle + 100)
            assert part.equals(read(SOURCE, start_offset=middle, end_offset=middle + 100))
    assert overlaps(live_segments(copies, Options.of()).segments) == []
    assert read(copies[::-1], replicas="first").equals(read(copies[1]))


def test_first_takes_the_first_directory(copies: list[Path], tmp_path: Path) -> None:
    remove(logs(copies[1])[-1])
    for folders in (copies, copies[::-1]):
        assert read(folders, replicas="first").equals(read(folders[0]))
    beside = copy(CORPUS / "v0" / sorted(os.listdir(CORPUS / "v0"))[0], tmp_path / "b2")
    assert len(read([tmp_path / "b1", tmp_path / "b2"], replicas="first")) == len(read(copies[0])) + len(read(beside))


def test_overlaps_are_listed(tmp_path: Path) -> None:
    one = write_log(tmp_path / "a", (0, [batch(records(0, 10))]), (10, [batch(records(10, 10))]))
    other = write_log(tmp_path / "b", (15, [batch(records(15, 5)), batch(records(20, 5))]))
    write_log(tmp_path / "c", (25, [batch(records(25, 5))]))
    (found,) = overlaps(live_segments([tmp_path / "a", tmp_path / "b", tmp_path / "c"], Options.of()).segments)
    assert (found.topic, found.partition, found.folders, found.first, found.last) == ("t", 0, (str(one), str(other)), 15, 19)
    assert str(found) == f"t-0: offsets 15 to 19 are in {one} and in {other}"
    # One has a hole that the other fills: no offset is there twice, which the names of the segments do not show.
    hole = write_log(tmp_path / "d", (0, [batch(records(0, 15))]), (25, [batch(records(25, 5))]))
    assert overlaps(live_segments([hole, other], Options.of()).segments) == []
    assert read([hole, other])["offset"].to_pylist() == list(range(30))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_two_damaged_copies_become_a_whole_one(case: Case, tmp_path: Path) -> None:
    expected = read(case.directory)
    folders = halves([copy(case.directory, tmp_path / name) for name in ("b1", "b2")])
    assert merged(*folders, threads=1).equals(expected)
    found, skipped = skipping(folders[::-1], replicas="merge", threads=4, binary="view", include_control=True)
    assert (found["offset"].equals(expected["offset"]), skipped.damage) == (True, [])


@pytest.mark.parametrize(
    "way",
    [lambda log: os.truncate(log, kolumn.batches(log)["position"][3].as_py()), lambda log: os.truncate(log, 0), Path.unlink],
    ids=["cut between batches", "emptied", "removed"],
)
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_what_only_index_files_know_of(copies: list[Path], way: Callable[[Path], None], number: int) -> None:
    """Nothing is left in the log itself: records that no copy has are an error, and records that one copy has are read from it."""
    way(logs(copies[0])[number])
    for folders in (copies, copies[::-1]):
        assert merged(*folders).equals(read(SOURCE))
    way(logs(copies[1])[number])
    left, skipped = skipping(copies, replicas="merge", columns=ALL_COLUMNS)
    assert left.num_rows < read(SOURCE).num_rows
    if number == 4 and way is not Path.unlink:
        # An active segment may be shorter than its indexes, which may have been copied later.
        assert merged(*copies).equals(left)
        return
    assert len(skipped.damage) == 1
    raises(kolumn.CorruptBatchError, r"according to|which lists offset", merged, *copies)


@pytest.mark.parametrize("threads", [1, 4])
def test_whatever_happened_to_them(tmp_path: Path, threads: int) -> None:
    """Segments are cut, zeroed, emptied and missing in three copies, which together have all records."""
    copies = [copy(SOURCE, tmp_path / f"b{i}") for i in range(3)]
    first, second, third = map(logs, copies)
    last_bytes(copies[2], lambda number: number < 4)
    os.truncate(first[0], first[0].stat().st_size // 2)
    first[1].write_bytes(bytes(first[1].stat().st_size))
    first[2].unlink()
    os.truncate(first[4], first[4].stat().st_size - 30)
    size = second[0].stat().st_size // 3
    second[0].write_bytes(random.Random(1).randbytes(size) + second[0].read_bytes()[size:])
    second[3].write_bytes(b"")
    second[4].unlink()
    third[2].write_bytes(third[2].read_bytes()[7:])
    flip(third[4], 8)
    assert merged(*copies, threads=threads).equals(read(SOURCE))


def test_damage_that_no_copy_can_fill(copies: list[Path]) -> None:
    rows = [row for row in kolumn.batches(SOURCE).to_pylist() if row["segment"] == str(logs(SOURCE)[1])]
    lost, (one, other) = rows[2], (logs(folder)[1] for folder in copies)
    for log, row in ((one, rows[4]), (other, rows[1])):
        flip(log, lost["position"] + lost["size"] - 1)
        flip(log, row["position"] + 90)
    caught = raises(kolumn.CorruptBatchError, "", merged, *copies)
    assert (caught.segment, caught.position) == (str(one), lost["position"])
    skipped, expected = kolumn.Skipped(), read(SOURCE)
    left = pc.or_(pc.less(expected["offset"], lost["baseOffset"]), pc.greater(expected["offset"], lost["lastOffset"]))
    assert merged(*copies, errors="skip", on_damage=skipped).equals(expected.filter(left))
    (piece,) = skipped.damage
    assert (piece.segment, piece.position, piece.size) == (str(one), lost["position"], lost["size"])
    assert (piece.base_offset, piece.last_offset, piece.records_lost) == (lost["baseOffset"], lost["lastOffset"], lost["count"])


def test_a_follower_that_lags(copies: list[Path]) -> None:
    """It ends earlier, with half an entry at its end: that is not damage. Entries that its leader lost there are damage."""
    leader, follower = copies
    logs(follower)[-1].unlink()
    os.truncate(logs(follower)[-1], logs(follower)[-1].stat().st_size - 10)
    for folders in (copies, copies[::-1]):
        assert merged(*folders).equals(read(SOURCE))
    damaged = logs(leader)[-1]
    flip(damaged, damaged.stat().st_size - 1)
    for folders in (copies, copies[::-1]):
        caught = raises(kolumn.CorruptBatchError, "", merged, *folders)
        assert caught.segment == str(damaged)


def test_a_damaged_end_that_another_copy_has(tmp_path: Path) -> None:
    """The offsets of the last entries of a copy are not known, but another copy has the same number of bytes there."""
    entries = tens(6)
    noise = [b"\x11" * 8 + entry[8:-20] + b"\x07" * 20 for entry in entries[4:]]
    one = write_log(tmp_path / "a", (0, [*entries[:4], *noise]))
    other = write_log(tmp_path / "b", (0, [entries[0], entries[1][:-1] + b"?", *entries[2:]]))
    assert offsets(one, other) == offsets(other, one) == list(range(60))
    shorter = write_log(tmp_path / "c", (0, entries[:5]))
    raises(kolumn.CorruptBatchError, "", merged, one, shorter)
    assert offsets(one, shorter, errors="skip") == list(range(50))


@pytest.mark.parametrize("start", [20, 30])
def test_a_damaged_end_before_another_copy_begins(tmp_path: Path, start: int) -> None:
    """The other copy has as many bytes as were lost, and more, but of later offsets."""
    entries = tens(8)
    one = write_log(tmp_path / "a", (0, [entries[0], entries[1][:-1] + b"?"]))
    other = write_log(tmp_path / "b", (start, entries[start // 10 :]))
    for folders in ((one, other), (other, one)):
        caught = raises(kolumn.CorruptBatchError, "", merged, *folders)
        assert caught.base_offset == 10
        assert offsets(*folders, errors="skip") == [*range(10), *range(start, 80)]
    write_log(tmp_path / "whole", (10, entries[1:]))
    assert offsets(one, tmp_path / "whole" / "t-0") == list(range(80))


def test_other_segment_boundaries(tmp_path: Path) -> None:
    """Brokers roll segments independently: one copy has few segments, the other many, and both are damaged."""
    table = kolumn.read(CORPUS / "v2-java", columns=["offset", "key", "value", "topic", "partition"], errors="skip")
    table = table.filter(pc.equal(table["topic"], table["topic"][0])).slice(0, 2000).drop_columns(["topic", "partition"])
    folders = [tmp_path / name / "t-0" for name in ("small", "large", "whole")]
    for folder, size in zip(folders, (3000, 40_000, 1 << 30), strict=True):
        kolumn.write(table, folder, batch_bytes=1000, segment_bytes=size)
    small, large, whole = (len(logs(folder)) for folder in folders)
    assert small > large > whole == 1
    expected = read(folders[2])
    for i, folder in enumerate(folders):
        last_bytes(folder, lambda number, i=i: number % 3 != i)
    for given in (folders, folders[::-1]):
        assert merged(*given).equals(expected)


def test_other_batches_and_one_copy_that_was_compacted_further(tmp_path: Path) -> None:
    """The same records in batches of other sizes and in another format: gaps are filled record by record."""
    rows = records(0, 60)
    one = write_log(tmp_path / "a", (0, [batch(rows[i : i + 6]) for i in range(0, 60, 6)]))
    other = write_log(tmp_path / "b", (0, [wrapper(1, rows[i : i + 4], 1) for i in range(0, 60, 4)]))
    last_bytes(one, lambda number: number in (2, 3, 7))
    last_bytes(other, lambda number: number in (0, 9, 14))
    found = merged(one, other, columns=["offset", "key", "value"])
    assert found.to_pylist() == [{"offset": r.offset, "key": r.key, "value": r.value} for r in rows]
    # Each offset that any copy has is read once.
    rows = records(0, 40)

    def cleaned(keep: Callable[[int], bool]) -> list[bytes]:
        kept = [[row for row in rows[i : i + 10] if keep(row.offset)] for i in range(0, 40, 10)]
        return [batch(own, base_offset=10 * i, last_offset=10 * i + 9) for i, own in enumerate(kept)]

    one = write_log(tmp_path / "2" / "a", (0, cleaned(lambda offset: offset % 3 == 0)))
    other = write_log(tmp_path / "2" / "b", (0, cleaned(lambda offset: offset % 9 == 0 or offset > 30)))
    assert offsets(one, other) == offsets(other, one) == sorted({*range(0, 40, 3), *range(31, 40)})
    # Records that are damaged in the copy that has more come from the other copy, if it has them.
    last_bytes(one, lambda number: number == 1)
    assert offsets(one, other) == sorted({*range(0, 10, 3), 18, *range(21, 40, 3), *range(31, 40)})


@pytest.mark.parametrize(("magic", "codec"), [(0, 1), (1, 2), (0, 3), (1, 3)])
def test_wrappers(tmp_path: Path, magic: int, codec: int) -> None:
    """Headers of wrappers do not contain their first offset; there are single messages between the wrappers."""
    rows = records(0, 90)
    entries = [wrapper(magic, rows[i : i + 7], codec) if i % 30 else message(magic, rows[i]) for i in range(0, 90, 10)]
    expected = [offset for i in range(0, 90, 10) for offset in range(i, i + (7 if i % 30 else 1))]
    folders = [write_log(tmp_path / name, (0, entries[:5]), (50, entries[5:])) for name in "abc"]
    for i, folder in enumerate(folders):
        last_bytes(folder, lambda number, i=i: number % 3 != i)
    assert offsets(*folders) == expected
    assert offsets(*folders[::-1], threads=4) == expected
    assert offsets(*folders, start_offset=15, end_offset=72) == [offset for offset in expected if 15 <= offset < 72]


def test_messages_of_a_damaged_wrapper_are_no_entries(tmp_path: Path) -> None:
    """They are stored uncompressed in the stream, with right checksums; the other copy shows that they are not entries."""
    rows = records(0, 30)
    entries = [wrapper(1, rows[i : i + 10], 1, style="stored") for i in (0, 10, 20)]
    one, other = write_log(tmp_path / "a", (0, entries)), write_log(tmp_path / "b", (0, entries))
    last_bytes(one, lambda number: number == 0)
    flip(logs(one)[0], 9)
    assert offsets(one, other) == offsets(other, one) == list(range(30))


def test_a_damaged_offset(tmp_path: Path) -> None:
    """No checksum covers the offset. If it is right in a copy, that copy counts; if it is wrong in all copies, it is damage."""
    entries = tens(6)
    for number, byte in [(2, 7), (2, 6), (3, 3), (0, 6), (5, 5), (5, 7)]:
        disk = tmp_path / f"{number} {byte}"
        one, other = write_log(disk / "a", (0, entries[:4]), (40, entries[4:])), write_log(disk / "b", (0, entries))
        flip(logs(one)[number > 3], sum(map(len, entries[4 * (number > 3) : number])) + byte)
        assert offsets(one, other) == offsets(other, one) == list(range(60))
        last_bytes(other, lambda i, number=number: i == number)
        if number in (2, 3):
            raises(kolumn.CorruptBatchError, "base offset: expected offsets from", merged, one, other)
            left, skipped = [offset for offset in range(60) if offset // 10 != number], kolumn.Skipped()
            assert offsets(one, other, errors="skip", on_damage=skipped) == left
            assert skipped.stretches == 1


def test_two_leaders(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After an unclean leader election the records of the earlier leader do not count from the later one's first offset on."""
    common = tens(3, leader_epoch=5)
    lost = [batch(records(10 * i, 10, b"lost"), leader_epoch=5) for i in range(3, 8)]
    kept = [batch(records(10 * i, 10, b"kept"), leader_epoch=6) for i in range(3, 6)]
    one, other = write_log(tmp_path / "a", (0, [*common, *lost])), write_log(tmp_path / "b", (0, [*common, *kept]))
    for folders in ((one, other), (other, one)):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            found = merged(*folders)
        assert found["offset"].to_pylist() == list(range(60))
        assert not any(value.startswith(b"lost") for value in found["value"].to_pylist())
        (line,) = caplog.messages
        assert line.startswith(f"{one} has other records than {other} from offset 30 on")
    # The first batch of the later leader is damaged: the earlier leader's records at those offsets are not a copy of it.
    last_bytes(other, lambda number: number == 3)
    raises(kolumn.CorruptBatchError, "", merged, one, other)
    assert offsets(one, other, errors="skip") == [*range(30), *range(40, 60)]


def test_different_logs_are_no_copies(tmp_path: Path) -> None:
    one, other = (write_log(tmp_path / name, (0, [*tens(1), batch(records(10, 10, name.encode()))])) for name in ("one", "other"))
    text = str(raises(kolumn.ArgumentError, "have different records at offset 10", merged, one, other))
    assert (str(one) in text, str(other) in text) == (True, True)
    (one / "copy.log").write_bytes(b"")
    raises(kolumn.ArgumentError, "20 digits", merged, one, other)


HARD = (266, 411, 694, 1589, 1876, 2134, 2474, 3539, 4228, 8263, 12342)
"""Damaged offsets, and messages of damaged wrappers that look like entries, which no check of a single copy finds."""


def test_every_record_that_is_whole_in_any_copy_comes_once(tmp_path: Path) -> None:
    for seed in (*HARD, *range(max(100, MUTANTS // 5))):
        check(seed, tmp_path / "disks", threads=1 + 3 * (seed % 10 == 0))


@pytest.mark.parametrize("threads", [1, 4])
def test_ranges_of_offsets_and_times(copies: list[Path], threads: int) -> None:
    halves(copies)
    expected, chance = read(SOURCE), random.Random(7)
    offsets, times = expected["offset"].to_pylist(), expected["timestampMs"].to_pylist()
    for _ in range(10):
        start, end = sorted(chance.sample(range(len(expected)), 2))
        for limits in (
            {"start_offset": offsets[start], "end_offset": offsets[end]},
            {"start_timestamp": times[start], "end_timestamp": times[end] + 1},
        ):
            assert merged(*copies, threads=threads, **limits).equals(read(SOURCE, **limits))


TRANSACTIONAL_CASES = [case for case in CASES if case.directory.with_name(case.directory.name + ".committed.parquet").exists()]


@pytest.mark.parametrize("way", ["damaged", "halves", "one range"])
@pytest.mark.parametrize("case", TRANSACTIONAL_CASES, ids=str)
def test_transactions(case: Case, tmp_path: Path, way: str) -> None:
    """Markers are damaged in one copy, and transactions begin in one directory and end in the other."""
    options = {"isolation_level": "read_committed", "columns": ["offset", "value", "transaction"]}
    copies = [copy(case.directory, tmp_path / name) for name in ("b1", "b2")]
    if way == "halves":
        for number, pair in enumerate(zip(*map(logs, copies), strict=True)):
            pair[number % 2 == 0].unlink()
    else:
        halves(copies)
    if way == "one range":
        last = pc.max(kolumn.read(case.directory, columns=["offset"], include_control=True)["offset"]).as_py()
        options |= {"start_offset": last // 3, "end_offset": last // 2}
    how = {} if way == "halves" else {"replicas": "merge"}
    assert kolumn.read(copies, **how, **options).equals(kolumn.read(case.directory, **options))
    if way == "damaged":
        # Single segments of both: the transactions of neighbouring segments count too.
        alone = kolumn.read(logs(case.directory)[0], **options)
        assert kolumn.read([logs(folder)[0] for folder in copies], **how, **options).equals(alone)


def test_an_open_transaction_of_one_half(tmp_path: Path) -> None:
    zero, two, three, five = (batch(records(offset, 1), flags=TRANSACTIONAL, producer_id=7) for offset in (0, 2, 3, 5))
    one = write_log(tmp_path / "a", (0, [zero, control_batch(1, 1), two]))
    other = write_log(tmp_path / "b", (3, [three, control_batch(4, 0), five, control_batch(6, 1)]))
    assert asked.offsets([one, other], isolation_level="read_committed") == [0, 5]


def test_batches_statistics_and_segments_of_a_merge(copies: list[Path], tmp_path: Path) -> None:
    halves(copies)
    columns = ["position", "baseOffset", "lastOffset", "crcValid"]
    assert kolumn.batches(copies, replicas="merge").select(columns).equals(kolumn.batches(SOURCE).select(columns))
    (mine,), (theirs,) = (collect(source, lambda done: None, replicas="merge", errors="raise") for source in (copies, SOURCE))
    for name in ("bytes", "batches", "records", "firstOffset", "lastOffset", "damaged"):
        assert mine[name] == theirs[name]
    # The error of `convert` recommends this.
    kolumn.write(kolumn.scan(copies, replicas="merge", include_headers=True), tmp_path / "new")
    columns = ["offset", "key", "value", "timestampMs", "headers"]
    assert read(tmp_path / "new", columns=columns).equals(read(SOURCE, columns=columns))


def test_writers_do_not_double(copies: list[Path], tmp_path: Path) -> None:
    calls: list[Callable[..., Any]] = [kolumn.convert, kolumn.compact, partial(kolumn.apply_retention, retention_ms=1 << 50)]
    words = r"are in .*b1.* and in .*b2"
    for number, call in enumerate(calls):
        target = tmp_path / f"target{number}"
        for options in ({}, {"replicas": "merge"}):
            raises(kolumn.ArgumentError, words, call, copies, target, **options)
            assert not target.exists()
        call(copies, target, replicas="first")
    raises(kolumn.ArgumentError, words, kolumn.space, copies)
    raises(kolumn.ArgumentError, "replicas='both': expected one of raise, first, merge", kolumn.read, SOURCE, replicas="both")
    # Two halves are one log, of which each of these two would see only a half.
    logs(copies[0])[0].unlink()
    for path in logs(copies[1])[1:]:
        path.unlink()
    for call in calls[1:]:
        raises(kolumn.ArgumentError, "one directory at a time", call, copies, tmp_path / "halves")
    done = kolumn.convert(copies, tmp_path / "halves")
    assert read(tmp_path / "halves")["offset"].equals(read(SOURCE)["offset"])
    assert len(done.segments) == len(logs(SOURCE))


@pytest.mark.parametrize("way", ["merge", "halves"])
def test_parquet(copies: list[Path], tmp_path: Path, way: str) -> None:
    target = tmp_path / "lake"
    arguments = ["to-parquet", *map(str, copies), str(target)]
    if way == "merge":
        halves(copies)
        assert invoked(*arguments).exit_code == 2
        assert not target.exists()
        arguments += ["--replicas", "merge"]
    else:
        one, other = map(logs, copies)
        for path in (one[1], other[0], *other[2:]):
            path.unlink()
    result = invoked(*arguments)
    assert result.exit_code == 0, result.output
    found = ds.dataset(target, partitioning="hive").to_table(columns=["offset", "value"]).sort_by("offset")
    assert found.equals(kolumn.read(SOURCE, columns=["offset", "value"]).combine_chunks())
    assert len(list(target.rglob("*.parquet"))) == len(logs(SOURCE))


def test_verify_looks_at_every_copy(copies: list[Path]) -> None:
    flip(logs(copies[1])[0], 100)
    report = kolumn.verify(copies)
    assert report.damage["segment"].to_pylist() == [str(logs(copies[1])[0])]
    assert report.segments.num_rows == 2 * len(logs(SOURCE))
