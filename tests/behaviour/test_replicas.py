"""Several directories of one topic-partition are one log if they do not overlap; damaged copies are merged into one whole log."""

import logging
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import kolumn
from kit.corpus import HERE as CORPUS
from kit.corpus import Case
from kit.encoder import batch, message, wrapper
from kit.fuzz import MUTANTS
from kit.partitions import SOURCE
from kit.replicas import CASES, check, copy, flip, last_bytes, logs, merged, read, records, write_log
from kolumn.copies.copies import overlaps
from kolumn.options import Options
from kolumn.readers.plan import live_segments

THREADS = pytest.mark.parametrize("threads", [1, 4])


def offsets(*folders: Path, **options: Any) -> list[int]:
    return merged(*folders, **options)["offset"].to_pylist()


# Directories that are recognised as copies


def test_copies_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    one, other = copy(SOURCE, tmp_path / "b1"), copy(SOURCE, tmp_path / "b2")
    last = pc.max(read(SOURCE)["offset"]).as_py()
    for source in ([one, other], [tmp_path / "b1", tmp_path / "b2"], f"{tmp_path}/b*", [logs(one)[1], other]):
        for call in (kolumn.read, kolumn.batches):
            with pytest.raises(kolumn.ArgumentError) as caught:
                call(source)
            text = str(caught.value)
            first = 0 if isinstance(source, str) or source[0] != logs(one)[1] else int(logs(one)[1].stem)
            assert text.startswith(f"many-segments-0: offsets {first} to ")
            assert all(word in text for word in (str(one), str(other), "replicas='merge'", "replicas='first'", "name one"))
    assert f"offsets 0 to {last} are in" in _refused([one, other])


def _refused(source: Any, **options: Any) -> str:
    with pytest.raises(kolumn.ArgumentError) as caught:
        read(source, **options)
    return str(caught.value)


