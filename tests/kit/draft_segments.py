"""Random segments of the drafts with the rows that they hold, and damage for them."""

import random
from collections import namedtuple
from dataclasses import dataclass, replace

from kit import drafts
from kit.encoder import LOG_APPEND_TIME, TRANSACTIONAL, Record, batch, message, wrapper
from kit.streams import STYLES

FORMATS = ("enriched", "kip98-draft", "v3-compact", "kip87")
TIME = 1_700_000_000_000


Row = namedtuple("Row", "offset timestampMs key value headers tombstone isControl controlType magic producerId sequence")
"""One record; the names are those of Kolumn's columns."""


@dataclass
class Entry:
    """Bytes of an entry and its rows."""

    data: bytes
    rows: list[Row]


def _row(record: Record, magic: int, *, timestamp: int | None = None, tombstone: bool | None = None, control: str | None = None,
         producer: int = -1, sequence: int = -1, headers: bool = False) -> Row:  # fmt: skip
    dead = record.value is None and control is None if tombstone is None else tombstone
    names = tuple((name.decode(), value) for name, value in record.headers) if headers else ()
    time = record.timestamp if timestamp is None else timestamp
    return Row(record.offset, time, record.key, record.value, names, dead, control is not None, control, magic, producer, sequence)


class Maker:
    """Makes entries of one format, one after the other."""

    def __init__(self, format: str, rng: random.Random) -> None:
        self.format, self.rng = format, rng
        self.offset = rng.choice([0, 5, 1000, (1 << 31) - 3])

    def segment(self, entries: int) -> list[Entry]:
        """Some entries in a row; shipped ones are mixed in."""
        make = {"enriched": self._enriched, "kip98-draft": self._set, "v3-compact": self._compact, "kip87": self._flagged}[self.format]
        return [self._shipped() if self.rng.random() < 0.25 else make() for _ in range(entries)]

    def _blob(self) -> bytes | None:
        size = self.rng.choice([0, 1, 3, 12, 13, 40, 200, -1])
        return None if size < 0 else self.rng.randbytes(size)

    def _records(self, most: int = 5, headers: bool = False) -> list[Record]:
        found = []
        for _ in range(self.rng.randint(1, most)):
            pairs = tuple((b"h%d" % i, self._blob()) for i in range(self.rng.randint(0, 2))) if headers else ()
            found.append(Record(self.offset, self._blob(), self._blob(), TIME + self.rng.randint(0, 9999), pairs))
            self.offset += self.rng.choice([1, 1, 1, 3])
        return found

    def _codec(self, highest: int) -> tuple[int, str]:
        codec = self.rng.randint(0, highest)
        return codec, self.rng.choice(STYLES[codec])

    def _shipped(self) -> Entry:
        magics = {"enriched": (0,), "kip98-draft": (0, 1), "v3-compact": (0, 1, 2), "kip87": (0, 1)}[self.format]
        magic = self.rng.choice(magics)
        if magic == 2:
            records, (codec, style) = self._records(headers=True), self._codec(4)
            return Entry(batch(records, codec=codec, style=style), [_row(r, 2, headers=True) for r in records])
        codec, style = self._codec(3)
        records = self._records(5 if codec else 1)
        data = wrapper(magic, records, codec, style=style) if codec else message(magic, records[0])
        return Entry(data, [_row(r, magic, timestamp=None if magic else -1) for r in records])

    def _tags(self, record: Record) -> tuple[int, bytes, int]:
        """Seconds, tags, and the timestamp that they mean."""
        kind = self.rng.randint(0, 4)
        seconds = record.timestamp // 1000
        if kind == 0:
            return -1, b"", -1
        if kind == 1:
            return seconds, b"", seconds * 1000
        tags = drafts.time_tag(record.timestamp)
        if kind == 2:
            tags = drafts.time_tag(1) + tags
        if kind == 3:
            tags += bytes([77]) + self.rng.randbytes(5)
        return seconds, tags, record.timestamp

    def _enriched(self) -> Entry:
        if self.rng.random() < 0.15:
            kind = self.rng.randint(8, 11)
            record = self._records(1)[0]
            name = ("LEADER_EPOCH", "START_TRANSACTION", "COMMIT", "ABORT")[kind - 8]
            return Entry(drafts.tagged(record, kind), [_row(record, 1, timestamp=-1, control=name)])
        codec, style = self._codec(3)
        if not codec:
            record = self._records(1)[0]
            seconds, tags, time = self._tags(record)
            return Entry(drafts.tagged(record, seconds=seconds, tags=tags), [_row(record, 1, timestamp=time)])
        base, honoured = self.offset + self.rng.randint(0, 2), self.rng.random() < 0.7
        self.offset = base
        records, inner, rows = self._records(), [], []
        for i, record in enumerate(records):
            seconds, tags, time = self._tags(record)
            inner.append(drafts.tagged(replace(record, offset=record.offset - base), seconds=seconds, tags=tags))
            rows.append(_row(record if honoured else replace(record, offset=base + i), 1, timestamp=time))
        counted = drafts.count_tag(len(records)) if self.rng.random() < 0.7 else b""
        flags = drafts.HONOURED if honoured else 0
        return Entry(drafts.tagged_wrapper(base, inner, codec, flags=flags, tags=counted, style=style), rows)

    def _set(self) -> Entry:
        base = self.offset
        records, (codec, style) = self._records(), self._codec(3)
        control = self.rng.random() < 0.2
        if control:
            kind = self.rng.randint(0, 1)
            records[-1] = replace(records[-1], key=bytes([0, 0, 0, kind]), value=None)
        append, producer = self.rng.random() < 0.3, self.rng.choice([-1, 9])
        span, sequence = self.offset - base, -1 if producer < 0 else (1 << 31) - 3
        messages = [drafts.set_message(r, base, control and r is records[-1]) for r in records]
        data = drafts.message_set(
            base, messages, span, codec=codec, style=style, max_timestamp=TIME + 10000, producer=(producer, 0, sequence),
            flags=LOG_APPEND_TIME * append | TRANSACTIONAL * (producer > 0),
        )  # fmt: skip
        rows = []
        for record in records:
            name = ("COMMIT", "ABORT")[kind] if control and record is records[-1] else None
            number = -1 if sequence < 0 else (sequence + record.offset - base) % (1 << 31)
            time = TIME + 10000 if append else None
            rows.append(_row(record, 2, timestamp=time, control=name, producer=producer, sequence=number))
        return Entry(data, rows)

    def _compact(self) -> Entry:
        base, bare = self.offset, self.rng.random() < 0.7
        records, (codec, style) = self._records(headers=True), self._codec(4)
        bodies = [drafts.bare_record(r, base, TIME, b"" if bare else b"\0") for r in records]
        append = self.rng.random() < 0.3
        data = drafts.compact_batch(
            base, bodies, last_delta=self.offset - 1 - base, base_timestamp=TIME, max_delta=9999, codec=codec, style=style,
            flags=0x80 * bare | LOG_APPEND_TIME * append, leader_epoch=self.rng.choice([0, 3, 0x03030303]), producer=(9, 1, 7),
        )  # fmt: skip
        time = TIME + 9999 if append else None
        return Entry(data, [_row(r, 3, timestamp=time, producer=9, sequence=7 + r.offset - base, headers=True) for r in records])

    def _flagged(self) -> Entry:
        codec, style = self._codec(3)
        records, rows, inner = self._records(5 if codec else 1), [], []
        base = records[0].offset if codec else 0
        for record in records:
            magic, dead = self.rng.choice([0, 1, 2]) if codec else 2, self.rng.random() < 0.5
            relative = replace(record, offset=record.offset - base)
            if magic == 2:
                inner.append(drafts.flagged(relative, drafts.TOMBSTONE * dead))
            else:
                inner.append(message(magic, relative))
            rows.append(_row(record, 2, timestamp=None if magic else -1, tombstone=dead if magic == 2 else None))
        data = drafts.flagged_wrapper(records[-1].offset, inner, codec, timestamp=TIME, style=style) if codec else inner[0]
        return Entry(data, rows)


def damage(entries: list[bytes], rng: random.Random) -> tuple[bytes, int]:
    """Damaged bytes, and which entry was hit; its offset is left alone, since no checksum covers that."""
    hit, kind = rng.randrange(len(entries)), rng.randint(0, 3)
    entry = bytearray(entries[hit])
    place = rng.choice([8, 9, 11, 16, rng.randrange(8, len(entry)), rng.randrange(8, len(entry))])
    stop = min(place + rng.randint(1, 30), len(entry)) if kind > 1 else place + 1
    entry[place:stop] = bytes([entry[place] ^ 1 << rng.randint(0, 7)]) if kind == 0 else (rng.randbytes, bytes)[kind == 2](stop - place)
    return b"".join([*entries[:hit], entry, *entries[hit + 1 :]]), hit
