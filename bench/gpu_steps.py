"""The steps of `bench.gpu_decode`: each adds lines to a `Bench`, and needs nothing of the others."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa

import kolumn
from bench import data, gpu_model
from bench.gpu_costs import COSTS, RECORD_BYTES
from bench.gpu_timing import Times, Watch, events, times, walls
from kolumn.core.arrays import Bytes, Rows
from kolumn.core.lost import LostValues
from kolumn.decode.host.chunks import chunks
from kolumn.formats import layouts, table
from kolumn.kernels.columns.gather import Binary, Sizes, measure, moved, number_of, sizes
from kolumn.kernels.decode import bad_checksums, decode
from kolumn.kernels.fields.records import DevicePayloads, DeviceRecords
from kolumn.kernels.machine import device
from kolumn.kernels.machine.runtime import Runtime
from kolumn.kernels.values.columns import Values, typed_columns
from kolumn.options import Options
from kolumn.readers.types import with_types
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import find_segments

COLUMNS = ["key", "value", "offset", "timestamp"]
COPIES = 16
"""Segments of 64 MiB on the device: 1 GiB."""
BATCHES = (1 << 10, 4 << 10, 64 << 10, 256 << 10)
"""Bytes of batches without a codec, beside those of 16 KiB and of 1 MiB."""
BLOCKS = (16 << 10, 64 << 10, 256 << 10, 1 << 20)
"""Bytes that a batch decompresses to."""
OVERLAPS = ((3, 64), (1, 64), (2, 64), (6, 64), (3, 16), (3, 128))
"""Threads, and MiB of their chunks."""
COPY, OVERLAPPED = "copy to the device", "copy, checksums and columns, chunks overlapped"


@dataclass
class Bench:
    """What steps share.

    Attributes
    ----------
    small : bool
    lines : dict
        What was found, by name.
    """

    small: bool
    lines: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def turns(self) -> int:
        return 2 if self.small else 7

    def of(self, size: int) -> int:
        """How much to take in place of ``size``."""
        return size >> 8 if self.small else size

    def segment(self, codec: str, batch_bytes: int = data.BATCH_BYTES) -> Path:
        """A segment whose records have 64 MiB."""
        return data.segment(codec, self.of(data.SEGMENT_BYTES), batch_bytes)

    def add(self, name: str, took: Times | float, size: float = 0, predicted: float | None = None, **more: Any) -> None:
        """A line: milliseconds, what was read or made in them, and the seconds that the model predicts."""
        best, *middle = (took,) if isinstance(took, float) else took
        line: dict[str, Any] = {"ms": best, **({"median_ms": middle[0]} if middle else {})}
        line |= {"GB/s": size / best / 1e6} if size else {}
        line |= {} if predicted is None else {"predicted": 1e3 * predicted}
        self.say(name, **{what: float(f"{value:.4g}") for what, value in line.items()}, **more)

    def say(self, name: str, **line: Any) -> None:
        """A line of anything."""
        self.lines[name] = line
        print(f"{name:70}" + "".join(f"  {what} {value}" for what, value in line.items()), flush=True)


def ceilings(bench: Bench) -> None:
    """The ceilings, and what the host pays for each call: everything else is to be seen beside them."""
    import cupy

    from kolumn.kernels.machine.cuda import page_locked

    runtime: Any = device.runtime()
    cuda, n = cupy.cuda.runtime, bench.of(1 << 30)
    one, other, host = runtime.empty(n), runtime.empty(n), page_locked(n)
    host[:] = 1
    ordinary = host.copy()
    to, back, within = cuda.memcpyHostToDevice, cuda.memcpyDeviceToHost, cuda.memcpyDeviceToDevice
    for name, target, source, kind, read_and_written, speed in (
        ("copy to the device, page-locked", one.address, host.ctypes.data, to, 1, gpu_model.PAGE_LOCKED),
        ("copy to the host, page-locked", host.ctypes.data, one.address, back, 1, gpu_model.BACK),
        ("copy to the device, ordinary memory", one.address, ordinary.ctypes.data, to, 1, gpu_model.PAGEABLE),
        ("copy on the device, bytes read and written", other.address, one.address, within, 2, gpu_model.MEMORY),
    ):
        took = events(runtime, partial(cuda.memcpyAsync, target, source, n, kind, runtime.stream.ptr), bench.turns)
        bench.add(name, took, read_and_written * n, read_and_written * n / speed)
    half = n // 2
    with ThreadPoolExecutor(1) as pool:
        second: Any = pool.submit(device.runtime).result()

        def both_ways() -> None:
            cuda.memcpyAsync(one.address, host.ctypes.data, half, to, runtime.stream.ptr)
            cuda.memcpyAsync(host.ctypes.data + half, other.address, half, back, second.stream.ptr)
            runtime.synchronize()
            second.synchronize()

        bench.add("copies both ways at once, sum", walls(both_ways, bench.turns), n)
    part = bench.of(64 << 20)
    bench.add("page-locking 64 MiB", walls(lambda: page_locked(part), 2), part, part / gpu_model.LOCKED)
    bench.add("touching 64 MiB of fresh memory", walls(lambda: np.empty(part, np.uint8).fill(1), 2), part)
    bench.add("copy on the host", walls(lambda: np.copyto(ordinary[:half], host[:half]), 2), half)

    count = bench.of(1024)

    def many(call: Callable[[], object]) -> Times:
        return walls(lambda: [call() for _ in range(count)], 2)

    for name, call, seconds in (
        ("launches", lambda: runtime.launch(sizes, 8, Sizes(one.address, other.address)), gpu_model.HOST["launches"]),
        ("downloads of 4 bytes", lambda: runtime.download(one, 4), gpu_model.HOST["waits"]),
        ("allocations", lambda: runtime.empty(bench.of(1 << 20)), gpu_model.HOST["allocations"]),
    ):
        bench.add(f"{count} {name}", many(call), predicted=count * seconds)
        runtime.synchronize()


def binary(runtime: Runtime, payloads: DevicePayloads) -> Binary:
    """Payloads copied into a column."""
    measured = measure(runtime, payloads)
    return moved(runtime, measured, *map(number_of, runtime.downloads(measured.wanted)))


def right(bench: Bench) -> None:
    """Are columns the CPU's, byte for byte, and are exactly those checksums wrong that are?"""
    path, runtime = bench.segment("none"), device.runtime()
    one, rows = np.fromfile(path, np.uint8), _rows(path)
    host, every = np.tile(one, COPIES), _repeated(rows, len(one), COPIES)
    source, there = runtime.upload(host), runtime.upload(every)
    done = decode(runtime, there, *_payloads(source.address, every), layouts.KAFKA, True, False)
    assert done.records is not None, f"{done.bad.sum()} batches are called wrong"
    found = {}
    for name, payloads in (("key", done.records.key), ("value", done.records.value)):
        made = binary(runtime, payloads)
        ends, text = runtime.downloads([(made.ends, 4 * (made.rows + 1), 0), (made.data, made.size, 0)])
        found[name] = pa.Array.from_buffers(pa.binary(), made.rows, [None, pa.py_buffer(ends), pa.py_buffer(text)])
    for name, memory in (("offset", done.records.offset), ("timestampMs", done.records.timestamp)):
        found[name] = pa.array(runtime.download(memory, 8 * done.records.rows).view(np.int64))
    expected = pa.concat_tables([kolumn.read(path, columns=list(found), backend="cpu")] * COPIES)
    different = [name for name, column in found.items() if not expected[name].equals(pa.chunked_array([column]))]
    assert not different, f"not what the CPU has: {different}"
    rng = np.random.default_rng(5)
    wrong = np.sort(rng.choice(len(every), len(every) // 100 + 1, replace=False))
    begin, end = every[wrong, table.POSITION] + every[wrong, table.CRC_FROM], every[wrong, table.POSITION] + every[wrong, table.SIZE]
    host[rng.integers(begin, end)] ^= np.uint8(1) << rng.integers(0, 8, len(wrong)).astype(np.uint8)
    damaged = runtime.upload(host)
    flagged = np.flatnonzero(bad_checksums(runtime, damaged.address, there, len(every)))
    assert np.array_equal(flagged, wrong), f"{len(wrong)} damaged batches, {len(flagged)} checksums are called wrong"
    bench.say("equal the CPU's", rows=len(expected), damaged_batches_found=len(wrong), of=len(every))


def resident(batch_bytes: int, copies: int, bench: Bench) -> None:
    """Checksums and columns of what is on the device, and the kernels of both, in batches of a size; 1 MiB: with values of any length."""
    large = batch_bytes == 1 << 20
    path = any_lengths(bench) if large else bench.segment("none", batch_bytes)
    one, rows = np.fromfile(path, np.uint8), _rows(path)
    work = gpu_model.plain(copies * len(one), copies * len(rows))
    counted = large or batch_bytes == data.BATCH_BYTES
    before = f"{copies * 64} MiB in batches of {batch_bytes >> 10} KiB:"
    with ThreadPoolExecutor(1) as pool:
        steps = steps_of(np.empty(copies * len(one), np.uint8), one, rows, copies, bench.of(64 << 20), pool)
    for step, model in (("checksums", gpu_model.checksums), ("columns", gpu_model.columns)):
        took = events(device.runtime(), steps[step], bench.turns)
        bench.add(f"{before} {step}", took, work.bytes, model(work) if counted else None, batches=work.batches)
    with Watch() as watch:
        for _ in range(bench.turns):
            steps["checksums"]()
            steps["columns"]()
    _kernels(bench, before, watch, work if counted else None)


def _kernels(bench: Bench, before: str, watch: Watch, work: gpu_model.Work | None) -> None:
    """A line for each kernel, beside what the model has of it."""
    for name, each in sorted(watch.each.items(), key=lambda one: -sum(one[1])):
        if name != "upload":
            known = work is not None and name in COSTS[work.way]
            bench.add(f"{before} kernel {name}", mean(each), 0, gpu_model.seconds(name, work) if known else None, launches=len(each))  # type: ignore[arg-type]


def overlapped(bench: Bench) -> None:
    """Page-locked host memory to columns, in chunks by several threads as a read does it: what is copied meanwhile costs nothing."""
    from kolumn.kernels.machine.cuda import page_locked

    path = bench.segment("none")
    device.runtime()
    one, rows = np.fromfile(path, np.uint8), _rows(path)
    host = page_locked(COPIES * len(one))
    for threads, mib in OVERLAPS:
        chunk_bytes = bench.of(mib << 20)
        with ThreadPoolExecutor(threads) as pool:
            steps = steps_of(host, one, rows, COPIES, chunk_bytes, pool)
            if (threads, mib) == OVERLAPS[0]:
                bench.add(COPY, events(device.runtime(), steps[COPY], bench.turns), len(host), len(host) / gpu_model.PAGE_LOCKED)
            expected = gpu_model.overlapped(gpu_model.plain(len(host), COPIES * len(rows)), chunk_bytes)
            bench.add(f"{OVERLAPPED}: {threads} threads, {mib} MiB", walls(steps[OVERLAPPED], bench.turns), len(host), expected)


def codec(name: str, bench: Bench) -> None:
    """A chunk of a codec by one thread, from page-locked memory to columns, and nvCOMP in it by the size of what it decompresses."""
    from kit.device_columns import resident as to_device

    for size in BLOCKS:
        if (name == "none" and size != BLOCKS[0]) or not fits(name, size):
            continue
        path = bench.segment(name, size)
        read = partial(to_device, path, "binary", columns=COLUMNS, threads=1, trusted=True)
        plain = RECORD_BYTES["16 KiB"] * sum(one.num_rows for one in read())
        watches = []
        for _ in range(bench.turns):
            with Watch() as watch:
                read()
            watches.append(watch)
        model = size == data.BATCH_BYTES
        if name != "none":
            took = times([sum(one.each["inflate"]) for one in watches])
            bench.add(f"{name}: nvCOMP, batches of {size >> 10} KiB", took, plain, gpu_model.inflate(name, round(plain)) if model else None)
        expected = gpu_model.chunk(name, path.stat().st_size, gpu_model.plain(round(plain), len(_rows(path)))) if model else None
        bench.add(f"{name}: a chunk to columns, batches of {size >> 10} KiB", times([one.span for one in watches]), plain, expected)


def files(name: str, bench: Bench) -> None:
    """A topic of a codec from files in the page cache: to columns on the device, and to Arrow by the GPU and by all cores of the CPU."""
    from kit.device_columns import resident as to_device

    most = Options.of().threads
    with TemporaryDirectory(dir=data.FOLDER) as folder:
        topic = _topic(name, Path(folder), bench)
        expected, found = (kolumn.read(topic, columns=COLUMNS, backend=backend, trusted=True) for backend in ("cpu", "gpu"))
        assert found.equals(expected), "not what the CPU has"
        plain = RECORD_BYTES["16 KiB"] * len(expected)
        del expected, found
        if name == "none":
            _files_alone(topic, bench)
        for threads in sorted({3, 6, most}):
            took = walls(partial(to_device, topic, "binary", columns=COLUMNS, threads=threads, trusted=True), min(bench.turns, 3))
            bench.add(f"{name}: files to columns on the device, {threads} threads", took, plain)
        for backend in ("gpu", "cpu"):
            took = walls(partial(kolumn.read, topic, columns=COLUMNS, backend=backend, trusted=True), min(bench.turns, 3))
            bench.add(f"{name}: files to Arrow by the {backend.upper()}, {most} threads", took, plain)
        bench.say(f"{name}: batches that the CPU decompressed", count=kolumn.verify(topic, backend="gpu", trusted=True).inflated_by_cpu)


def _files_alone(topic: Path, bench: Bench) -> None:
    """Files into page-locked memory: no read of them is faster."""
    from kolumn.kernels.machine.cuda import page_locked

    paths = sorted(topic.glob("*.log"))
    targets = [page_locked(path.stat().st_size) for path in paths]

    def fill(path: Path, target: Bytes) -> None:
        with path.open("rb", buffering=0) as file:
            at = 0
            while at < len(target):
                at += file.readinto(target[at:].data) or len(target)

    def together(pool: ThreadPoolExecutor) -> None:
        list(pool.map(fill, paths, targets))

    for threads in (1, 3, 6, 8):
        with ThreadPoolExecutor(threads) as pool:
            took = walls(partial(together, pool), 3)
        bench.add(f"files to page-locked memory, {threads} threads", took, sum(map(len, targets)))


def values(way: str, bench: Bench) -> None:
    """Typed values on the device: orders of `bench.value_data`, again and again, and the kernels that they take."""
    from kit import ptx_decode

    runtime, given = device.runtime(), ptx_decode.orders(way)
    often = max(bench.of(gpu_model.CHUNK) // sum(map(len, given)), 1)
    lengths = np.tile(np.array([len(one) for one in given], np.int32), often)
    text = runtime.upload(np.frombuffer(b"".join(given) * often, np.uint8))
    ends = np.cumsum(lengths, dtype=np.int64)
    payloads = DevicePayloads(runtime.upload(text.address + ends - lengths), runtime.upload(lengths), len(lengths))
    options: Any = {f"value_{name}": one for name, one in ptx_decode.VALUES[way].items()} | {"value_as": "columns"}
    chosen = Values.of(with_types(Options.of(**options), [], []).typed[0])
    step: Callable[[], Any] = partial(
        typed_columns,
        runtime,
        cast(DeviceRecords, SimpleNamespace(value=payloads)),
        chosen,
        ["value", "valueValid"],
        "binary",
        LostValues(),
    )
    assert runtime.download(step()["valueValid"].data, len(lengths)).all(), "values are called wrong"
    work = gpu_model.Work(way, int(ends[-1]), 0)
    bench.add(way, events(runtime, step, bench.turns), work.bytes, gpu_model.values(work), rows=len(lengths))
    with Watch() as watch:
        step()
    _kernels(bench, f"{way}:", watch, work)


def parquet(bench: Bench) -> None:
    """What an expert would compare with: libcudf's reader of Parquet, the same rows in a file, beside `read_pylibcudf` of the topic."""
    import pyarrow.parquet as pq
    import rmm
    from pylibcudf.io import SourceInfo
    from pylibcudf.io import parquet as libcudf

    with TemporaryDirectory(dir=data.FOLDER) as folder:
        topic = _topic("none", Path(folder), bench)
        rows = kolumn.read(topic, columns=COLUMNS, backend="cpu")
        plain = RECORD_BYTES["16 KiB"] * len(rows)
        bench.add("read_pylibcudf", walls(partial(kolumn.read_pylibcudf, topic, columns=COLUMNS, payload="string", trusted=True), 3), plain)
        for codec in ("none", "snappy", "zstd"):
            path = Path(folder, f"{codec}.parquet")
            pq.write_table(rows, path, compression=codec, use_dictionary=False)
            options = libcudf.ParquetReaderOptions.builder(SourceInfo([str(path)])).build()

            def read(options: Any = options) -> None:
                libcudf.read_parquet(options)
                rmm.pylibrmm.stream.DEFAULT_STREAM.synchronize()

            bench.add(f"libcudf's reader of Parquet, {codec}", walls(read, 3), plain, file_bytes=path.stat().st_size)


def steps_of(
    host: Bytes, one: Bytes, rows: Rows, copies: int, chunk_bytes: int, pool: ThreadPoolExecutor
) -> dict[str, Callable[[], object]]:
    """Work for a device by name: the copy, checksums, columns, and all in chunks that overlap.

    Parameters
    ----------
    host : uint8 array
        Is filled with ``copies`` of ``one``, a segment whose entries are ``rows``.
    chunk_bytes : int
        What a thread of ``pool`` takes at a time in the last step, about.
    """
    host.reshape(copies, -1)[:] = one
    every = _repeated(rows, len(one), copies)
    runtime = device.runtime()
    source, there = runtime.upload(host), runtime.upload(every)

    def checksums(own: Any, origin: int, batches: Any, rows: Rows) -> None:
        assert not bad_checksums(own, origin, batches, len(rows)).any()

    def columns(own: Any, origin: int, batches: Any, rows: Rows) -> None:
        done = decode(own, batches, *_payloads(origin, rows), layouts.KAFKA, True, False, counts=rows[:, table.COUNT])
        assert done.records is not None, done.bad.sum()
        binary(own, done.records.key)
        binary(own, done.records.value)

    def chunk(some: slice) -> None:
        own, mine = device.runtime(), every[some]
        begin, end = int(mine[0, table.POSITION]), int(mine[-1, table.POSITION] + mine[-1, table.SIZE])
        sent, batches = own.upload(host[begin:end]), own.upload(mine)
        checksums(own, sent.address - begin, batches, mine)
        columns(own, sent.address - begin, batches, mine)
        own.synchronize()

    def overlapped() -> None:
        places = np.searchsorted(every[:, table.POSITION], np.arange(0, len(host), chunk_bytes)).tolist()
        for done in [pool.submit(chunk, slice(*some)) for some in zip(places, [*places[1:], len(every)], strict=True)]:
            done.result()

    return {
        COPY: lambda: runtime.upload(host),
        "checksums": lambda: checksums(runtime, source.address, there, every),
        "columns": lambda: columns(runtime, source.address, there, every),
        OVERLAPPED: overlapped,
    }


def _rows(path: Path) -> Rows:
    (segment,) = find_segments(str(path))
    with SegmentFile(segment) as file:
        return np.concatenate([chunk.entries.array for chunk in chunks(file, 0, file.size, 8 << 20)])


def _repeated(rows: Rows, size: int, copies: int) -> Rows:
    """The entries of a segment of ``size`` bytes that stands there so many times."""
    every = np.tile(rows, (copies, 1))
    every[:, table.POSITION] += np.repeat(size * np.arange(copies), len(rows))
    return every


def _payloads(origin: int, rows: Rows) -> tuple[Any, Any]:
    """Where the records of entries are, and their bytes."""
    return origin + rows[:, table.POSITION] + rows[:, table.PAYLOAD], rows[:, table.SIZE] - rows[:, table.PAYLOAD]


def any_lengths(bench: Bench) -> Path:
    """A segment of 64 MiB in batches of 1 MiB, whose values have any length."""
    path = data.FOLDER / f"any-{bench.of(64 << 20)}-0" / f"{0:020d}.log"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name("draft.log")
        data.write_any_lengths(draft, bench.of(64 << 20), 1 << 20)
        draft.rename(path)
    return path


def _topic(codec: str, folder: Path, bench: Bench) -> Path:
    """A partition of 8 segments; of 2, if they are small."""
    topic, base = folder / f"{codec}-0", 0
    topic.mkdir()
    raw = bench.segment(codec).read_bytes()
    for _ in range(2 if bench.small else 8):
        (topic / f"{base:020d}.log").write_bytes(data.rebase(raw, base))
        base += data.records(raw)
    return topic


def fits(codec: str, size: int) -> bool:
    """`bench.data` writes frames of lz4 for blocks of at most 64 KiB."""
    return codec != "lz4" or size <= 64 << 10


STEPS: dict[str, Callable[[Bench], None]] = {
    "copies": ceilings,
    "right": right,
    "resident": partial(resident, data.BATCH_BYTES, COPIES),
    "overlapped": overlapped,
    "large": partial(resident, 1 << 20, 1),
    **{f"files {name}": partial(files, name) for name in ("none", "zstd", "lz4", "gzip", "snappy")},
    **{f"codec {name}": partial(codec, name) for name in data.CODECS},
    **{way: partial(values, way) for way in gpu_model.VALUES},
    **{f"batches {size}": partial(resident, size, 4) for size in BATCHES},
    "parquet": parquet,
}
"""In the order of what is lost without them."""
