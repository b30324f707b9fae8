"""Random logs that are followed while they grow, roll, are compacted and truncated: what was read is what the log has, each record once."""

import os
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit.encoder import Record, batch

_Batch = tuple[int, dict[int, bytes], int, bytes]
"""First offset, values by offset, leader epoch, bytes."""


class _LogEndedError(Exception):
    """No step is left."""


class _Log:
    """A partition as a broker writes it. Of the last batch a part may be written."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.next, self.epoch, self.made = folder, 0, 0, 0
        self.segments: dict[int, list[_Batch]] = {0: []}
        self.half: tuple[_Batch, bytes] | None = None
        self.add(0, b"")

    def path(self, base: int) -> Path:
        return self.folder / f"{base:020}.log"

    def add(self, base: int, data: bytes) -> None:
        with self.path(base).open("ab") as file:
            file.write(data)

    @property
    def records(self) -> dict[int, bytes]:
        return {offset: value for own in self.segments.values() for one in own for offset, value in one[1].items()}

    def finish(self) -> int:
        """Write the rest of the last batch; returns the base offset of the last segment."""
        last = max(self.segments)
        if self.half is not None:
            (one, rest), self.half = self.half, None
            self.add(last, rest)
            self.segments[last].append(one)
        return last

    def append(self, rng: random.Random) -> None:
        last, count = self.finish(), rng.randint(1, 4)
        self.made += 1
        values = {self.next + i: b"%d-%d" % (self.made, i) for i in range(count)}
        data = batch([Record(offset, None, value) for offset, value in values.items()], leader_epoch=self.epoch)
        one, cut = (self.next, values, self.epoch, data), rng.choice([len(data), len(data), rng.randrange(len(data))])
        self.next += count
        self.add(last, data[:cut])
        if cut == len(data):
            self.segments[last].append(one)
        else:
            self.half = one, data[cut:]

    def roll(self, _: random.Random) -> None:
        if self.segments[self.finish()]:
            self.segments[self.next] = []
            self.add(self.next, b"")

    def compact(self, rng: random.Random) -> None:
        """Replace a segment by one with some of its records."""
        base = rng.choice(sorted(self.segments))
        if base == max(self.segments):
            return
        kept: list[_Batch] = []
        for first, values, epoch, _ in self.segments[base]:
            some = {offset: value for offset, value in values.items() if rng.random() < 0.6}
            if some:
                records = [Record(offset, None, value) for offset, value in some.items()]
                kept.append((first, some, epoch, batch(records, base_offset=first, last_offset=max(values), leader_epoch=epoch)))
        self.segments[base] = kept
        new = self.folder / "new"
        new.write_bytes(b"".join(one[3] for one in kept))
        os.replace(new, self.path(base))

    def retain(self, _: random.Random) -> None:
        if len(self.segments) > 1:
            first = min(self.segments)
            del self.segments[first]
            self.path(first).unlink()

    def truncate(self, rng: random.Random) -> None:
        """Cut off one of the last batches and what follows it; a new leader begins."""
        self.finish()
        places = [(base, i) for base, own in sorted(self.segments.items()) for i in range(len(own))][-5:]
        if not places:
            return
        base, i = rng.choice(places)
        self.next = self.segments[base][i][0]
        for later in [one for one in self.segments if one > base]:
            del self.segments[later]
            self.path(later).unlink()
        del self.segments[base][i:]
        os.truncate(self.path(base), sum(len(one[3]) for one in self.segments[base]))
        self.epoch += 1


STEPS = 25


@pytest.mark.parametrize("seed", range(24))
def test_random_logs(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, logs, read = random.Random(seed), [_Log(tmp_path / "t-0")], Counter[tuple[int, int, bytes]]()
    latest: dict[tuple[int, int], bytes] = {}
    operations = ["append"] * 5 + ["roll"] * 2 + ["compact"] + ["truncate"] * (seed % 2)
    left = STEPS

    def wait(_: float) -> None:
        nonlocal left
        for partition, log in enumerate(logs):
            assert {offset: latest.get((partition, offset)) for offset in log.records} == log.records
        if (left := left - 1) < 0:
            raise _LogEndedError
        if rng.random() < 0.2:
            rng.choice(logs).retain(rng)
        for _ in range(rng.choice([0, 1, 1, 2, 4])):
            getattr(rng.choice(logs), rng.choice(operations))(rng)
        if rng.random() < 0.1:
            logs.append(_Log(tmp_path / f"t-{len(logs)}"))

    monkeypatch.setattr("kolumn.readers.follow.sleep", wait)
    records: Any = kolumn.follow(tmp_path, columns=["partition", "offset", "value"], threads=1)
    with suppress(_LogEndedError):
        while True:
            for partition, offset, value in zip(*(column.to_pylist() for column in next(records).columns), strict=True):
                latest[partition, offset] = value
                read[partition, offset, value] += 1
    assert "truncate" in operations or set(read.values()) == {1}
