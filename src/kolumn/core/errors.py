"""Errors: compiled code returns a `Code`, users get the exceptions."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from enum import IntEnum, unique


@unique
class Code(IntEnum):
    """Result of one step on one entry or record. Zero is success; `MEANING` contains the text of each code."""

    OK = 0
    # Framing: where an entry begins and ends.
    TRUNCATED = 1
    ZERO_TAIL = 2
    BAD_LENGTH = 3
    BAD_MAGIC = 4
    BAD_CRC = 5
    # The file as a whole, compared with its neighbours, its indexes and its name.
    SEGMENT_END = 6
    SEGMENT_MISSING = 7
    OFFSET_ORDER = 8
    NOT_A_SEGMENT = 9
    BASE_OFFSET = 19
    # Payload: codec and framing.
    BAD_CODEC = 10
    CODEC_NOT_ALLOWED = 11
    BAD_STREAM = 12
    TOO_LARGE = 13
    NULL_WRAPPER = 14
    # Records, format 2.
    RECORD_COUNT = 20
    RECORD_LENGTH = 21
    TIMESTAMP_DELTA = 22
    OFFSET_DELTA = 23
    KEY_LENGTH = 24
    VALUE_LENGTH = 25
    HEADER_COUNT = 26
    HEADER_KEY = 27
    HEADER_VALUE = 28
    RECORD_END = 29
    RECORDS_MISSING = 30
    RECORDS_REMAIN = 31
    CONTROL_KEY = 32
    LAST_OFFSET = 33
    OFFSET_RANGE = 34
    # Messages, formats 0 and 1.
    MESSAGE_SIZE = 40
    INNER_LENGTH = 41
    INNER_MAGIC = 42
    INNER_COMPRESSED = 43
    INNER_CRC = 44
    NO_INNER = 45
    INNER_OFFSET = 46
    # The drafts.
    BATCH_HEADER = 50
    ENRICHED_SIZE = 51
    MESSAGE_TYPE = 52
    TAG_LENGTH = 53
    TAG = 54
    TAG_COUNT = 55
    RECORD_CRC = 56


# code -> (field, expected value)
MEANING = {
    Code.TRUNCATED: ("batch length", "an entry that ends inside the file"),
    Code.ZERO_TAIL: ("batch length", "an entry"),
    Code.BAD_LENGTH: ("batch length", "at least 14 (format 2: 49), and an entry that ends inside the file"),
    Code.BAD_MAGIC: ("magic", "one that the format has (kafka: 0, 1 or 2)"),
    Code.BAD_CRC: ("crc", "the checksum of the bytes of the batch"),
    Code.SEGMENT_END: ("end of segment", "entries up to the base offset of the next segment"),
    Code.SEGMENT_MISSING: ("file", "the segment to which its index files belong"),
    Code.OFFSET_ORDER: ("offset", "offsets that no other segment of the directory has"),
    Code.NOT_A_SEGMENT: ("file", "a Kafka log segment"),
    Code.BASE_OFFSET: ("base offset", "offsets between those of the entries around it"),
    Code.BAD_CODEC: ("attributes", "codec 0 none, 1 gzip, 2 snappy, 3 lz4 or 4 zstd"),
    Code.CODEC_NOT_ALLOWED: ("attributes", "a codec of formats 0 and 1: 0 none, 1 gzip, 2 snappy or 3 lz4"),
    Code.BAD_STREAM: ("compressed payload", "a complete and well-formed stream of the batch's codec"),
    Code.TOO_LARGE: ("compressed payload", "a decompressed size within the limits"),
    Code.NULL_WRAPPER: ("value length", "a value that holds the compressed messages"),
    Code.RECORD_COUNT: ("record count", "0 or more, and no more than the payload has room for"),
    Code.RECORD_LENGTH: ("record length", "a varint within the bytes that are left"),
    Code.TIMESTAMP_DELTA: ("timestamp delta", "a varint of at most 10 bytes inside the record"),
    Code.OFFSET_DELTA: ("offset delta", "a varint of at most 5 bytes inside the record"),
    Code.KEY_LENGTH: ("key length", "a length within the record"),
    Code.VALUE_LENGTH: ("value length", "a length within the record"),
    Code.HEADER_COUNT: ("header count", "0 or more, and no more than the record has room for"),
    Code.HEADER_KEY: ("header key length", "0 or more, within the record"),
    Code.HEADER_VALUE: ("header value length", "a length within the record"),
    Code.RECORD_END: ("record length", "the length of the fields"),
    Code.RECORDS_MISSING: ("record count", "as many records as the payload holds"),
    Code.RECORDS_REMAIN: ("record count", "as many records as the payload holds"),
    Code.CONTROL_KEY: ("key", "version 0 or more and a type: 4 bytes"),
    Code.LAST_OFFSET: ("last offset", "base offset and last offset delta with a sum that 64 bits can hold"),
    Code.OFFSET_RANGE: ("offset delta", "0 to the last offset delta in the header of the batch"),
    Code.MESSAGE_SIZE: ("message size", "at least 14 (format 0) or 22 (format 1) bytes"),
    Code.INNER_LENGTH: ("inner message size", "at least 14"),
    Code.INNER_MAGIC: ("inner magic", "0 or 1"),
    Code.INNER_COMPRESSED: ("inner attributes", "codec 0: messages inside a wrapper are not compressed again"),
    Code.INNER_CRC: ("inner crc", "the checksum of the bytes of the message"),
    Code.NO_INNER: ("compressed payload", "at least one message"),
    Code.INNER_OFFSET: ("offset", "no less than the last inner offset"),
    Code.BATCH_HEADER: ("batch header", "varints and fields that end inside the batch"),
    Code.ENRICHED_SIZE: ("message size", "at least 22 bytes (enriched)"),
    Code.MESSAGE_TYPE: ("attributes", "type 0 to 3 for data, 8 to 11 for control messages"),
    Code.TAG_LENGTH: ("tag length", "-1 for none, or as many bytes as the message has room for"),
    Code.TAG: ("tags", "a broker timestamp of 9 bytes or a number of messages of 5, not cut off"),
    Code.TAG_COUNT: ("tag num_messages", "as many messages as the payload holds"),
    Code.RECORD_CRC: ("message crc", "the checksum of the bytes of the message"),
}
assert MEANING.keys() == set(Code) - {Code.OK}


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
    return _SECRETS.sub(lambda found: f"{found['before'] or found['name']}***", text)


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
    return f"unknown {kind} {name!r}{f', did you mean {near[0]!r}?' if near else ''}; {kind}s are {', '.join(names)}"


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
        self.field, meaning = MEANING[code]
        self.expected = expected or meaning
        where = f"{segment}: position {position}"
        if base_offset is not None:
            where += f", base offset {base_offset}"
        if record is not None:
            where += f", record {record}"
        text = f"{where}: {self.field}: expected {self.expected}"
        if found:
            text += f", found {found}"
        super().__init__(f"{text}. {self._advice()}")

    def _advice(self) -> str:
        if self.code == Code.NOT_A_SEGMENT:
            return "Name the *.log files of a topic-partition directory, or that directory."
        return "Read with errors='skip' to go on after the damage, or run `kolumn verify` for the full list."

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.segment, self.position, self.code, self.base_offset, self.record, self.expected, self.found)


def _rebuild(kind, segment, position, code, base_offset, record, expected, found):  # type: ignore[no-untyped-def]
    return kind(segment, position, code, base_offset=base_offset, record=record, expected=expected, found=found)


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
        self.advice = advice or f"Read with {column}_errors='keep' to have a null there."
        super().__init__(f"{segment}: offset {offset}: {column}: {reason}. {self.advice}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.segment, self.offset, self.column, self.reason, self.advice)


_KINDS = {
    Code.NOT_A_SEGMENT: FormatError,
    Code.BAD_MAGIC: FormatError,
    Code.MESSAGE_TYPE: FormatError,
    Code.BAD_CODEC: FormatError,
    Code.CODEC_NOT_ALLOWED: FormatError,
    Code.TOO_LARGE: LimitError,
}


def error_kind(code: Code) -> type[CorruptBatchError]:
    """Exception class for ``code``."""
    return _KINDS.get(code, CorruptBatchError)
