"""A chunk of entries on a GPU: kernels do the work, the CPU judges what they find wrong, and Arrow columns come back.

Kernels note of a batch only that something in it is wrong. Such a batch is decoded once more on the CPU, so that both backends give
the same error with the same words, and the rest goes through the kernels again without it.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np

from kolumn.cpu_fallback.batches import Run, decode_run
from kolumn.cpu_fallback.locate import locate
from kolumn.cpu_fallback.record_batch import record_batch
from kolumn.errors import Code, KolumnError
from kolumn.formats import layouts, table
from kolumn.inflate_on_device import Inflater, plan
from kolumn.options import Options

MOST_ROWS = 1 << 20
"""Rows in a part, as far as headers tell: each takes some 60 bytes of device memory until its columns are made."""
MOST_BYTES = 1 << 27
"""Bytes of the payloads in a part, but for one batch that has more."""
AT_A_TIME = 3
"""Chunks on the device: one is copied there, one decoded, one copied back."""
_turns = threading.BoundedSemaphore(AT_A_TIME)


class DeviceChunk:
    """Bytes of a segment on the current device, for as long as the context lasts; so many chunks are there `AT_A_TIME`.

    Parameters
    ----------
    source : uint8 array
        Bytes of the segment from position ``origin`` on, in host memory, padded.
    origin : int
    options : Options
    """

    def __init__(self, source: Any, origin: int, options: Options) -> None:
        from kolumn.kernels.device import runtime

        self.host, self.origin, self.options = source, origin, options
        self.device = runtime()
        self.format = layouts.FORMAT_NAMES.index(options.format)
        self.drafts = self.format not in (layouts.KAFKA, layouts.V3_FORMAT)

    def __enter__(self) -> Self:
        _turns.acquire()
        try:
            self.source = self.device.upload(self.host)
        except BaseException:
            _turns.release()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        _turns.release()

    def check(self, rows: Any) -> None:
        """As `cpu_fallback.walk.check`."""
        from kolumn.kernels.decode import bad_checksums

        whole = np.flatnonzero(rows[:, table.CODE] == Code.OK)
        bad = bad_checksums(self.device, self.source.address - self.origin, rows[whole])
        rows[whole[bad], table.CODE] = Code.BAD_CRC

    batch: Callable[..., Any] = staticmethod(record_batch)

    def runs(self, rows: Any, need_key: bool) -> Iterator[tuple[Run, Any]]:
        """As `on_host.HostChunk.runs`: records copied back to the host."""
        from kolumn.from_device import to_run

        for some, part in self.parts(rows):
            yield to_run(part, len(some), self.options, need_key), some

    def parts(self, rows: Any) -> Iterator[tuple[Any, "Part"]]:
        """Decode entries, some at a time: rows of the batch table, of which damaged ones get a code, and their records."""
        start, size, codec = (np.empty(len(rows), np.int64) for _ in range(3))
        locate(self.host.ctypes.data, self.origin, rows, start, size, codec)
        todo = plan(self.host, start - self.origin, size, codec, rows, self.options)
        inflater = Inflater(self.device, self.host, self.source.address, todo, self.options)
        for piece in _cut(todo.bound, rows):
            yield rows[piece], self._part(inflater, piece, rows[piece])

    def _part(self, inflater: Inflater, piece: slice, rows: Any) -> "Part":
        from kolumn.kernels.decode import decode

        found: dict[int, str] = {}
        while True:
            inflated = inflater.part(piece, rows, found)
            good = np.flatnonzero(rows[:, table.CODE] == Code.OK)
            if self.options.errors == "raise" and len(good) < len(rows):
                # Nothing behind the first damaged entry is wanted.
                good = good[good < np.flatnonzero(rows[:, table.CODE])[0]]
            address, sizes = inflated.address[good], inflated.size[good]
            bad, records = decode(self.device, rows[good], address, sizes, self.format, self.options.check_crcs, self.drafts)
            if records is not None:
                return Part(self.device, good, records, found, inflated.kept)
            self._judge(inflater, piece, rows, good[bad], found)

    def _judge(self, inflater: Inflater, piece: slice, rows: Any, suspects: Any, found: dict[int, str]) -> None:
        """Let the CPU say what is wrong with batches; what it finds right goes through its codecs next time."""
        every = replace(self.options, errors="skip", columns=("offset", "key", "value", "headers"), binary="contiguous")
        for i in suspects.tolist():
            own = rows[i : i + 1]
            judged = decode_run(self.host, self.origin, own, every, need_key=False)
            if own[0, table.CODE] != Code.OK:
                found[i] = judged.found[0]
            elif inflater.todo.codec[piece][i] and not inflater.todo.on_cpu[piece][i]:
                inflater.to_cpu(piece.start + i)
            else:
                raise KolumnError(
                    f"position {int(own[0, table.POSITION])}: the GPU found something wrong in a batch in which the CPU finds nothing. "
                    "That is a defect of Kolumn: please report it, and use backend='cpu'"
                )


class Part:
    """Records of some entries on the device.

    Attributes
    ----------
    good : int64 array
        Numbers of the entries that they are of.
    records : kernels.decode.Records
    found : dict
        As `cpu_fallback.batches.Run` has it.
    """

    def __init__(self, device: Any, good: Any, records: Any, found: dict[int, str], kept: list[Any]) -> None:
        self.device, self.good, self.records, self.found, self._kept = device, good, records, found, kept

    def counts(self, entries: int) -> Any:
        """Rows of each of ``entries``: int64."""
        counts = np.zeros(entries, np.int64)
        counts[self.good] = np.diff(self.records.first)
        return counts


def _cut(bound: Any, rows: Any) -> Iterator[slice]:
    """Cut entries into parts of bounded size, in order; at least one entry each."""
    count = np.where(rows[:, table.COUNT] == table.UNKNOWN, bound // 16, rows[:, table.COUNT])
    weight = np.maximum(bound / MOST_BYTES, np.minimum(np.maximum(count, 0), bound) / MOST_ROWS)
    start, total = 0, 0.0
    for i, one in enumerate(weight.tolist()):
        if total + one > 1 and i > start:
            yield slice(start, i)
            start, total = i, 0.0
        total += one
    if len(rows):
        yield slice(start, len(rows))
