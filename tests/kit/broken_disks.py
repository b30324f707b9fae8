"""Brokers of a partition that append, follow, die and lead; what happens to their logs on disks: compaction, segments, damage."""

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass

from kit.disk_damage import text
from kit.encoder import CONTROL, TRANSACTIONAL, Record, batch, message, wrapper
from kit.streams import GZIP, NONE, SNAPPY, ZSTD

MOST = 60
"""Records of a history."""
TIME = 1_700_000_000_000


@dataclass(frozen=True, eq=False)
class Entry:
    """An entry of a log; ``records`` are what was produced, without what compaction removed."""

    data: bytes
    base: int
    last: int
    epoch: int
    magic: int
    records: tuple[Record, ...]
    is_control: bool = False


def encoded(magic: int, codec: int, records: list[Record], epoch: int, last: int, control: bool = False) -> list[Entry]:
    """Records as entries of a format: several if the format has one for each record."""
    base = records[0].offset
    if magic == 2:
        flags = {"flags": TRANSACTIONAL | CONTROL, "producer_id": 7, "producer_epoch": 3} if control else {}
        data = batch(records, codec=codec, leader_epoch=epoch, last_offset=last, **flags)
        return [Entry(data, base, last, epoch, 2, tuple(records), control)]
    if magic == 0:
        records = [Record(one.offset, one.key, one.value) for one in records]
    if codec == NONE:
        return [Entry(message(magic, one), one.offset, one.offset, -1, magic, (one,)) for one in records]
    return [Entry(wrapper(magic, records, codec), base, records[-1].offset, -1, magic, tuple(records))]


class History:
    """Brokers that append, follow, die and lead."""

    def __init__(self, rng: random.Random, traits: list[str], calm: bool) -> None:
        self.rng, self.traits = rng, traits
        self.logs: list[list[Entry]] = [[] for _ in range(rng.randint(2, 4))]
        self.leader, self.epoch, self.records = 0, rng.choice((0, 0, 3)), 0
        self.first = rng.choice((0, 0, 100, 1 << 33))
        self.dead: set[int] = set()
        self.magics = (2,) if calm else rng.choice(((2,), (2,), (2,), (2,), (2,), (1, 2), (1, 2), (0, 2), (0, 1, 2), (1,), (0,)))
        self.most = rng.randint(4, MOST)
        self.upgrades = sorted(rng.randrange(self.most) for _ in self.magics[1:])
        self.ends: dict[int, list[Entry]] = {}

    def run(self) -> None:
        rng = self.rng
        while self.records < self.most:
            for _ in range(rng.randint(0, 6)):
                self.append()
                for broker in range(len(self.logs)):
                    if broker not in self.dead and rng.random() < 0.4:
                        self.follow(broker, len(self.logs[self.leader]) - rng.choice((0, 0, 0, 1, 2)))
            if rng.random() < 0.6:
                self.elect()
        for broker in range(len(self.logs)):
            if rng.random() < 0.2:
                self.follow(broker, len(self.logs[self.leader]) - rng.choice((0, 0, 0, 1, 2)))

    def append(self) -> None:
        rng, log = self.rng, self.logs[self.leader]
        magic = self.magics[sum(self.records >= one for one in self.upgrades)]
        offset = log[-1].last + 1 if log else self.first
        count = rng.choice((1, 1, 2, 3, 4, 6))
        codec = rng.choice((NONE, NONE, NONE, GZIP, SNAPPY if magic else GZIP, ZSTD if magic == 2 else GZIP))
        records = []
        for at in range(offset, offset + count):
            size = rng.choice((1, 3, 3, 3, 40))
            key = rng.choice((None, b"", b"k%d" % (at % 7)))
            value = b"%d.%d@%d " % (self.epoch, self.leader, at) + rng.choice((b"x", b"y")) * size
            records.append(Record(at, key, rng.choice((value, value, value, value, None)), TIME + self.records + at * 10))
        if magic == 2 and rng.random() < 0.08:
            marker = Record(offset, struct.pack(">hh", 0, rng.randrange(2)), struct.pack(">hi", 0, self.epoch), TIME + offset * 10)
            log += encoded(2, NONE, [marker], self.epoch, offset, True)
            count = 1
        elif rng.random() < 0.1 and (lost := self._lost(offset)):
            # The producer, which was not told that they are written, sends records again.
            log += encoded(magic, codec, lost, self.epoch, lost[-1].offset)
            self.traits.append("sent again")
        else:
            log += encoded(magic, codec, records, self.epoch, offset + count - 1)
        self.records += count
        self.ends[log[-1].epoch] = list(log)

    def _lost(self, offset: int) -> list[Record]:
        for log in self.logs:
            own = [one for one in log if one.base == offset and one.magic == 2 and not one.is_control and one.epoch != self.epoch]
            if own:
                return list(own[0].records)
        return []

    def follow(self, broker: int, end: int) -> None:
        """A broker truncates what the leader has not, and copies entries up to a number of them."""
        if broker == self.leader:
            return
        log, theirs = self.logs[broker], self.logs[self.leader]
        common = next((i for i, (one, other) in enumerate(zip(log, theirs, strict=False)) if one is not other), min(len(log), len(theirs)))
        self.logs[broker] = [*log[:common], *theirs[common : max(end, common)]]
        self.dead.discard(broker)

    def elect(self) -> None:
        """Another broker leads: the one that has most, or any."""
        rng, old = self.rng, self.leader
        others = [broker for broker in range(len(self.logs)) if broker != old]
        if rng.random() < 0.4:
            alive = [broker for broker in others if broker not in self.dead] or others
            new = max(alive, key=lambda broker: len(self.logs[broker]))
            self.follow(new, len(self.logs[old]) - rng.choice((0, 0, 1)))
            kind = "clean"
        else:
            new, kind = rng.choice(others), "unclean"
        if rng.random() < 0.7:
            self.dead.add(old)
        self.dead.discard(new)
        self.leader, self.epoch = new, self.epoch + rng.choice((1, 1, 1, 2, 5))
        self.traits.append(f"{kind} election: {new} at {self.epoch}")


