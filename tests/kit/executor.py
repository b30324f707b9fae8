"""An executor's JVM as the connector's worker sees it when it steers a GPU: in this process, with an emulated device."""

import ctypes
import json
import mmap
import os
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import kolumn
from kit.device_columns import as_type
from kit.draft_segments import FORMATS, Maker, damage
from kit.emulated import Emulated, HostMemory
from kit.fuzz import FIRST
from kit.mutate import make_segment, mutate
from kolumn.core.schema import RECORD_COLUMNS
from kolumn.kernels.build import load_all
from kolumn.kernels.columns.table import Column
from kolumn.kernels.machine.kernel import CONCURRENT
from kolumn.spark_plugin.connector import worker
from kolumn.spark_plugin.connector.work import Work
from kolumn.spark_plugin.read.options import LoadOptions
from kolumn.spark_plugin.read.schema import spark_schema
from kolumn.spark_plugin.read.splits import Split, plan_splits, with_types_of

MULTIPROCESSORS = 132
EVERY = ",".join(RECORD_COLUMNS)


def asked(path: Any, **options: Any) -> tuple[list[Split], Work]:
    """Splits and work of a read as Spark plans it."""
    given = with_types_of(LoadOptions.of({"path": str(path), **options}))
    return plan_splits(given), Work(given, spark_schema(given.decode.schema, given.payload))


def on_cpu(split: Split, work: Work) -> tuple[pa.Table, dict[str, Any]] | str:
    """What a worker decodes by itself, and the metrics, or its error."""
    task = worker.Task(split, work)
    batches = []
    try:
        while (one := task.next()) is not None:
            batches.append(one)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return pa.Table.from_batches(batches, task.schema), task.metrics()


