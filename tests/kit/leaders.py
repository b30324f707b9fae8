"""Brokers of a partition that append, follow, die and lead: what each of them then has in its log."""

import random
import struct
from dataclasses import dataclass

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
        data = batch(records, codec=codec, leader_epoch=epoch, last_offset=last, **flags)  # type: ignore[arg-type]
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
        """The leader appends a batch."""
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
