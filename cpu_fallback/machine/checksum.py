"""CRC-32C of Python's buffers, computed by compiled code. For CRC-32 there is `isal_zlib.crc32`."""

import numpy as np

from kolumn.core.arrays import Bytes
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import crc


@compiled
def _crc32c(register: int, buf: int, at: int, end: int) -> int:
    return crc.crc32c_from(register, buf, at, end)


def crc32c(data: Bytes | bytes | bytearray | memoryview, at: int, seed: int = 0) -> int:
    """CRC-32C of ``data`` from byte ``at`` on, where the register differs by ``seed`` from its initial value."""
    held = np.frombuffer(data, np.uint8)
    return int(_crc32c(seed ^ 0xFFFFFFFF, held.ctypes.data, at, len(held)))
