"""Makes the scalar functions of every format known to the compiler; every module with compiled loops imports this one."""

from kolumn.cpu_fallback import crc
from kolumn.cpu_fallback.compile import compiled, scalar
from kolumn.formats import enriched, entry, kip98_draft, layouts, legacy, memory, v2, v3_compact, varint

scalar(memory, varint, layouts, entry, v2, legacy, enriched, kip98_draft, v3_compact)

__all__ = ["compiled", "crc"]
