"""Leaves records out of format 2 batches, for compaction: those that stay are written again without becoming columns before.

What is written is what `batches.fill` would write of the columns. Batches of which that is not certain are left to it.
"""

from kolumn.cpu_fallback.encode.any_record import any_fields
from kolumn.cpu_fallback.machine.address import copy_padded, load8
from kolumn.cpu_fallback.machine.arrays import Int64s, Table
from kolumn.cpu_fallback.machine.scalars import compiled
from kolumn.errors import Code
from kolumn.formats import table, v2
from kolumn.formats.varint import put_varint, varint_size
from kolumn.machine_code.deferred import register_jitable

LONGER = 16
"""Bytes that a record can be longer than it was: its length and its timestamp delta are other numbers."""

_OK = int(Code.OK)
_LEFT = -1


@compiled
def filter_records(
    rows: Table, payload: Int64s, size: Int64s, gap: Int64s, marks: int, lowest: int, span: int, target: int, made: Int64s
) -> int:
    """Write the records of batches that stay.

    Parameters
    ----------
    rows : int64 array of shape (n, `table.WIDTH`)
        Batches with CreateTime, with intact records and without tombstones. Count, base timestamp and largest timestamp are set to those
        of the records that stay; a base timestamp that is a delete horizon stays.
    payload, size : int64 arrays of n
        Addresses and sizes of the records, decompressed and padded.
    gap : int64 array of n
        Bytes that are left free before the records of each batch.
    marks, lowest, span : int
        Address of a uint8 for each of ``span`` offsets from ``lowest`` on: 1 if a record with a key stays.
    target : int
        Address for the first gap. Memory for all gaps and records, `LONGER` bytes more for each record, and padding.
    made : int64 array of n
        Out: bytes of the records of each batch; negative if it is left, and nothing is written of it.

    Returns
    -------
    int
        Bytes from ``target`` on.
    """
    to = target
    for b in range(rows.shape[0]):
        begin = to + gap[b]
        end = _filter(rows[b], payload[b], payload[b] + size[b], marks, lowest, span, begin)
        made[b] = end - begin if end >= 0 else _LEFT
        if end >= 0:
            to = end
    return to - target


@register_jitable
def _filter(row: Int64s, at: int, end: int, marks: int, lowest: int, span: int, to: int) -> int:
    """Write the records of one batch that stay; returns the address after them, or `_LEFT`."""
    base, time = row[table.BASE_OFFSET], row[table.BASE_TIMESTAMP]
    first, highest, count = time, time, 0
    for _ in range(row[table.COUNT]):
        record = any_fields(at, end)
        if record.code != _OK or record.value_length < 0:
            return _LEFT
        at, offset = record.next, record.offset_delta
        index = base + offset - lowest
        if record.key_length < 0 or index < 0 or index >= span or load8(marks + index) == 0:
            continue
        more = _headers_size(record.headers, at, record.header_count)
        if more < 0:
            return _LEFT
        moment = time + record.timestamp_delta
        if count == 0 and row[table.DELETE_HORIZON] == 0:
            first = moment
        highest = moment if count == 0 else max(highest, moment)
        count += 1
        body = 1 + varint_size(moment - first) + varint_size(offset)
        body += v2.payload_size(record.key_length) + v2.payload_size(record.value_length) + varint_size(record.header_count) + more
        to = v2.put_record(0, to, body, moment - first, offset)
        to = _put(record.value, record.value_length, _put(record.key, record.key_length, to))
        to = put_varint(0, to, record.header_count)
        headers = record.headers
        for _ in range(record.header_count):
            header = v2.record_header(0, headers, at)
            to = _put(header.value, header.value_length, _put(header.key, header.key_length, to))
            headers = header.next
    if at != end or count == 0:
        return _LEFT
    row[table.COUNT], row[table.BASE_TIMESTAMP], row[table.MAX_TIMESTAMP] = count, first, highest
    return to


@register_jitable
def _headers_size(at: int, stop: int, count: int) -> int:
    """Bytes of the headers of a record as they are written; negative if a key is not ASCII, since other keys may not be text."""
    size = 0
    for _ in range(count):
        header = v2.record_header(0, at, stop)
        if header.code != _OK:
            return _LEFT
        for i in range(header.key_length):
            if load8(header.key + i) >= 0x80:
                return _LEFT
        size += v2.payload_size(header.key_length) + v2.payload_size(header.value_length)
        at = header.next
    return size if at == stop else _LEFT


@register_jitable(forceinline=True)
def _put(source: int, length: int, to: int) -> int:
    """Write a payload's length and the payload; returns the address after it."""
    to = put_varint(0, to, length)
    copy_padded(to, source, length)
    return to + max(length, 0)
