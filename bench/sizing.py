"""What 1 TB, 100 TB and 1 PB cost, from measured rates; `python -m bench.sizing` checks the model at sizes that fit on this machine.

The model, on purpose no more than a division. Its constants are those of the other results when this one was measured, and stand in
bench/results/sizing.json:

    core hours = bytes on disk / rate of one core           rate: bench/results/cpu_vs_java.json, of the same kind of records
    hours      = core hours / (cores * share)               share: what is left of a core's rate when all cores work, measured here
    GET requests of a bucket = bytes / bytes of a request
    memory     = cores * memory of a thread                 bench/results/scan_memory.json, of batches of 16 KiB
"""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from bench import data, machine

RESULTS = machine.ROOT / "bench" / "results"
REQUEST_BYTES = 8 << 20
"""Bytes that a read from a URL asks for at a time: `chunk_bytes` of a read by several threads."""
SIZES = {"1 TB": (10**12, 8), "100 TB": (10**14, 200), "1 PB": (10**15, 1000)}
"""Bytes on disk, and cores to spread them over."""
PARTITIONS = 64
"""Of the directories that are scanned: each is the same 64 MiB segment."""


def rates() -> dict[str, float]:
    """Bytes on disk that one core decodes in a second, by codec."""
    # A result of before 2026-11-25 has no constants.
    found: dict[str, float] | None = _result("sizing").get("rates")
    return measured_rates() if found is None else found


def measured_rates() -> dict[str, float]:
    """The same by the newest comparison with Java."""
    rows = _result("cpu_vs_java")["rows"]
    return {row["codec"]: row["file_bytes"] / row["times"]["kolumn"]["best_ms"] * 1000 for row in rows if row["mode"] == "arrays"}


def share() -> float:
    """What is left of a core's rate when all cores of the measured machine work: the least of all runs."""
    return min(float(run["share"]) for run in _result("sizing")["runs"])


def core_hours(size: int, codec: str) -> float:
    """Hours of one core for so many bytes on disk, with all other cores at work too."""
    return size / rates()[codec] / share() / 3600


def memory_of_thread() -> float:
    """MiB of resident memory for each thread of a scan."""
    found = _result("sizing").get("mib_per_thread")
    return measured_memory() if found is None else float(found)


def measured_memory() -> float:
    """MiB of resident memory for each thread of a scan of the same kind of records."""
    found = _result("scan_memory")
    if "runs" in found:
        # Results of before 2026-11-25 have no rows for shapes.
        return float(max(run["peak_mib"] for run in found["runs"]) / found["threads"])
    return float(max(row["peak_mib"] / row["threads"] for row in found["rows"] if row["shape"].startswith("16 KiB")))


def rows() -> list[dict[str, Any]]:
    """The table: a row for each size and codec."""
    memory = memory_of_thread()
    return [
        {
            "size": name,
            "codec": codec,
            "core hours": core_hours(size, codec),
            "cores": cores,
            "hours": core_hours(size, codec) / cores,
            "Gbit/s": rates()[codec] * share() * cores * 8 / 1e9,
            "requests": size / REQUEST_BYTES,
            "GiB of memory": cores * memory / 1024,
        }
        for name, (size, cores) in SIZES.items()
        for codec in rates()
    ]


def table() -> str:
    """The table as text."""
    lines = [f"{'on disk':8}{'codec':8}{'core hours':>12}{'cores':>8}{'hours':>8}{'Gbit/s':>8}{'requests':>13}{'memory':>10}"]
    for row in rows():
        lines.append(
            f"{row['size']:8}{row['codec']:8}{row['core hours']:12.2f}{row['cores']:8}{row['hours']:8.2f}{row['Gbit/s']:8.0f}"
            f"{row['requests']:13,.0f}{row['GiB of memory']:6.0f} GiB"
        )
    return "\n".join(lines)


def main() -> None:
    """Compare the model with scans of whole directories by all cores, and save both."""
    known = measured_rates()
    runs = []
    for codec in data.CODECS:
        folder = directory(codec)
        size = sum(path.stat().st_size for path in folder.rglob("*.log"))
        one, every = (_seconds(folder, threads) for threads in (1, machine.describe()["cores"]))
        cores = machine.describe()["cores"]
        run = {
            "codec": codec,
            "bytes": size,
            "cores": cores,
            "one_core_s": one,
            "all_cores_s": every,
            "share": round(one / every / cores, 3),
        }
        run["rate_of_one_core"] = round(size / one / known[codec], 3)
        print(run, flush=True)
        runs.append(run)
    machine.save("sizing", {"rates": known, "mib_per_thread": round(measured_memory(), 1), "runs": runs})


def directory(codec: str) -> Path:
    """A log directory whose segments are hard links to one segment."""
    target = data.FOLDER / "sizing" / codec
    shutil.rmtree(target, ignore_errors=True)
    for partition in range(PARTITIONS):
        folder = target / f"{codec}-{partition}"
        folder.mkdir(parents=True)
        os.link(data.segment(codec), folder / f"{0:020d}.log")
    return target


def _seconds(folder: Path, threads: int) -> float:
    """Best of three scans to the end, with the columns of a read without options."""
    import kolumn

    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for batch in kolumn.scan(str(folder), threads=threads):
            del batch
        best = min(best, time.perf_counter() - start)
    return round(best, 3)


def _result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


if __name__ == "__main__":
    main()
