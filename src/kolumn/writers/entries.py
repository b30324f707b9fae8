"""Shared by the encoders of all formats: a table as arrays, which rows may share an entry, rows of the batch table, compressed payloads.

Payloads are compressed and framed like those of Kafka's Java producer. Bytes of a segment become bytes of a new file as they are.
"""

import gzip
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cramjam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zstandard

from kolumn.core.arrays import AnyArray, Bytes, Flags, Int64s
from kolumn.core.errors import ArgumentError
from kolumn.core.recycle import take, take_array
from kolumn.core.schema import HEADERS, RAW_HEADERS, RECORD_COLUMNS
from kolumn.cpu_fallback.encode.frames import BLOCK, BOUND, END, HEADER, lz4_frames
from kolumn.cpu_fallback.encode.messages import ArrowPayloads, RecordsToEncode
from kolumn.cpu_fallback.inflate.libraries import liblz4
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.formats import layouts, table
from kolumn.formats.codecs import GZIP, LZ4, NONE, SNAPPY, ZSTD
from kolumn.formats.codecs.known import NAMES
from kolumn.formats.codecs.lz4 import STORED_BIT, xxh32
from kolumn.formats.codecs.snappy import MAGIC_HEAD, MAGIC_TAIL
from kolumn.formats.entries import Entries

ABSENT = {
    "timestampType": 0, "producerId": -1, "producerEpoch": -1, "sequence": -1, "leaderEpoch": -1, "isTransactional": 0, "isControl": 0,
}  # fmt: skip
"""Columns that belong to a batch, and their values if the table does not have the column or it is null."""
_BINARY = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_STRING = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_NOTHING = ArrowPayloads(0, 0, 0, 0, 0)
_OF_BATCHES = {"headers", "isTransactional", "producerId", "producerEpoch", "sequence", "leaderEpoch"}  # columns that messages cannot store


def stored_columns(records: pa.RecordBatch, layout: int) -> pa.RecordBatch:
    if not layouts.holds_messages(layout):
        return records
    absent = _OF_BATCHES if layouts.has_typed_control(layout) else {*_OF_BATCHES, "isControl"}
    return records.select([name for name in records.schema.names if name not in absent])


@dataclass
class RecordsIn:
    """Some rows of a table as addresses, which are valid as long as this object exists.

    ``headers`` is the number of headers of all rows. ``numbers`` has the columns that belong to a batch, if the table has them (`ABSENT`).
    ``cut`` flags rows that must begin an entry. Records ``from_log`` are kept as they are, even those that `write` rejects.
    """

    records: RecordsToEncode
    offset: Int64s
    timestamp: Int64s
    headers: int
    numbers: dict[str, Int64s]
    table: pa.Table
    alive: list[Any] = field(default_factory=list)
    cut: Flags | None = None
    from_log: bool = False
    _results: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of_log(cls, records: pa.RecordBatch) -> "RecordsIn":
        given = take_apart(pa.Table.from_batches([records]), 0)
        given.from_log = True
        return given

    def once(self, name: str, find: Callable[["RecordsIn"], Any]) -> Any:
        """What a format finds out about all rows; it is asked for with every part of them."""
        if name not in self._results:
            self._results[name] = find(self)
        return self._results[name]


def check_columns(schema: pa.Schema) -> None:
    """Raise `ArgumentError` if a column is not a record column, or has a wrong type. Columns that say where a record was read (topic,
    partition, segment, position, magic, codec, …) are ignored."""
    for name, type in zip(schema.names, schema.types, strict=True):
        if name not in RECORD_COLUMNS:
            raise ArgumentError(f"column {name!r}: records have no column of that name; they have {', '.join(RECORD_COLUMNS)}")
        fits = True
        if name in ("key", "value"):
            fits = any(is_type(type) for is_type in _BINARY + _STRING) or pa.types.is_null(type)
        elif name == "timestamp":
            fits = pa.types.is_timestamp(type)
        elif name in ABSENT or name in ("offset", "timestampMs"):
            fits = pa.types.is_integer(type) or pa.types.is_boolean(type)
        if not fits:
            hint = ""
            if name in ("key", "value"):
                hint = f": {name}_format and {name}_schema encode it, in Spark {name}Format and {name}Schema, or its to_avro and to_json"
            raise ArgumentError(f"column {name!r}: expected {RECORD_COLUMNS[name]}, found {type}{hint}")
    if len(set(schema.names)) < len(schema.names):
        raise ArgumentError(f"columns {', '.join(schema.names)}: each may occur only once")


