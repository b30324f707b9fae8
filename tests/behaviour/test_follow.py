"""A log that grows is followed: its records come once and in order, and what does not go on is said. Nothing waits: a step of the test
runs where `follow` would sleep.
"""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

import kolumn
from kit.asked import put, watched
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch
from kit.outcome import raises
from kolumn.core.errors import StorageError
from kolumn.decode.pipeline import scan_ranges
from kolumn.source.segment_file import SegmentFile

FOLLOW = "kolumn.readers.follow"


class _DoneError(Exception):
    """No step is left."""


def offsets(some: pa.RecordBatch) -> list[Any]:
    """The offsets, with the partition where it is not 0."""
    rows = zip(some["offset"].to_pylist(), some["partition"].to_pylist(), strict=True)
    return [(partition, offset) if partition else offset for offset, partition in rows]


def values(some: pa.RecordBatch) -> list[Any]:
    return some["value"].to_pylist()  # type: ignore[no-any-return]


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[Any]]]:
    """Follows a source, and returns what each poll has found. A step runs before each but the first."""

    def run(source: Any, *steps: Callable[[], object], rows: Callable[[pa.RecordBatch], list[Any]] = offsets, **options: Any) -> Any:
        found, left = list[list[Any]]([[]]), iter(steps)

        def wait(seconds: float) -> None:
            assert seconds == 1
            if (step := next(left, None)) is None:
                raise _DoneError
            step()
            found.append([])

        monkeypatch.setattr(f"{FOLLOW}.sleep", wait)
        with suppress(_DoneError):
            for some in kolumn.follow(source, **options):
                found[-1] += rows(some)
        return found

    return run


def of(first: int, stop: int, value: bytes = b"v", **header: Any) -> bytes:
    return batch([Record(offset, None, value, 1000 + offset) for offset in range(first, stop)], **header)


def adding(path: Path, *data: bytes) -> Callable[[], object]:
    def add() -> None:
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as file:
            file.write(b"".join(data))

    return add


def both(*steps: Callable[[], object]) -> Callable[[], object]:
    return lambda: [step() for step in steps]


def at(folder: Path, base: int = 0) -> Path:
    return folder / f"{base:020}.log"


def nothing() -> None: ...


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return put(tmp_path / "disk" / "t-0", of(0, 3), of(3, 5)).parent


def test_what_is_appended(folder: Path, polls: Any) -> None:
    """In pieces of batches, over a roll, with a new partition and a new topic."""
    more, root = of(5, 8), folder.parent
    steps = (
        nothing, adding(at(folder), more[:30]), adding(at(folder), more[30:-1]), adding(at(folder), more[-1:], of(8, 9)),
        adding(at(folder, 9), of(9, 11)), both(adding(at(root / "t-1"), of(0, 2)), adding(at(folder, 9), of(11, 12))),
        adding(at(root / "other-0"), of(7, 8)),
    )  # fmt: skip
    assert polls(root, *steps) == [[0, 1, 2, 3, 4], [], [], [], [5, 6, 7, 8], [9, 10], [11, (1, 0), (1, 1)], [7]]


def test_sources(folder: Path, polls: Any) -> None:
    for source in (folder, str(folder), [folder], f"{folder.parent}/t-*", at(folder), folder.as_uri(), f"local://{folder}"):
        put(folder, of(0, 3))
        assert polls(source, adding(at(folder), of(3, 5))) == [[0, 1, 2], [3, 4]], source
    # Of a file whose name tells nothing, headers do.
    copy = at(folder).rename(folder.parent / "copy.log")
    assert polls(copy, adding(copy, of(5, 6)), rows=lambda some: some["offset"].to_pylist()) == [[0, 1, 2, 3, 4], [5]]


@pytest.mark.parametrize("size", range(1, 70, 4))
def test_in_room_that_was_allocated(size: int, folder: Path, polls: Any) -> None:
    """A file has its final size from the beginning, and a part of a batch in it looks like a damaged one."""
    more, here = of(5, 8), at(folder)
    written = here.stat().st_size
    os.truncate(here, 4096)

    def write(data: bytes) -> Callable[[], object]:
        def step() -> None:
            with here.open("r+b") as file:
                file.seek(written)
                file.write(data)

        return step

    assert polls(folder, write(more[:size]), write(more), write(more + of(8, 9))) == [[0, 1, 2, 3, 4], [], [5, 6, 7], [8]]


