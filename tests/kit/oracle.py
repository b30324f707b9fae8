"""An independent reader with the semantics of Kafka's Java record classes. Slow and readable; shares no code with Kolumn.

It follows ``FileLogInputStream``, ``DefaultRecordBatch``, ``DefaultRecord`` and ``AbstractLegacyRecordBatch``. It differs where
Kolumn differs on purpose:

* a magic other than 0, 1 and 2 is an error (Java's file reader takes any magic from 2 up for format 2, the negative ones for 1);
  so is an inner message that is of neither format 0 nor 1;
* the checksums of messages inside a wrapper are compared too;
* a batch whose last offset does not fit into 64 bits is an error (Java's offsets wrap);
* a record whose offset lies outside of those that the header of its batch tells is an error (`_within`), and so are bytes after the header
  of a batch that has no records by its count (`_nothing`): Java returns the first, and says nothing of the second;
* zeros up to the end of the file are preallocation and no error.
"""

import struct
import zlib
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import crc32c

from kit.encoder import with_crc
from kit.inflate import BadStreamError, inflate
from kit.streams import CODECS

Row = namedtuple(
    "Row",
    "offset timestampMs timestampType key value headers producerId producerEpoch sequence leaderEpoch isTransactional isControl "
    "magic codec position",
)
"""One record; the names are those of Kolumn's columns."""


class BadEntryError(Exception):
    """Java's reader throws on this entry."""


@dataclass
class Entry:
    """An entry of the chain: its rows, or the error that Java gives."""

    position: int
    size: int
    base_offset: int
    rows: list[Row] = field(default_factory=list)
    error: str | None = None


@dataclass
class Segment:
    """Entries in order; ``stop`` is why the chain ended: "end", "truncated", "zeros" or "bad length"."""

    entries: list[Entry]
    stop: str
    position: int

    @property
    def first_error(self) -> int | None:
        """Position of the first damage, None where there is none."""
        for entry in self.entries:
            if entry.error is not None:
                return entry.position
        return self.position if self.stop == "bad length" else None

    def rows(self) -> list[Row]:
        """Rows of the entries that are intact."""
        return [row for entry in self.entries if entry.error is None for row in entry.rows]


def read(data: bytes, check_crcs: bool = True) -> Segment:
    """Read a segment, continuing after entries that are damaged inside, as long as their lengths lead to a next entry."""
    entries, at = [], 0
    while len(data) - at > 17:
        _, size = struct.unpack_from(">qi", data, at)
        if size == 0 and not any(data[at:]):
            return Segment(entries, "zeros", at)
        if size < 14:
            return Segment(entries, "bad length", at)
        if size > len(data) - at - 12:
            return Segment(entries, "truncated", at)
        entries.append(read_entry(data[at : at + 12 + size], at, check_crcs))
        at += 12 + size
    return Segment(entries, "truncated" if at < len(data) else "end", at)


@lru_cache(maxsize=64)
def read_entry(entry: bytes, position: int, check_crcs: bool = True) -> Entry:
    """Read the one entry that ``entry`` holds. The same bytes are asked for again and again, so what comes back is not to be changed."""
    found = Entry(position, len(entry), *struct.unpack_from(">q", entry))
    magic = struct.unpack_from(">b", entry, 16)[0]
    try:
        if magic not in (0, 1, 2):
            raise BadEntryError(f"magic {magic}")
        found.rows = list((_batch if magic == 2 else _legacy)(entry, position, check_crcs))
    except BadEntryError as error:
        found.error = str(error)
    except (BadStreamError, struct.error, IndexError) as error:
        found.error = f"Found invalid record structure: {error}"
    return found


def _signed(number: int, bits: int = 64) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


