"""Entries with right checksums in which single records are wrong, in every format, and which offsets can be read of them."""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kit import drafts
from kit.encoder import Record, batch, message, raw_batch, record_body, varint
from kit.streams import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from kolumn.core.errors import Code

TIME = 1_700_000_000_000
RECORDS = [Record(3 + i, b"k%d" % i, b"value %d" % i, TIME + i, ((b"h", b"%d" % i),) * (i % 3)) for i in range(10)]
"""Records of the entry in question: offsets 3 to 12. One entry with offset 0 precedes it, one with offset 20 follows it."""


@dataclass(frozen=True)
class Case:
    """A segment of three entries; ``left`` are the offsets that can be read of the second one, ``lost`` how many records it lost."""

    name: str
    format: str
    data: bytes
    left: tuple[int, ...]
    lost: int | None

    @property
    def offsets(self) -> list[int]:
        """All offsets that can be read."""
        return [0, *self.left, 20]


Change = Callable[[list[bytes]], bytes]


def _without(*lost: int) -> tuple[int, ...]:
    return tuple(record.offset for i, record in enumerate(RECORDS) if i not in lost)


def _cut_value(body: bytes) -> bytes:
    """A record's body whose last byte is gone, so that its fields need more than there is."""
    return body[:-1]


def _sized(bodies: Sequence[bytes]) -> bytes:
    return b"".join(varint(len(body)) + body for body in bodies)


def _changed(bodies: list[bytes], changes: dict[int, Callable[[bytes], bytes]]) -> list[bytes]:
    return [changes[i](body) if i in changes else body for i, body in enumerate(bodies)]


def _longer(bodies: list[bytes], i: int, more: int) -> bytes:
    """Records of which one claims to be longer than it is."""
    return _sized(bodies[:i]) + varint(len(bodies[i]) + more) + bodies[i] + _sized(bodies[i + 1 :])


def _beyond(body: bytes) -> bytes:
    """Another offset delta, 100; those of the records are single bytes after the attributes and the timestamp delta."""
    return body[:2] + varint(100) + body[3:]


def _of_records(sized: Callable[[Record], bytes]) -> Iterator[tuple[str, bytes, int, tuple[int, ...], int | None]]:
    """Payloads: a name, the bytes, the count, what is left, and how many are lost."""
    bodies = [sized(record) for record in RECORDS]
    yield "first", _sized(_changed(bodies, {0: _cut_value})), 10, _without(0), 1
    yield "middle", _sized(_changed(bodies, {5: _cut_value})), 10, _without(5), 1
    yield "last", _sized(_changed(bodies, {9: _cut_value})), 10, _without(9), 1
    yield "three", _sized(_changed(bodies, {1: _cut_value, 2: _cut_value, 8: _cut_value})), 10, _without(1, 2, 8), 3
    yield "all but one", _sized(_changed(bodies, dict.fromkeys(range(9), _cut_value))), 10, _without(*range(9)), 9
    yield "all", _sized(list(map(_cut_value, bodies))), 10, (), 10
    yield "beyond", _sized(_changed(bodies, {5: _beyond})), 10, _without(5), 1
    yield "no length", _sized(bodies[:4]) + b"\0" + _sized(bodies[4:]), 10, _without(*range(4, 10)), 6
    yield "length beyond the end", _sized(bodies[:4]) + varint(1 << 20) + bodies[4], 10, _without(*range(4, 10)), 6
    yield "length", _longer(bodies, 4, 3), 10, _without(*range(4, 10)), 6
    yield "wrong, then length", _longer(_changed(bodies, {2: _cut_value}), 4, 3), 10, _without(*range(2, 10)), 8
    yield "swallows the next", _longer(bodies, 4, len(varint(9)) + len(bodies[5])), 10, _without(4, 5), 2
    yield "too few", _sized(bodies[:7]), 10, _without(7, 8, 9), 3
    yield "too many", _sized(bodies), 7, _without(), 0
    yield "no count", _sized(bodies), 0, _without(), 0
    yield "negative count", _sized(bodies), -1, _without(), 0
    yield "garbage after them", _sized(bodies) + bytes(30), 10, _without(), 0


def _of_messages() -> Iterator[tuple[str, Callable[[list[bytes]], bytes], tuple[int, ...], int | None]]:
    """Changes of messages of a wrapper or of a set, with checksums of their own; what is left, and how many are lost."""

    def marred(*which: int) -> Change:
        return lambda own: b"".join(one[:-6] + bytes([one[-6] ^ 1]) + one[-5:] if i in which else one for i, one in enumerate(own))

    yield "first", marred(0), _without(0), 1
    yield "middle", marred(5), _without(5), 1
    yield "last", marred(9), _without(9), 1
    yield "three", marred(1, 2, 8), _without(1, 2, 8), 3
    yield "all", marred(*range(10)), (), None


