"""Bodies as Arrow arrays, for what reads arrays and not addresses."""

import ctypes

import numpy as np
import pyarrow as pa

from kolumn.arrays import Flags
from kolumn.values.decoder import Bodies


def array_of(bodies: Bodies, chosen: Flags) -> pa.LargeBinaryArray:
    """The chosen bodies as one array in host memory; their bytes are copied."""
    at, length = bodies.at[chosen], bodies.length[chosen]
    if not len(at):
        return pa.array([], pa.large_binary())
    ends = at + length
    if (ends[:-1] > at[1:]).any():
        return pa.array([ctypes.string_at(one, size) for one, size in zip(at.tolist(), length.tolist(), strict=True)], pa.large_binary())
    # The bodies, and what is between them, are one array over the memory; taking every second element leaves out what is between.
    bounds = np.empty(2 * len(at), np.int64)
    bounds[0::2], bounds[1::2] = at, ends
    origin = int(at[0])
    memory = pa.foreign_buffer(origin, int(ends[-1]) - origin, base=bodies)
    whole = pa.Array.from_buffers(pa.large_binary(), 2 * len(at) - 1, [None, pa.py_buffer(bounds - origin), memory])
    return whole.take(pa.array(np.arange(0, 2 * len(at), 2)))


def spread(found: pa.Array, rows: Flags) -> pa.Array:
    """An array of all rows from one of those that ``rows`` marks; the others are null."""
    if rows.all():
        return found
    number = np.cumsum(rows) - 1
    return found.take(pa.array(number, mask=~rows))


def within(rows: Flags, chosen: Flags) -> Flags:
    """Flags of all rows, from flags of those that ``rows`` marks."""
    found = np.zeros(len(rows), bool)
    found[rows] = chosen
    return found
