"""All compiled loops, and where their machine code is: in the package, compiled ahead, or in a folder of the user.

A folder's name depends on everything that can change the code: a fingerprint of all source files that can end up in it, and the processor.
In the user's folder, where code is for this very processor, it depends on the versions of Numba and LLVM as well. The
version of Python is not in it, since object code does not know Python.
"""

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kolumn.cpu_fallback.machine import objects, processor
from kolumn.machine_code.cache import code_folder, fingerprint, package

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

LOOPS: dict[str, Any] = {}
"""Every loop of an imported module, by ``module:name``."""

SOURCES = (
    "machine_code/deferred.py",
    "machine_code/scalar.py",
    "machine_code/words.py",
    "errors.py",
    "cpu_fallback",
    "encodings",
    "formats",
    "codecs",
)
"""Source files of Kolumn that can end up in machine code, as functions or as constants."""


@cache
def shipped() -> "Traversable | None":
    """Folder in the package with the code of all loops for processors like this one; None if there is none of these sources."""
    level = processor.level()
    if level is None:
        return None
    place = package().joinpath("cpu_fallback", "compiled", shipped_name(level))
    return place if place.is_dir() else None


def shipped_name(level: str) -> str:
    """Name of the folder for one of `processor.LEVELS`."""
    return f"{level}-{fingerprint(*SOURCES)}"


@cache
def folder() -> Path | None:
    """Folder of the machine code that is compiled here, for this processor and these versions; None if no folder is usable."""
    return code_folder(version())


@cache
def version() -> str:
    """Name of the folder. It differs whenever the code could differ."""
    versions = [_version_of(name) for name in ("numba", "llvmlite")]
    of_machine = hashlib.sha256(repr((processor.description(), versions)).encode()).hexdigest()[:12]
    return f"{fingerprint(*SOURCES)}-{of_machine}"


def _version_of(name: str) -> str:
    """The text of a package's file of its version: importing Numba, or looking for its metadata, takes long."""
    spec = find_spec(name)
    return Path(spec.origin or "").with_name("_version.py").read_text() if spec else ""


def stored(loop: str) -> bytes | None:
    """Object code of a loop by its name, from the package or from the user's folder."""
    if not loop.startswith(_PREFIX):
        return None
    for place in (shipped, folder):
        found = place()
        if found is not None and (code := objects.read(found.joinpath(file_of(loop)))) is not None:
            return code
    return None


_PREFIX = "kolumn.cpu_fallback."


def file_of(loop: str) -> str:
    """Name of the file with a loop's code."""
    return f"{loop.removeprefix(_PREFIX).replace(':', '.')}.code"


def entry_of(loop: str) -> str:
    """Name of the function in a loop's code."""
    return f"kolumn.{loop}"
