"""Counts the records of a run of batches, so that memory for them is allocated before `fields` writes."""

from kolumn.core.errors import Code
from kolumn.cpu_fallback.machine.arrays import Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import layouts, table, v2

_OK = int(Code.OK)
_RECORD_COUNT, _RECORDS_MISSING = int(Code.RECORD_COUNT), int(Code.RECORDS_MISSING)


@compiled
def count_records(rows: Table, payload: Int64s, size: Int64s, format: int, check_crcs: bool, records: Int64s, base: Int64s) -> None:
    """Count the records of each batch without a code; a batch with an impossible count gets a code.

    ``rows``: int64 array of shape (n, `table.WIDTH`).
    ``payload``, ``size``: int64 arrays of n, address and size in bytes of the decompressed records or inner messages.
    ``format``: index into `layouts.FORMATS`.
    ``check_crcs``: whether to compare the CRC-32 of inner messages too.
    ``records``: int64 array of n; out: number of records of the batch, 0 with a code.
    ``base``: int64 array of n; out: number to add to the offsets of the messages of a wrapper or a set.
    """
    for b in range(rows.shape[0]):
        row = rows[b]
        records[b] = 0
        base[b] = 0
        if row[table.CODE] != _OK:
            continue
        if layouts.is_set(row[table.LAYOUT]):
            base[b] = row[table.BASE_OFFSET]
            row[table.CODE], records[b], where = layouts.count(row[table.LAYOUT], payload[b], size[b], check_crcs)
            if row[table.CODE] != _OK:
                row[table.RECORD], row[table.WHERE], records[b] = records[b], where, 0
        elif layouts.holds_records(row[table.LAYOUT]):
            if row[table.COUNT] < 0:
                row[table.CODE] = _RECORD_COUNT
            elif row[table.COUNT] > size[b] // layouts.smallest_record(row[table.LAYOUT]):
                row[table.CODE] = _RECORDS_MISSING
            else:
                records[b] = row[table.COUNT]
        elif row[table.CODEC] == 0:
            records[b] = 1
        else:
            highest = layouts.highest_inner_magic(format, row[table.LAYOUT])
            count, last, code, where = layouts.inner_messages(payload[b], size[b], row[table.LAYOUT], highest, check_crcs)
            if code == _OK:
                code, base[b] = layouts.base_of(
                    row[table.LAYOUT], row[table.MAGIC], row[table.BASE_OFFSET], row[table.LAST_OFFSET], row[table.COUNT], last, count
                )
                where = -1
            row[table.CODE] = code
            if code == _OK:
                records[b] = count
            else:
                row[table.RECORD], row[table.WHERE] = count, where


@compiled
def count_headers(rows: Table, payload: Int64s, size: Int64s, records: Int64s) -> int:
    """Upper bound of the record headers in the batches that have no code after `count_records`; messages have no headers."""
    total = 0
    for b in range(rows.shape[0]):
        if rows[b, table.CODE] == _OK and layouts.holds_records(rows[b, table.LAYOUT]):
            at = 0
            skip = layouts.attribute_bytes(rows[b, table.LAYOUT])
            for _ in range(records[b]):
                record = v2.fields(payload[b], at, size[b], skip)
                if record.code != _OK:
                    break
                at = record.next
                total += record.header_count
    return total
