"""Decodes the records of a batch that `v2.plain_fields` can read, in a loop so small that its variables stay in registers.

Decodes the records of a batch that have a few short headers, as most records with headers have.
"""

from kolumn.cpu_fallback.fields.put import put
from kolumn.cpu_fallback.fields.target import Target, put_record
from kolumn.cpu_fallback.machine.arrays import Int64s
from kolumn.formats import table, v2
from kolumn.formats.machine_code.deferred import register_jitable
from kolumn.formats.varint import short_varint


@register_jitable(forceinline=True)
def base_time(row: Int64s) -> tuple[int, int]:
    """What the timestamps of a batch's records count from, and a mask for their deltas: 0 if a broker set one time for all."""
    if row[table.TIMESTAMP_TYPE] == table.LOG_APPEND_TIME:
        return row[table.MAX_TIMESTAMP], 0
    return row[table.BASE_TIMESTAMP], -1


@register_jitable(forceinline=True)
def plain_records(
    row: Int64s,
    buf: int,
    where: int,
    end: int,
    buffer: int,
    origin: int,
    last: int,
    skip: int,
    to: Target,
    n: int,
    key: int,
    value: int,
    header: int,
) -> tuple[int, int, int, int]:
    """Decode records from ``where`` on into rows [n, last) until one is not plain, or beyond its batch: its position, n, key, value.

    Parameters are named as in `records.batch_records`.
    """
    # Only addresses are used, because positions would need one more register.
    at, end, moved = buf + where, buf + end, origin - buf
    offset = row[table.BASE_OFFSET]
    most = row[table.LAST_OFFSET] - offset
    timestamp, keep = base_time(row)
    while n < last:
        record = v2.plain_fields(0, at, end, skip)
        if record.next < 0 or record.offset_delta > most:
            break
        key, value = put_record(
            to, n, offset + record.offset_delta, timestamp + (record.timestamp_delta & keep), header, buffer, moved,
            record.key, record.key_length, record.value, record.value_length, key, value,
        )  # fmt: skip
        n += 1
        at = record.next
    return at - buf, n, key, value


_MOST = 0x7F


@register_jitable
def headed_records(
    row: Int64s,
    buf: int,
    where: int,
    end: int,
    buffer: int,
    origin: int,
    last: int,
    skip: int,
    to: Target,
    n: int,
    key: int,
    value: int,
    heads: tuple[int, int, int],
) -> tuple[int, int, int, int, tuple[int, int, int]]:
    """Decode records from ``where`` on into rows [n, last) until one is not short, or has no headers: its position, n, key, value, heads.

    It also ends at a record with an offset beyond those of its batch.
    Parameters are named as in `records.batch_records`; ``heads`` are the used headers, and the bytes of their keys and of their values.
    """
    at, end, moved = buf + where, buf + end, origin - buf
    offset = row[table.BASE_OFFSET]
    most = row[table.LAST_OFFSET] - offset
    timestamp, keep = base_time(row)
    while n < last:
        record = v2.short_fields(0, at, end, skip)
        if record.next < 0 or record.offset_delta > most:
            break
        count, head, _ = short_varint(0, record.value + max(record.value_length, 0))
        # Memory is there for the headers of records that `v2.fields` accepts, so nothing is written for one with an impossible count.
        if count & 1 or count == 0 or count > _MOST or count >> 1 > record.next - head:
            break
        header, header_key, header_value = heads
        for _ in range(count >> 1):
            one = v2.plain_header(0, head, record.next)
            head = one.next
            if head < 0:
                break
            if to.header_ends:
                header_key = put(to.header_key, one.key, 0, 0, one.key_length, header, header_key)
                header_value = put(to.header_value, one.value, 0, 0, one.value_length, header, header_value)
                header += 1
        if head != record.next:
            break
        heads = header, header_key, header_value
        key, value = put_record(
            to, n, offset + record.offset_delta, timestamp + (record.timestamp_delta & keep), header, buffer, moved,
            record.key, record.key_length, record.value, record.value_length, key, value,
        )  # fmt: skip
        n += 1
        at = record.next
    return at - buf, n, key, value, heads
