"""Index entries are made for many batches at a time; they are those of ``LogSegment.append``, which takes one batch after the other."""

import io
import random
import struct

import numpy as np
import pytest

from kolumn.encode.segments import IndexEntries
from kolumn.formats.entries import Entries

MOST = 2**31 - 1


def one_by_one(base: int, batches: list[tuple[int, int, int, int]], interval: int) -> tuple[bytes, bytes]:
    """The two indexes, of batches with position, size, last offset and largest timestamp."""
    index, times, since, end = b"", b"", 0, 0
    time, time_offset, noted = -1, base, -1

    def note_time() -> tuple[bytes, int]:
        if time > noted and time_offset - base <= MOST:
            return struct.pack(">qi", time, time_offset - base), time
        return b"", noted

    for position, size, last, stamp in batches:
        since += position - end
        if stamp > time:
            time, time_offset = stamp, last
        if since > interval:
            if last - base <= MOST:
                index += struct.pack(">ii", last - base, position)
            more, noted = note_time()
            times += more
            since = 0
        since, end = since + size, position + size
    return index, times + note_time()[0]


@pytest.mark.parametrize("seed", range(40))
def test_many_at_a_time_are_as_one_by_one(seed: int) -> None:
    chance = random.Random(seed)
    base, interval, position, last = chance.choice((0, 1000)), chance.choice((1, 100, 4096)), 0, 1000
    batches = list[tuple[int, int, int, int]]()
    for _ in range(chance.choice((1, 2, 300))):
        size, gap = chance.choice((70, 90, 5000)), chance.choice((0, 0, 0, 777)) if seed % 2 else 0
        last += chance.choice((1, 1, 5, 2**30 if seed % 5 == 0 else 3))
        batches.append((position + gap, size, last, chance.choice((-1, 5, 6, chance.randrange(100)))))
        position += gap + size
    index, times = io.BytesIO(), io.BytesIO()
    made = IndexEntries(base, index, times)
    rest = batches
    while rest:
        some, rest = rest[: (cut := chance.randrange(1, 80))], rest[cut:]
        entries = Entries.zeros(len(some))
        columns = np.array(some, np.int64)
        entries.position, entries.size, entries.last_offset, entries.max_timestamp = columns.T
        made.note(columns[:, 0].copy(), entries, interval)
    made.note_time()
    assert (index.getvalue(), times.getvalue()) == one_by_one(base, batches, interval)
