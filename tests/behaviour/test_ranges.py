"""A read of a range of offsets or times returns what a read of all does, filtered, whatever headers and indexes say.

`tests/fuzz/test_range_mutants.py` asks the same of logs by the hundred.
"""

import struct
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit.counted import IO, counted
from kit.encoder import LOG_APPEND_TIME, Record, batch, message, wrapper
from kolumn.log import narrow

START = 1_700_000_000_000
NONE, GZIP, LZ4 = 0, 1, 3


def records(*offsets: int) -> list[Record]:
    return [Record(offset, b"k", b"%d" % offset, START + offset) for offset in offsets]


def large(offset: int) -> bytes:
    """A batch of 16 KiB with 4 records."""
    return batch([Record(offset + i, b"k", bytes(4096), START + offset + i) for i in range(4)])


def written(folder: Path, *entries: bytes) -> Path:
    path = folder / f"{0:020}.log"
    path.write_bytes(b"".join(entries))
    return path


def offsets(path: Path, **options: Any) -> list[int]:
    return kolumn.read(path, columns=["offset"], **options)["offset"].to_pylist()


@pytest.mark.parametrize("newest", [-1, 0, 5, START])
@pytest.mark.parametrize("codec", [NONE, LZ4])
def test_a_largest_timestamp_that_is_too_low_rules_nothing_out(newest: int, codec: int, tmp_path: Path) -> None:
    path = written(tmp_path, batch(records(0, 1, 2), max_timestamp=newest, codec=codec))
    for options in ({}, {"threads": 1}, {"columns": ["offset", "headers"]}):
        found = kolumn.read(path, **{"columns": ["offset"], "start_timestamp": START + 1, **options})
        assert found["offset"].to_pylist() == [1, 2]


def test_the_time_that_a_broker_gave_is_that_of_all_records(tmp_path: Path) -> None:
    path = written(tmp_path, batch(records(0, 1), flags=LOG_APPEND_TIME, max_timestamp=5), batch(records(2, 3), flags=LOG_APPEND_TIME))
    assert offsets(path, start_timestamp=START) == [2, 3]
    assert offsets(path, end_timestamp=START) == [0, 1]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("order", [(3, 1, 2, 0), (2, 3, 0, 1), (0, 3, 3, 1)])
def test_offsets_in_a_wrapper_need_not_grow(magic: int, order: tuple[int, ...], tmp_path: Path) -> None:
    shuffled = wrapper(magic, records(*(100 + i for i in order)), GZIP, inner_base=100 if magic else None)
    path = written(tmp_path, message(magic, records(99)[0]), shuffled, message(magic, records(104)[0]))
    whole = offsets(path)
    assert len(whole) == 6
    for low in range(98, 106):
        assert offsets(path, start_offset=low) == [offset for offset in whole if offset >= low]
        assert offsets(path, end_offset=low) == [offset for offset in whole if offset < low]


def test_records_at_one_offset(tmp_path: Path) -> None:
    path = written(tmp_path, batch(records(100, 100, 100)), batch(records(101, 102)))
    assert offsets(path, start_offset=100, end_offset=101) == [100] * 3


def test_offsets_that_go_back_after_the_end_of_a_range(tmp_path: Path) -> None:
    """The last batch has offsets of the range: it was appended late, or its base offset is wrong."""
    path = written(tmp_path, *(large(4 * i) for i in range(150)), batch(records(6, 7)))
    for bounds in ((None, 8), (4, 8), (6, 400)):
        low, high = bounds
        expected = [*range(low or 0, high or 600), 6, 7]
        assert offsets(path, start_offset=low, end_offset=high) == expected


@pytest.mark.skipif(not IO.exists(), reason="this system does not count what a process reads")
def test_headers_are_read_a_bounded_way_beyond_a_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, *(large(4 * i) for i in range(1000)))
    reads = []
    for beyond in (narrow.BEYOND, path.stat().st_size):
        monkeypatch.setattr(narrow, "BEYOND", beyond)
        found, size, count, _ = counted(lambda: offsets(path, end_offset=8))
        assert found == list(range(8))
        assert size < path.stat().st_size / 10
        reads.append(count)
    assert reads[0] < 600 < 1000 < reads[1]


def index_files(path: Path, positions: list[tuple[int, int]], times: list[tuple[int, int]]) -> None:
    path.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", *one) for one in positions))
    path.with_suffix(".timeindex").write_bytes(b"".join(struct.pack(">qi", *one) for one in times))


def test_an_index_hides_nothing_of_a_small_segment(tmp_path: Path) -> None:
    """The log confirms the index, and before the place that it names are larger offsets and later times."""
    first, second, third = batch(records(50, 51), max_timestamp=1), batch(records(10, 11), max_timestamp=2), batch(records(12, 13))
    path = written(tmp_path, first, second, third)
    index_files(path, [(11, len(first)), (13, len(first + second))], [(2, 11)])
    assert offsets(path, start_offset=12, errors="skip") == [50, 51, 12, 13]
    assert offsets(path, start_timestamp=START + 12, errors="skip") == [50, 51, 12, 13]


def test_an_index_hides_nothing_that_lies_shortly_before(tmp_path: Path) -> None:
    """Two batches of a large segment were appended in the other order."""
    entries = [large(4 * i) for i in range(120)]
    swapped = [*entries[:100], entries[101], entries[100], *entries[102:]]
    path = written(tmp_path, *swapped)
    each = len(entries[0])
    index_files(path, [(4 * i + 3, each * at) for i, at in ((50, 50), (80, 80), (100, 101), (110, 110))], [])
    expected = [404, 405, 406, 407, *range(408, 480)]
    assert offsets(path, start_offset=404) == expected


def test_a_time_index_of_unset_timestamps_says_nothing(tmp_path: Path) -> None:
    unset = [batch([Record(4 * i + k, b"k", bytes(4096), START + i) for k in range(4)], max_timestamp=-1) for i in range(150)]
    path = written(tmp_path, *unset)
    each = len(unset[0])
    index_files(path, [(4 * i + 3, each * i) for i in (40, 80, 120)], [(-1, 4 * 80 + 3)])
    assert offsets(path, start_timestamp=START) == list(range(600))
