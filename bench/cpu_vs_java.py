"""How fast is Kolumn on one core beside Kafka's own Java record classes?  python -m bench.cpu_vs_java [CODEC ...]

One segment per codec (`bench.data`), CRC checked. For each codec and mode, Java and Kolumn warm up in processes of their own on the same
core, and take turns, some iterations each, so that a slow minute of the machine hits both. Each round starts new JVMs, since one JVM may
compile the loop worse than another; Java's time is the best of all. Two modes:

arrays    Java fills primitive arrays that were allocated once; Kolumn returns a new Arrow table with key, value, offset, timestamp
iterate   Java iterates and looks at the size of each value, nothing is copied; Kolumn returns the table with ``binary="view"``

Kolumn starts from a path, the file being in the page cache as it was read back from disk, and ("held") from a buffer in memory. Java is
measured three ways: from the whole file in a heap buffer ("memory", where reading costs nothing), from a mapped file ("map") and through
FileRecords ("file"). "grown" and "grown file" are "memory" and "file" with new arrays for each run, which are doubled when they are full:
Kolumn's table is new too.
Beside zstd, "library" is libzstd alone, decompressing the payloads and nothing else; beside no codec, "copy" is a copy of the segment.
Ratios are of the best times of any JVM. What does the same is "held" and "grown", and a path and "grown file"; "held" beside "memory"
favours Java most.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import data, machine

CORE = max(os.sched_getaffinity(0))
JAVA_SOURCES = ("memory", "map", "file")
GROWN = {"grown": "memory", "grown file": "file"}
"""Java with new arrays, and where it starts."""
RATIOS = {"memory to memory": "memory", "grown": "grown"}
"""Of Kolumn from memory, and beside which time."""
JVM = ["-XX:+UseSerialGC", "-Xms1g", "-Xmx1g", "-Xmn16m", "-XX:+AlwaysPreTouch"]
WARM_UP_SECONDS, JVM_SECONDS = 1.0, 4.0
"""A JVM needs longer: its compiler runs on the same core. After one second some took twice as long as later."""
TURNS, ITERATIONS = 4, 3
"""Rounds, each with a JVM of its own for every source, and iterations of a turn."""
TARGETS = {"arrays": {"none": 5.0, "gzip": 2.2, "snappy": 3.5, "lz4": 3.0, "zstd": 2.5}, "iterate": {"none": 1.8}}
"""How many times as fast Kolumn has to be from memory, beside Java from memory, with new arrays on both sides."""
PATH_TARGETS = {"arrays": {"none": 4.0}, "iterate": {"none": 1.0}}
"""From a path."""
_FLOORS = {"none": "copy", "zstd": "library"}
"""What no read takes less than, whatever decodes the records."""


class Rival:
    """A process that decodes one segment when told to."""

    def __init__(self, *command: str) -> None:
        self.command = command
        self.nanoseconds: list[int] = []

    def __enter__(self) -> "Rival":
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(["taskset", "-c", str(CORE), *self.command], cwd=machine.ROOT, stdin=pipe, stdout=pipe, text=True)
        self.summary = self._answer()
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def turn(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{ITERATIONS}\n")
        self.process.stdin.flush()
        self.nanoseconds += self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"ended early: {' '.join(self.command)}")
        return json.loads(line)

    def result(self) -> dict[str, float]:
        return result(self.nanoseconds)


def result(nanoseconds: Sequence[int]) -> dict[str, float]:
    """Best and median of some iterations."""
    return {"best_ms": round(min(nanoseconds) / 1e6, 2), "median_ms": round(statistics.median(nanoseconds) / 1e6, 2)}


def java(segment: Path, mode: str, source: str) -> Rival:
    """Decode.java on ``segment``."""
    jars = machine.ROOT / "build" / "bench" / "java"
    classpath = f"{jars / 'bench-1.jar'}:{jars / 'lib' / '*'}"
    return Rival("java", *JVM, "-cp", classpath, "Decode", str(segment), mode, source, str(JVM_SECONDS))


def kolumn(segment: Path, mode: str, source: str) -> Rival:
    """`bench.worker` on ``segment``."""
    return Rival(sys.executable, "-m", "bench.worker", str(segment), mode, str(WARM_UP_SECONDS), source)


def compare(codec: str, mode: str) -> dict[str, Any]:
    """Best and median of every rival, and Kolumn's ratios, for one codec and mode."""
    segment = data.segment(codec)
    data.read_back(segment)
    found: dict[str, list[int]] = {}
    with ExitStack() as stack:
        ways = {"kolumn": (mode, "path"), "held": (mode, "memory")}
        if codec in _FLOORS:
            ways[_FLOORS[codec]] = (_FLOORS[codec], "memory")
        here = {name: stack.enter_context(kolumn(segment, *way)) for name, way in ways.items()}
        ours = here["kolumn"].summary
        for _ in range(TURNS):
            for name, rival in here.items():
                rival.turn()
                found[name] = rival.nanoseconds
            for source in _of_java(mode):
                with java(segment, "grown" if source in GROWN else mode, GROWN.get(source, source)) as rival:
                    theirs = {name: rival.summary[name] for name in ours}
                    if theirs != ours:
                        raise SystemExit(f"{codec} {mode}: Java decoded {theirs}, Kolumn {ours}")
                    rival.turn()
                    found[source] = [*found.get(source, []), *rival.nanoseconds]
    times = {name: result(nanoseconds) for name, nanoseconds in found.items()}
    best = times["kolumn"]["best_ms"]
    ratios = {source: round(times[source]["best_ms"] / best, 2) for source in _of_java(mode) if source not in RATIOS}
    held = {name: round(times[source]["best_ms"] / times["held"]["best_ms"], 2) for name, source in RATIOS.items() if source in times}
    size = segment.stat().st_size
    return {"codec": codec, "mode": mode, "file_bytes": size, "records": ours["records"], "times": times, "ratios": ratios | held}


