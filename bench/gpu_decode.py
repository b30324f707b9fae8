"""How fast does a GPU decode, beside copying the same bytes to it and beside the CPU?  python -m bench.gpu_decode [FOLDER]

Steps of one chunk of bytes that are on the device already, each timed by events around it. Then page-locked host memory to columns, in
chunks by several threads as a read does it, beside the copy alone: what is copied while another chunk is decoded costs nothing. Then a
chunk of large batches, the two algorithms for gzip, and whole reads of every codec by both backends, in turns. What `bench.gpu_model`
predicts stands beside it. Needs a GPU; without one it says so.
"""

import gzip
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bench import data, gpu_model, machine
from kolumn.arrays import Bytes, Rows
from kolumn.codecs import DEFLATE
from kolumn.errors import MissingError
from kolumn.formats import layouts, table
from kolumn.options import GPU_CHUNK_BYTES, Options
from kolumn.plan.chunks import chunks
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import find_segments

COPIES = 16
"""Segments of 64 MiB in the bytes on the device: 1 GiB."""
THREADS = 3
TURNS = 7
COPY, OVERLAPPED = "copy to the device", "copy, checksums and columns, chunks overlapped"
LARGE = f"a chunk of {GPU_CHUNK_BYTES >> 20} MiB in batches of 1 MiB"
"""Names of steps, as `bench.gpu_model` has them."""


def main(folder: Path | None = None) -> int:
    """Measure and save; the exit code, which is 3 where there is no GPU."""
    from kolumn.kernels.machine import device

    try:
        runtime = device.runtime()
    except MissingError as error:
        print(f"no GPU here, nothing measured: {error}")
        return 3
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    result: dict[str, Any] = {"gpu": name, "resident": resident(runtime), "gzip": [gzip_members(runtime, size) for size in MEMBERS]}
    result["reads"] = [reads(codec) for codec in data.CODECS]
    print(result)
    print(side_by_side(gpu_model.predictions(), result["resident"]["steps"]))
    print(machine.save("gpu_decode", result, folder))
    return 0


def side_by_side(expected: dict[str, Any], steps: dict[str, dict[str, float]]) -> str:
    """A line for each step: its name, and milliseconds and GB/s, predicted and measured."""
    lines = [f"{'step':55} {'predicted':>21} {'measured':>21}"]
    for name in dict.fromkeys([*steps, *expected]):
        lines.append(f"{name:55} {_times(expected.get(name), 'ms')} {_times(steps.get(name), 'best_ms')}")
    return "\n".join(lines)


def _times(found: dict[str, float] | None, milliseconds: str) -> str:
    return f"{'-':>21}" if found is None else f"{found[milliseconds]:8.3f} ms {found['GB/s']:5.0f} GB/s"


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


def best_wall_ms(runtime: Any, step: Callable[[], Any]) -> dict[str, float]:
    """Milliseconds of a step whose threads wait for the device themselves."""
    found = []
    for _ in range(TURNS):
        begin = time.perf_counter()
        step()
        found.append(1000 * (time.perf_counter() - begin))
    return {"best_ms": round(min(found), 3), "median_ms": round(median(found), 3)}


def resident(runtime: Any) -> dict[str, Any]:
    """Steps over 1 GiB of uncompressed batches on the device, and the copy that brings it there."""
    from kolumn.kernels.machine.cuda import page_locked

    one = np.fromfile(data.segment("none"), np.uint8)
    host = page_locked(len(one) * COPIES)
    with ThreadPoolExecutor(THREADS) as pool:
        steps = steps_of(host, one, _rows(data.segment("none")), COPIES, GPU_CHUNK_BYTES, pool)
        found = {}
        for name, step in steps.items():
            step()
            runtime.synchronize()
            found[name] = (best_wall_ms if name == OVERLAPPED else best_ms)(runtime, step)
            found[name]["GB/s"] = round(len(host) / found[name]["best_ms"] / 1e6, 1)
    found[LARGE] = large_batches(runtime)
    return {
        "bytes": len(host),
        "threads": THREADS,
        "steps": found,
        "share_of_copy_speed": round(found[COPY]["best_ms"] / found[OVERLAPPED]["best_ms"], 3),
    }


