"""Decodes records and messages into columns: hop, fields and gather in one pass over the payload bytes while they are in the cache.

Batches are written densely in file order. If a batch turns out to be damaged, it gets its code, and the write positions are set back
to its beginning. Most records are plain or have a few short headers; the loops for these are so small that their variables stay in
registers.
"""

from collections.abc import Callable
from typing import Any

from kolumn.core.deferred import register_jitable
from kolumn.core.errors import Code
from kolumn.cpu_fallback.fields import target
from kolumn.cpu_fallback.fields.target import Target, begin_columns, forget, put, put_record
from kolumn.cpu_fallback.machine.address import store8, store64
from kolumn.cpu_fallback.machine.arrays import Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import layouts, table, v2
from kolumn.formats.layout import Layout, chosen
from kolumn.formats.varint import short_varint
from kolumn.formats.words import known

_OK, _RECORD_END, _RECORD_LENGTH, _OFFSET_RANGE = int(Code.OK), int(Code.RECORD_END), int(Code.RECORD_LENGTH), int(Code.OFFSET_RANGE)
_RECORDS_MISSING, _RECORDS_REMAIN = int(Code.RECORDS_MISSING), int(Code.RECORDS_REMAIN)
_MOST = 0x7F
"""Largest zig-zag count of headers that has one byte."""


@register_jitable(forceinline=True)
def base_time(row: Int64s) -> tuple[int, int]:
    """What the timestamps of a batch's records count from, and a mask for their deltas: 0 if a broker set one time for all."""
    if row[table.TIMESTAMP_TYPE] == table.LOG_APPEND_TIME:
        return row[table.MAX_TIMESTAMP], 0
    return row[table.BASE_TIMESTAMP], -1


@register_jitable(forceinline=True)
def plain_records(
    row: Int64s, buf: int, where: int, end: int, buffer: int, origin: int, last: int, skip: int, to: Target, n: int, key: int, value: int,
    header: int,
) -> tuple[int, int, int, int]:  # fmt: skip
    """Decode records from ``where`` on into rows [n, last) until one is not plain, or beyond its batch: its position, n, key, value.
    Parameters are named as in `batch_records`."""
    # Only addresses are used, because positions would need one more register.
    address, end, moved = buf + where, buf + end, origin - buf
    offset = row[table.BASE_OFFSET]
    most = row[table.LAST_OFFSET] - offset
    timestamp, keep = base_time(row)
    while n < last:
        record = v2.plain_fields(0, address, end, skip)
        if record.next < 0 or record.offset_delta > most:
            break
        key, value = put_record(
            to, n, offset + record.offset_delta, timestamp + (record.timestamp_delta & keep), header, buffer, moved,
            record.key, record.key_length, record.value, record.value_length, key, value,
        )  # fmt: skip
        n += 1
        address = record.next
    return address - buf, n, key, value


@register_jitable
def headed_records(
    row: Int64s, buf: int, where: int, end: int, buffer: int, origin: int, last: int, skip: int, to: Target, n: int, key: int, value: int,
    heads: tuple[int, int, int],
) -> tuple[int, int, int, int, tuple[int, int, int]]:  # fmt: skip
    """Decode records from ``where`` on into rows [n, last) until one is not short, or has no headers: its position, n, key, value, heads.
    It also ends at a record with an offset beyond those of its batch. Parameters are named as in `batch_records`; ``heads`` are the
    used headers, and the bytes of their keys and of their values."""
    address, end, moved = buf + where, buf + end, origin - buf
    offset = row[table.BASE_OFFSET]
    most = row[table.LAST_OFFSET] - offset
    timestamp, keep = base_time(row)
    while n < last:
        record = v2.short_fields(0, address, end, skip)
        if record.next < 0 or record.offset_delta > most:
            break
        count, head, _ = short_varint(0, record.value + max(record.value_length, 0))
        # Memory is there for the headers of records that `v2.fields` accepts, so nothing is written for one with an impossible count.
        if count & 1 or count == 0 or count > _MOST or count >> 1 > record.next - head:
            break
        header, header_key, header_value = heads
        for _ in range(count >> 1):
            parsed = v2.plain_header(0, head, record.next)
            head = parsed.next
            if head < 0:
                break
            if to.header_ends:
                header_key = put(to.header_key, parsed.key, 0, 0, parsed.key_length, header, header_key)
                header_value = put(to.header_value, parsed.value, 0, 0, parsed.value_length, header, header_value)
                header += 1
        if head != record.next:
            break
        heads = header, header_key, header_value
        key, value = put_record(
            to, n, offset + record.offset_delta, timestamp + (record.timestamp_delta & keep), header, buffer, moved,
            record.key, record.key_length, record.value, record.value_length, key, value,
        )  # fmt: skip
        n += 1
        address = record.next
    return address - buf, n, key, value, heads


