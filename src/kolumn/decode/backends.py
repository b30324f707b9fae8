"""Which class decodes the chunks of a backend."""

from kolumn.backend import RESIDENT, choose
from kolumn.decode.decoder import ChunkDecoder
from kolumn.decode.device.chunk import DeviceChunk
from kolumn.decode.device.resident import ResidentChunk
from kolumn.decode.host.chunk import HostChunk


def opened(backend: str) -> type[ChunkDecoder]:
    """Class of the chunks of a backend."""
    if backend == RESIDENT:
        return ResidentChunk
    return DeviceChunk if choose(backend) == "gpu" else HostChunk