def test_one_directory_by_several_names_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copy(SOURCE, tmp_path / "disk")
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    (tmp_path / "file.d").mkdir()
    linked = tmp_path / "file.d" / SOURCE.name
    linked.mkdir()
    for path in logs(folder):
        (linked / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    names = [folder, f"disk/../disk/{SOURCE.name}", tmp_path / "link" / SOURCE.name, "link", linked]
    assert read(names).equals(read(folder))
    assert read(names[::-1])["offset"].equals(read(folder)["offset"])


def remove(log: Path) -> None:
    """Remove a segment and its index files."""
    for suffix in (".log", ".index", ".timeindex"):
        log.with_suffix(suffix).unlink()


@THREADS
def test_parts_that_do_not_overlap_are_one_log(tmp_path: Path, threads: int) -> None:
    """Segments of one partition alternate between two disks, which are named in any order."""
    one, other = copy(SOURCE, tmp_path / "b1"), copy(SOURCE, tmp_path / "b2")
    for number, (mine, theirs) in enumerate(zip(logs(one), logs(other), strict=True)):
        remove(theirs if number % 2 else mine)
    expected = read(SOURCE)
    middle = expected["offset"][len(expected) // 2].as_py()
    for replicas_ in ("raise", "merge"):
        for folders in ([one, other], [other, one]):
            assert read(folders, replicas=replicas_, threads=threads).equals(expected)
            found = read(folders, replicas=replicas_, threads=threads, start_offset=middle, end_offset=middle + 100)
            assert found.equals(read(SOURCE, start_offset=middle, end_offset=middle + 100))
    assert overlaps(live_segments([one, other], Options.of()).segments) == []
    assert read([other, one], replicas="first").equals(read(other))


def test_first_takes_the_first_directory(tmp_path: Path) -> None:
    one, other = copy(SOURCE, tmp_path / "b1"), copy(SOURCE, tmp_path / "b2")
    remove(logs(other)[-1])
    assert read([one, other], replicas="first").equals(read(one))
    assert read([other, one], replicas="first").equals(read(other))
    beside = copy(CORPUS / "v0" / sorted(os.listdir(CORPUS / "v0"))[0], tmp_path / "b2")
    found = read([tmp_path / "b1", tmp_path / "b2"], replicas="first")
    assert len(found) == len(read(one)) + len(read(beside))


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


# Merges of damaged copies


@pytest.mark.parametrize(
    ("case", "threads"),
    [
        # In `make test` each case has one number of threads.
        pytest.param(case, threads, id=f"{case}-{threads}", marks=[pytest.mark.slow] if (number + at) % 2 else [])
        for number, case in enumerate(CASES)
        for at, threads in enumerate((1, 4))
    ],
)
def test_two_damaged_copies_become_a_whole_one(case: Case, tmp_path: Path, threads: int) -> None:
    """Every second entry is damaged in one copy, and all others in the other copy: no entry is damaged in both."""
    expected = read(case.directory)
    one, other = copy(case.directory, tmp_path / "b1"), copy(case.directory, tmp_path / "b2")
    last_bytes(one, lambda number: number % 2 == 0)
    last_bytes(other, lambda number: number % 2 == 1)
    skipped = kolumn.Skipped()
    assert merged(one, other, threads=threads).equals(expected)
    assert merged(other, one, threads=threads, errors="skip", on_damage=skipped, binary="view")["offset"].equals(expected["offset"])
    assert not skipped.damage


def _cut(log: Path) -> None:
    position = kolumn.batches(log).to_pylist()[3]["position"]
    os.truncate(log, position)


@pytest.mark.parametrize("way", [_cut, lambda log: os.truncate(log, 0), Path.unlink], ids=["cut between batches", "emptied", "removed"])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_what_only_index_files_know_of(tmp_path: Path, way: Callable[[Path], None], number: int) -> None:
    """Nothing is left in the log itself: records that no copy has are an error, and records that one copy has are read from it."""
    one, other = copy(SOURCE, tmp_path / "b1"), copy(SOURCE, tmp_path / "b2")
    last = number == len(logs(SOURCE)) - 1
    way(logs(one)[number])
    for folders in ((one, other), (other, one)):
        assert merged(*folders).equals(read(SOURCE))
    way(logs(other)[number])
    skipped = kolumn.Skipped()
    left = merged(one, other, errors="skip", on_damage=skipped)
    assert left.num_rows < read(SOURCE).num_rows
    if last and way is not Path.unlink:
        # An active segment may be shorter than its indexes, which may have been copied later.
        assert merged(one, other).equals(left)
        return
    assert len(skipped.damage) == 1
    with pytest.raises(kolumn.CorruptBatchError, match=r"according to|which lists offset"):
        merged(one, other)


@THREADS
def test_whatever_happened_to_them(tmp_path: Path, threads: int) -> None:
    """Segments are cut, zeroed, emptied and missing in three copies, which together have all records."""
    copies = [copy(SOURCE, tmp_path / f"b{i}") for i in range(3)]
    first, second, third = (logs(folder) for folder in copies)
    last_bytes(copies[2], lambda number: number < 4)
    os.truncate(first[0], first[0].stat().st_size // 2)
    first[1].write_bytes(bytes(first[1].stat().st_size))
    first[2].unlink()
    second[0].write_bytes(
        random.Random(1).randbytes(second[0].stat().st_size // 3) + second[0].read_bytes()[second[0].stat().st_size // 3 :]
    )
    second[3].write_bytes(b"")
    second[4].unlink()
    third[2].write_bytes(third[2].read_bytes()[7:])
    flip(third[4], 8)
    os.truncate(first[4], first[4].stat().st_size - 30)
    assert merged(*copies, threads=threads).equals(read(SOURCE))


def test_damage_that_no_copy_can_fill(tmp_path: Path) -> None:
    one, other = copy(SOURCE, tmp_path / "b1"), copy(SOURCE, tmp_path / "b2")
    rows = [row for row in kolumn.batches(SOURCE).to_pylist() if row["segment"] == str(logs(SOURCE)[1])]
    lost = rows[2]
    for folder in (one, other):
        flip(logs(folder)[1], lost["position"] + lost["size"] - 1)
    flip(logs(one)[1], rows[4]["position"] + 90)
    flip(logs(other)[1], rows[1]["position"] + 90)
    with pytest.raises(kolumn.CorruptBatchError) as caught:
        merged(one, other)
    assert (caught.value.segment, caught.value.position) == (str(logs(one)[1]), lost["position"])
    skipped = kolumn.Skipped()
    expected = read(SOURCE)
    gone = pc.and_(pc.greater_equal(expected["offset"], lost["baseOffset"]), pc.less_equal(expected["offset"], lost["lastOffset"]))
    assert merged(one, other, errors="skip", on_damage=skipped).equals(expected.filter(pc.invert(gone)))
    (piece,) = skipped.damage
    assert (piece.segment, piece.position, piece.size) == (str(logs(one)[1]), lost["position"], lost["size"])
    assert (piece.base_offset, piece.last_offset, piece.records_lost) == (lost["baseOffset"], lost["lastOffset"], lost["count"])


def test_a_follower_that_lags(tmp_path: Path) -> None:
    """It ends earlier, with half an entry at its end: that is not damage. Entries that its leader lost there are damage."""
    leader, follower = copy(SOURCE, tmp_path / "leader"), copy(SOURCE, tmp_path / "follower")
    logs(follower)[-1].unlink()
    os.truncate(logs(follower)[-1], logs(follower)[-1].stat().st_size - 10)
    for folders in ((leader, follower), (follower, leader)):
        assert merged(*folders).equals(read(SOURCE))
    damaged = logs(leader)[-1]
    flip(damaged, damaged.stat().st_size - 1)
    for folders in ((leader, follower), (follower, leader)):
        with pytest.raises(kolumn.CorruptBatchError) as caught:
            merged(*folders)
        assert caught.value.segment == str(damaged)


def test_a_damaged_end_that_another_copy_has(tmp_path: Path) -> None:
    """The offsets of the last entries of a copy are not known, but another copy has the same number of bytes there."""
    entries = [batch(records(10 * i, 10)) for i in range(6)]
    noise = [b"\x11" * 8 + entry[8:-20] + b"\x07" * 20 for entry in entries[4:]]
    one = write_log(tmp_path / "a", (0, [*entries[:4], *noise]))
    other = write_log(tmp_path / "b", (0, [entries[0], entries[1][:-1] + b"?", *entries[2:]]))
    assert offsets(one, other) == offsets(other, one) == list(range(60))
    shorter = write_log(tmp_path / "c", (0, entries[:5]))
    with pytest.raises(kolumn.CorruptBatchError):
        merged(one, shorter)
    assert offsets(one, shorter, errors="skip") == list(range(50))


@pytest.mark.parametrize("start", [20, 30])
def test_a_damaged_end_before_another_copy_begins(tmp_path: Path, start: int) -> None:
    """The other copy has as many bytes as were lost, and more, but of later offsets."""
    entries = [batch(records(10 * i, 10)) for i in range(8)]
    one = write_log(tmp_path / "a", (0, [entries[0], entries[1][:-1] + b"?"]))
    other = write_log(tmp_path / "b", (start, entries[start // 10 :]))
    for folders in ((one, other), (other, one)):
        with pytest.raises(kolumn.CorruptBatchError) as caught:
            merged(*folders)
        assert caught.value.base_offset == 10
        assert offsets(*folders, errors="skip") == [*range(10), *range(start, 80)]
    write_log(tmp_path / "whole", (10, entries[1:]))
    assert offsets(one, tmp_path / "whole" / "t-0") == list(range(80))


def test_other_segment_boundaries(tmp_path: Path) -> None:
    """Brokers roll segments independently: one copy has few segments, the other many, and both are damaged."""
    table = kolumn.read(CORPUS / "v2-java", columns=["offset", "key", "value", "topic", "partition"], errors="skip")
    table = table.filter(pc.equal(table["topic"], table["topic"][0])).slice(0, 2000)
    made = {}
    for name, size in (("small", 3000), ("large", 40_000), ("whole", 1 << 30)):
        kolumn.write(table.drop_columns(["topic", "partition"]), tmp_path / name / "t-0", batch_bytes=1000, segment_bytes=size)
        made[name] = tmp_path / name / "t-0"
    assert len(logs(made["small"])) > len(logs(made["large"])) > len(logs(made["whole"])) == 1
    expected = read(made["whole"])
    for i, folder in enumerate(made.values()):
        last_bytes(folder, lambda number, i=i: number % 3 != i)
    for folders in (list(made.values()), list(made.values())[::-1]):
        assert merged(*folders).equals(expected)


def test_other_batches(tmp_path: Path) -> None:
    """The same records in batches of other sizes and in another format: gaps are filled record by record."""
    rows = records(0, 60)
    one = write_log(tmp_path / "a", (0, [batch(rows[i : i + 6]) for i in range(0, 60, 6)]))
    other = write_log(tmp_path / "b", (0, [wrapper(1, rows[i : i + 4], 1) for i in range(0, 60, 4)]))
    last_bytes(one, lambda number: number in (2, 3, 7))
    last_bytes(other, lambda number: number in (0, 9, 14))
    found = merged(one, other, columns=["offset", "key", "value"])
    assert found.to_pylist() == [{"offset": r.offset, "key": r.key, "value": r.value} for r in rows]


def test_one_compacted_further_than_the_other(tmp_path: Path) -> None:
    """Each offset that any copy has is read once."""
    rows = records(0, 40)

    def cleaned(keep: Callable[[int], bool]) -> list[bytes]:
        kept = [[row for row in rows[i : i + 10] if keep(row.offset)] for i in range(0, 40, 10)]
        return [batch(own, base_offset=10 * i, last_offset=10 * i + 9) for i, own in enumerate(kept)]

    one = write_log(tmp_path / "a", (0, cleaned(lambda offset: offset % 3 == 0)))
    other = write_log(tmp_path / "b", (0, cleaned(lambda offset: offset % 9 == 0 or offset > 30)))
    assert offsets(one, other) == offsets(other, one) == sorted({*range(0, 40, 3), *range(31, 40)})
    # Records that are damaged in the copy that has more come from the other copy, if it has them.
    last_bytes(one, lambda number: number == 1)
    assert offsets(one, other) == sorted({*range(0, 10, 3), 18, *range(21, 40, 3), *range(31, 40)})


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [1, 2, 3])
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
    entries = [batch(records(10 * i, 10)) for i in range(6)]
    for number, place in [(2, 7), (2, 6), (3, 3), (0, 6), (5, 5), (5, 7)]:
        disk = tmp_path / f"{number} {place}"
        one = write_log(disk / "a", (0, entries[:4]), (40, entries[4:]))
        other = write_log(disk / "b", (0, entries))
        path = logs(one)[number > 3]
        flip(path, sum(map(len, entries[4 * (number > 3) : number])) + place)
        assert offsets(one, other) == offsets(other, one) == list(range(60))
        last_bytes(other, lambda i, number=number: i == number)
        if number in (2, 3):
            with pytest.raises(kolumn.CorruptBatchError, match="base offset: expected offsets from"):
                merged(one, other)
            skipped = kolumn.Skipped()
            left = [offset for offset in range(60) if offset // 10 != number]
            assert offsets(one, other, errors="skip", on_damage=skipped) == left
            assert skipped.stretches == 1


# Directories that are not copies


def test_two_leaders(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After an unclean leader election the records of the earlier leader do not count from the later one's first offset on."""
    common = [batch(records(10 * i, 10), leader_epoch=5) for i in range(3)]
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
    with pytest.raises(kolumn.CorruptBatchError):
        merged(one, other)
    assert offsets(one, other, errors="skip") == [*range(30), *range(40, 60)]


def test_different_logs_are_no_copies(tmp_path: Path) -> None:
    one = write_log(tmp_path / "a", (0, [batch(records(0, 10)), batch(records(10, 10, b"one"))]))
    other = write_log(tmp_path / "b", (0, [batch(records(0, 10)), batch(records(10, 10, b"other"))]))
    text = _refused([one, other], replicas="merge")
    assert "have different records at offset 10" in text
    assert str(one) in text
    assert str(other) in text
    (one / "copy.log").write_bytes(b"")
    assert "20 digits" in _refused([one, other], replicas="merge")


HARD = (266, 411, 694, 1589, 1876, 2134, 2474, 3539, 4228, 8263, 12342)
"""Damaged offsets, and messages of damaged wrappers that look like entries, which no check of a single copy finds."""


def test_every_record_that_is_whole_in_any_copy_comes_once(tmp_path: Path) -> None:
    for seed in (*HARD, *range(max(100, MUTANTS // 5))):
        check(seed, tmp_path / "disks", threads=1 + 3 * (seed % 10 == 0))
