"""Logs of random batches of all kinds, for tests that compare two ways to rewrite them."""

import random
from pathlib import Path

from kit import encoder
from kit.encoder import DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, Record, batch, control_batch, message, overlong, raw_batch, varint

TIME = 1_700_000_000_000
CODECS = range(5)
KINDS = ("plain", "dead", "headers", "transactions", "appended", "idempotent", "old", "odd")


class Log:
    """Batches of random records, one after the other."""

    def __init__(self, seed: int, kinds: tuple[str, ...], keys: int) -> None:
        self.rng, self.kinds, self.keys, self.offset = random.Random(seed), kinds, keys, 0

    def segment(self, batches: int) -> bytes:
        return b"".join(self.entry() for _ in range(batches))

    def records(self, dead: bool = False, headers: bool = False) -> list[Record]:
        rng, records = self.rng, []
        for _ in range(rng.choice([1, 2, 5, 40])):
            key = None if rng.random() < 0.05 else b"key-%d" % rng.randrange(self.keys) * rng.choice([1, 1, 1, 30])
            value = None if dead and rng.random() < 0.2 else rng.choice([b"", b"v" * rng.randrange(300), rng.randbytes(9000)])
            some: tuple[encoder.Header, ...] = ()
            if headers:
                some = tuple((rng.choice([b"", b"name", b"caf\xc3\xa9", b"\xff"]), rng.choice([None, b"", b"x" * 200])) for _ in range(3))
            records.append(Record(self.offset, key, value, TIME + self.offset * 1000 + rng.randrange(-5000, 5000), some))
            self.offset += rng.choice([1, 1, 1, 7])
        return records

    def entry(self) -> bytes:
        rng, kind, first = self.rng, self.rng.choice(self.kinds), self.offset
        if kind == "old":
            return b"".join(message(1, one) for one in self.records()) if rng.random() < 0.5 else encoder.wrapper(1, self.records(), 1)
        producer, epoch = {"idempotent": (rng.randrange(3), 0), "transactions": (rng.randrange(10, 13), 3)}.get(kind, (-1, -1))
        if kind == "transactions" and rng.random() < 0.3:
            self.offset += 1
            return control_batch(first, rng.randrange(2), producer_id=producer, producer_epoch=epoch, timestamp=TIME)
        records = self.records(kind == "dead", kind == "headers")
        if kind == "odd":
            return self.odd(records)
        flags, base = {"appended": LOG_APPEND_TIME, "transactions": TRANSACTIONAL}.get(kind, 0), None
        if kind == "dead" and rng.random() < 0.5:
            flags, base = DELETE_HORIZON, TIME + rng.randrange(-10, 10)
        return batch(
            records, codec=rng.choice(CODECS), flags=flags, base_timestamp=base, last_offset=self.offset - 1, producer_id=producer,
            producer_epoch=epoch, base_sequence=first if producer >= 0 else -1,
        )  # fmt: skip

    def odd(self, records: list[Record]) -> bytes:
        """With record attributes, and longer numbers than are needed."""
        base, time, payload = records[0].offset, records[0].timestamp, b""
        for one in records:
            key, value = one.key, one.value or b""
            body = b"\x55" + overlong(varint(one.timestamp - time), 5) + overlong(varint(one.offset - base), 2)
            body += varint(-1) if key is None else overlong(varint(len(key)), 3) + key
            body += varint(len(value)) + value + b"\0"
            payload += varint(len(body)) + body
        return raw_batch(
            payload, len(records), base_offset=base, last_delta=self.offset - 1 - base, base_timestamp=time, max_timestamp=time
        )


def source_of(folder: Path, segments: list[bytes]) -> Path:
    """A topic-partition; each segment is named by its first offset."""
    place = folder / "t-0"
    place.mkdir(parents=True)
    for data in segments:
        (place / f"{int.from_bytes(data[:8], 'big'):020}.log").write_bytes(data)
    return place
