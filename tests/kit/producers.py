"""The rules for producers, transcribed from Kafka's ``ProducerAppendInfo`` and ``ProducerStateEntry`` one batch at a time; and random
producers that break them.

It differs from a broker where a log is judged that is already there: what contradicts a rule counts and goes on, but for duplicates and
batches of fenced epochs, which do not change what is known of their producer.
"""

import random
import struct
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kit.asked import put
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch

LARGEST = 2**31 - 1
_HEAD = struct.Struct(">qiibIhiqqqhii")


class Header(NamedTuple):
    """The header of a batch of format 2, and of a marker its type and the epoch of its coordinator."""

    base: int
    last: int
    producer: int
    epoch: int
    sequence: int
    records: int
    is_transactional: bool
    is_control: bool
    marker: int = -1
    coordinator: int = -1

    @property
    def last_sequence(self) -> int:
        """``DefaultRecordBatch.incrementSequence``."""
        added = self.last - self.base
        return added - (LARGEST - self.sequence) - 1 if self.sequence > LARGEST - added else self.sequence + added


def headers(data: bytes) -> list[Header]:
    return [header for header, _, _ in placed(data)]


def placed(data: bytes) -> list[tuple[Header, int, int]]:
    """Headers with the positions at which their batches begin and end."""
    found, position = [], 0
    while position < len(data):
        base, size, _, _, _, attributes, delta, _, _, producer, epoch, sequence, count = _HEAD.unpack_from(data, position)
        marker, coordinator = -1, -1
        if attributes & 0x20 and count:
            # Length, attributes, two deltas and the lengths of key and value are a byte each.
            body = data[position + _HEAD.size : position + 12 + size]
            marker, coordinator = struct.unpack_from(">h", body, 7)[0], struct.unpack_from(">i", body, 12)[0]
        kinds = bool(attributes & 0x10), bool(attributes & 0x20)
        header = Header(base, base + delta, producer, epoch, sequence, count, *kinds, marker, coordinator)
        found.append((header, position, position + 12 + size))
        position += 12 + size
    return found


@dataclass
class _Entry:
    """``ProducerStateEntry``; ``is_known`` is false until a batch of data tells the sequence."""

    epoch: int = -1
    coordinator: int = -1
    batches: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=5))
    open: int | None = None
    open_epoch: int = -1
    is_known: bool = False

    def take_epoch(self, epoch: int) -> None:
        if self.epoch != epoch:
            self.batches.clear()
            self.epoch = epoch


class Rules:
    """What is found, and the number of each kind by producer and epoch."""

    def __init__(self) -> None:
        self.entries: dict[int, _Entry] = {}
        self.found: list[tuple[str, int, int]] = []
        self.counts: Counter[tuple[int, int, str]] = Counter()

    def append(self, one: Header) -> None:
        if one.producer < 0:
            return
        entry = self.entries.setdefault(one.producer, _Entry())
        (self._marker if one.is_control else self._data)(entry, one)

    def _say(self, kind: str, one: Header, name: str = "") -> None:
        self.found.append((kind, one.base, one.producer))
        if name:
            self.counts[one.producer, one.epoch, name] += 1

    def _data(self, entry: _Entry, one: Header) -> None:
        self.counts[one.producer, one.epoch, "batches"] += 1
        self.counts[one.producer, one.epoch, "records"] += one.records
        if one.epoch == entry.epoch and (one.sequence, one.last_sequence) in entry.batches and not self._in_sequence(entry, one):
            return self._say("duplicate", one, "duplicates")
        if one.epoch < entry.epoch:
            self._say("fenced-epoch", one, "fenced")
        else:
            self._check_sequence(entry, one)
            entry.take_epoch(one.epoch)
            entry.batches.append((one.sequence, one.last_sequence))
            entry.is_known = True
        if one.is_transactional and entry.open is None:
            entry.open, entry.open_epoch = one.base, one.epoch
        elif entry.open is not None and (not one.is_transactional or one.epoch > entry.open_epoch):
            self.found.append(("marker-missing", one.base, one.producer))
            entry.open_epoch = one.epoch
        return None

    @staticmethod
    def _in_sequence(entry: _Entry, one: Header) -> bool:
        last = entry.batches[-1][1] if entry.batches else -1
        return one.sequence == last + 1 or (one.sequence == 0 and last == LARGEST)

    def _check_sequence(self, entry: _Entry, one: Header) -> None:
        if entry.epoch == -1 or (one.epoch == entry.epoch and not entry.is_known):
            return
        if one.epoch != entry.epoch:
            if one.sequence != 0:
                self._say("sequence-gap", one, "gaps")
        elif not self._in_sequence(entry, one):
            last = entry.batches[-1][1] if entry.batches else -1
            ahead = (one.sequence - last - 1) % 2**31
            self._say(*(("sequence-gap", one, "gaps") if ahead < 2**30 else ("sequence-reset", one, "resets")))

    def _marker(self, entry: _Entry, one: Header) -> None:
        if one.marker not in (0, 1):
            return
        if one.epoch < entry.epoch:
            self._say("fenced-epoch", one)
        if one.coordinator < entry.coordinator:
            self._say("coordinator-epoch", one)
        if entry.open is not None:
            self.counts[one.producer, entry.open_epoch, "committed" if one.marker else "aborted"] += 1
        elif entry.epoch >= 0:
            self._say("marker-without-data", one)
        if one.epoch > entry.epoch >= 0:
            entry.is_known = True
            entry.batches.clear()
        entry.open, entry.epoch, entry.coordinator = None, max(entry.epoch, one.epoch), max(entry.coordinator, one.coordinator)


