"""The prefix that entries of all formats have in common: where an entry ends and which format it has.

    0        8      12       16      17
    +--------+------+--------+-------+----
    | offset | size | format | magic | ...        size counts the bytes after itself, so an entry has 12 + size
    +--------+------+--------+-------+----

Source: ``FileLogInputStream.nextBatch``, ``Records`` and ``LegacyRecord`` of Kafka."""

from typing import NamedTuple

from kolumn.core.errors import Code
from kolumn.formats.memory import Buffer, i32_at, load8

PREFIX, SIZE_AT, MAGIC_AT = 17, 8, 16
OVERHEAD, SMALLEST = 12, 14
_LEAST_OFFSET, _LARGEST_OFFSET = -(1 << 63), (1 << 63) - 1
_OK, _TRUNCATED, _ZERO_TAIL, _BAD_LENGTH = int(Code.OK), int(Code.TRUNCATED), int(Code.ZERO_TAIL), int(Code.BAD_LENGTH)


def entry(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """Frame the entry at ``pos`` of a segment whose bytes end at ``end``; touches 12 bytes.

    Returns a code and a size.

    OK          the bytes of the whole entry
    TRUNCATED   the bytes end before the entry does (Java's clean end): its size, or the number of left-over bytes if they are 17 or fewer
    ZERO_TAIL   its size is 0: preallocation, if the rest is zeros too
    BAD_LENGTH  its size is below 14
    """
    left = end - pos
    if left <= PREFIX:
        return _TRUNCATED, left
    size = i32_at(buf, pos + SIZE_AT)
    if size == 0:
        return _ZERO_TAIL, 0
    if size < SMALLEST:
        return _BAD_LENGTH, 0
    if size > left - OVERHEAD:
        return _TRUNCATED, size + OVERHEAD
    return _OK, size + OVERHEAD


def magic_at(buf: Buffer, pos: int) -> int:
    """Magic of the entry at ``pos``, 0..255. Java reads it as a signed byte; neither reading finds a shipped magic above 2."""
    return load8(buf, pos + MAGIC_AT)


def holds_offset(base: int, delta: int) -> bool:
    """Whether ``base + delta`` fits 64 bits. If it does not, the sum wraps in Java's readers, and the last offset is below the first."""
    return delta <= _LARGEST_OFFSET - base if base >= 0 else delta >= _LEAST_OFFSET - base


class Record(NamedTuple):
    """A record of a batch. ``next`` is its end or, with an error, the position of the field to blame; ``headers`` is the position of its
    first header, and the last one must end at ``next``."""

    code: int
    next: int
    timestamp_delta: int
    offset_delta: int
    key: int
    key_length: int
    value: int
    value_length: int
    headers: int
    header_count: int


class PlainRecord(NamedTuple):
    """A record without headers, returned by `v2.plain_fields`; ``next`` is -1 for a record that `v2.fields` has to read."""

    next: int
    timestamp_delta: int
    offset_delta: int
    key: int
    key_length: int
    value: int
    value_length: int


class Header(NamedTuple):
    """A header of a record. ``next`` is its end or, with an error, the position of the field to blame."""

    code: int
    next: int
    key: int
    key_length: int
    value: int
    value_length: int


class Message(NamedTuple):
    """A message: an entry of its own, or a message in a wrapper or in a set.

    ``code``, ``where``: ``where`` is the position of the field to blame, with an error.
    ``timestamp``: milliseconds; -1 if there is no timestamp.
    ``dated``: 1 if an append time of the entry replaces the timestamp, else 0.
    ``seconds``: the message's own timestamp in seconds; -1 if it has none.
    ``attributes``: including the bits that the decoder adds (`Layout.flagged_bit`, `Layout.tagged_bit`); 0 in formats 0 and 1.
    """

    code: int
    where: int
    offset: int
    timestamp: int
    dated: int
    seconds: int
    attributes: int
    key: int
    key_length: int
    value: int
    value_length: int


NOT_PLAIN = PlainRecord(-1, 0, 0, 0, 0, 0, 0)


def bad_record(code: int, where: int) -> Record:
    """A record with an error."""
    return Record(code, where, 0, 0, 0, 0, 0, 0, 0, 0)


def bad_header(code: int, where: int) -> Header:
    """A record header with an error."""
    return Header(code, where, 0, 0, 0, 0)


def bad_message(code: int, where: int) -> Message:
    """A message with an error."""
    return Message(code, where, 0, 0, 0, 0, 0, 0, 0, 0, 0)