def cases() -> Iterator[Case]:
    around = batch([Record(0, None, b"before", TIME)]), batch([Record(20, None, b"after", TIME)])
    for i, (name, payload, count, left, lost) in enumerate(_of_records(lambda record: record_body(record, 3, TIME))):
        for codec in {NONE, (GZIP, SNAPPY, LZ4, ZSTD)[i % 4]}:
            head = {"base_offset": 3, "last_delta": 9, "base_timestamp": TIME, "max_timestamp": TIME + 9, "attributes": codec}
            entry = raw_batch(compress(codec, payload), count, **head)
            yield Case(f"2 {codec} {name}", "kafka", around[0] + entry + around[1], left, lost)
    bare = _of_records(lambda record: record_body(record, 3, TIME)[1:])
    for name, payload, count, left, lost in bare:
        # Without their attributes other bytes are where a change aims, or where a wrong length leads.
        if name not in ("beyond", "swallows the next", "length", "wrong, then length"):
            yield Case(f"3 {name}", "v3-compact", around[0] + _compact(payload, count) + around[1], left, lost)
    plain = [replace(record, headers=()) for record in RECORDS]
    for magic in (0, 1):
        ends = tuple(message(magic, Record(offset, None, b"x", TIME)) for offset in (0, 20))
        inner = [message(magic, replace(record, offset=record.offset - 3 * magic)) for record in plain]
        for name, change, left, lost in _of_messages():
            entry = message(magic, Record(12, None, compress(GZIP, change(inner), "", magic), TIME), GZIP)
            yield Case(f"{magic} {name}", "kafka", ends[0] + entry + ends[1], left, lost)
        size = _change_size(inner)
        entry = message(magic, Record(12, None, compress(GZIP, size, "", magic), TIME), GZIP)
        yield Case(f"{magic} size", "kafka", ends[0] + entry + ends[1], () if magic else _without(*range(4, 10)), None)
    ends = tuple(drafts.flagged(Record(offset, None, b"x", TIME)) for offset in (0, 20))
    inner = [drafts.flagged(replace(record, offset=record.offset - 3)) for record in plain]
    for name, change, left, lost in _of_messages():
        entry = drafts.flagged(Record(12, None, compress(GZIP, change(inner), "", 2), TIME), GZIP)
        yield Case(f"kip87 {name}", "kip87", ends[0] + entry + ends[1], left, lost)
    ends = tuple(drafts.message_set(offset, [drafts.set_message(Record(offset, None, b"x", TIME), offset)], 1) for offset in (0, 20))
    inner = [drafts.set_message(record, 3) for record in plain]
    for name, change, left, lost in _of_messages():
        entry = drafts.entry(3, struct.pack(">bhiqqhi", 2, 0, 10, -1, -1, -1, -1) + change(inner))
        yield Case(f"kip98 {name}", "kip98-draft", ends[0] + entry + ends[1], left, lost)


def _change_size(inner: list[bytes]) -> bytes:
    """Messages of which the fifth has a size that is smaller than any."""
    return b"".join(inner[:4]) + inner[4][:8] + struct.pack(">i", 3) + inner[4][12:] + b"".join(inner[5:])


def _compact(payload: bytes, count: int) -> bytes:
    return drafts.compact_batch(3, [payload], count=count, last_delta=9, base_timestamp=TIME, max_delta=9)


ONE = Record(0, b"k", b"v", TIME)


def set_of(body: bytes, span: int = 1, codec: int = 0) -> bytes:
    return drafts.message_set(0, [body], span, codec=codec)


def message_of(attributes: int, rest: bytes, delta: bytes = b"\0") -> bytes:
    return drafts.sealed(struct.pack(">Bq", attributes, TIME) + delta + rest)


def compact_of(*records: bytes) -> bytes:
    return drafts.compact_batch(0, records, last_delta=0, base_timestamp=0, max_delta=0)


