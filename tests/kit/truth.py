"""Kolumn against the ground truth of `kit.disk_damage`. ``python -m kit.truth SEED`` in ``tests`` replays one mutant."""

import random
from itertools import groupby
from pathlib import Path
from typing import Any

import kolumn
from kit import oracle
from kit.differential import COLUMNS, expect, rows_of
from kit.disk_damage import Mutant, make, rows_at, undetectable
from kit.fuzz import replay
from kit.paths import GENERAL, without

OTHERS: list[dict[str, Any]] = [
    {"threads": 2}, {"threads": 3, "chunk_bytes": 500}, {"chunk_bytes": 100}, {"threads": 3, "memory_bytes": 2000},
]  # fmt: skip
"""Ways of reading that must return the same as the plain one."""


def compare(seed: int, folder: Path) -> None:
    """Read the mutant of a seed in several ways."""
    mutant, rng = make(seed), random.Random(seed + 1)
    base = int.from_bytes(mutant.entries[0][:8], "big")
    # Without a base offset in its name nothing tells how low the first offset may be.
    path = folder / rng.choice((f"{base if mutant.entries[0][16] == 2 else 0:020}.log", "segment.log"))
    path.write_bytes(mutant.data)
    try:
        given = records(path, mutant)
        same(path, rng.choice(OTHERS))
        report(path, mutant, given)
    except AssertionError as error:
        raise AssertionError(f"{mutant.kind}: {error}") from None


def records(path: Path, mutant: Mutant) -> set[int]:
    """Whether every record of every entry that is intact comes back, and no other; gives their positions, empty batches too."""
    table = kolumn.read(path, columns=COLUMNS, include_control=True, threads=1, errors="skip")
    loose: set[int] = set()
    for position, some in groupby(rows_of(table), key=lambda row: row.position):
        rows = list(some)
        if position not in mutant.places and (undetectable(mutant, position) or _left_of_a_wrapper(mutant, rows)):
            loose.add(position)
            continue
        expect(position in mutant.places, f"false records at {position}")
        expect(rows == rows_at(mutant.entries[mutant.places[position]], position), f"the rows at {position} differ")
    listed = kolumn.batches(path, errors="skip")
    given = set(listed.filter(listed["crcValid"])["position"].to_pylist())
    false = {at for at in given if at not in mutant.places and at not in loose and not undetectable(mutant, at)}
    expect(not false, f"batches: the entries at {sorted(false)} are none")
    unread = set(table["position"].to_pylist()) - given
    expect(not unread, f"batches: the entries at {sorted(unread)} are read and not listed")
    lost = mutant.wanted - {mutant.places[at] for at in given if at in mutant.places}
    where = {at: index for at, index in mutant.places.items() if index in lost}
    expect(not lost, f"lost: the entries {where}")
    read = set(table["position"].to_pylist())
    full = {at for at in given if at in mutant.places and rows_at(mutant.entries[mutant.places[at]], at)}
    expect(full <= read, f"listed and not read: {sorted(full - read)}")
    return given


def _left_of_a_wrapper(mutant: Mutant, rows: list[oracle.Row]) -> bool:
    """Whether a record is one of a damaged wrapper of format 0 whose header is gone: its message stands there as it was, offset and all."""
    entries = [entry for entry in mutant.entries if entry[16] == 0 and entry[17] & 7]
    whole = [row._replace(codec="none") for entry in entries for row in rows_at(entry, rows[0].position)]
    return len(rows) == 1 and rows[0] in whole


def same(path: Path, options: dict[str, Any]) -> None:
    """Check that other ways of reading return the same."""
    one = kolumn.read(path, columns=COLUMNS, include_control=True, threads=1, errors="skip")
    for off in ((), (GENERAL,)):
        with without(*off):
            other = kolumn.read(path, columns=COLUMNS, include_control=True, errors="skip", **options)
        expect(one.equals(other), f"{options}, without {off}: {one.num_rows} rows, {other.num_rows}")


def report(path: Path, mutant: Mutant, given: set[int]) -> None:
    """Whether `kolumn.verify` tells exactly what was not given, and a strict read stops where the first of it is."""
    skipped = kolumn.Skipped()
    kolumn.read(path, columns=["offset"], include_control=True, errors="skip", on_damage=skipped)
    found = kolumn.verify(path)
    damage = found.damage.to_pylist()
    expect([(d.position, d.size) for d in skipped.damage] == [(d["position"], d["size"]) for d in damage], "read and verify differ")
    # No checksum covers the offset of a wrapper, but its messages contradict a wrong one: its batch is listed, and its records are damage.
    contradicted = {d["position"] for d in damage if d["position"] not in mutant.places and undetectable(mutant, d["position"])}
    sizes = {at: int.from_bytes(mutant.data[at + 8 : at + 12], "big") + 12 for at in given - contradicted}
    pieces = [*sizes.items(), *((d["position"], d["size"]) for d in damage)]
    tail = found.segments["tail_bytes" if "tail_bytes" in found.segments.column_names else "tailBytes"][0].as_py() or 0
    pieces.append((len(mutant.data) - tail, tail))
    at = 0
    # What is missing at the end of an entry may equal the zeros that the next one begins with: both are intact then.
    overlaps = {d["position"]: d["size"] for d in damage}
    for position, size in sorted(pieces):
        if position in overlaps and not overlaps[position]:
            continue
        shared = next((over for over in overlaps if position < over <= position + 7 and not overlaps[over]), position) - position
        expect(position == at - shared, f"verify: {at} to {position} is neither given nor damage: {sorted(pieces)}")
        at = position + size
    expect(at == len(mutant.data), f"verify: nothing is said of what follows {at}")
    try:
        kolumn.read(path, columns=["offset"], include_control=True)
    except kolumn.CorruptBatchError as error:
        expect(bool(damage) and error.position == damage[0]["position"], f"errors='raise' stops at {error.position}: {damage}")
    else:
        expect(not damage, f"errors='raise' finds nothing: {damage}")


if __name__ == "__main__":
    replay(compare)
