"""Several threads cut a segment at guesses. Wrong guesses cost time and nothing else, and no thread reads all headers first."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kolumn
from kit.encoder import Record, batch, message
from kolumn.core import recycle
from kolumn.core.errors import CorruptBatchError
from kolumn.decode import pieces
from kolumn.log.chunks import next_border

COLUMNS = ["offset", "timestamp", "key", "value", "position"]
CHUNK = 40_000


def batches(first: int, count: int, value: Any, codec: int = 0) -> bytes:
    """Batches of ten records each; ``value`` is called with the offset."""
    data = []
    for base in range(first, first + 10 * count, 10):
        records = [Record(offset, b"key%d" % offset, value(offset), 1_700_000_000_000 + offset) for offset in range(base, base + 10)]
        data.append(batch(records, codec=codec, base_offset=base, last_offset=base + 9))
    return b"".join(data)


def words(offset: int) -> bytes:
    """A value of half-random bytes."""
    return random.Random(offset).randbytes(40) + bytes(40)


def log(offset: int) -> bytes:
    """A value that is a piece of a log itself, with later offsets, so that it looks as a part of the segment that holds it."""
    return batches(offset + 5, 3, words)


SEGMENTS = {
    "none": batches(0, 400, words),
    "lz4": batches(0, 400, words, codec=3),
    "logs in values": batches(0, 60, log),
    "logs, then words": batches(0, 30, log) + batches(300, 300, words) + batches(3300, 30, log),
    "large batches": batches(0, 20, lambda offset: random.Random(offset).randbytes(9000)),
    "large batches, lz4": batches(0, 20, lambda offset: random.Random(offset).randbytes(4500) + bytes(4500), codec=3),
    "formats": batches(0, 150, words) + b"".join(message(1, Record(n, b"k", words(n), 1_700_000_000_000)) for n in range(1500, 2500))
    + batches(2500, 150, words),
}  # fmt: skip


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pieces were dropped, each time that some were."""
    found = list[int]()
    drop = pieces._drop

    def counted(pending: Any) -> None:
        if pending:
            found.append(len(pending))
        drop(pending)

    monkeypatch.setattr(pieces, "_drop", counted)
    return found


@pytest.mark.parametrize("name", SEGMENTS)
def test_as_one_thread(name: str, tmp_path: Path, ends: list[int]) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(SEGMENTS[name])
    for options in (
        {},
        {"binary": "view"},
        {"errors": "skip"},
        {"columns": [*COLUMNS, "timestampMs"]},
        {"start_timestamp": 1_700_000_000_050},
    ):
        asked: dict[str, Any] = {"columns": COLUMNS, **options}
        alone = kolumn.read(path, threads=1, **asked)
        assert len(alone) == (len(alone) if "start_timestamp" in options else alone["offset"][-1].as_py() + 1)
        for source in (path, path.read_bytes()):
            found = kolumn.read(source, threads=3, chunk_bytes=CHUNK, **asked)
            assert found.num_columns == alone.num_columns
            assert found.equals(alone) or ("binary" in options and found.to_pydict() == alone.to_pydict())
            assert found["offset"].num_chunks > 2 or "start_timestamp" in options
    # Only a segment whose values look as its own entries misleads the guesses.
    assert bool(ends) == ("logs" in name)


@pytest.mark.parametrize("name", ["none", "logs in values", "formats"])
def test_damage_as_one_thread(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    for share in (0.02, 0.3, 0.6, 0.97):
        data = bytearray(SEGMENTS[name])
        data[int(share * len(data))] ^= 0x55
        path.write_bytes(data)
        texts, rows = [], []
        for threads in (1, 3):
            with pytest.raises(CorruptBatchError) as caught:
                kolumn.read(path, columns=COLUMNS, threads=threads, chunk_bytes=CHUNK)
            texts.append(str(caught.value))
            found: list[Any] = []
            with pytest.raises(CorruptBatchError):
                found.extend(kolumn.scan(path, columns=COLUMNS, threads=threads, chunk_bytes=CHUNK))
            damage = list[Any]()
            left = kolumn.read(path, columns=COLUMNS, threads=threads, chunk_bytes=CHUNK, errors="skip", on_damage=damage.append)
            rows.append((left.to_pydict(), [(one.position, one.size) for one in damage], sum(len(one) for one in found)))
        assert texts[0] == texts[1]
        assert rows[0] == rows[1]


@pytest.mark.parametrize("name", ["lz4", "large batches", "large batches, lz4"])
def test_pieces_of_a_batch_each(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(SEGMENTS[name][:200_000])
    alone = kolumn.read(path, threads=1, errors="skip")
    assert kolumn.read(path, threads=2, chunk_bytes=1, errors="skip").equals(alone)


@pytest.mark.parametrize("name", ["none", "lz4"])
@pytest.mark.parametrize("threads", [2, 3])
def test_pieces_are_equal(name: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread gets as many as the others, so that none waits at the end for another one."""
    path, sizes = tmp_path / f"{0:020d}.log", list[int]()
    path.write_bytes(SEGMENTS[name])

    def cut(file: Any, start: int, *others: Any) -> int | None:
        border = next_border(file, start, *others)
        assert border is not None
        sizes.append(border - start)
        return border

    monkeypatch.setattr(pieces, "next_border", cut)
    kolumn.read(path, threads=threads, chunk_bytes=CHUNK)
    assert len(sizes) % threads == 0
    assert max(sizes) < 1.1 * min(sizes)


def test_memory_of_pieces_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh pages take longer than what is decoded into them."""
    path = tmp_path / "words-0"
    text = random.Random(1).randbytes(100)
    values = pa.array([b"%08d" % row + text[row % 50 :] + bytes(40) for row in range(200_000)], pa.binary())
    kolumn.write(pa.table({"value": values}), path, codec="lz4")
    fresh = list[int]()

    def new(size: int) -> Any:
        fresh.append(size)
        return np.empty(size, np.uint8)

    recycle.give_back()
    monkeypatch.setattr(recycle, "_ordinary", recycle._ordinary._replace(new=new))
    made = []
    for _ in range(4):
        size = kolumn.read(path, threads=2).nbytes
        made.append(sum(fresh))
        fresh.clear()
    assert made[0] > size / 2
    assert made[-1] < size / 4


def test_calls_of_the_system(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(SEGMENTS["none"])

    def calls(threads: int) -> int:
        before = _calls()
        kolumn.read(path, columns=COLUMNS, threads=threads, chunk_bytes=100_000)
        return _calls() - before

    calls(2)
    # A walk over headers makes 400 calls.
    assert calls(2) < calls(1) + 40


def _calls() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["syscr"])
