"""A device in host memory: kernels run as compiled loops on the CPU, or as PTX by `kit.ptx`, and a CPU's codecs stand for nvCOMP."""

import ctypes
import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any, ClassVar

import cramjam
import lz4.block
import numba
import numpy as np
import pytest
import zstandard
from isal import isal_zlib
from numba import njit

from kit.ordering import Ordering
from kolumn.core.arrays import Bytes, Int64s
from kolumn.core.cache import cache_folder, fingerprint
from kolumn.core.deferred import apply
from kolumn.cpu_fallback.machine.crc import link
from kolumn.decode.device.inflate import InflatedOnDevice, Inflater
from kolumn.formats.codecs import DEFLATE, LZ4_BLOCK, SNAPPY_BLOCK, ZSTD_FRAME, gzip
from kolumn.formats.entries import Entries
from kolumn.formats.layouts import EXTRA
from kolumn.kernels import check
from kolumn.kernels.fields.hop import SLICES, hop
from kolumn.kernels.machine import staging
from kolumn.kernels.machine.image import SOURCES
from kolumn.kernels.machine.kernel import WARP, Kernel
from kolumn.kernels.machine.runtime import PAD
from kolumn.kernels.machine.staging import Block

FILLS = cycle((0xA5, 0x5A))
"""What memory holds that nobody has written: zeros would hide that. As a number it is negative and positive in turns: who reads a length
after the last one would often stop at a negative one."""
FREED = 0xDD
"""What memory holds that was freed."""


def take(size: int) -> Bytes:
    """Memory of the host; `kit.on_gpu` takes what is page-locked."""
    return np.empty(size, np.uint8)


class HostMemory:
    """Memory that begins where device memory would, at a multiple of `PAD`, with padding on both sides."""

    overrun: ClassVar[list[str]] = []  # of the class: what was found written outside of a piece of memory when it was given back

    def __init__(self, size: int, data: bytes = b"") -> None:
        # The last bytes are those that were asked for, where there are more.
        self.size, real = size, max(size, len(data))
        self._fill = next(FILLS)
        self._whole = take(real + 3 * PAD)
        self._whole[:] = self._fill
        begin = PAD + -self._whole.ctypes.data % PAD
        if data:
            self._whole[begin : begin + real] = np.frombuffer(data, np.uint8)
        self._around = self._whole[:begin], self._whole[begin + real :]
        self.address = self._whole.ctypes.data + begin + real - size
        self.bytes = self._whole[begin + real - size : begin + real]
        self.block: Block[str] | None = None

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """pylibcudf looks at this alone: host memory will do for it."""
        if self.block is not None:
            self.block.share()
        return {"shape": (self.size,), "strides": None, "typestr": "|u1", "data": (self.address, False), "version": 3}

    def __del__(self) -> None:
        if any((side != self._fill).any() for side in self._around):
            type(self).overrun.append(f"memory of {self.size} bytes")
        # Whoever still reads it finds nothing that looks right.
        self._whole[:] = FREED
        # Noted as freed while nobody else can get the same address: attributes go in the order in which they were set.
        self.block = None


