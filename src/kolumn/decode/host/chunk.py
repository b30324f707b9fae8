"""A chunk of entries on the CPU."""

from collections.abc import Callable, Iterator
from typing import Any, Self

from kolumn.arrays import Rows
from kolumn.cpu_fallback.check.checksums import check
from kolumn.cpu_fallback.inflate.arena import Share
from kolumn.decode.host.record_batch import record_batch
from kolumn.decode.host.run import Run, runs
from kolumn.options import Options
from kolumn.plan.chunks import Chunk
from kolumn.source.segment_file import SegmentFile


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

    def check(self, rows: Rows) -> None:
        """Set BAD_CRC in every row without a code whose checksum differs from its bytes."""
        check(self.source.ctypes.data, self.origin, rows)

    batch: Callable[..., Any] = staticmethod(record_batch)

    def runs(self, rows: Rows, need_key: bool, alone: bool = True) -> Iterator[tuple[Run, Any]]:
        """Decode entries, some at a time: their records, and their rows of the batch table, of which damaged ones get a code.

        Unless it is ``alone``, it ends before an entry that takes more than a chunk's share of memory.
        """
        share = Share(self.options.inflated_bytes, alone)
        yield from runs(self.source, self.origin, rows, self.options, need_key, share)
