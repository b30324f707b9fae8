"""Rows become the message sets of the KIP-98 draft."""

import numpy as np

from kolumn.core.arrays import Bytes, Int64s
from kolumn.core.errors import ArgumentError
from kolumn.cpu_fallback.encode.sets import fill, measure, seal, split
from kolumn.formats import kip98_draft
from kolumn.formats.codecs import ZSTD
from kolumn.formats.entries import Entries
from kolumn.writers.entries import Encoded, EntrySettings, Groups, cuts, lay_out, place, whole
from kolumn.writers.table import RecordsIn


def group(given: RecordsIn, how: EntrySettings, last: bool) -> Groups:
    """Decide which records share a set; see `entries.whole`.

    Raises `ArgumentError` for zstd, headers, and control records whose key has no type. Leader epochs are left out without an error.
    """
    if how.codec == ZSTD:
        raise ArgumentError("codec='zstd': format kip98-draft has the codecs none, gzip, snappy and lz4")
    if given.headers:
        raise ArgumentError(f"column 'headers': {given.headers} headers, and format kip98-draft has none; drop the column")
    given.numbers.pop("leaderEpoch", None)
    records = given.records
    body, first, size = np.empty(records.rows, np.int32), np.empty(records.rows, np.int64), np.empty(records.rows, np.int64)
    count = split(records, cuts(given), how.batch_bytes, how.batch_records, body.ctypes.data, first, size)
    return whole(given, first, size, count, last, body)


def regroup(given: RecordsIn, first: Int64s, entries: Entries, how: EntrySettings) -> Groups:
    """Groups for given sets: the first row of each, and the header fields as rows of the batch table."""
    stop = given.records.rows
    body, size = np.empty(stop, np.int32), np.empty(len(first), np.int64)
    measure(given.records, first, stop, entries.array, body.ctypes.data, size)
    return Groups(first, size, stop, entries, body)


def header_sizes(entries: Entries, size: Int64s, how: EntrySettings) -> Int64s:
    """Bytes of the headers of sets."""
    return np.full(len(entries), kip98_draft.HEADER, np.int64)


def put(given: RecordsIn, groups: Groups, how: EntrySettings) -> Encoded:
    """Write sets; raises `ArgumentError` if a record is too large for a set."""
    entries = groups.rows(given, how)
    laid = lay_out(groups, entries, header_sizes(entries, groups.size, how))
    control = given.numbers.get("isControl")
    marks = None if control is None else np.ascontiguousarray(control.astype(np.uint8))
    if marks is not None:
        _check_keys(given, marks)
    to = laid.data.ctypes.data + laid.at
    fill(given.records, 0 if marks is None else marks.ctypes.data, groups.first, groups.stop, entries.array, to)
    encoded = place(laid, entries, header_sizes, how)
    seal(encoded.data.ctypes.data, encoded.entries.array)
    return encoded


def _check_keys(given: RecordsIn, marks: Bytes) -> None:
    for row in np.flatnonzero(marks).tolist():
        key = given.table["key"][row].as_py() if "key" in given.table.schema.names else None
        if key is None or len(key) < 4:
            raise ArgumentError(f"column 'key': the control record at offset {given.offset[row]} needs a version and a type, 4 bytes")
