"""Encodes records as messages of formats 0 and 1, single or in wrappers; what all encoders share: columns by address, and copies."""

from typing import NamedTuple

from kolumn.core.deferred import register_jitable
from kolumn.cpu_fallback.machine.address import STEP, copy_padded, load8, load32, load64, store8
from kolumn.cpu_fallback.machine.arrays import Flags, Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import crc, legacy, memory, table


class ArrowPayloads(NamedTuple):
    """Addresses of a binary column of Arrow: of the first row's 32-bit offset, of the data and the byte after it, and of the validity
    bitmap. The bitmap's address is 0 if nothing is null; ``bit`` is the index of the first row's bit in it."""

    ends: int
    data: int
    stop: int
    valid: int
    bit: int


class RecordsToEncode(NamedTuple):
    """Columns of the records to encode; addresses of the first row. ``header_ends`` are 32-bit offsets into the columns of the headers, 0
    if no record has headers. ``offset`` and ``timestamp`` (ms, -1 for no timestamp) are int64."""

    rows: int
    key: ArrowPayloads
    value: ArrowPayloads
    header_ends: int
    header_key: ArrowPayloads
    header_value: ArrowPayloads
    offset: int
    timestamp: int


@register_jitable(forceinline=True)
def payload(column: ArrowPayloads, row: int) -> tuple[int, int]:
    """Address and length of a payload; the length is -1 for null."""
    start = load32(column.ends + 4 * row)
    if column.valid != 0:
        bit = column.bit + row
        if (load8(column.valid + (bit >> 3)) >> (bit & 7)) & 1 == 0:
            return column.data, -1
    return column.data + start, load32(column.ends + 4 * row + 4) - start


@register_jitable(forceinline=True)
def lengths(records: RecordsToEncode, row: int) -> tuple[int, int]:
    """Lengths of the key and of the value of a record, -1 for null."""
    return payload(records.key, row)[1], payload(records.value, row)[1]


@register_jitable(forceinline=True)
def rows_of(first: Int64s, stop: int, b: int) -> tuple[int, int]:
    """Rows of batch ``b``: the first one, and the one after the last; ``stop`` is the row after the last batch."""
    return first[b], stop if b + 1 == first.shape[0] else first[b + 1]


@register_jitable(forceinline=True)
def add_to_sets(bytes: int, row: int, cut: Flags, batch_bytes: int, batch_records: int, first: Int64s, size: Int64s, count: int) -> int:
    """Add a message to the last of ``count`` sets, or to a new one, if that has to begin or the last one is full; returns their number."""
    if count == 0 or cut[row] or size[count - 1] + bytes > batch_bytes or row - first[count - 1] >= batch_records:
        first[count], size[count] = row, 0
        count += 1
    size[count - 1] += bytes
    return count


@register_jitable(forceinline=True)
def copy_payload(to: int, source: int, length: int, stop: int) -> None:
    """Copy a payload from a column whose memory ends at ``stop``; `STEP` more bytes than ``length`` can be written at ``to``."""
    if source + length + STEP <= stop:
        copy_padded(to, source, length)
    else:
        # Whole steps would read past the column's memory.
        for i in range(length):
            store8(to + i, load8(source + i))


@register_jitable(forceinline=True)
def _size(records: RecordsToEncode, magic: int, row: int) -> int:
    key, value = lengths(records, row)
    return legacy.message_size(magic, key, value)


@compiled
def split(records: RecordsToEncode, magic: int, cut: Flags, batch_bytes: int, batch_records: int, first: Int64s, size: Int64s) -> int:
    """Divide records into sets of messages, and compute their sizes; parameters as for `batches.split`."""
    count = 0
    for row in range(records.rows):
        count = add_to_sets(_size(records, magic, row), row, cut, batch_bytes, batch_records, first, size, count)
    return count


@register_jitable(forceinline=True)
def put_sized(column: ArrowPayloads, row: int, to: int) -> int:
    """Write a payload's length, in four bytes, and the payload; returns the address after it."""
    source, length = payload(column, row)
    memory.put32(0, to, length)
    if length > 0:
        copy_payload(to + 4, source, length, column.stop)
    return to + 4 + max(length, 0)


