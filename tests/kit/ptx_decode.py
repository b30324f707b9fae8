"""Costs of launches, as the machine counts them.

``python -m kit.ptx_decode``, with the root and `tests/` on the path, prints the table of `bench/gpu_costs.py`.

A warp issues an instruction once for all of its lanes: a basic block counts as often as the lane was there that was there most often.
Lanes at different steps of a loop cost more: they may not meet. The k-th time since the last synchronisation that lanes of a warp are at
a load or store counts as one *request*. It touches *sectors* of 32 bytes, in *lines* of 128. Shared memory has 32 banks of 4 bytes: a
request to it takes as many *turns* as there are different words in one bank."""

import math
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from bench import data, value_data
from bench.gpu_costs import Limits

import kolumn
from kit.emulated import Emulated
from kit.ptx import Launch, Machine
from kit.ptx_memory import TRACE_COLUMNS
from kolumn.core.arrays import Int64s
from kolumn.core.lost import LostValues
from kolumn.kernels import check
from kolumn.kernels.fields import hop
from kolumn.kernels.fields.records import DevicePayloads
from kolumn.kernels.machine import device
from kolumn.kernels.machine.kernel import WARP
from kolumn.kernels.values.columns import Values, typed_columns
from kolumn.options import Options
from kolumn.readers.types import with_types

ROOM = 1 << 23
"""Accesses of a launch that can be counted."""


@dataclass(frozen=True)
class Cost:
    """Of a launch."""

    kernel: str
    n: int  # items
    warps: int
    instructions: int  # that warps issue
    longest: int  # instructions of the warp that has most
    # To global memory.
    requests: int
    lines: int
    sectors: int
    waits: int  # requests for loads from global memory of the warp that has most
    fresh: int  # those of the warp that has most of them which touch a line that the warp has not touched before
    turns: int  # of shared memory
    read: int
    written: int  # read, written: Bytes of the sectors that are read, and written, each counted once


