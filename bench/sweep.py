"""Is any shape of a log slower than with Kafka's Java classes?  python -m bench.sweep [--format 2 ...] [--codec lz4 ...] ...

A cell is a segment of one format, codec, size of values and size of batches, written by Kafka's builder (`Shapes.java`). Values are
words; batches of 16 KiB come with the other kinds of `bench.data` too, whose values have the sizes that they have. Files are
read back from disk before anything is measured (fsync, the page cache dropped, read), because the page cache of a file that was just
written is slower. One core, checksums on. Kolumn starts from the path. Java starts from bytes that are on its heap already, or from the
path too:

columns   new primitive arrays that grow, from the heap, beside a table with key, value, offset and timestamp, which is new as well
filled    primitive arrays that were allocated once, from the heap, beside the same table
view      iteration over all records, from the heap, beside a table with ``binary="view"``
file      arrays as of `filled`, from `FileRecords`, which is how Kafka reads a segment, beside the same table
map       arrays as of `filled`, from a mapping of the file, beside the same table

A JVM's best time differs by a third from one JVM to the next, so each cell is measured in several JVMs, and Java's time is the best of
all. A JVM decodes all cells of one format and codec, so it always runs the same code of Kafka: once to warm up, its compiler having the
same core, and once to be measured. Results of cells are kept in ``build/bench/sweep``, so a sweep can be made in parts; ``--save`` stores
those of all cells.
"""

import argparse
import json
import subprocess
import sys
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple, Self

from bench import data, machine
from bench.cpu_vs_java import CORE, JVM, build

FOLDER = machine.ROOT / "build" / "bench" / "sweep"
FORMATS, VALUES, BATCHES = (2, 1, 0), (0, 10, 100, 1024, 102_400), (1, 1 << 10, 16 << 10, 1 << 20)
CODECS = ("none", "lz4", "snappy", "zstd", "gzip")
QUESTIONS = {"columns": "grown memory", "filled": "arrays memory", "view": "iterate memory", "file": "arrays file", "map": "arrays map"}
"""What Java decodes, and from where; Kolumn always starts from the path."""
TIMES = 7
WARM_UP, JVM_SECONDS = 0.1, 8.0
"""Seconds of warming up: of both sides before each measurement, and of a new JVM, spread over all cells and questions."""
WORDS, USUAL = "words", (100, 16 << 10)
"""The kind of values that all sizes are measured with, and the sizes of the cells of other kinds."""
FAST = 2.0, 1.5
"""Targets of columns in 16 KiB batches of values of up to 100 bytes, for format 2 and for formats 0 and 1; 1.0 elsewhere."""


class Cell(NamedTuple):
    """One shape of a segment; sizes in bytes."""

    format: int
    codec: str
    value: int
    batch: int
    kind: str = WORDS

    @property
    def exists(self) -> bool:
        """Whether there is such a segment, and no other cell has the same one."""
        if self.kind != WORDS and (self.value, self.batch) != USUAL:
            return False
        if self.format < 2 and (self.codec == "zstd" or (self.codec == "none" and self.batch > 1)):
            return False
        return self.batch == 1 or self.batch > self.value

    @property
    def target(self) -> float:
        """How many times as fast as Java columns have to be."""
        usual = self.value <= 100 and (self.batch == 16 << 10 or (self.format < 2 and self.codec == "none"))
        return FAST[self.format < 2] if usual else 1.0

    def __str__(self) -> str:
        values = f"{self.value} B" if self.kind == WORDS else self.kind
        return f"v{self.format} {self.codec} {values}, batch {self.batch}"

    @property
    def name(self) -> str:
        """Part of a path."""
        return "-".join(map(str, self[:4])) + ("" if self.kind == WORDS else f"-{self.kind.replace(' ', '-')}")


def classpath() -> str:
    """Classes and jars of the comparison with Java."""
    jars = machine.ROOT / "build" / "bench" / "java"
    return f"{jars / 'bench-1.jar'}:{jars / 'lib' / '*'}"


def stored(cell: Cell) -> Path:
    """Where the result of a cell is kept until all are saved."""
    return FOLDER / f"{cell.name}.json"


def segment(cell: Cell, megabytes: int) -> Path:
    """Path of the cell's segment; it is written if it does not exist, and read back from disk."""
    path = FOLDER / f"{megabytes}-{cell.name}" / f"{0:020d}.log"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        more = [] if cell.kind == WORDS else [str(values_of(cell.kind))]
        subprocess.run(["java", "-cp", classpath(), "Shapes", str(partial), *map(str, cell[:4]), str(megabytes), *more], check=True)
        partial.rename(path)
    data.read_back(path)
    return path


def values_of(kind: str) -> Path:
    """A file of values of a kind, for `Shapes.java`."""
    path = FOLDER / f"{kind.replace(' ', '-')}.values"
    if not path.exists():
        path.write_bytes(b"".join(len(value).to_bytes(4, "big") + value for value in data.values(kind, 4 << 20)))
    return path


