"""A chunk of entries on a GPU: kernels do the work, the CPU judges what they find wrong, and Arrow columns come back.

Kernels note of a batch only that something in it is wrong. Such a batch is decoded once more on the CPU, so that both backends give
the same error with the same words, and the rest goes through the kernels again without it.
"""

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kolumn.core.arrays import AnyArray, Bytes, Flags, Int64s
from kolumn.core.errors import Code, KolumnError
from kolumn.cpu_fallback.columns import SKIPPED, BinaryColumn, Columns
from kolumn.cpu_fallback.fields.target import COPY, HEADER_KEY, HEADER_VALUE, KEY, SKIP, VALUE
from kolumn.cpu_fallback.inflate.arena import RATIO_FLOOR
from kolumn.cpu_fallback.inflate.blocks import locate
from kolumn.decode.device.inflate import InflatedOnDevice, InflatePlan, Inflater
from kolumn.decode.host.aborted import Transactions, to_decode
from kolumn.decode.host.chunks import Chunk, WrongChecksumsError
from kolumn.decode.host.record_batch import HostPart
from kolumn.decode.host.run import Run, decode_run, modes
from kolumn.formats import layouts, table
from kolumn.formats.codecs import LZ4, lz4
from kolumn.formats.entries import Entries
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile

if TYPE_CHECKING:
    from kolumn.kernels.columns.gather import Binary, Measured
    from kolumn.kernels.decode import Wanted
    from kolumn.kernels.fields.records import DeviceRecords
    from kolumn.kernels.machine.runtime import Memory, Runtime

MOST_BYTES = 128 << 20
"""Bytes of the payloads in a part and of its rows, but for one batch that has more: columns come back through a page-locked block, which
has at most `recycle.LARGEST_LOCKED`."""
MOST_ROOM = 2 << 30
"""Bytes that payloads may need which are decompressed together: nvCOMP is at its best with many blocks, and of most frames it is not known
how small they will be."""
ROW_BYTES = 60  # device memory of a row until its columns are made
SHARES = 16  # of the pool, a chunk on the device takes so many at most: room, payloads in one piece, rows, columns, and what nvCOMP needs
AT_A_TIME = 3  # chunks on the device: one is copied there, one decoded, one copied back
LOADED = 8
"""Chunks in page-locked memory of the host: those on the device, and those that are read meanwhile. Eight threads read files at 26 GB/s,
six at 16 (16 cores beside an H200)."""
EMPTIED = 6
"""Parts in page-locked memory on their way into ordinary memory. With what is loaded they are about as much as a process keeps locked: to
lock 64 MiB takes longer than to empty them."""
_NOTHING = np.zeros(0, np.uint8)
_turns = threading.BoundedSemaphore(AT_A_TIME)
_loaded = threading.BoundedSemaphore(LOADED)
_emptied = threading.BoundedSemaphore(EMPTIED)


class DevicePart:
    """Records on the device, of the entries with the numbers ``good``.

    ``measures`` were downloaded of what was begun; ``found``, ``parts`` and ``unlike`` are as in `decode.host.run.Run`; ``bytes`` are those
    of the decompressed payloads.
    """

    def __init__(
        self, device: "Runtime", good: Int64s, records: "DeviceRecords", measures: list[Bytes], inflated: InflatedOnDevice
    ) -> None:
        self.device, self.good, self.records, self.found, self._kept = device, good, records, inflated.found, inflated.kept
        self.measures, self.parts, self.unlike = measures, inflated.parts, tuple(inflated.unlike)
        self.bytes = int(inflated.size[good].sum())


