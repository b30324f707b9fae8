"""Object code of loops: files with a digest, and their functions in this process.

A file holds the SHA-256 of the object code, and then the code. LLVM may end the process over an object that is cut off or altered, so only
what has the right digest is loaded. The digest authenticates nobody; who could write to the folder is what counts
(`kolumn.machine_code.ownership`).
"""

import ctypes
import hashlib
import os
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_DIGEST = 32
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
"""The entry of a loop (`emit`); ctypes releases the GIL while it runs."""
_one_thread = threading.Lock()


def read(place: "Traversable") -> bytes | None:
    """Object code in a file; None if there is no such file, or if it is not as it was written."""
    try:
        data = place.read_bytes()
    except OSError:
        return None
    code = data[_DIGEST:]
    return code if hashlib.sha256(code).digest() == data[:_DIGEST] else None


def write(place: Path, code: bytes) -> None:
    """Write a file, whole or not at all, that others cannot write to, with any umask."""
    draft = place.with_name(f"{place.name}.{os.getpid()}.tmp")
    try:
        with open(draft, "wb", opener=_private) as file:
            file.write(hashlib.sha256(code).digest() + code)
        draft.replace(place)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _private(path: str, flags: int) -> int:
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