@dataclass
class Emulated:
    """Device of host memory."""

    run: Callable[[Kernel, int, Any], None]  # runs a kernel: (kernel, n, args)
    # How many times each kernel has run, by name; "inflate" counts the calls of codecs, "load" those for bytes of a file
    launched: dict[str, int] = field(default_factory=dict)
    reads_files: bool = False  # whether to take bytes of files past the host's memory, as GPUDirect Storage does
    memory: int = 16 << 30  # bytes of the pool at most, by which parts are cut
    ordering: Ordering | None = None  # is told on which stream memory is allocated, used and freed
    # How many times it was asked for "allocations", "memsets", "uploads", "launches", "scans" and "waits": each is a call of the driver
    asked: Counter[str] = field(default_factory=Counter)
    _of_thread: threading.local = field(default_factory=threading.local)

    @property
    def kept(self) -> dict[str, Any]:
        """What this thread keeps, as each has a runtime of its own on a GPU."""
        kept: dict[str, Any] = self._of_thread.__dict__.setdefault("kept", {})
        return kept

    def empty(self, size: int) -> HostMemory:
        return self.pieces([size])[0]

    def zeros(self, size: int) -> HostMemory:
        return self.pieces([size], zeros=True)[0]

    def pieces(self, sizes: Sequence[int], zeros: bool = False) -> list[HostMemory]:
        self.asked["allocations"] += 1
        self.asked["memsets"] += zeros
        found = []
        for size in sizes:
            memory = HostMemory(size)
            if self.ordering is not None:
                memory.block = self.ordering.allocated(memory.address, size)
            if zeros:
                memory.bytes[:] = 0
            found.append(memory)
        return found

    def upload(self, data: Any) -> HostMemory:
        assert data.flags.c_contiguous
        self.asked["uploads"] += 1
        memory = self.empty(data.nbytes)
        memory.bytes[:] = data.reshape(-1).view(np.uint8)
        return memory

    def load(self, path: str, start: int, end: int) -> HostMemory | None:
        self.launched["load"] = self.launched.get("load", 0) + 1
        with open(path, "rb") as file:
            skipped = start % staging.PAGE
            file.seek(start - skipped)
            data = file.read(end - start + skipped)
        return None if len(data) < end - start + skipped else HostMemory(end - start, data)

    def download(self, memory: HostMemory, size: int, start: int = 0) -> Any:
        return self.downloads([(memory, size, start)])[0]

    def downloads(self, wanted: Sequence[tuple[HostMemory, int, int]]) -> list[Any]:
        assert all(start + size <= memory.size for memory, size, start in wanted)
        self.synchronize()
        return [memory.bytes[start : start + size].copy() for memory, size, start in wanted]

    def collected(self, wanted: Sequence[tuple[HostMemory, int, int]]) -> Callable[[], list[Any]]:
        found = self.downloads(wanted)
        return lambda: found

    def launch(self, kernel: Kernel, n: int, args: Any) -> None:
        assert isinstance(args, kernel.args)
        self.launched[kernel.name] = self.launched.get(kernel.name, 0) + 1
        self.asked["launches"] += bool(n)
        if n:
            if self.ordering is not None:
                self.ordering.used_by_kernel(args)
            self.run(kernel, n, type(args)(*map(int, args)))

    def rest(self) -> None:
        pass

    def synchronize(self) -> None:
        self.asked["waits"] += 1
        if self.ordering is not None:
            self.ordering.waited()

    def running_sum(self, memory: HostMemory, count: int, width: int) -> None:
        self.asked["scans"] += 1
        values = memory.bytes[: count * width].view({4: np.int32, 8: np.int64}[width])
        # Rows of batches that turn out to be wrong have lengths that nobody wrote: their sums wrap, and nobody looks at them.
        values[:] = np.cumsum(values, dtype=np.int64)

    def inflate(self, kind: int, sources: Any, sizes: Any, room: Any, targets: Any) -> tuple[Any, Any]:
        self.launched["inflate"] = self.launched.get("inflate", 0) + 1
        out, fine = np.zeros(len(sources), np.int64), np.zeros(len(sources), bool)
        for i in range(len(sources)):
            data = ctypes.string_at(int(sources[i]), int(sizes[i]))
            try:
                piece = _INFLATE[kind](data, int(room[i]))
            except (cramjam.DecompressionError, lz4.block.LZ4BlockError, zstandard.ZstdError, isal_zlib.error):
                continue
            if len(piece) <= room[i]:
                ctypes.memmove(int(targets[i]), piece, len(piece))
                out[i], fine[i] = len(piece), True
        return out, fine


_INFLATE: dict[int, Callable[[bytes, int], bytes]] = {
    LZ4_BLOCK: lambda data, room: lz4.block.decompress(data, uncompressed_size=room),
    SNAPPY_BLOCK: lambda data, room: bytes(cramjam.snappy.decompress_raw(data)),
    ZSTD_FRAME: lambda data, room: zstandard.ZstdDecompressor().decompressobj().decompress(data),
    DEFLATE: lambda data, room: isal_zlib.decompressobj(-15).decompress(data[gzip.header(data, 0, len(data), 2)[1] :]),
}
"""What nvCOMP does, which looks neither at the checksum of a gzip member nor at the bytes after it."""


