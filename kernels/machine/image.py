"""A kernel as machine code.

    kernel ──▶ PTX by numba-cuda ──▶ entry renamed to kolumn_<name> ──▶ cubin by ptxas, for each architecture

What the package brings is used as it is, so that a worker needs neither compiler: the cubin of the device's architecture, else the PTX,
which the driver translates. Without either, the kernel is compiled on first use and kept in the cache folder of the machine code.
Folders have the fingerprint of the sources in their names: code of other sources takes other arguments.
"""

import os
import re
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from shutil import which
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from kolumn.errors import MissingError
from kolumn.machine_code.cache import cache_folder, fingerprint

if TYPE_CHECKING:
    from kolumn.kernels.machine.kernel import Kernel

ARCHITECTURES = (80, 90, 100)
SOURCES = (
    "machine_code/deferred.py",
    "machine_code/scalar.py",
    "machine_code/words.py",
    "errors.py",
    "kernels",
    "encodings",
    "formats",
    "codecs",
)
"""Sources that can end up in a kernel, as functions or as constants."""
OLDEST = 80
"""Architecture of the PTX: newer ones take it too."""
REGISTERS, MOST_REGISTERS = 65_536, 255
"""Of a multiprocessor, and of a thread: a block of more than 256 threads is not launched if each takes the most."""


def ptx(kernel: "Kernel", arch: int) -> str:
    """PTX of a kernel for an architecture."""
    from numba import cuda, types

    arguments = types.NamedUniTuple(types.int64, len(kernel.args._fields), kernel.args)
    capability = divmod(arch, 10)
    with _no_device(capability), _row_stack():
        text, _ = cuda.compile(kernel.shell(), types.void(types.int64, arguments), device=False, cc=capability, output="ptx", abi="numba")
    (mangled,) = re.findall(r"\.entry (\w+)\(", text)
    text = text.replace(mangled, kernel.entry)
    if REGISTERS // kernel.block < MOST_REGISTERS:
        # The driver's compiler must keep to it too. `.maxntid` says the same, but ptxas then spills for the sake of more blocks.
        text = re.sub(r"(\.entry \w+\([^)]*\))", rf"\1\n.maxnreg {REGISTERS // kernel.block}", text)
    return str(text)


@contextmanager
def _no_device(capability: tuple[int, int]) -> Iterator[None]:
    """numba-cuda asks the current device for what a function calls, even if it is told the architecture: answer in its place."""
    from numba.cuda import dispatcher

    asked = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = asked


@contextmanager
def _row_stack() -> Iterator[None]:
    """numba-cuda asks NumPy for a name that NumPy 2.5 has no more."""
    lacking = not hasattr(np, "row_stack")
    if lacking:
        vars(np)["row_stack"] = np.vstack
    try:
        yield
    finally:
        if lacking:
            del vars(np)["row_stack"]


def assembler() -> str:
    """Path of ptxas.

    Raises
    ------
    MissingError
        It is not there.
    """
    packaged = Path(sysconfig.get_paths()["purelib"], "nvidia", "cu13", "bin", "ptxas")
    found = str(packaged) if packaged.exists() else which("ptxas")
    if found is None:
        raise MissingError("ptxas was not found: pip install nvidia-cuda-nvcc, or put a CUDA toolkit on the PATH")
    return found


def cubin(source: Path, target: Path, arch: int) -> str:
    """Machine code of a PTX file; returns what ptxas prints about registers and spills."""
    command = [assembler(), "-v", f"-arch=sm_{arch}", str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise MissingError(f"ptxas: {done.stderr.strip()}")
    return done.stderr


def shipped() -> Path:
    """Folder in the package with the code of all kernels, if it brings code of these sources."""
    return Path(str(files("kolumn.kernels"))) / "compiled" / fingerprint(*SOURCES)


def image(kernel: "Kernel", arch: int) -> Path:
    """File with the code of a kernel for a device: shipped, or compiled now."""
    for name in (f"{kernel.name}.sm_{arch}.cubin", f"{kernel.name}.ptx"):
        if (place := shipped() / name).is_file():
            return place
    return compiled(kernel, arch)


def compiled(kernel: "Kernel", arch: int) -> Path:
    """File with the PTX of a kernel as the sources are now, in the cache folder; compiled if it is not there yet.

    Raises
    ------
    MissingError
        There is no cache folder that can be written to.
    """
    folder = cache_folder()
    if folder is None:
        raise MissingError("no writable cache folder for compiled kernels: set KOLUMN_CACHE_DIR")
    place = folder / fingerprint(*SOURCES) / f"{kernel.name}.sm_{arch}.ptx"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_name(f"{place.name}.{os.getpid()}")
        draft.write_text(ptx(kernel, arch))
        draft.replace(place)
    return place
