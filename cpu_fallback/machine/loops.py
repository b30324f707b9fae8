"""All compiled loops, and the folder of their machine code.

The folder's name depends on everything that can change the code: a fingerprint of all source files that can end up in it, the method of
the checksums, which the environment can set, the processor, and the versions of Python, Numba and LLVM.
"""

import hashlib
import platform
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from llvmlite import binding
from numba import config

from kolumn.cpu_fallback.machine.crc import KIND
from kolumn.machine_code.cache import code_folder, fingerprint

LOOPS: dict[str, Any] = {}
"""Every loop of an imported module, by ``module:name``."""

SOURCES = ("machine_code/scalar.py", "machine_code/words.py", "errors.py", "cpu_fallback", "encodings", "formats", "codecs")
"""Source files of Kolumn that can end up in machine code, as functions or as constants."""


@cache
def folder() -> Path | None:
    """Folder of the machine code of the loops, for this processor and these versions; None if no folder is usable."""
    return code_folder(version())


@cache
def version() -> str:
    """Name of the folder. It differs whenever the code could differ."""
    processor = config.CPU_NAME or binding.get_host_cpu_name(), config.CPU_FEATURES or binding.get_host_cpu_features().flatten()
    versions = platform.python_version_tuple()[:2], platform.python_implementation(), numba.__version__, llvmlite.__version__
    machine = binding.get_process_triple(), *processor, config.ENABLE_AVX, config.OPT
    of_machine = hashlib.sha256(repr((machine, versions)).encode()).hexdigest()[:12]
    return f"{fingerprint(*SOURCES)}-{of_machine}-{KIND}"
