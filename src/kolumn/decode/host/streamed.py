"""A chunk becomes Arrow columns directly from the file, without being in memory as a whole.

`stream` processes the batches of format 2 that compiled code can decode alone. Batches whose codec needs a library are processed in tiles:
read and checked, decompressed, and appended to the same columns. `stream_messages` does it with messages of formats 0 and 1, and stops
before an entry with anything unusual. What is left of the chunk is then read, gets a row of the batch table for each entry, and takes the
general path.
"""

from math import inf
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Bytes, Flags, Int64s
from kolumn.core.recycle import memory, take
from kolumn.cpu_fallback.check import HEADERS
from kolumn.cpu_fallback.columns import RecordMemory
from kolumn.cpu_fallback.fields.target import COPY, HEADER_KEY, HEADER_VALUE, KEY, NEXT_BLOCK, ROWS, VALUE, VIEW
from kolumn.cpu_fallback.fields.target import HEADERS as HEADER_COUNT
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
    Room,
    Source,
    Span,
    append,
    hop,
    load,
    needs_library,
    stream,
)
from kolumn.cpu_fallback.stream_messages import (
    ALL,
    APART,
    INTACT,
    MESSAGE_SLOTS,
    MESSAGES,
    POSITION,
    SMALL,
    STRETCHES,
    WEIGHT,
    stream_messages,
)
from kolumn.decode.host.chunks import MOST_ENTRIES, Chunk, Loaded, messages_from, walk_entries
from kolumn.decode.host.record_batch import FROM_TABLE, SAME_IN_MESSAGES, HostPart
from kolumn.decode.host.run import Run, bytes_of, limits, memory_for, modes, wanted
from kolumn.formats import table
from kolumn.formats.codecs import LZ4, NONE
from kolumn.formats.entries import Entries
from kolumn.formats.legacy import SMALLEST_ENTRY
from kolumn.formats.v2 import HEADER, SMALLEST_RECORD
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile

TILE = 4 << 20  # maximum compressed bytes that a library decompresses at a time
BLOCK = NEXT_BLOCK  # bytes that `stream` reads at a time
LATER = -1  # state of a chunk whose remaining entries are left for later, since they would need too much memory
SLACK = 1 << 16  # extra room for the batch with which a chunk exceeds its size
INFLATED, MOST_INFLATED = 4 << 20, 16 << 20
"""Bytes of the arena unless views keep them: at first, and after a batch that does not fit. Larger batches are left to a library."""
ASIDE = 256 << 10  # bytes after an unusual entry that take the general path too, unless the end of the chunk is known
LIKELY_MESSAGE = 64  # decompressed bytes of a message, before any was seen
_NO_ROOM = take(PAD)  # memory of an arena before it has a payload: nothing is written to it
_UNBOUNDED = 1 << 62


class Streamed(NamedTuple):
    """Result of streaming a chunk."""

    parts: list[HostPart]
    entries: Entries
    """The entries of the chunk, including those found after the known ones; only the decoded ones, if there was no memory for more."""
    is_wrong: bool
    """One of the entries is damaged. The decoded parts must not be used then; the general path finds out what is wrong."""
    intact: int | None = None  # number of decoded entries, if a row stands for several
    reached: int | None = None  # position after the chunk, if entries do not tell it
    following: Entries | None = None  # the entry after the chunk, if its header was read
    rest: Chunk | None = None  # what is left of the chunk after the entries: something unusual, or what has no room in memory


def stream_runs(
    file: SegmentFile, entries: Entries, span: Span, options: Options, need_key: bool, share: Share, descriptor: int | None = None
) -> Streamed:
    """Decode batches of format 2; the file's statistics are updated: record density, compression ratio, share of keys, largest batch.

    Of the ``entries`` at least one is known, as `stream.hop` finds them; ``span`` is the part of the file after these that belongs to the
    chunk. ``need_key`` is as for `run.decode_run`, ``share`` is how much memory the chunk may use, and ``descriptor`` is where compiled
    code reads instead of the file, as `SegmentFile.descriptor`.
    """
    chunk = _Batches(file, entries, span, options, need_key, share, file.descriptor if descriptor is None else descriptor)
    parts = chunk.parts()
    return Streamed(parts, Entries(chunk.entries.array[: chunk.known]), chunk.state == WRONG, following=chunk.following)


