"""How fast are the writers and the tools?  python -m bench.tools [NAME ...]

64 MiB of `bench.data` in one segment of a topic-partition. Rates are bytes of that segment without a codec for each second of CPU time: the
best of some runs, user and system together, because other guests of the machine change it less than the clock. From programs of the command
line the time of the same program on one record is taken off: it is their start.

`kolumn to-parquet` writes a file for each segment, as many at a time as the machine has cores. It gets four such segments, and its target
is a rate by the clock: zstd alone takes a core about as long as the target allows.

Keys do not repeat, so a compaction copies all batches. Of the segment with repeated keys it drops more than half of the records, from
every batch.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import kolumn
from bench import data, machine

COLUMNS = ["key", "value", "offset", "timestamp"]
RUNS = 3
TO_PARQUET = "kolumn to-parquet"
SEGMENTS = 4
"""Of the topic that becomes Parquet files."""
TARGETS = {
    "convert to format 0": 250, "convert to format 1": 250, "convert to format 2": 250, "convert to v3-compact": 250, "space": 200,
    TO_PARQUET: 300,
}  # fmt: skip
"""MB a second."""


@dataclass
class Took:
    """The best of some runs, in seconds: CPU time of this process and its children together, and the clock."""

    cpu: float = float("inf")
    clock: float = float("inf")

    def without(self, start: "Took") -> "Took":
        return Took(max(self.cpu - start.cpu, 1e-3), max(self.clock - start.clock, 1e-3))


def took(run: Callable[[Path], object]) -> Took:
    """Run it some times."""
    best = Took()
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory(dir=data.FOLDER) as folder:
            before = os.times()
            run(Path(folder) / "out")
            after = os.times()
            best = Took(min(best.cpu, sum(after[:4]) - sum(before[:4])), min(best.clock, after.elapsed - before.elapsed))
    return best


def program(*arguments: object) -> None:
    """Run the command line."""
    command = [sys.executable, "-c", "from kolumn.cli import main; main()", *map(str, arguments)]
    subprocess.run(command, cwd=machine.ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


PROGRAMS: dict[str, Callable[[Path, Path], object]] = {
    TO_PARQUET: lambda source, out: program("to-parquet", source, "-o", out),
    "kolumn inspect": lambda source, _: program("inspect", source),
    "kolumn stats": lambda source, _: program("stats", source),
}
"""Programs of the command line, which are run on one record too."""


def questions(folder: Path) -> dict[str, Callable[[Path], object]]:
    """What is run, by name; each gets a path that does not exist."""
    plain, packed = folder / "none" / "orders-0", folder / "lz4" / "orders-0"
    for codec, source in (("none", plain), ("lz4", packed)):
        if not source.exists():
            source.mkdir(parents=True)
            shutil.copy(data.segment(codec), source)
    long = folder / "long" / "orders-0"
    if not long.exists():
        long.mkdir(parents=True)
        segment = data.segment("none").read_bytes()
        for base_offset in range(0, SEGMENTS * data.records(segment), data.records(segment)):
            (long / f"{base_offset:020d}.log").write_bytes(data.rebase(segment, base_offset))
    table = kolumn.read(plain, columns=COLUMNS, threads=1)
    repeated = folder / "repeated" / "orders-0"
    if not repeated.exists():
        rows = table.num_rows
        keys = table["key"].take(np.random.default_rng(0).integers(0, rows // 2, rows))
        kolumn.write(table.set_column(COLUMNS.index("key"), "key", keys), repeated)

    def write(codec: Any, out: Path) -> None:
        kolumn.write(table, out / "orders-0", codec=codec)

    return {
        **{f"write {codec}": partial(write, codec) for codec in data.CODECS},
        "convert to format 0": lambda out: kolumn.convert(plain, out, magic=0),
        "convert to format 1": lambda out: kolumn.convert(plain, out, magic=1),
        "convert to format 2": lambda out: kolumn.convert(plain, out, magic=2),
        "convert to v3-compact": lambda out: kolumn.convert(plain, out, format="v3-compact"),
        "convert to lz4": lambda out: kolumn.convert(plain, out, codec="lz4"),
        "convert lz4 to format 1": lambda out: kolumn.convert(packed, out, magic=1),
        "compact": lambda out: kolumn.compact(plain, out, include_active=True),
        "compact lz4": lambda out: kolumn.compact(packed, out, include_active=True),
        "compact repeated keys": lambda out: kolumn.compact(repeated, out, include_active=True),
        "copy": lambda out: shutil.copytree(plain, out),
        "space": lambda out: kolumn.space(plain),
        "space lz4": lambda out: kolumn.space(packed),
        **{name: partial(run, long if name == TO_PARQUET else plain) for name, run in PROGRAMS.items()},
    }


def main(names: list[str]) -> None:
    folder = data.FOLDER / "tools"
    small = folder / "small" / "orders-0"
    if not small.exists():
        kolumn.write(kolumn.read(data.segment("none"), columns=COLUMNS, threads=1).slice(0, 1), small)
    size, rows = data.segment("none").stat().st_size, []
    for name, run in questions(folder).items():
        if names and not any(one in name for one in names):
            continue
        start = took(partial(PROGRAMS[name], small)) if name in PROGRAMS else Took(0.0, 0.0)
        net = took(run).without(start)
        by_the_clock = name == TO_PARQUET
        rate = round((SEGMENTS * size / net.clock if by_the_clock else size / net.cpu) / 1e6)
        row: dict[str, Any] = {
            "tool": name, "cpu_s": round(net.cpu, 3), "clock_s": round(net.clock, 3), "start_s": round(start.cpu, 2), "mb_per_s": rate,
        }  # fmt: skip
        target = TARGETS.get(name)
        rows.append(row | ({} if target is None else {"target": target}))
        verdict = "" if target is None else f"{target:6}  {'met' if rate >= target else 'MISSED'}"
        print(f"{name:26}{net.cpu:8.3f} s{rate:8.0f} MB/s{verdict}   ({net.clock:.2f} s by the clock)", flush=True)
    if not names:
        print(machine.save("tools", {"rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])
