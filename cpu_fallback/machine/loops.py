"""All compiled loops, and their object code: in the package, compiled ahead, or in a folder of the user.

A folder's name has a fingerprint of all source files that can end up in the code, and the processor; in the user's folder, where code is
for this very processor, the versions of Numba and LLVM too. A file holds the SHA-256 of the object code, and then the code: LLVM may end
the process over an object that is cut off or altered. The digest authenticates nobody; who could write to the folder is what counts
(`kolumn.core.cache`).
"""

import ctypes
import hashlib
import os
import threading
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kolumn.core.cache import cache_folder, fingerprint, package
from kolumn.cpu_fallback.machine import processor
from kolumn.formats.layouts import EXTRA

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

LOOPS: dict[str, Any] = {}
"""Every loop of an imported module, by ``module:name``."""
SOURCES = ("core/errors.py", "core/deferred.py", "cpu_fallback", "values/wire", "formats")
"""Source files of Kolumn that can end up in machine code, as functions or as constants."""
_PREFIX = "kolumn.cpu_fallback."
_DIGEST = 32
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
"""The entry of a loop (`emit`); ctypes releases the GIL while it runs."""
_one_thread = threading.Lock()


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
    return f"{level}-{fingerprint(*SOURCES, drafts=EXTRA)}"


@cache
def folder() -> Path | None:
    """Folder of the machine code that is compiled here, for this processor and these versions; None if no folder is usable."""
    return cache_folder(version())


@cache
def version() -> str:
    """Name of the folder. It differs whenever the code could differ."""
    versions = [_version_of(name) for name in ("numba", "llvmlite")]
    of_machine = hashlib.sha256(repr((processor.description(), versions)).encode()).hexdigest()[:12]
    return f"{fingerprint(*SOURCES, drafts=EXTRA)}-{of_machine}"


def _version_of(name: str) -> str:
    """The text of a package's file of its version: importing Numba, or looking for its metadata, takes long."""
    spec = find_spec(name)
    return Path(spec.origin or "").with_name("_version.py").read_text() if spec else ""


def file_of(loop: str) -> str:
    """Name of the file with a loop's code."""
    return f"{loop.removeprefix(_PREFIX).replace(':', '.')}.code"


def entry_of(loop: str) -> str:
    """Name of the function in a loop's code."""
    return f"kolumn.{loop}"


def stored(loop: str) -> bytes | None:
    """Object code of a loop by its name, from the package or from the user's folder."""
    if not loop.startswith(_PREFIX):
        return None
    for place in (shipped, folder):
        found = place()
        if found is not None and (code := read(found.joinpath(file_of(loop)))) is not None:
            return code
    return None


def read(path: "Traversable") -> bytes | None:
    """Object code in a file; None if there is no such file, or if it is not as it was written."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    code = data[_DIGEST:]
    return code if hashlib.sha256(code).digest() == data[:_DIGEST] else None


def write(path: Path, code: bytes) -> None:
    """Write a file, whole or not at all, that others cannot write to, with any umask."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(draft, "wb", opener=no_others) as file:
            file.write(hashlib.sha256(code).digest() + code)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def no_others(path: str, flags: int) -> int:
    """Opens a file that others can only read; no link is followed."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


def load(code: bytes, entry: str) -> Callable[[bytes, Any], int]:
    """Load object code for good; returns its entry."""
    from llvmlite import binding

    with _one_thread:
        engine = _engine()
        engine.add_object_file(binding.ObjectFileRef.from_data(code))
        engine.finalize_object()
        return _ENTRY(engine.get_function_address(entry))


@cache
def _engine() -> Any:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_triple(binding.get_process_triple()).create_target_machine(jit=True)
    return binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
