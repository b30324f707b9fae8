"""Copies of one topic-partition on several disks: other segment boundaries, other damage, and what is intact in any of them."""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

import kolumn
from kit import oracle
from kit.corpus import cases
from kit.encoder import Record
from kit.mutate import anywhere, entries_from

COLUMNS = ["offset", "key", "value", "timestampMs"]
ALL_COLUMNS = ["offset", "timestampMs", "key", "value", "headers", "topic", "partition", "leaderEpoch", "controlType"]
CASES = [case for case in cases() if sum(Path(path).suffix == ".log" for path in case.segments) > 1]
"""Logs of several segments."""
KINDS = ("flip", "truncate", "zero tail", "delete", "insert", "overwrite")
"""What happens to disks: no entries in another order, and no wrong records with the right checksum."""
Row = tuple[int, bytes | None, bytes | None, int]


@dataclass
class Log:
    """A log of entries in any formats, and the records of each."""

    bases: list[int]
    entries: list[bytes]

    @cached_property
    def rows(self) -> list[list[Row]]:
        return [[(row.offset, row.key, row.value, row.timestampMs) for row in oracle.read(one).rows()] for one in self.entries]


def make_log(rng: random.Random, count: int) -> Log:
    """A log of some entries; their offsets may have holes, and some have no records."""
    bases, entries = zip(*entries_from(rng, rng.choice((0, 1, 100, 1 << 33)), count), strict=True)
    return Log(list(bases), list(entries))


def cut(rng: random.Random, log: Log) -> list[tuple[int, list[int]]]:
    """Segments of a copy: base offset and entries, cut where this broker rolled."""
    cuts = sorted(rng.sample(range(1, len(log.entries)), rng.randint(0, min(3, len(log.entries) - 1))))
    return [(log.bases[a], list(range(a, b))) for a, b in zip([0, *cuts], [*cuts, len(log.entries)], strict=True)]


def damaged(rng: random.Random, log: Log, folder: Path, often: float) -> set[int]:
    """Write a copy, some of its segments damaged, and tell which entries are whole in it."""
    folder.mkdir(parents=True)
    whole: set[int] = set()
    for base, own in cut(rng, log):
        entries = [log.entries[i] for i in own]
        data = anywhere(rng, entries, rng.choice(KINDS)).data if rng.random() < often else b"".join(entries)
        (folder / f"{base:020}.log").write_bytes(data)
        whole |= {index for index in own if log.entries[index] in data}
    return whole


def copy(source: Path, disk: Path) -> Path:
    """A copy of a topic-partition's folder on another disk."""
    target = disk / source.name
    shutil.copytree(source, target)
    return target


def logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def flip(path: Path, place: int) -> None:
    """Turn over a bit of a file."""
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 0x10]))


def last_bytes(folder: Path, numbers: Callable[[int], bool]) -> None:
    """Damage the last byte of some of a copy's entries, counted over all its segments: payload, in every format."""
    for number, row in enumerate(kolumn.batches(folder).to_pylist()):
        if numbers(number):
            flip(Path(row["segment"]), row["position"] + row["size"] - 1)


def records(first: int, count: int, text: bytes = b"v") -> list[Record]:
    """Records with offsets from ``first`` on."""
    return [Record(offset, b"k%d" % offset, text * 40 + b"%d" % offset, 1000 + offset) for offset in range(first, first + count)]


def write_log(disk: Path, *segments: tuple[int, list[bytes]]) -> Path:
    """A folder with segments of the given entries."""
    folder = disk / "t-0"
    folder.mkdir(parents=True)
    for base, entries in segments:
        (folder / f"{base:020}.log").write_bytes(b"".join(entries))
    return folder


def rows_of(table: pa.Table) -> list[Row]:
    """Rows of a table with `COLUMNS`."""
    return list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


def check(seed: int, folder: Path, **options: Any) -> None:
    """Damaged copies, merged: what is whole in any of them and found there comes once, in order, and nothing that was never written.

    What is whole in none may come too, if the damage lies where it changes no record; or under an offset that is damaged and still fits,
    since no checksum covers it; or as the messages that a damaged wrapper stores as they are, with offsets of their own.
    """
    rng = random.Random(seed)
    log = make_log(rng, rng.randint(2, 9))
    shutil.rmtree(folder, ignore_errors=True)
    copies = [folder / f"b{i}" for i in range(rng.choice((2, 2, 3)))]
    wholes = [damaged(rng, log, copy / "t-0", 0.7) for copy in copies]
    whole = set.union(*wholes)
    options |= {"errors": "skip", "columns": COLUMNS, "include_control": True}
    found = rows_of(kolumn.read(copies, replicas="merge", **options))
    alone = [set(rows_of(kolumn.read(copy, **options))) for copy in copies]
    expected = [row for mine, there in zip(wholes, alone, strict=True) for i in mine for row in log.rows[i] if row in there]
    offsets = [row[0] for row in found]
    assert offsets == sorted(set(offsets)), seed
    missing = [row for row in expected if row not in found]
    assert not missing, (seed, missing)
    written = {row for rows in log.rows for row in rows}
    displaced = {row[1:3] for i, rows in enumerate(log.rows) if i not in whole for row in rows}
    foreign = [row for row in found if row not in written and row[1:3] not in displaced]
    assert not foreign, (seed, foreign)


def read(source: Any, **options: Any) -> pa.Table:
    """Records of a source with `ALL_COLUMNS`, unless others are asked for; control records too."""
    return kolumn.read(source, **{"columns": ALL_COLUMNS, "include_control": True, **options})


def merged(*folders: Path, **options: Any) -> pa.Table:
    """The same of several copies, put together."""
    return read(list(folders), replicas="merge", **options)
