"""Decodes records into columns: hop, fields and gather in one pass over the payload bytes while they are in the cache.

Batches are written densely in file order. If a batch turns out to be damaged, it gets its code, and the write positions are set
back to its beginning.

Decodes messages into columns: one that is an entry of its own, those of a wrapper, and those of a set. Each layout has a loop.
"""

from collections.abc import Callable
from typing import Any

from kolumn.core.errors import Code
from kolumn.cpu_fallback.fields.plain_records import headed_records, plain_records
from kolumn.cpu_fallback.fields.put import forget, put
from kolumn.cpu_fallback.fields.target import HEADER_KEY, HEADER_VALUE, HEADERS, KEY, ROWS, VALUE, Target, begin_columns, put_record
from kolumn.cpu_fallback.machine.address import store8, store64
from kolumn.cpu_fallback.machine.arrays import Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import layouts, table, v2
from kolumn.formats.layout import Layout, chosen
from kolumn.formats.machine_code.deferred import register_jitable
from kolumn.formats.machine_code.scalar import known

_MESSAGES_OK = int(Code.OK)


def _loop(layout: Layout) -> Callable[..., tuple[int, int, int]]:
    hop, message = layout.hop, layout.message
    assert hop is not None
    assert message is not None

    @register_jitable(forceinline=True)
    def loop(
        row: Int64s, buf: int, end: int, buffer: int, origin: int, count: int, base: int, to: Target, at: Int64s
    ) -> tuple[int, int, int]:
        n, key, value = at[ROWS], at[KEY], at[VALUE]
        append_time, wrapped, attributes = row[table.TIMESTAMP_TYPE] == table.LOG_APPEND_TIME, row[table.CODEC], row[table.ATTRIBUTES]
        where = 0
        for record in range(count):
            code, stop = hop(buf, where, end, wrapped)
            if code != _MESSAGES_OK:
                return code, record, where
            found = message(buf, where, stop, wrapped, attributes, base, record)
            if found.code != _MESSAGES_OK:
                return found.code, record, found.where
            timestamp = row[table.MAX_TIMESTAMP] if append_time and found.dated else found.timestamp
            if to.seconds:
                store64(to.seconds + 8 * n, found.seconds)
            if to.attributes:
                store8(to.attributes + n, found.attributes)
            key, value = put_record(
                to, n, found.offset, timestamp, at[HEADERS], buffer, origin - buf,
                buf + found.key, found.key_length, buf + found.value, found.value_length, key, value,
            )  # fmt: skip
            n += 1
            where = stop
        at[ROWS], at[KEY], at[VALUE] = n, key, value
        return _MESSAGES_OK, -1, -1

    return loop


_made: list[Callable[..., Any]] = []
messages = chosen({number: _loop(layouts.LAYOUTS[number]) for number in (*layouts.MESSAGES, *layouts.SETS)}, _made)
"""Decodes the ``count`` messages of an entry: (code, record, position of the error). The first argument is the layout.

The others are those of `records.fields`. The write positions advance only if all messages of the entry are valid.
"""
known(_made)


_OK, _RECORD_END, _RECORD_LENGTH = int(Code.OK), int(Code.RECORD_END), int(Code.RECORD_LENGTH)
_OFFSET_RANGE = int(Code.OFFSET_RANGE)
_RECORDS_MISSING, _RECORDS_REMAIN = int(Code.RECORDS_MISSING), int(Code.RECORDS_REMAIN)