def mutants(folder: Path, count: int) -> Iterator[tuple[Split, Work]]:
    """Splits of damaged segments of the shipped formats and the drafts, from the rotating seed on. What fails in planning is left out."""
    for seed in range(FIRST, FIRST + count):
        rng, format = random.Random(seed), "kafka"
        if seed % 3:
            data = mutate(rng, make_segment(rng)).data
        else:
            format = FORMATS[seed // 3 % len(FORMATS)]
            data, _ = damage([entry.data for entry in Maker(format, rng).segment(rng.randint(1, 12))], rng)
        (folder / f"{0:020}.log").write_bytes(data)
        for how in ("raise", "skip"):
            try:
                splits, work = asked(folder, columns=EVERY, includeControl="true", format=format, errors=how, trusted=str(seed % 2 == 0))
            except kolumn.KolumnError:
                continue
            for split in splits:
                yield split, work


def no_rows_below_nulls(column: pa.Array) -> None:
    """cuDF takes it that members of a null struct are null, and that null strings and lists are empty."""
    if len(column) and any(is_kind(column.type) for is_kind in (pa.types.is_string, pa.types.is_binary, pa.types.is_list, pa.types.is_map)):
        lengths = np.diff(np.frombuffer(column.buffers()[1], np.int32, len(column) + 1))
        assert not lengths[column.is_null().to_numpy(zero_copy_only=False)].any(), column.type
    if pa.types.is_struct(column.type):
        for number in range(column.type.num_fields):
            member = column.field(number)
            assert pc.all(pc.or_(member.is_null(), column.is_valid())).as_py() is not False, column.type.field(number)
            no_rows_below_nulls(member)
    elif pa.types.is_list(column.type) or pa.types.is_map(column.type):
        no_rows_below_nulls(column.values)


class _Bytes:
    """Some bytes of an allocation, which lasts as long."""

    def __init__(self, memory: HostMemory, start: int, size: int) -> None:
        self.memory, self.address, self.size = memory, memory.address + start, size
        self.bytes = memory.bytes[start : start + size]


class FailureError(Exception):
    """What a worker says instead of a result."""


class Executor:
    """Executes the frames of a worker, which runs in a thread, on a device.

    ``frames`` counts what came, by letter. ``stop_at``: the number of the frame with an answer to which it says that it wants no more.
    ``temporary``: the bytes that nvCOMP says it needs; the smallest number says that it is not there.
    """

    def __init__(self, device: Emulated, shared: bool = True) -> None:
        self.device, self.frames, self.stop_at, self.temporary = device, Counter[str](), -1, 1000
        self.shared = shared
        self.allocations: dict[int, HostMemory] = {}
        self.maps: dict[int, np.ndarray[Any, Any]] = {}
        ours, theirs = socket.socketpair()
        self._socket, self._kernels = ours, dict[int, str]()
        self._theirs = theirs
        self._worker = worker.Worker(theirs.fileno(), theirs.fileno())
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._socket.close()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        with suppress(worker._Gone):
            self._worker.serve()

    def decode(self, work: str, split: str, schema: pa.Schema) -> tuple[list[pa.RecordBatch], dict[str, Any]]:
        """Record batches of the tables that a split becomes, and the metrics. Raises `FailureError` with the error of the worker."""
        facts = {"shared": self.shared, "arch": 90, "multiprocessors": MULTIPROCESSORS, "memory": self.device.memory}
        question = json.dumps({"op": "decode", "work": work, "split": split, **facts}).encode()
        self._socket.sendall(struct.pack(">i", len(question)) + question)
        tables: list[pa.RecordBatch] = []
        asked = 0
        while True:
            what, size = struct.unpack(">ci", self._receive(5))
            text = self._receive(size)
            name = what.decode()
            self.frames[name] += 1
            if name in "EX":
                break
            if name == "B":
                tables.append(self._table(_Text(text), schema))
                continue
            answer = getattr(self, f"_{name.lower()}")(text)
            if answer is not None:
                asked += 1
                # After it has said stop it says nothing.
                if asked == self.stop_at:
                    self._socket.sendall(b"S")
                elif asked < self.stop_at or self.stop_at < 0:
                    self._socket.sendall(b"O" + answer)
        told: dict[str, Any] = json.loads(text)
        # A JVM closes what a failed worker did not free.
        left = len(self.allocations)
        self.allocations.clear()
        if name == "X":
            raise FailureError(told["error"])
        assert self.stop_at >= 0 or left == 0, f"{left} allocations were not freed"
        return tables, told

    def _receive(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            part = self._socket.recv(size - len(found))
            assert part, "the worker is gone"
            found += part
        return bytes(found)

    def _at(self, address: int, size: int) -> _Bytes:
        """Bytes of the device, which must be of one allocation."""
        for start, memory in self.allocations.items():
            if start <= address and address + size <= start + memory.size:
                return _Bytes(memory, address - start, size)
        raise AssertionError(f"{size} bytes at {address:#x} are in no allocation")

    def _a(self, text: bytes) -> bytes:
        size, zeros = struct.unpack(">q?", text)
        memory = self.device.zeros(size) if zeros else self.device.empty(size)
        self.allocations[memory.address] = memory
        return struct.pack(">q", memory.address)

    def _f(self, text: bytes) -> None:
        del self.allocations[struct.unpack(">q", text)[0]]

    def _m(self, text: bytes) -> None:
        block, descriptor, size = struct.unpack(">iiq", text)
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
        try:
            self.maps[block] = np.frombuffer(mmap.mmap(own, size), np.uint8)
        finally:
            os.close(own)

    def _d(self, text: bytes) -> None:
        del self.maps[struct.unpack(">i", text)[0]]

    def _u(self, text: bytes) -> None:
        (target,) = struct.unpack(">q", text[:8])
        self._at(target, len(text) - 8).bytes[:] = np.frombuffer(text[8:], np.uint8)

    def _c(self, text: bytes) -> None:
        target, block, offset, size = struct.unpack(">qiqq", text)
        self._at(target, size).bytes[:] = self.maps[block][offset : offset + size]

    def _g(self, text: bytes) -> bytes:
        self.device.synchronize()
        (count,) = struct.unpack_from(">i", text)
        wanted = struct.unpack(f">{2 * count}q", text[4:])
        return b"".join(bytes(self._at(*pair).bytes) for pair in zip(wanted[::2], wanted[1::2], strict=True))

    def _k(self, text: bytes) -> None:
        number, length = struct.unpack(">ii", text[:8])
        entry, image = text[8 : 8 + length].decode(), text[8 + length :]
        assert image.startswith(b"\x7fELF") or entry.encode() in image
        self._kernels[number] = entry.removeprefix("kolumn_")

    def _l(self, text: bytes) -> None:
        number, grid, block, n, *args = struct.unpack(f">iii{(len(text) - 12) // 8}q", text)
        kernel = load_all()[self._kernels[number]]
        assert (grid, block) == (kernel.grid(n, CONCURRENT * MULTIPROCESSORS), kernel.block)
        self.device.launch(kernel, n, kernel.args(*args))

    def _r(self, text: bytes) -> None:
        address, count, width = struct.unpack(">qqi", text)
        memory: Any = self._at(address, count * width)
        self.device.running_sum(memory, count, width)

    def _w(self, text: bytes) -> None:
        assert not text

    def _y(self, text: bytes) -> bytes:
        self.device.synchronize()
        return b""

    def _n(self, text: bytes) -> None:
        assert os.path.isfile(text)

    def _t(self, text: bytes) -> bytes:
        return struct.pack(">q", self.temporary)

    def _i(self, text: bytes) -> bytes:
        kind, count, sources, sizes, rooms, out, _, need, targets, statuses = struct.unpack(">iq8q", text)
        assert need == self.temporary
        given = [np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(at)) for at in (sources, sizes, rooms, targets)]
        found, fine = self.device.inflate(kind, *given)
        self._at(out, 8 * count).bytes.view(np.int64)[:] = found
        self._at(statuses, 4 * count).bytes.view(np.int32)[:] = np.where(fine, 0, 12)
        return struct.pack(">i", 0)

    def _table(self, text: "_Text", schema: pa.Schema) -> pa.RecordBatch:
        rows, columns = text.take(">ii")
        assert columns == len(schema)
        found = [as_type(self._column(text), field.type) for field in schema]
        assert not text.rest
        batch = pa.RecordBatch.from_arrays(found, schema=schema)
        # A string may be none, where the caller said that bytes are text.
        batch.validate()
        for column in batch.columns:
            no_rows_below_nulls(column)
        assert batch.num_rows == rows
        return batch

    def _column(self, text: "_Text") -> Column:
        (length,) = text.take(">i")
        kind = text.bytes(length).decode()
        rows, nulls, data, data_size, bitmap, bitmap_size, children = text.take(">6qi")
        held: list[Any] = [self._at(at, size) if at else None for at, size in ((data, data_size), (bitmap, bitmap_size))]
        for one in held:
            if one is not None:
                # The memory may be freed next.
                one.bytes = one.bytes.copy()
        return Column(kind, rows, held[0], held[1], nulls, tuple(self._column(text) for _ in range(children)))


class _Text:
    """Bytes that are taken one number after the other."""

    def __init__(self, rest: bytes) -> None:
        self.rest = rest

    def take(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.bytes(struct.calcsize(form)))

    def bytes(self, size: int) -> bytes:
        found, self.rest = self.rest[:size], self.rest[size:]
        assert len(found) == size
        return found
