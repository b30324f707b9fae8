"""Bytes of a file into memory of the device, bypassing the host's: GPUDirect Storage, by kvikio.

file     |--------|--xxxxxx|xxxxxxxx|xxx-----|     pages of 4 KiB: what the storage moves by itself
read              |<--------------------->|        from the page of the first byte to the last byte
"""

from functools import cache
from typing import Any

PAGE = 4096


@cache
def available() -> bool:
    """Whether kvikio is installed and can bypass the host. Otherwise it would copy by way of the host, which Kolumn does itself."""
    try:
        import kvikio.defaults
        from kvikio import cufile_driver
    except ImportError:
        return False
    return not kvikio.defaults.is_compat_mode_preferred() and bool(cufile_driver.get("is_gds_available"))


def load(path: str, start: int, memory: Any) -> bool:
    """Fill ``memory``, device memory, with the bytes of a file from ``start`` on; returns whether that worked."""
    from kvikio import CuFile

    try:
        with CuFile(path) as file:
            return bool(file.read(memory, memory.size, start) == memory.size)
    except (OSError, RuntimeError):
        return False