@compiled
def fields(
    rows: Table,
    payload: Int64s,
    size: Int64s,
    base: Int64s,
    buffer: Int64s,
    origin: Int64s,
    records: Int64s,
    to: Target,
    at: Int64s,
    headers: int,
    stop_at_error: bool,
) -> None:
    """Decode all batches without a code.

    Parameters
    ----------
    rows, payload, size, base, records
        As after `count.count_records`. ``records`` is set to the number of rows written for each batch.
    buffer, origin : int64 arrays of n
        For views: number of the buffer that holds the payload, and the payload's position in it.
    to : Target
    at : int64 array of `target.POSITIONS`
        In and out: write position of each column, and which have had a null.
    headers : int
        Number of record headers for which there is room.
    stop_at_error : bool
        Whether to stop after the first damaged batch.
    """
    begin_columns(to)
    for b in range(rows.shape[0]):
        if rows[b, table.CODE] == _OK:
            first = at[ROWS]
            layout = rows[b, table.LAYOUT]
            if layouts.holds_records(layout):
                skip = layouts.attribute_bytes(layout)
                code, record, where = batch_records(rows[b], payload[b], size[b], buffer[b], origin[b], records[b], skip, to, at)
            else:
                code, record, where = messages(layout, rows[b], payload[b], size[b], buffer[b], origin[b], records[b], base[b], to, at)
            if code == _OK:
                records[b] = at[ROWS] - first
                continue
            rows[b, table.CODE], rows[b, table.RECORD], rows[b, table.WHERE] = code, record, where
            forget(to.key, first, first + records[b])
            forget(to.value, first, first + records[b])
            if to.attributes:
                for row in range(first, first + records[b]):
                    store8(to.attributes + row, 0)
            if headers:
                forget(to.header_value, at[HEADERS], headers)
        if stop_at_error:
            records[b:] = 0
            return
        records[b] = 0


@register_jitable(forceinline=True)
def batch_records(
    row: Int64s, buf: int, end: int, buffer: int, origin: int, count: int, skip: int, to: Target, at: Int64s
) -> tuple[int, int, int]:
    """Decode the records of a batch of format 2, or 3 with ``skip`` as in `v2.fields`: (code, record, position of the error).

    ``at`` advances only if all records are valid.
    """
    n, key, value = at[ROWS], at[KEY], at[VALUE]
    header, header_key, header_value = at[HEADERS], at[HEADER_KEY], at[HEADER_VALUE]
    offset, timestamp, append_timestamp = row[table.BASE_OFFSET], row[table.BASE_TIMESTAMP], row[table.MAX_TIMESTAMP]
    append_time = row[table.TIMESTAMP_TYPE] == table.LOG_APPEND_TIME
    where, first, last = 0, n, n + count
    short = last if to.short else first
    while n < last:
        where, n, key, value = plain_records(row, buf, where, end, buffer, origin, short, skip, to, n, key, value, header)
        if n == last:
            break
        heads = header, header_key, header_value
        where, n, key, value, heads = headed_records(row, buf, where, end, buffer, origin, short, skip, to, n, key, value, heads)
        header, header_key, header_value = heads
        if n == last:
            break
        record = v2.fields(buf, where, end, skip)
        if record.code != _OK:
            # The bytes end where a record should begin: the batch has fewer records than the count in its header.
            missing = record.code == _RECORD_LENGTH and where == end
            return _RECORDS_MISSING if missing else record.code, n - first, record.next
        header_at = record.headers
        for _ in range(record.header_count):
            one = v2.record_header(buf, header_at, record.next)
            if one.code != _OK:
                return one.code, n - first, header_at
            if to.header_ends:
                header_key = put(to.header_key, buf + one.key, 0, 0, one.key_length, header, header_key)
                header_value = put(to.header_value, buf + one.value, 0, 0, one.value_length, header, header_value)
                header += 1
            header_at = one.next
        if header_at != record.next:
            return _RECORD_END, n - first, where
        if record.offset_delta < 0 or record.offset_delta > row[table.LAST_OFFSET] - offset:
            return _OFFSET_RANGE, n - first, v2.offset_delta(buf, where, end, skip)[1]
        key, value = put_record(
            to, n, offset + record.offset_delta, append_timestamp if append_time else timestamp + record.timestamp_delta, header,
            buffer, origin - buf, buf + record.key, record.key_length, buf + record.value, record.value_length, key, value,
        )  # fmt: skip
        n += 1
        where = record.next
    if where != end:
        return _RECORDS_REMAIN, count, where
    at[ROWS], at[KEY], at[VALUE] = n, key, value
    at[HEADERS], at[HEADER_KEY], at[HEADER_VALUE] = header, header_key, header_value
    return _OK, -1, -1
