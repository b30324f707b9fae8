"""A chunk of messages of formats 0 and 1 becomes Arrow columns directly from the file, as `streamed` does with batches of format 2.

`stream_messages` stops before an entry with anything unusual. What is left of the chunk is then read, gets a row of the batch table for
each entry, and takes the general path.
"""

from math import inf

import numpy as np
import pyarrow as pa

from kolumn.core.recycle import take
from kolumn.cpu_fallback.check.walk import HEADERS
from kolumn.cpu_fallback.fields.put import COPY, VIEW
from kolumn.cpu_fallback.fields.target import KEY, ROWS
from kolumn.cpu_fallback.inflate.arena import Share
from kolumn.cpu_fallback.inflate.libraries import decoders
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.cpu_fallback.stream import ARENA, DONE, FULL, LARGEST, WINDOW, Source
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
from kolumn.decode.host.record_batch import HostPart
from kolumn.decode.host.run import Run, limits, memory_for, modes
from kolumn.decode.host.streamed import BLOCK, SLACK, StreamArena, Streamed
from kolumn.formats.codecs import NONE
from kolumn.formats.entries import Entries
from kolumn.formats.legacy import SMALLEST_ENTRY
from kolumn.formats.table import WIDTH
from kolumn.log.chunks import MOST_ENTRIES, Chunk, messages_from
from kolumn.log.walk import Loaded, walk_entries
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile

ASIDE = 256 << 10
"""Bytes after an unusual entry that take the general path too, unless the end of the chunk is known."""
LIKELY_MESSAGE = 64
"""Decompressed bytes of a message, before any was seen."""
_UNBOUNDED = 1 << 62


def stream_message_runs(file: SegmentFile, chunk: Chunk, options: Options, need_key: bool, share: Share) -> Streamed:
    """Decode the messages of a chunk without bytes; parameters as for `streamed.stream_runs`."""
    decoder = _Messages(file, chunk, options, need_key, share)
    parts = decoder.parts()
    entries = Entries.joined([part.entries for part in parts]) if parts else Entries.room(0)
    rest = decoder.rest()
    return Streamed(parts, entries, False, decoder.intact, decoder.position if rest is None else rest.end, rest=rest)


class _Messages:
    """State of decoding one chunk: the position, and the memory that is being filled."""

    def __init__(self, file: SegmentFile, chunk: Chunk, options: Options, need_key: bool, share: Share) -> None:
        assert chunk.span is not None
        self.file, self.span, self.options, self.share = file, chunk.span, options, share
        self.start, first = chunk.origin, chunk.entries[0]
        self.is_bounded = self.span.stop == first.end
        self.position, self.weight = self.start, _UNBOUNDED if self.is_bounded else int(self.span.weight)
        self.most_per_byte = 1 if first.codec == NONE else 64
        self.state = self.need = self.ready = self.intact = self.taken = 0
        self.keep = options.binary == "view"
        # The timestamp of a wrapper is in its row.
        self.merge = APART if "position" in options.columns else MESSAGES if options.remarks else ALL
        self.modes, self.limits = modes(options, VIEW if self.keep else COPY, need_key), limits(options)
        self.libraries = decoders(options.remarks)
        self.density = file.sizes.density or (1 / LIKELY_MESSAGE if self.is_bounded or first.codec != NONE else 1 / first.size)
        self.row, self.entries = np.zeros(WIDTH, np.int64), Entries.room(MOST_ENTRIES)
        self.records = np.zeros(MOST_ENTRIES, np.int64)
        # The window keeps all bytes of the chunk if views will point into it.
        self.whole = self.keep and first.codec == NONE
        stored = self.span.stop - self.start if self.is_bounded else min(int(self.span.weight) + first.size, file.size - self.start)
        self.room = max(BLOCK, stored) + SLACK if self.whole else BLOCK
        self.window, _ = take(self.room + PAD)
        self.arena = StreamArena(self.keep, options, share)
        self.packed = 0

    def parts(self) -> list[HostPart]:
        """Decode message by message; whenever the columns are full, they become a part."""
        parts = list[HostPart]()
        self.state = FULL
        while self.state == FULL and (not parts or self.taken < self.share.bytes):
            self._begin()
            self._fill()
            at = self.memory.at.tolist()
            stretches, found, self.packed = at[STRETCHES], at[INTACT], at[ARENA]
            if found:
                self._learn(at)
                entries = self.entries[:stretches].copy()
                run = Run(self.memory.columns(at), self.records[:stretches].copy(), self.sources, {})
                self.taken += run.bytes
                self.intact += found
                parts.append(HostPart(run, entries))
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
        self.arena.begin(payload_bytes, self.packed, self.ready)
        more = max(SLACK, self.file.sizes.largest, self.need)
        self.memory, self.limit = memory_for(
            self.file.sizes, payload_bytes, records, more, self.modes, self.options, MESSAGE_SLOTS, self.arena.room
        )
        self.memory.at[POSITION], self.memory.at[WEIGHT] = self.position, self.weight
        self.sources: list[pa.Buffer] = [self.window, self.arena.buffer] if self.keep else []

    def _fill(self) -> None:
        """Decode until the columns are full, or until the chunk ends."""
        while True:
            source = Source(
                self.file.descriptor, self.window.address, self.window.address, self.arena.buffer.address, self.room, BLOCK, self.whole,
                self.keep, self.libraries,
            )  # fmt: skip
            self.state, self.need, self.ready = stream_messages(
                source, self.span, self.limits, self.merge, self.start, self.ready, self.entries.array, self.row, self.records,
                self.memory.target, self.memory.at, self.limit,
            )  # fmt: skip
            if self.state == WINDOW:
                self.room = self.need * 5 // 4
                self.window, _ = take(self.room + PAD)
            elif self.state != SMALL or not self._make_arena():
                return

    def _make_arena(self) -> bool:
        """Make the first arena, or a larger one; False if that is not allowed."""
        size = self.arena.likely(self.file.sizes.largest)
        if not self.arena.grow(self.limit.value_bytes + size if self.keep else size):
            return False
        self.limit = self.limit._replace(arena=self.arena.room)
        if self.keep:
            self.sources[1] = self.arena.buffer
        return True

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
