"""Shared by the encoders of all formats: which rows may share an entry, rows of the batch table, compressed payloads.

Bytes of a segment become bytes of a new file as they are.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kolumn.core.arrays import AnyArray, Bytes, Flags, Int64s
from kolumn.core.errors import ArgumentError
from kolumn.core.recycle import take, take_array
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.formats import table
from kolumn.formats.codecs import NONE
from kolumn.formats.entries import Entries
from kolumn.source.segment_file import SegmentFile
from kolumn.writers.commit.staged_file import StagedFile
from kolumn.writers.compress import compress, compress_all, level_of
from kolumn.writers.table import ABSENT, RecordsIn

_LARGEST_SEQUENCE = 2**31 - 1
_LARGEST_ENTRY = 2**31 - 1
_SAME = ("timestampType", "producerId", "producerEpoch", "leaderEpoch", "isTransactional", "isControl")
_FIELDS = {
    "timestampType": table.TIMESTAMP_TYPE,
    "producerId": table.PRODUCER_ID,
    "producerEpoch": table.PRODUCER_EPOCH,
    "sequence": table.BASE_SEQUENCE,
    "leaderEpoch": table.LEADER_EPOCH,
    "isTransactional": table.TRANSACTIONAL,
    "isControl": table.CONTROL,
}


@dataclass(frozen=True)
class EntrySettings:
    """How to encode. Attributes are those of `kolumn.write`, with the codec's id and the layout of entries.

    ``magic`` is that of the layout, ``format`` and ``layout`` are numbers of `formats.layouts`; ``level`` is None for the default.
    """

    format: int
    layout: int
    magic: int
    codec: int
    level: int | None
    batch_bytes: int
    batch_records: int


@dataclass
class Encoded:
    """Encoded entries, one after the other; positions are indices into ``data``."""

    data: Bytes
    entries: Entries


class Splice:
    """Entries from several arrays, put together in their order. At first all are where ``source`` has them, and none stays."""

    def __init__(self, source: Bytes, origin: int, entries: Entries) -> None:
        self._entries, self._arrays = entries, [source]
        self._array, self._at = np.zeros(len(entries), np.int64), entries.position - origin
        self.stays = np.zeros(len(entries), np.bool_)

    def keep(self, rows: Int64s | slice) -> None:
        """Let some entries stay as they are."""
        self.stays[rows] = True

    def put(self, rows: Int64s, made: Encoded) -> None:
        """Replace some entries by others."""
        self.stays[rows], self._array[rows], self._at[rows] = True, len(self._arrays), made.entries.position
        self._entries.array[rows] = made.entries.array
        self._arrays.append(made.data)

    def encoded(self) -> Encoded:
        """The entries that stay; their bytes are not copied if they follow one another."""
        entries, array, at = self._entries[self.stays], self._array[self.stays], self._at[self.stays]
        stop = at + entries.size
        cut = (array[1:] != array[:-1]) | (at[1:] != stop[:-1])
        first, last = np.flatnonzero(np.append(True, cut)), np.flatnonzero(np.append(cut, True))
        parts = [self._arrays[array[i]][at[i] : stop[j]] for i, j in zip(first, last, strict=True)] if len(entries) else []
        data = parts[0] if len(parts) == 1 else take_array(int(entries.size.sum()), np.uint8)
        if len(parts) > 1:
            np.concatenate(parts, out=data)
        entries.position = np.cumsum(entries.size) - entries.size
        return Encoded(data, entries)


@dataclass
class Groups:
    """Which records make which entries: the first row of each, and the bytes of its records before compression; ``stop`` is the row after
    the last.

    ``entries`` are header fields, including the codec; None if they follow from the records. ``body`` has sizes of records (int32), if the
    layout needs them.
    """

    first: Int64s
    size: Int64s
    stop: int
    entries: Entries | None
    body: AnyArray | None

    def part(self, start: int, stop: int) -> "Groups":
        """Some of the entries, without a copy."""
        entries = None if self.entries is None else self.entries[start:stop]
        end = int(self.first[stop]) if stop < len(self.first) else self.stop
        return Groups(self.first[start:stop], self.size[start:stop], end, entries, self.body)

    def rows(self, given: RecordsIn, how: EntrySettings) -> Entries:
        """Header fields of the entries."""
        return batch_rows(given, self.first, self.stop, how) if self.entries is None else self.entries


@dataclass
class PayloadRoom:
    """Padded memory for the records of entries before compression: the index of each payload in ``data``, and its bytes.

    Without a codec, room for the header precedes the payload.
    """

    data: Bytes
    at: Int64s
    size: Int64s


HeaderSizes = Callable[[Entries, Int64s, EntrySettings], Int64s]
"""Entries and the sizes of their payloads -> sizes of their headers, without a codec and with one."""


def cuts(given: RecordsIn) -> Flags:
    """Flags of the rows that must begin an entry, since a field that an entry stores once changes or does not continue."""
    rows = given.records.rows
    cut = np.zeros(rows, np.bool_) if given.cut is None else given.cut.copy()
    if rows < 2:
        return cut
    numbers = given.numbers
    for values in (numbers[name] for name in _SAME if name in numbers):
        cut[1:] |= values[1:] != values[:-1]
    # With LogAppendTime all records of a batch have the batch's timestamp. A control batch has one record.
    if "timestampType" in numbers and numbers["timestampType"].any():
        cut[1:] |= (numbers["timestampType"][1:] == table.LOG_APPEND_TIME) & (given.timestamp[1:] != given.timestamp[:-1])
    if "isControl" in numbers:
        cut[1:] |= numbers["isControl"][1:] == 1
    if "sequence" in numbers:
        sequence = numbers["sequence"]
        following = sequence[:-1] + np.diff(given.offset)
        following[following > _LARGEST_SEQUENCE] -= _LARGEST_SEQUENCE + 1
        following[sequence[:-1] < 0] = -1
        cut[1:] |= sequence[1:] != following
    return cut


def whole(given: RecordsIn, first: Int64s, size: Int64s, count: int, last: bool, body: AnyArray | None = None) -> Groups:
    """The complete ones of the first ``count`` entries: unless ``last``, the last entry is left out, since it may get more rows."""
    stop = given.records.rows
    if not last and count:
        count, stop = count - 1, int(first[count - 1])
    return Groups(first[:count], size[:count], stop, None, body)


def lay_out(groups: Groups, entries: Entries, headers: Int64s) -> PayloadRoom:
    """Allocate memory for the payloads of entries; raises `ArgumentError` if an entry would be larger than 2 GiB."""
    refuse_large(groups, headers)
    size = groups.size
    gap = np.where(entries.codec == NONE, headers, 0)
    room, _ = take(int((size + gap).sum()) + PAD)
    return PayloadRoom(np.frombuffer(room, np.uint8), np.cumsum(size + gap) - size, size)


def refuse_large(groups: Groups, headers: Int64s | int) -> None:
    """Raise `ArgumentError` if an entry with a header of given size would be larger than 2 GiB."""
    size = groups.size
    if len(size) and int((size + headers).max()) > _LARGEST_ENTRY - PAD:
        raise ArgumentError(f"row {int(groups.first[size.argmax()])}: a record of {int(size.max())} bytes, and a batch has 2 GiB at most")


def place(laid: PayloadRoom, entries: Entries, header_sizes: HeaderSizes, how: EntrySettings) -> Encoded:
    """Compress payloads that have a codec and lay out the entries; header bytes are left for the caller to write."""
    data, size = laid.data, laid.size
    codecs = entries.codec
    made = _compressed_together(laid, entries, header_sizes, how)
    if made is not None:
        data, size = made
    elif codecs.any():
        plain = [data[at : at + length].data for at, length in zip(laid.at.tolist(), size.tolist(), strict=True)]
        payloads = [_compressed(codec, part, how) for codec, part in zip(codecs.tolist(), plain, strict=True)]
        size = np.array([len(payload) for payload in payloads], np.int64)
        heads = [bytes(header) for header in header_sizes(entries, size, how).tolist()]
        data = np.frombuffer(bytearray().join(part for pair in zip(heads, payloads, strict=True) for part in pair), np.uint8)
    entries.size = size + header_sizes(entries, size, how)
    entries.position = np.cumsum(entries.size) - entries.size
    return Encoded(data[: int(entries.size.sum())], entries)


def _compressed_together(laid: PayloadRoom, entries: Entries, header_sizes: HeaderSizes, how: EntrySettings) -> tuple[Bytes, Int64s] | None:
    """Compressed payloads with room for their headers, if compiled code can make them; and their sizes."""
    codecs = entries.codec
    if not len(codecs) or not codecs[0] or (codecs != codecs[0]).any():
        return None
    gap = header_sizes(entries, laid.size, how)
    made = compress_all(int(codecs[0]), laid.data.ctypes.data + laid.at, laid.size, gap, how.magic)
    # Headers whose size depends on that of the payload are few: format 3.
    return made if made is not None and (header_sizes(entries, made[1], how) == gap).all() else None


def _compressed(codec: int, data: memoryview, how: EntrySettings) -> bytes | memoryview:
    if codec == NONE:
        return data
    return compress(codec, data, level_of(codec, how.level if codec == how.codec else None), how.magic)


def batch_rows(given: RecordsIn, first: Int64s, stop: int, how: EntrySettings) -> Entries:
    """The entries that begin at rows ``first``; the last of them ends before ``stop``."""
    entries = Entries.zeros(len(first))
    if not len(first):
        return entries
    after = np.append(first[1:], stop)
    entries.base_offset, entries.last_offset = given.offset[first], given.offset[after - 1]
    entries.count, entries.magic, entries.codec = after - first, how.magic, how.codec
    entries.layout = how.layout
    entries.base_timestamp = given.timestamp[first]
    entries.max_timestamp = np.maximum.reduceat(given.timestamp[:stop], first)
    for name, column in _FIELDS.items():
        entries.array[:, column] = given.numbers[name][first] if name in given.numbers else ABSENT[name]
    # Brokers write control batches without a codec, even if the topic has one.
    entries.codec[entries.control == 1] = NONE
    return entries


_LEAST = 1 << 18
"""Bytes that are worth a copy by the system: fewer are collected until as many are written at once."""
_AT_A_TIME = 8 << 20


def write_from(file: SegmentFile, start: int, stop: int, out: StagedFile) -> None:
    """Write bytes [start, stop) of a segment; raises `KolumnError` if they cannot be read or written."""
    if file.has_path and stop - start >= _LEAST:
        start += out.copy(file.descriptor, start, stop - start)
    for begin in range(start, stop, _AT_A_TIME):
        end = min(begin + _AT_A_TIME, stop)
        out.write(file.read(begin, end)[: end - begin])
