"""How long until a fresh process has its first batch?  python -m bench.cold_start

The first process finds an empty cache folder and compiles; the ones after it load what it compiled. Time counts from before the
interpreter starts until the first record batch is there, and once more without Kolumn for the imports of NumPy, Numba and PyArrow alone.
"""

import os
import subprocess
import sys
import tempfile
import time

from bench import data, machine

LATER_PROCESSES = 5
TARGET_SECONDS = 1.5
IMPORTS = "import numpy, numba, pyarrow"
FIRST_BATCH = "import sys, kolumn; next(iter(kolumn.scan(sys.argv[1])))"


def seconds(program: str, cache: str, *arguments: str) -> float:
    """Wall time of a process that runs ``program``."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program, *arguments], cwd=machine.ROOT, env={**os.environ, "KOLUMN_CACHE_DIR": cache}, check=True)
    return round(time.perf_counter() - start, 2)


def main() -> None:
    rows = []
    for codec in data.CODECS:
        segment = str(data.segment(codec))
        with tempfile.TemporaryDirectory() as cache:
            imports = min(seconds(IMPORTS, cache) for _ in range(LATER_PROCESSES))
            first = seconds(FIRST_BATCH, cache, segment)
            later = [seconds(FIRST_BATCH, cache, segment) for _ in range(LATER_PROCESSES)]
        met = min(later) <= TARGET_SECONDS
        rows.append({"codec": codec, "imports_s": imports, "compiling_s": first, "later_s": later, "met": met})
        times = f"imports alone {imports:.2f} s   compiling {first:.2f} s   later {min(later):.2f} s"
        print(f"{codec:7} {times}   {'met' if met else 'MISSED'}", flush=True)
    print(machine.save("cold_start", {"target_s": TARGET_SECONDS, "rows": rows}))


if __name__ == "__main__":
    main()
