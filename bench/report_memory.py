"""Does `kolumn report` take the same memory for a log of any size?  python -m bench.report_memory [GIB ...]

Directories of 16 KiB batches, of 0.25, 1 and 4 GiB without the argument, whose segments are hard links to one. A process of its own
makes the report of each, and says the peak of its resident memory.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import machine, scan_memory

SIZES = (0.25, 1.0, 4.0)
SHAPE = "16 KiB batches"
REPORT = "import json, sys; from bench.report_memory import report; print(json.dumps(report(sys.argv[1])))"


def report(folder: str) -> dict[str, Any]:
    """Make a report in this process; runs in a fresh one."""
    from kolumn.tools.report.page import write_report

    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as target:
        page = Path(target, "report.html")
        found = write_report(folder, str(page), "bench")
        size = page.stat().st_size
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmHWM:"))
    records = sum(one.records for one in found.totals.values())
    return {"records": records, "seconds": round(time.perf_counter() - start, 1), "page_bytes": size, "peak_mib": peak}


def main(sizes: tuple[float, ...] = SIZES) -> None:
    rows = []
    for gib in sizes:
        folder, records = scan_memory.directory(SHAPE, gib)
        command = [sys.executable, "-c", REPORT, folder]
        row = json.loads(subprocess.run(command, cwd=machine.ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout)
        assert row["records"] == records, (row, records)
        shutil.rmtree(folder)
        rows.append({"gib": gib, **row})
        print(
            f"{gib:6} GiB, {records:,} records: {row['seconds']} s, peak {row['peak_mib']} MiB, page {row['page_bytes']:,} bytes",
            flush=True,
        )
    if sizes == SIZES:
        print(machine.save("report_memory", {"shape": SHAPE, "rows": rows}))


if __name__ == "__main__":
    main(tuple(map(float, sys.argv[1:])) or SIZES)
