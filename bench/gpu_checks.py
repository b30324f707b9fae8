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
from contextlib import ExitStack
from importlib import import_module
from importlib.metadata import distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

OUT = Path(os.environ.get("OUT") or tempfile.mkdtemp())
PLACE = Path(os.environ.get("PLACE") or OUT / "place")
FATAL = (
    "IllegalAddress",
    "illegal memory",
    "LaunchFailure",
    "launch failure",
    "MisalignedAddress",
    "misaligned",
    "IllegalInstruction",
    "HardwareStackError",
    "unspecified",
)
TALLY: Counter[str] = Counter()
faulthandler.enable()
# A step whose time is over says what it has found.
signal.signal(signal.SIGTERM, lambda *_: over(124))
_REHEARSAL = ExitStack()
if os.environ.get("KOLUMN_FAKE_GPU") == "1":
    _REHEARSAL.enter_context(import_module("kit.standins").standing_in())


def say(step: str, **found: Any) -> None:
    TALLY.update(found.keys() & {"FAILED", "DIFFERENT"})
    line = json.dumps({"step": step, **found}, default=str)
    with (OUT / "results.jsonl").open("a") as file:
        file.write(line + "\n")
    print(line[:400], flush=True)


def gpu() -> Any:
    """The runtime; every thread gets its own."""
    from kolumn.kernels.machine import device

    return device.runtime()


def over(code: int) -> None:
    """End at once with what was counted: what CuPy would do at the end, fails without a context."""
    say("over", what=sys.argv[1:], tally=TALLY)
    os._exit(code)


def _trace() -> str:
    """Of the first failures."""
    return traceback.format_exc()[-1500:] if TALLY["FAILED"] < 5 else ""


def lost(error: BaseException) -> None:
    """End where the device's context is lost: nothing in this process can go right afterwards."""
    if any(word in f"{type(error).__name__} {error}" for word in FATAL):
        over(42)


def begin(otherwise: int) -> int:
    """Where an earlier turn, which lost its context, says to go on."""
    return int(PLACE.read_text()) if PLACE.exists() else otherwise


def go(way: int) -> str:
    """How records are found: a thread, a warp or a block for each batch."""
    from kolumn.kernels.fields import slices

    name, few, large, long = (("thread", 1, 128 << 10, 2048), ("warp", 4096, 1 << 40, 0), ("block", 4096, 0, 1 << 40))[way % 3]
    slices.FEW, slices.LARGE, slices.LONG = few, large, long
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
    from kolumn.kernels.build import load_all
    from kolumn.kernels.machine.image import image

    t = time.time()
    runtime = gpu()
    say("smoke", opened_s=round(time.time() - t, 2))
    from kolumn.kernels.machine.cuda import _function

    t, rows = time.time(), {}
    for name, kernel in load_all().items():
        try:
            a = _function(kernel, runtime.arch).attributes
            rows[name] = [
                a["num_regs"],
                a["local_size_bytes"],
                a["shared_size_bytes"],
                a["max_threads_per_block"],
                image(kernel, runtime.arch).suffix,
            ]
            if a["max_threads_per_block"] < kernel.block:
                say("smoke", FAILED=f"{name}: block of {kernel.block} does not fit: {rows[name]}")
        except Exception as error:
            say("smoke", FAILED=f"{name}: {error!r}")
    say("smoke", load_all_s=round(time.time() - t, 2), registers_local_shared_threads=rows)
    import numpy as np

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
    with tempfile.TemporaryDirectory() as folder:
        if plain_malloc:
            import rmm.mr

            rmm.mr.set_per_device_resource(0, rmm.mr.CudaMemoryResource())
        for codec in ("none", "zstd", "lz4", "snappy", "gzip"):
            path = Path(folder, f"{codec}-0")
            kolumn.write(table, path, codec=codec, batch_bytes=9000)
            for way in range(3):
                name = go(way)
                try:
                    one, two = (kolumn.read(path, backend=b, include_headers=True) for b in ("cpu", "gpu"))
                    report = kolumn.verify(path, backend="gpu")
                    say(
                        "tiny",
                        codec=codec,
                        way=name,
                        inflated_by_cpu=report.inflated_by_cpu,
                        **{"same" if one.equals(two) else "DIFFERENT": 1},
                    )
                except Exception as error:
                    say("tiny", codec=codec, way=name, FAILED=repr(error)[:600], trace=_trace())
                    lost(error)


