"""The only place that chooses where batches are decoded: the argument, then KOLUMN_BACKEND, then what is there."""

import os

from kolumn.errors import ArgumentError, MissingError


def choose(backend: str = "auto") -> str:
    """Name of the backend to use, "cpu".

    Raises
    ------
    MissingError
        A GPU was asked for: that backend is not part of this version.
    """
    if backend == "auto":
        backend = os.environ.get("KOLUMN_BACKEND", "auto")
    if backend == "gpu":
        raise MissingError("backend='gpu' is not available in this version of Kolumn; use backend='cpu' or 'auto'")
    if backend not in ("auto", "cpu"):
        raise ArgumentError(f"KOLUMN_BACKEND={backend!r}: expected auto, cpu or gpu")
    return "cpu"
