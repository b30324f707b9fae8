"""Does scanning a log of any shape stay under 512 MiB of resident memory for each thread?  python -m bench.scan_memory [GIB [SHAPE ...]]

A segment of each shape is written once. A directory has as many partitions as make GIB GiB of keys and values (4 without the
argument), all of them hard links to it, so 64 GiB take no disk. One thread, and then two, scan it to its end in a process of their own,
which reports its peak.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa

from bench import data, machine

LIMIT_MIB = 512
MIB = 1 << 20
SCAN = "import json, sys; from bench.scan_memory import scan; print(json.dumps(scan(sys.argv[1], json.loads(sys.argv[2]))))"
SHAPES: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
    "16 KiB batches": (100, {}, {}),
    "16 KiB batches, views": (100, {}, {"binary": "view"}),
    "1 MiB batches": (100, {"batch_bytes": MIB}, {}),
    "1 MiB batches, zstd": (100, {"batch_bytes": MIB, "codec": "zstd"}, {}),
    "1 MiB batches, zstd, views": (100, {"batch_bytes": MIB, "codec": "zstd"}, {"binary": "view"}),
    "1 MiB batches, gzip": (100, {"batch_bytes": MIB, "codec": "gzip"}, {}),
    "format 0, lz4": (100, {"magic": 0, "codec": "lz4", "batch_bytes": MIB}, {}),
    "format 1": (100, {"magic": 1}, {}),
    "headers": (100, {"codec": "zstd"}, {"include_headers": True}),
    "typed values": (
        100,
        {"codec": "zstd", "batch_bytes": MIB},
        {"value_format": "json", "value_schema": {"id": "int64", "note": "string"}},
    ),
    "segments of 100 KB": (100, {"segment_bytes": 100_000}, {}),
    "empty values": (0, {}, {}),
    "values of a byte, zstd": (1, {"codec": "zstd", "batch_bytes": MIB}, {}),
    "values of 1 MiB": (MIB, {"codec": "zstd", "batch_bytes": 2 * MIB}, {}),
    "values of 10 MiB": (10 * MIB, {}, {}),
    "batches of 100 MiB": (1000, {"batch_bytes": 100 * MIB}, {}),
    "batches of 100 MiB, zstd": (1000, {"batch_bytes": 100 * MIB, "codec": "zstd"}, {}),
}
"""Bytes of a value, options of `kolumn.write`, options of `kolumn.scan`."""


def directory(shape: str, gib: float) -> tuple[str, int]:
    """A directory of hard links, and the number of its records."""
    size, written, asked = SHAPES[shape]
    name = shape.replace(",", "").replace(" ", "_")
    source = data.FOLDER / "memory" / f"{name}-0"
    total = (256 if "100 MiB" in shape else 64) * MIB
    count = total // max(size, 11)
    if not source.exists():
        import kolumn

        kolumn.write(pa.table(_columns(count, size, "include_headers" in asked)), source, **written)
    target = data.FOLDER / "memory" / f"{name}.links"
    shutil.rmtree(target, ignore_errors=True)
    partitions = max(2, math.ceil(gib * 1024 * MIB / total))
    for partition in range(partitions):
        (target / f"{name}-{partition}").mkdir(parents=True)
        for segment in source.glob("*.log"):
            os.link(segment, target / f"{name}-{partition}" / segment.name)
    return str(target), count * partitions


def _columns(count: int, size: int, headers: bool) -> dict[str, Any]:
    random = np.random.default_rng(1)
    words = random.integers(97, 123, (500, 8), np.uint8)
    text = words[random.integers(0, 500, (count * size) // 8 + 1)].tobytes()
    values = [text[i * size : (i + 1) * size] for i in range(count)]
    if size == 100:
        values = [b'{"id": %8d, "note": "%s"}' % (i, value[:70]) for i, value in enumerate(values)]
    found = {"key": pa.array([b"key-%7d" % i for i in range(count)]), "value": pa.array(values, pa.binary())}
    if headers:
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        found["headers"] = pa.array([[{"key": "trace", "value": b"0123456789abcdef"}, {"key": "type", "value": b"order"}]] * count, kind)
    return found


def scan(folder: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Scan a directory in this process; runs in a fresh one."""
    import kolumn

    start, rows = time.perf_counter(), 0
    for batch in kolumn.scan(folder, **asked):
        rows += batch.num_rows
    # `getrusage` would report the peak of the process that started this one, if it is higher.
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmHWM:"))
    return {"records": rows, "seconds": round(time.perf_counter() - start, 2), "peak_mib": peak}


def main(gib: str = "4", *shapes: str) -> None:
    rows = []
    for shape in shapes or SHAPES:
        folder, records = directory(shape, float(gib))
        for threads in (1, 2):
            command = [sys.executable, "-c", SCAN, folder, json.dumps({**SHAPES[shape][2], "threads": threads})]
            run = json.loads(subprocess.run(command, cwd=machine.ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout)
            assert run["records"] == records, (run, records)
            run = {"shape": shape, "threads": threads, **run, "met": run["peak_mib"] < LIMIT_MIB * threads}
            told = f"{records:,} records in {run['seconds']} s, peak {run['peak_mib']} MiB of {LIMIT_MIB * threads}"
            print(f"{shape:28} {threads} threads  {told}: {'met' if run['met'] else 'MISSED'}", flush=True)
            rows.append(run)
        shutil.rmtree(folder)
    if not shapes:
        print(machine.save("scan_memory", {"gib": float(gib), "limit_mib_per_thread": LIMIT_MIB, "rows": rows}))


if __name__ == "__main__":
    main(*sys.argv[1:])
