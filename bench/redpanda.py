"""How fast are Redpanda's batches read beside the same records in format 2?  python -m bench.redpanda

Segments of the kinds of `bench.data`, not compressed and with zstd, in 16 KiB batches, and words in 1 KiB ones; converted to Redpanda's
layout by a swap of headers. Both are read from one file, whose bytes are replaced in place: where a file's pages are in memory changes the
time of a read by 10 %. Ways take turns, the best of some runs counts. ``ratio`` is the time of Redpanda's by that of Kafka's: 1.05 is 5 %
slower.
"""

import os
import time
from pathlib import Path

import kolumn
from bench import data, machine
from kolumn.core import keywords

RUNS, TURNS = 7, 6
COLUMNS = ("key", "value", "offset", "timestamp")


def sources() -> dict[str, Path]:
    made = {f"{kind}, {codec}": data.of_kind(kind, codec, data.SEGMENT_BYTES) for kind in data.KINDS for codec in ("none", "zstd")}
    return made | {f"1 KiB batches, {codec}": data.segment(codec, data.SEGMENT_BYTES, 1 << 10) for codec in ("none", "zstd")}


def best(path: Path, format: keywords.Format) -> float:
    """Seconds of the fastest of some reads by one thread."""
    took = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        kolumn.read(path, columns=COLUMNS, format=format, threads=1)
        took = min(took, time.perf_counter() - start)
    return took


def compared(segment: Path, place: Path) -> tuple[float, float]:
    """Seconds of a read of Kafka's segment, and of the same one in Redpanda's layout."""
    converted = place.with_suffix(".converted.log")
    converted.unlink(missing_ok=True)
    kolumn.convert(segment, converted, format="redpanda")
    kafka, redpanda = segment.read_bytes(), converted.read_bytes()
    assert len(kafka) == len(redpanda)
    place.write_bytes(kafka)
    times = float("inf"), float("inf")
    file = os.open(place, os.O_RDWR)
    try:
        for _ in range(TURNS):
            os.pwrite(file, kafka, 0)
            theirs = best(place, "kafka")
            os.pwrite(file, redpanda, 0)
            times = min(times[0], theirs), min(times[1], best(place, "redpanda"))
    finally:
        os.close(file)
        converted.unlink()
    return times


def main() -> None:
    rows = []
    for name, segment in sources().items():
        kafka, redpanda = compared(segment, data.FOLDER / "redpanda.bin")
        rows.append({"log": name, "kafka_ms": round(1000 * kafka, 1), "ratio": round(redpanda / kafka, 3)})
        print(rows[-1], flush=True)
    print(machine.save("redpanda", {"rows": rows}))


if __name__ == "__main__":
    main()
