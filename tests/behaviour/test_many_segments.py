"""Many small segments: how much Python each of them, and each chunk, costs, and what threads do with them."""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit.encoder import Record, batch
from kolumn.errors import CorruptBatchError

SEGMENTS, EACH = 120, 5
CALLS_OF_A_SEGMENT = 450
CALLS_OF_A_CHUNK = 300


def entry(offset: int) -> bytes:
    return batch([Record(offset + i, b"key", b"value" * 40, offset) for i in range(EACH)])


@pytest.fixture(scope="module")
def topic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("t-0")
    for i in range(SEGMENTS):
        (folder / f"{i * EACH:020}.log").write_bytes(entry(i * EACH))
    return folder


def damaged(topic: Path, folder: Path, *numbers: int) -> Path:
    """A copy in which some segments have a wrong checksum."""
    target = folder / "t-0"
    target.mkdir()
    for i, path in enumerate(sorted(topic.iterdir())):
        data = path.read_bytes()
        (target / path.name).write_bytes(data[:-1] + b"!" if i in numbers else data)
    return target


def calls(read: Callable[[], object]) -> int:
    """Calls of Python functions in this thread, once all is warm."""
    read()
    found = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal found
        found += event == "call"

    sys.setprofile(count)
    try:
        read()
    finally:
        sys.setprofile(None)
    return found


def test_a_segment_costs_few_calls_of_python(topic: Path) -> None:
    assert calls(lambda: kolumn.read(topic, threads=1)) / SEGMENTS < CALLS_OF_A_SEGMENT


def test_a_chunk_costs_few_calls_of_python(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"".join(entry(EACH * i) for i in range(2000)))
    size = path.stat().st_size
    one, many = (calls(lambda n=n: kolumn.read(path, threads=1, chunk_bytes=size // n + 1)) for n in (1, 40))  # type: ignore[misc]
    assert (many - one) / 39 < CALLS_OF_A_CHUNK


def test_threads_get_tiny_segments_together(topic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task of a thread costs waits for Python's lock, more than a tiny segment's loops save."""
    tasks: list[object] = []
    submit = ThreadPoolExecutor.submit

    def counted(pool: ThreadPoolExecutor, *args: Any, **named: Any) -> Any:
        tasks.append(args)
        return submit(pool, *args, **named)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", counted)
    assert kolumn.read(topic, threads=2, columns="offset")["offset"].to_pylist() == list(range(SEGMENTS * EACH))
    assert len(tasks) < SEGMENTS / 20


@pytest.mark.parametrize("options", [{}, {"memory_bytes": 1}, {"chunk_bytes": 1000}], ids=str)
def test_threads_change_neither_rows_nor_reports(topic: Path, options: dict[str, Any], tmp_path: Path) -> None:
    """Whatever the share of memory leaves for later."""
    source = damaged(topic, tmp_path, 3, 50, SEGMENTS - 1)
    found = []
    for threads in (1, 2, 3):
        left_out: list[Any] = []
        table = kolumn.read(source, errors="skip", threads=threads, on_damage=left_out.append, **options)
        found.append((table.to_pylist(), [(damage.segment, damage.position) for damage in left_out]))
    assert len(found[0][0]) == (SEGMENTS - 3) * EACH
    assert len(found[0][1]) == 3
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.mark.parametrize("threads", [1, 2])
def test_records_before_an_error_come_first(topic: Path, threads: int, tmp_path: Path) -> None:
    source = damaged(topic, tmp_path, 50)
    rows: list[int] = []

    def scan() -> None:
        for found in kolumn.scan(source, threads=threads, columns="offset"):
            rows.extend(found["offset"].to_pylist())

    with pytest.raises(CorruptBatchError, match=f"{50 * EACH:020}.log"):
        scan()
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
