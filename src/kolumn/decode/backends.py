"""Which class decodes the chunks of a backend."""

from kolumn.backend import RESIDENT, choose
from kolumn.decode.decoder import ChunkDecoder
from kolumn.decode.host.chunk import HostChunk


def opened(backend: str) -> type[ChunkDecoder]:
    """Class of the chunks of a backend."""
    if choose(backend) != "gpu":
        return HostChunk
    # Only here: most processes have no GPU.
    from kolumn.decode.device.chunk import DeviceChunk
    from kolumn.decode.device.resident import ResidentChunk

    return ResidentChunk if backend == RESIDENT else DeviceChunk
