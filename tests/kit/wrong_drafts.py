"""Entries of the drafts with something wrong in them under a right checksum, and what Kolumn says of each."""

import struct

from kit import drafts
from kit.encoder import Record, batch, message
from kolumn.core.errors import Code

TIME = 1_700_000_000_000
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
