"""What a card should take, by what the kernels cost: python -m bench.gpu_model. A prediction, not a measurement; no device is needed.

Five things limit a kernel, each by itself:

    issue      instructions, four at most in each cycle of a multiprocessor, less where they wait for each other
    lines      of 128 bytes, one in a cycle by the first-level cache
    shared     turns of shared memory, one in a cycle
    memory     bytes of sectors, by the device's memory
    latency    a warp's loads and its instructions one after the other, times the rounds in which warps fit the device

A kernel takes at least as long as the slowest of them, and longer where two are near each other, since then warps wait in two queues. How
much longer, `together` says: warps are the customers of a closed network of queues. If the limits did not overlap at all, their times would
add up; `python -m bench.gpu_model` prints that too, for the two largest of each kernel.

Instructions, lines, bytes, turns and loads are counted (`bench.gpu_costs`). What is assumed or was measured stands below, with its source.
"""

import math
from dataclasses import dataclass

from bench.gpu_costs import COSTS, RECORD_BYTES, Limits
from kolumn.kernels.fields.hop import FEW, LARGE, SLICES

GIB = 1 << 30
CARDS = {
    "H200": (132, 4.25e12), "H100": (132, 3.0e12), "A100": (108, 0.88 * 2.039e12), "L4": (58, 0.88 * 0.3e12), "B200": (148, 0.88 * 8e12),
}  # fmt: skip
"""Multiprocessors, and bytes of memory in a second: as they were copied on H200 and H100, of others 0.88 of NVIDIA's data sheet."""
(MULTIPROCESSORS, MEMORY), CLOCK = CARDS["H200"], 1.98e9
"""The clock is the highest one of an H200 SXM, by NVIDIA's data sheet."""
ISSUED = 2.5
"""Instructions in a cycle of a multiprocessor, of the 4 that it can issue: an assumption."""
LOAD, DEPENDENT, SHARED = 800, 4.5, 30
"""Cycles: of a load from memory while others load, of an instruction that the next one waits for, of shared memory and of a shuffle. From
published microbenchmarks of sm_80 and sm_90; the first is between 650 and 900, and an assumption."""
WAITS = {"checksums": 1, "columns": 3}
"""Downloads of the steps of `bench.gpu_decode`; `tests/gpu/test_bench.py` counts them."""
PAGE_LOCKED, BACK, PAGEABLE = 55.6e9, 55.4e9, 9.8e9
"""Bytes in a second over PCIe 5.0 x16, of 63e9 by its specification: to the device, from it, and to it from ordinary memory. Measured with
an H200 (`bench/results/gpu-h200.json`, "before"); ordinary memory depends on the host, another one had 6.6e9."""
LOCKED = 2.3e9
"""Bytes of host memory that are page-locked in a second, from the same results."""
NVCOMP = {"gzip": 16.3e9, "snappy": 107e9, "lz4": 27.3e9, "zstd": 9.0e9}
"""Bytes of records in a second that nvCOMP 5.3.0.16 made with that H200 of 4,121 blocks of 16 KiB, each with the room that the codec can
need: "room as planned" in the same results. Each call had 64 MiB of room, so that zstd and lz4 took several; one takes less time."""
COMPRESSED = {"none": 1.0, "gzip": 0.518, "snappy": 0.767, "lz4": 0.739, "zstd": 0.503}
"""What is left of a segment of `bench.data`."""
STORAGE = {"one NVMe drive": 7e9, "four NVMe drives": 28e9}
"""Bytes in a second of a read: a drive on PCIe 4.0 x4 by common data sheets."""
SASS = {"check": 1.05}
"""Machine instructions for a PTX instruction: of `check`, where its loop was read; of all others 1.6, as was found for five kernels."""
OTHER_SASS = 1.6
RESIDENT = {
    "check": 40, "fields": 40, "fronts": 48, "hop_sliced": 16, "hop_staged": 28, "measure_messages": 20, "measure_values": 24,
    "write_messages": 28, "write_values": 28,
}  # fmt: skip
"""Warps that fit a multiprocessor, of 64, by what ptxas makes of the kernels for sm_90: `tests/gpu/test_ptx_budgets.py` compares."""
AHEAD = {"check": 4, "gather": 2, "gather_short": 2, "validity": 8, "fields": 2, "hop_staged": 8, "hop_sliced": 8, "join": 4, "texts": 2}
"""Loads of a warp that wait together, by the source of the kernels."""
LANES_APART = {"measure_values": 1.57, "write_values": 1.53, "measure_messages": 1.44, "write_messages": 1.5}
"""Instructions and loads of a warp whose lanes are at different steps of a program, by those that `bench.gpu_costs` has, which counts as
if lanes at the same place always met. A recount of these orders with the lanes of each warp in lockstep, those first that are furthest
behind; which of them a GPU lets go first is an assumption. They were counted when both passes walked the whole value. A recount of today's
kernels says 1.07 to 1.17 where lanes that are furthest behind in the text go first, and up to 1.6 where lanes meet again only after a fork.
"""
TABLE_ROW = 200
"""Bytes of a batch in the batch table."""
CHUNK = 64 << 20
VALUES = {
    "values: Avro": ("fronts", "measure_values", "flag_bits", "texts", "write_values"),
    "values: flat Avro": ("fronts", "measure_values", "flag_bits", "texts"),
    "values: Protobuf": ("fronts", "measure_messages", "flag_bits", "texts", "write_messages"),
}
"""Launches for the typed values of a chunk, which `tests/gpu/test_ptx_budgets.py` compares."""
HOST = {"launches": 9.4e-6, "scans": 19e-6, "waits": 25.7e-6, "allocations": 3.6e-6, "memsets": 5e-6, "uploads": 10e-6}
"""Seconds of the host for each call. Launches, downloads of 4 bytes and allocations were measured with an H200 (the same results); the
others are assumptions, CUB's sums two launches."""
ASKED = {
    "values: Avro": {"launches": 5, "scans": 1, "waits": 2, "allocations": 8, "memsets": 1, "uploads": 3},
    "values: flat Avro": {"launches": 4, "scans": 1, "waits": 2, "allocations": 8, "memsets": 1, "uploads": 3},
    "values: Protobuf": {"launches": 5, "scans": 1, "waits": 2, "allocations": 10, "memsets": 1, "uploads": 5},
}
"""What the typed values of a chunk ask of the driver, which the same test compares."""
CELLS = {"values: Avro": 4, "values: flat Avro": 2, "values: Protobuf": 4}
"""int64 of each value that are summed after the first pass: one for each list, and one for each column of text or bytes."""
ANSWER = 20e-6
"""Seconds until a process has the answer of another one to a frame: Python and a JVM, by a socket, took 11 to 23 microseconds on two cores
that had other work too."""
EXECUTOR = {"launches": 11, "scans": 5, "waits": 3, "allocations": 10, "memsets": 1, "uploads": 4}
"""What key, value, offset and timestamp of a chunk without a codec ask of an executor's GPU (`tests/spark/test_executor.py` compares).
Waits and allocations are answered. RAPIDS' sums are not in place: each is an allocation and a copy more."""
EXECUTOR_CHUNK, EXECUTOR_TASKS = 128 << 20, 2
"""Bytes that a task has on the GPU at a time, and tasks there (``spark.rapids.sql.concurrentGpuTasks``)."""
SUMMED, EACH_SUM = 1.5e12, 12e-6
"""Of a sum: bytes in a second that it reads and writes, and seconds of the device besides. By two measurements with an H200."""
IN_EXECUTOR = f"{EXECUTOR_CHUNK >> 20} MiB in a Spark executor, {EXECUTOR_TASKS} tasks at a time"
GOALS = {
    IN_EXECUTOR: ("of the copy", 0.9),
    "columns": ("GB/s", 450),
    "checksums": ("GB/s", 1500),
    "copy, checksums and columns, chunks overlapped": ("of the copy", 0.9),
    f"a chunk of {CHUNK >> 20} MiB in batches of 1 MiB": ("GB/s", 100),
}
"""By the step: unit, and the least that is good enough."""


