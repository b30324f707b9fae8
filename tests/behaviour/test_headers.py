"""What a read of headers costs: bytes, system calls and calls of Python are counted, not time."""

import os
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.counted import IO, counted
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch
from kolumn.core.errors import CorruptBatchError
from kolumn.damage.findings import Damage
from kolumn.log.seek import select_ranges
from kolumn.options import Options
from kolumn.source.segments import find_segments

ABORT, COMMIT = 0, 1
BATCHES, EACH = 200, 4


def large(offset: int, **fields: Any) -> bytes:
    """A batch of 16 KiB with `EACH` records."""
    return batch([Record(offset + i, b"key", bytes([offset % 251]) * 4096, offset) for i in range(EACH)], **fields)


@pytest.fixture(scope="module")
def entries() -> list[bytes]:
    """Of a segment of 3 MiB."""
    return [large(EACH * i) for i in range(BATCHES)]


@pytest.fixture(scope="module")
def segment(entries: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("t-0"), entries)


def written(folder: Path, entries: list[bytes], base: int = 0) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{base:020}.log"
    path.write_bytes(b"".join(entries))
    return path


pytestmark = pytest.mark.skipif(not IO.exists(), reason="this system does not count what a process reads")


def test_a_list_of_batches_reads_headers(segment: Path) -> None:
    """One small read for each header; with checksums everything is read."""
    bare, size, reads, _ = counted(lambda: kolumn.batches(segment, check_crcs=False))
    checked, whole, _, _ = counted(lambda: kolumn.batches(segment))
    assert bare.drop_columns("crcValid").equals(checked.drop_columns("crcValid"))
    assert bare.num_rows == BATCHES
    assert size < 0.05 * segment.stat().st_size < whole
    assert reads < BATCHES + 30


def test_more_batches_are_no_more_calls_of_python(tmp_path: Path) -> None:
    small = [batch([Record(i, b"", b"v" * 2000)]) for i in range(3000)]
    few, many = (written(tmp_path / name, small[:count]) for name, count in (("few-0", 1000), ("many-0", 3000)))
    counts = [counted(partial(kolumn.batches, path, check_crcs=False))[3].total() for path in (few, many)]
    assert counts[1] < counts[0] + 400


def test_small_segments_share_the_table(tmp_path: Path) -> None:
    """One Arrow table is made of many segments; the column says which row is whose."""
    folder = tmp_path / "t-0"
    paths = [written(folder, [batch([Record(i, b"k", b"v")])], i) for i in range(40)]
    found = kolumn.batches(folder)
    assert found["segment"].num_chunks == 1
    assert found["segment"].to_pylist() == [str(path) for path in paths]
    assert found["baseOffset"].to_pylist() == list(range(40))


RANGES = [(0, 10), (401, 420), (790, 10_000), (None, 9), (795, None), (10_000, None), (10_000, 10_010), (398, 399)]


@pytest.mark.parametrize("suffix", [None, ".index", ".timeindex", ".txnindex"])
def test_headers_are_walked_by_verify_for_index_files(entries: list[bytes], suffix: str | None, tmp_path: Path) -> None:
    """Of a log without any, nothing but its bytes has to be checked."""
    path = written(tmp_path / "t-0", entries)
    if suffix is not None:
        path.with_suffix(suffix).write_bytes(b"")
    found, _, reads, _ = counted(lambda: kolumn.verify(path, threads=1))
    assert found.ok
    assert (reads > BATCHES) == (suffix is not None)


@pytest.mark.sample
@pytest.mark.parametrize(("start", "end"), RANGES)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_small_range_reads_headers_of_the_rest(segment: Path, start: int | None, end: int | None, threads: int) -> None:
    """Without an index. Rows are those of a read of all."""
    found, size, _, _ = counted(lambda: kolumn.read(segment, start_offset=start, end_offset=end, threads=threads))
    everything = kolumn.read(segment)
    low, high = start or 0, 10**9 if end is None else end
    assert found.equals(everything.filter([low <= offset < high for offset in everything["offset"].to_pylist()]))
    assert size < 0.15 * segment.stat().st_size


