"""Damage as disks, copies and crashes make it, with ground truth by construction.

A mutant is made of whole entries of a real segment and one accident: bytes that are gone, that came twice, that were zeroed, that lie in
another order; lengths that lead to where another entry ends. What is intact in it is known from the bytes alone: each original
entry, wherever it stands whole. Shares no code with Kolumn. Damage of `mutate` is aimed at parsers.
"""

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise

from kit import oracle
from kit.corpus import cases
from kit.mutate import flipped

LARGEST = 150_000
"""Bytes of a segment at most."""
MOST = 40
"""Entries of one at most."""


@dataclass(frozen=True)
class Mutant:
    data: bytes
    kind: str  # what was done
    entries: list[bytes]  # of the original
    places: dict[int, int]  # position of each intact entry -> its index
    wanted: frozenset[int]  # indexes of the entries that have to come back, from one of their positions at least


@cache
def segments() -> list[list[bytes]]:
    """Entries of each sound segment of the corpora whose offsets increase, a megabyte of each at most."""
    found = []
    for case in cases():
        for path in case.segments:
            with open(path, "rb") as file:
                data = file.read(1 << 20)
            read = oracle.read(data).entries
            whole = [data[entry.position : entry.position + entry.size] for entry in read]
            sound = all(entry.error is None for entry in read)
            if len(whole) > 1 and sound and all(_offset(one) < _offset(other) for one, other in pairwise(whole)):
                found.append(whole)
    return found


def _offset(entry: bytes) -> int:
    return int.from_bytes(entry[:8], "big")


@cache
def _rows(entry: bytes) -> tuple[oracle.Row, ...]:
    return tuple(oracle.read_entry(entry, 0).rows)


def rows_at(entry: bytes, position: int) -> list[oracle.Row]:
    """What the independent reader reads from an entry at a position."""
    return [row._replace(position=position) for row in _rows(entry)]


def make(seed: int) -> Mutant:
    rng = random.Random(seed)
    for _ in range(100):
        entries = _some(rng)
        kind = rng.choice(list(KINDS))
        data = KINDS[kind](rng, b"".join(entries), _starts(entries))
        if data is None:
            continue
        if rng.random() < 0.15:
            kind, data = f"{kind}, zeros at the end", data + bytes(rng.choice((18, 100, 4096)))
        elif rng.random() < 0.1:
            kind, data = f"{kind}, cut", data[: len(data) - rng.randrange(1, len(entries[-1]))]
        return judged(data, kind, entries)
    raise AssertionError("no mutant fits")


def _some(rng: random.Random) -> list[bytes]:
    """Some entries in a row of one of the segments."""
    whole = rng.choice(segments())
    count, start = rng.randint(2, MOST), rng.randrange(len(whole) - 1)
    sizes = accumulate(map(len, whole[start : start + count]))
    fits = sum(size <= LARGEST for size in sizes)
    return whole[start : start + max(fits, 2)]


def judged(data: bytes, kind: str, entries: list[bytes]) -> Mutant:
    """A mutant with what is intact in it."""
    places: dict[int, int] = {}
    forged = False
    for index, entry in enumerate(entries):
        at = data.find(entry[16:])
        while at >= 0:
            head = data[max(at - 16, 0) : at]
            if head == entry[:16]:
                places[at - 16] = index
            elif len(head) == 16 and head[8:12] == entry[8:12]:
                # Neither the offset nor the leader's epoch is under the checksum.
                forged = True
            at = data.find(entry[16:], at + 1)
    wanted = frozenset() if forged else frozenset(places.values()) - _out_of_order(kind, entries, places) - _alone(data, entries, places)
    return Mutant(data, kind, entries, places, wanted)


def _out_of_order(kind: str, entries: list[bytes], places: dict[int, int]) -> set[int]:
    """Entries of swapped blocks: no order gives all of them."""
    if not kind.startswith("swap"):
        return set()
    starts = _starts(entries)
    kept = {index for at, index in places.items() if starts[index] == at}
    moved = [end for at, index in places.items() if starts[index] != at for end in (at, at + len(entries[index]))]
    return set(places.values()) - {index for index in kept if not moved or not min(moved) <= starts[index] <= max(moved)}


