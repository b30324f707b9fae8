"""How fast does a GPU decode, beside copying the same bytes to it and beside the CPU?  python -m bench.gpu_decode [FOLDER]

Steps of one chunk of bytes that are on the device already, each timed by events around it; then from page-locked host memory to
columns, beside the copy alone; then whole reads of every codec by both backends, in turns. Needs a GPU; without one it says so.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench import data, machine
from kolumn.errors import MissingError
from kolumn.formats import layouts, table
from kolumn.options import Options
from kolumn.plan.chunks import chunks
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import find_segments

COPIES = 16
"""Segments of 64 MiB in the bytes on the device: 1 GiB."""
TURNS = 7


def main(folder: Path | None = None) -> None:
    from kolumn.kernels.machine import device

    try:
        runtime = device.runtime()
    except MissingError as error:
        print(f"no GPU here, nothing measured: {error}")
        return
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    result: dict[str, Any] = {"gpu": name, "resident": resident(runtime), "reads": [reads(codec) for codec in data.CODECS]}
    print(result)
    print(machine.save("gpu_decode", result, folder))


def best_ms(runtime: Any, step: Callable[[], Any]) -> dict[str, float]:
    """Milliseconds of a step on the device, by events on its stream; memory is freed between turns."""
    import cupy

    found = []
    for _ in range(TURNS):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record(runtime.stream)
        step()
        end.record(runtime.stream)
        end.synchronize()
        found.append(cupy.cuda.get_elapsed_time(begin, end))
    return {"best_ms": round(min(found), 3), "median_ms": round(median(found), 3)}


def resident(runtime: Any) -> dict[str, Any]:
    """Steps over 1 GiB of uncompressed batches on the device, and the copy that brings it there."""
    from kolumn.kernels.columns.binary import binary
    from kolumn.kernels.decode import bad_checksums, decode
    from kolumn.kernels.machine.cuda import page_locked

    one = np.fromfile(data.segment("none"), np.uint8)
    size = len(one)
    host = page_locked(size * COPIES)
    for k in range(COPIES):
        host[k * size : (k + 1) * size] = one
    rows = _rows(size)
    every = np.concatenate([_moved(rows, k * size) for k in range(COPIES)])
    source = runtime.upload(host)
    start = source.address + every[:, table.POSITION] + every[:, table.PAYLOAD]
    length = every[:, table.SIZE] - every[:, table.PAYLOAD]

    def columns(at: Any, length: Any, rows: Any) -> None:
        bad, records = decode(runtime, rows, at, length, layouts.KAFKA, True, False)
        assert records is not None, bad.sum()
        binary(runtime, records.key)
        binary(runtime, records.value)

    def whole() -> None:
        sent = runtime.upload(host)
        assert not bad_checksums(runtime, sent.address, every).any()
        columns(start - source.address + sent.address, length, every)

    steps = {
        "copy to the device": lambda: runtime.upload(host),
        "checksums": lambda: bad_checksums(runtime, source.address, every),
        "columns": lambda: columns(start, length, every),
        "copy, checksums and columns": whole,
    }
    found = {}
    for name, step in steps.items():
        step()
        runtime.synchronize()
        found[name] = best_ms(runtime, step)
        found[name]["GB/s"] = round(len(host) / found[name]["best_ms"] / 1e6, 1)
    copy, all_of_it = found["copy to the device"]["best_ms"], found["copy, checksums and columns"]["best_ms"]
    return {"bytes": len(host), "steps": found, "share_of_copy_speed": round(copy / all_of_it, 3)}


def _rows(size: int) -> Any:
    (segment,) = find_segments(str(data.segment("none")))
    with SegmentFile(segment) as file:
        return np.concatenate([chunk.entries.array for chunk in chunks(file, 0, size, 8 << 20)])


def _moved(rows: Any, by: int) -> Any:
    moved = rows.copy()
    moved[:, table.POSITION] += by
    return moved


def reads(codec: str) -> dict[str, Any]:
    """Whole reads of a segment by both backends, in turns: seconds and the ratio of the best."""
    import kolumn

    path = data.segment(codec)
    seconds: dict[str, list[float]] = {"cpu": [], "gpu": []}
    for turn in range(TURNS + 1):
        for backend, times in seconds.items():
            begin = time.perf_counter()
            kolumn.read(path, columns=["key", "value", "offset", "timestamp"], backend=backend)
            if turn:
                times.append(round(time.perf_counter() - begin, 4))
    return {"codec": codec, "threads": Options.of().threads, **seconds, "gpu_x_cpu": round(min(seconds["cpu"]) / min(seconds["gpu"]), 2)}


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