def _same(step: str, what: str, path: Any, **options: Any) -> None:
    from kit.outcome import COLUMNS, outcome

    options.setdefault("columns", COLUMNS)
    try:
        one = outcome(path, backend="cpu", **options)
        two = outcome(path, backend="gpu", **options)
        same = one == two if isinstance(one, str) or isinstance(two, str) else one.equals(two)
        TALLY["same"] += same
        if not same:
            kept = OUT / "different.jsonl"
            say(step, DIFFERENT=what, options=str(options), cpu=str(one)[:300], gpu=str(two)[:300])
            if TALLY["DIFFERENT"] <= 20:
                with kept.open("a") as file:
                    file.write(
                        json.dumps(
                            {
                                "what": what,
                                "options": str(options),
                                "hex": Path(path).read_bytes().hex()
                                if Path(path).is_file() and Path(path).stat().st_size < 100_000
                                else "",
                            }
                        )
                        + "\n"
                    )
    except Exception as error:
        say(
            step,
            FAILED=what,
            options=str(options),
            error=repr(error)[:600],
            trace=traceback.format_exc()[-1200:] if TALLY["FAILED"] < 5 else "",
        )
        lost(error)


def corpus() -> None:
    """Every segment of the corpus, in the three ways, errors raised and skipped. Exits with 42 where a context was lost; go on after it."""
    from kit.corpus import cases

    segments = [(case, segment) for case in cases() for segment in case.segments]
    from kit.hidden import nothing_hidden

    # The CPU decompresses again what the device did wrong: that must not be hidden.
    with nothing_hidden():
        first = begin(0)
        for number, (case, segment) in enumerate(segments):
            if number < first:
                continue
            PLACE.write_text(str(number + 1))
            for way in range(3):
                name = go(way)
                _same("corpus", f"{case}/{Path(segment).name} {name}", segment, include_control=True, errors=("raise", "skip", "skip")[way])


