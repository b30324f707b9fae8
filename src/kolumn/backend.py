"""The only place that chooses where batches are decoded: the argument, then KOLUMN_BACKEND, then the CPU.

"auto" does not select a GPU by itself: looking for one would begin to use it, which a Spark driver, or a process that forks, must not do.
"""

import os

from kolumn.core.errors import ArgumentError
from kolumn.cpu_fallback.machine import compile_ahead


def choose(backend: str = "auto") -> str:
    """Name of the backend to use, "cpu" or "gpu". Raises `ArgumentError`: KOLUMN_BACKEND has another value."""
    if backend == "auto":
        backend = os.environ.get("KOLUMN_BACKEND", "auto")
    if backend not in ("auto", "cpu", "gpu", RESIDENT):
        raise ArgumentError(f"KOLUMN_BACKEND={backend!r}: expected auto, cpu or gpu")
    return "gpu" if backend in ("gpu", RESIDENT) else "cpu"


RESIDENT = "gpu, resident"
"""Internal name of the backend whose columns stay on the GPU."""


_prepared = False
"""Whether the CPU's machine code has been asked for in this process."""


def require(backend: str) -> str:
    """As `choose`; checks that the backend can run here, and that its machine code exists, before anything is read. Raises `MissingError`:
    a GPU was requested, and there is none, or a package is missing."""
    global _prepared
    chosen = choose(backend)
    if chosen == "gpu":
        from kolumn.kernels.machine.device import runtime

        runtime()
    elif not _prepared:
        compile_ahead.prepare()
        _prepared = True
    return chosen
