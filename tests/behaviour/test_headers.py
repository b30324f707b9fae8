"""What reads and tools cost: fresh memory, bytes, system calls and calls of Python are counted, not time."""

import os
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kolumn
from kit.asked import offsets, put, skipping
from kit.counted import IO, counted
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch
from kit.outcome import raises
from kolumn.cli import main
from kolumn.core import recycle
from kolumn.log.seek import select_ranges
from kolumn.options import Options
from kolumn.source.segments import find_segments
from kolumn.writers.encoders import ENCODERS

ABORT, COMMIT = 0, 1
BATCHES, EACH = 200, 4


@pytest.fixture(scope="module")
def entries() -> list[bytes]:
    """Batches of 16 KiB with `EACH` records, of a segment of 3 MiB."""
    every = (range(first, first + EACH) for first in range(0, EACH * BATCHES, EACH))
    return [batch([Record(i, b"key", bytes([own.start % 251]) * 4096, own.start) for i in own]) for own in every]


@pytest.fixture(scope="module")
def segment(entries: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return put(tmp_path_factory.mktemp("t-0"), *entries)


pytestmark = pytest.mark.skipif(not IO.exists(), reason="this system does not count what a process reads")


def test_a_list_of_batches_reads_headers(segment: Path) -> None:
    bare, size, reads, _ = counted(lambda: kolumn.batches(segment, check_crcs=False))
    checked, whole, _, _ = counted(lambda: kolumn.batches(segment))
    assert bare.drop_columns("crcValid").equals(checked.drop_columns("crcValid"))
    assert bare.num_rows == BATCHES
    assert size < 0.05 * segment.stat().st_size < whole
    assert reads < BATCHES + 30


def test_batches_and_small_segments_cost_little_python(tmp_path: Path) -> None:
    small = [batch([Record(i, b"", b"v" * 2000)]) for i in range(3000)]
    few, many = (put(tmp_path / name, *small[:count]) for name, count in (("few-0", 1000), ("many-0", 3000)))
    counts = [counted(partial(kolumn.batches, path, check_crcs=False))[3].total() for path in (few, many)]
    assert counts[1] < counts[0] + 400
    # One Arrow table is made of many segments; the column says which row is whose.
    folder = tmp_path / "t-0"
    paths = [put(folder, batch([Record(i, b"k", b"v")]), base=i) for i in range(40)]
    found = kolumn.batches(folder)
    assert found["segment"].num_chunks == 1
    assert found["segment"].to_pylist() == [str(path) for path in paths]
    assert found["baseOffset"].to_pylist() == list(range(40))


RANGES = [(0, 10), (401, 420), (790, 10_000), (None, 9), (795, None), (10_000, None), (10_000, 10_010), (398, 399)]


@pytest.mark.parametrize("suffix", [None, ".index", ".timeindex", ".txnindex"])
def test_headers_are_walked_by_verify_for_index_files(entries: list[bytes], suffix: str | None, tmp_path: Path) -> None:
    """Of a log without any, nothing but its bytes has to be checked."""
    path = put(tmp_path / "t-0", *entries)
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
    whole = put(folder, *entries)
    for i in range(1, 4):
        # No checksum covers the base offset.
        put(folder, *(struct.pack(">q", i * each + EACH * k) + entry[8:] for k, entry in enumerate(entries)), base=i * each)
    for i in range(4, 20):
        # Nobody looks into these.
        (folder / f"{i * each:020}.log").hardlink_to(whole)
    opened, really = set[str](), os.open
    monkeypatch.setattr(os, "open", lambda path, *args, **named: opened.add(str(path)) or really(path, *args, **named))
    segments = find_segments(folder)
    ranges = select_ranges(segments, Options(start_offset=start, end_offset=end))
    low, high = start or 0, end or 10**9
    bases = [i * each for i in range(len(segments))]
    in_range = [base for base in bases if base < high and (base + each > low or base == bases[-1])]
    assert [part.segment.base_offset for part in ranges] == in_range
    # The folder itself is opened too, to look at its files.
    bounds = {segments[i].path for i in (low // each, high // each) if i < len(segments)}
    assert opened - {str(folder)} <= bounds | {segments[-1].path}


def test_large_ranges_and_committed_reads_cost_little_more(segment: Path) -> None:
    _, size, reads, _ = counted(lambda: kolumn.read(segment, start_offset=EACH * 40, threads=1))
    assert size < 1.1 * segment.stat().st_size
    assert reads < BATCHES // 2
    plain, size, _, _ = counted(lambda: kolumn.read(segment, threads=1))
    committed, more, _, _ = counted(lambda: kolumn.read(segment, threads=1, isolation_level="read_committed"))
    assert committed.equals(plain)
    assert more < 1.1 * size


AT = 100


def changed(folder: Path, entries: list[bytes], entry: bytes) -> Path:
    return put(folder, *entries[:AT], entry, *entries[AT + 1 :])


@pytest.mark.parametrize("jump", [2, 3, 40])
def test_a_wrong_length_hides_nothing_of_a_range(entries: list[bytes], jump: int, tmp_path: Path) -> None:
    """It leads to a later batch over those of the range."""
    long = struct.pack(">i", sum(map(len, entries[AT : AT + jump])) - 12)
    path = changed(tmp_path, entries, entries[AT][:8] + long + entries[AT][12:])
    first = EACH * (AT + 1)
    asked = {"threads": 1, "start_offset": first, "end_offset": first + 4}
    assert offsets(path, errors="skip", **asked) == list(range(first, first + 4))
    raises(kolumn.CorruptBatchError, "", offsets, path, **asked)


def test_damage_in_a_range_is_found(entries: list[bytes], tmp_path: Path) -> None:
    path = changed(tmp_path, entries, entries[AT][:-1] + b"!")
    found, skipped = skipping(path, columns="offset", threads=1, start_offset=EACH * AT, end_offset=EACH * AT + 5)
    assert (found["offset"].to_pylist(), [damage.base_offset for damage in skipped.damage]) == ([EACH * AT + EACH], [EACH * AT])


def transactions(count: int, of: Callable[[int], int], payload: int) -> list[bytes]:
    """A log of ``count`` transactions of a batch each; ``of`` is how each of them ends."""
    made = []
    for i in range(count):
        made.append(batch([Record(2 * i, b"k", b"v" * payload)], flags=TRANSACTIONAL, producer_id=i % 7))
        made.append(control_batch(2 * i + 1, of(i), producer_id=i % 7))
    return made


def test_markers_are_read_together(tmp_path: Path) -> None:
    """Calls of Python do not grow with the transactions, and of data batches only headers are read, unless they were aborted."""
    folders = [tmp_path / name for name in ("few-0", "many-0")]
    sizes = (100, 2600)
    for folder, count in zip(folders, sizes, strict=True):
        put(folder, *transactions(count, lambda i: COMMIT, 2500))

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
    path = put(folder, *transactions(300, lambda i: COMMIT if i % 3 else ABORT, 10))
    if side_files:
        gone = [struct.pack(">hqqqq", 0, i % 7, 2 * i, 2 * i + 1, 2 * i + 1) for i in range(0, 300, 3)]
        path.with_suffix(".txnindex").write_bytes(b"".join(gone))
    assert offsets(folder, isolation_level="read_committed") == [2 * i for i in range(300) if i % 3]


MIB = 1 << 20
KEYS = 500
FEW, MANY = 20_000, 60_000


def log(folder: Path, records: int, **options: Any) -> Path:
    """Records of some 100 bytes in batches of 16 KiB; of each of `KEYS` keys all but the last are superseded."""
    rows = range(records)
    table = pa.table({"key": [b"key-%d" % (row % KEYS) for row in rows], "value": [b"%d" % row * 15 for row in rows]})
    kolumn.write(table, folder, **options)
    return folder


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("logs")
    return log(folder / "few-0", FEW), log(folder / "many-0", MANY)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.log"))


@pytest.fixture(params=["none", "lz4", "zstd"])
def noise(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    data = np.random.default_rng(1).bytes(20 * MIB)
    table = pa.table({"key": [b"k"] * 100_000, "value": [data[200 * row : 200 * row + 200] for row in range(100_000)]})
    kolumn.write(table, tmp_path / "t-0", codec=request.param)
    return tmp_path / "t-0"


@pytest.fixture
def fresh() -> Iterator[list[int]]:
    sizes: list[int] = []
    recycle.allocate_by(lambda size: sizes.append(size) or np.empty(size, np.uint8))
    yield sizes
    recycle.allocate_by(None)


def test_chunks_use_memory_again(noise: Path, fresh: list[int]) -> None:
    """A scan of 10 chunks takes no fresh memory, reads each byte about once, and a block at a time."""

    def scan() -> int:
        return sum(batch.num_rows for batch in kolumn.scan(noise, threads=1, chunk_bytes=2 * MIB))

    assert scan() == 100_000
    fresh.clear()
    _, read, reads, _ = counted(scan)
    # `counted` scans twice.
    assert sum(fresh) <= 4 * MIB
    assert read <= 1.3 * size_of(noise) + MIB
    assert reads <= size_of(noise) // (MIB // 4) + 100


def test_a_small_file_goes_through_few_files_and_calls(tmp_path: Path) -> None:
    """The numbers only fall: whoever lowers one lowers the limit too."""
    kolumn.write(pa.table({"value": [b"v" * 30] * 500}), tmp_path / "t-0", batch_bytes=400)
    calls = counted(lambda: kolumn.read(tmp_path / "t-0", threads=1))[3]
    own = {name: count for name, count in calls.items() if name.startswith(f"{Path(kolumn.__file__).parent}/")}
    assert 20 < len(own) <= 27
    assert 100 < sum(own.values()) <= 119


def test_threads_use_the_memory_of_one_again(noise: Path, fresh: list[int]) -> None:
    """Pieces of a segment take columns of the size of one thread's chunks; what is new is what a second thread needs beside them, once."""
    made = []
    for threads in (1, 1, 2, 2, 2, 2):
        if len(made) == 5:
            recycle.give_back()
        fresh.clear()
        assert kolumn.read(noise, threads=threads, chunk_bytes=2 * MIB, columns=["key", "value"]).num_rows == 100_000
        made.append(sum(fresh))
    assert made[2] <= 16 * MIB
    assert made[4] <= 5 * MIB < made[5]


@pytest.mark.parametrize("options", [{"magic": 0}, {"magic": 1}, {"magic": 1, "codec": "lz4"}, {"format": "v3-compact"}], ids=str)
def test_conversion_costs_no_python_for_a_record(tmp_path: Path, logs: tuple[Path, Path], options: dict[str, Any]) -> None:
    costs = [counted(lambda out, source=source: kolumn.convert(source, out, **options), places(tmp_path))[3].total() for source in logs]
    assert costs[1] - costs[0] < 0.05 * (MANY - FEW)


def test_compaction_reads_twice_and_costs_no_python_for_a_record(tmp_path: Path, logs: tuple[Path, Path]) -> None:
    told = [
        counted(lambda out, source=source: kolumn.compact(source, out / "t-0", include_active=True), places(tmp_path)) for source in logs
    ]
    assert told[1][1] <= 2.2 * size_of(logs[1]) + MIB
    assert told[1][3].total() - told[0][3].total() < 0.05 * (MANY - FEW)
    assert told[1][0].retained == KEYS


@pytest.mark.parametrize("command", [kolumn.convert, kolumn.compact])
def test_whole_batches_are_not_encoded(tmp_path: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"key": [b"%d" % row for row in range(5000)], "value": [b"v" * 100] * 5000})
    kolumn.write(table, tmp_path / "t-0", codec="gzip")
    for encoder in set(ENCODERS.values()):
        monkeypatch.setattr(encoder, "put", None)
    command(tmp_path / "t-0", tmp_path / "out" / "t-0", **{"include_active": True} if command is kolumn.compact else {})
    (path,) = (tmp_path / "out").rglob("*.log")
    assert path.read_bytes() == (tmp_path / "t-0" / path.name).read_bytes()


@pytest.mark.parametrize("command", [[], ["inspect", "--no-check-crcs"]])
def test_headers_are_enough(logs: tuple[Path, Path], command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> None:
        monkeypatch.setattr("sys.argv", ["kolumn", *command, str(logs[1])])
        ended = raises(SystemExit, "", main)
        assert not ended.code

    # Without a command: the overview.
    _, size, _, _ = counted(run)
    assert size < 0.05 * size_of(logs[1])


def places(folder: Path) -> Callable[[], Path]:
    return lambda: folder / f"{len(list(folder.iterdir()))}"
