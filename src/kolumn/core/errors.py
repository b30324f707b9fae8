"""Errors: compiled code returns a `Code`, users get the exceptions."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from enum import IntEnum, unique
from typing import Self


@unique
class Code(IntEnum):
    """Result of one step on one entry or record, with the field that is wrong and what was expected in it. Zero is success."""

    field: str
    expected: str

    def __new__(cls, number: int, field: str = "", expected: str = "") -> Self:
        code = int.__new__(cls, number)
        code._value_, code.field, code.expected = number, field, expected
        return code

    OK = 0
    # Framing: where an entry begins and ends.
    TRUNCATED = 1, "batch length", "an entry that ends inside the file"
    ZERO_TAIL = 2, "batch length", "an entry"
    BAD_LENGTH = 3, "batch length", "at least 14 (format 2: 49), and an entry that ends inside the file"
    BAD_MAGIC = 4, "magic", "one that the format has (kafka: 0, 1 or 2)"
    BAD_CRC = 5, "crc", "the checksum of the bytes of the batch"
    # The file as a whole, compared with its neighbours, its indexes and its name.
    SEGMENT_END = 6, "end of segment", "entries up to the base offset of the next segment"
    SEGMENT_MISSING = 7, "file", "the segment to which its index files belong"
    OFFSET_ORDER = 8, "offset", "offsets that no other segment of the directory has"
    NOT_A_SEGMENT = 9, "file", "a Kafka log segment"
    HEADER_CRC = 18, "header crc", "the checksum of the bytes of the header"
    BASE_OFFSET = 19, "base offset", "offsets between those of the entries around it"
    # Payload: codec and framing.
    BAD_CODEC = 10, "attributes", "codec 0 none, 1 gzip, 2 snappy, 3 lz4 or 4 zstd"
    CODEC_NOT_ALLOWED = 11, "attributes", "a codec of formats 0 and 1: 0 none, 1 gzip, 2 snappy or 3 lz4"
    BAD_STREAM = 12, "compressed payload", "a complete and well-formed stream of the batch's codec"
    TOO_LARGE = 13, "compressed payload", "a decompressed size within the limits"
    NULL_WRAPPER = 14, "value length", "a value that holds the compressed messages"
    # Records, format 2.
    RECORD_COUNT = 20, "record count", "0 or more, and no more than the payload has room for"
    RECORD_LENGTH = 21, "record length", "a varint within the bytes that are left"
    TIMESTAMP_DELTA = 22, "timestamp delta", "a varint of at most 10 bytes inside the record"
    OFFSET_DELTA = 23, "offset delta", "a varint of at most 5 bytes inside the record"
    KEY_LENGTH = 24, "key length", "a length within the record"
    VALUE_LENGTH = 25, "value length", "a length within the record"
    HEADER_COUNT = 26, "header count", "0 or more, and no more than the record has room for"
    HEADER_KEY = 27, "header key length", "0 or more, within the record"
    HEADER_VALUE = 28, "header value length", "a length within the record"
    RECORD_END = 29, "record length", "the length of the fields"
    RECORDS_MISSING = 30, "record count", "as many records as the payload holds"
    RECORDS_REMAIN = 31, "record count", "as many records as the payload holds"
    CONTROL_KEY = 32, "key", "version 0 or more and a type: 4 bytes"
    LAST_OFFSET = 33, "last offset", "base offset and last offset delta with a sum that 64 bits can hold"
    OFFSET_RANGE = 34, "offset delta", "0 to the last offset delta in the header of the batch"
    # Messages, formats 0 and 1.
    MESSAGE_SIZE = 40, "message size", "at least 14 (format 0) or 22 (format 1) bytes"
    INNER_LENGTH = 41, "inner message size", "at least 14"
    INNER_MAGIC = 42, "inner magic", "0 or 1"
    INNER_COMPRESSED = 43, "inner attributes", "codec 0: messages inside a wrapper are not compressed again"
    INNER_CRC = 44, "inner crc", "the checksum of the bytes of the message"
    NO_INNER = 45, "compressed payload", "at least one message"
    INNER_OFFSET = 46, "offset", "no less than the last inner offset"
    # The drafts.
    BATCH_HEADER = 50, "batch header", "varints and fields that end inside the batch"
    ENRICHED_SIZE = 51, "message size", "at least 22 bytes (enriched)"
    MESSAGE_TYPE = 52, "attributes", "type 0 to 3 for data, 8 to 11 for control messages"
    TAG_LENGTH = 53, "tag length", "-1 for none, or as many bytes as the message has room for"
    TAG = 54, "tags", "a broker timestamp of 9 bytes or a number of messages of 5, not cut off"
    TAG_COUNT = 55, "tag num_messages", "as many messages as the payload holds"
    RECORD_CRC = 56, "message crc", "the checksum of the bytes of the message"


MEANING = {code: (code.field, code.expected) for code in Code if code}

_SECRETS = re.compile(
    r"(?P<before>://)(?:[^/@\s]+(?=@)|[^/@:\s]+:(?!\d{1,5}/)[^@\s]*(?=@)|[^/@:?\s]+:(?!\d{1,5}(?:[/?:,;\s'\")\]]|$))[^/@?\s]+)"
    r"|(?P<name>(?:secret|password|token|access_?key|account_?key|key_id|signature|credential|\b(?:sas|sig))[a-z_]{0,20}=)[^&\s,;'\"\]})]+",
    re.IGNORECASE,
)
"""A user and a password in front of a URL's host, also if they are not quoted as they should be; and values of options that are secrets."""


