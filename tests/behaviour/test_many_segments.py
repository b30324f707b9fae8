"""Many small segments: what the file system is asked for each of them, and what threads do with them."""

import os
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit.asked import offsets, put, skipping, watched
from kit.encoder import LOG_APPEND_TIME, Record, batch, control_batch, message
from kit.looks import Looks
from kit.paths import without
from kit.streams import GZIP, LZ4, ZSTD
from kolumn.core.paths import TOGETHER
from kolumn.core.schema import RECORD_COLUMNS
from kolumn.source.segments import find_segments

SEGMENTS, EACH = 120, 5


@pytest.fixture(scope="module")
def topic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("t-0")
    for base in range(0, SEGMENTS * EACH, EACH):
        put(folder, batch([Record(base + i, b"key", b"value" * 40, base) for i in range(EACH)]), base=base)
    return folder


def damaged(topic: Path, folder: Path, *numbers: int) -> Path:
    target = folder / "t-0"
    target.mkdir()
    for i, path in enumerate(sorted(topic.iterdir())):
        data = path.read_bytes()
        (target / path.name).write_bytes(data[:-1] + b"!" if i in numbers else data)
    return target


@pytest.mark.parametrize("threads", [1, 2])
def test_a_segment_is_looked_at_once_and_opened_with_its_neighbours(topic: Path, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for ask in (lambda: find_segments(topic), lambda: kolumn.read(topic, threads=threads)):
        looks = Looks(topic)
        with monkeypatch.context() as patch:
            looks.install(patch)
            ask()
        # The last one may grow while it is looked at; some are opened to learn which partition they are.
        assert SEGMENTS < len(looks.steps) < SEGMENTS + 40
        assert sum(step.startswith(("open", "pread")) for step in looks.steps) < 20


def test_threads_get_tiny_segments_together(topic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task of a thread costs waits for Python's lock, more than a tiny segment's loops save."""
    tasks = watched(monkeypatch, ThreadPoolExecutor, "submit")
    assert offsets(topic, threads=2) == list(range(SEGMENTS * EACH))
    assert len(tasks) < SEGMENTS / 20


@pytest.mark.parametrize("options", [{}, {"memory_bytes": 1}, {"chunk_bytes": 1000}], ids=str)
def test_threads_change_neither_rows_nor_reports(topic: Path, options: dict[str, Any], tmp_path: Path) -> None:
    source = damaged(topic, tmp_path, 3, 50, SEGMENTS - 1)
    alone, *found = (skipping(source, threads=threads, **options) for threads in (1, 2, 3))
    assert (alone[0].num_rows, len(alone[1].damage)) == ((SEGMENTS - 3) * EACH, 3)
    for table, skipped in found:
        assert (table, skipped.damage) == (alone[0], alone[1].damage)


@pytest.mark.parametrize("threads", [1, 2])
def test_records_before_an_error_come_first(topic: Path, threads: int, tmp_path: Path) -> None:
    source = damaged(topic, tmp_path, 50)
    rows: list[int] = []
    with pytest.raises(kolumn.CorruptBatchError, match=f"{50 * EACH:020}.log"):
        rows.extend(offset for some in kolumn.scan(source, threads=threads, columns="offset") for offset in some["offset"].to_pylist())
    assert rows == list(range(50 * EACH))


def test_a_read_inside_of_a_callback(topic: Path) -> None:
    """Threads that take turns must not wait for a read that the same thread has begun."""
    inner: list[int] = []

    def progress(done: int) -> None:
        if not inner:
            inner.append(0)
            inner[0] = kolumn.read(topic, threads=2).num_rows

    done: list[int] = []
    reader = threading.Thread(target=lambda: done.append(kolumn.read(topic, threads=2, on_progress=progress).num_rows), daemon=True)
    reader.start()
    reader.join(60)
    assert done == inner == [SEGMENTS * EACH]


def kinds() -> list[bytes]:
    """Segments of five offsets each, of all kinds that a directory can mix."""
    found = list[bytes]()
    for i in range(70):
        first = EACH * i
        keys, values = (None, b"", b"key%d" % i), (b"value" * (i % 50), None, b"")
        headers = [(b"h%d" % j, (b"w", None, b"")[j % 3]) for j in range(4)]
        records = [
            Record(first + k, keys[(i + k) % 3], values[(i + k) % 3], -1 if i % 7 == 3 else first + k, tuple(headers[: (i + k) % 4]))
            for k in range(EACH)
        ]
        codec = (0, 0, LZ4, 0, ZSTD, GZIP)[i % 6]
        entries = batch(records[:2], codec=codec) + batch(records[2:], flags=LOG_APPEND_TIME if i % 5 == 2 else 0)
        if i in (20, 21, 22, 55):
            entries = b"".join(message(i % 2, Record(one.offset, one.key, one.value, one.timestamp if i % 2 else -1)) for one in records)
        elif i == 30:
            entries = batch(records[:4]) + control_batch(first + 4, 1)
        elif i == 31:
            entries = batch(records[:3])
        elif i == 32:
            entries = batch([Record(first + k, b"key", bytes(60_000), first) for k in range(EACH)], codec=GZIP)
        found.append(entries)
    return found


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mixed")
    for partition, segments in enumerate((kinds(), kinds()[:1], kinds()[1:2], kinds()[2:40])):
        for i, data in enumerate(segments, (0, 1, 2, 2)[partition]):
            put(root / f"t-{partition}", data, base=EACH * i)
    return root


def as_alone(source: Path, **options: Any) -> Any:
    """Rows, damage and error of a read, and what `verify` says, which are the same whether small segments are decoded together or not."""
    found = []
    for off in ((), (TOGETHER,)):
        left_out, rows, error = list[Any](), list[Any](), ""
        with without(*off):
            try:
                for some in kolumn.scan(source, on_damage=left_out.append, **options):
                    rows += some.to_pylist()
            except kolumn.KolumnError as raised:
                error = str(raised)
            report = kolumn.verify(source, threads=1)
        found.append((rows, left_out, error, report.segments.to_pylist(), report.remarks.to_pylist()))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"columns": [*RECORD_COLUMNS]}, {}, {"columns": ["offset", "partition"], "start_offset": 52, "end_offset": 171}, {"binary": "view"},
        {"columns": ["key", "tombstone", "headers"], "include_control": True, "memory_bytes": 1 << 20},
        {"columns": ["value", "timestamp"], "start_timestamp": 40, "check_crcs": False, "chunk_bytes": 20_000},
    ],
    ids=str,
)  # fmt: skip
def test_segments_together_are_as_alone(mixed: Path, options: dict[str, Any], threads: int) -> None:
    assert len(as_alone(mixed, threads=threads, **options)[0]) > 100


def test_damage_among_small_segments_is_as_alone(mixed: Path, tmp_path: Path) -> None:
    """A flipped byte, a cut, zeros, offsets of another segment, a file that is no segment, and an empty one."""
    changes: dict[int, Callable[[bytes], bytes]] = {
        12: lambda data: data[:70] + bytes([data[70] ^ 1]) + data[71:], 16: lambda data: data[:-9], 40: lambda data: data + bytes(400),
        44: lambda data: struct.pack(">q", 3) + data[8:], 60: lambda _: b"PAR1" + bytes(200), 65: lambda _: b"",
    }  # fmt: skip
    source = tmp_path / "t-0"
    source.mkdir()
    for i, path in enumerate(sorted((mixed / "t-0").iterdir())):
        (source / path.name).write_bytes(changes.get(i, bytes)(path.read_bytes()))
    assert as_alone(source, errors="raise", threads=1)[2]
    assert len(as_alone(source, errors="skip", threads=1)[1]) >= 3


CHANGES: dict[str, Callable[[Path], object]] = {
    "replaced": lambda path: [path.write_bytes(path.rename(path.with_suffix(".kept")).read_bytes())],
    "overwritten": lambda path: os.utime(path, ns=(1, 1)),
    "cut": lambda path: os.truncate(path, path.stat().st_size - 5),
    "deleted": Path.unlink,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_small_segment_that_changes_after_the_listing_is_an_error(topic: Path, change: Callable[[Path], object], tmp_path: Path) -> None:
    source = damaged(topic, tmp_path)
    reader = kolumn.scan(source, threads=1, chunk_bytes=20_000)
    counts = [reader.read_next_batch().num_rows]
    change(sorted(source.iterdir())[70])
    with pytest.raises(kolumn.KolumnError, match=r"after the source was listed|it was truncated"):
        counts.extend(found.num_rows for found in reader)
    assert sum(counts) == 70 * EACH
