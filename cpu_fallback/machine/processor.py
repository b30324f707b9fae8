"""The processor that loops are compiled for: this one, or one of the levels for which they are compiled ahead.

Numba's environment variables say it: NUMBA_CPU_NAME and NUMBA_CPU_FEATURES, by LLVM's names. A level is what many processors have in
common: those of the x86-64 psABI. KOLUMN_NATIVE=1 asks for code for this very
processor instead, which is compiled on first use.
"""

import os
import platform
from functools import cache
from typing import NamedTuple

_V3 = (
    "avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3", "xsave",
)  # fmt: skip
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_SETTINGS = ("KOLUMN_NATIVE", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX", "NUMBA_OPT")


class ProcessorLevel(NamedTuple):
    """Processors that can run the same code: LLVM's name for them, and the features that each of them has."""

    cpu: str
    features: tuple[str, ...]

    @property
    def is_arm(self) -> bool:
        """Whether it is of the architecture AArch64, and not of x86-64."""
        return "neon" in self.features

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make Numba compile for this level, on a machine of either architecture."""
        if self.is_arm and platform.machine() != "aarch64":
            # Numba knows this machine's LLVM alone: without features it makes nothing that is of x86-64.
            return {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", FOR_ARM: "1"}
        return {"NUMBA_CPU_NAME": self.cpu, "NUMBA_CPU_FEATURES": ",".join(f"+{name}" for name in self.features)}


ARM, ARM_TRIPLE, FOR_ARM = "armv8-a", "aarch64-unknown-linux-gnu", "KOLUMN_COMPILE_FOR_ARM"
"""The level of AArch64, LLVM's name of that system, and the variable of compilers on another one that compile for it."""
LEVELS = {
    "x86-64-v4": ProcessorLevel("x86-64-v4", _V4),
    "x86-64-v3": ProcessorLevel("x86-64-v3", _V3),
    ARM: ProcessorLevel("generic", ("fp-armv8", "neon")),
}
"""Levels, the most capable first."""


@cache
def host_features() -> frozenset[str]:
    """Features of this CPU, by LLVM's names."""
    from llvmlite import binding

    return frozenset(name for name, there in binding.get_host_cpu_features().items() if there)


@cache
def level() -> str | None:
    """The most capable of `LEVELS` that this CPU has; None if it has none, or if the environment names a processor."""
    if any(name in os.environ for name in _SETTINGS):
        return None
    return next((name for name, one in LEVELS.items() if host_features().issuperset(one.features)), None)


def description() -> tuple[object, ...]:
    """What code depends on, apart from sources and versions."""
    from llvmlite import binding

    settings = tuple(os.environ.get(name) for name in _SETTINGS[1:])
    return binding.get_process_triple(), binding.get_host_cpu_name(), sorted(host_features()), settings