class Cursor:
    """Reads fields one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise BadEntryError("length")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self, bits: int = 32) -> int:
        """``ByteUtils.readVarint``: the last byte's bits beyond the type's width are lost, one with bit 7 set is an error."""
        number, longest = 0, (bits + 6) // 7
        for index in range(longest):
            byte = self.byte()
            number |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                number &= (1 << bits) - 1
                return _signed(number >> 1 ^ -(number & 1), bits)
        raise BadEntryError("Varint is too long")

    def sized(self) -> bytes | None:
        size = self.varint()
        return None if size < 0 else self.take(size)


_HEADER = struct.Struct(">qiibIhiqqqhii")


def _batch(entry: bytes, position: int, check_crcs: bool) -> Iterator[Row]:
    if len(entry) < _HEADER.size:
        raise BadEntryError("Record batch is corrupted: smaller than a header")
    base, _, epoch, magic, crc, attributes, last, base_time, max_time, pid, pid_epoch, sequence, count = _HEADER.unpack_from(entry)
    if check_crcs and crc32c.crc32c(entry[21:]) != crc:
        raise BadEntryError("Record is corrupt: crc")
    if not -(1 << 63) <= base + last < 1 << 63:
        raise BadEntryError("last offset wraps")
    codec = attributes & 7
    if count < 0:
        raise BadEntryError("Found invalid record count")
    if _nothing(count, entry):
        return
    if codec >= len(CODECS):
        raise BadEntryError(f"Unknown compression type id: {codec}")
    append_time, flags = bool(attributes & 8), (bool(attributes & 0x10), bool(attributes & 0x20))
    cursor = Cursor(inflate(codec, entry[61:], magic) if codec else entry[61:])
    for _ in range(count):
        time, delta, key, value, headers = _record(cursor)
        _within(delta, last)
        yield Row(
            _signed(base + delta), max_time if append_time else _signed(base_time + time), int(append_time), key, value, headers, pid,
            pid_epoch, -1 if sequence < 0 else _sequence(sequence, delta), epoch, *flags, magic, CODECS[codec], position,
        )  # fmt: skip
    if cursor.left:
        raise BadEntryError("Incorrect declared batch size, records still remaining in file")


def _nothing(count: int, entry: bytes) -> bool:
    """Whether a batch has no records. For Java it has none if the count is 0, whatever follows its header."""
    return count == 0 and len(entry) == _HEADER.size


def _within(delta: int, last: int) -> None:
    """Raise for an offset that the header of the batch rules out; Java has no such check."""
    if not 0 <= delta <= last:
        raise BadEntryError("offset delta outside of the batch")


def _sequence(base: int, delta: int) -> int:
    """``DefaultRecordBatch.incrementSequence``, in Java's 32 bits: a negative delta overflows."""
    return _signed(delta - (0x7FFFFFFF - base) - 1, 32) if base > _signed(0x7FFFFFFF - delta, 32) else base + delta


def _record(cursor: Cursor) -> tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
    length = cursor.varint()
    if length < 0:
        raise BadEntryError("Invalid record size")
    body = Cursor(cursor.take(length))
    body.byte()
    time, delta, key, value = body.varint(64), body.varint(), body.sized(), body.sized()
    count = body.varint()
    if not 0 <= count <= body.left:
        raise BadEntryError("Found invalid number of record headers")
    headers = []
    for _ in range(count):
        name = body.sized()
        if name is None:
            raise BadEntryError("Invalid negative header key size")
        headers.append((_text(name), body.sized()))
    if body.left:
        raise BadEntryError("Invalid record size")
    return time, delta, key, value, tuple(headers)


def _text(data: bytes) -> str:
    """``String.decodeUTF8_UTF16`` of Java 17, which says for every malformed sequence what one U+FFFD stands for."""
    text, at = "", 0
    while at < len(data):
        first, left = data[at], len(data) - at - 1
        size = 1 if first < 0xC2 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4 if first < 0xF5 else 1
        piece = data[at : at + size]
        try:
            text += piece.decode()
            at += size
            continue
        except UnicodeDecodeError:
            text += "\ufffd"
        if size < 3:
            at += 1
            continue
        second_bad = left > 0 and (
            piece[1] & 0xC0 != 0x80
            or (first == 0xE0 and piece[1] & 0xE0 == 0x80)
            or (first == 0xF0 and piece[1] < 0x90)
            or (first == 0xF4 and piece[1] & 0xF0 != 0x80)
        )
        third_bad = left > 1 and piece[2] & 0xC0 != 0x80
        # What is cut by the end is one, as far as it goes; so is a surrogate.
        at += 1 if second_bad else 2 if third_bad else min(3, 1 + left)
    return text


Message = namedtuple("Message", "offset magic attributes timestamp key value")
"""The fields of a message of format 0 or 1."""


def read_message(entry: bytes, check_crcs: bool) -> Message:
    offset, _, crc, magic, attributes = struct.unpack_from(">qiIbB", entry)
    if check_crcs and zlib.crc32(entry[16:]) != crc:
        raise BadEntryError("Record is corrupt: crc")
    if magic not in (0, 1):
        raise BadEntryError(f"inner magic {magic}")
    time, at = (struct.unpack_from(">q", entry, 18)[0], 26) if magic else (-1, 18)
    fields = []
    for _ in range(2):
        (size,) = struct.unpack_from(">i", entry, at)
        at += 4 + max(size, 0)
        if at > len(entry):
            raise BadEntryError("length")
        fields.append(None if size < 0 else entry[at - size : at])
    return Message(offset, magic, attributes, time, fields[0], fields[1])