def _of_java(mode: str) -> tuple[str, ...]:
    """What of Java is measured."""
    return (*JAVA_SOURCES, *GROWN) if mode == "arrays" else JAVA_SOURCES


def _verdict(target: float | None, reached: float) -> str:
    return "" if target is None else f"{target:.1f} {'met' if reached >= target else 'MISSED'}"


def show(row: dict[str, Any]) -> None:
    """Print one line of the table."""
    mode, codec, ratios = row["mode"], row["codec"], row["ratios"]
    verdict = _verdict(TARGETS[mode].get(codec), ratios.get("grown", ratios["memory to memory"]))
    of_path = _verdict(PATH_TARGETS[mode].get(codec), ratios.get("grown file", ratios["file"]))
    names = ("kolumn", "held", *JAVA_SOURCES, *GROWN)
    times = "".join(f"{row['times'][name]['best_ms']:8.1f}" if name in row["times"] else f"{'':8}" for name in names)
    shown = "".join(f"{ratios[name]:8.2f}" if name in ratios else f"{'':8}" for name in (*JAVA_SOURCES, "grown file", *RATIOS))
    speed = row["records"] / row["times"]["kolumn"]["best_ms"] / 1e3
    print(f"{codec:7}{mode:8}{speed:6.1f}{times}{shown}   {verdict:12}{of_path}", flush=True)


def build() -> None:
    """Compile Decode.java and gather its jars."""
    if not all(map(shutil.which, ("java", "mvn"))):
        raise SystemExit("The comparison with Java needs java (17 or later) and mvn on the PATH.")
    subprocess.run(["mvn", "-q", "-B", "-f", "bench/java", "package"], cwd=machine.ROOT, check=True)


def main(codecs: Sequence[str] = data.CODECS) -> None:
    build()
    sources = "".join(f"{source:>8}" for source in JAVA_SOURCES)
    print(f"{'':15}{'M rec.':>6}{'Kolumn, best ms':>16}{'Java, best ms, from':>40}{'times as fast, from':>32}{'held, over':>16}   target")
    grown = f"{'grown':>8}"
    columns = f"{sources}{grown}{'gr.file':>8}{sources}{'gr.file':>8}{'memory':>8}{grown}"
    print(f"{'codec':7}{'mode':8}{'/ s':>6}{'path':>8}{'held':>8}{columns}   held        path")
    rows = []
    for codec in codecs:
        for mode in TARGETS:
            rows.append(compare(codec, mode))
            show(rows[-1])
    if tuple(codecs) == data.CODECS:
        print(machine.save("cpu_vs_java", {"jvm": JVM, "jvms": TURNS, "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:] or data.CODECS)
