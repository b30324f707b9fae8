"""nvCOMP's batched C interface, versions 5 and 6: blocks are inflated where they are, a status for each.

The Python interface of the library has no statuses and takes lists; here all arrays are on the device. What the library does with
broken input is not defined, so only batches with a right checksum come here.
"""

import ctypes
from ctypes import POINTER, byref, c_char, c_int, c_size_t, c_void_p
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from kolumn.arrays import Int64s
from kolumn.codecs import DEFLATE, LZ4_BLOCK, SNAPPY_BLOCK, ZSTD_FRAME
from kolumn.errors import KolumnError, MissingError

NAMES = {LZ4_BLOCK: "LZ4", SNAPPY_BLOCK: "Snappy", ZSTD_FRAME: "Zstd", DEFLATE: "Gzip"}
"""Of the library's codecs, by kind of block. A deflate stream comes with its gzip member: the plain codec wants it aligned."""
GROUP_BYTES = 64 << 20
"""Decompressed bytes in one call: zstd takes three times as much temporary memory."""
_VERSIONS = (6, 5)


class Options(ctypes.Structure):
    """Any of the ``nvcompBatched*DecompressOpts_t``: 64 bytes, of which zeros mean the defaults."""

    _fields_ = (("backend", c_int), ("rest", c_char * 60))


class Alignment(ctypes.Structure):
    """``nvcompAlignmentRequirements_t``."""

    _fields_ = (("input", c_size_t), ("output", c_size_t), ("temp", c_size_t))


def load() -> Any:
    """The library: from its package, or from where the system looks.

    Raises
    ------
    MissingError
        It is not there, or of another version.
    """
    try:
        spec = find_spec("nvidia.libnvcomp")
    except ModuleNotFoundError:
        spec = None
    folders = [Path(place) / "lib64" for place in spec.submodule_search_locations or ()] if spec is not None else []
    tried = []
    for version in _VERSIONS:
        name = f"libnvcomp.so.{version}"
        for path in [*(str(folder / name) for folder in folders), name]:
            try:
                return ctypes.CDLL(path)
            except OSError as error:
                tried.append(str(error))
    raise MissingError(f"nvCOMP is not there: pip install nvidia-libnvcomp-cu13 ({'; '.join(tried)})")


class Decompressor:
    """The library's decompressors."""

    def __init__(self) -> None:
        self.library = load()

    def alignment(self, kind: int) -> tuple[int, int, int]:
        """What the addresses of compressed blocks, of their room and of temporary memory must be multiples of."""
        found = Alignment()
        query = self._function(kind, "GetRequiredAlignments", [Options, POINTER(Alignment)])
        self._demand(query(Options(), byref(found)), f"alignment of {NAMES[kind]}")
        return found.input, found.output, found.temp

    def temporary(self, kind: int, blocks: int, largest: int, total: int, stream: int = 0) -> int:
        """Bytes of temporary memory for some blocks that inflate to at most ``largest`` bytes each and ``total`` together."""
        found = c_size_t()
        kinds = [c_size_t, c_size_t, Options, POINTER(c_size_t), c_size_t]
        if hasattr(self.library, f"nvcompBatched{NAMES[kind]}DecompressGetTempSize"):
            query = self._function(kind, "GetTempSize", [*kinds, c_void_p])
            status = query(blocks, largest, Options(), byref(found), total, stream)
        else:
            query = self._function(kind, "GetTempSizeAsync", kinds)
            status = query(blocks, largest, Options(), byref(found), total)
        self._demand(status, f"temporary memory of {NAMES[kind]}")
        return found.value

    def run(self, device: Any, kind: int, sources: Int64s, sizes: Int64s, room: Int64s, targets: Int64s) -> tuple[Any, Any]:
        """As `runtime.Runtime.inflate`."""
        out, fine = np.zeros(len(sources), np.int64), np.zeros(len(sources), bool)
        group = (np.cumsum(room) - room) // GROUP_BYTES
        for number in np.unique(group):
            some = np.flatnonzero(group == number)
            out[some], fine[some] = self._group(device, kind, *(one[some] for one in (sources, sizes, room, targets)))
        return out, fine

    def _group(self, device: Any, kind: int, sources: Int64s, sizes: Int64s, room: Int64s, targets: Int64s) -> tuple[Any, Any]:
        n = len(sources)
        given = device.upload(np.ascontiguousarray(np.stack([sources, sizes, room, targets]), np.int64))
        answer = device.zeros(8 * n + 4 * n)
        need = self.temporary(kind, n, int(room.max()), int(room.sum()), device.stream.ptr)
        temporary = device.empty(need)
        inflate = self._function(
            kind, "Async", [c_void_p] * 4 + [c_size_t, c_void_p, c_size_t, c_void_p, Options, c_void_p, c_void_p]
        )  # fmt: skip
        status = inflate(
            given.address, given.address + 8 * n, given.address + 16 * n, answer.address,
            n, temporary.address, need, given.address + 24 * n, Options(), answer.address + 8 * n, device.stream.ptr,
        )  # fmt: skip
        self._demand(status, f"inflating {n} blocks of {NAMES[kind]}")
        found = device.download(answer, 12 * n)
        out, statuses = found[: 8 * n].view(np.int64), found[8 * n :].view(np.int32)
        return out, (statuses == 0) & (out >= 0) & (out <= room)

    def _function(self, kind: int, name: str, arguments: list[Any]) -> Any:
        function = getattr(self.library, f"nvcompBatched{NAMES[kind]}Decompress{name}")
        function.argtypes, function.restype = arguments, c_int
        return function

    def _demand(self, status: int, what: str) -> None:
        if status:
            raise KolumnError(f"nvCOMP: {what}: status {status}")
