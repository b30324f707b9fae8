"""Records of format 2 batches become messages of formats 0 and 1 without a codec, without becoming columns before.

What is written is what `messages.put_singles` would write of the columns. A batch of which that is not certain is left to it.
"""

from kolumn.core.errors import Code
from kolumn.cpu_fallback.encode.batches import any_fields
from kolumn.cpu_fallback.encode.messages import put_row, seal_message
from kolumn.cpu_fallback.machine.address import copy_padded
from kolumn.cpu_fallback.machine.arrays import Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import legacy, memory, table
from kolumn.formats.machine_code.deferred import register_jitable

_OK, _LEFT = int(Code.OK), -1


@compiled
def down_convert(
    rows: Table, payload: Int64s, size: Int64s, magic: int, row_of_all: Int64s, out: Table, target: int
) -> tuple[int, int, int, int]:
    """Write the records of batches with CreateTime, and counts that their bytes have room for, as messages with rows of the batch table.

    ``payload`` and ``size`` are addresses and sizes of the records, decompressed and padded. ``row_of_all`` has what the rows of all
    messages have in common; ``out`` has room for a row for each record, with positions from ``target`` on. At ``target`` there is memory
    for the overhead of each message beside all bytes of the records, and padding.

    Returns the number of batches up to the first that is left, their messages, bytes of these, and how many records have a timestamp.
    """
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
        _put(record.value, record.value_length, _put(record.key, record.key_length, to))
        seal_message(pos, pos + size)
        put_row(out[i], row_of_all, pos - target, size, offset, moment)
        pos += size
    if at != end:
        return _LEFT, 0
    return pos, timed


@register_jitable(forceinline=True)
def _put(source: int, length: int, to: int) -> int:
    """Write a payload's length, in four bytes, and the payload; returns the address after it."""
    memory.put32(0, to, length)
    copy_padded(to + 4, source, length)
    return to + 4 + max(length, 0)
