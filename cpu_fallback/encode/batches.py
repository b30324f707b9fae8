"""Loops that encode batches of formats 2 and 3 and of Redpanda for `kolumn.writers.encoders`: bounds of batches, their records, headers."""

from kolumn.core.deferred import register_jitable
from kolumn.core.errors import Code
from kolumn.cpu_fallback.encode.messages import ArrowPayloads, RecordsToEncode, copy_payload, lengths, payload, rows_of
from kolumn.cpu_fallback.machine.address import load32, load64, store32
from kolumn.cpu_fallback.machine.arrays import Flags, Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import crc, memory, redpanda, table, v2, v3_compact
from kolumn.formats.entry import Record
from kolumn.formats.varint import put_varint, varint_size

_V2, _REDPANDA = v2.LAYOUT.number, redpanda.LAYOUT.number
_LARGEST_DELTA = 2**31 - 1


@register_jitable
def headers_of(records: RecordsToEncode, row: int) -> tuple[int, int]:
    """Rows of the first header of a record, and of the one after its last."""
    if records.header_ends == 0:
        return 0, 0
    return load32(records.header_ends + 4 * row), load32(records.header_ends + 4 * row + 4)


@register_jitable
def _fixed_size(records: RecordsToEncode, row: int, skip: int) -> int:
    """Bytes of a record's body without its two deltas; its attributes have ``skip`` bytes."""
    first, stop = headers_of(records, row)
    key, value = lengths(records, row)
    size = skip + v2.payload_size(key) + v2.payload_size(value) + varint_size(stop - first)
    for i in range(first, stop):
        size += v2.payload_size(payload(records.header_key, i)[1]) + v2.payload_size(payload(records.header_value, i)[1])
    return size


@compiled
def split(
    records: RecordsToEncode, skip: int, cut: Flags, batch_bytes: int, batch_records: int, body: int, first: Int64s, size: Int64s
) -> int:
    """Divide records into batches, and compute all sizes; returns the number of batches. ``skip`` are the bytes of a record's attributes.

    ``cut`` flags rows at which a batch has to begin. ``batch_bytes`` and ``batch_records`` limit a batch: bytes of its header and
    uncompressed records, and number of records; a single record may be larger. ``body`` is the address of an int32 for each row: the size
    of the record's body. ``first`` and ``size`` get the first row and payload size of each batch."""
    count, used, base, time = 0, 0, 0, 0
    for row in range(records.rows):
        fixed, offset, moment = _fixed_size(records, row, skip), load64(records.offset + 8 * row), load64(records.timestamp + 8 * row)
        inner = fixed + varint_size(moment - time) + varint_size(offset - base)
        whole = varint_size(inner) + inner
        full = count == 0 or used + whole > batch_bytes or row - first[count - 1] >= batch_records
        if full or cut[row] or offset - base > _LARGEST_DELTA:
            if count > 0:
                size[count - 1] = used - v2.HEADER
            first[count] = row
            base, time, count, used, inner = offset, moment, count + 1, v2.HEADER, fixed + 2
            whole = varint_size(inner) + inner
        used += whole
        store32(body + 4 * row, inner)
    if count > 0:
        size[count - 1] = used - v2.HEADER
    return count


@compiled
def measure(records: RecordsToEncode, skip: int, first: Int64s, stop: int, rows: Table, body: int, size: Int64s) -> None:
    """Fill ``body`` and ``size`` as `split` does, for batches with given bounds; deltas are relative to the base values in ``rows``."""
    for b in range(first.shape[0]):
        start, end = rows_of(first, stop, b)
        size[b] = 0
        for row in range(start, end):
            time = load64(records.timestamp + 8 * row) - rows[b, table.BASE_TIMESTAMP]
            offset = load64(records.offset + 8 * row) - rows[b, table.BASE_OFFSET]
            inner = _fixed_size(records, row, skip) + varint_size(time) + varint_size(offset)
            store32(body + 4 * row, inner)
            size[b] += varint_size(inner) + inner


