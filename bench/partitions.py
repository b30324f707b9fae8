"""How long do 1,500 partitions with a small segment each take beside the same batches in one file?  python -m bench.partitions

A segment has 100 KB without a codec, in the page cache. All ways take turns. Of one thread the time of the processor counts, which other
programs change little, and of two threads beside one that of the clock. ``plan`` is what goes by before a byte is decoded.
"""

import time
from pathlib import Path

import kolumn
from bench import data, machine, shapes
from kolumn.options import Options
from kolumn.readers.plan import plan_read

PARTITIONS, BATCHES, ROUNDS = 1500, 6, 40
TARGETS = {"beside_one_file": 2.0, "of_two_threads": 1.5}


def joined(folder: Path) -> Path:
    """One segment with the batches of all segments of a folder."""
    path = data.FOLDER / f"{folder.name}_joined-0" / f"{0:020}.log"
    if not path.exists():
        path.parent.mkdir()
        segments, first = [], 0
        for segment in sorted(folder.rglob("*.log")):
            whole = segment.read_bytes()
            segments.append(data.rebase(whole, first))
            first += data.records(whole)
        path.write_bytes(b"".join(segments))
    return path


def main() -> None:
    many = shapes.many_segments(PARTITIONS, BATCHES, PARTITIONS)
    one = joined(many)
    ways = {
        "one_file": lambda: kolumn.read(one, threads=1),
        "one": lambda: kolumn.read(many, threads=1),
        "two": lambda: kolumn.read(many, threads=2),
        "plan": lambda: plan_read(many, Options.of()),
    }
    assert kolumn.read(one).num_rows == kolumn.read(many).num_rows
    best = {name: (float("inf"), float("inf")) for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            start, begun = time.perf_counter(), time.process_time()
            way()
            spent = time.perf_counter() - start, time.process_time() - begun
            best[name] = min(best[name][0], spent[0]), min(best[name][1], spent[1])
    row = {f"{name}_ms": round(1e3 * best[name][1], 1) for name in ("one_file", "one", "plan")}
    row["beside_one_file"] = round(best["one"][1] / best["one_file"][1], 2)
    row["of_two_threads"] = round(best["one"][0] / best["two"][0], 2)
    print(", ".join(f"{name} {number}" for name, number in row.items()))
    print(machine.save("partitions", {"rows": [row], "targets": TARGETS}))


if __name__ == "__main__":
    main()
