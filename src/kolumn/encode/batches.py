"""Rows become batches of format 2."""

import numpy as np

from kolumn.cpu_fallback.encode_batches import fill, seal, split
from kolumn.encode.entries import Encoded, Settings, batch_rows, cuts, lay_out, place, whole
from kolumn.encode.table import Input
from kolumn.formats import v2


def encode_batches(given: Input, how: Settings, last: bool) -> tuple[Encoded, int]:
    """Encode what makes whole batches.

    Parameters
    ----------
    last : bool
        Whether no rows follow; if some do, the last batch waits for them.

    Returns
    -------
    encoded : Encoded
    done : int
        How many of the rows are in it.

    Raises
    ------
    ArgumentError
        A record that no batch can hold.
    """
    records = given.records
    body, first, size = np.empty(records.rows, np.int32), np.empty(records.rows, np.int64), np.empty(records.rows, np.int64)
    count = split(records, cuts(given), how.batch_bytes, how.batch_records, body.ctypes.data, first, size)
    first, size, done = whole(first, size, count, records.rows, last)
    laid = lay_out(first, size, v2.HEADER, how.codec)
    fill(records, first, done, body.ctypes.data, laid.data.ctypes.data + laid.at)
    encoded = place(laid, batch_rows(given, first, done, how), v2.HEADER, how)
    seal(encoded.data.ctypes.data, encoded.rows)
    return encoded, done