@dataclass
class Costs:
    """Costs of all launches of a machine: ``Machine(after=[costs.add], trace=costs.room)``."""

    launches: list[Cost] = field(default_factory=list)
    room: Int64s = field(default_factory=lambda: np.zeros((ROOM, TRACE_COLUMNS), np.int64))

    def add(self, launch: Launch) -> None:
        """Count a launch."""
        issued = launch.issued
        begin, end = launch.shared
        in_shared = (launch.trace[:, 2] >= begin) & (launch.trace[:, 2] < end)
        line, thread, address, width, syncs = launch.trace[~in_shared].T
        request = _requests(line, thread, syncs)
        reads, last = width > 0, address + np.abs(width) - 1
        ends = {
            shift: _different(request, address >> shift) + _different(request, last >> shift, than=address >> shift) for shift in (7, 5)
        }
        touched = np.zeros(len(reads), bool)
        touched[np.unique((thread // WARP << 48) | (address >> 7), return_index=True)[1]] = True
        waits, fresh = (_most(request[which], thread[which] // WARP) for which in (reads, reads & touched))
        read, written = (32 * len(np.unique(address[which] >> 5)) for which in (reads, ~reads))
        turns, requests = _turns(launch.trace[in_shared]), len(np.unique(request))
        work = (launch.kernel.name, launch.n, int((issued > 0).sum()), int(issued.sum()), int(issued.max()))
        self.launches.append(Cost(*work, requests, ends[7], ends[5], waits, fresh, turns, read, written))


def _most(request: Int64s, warp: Int64s) -> int:
    """Requests of the warp that has most of these."""
    return int(np.bincount(np.unique(np.stack([request, warp]), axis=1)[1]).max()) if len(request) else 0


def _requests(line: Int64s, thread: Int64s, syncs: Int64s) -> Int64s:
    """Number of the request that each access belongs to."""
    order = np.lexsort((np.arange(len(line)), syncs, thread, line))
    line, thread, syncs = line[order], thread[order], syncs[order]
    fresh = np.ones(len(line), bool)
    fresh[1:] = (line[1:] != line[:-1]) | (thread[1:] != thread[:-1]) | (syncs[1:] != syncs[:-1])
    begin = np.maximum.accumulate(np.where(fresh, np.arange(len(line)), 0))
    time = np.arange(len(line)) - begin
    warp = thread // WARP
    fields = (line, 14), (warp, 15), (syncs, 15), (time, 19)
    assert len(line) == 0 or all(int(one.max()) < 1 << bits for one, bits in fields)
    found, key = np.zeros(len(line), np.int64), np.zeros(len(line), np.int64)
    for one, bits in fields:
        found = (found << bits) | one
    key[order] = found
    return np.unique(key, return_inverse=True)[1]


def _different(request: Int64s, place: Int64s, than: Int64s | None = None) -> int:
    """Different places of each request, summed; with ``than`` of the accesses alone that reach beyond it."""
    if than is not None:
        request, place = request[place != than], place[place != than]
    places, number = np.unique(place, return_inverse=True)
    return len(np.unique(request * len(places) + number))


def _turns(trace: Int64s) -> int:
    """Turns of shared memory."""
    if not len(trace):
        return 0
    request, word = _requests(trace[:, 0], trace[:, 1], trace[:, 4]), trace[:, 2] >> 2
    pairs = np.unique(np.stack([request, word]), axis=1)
    banks, counts = np.unique(pairs[0] * 32 + (pairs[1] & 31), return_counts=True)
    most = np.zeros(int(banks.max()) // 32 + 1, np.int64)
    np.maximum.at(most, banks // 32, counts)
    return int(most.sum())


@dataclass(frozen=True)
class Decoded:
    """A read whose launches were counted; and of typed values, what the device was asked for."""

    bytes: int
    records: int
    launches: list[Cost]
    asked: Counter[str] = field(default_factory=Counter)


WAYS = {"16 KiB": (16 << 10, 512 << 10, True), "16 KiB, few": (16 << 10, 512 << 10, False), "1 MiB": (1 << 20, 1 << 20, False)}
"""By name: bytes of a batch and of the segment, and whether to take these for as many as keep a device busy. Values have 100 bytes; in
batches of 1 MiB, where the chain of lengths takes longest, they have 60 to 140."""
HOT = ("check", "join", "count", "hop", "hop_staged", "hop_sliced", "fields", "sizes", "validity", "gather_short", "gather")
"""Kernels of a read of keys and values."""
HOT_OF_VALUES = (
    "fronts", "measure_values", "write_values", "measure_messages", "write_messages", "flag_bits", "texts",
)  # fmt: skip
"""Kernels of typed values."""


def decoded(folder: Path, batch_bytes: int, segment_bytes: int, many: bool) -> Decoded:
    """Read a segment with batches of about ``batch_bytes``. If they are ``many``, each gets a thread of `hop`, and one item of `check`."""
    path = folder / f"{batch_bytes}.log"
    if batch_bytes < 1 << 20:
        path.write_bytes(b"".join(data.batches("none", segment_bytes, batch_bytes)))
    else:
        # All in one.
        data.write_any_lengths(path, segment_bytes, 2 * batch_bytes)
    costs = Costs()
    with pytest.MonkeyPatch.context() as patch, Machine(after=[costs.add], trace=costs.room).watching() as machine:
        if many:
            patch.setattr(hop, "FEW", 1)
            patch.setattr(check, "WARPS", 1)
        expected = kolumn.read(path, columns=["key", "value"], backend="cpu")
        with device.using(Emulated(machine.run)):
            assert kolumn.read(path, columns=["key", "value"], threads=1, backend="gpu") == expected
    return Decoded(path.stat().st_size, len(expected), costs.launches)


FLAT = {**value_data.AVRO, "fields": value_data.AVRO["fields"][:5]}
ORDERS = 1024
VALUES: dict[str, dict[str, Any]] = {
    "values: Avro": {"format": "avro", "schema": value_data.AVRO, "schemas": {7: value_data.AVRO}, "framing": "confluent"},
    "values: flat Avro": {"format": "avro", "schema": FLAT, "skip": 0},
    "values: Protobuf": {"format": "protobuf", "schema": value_data.message()[1].SerializeToString(), "message": "bench.Order"},
}
"""By name: options for typed values without ``value_``, in columns. Values are orders of `bench.value_data`, and parts of them."""


def orders(way: str) -> list[bytes]:
    """Values of a way of `VALUES`."""
    rows = value_data.orders(ORDERS)
    if way == "values: Avro":
        return [b"\0\0\0\0\7" + one for one in value_data.as_avro(rows)]
    if way == "values: flat Avro":
        # An order ends with its items, of which there are none: a byte.
        return [one[:-1] for one in value_data.as_avro([row | {"items": []} for row in rows])]
    return value_data.as_protobuf(rows)


def typed(way: str) -> Decoded:
    """Typed values of a column on the device; the schemas that they name are known."""
    given, how = orders(way), VALUES[way]
    costs = Costs()
    with Machine(after=[costs.add], trace=costs.room).watching() as machine, device.using(runtime := Emulated(machine.run)):
        lengths = np.array([len(one) for one in given], np.int32)
        text = runtime.upload(np.frombuffer(b"".join(given), np.uint8))
        payloads = DevicePayloads(runtime.upload(text.address + np.cumsum(lengths) - lengths), runtime.upload(lengths), len(given))
        options: Any = {f"value_{name}": one for name, one in how.items()} | {"value_as": "columns"}
        values = Values.of(with_types(Options.of(**options), [], []).typed[0])
        for _ in range(2):
            costs.launches.clear()
            runtime.asked.clear()
            found = typed_columns(runtime, SimpleNamespace(value=payloads), values, ["value", "valueValid"], "binary", LostValues())
        assert found["valueValid"].data.bytes.all()
    return Decoded(int(lengths.sum()), len(given), costs.launches, runtime.asked)


def found_by(way: str, folder: Path) -> Decoded:
    """A read of `WAYS`, which writes into a folder, or values of `VALUES`."""
    return decoded(folder, *WAYS[way]) if way in WAYS else typed(way)


def counted(way: str, found: Decoded) -> dict[str, Limits]:
    """What the first launch of each hot kernel cost, as `bench.gpu_costs` has it."""
    hot = HOT if way in WAYS else HOT_OF_VALUES
    first = {one.kernel: one for one in reversed(found.launches) if one.kernel in hot}
    rows = found.records
    return {
        name: Limits(
            one.instructions / rows, one.sectors / rows, one.lines / rows, (one.read + one.written) / rows, one.turns / rows, one.longest,
            one.waits if way in WAYS else one.fresh,
        )
        for name, one in reversed(first.items())
    }  # fmt: skip


def _rounded(value: float) -> str:
    """Up, to three digits, as text."""
    if value == 0 or value >= 1000:
        return str(math.ceil(value))
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f"{math.ceil(value * 10**digits) / 10**digits:.{digits}f}"


def main() -> None:
    """Print the table of `bench.gpu_costs` as it is now."""
    for name in (*WAYS, *VALUES):
        with tempfile.TemporaryDirectory() as folder:
            found = found_by(name, Path(folder))
        print(f'    "{name}": {{  # {found.bytes / found.records:.2f} bytes a record')
        for kernel, costs in counted(name, found).items():
            print(f'        "{kernel}": Limits({", ".join(map(_rounded, costs))}),')
        print("    },")


if __name__ == "__main__":
    main()
