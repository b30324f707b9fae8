"""How long do 1,500 partitions with a small segment each take beside the same records in one file?  python -m bench.partitions

A segment has 100 KB without a codec, in the page cache, and all columns of the default are read. One file and the partitions, with one
thread and with two, take turns; ratios are of best times. ``plan`` is the share of one thread's time that goes by before a byte is decoded.
"""

import time
from pathlib import Path

import kolumn
from bench import machine, shapes
from kolumn.options import Options
from kolumn.readers.plan import plan_read

PARTITIONS, BATCHES, ROUNDS = 1500, 6, 15
MOST_BESIDE, LEAST_OF_TWO = 2.0, 1.5


def main() -> None:
    many = shapes.many_segments(PARTITIONS, BATCHES, PARTITIONS)
    one = shapes.many_segments(1, PARTITIONS * BATCHES, 1)

    def read(path: Path, threads: int) -> int:
        return kolumn.read(path, threads=threads).num_rows

    ways = {
        "one": lambda: read(one, 1),
        "partitions": lambda: read(many, 1),
        "two_threads": lambda: read(many, 2),
        "plan": lambda: len(plan_read(many, Options.of()).ranges),
    }
    assert read(one, 1) == read(many, 1)
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            best[name] = min(best[name], time.perf_counter() - start)
    beside, of_two = best["partitions"] / best["one"], best["partitions"] / best["two_threads"]
    row = {f"{name}_ms": round(1e3 * seconds, 2) for name, seconds in best.items()}
    row |= {"beside_one": round(beside, 2), "most": MOST_BESIDE, "of_two": round(of_two, 2), "least": LEAST_OF_TWO}
    print(", ".join(f"{name} {number}" for name, number in row.items()))
    print(machine.save("partitions", {"rows": [row]}))


if __name__ == "__main__":
    main()