@dataclass(frozen=True)
class Work:
    """A run of batches.

    Attributes
    ----------
    way : str
        Of `COSTS`.
    bytes : int
    batches : int
    """

    way: str
    bytes: int
    batches: int

    @property
    def records(self) -> float:
        """How many there are."""
        return self.bytes / RECORD_BYTES[self.way]


def plain(size: int, batches: int) -> Work:
    """Batches without a codec, by the kernel that finds their records."""
    return Work("16 KiB" if batches >= FEW else "1 MiB" if size >= LARGE * batches else "16 KiB, few", size, batches)


def choose(device: str) -> str:
    """Predict for the card that a device's name says; the card, "H200" where it says none that is known."""
    global MULTIPROCESSORS, MEMORY
    card = next((one for one in CARDS if one in device.split("-")[0].split()), "H200")
    MULTIPROCESSORS, MEMORY = CARDS[card]
    return card


def warps(kernel: str, work: Work) -> float:
    """How many warps a launch has."""
    per_record = {"gather": 8 / 32, "gather_short": 4 / 32, "texts": 4 / 32, "validity": 1 / 1024, "flag_bits": 1 / 1024}
    if kernel in per_record or work.way in VALUES or kernel in ("fields", "sizes"):
        return max(work.records * per_record.get(kernel, 1 / 32), 1)
    if kernel == "hop_staged":
        return work.batches
    if kernel == "hop_sliced":
        return SLICES * work.batches
    if kernel == "check":
        return work.batches * _slices(work)
    return max(work.batches / 32, 1)


