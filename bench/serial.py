"""Which part of a read can only one thread do at a time?  python -m bench.serial

CPU time of one thread, the best of some runs: of the whole read, of its compiled loops, which release Python's lock, and of what the thread
does that plans the read. The rest is Python, of which all threads together run one at a time. `docs/explanation/threads.md` says what
follows for many threads.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kolumn
from bench import data, machine, shapes
from kolumn.decode import small_segments
from kolumn.decode.host import streamed
from kolumn.decode.host.chunks import next_border
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import find_segments

COLUMNS = ["key", "value", "offset", "timestamp"]
CHUNK = 8 << 20
ROUNDS = 9


class Loops:
    """CPU time that a thread spends in two loops, and how often they are called."""

    def __init__(self) -> None:
        self.seconds, self.calls = 0.0, 0
        for module, name in ((streamed, "stream"), (small_segments, "stream_files")):
            setattr(module, name, self._timed(getattr(module, name)))

    def _timed(self, loop: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            start = time.thread_time()
            found = loop(*arguments)
            self.seconds, self.calls = self.seconds + time.thread_time() - start, self.calls + 1
            return found

        return timed


def best(run: Callable[[], object], loops: Loops) -> dict[str, float]:
    """The run that took least CPU time, ms."""
    found = {"whole_ms": float("inf")}
    for _ in range(ROUNDS):
        loops.seconds, loops.calls, start = 0.0, 0, time.thread_time()
        run()
        whole = 1e3 * (time.thread_time() - start)
        if whole < found["whole_ms"]:
            found = {"whole_ms": round(whole, 2), "loops_ms": round(1e3 * loops.seconds, 2), "calls": loops.calls}
    return found


def planned(path: Path) -> Callable[[], object]:
    """The search for the places where a segment is cut into pieces for threads."""
    segment = find_segments(path)[0]

    def plan() -> None:
        with SegmentFile(segment) as file:
            at: int | None = 0
            while at is not None and at < segment.size:
                at = next_border(file, at, segment.size, CHUNK)

    return plan


def main() -> None:
    rows: list[dict[str, Any]] = []
    loops = Loops()
    for codec in ("none", "lz4", "zstd"):
        path = data.segment(codec)
        read = best(lambda path=path: kolumn.read(path, columns=COLUMNS, threads=1, chunk_bytes=CHUNK), loops)  # type: ignore[misc]
        rows.append({"segments": codec, **read, "plan_ms": best(planned(path), loops)["whole_ms"]})
    folder = shapes.many_segments(5000, 6)
    read = best(lambda: kolumn.read(folder, columns=COLUMNS, threads=1), loops)
    rows.append({"segments": "5,000 of 100 KB", **read, "plan_ms": best(lambda: find_segments(folder), loops)["whole_ms"]})
    for row in rows:
        python = row["whole_ms"] - row["loops_ms"]
        print(
            f"{row['segments']:16}{row['whole_ms']:9.2f} ms, {row['loops_ms']:9.2f} in {row['calls']} calls of loops, Python {python:.2f}; "
            f"plan {row['plan_ms']:.2f}",
            flush=True,
        )
    print(machine.save("serial", {"chunk_bytes": CHUNK, "rows": rows}))


if __name__ == "__main__":
    main()
