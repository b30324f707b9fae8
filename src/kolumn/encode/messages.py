"""Rows become messages of formats 0 and 1: one entry each, or with a codec as wrappers around sets of them."""

import numpy as np

from kolumn.codecs import NONE, ZSTD
from kolumn.cpu_fallback.encode_messages import fill, split, wrap
from kolumn.encode.entries import Encoded, Settings, batch_rows, cuts, lay_out, place, whole
from kolumn.encode.table import ABSENT, Input
from kolumn.errors import ArgumentError
from kolumn.formats import legacy, table


def encode_messages(given: Input, how: Settings, last: bool) -> tuple[Encoded, int]:
    """Encode rows as messages; parameters and results as of `batches.encode_batches`.

    Raises
    ------
    ArgumentError
        What these formats can't hold: zstd, headers, control records, transactions. Producer ids, epochs and sequences of
        idempotent producers, leader epochs, and in format 0 timestamps are left out.
    """
    _check(given, how)
    if how.magic == 0:
        given.timestamp = np.full(given.records.rows, -1, np.int64)
        given.records = given.records._replace(timestamp=given.timestamp.ctypes.data)
        given.numbers.pop("timestampType", None)
    records = given.records
    given.numbers = {name: values for name, values in given.numbers.items() if name == "timestampType"}
    first, size = np.empty(records.rows, np.int64), np.empty(records.rows, np.int64)
    most = 1 if how.codec == NONE else how.batch_records
    count = split(records, how.magic, cuts(given), how.batch_bytes, most, first, size)
    first, size, done = whole(first, size, count, records.rows, last)
    rows = batch_rows(given, first, done, how)
    kinds = rows[:, table.TIMESTAMP_TYPE] << 3
    header = 0 if how.codec == NONE else legacy.message_size(how.magic, -1, 0)
    laid = lay_out(first, size, header, how.codec)
    fill(records, how.magic, how.magic == 1 and how.codec != NONE, kinds, first, done, laid.data.ctypes.data + laid.at)
    encoded = place(laid, rows, header, how)
    if how.codec != NONE:
        wrap(encoded.data.ctypes.data, encoded.rows, how.magic)
    return encoded, done


def _check(given: Input, how: Settings) -> None:
    if how.codec == ZSTD:
        raise ArgumentError(f"codec='zstd': format {how.magic} has none, gzip, snappy and lz4")
    for name, what in (("isControl", "control records"), ("isTransactional", "records of transactions")):
        values = given.numbers.get(name)
        if values is not None and (values != ABSENT[name]).any():
            raise ArgumentError(f"column {name!r}: format {how.magic} has no {what}; leave those rows out, or write magic=2")
    if given.headers:
        raise ArgumentError(
            f"column 'headers': {given.headers} headers, and format {how.magic} has none; drop the column, or write magic=2"
        )
