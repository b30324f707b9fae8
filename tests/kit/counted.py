"""Counts what a call costs, by the system's and Python's own counters."""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

IO = Path("/proc/self/io")
"""The system's counters of this process; not every system has them."""
_Made = TypeVar("_Made")


def counted(call: Callable[..., _Made], place: Callable[[], Path] | None = None) -> tuple[_Made, int, int, Counter[str]]:
    """What a call returns, bytes and system calls by which this process read, and the calls of Python functions by file; once it is warm.

    With ``place`` the call gets a new path each time.
    """
    arguments: list[Any] = [] if place is None else [place()]
    call(*arguments)
    arguments = [] if place is None else [place()]
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            calls[frame.f_code.co_filename] += 1

    before = _read_so_far()
    sys.setprofile(count)
    try:
        made = call(*arguments)
    finally:
        sys.setprofile(None)
    after = _read_so_far()
    return made, after[0] - before[0], after[1] - before[1], calls


def _read_so_far() -> tuple[int, int]:
    numbers = dict(line.split(": ") for line in IO.read_text().splitlines())
    return int(numbers["rchar"]), int(numbers["syscr"])
