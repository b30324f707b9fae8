"""How long until a fresh process has its first batch?  python -m bench.cold_start [CODEC ...]

Time counts from before the interpreter starts until the first record batch is there. There are three kinds of processes, each with an empty
cache folder at first: with the machine code that the package brings (`make loops`, `pip install`), as on a new machine; with code for this
very processor (KOLUMN_NATIVE=1), which the first process compiles and later ones load; and, without Kolumn, the imports of NumPy,
llvmlite and PyArrow alone.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from bench import data, machine

PROCESSES = 5
WARM_SECONDS, NEW_SECONDS = 0.5, 3.0
IMPORTS = "import numpy, llvmlite.binding, pyarrow"
FIRST_BATCH = "import sys, kolumn; next(iter(kolumn.scan(sys.argv[1])))"
BROUGHT = "import sys; from kolumn.cpu_fallback.machine.loops import shipped; sys.exit(shipped() is None)"


def seconds(program: str, cache: str, *arguments: str, **environment: str) -> float:
    """Wall time of a process that runs ``program``."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    environment = {**clean, "KOLUMN_CACHE_DIR": cache, **environment}
    subprocess.run([sys.executable, "-c", program, *arguments], cwd=machine.ROOT, env=environment, check=True)
    return round(time.perf_counter() - start, 2)


def main(codecs: Sequence[str] = data.CODECS) -> None:
    if subprocess.run([sys.executable, "-c", BROUGHT], check=False).returncode:
        sys.exit("no machine code in the package: make loops")
    rows = []
    for codec in codecs:
        segment = str(data.segment(codec))
        with tempfile.TemporaryDirectory() as cache:
            imports = min(seconds(IMPORTS, cache) for _ in range(PROCESSES))
            brought = [seconds(FIRST_BATCH, cache, segment) for _ in range(PROCESSES)]
            assert not os.listdir(cache)
        met = brought[0] <= NEW_SECONDS and min(brought) <= WARM_SECONDS
        rows.append({"codec": codec, "imports_s": imports, "package_s": brought, "met": met})
        times = f"imports alone {imports:.2f} s   first {brought[0]:.2f} s   later {min(brought[1:]):.2f} s"
        print(f"{codec:7} {times}   {'met' if met else 'MISSED'}", flush=True)
    if tuple(codecs) != data.CODECS:
        return
    segment = str(data.segment("none"))
    with tempfile.TemporaryDirectory() as cache:
        compiling = seconds(FIRST_BATCH, cache, segment, KOLUMN_NATIVE="1")
        later = [seconds(FIRST_BATCH, cache, segment, KOLUMN_NATIVE="1") for _ in range(PROCESSES)]
    print(f"for this very processor: compiling {compiling:.2f} s   later {min(later):.2f} s", flush=True)
    native = {"compiling_s": compiling, "later_s": later}
    print(machine.save("cold_start", {"target_s": {"warm": WARM_SECONDS, "new": NEW_SECONDS}, "rows": rows, "native": native}))


if __name__ == "__main__":
    main(sys.argv[1:] or data.CODECS)
