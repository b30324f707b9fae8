"""What the scalar functions of the formats return for one record, message or record header.

Positions count from ``buf``. A negative length is null. In machine code each of these is a tuple of int64.
"""

from typing import NamedTuple


class Record(NamedTuple):
    """A record of a batch, without its headers.

    Attributes
    ----------
    code, next : int
        ``next`` is the end of the record or, with an error, the position of the field to blame.
    timestamp_delta, offset_delta : int
    key, key_length, value, value_length : int
    headers, header_count : int
        Position of the first header, and the number of headers. The last header must end at ``next``.
    """

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

    Attributes
    ----------
    code, where : int
        ``where`` is the position of the field to blame, with an error.
    offset : int
    timestamp : int
        Milliseconds; -1 if there is no timestamp.
    dated : int
        1 if an append time of the entry replaces the timestamp, else 0.
    seconds : int
        The message's own timestamp in seconds; -1 if it has none.
    attributes : int
        Including the bits that the decoder adds (`Layout.flagged_bit`, `Layout.tagged_bit`); 0 in formats 0 and 1.
    key, key_length, value, value_length : int
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
