"""Encodes records as message sets of `formats.kip98_draft`."""

from kolumn.core.deferred import register_jitable
from kolumn.cpu_fallback.encode.messages import ArrowPayloads, RecordsToEncode, copy_payload, lengths, payload, rows_of
from kolumn.cpu_fallback.machine.address import load8, load64, store32
from kolumn.cpu_fallback.machine.arrays import Flags, Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import crc, kip98_draft, memory, table
from kolumn.formats.varint import uvarint_size

_LARGEST_DELTA = 2**31 - 2


@register_jitable
def _body(records: RecordsToEncode, row: int, delta: int) -> int:
    key, value = lengths(records, row)
    return kip98_draft.body_size(delta, key, value)


@compiled
def split(records: RecordsToEncode, cut: Flags, batch_bytes: int, batch_records: int, body: int, first: Int64s, size: Int64s) -> int:
    """Divide records into sets, and compute all sizes; parameters as for `batches.split`."""
    count, used, base = 0, 0, 0
    for row in range(records.rows):
        offset = load64(records.offset + 8 * row)
        inner = _body(records, row, min(offset - base, _LARGEST_DELTA))
        whole = uvarint_size(inner) + inner
        full = count == 0 or used + whole > batch_bytes or row - first[count - 1] >= batch_records
        if full or cut[row] or offset - base > _LARGEST_DELTA:
            if count > 0:
                size[count - 1] = used - kip98_draft.HEADER
            first[count] = row
            base, count, used, inner = offset, count + 1, kip98_draft.HEADER, _body(records, row, 0)
            whole = uvarint_size(inner) + inner
        used += whole
        store32(body + 4 * row, inner)
    if count > 0:
        size[count - 1] = used - kip98_draft.HEADER
    return count


@compiled
def measure(records: RecordsToEncode, first: Int64s, stop: int, rows: Table, body: int, size: Int64s) -> None:
    """Fill ``body`` and ``size`` as `split` does, for sets with given bounds; deltas are relative to the base offsets in ``rows``."""
    for b in range(first.shape[0]):
        start, end = rows_of(first, stop, b)
        size[b] = 0
        for row in range(start, end):
            inner = _body(records, row, load64(records.offset + 8 * row) - rows[b, table.BASE_OFFSET])
            store32(body + 4 * row, inner)
            size[b] += uvarint_size(inner) + inner


@register_jitable(forceinline=True)
def _put(column: ArrowPayloads, row: int, to: int) -> int:
    source, length = payload(column, row)
    if length > 0:
        copy_payload(to, source, length, column.stop)
    return to + max(length, 0)


@compiled
def fill(records: RecordsToEncode, control: int, first: Int64s, stop: int, rows: Table, to: Int64s) -> None:
    """Write the messages of sets. ``control`` is the address of a uint8 for each row, 1 for control messages; 0 if there are none. Others
    are as for `batches.fill`."""
    for b in range(first.shape[0]):
        start, end = rows_of(first, stop, b)
        at = to[b]
        for row in range(start, end):
            delta, moment = load64(records.offset + 8 * row) - rows[b, table.BASE_OFFSET], load64(records.timestamp + 8 * row)
            key_length, value_length = lengths(records, row)
            inner = kip98_draft.body_size(delta, key_length, value_length)
            marked = load8(control + row) if control else 0
            body = at + uvarint_size(inner)
            at = kip98_draft.put_message(0, at, inner, marked, moment, delta, key_length, value_length)
            at = _put(records.value, row, _put(records.key, row, at))
            memory.put32(0, at, crc.crc32(0, body, at))
            at += 4


@compiled
def seal(buf: int, rows: Table) -> None:
    """Write the headers of sets whose payloads are in place, and then their checksums; parameters as for `batches.seal`."""
    for b in range(rows.shape[0]):
        pos, size = rows[b, table.POSITION], rows[b, table.SIZE]
        kip98_draft.put_header(buf, pos, size, rows[b])
        memory.put32(buf, pos + 12, crc.crc32(buf, pos + kip98_draft.CRC_FROM, pos + size))
