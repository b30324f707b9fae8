"""How fast are the writers and the tools?  python -m bench.tools [NAME ...]

64 MiB of `bench.data` in one segment of a topic-partition. Rates are bytes of that segment without a codec for each second of CPU time: the
best of some runs, user and system together, because other guests of the machine change it less than the clock. From programs of the command
line the time of the same program on one record is taken off: it is their start.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kolumn
from bench import data, machine

COLUMNS = ["key", "value", "offset", "timestamp"]
RUNS = 3
TARGETS = {
    "convert to format 0": 250, "convert to format 1": 250, "convert to format 2": 250, "convert to v3-compact": 250, "space": 200,
    "kolumn to-parquet": 300,
}  # fmt: skip
"""MB a second."""


def seconds(run: Callable[[Path], object]) -> float:
    """Best CPU time of this process and its children together."""
    best = float("inf")
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory(dir=data.FOLDER) as folder:
            before = os.times()
            run(Path(folder) / "out")
            after = os.times()
            best = min(best, sum(after[:4]) - sum(before[:4]))
    return best


def program(*arguments: object) -> None:
    """Run the command line."""
    command = [sys.executable, "-c", "from kolumn.cli import main; main()", *map(str, arguments)]
    subprocess.run(command, cwd=machine.ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def questions(folder: Path) -> dict[str, Callable[[Path], object]]:
    """What is run, by name; each gets a path that does not exist."""
    plain, packed = folder / "none" / "orders-0", folder / "lz4" / "orders-0"
    for codec, source in (("none", plain), ("lz4", packed)):
        if not source.exists():
            source.mkdir(parents=True)
            shutil.copy(data.segment(codec), source)
    table = kolumn.read(plain, columns=COLUMNS, threads=1)
    return {
        **{f"write {codec}": lambda out, codec=codec: kolumn.write(table, out / "orders-0", codec=codec) for codec in data.CODECS},
        "convert to format 0": lambda out: kolumn.convert(plain, out, magic=0),
        "convert to format 1": lambda out: kolumn.convert(plain, out, magic=1),
        "convert to format 2": lambda out: kolumn.convert(plain, out, magic=2),
        "convert to v3-compact": lambda out: kolumn.convert(plain, out, format="v3-compact"),
        "convert to lz4": lambda out: kolumn.convert(plain, out, codec="lz4"),
        "convert lz4 to format 1": lambda out: kolumn.convert(packed, out, magic=1),
        "compact": lambda out: kolumn.compact(plain, out, include_active=True),
        "compact lz4": lambda out: kolumn.compact(packed, out, include_active=True),
        "copy": lambda out: shutil.copytree(plain, out),
        "space": lambda out: kolumn.space(plain),
        "space lz4": lambda out: kolumn.space(packed),
        "kolumn to-parquet": lambda out: program("to-parquet", plain, "-o", out),
        "kolumn inspect": lambda out: program("inspect", plain),
        "kolumn stats": lambda out: program("stats", plain),
    }


def main(names: list[str]) -> None:
    folder = data.FOLDER / "tools"
    start, rows = {}, []
    small = folder / "small" / "orders-0"
    if not small.exists():
        kolumn.write(kolumn.read(data.segment("none"), columns=COLUMNS, threads=1).slice(0, 1), small)
    for name, run in questions(folder).items():
        if names and not any(one in name for one in names):
            continue
        if name.startswith("kolumn "):
            command = name.removeprefix("kolumn ")
            start[name] = seconds(lambda out, command=command: program(command, small, *(["-o", out] if command == "to-parquet" else [])))  # type: ignore[misc]
        clock = time.perf_counter()
        took = max(seconds(run) - start.get(name, 0.0), 1e-3)
        wall = (time.perf_counter() - clock) / RUNS
        rate = data.segment("none").stat().st_size / took / 1e6
        row: dict[str, Any] = {"tool": name, "cpu_s": round(took, 3), "start_s": round(start.get(name, 0.0), 2), "mb_per_s": round(rate)}
        target = TARGETS.get(name)
        rows.append(row | ({} if target is None else {"target": target}))
        verdict = "" if target is None else f"{target:6}  {'met' if rate >= target else 'MISSED'}"
        print(f"{name:26}{took:8.3f} s{rate:8.0f} MB/s{verdict}   ({wall:.2f} s by the clock)", flush=True)
    if not names:
        print(machine.save("tools", {"rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])
