"""Rewrites format 2 batches without making columns of them: without some records (compaction), or as messages of formats 0 and 1.

The output is what `batches.fill` and `messages.put_singles` would write of the columns. Batches of which that is not certain are left.
"""

from kolumn.core.deferred import register_jitable
from kolumn.core.errors import Code
from kolumn.cpu_fallback.encode.batches import any_fields
from kolumn.cpu_fallback.encode.messages import put_row, seal_message
from kolumn.cpu_fallback.machine.address import copy_padded, load8
from kolumn.cpu_fallback.machine.arrays import Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import legacy, memory, table, v2
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
    ``made`` gets the bytes of the records of each batch, or `WHOLE`, `EMPTIED` or `LEFT`. Returns the bytes from ``target`` on."""
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
    """Write the records of one batch that stay, whose timestamps count from ``time``; returns the address after them, or a result. Its
    tombstones go if its delete horizon has ``expired``, and the batch is written even if all records stay if the horizon ``is_new``."""
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


_LEFT = -1


@compiled
def down_convert(
    rows: Table, payload: Int64s, size: Int64s, magic: int, row_of_all: Int64s, out: Table, target: int
) -> tuple[int, int, int, int]:
    """Write the records of batches with CreateTime, and counts that their bytes have room for, as messages with rows of the batch table.

    ``payload`` and ``size`` are addresses and sizes of the records, decompressed and padded. ``row_of_all`` has what the rows of all
    messages have in common; ``out`` has room for a row for each record, with positions from ``target`` on. At ``target`` there is memory
    for the overhead of each message beside all bytes of the records, and padding.

    Returns the number of batches up to the first that is left, their messages, bytes of these, and how many records have a timestamp."""
    count, pos, timed = 0, target, 0
    for b in range(rows.shape[0]):
        end, own = _messages(rows[b], payload[b], payload[b] + size[b], magic, row_of_all, out, count, pos, target)
        if end < 0:
            return b, count, pos - target, timed
        count, pos, timed = count + rows[b, table.COUNT], end, timed + own
    return rows.shape[0], count, pos - target, timed


@register_jitable(forceinline=True)
def _messages(
    row: Int64s, at: int, end: int, magic: int, row_of_all: Int64s, out: Table, first: int, pos: int, target: int
) -> tuple[int, int]:
    """Write the messages of one batch; returns the address after them, or `_LEFT`, and how many have a timestamp."""
    base, time, timed = row[table.BASE_OFFSET], row[table.BASE_TIMESTAMP], 0
    most = row[table.LAST_OFFSET] - base
    for i in range(first, first + row[table.COUNT]):
        record = any_fields(at, end)
        if record.code != _OK or record.header_count != 0 or record.headers != record.next:
            return _LEFT, 0
        if record.offset_delta < 0 or record.offset_delta > most:
            return _LEFT, 0
        at, offset, moment = record.next, base + record.offset_delta, time + record.timestamp_delta
        timed += 1 if moment != -1 else 0
        if magic == 0:
            moment = -1
        size = legacy.message_size(magic, record.key_length, record.value_length)
        to = legacy.put_message(0, pos, size, magic, offset, 0, moment)
        _put_sized(record.value, record.value_length, _put_sized(record.key, record.key_length, to))
        seal_message(pos, pos + size)
        put_row(out[i], row_of_all, pos - target, size, offset, moment)
        pos += size
    if at != end:
        return _LEFT, 0
    return pos, timed


@register_jitable(forceinline=True)
def _put_sized(source: int, length: int, to: int) -> int:
    """Write a payload's length, in four bytes, and the payload; returns the address after it."""
    memory.put32(0, to, length)
    copy_padded(to + 4, source, length)
    return to + 4 + max(length, 0)