def _alone(data: bytes, entries: list[bytes], places: dict[int, int]) -> set[int]:
    """The last intact entry, if damage lies before it and what follows is not even the header of an entry: so would a copy in a value."""
    if not places:
        return set()
    last = max(places)
    index = places[last]
    end = last + len(entries[index])
    joined = last == 0 or any(at + len(entries[one]) == last for at, one in places.items())
    follows = not any(data[end:]) or any(data[end : end + 61] == entry[: min(61, len(data) - end)] for entry in entries[index + 1 :])
    return set() if joined or follows or sum(one == index for one in places.values()) > 1 else {index}


def undetectable(mutant: Mutant, position: int) -> bool:
    """Whether an original entry stands at a position with nothing changed but what no checksum covers."""
    for entry in mutant.entries:
        here = mutant.data[position : position + len(entry)]
        if here[8:12] == entry[8:12] and here[16:] == entry[16:] and (entry[16] == 2 or here[12:16] == entry[12:16]):
            return True
    return False


def _starts(entries: list[bytes]) -> list[int]:
    return list(accumulate(map(len, entries), initial=0))


def _cut_to_a_border(rng: random.Random, data: bytes, starts: list[int]) -> bytes | None:
    """Bytes of an entry are gone, and its length leads exactly to the end of a later one."""
    last = len(starts) - 2
    for _ in range(60):
        i = rng.randrange(last)
        j = rng.randint(i + 1, min(last, i + 6))
        if rng.random() < 0.3:
            j = last
        low = rng.randrange(starts[i] + 12, starts[i + 1])
        high = low + starts[j + 1] - starts[i + 1]
        if any(high <= starts[k] for k in range(i + 1, j + 1)):
            return data[:low] + data[high:]
    return None


def _length_to_a_border(rng: random.Random, data: bytes, starts: list[int]) -> bytes:
    """A length that leads to the end of a later entry, and mostly bytes that are wrong too."""
    last = len(starts) - 2
    i = rng.randrange(last)
    j = rng.choice((i + 1, min(i + 2, last), rng.randint(i + 1, last), last))
    data = _with_length(data, starts[i], starts[j + 1] - starts[i] - 12)
    for k, often in ((i, 0.7), (j, 0.2)):
        if rng.random() < often:
            data = data[: starts[k]] + _flipped(rng, data[starts[k] : starts[k + 1]]) + data[starts[k + 1] :]
    return data


def _wrong_length(rng: random.Random, data: bytes, starts: list[int]) -> bytes:
    i = rng.randrange(len(starts) - 1)
    own = starts[i + 1] - starts[i] - 12
    length = rng.choice((0, -1, 13, 14, 49, rng.randrange(1 << 20), 1 << 30, own + rng.randint(-40, 40)))
    entry = _with_length(data[starts[i] : starts[i + 1]], 0, length)
    return data[: starts[i]] + (_flipped(rng, entry) if rng.random() < 0.5 else entry) + data[starts[i + 1] :]


def _with_length(data: bytes, at: int, length: int) -> bytes:
    return data[: at + 8] + struct.pack(">i", length) + data[at + 12 :]


def _delete(rng: random.Random, data: bytes, starts: list[int]) -> bytes:
    low = rng.randrange(len(data))
    return data[:low] + data[low + rng.choice((1, 4, 17, 100, 512, 1000, 4096, rng.randrange(1, len(data)))) :]


def _insert(rng: random.Random, data: bytes, starts: list[int]) -> bytes:
    at = rng.choice((rng.randrange(len(data)), rng.choice(starts)))
    size = rng.choice((1, 8, 12, 17, 26, 61, 100, 512, 4096))
    return data[:at] + rng.choice((rng.randbytes, bytes, text))(size) + data[at:]