def take_apart(table: pa.Table, next_offset: int) -> RecordsIn:
    """Addresses and arrays of a table's rows; without a column ``offset``, offsets start at ``next_offset``."""
    rows, names, alive = table.num_rows, set(table.schema.names), list[Any]()

    def payloads(name: str) -> ArrowPayloads:
        return payloads_of(_flat(table[name], pa.binary()) if name in names else pa.nulls(rows, pa.binary()), alive)

    offset = _integers(table["offset"], "offset") if "offset" in names else np.arange(next_offset, next_offset + rows, dtype=np.int64)
    timestamp = _timestamps(table, names)
    count, header_ends, header_key, header_value = _headers(table, names, alive)
    records = RecordsToEncode(
        rows, payloads("key"), payloads("value"), header_ends, header_key, header_value, offset.ctypes.data, timestamp.ctypes.data
    )
    numbers = {name: _integers(_filled(table[name], absent), name) for name, absent in ABSENT.items() if name in names}
    if "timestampType" in numbers:
        numbers["timestampType"] = np.maximum(numbers["timestampType"], 0)
    return RecordsIn(records, offset, timestamp, count, numbers, table, [*alive, offset, timestamp])


def _filled(column: pa.ChunkedArray, absent: int) -> pa.ChunkedArray:
    if not column.null_count:
        return column
    return pc.fill_null(column, pa.scalar(bool(absent) if pa.types.is_boolean(column.type) else absent, column.type))


def _flat(column: pa.ChunkedArray, type: pa.DataType) -> pa.Array:
    whole = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.array([], column.type), *column.chunks])
    if whole.type == type:
        return whole
    return whole.view(type) if type == pa.binary() and pa.types.is_string(whole.type) else whole.cast(type)


def _integers(column: pa.ChunkedArray, name: str) -> Int64s:
    if column.null_count:
        raise ArgumentError(f"column {name!r}: {column.null_count} rows are null; every record needs a value here")
    return np.ascontiguousarray(_flat(column, pa.int64()).to_numpy(zero_copy_only=False))


def _timestamps(table: pa.Table, names: set[str]) -> Int64s:
    """Milliseconds, -1 for no timestamp. ``timestampMs``, the raw field, is used before ``timestamp``."""
    if "timestampMs" in names:
        return _integers(_filled(table["timestampMs"], -1), "timestampMs")
    if "timestamp" not in names:
        return np.full(table.num_rows, -1, np.int64)
    moments = pc.cast(table["timestamp"], pa.timestamp("ms", tz=table["timestamp"].type.tz), safe=False)
    return _integers(pc.fill_null(moments.cast(pa.int64()), -1), "timestamp")


def payloads_of(column: pa.Array, alive: list[Any]) -> ArrowPayloads:
    """Addresses of a binary column; ``alive`` gets what has to be kept as long as they are used."""
    valid, ends, data = column.buffers()
    alive.append(column)
    if ends is None:
        alive.append(np.zeros(len(column) + 1, np.int32))
        start = alive[-1].ctypes.data
    else:
        start = ends.address + 4 * column.offset
    low, size = (data.address, data.size) if data is not None else (0, 0)
    return ArrowPayloads(start, low, low + size, valid.address if valid is not None and column.null_count else 0, column.offset)


def _headers(table: pa.Table, names: set[str], alive: list[Any]) -> tuple[int, int, ArrowPayloads, ArrowPayloads]:
    if "headers" not in names:
        return 0, 0, _NOTHING, _NOTHING
    try:
        # Keys need not be UTF-8 if they come from a log.
        headers = _flat(table["headers"], HEADERS if table["headers"].type == HEADERS else RAW_HEADERS)
    except pa.ArrowException as error:
        raise ArgumentError(f"column 'headers': expected {HEADERS}, found {table['headers'].type}") from error
    if headers.null_count:
        # Null lists become empty ones.
        sizes = pc.fill_null(pc.list_value_length(headers), 0).to_numpy()
        headers = pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)), headers.flatten())
    # Flattened for these rows alone: the values may contain those of rows outside of a slice.
    keyless = headers.flatten().field("key").null_count
    if keyless:
        raise ArgumentError(f"column 'headers': {keyless} headers have no key, and every header needs one")
    ends = headers.buffers()[1]
    if ends is None:
        return 0, 0, _NOTHING, _NOTHING
    alive.append(headers)
    count = pc.sum(pc.list_value_length(headers)).as_py() or 0
    keys, values = headers.values.field("key").view(pa.binary()), headers.values.field("value")
    return count, ends.address + 4 * headers.offset, payloads_of(keys, alive), payloads_of(values, alive)


