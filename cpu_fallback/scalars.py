"""Makes the scalar functions of every format known to the compiler; every module with compiled loops imports this one."""

import kolumn.scalar  # noqa: F401
from kolumn.cpu_fallback import crc
from kolumn.cpu_fallback.compile import compiled

__all__ = ["compiled", "crc"]
