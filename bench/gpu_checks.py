"""Checks for a machine with a GPU, each in a process of its own: python -m bench.gpu_checks WHAT [ARGUMENTS]

`bench.gpu_check` runs them. Every result is a line of $OUT/results.jsonl at once, so that nothing is lost if a later one fails or the time
is over. KOLUMN_FAKE_GPU=1 takes stand-ins for CuPy and RMM: a rehearsal without a GPU. How fast it is, `bench.gpu_decode` says.
"""

import faulthandler
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import nullcontext
from importlib import import_module
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

OUT = Path(os.environ.get("OUT") or tempfile.mkdtemp())
PLACE = Path(os.environ.get("PLACE") or OUT / "place")
FATAL = (
    "IllegalAddress", "illegal memory", "LaunchFailure", "launch failure", "MisalignedAddress", "misaligned", "IllegalInstruction",
    "HardwareStackError", "unspecified",
)  # fmt: skip
CODECS = ("none", "zstd", "lz4", "snappy", "gzip")
TALLY: Counter[str] = Counter()


def say(step: str, **found: Any) -> None:
    """A line of the results."""
    TALLY.update(found.keys() & {"FAILED", "DIFFERENT"})
    line = json.dumps({"step": step, **found}, default=str)
    with (OUT / "results.jsonl").open("a") as file:
        file.write(line + "\n")
    print(line[:400], flush=True)


def failed(step: str, what: str, error: Exception, **more: Any) -> None:
    """A line about what raised an error, with the trace of the first ones; ends where the device's context is lost."""
    trace = traceback.format_exc()[-1500:] if TALLY["FAILED"] < 5 else ""
    say(step, FAILED=what, error=repr(error)[:600], trace=trace, **more)
    # Nothing in this process can go right afterwards.
    if any(word in f"{type(error).__name__} {error}" for word in FATAL):
        over(42)


def over(code: int) -> None:
    """End at once with what was counted: what CuPy would do at the end, fails without a context."""
    say("over", what=sys.argv[1:], tally=TALLY)
    os._exit(code)


def begin(otherwise: int) -> int:
    """Where an earlier turn, which lost its context, says to go on."""
    return int(PLACE.read_text()) if PLACE.exists() else otherwise


def go(way: int) -> str:
    """How records are found: a thread, a warp or a block for each batch."""
    from kolumn.kernels.fields import hop

    name, few, large, long = (("thread", 1, 128 << 10, 2048), ("warp", 4096, 1 << 40, 0), ("block", 4096, 0, 1 << 40))[way % 3]
    hop.FEW, hop.LARGE, hop.LONG = few, large, long
    return name


def env() -> None:
    """Packages, tools, the level of the processor, the card."""
    import cupy

    from kolumn.cpu_fallback.machine import loops, processor

    packages = sorted(f"{one.name} {one.version}" for one in distributions())
    tools = {tool: shutil.which(tool) for tool in ("ncu", "compute-sanitizer", "git", "nvidia-smi")}
    say("env", python=sys.version.split()[0], packages=packages, cores=os.cpu_count(), tools=tools)
    say("env", level=processor.level(), loops_ahead_of_time=str(loops.shipped()))
    found = cupy.cuda.runtime.getDeviceProperties(0)
    keys = ("name", "totalGlobalMem", "multiProcessorCount", "l2CacheSize", "clockRate", "canMapHostMemory")
    say("env", gpu={key: found.get(key) for key in keys})


def smoke() -> None:
    """Every kernel's code is loaded; what it takes, as the driver says. Then a read, by the shortest way."""
    import numpy as np

    from kolumn.kernels.build import load_all
    from kolumn.kernels.machine import cuda, device

    t = time.time()
    runtime: Any = device.runtime()
    say("smoke", opened_s=round(time.time() - t, 2))
    t, rows = time.time(), {}
    for name, kernel in load_all().items():
        try:
            known = cuda._function(kernel, runtime.arch).attributes
        except Exception as error:
            failed("smoke", name, error)
            continue
        keys = ("num_regs", "local_size_bytes", "shared_size_bytes", "max_threads_per_block")
        rows[name] = [*(known[key] for key in keys), cuda.image(kernel, runtime.arch).suffix]  # type: ignore[attr-defined]
        if known["max_threads_per_block"] < kernel.block:
            say("smoke", FAILED=f"{name}: block of {kernel.block} does not fit: {rows[name]}")
    say("smoke", load_all_s=round(time.time() - t, 2), registers_local_shared_threads=rows)
    there = runtime.upload(np.arange(1000, dtype=np.int32))
    runtime.running_sum(there, 1000, 4)
    ok = bool((runtime.download(there, 4000).view(np.int32) == np.cumsum(np.arange(1000))).all())
    say("smoke", **{"running_sum" if ok else "FAILED": "running_sum"})
    tiny()