class Worker:
    """A process that decodes any segment that it is told to, on one core."""

    def __init__(self, *command: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(["taskset", "-c", str(CORE), *command], cwd=machine.ROOT, stdin=pipe, stdout=pipe, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def ask(self, path: Path, question: str, warm_up: float = WARM_UP, times: int = TIMES) -> tuple[dict[str, Any], float]:
        """What was decoded, and the best time in ms."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{warm_up} {times} {question} {path}\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer["found"], round(min(answer["nanoseconds"]) / 1e6, 3)


def compare(cells: list[Cell], megabytes: int, jvms: int) -> list[dict[str, Any]]:
    """Best times of both sides in cells of one format and codec, and how many times as fast Kolumn is."""
    paths = [segment(cell, megabytes) for cell in cells]
    rows: list[dict[str, Any]] = [
        {**cell._asdict(), "file_bytes": path.stat().st_size, **{name: {"kolumn_ms": float("inf"), "java_ms": []} for name in QUESTIONS}}
        for cell, path in zip(cells, paths, strict=True)
    ]
    with Worker(sys.executable, "-m", "bench.worker", "-") as ours:
        for _ in range(jvms):
            with Worker("java", *JVM, "-cp", classpath(), "Decode", "-") as theirs:
                for path, question in product(paths, QUESTIONS.values()):
                    theirs.ask(path, question, JVM_SECONDS / len(paths) / len(QUESTIONS), 1)
                for cell, path, row in zip(cells, paths, rows, strict=True):
                    for name, question in QUESTIONS.items():
                        (found, best), (java, java_best) = ours.ask(path, question), theirs.ask(path, question)
                        if {key: java[key] for key in found} != found:
                            raise SystemExit(f"{cell}, {question}: Java decoded {java}, Kolumn {found}")
                        row["records"] = found["records"]
                        row[name]["kolumn_ms"] = min(row[name]["kolumn_ms"], best)
                        row[name]["java_ms"].append(java_best)
    for row in rows:
        for name in QUESTIONS:
            row[name]["ratio"] = round(min(row[name]["java_ms"]) / row[name]["kolumn_ms"], 2)
    return rows


def show(cell: Cell, row: dict[str, Any]) -> None:
    """Print one line."""
    verdict = "met" if row["columns"]["ratio"] >= cell.target else "MISSED"
    others = "".join(f"{row[name]['ratio']:8.2f}" for name in QUESTIONS if name != "columns")
    columns = row["columns"]
    times = f"{columns['kolumn_ms']:8.2f}{min(columns['java_ms']):8.2f}{columns['ratio']:7.2f}"
    print(f"{cell!s:36}{times}   {cell.target:.1f} {verdict:6}{others}", flush=True)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sweep", description=(__doc__ or "").splitlines()[0])
    for name, choices in (("format", FORMATS), ("codec", CODECS), ("value", VALUES), ("batch", BATCHES), ("kind", tuple(data.KINDS))):
        parser.add_argument(f"--{name}", nargs="+", type=type(choices[0]), choices=choices, default=choices, help="cells to measure")
    parser.add_argument("--megabytes", type=int, default=6, help="size of a segment, MiB")
    parser.add_argument("--jvms", type=int, default=5, help="JVMs for each format and codec")
    parser.add_argument("--write", action="store_true", help="only write the segments")
    parser.add_argument("--save", action="store_true", help="measure nothing; store the results of all cells that were measured")
    given = parser.parse_args(arguments)
    build()
    commit = machine.describe()["commit"]
    asked = [cell for cell in map(Cell._make, product(given.format, given.codec, given.value, given.batch, given.kind)) if cell.exists]
    if given.write:
        for cell in asked:
            segment(cell, given.megabytes)
    elif given.save:
        # What this machine has not measured stays as it was saved, with its commit.
        saved = {
            Cell(*(row.get(name, WORDS) for name in Cell._fields)): row
            for row in json.loads((machine.RESULTS / "sweep.json").read_text())["rows"]
        }
        measured = {cell: json.loads(stored(cell).read_text()) for cell in asked if stored(cell).exists()}
        kept = list((saved | measured).values())
        print(machine.save("sweep", {"jvm": JVM, "megabytes": given.megabytes, "rows": kept}))
    else:
        print(
            f"{'':36}{'Kolumn':>8}{'Java':>8}  times  target      {''.join(f'{name:>8}' for name in QUESTIONS if name != 'columns')}\n"
            f"{'':36}{'columns, best ms':>16}",
            flush=True,
        )
        for _, some in groupby(asked, lambda cell: (cell.format, cell.codec)):
            cells = list(some)
            for cell, row in zip(cells, compare(cells, given.megabytes, given.jvms), strict=True):
                show(cell, row)
                stored(cell).write_text(json.dumps(row | {"commit": commit}))


if __name__ == "__main__":
    main(sys.argv[1:])