class ChunkOnDevice:
    """Bytes of a segment on the current device, for as long as the context lasts; so many chunks are there `AT_A_TIME`.

    A chunk has no bytes if it has batches of format 2 alone. Where the device `reads_files`, these go there past the host's memory;
    otherwise the thread that decodes the chunk reads them. ``inflated_by_cpu`` counts the payloads so far that the codecs of the CPU
    inflated, because nvCOMP can't or must not.
    """

    on_gpu = True
    most_bytes = MOST_BYTES

    def __init__(self, file: SegmentFile, chunk: Chunk, options: Options) -> None:
        from kolumn.kernels.machine.device import runtime

        self.file, self.chunk, self.origin, self.options = file, chunk, chunk.origin, options
        self.device = runtime()
        self.format = layouts.FORMAT_NAMES.index(options.format)
        self.inflated_by_cpu = 0
        self._compared: tuple[Entries, Int64s, tuple[Memory, int, int]] | None = None
        self.drafts = not layouts.FORMATS[self.format].as_shipped

    def __enter__(self) -> Self:
        host_decompresses = not self.options.trusted and self.chunk.entries.codec.any()
        directly = self.device.reads_files and self.file.has_path and self.chunk.is_unread and not host_decompresses
        with ExitStack() as held:
            held.enter_context(_loaded)
            if not directly:
                # Before the chunk's turn: other chunks are decoded while this one is read.
                self.device.rest()
                self.chunk = self.chunk.loaded(self.file, locked=True)
            held.enter_context(_turns)
            self.source = self._sent(directly)
            self._table = BatchTable(self.device, self.chunk.entries)
            self._held = held.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        with self._held:
            if error[0] is not None:
                # What was asked for reads memory of the host that is used again soon.
                self.device.synchronize()

    def _host(self) -> Bytes:
        self.chunk = self.chunk.loaded(self.file)
        source: Bytes = self.chunk.source
        return source

    def _leave(self) -> None:
        """Let other chunks have the device and the page-locked memory: nothing of this one is needed there any more."""
        del self.source, self._table, self.chunk
        self._held.close()

    def _sent(self, directly: bool) -> Any:
        source = self.device.load(self.file.opened_path, self.origin, self.chunk.end) if directly else None
        if source is None:
            # Framings are found on the host; and it says why a file can't be read.
            self.chunk = self.chunk.loaded(self.file, locked=True)
            source = self.device.upload(self.chunk.source)
        return source

    def check(self, entries: Entries) -> None:
        """As `decode.chunk.HostChunk.check`; `runs` looks at the flags when it waits for the device anyway."""
        whole = np.flatnonzero(entries.is_intact)
        if len(whole):
            self._compared = entries, whole, self._flags(entries[whole])

    def _flags(self, entries: Entries) -> tuple["Memory", int, int]:
        """What to download: int32 of each entry, not 0 where the checksum is wrong."""
        from kolumn.kernels.check import compare_checksums

        flags = compare_checksums(self.device, self._table.of(entries), len(entries), self.source.address - self.origin)
        return flags, flags.size, 0

    @property
    def _wanted_flags(self) -> list[tuple["Memory", int, int]]:
        return [self._compared[2]] if self._compared else []

    def _look_at_checksums(self, downloaded: list[Bytes]) -> None:
        """Set codes by the flags that `check` left, which are the last that was ``downloaded``, if anything was."""
        if self._compared is not None:
            entries, whole, flags = self._compared
            self._compared = None
            bad = (downloaded.pop() if downloaded else self.device.download(*flags)).view(np.int32) != 0
            entries.code[whole[bad]] = Code.BAD_CRC
            if bad.any():
                raise WrongChecksumsError

    @staticmethod
    def streamed(file: SegmentFile, chunk: Chunk, options: Options, alone: bool) -> None:
        """A device has no such way."""

    def parts(
        self, entries: Entries, begin: "Callable[[DeviceRecords], Wanted]" = lambda _: []
    ) -> Generator[tuple[Entries, DevicePart], None, None]:
        """Decode entries, some at a time: the entries, of which damaged ones get a code, and their records.

        ``begin`` is as ``measure`` of `kolumn.kernels.decode.decode`.
        """
        if not len(entries):
            self._look_at_checksums([])
        todo = self._plan(entries)
        inflater = Inflater(self.device, self._host, self.source.address, todo, self.options)
        share, packed = self.device.memory // SHARES, todo.codec != 0
        # What the caller has no room for would be decompressed again later.
        expected = todo.expected(self.file.sizes.inflates) / self.options.inflated_bytes
        for room in _cut(np.maximum(todo.bound / min(MOST_ROOM, share), expected)):
            inflated = inflater.part(room, entries[room])
            if some := int(todo.size[room][packed[room]].sum()):
                self.file.sizes.inflates = max(1.0, int(inflated.size[packed[room]].sum()) / some)
            rows = _rows(entries[room], inflated.size)
            needed = (inflated.size + ROW_BYTES * rows) / min(self.most_bytes, share)
            for piece in _cut(np.maximum(needed, inflated.size / self.options.inflated_bytes)):
                those = slice(room.start + piece.start, room.start + piece.stop)
                # No name here keeps a part that the caller has let go.
                yield entries[those], self._part(inflater, those, entries[those], inflated.of(piece), begin)

    def _plan(self, entries: Entries) -> InflatePlan:
        """Find the payloads, and the blocks of those that are compressed, for which it waits."""
        start, size, codec = (np.empty(len(entries), np.int64) for _ in range(3))
        host = _NOTHING if self.chunk.is_unread else self.chunk.source
        locate(host.ctypes.data, self.origin, entries.array, start, size, codec)
        start -= self.origin
        packed = np.flatnonzero(codec)
        framed = self._framed(entries[packed], start[packed], size[packed], codec[packed]) if len(packed) else None
        return InflatePlan.of(start, size, codec, packed, framed)

    def _framed(self, entries: Entries, start: Int64s, size: Int64s, codec: Int64s) -> tuple[AnyArray, Flags]:
        """Blocks of compressed payloads, and flags of those that are for the CPU.

        These are what is broken or suspiciously large, what nvCOMP can't do, and what has a wrong checksum where nobody asks for them:
        nvCOMP may take the whole process down with a broken stream.
        """
        from kolumn.kernels.frame import Framing

        # To how many bytes they may decompress.
        most = np.maximum(RATIO_FLOOR, self.options.max_ratio * size)
        limit = np.minimum(float(self.options.max_batch_bytes), most).astype(np.int64)
        framing = Framing.begin(self.device, self.source.address + start, size, codec, entries.magic, limit)
        own = [] if self.options.check_crcs else [self._flags(entries)]
        counts, slots, *flags = self.device.downloads([*framing.wanted, *own, *self._wanted_flags])
        wrong = flags.pop(0).view(np.int32) != 0 if own else np.zeros(len(entries), bool)
        self._look_at_checksums(flags)
        blocks, on_cpu = framing.finish(counts, slots)
        if self.options.remarks and (framed := codec == LZ4).any():
            # nvCOMP does not compare the contents.
            on_cpu |= framed & (self._host()[np.where(framed, start + lz4.FLAGS_AT, 0)] & lz4.CONTENT_CHECKSUM != 0)
        return blocks, on_cpu | wrong | (not self.options.trusted)

    def _part(
        self, inflater: Inflater, piece: slice, entries: Entries, inflated: InflatedOnDevice, begin: "Callable[[DeviceRecords], Wanted]"
    ) -> DevicePart:
        from kolumn.kernels.decode import decode

        def asked(records: "DeviceRecords") -> "Wanted":
            return [*begin(records), *self._wanted_flags]

        while True:
            good = np.flatnonzero(entries.is_intact | np.isin(np.arange(len(entries)), [*inflated.parts]))
            if self.options.errors == "raise" and len(good) < len(entries):
                # Nothing after the first damaged entry is needed.
                good = good[good < np.flatnonzero(entries.code)[0]]
            address, sizes = inflated.address[good], inflated.size[good]
            some = entries[good]
            for i, part in inflated.parts.items():
                some.array[np.searchsorted(good, i)] = part.row.array
            batches = self.device.upload(some.array) if inflated.parts else self._table.of(some)
            counts = _counted(some, sizes)
            done = decode(
                self.device, batches, address, sizes, self.format, self.options.check_crcs, self.drafts, measure=asked, counts=counts
            )
            self._look_at_checksums(done.measures)
            if done.records is not None:
                self.inflated_by_cpu += inflated.by_cpu
                return DevicePart(self.device, good, done.records, done.measures, inflated)
            unlike = self._judge(inflater.todo.on_cpu[piece] | (inflater.todo.codec[piece] == 0), entries, good[done.bad], inflated)
            inflater.on_cpu(piece, unlike, entries, inflated)

    def _judge(self, final: Flags, entries: Entries, suspects: Int64s, inflated: InflatedOnDevice) -> Int64s:
        """Let the CPU find what is wrong with batches, and what can be read of them.

        Returns the numbers of those in which it finds nothing: nvCOMP decompressed them wrongly.
        """
        unlike = []
        every = replace(self.options, errors="skip", columns=("offset", "key", "value", "headers"), binary="contiguous")
        for i in suspects.tolist():
            own = entries[i : i + 1]
            judged = None
            if i not in inflated.parts:
                judged = decode_run(*self.chunk.bytes_of(self.file, own[0]), own, every, need_key=False, in_parts=self.options.in_parts)
            if judged is not None and not own[0].is_intact:
                inflated.found[i] = judged.found[0]
                if judged.parts:
                    inflated.put(i, judged.parts[0], self.device)
            elif judged is not None and not final[i]:
                unlike.append(i)
            else:
                raise KolumnError(
                    f"position {own[0].position}: the GPU found something wrong in a batch in which the CPU finds nothing. "
                    "That is a defect of Kolumn: please report it, and use backend='cpu'"
                )
        return np.array(unlike, np.int64)