@pytest.mark.parametrize(("start", "end"), [(1000, None), (None, 1000), (1000, 1010), (800, 2400), (EACH * BATCHES * 20, None)])
def test_segments_outside_of_a_range_are_not_opened(
    entries: list[bytes], start: int | None, end: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names tell which ones those are. Headers are walked only where the range begins or ends; the last segment may be growing."""
    folder, each = tmp_path / "t-0", EACH * BATCHES
    whole = written(folder, entries)
    for i in range(1, 4):
        written(folder, [with_base(entry, i * each + EACH * k) for k, entry in enumerate(entries)], i * each)
    for i in range(4, 20):
        # Nobody looks into these.
        (folder / f"{i * each:020}.log").hardlink_to(whole)
    opened: dict[str, int] = {}
    really = os.open

    def note(path: Any, *args: Any, **named: Any) -> int:
        opened[str(path)] = opened.get(str(path), 0) + 1
        return really(path, *args, **named)

    monkeypatch.setattr(os, "open", note)
    segments = find_segments(folder)
    ranges = select_ranges(segments, Options(start_offset=start, end_offset=end))
    low, high = start or 0, end or 10**9
    bases = [i * each for i in range(len(segments))]
    bounds = {low // each, high // each}
    last = bases[-1]
    assert [one.segment.base_offset for one in ranges] == [base for base in bases if base < high and (base + each > low or base == last)]
    # The folder itself is opened too, to look at its files.
    assert set(opened) - {str(folder)} <= {segments[i].path for i in bounds if i < len(segments)} | {segments[-1].path}


def test_a_large_range_is_read_without_looking_at_headers_first(segment: Path) -> None:
    _, size, reads, _ = counted(lambda: kolumn.read(segment, start_offset=EACH * 40, threads=1))
    assert size < 1.1 * segment.stat().st_size
    assert reads < BATCHES // 2


def with_length(entry: bytes, size: int) -> bytes:
    return entry[:8] + struct.pack(">i", size - 12) + entry[12:]


def with_base(entry: bytes, offset: int) -> bytes:
    return struct.pack(">q", offset) + entry[8:]


def rows(source: Path, **options: Any) -> list[int]:
    return kolumn.read(source, columns="offset", threads=1, **options)["offset"].to_pylist()


@pytest.mark.parametrize("jump", [2, 3, 40])
def test_a_wrong_length_hides_nothing_of_a_range(entries: list[bytes], jump: int, tmp_path: Path) -> None:
    """It leads to a later batch over those of the range."""
    at = 100
    long = sum(len(entry) for entry in entries[at : at + jump])
    path = written(tmp_path, [*entries[:at], with_length(entries[at], long), *entries[at + 1 :]])
    first = EACH * (at + 1)
    assert rows(path, start_offset=first, end_offset=first + 4, errors="skip") == list(range(first, first + 4))
    with pytest.raises(CorruptBatchError):
        rows(path, start_offset=first, end_offset=first + 4)


@pytest.mark.parametrize("wrong", [0, 10**6])
def test_a_wrong_offset_ends_no_range(entries: list[bytes], wrong: int, tmp_path: Path) -> None:
    """No checksum covers a base offset."""
    at = 100
    path = written(tmp_path, [*entries[:at], with_base(entries[at], wrong), *entries[at + 1 :]])
    wanted = range(EACH * (at - 2), EACH * (at + 3))
    expected = [offset for offset in rows(path) if offset in wanted]
    assert rows(path, start_offset=wanted.start, end_offset=wanted.stop) == expected
    assert len(expected) == len(wanted) - EACH


def test_damage_in_a_range_is_found(entries: list[bytes], tmp_path: Path) -> None:
    at = 100
    path = written(tmp_path, [*entries[:at], entries[at][:-1] + b"!", *entries[at + 1 :]])
    left_out: list[Damage] = []
    found = rows(path, start_offset=EACH * at, end_offset=EACH * at + 5, errors="skip", on_damage=left_out.append)
    assert found == [EACH * at + EACH]
    assert [damage.base_offset for damage in left_out] == [EACH * at]


def transactions(count: int, of: Callable[[int], int], payload: int) -> list[bytes]:
    """A log of ``count`` transactions of a batch each; ``of`` is how each of them ends."""
    made = []
    for i in range(count):
        made.append(batch([Record(2 * i, b"k", b"v" * payload)], flags=TRANSACTIONAL, producer_id=i % 7))
        made.append(control_batch(2 * i + 1, of(i), producer_id=i % 7))
    return made


def test_without_transactions_a_committed_read_costs_headers_more(segment: Path) -> None:
    plain, size, _, _ = counted(lambda: kolumn.read(segment, threads=1))
    committed, more, _, _ = counted(lambda: kolumn.read(segment, threads=1, isolation_level="read_committed"))
    assert committed.equals(plain)
    assert more < 1.1 * size


def test_markers_are_read_together(tmp_path: Path) -> None:
    """Calls of Python do not grow with the transactions, and of data batches only headers are read, unless they were aborted."""
    folders = [tmp_path / name for name in ("few-0", "many-0")]
    sizes = (100, 2600)
    for folder, count in zip(folders, sizes, strict=True):
        written(folder, transactions(count, lambda i: COMMIT, 2500))

    def read(folder: Path) -> tuple[pa.Table, int, int, int]:
        table, size, reads, calls = counted(lambda: kolumn.read(folder, columns="offset", threads=1, isolation_level="read_committed"))
        return table, size, reads, calls.total()

    (few, _, _, few_calls), (many, size, _, many_calls) = map(read, folders)
    assert [found.num_rows for found in (few, many)] == list(sizes)
    assert many_calls - few_calls < 0.5 * (sizes[1] - sizes[0])
    assert size < 1.3 * sum(path.stat().st_size for path in folders[1].iterdir())


@pytest.mark.parametrize("side_files", [False, True])
def test_who_aborts(side_files: bool, tmp_path: Path) -> None:
    """Every third transaction; also where the broker's list of them is long."""
    folder = tmp_path / "t-0"
    path = written(folder, transactions(300, lambda i: COMMIT if i % 3 else ABORT, 10))
    if side_files:
        gone = [struct.pack(">hqqqq", 0, i % 7, 2 * i, 2 * i + 1, 2 * i + 1) for i in range(0, 300, 3)]
        path.with_suffix(".txnindex").write_bytes(b"".join(gone))
    found = kolumn.read(folder, columns="offset", isolation_level="read_committed")["offset"].to_pylist()
    assert found == [2 * i for i in range(300) if i % 3]


def test_a_transaction_begins_with_its_first_intact_batch(tmp_path: Path) -> None:
    """Also if it is aborted: what is damaged before is damage, and left out as such."""
    folder = tmp_path / "t-0"
    data = [batch([Record(i, b"k", b"v")], flags=TRANSACTIONAL, producer_id=7) for i in range(3)]
    written(folder, [data[0][:-1] + b"!", *data[1:], control_batch(3, ABORT), batch([Record(4, b"k", b"v")])])
    states = kolumn.read(folder, columns=["offset", "transaction"], errors="skip")
    assert states.to_pylist() == [
        {"offset": 1, "transaction": "aborted"}, {"offset": 2, "transaction": "aborted"}, {"offset": 4, "transaction": "none"},
    ]  # fmt: skip
