"""How fast are replicas compared, and how much of them is read?  python -m bench.diff

Batches of 16 KiB, both sides in the page cache; a process of its own compares each pair. "read" is what calls of the system read, of
the bytes of both sides; a disk reads whole pages, and ahead.

    equal             10 GiB on each side, hard links to one segment of 64 MiB in many partitions
    other segments    1 GiB in one partition, in segments of 64 MiB and of 256 MiB
    checked           the same with check_crcs=True
    recompressed      64 MiB without a codec and the same records in lz4: each record is compared
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import data, machine, scan_memory

GIB = 10.0
SHAPE = "16 KiB batches"
SEGMENTS = 16
COMPARE = "import json, sys; from bench.diff import compare; print(json.dumps(compare(*sys.argv[1:3], json.loads(sys.argv[3]))))"


def compare(a: str, b: str, options: dict[str, Any]) -> dict[str, Any]:
    """Compare two sides in this process; runs in a fresh one."""
    import kolumn

    kolumn.diff(*(data.FOLDER / "diff" / "64" / "t-0" / f"{0:020}.log",) * 2)
    before, start = _read(), time.perf_counter()
    found = kolumn.diff(a, b, **options)
    seconds = time.perf_counter() - start
    assert found.equal
    size = sum(path.stat().st_size for side in (a, b) for path in Path(side).rglob("*.log"))
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmHWM:"))
    return {
        "gib": round(size / 2**31, 2), "seconds": round(seconds, 2), "gib_per_second": round(size / 2**31 / seconds, 2),
        "asked_for_percent": round(100 * (_read() - before) / size, 2), "peak_mib": peak,
    }  # fmt: skip


def _read() -> int:
    """Bytes that calls of the system have read."""
    with open("/proc/self/io") as counts:
        return next(int(line.split()[1]) for line in counts if line.startswith("rchar:"))


def sides() -> dict[str, tuple[Path, Path, dict[str, Any]]]:
    """What is compared, by name; made where it is not there."""
    small, large, packed = (data.FOLDER / "diff" / name / "t-0" for name in ("64", "256", "lz4"))
    segment = data.segment("none").read_bytes()
    count = data.records(segment)
    if not large.exists():
        for folder in (small, large):
            folder.mkdir(parents=True)
        for number in range(SEGMENTS):
            moved = data.rebase(segment, number * count)
            (small / f"{number * count:020}.log").write_bytes(moved)
            with (large / f"{number // 4 * 4 * count:020}.log").open("ab") as file:
                file.write(moved)
    if not packed.exists():
        packed.mkdir(parents=True)
        (packed / f"{0:020}.log").write_bytes(data.segment("lz4").read_bytes())
    for path in (*small.iterdir(), *large.iterdir()):
        data.read_back(path)
    alone = data.segment("none").parent
    links = Path(scan_memory.directory(SHAPE, GIB)[0])
    other = links.with_suffix(".other")
    if not other.exists():
        shutil.copytree(links, other, copy_function=lambda source, target: Path(target).hardlink_to(source))
    return {
        "equal": (links, other, {}), "other segments": (small, large, {}), "checked": (small, large, {"check_crcs": True}),
        "recompressed": (alone, packed, {}),
    }  # fmt: skip


def main() -> None:
    rows = []
    for name, (a, b, options) in sides().items():
        command = [sys.executable, "-c", COMPARE, str(a), str(b), json.dumps(options)]
        row = json.loads(subprocess.run(command, cwd=machine.ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout)
        rows.append({"name": name, **row})
        print(
            f"{name}: {row['gib']} GiB on each side in {row['seconds']} s, {row['asked_for_percent']} % read, peak {row['peak_mib']} MiB",
            flush=True,
        )
    print(machine.save("diff", {"batches": SHAPE, "rows": rows}))


if __name__ == "__main__":
    main()
