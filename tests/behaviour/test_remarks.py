"""What does `kolumn.verify` remark of intact batches that a reader may trip over, and of which does it say nothing?"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import kolumn
from kit.encoder import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Record, batch, control_batch, message, with_crc, wrapper
from kit.streams import GZIP, LZ4, NONE, ZSTD

NOW = 1_700_000_000_000


def records(first: int, count: int, timestamp: int = NOW) -> list[Record]:
    return [Record(offset, b"k", b"v%d" % offset, timestamp + offset) for offset in range(first, first + count)]


def plain(magic: int, some: Sequence[Record]) -> bytes:
    return b"".join(message(magic, one) for one in some)


ENTRIES: dict[str, Callable[[Sequence[Record]], bytes]] = {
    "batch": batch,
    "gzip": lambda some: batch(some, codec=GZIP),
    "zstd": lambda some: batch(some, codec=ZSTD),
    "messages": lambda some: plain(1, some),
    "old messages": lambda some: plain(0, some),
    "wrapper": lambda some: wrapper(1, some, GZIP),
}


def segment(folder: Path, *parts: bytes, base: int = 0) -> Path:
    (folder / "t-0").mkdir(exist_ok=True)
    (folder / "t-0" / f"{base:020d}.log").write_bytes(b"".join(parts))
    return folder / "t-0"


def remarked(folder: Path, **options: int) -> list[tuple[str, int, int | None, int | None, str]]:
    """Kind, position, offsets and text of the remarks of an undamaged log, in any pieces that it can be read in."""
    found = [kolumn.verify(folder, **one, **options) for one in ({}, {"threads": 1}, {"threads": 3, "chunk_bytes": 1})]
    for report in found:
        assert report.damage.num_rows == 0
        assert report.remarks.equals(found[0].remarks)
        assert report.records == kolumn.read(folder, include_control=True).num_rows
    names = ("kind", "position", "offset", "lastOffset", "remark")
    return [tuple(one[name] for name in names) for one in found[0].remarks.to_pylist()]  # type: ignore[misc]


@pytest.mark.parametrize("made", ENTRIES.values(), ids=ENTRIES)
def test_offsets_that_go_back(made: Callable[[Sequence[Record]], bytes], tmp_path: Path) -> None:
    before, again = made(records(0, 10)) + made(records(10, 20)), made(records(15, 20))
    [(kind, position, *offsets, text)] = remarked(segment(tmp_path, before, again, made(records(35, 5))))
    assert (kind, position, offsets) == ("offsets-back", len(before), [15, 29])
    assert f"go back once: at position {len(before)} 29 is followed by 15; 15 records have an offset that is not above all before" in text


def test_offsets_that_go_back_often_are_one_row(tmp_path: Path) -> None:
    parts = [message(1, records(0, 1)[0])] * 3000
    [(kind, position, *offsets, text)] = remarked(segment(tmp_path, *parts))
    assert (kind, position, offsets) == ("offsets-back", len(parts[0]), [0, 0])
    assert "go back 2999 times" in text
    assert "2999 records have" in text


def test_a_header_that_goes_back_over_absent_records(tmp_path: Path) -> None:
    """The batches overlap, and none of their records do."""
    first = batch(records(0, 10), last_offset=29)
    [(kind, position, *offsets, text)] = remarked(segment(tmp_path, first, batch(records(15, 5))))
    assert (kind, position, offsets) == ("offsets-back", len(first), [15, 29])
    assert "; 0 records have" in text


def test_offsets_that_go_back_to_where_none_were(tmp_path: Path) -> None:
    later = batch(records(100, 10))
    found = remarked(segment(tmp_path, batch(records(0, 1)), later, batch(records(50, 10))))
    assert [one[0] for one in found] == ["offsets-back"]
    assert "109 is followed by 50; 10 records have" in found[0][-1]


def test_offsets_that_go_back_between_segments(tmp_path: Path) -> None:
    first = batch(records(0, 10))
    segment(tmp_path, first, batch(records(10, 10)))
    folder = segment(tmp_path, batch(records(15, 20)), base=15)
    [(kind, position, *offsets, text)] = remarked(folder)
    assert (kind, position, offsets) == ("offsets-back", len(first), [15, 19])
    assert "19 is followed by 15" in text
    assert kolumn.read(folder)["offset"].to_pylist() == [*range(20), *range(15, 35)]


def test_a_damaged_base_offset_at_the_end_of_a_segment_is_damage(tmp_path: Path) -> None:
    """Its offsets do not reach the next segment: they begin beyond."""
    segment(tmp_path, batch(records(0, 10)), batch(records(1 << 20, 10)))
    report = kolumn.verify(segment(tmp_path, batch(records(20, 5)), base=20))
    assert [one["reason"].partition(":")[0] for one in report.damage.to_pylist()] == ["offset"]


@pytest.mark.parametrize("codec", [NONE, GZIP, LZ4])
def test_offsets_that_do_not_grow_in_a_batch(codec: int, tmp_path: Path) -> None:
    good, shuffled = batch(records(0, 3)), [Record(offset, None, b"v", NOW) for offset in (3, 5, 4, 5, 6)]
    odd = batch(shuffled, codec=codec)
    [(kind, position, *offsets, text)] = remarked(segment(tmp_path, good, odd, batch(records(7, 3)), batch(records(10, 3))))
    assert (kind, position, offsets) == ("offsets-in-batch", len(good), [4, 5])
    assert "inside of 1 batch: in the first one 5 is followed by 4" in text


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_a_largest_timestamp_that_is_not_set(codec: int, tmp_path: Path) -> None:
    good, odd = batch(records(0, 3)), [batch(records(first, 3), codec=codec, max_timestamp=-1) for first in (3, 6)]
    [(kind, position, *offsets, text)] = remarked(segment(tmp_path, good, *odd))
    assert (kind, position, offsets) == ("max-timestamp", len(good), [3, 5])
    assert f"is unset in 2 batches: in the first one -1 in its header, {NOW + 5} in a record" in text


def test_a_largest_timestamp_below_a_record(tmp_path: Path) -> None:
    good, odd = batch(records(0, 3)), batch(records(3, 3), max_timestamp=NOW + 4)
    [(kind, position, *offsets, text)] = remarked(segment(tmp_path, good, odd))
    assert (kind, position, offsets) == ("max-timestamp", len(good), [3, 5])
    assert f"is below a record's in 1 batch: in the first one {NOW + 4} in its header, {NOW + 5} in a record" in text


def test_a_wrapper_with_a_timestamp_below_a_message(tmp_path: Path) -> None:
    good, odd = wrapper(1, records(0, 3), GZIP), wrapper(1, records(3, 3), GZIP, timestamp=NOW + 4)
    [(kind, position, *offsets, _)] = remarked(segment(tmp_path, good, odd, wrapper(1, records(6, 3), GZIP)))
    assert (kind, position, offsets) == ("max-timestamp", len(good), [3, 5])


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        (1000, f"1 timestamp outside of the years 1 to 9999; this looks like microseconds: the first one is {NOW * 1000} at offset 7"),
        (10**6, f"1 timestamp outside of the years 1 to 9999; this looks like nanoseconds: the first one is {NOW * 10**6} at offset 7"),
    ],
)
def test_timestamps_in_another_unit(scale: int, words: str, tmp_path: Path) -> None:
    some = records(0, 20)
    some[7] = Record(7, None, b"v", NOW * scale)
    for number, made in enumerate((batch, ENTRIES["messages"], ENTRIES["wrapper"])):
        (tmp_path / str(number)).mkdir()
        [(kind, position, *offsets, text)] = remarked(segment(tmp_path / str(number), made(some)))
        assert (kind, offsets) == ("far-timestamp", [7, 7])
        assert position == (sum(len(message(1, one)) for one in some[:7]) if number == 1 else 0)
        assert words in text


def test_timestamps_far_away(tmp_path: Path) -> None:
    latest, earliest = 253_402_300_799_999, -62_135_596_800_000
    for number, times in enumerate(([latest, earliest, -2], [2**63 - 1], [-(2**63)], [latest + 1], [earliest - 1])):
        some = [Record(offset, None, b"v", time) for offset, time in enumerate(times)]
        (tmp_path / str(number)).mkdir()
        found = remarked(segment(tmp_path / str(number), batch(some, base_timestamp=0)))
        assert [one[0] for one in found] == ["far-timestamp"] * (number > 0), times
        assert all(str(times[0]) in one[-1] for one in found)


@pytest.mark.parametrize(
    "made",
    [
        lambda some: batch(some, codec=LZ4, style="content-checksum"),
        lambda some: wrapper(1, some, LZ4, style="content-checksum"),
        lambda some: wrapper(0, some, LZ4, style="content-checksum"),
    ],
    ids=["batch", "wrapper", "old wrapper"],
)
def test_an_lz4_frame_whose_content_checksum_is_wrong(made: Callable[[Sequence[Record]], bytes], tmp_path: Path) -> None:
    parts = [made(records(first, 10)) for first in range(0, 100, 10)]
    assert remarked(segment(tmp_path, *parts)) == []
    parts[3] = with_crc(parts[3][:-1] + bytes([parts[3][-1] ^ 1]))
    [(kind, position, *offsets, text)] = remarked(segment(tmp_path, *parts))
    assert (kind, position, offsets) == ("content-checksum", sum(map(len, parts[:3])), [30, 39])
    assert "the content checksum of 1 lz4 frame is wrong" in text


def test_nothing_is_remarked_of_what_brokers_write(tmp_path: Path) -> None:
    """Append times, holes that compaction leaves, batches that it emptied, markers without a timestamp, aborted transactions."""
    kept = [Record(offset, b"k", b"v", NOW + offset) for offset in (20, 23, 27)]
    parts = [
        batch(records(0, 5), flags=LOG_APPEND_TIME, max_timestamp=NOW - 99),
        wrapper(1, records(5, 5), GZIP, flags=LOG_APPEND_TIME, timestamp=NOW - 99),
        wrapper(0, records(10, 3), GZIP),
        plain(1, records(13, 3)),
        batch(kept, base_offset=18, last_offset=29, max_timestamp=NOW + 10**6),
        batch([], base_offset=30, last_offset=34, max_timestamp=NOW),
        batch(records(40, 5), flags=TRANSACTIONAL, producer_id=7),
        control_batch(45, 0, timestamp=-1),
        batch([Record(46, b"\0\0\0\2", b"", -1)], flags=CONTROL),
        batch([Record(47, None, b"v", -1), Record(48, None, b"v", NOW)]),
    ]
    assert remarked(segment(tmp_path, *parts)) == []


def test_a_segment_without_records(tmp_path: Path) -> None:
    assert remarked(segment(tmp_path, batch([], base_offset=0, last_offset=4))) == []


def test_remarks_do_not_follow_damage(tmp_path: Path) -> None:
    """Between two intact batches lies a damaged one; what was before still counts."""
    parts = [batch(records(first, 10)) for first in (0, 10, 20, 5)]
    parts[1] = parts[1][:-1] + b"?"
    report = kolumn.verify(segment(tmp_path, *parts))
    assert [(one["kind"], one["offset"], one["lastOffset"]) for one in report.remarks.to_pylist()] == [("offsets-back", 5, 29)]
    assert report.damage.num_rows == 1


def test_many_odd_batches_are_one_row(tmp_path: Path) -> None:
    odd = np.frombuffer(batch(records(0, 1), max_timestamp=-1), np.uint8)
    folder = segment(tmp_path, np.tile(odd, 20000).tobytes())
    report = kolumn.verify(folder)
    assert report.remarks["kind"].to_pylist() == ["offsets-back", "max-timestamp"]
    assert "unset in 20000 batches" in report.remarks["remark"][1].as_py()
