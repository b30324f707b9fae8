"""How much faster are two threads than one?  python -m bench.threads [NAME ...]

One segment of 64 MiB for each codec, and 5,000 segments of 100 KB, in the page cache. Reads with one thread and with two take turns; ratios
are of best times. As the ceiling, two processes with one thread each read at the same time: what the machine's memory and its other
guests allow. ``loops`` is the share of one thread's time that is spent in compiled code.
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
ROUNDS = 9
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


def ceiling(path: Path) -> float:
    """How many times the work of one process two processes do in the same time."""
    code = (
        "import sys; from pathlib import Path; from bench.threads import read; path = Path(sys.argv[1]); read(path, 1)\n"
        "print(flush=True); sys.stdin.readline(); print(min(read(path, 1) for _ in range(9)), flush=True); sys.stdin.readline()"
    )
    best = []
    for many in (1, 2):
        pipe = subprocess.PIPE
        running = [
            subprocess.Popen([sys.executable, "-c", code, str(path)], cwd=machine.ROOT, stdin=pipe, stdout=pipe, text=True)
            for _ in range(many)
        ]
        times = []
        for act in (lambda one: one.stdout.readline(), lambda one: (one.stdin.write("\n"), one.stdin.flush())):
            for one in running:
                act(one)
        for one in running:
            times.append(float(one.stdout.readline()))
        for one in running:
            one.stdin.close()
            one.wait()
        best.append(max(times))
    return 2 * best[0] / best[1]


def measure(name: str, path: Path) -> dict[str, Any]:
    """Best times with one thread and with two."""
    best = {1: float("inf"), 2: float("inf")}
    cores = os.sched_getaffinity(0)
    for _ in range(3 if name == "many" else ROUNDS):
        for threads in best:
            best[threads] = min(best[threads], read(path, threads))
    assert len(cores) > 1, "two cores are needed"
    return {
        "segments": name, "one_ms": round(best[1] * 1e3, 2), "two_ms": round(best[2] * 1e3, 2), "ratio": round(best[1] / best[2], 2),
        "target": TARGETS[name], "ceiling": round(ceiling(path), 2), "loops": round(loops(path), 2),
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
