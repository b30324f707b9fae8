"""A chunk of format 2 batches, still in the file, becomes Arrow columns without ever being in memory as a whole.

`stream` does what compiled code can do alone. Batches whose codec needs a library go through in tiles that fit into the
CPU's cache: read and checked, inflated, and appended to the same columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.codecs.lz4 import MOST_PER_BYTE
from kolumn.cpu_fallback.address import PAD
from kolumn.cpu_fallback.batches import Run, modes
from kolumn.cpu_fallback.columns import Columns
from kolumn.cpu_fallback.fields import POSITIONS
from kolumn.cpu_fallback.inflate import inflate
from kolumn.cpu_fallback.put import COPY, VIEW
from kolumn.cpu_fallback.stream import ARENA, BLOCK, DONE, LIBRARY, WRONG, Room, Source, append, load, stream
from kolumn.formats import table
from kolumn.formats.v2 import HEADER, SMALLEST_RECORD
from kolumn.options import Options
from kolumn.recycle import take
from kolumn.segment_file import SegmentFile

TILE = 1 << 20
"""Compressed bytes that go through a library at a time."""
INFLATED = 4 << 20
"""Bytes to which `stream` inflates one batch at most; larger ones go through a library."""
SLACK = 1 << 16
"""Room for the batch with which a chunk goes over its size."""


@dataclass
class Part:
    """A run and the rows of the batch table that it is made of."""

    run: Run
    rows: Any


def stream_runs(file: SegmentFile, rows: Any, wanted: Any, options: Options, need_key: bool) -> list[Part] | None:
    """Decode the entries of a chunk; None where anything is wrong with one of them.

    Parameters
    ----------
    file : SegmentFile
        Learns how much its batches inflate.
    rows : int64 array of shape (n, `table.WIDTH`)
        As `stream.hop` gives them.
    wanted : bool array of n
        Entries whose records are asked for.
    need_key : bool
        As for `batches.decode_run`.
    """
    chunk = _Chunk(file, rows, wanted, options, need_key)
    parts = list(chunk.parts())
    return None if chunk.state == WRONG else parts


class _Chunk:
    """One chunk's way: where it is, and the memory that is being filled."""

    def __init__(self, file: SegmentFile, rows: Any, wanted: Any, options: Options, need_key: bool) -> None:
        self.file, self.rows, self.options = file, rows, options
        self.wanted = wanted & (rows[:, table.COUNT] != 0)
        self.keep = options.binary == "view"
        self.modes = modes(options, VIEW if self.keep else COPY, need_key)
        self.state, self.need = DONE, 0
        self.records = np.zeros(len(rows), np.int64)
        self.size, self.plain = rows[:, table.SIZE], rows[:, table.CODEC] == 0
        self.whole = self.keep and bool(self.plain.any())
        self.window, _ = take(max(BLOCK, int(self.size.sum() if self.whole else self.size.max())) + PAD)

    def parts(self) -> Iterator[Part]:
        """Decode entry by entry; whenever the columns are full, what they hold is a part."""
        row = 0
        while row < len(self.rows):
            first = row
            self._begin(first)
            row = self._fill(first)
            if self.state == WRONG:
                return
            if row > first:
                self._learn(first, row)
                run = Run(self.columns, self.at[:POSITIONS], self.records[first:row], self.sources, {})
                yield Part(run, self.rows[first:row])

    def _begin(self, first: int) -> None:
        """New columns for what comes from row ``first`` on."""
        wanted, plain, size = self.wanted[first:], self.plain[first:], self.size[first:]
        packed = int(size[wanted & ~plain].sum())
        # Columns of one size, whatever the chunk holds: their memory serves the next chunk too.
        inflated = min(self.options.chunk_bytes * 9 // 8, MOST_PER_BYTE * packed) + SLACK if packed else 0
        payload_bytes = max(int(size[wanted & plain].sum()) + inflated, self.need)
        counts = self.rows[first:, table.COUNT][wanted]
        records = min(int(np.maximum(counts, 0).sum()), payload_bytes // SMALLEST_RECORD)
        arena = min(inflated if self.keep else INFLATED, self.options.max_batch_bytes) if packed else 0
        self.columns = Columns(records, payload_bytes, 0, *self.modes, False)
        self.target = self.columns.target
        self.at, self.inflated = np.zeros(POSITIONS + 1, np.int64), 0
        self.arena, _ = take(arena + PAD)
        self.source = Source(self.file.descriptor, self.window.address, self.arena.address, self.whole, self.keep)
        self.room = Room(records, payload_bytes, arena)
        self.sources: list[pa.Buffer] = [self.window, self.arena] if self.keep else []

    def _fill(self, row: int) -> int:
        """Decode until the columns are full; the row that comes next."""
        while row < len(self.rows):
            row, self.state, self.need = stream(
                self.source, self.rows, self.wanted, row, self.options.check_crcs, self.records, self.target, self.at, self.room
            )
            if self.state == LIBRARY:
                row, self.state, self.need = self._tile(row)
            if self.state != DONE:
                break
        return row

    def _tile(self, row: int) -> tuple[int, int, int]:
        """Take the entries from ``row`` on through a library: results as of `stream`."""
        codec = self.rows[row, table.CODEC]
        fits = (self.rows[row:, table.CODEC] == codec) & (np.cumsum(self.size[row:]) <= TILE)
        stop = row + max(1, int(np.argmin(fits)) if not fits.all() else len(fits))
        rows, wanted = self.rows[row:stop], self.wanted[row:stop]
        window = self.window
        if self.whole or window.size < TILE + PAD:
            window, _ = take(max(TILE, int(self.size[row])) + PAD)
        if not load(self.file.descriptor, rows, window.address, self.options.check_crcs):
            return row, WRONG, 0
        taken = np.flatnonzero(wanted)
        start = (rows[:, table.POSITION] - rows[0, table.POSITION] + HEADER)[taken]
        result = inflate(
            np.frombuffer(window, np.uint8), start, self.size[row:stop][taken] - HEADER, rows[taken, table.CODEC], rows[taken, table.MAGIC],
            self.options.max_batch_bytes, self.options.max_ratio,
        )  # fmt: skip
        if result.code.any():
            return row, WRONG, 0
        origin, size = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        origin[taken], size[taken] = result.start, result.size
        payload = origin + result.arena.ctypes.data
        done, state, need = append(
            rows, wanted, payload, size, len(self.sources), origin, 0, self.records[row:stop], self.target, self.at, self.room
        )
        self.inflated += int(size[:done].sum())
        if self.keep:
            self.sources.append(pa.py_buffer(result.arena))
        return row + done, state, need

    def _learn(self, first: int, stop: int) -> None:
        packed = int(self.size[first:stop][(self.wanted & ~self.plain)[first:stop]].sum())
        if packed:
            self.file.inflates = max(1.0, (self.inflated + int(self.at[ARENA])) / packed)
