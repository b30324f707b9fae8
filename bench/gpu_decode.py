"""How fast does a GPU decode, beside what `bench.gpu_model` predicts for the card?  python -m bench.gpu_decode [FOLDER] [OPTION ...]

    --seconds SECONDS   begin no step after so many
    --small             a part of the data in 256, to rehearse the bench; names of lines stay
    --steps STEP ...    these alone
    --prepare           write all data with several processes; measures nothing, needs no GPU

A step that fails, for which no time is left, or whose packages are not there, keeps no other from running, and the result is written after
each. A line of it has

    ms, median_ms   the best and the middle time
    GB/s            1e9 bytes in a second: of the log, and of records before compression where there is a codec
    predicted       milliseconds by the model for this card, where it has an answer

KOLUMN_FAKE_GPU=1 takes stand-ins for CuPy and RMM: a rehearsal without a GPU. Exit code: 0, 1 if a step failed, 3 without a GPU.
"""

import argparse
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from importlib import import_module
from importlib.metadata import distributions
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench import data, gpu_model, machine
from bench.gpu_steps import BATCHES, BLOCKS, STEPS, Bench, any_lengths, fits
from kolumn.core.errors import MissingError
from kolumn.kernels.machine import device

SECONDS = 150
PACKAGES = ("cupy", "rmm", "pylibcudf", "nvidia-libnvcomp")
"""What the names of packages begin with whose versions stand in the result."""


def prepare(small: bool) -> None:
    """Write all data, by processes."""
    bench = Bench(small)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(any_lengths, bench)]
        for codec in data.CODECS:
            sizes = (data.BATCH_BYTES, *BATCHES) if codec == "none" else [size for size in BLOCKS if fits(codec, size)]
            jobs += [pool.submit(bench.segment, codec, size) for size in sizes]
        for job in jobs:
            job.result()


def main(folder: Path | None = None, seconds: float = SECONDS, small: bool = False, only: Sequence[str] = ()) -> int:
    """Measure and save; the exit code."""
    began = time.monotonic()
    try:
        device.runtime()
    except MissingError as error:
        print(f"no GPU here, nothing measured: {error}")
        return 3
    import cupy

    found, bench = cupy.cuda.runtime.getDeviceProperties(device.opened()), Bench(small)
    name = found["name"].decode()
    spent: dict[str, float] = {}
    errors: dict[str, str] = {}
    left_out: dict[str, str] = {}
    result: dict[str, Any] = {
        "gpu": name, "predicted_for": gpu_model.choose(name), "multiprocessors": found["multiProcessorCount"],
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "packages": {one.name: one.version for one in distributions() if (one.name or "").startswith(PACKAGES)},
        "small": small, "lines": bench.lines, "seconds": spent, "errors": errors, "left_out": left_out,
    }  # fmt: skip
    data.FOLDER.mkdir(parents=True, exist_ok=True)
    for step, do in STEPS.items():
        begin = time.monotonic()
        if only and step not in only:
            continue
        if begin - began > seconds:
            errors[step] = "no time left"
            continue
        errors[step] = "cut off"
        try:
            do(bench)
            del errors[step]
        except ModuleNotFoundError as error:
            left_out[step] = str(error)
            del errors[step]
        except Exception:
            errors[step] = traceback.format_exc()[-3000:]
        finally:
            spent[step] = round(time.monotonic() - begin, 1)
            machine.save("gpu_decode", result, folder)
    for what, steps in (("FAILED", errors), ("left out", left_out)):
        for step, why in steps.items():
            print(f"{step} {what}: {why.splitlines()[-1]}")
    print(machine.save("gpu_decode", result, folder))
    return 1 if errors else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--steps", nargs="+", default=(), choices=STEPS)
    parser.add_argument("--prepare", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    # The test kit has typed values, columns that stay on a device, and stand-ins.
    sys.path.append(str(machine.ROOT / "tests"))
    asked = _arguments()
    if asked.prepare:
        prepare(asked.small)
        sys.exit()
    # What a step had found is written.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(124))
    fake = os.environ.get("KOLUMN_FAKE_GPU") == "1"
    # libcudf has no stand-in.
    wanted = asked.steps or [step for step in STEPS if not (fake and step == "parquet")]
    with import_module("kit.standins").standing_in() if fake else nullcontext():
        code = main(asked.folder, asked.seconds, asked.small, wanted)
    sys.exit(code)
