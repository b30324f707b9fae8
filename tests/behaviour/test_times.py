"""Ranges of times without index files: the rows are those of a read of all, and payloads are not read where a broker gave the times."""

import random
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import kolumn
from kit.encoder import Record, batch
from kolumn.core.errors import CorruptBatchError
from kolumn.log import narrow

START, EACH, COUNT = 1_700_000_000_000, 8, 300
LOG_APPEND_TIME = 8


def segment(rng: random.Random, kind: str) -> bytes:
    """Batches whose times grow, or nearly grow, or do not."""
    data = []
    for number in range(COUNT):
        base = number * EACH
        late = {
            "ordered": 0,
            "jitter": rng.randrange(-50, 50),
            "none": rng.randrange(-3000, 3000),
            "append": 0,
            "mixed": rng.randrange(-20, 20),
        }
        times = [START + base + i + (late[kind] if rng.random() < 0.5 else 0) for i in range(EACH)]
        records = [Record(base + i, b"k%d" % i, rng.randbytes(60), times[i]) for i in range(EACH)]
        append = kind == "append" or (kind == "mixed" and number % 100 < 40)
        data.append(batch(records, flags=LOG_APPEND_TIME if append else 0, codec=rng.choice((0, 3))))
    return b"".join(data)


@pytest.mark.parametrize("kind", ["ordered", "jitter", "none", "append", "mixed"])
def test_rows_of_a_range(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(kind)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(segment(rng, kind))
    columns = ["offset", "timestampMs", "value"]
    whole = kolumn.read(path, columns=columns)
    monkeypatch.setattr(narrow, "SMALLEST", 1)
    last = START + COUNT * EACH
    ranges = [(START - 10, START), (last + 5000, last + 6000), (START, last), (None, START + 40), (last - 9, None)]
    ranges += [(low := rng.randrange(START, last), low + rng.choice((1, 100, 1000))) for _ in range(12)]
    for low, high in ranges:
        keep = pc.and_(
            pc.greater_equal(whole["timestampMs"], low if low is not None else 0),
            pc.less(whole["timestampMs"], high if high is not None else 2**62),
        )
        for more in ({}, {"threads": 3, "chunk_bytes": 20_000}, {"start_offset": 500, "end_offset": 2000}):
            asked: dict[str, Any] = {"start_timestamp": low, "end_timestamp": high, **more}
            expected = whole.filter(keep)
            if "start_offset" in more:
                expected = expected.filter(pc.and_(pc.greater_equal(expected["offset"], 500), pc.less(expected["offset"], 2000)))
            assert kolumn.read(path, columns=columns, **asked).equals(expected), asked


def appended(rng: random.Random) -> list[bytes]:
    """Batches of 16 KiB with one time each, given by the broker."""
    numbers, flags = range(200), LOG_APPEND_TIME
    return [batch([Record(at * 10 + i, b"k", rng.randbytes(1600), START + at) for i in range(10)], flags=flags) for at in numbers]


def test_bytes_that_are_read(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(appended(random.Random(1))))
    kolumn.read(path)
    before = _bytes()
    assert len(kolumn.read(path, threads=1, start_timestamp=START + 100, end_timestamp=START + 102)) == 20
    assert _bytes() - before < 0.1 * path.stat().st_size


def test_damage_in_front_of_the_first_batch_ends_the_shortcut(tmp_path: Path) -> None:
    path, batches = tmp_path / f"{0:020d}.log", appended(random.Random(2))
    batches[149] = batches[149][:-1] + bytes([batches[149][-1] ^ 1])
    path.write_bytes(b"".join(batches))
    with pytest.raises(CorruptBatchError, match="checksum"):
        kolumn.read(path, start_timestamp=START + 150)
    assert len(kolumn.read(path, start_timestamp=START + 151)) == 490


def _bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])