def stream_message_runs(file: SegmentFile, chunk: Chunk, options: Options, need_key: bool, share: Share) -> Streamed:
    """Decode the messages of formats 0 and 1 of a chunk without bytes; parameters as for `stream_runs`."""
    messages = _Messages(file, chunk, options, need_key, share)
    parts = messages.parts()
    entries = Entries.joined([part.entries for part in parts]) if parts else Entries.room(0)
    rest = messages.rest()
    return Streamed(parts, entries, False, messages.intact, messages.position if rest is None else rest.end, rest=rest)


class _Tile(NamedTuple):
    """Entries that a library has decompressed; ``origin`` and ``size`` are where each payload is in the arena."""

    row: int
    entries: Entries
    asked: Flags
    origin: Int64s
    size: Int64s
    arena: Bytes


class _Stream:
    """State of decoding one chunk: the memory that is being filled.

    Decompressed payloads are in the ``arena`` while their records are read, and for good if views point into it (``keep``): then the
    columns of each part have an arena of their own. It has room for ``arena_room`` bytes, 0 before the first compressed payload.
    """

    limit: Room
    memory: RecordMemory

    def __init__(self, file: SegmentFile, span: Span, options: Options, share: Share) -> None:
        self.file, self.span, self.options, self.share = file, span, options, share
        self.keep = options.binary == "view"
        self.limits, self.libraries = limits(options), decoders(options.remarks)
        self.state, self.need, self.ready, self.packed, self.taken = DONE, 0, 0, 0, 0
        self.arena, self.arena_bytes = _NO_ROOM
        self.arena_room, self.most_arena = 0, max(INFLATED, min(MOST_INFLATED, share.bytes // 16))
        self.sources: list[pa.Buffer] = []

    def _begin_arena(self, payload_bytes: int) -> None:
        """An arena for new columns, if views of the old ones point into theirs. A payload that is ready moves to it."""
        waiting = self.arena_bytes[self.packed : self.packed + self.ready]
        self.arena, self.arena_bytes = take((payload_bytes if self.ready else 0) + PAD)
        self.arena_bytes[: self.ready] = waiting
        self.arena_room = min(payload_bytes, self.options.max_batch_bytes) if self.ready else 0

    def _likely_arena(self) -> int:
        return INFLATED if max(self.arena_room, self.file.sizes.largest) < INFLATED else self.most_arena

    def _grow_arena(self, size: int) -> bool:
        """Make the first arena, or a larger one; False if that is not allowed."""
        size = min(size, self.options.max_batch_bytes)
        if size <= self.arena_room:
            return False
        self.arena, self.arena_bytes = take(size + PAD)
        self.arena_room, self.limit = size, self.limit._replace(arena=size)
        if self.keep:
            self.sources[1] = self.arena
        return True


class _Batches(_Stream):
    """Decodes batches of format 2."""

    def __init__(
        self, file: SegmentFile, entries: Entries, span: Span, options: Options, need_key: bool, share: Share, descriptor: int
    ) -> None:
        super().__init__(file, span, options, share)
        rows, self.known, self.descriptor = entries.array, len(entries.array), descriptor
        self.tile: _Tile | None = None
        self.following: Entries | None = None
        self.modes = modes(options, VIEW if self.keep else COPY, need_key, VIEW)
        first, last = rows[0].tolist(), rows[-1].tolist()
        self.origin = first[table.POSITION]
        if self.known == 1:
            size = largest = first[table.SIZE]
            self.whole = self.keep and first[table.CODEC] == NONE
        else:
            size, largest = int(entries.size.sum()), int(entries.size.max())
            self.whole = self.keep and bool((entries.codec == NONE).any())
        if span.stop > last[table.POSITION] + last[table.SIZE]:
            # Room for the entries that are found later.
            rows = np.empty((MOST_ENTRIES, table.WIDTH), np.int64)
            rows[: self.known] = entries.array
        self.entries, self.records = Entries(rows), np.empty(len(rows), np.int64)
        largest = max(BLOCK, largest)
        # Of a segment in memory only its end is copied, an entry at a time.
        copies = self.whole and file.memory is None
        self.room = min(max(int(span.weight), size) + largest if copies else largest, file.size - self.origin)
        try:
            # The window of a chunk of this file that is done.
            self.window = file.spare.pop()
        except IndexError:
            self.window = None
        if self.window is None or self.window.size < self.room + PAD:
            self.window = memory(self.room + PAD)

    def parts(self) -> list[HostPart]:
        """Decode entry by entry; whenever the columns are full, they become a part. Parts of a damaged chunk must be discarded."""
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
                parts.append(HostPart(run, Entries(self.entries.array[first:row])))
                if not done:
                    self.taken += bytes_of(at[ROWS], at[KEY] + at[VALUE])
            if self.state == DONE and row < self.known:
                self.following, self.known = Entries(self.entries.array[row : self.known].copy()), row
            elif self.state == LATER or (not done and self.taken >= self.share.bytes):
                self.known, done = row, True
        if not self.keep:
            self.file.spare.append(self.window)
        return parts

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
        density = sizes.density or max(count, 1) / size
        records = max(int(payload_bytes * density * 1.1), min(count, self.need // SMALLEST_RECORD), 1)
        if self.keep:
            self._begin_arena(payload_bytes)
        self.memory, self.limit = memory_for(
            sizes, payload_bytes, min(records, payload_bytes // SMALLEST_RECORD), max(SLACK, self.largest), self.modes, self.options, SLOTS,
            arena=self.arena_room, converts=True,
        )  # fmt: skip
        self.payload_bytes, self.inflated = payload_bytes, 0
        plain = self.window
        if self.keep:
            held = self.file.memory
            if held is not None and self.whole and likely[table.POSITION] + size + PAD <= self.file.size:
                plain = held.slice(self.origin)
            self.sources = [plain, self.arena]
        # What views of uncompressed payloads point into.
        self.views = plain.address
        if codec != NONE and not self.arena_room and not needs_library(codec, self.libraries):
            self._make_arena()

    def _fill(self, row: int) -> int:
        """Decode until the columns are full; returns the next row."""
        while True:
            ready, self.ready = self.ready, 0
            source = Source(
                self.descriptor, self.views, self.window.address, self.arena.address, self.room, BLOCK, self.whole, self.keep,
                self.libraries,
            )  # fmt: skip
            row, self.state, self.need, self.known = stream(
                source, self.span, self.limits, self.entries.array, self.known, row, ready, self.records, self.memory.target,
                self.memory.at, self.limit,
            )  # fmt: skip
            if self.state == WINDOW:
                # For a batch that is larger than those before it, and for somewhat larger ones.
                self.room = self.need * 5 // 4
                self.window = memory(self.room + PAD)
                self.views = self.window.address
                if self.keep:
                    self.sources[0] = self.window
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

    def _make_arena(self) -> bool:
        return self._grow_arena(self.payload_bytes + min(self.largest, self.most_arena) if self.keep else self._likely_arena())

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
        at = self.memory.at.tolist()
        used = self.taken + bytes_of(at[ROWS], at[KEY] + at[VALUE]) + (self.inflated if self.keep else 0)
        left = Share(max(self.share.bytes - used, 1), self.share.large and not row)
        result = inflate(
            np.frombuffer(window, np.uint8), start, size, entries.codec[taken], entries.magic[taken],
            self.options.max_batch_bytes, self.options.max_ratio, left,
        )  # fmt: skip
        done = result.done
        if result.code[:done].any() or (self.options.remarks and entries.codec[0] == LZ4):
            # Only the general path compares content checksums of what a library decompressed.
            return WRONG
        if done < len(taken):
            # Entries without room are left for the next tile, or the next chunk.
            entries, asked, taken = entries[: taken[done]], asked[: taken[done]], taken[:done]
        if not len(entries):
            return LATER
        origin, size = np.zeros(len(entries), np.int64), np.zeros(len(entries), np.int64)
        origin[taken], size[taken] = result.start[:done], result.size[:done]
        self.tile = _Tile(row, entries, asked, origin, size, result.arena)
        return DONE

    def _look_ahead(self, row: int) -> None:
        """Find the entries after ``row``, as many as make a tile and as still may be added to the chunk."""
        if self.known == row + 1:
            entries = self.entries[: self.known]
            weights = np.where(entries.codec == NONE, 1.0, self.span.inflates) * entries.size
            left = (self.span.weight - float(weights.sum())) / self.span.inflates
            room, _ = take(HEADER + PAD)
            span = self.span._replace(weight=min(TILE, left), inflates=1.0)
            self.known += hop(self.descriptor, entries[row].end, span, room.address, self.entries[self.known :].array)[0]

    def _learn(self, at: list[int]) -> None:
        """Update the file's statistics, which predict the sizes of the next batches."""
        sizes, inflated = self.file.sizes, self.inflated + at[ARENA]
        sizes.largest = max(sizes.largest, at[LARGEST])
        columns = at[KEY], at[VALUE], at[HEADER_KEY], at[HEADER_VALUE]
        sizes.learn(at[PLAIN] + inflated, at[ROWS], at[HEADER_COUNT], columns, at[PACKED], inflated)
        if at[PACKED]:
            self.span = self.span._replace(inflates=sizes.inflates)


class _Messages(_Stream):
    """Decodes messages of formats 0 and 1."""

    def __init__(self, file: SegmentFile, chunk: Chunk, options: Options, need_key: bool, share: Share) -> None:
        assert chunk.span is not None
        super().__init__(file, chunk.span, options, share)
        self.start, first = chunk.origin, chunk.entries[0]
        self.is_bounded = self.span.stop == first.end
        self.position, self.weight = self.start, _UNBOUNDED if self.is_bounded else int(self.span.weight)
        self.most_per_byte = 1 if first.codec == NONE else 64
        self.intact = 0
        # The timestamp of a wrapper is in its row.
        same = FROM_TABLE.keys() & options.columns <= SAME_IN_MESSAGES
        self.merge = APART if not same else MESSAGES if options.remarks else ALL
        self.modes = modes(options, VIEW if self.keep else COPY, need_key)
        self.density = file.sizes.density or (1 / LIKELY_MESSAGE if self.is_bounded or first.codec != NONE else 1 / first.size)
        self.row, self.entries = np.zeros(table.WIDTH, np.int64), Entries.room(MOST_ENTRIES)
        self.records = np.zeros(MOST_ENTRIES, np.int64)
        # The window keeps all bytes of the chunk if views will point into it.
        self.whole = self.keep and first.codec == NONE
        stored = self.span.stop - self.start if self.is_bounded else min(int(self.span.weight) + first.size, file.size - self.start)
        self.room = max(BLOCK, stored) + SLACK if self.whole else BLOCK
        self.window, _ = take(self.room + PAD)

    def parts(self) -> list[HostPart]:
        """Decode message by message; whenever the columns are full, they become a part."""
        parts = list[HostPart]()
        self.state = FULL
        while self.state == FULL and (not parts or self.taken < self.share.bytes):
            self._begin()
            self._fill()
            at = self.memory.at.tolist()
            stretches, intact, self.packed = at[STRETCHES], at[INTACT], at[ARENA]
            if intact:
                self._learn(at)
                run = Run(self.memory.columns(at), self.records[:stretches].copy(), self.sources, {})
                self.taken += run.bytes
                self.intact += intact
                parts.append(HostPart(run, self.entries[:stretches].copy()))
            self.position, self.weight = at[POSITION], at[WEIGHT]
        return parts

    def rest(self) -> Chunk | None:
        """What is left of the chunk, None if it ends where the loop stopped."""
        if self.state == FULL:
            # There was no memory for more. It goes on from here.
            if not self.is_bounded:
                return None
            left = messages_from(self.file, self.position, self.span._replace(weight=inf), _UNBOUNDED)
            return left if left is not None and left.end == self.span.stop else self._loaded()
        if self.state == DONE and self.position > self.start and (not self.is_bounded or self.position == self.span.stop):
            return None
        return self._loaded()

    def _loaded(self) -> Chunk | None:
        """The entries that are left, with their bytes."""
        file, stop = self.file, self.span.stop
        size = stop - self.position if self.is_bounded else ASIDE
        while True:
            # `walk` wants to see some bytes after an entry, unless the file ends there.
            loaded = min(self.position + size + HEADERS, file.size)
            source = file.read(self.position, loaded)
            entries = Entries.room((loaded - self.position) // SMALLEST_ENTRY + 1)
            held = Loaded(source, self.position, loaded, file.size)
            decide = self.options.check_crcs
            count, _, _, claimed = walk_entries(held, self.position, stop, file.format, entries, whole=True, decide=decide)
            if count:
                return Chunk(source, self.position, entries[:count])
            if claimed <= size or loaded == file.size:
                return None
            size = claimed

    def _begin(self) -> None:
        """Allocate columns; their size is always the same, so that their memory can be reused."""
        payload_bytes = max(min(int(self.span.weight), self.most_per_byte * (self.span.stop - self.position)) * 9 // 8 + SLACK, self.need)
        records = max(int(payload_bytes * self.density * 1.1), self.need // SMALLEST_ENTRY + 1)
        if self.keep:
            self._begin_arena(payload_bytes)
        more = max(SLACK, self.file.sizes.largest, self.need)
        self.memory, self.limit = memory_for(
            self.file.sizes, payload_bytes, records, more, self.modes, self.options, MESSAGE_SLOTS, arena=self.arena_room
        )
        self.memory.at[POSITION], self.memory.at[WEIGHT] = self.position, self.weight
        self.sources = [self.window, self.arena] if self.keep else []

    def _fill(self) -> None:
        """Decode until the columns are full, or until the chunk ends."""
        while True:
            source = Source(
                self.file.descriptor, self.window.address, self.window.address, self.arena.address, self.room, BLOCK, self.whole,
                self.keep, self.libraries,
            )  # fmt: skip
            self.state, self.need, self.ready = stream_messages(
                source, self.span, self.limits, self.merge, self.start, self.ready, self.entries.array, self.row, self.records,
                self.memory.target, self.memory.at, self.limit,
            )  # fmt: skip
            if self.state == WINDOW:
                self.room = self.need * 5 // 4
                self.window, _ = take(self.room + PAD)
            elif self.state != SMALL or not self._grow_arena((self.limit.value_bytes if self.keep else 0) + self._likely_arena()):
                return

    def _learn(self, at: list[int]) -> None:
        """Update the file's statistics, which predict the sizes of the next chunks, unless entries were left out."""
        entries, sizes, rows = self.entries[: at[STRETCHES]], self.file.sizes, at[ROWS]
        sizes.largest = max(sizes.largest, at[LARGEST])
        if rows < at[INTACT]:
            return
        packed = int(entries.size[entries.codec != NONE].sum())
        total = int(entries.size.sum()) - packed + at[ARENA]
        # Values may be all of a batch.
        sizes.learn(total, rows, 0, (at[KEY], total, total, total), packed, at[ARENA])
        self.density = sizes.density
