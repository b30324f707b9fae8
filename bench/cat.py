"""How fast does `kolumn cat` print records?  python -m bench.cat

Two million records that `kolumn.write` wrote, values of words and values of JSON, as text and as JSON lines, to /dev/null. A process
that prints one record says how long it takes until there is one at all.
"""

import resource
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa

import kolumn
from bench import data, machine

RECORDS = 2_000_000
RUNS = 3
VALUES = {"words": b"words of user %d, and what one writes about them", "json": b'{"id":%d,"name":"user","ok":true,"tags":["a","b"]}'}


def segment(kind: str) -> Path:
    """Folder of the records; it is written if it does not exist yet."""
    folder = data.FOLDER / f"cat_{kind}-0"
    if not folder.exists():
        values = pa.array([VALUES[kind] % i for i in range(RECORDS)], pa.binary())
        keys = pa.array([b"key%06d" % (i % 100_000) for i in range(RECORDS)], pa.binary())
        moments = pa.array(range(data.BASE_TIMESTAMP, data.BASE_TIMESTAMP + RECORDS), pa.int64())
        kolumn.write(pa.table({"key": keys, "value": values, "timestampMs": moments}), folder, codec="zstd")
    return folder


def seconds(*arguments: str) -> tuple[float, float]:
    """Best wall time and best time of all cores together of a process that prints records."""
    command = [sys.executable, "-c", "from kolumn.cli import main; main()", "cat", *arguments]
    wall, cpu = [], []
    for _ in range(RUNS):
        start, used = time.perf_counter(), _used()
        subprocess.run(command, cwd=machine.ROOT, stdout=subprocess.DEVNULL, check=True)
        wall.append(time.perf_counter() - start)
        cpu.append(_used() - used)
    return round(min(wall), 2), round(min(cpu), 2)


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    rows = []
    for kind in VALUES:
        folder = str(segment(kind))
        one, one_cpu = seconds("-n", "1", folder)
        for form, options in (("text", []), ("json lines", ["--json"])):
            wall, cpu = seconds(*options, folder)
            rows.append({"values": kind, "form": form, "wall_s": wall, "cpu_s": cpu, "one_record_wall_s": one, "one_record_cpu_s": one_cpu})
            speeds = [round(RECORDS / max(all - first, 0.01)) for all, first in ((wall, one), (cpu, one_cpu))]
            found = f"{wall:.2f} s, {cpu:.2f} s of CPU; until the first record {one:.2f} s, {one_cpu:.2f} s"
            print(f"{kind:6} {form:10} {found}; after it {speeds[0]:,} records/s, {speeds[1]:,} per s of CPU", flush=True)
    print(machine.save("cat", {"records": RECORDS, "rows": rows}))


if __name__ == "__main__":
    main()