WRONG: list[tuple[str, bytes, Code, str]] = [
    ("enriched", drafts.tagged(ONE, 5), Code.MESSAGE_TYPE, "attributes: expected type 0 to 3"),
    ("enriched", drafts.tagged(ONE, 12), Code.MESSAGE_TYPE, "attributes"),
    ("enriched", drafts.tagged(ONE, tag_length=-2), Code.TAG_LENGTH, "tag length: expected -1 for none"),
    ("enriched", drafts.tagged(ONE, tag_length=500), Code.TAG_LENGTH, "found 500 at byte 22"),
    ("enriched", drafts.tagged(ONE, tags=b"\0" + bytes(7)), Code.TAG, "tags: expected a broker timestamp"),
    ("enriched", drafts.tagged(ONE, tags=drafts.time_tag(TIME) + b"\x20\0"), Code.TAG, "tags"),
    ("enriched", drafts.tagged_wrapper(0, [drafts.tagged(ONE)] * 2, 1, tags=drafts.count_tag(3)), Code.TAG_COUNT, "3 in the tag, 2 in"),
    ("enriched", drafts.tagged_wrapper(0, [drafts.tagged(ONE)], 1, tags=drafts.count_tag(-1)), Code.TAG_COUNT, "-1 in the tag, 1 in"),
    ("enriched", drafts.tagged_wrapper(0, [message(0, ONE)], 1), Code.INNER_MAGIC, "inner magic"),
    ("enriched", drafts.tagged_wrapper(0, [drafts.tagged(ONE, 1)], 1), Code.INNER_COMPRESSED, "inner attributes"),
    ("enriched", drafts.tagged_wrapper(0, [drafts.tagged(ONE, 7 | 8)], 1), Code.MESSAGE_TYPE, "record 0: attributes"),
    ("enriched", drafts.tagged(Record(0, None, None, -1), 1), Code.NULL_WRAPPER, "value length"),
    ("enriched", drafts.entry(0, struct.pack(">bBii", 1, 0, -1, -1)), Code.ENRICHED_SIZE, "message size: expected at least 22"),
    ("enriched", drafts.entry(0, struct.pack(">bBiiii", 1, 0, -1, -1, 77, -1)), Code.KEY_LENGTH, "found 77"),
    ("enriched", drafts.entry(0, struct.pack(">bBiiii", 1, 0, -1, -1, -1, 77)), Code.VALUE_LENGTH, "found 77"),
    ("enriched", batch([ONE]), Code.BAD_MAGIC, "magic: expected one that the format has"),
    ("kip98-draft", set_of(message_of(0, b"\1kv")[:-4] + bytes(4)), Code.RECORD_CRC, "record 0: message crc"),
    ("kip98-draft", set_of(message_of(4 | 1, b"v")), Code.CONTROL_KEY, "record 0: key"),
    ("kip98-draft", set_of(message_of(0, b"\x09kv")), Code.KEY_LENGTH, "record 0: key length.*found 9"),
    ("kip98-draft", set_of(message_of(1 | 2, b"v")), Code.RECORD_END, "record 0: record length"),
    ("kip98-draft", set_of(message_of(0, b"", b"\xff\xff\xff\xff\xff")), Code.OFFSET_DELTA, "record 0: offset delta"),
    ("kip98-draft", set_of(b"\x40" + bytes(20)), Code.RECORD_LENGTH, "record 0: record length"),
    ("kip98-draft", set_of(b"\x02" + bytes(2)), Code.RECORD_LENGTH, "record length"),
    ("kip98-draft", drafts.entry(0, struct.pack(">bhi", 2, 0, 1)), Code.BAD_LENGTH, "batch length"),
    ("kip98-draft", set_of(message_of(0, b"\1kv"), codec=4), Code.CODEC_NOT_ALLOWED, "found 4"),
    ("v3-compact", drafts.compact_entry(0, b"\0\x80" + b"\xff" * 40), Code.BATCH_HEADER, "batch header: expected varints"),
    ("v3-compact", drafts.compact_entry(0, b"\0\x80" + b"\0" + b"\x80" * 10 + bytes(20)), Code.BATCH_HEADER, "batch header"),
    ("v3-compact", compact_of(b"\x0c" + b"\xff" * 6), Code.TIMESTAMP_DELTA, "timestamp delta"),
    ("v3-compact", compact_of(*[b"\0"] * 3), Code.RECORDS_MISSING, "record count"),
    ("kip87", drafts.flagged_wrapper(0, [drafts.flagged(ONE, magic=3)], 1), Code.INNER_MAGIC, "inner magic"),
    ("kip87", drafts.flagged(ONE, 4), Code.CODEC_NOT_ALLOWED, "attributes"),
    ("kip87", drafts.flagged(ONE, 0, magic=3), Code.BAD_MAGIC, "magic"),
]  # fmt: skip
"""Entries of the drafts with something wrong in them under a right checksum, and what Kolumn says of each."""
