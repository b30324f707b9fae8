"""Leaves records out of format 2 batches, for compaction: those that stay are written again without becoming columns before.

What is written is what `batches.fill` would write of the columns. Batches of which that is not certain are left to it.
"""

from kolumn.core.errors import Code
from kolumn.cpu_fallback.encode.batches import any_fields
from kolumn.cpu_fallback.machine.address import copy_padded, load8
from kolumn.cpu_fallback.machine.arrays import Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import table, v2
from kolumn.formats.machine_code.deferred import register_jitable
from kolumn.formats.varint import put_varint, varint_size

LONGER = 16
"""Bytes that a record can be longer than it was: its length and its timestamp delta are other numbers."""
WHOLE, EMPTIED, LEFT = -1, -2, -3
"""Results for batches of which nothing is written: all records stay, none stays, or the batch is not for this loop."""

_OK = int(Code.OK)
_MARKED = -4
"""A tombstone stays in a batch without a delete horizon: the batch is written again with one."""


@compiled
def filter_records(
    rows: Table, payload: Int64s, size: Int64s, gap: Int64s, marks: int, lowest: int, span: int, now: int, horizon: int,
    target: int, made: Int64s,
) -> int:  # fmt: skip
    """Write the records that stay of batches with CreateTime and counts that their bytes have room for.

    Count, timestamps and delete horizon in ``rows`` are set to those of what is written. ``payload`` and ``size`` are addresses and sizes
    of the records, decompressed and padded. ``marks`` is the address of a uint8 for each of ``span`` offsets from ``lowest`` on: 1 if it
    is the last one of a key. ``horizon`` is what batches with tombstones get. ``gap`` bytes stay free before the records of each batch.
    From the address ``target`` on there is memory for all gaps and records, `LONGER` bytes more for each record, and padding.
    ``made`` gets the bytes of the records of each batch, or `WHOLE`, `EMPTIED` or `LEFT`. Returns the bytes from ``target`` on.
    """
    to = target
    for b in range(rows.shape[0]):
        row, begin, stop = rows[b], to + gap[b], payload[b] + size[b]
        time, expired = row[table.BASE_TIMESTAMP], row[table.DELETE_HORIZON] != 0 and row[table.BASE_TIMESTAMP] <= now
        end = _filter(row, payload[b], stop, time, expired, False, marks, lowest, span, begin)
        if end == _MARKED:
            row[table.BASE_TIMESTAMP], row[table.DELETE_HORIZON] = horizon, 1
            end = _filter(row, payload[b], stop, time, False, True, marks, lowest, span, begin)
        made[b] = end - begin if end >= 0 else end
        if end >= 0:
            to = end
    return to - target


@register_jitable
def _filter(row: Int64s, at: int, end: int, time: int, expired: bool, is_new: bool, marks: int, lowest: int, span: int, to: int) -> int:
    """Write the records of one batch that stay, whose timestamps count from ``time``; returns the address after them, or a result.

    Its tombstones go if its delete horizon has ``expired``, and the batch is written even if all records stay if the horizon ``is_new``.
    """
    base, has_horizon = row[table.BASE_OFFSET], row[table.DELETE_HORIZON] != 0
    most, first, highest, count = row[table.LAST_OFFSET] - base, row[table.BASE_TIMESTAMP], time, 0
    for _ in range(row[table.COUNT]):
        record = any_fields(at, end)
        if record.code != _OK or record.offset_delta < 0 or record.offset_delta > most:
            return LEFT
        at, offset = record.next, record.offset_delta
        more = _headers_size(record.headers, at, record.header_count)
        if more < 0:
            return LEFT
        index, dead = base + offset - lowest, record.value_length < 0
        if record.key_length < 0 or index < 0 or index >= span or load8(marks + index) == 0 or (dead and expired):
            continue
        if dead and not has_horizon:
            return _MARKED
        moment = time + record.timestamp_delta
        if count == 0 and not has_horizon:
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
    if at != end:
        return LEFT
    if count == 0:
        return EMPTIED
    if count == row[table.COUNT] and not is_new:
        return WHOLE
    row[table.COUNT], row[table.BASE_TIMESTAMP], row[table.MAX_TIMESTAMP] = count, first, highest
    return to


@register_jitable
def _headers_size(at: int, stop: int, count: int) -> int:
    """Bytes of the headers of a record as they are written; negative if they are not valid."""
    size = 0
    for _ in range(count):
        header = v2.record_header(0, at, stop)
        if header.code != _OK:
            return LEFT
        size += v2.payload_size(header.key_length) + v2.payload_size(header.value_length)
        at = header.next
    return size if at == stop else LEFT


@register_jitable(forceinline=True)
def _put(source: int, length: int, to: int) -> int:
    """Write a payload's length and the payload; returns the address after it."""
    to = put_varint(0, to, length)
    copy_padded(to, source, length)
    return to + max(length, 0)
