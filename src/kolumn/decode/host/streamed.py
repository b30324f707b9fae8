"""A chunk of format 2 batches becomes Arrow columns directly from the file, without being in memory as a whole.

`stream` processes the batches that compiled code can decode alone. Batches whose codec needs a library are processed in tiles: read
and checked, decompressed, and appended to the same columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.arrays import Rows
from kolumn.arrow.recycle import take
from kolumn.codecs import NONE
from kolumn.cpu_fallback.columns.columns import Columns
from kolumn.cpu_fallback.fields.put import COPY, VIEW
from kolumn.cpu_fallback.fields.target import KEY, POSITIONS, ROWS
from kolumn.cpu_fallback.inflate.arena import Share, inflate
from kolumn.cpu_fallback.inflate.decoders import decoders
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.cpu_fallback.stream import (
    ARENA,
    BLOCK,
    DONE,
    FULL,
    LIBRARY,
    WRONG,
    Room,
    Source,
    Span,
    append,
    hop,
    load,
    needs_library,
    stream,
)
from kolumn.decode.host.run import Run, modes
from kolumn.decode.host.select import limits, wanted
from kolumn.formats import table
from kolumn.formats.v2 import HEADER, SMALLEST_RECORD
from kolumn.options import Options
from kolumn.plan.chunks import ROWS as ENTRIES
from kolumn.source.segment_file import SegmentFile

TILE = 4 << 20
"""Maximum compressed bytes that a library decompresses at a time."""
INFLATED = 4 << 20
"""Maximum decompressed bytes of one batch in `stream`, unless views keep them; larger batches are left to a library."""
LATER = -1
"""State of a chunk whose remaining entries are left for later, since they would need too much memory."""
SLACK = 1 << 16
"""Extra room for the batch with which a chunk exceeds its size."""


@dataclass
class Part:
    """A run, and the rows of the batch table that it was decoded from."""

    run: Run
    rows: Any


class Streamed(NamedTuple):
    """Result of streaming a chunk.

    Attributes
    ----------
    parts : list of Part
    rows : int64 array of shape (n, `table.WIDTH`)
        The entries of the chunk, including those found after the known ones; only the decoded ones, if there was no memory for more.
    is_wrong : bool
        One of the entries is damaged. The decoded parts must not be used then; the general path finds out what is wrong.
    """

    parts: list[Part]
    rows: Any
    is_wrong: bool


def stream_runs(file: SegmentFile, rows: Rows, span: Span, options: Options, need_key: bool, share: Share) -> Streamed:
    """Decode the entries of a chunk.

    Parameters
    ----------
    file : SegmentFile
        Its statistics are updated: record density, compression ratio, share of keys.
    rows : int64 array of shape (n, `table.WIDTH`)
        Known entries, at least one, as `stream.hop` finds them.
    span : Span
        The part of the file after the known entries that belongs to the chunk.
    need_key : bool
        As for `run.decode_run`.
    share : Share
        How much memory the chunk may use.
    """
    chunk = _Chunk(file, _with_room(rows, span), len(rows), span, options, need_key, share)
    parts = list(chunk.parts())
    return Streamed(parts, chunk.rows[: chunk.known], chunk.state == WRONG)


def _with_room(rows: Rows, span: Span) -> Any:
    """The rows, followed by room for the entries that are found later."""
    if span.stop <= rows[-1, table.POSITION] + rows[-1, table.SIZE]:
        return rows
    room = np.empty((ENTRIES, table.WIDTH), np.int64)
    room[: len(rows)] = rows
    return room


class _Chunk:
    """State of decoding one chunk: the position, and the memory that is being filled."""

    def __init__(self, file: SegmentFile, rows: Rows, known: int, span: Span, options: Options, need_key: bool, share: Share) -> None:
        self.file, self.rows, self.known, self.span, self.options, self.share = file, rows, known, span, options, share
        self.taken = 0
        self.tile: tuple[int, Any, Any, Any, Any, Any] | None = None
        self.limits = limits(options)
        self.keep = options.binary == "view"
        self.modes = modes(options, VIEW if self.keep else COPY, need_key)
        self.libraries = decoders()
        self.state, self.need = DONE, 0
        self.records = np.zeros(len(rows), np.int64)
        sizes = rows[:known, table.SIZE]
        self.whole = self.keep and bool((rows[:known, table.CODEC] == NONE).any())
        largest = max(BLOCK, int(sizes.max()))
        self.room = max(int(span.weight), int(sizes.sum())) + largest if self.whole else largest
        self.window, _ = take(self.room + PAD)

    def parts(self) -> Iterator[Part]:
        """Decode entry by entry; whenever the columns are full, they become a part."""
        row, done = 0, False
        while not done:
            first = row
            self._begin(first)
            row = self._fill(first)
            if self.state == WRONG:
                return
            done = self.state in (DONE, LATER)
            if row > first:
                self._learn(first, row)
                run = Run(self.columns, self.at[:POSITIONS], self.records[first:row], self.sources, {})
                self.taken += run.bytes
                yield Part(run, self.rows[first:row])
            if self.state == LATER or (not done and self.taken >= self.share.bytes):
                self.known, done = row, True

    def _begin(self, first: int) -> None:
        """Allocate columns for the entries from row ``first`` on. Their size is always the same, so that their memory can be reused."""
        size, count = self.rows[min(first, self.known - 1), (table.SIZE, table.COUNT)].tolist()
        left = max(self.span.stop - int(self.rows[0, table.POSITION]), size)
        payload_bytes = max(min(int(self.span.weight), 64 * left) * 9 // 8 + SLACK, self.need)
        density = self.file.density or max(count, 1) / size
        records = max(int(payload_bytes * density * 1.1), min(count, self.need // SMALLEST_RECORD), 1)
        records = min(records, payload_bytes // SMALLEST_RECORD)
        key_bytes = max(int(payload_bytes * self.file.key_share) + SLACK, self.need)
        self.columns = Columns.of(records, key_bytes, payload_bytes, 0, *self.modes, False)
        self.target = self.columns.target
        self.at, self.inflated = np.zeros(POSITIONS + 1, np.int64), 0
        self.limit = Room(records, key_bytes, payload_bytes, 0)
        self.arena, _ = take(PAD)
        self.sources: list[pa.Buffer] = [self.window, self.arena] if self.keep else []

    def _fill(self, row: int) -> int:
        """Decode until the columns are full; returns the next row."""
        while True:
            source = Source(self.file.descriptor, self.window.address, self.arena.address, self.room, self.whole, self.keep, self.libraries)
            row, self.state, self.need, self.known = stream(
                source, self.span, self.limits, self.rows, self.known, row, self.records, self.target, self.at, self.limit
            )
            if self.state != LIBRARY:
                return row
            if not self.limit.arena and not needs_library(self.rows[row, table.CODEC], self.libraries):
                self._make_arena()
                continue
            row, self.state, self.need = self._tile(row)
            if self.state != DONE:
                return row

    def _make_arena(self) -> None:
        size = min(self.limit.value_bytes if self.keep else INFLATED, self.options.max_batch_bytes)
        self.arena, _ = take(size + PAD)
        self.limit = self.limit._replace(arena=size)
        if self.keep:
            self.sources[1] = self.arena

    def _tile(self, row: int) -> tuple[int, int, int]:
        """Decode the entries from ``row`` on with a library; results as those of `stream`."""
        if self.tile is None or self.tile[0] != row:
            self.tile = None
            state = self._inflate(row)
            if self.tile is None:
                return row, state, 0
        _, rows, asked, origin, size, arena = self.tile
        done, state, need = append(
            rows, asked, origin + arena.ctypes.data, size, len(self.sources), origin,
            self.records[row : row + len(rows)], self.target, self.at, self.limit,
        )  # fmt: skip
        self.inflated += int(size[:done].sum())
        if self.keep:
            self.sources.append(pa.py_buffer(arena))
        # If the columns are full, the rest of the tile is kept, so that nothing is decompressed twice.
        self.tile = (row + done, rows[done:], asked[done:], origin[done:], size[done:], arena) if state == FULL else None
        return row + done, state, need

    def _inflate(self, row: int) -> int:
        """Make a tile of the entries from ``row`` on. Returns DONE, or a state that ends the chunk if no tile can be made."""
        self._look_ahead(row)
        sizes = self.rows[row : self.known, table.SIZE]
        fits = (self.rows[row : self.known, table.CODEC] == self.rows[row, table.CODEC]) & (np.cumsum(sizes) <= TILE)
        stop = row + max(1, len(fits) if fits.all() else int(np.argmin(fits)))
        rows = self.rows[row:stop]
        window, _ = take(max(TILE, int(rows[0, table.SIZE])) + PAD)
        if not load(self.file.descriptor, rows, window.address, self.options.check_crcs):
            return WRONG
        asked = wanted(rows, self.options) & (rows[:, table.COUNT] != 0)
        taken = np.flatnonzero(asked)
        start, size = rows[taken, table.POSITION] - rows[0, table.POSITION] + HEADER, rows[taken, table.SIZE] - HEADER
        left = Share(max(self.share.bytes - self._used(), 1), self.share.large and not row)
        result = inflate(
            np.frombuffer(window, np.uint8), start, size, rows[taken, table.CODEC], rows[taken, table.MAGIC],
            self.options.max_batch_bytes, self.options.max_ratio, left,
        )  # fmt: skip
        if result.code[: result.done].any():
            return WRONG
        if result.done < len(taken):
            # Entries without room are left for the next tile, or the next chunk.
            rows, asked, taken = rows[: taken[result.done]], asked[: taken[result.done]], taken[: result.done]
        if not len(rows):
            return LATER
        origin, size = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        origin[taken], size[taken] = result.start[: result.done], result.size[: result.done]
        self.tile = row, rows, asked, origin, size, result.arena
        return DONE

    def _used(self) -> int:
        """Bytes of memory that the chunk uses so far."""
        now = Run(self.columns, self.at, self.records, self.sources, {})
        return self.taken + now.bytes + (self.inflated if self.keep else 0)

    def _look_ahead(self, row: int) -> None:
        """Find the entries after ``row``, as many as make a tile."""
        if self.known == row + 1:
            following = int(self.rows[row, table.POSITION] + self.rows[row, table.SIZE])
            room, _ = take(HEADER + PAD)
            span = self.span._replace(weight=min(TILE, self._weight_left()), inflates=1.0)
            self.known += hop(self.file.descriptor, following, span, room.address, self.rows[self.known :])[0]

    def _weight_left(self) -> float:
        """Bytes of the log that may still be added to the chunk."""
        rows = self.rows[: self.known]
        weights = np.where(rows[:, table.CODEC] == NONE, 1.0, self.span.inflates) * rows[:, table.SIZE]
        return (self.span.weight - float(weights.sum())) / self.span.inflates

    def _learn(self, first: int, stop: int) -> None:
        """Update the file's statistics, which predict the sizes of the next batches."""
        rows = self.rows[first:stop]
        sizes = np.where(wanted(rows, self.options) & (rows[:, table.COUNT] != 0), rows[:, table.SIZE], 0)
        packed = int(sizes[rows[:, table.CODEC] != NONE].sum())
        inflated = self.inflated + int(self.at[ARENA])
        if packed:
            self.file.inflates = max(1.0, inflated / packed)
        total = int(sizes.sum()) - packed + inflated
        if total:
            self.file.density = max(int(self.at[ROWS]), 1) / total
            self.file.key_share = min(1.0, 1.2 * int(self.at[KEY]) / total)
