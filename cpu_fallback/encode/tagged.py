"""Encodes records as messages of `formats.enriched`, either single ones or in wrappers."""

from kolumn.core.deferred import register_jitable
from kolumn.cpu_fallback.encode.messages import RecordsToEncode, add_to_sets, lengths, payload, put_sized, rows_of, seal_message
from kolumn.cpu_fallback.machine.address import load8, load32, load64
from kolumn.cpu_fallback.machine.arrays import Flags, Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import enriched, memory, table

_TIME_BYTES, _COUNT_BYTES = 9, 5
WRAPPER_TAGS = _TIME_BYTES + _COUNT_BYTES
"""Bytes of a wrapper's tags."""


@register_jitable
def _size(records: RecordsToEncode, tagged: int, row: int) -> int:
    key, value = lengths(records, row)
    return enriched.message_size(_TIME_BYTES if load8(tagged + row) else 0, key, value)


@compiled
def split(records: RecordsToEncode, tagged: int, cut: Flags, batch_bytes: int, batch_records: int, first: Int64s, size: Int64s) -> int:
    """Divide records into sets of messages, and compute their sizes. ``tagged`` is the address of a uint8 for each row: whether it gets a
    broker timestamp. The others are as for `batches.split`."""
    count = 0
    for row in range(records.rows):
        count = add_to_sets(_size(records, tagged, row), row, cut, batch_bytes, batch_records, first, size, count)
    return count


@compiled
def measure(records: RecordsToEncode, tagged: int, first: Int64s, stop: int, size: Int64s) -> None:
    """Set ``size`` to the sizes of sets with given bounds."""
    for b in range(first.shape[0]):
        start, end = rows_of(first, stop, b)
        size[b] = 0
        for row in range(start, end):
            size[b] += _size(records, tagged, row)


@register_jitable
def _put_time(at: int, timestamp: int) -> int:
    memory.store8(0, at, enriched.BROKER_TIMESTAMP)
    memory.put64(0, at + 1, timestamp)
    return at + _TIME_BYTES


@compiled
def fill(records: RecordsToEncode, tagged: int, kinds: int, seconds: int, first: Int64s, stop: int, rows: Table, to: Int64s) -> None:
    """Write the messages of sets; with a codec, offsets are relative to the base offset, and `table.ATTRIBUTES` is set for the wrapper.
    ``tagged``, ``kinds`` and ``seconds`` are addresses for each row: of a uint8, whether it gets a broker timestamp; of a uint8, its type;
    of an int32, its timestamp. Others are as for `batches.fill`."""
    for b in range(first.shape[0]):
        start, end = rows_of(first, stop, b)
        pos, keyed, base = to[b], False, rows[b, table.BASE_OFFSET] if rows[b, table.CODEC] != 0 else 0
        for row in range(start, end):
            size, tag_bytes = _size(records, tagged, row), _TIME_BYTES if load8(tagged + row) else 0
            offset = load64(records.offset + 8 * row) - base
            at = enriched.put_message(0, pos, size, offset, load8(kinds + row), load32(seconds + 4 * row), tag_bytes)
            if tag_bytes:
                at = _put_time(at, load64(records.timestamp + 8 * row))
            put_sized(records.value, row, put_sized(records.key, row, at))
            seal_message(pos, pos + size)
            keyed = keyed or payload(records.key, row)[1] >= 0
            pos += size
        rows[b, table.ATTRIBUTES] = rows[b, table.CODEC] | enriched.HONOURED | (0 if keyed else enriched.NON_KEYED)


@compiled
def wrap(buf: int, rows: Table) -> None:
    """Write the wrappers of entries with a codec, around sets that are in place; parameters as for `batches.seal`."""
    for b in range(rows.shape[0]):
        if rows[b, table.CODEC] == 0:
            continue
        pos, size, time = buf + rows[b, table.POSITION], rows[b, table.SIZE], rows[b, table.MAX_TIMESTAMP]
        seconds = time // 1000
        if seconds < -1 or seconds > 0x7FFFFFFF:
            seconds = -1
        at = enriched.put_message(0, pos, size, rows[b, table.BASE_OFFSET], rows[b, table.ATTRIBUTES], seconds, WRAPPER_TAGS)
        at = _put_time(at, time)
        memory.store8(0, at, enriched.NUM_MESSAGES)
        memory.put32(0, at + 1, rows[b, table.COUNT])
        at += _COUNT_BYTES
        memory.put32(0, at, -1)
        memory.put32(0, at + 4, pos + size - at - 8)
        seal_message(pos, pos + size)