def mutants(seconds: str, first: str) -> None:
    """Damaged segments of shipped formats and drafts, until the time is over."""
    from kit.draft_segments import FORMATS, Maker
    from kit.mutate import make_segment, mutate
    from kolumn.kernels import check

    until, seed = time.time() + float(seconds), begin(int(first))
    from kit.hidden import nothing_hidden

    with tempfile.TemporaryDirectory() as folder, nothing_hidden():
        path = Path(folder, "a.log")
        while time.time() < until:
            PLACE.write_text(str(seed + 1))
            rng = random.Random(seed)
            name = go(seed)
            # Many slices, and one.
            check.WARPS = (132 * 40, 1)[seed // 3 % 2]
            path.write_bytes(mutate(rng, make_segment(rng)).data)
            import kolumn

            broken = any("compressed payload" in str(one) for one in kolumn.verify(path, backend="cpu").damage["reason"].to_pylist())
            trusted = not broken
            TALLY["trusted" if trusted else "not trusted"] += 1
            _same(
                "mutants",
                f"mutant {seed} {name}",
                path,
                errors=("raise", "skip")[seed // 6 % 2],
                check_crcs=seed % 4 > 0,
                include_control=True,
                trusted=trusted,
            )
            form = FORMATS[seed % len(FORMATS)]
            path.write_bytes(b"".join(entry.data for entry in Maker(form, rng).segment(2)))
            _same("mutants", f"draft {seed} {form} {name}", path, format=form, errors="skip", include_control=True)
            seed += 1


def large() -> None:
    """What small inputs do not reach: batches of 1 MiB and 40 MiB, a record of 70 MiB, many threads and chunks, again and again."""
    import numpy as np
    import pyarrow as pa

    import kolumn
    from bench import data

    columns = ["offset", "timestamp", "key", "value"]
    with tempfile.TemporaryDirectory() as folder:
        for size, batch in ((40 << 20, 1 << 20), (90 << 20, 40 << 20)):
            path = Path(folder, f"any{batch}", f"{0:020d}.log")
            path.parent.mkdir()
            data.write_any_lengths(path, size, batch)
            for way in range(3):
                _same("large", f"batches of {batch} {go(way)}", path, columns=columns)
        rng = np.random.default_rng(1)
        big = [rng.bytes(70 << 20), b"x", None, rng.bytes(3 << 20)]
        for codec in ("none", "zstd", "lz4", "gzip"):
            path = Path(folder, f"big{codec}-0")
            kolumn.write(pa.table({"value": pa.array(big, pa.binary())}), path, codec=codec)
            _same("large", f"a record of 70 MiB {codec}", path, columns=columns)
        for codec in data.CODECS:
            for turn in range(3):
                # Races between threads' streams show in some turns only.
                _same(
                    "large",
                    f"bench {codec} turn {turn}",
                    data.segment(codec).parent,
                    columns=columns,
                    threads=6,
                    chunk_bytes=(4 << 20, 24 << 20, 64 << 20)[turn],
                )


def resident() -> None:
    """Columns that stay on the device, and typed values, without pylibcudf: downloaded buffer by buffer."""
    import pyarrow as pa

    import kolumn
    from kit.corpus import cases
    from kit.device_columns import compared

    with tempfile.TemporaryDirectory() as folder:
        from kolumn.kernels.machine import device
        from kolumn.kernels.machine import runtime as protocol
        from kolumn.kernels.machine.cuda import DeviceMemory

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
                say("resident", FAILED=what, error=repr(error)[:500], trace=_trace())
                lost(error)

        every = ["offset", "timestamp", "key", "value", "topic", "position", "tombstone", "sequence", "codec"]
        for case in cases():
            for segment in case.segments[:1]:
                one(str(segment), segment, columns=every, errors="skip")
        say("resident", tally=TALLY, of="record columns")
        avro = {
            "type": "record",
            "name": "r",
            "fields": [
                {"name": "a", "type": ["null", "string"]},
                {"name": "b", "type": "long"},
                {"name": "c", "type": "boolean"},
                {"name": "d", "type": {"type": "array", "items": "double"}},
            ],
        }
        rng = random.Random(2)
        rows = [rng.randbytes(rng.choice([4, 11, 3, 0, 30])) for _ in range(3000)]
        for what, given, options in (
            (
                "csv",
                [b'1,"a ""b""",true', b"x,,0", b"2", None, b"127,abc,false", b"-128,,TRUE", b"", b"4,5,1\r\n"] * 50,
                {"value_format": "csv", "value_schema": {"a": "int8", "b": "string", "c": "bool"}},
            ),
            ("fixed", rows, {"value_format": "fixed", "value_schema": {"a": "u1", "b": ">f8", "c": "<i2"}}),
            ("avro of noise", rows, {"value_format": "avro", "value_schema": avro}),
            (
                "protobuf of noise",
                rows,
                {
                    "value_format": "protobuf",
                    "value_schema": 'syntax = "proto3"; message M { int32 a = 1; string b = 2; repeated sint64 c = 3; }',
                },
            ),
        ):
            if "protobuf" in what and find_spec("grpc_tools") is None:
                continue
            path = Path(folder, f"{what.replace(' ', '')}-0")
            kolumn.write(pa.table({"value": pa.array(given, pa.binary())}), path)
            one(what, path, columns=["value", "valueValid"], **options)


def frames() -> None:
    """pylibcudf's columns, and cuDF's reader of JSON; each by itself."""
    import pyarrow as pa

    import kolumn
    from bench import data

    t = time.time()
    import pylibcudf

    say("frames", imported_s=round(time.time() - t, 2), version=version("pylibcudf-cu13"))
    gpu()

    def one(what: str, function: Any) -> None:
        t = time.time()
        try:
            say("frames", what=what, found=function(), s=round(time.time() - t, 3))
        except Exception as error:
            say("frames", FAILED=what, error=repr(error)[:600], trace=_trace())
            lost(error)

    def sorts() -> Any:
        """Does the cut-down libcudf launch anything?"""
        column = pylibcudf.Column.from_arrow(pa.array([3, 1, 2]))
        return (
            pylibcudf.sorting.sort(pylibcudf.Table([column]), [pylibcudf.types.Order.ASCENDING], [pylibcudf.types.NullOrder.AFTER])
            .to_arrow()
            .columns[0]
            .to_pylist()
        )

    def same() -> Any:
        table, names = kolumn.read_pylibcudf(
            data.segment("zstd"), columns=["key", "value", "offset", "timestamp"], payload="string", chunk_bytes=8 << 20
        )
        found = pa.table(table.to_arrow().columns, names=names)
        expected = kolumn.read(data.segment("zstd"), columns=["key", "value", "offset", "timestamp"], backend="cpu")
        return [
            found.num_rows == expected.num_rows,
            *(found[n].cast(pa.binary()).equals(expected[n].cast(pa.binary())) for n in ("key", "value")),
            found["offset"].equals(expected["offset"]),
        ]

    def speed() -> Any:
        found = []
        for _ in range(4):
            t = time.perf_counter()
            kolumn.read_pylibcudf(data.segment("none"), columns=["key", "value", "offset", "timestamp"], payload="string")
            found.append(round(1000 * (time.perf_counter() - t), 2))
        return found

    def parquet() -> Any:
        """What an expert would compare with: libcudf's reader of Parquet, the same rows on the same card."""
        import pyarrow.parquet as pq
        import rmm

        rows = kolumn.read(data.segment("none"), columns=["key", "value", "offset", "timestamp"], backend="cpu")
        rows = pa.concat_tables([rows] * 8)
        found: dict[str, Any] = {"record_bytes": 8 * data.segment("none").stat().st_size}
        for codec in ("none", "snappy", "zstd"):
            path = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None), "a.parquet")
            pq.write_table(rows, path, compression=codec, use_dictionary=False)
            options = pylibcudf.io.parquet.ParquetReaderOptions.builder(pylibcudf.io.SourceInfo([str(path)])).build()
            best = 1e9
            for _ in range(4):
                t = time.perf_counter()
                pylibcudf.io.parquet.read_parquet(options)
                rmm.pylibrmm.stream.DEFAULT_STREAM.synchronize()
                best = min(best, time.perf_counter() - t)
            found[codec] = {
                "ms": round(1000 * best, 2),
                "file": path.stat().st_size,
                "record_gb_s": round(found["record_bytes"] / best / 1e9, 2),
            }
            path.unlink()
        return found

    def churn() -> Any:
        """Columns dropped while cuDF works on them, and read again at once: a free in the wrong order shows as other bytes."""
        expected = kolumn.read(data.segment("none"), columns=["offset"], backend="cpu")["offset"].to_pylist()
        wrong = 0
        for _ in range(12):
            table, _ = kolumn.read_pylibcudf(
                data.segment("none"), columns=["offset", "value"], payload="string", threads=4, chunk_bytes=4 << 20
            )
            column = table.columns()[0]
            made = pylibcudf.binaryop.binary_operation(column, column, pylibcudf.binaryop.BinaryOperator.ADD, column.type())
            del table, column
            kolumn.read_pylibcudf(data.segment("none"), columns=["value"], payload="string", threads=4, chunk_bytes=4 << 20)
            wrong += made.to_arrow().to_pylist() != [2 * one for one in expected]
        return f"{wrong} of 12 wrong"

    for what, function in (("sort", sorts), ("same", same), ("speed, ms", speed), ("churn", churn), ("parquet", parquet)):
        one(what, function)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
    over(1 if TALLY["DIFFERENT"] or TALLY["FAILED"] else 0)