def compacted(rng: random.Random, log: list[Entry], _: History) -> list[Entry]:
    """Some records and some entries are removed; the last entry stays, and offsets stay."""
    found = []
    for entry in log[:-1]:
        kept = [one for one in entry.records if rng.random() < 0.7]
        if entry.is_control or len(kept) == len(entry.records):
            found.append(entry)
        elif entry.magic == 2 and (kept or rng.random() < 0.1):
            data = batch(kept, base_offset=entry.base, last_offset=entry.last, leader_epoch=entry.epoch)
            found.append(Entry(data, entry.base, entry.last, entry.epoch, 2, tuple(kept)))
        elif kept:
            found += encoded(entry.magic, rng.choice((NONE, GZIP)), kept, -1, kept[-1].offset)
    return [*found, log[-1]]


def batched_anew(rng: random.Random, log: list[Entry], _: History) -> list[Entry]:
    """The same records in other entries, perhaps in another format."""
    found: list[Entry] = []
    to = rng.choice((None, None, None, 2, 1))
    if any(one.is_control or one.magic == 0 for one in log):
        to = None
    rest, start = list(log), rng.randrange(len(log))
    found, rest = rest[:start], rest[start:]
    while rest:
        first, run = rest[0], [rest.pop(0)]
        while rest and not first.is_control and not rest[0].is_control and (rest[0].epoch, rest[0].magic) == (first.epoch, first.magic):
            run.append(rest.pop(0))
        if first.is_control:
            found += run
            continue
        records, codec = [one for entry in run for one in entry.records], rng.choice((NONE, GZIP))
        while records:
            own = records[: rng.choice((1, 2, 3, 5, 8))]
            records = records[len(own) :]
            magic = first.magic if to is None else to
            found += encoded(magic, codec, own, first.epoch, own[-1].offset)
    return found


def written_twice(rng: random.Random, log: list[Entry], _: History) -> list[Entry]:
    """Entries that are there come again: at once or later, or with the entries after them."""
    low = rng.randrange(len(log))
    high = min(len(log), low + rng.choice((1, 1, 2, 3)))
    again = log[low:high]
    if rng.random() < 0.3 and again[0].magic == 2 and not any(one.is_control or one.epoch != again[0].epoch for one in again):
        # In other batches, so that some offsets of an entry come again.
        records = [one for entry in again for one in entry.records][rng.randrange(2) :]
        again = encoded(2, NONE, records, again[0].epoch, records[-1].offset) if records else []
    after = rng.choice((high, high, min(len(log), high + rng.randrange(3))))
    return [*log[:after], *again, *log[after:]]


