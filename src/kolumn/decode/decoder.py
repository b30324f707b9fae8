"""What every backend offers to decode a chunk: `host.chunk.HostChunk`, `device.chunk.DeviceChunk`, `device.resident.ResidentChunk`."""

from collections.abc import Iterator
from typing import Any, Protocol, Self

from kolumn.damage.findings import Lost
from kolumn.decode.host.streamed import Streamed
from kolumn.formats.entries import Entries
from kolumn.options import Options
from kolumn.plan.chunks import Chunk
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Segment


class DecodedRun(Protocol):
    """Records of some entries.

    Attributes
    ----------
    found : dict
        Number of a damaged entry -> message about what is wrong with its contents.
    lost : dict
        Number of a damaged entry -> what is lost of it, if other records of it are among these.
    rows : int
        Number of records.
    bytes : int
        Host memory that they take.
    """

    found: dict[int, str]

    @property
    def lost(self) -> dict[int, Lost]: ...

    @property
    def rows(self) -> int: ...

    @property
    def bytes(self) -> int: ...


class ChunkDecoder(Protocol):
    """Decodes the entries of a chunk, as a context manager: the chunk's bytes are loaded while the context lasts.

    Attributes
    ----------
    on_gpu : bool
        Whether entries are decoded on a GPU.
    inflated_by_cpu : int
        Payloads so far that codecs of the CPU decompressed for a GPU.
    """

    on_gpu: bool
    inflated_by_cpu: int

    def __init__(self, file: SegmentFile, chunk: Chunk, options: Options) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    @staticmethod
    def streamed(file: SegmentFile, chunk: Chunk, options: Options, alone: bool) -> Streamed | None:
        """All of the chunk in one pass, without its bytes in memory as a whole; None if this backend, or this chunk, does not allow it."""

    def check(self, entries: Entries) -> None:
        """Set BAD_CRC in every entry without a code whose checksum differs from its bytes; `runs` may do it, and raises then."""

    def runs(self, entries: Entries, need_key: bool, alone: bool = True) -> Iterator[tuple[Any, Entries]]:
        """Decode entries, some at a time: a `DecodedRun` and its entries, of which damaged ones get a code.

        Keys are decoded with ``need_key`` even if no column holds them. Unless the chunk is ``alone``, it ends before an entry that
        needs more than a chunk's share of memory.

        Raises
        ------
        WrongChecksumsError
            A checksum is wrong that `check` left for later. Nothing was given before, and a second call does not raise it.
        """

    @staticmethod
    def batch(run: Any, entries: Entries, segment: Segment, options: Options) -> Any:
        """Arrow record batch of a run, or columns on the device, without the rows outside of the requested ranges."""
