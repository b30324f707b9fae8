"""Makes the scalar functions of every format callable from compiled code. Every module with compiled loops imports this one."""

import kolumn.machine_code.scalar  # noqa: F401
from kolumn.cpu_fallback.machine import crc
from kolumn.cpu_fallback.machine.compile import compiled

__all__ = ["compiled", "crc"]
