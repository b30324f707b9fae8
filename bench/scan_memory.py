"""Does scanning 4 GiB stay under 512 MiB of resident memory?  python -m bench.scan_memory [CODEC]

A directory of 64 segments, 64 MiB each with base offsets that go on, is scanned to its end by two threads in a process of its own,
once for each way of giving out keys and values. The process reports its own peak.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import data, machine

SEGMENTS = 64
LIMIT_MIB = 512
SCAN = "import json, sys; from bench.scan_memory import scan; print(json.dumps(scan(*sys.argv[1:])))"


def directory(codec: str) -> Path:
    """Directory of `SEGMENTS` segments; it is written if it does not exist yet."""
    folder = data.FOLDER / f"{codec}_4gib-0"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        partial.mkdir(parents=True, exist_ok=True)
        source = data.segment(codec).read_bytes()
        records = data.records(source)
        for i in range(SEGMENTS):
            (partial / f"{i * records:020d}.log").write_bytes(data.rebase(source, i * records))
        partial.rename(folder)
    return folder


def scan(folder: str, binary: str) -> dict[str, Any]:
    """Scan a directory in this process; runs in a fresh one."""
    import kolumn

    start, rows, last = time.perf_counter(), 0, -1
    for batch in kolumn.scan(folder, threads=2, binary=binary):
        rows += batch.num_rows
        last = batch["offset"][-1].as_py()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return {"binary": binary, "records": rows, "last_offset": last, "seconds": round(time.perf_counter() - start, 2), "peak_mib": peak}


def main(codec: str = "none") -> None:
    folder = directory(codec)
    size = sum(entry.stat().st_size for entry in os.scandir(folder))
    runs = []
    for binary in ("contiguous", "view"):
        command = [sys.executable, "-c", SCAN, str(folder), binary]
        done = subprocess.run(command, cwd=machine.ROOT, stdout=subprocess.PIPE, text=True, check=True)
        run = json.loads(done.stdout)
        assert run["records"] == run["last_offset"] + 1, run
        run["met"] = run["peak_mib"] < LIMIT_MIB
        found = f"{size / 2**30:.2f} GiB, {run['records']:,} records in {run['seconds']} s, peak {run['peak_mib']} MiB of {LIMIT_MIB}"
        print(f"{codec} {binary:10} {found}: {'met' if run['met'] else 'MISSED'}", flush=True)
        runs.append(run)
    print(machine.save("scan_memory", {"codec": codec, "bytes": size, "threads": 2, "limit_mib": LIMIT_MIB, "runs": runs}))


if __name__ == "__main__":
    main(*sys.argv[1:])