def _loop(layout: Layout) -> Callable[..., tuple[int, int, int]]:
    hop, message = layout.hop, layout.message
    assert hop is not None
    assert message is not None

    @register_jitable(forceinline=True)
    def loop(
        row: Int64s, buf: int, end: int, buffer: int, origin: int, count: int, base: int, to: Target, slots: Int64s
    ) -> tuple[int, int, int]:
        n, key, value = slots[target.ROWS], slots[target.KEY], slots[target.VALUE]
        append_time, wrapped, attributes = row[table.TIMESTAMP_TYPE] == table.LOG_APPEND_TIME, row[table.CODEC], row[table.ATTRIBUTES]
        where = 0
        for record in range(count):
            code, stop = hop(buf, where, end, wrapped)
            if code != _OK:
                return code, record, where
            parsed = message(buf, where, stop, wrapped, attributes, base, record)
            if parsed.code != _OK:
                return parsed.code, record, parsed.where
            timestamp = row[table.MAX_TIMESTAMP] if append_time and parsed.dated else parsed.timestamp
            if to.seconds:
                store64(to.seconds + 8 * n, parsed.seconds)
            if to.attributes:
                store8(to.attributes + n, parsed.attributes)
            key, value = put_record(
                to, n, parsed.offset, timestamp, slots[target.HEADERS], buffer, origin - buf,
                buf + parsed.key, parsed.key_length, buf + parsed.value, parsed.value_length, key, value,
            )  # fmt: skip
            n += 1
            where = stop
        slots[target.ROWS], slots[target.KEY], slots[target.VALUE] = n, key, value
        return _OK, -1, -1

    return loop


_made: list[Callable[..., Any]] = []
messages = chosen({number: _loop(layouts.LAYOUTS[number]) for number in (*layouts.MESSAGES, *layouts.SETS)}, _made)
"""Decodes the ``count`` messages of an entry: (code, record, position of the error). The first argument is the layout. The others are those
of `records.fields`. The write positions advance only if all messages of the entry are valid."""
known(_made)


@compiled
def fields(
    rows: Table, payload: Int64s, size: Int64s, base: Int64s, buffer: Int64s, origin: Int64s, records: Int64s, to: Target, slots: Int64s,
    headers: int, stop_at_error: bool,
) -> None:  # fmt: skip
    """Decode all batches without a code.

    ``rows``, ``payload``, ``size``, ``base``, ``records``: as after `count.count_records`. ``records`` is set to the number of rows
        written for each batch.
    ``buffer``, ``origin``: int64 arrays of n, for views: number of the buffer that holds the payload, and the payload's position in it.
    ``slots``: int64 array of `target.POSITIONS`; in and out: write position of each column, and which have had a null.
    ``headers``: number of record headers for which there is room.
    ``stop_at_error``: whether to stop after the first damaged batch.
    """
    begin_columns(to)
    for b in range(rows.shape[0]):
        if rows[b, table.CODE] == _OK:
            first = slots[target.ROWS]
            layout = rows[b, table.LAYOUT]
            if layouts.holds_records(layout):
                skip = layouts.attribute_bytes(layout)
                code, record, where = batch_records(rows[b], payload[b], size[b], buffer[b], origin[b], records[b], skip, to, slots)
            else:
                code, record, where = messages(layout, rows[b], payload[b], size[b], buffer[b], origin[b], records[b], base[b], to, slots)
            if code == _OK:
                records[b] = slots[target.ROWS] - first
                continue
            rows[b, table.CODE], rows[b, table.RECORD], rows[b, table.WHERE] = code, record, where
            forget(to.key, first, first + records[b])
            forget(to.value, first, first + records[b])
            if to.attributes:
                for row in range(first, first + records[b]):
                    store8(to.attributes + row, 0)
            if headers:
                forget(to.header_value, slots[target.HEADERS], headers)
        if stop_at_error:
            records[b:] = 0
            return
        records[b] = 0


@register_jitable(forceinline=True)
def batch_records(
    row: Int64s, buf: int, end: int, buffer: int, origin: int, count: int, skip: int, to: Target, slots: Int64s
) -> tuple[int, int, int]:
    """Decode the records of a batch of format 2, or 3 with ``skip`` as in `v2.fields`: (code, record, position of the error). ``slots``
    advances only if all records are valid."""
    n, key, value = slots[target.ROWS], slots[target.KEY], slots[target.VALUE]
    header, header_key, header_value = slots[target.HEADERS], slots[target.HEADER_KEY], slots[target.HEADER_VALUE]
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
            parsed = v2.record_header(buf, header_at, record.next)
            if parsed.code != _OK:
                return parsed.code, n - first, header_at
            if to.header_ends:
                header_key = put(to.header_key, buf + parsed.key, 0, 0, parsed.key_length, header, header_key)
                header_value = put(to.header_value, buf + parsed.value, 0, 0, parsed.value_length, header, header_value)
                header += 1
            header_at = parsed.next
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
    slots[target.ROWS], slots[target.KEY], slots[target.VALUE] = n, key, value
    slots[target.HEADERS], slots[target.HEADER_KEY], slots[target.HEADER_VALUE] = header, header_key, header_value
    return _OK, -1, -1
