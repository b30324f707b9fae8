"""Everything that only a machine with a GPU can tell, in one command: python -m bench.gpu_check [FOLDER [SECONDS]]

Steps run in order of their value, some side by side, each in a process group with a limit of its own. All is written as it happens, so
that a run which is cut off leaves what it had. FOLDER (build/gpu-check) gets:

    summary.txt       a line for each step: when, exit code, how long
    results.jsonl     what `bench.gpu_checks` found, a line each
    different.jsonl   inputs whose rows differ from the CPU's
    log.txt           what the steps printed, each line after the step's name
    launches.txt      launches that failed, and kernels that ran, by `tests/kit/on_gpu.py`
    gpu_decode.json   what `bench.gpu_decode` measured, beside what the model of the card says; written after each of its steps

A bundle in ``build/gpu-bundle`` is unpacked first (`bench.gpu_bundle`): packages into a folder for the time of the run.

KOLUMN_FAKE_GPU=1 rehearses all of it on stand-ins for CUDA, two steps at a time and without their limits.

A step that ends with 42 has lost its CUDA context; it goes on after what lost it. Exit code: 0 if no step failed, 1 if one did, 3 if
nothing could be run.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bench import gpu_bundle

ROOT = Path(__file__).parents[1]
BUNDLE = ROOT / "build" / "gpu-bundle"
SECONDS = 450
FAKE = os.environ.get("KOLUMN_FAKE_GPU") == "1"
PATIENCE = 20 if FAKE else 1
"""What limits are multiplied by: a rehearsal has few cores, and its kernels are loops."""
NEEDED = {
    "numpy": "numpy", "numba": "numba", "pyarrow": "pyarrow", "cramjam": "cramjam", "zstandard": "zstandard", "isal": "isal",
    "lz4": "lz4", "crc32c": "crc32c", "cupy": "cupy-cuda13x", "rmm": "rmm-cu13", "pytest": "pytest", "xdist": "pytest-xdist",
}  # fmt: skip
"""Modules without which nothing runs, and the packages that they come in."""
LOST, HAZARD, TURNS = 42, 9, 5
"""Exit codes of a step that lost its context, and of one whose kernels have hazards; how often a step is begun."""
LOG_BYTES = 400_000
"""Of a step's output."""
PYTEST = (
    "-m", "pytest", "-v", "--tb=short", "-o", "addopts=--import-mode=importlib", "-o", "filterwarnings=default", "-p", "no:cacheprovider",
    "--continue-on-collection-errors",
)  # fmt: skip
"""The project's own options need plugins that a bare machine may lack."""
KERNEL_TESTS = [
    f"tests/gpu/test_{one}.py" for one in ("ptx", "frame", "early_columns", "nested_values", "message_values", "registry_values")
]
HOST_ONLY = (
    "not loops and not planted and not fault and not guesses_that_are_right and not good_batch_that_is_called"
    " and not messages_that_the_host"
)
"""Tests of these files that are about the host."""


@dataclass(frozen=True)
class Step:
    """A command, and the most seconds that it may take."""

    name: str
    limit: float
    command: Sequence[str]


class Run:
    """Steps on their way, and what is written about them."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.began, self.seconds = folder, time.monotonic(), seconds
        self.failed: list[str] = []
        self._running: set[int] = set()
        self._lock = threading.RLock()
        self._work = tempfile.mkdtemp()
        paths = [ROOT / "src", ROOT / "tests", ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONUNBUFFERED": "1", "OUT": str(folder),
            "ON_GPU_LOG": str(folder / "launches.txt"),
        }  # fmt: skip

    def say(self, line: str) -> None:
        """Tell it on the screen and in the summary."""
        with self._lock, (self.folder / "summary.txt").open("a") as file:
            file.write(f"{time.monotonic() - self.began:5.0f} s  {line}\n")
        print(line, flush=True)

    def together(self, steps: Sequence[Step]) -> None:
        """Run steps side by side, and wait for all."""
        with ThreadPoolExecutor(2 if FAKE else len(steps)) as pool:
            list(pool.map(self.step, steps))

    def step(self, step: Step) -> None:
        """Run a step, again where it lost its context."""
        began = time.monotonic()
        until = min(began + PATIENCE * step.limit, self.began + PATIENCE * self.seconds)
        codes: list[int] = []
        while (not codes or codes[-1] == LOST) and len(codes) < TURNS and time.monotonic() < until - 0.1:
            codes.append(self._once(step, until))
        if any(codes) or not codes:
            self.failed.append(step.name)
        ended = f"exit code {', '.join(map(str, codes))} after {time.monotonic() - began:.0f} s" if codes else "no time left"
        self.say(f"{step.name}: {ended}")

    def _once(self, step: Step, until: float) -> int:
        environment = {**self._environment, "PLACE": f"{self._work}/{step.name}"}
        process = subprocess.Popen(
            step.command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        self._running.add(process.pid)
        timer = threading.Timer(until - time.monotonic(), _end, [process])
        timer.start()
        hazards, room = 0, LOG_BYTES
        with process:
            for line in process.stdout or ():
                # Libraries have hazards of their own.
                hazards += re.search(rb"^=========.*kolumn_", line) is not None
                if room > 0:
                    room -= len(line)
                    with self._lock, (self.folder / "log.txt").open("ab") as log:
                        log.write(f"{step.name}| ".encode() + line)
        timer.cancel()
        self._running.discard(process.pid)
        return process.returncode or (HAZARD if hazards else 0)

    def stop(self) -> None:
        """End all steps: the whole run is cut off."""
        for group in list(self._running):
            _signal(group, signal.SIGKILL)


def _signal(group: int, which: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, which)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a step with its children; at first it may say what it has found."""
    _signal(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)
    _signal(process.pid, signal.SIGKILL)


