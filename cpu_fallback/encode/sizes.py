"""Counts the bytes of entries by purpose from the lengths of their fields, for `kolumn.space`: nothing is encoded."""

from kolumn.cpu_fallback.encode.batches import headers_of
from kolumn.cpu_fallback.encode.messages import RecordsToEncode, lengths, payload, rows_of
from kolumn.cpu_fallback.machine.address import load64
from kolumn.cpu_fallback.machine.arrays import Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import kip98_draft, table
from kolumn.formats.varint import uvarint_size, varint_size

KEYS, VALUES, HEADERS, OFFSETS, TIMESTAMPS, LENGTHS, WIDTH = range(7)
"""Columns of what is counted: bytes of keys, of values, and so on. ``LENGTHS`` includes the numbers of headers. And how many they are."""


@compiled
def count_batches(records: RecordsToEncode, skip: int, first: Int64s, stop: int, rows: Table, counts: Table) -> None:
    """Count the bytes of the records of batches of formats 2 and 3; ``skip``, ``first`` and ``stop`` are as for `batches.fill`. Bytes are
    added to ``counts``: to its first row for batches without a codec, to the second for those with one. With LogAppendTime a batch does not
    tell the deltas that its records have; each is counted as one byte."""
    for b in range(first.shape[0]):
        start, stop_row = rows_of(first, stop, b)
        base, time, packed = rows[b, table.BASE_OFFSET], rows[b, table.BASE_TIMESTAMP], 1 if rows[b, table.CODEC] != 0 else 0
        appended = rows[b, table.TIMESTAMP_TYPE] == table.LOG_APPEND_TIME
        for row in range(start, stop_row):
            key, value = lengths(records, row)
            moment = varint_size(0 if appended else load64(records.timestamp + 8 * row) - time)
            offset = varint_size(load64(records.offset + 8 * row) - base)
            begin, end = headers_of(records, row)
            own, counted = 0, varint_size(key) + varint_size(value) + varint_size(end - begin)
            for i in range(begin, end):
                name, content = payload(records.header_key, i)[1], payload(records.header_value, i)[1]
                own += max(name, 0) + max(content, 0)
                counted += varint_size(name) + varint_size(content)
            key, value = max(key, 0), max(value, 0)
            counts[packed, KEYS] += key
            counts[packed, VALUES] += value
            counts[packed, HEADERS] += own
            counts[packed, OFFSETS] += offset
            counts[packed, TIMESTAMPS] += moment
            counts[packed, LENGTHS] += counted + varint_size(skip + moment + offset + counted + key + value + own)


@compiled
def count_sets(records: RecordsToEncode, first: Int64s, stop: int, rows: Table, counts: Table) -> None:
    """Count the bytes of the messages of sets of the KIP-98 draft; parameters as for `count_batches`."""
    for b in range(first.shape[0]):
        start, end = rows_of(first, stop, b)
        packed = 1 if rows[b, table.CODEC] != 0 else 0
        for row in range(start, end):
            key, value = lengths(records, row)
            delta = load64(records.offset + 8 * row) - rows[b, table.BASE_OFFSET]
            inner = kip98_draft.body_size(delta, key, value)
            counts[packed, KEYS] += max(key, 0)
            counts[packed, VALUES] += max(value, 0)
            counts[packed, OFFSETS] += uvarint_size(delta)
            counts[packed, LENGTHS] += uvarint_size(inner) + (uvarint_size(max(key, 0)) if key >= 0 and value >= 0 else 0)


@compiled
def count_payloads(records: RecordsToEncode, first: Int64s, stop: int, rows: Table, counts: Table) -> None:
    """Count the bytes of the keys and values of messages; parameters as for `count_batches`."""
    for b in range(first.shape[0]):
        start, end = rows_of(first, stop, b)
        packed, keys, values = 1 if rows[b, table.CODEC] != 0 else 0, 0, 0
        for row in range(start, end):
            key, value = lengths(records, row)
            keys += max(key, 0)
            values += max(value, 0)
        counts[packed, KEYS] += keys
        counts[packed, VALUES] += values
