"""A chunk of entries on the CPU."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Self

import numpy as np

from kolumn.cpu_fallback.batches import Run, decode_run
from kolumn.cpu_fallback.record_batch import record_batch
from kolumn.cpu_fallback.walk import check
from kolumn.formats import table
from kolumn.options import MIB, Options
from kolumn.plan import Chunk
from kolumn.segment_file import SegmentFile

PACKED_BYTES = 2 * MIB
"""Compressed bytes that are inflated at a time."""
RUN_BYTES = 512 * MIB
"""Plain bytes in one record batch: Arrow's binary offsets end at 2 GiB."""


class HostChunk:
    """Bytes of a segment in host memory.

    Parameters
    ----------
    file : SegmentFile
    chunk : Chunk
    options : Options

    Attributes
    ----------
    inflated_by_cpu : int
        As of `on_device.DeviceChunk`: here nothing is remarkable about it.
    """

    inflated_by_cpu = 0

    def __init__(self, file: SegmentFile, chunk: Chunk, options: Options) -> None:
        self.source, self.origin, self.options = chunk.loaded(file).source, chunk.origin, options

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def check(self, rows: Any) -> None:
        """Set BAD_CRC in every row without a code whose checksum differs from its bytes."""
        check(self.source.ctypes.data, self.origin, rows)

    batch: Callable[..., Any] = staticmethod(record_batch)

    def runs(self, rows: Any, need_key: bool) -> Iterator[tuple[Run, Any]]:
        """Decode entries, some at a time: their records, and their rows of the batch table, of which damaged ones get a code."""
        for some in runs_of(rows):
            yield decode_run(self.source, self.origin, some, self.options, need_key), some


def runs_of(rows: Any) -> Iterator[Any]:
    """Cut entries into runs that are inflated and decoded together."""
    packed = np.where(rows[:, table.CODEC] != 0, rows[:, table.SIZE], 0)
    if packed.any():
        group = (np.cumsum(packed) - packed) // PACKED_BYTES
    else:
        group = (np.cumsum(rows[:, table.SIZE]) - rows[:, table.SIZE]) // RUN_BYTES
    bounds = [0, *(np.flatnonzero(np.diff(group)) + 1), len(rows)]
    for start, stop in pairwise(bounds):
        if stop > start:
            yield rows[start:stop]
