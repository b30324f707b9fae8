"""How fast is a scan over a network with 50 ms of latency, beside the same files on this machine?  python -m bench.object_store [CODEC ...]

Two segments of 1 GiB, Kafka's default, are scanned from a folder, and through a file system whose requests wait 50 ms, of which 8 are
answered at a time; what they return comes from the page cache, without a limit of its rate. Both take turns; ratios are of best times.
"""

import os
import sys
import time
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

import kolumn
from bench import data, machine

LATENCY, AT_A_TIME, GOAL, ROUNDS = 0.05, 8, 0.8, 3
SEGMENTS, PIECES = 2, 16


class Distant(LocalFileSystem):
    """Files of this machine, as far away as an object store's."""

    protocol = "distant"
    _answers = BoundedSemaphore(AT_A_TIME)
    requests = 0

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
        with open(self._strip_protocol(path), "rb") as file:
            return os.pread(file.fileno(), (end or 0) - (start or 0), start or 0)

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return str(LocalFileSystem._strip_protocol(str(path).removeprefix("distant://")))


def folder(codec: str) -> Path:
    """Directory of the segments; it is written if it does not exist yet."""
    found = data.FOLDER / f"{codec}_distant-0"
    if not found.exists():
        partial = found.with_suffix(".partial")
        partial.mkdir(parents=True, exist_ok=True)
        source = data.segment(codec).read_bytes()
        records = data.records(source)
        for number in range(SEGMENTS):
            first = number * PIECES
            with open(partial / f"{first * records:020d}.log", "wb") as file:
                file.writelines(data.rebase(source, (first + piece) * records) for piece in range(PIECES))
        partial.rename(found)
    return found


def scan(source: str) -> tuple[float, int]:
    """Seconds and rows."""
    start, rows = time.perf_counter(), 0
    for batch in kolumn.scan(source, columns=["key", "value", "offset", "timestamp"]):
        rows += batch.num_rows
    return time.perf_counter() - start, rows


def main(*codecs: str) -> None:
    fsspec.register_implementation("distant", Distant, clobber=True)
    runs = []
    for codec in codecs or ("none", "lz4", "zstd"):
        place = folder(codec)
        size = sum(entry.stat().st_size for entry in os.scandir(place))
        near, far = [], []
        assert scan(str(place))[1] == scan(f"distant://{place}")[1]
        Distant.requests = 0
        for _ in range(ROUNDS):
            near.append(scan(str(place))[0])
            far.append(scan(f"distant://{place}")[0])
        ratio = min(near) / min(far)
        rate = {"local_mb_s": round(size / min(near) / 1e6), "distant_mb_s": round(size / min(far) / 1e6)}
        spread = {"local_s": [round(one, 3) for one in near], "distant_s": [round(one, 3) for one in far]}
        runs.append({"codec": codec, "ratio": round(ratio, 2), **rate, "requests": Distant.requests // ROUNDS, **spread})
        rates = f"{rate['local_mb_s']} MB/s here, {rate['distant_mb_s']} MB/s far away"
        print(f"{codec:5} {rates}: {ratio:.2f} x ({'met' if ratio >= GOAL else 'MISSED'})", flush=True)
    print(machine.save("object_store", {"latency_ms": LATENCY * 1000, "at_a_time": AT_A_TIME, "goal": GOAL, "runs": runs}))


if __name__ == "__main__":
    main(*sys.argv[1:])
