"""A chunk of format 2 batches becomes Arrow columns directly from the file, without being in memory as a whole.

`stream` processes the batches that compiled code can decode alone. Batches whose codec needs a library are processed in tiles: read
and checked, decompressed, and appended to the same columns.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Bytes, Flags, Int64s
from kolumn.core.recycle import memory, take
from kolumn.cpu_fallback.fields.put import COPY, NEXT_BLOCK, VIEW
from kolumn.cpu_fallback.fields.target import HEADER_KEY, HEADER_VALUE, HEADERS, KEY, ROWS, VALUE
from kolumn.cpu_fallback.inflate.arena import Share, inflate
from kolumn.cpu_fallback.inflate.libraries import decoders
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.cpu_fallback.stream import (
    ARENA,
    DONE,
    FULL,
    LARGEST,
    LIBRARY,
    PACKED,
    PLAIN,
    SLOTS,
    UNTIMED,
    WINDOW,
    WRONG,
    Source,
    Span,
    append,
    hop,
    load,
    needs_library,
    stream,
)
from kolumn.decode.host.record_batch import HostPart
from kolumn.decode.host.run import Run, bytes_of, in_microseconds, limits, memory_for, modes, wanted
from kolumn.formats import table
from kolumn.formats.codecs import LZ4, NONE
from kolumn.formats.entries import Entries
from kolumn.formats.v2 import HEADER, SMALLEST_RECORD
from kolumn.log.chunks import MOST_ENTRIES, Chunk
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile

TILE = 4 << 20
"""Maximum compressed bytes that a library decompresses at a time."""
BLOCK = NEXT_BLOCK
"""Bytes that `stream` reads at a time."""
LATER = -1
"""State of a chunk whose remaining entries are left for later, since they would need too much memory."""
SLACK = 1 << 16
"""Extra room for the batch with which a chunk exceeds its size."""
INFLATED, MOST_INFLATED = 4 << 20, 16 << 20
"""Bytes of the arena unless views keep them: at first, and after a batch that does not fit. Larger batches are left to a library."""


_NO_ROOM = take(PAD)
"""Memory of an arena before it has a payload: nothing is written to it."""


class Streamed(NamedTuple):
    """Result of streaming a chunk.

    Attributes
    ----------
    parts : list of HostPart
    entries : Entries
        The entries of the chunk, including those found after the known ones; only the decoded ones, if there was no memory for more.
    is_wrong : bool
        One of the entries is damaged. The decoded parts must not be used then; the general path finds out what is wrong.
    intact : int, optional
        Number of decoded entries, if a row of ``entries`` stands for several.
    reached : int, optional
        Position after the chunk, if ``entries`` do not tell it.
    following : Entries, optional
        The entry after the chunk, if its header was read.
    rest : Chunk, optional
        What is left of the chunk after ``entries``: something unusual, or what has no room in memory.
    """

    parts: list[HostPart]
    entries: Entries
    is_wrong: bool
    intact: int | None = None
    reached: int | None = None
    following: Entries | None = None
    rest: Chunk | None = None


def stream_runs(
    file: SegmentFile, entries: Entries, span: Span, options: Options, need_key: bool, share: Share, descriptor: int | None = None
) -> Streamed:
    """Decode the entries of a chunk.

    Parameters
    ----------
    file : SegmentFile
        Its statistics are updated: record density, compression ratio, share of keys, largest batch.
    entries : Entries
        Known entries, at least one, as `stream.hop` finds them.
    span : Span
        The part of the file after the known entries that belongs to the chunk.
    need_key : bool
        As for `run.decode_run`.
    share : Share
        How much memory the chunk may use.
    descriptor : int, optional
        Where compiled code reads instead, as `SegmentFile.descriptor`.
    """
    place, known = file.descriptor if descriptor is None else descriptor, len(entries)
    chunk = _Chunk(file, _with_room(entries, known, span), known, span, options, need_key, share, place)
    parts = chunk.parts()
    return Streamed(parts, chunk.entries[: chunk.known], chunk.state == WRONG, following=chunk.following)


def _with_room(entries: Entries, known: int, span: Span) -> Entries:
    """The ``known`` rows, followed by room for the entries that are found later."""
    last = entries.array[-1].tolist()
    if span.stop <= last[table.POSITION] + last[table.SIZE]:
        return entries
    room = Entries.room(MOST_ENTRIES)
    room.array[:known] = entries.array
    return room


class StreamArena:
    """The memory that decompressed payloads are in while their records are read, and for good if views point into it.

    With ``keep`` views point into it, so the columns of each part have an arena of their own. ``room`` is for payloads,
    0 before the first compressed one; ``most`` are those of the largest arena that views do not keep.
    """

    def __init__(self, keep: bool, options: Options, share: Share) -> None:
        self._keep, self._largest = keep, options.max_batch_bytes
        self.buffer, self._bytes = _NO_ROOM
        self.room, self.most = 0, max(INFLATED, min(MOST_INFLATED, share.bytes // 16))

    def begin(self, payload_bytes: int, used: int, ready: int) -> None:
        """Serve new columns. The ``ready`` bytes after the ``used`` ones of the old columns are a payload for the new ones."""
        if self._keep:
            # Views of the old columns point into the old arena.
            waiting = self._bytes[used : used + ready]
            self.buffer, self._bytes = take((payload_bytes if ready else 0) + PAD)
            self._bytes[:ready] = waiting
            self.room = min(payload_bytes, self._largest) if ready else 0

    def likely(self, largest: int) -> int:
        """Bytes for payloads of a file whose largest one so far has ``largest``, unless views keep them."""
        return INFLATED if max(self.room, largest) < INFLATED else self.most

    def grow(self, size: int) -> bool:
        """Make the first arena, or a larger one; False if that is not allowed."""
        size = min(size, self._largest)
        if size <= self.room:
            return False
        self.buffer, self._bytes = take(size + PAD)
        self.room = size
        return True


class _Tile(NamedTuple):
    """Entries that a library has decompressed; ``origin`` and ``size`` are where each payload is in the arena."""

    row: int
    entries: Entries
    asked: Flags
    origin: Int64s
    size: Int64s
    arena: Bytes


class _Chunk:
    """State of decoding one chunk: the position, and the memory that is being filled."""

    def __init__(
        self, file: SegmentFile, entries: Entries, known: int, span: Span, options: Options, need_key: bool, share: Share, descriptor: int
    ) -> None:
        self.descriptor = descriptor
        self.file, self.entries, self.known, self.span, self.options, self.share = file, entries, known, span, options, share
        self.taken = 0
        self.tile: _Tile | None = None
        self.following: Entries | None = None
        self.limits = limits(options)
        self.keep = options.binary == "view"
        self.modes = modes(options, VIEW if self.keep else COPY, need_key, VIEW)
        self.microseconds, self.libraries = in_microseconds(options), decoders(options.remarks)
        self.state, self.need, self.ready, self.packed = DONE, 0, 0, 0
        self.records = np.empty(len(entries.array), np.int64)
        first = entries.array[0].tolist()
        self.origin = first[table.POSITION]
        if known == 1:
            size = largest = first[table.SIZE]
            self.whole = self.keep and first[table.CODEC] == NONE
        else:
            sizes = entries.size[:known]
            size, largest = int(sizes.sum()), int(sizes.max())
            self.whole = self.keep and bool((entries.codec[:known] == NONE).any())
        largest = max(BLOCK, largest)
        # Of a segment in memory only its end is copied, an entry at a time.
        copies = self.whole and file.memory is None
        self.room = max(int(span.weight), size) + largest if copies else largest
        self.window = self._spare_window() or memory(self.room + PAD)
        self.arena = StreamArena(self.keep, options, share)

    def parts(self) -> list[HostPart]:
        """Decode entry by entry; whenever the columns are full, they become a part. What there is of a chunk that is wrong is no use."""
        parts: list[HostPart] = []
        row, done = 0, False
        while not done:
            first = row
            self._begin(first)
            row = self._fill(first)
            if self.state == WRONG:
                return parts
            done = self.state in (DONE, LATER)
            at = self.memory.at.tolist()
            self.packed = at[ARENA]
            if row > first:
                self._learn(at)
                run = Run(self.memory.columns(at), self.records[first:row], self.sources, {}, at[UNTIMED] != 0)
                self.taken += bytes_of(at[ROWS], at[KEY] + at[VALUE])
                parts.append(HostPart(run, self.entries[first:row]))
            if self.state == DONE and row < self.known:
                self.following, self.known = Entries(self.entries.array[row : self.known].copy()), row
            elif self.state == LATER or (not done and self.taken >= self.share.bytes):
                self.known, done = row, True
        if not self.keep:
            self.file.spare.append(self.window)
        return parts

    def _spare_window(self) -> pa.Buffer | None:
        """The window of a chunk of this file that is done, if it is large enough."""
        try:
            spare = self.file.spare.pop()
        except IndexError:
            return None
        return spare if self.room + PAD <= spare.size else None

    def _begin(self, first: int) -> None:
        """Allocate columns for the entries from row ``first`` on. Up to the last chunk their size is the same, so memory can be reused.

        A batch is decoded only where all its bytes could be keys, values or headers, so each has room for the largest batch after what is
        likely.
        """
        likely = self.entries.array[min(first, self.known - 1)].tolist()
        size, count, codec = likely[table.SIZE], likely[table.COUNT], likely[table.CODEC]
        sizes = self.file.sizes
        self.largest = max(sizes.largest, self.need, size if codec == NONE else int(2 * self.span.inflates * size))
        left = max(self.span.stop - likely[table.POSITION], size)
        # Of a file that nothing is known of, any ratio is possible.
        most = int(left * (1.0 if codec == NONE else self.span.inflates if sizes.density else 64.0))
        weight = int(self.span.weight)
        # What is left of a segment does not exceed its size.
        payload_bytes = max(weight * 9 // 8 + SLACK if most > weight else most * 9 // 8 + min(SLACK, most // 8), self.need)
        self.payload_bytes = payload_bytes
        density = sizes.density or max(count, 1) / size
        records = max(int(payload_bytes * density * 1.1), min(count, self.need // SMALLEST_RECORD), 1)
        self.arena.begin(payload_bytes, self.packed, self.ready)
        self.memory, self.limit = memory_for(
            sizes, payload_bytes, min(records, payload_bytes // SMALLEST_RECORD), max(SLACK, self.largest), self.modes, self.options, SLOTS,
            self.arena.room, self.microseconds,
        )  # fmt: skip
        self.inflated = 0
        plain = self._plain(first) if self.keep else self.window
        self.views = plain.address
        self.sources: list[pa.Buffer] = [plain, self.arena.buffer] if self.keep else []
        if codec != NONE and not self.arena.room and not needs_library(codec, self.libraries):
            self._make_arena()

    def _plain(self, first: int) -> pa.Buffer:
        """What views of uncompressed payloads point into, in the entries from row ``first`` on."""
        memory = self.file.memory
        if memory is None or not self.whole or self.entries[min(first, self.known - 1)].end + PAD > self.file.size:
            return self.window
        return memory.slice(self.origin)

    def _fill(self, row: int) -> int:
        """Decode until the columns are full; returns the next row."""
        while True:
            ready, self.ready = self.ready, 0
            source = Source(
                self.descriptor, self.views, self.window.address, self.arena.buffer.address, self.room, BLOCK, self.whole, self.keep,
                self.libraries,
            )  # fmt: skip
            row, self.state, self.need, self.known = stream(
                source, self.span, self.limits, self.entries.array, self.known, row, ready, self.records, self.memory.target,
                self.memory.at, self.limit,
            )  # fmt: skip
            if self.state == WINDOW:
                self._make_window(self.need)
                continue
            if self.state == FULL and self.entries.codec[row] != NONE:
                self.ready = self.need
            if self.state != LIBRARY:
                return row
            if not needs_library(self.entries.codec[row], self.libraries) and self._make_arena():
                continue
            row, self.state, self.need = self._tile(row)
            if self.state != DONE:
                return row

    def _make_window(self, largest: int) -> None:
        """A window for a batch that is larger than those before it, and for somewhat larger ones."""
        self.room = largest * 5 // 4
        self.window = memory(self.room + PAD)
        self.views = self.window.address
        if self.keep:
            self.sources[0] = self.window

    def _make_arena(self) -> bool:
        """Make the first arena, or a larger one; False if that is not allowed."""
        kept = self.payload_bytes + min(self.largest, self.arena.most)
        if not self.arena.grow(kept if self.keep else self.arena.likely(self.file.sizes.largest)):
            return False
        self.limit = self.limit._replace(arena=self.arena.room)
        if self.keep:
            self.sources[1] = self.arena.buffer
        return True

    def _tile(self, row: int) -> tuple[int, int, int]:
        """Decode the entries from ``row`` on with a library; results as those of `stream`."""
        if self.tile is None or self.tile.row != row:
            self.tile = None
            state = self._inflate(row)
            if self.tile is None:
                return row, state, 0
        _, entries, asked, origin, size, arena = self.tile
        done, state, need = append(
            entries.array, asked, origin + arena.ctypes.data, size, len(self.sources), origin,
            self.records[row : row + len(entries)], self.memory.target, self.memory.at, self.limit,
        )  # fmt: skip
        self.inflated += int(size[:done].sum())
        self.memory.at[LARGEST] = max(self.memory.at[LARGEST], size[:done].max(initial=0))
        if self.keep:
            self.sources.append(pa.py_buffer(arena))
        # If the columns are full, the rest of the tile is kept, so that nothing is decompressed twice.
        self.tile = _Tile(row + done, entries[done:], asked[done:], origin[done:], size[done:], arena) if state == FULL else None
        return row + done, state, need

    def _inflate(self, row: int) -> int:
        """Make a tile of the entries from ``row`` on. Returns DONE, or a state that ends the chunk if no tile can be made."""
        self._look_ahead(row)
        sizes = self.entries.size[row : self.known]
        fits = (self.entries.codec[row : self.known] == self.entries.codec[row]) & (np.cumsum(sizes) <= TILE)
        stop = row + max(1, len(fits) if fits.all() else int(np.argmin(fits)))
        entries = self.entries[row:stop]
        window, _ = take(max(TILE, entries[0].size) + PAD)
        if not load(self.descriptor, entries.array, window.address, self.options.check_crcs):
            return WRONG
        asked = wanted(entries, self.options) & ((entries.count != 0) | (entries.size != HEADER))
        taken = np.flatnonzero(asked)
        start, size = entries.position[taken] - entries.position[0] + HEADER, entries.size[taken] - HEADER
        left = Share(max(self.share.bytes - self._used(), 1), self.share.large and not row)
        result = inflate(
            np.frombuffer(window, np.uint8), start, size, entries.codec[taken], entries.magic[taken],
            self.options.max_batch_bytes, self.options.max_ratio, left,
        )  # fmt: skip
        if result.code[: result.done].any() or (self.options.remarks and entries.codec[0] == LZ4):
            # Only the general path compares content checksums of what a library decompressed.
            return WRONG
        if result.done < len(taken):
            # Entries without room are left for the next tile, or the next chunk.
            entries, asked, taken = entries[: taken[result.done]], asked[: taken[result.done]], taken[: result.done]
        if not len(entries):
            return LATER
        origin, size = np.zeros(len(entries), np.int64), np.zeros(len(entries), np.int64)
        origin[taken], size[taken] = result.start[: result.done], result.size[: result.done]
        self.tile = _Tile(row, entries, asked, origin, size, result.arena)
        return DONE

    def _used(self) -> int:
        """Bytes of memory that the chunk uses so far."""
        at = self.memory.at.tolist()
        return self.taken + bytes_of(at[ROWS], at[KEY] + at[VALUE]) + (self.inflated if self.keep else 0)

    def _look_ahead(self, row: int) -> None:
        """Find the entries after ``row``, as many as make a tile."""
        if self.known == row + 1:
            following = self.entries[row].end
            room, _ = take(HEADER + PAD)
            span = self.span._replace(weight=min(TILE, self._weight_left()), inflates=1.0)
            self.known += hop(self.descriptor, following, span, room.address, self.entries[self.known :].array)[0]

    def _weight_left(self) -> float:
        """Bytes of the log that may still be added to the chunk."""
        entries = self.entries[: self.known]
        weights = np.where(entries.codec == NONE, 1.0, self.span.inflates) * entries.size
        return (self.span.weight - float(weights.sum())) / self.span.inflates

    def _learn(self, at: list[int]) -> None:
        """Update the file's statistics, which predict the sizes of the next batches."""
        sizes, inflated = self.file.sizes, self.inflated + at[ARENA]
        sizes.largest = max(sizes.largest, at[LARGEST])
        columns = at[KEY], at[VALUE], at[HEADER_KEY], at[HEADER_VALUE]
        sizes.learn(at[PLAIN] + inflated, at[ROWS], at[HEADERS], columns, at[PACKED], inflated)
        if at[PACKED]:
            self.span = self.span._replace(inflates=sizes.inflates)