def test_where_it_starts(folder: Path, polls: Any) -> None:
    steps = adding(at(folder), of(5, 7)), adding(at(folder.parent / "t-1"), of(0, 2))
    for options, first in (
        ({"start": "latest"}, []), ({"start_offset": 2}, [2, 3, 4]), ({"start_timestamp": 1004}, [4]),
    ):  # fmt: skip
        later = [] if "start_timestamp" in options else [(1, 0), (1, 1)]
        assert polls(folder.parent, *steps, **options) == [first, [5, 6], later], options
        os.truncate(at(folder), len(of(0, 3)) + len(of(3, 5)))
        at(folder.parent / "t-1").unlink()
    assert polls(folder, *steps, start_offset=6) == [[], [6], []]


def test_latest_is_the_end_at_the_call(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records: Any = kolumn.follow(folder, start="latest")
    adding(at(folder), of(5, 7))()
    assert offsets(next(records)) == [5, 6]
    records.close()
    monkeypatch.setattr(f"{FOLLOW}.sleep", lambda seconds: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        list(kolumn.follow(folder, start="latest"))


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_log_that_is_truncated(kept: int, folder: Path, polls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """As a follower's after an election, to some of its batches; the new leader's follow, more of them than before or fewer, or later."""
    own, new = [of(0, 3), of(3, 5)], [of(0, 3, b"w", leader_epoch=1), of(3, 5, b"w", leader_epoch=1), of(5, 6, b"w", leader_epoch=1)]
    size, end = sum(map(len, own[:kept])), (0, 3, 5)[kept]
    said = f"t-0: read up to offset 6, and the log was truncated to offset {end} meanwhile"
    for count in (0, 1, 2, 3):
        put(folder, *own, of(5, 6))
        cut = partial(os.truncate, at(folder), size)
        added = new[kept : kept + count]
        found = polls(folder, both(cut, adding(at(folder), *added)), adding(at(folder), *new[kept + count :]), rows=values)
        assert found[0] == [b"v"] * 6
        assert found[1] + found[2] == [b"w"] * (6 - end), (kept, count)
        assert [one.message.split(", as after")[0] for one in caplog.records] == [said]
        caplog.clear()


def test_a_log_that_is_truncated_to_an_earlier_segment(folder: Path, polls: Any, caplog: pytest.LogCaptureFixture) -> None:
    cut = both(at(folder, 5).unlink, lambda: os.truncate(at(folder), len(of(0, 3))))
    more = both(adding(at(folder), of(3, 4, leader_epoch=1)), adding(at(folder, 4), of(4, 9, leader_epoch=1)))
    for steps in ((cut, more), (both(cut, more),)):
        put(folder, of(0, 3), of(3, 5)), put(folder, of(5, 8), base=5), at(folder, 4).unlink(missing_ok=True)
        found = polls(folder, *steps)
        assert [found[0], found[-1]] == [[*range(8)], [*range(3, 9)]]
        assert "t-0: read up to offset 8, and the log was truncated to offset 3 meanwhile" in caplog.text
        caplog.clear()


def test_what_retention_deletes(folder: Path, polls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """What was read may go; what was not is told."""
    put(folder, of(5, 8), base=5)
    assert polls(folder, at(folder).unlink, adding(at(folder, 8), of(8, 9)), at(folder, 5).unlink) == [[*range(8)], [], [8], []]
    assert caplog.text == ""
    put(folder, of(0, 3))
    rolled = both(*(adding(at(folder, base), of(base, base + 2)) for base in (12, 14)), at(folder).unlink, at(folder, 8).unlink)
    assert polls(folder, rolled, start_offset=1) == [[1, 2, 8], [12, 13, 14, 15]]
    assert "t-0: offsets 9 to 11 were deleted before they were read" in caplog.text
    caplog.clear()


def test_what_is_before_the_start_never_comes(folder: Path, polls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Also if the log is cut before it was reached."""
    rolled = both(at(folder).unlink, adding(at(folder, 6), of(6, 7)))
    assert polls(folder, rolled, adding(at(folder, 6), of(7, 10)), start_offset=8) == [[], [], [8, 9]]
    assert caplog.text == ""
    at(folder, 6).unlink()
    put(folder, of(0, 3), of(3, 5))
    cut = partial(os.truncate, at(folder), len(of(0, 3)))
    assert polls(folder, both(cut, adding(at(folder), of(3, 4))), adding(at(folder), of(4, 10)), start_offset=8) == [[], [], [8, 9]]


def test_a_partition_that_goes_and_comes_back(folder: Path, polls: Any, caplog: pytest.LogCaptureFixture) -> None:
    away = folder.parent.parent / "away"
    put(folder.parent / "t-1", of(0, 1))
    steps = (
        lambda: folder.rename(away), nothing, both(lambda: away.rename(folder), adding(at(folder.parent / "t-1"), of(1, 2))),
        both(lambda: folder.parent.rename(away)), both(lambda: away.rename(folder.parent), adding(at(folder), of(5, 6))),
    )  # fmt: skip
    assert polls(folder.parent, *steps) == [[0, 1, 2, 3, 4, (1, 0)], [], [], [(1, 1)], [], [5]]
    gone = [one.message for one in caplog.records]
    assert gone[0] == "t-0: read up to offset 5, and the partition no longer exists"
    assert sorted(gone[1:]) == [gone[0], "t-1: read up to offset 2, and the partition no longer exists"]


def test_a_topic_that_was_created_anew(folder: Path, polls: Any, caplog: pytest.LogCaptureFixture) -> None:
    metadata = folder / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: CB7H1K6OSfK1-BrQJPzEKQ\n")
    anew = both(
        lambda: metadata.write_text("version: 0\ntopic_id: gMf8SHNYTfiX_aTsKKMsbQ\n"), lambda: put(folder, of(0, 3), of(3, 5), of(5, 6))
    )
    assert polls(folder, anew, adding(at(folder), of(6, 7))) == [[0, 1, 2, 3, 4], [*range(6)], [6]]
    (said,) = [one.message for one in caplog.records]
    assert said.endswith("it was deleted and created anew, and its offsets began again at 0. It is read from its beginning")


def test_compaction(folder: Path, polls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Of what was read, and of what was not."""
    for base in (5, 8):
        put(folder, of(base, base + 3), base=base)

    def swapped() -> None:
        for base in (0, 5):
            put(folder.parent.parent / "new", batch([Record(base + 1, b"k", b"v")], base_offset=base, last_offset=base + 2), base=base)
            os.replace(at(folder.parent.parent / "new", base), at(folder, base))

    assert polls(folder, swapped, adding(at(folder, 8), of(11, 12))) == [[*range(11)], [], [11]]
    steps = adding(at(folder, 12), of(12, 13)), lambda: os.replace(at(folder, 5), at(folder)), adding(at(folder, 12), of(13, 14))
    assert polls(folder, *steps)[1:] == [[12], [], [13]]
    assert caplog.text == ""


def test_damage_is_told_once(folder: Path, polls: Any) -> None:
    damaged, told = bytearray(of(5, 8)), list[kolumn.Damage]()
    damaged[-1] ^= 1
    lengths = b"\xff" * 40
    steps = (
        adding(at(folder), damaged), adding(at(folder), of(8, 9)), adding(at(folder), of(9, 10)), adding(at(folder), lengths, of(10, 11)),
        adding(at(folder), of(11, 12)), adding(at(folder, 12), of(12, 13)), adding(at(folder, 12), of(13, 14)),
    )  # fmt: skip
    expected = [[0, 1, 2, 3, 4], [], [8], [9], [10], [11], [12], [13]]
    assert polls(folder, *steps, errors="skip", on_damage=told.append) == expected
    assert [(one.base_offset, one.size) for one in told] == [(5, len(damaged)), (None, 40)]
    with pytest.raises(kolumn.CorruptBatchError, match="checksum"):
        polls(folder)


def test_committed_records_come_when_their_transaction_has_ended(folder: Path, polls: Any, caplog: pytest.LogCaptureFixture) -> None:
    def own(first: int, producer: int) -> bytes:
        return of(first, first + 2, flags=TRANSACTIONAL, producer_id=producer, producer_epoch=3, base_sequence=0)

    steps = (
        adding(at(folder), own(5, 7), of(7, 8), own(8, 9)), adding(at(folder, 10), of(10, 11)),
        adding(at(folder, 10), control_batch(11, 0)),
        adding(at(folder, 10), control_batch(12, 1, producer_id=9), of(13, 14)),
    )  # fmt: skip
    expected = [[0, 1, 2, 3, 4], [], [], [7], [8, 9, 10, 13]]
    assert polls(folder, *steps, isolation_level="read_committed") == expected
    at(folder, 10).unlink()
    assert polls(folder, *steps[1:], isolation_level="read_committed", start="latest") == [[], [], [7], [8, 9, 10, 13]]
    assert caplog.text == ""


def test_a_quiet_log_is_not_opened(folder: Path, polls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = watched(monkeypatch, SegmentFile, "__init__")
    counts = list[int]()

    def count() -> None:
        counts.append(len(opened))

    polls(folder, count, count, both(adding(at(folder), of(5, 6)), count), count)
    assert 0 < counts[0] == counts[1] == counts[2] < counts[3]


def test_files_that_change_while_they_are_read(folder: Path, polls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next poll goes on after what was returned. An error that stays is raised."""
    put(folder, of(5, 8), base=5)
    real, once = scan_ranges, [lambda: os.replace(put(folder.parent.parent / "new", of(5, 9), base=5), at(folder, 5))]

    def scanned(*arguments: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        for some in real(*arguments, **named):
            yield some
            if once:
                once.pop()()

    monkeypatch.setattr(f"{FOLLOW}.scan_ranges", scanned)
    assert [*chain(*polls(folder, nothing, nothing, chunk_bytes=1, threads=1))] == [*range(9)]
    monkeypatch.setattr(f"{FOLLOW}.scan_ranges", Mock(side_effect=StorageError("cannot be opened: Permission denied")))
    with pytest.raises(StorageError, match="Permission denied"):
        polls(folder, nothing, nothing)


def test_a_log_that_is_truncated_while_a_batch_is_used(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    records = kolumn.follow(folder, poll_seconds=0)
    assert offsets(next(records)) == [0, 1, 2, 3, 4]
    put(folder, of(0, 3), of(3, 5, b"w", leader_epoch=1))
    assert values(next(records)) == [b"w", b"w"]
    assert "t-0: read up to offset 5, and the log was truncated to offset 3 meanwhile" in caplog.text


def test_typed_values_and_text(folder: Path, polls: Any) -> None:
    """The type is that of the values that are there at first."""
    put(folder, of(0, 2, b'{"a": 1}'))
    lost, step = kolumn.Skipped(), adding(at(folder), of(2, 3, b'{"a": 2, "b": 3}'), of(3, 4, b"no"))
    found = polls(folder, step, rows=values, value_format="json", on_damage=lost)
    assert found == [[{"a": 1}] * 2, [{"a": 2}, None]]
    assert lost.values.values == {"value": 1}
    (texts,) = polls(folder, rows=lambda some: [some.schema.names, *values(some)], payload="string", columns=["value"])
    assert texts == [["value"], '{"a": 1}', '{"a": 1}', '{"a": 2, "b": 3}', "no"]


def test_what_cannot_be_followed(folder: Path, tmp_path: Path) -> None:
    for options, said in (
        ({"start": "middle"}, "start='middle': expected one of earliest, latest"),
        ({"start": "latest", "start_offset": 3}, "start='latest': expected no start_offset"), ({"replicas": "merge"}, "replicas='merge'"),
        ({"end_offset": 5}, "option 'end_offset' has no effect here: follow has no end"), ({"limit": 5}, "option 'limit'"),
        *(({"poll_seconds": one}, "poll_seconds=.*: expected a number of seconds") for one in ("x", -1, math.nan, 1e300, True, None)),
        ({"include_snapshots": True}, "option 'include_snapshots'"), ({"open_transactions": "skip"}, "when it has ended"),
    ):  # fmt: skip
        raises(kolumn.ArgumentError, said, kolumn.follow, folder, **options)
    raises(kolumn.ArgumentError, "a segment in memory does not grow", kolumn.follow, at(folder).read_bytes())
    raises(kolumn.ArgumentError, "no such file", kolumn.follow, tmp_path / "nowhere")
