"""A chunk of entries on a GPU: kernels do the work, the CPU judges what they find wrong, and Arrow columns come back.

Kernels note of a batch only that something in it is wrong. Such a batch is decoded once more on the CPU, so that both backends give
the same error with the same words, and the rest goes through the kernels again without it.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np

from kolumn.arrays import Flags, Int64s, Rows
from kolumn.cpu_fallback.inflate.locate import locate
from kolumn.decode.device.inflate import Inflater, plan
from kolumn.decode.device.part import Part
from kolumn.decode.device.to_host import to_run
from kolumn.decode.host.record_batch import record_batch
from kolumn.decode.host.run import Run, decode_run
from kolumn.errors import Code, KolumnError
from kolumn.formats import layouts, table
from kolumn.options import Options
from kolumn.plan.chunks import Chunk
from kolumn.source.segment_file import SegmentFile

MOST_ROWS = 1 << 20
"""Rows in a part, as far as headers tell: each takes some 60 bytes of device memory until its columns are made."""
MOST_BYTES = 1 << 27
"""Bytes of the payloads in a part, but for one batch that has more."""
AT_A_TIME = 3
"""Chunks on the device: one is copied there, one decoded, one copied back."""
_NOTHING = np.zeros(0, np.uint8)
_turns = threading.BoundedSemaphore(AT_A_TIME)


class DeviceChunk:
    """Bytes of a segment on the current device, for as long as the context lasts; so many chunks are there `AT_A_TIME`.

    Parameters
    ----------
    file : SegmentFile
    chunk : Chunk
        Without bytes where `reads_files`: plain batches then go to the device past the host's memory.
    options : Options

    Attributes
    ----------
    inflated_by_cpu : int
        Payloads so far that the codecs of the CPU inflated, because nvCOMP can't or must not.
    """

    def __init__(self, file: SegmentFile, chunk: Chunk, options: Options) -> None:
        from kolumn.kernels.machine.device import runtime

        self.file, self.chunk, self.origin, self.options = file, chunk, chunk.origin, options
        self.device = runtime()
        self.format = layouts.FORMAT_NAMES.index(options.format)
        self.inflated_by_cpu = 0
        self.drafts = not layouts.FORMATS[self.format].as_shipped

    def __enter__(self) -> Self:
        _turns.acquire()
        try:
            self.source = self._sent()
        except BaseException:
            _turns.release()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        _turns.release()

    def _sent(self) -> Any:
        if self.chunk.is_unread and not self.chunk.rows[:, table.CODEC].any():
            source = self.device.load(self.file.opened_path, self.origin, self.chunk.end)
            if source is not None:
                return source
        # Framings are found on the host; and it says why a file can't be read.
        self.chunk = self.chunk.loaded(self.file)
        return self.device.upload(self.chunk.source)

    def check(self, rows: Rows) -> None:
        """As `cpu_fallback.walk.check`."""
        from kolumn.kernels.decode import bad_checksums

        whole = np.flatnonzero(rows[:, table.CODE] == Code.OK)
        bad = bad_checksums(self.device, self.source.address - self.origin, rows[whole])
        rows[whole[bad], table.CODE] = Code.BAD_CRC

    batch: Callable[..., Any] = staticmethod(record_batch)

    def runs(self, rows: Rows, need_key: bool, alone: bool = True) -> Iterator[tuple[Run, Any]]:
        """As `on_host.HostChunk.runs`: records copied back to the host."""
        for some, part in self.parts(rows):
            yield to_run(part, len(some), self.options, need_key), some

    def parts(self, rows: Rows) -> Iterator[tuple[Any, Part]]:
        """Decode entries, some at a time: rows of the batch table, of which damaged ones get a code, and their records."""
        start, size, codec = (np.empty(len(rows), np.int64) for _ in range(3))
        host = _NOTHING if self.chunk.is_unread else self.chunk.source
        locate(host.ctypes.data, self.origin, rows, start, size, codec)
        todo = plan(host, start - self.origin, size, codec, rows, self.options)
        inflater = Inflater(self.device, host, self.source.address, todo, self.options)
        for piece in _cut(todo.bound, rows, min(MOST_BYTES, self.options.inflated_bytes)):
            part = self._part(inflater, piece, rows[piece])
            self.inflated_by_cpu += part.inflated_by_cpu
            yield rows[piece], part

    def _part(self, inflater: Inflater, piece: slice, rows: Rows) -> Part:
        from kolumn.kernels.decode import decode

        found: dict[int, str] = {}
        inflated = inflater.part(piece, rows, found)
        while True:
            good = np.flatnonzero(rows[:, table.CODE] == Code.OK)
            if self.options.errors == "raise" and len(good) < len(rows):
                # Nothing behind the first damaged entry is wanted.
                good = good[good < np.flatnonzero(rows[:, table.CODE])[0]]
            address, sizes = inflated.address[good], inflated.size[good]
            bad, records = decode(self.device, rows[good], address, sizes, self.format, self.options.check_crcs, self.drafts)
            if records is not None:
                return Part(self.device, good, records, found, inflated)
            unlike = self._judge(inflater.todo.on_cpu[piece] | (inflater.todo.codec[piece] == 0), rows, good[bad], found)
            inflater.on_cpu(piece, unlike, rows, found, inflated)

    def _judge(self, final: Flags, rows: Rows, suspects: Int64s, found: dict[int, str]) -> Any:
        """Let the CPU say what is wrong with batches. Those in which it finds nothing must have been inflated otherwise: their numbers."""
        unlike = []
        every = replace(self.options, errors="skip", columns=("offset", "key", "value", "headers"), binary="contiguous")
        for i in suspects.tolist():
            own = rows[i : i + 1]
            judged = decode_run(*self.chunk.bytes_of(self.file, own[0]), own, every, need_key=False)
            if own[0, table.CODE] != Code.OK:
                found[i] = judged.found[0]
            elif not final[i]:
                unlike.append(i)
            else:
                raise KolumnError(
                    f"position {int(own[0, table.POSITION])}: the GPU found something wrong in a batch in which the CPU finds nothing. "
                    "That is a defect of Kolumn: please report it, and use backend='cpu'"
                )
        return np.array(unlike, np.int64)


def _cut(bound: Int64s, rows: Rows, most: int) -> Iterator[slice]:
    """Cut entries into parts of bounded size, in order; at least one entry each."""
    count = np.where(rows[:, table.COUNT] == table.UNKNOWN, bound // 16, rows[:, table.COUNT])
    weight = np.maximum(bound / most, np.minimum(np.maximum(count, 0), bound) / MOST_ROWS)
    start, total = 0, 0.0
    for i, one in enumerate(weight.tolist()):
        if total + one > 1 and i > start:
            yield slice(start, i)
            start, total = i, 0.0
        total += one
    if len(rows):
        yield slice(start, len(rows))
