"""Rows become messages of formats 0 and 1 and of KIP-87: each is one entry, or with a codec several are in a wrapper."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Bytes, Int64s
from kolumn.core.errors import ArgumentError
from kolumn.core.recycle import take
from kolumn.cpu_fallback.encode.messages import fill, measure, put_singles, split, wrap
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.formats import kip87, layouts, legacy
from kolumn.formats.codecs import NONE, ZSTD
from kolumn.formats.entries import Entries
from kolumn.writers.entries import Encoded, EntrySettings, Groups, batch_rows, cuts, lay_out, place, refuse_large, whole
from kolumn.writers.table import ABSENT, RecordsIn


def group(given: RecordsIn, how: EntrySettings, last: bool) -> Groups:
    """Decide which records share a wrapper; see `entries.whole`.

    Raises `ArgumentError` for zstd, headers, control records and transactions. Producer ids, epochs and sequences of idempotent producers,
    leader epochs, and in format 0 timestamps are left out without an error.
    """
    check(given, how)
    if how.magic == 0:
        given.timestamp = np.full(given.records.rows, -1, np.int64)
        given.records = given.records._replace(timestamp=given.timestamp.ctypes.data)
        given.numbers.pop("timestampType", None)
    records = given.records
    given.numbers = {name: values for name, values in given.numbers.items() if name == "timestampType"}
    first, size = np.empty(records.rows, np.int64), np.empty(records.rows, np.int64)
    most = 1 if how.codec == NONE else how.batch_records
    count = split(records, how.magic, cuts(given), how.batch_bytes, most, first, size)
    return whole(given, first, size, count, last)


def regroup(given: RecordsIn, first: Int64s, entries: Entries, how: EntrySettings) -> Groups:
    """Groups for given message sets: the first row of each, and the wrapper's header fields as rows of the batch table."""
    size = np.empty(len(first), np.int64)
    measure(given.records, how.magic, first, given.records.rows, size)
    return Groups(first, size, given.records.rows, entries, None)


def header_sizes(entries: Entries, size: Int64s, how: EntrySettings) -> Int64s:
    """Bytes of the wrappers around messages; messages without a codec have none."""
    return np.where(entries.codec == NONE, 0, legacy.message_size(how.magic, -1, 0))


def put(given: RecordsIn, groups: Groups, how: EntrySettings) -> Encoded:
    """Write messages and wrappers.

    Raises `ArgumentError` if a record is too large, or if one of KIP-87 has no value and is not a tombstone.
    """
    marks = given.once("tombstones", _tombstones) if layouts.LAYOUTS[how.layout].tombstone_bit else None
    if groups.entries is None and how.codec == NONE and len(groups.first):
        return _singles(given, groups, how, marks)
    entries = groups.rows(given, how)
    laid = lay_out(groups, entries, header_sizes(entries, groups.size, how))
    to = laid.data.ctypes.data + laid.at
    fill(given.records, how.magic, 0 if marks is None else marks.ctypes.data, groups.first, groups.stop, entries.array, to)
    encoded = place(laid, entries, header_sizes, how)
    wrap(encoded.data.ctypes.data, encoded.entries.array, how.magic)
    return encoded


def _singles(given: RecordsIn, groups: Groups, how: EntrySettings, marks: Bytes | None) -> Encoded:
    """Write messages without a codec: there are many of them, so each and its row of the batch table are written in one loop."""
    refuse_large(groups, 0)
    size = int(groups.size.sum())
    room, _ = take(size + PAD)
    data, entries, kinds = np.frombuffer(room, np.uint8), Entries.room(len(groups.first)), given.numbers.get("timestampType")
    own = batch_rows(given, groups.first[:1], int(groups.first[0]) + 1, how)
    put_singles(
        given.records, how.magic, 0 if marks is None else marks.ctypes.data, 0 if kinds is None else kinds.ctypes.data,
        int(groups.first[0]), entries.array, own.array[0], data.ctypes.data,
    )  # fmt: skip
    return Encoded(data[:size], entries)


def check(given: RecordsIn, how: EntrySettings, control: bool = False) -> None:
    """Raise an error for records that messages cannot store; with ``control``, control records are allowed, as in some drafts."""
    name = layouts.FORMAT_NAMES[how.format] if how.layout != legacy.LAYOUT.number else str(how.magic)
    if how.codec == ZSTD:
        raise ArgumentError(f"codec='zstd': format {name} has the codecs none, gzip, snappy and lz4")
    for column, what in (("isControl", "control records"), ("isTransactional", "records of transactions")):
        values = given.numbers.get(column)
        if values is not None and (values != ABSENT[column]).any() and not (control and column == "isControl"):
            raise ArgumentError(f"column {column!r}: format {name} has no {what}; leave those rows out, or write magic=2")
    if given.headers:
        raise ArgumentError(f"column 'headers': {given.headers} headers, and format {name} has none; drop the column, or write magic=2")


def _tombstones(given: RecordsIn) -> Bytes:
    """The tombstone bit of each message: from the column ``tombstone``, or where it is null, set if there is no value."""
    rows, names = given.records.rows, given.table.schema.names
    empty = pc.is_null(given.table["value"]) if "value" in names else pa.array(np.ones(rows, bool))
    if "tombstone" not in names:
        flags = empty
    else:
        flags = pc.coalesce(given.table["tombstone"].cast(pa.bool_()), empty)
        wrong = pc.and_not(empty, flags)
        if pc.any(wrong).as_py() and not given.from_log:
            row = pc.index(wrong, True).as_py()
            raise ArgumentError(
                f"column 'tombstone': the record at offset {given.offset[row]} has no value and is not a tombstone; readers of "
                "older formats would take it for one; give it a value, or leave tombstone null"
            )
    return np.asarray(flags).astype(np.uint8) * np.uint8(kip87.TOMBSTONE)