def tiny(plain_malloc: str = "") -> None:
    """Small reads of every codec in every way, beside the CPU; ``malloc``: each allocation by itself, for compute-sanitizer."""
    import pyarrow as pa

    import kolumn

    rng = random.Random(1)
    values = [rng.choice([None, b"", rng.randbytes(rng.choice([1, 7, 90, 700]))]) for _ in range(800)]
    table = pa.table({"key": pa.array([b"k%d" % i for i in range(800)], pa.binary()), "value": pa.array(values, pa.binary())})
    if plain_malloc:
        import rmm.mr

        rmm.mr.set_per_device_resource(0, rmm.mr.CudaMemoryResource())
    with tempfile.TemporaryDirectory() as folder:
        for codec in CODECS:
            path = Path(folder, f"{codec}-0")
            kolumn.write(table, path, codec=codec, batch_bytes=9000)  # type: ignore[arg-type]
            for way in range(3):
                name = go(way)
                try:
                    one, two = (kolumn.read(path, backend=b, trusted=True, include_headers=True) for b in ("cpu", "gpu"))
                    by_cpu = kolumn.verify(path, backend="gpu", trusted=True).inflated_by_cpu
                    say("tiny", codec=codec, way=name, inflated_by_cpu=by_cpu, **{"same" if one.equals(two) else "DIFFERENT": 1})
                except Exception as error:
                    failed("tiny", f"{codec} {name}", error)


def _same(step: str, what: str, path: Path, **options: Any) -> None:
    """Compare what both backends make of a path; rows that differ are kept, of small files with the bytes."""
    from kit.outcome import COLUMNS, outcome

    options.setdefault("columns", COLUMNS)
    try:
        one, two = (outcome(path, backend=backend, **options) for backend in ("cpu", "gpu"))
        same = one == two if isinstance(one, str) or isinstance(two, str) else one.equals(two)
    except Exception as error:
        failed(step, what, error, options=str(options))
        return
    TALLY["same"] += same
    if not same:
        say(step, DIFFERENT=what, options=str(options), cpu=str(one)[:300], gpu=str(two)[:300])
        if TALLY["DIFFERENT"] <= 20:
            small = path.is_file() and path.stat().st_size < 100_000
            with (OUT / "different.jsonl").open("a") as file:
                file.write(json.dumps({"what": what, "options": str(options), "hex": path.read_bytes().hex() if small else ""}) + "\n")


def corpus() -> None:
    """Every segment of the corpus, in the three ways, errors raised and skipped. Exits with 42 where a context was lost; go on after it."""
    from kit.corpus import cases
    from kit.emulated import nothing_hidden

    segments = [(case, segment) for case in cases() for segment in case.segments]
    # The CPU decompresses again what the device did wrong: that must not be hidden.
    with nothing_hidden():
        for number in range(begin(0), len(segments)):
            case, segment = segments[number]
            PLACE.write_text(str(number + 1))
            for way, errors in enumerate(("raise", "skip", "skip")):
                name = go(way)
                _same("corpus", f"{case}/{Path(segment).name} {name}", Path(segment), include_control=True, errors=errors)


