"""A kernel as machine code.

    kernel ──▶ PTX (`kolumn.kernels.machine.nvptx`) ──▶ cubin by ptxas, for each architecture

What the package brings is used as it is, so that a worker compiles nothing: the cubin of the device's architecture, else the PTX,
which the driver translates. Without either, the kernel is compiled on first use and kept in the cache folder of the machine code.
Folders have the fingerprint of the sources in their names: code of other sources takes other arguments.
"""

import os
import subprocess
import sysconfig
from importlib.resources import files
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

from kolumn.core.cache import cache_folder, fingerprint
from kolumn.core.errors import MissingError
from kolumn.formats.layouts import EXTRA

if TYPE_CHECKING:
    from kolumn.kernels.machine.kernel import Kernel

ARCHITECTURES = (80, 90, 100)
SOURCES = ("core/errors.py", "core/deferred.py", "kernels", "values/wire", "formats")
"""Sources that can end up in a kernel, as functions or as constants."""
OLDEST = 80
"""Architecture of the PTX: newer ones take it too."""


def cubin(source: Path, target: Path, arch: int) -> str:
    """Machine code of a PTX file; returns what ptxas prints about registers and spills. Raises `MissingError`: there is no ptxas."""
    packaged = Path(sysconfig.get_paths()["purelib"], "nvidia", "cu13", "bin", "ptxas")
    assembler = str(packaged) if packaged.exists() else which("ptxas")
    if assembler is None:
        raise MissingError("ptxas was not found: pip install nvidia-cuda-nvcc, or put a CUDA toolkit on the PATH")
    command = [assembler, "-v", f"-arch=sm_{arch}", str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise MissingError(f"ptxas: {done.stderr.strip()}")
    return done.stderr


def shipped() -> Path:
    """Folder in the package with the code of all kernels, if it brings code of these sources."""
    return Path(str(files("kolumn.kernels"))) / "compiled" / fingerprint(*SOURCES, drafts=EXTRA)


def image(kernel: "Kernel", arch: int) -> Path:
    """File with the code of a kernel for a device: shipped, or compiled now."""
    for name in (f"{kernel.name}.sm_{arch}.cubin", f"{kernel.name}.ptx"):
        if (place := shipped() / name).is_file():
            return place
    return compiled(kernel, arch)


def compiled(kernel: "Kernel", arch: int) -> Path:
    """File with the PTX of a kernel as the sources are now, in the cache folder; compiled if it is not there yet. Raises `MissingError`:
    there is no cache folder that can be written to."""
    folder = cache_folder()
    if folder is None:
        raise MissingError("no writable cache folder for compiled kernels: set KOLUMN_CACHE_DIR")
    place = folder / fingerprint(*SOURCES, drafts=EXTRA) / f"{kernel.name}.sm_{arch}.ptx"
    if not place.exists():
        from kolumn.kernels.machine.nvptx import ptx

        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_name(f"{place.name}.{os.getpid()}")
        draft.write_text(ptx(kernel, arch))
        draft.replace(place)
    return place
