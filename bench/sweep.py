"""Is any shape of a log slower than with Kafka's Java classes?  python -m bench.sweep [--format 2 ...] [--codec lz4 ...] ...

A cell is a segment of one format, codec, size of values and size of batches, written by Kafka's builder (`Shapes.java`). Files are
read back from disk before anything is measured (fsync, the page cache dropped, read), because the page cache of a file that was just
written is slower. One core, checksums on. Java decodes a heap buffer, Kolumn starts from the path:

columns   primitive arrays, allocated once, beside a table with key, value, offset and timestamp
view      iteration over all records beside a table with ``binary="view"``

A JVM's best time differs by a third from one JVM to the next, so each cell has several JVMs that take turns with Kolumn, and Java's time is
the best of all. Without options every cell is measured, which takes hours, and the result is stored; with options the cells that they name.
"""

import argparse
import subprocess
import sys
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from bench import data, machine
from bench.cpu_vs_java import JVM, Rival, build

FOLDER = machine.ROOT / "build" / "bench" / "sweep"
FORMATS, VALUES, BATCHES = (2, 1, 0), (0, 10, 100, 1024, 102_400), (1, 1 << 10, 16 << 10, 1 << 20)
CODECS = ("none", "lz4", "snappy", "zstd", "gzip")
MODES = {"columns": "arrays", "view": "iterate"}
TURNS = 4
FAST = 2.0, 1.5
"""Targets of columns in 16 KiB batches of values of up to 100 bytes, for format 2 and for formats 0 and 1; 1.0 elsewhere."""


class Cell(NamedTuple):
    """One shape of a segment; sizes in bytes."""

    format: int
    codec: str
    value: int
    batch: int

    @property
    def exists(self) -> bool:
        """Whether there is such a segment, and no other cell has the same one."""
        if self.format < 2 and (self.codec == "zstd" or (self.codec == "none" and self.batch > 1)):
            return False
        return self.batch == 1 or self.batch > self.value

    @property
    def target(self) -> float:
        """How many times as fast as Java columns have to be."""
        usual = self.value <= 100 and (self.batch == 16 << 10 or (self.format < 2 and self.codec == "none"))
        return FAST[self.format < 2] if usual else 1.0

    def __str__(self) -> str:
        return f"v{self.format} {self.codec} {self.value} B, batch {self.batch}"


def classpath() -> str:
    """Classes and jars of the comparison with Java."""
    jars = machine.ROOT / "build" / "bench" / "java"
    return f"{jars / 'bench-1.jar'}:{jars / 'lib' / '*'}"


def segment(cell: Cell, megabytes: int) -> Path:
    """Path of the cell's segment; it is written if it does not exist, and read back from disk."""
    path = FOLDER / f"{megabytes}-{cell.format}-{cell.codec}-{cell.value}-{cell.batch}" / f"{0:020d}.log"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        subprocess.run(["java", "-cp", classpath(), "Shapes", str(partial), *map(str, cell), str(megabytes)], check=True)
        partial.rename(path)
    data.read_back(path)
    return path


def compare(cell: Cell, megabytes: int, jvms: int, warm_up: float) -> dict[str, Any]:
    """Best times of both sides in one cell, and how many times as fast Kolumn is."""
    path = segment(cell, megabytes)
    row: dict[str, Any] = {**cell._asdict(), "file_bytes": path.stat().st_size}
    for name, mode in MODES.items():
        java: list[float] = []
        with Rival(sys.executable, "-m", "bench.worker", str(path), mode, str(warm_up)) as ours:
            for _ in range(jvms):
                with ExitStack() as stack:
                    theirs = stack.enter_context(Rival("java", *JVM, "-cp", classpath(), "Decode", str(path), mode, "memory", str(warm_up)))
                    same(cell, mode, theirs.summary, ours.summary)
                    for _ in range(TURNS):
                        theirs.turn()
                        ours.turn()
                java.append(theirs.result()["best_ms"])
        best = ours.result()["best_ms"]
        row |= {"records": ours.summary["records"], name: {"kolumn_ms": best, "java_ms": java, "ratio": round(min(java) / best, 2)}}
    return row


def same(cell: Cell, mode: str, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Stop unless both sides decoded the same."""
    if {name: theirs[name] for name in ours} != ours:
        raise SystemExit(f"{cell}, {mode}: Java decoded {theirs}, Kolumn {ours}")


def show(cell: Cell, row: dict[str, Any]) -> None:
    """Print one line."""
    columns, view = row["columns"], row["view"]
    verdict = "met" if columns["ratio"] >= cell.target else "MISSED"
    print(
        f"{cell!s:36}{columns['kolumn_ms']:8.2f}{min(columns['java_ms']):8.2f}{columns['ratio']:7.2f}   {cell.target:.1f} {verdict:8}"
        f"{view['kolumn_ms']:8.2f}{min(view['java_ms']):8.2f}{view['ratio']:7.2f}",
        flush=True,
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sweep", description=(__doc__ or "").splitlines()[0])
    for name, choices in (("format", FORMATS), ("codec", CODECS), ("value", VALUES), ("batch", BATCHES)):
        parser.add_argument(f"--{name}", nargs="+", type=type(choices[0]), choices=choices, default=choices, help="cells to measure")
    parser.add_argument("--megabytes", type=int, default=8, help="size of a segment, MiB")
    parser.add_argument("--jvms", type=int, default=5, help="JVMs for each cell and mode")
    parser.add_argument("--warm-up", type=float, default=1.5, help="seconds for which each process warms up")
    parser.add_argument("--save", action="store_true", help="store the result although some cells are left out")
    given = parser.parse_args(arguments)
    build()
    print(f"{'':36}{'Kolumn':>8}{'Java':>8}  times  target     {'view':>8}{'Java':>8}  times\n{'':36}{'columns, best ms':>16}", flush=True)
    rows = []
    for cell in filter(lambda one: one.exists, map(Cell._make, product(given.format, given.codec, given.value, given.batch))):
        rows.append(compare(cell, given.megabytes, given.jvms, given.warm_up))
        show(cell, rows[-1])
    if given.save or (given.format, given.codec, given.value, given.batch) == (FORMATS, CODECS, VALUES, BATCHES):
        print(machine.save("sweep", {"jvm": JVM, "megabytes": given.megabytes, "jvms": given.jvms, "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])
