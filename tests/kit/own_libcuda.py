"""A libcuda.so.1 for a JVM on a machine without a GPU: ``with OwnLibcuda(folder) as gpu`` and ``env=gpu.environment``.

    JVM: kolumn.Driver ──▶ libkolumn.so ──dlopen──▶ libcuda.so.1 (native/libcuda.c) ──socket──▶ this process
             │                                          │ copies                                    │ kernels
             └──────────── stand-ins for RAPIDS ────────┴── a memfd, at the same addresses in both ─┘

Each call is asked for here first. Here it is counted (`OwnLibcuda.asked`) and compared with the memory that was allocated; what a GPU
would not do, or not reliably, is in `OwnLibcuda.faults` and fails the test when the context ends. Kernels run as loops of `kit.emulated`,
or as PTX by a `kit.ptx.Machine`.
"""

import ctypes
import os
import shutil
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kit.emulated import _INFLATE, FILLS, FREED, run_loops
from kit.ptx import Machine
from kolumn.formats.codecs import ZSTD_FRAME
from kolumn.kernels.build import load_all
from kolumn.kernels.machine.kernel import Kernel
from kolumn.kernels.machine.runtime import PAD

SOURCE = Path(__file__).parent / "native" / "libcuda.c"
FINE, INVALID_VALUE, OUT_OF_MEMORY, INVALID_IMAGE, INVALID_HANDLE, NOT_FOUND = 0, 1, 2, 200, 400, 500
ILLEGAL_ADDRESS, ALREADY_REGISTERED, NOT_REGISTERED, LAUNCH_FAILED = 700, 712, 713, 719
PROCESSORS = 2
_PLACES, _SIZE, _GUARD = range(0x40_0000_0000, 0x50_0000_0000, 8 << 30), 8 << 30, 0xA5
"""Where device memory may be, far from where a process has anything else. Pages that nobody touches take none of the host's."""
_STREAM = 2
_MAP = 0x1 | 0x4000 | 0x100000  # MAP_SHARED, MAP_NORESERVE, MAP_FIXED_NOREPLACE
_ATTRIBUTES = {16: PROCESSORS, 75: 9, 76: 0}


class _RefusedError(Exception):
    """A call that no GPU would do: what it returns, and what is wrong."""


def _demand(right: bool, text: str, code: int = INVALID_VALUE) -> None:
    if not right:
        raise _RefusedError(code, text)


def compiler() -> list[str]:
    """A compiler of C; skips the test where there is none."""
    found = shutil.which("cc")
    if found is None and find_spec("ziglang") is None:
        pytest.skip("there is no compiler of C: install gcc, or pip install '.[jar]'")
    return [found] if found is not None else [sys.executable, "-m", "ziglang", "cc"]


def compile_library(target: Path, *flags: str) -> None:
    """Compile `SOURCE` into a library."""
    target.parent.mkdir(parents=True, exist_ok=True)
    how = ["-O1", "-shared", "-fPIC", "-Wall", "-Werror", *flags, f"-Wl,-soname,{target.name}", "-o", str(target), str(SOURCE)]
    subprocess.run([*compiler(), *how, "-lpthread"], check=True)


