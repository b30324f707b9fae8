"""Which loops there are, and where their machine code is kept.

The folder is named for everything that can change the code: a fingerprint of all source files that can end up in it, the way checksums are
computed, which the environment can choose, the processor, and the versions of Python, Numba and LLVM.
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
"""Every loop that has been defined so far, by ``module:name``."""

SOURCES = ("machine_code/scalar.py", "errors.py", "cpu_fallback", "formats", "codecs")
"""What can end up in machine code; constants do as well as functions."""


@cache
def folder() -> Path | None:
    """Where the machine code of the loops is kept for this processor and these versions; None for nowhere."""
    return code_folder(version())


@cache
def version() -> str:
    """Name of the folder: differs wherever the code could."""
    processor = config.CPU_NAME or binding.get_host_cpu_name(), config.CPU_FEATURES or binding.get_host_cpu_features().flatten()
    versions = platform.python_version_tuple()[:2], platform.python_implementation(), numba.__version__, llvmlite.__version__
    machine = binding.get_process_triple(), *processor, config.ENABLE_AVX, config.OPT
    of_machine = hashlib.sha256(repr((machine, versions)).encode()).hexdigest()[:12]
    return f"{fingerprint(*SOURCES)}-{of_machine}-{KIND}"
