"""How much faster are two threads than one?  python -m bench.threads [NAME ...]

One segment of 64 MiB for each codec, and 5,000 segments of 100 KB, in the page cache. Reads with one thread, with two, and by two processes
with one thread each take turns; ratios are of best times. Both processes begin at the same time, and the time is that of the one that ends
last: that is the ceiling that the machine's memory, its system and its other guests leave. ``loops`` is the share of one thread's time
that is spent in compiled code.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kolumn
from bench import data, machine, shapes
from kolumn.decode import small_segments
from kolumn.decode.host import streamed

COLUMNS = ["key", "value", "offset", "timestamp"]
ROUNDS, MANY_ROUNDS = 25, 5
TARGETS = {"none": 1.7, "lz4": 1.85, "zstd": 1.85, "many": 1.8}


def read(path: Path, threads: int) -> float:
    """Seconds of one read."""
    start = time.perf_counter()
    kolumn.read(path, columns=COLUMNS, threads=threads)
    return time.perf_counter() - start


def loops(path: Path) -> float:
    """The share of a read with one thread that is spent in `stream` or `stream_files`."""
    spent = [0.0]

    def timed(real: Callable[..., Any]) -> Callable[..., Any]:
        def loop(*arguments: Any) -> Any:
            start = time.perf_counter()
            found = real(*arguments)
            spent[0] += time.perf_counter() - start
            return found

        return loop

    places = (streamed, "stream"), (small_segments, "stream_files")
    real = [getattr(module, name) for module, name in places]
    try:
        for (module, name), loop in zip(places, real, strict=True):
            setattr(module, name, timed(loop))
        shares = []
        for _ in range(3):
            spent[0] = 0.0
            whole = read(path, 1)
            shares.append(spent[0] / whole)
        return max(shares)
    finally:
        for (module, name), loop in zip(places, real, strict=True):
            setattr(module, name, loop)


class Processes:
    """Two processes that each read the same source with one thread, at the same time."""

    def __init__(self, path: Path) -> None:
        code = (
            "import sys; from pathlib import Path; from bench.threads import read; path = Path(sys.argv[1]); read(path, 1)\n"
            "print(flush=True)\nfor _ in sys.stdin: print(read(path, 1), flush=True)"
        )
        self._running = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(path)], cwd=machine.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        for one in self._running:
            self._line(one)

    def read(self) -> float:
        """Seconds until both have read it."""
        for one in self._running:
            assert one.stdin is not None
            one.stdin.write("\n")
            one.stdin.flush()
        return max([float(self._line(one)) for one in self._running])

    def close(self) -> None:
        """End them."""
        for one in self._running:
            one.communicate()

    @staticmethod
    def _line(one: "subprocess.Popen[str]") -> str:
        assert one.stdout is not None
        return one.stdout.readline()


def measure(name: str, path: Path) -> dict[str, Any]:
    """Best times with one thread, with two, and with two processes."""
    assert len(os.sched_getaffinity(0)) > 1, "two cores are needed"
    one = two = both = float("inf")
    processes = Processes(path)
    for _ in range(MANY_ROUNDS if name == "many" else ROUNDS):
        one, two, both = min(one, read(path, 1)), min(two, read(path, 2)), min(both, processes.read())
    processes.close()
    ratio, ceiling = one / two, 2 * one / both
    return {
        "segments": name, "one_ms": round(one * 1e3, 2), "two_ms": round(two * 1e3, 2), "processes_ms": round(both * 1e3, 2),
        "ratio": round(ratio, 2), "ceiling": round(ceiling, 2), "of_ceiling": round(ratio / ceiling, 2), "target": TARGETS[name],
        "loops": round(loops(path), 2),
    }  # fmt: skip


def main(names: list[str]) -> None:
    rows = []
    sources: dict[str, Callable[[], Path]] = {
        "none": lambda: data.segment("none"), "lz4": lambda: data.segment("lz4"), "zstd": lambda: data.segment("zstd"),
        "many": lambda: shapes.many_segments(5000, 6),
    }  # fmt: skip
    print(f"{'':8}{'one, ms':>10}{'two, ms':>10}{'ratio':>7}{'target':>8}{'2 processes':>13}{'in loops':>10}")
    for name in names or sources:
        rows.append(row := measure(name, sources[name]()))
        print(
            f"{name:8}{row['one_ms']:10.1f}{row['two_ms']:10.1f}{row['ratio']:7.2f}{row['target']:8.2f}{row['ceiling']:13.2f}{row['loops']:10.2f}"
            f"  {'met' if row['ratio'] >= row['target'] else 'MISSED'}",
            flush=True,
        )  # fmt: skip
    if not names:
        print(machine.save("threads", {"rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])
