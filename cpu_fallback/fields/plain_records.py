"""Decodes the records of a batch that `v2.plain_fields` can read, in a loop so small that its variables stay in registers."""

from kolumn.cpu_fallback.fields.target import Target, put_record
from kolumn.cpu_fallback.machine.arrays import Int64s
from kolumn.formats import table, v2
from kolumn.machine_code.deferred import register_jitable


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