def text(size: int) -> bytes:
    return (b"2024-01-01 00:00:00 INFO a line of another file\n" * (size // 48 + 1))[:size]


def _sector(rng: random.Random, data: bytes, starts: list[int]) -> bytes:
    """A sector was zeroed, or another file's bytes are in it: at its place on disk, or around the border of two entries."""
    size, border = rng.choice((512, 512, 4096)), rng.choice(starts)
    low = rng.choice((rng.randrange(len(data)) // size * size, max(0, border - rng.randint(0, size)), border))
    high = min(len(data), low + size)
    return data[:low] + rng.choice((bytes, bytes, rng.randbytes, text))(high - low) + data[high:]


def _neighbours(rng: random.Random, data: bytes, starts: list[int]) -> bytes:
    """Two entries in a row are damaged, each in a way of its own; sometimes with an intact one between them."""
    i = rng.randrange(len(starts) - 2)
    return _hurt(rng, data, starts, i, min(len(starts) - 2, i + rng.choice((1, 1, 2))))


def _hurt(rng: random.Random, data: bytes, starts: list[int], *which: int) -> bytes:
    """Some entries are damaged."""
    entries = [data[low:high] for low, high in pairwise(starts)]
    for i in which:
        entries[i] = rng.choice(HURT)(rng, entries[i])
    return b"".join(entries)


def _flipped(rng: random.Random, entry: bytes) -> bytes:
    return flipped(rng, entry, 16)


def _shorter(rng: random.Random, entry: bytes) -> bytes:
    low = rng.randrange(12, len(entry))
    return entry[:low] + entry[low + rng.randint(1, 200) :]


def _longer(rng: random.Random, entry: bytes) -> bytes:
    at = rng.randrange(12, len(entry))
    return entry[:at] + rng.choice((rng.randbytes, bytes))(rng.randint(1, 200)) + entry[at:]


def _stretched(rng: random.Random, entry: bytes) -> bytes:
    return _with_length(entry, 0, len(entry) - 12 + rng.randint(-30, 300))


def _duplicate(rng: random.Random, data: bytes, starts: list[int]) -> bytes:
    """A block was written twice."""
    low, high = _block(rng, data, starts)
    return data[:high] + data[low:high] + data[high:]


def _swap(rng: random.Random, data: bytes, starts: list[int]) -> bytes:
    """Two blocks next to each other lie in the wrong order."""
    low, high = _block(rng, data, starts)
    middle = rng.randint(low, high)
    return data[:low] + data[middle:high] + data[low:middle] + data[high:]


def _block(rng: random.Random, data: bytes, starts: list[int]) -> tuple[int, int]:
    if rng.random() < 0.4:
        low, high = sorted(rng.sample(starts, 2))
        return low, high
    step = rng.choice((1, 1, 512, 4096))
    low, high = sorted(rng.randrange(len(data) + 1) // step * step for _ in range(2))
    return low, high if high > low else len(data)


def _flips(rng: random.Random, data: bytes, starts: list[int]) -> bytes:
    entries = [data[low:high] for low, high in pairwise(starts)]
    return b"".join(_flipped(rng, entry) if rng.random() < 0.2 else entry for entry in entries)


HURT = (_flipped, _shorter, _longer, _stretched)
KINDS: dict[str, Callable[[random.Random, bytes, list[int]], bytes | None]] = {
    "cut to a border": _cut_to_a_border, "length to a border": _length_to_a_border, "wrong length": _wrong_length, "delete": _delete,
    "insert": _insert, "sector": _sector, "neighbours": _neighbours, "duplicate": _duplicate, "swap": _swap, "flips": _flips,
    "head cut": lambda rng, data, starts: data[rng.randint(1, starts[-2]) :],
    "first": lambda rng, data, starts: _hurt(rng, data, starts, 0),
    "last": lambda rng, data, starts: _hurt(rng, data, starts, len(starts) - 2),
}  # fmt: skip