def _slices(work: Work) -> int:
    """Slices of an entry, as `kolumn.kernels.check` makes them."""
    return max(min(-(-MULTIPROCESSORS * RESIDENT["check"] // work.batches), 64, work.bytes // work.batches >> 14), 1)


def limits(kernel: str, work: Work) -> dict[str, float]:
    """Seconds of a launch by each of what its warps share."""
    cost, records = _cost(kernel, work), work.records
    sass = SASS.get(kernel, OTHER_SASS)
    cycles = CLOCK * MULTIPROCESSORS
    of_warp = warps(kernel, work)
    rounds = math.ceil(of_warp / (MULTIPROCESSORS * RESIDENT.get(kernel, 64)))
    # A thread for each batch: the warp that was counted is like all others.
    by_batch = kernel in ("hop", "join")
    instructions = cost.longest if by_batch else records * cost.instructions / of_warp
    instructions *= LANES_APART.get(kernel, 1)
    issued = instructions * of_warp * sass
    wait = instructions * sass * DEPENDENT + math.ceil(_loads(kernel, work) / AHEAD.get(kernel, 1)) * LOAD
    if kernel in ("hop_staged", "hop_sliced"):
        # The loads of the next window are on their way while lanes hop in this one, with some ten shuffles, votes and look-ups. Where
        # lengths differ, lane 0 hops alone, and each record is a look-up. Slices are hopped through twice, after a search.
        windows, hopped = work.bytes / of_warp / 2048, work.records / of_warp
        searched = 0.0
        if kernel == "hop_sliced":
            windows, hopped = 2 * windows, 2 * hopped
            searched = max(cost.waits - 8 * windows, 0) * LOAD
        wait = searched + windows * max(LOAD, instructions * sass * DEPENDENT / windows + 10 * SHARED) + hopped * SHARED
    return {
        "issue": issued / (ISSUED * cycles),
        "lines": records * cost.lines / cycles,
        "shared": records * cost.turns / cycles,
        "memory": records * cost.bytes / MEMORY,
        "latency": rounds * wait / CLOCK if rounds < 8 else of_warp / (MULTIPROCESSORS * RESIDENT.get(kernel, 64)) * wait / CLOCK,
    }


def _loads(kernel: str, work: Work) -> float:
    """Loads of a warp, one after the other."""
    if kernel == "check":
        return work.bytes / warps(kernel, work) / 128
    return _cost(kernel, work).waits * LANES_APART.get(kernel, 1)


def _cost(kernel: str, work: Work) -> Limits:
    """What a record costs; kernels of columns cost values what they cost others."""
    return COSTS[work.way].get(kernel) or COSTS["16 KiB"][kernel]


def seconds(kernel: str, work: Work, apart: bool = False) -> float:
    """Of a launch on the device; ``apart``: if the two largest limits did not overlap."""
    by = limits(kernel, work)
    there = int(min(RESIDENT.get(kernel, 64), max(warps(kernel, work) // MULTIPROCESSORS, 1)))
    return (sum(sorted(by.values())[-2:]) if apart else together(by, there)) + 2e-6


def together(by: dict[str, float], customers: int) -> float:
    """Seconds of a kernel with some warps on a multiprocessor, by mean value analysis (Reiser and Lavenberg, 1980).

    Issue, lines, shared memory and memory are queues, a warp's own latency is the time between its visits. The analysis takes times of
    service for random, which real ones are not: it says rather too much.
    """
    think = customers * by["latency"]
    waiting = dict.fromkeys(set(by) - {"latency"}, 0.0)
    rate = 0.0
    for present in range(1, customers + 1):
        stay = {one: by[one] * (1 + waiting[one]) for one in waiting}
        rate = present / (think + sum(stay.values()))
        waiting = {one: rate * stay[one] for one in waiting}
    return 1 / rate


def checksums(work: Work, apart: bool = False) -> float:
    """The step: the launch, its flags, and the batch table if it is not on the device."""
    kernels = seconds("check", work, apart) + (seconds("join", work, apart) if _slices(work) > 1 else 0)
    return max(kernels, 2 * HOST["launches"]) + WAITS["checksums"] * HOST["waits"]


def columns(work: Work, apart: bool = False) -> float:
    """Keys and values of batches on the device: hop, fields, and for each column sizes, sum, validity, gather."""
    hop = {"16 KiB": "hop", "16 KiB, few": "hop_staged", "1 MiB": "hop_sliced"}[work.way]
    names = (hop, "fields", "sizes", "sizes", "validity", "validity", "gather_short", "gather")
    kernels = [seconds(one, work, apart) for one in names]
    # A sum reads and writes what it sums: 4 bytes for each row of a column.
    sums = 2 * (2 * 4 * work.records / SUMMED + EACH_SUM)
    asked = len(kernels) * HOST["launches"] + 2 * HOST["scans"]
    return max(sum(kernels) + sums, asked) + WAITS["columns"] * HOST["waits"]


def values(work: Work, apart: bool = False) -> float:
    """Typed values on the device: their launches, the sum of their cells, and the host's calls, since the device is idle after waits."""
    kernels = sum(seconds(one, work, apart) for one in VALUES[work.way])
    sums = 2 * 8 * CELLS.get(work.way, 0) * work.records / SUMMED
    return kernels + sums + sum(count * HOST[call] for call, count in ASKED[work.way].items())


def chunk(codec: str, size: int, work: Work, apart: bool = False) -> float:
    """A chunk of ``size`` bytes from page-locked memory to columns: copy, checksums, nvCOMP and columns one after the other, in one part.

    Only the card's memory and multiprocessors differ between cards: what nvCOMP makes is what it made with an H200, see `NVCOMP`.
    """
    there = (size + TABLE_ROW * work.batches) / PAGE_LOCKED + checksums(Work(work.way, size, work.batches), apart)
    return there + inflate(codec, work.bytes) + columns(work, apart)


def inflate(codec: str, size: int) -> float:
    """Decompressing blocks of 16 KiB to ``size`` bytes."""
    return size / NVCOMP[codec] if codec in NVCOMP else 0.0


def overlapped(work: Work, size: int, apart: bool = False) -> float:
    """Copy, checksums and columns in chunks of ``size`` bytes: what is not the copy of one is done while others are copied."""
    count = max(round(work.bytes / size), 1)
    own = plain(work.bytes // count, work.batches // count)
    after = checksums(own, apart) + columns(own, apart)
    return max((work.bytes + TABLE_ROW * work.batches) / PAGE_LOCKED, count * after) + after


def executor(apart: bool = False) -> float:
    """A chunk of a task in an executor, from page-locked memory to columns, while others copy and decode theirs: by mean value analysis,
    with PCIe and the device as queues, and the host's calls and answers as the time between visits of a task."""
    own = plain(EXECUTOR_CHUNK, EXECUTOR_CHUNK >> 14)
    # On the device alone: what the host does is counted below.
    device = seconds("check", own, apart) + columns(own, apart) - WAITS["columns"] * HOST["waits"]
    asked = sum(count * HOST[call] for call, count in EXECUTOR.items()) + EXECUTOR["scans"] * (HOST["allocations"] + HOST["launches"])
    answers = (EXECUTOR["waits"] + EXECUTOR["allocations"]) * ANSWER
    copy = (own.bytes + TABLE_ROW * own.batches) / PAGE_LOCKED
    return together({"copy": copy, "device": device, "latency": (asked + answers) / EXECUTOR_TASKS}, EXECUTOR_TASKS)


def predictions(apart: bool = False) -> dict[str, dict[str, float]]:
    """What is predicted of each step of `bench.gpu_decode`, and of what that does not measure; ``apart`` as in `seconds`.

    Returns
    -------
    dict
        By the step: "ms", "GB/s", and for shares "of the copy".
    """
    whole = plain(GIB, GIB >> 14)
    copy = GIB / PAGE_LOCKED
    table = TABLE_ROW * whole.batches
    check, column = checksums(whole, apart), columns(whole, apart)
    found = {
        "copy to the device": copy,
        "copy to the host": GIB / BACK,
        "checksums": check,
        "checksums, batch table uploaded page-locked": check + table / PAGE_LOCKED,
        "checksums, batch table uploaded pageable": check + table / PAGEABLE,
        "columns": column,
        "copy, checksums and columns": copy + table / PAGE_LOCKED + check + column,
    }
    shown = {name: {"ms": 1e3 * time, "GB/s": GIB / time / 1e9} for name, time in found.items()}
    chunks = overlapped(whole, CHUNK, apart)
    shown["copy, checksums and columns, chunks overlapped"] = {"ms": 1e3 * chunks, "GB/s": GIB / chunks / 1e9}
    for name in ("copy, checksums and columns", "copy, checksums and columns, chunks overlapped"):
        shown[name]["of the copy"] = 1e3 * copy / shown[name]["ms"]
    own = executor(apart)
    shown[IN_EXECUTOR] = {"ms": 1e3 * own, "GB/s": EXECUTOR_CHUNK / own / 1e9, "of the copy": EXECUTOR_CHUNK / PAGE_LOCKED / own}
    for size in (CHUNK, 2 * CHUNK):
        large = plain(size, size >> 20)
        time = checksums(large, apart) + columns(large, apart)
        shown[f"a chunk of {size >> 20} MiB in batches of 1 MiB"] = {"ms": 1e3 * time, "GB/s": size / time / 1e9}
    for codec, left in COMPRESSED.items():
        time = chunk(codec, round(left * CHUNK), plain(CHUNK, CHUNK >> 14), apart)
        shown[f"{CHUNK >> 20} MiB of {codec} to columns"] = {"ms": 1e3 * time, "GB/s": CHUNK / time / 1e9}
    for way in VALUES:
        time = values(Work(way, CHUNK, 0), apart)
        shown[f"{CHUNK >> 20} MiB of {way}"] = {"ms": 1e3 * time, "GB/s": CHUNK / time / 1e9}
    for name, speed in STORAGE.items():
        shown[f"from files on {name}"] = {"ms": 1e3 * max(GIB / speed, chunks), "GB/s": min(speed, GIB / chunks) / 1e9}
    return {name: {what: round(value, 3) for what, value in one.items()} for name, one in shown.items()}


def main() -> None:
    """Print the steps, what bounds each kernel, and which goals are not predicted to be met."""
    found, apart = predictions(), predictions(apart=True)
    for name, one in found.items():
        share = f"{one['of the copy']:8.2f} of the copy" if "of the copy" in one else ""
        print(f"{name:60s} {one['ms']:9.3f} ms {one['GB/s']:9.1f} GB/s{share}")
    for work in (plain(GIB, GIB >> 14), plain(CHUNK, CHUNK >> 20), *(Work(way, CHUNK, 0) for way in VALUES)):
        what = f"of {work.way}" if work.way in VALUES else f"in {work.batches} batches"
        print(f"\n{work.bytes >> 20} MiB {what}: microseconds by what a kernel's warps share")
        for kernel in COSTS[work.way]:
            by = limits(kernel, work)
            print(
                f"  {kernel:14s}"
                + "".join(f"{what:>9s} {1e6 * time:8.1f}" for what, time in by.items())
                + f"   together {1e6 * seconds(kernel, work):8.1f}, most by {max(by, key=by.__getitem__)}"
            )
    print()
    for step, (unit, least) in GOALS.items():
        met = "is" if found[step][unit] >= least else "is not"
        print(
            f"goal {least} {unit}, {step}: {met} predicted to be met, with {found[step][unit]:.4g}; {apart[step][unit]:.4g} without overlap"
        )


if __name__ == "__main__":
    main()