def without_secrets(text: str) -> str:
    """A text for people and logs, without the credentials that URLs in it have.

    A text without a URL stays as it is: a folder may be called ``token=5``.
    """
    if "://" not in text:
        return text
    return _SECRETS.sub(lambda match: f"{match['before'] or match['name']}***", text)


def escaped(text: str) -> str:
    """A text on one line that moves no cursor and that every encoding can write.

    Names of files and keys of records may have any bytes: line feeds, escape sequences of terminals, marks that turn the direction of
    text, and bytes that are not UTF-8 (surrogates in Python's names of files), which are shown as ``\\xff``.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return f"\\x{ord(char) & 0xFF:02x}" if "\udc80" <= char <= "\udcff" else repr(char)[1:-1]


def shown(text: str) -> str:
    """A text for people, such as a name of a file in a message: `escaped`, and without credentials."""
    return escaped(without_secrets(text))


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Message for an unknown name: it contains the nearest known name, and all known names."""
    names = list(known)
    near = get_close_matches(name, names, 1)
    return f"unknown {kind} {name!r}{f', did you mean {near[0]!r}? The' if near else ';'} {kind}s are {', '.join(names)}"


class KolumnError(Exception):
    """Base of all errors that this package raises intentionally.

    Some are also Python's own: an unknown option a `TypeError`, a missing path a `FileNotFoundError`, a missing package an `ImportError`,
    and failed reads and writes an `OSError`. Their texts are for people: names of files in them are escaped, and have no credentials of
    URLs. Attributes have names as they are.

    Parameters
    ----------
    *lines : object
        The text, a line each. A line feed inside of a line is escaped, so that no name of a file adds a line.
    """

    def __init__(self, *lines: object) -> None:
        texts = tuple(shown(line) if isinstance(line, str) else line for line in lines)
        super().__init__(*texts)
        # An OSError takes two of several for a number and its text.
        self.args = texts

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


A_FRAME_EACH = "kolumn.topics(source, …) for a frame each"
"""How a program reads topics of several types. Spark and the command line have ways of their own, and replace it."""
_OF_OTHERS = {
    "a segment of Redpanda": "Read it with format='redpanda'.",
    "a segment of Kafka": "Read it with format='kafka', under a name that is not Redpanda's.",
}
"""What to do about a file, by what it looks like."""


