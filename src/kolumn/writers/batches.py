"""Rows become batches of formats 2 and 3."""

import numpy as np

from kolumn.core.arrays import Int64s
from kolumn.cpu_fallback.encode.batches import compact_headers, fill, measure, seal, split
from kolumn.formats import layouts, v2
from kolumn.formats.entries import Entries
from kolumn.writers.entries import Encoded, EntrySettings, Groups, cuts, lay_out, place, whole
from kolumn.writers.table import RecordsIn


def _skip(how: EntrySettings) -> int:
    return layouts.attribute_bytes(how.layout)


def group(given: RecordsIn, how: EntrySettings, last: bool) -> Groups:
    """Decide which records share a batch; see `entries.whole`."""
    records = given.records
    body, first, size = np.empty(records.rows, np.int32), np.empty(records.rows, np.int64), np.empty(records.rows, np.int64)
    count = split(records, _skip(how), cuts(given), how.batch_bytes, how.batch_records, body.ctypes.data, first, size)
    return whole(given, first, size, count, last, body)


def regroup(given: RecordsIn, first: Int64s, entries: Entries, how: EntrySettings) -> Groups:
    """Groups for given batches: the first row of each, and the header fields as rows of the batch table."""
    stop = given.records.rows
    body, size = np.empty(stop, np.int32), np.empty(len(first), np.int64)
    measure(given.records, _skip(how), first, stop, entries.array, body.ctypes.data, size)
    return Groups(first, size, stop, entries, body)


def put(given: RecordsIn, groups: Groups, how: EntrySettings) -> Encoded:
    """Write batches; raises `ArgumentError` if a record is too large."""
    assert groups.body is not None
    entries = groups.rows(given, how)
    laid = lay_out(groups, entries, header_sizes(entries, groups.size, how))
    to = laid.data.ctypes.data + laid.at
    fill(given.records, _skip(how), groups.first, groups.stop, entries.array, groups.body.ctypes.data, to)
    encoded = place(laid, entries, header_sizes, how)
    seal(encoded.data.ctypes.data, encoded.entries.array)
    return encoded


def header_sizes(entries: Entries, size: Int64s, how: EntrySettings) -> Int64s:
    """Bytes of the headers of batches whose records have ``size`` bytes."""
    headers = np.full(len(entries), v2.HEADER, np.int64)
    if len(entries) and entries.layout[0] != v2.LAYOUT.number:
        compact_headers(entries.array, size, headers)
    return headers
