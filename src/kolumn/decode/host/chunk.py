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
        Always 0 on the host; `decode.device.chunk.DeviceChunk` counts payloads that the CPU decompressed for the GPU.
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
        """Decode entries, some at a time. Yields their records and their rows of the batch table; damaged entries get a code.

        Unless the chunk is ``alone``, it ends before an entry that needs more than a chunk's share of memory.
        """
        share = Share(self.options.inflated_bytes, alone)
        yield from runs(self.source, self.origin, rows, self.options, need_key, share)
