"""What every backend offers to decode a chunk: `host.chunk.HostChunk`, `device.chunk.DeviceChunk`, `device.resident.ResidentChunk`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

import pyarrow as pa

from kolumn.backend import RESIDENT, choose
from kolumn.damage.findings import Lost
from kolumn.decode.host.chunk import HostChunk
from kolumn.decode.host.streamed import Streamed
from kolumn.formats.entries import Entries
from kolumn.log.aborted import Transactions
from kolumn.log.chunks import Chunk
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Segment

if TYPE_CHECKING:
    from kolumn.kernels.columns.table import DeviceTable

Batch: TypeAlias = "pa.RecordBatch | DeviceTable"
"""Records of a chunk in columns: in host memory, or on the device if the options are `device.resident.ResidentOptions`."""


class DecodedRun(Protocol):
    """Records of some entries: `host.run.Run` or `device.resident.ResidentRun`.

    ``found`` has by the number of a damaged entry what is wrong with its contents, ``lost`` what is lost of one of which other records are
    among these; ``bytes`` is the host memory that the records take.
    """

    found: dict[int, str]

    @property
    def lost(self) -> dict[int, Lost]: ...
    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...


class DecodedPart(Protocol):
    """A run and its entries, of which damaged ones have a code: `host.record_batch.HostPart` or `device.resident.ResidentPart`."""

    @property
    def run(self) -> DecodedRun: ...
    @property
    def entries(self) -> Entries: ...

    def batch(self, segment: Segment, options: Options) -> Batch:
        """Its columns, without the rows outside of the requested ranges."""


class ChunkDecoder(Protocol):
    """Decodes the entries of a chunk, as a context manager: the chunk's bytes are loaded while the context lasts.

    ``inflated_by_cpu`` counts the payloads so far that codecs of the CPU decompressed for a GPU.
    """

    on_gpu: bool
    inflated_by_cpu: int

    def __init__(self, file: SegmentFile, chunk: Chunk, options: Options) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    @staticmethod
    def streamed(file: SegmentFile, chunk: Chunk, options: Options, alone: bool) -> Streamed | None:
        """All of the chunk in one pass, without its bytes in memory as a whole; None if this backend, or this chunk, does not allow it."""

    @staticmethod
    def settled(options: Options, transactions: Transactions | None) -> tuple[Options, Transactions | None]:
        """Options for the chunks of a partition, and its transactions if its batches are to be settled on the host."""

    def check(self, entries: Entries) -> None:
        """Set BAD_CRC in every entry without a code whose checksum differs from its bytes; `runs` may do it, and raises then."""

    def runs(self, entries: Entries, need_key: bool, alone: bool = True) -> Iterator[DecodedPart]:
        """Decode entries, some at a time; damaged ones get a code.

        Keys are decoded with ``need_key`` even if no column holds them. Unless the chunk is ``alone``, it ends before an entry that
        needs more than a chunk's share of memory.

        Raises
        ------
        WrongChecksumsError
            A checksum is wrong that `check` left for later. Nothing was given before, and a second call does not raise it.
        """


def opened(backend: str, chosen: str | None = None) -> type[ChunkDecoder]:
    """Class of the chunks of a backend, of which `choose` has ``chosen`` one."""
    if (chosen or choose(backend)) != "gpu":
        return HostChunk
    # Only here: most processes have no GPU.
    from kolumn.decode.device.chunk import DeviceChunk
    from kolumn.decode.device.resident import ResidentChunk

    return ResidentChunk if backend == RESIDENT else DeviceChunk
