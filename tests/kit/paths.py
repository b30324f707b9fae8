"""Fast paths turned off by KOLUMN_PATHS, and counts that show which path was taken."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import pytest

from kolumn.core import paths

GENERAL, FAST = "general", tuple(paths.FAST)

CALLED = {
    paths.STREAMED: ("decode.chunk", "stream_runs"),
    paths.MESSAGES: ("decode.chunk", "stream_message_runs"),
    paths.SHORT: ("cpu_fallback.columns", "Target"),
    paths.TOGETHER: ("decode.small_segments", "stream_files"),
    paths.FILTER: ("writers.rewriting.cleaner", "filter_records"),
    paths.DOWN_CONVERSION: ("writers.regroup", "down_convert"),
    paths.JSON: ("values.json", "decode_objects"),
    GENERAL: ("decode.host.run", "fields"),
}
"""What each path calls and no other does; the last argument of ``Target`` says whether loops for short records run."""


@contextmanager
def without(*off: str) -> Iterator[None]:
    """Turn fast paths off for this process, or all of them by `GENERAL`."""
    before = os.environ.get("KOLUMN_PATHS")
    os.environ["KOLUMN_PATHS"] = GENERAL if GENERAL in off else ",".join(f"-{one}" for one in off)
    paths.turned_off.cache_clear()
    try:
        yield
    finally:
        del os.environ["KOLUMN_PATHS"]
        if before is not None:
            os.environ["KOLUMN_PATHS"] = before
        paths.turned_off.cache_clear()


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """How often each path is taken."""
    calls = Counter[str]()

    def counting(path: str, real: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        calls[path] += path != paths.SHORT or arguments[-1]
        return real(*arguments, **named)

    # Before its names are replaced: it has some of them in types.
    import_module("kolumn.values.avro")
    with pytest.MonkeyPatch.context() as patch:
        for path, (module, name) in CALLED.items():
            place = import_module(f"kolumn.{module}")
            patch.setattr(place, name, partial(counting, path, getattr(place, name)))
        yield calls