_LARGEST_SEQUENCE = _LARGEST_ENTRY = 2**31 - 1
_SAME = ("timestampType", "producerId", "producerEpoch", "leaderEpoch", "isTransactional", "isControl")
_FIELDS = {
    "timestampType": table.TIMESTAMP_TYPE, "producerId": table.PRODUCER_ID, "producerEpoch": table.PRODUCER_EPOCH,
    "sequence": table.BASE_SEQUENCE, "leaderEpoch": table.LEADER_EPOCH, "isTransactional": table.TRANSACTIONAL, "isControl": table.CONTROL,
}  # fmt: skip


@dataclass(frozen=True)
class EntrySettings:
    """How to encode, as in `kolumn.write`: ``format`` and ``layout`` are numbers of `formats.layouts`, ``codec`` is an id."""

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
        self._array, self._start = np.zeros(len(entries), np.int64), entries.position - origin
        self.stays = np.zeros(len(entries), np.bool_)

    def keep(self, rows: Int64s | slice) -> None:
        self.stays[rows] = True

    def put(self, rows: Int64s, made: Encoded) -> None:
        self.stays[rows], self._array[rows], self._start[rows] = True, len(self._arrays), made.entries.position
        self._entries.array[rows] = made.entries.array
        self._arrays.append(made.data)

    def encoded(self) -> Encoded:
        """The entries that stay; their bytes are not copied if they follow one another."""
        entries, array, start = self._entries[self.stays], self._array[self.stays], self._start[self.stays]
        stop = start + entries.size
        cut = (array[1:] != array[:-1]) | (start[1:] != stop[:-1])
        first, last = np.flatnonzero(np.append(True, cut)), np.flatnonzero(np.append(cut, True))
        parts = [self._arrays[array[i]][start[i] : stop[j]] for i, j in zip(first, last, strict=True)] if len(entries) else []
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
        entries = None if self.entries is None else self.entries[start:stop]
        end = int(self.first[stop]) if stop < len(self.first) else self.stop
        return Groups(self.first[start:stop], self.size[start:stop], end, entries, self.body)

    def rows(self, given: RecordsIn, how: EntrySettings) -> Entries:
        return batch_rows(given, self.first, self.stop, how) if self.entries is None else self.entries


@dataclass
class PayloadRoom:
    """Padded memory for the records of entries before compression: where each payload begins in ``data``, and its bytes. Without a codec,
    room for the header precedes the payload."""

    data: Bytes
    start: Int64s
    size: Int64s


HeaderSizes = Callable[[Entries, Int64s, EntrySettings], Int64s]
"""Entries and the sizes of their payloads -> sizes of their headers, without a codec and with one."""


def cuts(given: RecordsIn) -> Flags:
    """Flags of the rows that must begin an entry, since a field that an entry stores once changes or does not continue."""
    rows, numbers = given.records.rows, given.numbers
    cut = np.zeros(rows, np.bool_) if given.cut is None else given.cut.copy()
    if rows < 2:
        return cut
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
    total = size + np.where(entries.codec == NONE, headers, 0)
    room, _ = take(int(total.sum()) + PAD)
    return PayloadRoom(np.frombuffer(room, np.uint8), np.cumsum(total) - size, size)


def refuse_large(groups: Groups, headers: Int64s | int) -> None:
    """Raise `ArgumentError` if an entry with a header of given size would be larger than 2 GiB."""
    size = groups.size
    if len(size) and int((size + headers).max()) > _LARGEST_ENTRY - PAD:
        raise ArgumentError(f"row {int(groups.first[size.argmax()])}: a record of {int(size.max())} bytes, and a batch has 2 GiB at most")


def place(laid: PayloadRoom, entries: Entries, header_sizes: HeaderSizes, how: EntrySettings) -> Encoded:
    """Compress payloads that have a codec and lay out the entries; header bytes are left for the caller to write."""
    data, size, codecs, together = laid.data, laid.size, entries.codec, None
    if len(codecs) and codecs[0] and (codecs == codecs[0]).all():
        gap = header_sizes(entries, size, how)
        together = compress_all(int(codecs[0]), data.ctypes.data + laid.start, size, gap, how.magic)
    # Headers whose size depends on that of the payload are few: format 3.
    if together is not None and (header_sizes(entries, together[1], how) == gap).all():
        data, size = together
    elif codecs.any():
        plain = [data[start : start + length].data for start, length in zip(laid.start.tolist(), size.tolist(), strict=True)]
        payloads = [
            part if codec == NONE else compress(codec, part, level_of(codec, how.level if codec == how.codec else None), how.magic)
            for codec, part in zip(entries.codec.tolist(), plain, strict=True)
        ]
        size = np.array([len(payload) for payload in payloads], np.int64)
        heads = [bytes(header) for header in header_sizes(entries, size, how).tolist()]
        data = np.frombuffer(bytearray().join(part for pair in zip(heads, payloads, strict=True) for part in pair), np.uint8)
    entries.size = size + header_sizes(entries, size, how)
    entries.position = np.cumsum(entries.size) - entries.size
    return Encoded(data[: int(entries.size.sum())], entries)


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


