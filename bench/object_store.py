"""How fast is a scan over a network with 50 ms of latency, beside the same files on this machine?  python -m bench.object_store [CODEC ...]

Two and four segments of 1 GiB, Kafka's default, and 48 of 64 MiB, are scanned from a folder, and through a file system of this process
whose requests wait 50 ms, of which 8 are answered at a time; what they return is copied from the page cache, without a limit of its rate.
Both take turns; ratios are of best times. Of a short scan the first two answers, which nothing can hide, are a large part: hence the two
sizes. The small segments take two requests each for their bytes. The CPU time of the copies is counted apart.

With one thread a core is free for that copy, and the ratio tells how busy the decoder is kept. With a thread for each core the decoders
and the copy share the cores, and the ratio tells what the copy costs too.
"""

import os
import sys
import time
from itertools import product
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

import kolumn
from bench import data, machine

LATENCY, AT_A_TIME, GOAL, ROUNDS = 0.05, 8, 0.8, 3
THREADS = (1, len(os.sched_getaffinity(0)))
SHAPES = ((2, 16), (4, 16), (48, 1))
"""Numbers of segments, and of pieces of 64 MiB in each."""


class Distant(LocalFileSystem):
    """Files of this machine, as far away as an object store's."""

    protocol = "distant"
    _answers = BoundedSemaphore(AT_A_TIME)
    requests, cpu = 0, 0.0

    def _wait(self) -> None:
        with self._answers:
            Distant.requests += 1
            time.sleep(LATENCY)

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        self._wait()
        return super().info(path, **options)

    def ls(self, path: str, detail: bool = False, **options: Any) -> list[Any]:
        self._wait()
        return list(LocalFileSystem().ls(path, detail, **options))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        self._wait()
        began = time.thread_time()
        with open(self._strip_protocol(path), "rb") as file:
            found = os.pread(file.fileno(), (end or 0) - (start or 0), start or 0)
        Distant.cpu += time.thread_time() - began
        return found

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return str(LocalFileSystem._strip_protocol(str(path).removeprefix("distant://")))


def folder(codec: str, segments: int, pieces: int) -> Path:
    """Directory of that many segments; it is written if it does not exist yet."""
    found = data.FOLDER / f"{codec}_distant_{segments}x{pieces}-0"
    if not found.exists():
        partial = found.with_suffix(".partial")
        partial.mkdir(parents=True, exist_ok=True)
        source = data.segment(codec).read_bytes()
        records = data.records(source)
        for first in range(0, segments * pieces, pieces):
            with open(partial / f"{first * records:020d}.log", "wb") as file:
                file.writelines(data.rebase(source, (first + piece) * records) for piece in range(pieces))
        partial.rename(found)
    return found


def scan(source: str, threads: int) -> tuple[float, float, int]:
    """Seconds, seconds of all cores, and rows."""
    cpu, start, rows = time.process_time(), time.perf_counter(), 0
    for batch in kolumn.scan(source, columns=["key", "value", "offset", "timestamp"], threads=threads):
        rows += batch.num_rows
    return time.perf_counter() - start, time.process_time() - cpu, rows


def compare(codec: str, threads: int, segments: int, pieces: int) -> dict[str, Any]:
    """Rates and times of both, taking turns; the first turn is not counted."""
    place = str(folder(codec, segments, pieces))
    size = sum(entry.stat().st_size for entry in os.scandir(place))
    found: dict[str, list[tuple[float, float, int]]] = {place: [], f"distant://{place}": []}
    for turn in range(ROUNDS + 1):
        if turn == 1:
            Distant.requests, Distant.cpu = 0, 0.0
        for source, own in found.items():
            own.append(scan(source, threads))
    assert len({rows for own in found.values() for _, _, rows in own}) == 1
    (near, near_cpu), (far, far_cpu) = (([one[0] for one in own[1:]], [one[1] for one in own[1:]]) for own in found.values())
    return {
        "codec": codec, "threads": threads, "segments": segments, "segment_mib": 64 * pieces, "ratio": round(min(near) / min(far), 2),
        "local_mb_s": round(size / min(near) / 1e6), "distant_mb_s": round(size / min(far) / 1e6), "requests": Distant.requests // ROUNDS,
        "local_cpu_s": round(min(near_cpu), 2), "distant_cpu_s": round(min(far_cpu), 2), "requests_cpu_s": round(Distant.cpu / ROUNDS, 2),
        "local_s": [round(one, 3) for one in near], "distant_s": [round(one, 3) for one in far],
    }  # fmt: skip


def main(*codecs: str) -> None:
    fsspec.register_implementation("distant", Distant, clobber=True)
    runs = []
    for codec in codecs or ("none", "lz4", "zstd"):
        for threads, (segments, pieces) in product(THREADS, SHAPES):
            runs.append(one := compare(codec, threads, segments, pieces))
            rates = f"{one['local_mb_s']} MB/s here, {one['distant_mb_s']} MB/s far away"
            judged = "met" if one["ratio"] >= GOAL else "MISSED"
            print(f"{codec:5} {segments} x {64 * pieces} MiB, threads={threads}: {rates}: {one['ratio']:.2f} x ({judged})", flush=True)
    print(machine.save("object_store", {"latency_ms": LATENCY * 1000, "at_a_time": AT_A_TIME, "goal": GOAL, "runs": runs}))


if __name__ == "__main__":
    main(*sys.argv[1:])
