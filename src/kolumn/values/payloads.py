"""Where the bytes of each row of a column are, in memory."""

import numpy as np
import pyarrow as pa

from kolumn.arrays import Flags, Int64s
from kolumn.errors import ArgumentError

_OFFSETS = {pa.binary(): np.int32, pa.string(): np.int32, pa.large_binary(): np.int64, pa.large_string(): np.int64}
_VIEWS = pa.binary_view(), pa.string_view()
_INLINE = 12
"""Bytes of the longest value that a view contains itself."""


def payloads_of(column: pa.Array, at: Int64s, length: Int64s) -> None:
    """Set the address of each value of a column in host memory, valid as long as the column is, and its bytes; 0 and -1 for null.

    Raises `ArgumentError` for a type that is neither binary, large_binary, binary_view nor strings likewise.
    """
    n = len(column)
    if column.type not in _OFFSETS and column.type not in _VIEWS:
        raise ArgumentError(f"a column of typed values: expected bytes, found {column.type}")
    if n == 0:
        return
    if column.type in _OFFSETS:
        _, ends, data = column.buffers()
        found = np.frombuffer(ends, _OFFSETS[column.type], n + 1, column.offset * np.dtype(_OFFSETS[column.type]).itemsize)
        np.add(found[:-1], np.int64(0 if data is None else data.address), out=at)
        np.subtract(found[1:], found[:-1], out=length)
    else:
        _views(column, at, length)
    if column.null_count:
        null = ~_valid(column)
        at[null], length[null] = 0, -1


def _views(column: pa.Array, at: Int64s, length: Int64s) -> None:
    """Each view has 16 bytes: length, four bytes of the value, number of a buffer and position there; or length and the value itself."""
    n, (_, views, *data) = len(column), column.buffers()
    words = np.frombuffer(views, np.int32, 4 * n, 16 * column.offset).reshape(n, 4)
    inline = words[:, 0] <= _INLINE
    starts = np.array([one.address for one in data] or [0], np.int64)
    # The third word of a value that is in its view is a part of the value.
    np.add(starts[np.where(inline, 0, words[:, 2])], words[:, 3], out=at)
    here = views.address + 16 * (column.offset + np.arange(n, dtype=np.int64)) + 4
    np.copyto(at, here, where=inline)
    length[:] = words[:, 0]


def _valid(column: pa.Array) -> Flags:
    bits = np.unpackbits(np.frombuffer(column.buffers()[0], np.uint8), bitorder="little")
    return bits[column.offset : column.offset + len(column)].astype(np.bool_)
