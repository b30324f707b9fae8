"""A kernel as machine code.

    kernel ──▶ PTX by numba-cuda ──▶ entry renamed to kolumn_<name> ──▶ cubin by ptxas, for each architecture

A file in the package's folder ``compiled`` is used as it is, so that a worker needs neither compiler: the cubin of the device's
architecture, else the PTX, which the driver translates. Without either, the kernel is compiled on first use and kept in the cache
folder of the machine code.
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

from numba import types

from kolumn.errors import MissingError
from kolumn.kernels.machine.kernel import Kernel
from kolumn.machine_code.cache import cache_folder, fingerprint

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


def ptx(kernel: Kernel, arch: int) -> str:
    """PTX of a kernel for an architecture."""
    from numba import cuda

    arguments = types.NamedUniTuple(types.int64, len(kernel.args._fields), kernel.args)
    capability = divmod(arch, 10)
    with _no_device(capability):
        text, _ = cuda.compile(kernel.shell(), types.void(types.int64, arguments), device=False, cc=capability, output="ptx", abi="numba")
    (mangled,) = re.findall(r"\.entry (\w+)\(", text)
    return str(text.replace(mangled, kernel.entry))


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


def image(kernel: Kernel, arch: int) -> Path:
    """File with the code of a kernel for a device: shipped, or compiled now."""
    shipped = Path(str(files("kolumn.kernels"))) / "compiled"
    for name in (f"{kernel.name}.sm_{arch}.cubin", f"{kernel.name}.ptx"):
        if (shipped / name).is_file():
            return shipped / name
    return compiled(kernel, arch)


def compiled(kernel: Kernel, arch: int) -> Path:
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