def large_batches(runtime: Any) -> dict[str, float]:
    """Checksums and columns of a chunk on the device, in batches of 1 MiB with values of any length."""
    with TemporaryDirectory() as folder:
        path = Path(folder, f"{0:020d}.log")
        data.write_any_lengths(path, GPU_CHUNK_BYTES, 1 << 20)
        one, rows = np.fromfile(path, np.uint8), _rows(path)
    with ThreadPoolExecutor(1) as pool:
        steps = steps_of(np.empty_like(one), one, rows, 1, GPU_CHUNK_BYTES, pool)

        def both() -> None:
            steps["checksums"]()
            steps["columns"]()

        both()
        found = best_ms(runtime, both)
    return found | {"GB/s": round(len(one) / found["best_ms"] / 1e6, 1)}


def steps_of(
    host: Bytes, one: Bytes, rows: Rows, copies: int, chunk_bytes: int, pool: ThreadPoolExecutor
) -> dict[str, Callable[[], object]]:
    """The steps by name.

    Parameters
    ----------
    host : uint8 array
        Is filled with ``copies`` of ``one``, a segment whose entries are ``rows``.
    chunk_bytes : int
        What a thread of ``pool`` takes at a time in the last step, about.
    """
    from kolumn.kernels.columns.binary import binary
    from kolumn.kernels.decode import bad_checksums, decode
    from kolumn.kernels.machine import device

    for k in range(copies):
        host[k * len(one) : (k + 1) * len(one)] = one
    every = np.concatenate([_moved(rows, k * len(one)) for k in range(copies)])
    runtime = device.runtime()
    source, there = runtime.upload(host), runtime.upload(every)

    def checksums(own: Any, origin: int, batches: Any, rows: Rows) -> None:
        assert not bad_checksums(own, origin, batches, len(rows)).any()

    def columns(own: Any, origin: int, batches: Any, rows: Rows) -> None:
        start, size = origin + rows[:, table.POSITION] + rows[:, table.PAYLOAD], rows[:, table.SIZE] - rows[:, table.PAYLOAD]
        done = decode(own, batches, start, size, layouts.KAFKA, True, False, counts=rows[:, table.COUNT])
        assert done.records is not None, done.bad.sum()
        binary(own, done.records.key)
        binary(own, done.records.value)

    def chunk(some: slice) -> None:
        own, mine = device.runtime(), every[some]
        begin, end = int(mine[0, table.POSITION]), int(mine[-1, table.POSITION] + mine[-1, table.SIZE])
        sent, batches = own.upload(host[begin:end]), own.upload(mine)
        checksums(own, sent.address - begin, batches, mine)
        columns(own, sent.address - begin, batches, mine)
        own.synchronize()

    def overlapped() -> None:
        places = np.searchsorted(every[:, table.POSITION], np.arange(0, len(host), chunk_bytes)).tolist()
        for done in [pool.submit(chunk, slice(*some)) for some in zip(places, [*places[1:], len(every)], strict=True)]:
            done.result()

    return {
        COPY: lambda: runtime.upload(host),
        "checksums": lambda: checksums(runtime, source.address, there, every),
        "columns": lambda: columns(runtime, source.address, there, every),
        OVERLAPPED: overlapped,
    }


MEMBERS = (16 << 10, 1 << 20)
"""Decompressed bytes of gzip members."""


def gzip_members(runtime: Any, size: int) -> dict[str, Any]:
    """Decompressing 64 MiB of gzip members."""
    plain = np.fromfile(data.segment("none"), np.uint8)
    members = [gzip.compress(plain[start : start + size].tobytes(), 6) for start in range(0, len(plain) - size + 1, size)]
    sizes = np.array([len(member) for member in members])
    source, target = runtime.upload(np.frombuffer(b"".join(members), np.uint8)), runtime.empty(size * len(members))
    begins, room = source.address + np.cumsum(sizes) - sizes, np.full(len(members), size)
    targets = target.address + size * np.arange(len(members))

    def step() -> None:
        out, fine = runtime.inflate(DEFLATE, begins, sizes, room, targets)
        assert fine.all()
        assert (out == size).all()

    step()
    found = best_ms(runtime, step)
    return {"member_bytes": size, "members": len(members), **found, "GB/s": round(size * len(members) / found["best_ms"] / 1e6, 1)}


def _rows(path: Path) -> Rows:
    (segment,) = find_segments(str(path))
    with SegmentFile(segment) as file:
        return np.concatenate([chunk.entries.array for chunk in chunks(file, 0, file.size, 8 << 20)])


def _moved(rows: Rows, by: int) -> Rows:
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
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