class OwnLibcuda:
    """The libraries, and the device behind them.

    Parameters
    ----------
    folder : Path
        For the libraries.
    machine : Machine, optional
        Runs kernels as PTX. Loops run them otherwise.
    nvcomp : int, optional
        Its version, 5 or 6; 0: it is not installed.
    """

    def __init__(self, folder: Path, machine: Machine | None = None, nvcomp: int = 5) -> None:
        self.asked: Counter[str] = Counter()
        """How often each call was made, of all processes; "launched repeat" counts that kernel's launches."""
        self.live: dict[int, int] = {}
        """Memory that nobody has freed: address and size."""
        self.locked: dict[int, int] = {}
        """Host memory that is page-locked: address and size."""
        self.faults: list[str] = []
        self._folder, self._machine, self._nvcomp = folder, machine, nvcomp
        self._failing: dict[str, tuple[int, int]] = {}
        self._images: list[bytes] = []
        self._kernels: list[Kernel] = []
        self._lock = threading.Lock()

    @property
    def environment(self) -> dict[str, str]:
        """Variables for a JVM, beside those of this process."""
        others = os.environ.get("LD_LIBRARY_PATH")
        return {
            "LD_LIBRARY_PATH": os.pathsep.join([str(self._folder), *([others] if others else [])]),
            "KOLUMN_STANDIN_LIBCUDA": str(self._folder / "libcuda.so.1"),
            "KOLUMN_STANDIN_SOCKET": self._socket,
            "KOLUMN_STANDIN_MEMORY": f"/proc/{os.getpid()}/fd/{self._memory}",
        }

    def fail(self, call: str, code: int, after: int = 0) -> None:
        """Let a call return an error once, after some that do not: one of the driver's, "inflate", "temporary", or "allocate"."""
        self._failing[call] = self.asked[call] + after, code

    def __enter__(self) -> "OwnLibcuda":
        compile_library(self._folder / "libcuda.so.1")
        if self._nvcomp:
            compile_library(self._folder / f"libnvcomp.so.{self._nvcomp}", f"-DNVCOMP={self._nvcomp}")
        self._memory = os.memfd_create("device")
        os.truncate(self._memory, _SIZE)
        # Other devices of this process are at other places.
        self._start = next(place for place in _PLACES if _mmap(place, _SIZE, 3, _MAP, self._memory, 0) == place)
        # Paths of sockets are short, those of tests may not be.
        self._place = tempfile.TemporaryDirectory()
        self._socket = str(Path(self._place.name, "socket"))
        self._server = _Server(self._socket, _Handler)
        self._server.device = self
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._place.cleanup()
        for address, size in self.live.items():
            self._look_around(address, size)
        _munmap(self._start, _SIZE)
        os.close(self._memory)
        if kind is None:
            assert not self.faults, self.faults

    def answer(self, name: str, numbers: list[int], more: bytes) -> tuple[int, int]:
        """What a call returns, and what it finds."""
        with self._lock:
            self.asked[name] += 1
            fails, code = self._failing.get(name, (0, FINE))
            if code and self.asked[name] > fails:
                del self._failing[name]
                return code, 0
            try:
                return _CALLS[name](self, more, *numbers) if name in _CALLS else (FINE, 0)
            except _RefusedError as error:
                code, text = error.args
                self.faults.append(f"{name}{numbers}: {text}")
                return code, 0
            except Exception as error:
                self.faults.append(f"{name}{numbers}: {error!r}")
                return LAUNCH_FAILED, 0

    def _size(self, more: bytes) -> tuple[int, int]:
        return FINE, _SIZE

    def _open(self, more: bytes, flags: int) -> tuple[int, int]:
        return FINE, self._start

    def _attribute(self, more: bytes, attribute: int, device: int) -> tuple[int, int]:
        return (FINE, _ATTRIBUTES[attribute]) if attribute in _ATTRIBUTES else (INVALID_VALUE, 0)

    def _allocate(self, more: bytes, size: int) -> tuple[int, int]:
        """The first gap that is wide enough, with guards on both sides."""
        _demand(size > 0, f"{size} bytes")
        at = self._start
        for start in sorted(self.live):
            if start - PAD - at >= self._room(size):
                break
            at = start - PAD + self._room(self.live[start])
        if at + self._room(size) > self._start + _SIZE:
            return OUT_OF_MEMORY, 0
        ctypes.memset(at, _GUARD, self._room(size))
        at += PAD
        ctypes.memset(at, next(FILLS), size)
        self.live[at] = size
        if self._machine is not None:
            self._machine.pieces.add(at, size, size + PAD)
        return FINE, at

    def _room(self, size: int) -> int:
        return -(-size // PAD) * PAD + 2 * PAD

    def _free(self, more: bytes, address: int, size: int) -> tuple[int, int]:
        found = self.live.pop(address, None)
        _demand(found == size, f"{size} bytes at {address:#x} are freed, and there are {found}")
        self._look_around(address, size)
        ctypes.memset(address, FREED, size)
        if self._machine is not None:
            self._machine.pieces.remove(address)
        return FINE, 0

    def _look_around(self, address: int, size: int) -> None:
        around = ctypes.string_at(address - PAD, PAD), ctypes.string_at(address + size, self._room(size) - PAD - size)
        if any(side.strip(bytes([_GUARD])) for side in around):
            self.faults.append(f"bytes outside of {size} bytes at {address:#x} were written")

    def _check(self, address: int, size: int, stream: int = _STREAM) -> None:
        _demand(stream == _STREAM, f"stream {stream}", INVALID_HANDLE)
        inside = any(start <= address and address + size <= start + length for start, length in self.live.items())
        _demand(inside or size == 0, f"{size} bytes at {address:#x} are in no memory that was allocated", ILLEGAL_ADDRESS)

    def _copy(self, more: bytes, address: int, size: int, stream: int) -> tuple[int, int]:
        self._check(address, size, stream)
        return FINE, 0

    def _copy_on_device(self, more: bytes, target: int, source: int, size: int, stream: int) -> tuple[int, int]:
        self._check(target, size, stream)
        self._check(source, size, stream)
        return FINE, 0

    def _register(self, more: bytes, address: int, size: int, flags: int) -> tuple[int, int]:
        _demand(flags == 1 and size > 0, f"flags {flags}, {size} bytes")
        if any(start < address + size and address < start + length for start, length in self.locked.items()):
            return ALREADY_REGISTERED, 0
        self.locked[address] = size
        return FINE, 0

    def _unregister(self, more: bytes, address: int) -> tuple[int, int]:
        return (FINE if self.locked.pop(address, None) else NOT_REGISTERED), 0

    def _load(self, more: bytes) -> tuple[int, int]:
        if not more.startswith(b"\x7fELF") and not more.lstrip().startswith((b"//", b".version")):
            return INVALID_IMAGE, 0
        self._images.append(more)
        return FINE, len(self._images)

    def _function(self, more: bytes, module: int) -> tuple[int, int]:
        """A handle: the number of the function times 256, and how many parameters it has."""
        kernel = load_all().get(more.decode().removeprefix("kolumn_"))
        if more not in self._images[module - 1] or kernel is None:
            return NOT_FOUND, 0
        self._kernels.append(kernel)
        return FINE, len(self._kernels) << 8 | 1 + len(kernel.args._fields)

    def _launch(self, more: bytes, function: int, grid: int, block: int, stream: int) -> tuple[int, int]:
        kernel = self._kernels[(function >> 8) - 1]
        n, *args = np.frombuffer(more, np.int64).tolist()
        most = kernel.grid(n, 1 << 30)
        _demand(stream == _STREAM, f"stream {stream}", INVALID_HANDLE)
        right = block == kernel.block and (grid == most if kernel.lanes else 0 < grid <= most)
        _demand(right, f"{kernel.name} of {n} items: {grid} blocks of {block} threads")
        self.asked[f"launched {kernel.name}"] += 1
        (self._machine.run if self._machine is not None else run_loops)(kernel, n, kernel.args(*args))
        return FINE, 0

    def _temporary(self, more: bytes, kind: int, count: int, largest: int, total: int) -> tuple[int, int]:
        return FINE, count * largest if kind == ZSTD_FRAME else 0

    def _inflate(self, more: bytes, kind: int, *given: int) -> tuple[int, int]:
        sources, sizes, rooms, out_sizes, count, temporary, temporary_bytes, targets, statuses, stream = given
        for address in (sources, sizes, rooms, out_sizes, targets):
            self._check(address, 8 * count, stream)
        self._check(statuses, 4 * count)
        self._check(temporary, temporary_bytes)
        longs = (_longs(address, count) for address in (sources, sizes, rooms, targets))
        for i, (source, size, room, target) in enumerate(zip(*longs, strict=True)):
            self._check(source, size)
            self._check(target, room)
            try:
                data = _INFLATE[kind](ctypes.string_at(source, size), room)
            except Exception:  # of any codec: nvCOMP has a status for the block
                data = None
            fine = data is not None and len(data) <= room
            if fine:
                ctypes.memmove(target, data, len(data))
            ctypes.c_int64.from_address(out_sizes + 8 * i).value = len(data) if fine else 0
            ctypes.c_int32.from_address(statuses + 4 * i).value = 0 if fine else 12
        return FINE, 0


def _longs(address: int, count: int) -> list[int]:
    return list((ctypes.c_int64 * count).from_address(address))


_CALLS: dict[str, Callable[..., tuple[int, int]]] = {
    "cuInit": OwnLibcuda._open,
    "size": OwnLibcuda._size,
    "allocate": OwnLibcuda._allocate,
    "free": OwnLibcuda._free,
    "cuDeviceGetAttribute": OwnLibcuda._attribute,
    "cuModuleLoadData": OwnLibcuda._load,
    "cuModuleGetFunction": OwnLibcuda._function,
    "cuLaunchKernel": OwnLibcuda._launch,
    "cuMemcpyHtoDAsync_v2": OwnLibcuda._copy,
    "cuMemcpyDtoHAsync_v2": OwnLibcuda._copy,
    "cuMemcpyDtoDAsync_v2": OwnLibcuda._copy_on_device,
    "cuMemsetD8Async": OwnLibcuda._copy,
    "cuMemHostRegister_v2": OwnLibcuda._register,
    "cuMemHostUnregister": OwnLibcuda._unregister,
    "temporary": OwnLibcuda._temporary,
    "inflate": OwnLibcuda._inflate,
}

_libc = ctypes.CDLL(None, use_errno=True)
_mmap, _munmap = _libc.mmap, _libc.munmap
_mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_mmap.restype = ctypes.c_size_t
_munmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t]


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    device: OwnLibcuda


class _Handler(socketserver.StreamRequestHandler):
    """A library in a process."""

    def handle(self) -> None:
        server: Any = self.server
        for line in self.rfile:
            name, *numbers, size = line.decode().split()
            status, found = server.device.answer(name, [int(number) for number in numbers], self.rfile.read(int(size)))
            self.wfile.write(status.to_bytes(8, sys.byteorder, signed=True) + found.to_bytes(8, sys.byteorder, signed=True))