@cache
def kept_in(*files: str) -> Path | None:
    """Folder for what is compiled of these files, and of what a kernel is made of; None if there is no place for one."""
    folder, own = cache_folder(), hashlib.sha256(b"".join(Path(one).read_bytes() for one in files)).hexdigest()[:16]
    return folder and folder / fingerprint(*SOURCES, drafts=EXTRA) / own


@contextmanager
def keeping(*files: str) -> Iterator[bool]:
    """What Numba is told to keep is kept in `kept_in` while the context lasts; whether it can be kept."""
    apply()
    folder = kept_in(*files)
    with pytest.MonkeyPatch.context() as patch:
        if folder is not None:
            patch.setattr(numba.config, "CACHE_DIR", str(folder))
        yield folder is not None


def kept(*files: str, compiler: Callable[..., Any] = njit) -> Callable[[Callable[..., Any]], Any]:
    """Compiles a function, which is kept for other processes."""

    def compiled(function: Callable[..., Any]) -> Any:
        with keeping(*files) as possible:
            return compiler(cache=possible)(function)

    return compiled


@cache
def _loop(kernel: Kernel) -> Any:
    """A compiled loop over a kernel's items."""
    body, lanes = kernel.body, kernel.lanes
    if kernel.staged:

        @kept(__file__)
        def staged_thread(n: int, args: Any) -> None:
            for i in range(n):
                body(i, args.tables, args)

        return staged_thread
    if lanes == 1:

        @kept(__file__)
        def one_thread(n: int, args: Any) -> None:
            for i in range(n):
                body(i, args)

        return one_thread

    @kept(__file__)
    def some_lanes(n: int, args: Any) -> None:
        for i in range(n):
            for lane in range(lanes):
                body(i, lane, lanes, args)

    return some_lanes


@kept(__file__)
def _check(n: int, args: Any, steps: Any) -> None:
    for i in range(n):
        register = 0
        for lane in range(WARP):
            register ^= check.lane_share(args, i, lane, steps)
        check.compare(args, i, register)


# Loops of kernels call ISA-L, as those of the CPU do, which link it when they are compiled.
link()


def run_loops(kernel: Kernel, n: int, args: Any) -> None:
    """Run a kernel as a loop. Three need their threads to talk: lanes of `check` are summed here, the others are `hop` with a cache."""
    if kernel.name == "check":
        known = check.tables()
        _check(n, args, np.concatenate([known[:1024], known[check.WORDS : check.WORDS + 1024]]))
    elif kernel.name == "hop_staged":
        _loop(hop)(n, args)
    elif kernel.name == "hop_sliced":
        _loop(hop)(n // SLICES, args)
    else:
        _loop(kernel)(n, args)


class HiddenError(AssertionError):
    """A payload without a flaw was decompressed by the CPU, although it was planned for the device."""


@contextmanager
def nothing_hidden() -> Iterator[None]:
    """Fail a read in which the CPU decompresses what the device should have, and finds nothing wrong with it.

    The CPU looks again at a batch that kernels call wrong, and decompresses again what nvCOMP did not. So a kernel that calls a good batch
    wrong, or a checksum of a gzip member, would only make reads slower. Tests of kernels have to see it.
    """
    whole: Any = Inflater.on_cpu

    def on_cpu(inflater: Inflater, piece: slice, slow: Int64s, entries: Entries, result: InflatedOnDevice) -> None:
        unplanned = ~inflater.todo.on_cpu[piece][slow]
        whole(inflater, piece, slow, entries, result)
        hidden = slow[unplanned & (entries.code[slow] == 0)]
        if len(hidden):
            raise HiddenError(f"the device refused the batches at {entries.position[hidden].tolist()}, and the CPU finds nothing wrong")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Inflater, "on_cpu", on_cpu)
        yield