_LZ4_MAGIC = 0x184D2204
_XERIAL_HEADER, _XERIAL_BLOCK = struct.pack(">IIii", MAGIC_HEAD, MAGIC_TAIL, 1, 1), 32 << 10
_RAW_SNAPPY = pa.Codec("snappy")

_LEVELS = {GZIP: (-1, 0, 9), ZSTD: (3, -131072, 22)}  # default, lowest and highest level of each codec that has levels


def codec_of(name: str) -> int:
    """Id of a codec; raises `ArgumentError` if there is none of that name."""
    if name not in NAMES:
        raise ArgumentError(f"codec={name!r}: expected one of {', '.join(NAMES)}")
    return NAMES.index(name)


def level_of(codec: int, level: int | None) -> int:
    """The level to use, -1 for codecs without levels; raises `ArgumentError` if the codec does not have this one."""
    default, low, high = _LEVELS.get(codec, (-1, 0, -1))
    if level is None:
        return default
    if not low <= level <= high:
        has = f"levels {low} to {high}" if low <= high else "no levels"
        raise ArgumentError(f"level={level}: {NAMES[codec]} has {has}")
    return level


def compress(codec: int, data: memoryview, level: int, magic: int = 2) -> bytes:
    """Compress a payload in the codec's framing, with a ``level`` from `level_of`. In format 0 (``magic``) the header checksum of lz4
    frames covers the frame's magic number too (KAFKA-3160)."""
    return _COMPRESSED[codec](data, level, magic)


def _xerial(data: memoryview) -> bytes:
    """Blocks of 32 KiB, each with its compressed size in front (``SnappyOutputStream``)."""
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = _RAW_SNAPPY.compress(data[start : start + _XERIAL_BLOCK], asbytes=True)
        parts += [struct.pack(">i", len(block)), block]
    return b"".join(parts)


def compress_all(codec: int, source: Int64s, size: Int64s, gap: Int64s, magic: int) -> tuple[Bytes, Int64s] | None:
    """Compress payloads at addresses in compiled code, as `compress` does with each. Returns the compressed payloads, each after ``gap``
    free bytes, and their sizes; None if no library can be called for the codec."""
    function = liblz4("LZ4_compress_default") if codec == LZ4 else 0
    if not function:
        return None
    sizes = np.empty(len(size), np.int64)
    room, _ = take(int((gap + size + HEADER + END + 4 * (size // BLOCK + 1)).sum()) + BOUND + PAD)
    header = int.from_bytes(_lz4_header(magic), "little")
    total = lz4_frames(source, size, gap, header, function, room.address, sizes)
    return np.frombuffer(room, np.uint8)[:total], sizes


def _lz4_header(magic: int) -> bytes:
    head = struct.pack("<IBB", _LZ4_MAGIC, 0x60, 0x40)
    covered = head if magic == 0 else head[4:]
    return head + bytes([xxh32(covered, 0, len(covered)) >> 8 & 0xFF])


def _lz4(data: memoryview, magic: int) -> bytes:
    """A frame of independent blocks of 64 KiB; only the header has a checksum (``Lz4BlockOutputStream``)."""
    parts = [_lz4_header(magic)]
    for start in range(0, len(data), BLOCK):
        plain = data[start : start + BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        stored = len(block) >= len(plain)
        parts += [struct.pack("<I", len(plain) | STORED_BIT if stored else len(block)), bytes(plain) if stored else block]
    return b"".join([*parts, bytes(4)])


_COMPRESSED: dict[int, Callable[[memoryview, int, int], bytes]] = {
    NONE: lambda data, level, magic: bytes(data),
    GZIP: lambda data, level, magic: gzip.compress(data, 6 if level < 0 else level, mtime=0),
    SNAPPY: lambda data, level, magic: _xerial(data),
    LZ4: lambda data, level, magic: _lz4(data, magic),
    ZSTD: lambda data, level, magic: zstandard.ZstdCompressor(level=level).compress(data),
}
