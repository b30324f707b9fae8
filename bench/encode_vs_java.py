"""How fast is writing beside reading, and beside Kafka's MemoryRecordsBuilder?  python -m bench.encode_vs_java [quick]

The 64 MiB of `bench.data` without a codec, on one core. Java builds each batch of records that lie in arrays, Kolumn of an Arrow table
that lies in memory; both write to memory, and the bytes have to be the same before anything is measured. Reading starts from the file.
The three take turns, ratios are of best times. "quick" is one turn, whose result is not saved.
"""

import sys
from contextlib import ExitStack

from bench import data, machine
from bench.cpu_vs_java import JVM, JVM_SECONDS, TURNS, WARM_UP_SECONDS, Rival, build

TARGETS = {"Java builds": 1.0, "Kolumn reads": 0.5}


def rivals(segment: str) -> dict[str, Rival]:
    """The three processes."""
    jars = machine.ROOT / "build" / "bench" / "java"
    classpath = f"{jars / 'bench-1.jar'}:{jars / 'lib' / '*'}"
    worker = (sys.executable, "-m", "bench.encode_worker", segment)
    return {
        "Kolumn writes": Rival(*worker, "encode", str(WARM_UP_SECONDS)),
        "Java builds": Rival("java", *JVM, "-cp", classpath, "Encode", segment, str(JVM_SECONDS)),
        "Kolumn reads": Rival(*worker, "decode", str(WARM_UP_SECONDS)),
    }


def main(quick: bool = False) -> None:
    build()
    segment = data.segment("none")
    with ExitStack() as stack:
        racing = {name: stack.enter_context(rival) for name, rival in rivals(str(segment)).items()}
        summaries = [rival.summary for rival in racing.values()]
        if any(one != summaries[0] for one in summaries):
            raise SystemExit(f"not the same bytes: {dict(zip(racing, summaries, strict=True))}")
        for _ in range(1 if quick else TURNS):
            for rival in racing.values():
                rival.turn()
        times = {name: rival.result() for name, rival in racing.items()}
    ours = times["Kolumn writes"]["best_ms"]
    ratios = {name: round(times[name]["best_ms"] / ours, 2) for name in TARGETS}
    for name, time in times.items():
        verdict = f"{ratios[name]:6.2f} x as fast, target {TARGETS[name]}" if name in ratios else ""
        print(f"{name:14}{time['best_ms']:8.1f} ms {verdict}", flush=True)
    if not quick:
        print(machine.save("encode_vs_java", {"jvm": JVM, **summaries[0], "times": times, "ratios": ratios}))


if __name__ == "__main__":
    main(sys.argv[1:] == ["quick"])