@register_jitable(forceinline=True)
def _put(column: ArrowPayloads, row: int, to: int) -> int:
    """Write a payload's length and the payload; returns the address after it."""
    source, length = payload(column, row)
    to = put_varint(0, to, length)
    if length <= 0:
        return to
    copy_payload(to, source, length, column.stop)
    return to + length


@compiled
def fill(records: RecordsToEncode, skip: int, first: Int64s, stop: int, rows: Table, body: int, to: Int64s) -> None:
    """Write the records of batches, of which ``rows`` of the batch table have the base offset and base timestamp. ``first`` are the first
    rows of the batches, and ``stop`` the row after the last one; ``body`` is as filled by `split`. ``to`` are addresses for the first
    record of each batch; up to 31 bytes after the last one are overwritten."""
    for b in range(first.shape[0]):
        start, end = rows_of(first, stop, b)
        at = to[b]
        base, time = rows[b, table.BASE_OFFSET], rows[b, table.BASE_TIMESTAMP]
        for row in range(start, end):
            offset, moment = load64(records.offset + 8 * row), load64(records.timestamp + 8 * row)
            at = v2.put_record(0, at, load32(body + 4 * row), moment - time, offset - base, skip)
            at = _put(records.value, row, _put(records.key, row, at))
            begin, end = headers_of(records, row)
            at = put_varint(0, at, end - begin)
            for i in range(begin, end):
                at = _put(records.header_value, i, _put(records.header_key, i, at))


@compiled
def seal(buf: int, rows: Table) -> None:
    """Write the headers of batches whose payloads are in place, then their checksums; ``buf`` is the address of position 0."""
    for b in range(rows.shape[0]):
        pos, size = rows[b, table.POSITION], rows[b, table.SIZE]
        if rows[b, table.LAYOUT] == _V2:
            v2.put_header(buf, pos, size, rows[b])
            memory.put32(buf, pos + 17, crc.crc32c(buf, pos + v2.CRC_FROM, pos + size))
        elif rows[b, table.LAYOUT] == _REDPANDA:
            redpanda.put_header(buf, pos, size, rows[b])
            redpanda.put_checksums(buf, pos, size)
        else:
            at = v3_compact.put_header(buf, pos, size, rows[b])
            memory.put32(buf, at, crc.crc32c(buf, at + 4, pos + size))


@compiled
def swap_headers(buf: int, rows: Table) -> None:
    """Give batches of format 2 headers of Redpanda, and batches of Redpanda headers of format 2, with the offsets and leader epochs of
    their rows, which become those of the other layout. ``buf`` is the address of position 0. Records stay as they are."""
    for b in range(rows.shape[0]):
        pos, size, epoch = rows[b, table.POSITION], rows[b, table.SIZE], rows[b, table.LEADER_EPOCH]
        if rows[b, table.LAYOUT] == _V2:
            redpanda.of_v2(buf, pos, size, rows[b])
            rows[b, table.DELETE_HORIZON], rows[b, table.LAYOUT] = 0, _REDPANDA
            redpanda.header(buf, pos, size, rows[b])
        else:
            redpanda.to_v2(buf, pos, size, rows[b])
            rows[b, table.CRC_SEED], rows[b, table.BATCH_TYPE], rows[b, table.LAYOUT] = 0, 0, _V2
            v2.header(buf, pos, size, rows[b])
        rows[b, table.LEADER_EPOCH] = epoch


@compiled
def compact_headers(rows: Table, payload: Int64s, size: Int64s) -> None:
    """Set ``size`` to the header sizes of format 3 batches whose records have ``payload`` bytes."""
    for b in range(rows.shape[0]):
        size[b] = v3_compact.header_size(rows[b], payload[b])


_OK = int(Code.OK)


@register_jitable(forceinline=True)
def any_fields(at: int, end: int) -> Record:
    """As `v2.fields`, of a record at an address. Up to two bytes after ``end`` are read."""
    plain = v2.plain_fields(0, at, end, 1)
    if plain.next < 0:
        return v2.fields(0, at, end, 1)
    return Record(
        _OK, plain.next, plain.timestamp_delta, plain.offset_delta,
        plain.key, plain.key_length, plain.value, plain.value_length, plain.next, 0,
    )  # fmt: skip
