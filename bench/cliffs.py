"""Does any option or shape cost much more than a plain read?  python -m bench.cliffs [NAME ...]

One core, files read back from disk, checksums on. Each row is a question beside the plain read that it is compared with: they take turns,
the ratio is of best times. Bytes and calls are what the kernel counts of this process (``/proc/self/io``), so they don't depend on the
clock.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import kolumn
from bench import data, machine, shapes
from kolumn.core.schema import RECORD_COLUMNS

COLUMNS = ["key", "value", "offset", "timestamp"]
ROUNDS = 9
Run = Callable[[], Any]


class Question(NamedTuple):
    """A way to read, and the way that it is compared with; ``most`` times as long is what it may take."""

    name: str
    run: Run
    beside: Run
    most: float


def reading(path: Path, **options: Any) -> Run:
    """A read of the four columns with one thread."""
    return lambda: kolumn.read(path, **{"columns": COLUMNS, "threads": 1, **options})


def questions() -> list[Question]:
    """All rows of the table."""
    plain, packed, committed = data.segment("none"), data.segment("lz4"), shapes.transactions()
    middle = kolumn.read(plain, columns=["offset"]).num_rows // 2
    moment = data.BASE_TIMESTAMP + middle
    found = []
    for codec, path in (("none", plain), ("lz4", packed)):
        base = reading(path)
        found += [
            Question(f"{codec}: read_committed, no transactions", reading(path, isolation_level="read_committed"), base, 1.3),
            Question(f"{codec}: include_headers, no headers", reading(path, include_headers=True), base, 1.3),
            Question(
                f"{codec}: three headers a record",
                reading(shapes.headers(codec), include_headers=True),
                reading(shapes.headers(codec)),
                1.3,
            ),
            Question(f"{codec}: all columns", reading(path, columns=list(RECORD_COLUMNS)), base, 2.5),
            Question(f"{codec}: errors=skip", reading(path, errors="skip"), base, 1.1),
            Question(f"{codec}: verify", lambda path=path: kolumn.verify(path, threads=1), base, 1.2),  # type: ignore[misc]
        ]
    listing = {check: lambda check=check: kolumn.batches(plain, threads=1, check_crcs=check) for check in (True, False)}
    return [
        *found,
        Question("2,000 transactions: read_committed", reading(committed, isolation_level="read_committed"), reading(committed), 2.0),
        Question("batches without checksums, beside with", listing[False], listing[True], 1.0),
        Question("first 1,000 records, no index", reading(plain, end_offset=1000), reading(plain), 0.2),
        Question(
            "1,000 records of the middle, no index", reading(plain, start_offset=middle, end_offset=middle + 1000), reading(plain), 0.4
        ),
        Question(
            "one second of the middle, no index", reading(plain, start_timestamp=moment, end_timestamp=moment + 1000), reading(plain), 1.2
        ),
        Question("null values, beside 100 bytes of value by records", reading(shapes.nulls()), reading(plain), 1.5),
    ]


def counted(run: Run) -> tuple[int, int]:
    """Bytes and calls of reading that one run makes."""
    before = _io()
    run()
    after = _io()
    return after["rchar"] - before["rchar"], after["syscr"] - before["syscr"]


def _io() -> dict[str, int]:
    lines = Path("/proc/self/io").read_text().splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


def measure(question: Question) -> dict[str, Any]:
    """Best times of both ways, taking turns, and what was read."""
    best = [float("inf")] * 2
    for _ in range(ROUNDS):
        for i, run in enumerate((question.run, question.beside)):
            start = time.perf_counter()
            run()
            best[i] = min(best[i], time.perf_counter() - start)
    (size, calls), (beside_size, beside_calls) = counted(question.run), counted(question.beside)
    return {
        "question": question.name, "ms": round(best[0] * 1e3, 2), "beside_ms": round(best[1] * 1e3, 2),
        "ratio": round(best[0] / best[1], 2), "target": question.most,
        "bytes": size, "calls": calls, "beside_bytes": beside_size, "beside_calls": beside_calls,
    }  # fmt: skip


def main(names: list[str]) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"{'':52}{'ms':>8}{'beside':>9}{'ratio':>7}{'at most':>9}{'MB read':>9}{'calls':>7}")
    rows = []
    for question in questions():
        if names and not any(name in question.name for name in names):
            continue
        rows.append(row := measure(question))
        verdict = "met" if row["ratio"] <= row["target"] else "MISSED"
        print(
            f"{row['question']:52}{row['ms']:8.2f}{row['beside_ms']:9.2f}{row['ratio']:7.2f}{row['target']:9.2f}{row['bytes'] / 1e6:9.2f}"
            f"{row['calls']:7}  {verdict}",
            flush=True,
        )  # fmt: skip
    if not names:
        print(machine.save("cliffs", {"rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])