def mutants(seconds: str, first: str) -> None:
    """Damaged segments of shipped formats and drafts, until the time is over."""
    import kolumn
    from kit.draft_segments import FORMATS, Maker
    from kit.emulated import nothing_hidden
    from kit.mutate import make_segment, mutate
    from kolumn.kernels import check

    until, seed = time.time() + float(seconds), begin(int(first))
    with tempfile.TemporaryDirectory() as folder, nothing_hidden():
        path = Path(folder, "a.log")
        while time.time() < until:
            PLACE.write_text(str(seed + 1))
            rng, name = random.Random(seed), go(seed)
            # Many slices, and one.
            check.WARPS = (132 * 40, 1)[seed // 3 % 2]
            path.write_bytes(mutate(rng, make_segment(rng)).data)
            broken = any("compressed payload" in str(one) for one in kolumn.verify(path, backend="cpu").damage["reason"].to_pylist())
            TALLY["not trusted" if broken else "trusted"] += 1
            options = {"errors": ("raise", "skip")[seed // 6 % 2], "check_crcs": seed % 4 > 0, "trusted": not broken}
            _same("mutants", f"mutant {seed} {name}", path, include_control=True, **options)
            form = FORMATS[seed % len(FORMATS)]
            path.write_bytes(b"".join(entry.data for entry in Maker(form, rng).segment(2)))
            _same("mutants", f"draft {seed} {form} {name}", path, format=form, errors="skip", include_control=True)
            seed += 1


def large(less: str = "1") -> None:
    """What small inputs do not reach: batches of 1 MiB and 40 MiB, a record of 70 MiB, many threads and chunks; or a part of each."""
    import numpy as np
    import pyarrow as pa

    import kolumn
    from bench import data

    columns, mib = ["offset", "timestamp", "key", "value"], (1 << 20) // int(less)
    with tempfile.TemporaryDirectory() as folder:
        for size, batch in ((40, 1), (90, 40)):
            path = Path(folder, f"any{batch}", f"{0:020d}.log")
            path.parent.mkdir()
            data.write_any_lengths(path, size * mib, batch * mib)
            for way in range(3):
                _same("large", f"batches of {batch} MiB {go(way)}", path, columns=columns)
        rng = np.random.default_rng(1)
        big = [rng.bytes(70 * mib), b"x", None, rng.bytes(3 * mib)]
        for codec in CODECS:
            path = Path(folder, f"big{codec}-0")
            kolumn.write(pa.table({"value": pa.array(big, pa.binary())}), path, codec=codec)  # type: ignore[arg-type]
            _same("large", f"a record of 70 MiB {codec}", path, columns=columns)
        for codec in CODECS:
            path = data.segment(codec, 64 * mib)
            for chunk in (4, 24, 64):
                # Races between threads' streams show in some turns only.
                _same("large", f"{codec} in chunks of {chunk} MiB", path, columns=columns, threads=6, chunk_bytes=chunk * mib)


def resident() -> None:
    """Columns that stay on the device, and typed values, without pylibcudf: downloaded buffer by buffer."""
    import pyarrow as pa

    import kolumn
    from kit.corpus import cases
    from kit.device_columns import compared
    from kolumn.kernels.machine import device
    from kolumn.kernels.machine import runtime as protocol
    from kolumn.kernels.machine.cuda import DeviceMemory

    # What the test kit looks into.
    DeviceMemory.bytes = property(lambda self: device.runtime().download(self, self.size))  # type: ignore[attr-defined]
    protocol.View.bytes = property(lambda self: device.runtime().download(self.memory, self.size, self.start))  # type: ignore[attr-defined]

    def one(what: str, source: Any, **options: Any) -> None:
        try:
            compared(source, **options)
            TALLY["same"] += 1
        except Exception as error:
            if "expected 1, got 0" in str(error):
                # A segment without records has no table.
                TALLY["empty"] += 1
                return
            failed("resident", what, error)

    every = ["offset", "timestamp", "key", "value", "topic", "position", "tombstone", "sequence", "codec"]
    for case in cases():
        for segment in case.segments[:1]:
            one(str(segment), segment, columns=every, errors="skip")
    say("resident", tally=TALLY, of="record columns")
    fields = {"a": ["null", "string"], "b": "long", "c": "boolean", "d": {"type": "array", "items": "double"}}
    avro = {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}
    rng = random.Random(2)
    noise = [rng.randbytes(rng.choice([4, 11, 3, 0, 30])) for _ in range(3000)]
    schemas = {
        "avro": avro,
        "protobuf": 'syntax = "proto3"; message M { int32 a = 1; string b = 2; repeated sint64 c = 3; }',
    }
    with tempfile.TemporaryDirectory() as folder:
        for form, schema in schemas.items():
            if form == "protobuf" and find_spec("grpc_tools") is None:
                continue
            path = Path(folder, f"{form}-0")
            kolumn.write(pa.table({"value": pa.array(noise, pa.binary())}), path)
            one(form, path, columns=["value", "valueValid"], value_format=form, value_schema=schema)


STEPS = {one.__name__: one for one in (env, smoke, tiny, corpus, mutants, large, resident)}

if __name__ == "__main__":
    faulthandler.enable()
    # A step whose time is over says what it has found.
    signal.signal(signal.SIGTERM, lambda *_: over(124))
    with import_module("kit.standins").standing_in() if os.environ.get("KOLUMN_FAKE_GPU") == "1" else nullcontext():
        STEPS[sys.argv[1]](*sys.argv[2:])
        over(1 if TALLY["DIFFERENT"] or TALLY["FAILED"] else 0)
