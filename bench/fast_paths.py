"""What does each fast path bring to a whole operation, on several kinds of data?  python -m bench.fast_paths [PATH ...]

Each row is an operation with a path of `kolumn.core.paths.FAST` on, and with it off (KOLUMN_PATHS), in turns in one process with one
thread. `ratio` is the best time without the path by the best time with it. A path stays where it brings 1.3 in one of its rows.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import kolumn
from bench import data, machine, shapes, value_data
from kolumn.core import paths

SIZE = 16 << 20
TURNS = 7
COLUMNS = ["key", "value", "offset", "timestamp"]
FOLDER = data.FOLDER / "fast_paths"


def read(path: Path, **options: Any) -> Callable[[], object]:
    return partial(kolumn.read, path, columns=COLUMNS, threads=1, **options)


def written(run: Callable[[Path], object]) -> Callable[[], object]:
    """An operation that writes a folder, which is removed before each turn."""

    def again() -> None:
        shutil.rmtree(FOLDER / "out", ignore_errors=True)
        run(FOLDER / "out")

    return again


def in_format(magic: int, kind: str, codec: str) -> Path:
    """A segment of format 0 or 1 with values of a kind."""
    folder = FOLDER / f"{magic}_{kind.replace(' ', '_')}_{codec}"
    if not folder.exists():
        kolumn.convert(data.of_kind(kind, codec, SIZE).parent, folder, magic=magic)
    return next(folder.rglob("*.log"))


def repeated(kind: str, codec: str) -> Path:
    """A folder whose keys come twice, in no order, so that compaction takes records out of all batches."""
    folder = FOLDER / f"repeated_{kind.replace(' ', '_')}_{codec}-0"
    if not folder.exists():
        values = data.values(kind, SIZE)
        keys = np.random.default_rng(0).permutation(len(values)) // 2
        how: Any = {"codec": codec, "batch_bytes": data.BATCH_BYTES}
        kolumn.write(pa.table({"key": [b"%08d" % key for key in keys.tolist()], "value": values}), folder, **how)
    return folder


def typed(name: str, values: list[bytes], **options: Any) -> Callable[[], object]:
    folder = FOLDER / f"{name}-0"
    if not folder.exists():
        kolumn.write(pa.table({"value": values}), folder, batch_bytes=data.BATCH_BYTES)
    return partial(kolumn.read, folder, columns=["value"], threads=1, **options)


def questions() -> dict[tuple[str, str], Callable[[], object]]:
    """Operations by path and name."""
    found: dict[tuple[str, str], Callable[[], object]] = {}
    for kind, codec in product(data.KINDS, ("none", "lz4", "zstd")):
        path = data.of_kind(kind, codec, SIZE)
        found[paths.STREAMED, f"read, {kind}, {codec}"] = read(path)
        found[paths.SHORT, f"read, {kind}, {codec}"] = read(path)
        found[paths.FILTER, f"compact, {kind}, {codec}"] = written(partial(kolumn.compact, repeated(kind, codec), include_active=True))
        if codec != "zstd":
            found[paths.DOWN_CONVERSION, f"convert to format 1, {kind}, {codec}"] = written(partial(kolumn.convert, path.parent, magic=1))
            found[paths.MESSAGES, f"read format 1, {kind}, {codec}"] = read(in_format(1, kind, codec))
    found[paths.SHORT, "read with headers"] = partial(kolumn.read, shapes.headers("none"), columns=[*COLUMNS, "headers"], threads=1)
    found[paths.TOGETHER, "read 2,000 segments of 16 KiB"] = read(shapes.many_segments(2000, 1))
    found[paths.TOGETHER, "read 2,000 segments of one record"] = read(shapes.many_segments(2000, 0))
    objects = typed("json", value_data.as_json(value_data.orders(50_000)), value_format="json", value_schema=value_data.ARROW)
    found[paths.JSON, "read orders"] = objects
    return found


def best(run: Callable[[], object], path: str) -> tuple[float, float]:
    """Milliseconds with the path and without it."""
    times: dict[str, list[float]] = {"": [], f"-{path}": []}
    for turn, off in product(range(TURNS + 1), times):
        os.environ["KOLUMN_PATHS"] = off
        paths.turned_off.cache_clear()
        start = time.perf_counter()
        run()
        if turn:
            times[off].append(time.perf_counter() - start)
    with_it, without = (1000 * min(some) for some in times.values())
    return with_it, without


def main(names: list[str]) -> None:
    rows = []
    for (path, name), run in questions().items():
        if names and path not in names:
            continue
        with_it, without = best(run, path)
        rows.append(
            {
                "path": path,
                "operation": name,
                "ms": round(with_it, 2),
                "without_ms": round(without, 2),
                "ratio": round(without / with_it, 2),
            }
        )
        print(f"{path:16}{name:44}{with_it:9.2f} ms{without:9.2f} ms{without / with_it:7.2f}", flush=True)
    if not names:
        print(machine.save("fast_paths", {"rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])
