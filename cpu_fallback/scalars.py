"""Makes the scalar functions of every format known to the compiler; every module with compiled loops imports this one."""

from kolumn.cpu_fallback import crc
from kolumn.cpu_fallback.compile import compiled, scalar
from kolumn.formats import entry, legacy, memory, v2, varint

scalar(memory, varint, entry, v2, legacy)

__all__ = ["compiled", "crc"]