class Begun:
    """Columns of bytes that are begun while the device still looks at records, so that one wait tells how large they are.

    The records may turn out to be wrong. ``keys`` and ``values`` are modes.
    """

    def __init__(self, device: "Runtime", records: "DeviceRecords", keys: int, values: int, headers: bool) -> None:
        from kolumn.kernels.columns.gather import begin_ends, measure

        self.columns: dict[int, Measured] = {}
        for payloads, mode, where in ((records.key, keys, KEY), (records.value, values, VALUE)):
            if mode != SKIP:
                self.columns[where] = measure(device, payloads)
        self.header_ends = begin_ends(device, records.headers, records.rows) if headers else None
        self.wanted = [memory for column in self.columns.values() for memory in column.wanted]
        if self.header_ends is not None:
            self.wanted.append((self.header_ends, 4, 4 * records.rows))


def to_run(part: DevicePart, begun: Begun, entries: int) -> Callable[[], Run]:
    """Copy what was begun of the records of ``entries`` entries to the host; waits once, and once more if there are headers.

    The function that is returned makes the columns, in ordinary memory, and needs the device no more.
    """
    from kolumn.kernels.columns.gather import header_parts, measure, moved, number_of

    device, records, sums = part.device, part.records, list(map(number_of, part.measures))
    made: dict[int, Binary] = {}
    for k, (where, measured) in enumerate(begun.columns.items()):
        made[where] = moved(device, measured, *sums[2 * k : 2 * k + 2])
    if begun.header_ends is not None:
        parts = [measure(device, payloads) for payloads in header_parts(device, records, begun.header_ends, sums[-1])]
        lengths = list(map(number_of, device.downloads([memory for column in parts for memory in column.wanted])))
        for k, where in enumerate((HEADER_KEY, HEADER_VALUE)):
            made[where] = moved(device, parts[k], *lengths[2 * k : 2 * k + 2])
    drafts, headed = records.attributes is not None and records.seconds is not None, begun.header_ends is not None
    wanted: list[tuple[Memory, int, int]] = [(records.offset, 8 * records.rows, 0), (records.timestamp, 8 * records.rows, 0)]
    if records.attributes is not None and records.seconds is not None:
        wanted += [(records.attributes, records.rows, 0), (records.seconds, 8 * records.rows, 0)]
    if begun.header_ends is not None:
        wanted.append((begun.header_ends, 4 * (records.rows + 1), 0))
    for column in made.values():
        wanted += [(column.data, column.size, 0), (column.ends, 4 * (column.rows + 1), 0)]
        wanted += [(column.bitmap, (column.rows + 7) // 8, 0)] if column.nulls else []
    collected = device.collected(wanted)
    rows, wrong, of_damaged, unlike, counts = records.rows, part.found, part.parts, part.unlike, np.zeros(entries, np.int64)
    counts[part.good] = np.diff(records.first)
    shapes = {where: (column.rows, column.nulls) for where, column in made.items()}

    def run() -> Run:
        there = iter(collected())
        offset, timestamp = pa.py_buffer(next(there)), pa.py_buffer(next(there))
        of_drafts = (next(there), next(there).view(np.int64)) if drafts else (np.zeros(0, np.uint8), np.zeros(0, np.int64))
        header_ends = pa.py_buffer(next(there)) if headed else None
        found = dict.fromkeys((KEY, VALUE), SKIPPED)
        for where, (count, nulls) in shapes.items():
            data, ends = pa.py_buffer(next(there)), pa.py_buffer(next(there))
            found[where] = BinaryColumn(count, nulls, pa.py_buffer(next(there)) if nulls else None, ends, data)
        columns = Columns(rows, offset, timestamp, *of_drafts, found[KEY], found[VALUE])
        if header_ends is not None:
            columns.header_ends, columns.header_key, columns.header_value = header_ends, found[HEADER_KEY], found[HEADER_VALUE]
        return Run(columns, counts, [], wrong, parts=of_damaged, unlike=unlike)

    return run


class DeviceChunk(ChunkOnDevice):
    """A chunk whose records are copied back to the host."""

    @staticmethod
    def settled(options: Options, transactions: Transactions) -> tuple[Options, Transactions | None]:
        """As `decode.chunk.HostChunk.settled`."""
        return to_decode(options, transactions), transactions

    def runs(self, entries: Entries, need_key: bool, alone: bool = True) -> Iterator[HostPart]:
        """As `decode.chunk.HostChunk.runs`: records copied back to the host."""
        asked, headers = modes(self.options, COPY, need_key), "headers" in self.options.columns
        begun: list[Begun] = []

        def begin(records: "DeviceRecords") -> "Wanted":
            begun[:] = [Begun(self.device, records, *asked, headers)]
            return begun[0].wanted

        done, parts = 0, self.parts(entries, begin)
        for some, part in parts:
            with _emptied:
                run, done = to_run(part, begun.pop(), len(some)), done + len(some)
                del part
                if done == len(entries):
                    parts.close()
                    self._leave()
                columns = run()
                # It has the page-locked block.
                del run
            yield HostPart(columns, some)


class BatchTable:
    """The batch table of a chunk on the device: uploaded once, for all stages and parts.

    Kernels read neither codes nor what belongs to them, which is all that changes afterwards.
    """

    def __init__(self, device: "Runtime", entries: Entries) -> None:
        self.device, self.positions = device, entries.position.copy()
        self.whole = device.upload(np.ascontiguousarray(entries.array))

    def of(self, some: Entries) -> "Memory":
        """The rows of some of the entries: a view of the table if no entry between them is missing; otherwise they are uploaded."""
        from kolumn.kernels.machine.runtime import View

        n = len(some)
        first = int(np.searchsorted(self.positions, some[0].position)) if n else 0
        if np.array_equal(self.positions[first : first + n], some.position):
            return View(self.whole, 8 * table.WIDTH * first, 8 * table.WIDTH * n)
        return self.device.upload(np.ascontiguousarray(some.array))


def _counted(entries: Entries, size: Int64s) -> Int64s | None:
    """Records of each entry by the headers; None where one is no record batch, or has no room for as many in its payload."""
    for layout in np.unique(entries.layout).tolist():
        those = entries.layout == layout
        if not layouts.holds_records(layout) or (entries.count[those] > size[those] // layouts.smallest_record(layout)).any():
            return None
    return entries.count if (entries.count >= 0).all() else None


def _rows(entries: Entries, size: Int64s) -> Int64s:
    """Records of each entry as far as headers tell, but no more than there can be."""
    return np.minimum(np.maximum(np.where(entries.count == table.UNKNOWN, size // 16, entries.count), 0), size)


def _cut(needs: NDArray[np.float64]) -> Iterator[slice]:
    """Cut entries, of which each needs a share of a part, into parts, in order; at least one entry each."""
    ends, start = np.cumsum(needs), 0
    while start < len(ends):
        before = ends[start - 1] if start else 0.0
        stop = max(int(np.searchsorted(ends, before + 1, side="right")), start + 1)
        yield slice(start, stop)
        start = stop