def _legacy(entry: bytes, position: int, check_crcs: bool) -> Iterator[Row]:
    outer = read_message(entry, check_crcs)
    codec = outer.attributes & 7
    if codec > 3:
        raise BadEntryError(f"codec {codec}")
    messages = [outer] if not codec else _inner(outer, codec, check_crcs)
    base = 0
    if codec and outer.magic == 1 and outer.offset != 0:
        base = outer.offset - messages[-1].offset
        if base < 0:
            raise BadEntryError("Found invalid wrapper offset in compressed v1 message set")
    for message in messages:
        yield message_row(outer, message, base, position)


def message_row(outer: Message, message: Message, base: int, position: int) -> Row:
    """Row of a message of a wrapper, or of one that is an entry of its own."""
    codec, kind = outer.attributes & 7, (outer.attributes >> 3 & 1) if outer.magic else -1
    if codec and message.attributes & 7:
        raise BadEntryError("Inner messages must not be compressed")
    time = outer.timestamp if kind == 1 and message.magic else message.timestamp
    return Row(
        _signed(base + message.offset), time, kind, message.key, message.value,
        (), -1, -1, -1, -1, False, False, outer.magic, CODECS[codec], position,
    )  # fmt: skip


def _inner(outer: Message, codec: int, check_crcs: bool) -> list[Message]:
    if outer.value is None:
        raise BadEntryError("Found invalid compressed record set with null value")
    data = inflate(codec, outer.value, outer.magic)
    messages, at = [], 0
    while len(data) - at >= 12:
        (size,) = struct.unpack_from(">i", data, at + 8)
        if size < 14:
            raise BadEntryError("inner record size")
        if size > len(data) - at - 12:
            break
        messages.append(read_message(data[at : at + 12 + size], check_crcs))
        at += 12 + size
    if not messages:
        raise BadEntryError("Found invalid compressed record set: no inner records")
    return messages


def sound_rows(data: bytes, position: int) -> list[Row]:
    """Rows of the records of an entry that are right, each read alone, in an entry of its own.

    None where its checksum is wrong, or nothing tells what its offsets count from. Lengths lead from one record to the next. After a wrong
    record they are believed only if they lead to the end of the payload, because one of them may be what is wrong.
    """
    entry = read_entry(data, position)
    if entry.error is None:
        return entry.rows
    try:
        return _sound_of_batch(data, position) if data[16] == 2 else _sound_of_wrapper(data, position) if data[16] in (0, 1) else []
    except (BadEntryError, BadStreamError, struct.error, IndexError):
        return []


def _sound_of_batch(data: bytes, position: int) -> list[Row]:
    codec = data[22] & 7
    if with_crc(data) != data or len(data) < _HEADER.size:
        return []
    pieces, whole = _records(inflate(codec, data[_HEADER.size :], 2) if codec else data[_HEADER.size :])
    found: list[Row] = []
    for piece in pieces:
        size, plain, one = (
            number.to_bytes(width, "big") for number, width in ((_HEADER.size - 12 + len(piece), 4), (data[22] & 0xF8, 1), (1, 4))
        )
        alone = with_crc(data[:8] + size + data[12:22] + plain + data[23:57] + one + piece)
        read = read_entry(alone, position)
        if read.error is not None and not whole:
            break
        found += [row._replace(codec=CODECS[codec]) for row in read.rows] if read.error is None else []
    return found


def _records(payload: bytes) -> tuple[list[bytes], bool]:
    """Records by their lengths, and whether these lead to the end."""
    cursor, found = Cursor(payload), list[bytes]()
    while cursor.left:
        start = cursor.at
        try:
            size = cursor.varint()
            # Zeros would be a chain of records of no bytes; a length of zero in more than one byte is a wrong record that leads on.
            if size < 0 or cursor.at + size - start == 1:
                return found, False
            cursor.take(size)
        except (BadEntryError, IndexError):
            return found, False
        found.append(payload[start : cursor.at])
    return found, True


def _sound_of_wrapper(data: bytes, position: int) -> list[Row]:
    outer = read_message(data, True)
    codec = outer.attributes & 7
    if codec not in (1, 2, 3) or outer.value is None:
        return []
    inner, at, pieces = inflate(codec, outer.value, outer.magic), 0, list[bytes]()
    while len(inner) - at >= 12 and 14 <= (size := struct.unpack_from(">i", inner, at + 8)[0]) <= len(inner) - at - 12:
        pieces.append(inner[at : at + 12 + size])
        at += 12 + size
    whole, base = at == len(inner), 0
    if outer.magic == 1 and outer.offset != 0:
        base = outer.offset - struct.unpack_from(">q", pieces[-1])[0]
        if base < 0 or not whole:
            return []
    found: list[Row] = []
    for piece in pieces:
        try:
            found.append(message_row(outer, read_message(piece, True), base, position))
        except (BadEntryError, struct.error, IndexError):
            if not whole:
                break
    return found
