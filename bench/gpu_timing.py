"""How `bench.gpu_decode` times: by events of the device, or by the clock where threads wait for the device themselves.

CuPy is imported where it is used: `bench.gpu_decode` says what is missing on a machine without a GPU.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import Any, NamedTuple, Self
from unittest.mock import patch


class Times(NamedTuple):
    """Milliseconds."""

    best: float
    median: float


def times(found: list[float]) -> Times:
    """The best and the middle one of some turns."""
    return Times(min(found), median(found))


def events(runtime: Any, step: Callable[[], object], turns: int) -> Times:
    """A step on the stream of this thread, after a turn that is not timed; what it returns is freed between turns."""
    step()
    runtime.synchronize()
    return times([_elapsed(*_marked(runtime, step)[1]) for _ in range(turns)])


def walls(step: Callable[[], object], turns: int) -> Times:
    """A step that waits for the device, after a turn that is not timed."""
    found = []
    for _ in range(turns + 1):
        begin = time.perf_counter()
        step()
        found.append(1e3 * (time.perf_counter() - begin))
    return times(found[1:])


def _marked(runtime: Any, step: Callable[[], Any]) -> tuple[Any, tuple[Any, Any]]:
    """What a step returns, and the events before and after what it asks of the device."""
    from cupy.cuda import Event

    begin, end = Event(), Event()
    begin.record(runtime.stream)
    found = step()
    end.record(runtime.stream)
    return found, (begin, end)


def _elapsed(begin: Any, end: Any) -> float:
    from cupy.cuda import get_elapsed_time

    end.synchronize()
    return float(get_elapsed_time(begin, end))


class Watch:
    """What all threads ask of the device within the context, by events around it.

    Attributes
    ----------
    each : dict
        By kernel, and "running sum", "inflate" and "upload": the milliseconds of each call, once the context is over.
    span : float
        Milliseconds from the first to the last of them, where one thread asked.
    """

    def __enter__(self) -> Self:
        from kolumn.kernels.machine.cuda import CudaRuntime

        self._marks: list[tuple[str, tuple[Any, Any]]] = []
        self._held = ExitStack()
        for method in ("launch", "running_sum", "inflate", "upload"):
            self._held.enter_context(patch.object(CudaRuntime, method, self._around(method, getattr(CudaRuntime, method))))
        return self

    def _around(self, method: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def around(runtime: Any, *given: Any) -> Any:
            if method == "launch" and not given[1]:
                # Nothing is launched for no items.
                return None
            found, marks = _marked(runtime, lambda: real(runtime, *given))
            self._marks.append((given[0].name if method == "launch" else method.replace("_", " "), marks))
            return found

        return around

    def __exit__(self, *error: object) -> None:
        self._held.close()
        if error[0] is None:
            self.each: dict[str, list[float]] = {}
            for name, marks in self._marks:
                self.each.setdefault(name, []).append(_elapsed(*marks))
            # A call within another one ends first.
            first, last = (self._marks[end][1][end] for end in (0, -1))
            self.span = _elapsed(first, last)