class CorruptBatchError(KolumnError):
    """The bytes are damaged.

    Attributes
    ----------
    segment : str
    position : int
        Byte position of the entry in the file.
    base_offset : int | None
        Base offset from the entry's header.
    record : int | None
        Index of the damaged record in the batch, if it is known.
    field : str
    expected, found : str
    code : Code
    """

    def __init__(
        self,
        segment: str,
        position: int,
        code: Code,
        *,
        base_offset: int | None = None,
        record: int | None = None,
        expected: str | None = None,
        found: str = "",
    ) -> None:
        self.segment, self.position, self.code = segment, position, code
        self.base_offset, self.record, self.found = base_offset, record, found
        self.field, self.expected = code.field, expected or code.expected
        numbers = ("position", position), ("base offset", base_offset), ("record", record)
        where = ", ".join(f"{name} {number}" for name, number in numbers if number is not None)
        text = f"{segment}: {where}: {self.field}: expected {self.expected}{f', found {found}' if found else ''}"
        super().__init__(f"{text}. {self._advice()}")

    def _advice(self) -> str:
        if self.code == Code.NOT_A_SEGMENT:
            of_others = (advice for found, advice in _OF_OTHERS.items() if self.found.startswith(found))
            return next(of_others, "Name the *.log files of a topic-partition directory, or that directory.")
        return "Read with errors='skip' to go on after the damage, or run `kolumn verify` for the full list."

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.segment, self.position, self.code, self.base_offset, self.record, self.expected, self.found)


def _rebuild(error, segment, position, code, base_offset, record, expected, found):  # type: ignore[no-untyped-def]
    return error(segment, position, code, base_offset=base_offset, record=record, expected=expected, found=found)


class FormatError(CorruptBatchError):
    """A format or codec that this package does not read: an unknown magic or codec id, or zstd below format 2."""


class LimitError(CorruptBatchError):
    """Decoding would exceed a limit on size."""

    def _advice(self) -> str:
        return "Read with errors='skip', or raise max_batch_bytes or max_ratio if the data are trusted and memory is there."


class MissingError(KolumnError):
    """A package or a device that the call needs is missing."""


class NoMemoryError(KolumnError, MemoryError):
    """There is not enough memory for the call."""


class ArgumentError(KolumnError, ValueError):
    """An argument or option has an invalid value."""


class StorageError(KolumnError, OSError):
    """A file, folder or object cannot be read or written; ``__cause__`` is the error of the file system."""


class MissingPackageError(MissingError, ImportError):
    """A package that the call needs is not installed."""


class MissingPathError(ArgumentError, FileNotFoundError):
    """There is nothing at a path."""


class UnknownOptionError(ArgumentError, TypeError):
    """A function has no such option, or it would have no effect there."""


class PayloadError(KolumnError):
    """A key or a value is not what its schema says, and ``value_errors`` or ``key_errors`` is "raise", or no text, as was asked for.

    Attributes
    ----------
    segment : str
    offset : int
        Of the record.
    column : str
        "key", "value" or "headers".
    reason : str
        What is wrong with it.
    advice : str
        What to do.
    """

    def __init__(self, segment: str, offset: int, column: str, reason: str, advice: str = "") -> None:
        self.segment, self.offset, self.column, self.reason = segment, offset, column, reason
        self.advice = advice or f"Read with {column}_errors='null-field' to have nulls there."
        super().__init__(f"{segment}: offset {offset}: {column}: {reason}. {self.advice}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.segment, self.offset, self.column, self.reason, self.advice)


_FORMAT = Code.NOT_A_SEGMENT, Code.BAD_MAGIC, Code.MESSAGE_TYPE, Code.BAD_CODEC, Code.CODEC_NOT_ALLOWED


def error_kind(code: Code) -> type[CorruptBatchError]:
    return LimitError if code == Code.TOO_LARGE else FormatError if code in _FORMAT else CorruptBatchError
