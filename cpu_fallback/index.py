"""How many rows a run of batches will give: what has to be allocated before `fields` writes."""

from typing import Any

from numba.extending import register_jitable

from kolumn.cpu_fallback.scalars import compiled
from kolumn.errors import Code
from kolumn.formats import crc, kip98_draft, layouts, legacy, memory, table, v2, v3_compact
from kolumn.formats.entry import magic_at

_OK, _TRUNCATED = int(Code.OK), int(Code.TRUNCATED)
_RECORD_COUNT, _RECORDS_MISSING = int(Code.RECORD_COUNT), int(Code.RECORDS_MISSING)
_INNER_MAGIC, _INNER_COMPRESSED, _INNER_CRC = int(Code.INNER_MAGIC), int(Code.INNER_COMPRESSED), int(Code.INNER_CRC)
_NO_INNER, _INNER_OFFSET = int(Code.NO_INNER), int(Code.INNER_OFFSET)
_RECORD_CRC, _TAG_COUNT = int(Code.RECORD_CRC), int(Code.TAG_COUNT)
_MAGIC, _CODEC, _COUNT, _CODE, _RECORD, _WHERE = table.MAGIC, table.CODEC, table.COUNT, table.CODE, table.RECORD, table.WHERE
_BASE_OFFSET, _LAST_OFFSET, _LAYOUT, _UNKNOWN = table.BASE_OFFSET, table.LAST_OFFSET, table.LAYOUT, table.UNKNOWN
_CRC_FROM, _SMALLEST_RECORD, _SMALLEST_BARE = legacy.CRC_FROM, v2.SMALLEST_RECORD, v3_compact.SMALLEST_RECORD
_V3_BARE, _ENRICHED, _KIP98 = layouts.V3_BARE, layouts.ENRICHED, layouts.KIP98


@compiled
def index(rows: Any, payload: Any, size: Any, format: int, check_crcs: bool, records: Any, base: Any) -> None:
    """Count the records of each batch without a code; batches whose count can't be true get one.

    Parameters
    ----------
    rows : int64 array of shape (n, `table.WIDTH`)
    payload, size : int64 arrays of n
        Address and bytes of the (inflated) records or inner messages.
    format : int
        Of `layouts`.
    check_crcs : bool
        Compare the CRC-32 of inner messages too.
    records : int64 array of n
        Out: how many rows the batch gives at most.
    base : int64 array of n
        Out: what is added to the inner offsets of a wrapper.
    """
    for b in range(rows.shape[0]):
        row = rows[b]
        records[b] = 0
        base[b] = 0
        if row[_CODE] != _OK:
            continue
        if row[_LAYOUT] == _KIP98:
            row[_CODE], records[b], where = _set_messages(payload[b], size[b], check_crcs)
            if row[_CODE] != _OK:
                row[_RECORD], row[_WHERE], records[b] = records[b], where, 0
        elif not layouts.holds_messages(row[_LAYOUT]):
            smallest = _SMALLEST_BARE if row[_LAYOUT] == _V3_BARE else _SMALLEST_RECORD
            if row[_COUNT] < 0:
                row[_CODE] = _RECORD_COUNT
            elif row[_COUNT] > size[b] // smallest:
                row[_CODE] = _RECORDS_MISSING
            else:
                records[b] = row[_COUNT]
        elif row[_CODEC] == 0:
            records[b] = 1
        else:
            highest = layouts.highest_inner_magic(format, row[_LAYOUT])
            count, last, code, where = _inner_messages(payload[b], size[b], row[_LAYOUT], highest, check_crcs)
            if code == _OK:
                code, base[b] = _base_of(row, last, count)
                where = -1
            row[_CODE] = code
            if code == _OK:
                records[b] = count
            else:
                row[_RECORD], row[_WHERE] = count, where


@register_jitable
def _inner_messages(buf: int, end: int, layout: int, highest: int, check_crcs: bool) -> tuple[int, int, int, int]:
    """Hop through the inner messages: (count, offset field of the last one, code, where)."""
    at = 0
    count = 0
    last = 0
    while True:
        code, following = legacy.inner(buf, at, end)
        if code == _TRUNCATED:
            break
        if code != _OK:
            return count, last, code, following
        if magic_at(buf, at) > highest or (layout == _ENRICHED and magic_at(buf, at) == 0):
            return count, last, _INNER_MAGIC, at + 16
        attributes = memory.load8(buf, at + 17)
        if attributes & 7 != 0 and (layout != _ENRICHED or attributes & 8 == 0):
            return count, last, _INNER_COMPRESSED, at + 17
        if check_crcs and crc.crc32(buf, at + _CRC_FROM, following) != memory.u32_at(buf, at + 12):
            return count, last, _INNER_CRC, at + 12
        last = memory.i64_at(buf, at)
        count += 1
        at = following
    if count == 0:
        return 0, 0, _NO_INNER, -1
    return count, last, _OK, -1


@register_jitable
def _base_of(row: Any, last: int, count: int) -> tuple[int, int]:
    """What to add to inner offsets (``DeepRecordsIterator`` of Kafka): the wrapper's magic decides, not the inner one's."""
    if row[_LAYOUT] == _ENRICHED:
        tells = row[_COUNT] != _UNKNOWN and row[_COUNT] != count
        return _TAG_COUNT if tells else _OK, row[_BASE_OFFSET]
    if row[_MAGIC] == 0 or row[_LAST_OFFSET] == 0:
        return _OK, 0
    if row[_LAST_OFFSET] < last:
        return _INNER_OFFSET, 0
    return _OK, row[_LAST_OFFSET] - last


@register_jitable
def _set_messages(buf: int, end: int, check_crcs: bool) -> tuple[int, int, int]:
    """Hop through the messages of a set of `kip98_draft`: (code, count, where)."""
    at = 0
    count = 0
    while at < end:
        code, body, following = kip98_draft.hop(buf, at, end)
        if code != _OK:
            return code, count, at
        if check_crcs and crc.crc32(buf, body, following - 4) != memory.u32_at(buf, following - 4):
            return _RECORD_CRC, count, following - 4
        count += 1
        at = following
    return _OK, count, -1


@compiled
def count_headers(rows: Any, payload: Any, size: Any, records: Any) -> int:
    """Upper bound of the record headers in the batches that `index` let through (messages have none)."""
    total = 0
    for b in range(rows.shape[0]):
        if rows[b, _CODE] == _OK and layouts.has_castagnoli(rows[b, _LAYOUT]):
            at = 0
            skip = 0 if rows[b, _LAYOUT] == _V3_BARE else 1
            for _ in range(records[b]):
                result = v2.fields(payload[b], at, size[b], skip)
                if result[0] != _OK:
                    break
                at = result[1]
                total += result[9]
    return total