def not_truncated(rng: random.Random, log: list[Entry], history: History) -> list[Entry]:
    """A broker that went on with a new leader's entries behind those of the old one, which it had to remove."""
    others = [one for one in history.logs if one and one[-1] not in log]
    if not others:
        return log
    other = rng.choice(others)
    common = next((i for i, (one, there) in enumerate(zip(log, other, strict=False)) if one is not there), min(len(log), len(other)))
    return [*log, *other[common:]] if log[-1].epoch <= other[-1].epoch else [*other, *log[common:]]


def rolled(rng: random.Random, log: list[Entry], first: int, calm: bool) -> dict[int, list[Entry]]:
    """Segments by base offset; they begin where all before lies below and all after above."""
    places = [
        i
        for i in range(1, len(log))
        if max(one.last for one in log[:i]) < min(one.base for one in log[i:])
    ]  # fmt: skip
    cuts = sorted(rng.sample(places, rng.randint(0, min(3, len(places)))))
    pieces = [log[a:b] for a, b in zip([0, *cuts], [*cuts, len(log)], strict=True)]
    found = {min(one.base for one in own): own for own in pieces} if log else {first: []}
    if log and rng.random() < 0.1:
        # It has rolled, and nothing was written since.
        found[max(one.last for one in log) + 1] = []
    if len(found) > 1 and not calm and rng.random() < 0.1:
        # Retention.
        del found[min(found)]
    return found


def mix(rng: random.Random, segments: list[dict[int, list[Entry]]], history: History, traits: list[str]) -> None:
    """A segment of another broker lies in a folder."""
    other = rng.choice(history.logs)
    number = rng.randrange(len(segments))
    if not other:
        return
    low = rng.randrange(len(other))
    some = other[low : low + rng.randint(1, 5)]
    # Without leader epochs it would have to be guessed which of two files is the stranger.
    if some[0].magic == 2 and some[0].base not in segments[number]:
        segments[number][some[0].base] = some
        traits.append(f"{number}: a segment {some[0].base} of another broker")


def damaged(rng: random.Random, entries: list[Entry], calm: bool) -> tuple[bytes, str]:
    """Bytes of a segment with one or two accidents."""
    data = b"".join(one.data for one in entries)
    kind = "payload" if calm else rng.choice(list(DAMAGE))
    for _ in range(rng.choice((1, 1, 2))):
        starts = [sum(len(one.data) for one in entries[:i]) for i in range(len(entries) + 1)]
        data = DAMAGE[kind](rng, data, [one for one in starts if one <= len(data)])
    return data, kind


def _flip(data: bytes, at: int, rng: random.Random) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :] if at < len(data) else data


def _payload(rng: random.Random, data: bytes, starts: list[int]) -> bytes:
    at = rng.choice(starts)
    end = min((one for one in starts if one > at), default=len(data))
    return _flip(data, rng.randrange(min(at + (61 if data[at + 16 : at + 17] == b"\2" else 18), end - 1), end), rng) if at < end else data


def _overwritten(rng: random.Random, data: bytes, starts: list[int]) -> bytes:
    """Other bytes; no base offset and no leader epoch is damaged in part, since no checksum covers them."""
    low = rng.choice((rng.choice(starts), rng.randrange(len(data) + 1)))
    high = min(len(data), low + rng.choice((10, 80, 80, 200, 600)))
    low, high = (max((at for at in starts if edge - 16 < at <= edge), default=edge) for edge in (low, high))
    return data[:low] + rng.choice((bytes, rng.randbytes, text))(max(high - low, 0)) + data[max(high, low) :]


def _zeros(rng: random.Random, data: bytes, starts: list[int]) -> bytes:
    kept = len(data) if rng.random() < 0.3 else rng.choice(starts)
    return data[:kept] + bytes(rng.choice((max(len(data) - kept, 30), 300)))


_HEADER = (16, 17, 18, 20, 22, *range(23, 27), *range(27, 61))
"""All but the base offset, the length and the leader epoch."""
DAMAGE: dict[str, Callable[[random.Random, bytes, list[int]], bytes]] = {
    "payload": _payload,
    "header": lambda rng, data, starts: _flip(data, rng.choice(starts) + rng.choice(_HEADER), rng),
    "length": lambda rng, data, starts: _flip(data, rng.choice(starts) + rng.randrange(8, 12), rng),
    "overwritten": _overwritten,
    "cut": lambda rng, data, starts: data[: rng.choice((rng.choice(starts), rng.randrange(len(data) + 1)))],
    "zeros": _zeros, "emptied": lambda *_: b"", "removed": lambda *_: b"",
}  # fmt: skip