@register_jitable
def seal_message(pos: int, end: int) -> None:
    """Write the checksum of the message at an address."""
    memory.put32(0, pos + 12, crc.crc32(0, pos + legacy.CRC_FROM, end))


@compiled
def measure(records: RecordsToEncode, magic: int, first: Int64s, stop: int, size: Int64s) -> None:
    """Set ``size`` to the sizes of sets with given bounds."""
    for b in range(first.shape[0]):
        start, end = rows_of(first, stop, b)
        size[b] = 0
        for row in range(start, end):
            size[b] += _size(records, magic, row)


@compiled
def fill(records: RecordsToEncode, magic: int, marks: int, first: Int64s, stop: int, rows: Table, to: Int64s) -> None:
    """Write the messages of sets; in wrappers of magic 1 and 2 offsets are relative to the base offset. ``marks`` is the address of a uint8
    for each row whose bits are set in its attributes, or 0. Others are as for `batches.fill`."""
    for b in range(first.shape[0]):
        start, end = rows_of(first, stop, b)
        pos = to[b]
        base = rows[b, table.BASE_OFFSET] if rows[b, table.CODEC] != 0 and magic > 0 else 0
        attributes = max(rows[b, table.TIMESTAMP_TYPE], 0) << 3
        for row in range(start, end):
            size = _size(records, magic, row)
            offset, timestamp = load64(records.offset + 8 * row) - base, load64(records.timestamp + 8 * row)
            mark = load8(marks + row) if marks else 0
            at = legacy.put_message(0, pos, size, magic, offset, attributes | mark, timestamp)
            put_sized(records.value, row, put_sized(records.key, row, at))
            seal_message(pos, pos + size)
            pos += size


@register_jitable(forceinline=True)
def put_row(row: Int64s, row_of_all: Int64s, position: int, size: int, offset: int, timestamp: int) -> None:
    """Write the row of the batch table of a message that is an entry; its other columns are those of ``row_of_all``."""
    for column in range(table.WIDTH):
        row[column] = row_of_all[column]
    row[table.POSITION], row[table.SIZE] = position, size
    row[table.BASE_OFFSET], row[table.LAST_OFFSET] = offset, offset
    row[table.BASE_TIMESTAMP], row[table.MAX_TIMESTAMP] = timestamp, timestamp


@compiled
def put_singles(
    records: RecordsToEncode, magic: int, marks: int, types: int, start: int, rows: Table, row_of_all: Int64s, target: int
) -> None:
    """Write messages without a codec from row ``start`` on, each of which is an entry, and their ``rows`` of the batch table. ``marks`` is
    as for `fill`; ``types`` the address of an int64 for each row, its type of timestamp, 0 if all are CreateTime. ``row_of_all`` has what
    all rows have in common. Positions count from the address ``target``; up to 31 bytes after the last message are overwritten."""
    pos = target
    for b in range(rows.shape[0]):
        row = start + b
        size = _size(records, magic, row)
        offset, timestamp = load64(records.offset + 8 * row), load64(records.timestamp + 8 * row)
        type = load64(types + 8 * row) if types else 0
        mark = load8(marks + row) if marks else 0
        at = legacy.put_message(0, pos, size, magic, offset, max(type, 0) << 3 | mark, timestamp)
        put_sized(records.value, row, put_sized(records.key, row, at))
        seal_message(pos, pos + size)
        put_row(rows[b], row_of_all, pos - target, size, offset, timestamp)
        rows[b, table.TIMESTAMP_TYPE] = type
        pos += size


@compiled
def wrap(buf: int, rows: Table, magic: int) -> None:
    """Write the wrappers of entries with a codec, around sets that are in place; parameters as for `batches.seal`."""
    for b in range(rows.shape[0]):
        if rows[b, table.CODEC] == 0:
            continue
        pos, size = buf + rows[b, table.POSITION], rows[b, table.SIZE]
        attributes = rows[b, table.CODEC] | (max(rows[b, table.TIMESTAMP_TYPE], 0) << 3)
        at = legacy.put_message(0, pos, size, magic, rows[b, table.LAST_OFFSET], attributes, rows[b, table.MAX_TIMESTAMP])
        memory.put32(0, at, -1)
        memory.put32(0, at + 4, pos + size - at - 8)
        seal_message(pos, pos + size)
