"""Kolumn's side of `cpu_vs_java`, line for line the protocol of Decode.java: worker SEGMENT MODE SECONDS [memory].

Warms up for SECONDS, prints what was decoded, then for every line N on standard input decodes N times and prints the nanoseconds of each.
"arrays" and "grown" are a table with copied keys and values, "iterate" one whose keys and values point into the segment. Two modes are
what cannot be avoided: "copy" copies the segment from memory to memory, and "library" lets libzstd decompress each payload to one place.
It reads from the path, or with "memory" from a buffer that has the segment.

"worker -" does so for many segments: for every line "SECONDS TIMES arrays|grown|iterate path SEGMENT" it warms up, reads, and prints
what was decoded and the nanoseconds.
"""

import ctypes
import json
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import kolumn
from kolumn.cpu_fallback.inflate import libraries
from kolumn.formats import v2

COLUMNS = ["key", "value", "offset", "timestamp"]
BINARY: dict[str, Literal["contiguous", "view"]] = {"arrays": "contiguous", "grown": "contiguous", "iterate": "view"}


def main(segment: str, mode: str, seconds: str, source: str = "path") -> None:
    held = pa.py_buffer(Path(segment).read_bytes()) if source == "memory" else segment
    if mode in FLOORS:
        return race(FLOORS[mode](held), {}, float(seconds))

    def run() -> pa.Table:
        return kolumn.read(held, columns=COLUMNS, binary=BINARY[mode], threads=1)

    race(run, summary(run(), mode), float(seconds))


def copy(held: pa.Buffer) -> Callable[[], None]:
    """Copies the segment to memory that was written before."""
    source = np.frombuffer(held, np.uint8)
    to = source.copy()
    return lambda: np.copyto(to, source)


def library(held: pa.Buffer) -> Callable[[], None]:
    """Calls of ``ZSTD_decompressDCtx``, one for each batch, by a loop that is machine code."""
    # Only here: reads are measured in processes as a user has them.
    import numba

    found = kolumn.batches(held)
    assert set(found["codec"].to_pylist()) == {"zstd"}
    payload = np.array(found["position"]) + held.address + v2.HEADER
    size = np.array(found["size"]) - v2.HEADER
    out, context = np.empty(1 << 20, np.uint8), libraries.Context()
    decompress = ctypes.CFUNCTYPE(*[ctypes.c_size_t] * 6)(context.function)

    @numba.njit
    def loop(payload: Any, size: Any, state: int, to: int, room: int) -> int:
        largest = 0
        for i in range(len(payload)):
            largest = max(largest, decompress(state, to, room, payload[i], size[i]))
        return largest

    def run() -> None:
        # Errors are numbers near 2^64.
        assert loop(payload, size, context.state, out.ctypes.data, out.size) <= out.size
        # The payloads are in its memory.
        assert held

    return run


FLOORS = {"copy": copy, "library": library}


def many() -> None:
    """Answer each line of standard input."""
    for line in sys.stdin:
        seconds, times, mode, _, segment = line.rstrip("\n").split(" ", 4)

        def run() -> pa.Table:
            return kolumn.read(segment, columns=COLUMNS, binary=BINARY[mode], threads=1)  # noqa: B023 (called in this round only)

        found, end = summary(run(), mode), time.perf_counter() + float(seconds)
        while time.perf_counter() < end:
            run()
        print(json.dumps({"found": found, "nanoseconds": measured(run, int(times))}), flush=True)


def measured(run: Callable[[], Any], times: int) -> list[int]:
    """Nanoseconds of each of some runs."""
    nanoseconds = []
    for _ in range(times):
        start = time.perf_counter_ns()
        run()
        nanoseconds.append(time.perf_counter_ns() - start)
    return nanoseconds


def race(run: Callable[[], Any], found: dict[str, Any], seconds: float) -> None:
    """Warm up, print what was done, and run as often as standard input says."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        run()
    print(json.dumps(found), flush=True)
    for line in sys.stdin:
        print(json.dumps(measured(run, int(line))), flush=True)


def summary(table: pa.Table, mode: str) -> dict[str, Any]:
    """Counts and sums by which both sides show that they decoded the same."""
    counts = {"records": len(table), "value_bytes": pc.sum(pc.binary_length(table["value"].cast(pa.binary()))).as_py()}
    if mode == "iterate":
        return counts
    crc, key_bytes = 0, 0
    for column in ("key", "value"):
        for chunk in table[column].chunks:
            crc = zlib.crc32(b"".join(filter(None, chunk.to_pylist())), crc)
        key_bytes = key_bytes or pc.sum(pc.binary_length(table[column])).as_py()
    # Format 0 has no timestamps: -1 in Java.
    milliseconds = pc.fill_null(pc.divide(table["timestamp"].cast(pa.int64()), 1000), -1)
    sums = {"offset_sum": pc.sum(table["offset"]).as_py(), "timestamp_sum": pc.sum(milliseconds).as_py()}
    return {**counts, "key_bytes": key_bytes, "crc": crc, **sums}


if __name__ == "__main__":
    many() if sys.argv[1:] == ["-"] else main(*sys.argv[1:])