def steps(folder: Path) -> list[list[Step]]:
    """All steps; those of one list run side by side."""
    python = sys.executable

    def check(name: str, limit: float, *rest: str) -> Step:
        return Step(f"{name}{''.join(rest[1:])}", limit, [python, "-m", "bench.gpu_checks", name, *rest])

    kernels = [
        python, *PYTEST, "-n", "1" if FAKE else "5", "-p", "kit.on_gpu", "-m", "not gpu and not slow", "-k", HOST_ONLY, *KERNEL_TESTS,
    ]  # fmt: skip
    tests = [python, *PYTEST, "-n", "1" if FAKE else "3", "-m", "gpu", "tests/gpu/test_same.py", "tests/gpu/test_device.py"]
    right = [Step("kernels", 120, kernels), check("corpus", 90), check("resident", 90), Step("tests", 115, tests)]
    bench = [python, "-m", "bench.gpu_decode"]
    # Its data meanwhile.
    right += [] if FAKE else [Step("data", 115, [*bench, "--prepare"])]
    right += [check("mutants", 60, "45", str(first)) for first in range(0, 4_000_000, 1_000_000)]
    sanitizer = shutil.which("compute-sanitizer", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")
    ways = {"memcheck": ["memcheck"], "streams": ["memcheck", "--track-stream-ordered-races", "all"], "racecheck": ["racecheck"]}
    for name, (tool, *rest) in ways.items() if sanitizer else ():
        tiny = [python, "-m", "bench.gpu_checks", "tiny", *(["malloc"] if name == "memcheck" else [])]
        right.append(Step(name, 100, [str(sanitizer), "--tool", tool, *rest, "--print-limit", "20", *tiny]))
    speed = Step("speed", 165, [*bench, str(folder), "--seconds", "150", *(["--small"] if FAKE else [])])
    return [[check("env", 25)], [check("smoke", 50)], right, [check("large", 60, *(["256"] if FAKE else []))], [speed]]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def main(folder: Path, seconds: float = SECONDS) -> int:
    """Run all steps; the exit code."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not FAKE:
        smi = shutil.which("nvidia-smi")
        if not smi or subprocess.run([smi, "-L"], capture_output=True, check=False).returncode:
            print(f"no GPU here ({'nvidia-smi lists none' if smi else 'there is no nvidia-smi'}): nothing was run")
            return 3
    with tempfile.TemporaryDirectory() as packages:
        os.environ.update(gpu_bundle.unpack(BUNDLE, Path(packages)))
        sys.path.append(packages)
        lacking = [package for module, package in NEEDED.items() if not _is_there(module)]
        if lacking:
            print(f"nothing was run without these packages: pip install {' '.join(lacking)}")
            return 3
        return run(steps(folder), folder, seconds)


def idle_kernels(folder: Path) -> list[str]:
    """Kernels that none of the tests ran; none without any launch, as after a step that was cut off."""
    from kolumn.kernels.build import load_all

    log = folder / "launches.txt"
    ran = set(re.findall(r"'(\w+)': \d+", "".join(re.findall(r"^RAN .*", log.read_text(), re.M)))) if log.is_file() else set()
    return sorted(load_all().keys() - ran) if ran else []


def run(groups: Sequence[Sequence[Step]], folder: Path, seconds: float) -> int:
    """Run groups of steps one after the other; the exit code."""
    this = Run(folder, seconds)

    def cut_off(*_: object) -> None:
        this.stop()
        this.say("cut off")
        os._exit(1)

    before = signal.signal(signal.SIGTERM, cut_off)
    for group in groups:
        this.together(group)
    if asleep := idle_kernels(folder):
        this.failed.append(f"kernels that did not run: {', '.join(asleep)}")
    signal.signal(signal.SIGTERM, before)
    this.say(f"failed: {', '.join(this.failed)}" if this.failed else "all is well")
    return 1 if this.failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "gpu-check", *map(float, sys.argv[2:])))
