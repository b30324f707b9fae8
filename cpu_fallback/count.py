"""Counts the records of a run of batches, so that memory for them is allocated before `fields` writes."""

from kolumn.cpu_fallback.machine.arrays import Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.errors import Code
from kolumn.formats import inner, layouts, table, v2

_OK = int(Code.OK)
_RECORD_COUNT, _RECORDS_MISSING = int(Code.RECORD_COUNT), int(Code.RECORDS_MISSING)
_MAGIC, _CODEC, _COUNT, _CODE, _RECORD, _WHERE = table.MAGIC, table.CODEC, table.COUNT, table.CODE, table.RECORD, table.WHERE
_BASE_OFFSET, _LAST_OFFSET, _LAYOUT = table.BASE_OFFSET, table.LAST_OFFSET, table.LAYOUT


@compiled
def count_records(rows: Table, payload: Int64s, size: Int64s, format: int, check_crcs: bool, records: Int64s, base: Int64s) -> None:
    """Count the records of each batch without a code; a batch with an impossible count gets a code.

    Parameters
    ----------
    rows : int64 array of shape (n, `table.WIDTH`)
    payload, size : int64 arrays of n
        Address and size in bytes of the decompressed records or inner messages.
    format : int
        Index into `layouts.FORMATS`.
    check_crcs : bool
        Whether to compare the CRC-32 of inner messages too.
    records : int64 array of n
        Out: number of records of the batch, 0 with a code.
    base : int64 array of n
        Out: number to add to the offsets of the messages of a wrapper or a set.
    """
    for b in range(rows.shape[0]):
        row = rows[b]
        records[b] = 0
        base[b] = 0
        if row[_CODE] != _OK:
            continue
        if layouts.is_set(row[_LAYOUT]):
            base[b] = row[_BASE_OFFSET]
            row[_CODE], records[b], where = layouts.count(row[_LAYOUT], payload[b], size[b], check_crcs)
            if row[_CODE] != _OK:
                row[_RECORD], row[_WHERE], records[b] = records[b], where, 0
        elif layouts.holds_records(row[_LAYOUT]):
            if row[_COUNT] < 0:
                row[_CODE] = _RECORD_COUNT
            elif row[_COUNT] > size[b] // layouts.smallest_record(row[_LAYOUT]):
                row[_CODE] = _RECORDS_MISSING
            else:
                records[b] = row[_COUNT]
        elif row[_CODEC] == 0:
            records[b] = 1
        else:
            highest = layouts.highest_inner_magic(format, row[_LAYOUT])
            count, last, code, where = inner.inner_messages(payload[b], size[b], row[_LAYOUT], highest, check_crcs)
            if code == _OK:
                code, base[b] = inner.base_of(row[_LAYOUT], row[_MAGIC], row[_BASE_OFFSET], row[_LAST_OFFSET], row[_COUNT], last, count)
                where = -1
            row[_CODE] = code
            if code == _OK:
                records[b] = count
            else:
                row[_RECORD], row[_WHERE] = count, where


@compiled
def count_headers(rows: Table, payload: Int64s, size: Int64s, records: Int64s) -> int:
    """Upper bound of the record headers in the batches that have no code after `count_records`; messages have no headers."""
    total = 0
    for b in range(rows.shape[0]):
        if rows[b, _CODE] == _OK and layouts.holds_records(rows[b, _LAYOUT]):
            at = 0
            skip = layouts.attribute_bytes(rows[b, _LAYOUT])
            for _ in range(records[b]):
                record = v2.fields(payload[b], at, size[b], skip)
                if record.code != _OK:
                    break
                at = record.next
                total += record.header_count
    return total