@dataclass
class _Writer:
    producer: int
    is_transactional: bool
    bumps: bool  # markers of transactions of version 2 begin an epoch
    epoch: int
    sequence: int
    coordinator: int = 5
    recent: list[tuple[int, int, int]] = field(default_factory=list)


def random_log(rng: random.Random, folder: Path, batches: int = 60, strange: float | None = None) -> list[bytes]:
    """Segments of some producers, which are also written into a folder; each batch has a chance to break a rule, ``strange``."""
    writers = [
        _Writer(
            i, rng.random() < 0.6, rng.random() < 0.5, rng.randrange(3), rng.choice([0, 0, 7, LARGEST - rng.randrange(20)])
        )
        for i in range(rng.randrange(1, 5))
    ]  # fmt: skip
    offset, segments, strange = 0, [[]], rng.choice([0, 0.1, 0.3]) if strange is None else strange
    bases = [0]
    for _ in range(batches):
        one = rng.choice(writers)
        if rng.random() < 0.1 and segments[-1]:
            segments.append([])
            bases.append(offset)
        data, count = _entry(rng, one, offset, strange)
        segments[-1].append(data)
        offset += count
    made = [b"".join(own) for own in segments]
    for base, data in zip(bases, made, strict=True):
        put(folder, data, base=base)
    return made


def _entry(rng: random.Random, one: _Writer, offset: int, strange: float) -> tuple[bytes, int]:
    if one.is_transactional and rng.random() < 0.3:
        one.epoch += one.bumps
        one.sequence = 0 if one.bumps else one.sequence
        epoch = one.epoch - (rng.random() < strange / 3 and one.epoch > 0)
        one.coordinator += rng.choice([0, 0, 1]) - (rng.random() < strange / 3)
        kind = rng.choice([0, 1, 1])
        return control_batch(offset, kind, producer_id=one.producer, producer_epoch=epoch, coordinator_epoch=one.coordinator), 1
    count, sequence, epoch = rng.choice([1, 1, 3, 8]), one.sequence, one.epoch
    if rng.random() < strange:
        way = rng.choice(["gap", "again", "old", "reset", "zombie", "bump", "late bump"])
        if way == "gap":
            sequence = (sequence + rng.randrange(1, 50)) & LARGEST
        elif way in ("again", "old") and one.recent:
            sequence, count, epoch = one.recent[-1 if way == "again" else 0]
        elif way == "reset":
            sequence = 0
        elif way == "zombie" and epoch:
            epoch -= 1
        elif way.endswith("bump"):
            one.epoch, sequence = one.epoch + 1, 0 if way == "bump" else 3
            epoch = one.epoch
        if way not in ("again", "old", "zombie"):
            one.sequence = (sequence + count) & LARGEST
    else:
        one.sequence = (sequence + count) & LARGEST
    one.recent = [*one.recent, (sequence, count, epoch)][-8:]
    records = [Record(offset + i, b"k", b"v", 1_700_000_000_000) for i in range(count)]
    flags = TRANSACTIONAL if one.is_transactional and rng.random() > strange / 10 else 0
    return batch(records, flags=flags, producer_id=one.producer, producer_epoch=epoch, base_sequence=sequence), count
