"""A process that plans and decodes for the connector, for one caller at a time.

The JVM starts it as ``python -P -m kolumn.spark_plugin.connector.worker``, and keeps it for the next task. The two talk over its standard
input and output, two pipes that nobody else can open by a name. It ends when the JVM's end of the first is gone, that is with the JVM,
however that ends. Numbers are big-endian:

    at first  16 bytes, a secret                  the same, and int32 descriptor of a block that has them, -1 without shared memory
    question  int32 length, JSON                  answer  int32 length, JSON
    read      the same, then one of               answer  "R", "M" or "S", the schema as an Arrow IPC message
              "N" next, "S" stop;                         "B", a JSON of metrics so far and a batch; "E" and a JSON of metrics,
              each with the numbers of batches            "X" and a JSON with the error
              that the JVM no longer refers to

    decode    the same; then frames and answers       answer  frames, and "E" or "X" as above, with a length as frames have it
              (`kolumn.kernels.machine.executor`)

With "M" a batch is the description of buffers that lie in memory the JVM maps (`shared.py`), with "S" an Arrow IPC message.
"""

import fcntl
import json
import logging
import os
import select
import signal
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.worker_util import setup_memory_limits

from kolumn.damage.findings import Tally
from kolumn.source.segments import Range
from kolumn.spark_plugin.connector.questions import answer, in_words
from kolumn.spark_plugin.connector.resident import described, tables
from kolumn.spark_plugin.connector.shared import SharedBlocks, can_describe, from_start, probe
from kolumn.spark_plugin.connector.statistics import rows_of_totals
from kolumn.spark_plugin.connector.work import Json, Work, ascending, unpacked
from kolumn.spark_plugin.read.schema import arrow_schema
from kolumn.spark_plugin.read.splits import Split
from kolumn.spark_plugin.read.stream import check_planned
from kolumn.spark_plugin.read.task import TaskLosses, read_split
from kolumn.spark_plugin.session.gpu_task import assign
from kolumn.values.narrowing import Narrowed

if TYPE_CHECKING:
    from kolumn.kernels.columns.table import DeviceTable
    from kolumn.kernels.machine.executor import ExecutorDevice, Told

CONSTANT = frozenset({"topic", "partition", "segment", "timestampType"})
"""Columns whose buffers the batches of a segment share, mostly."""
_NEXT = b"N"
_LARGEST = 1 << 30
"""The largest frame in bytes: a longer one is not from the connector."""
_PART = 1 << 20
"""Bytes that are asked of a pipe at a time, and those that one has for batches where the system allows so many."""
_SECRET = 16
_OUT_OF_THE_WAY = 100
"""The descriptors of the connection are not the first ones, which programs and libraries close or replace."""


@dataclass
class Counted:
    """What a task did: the metrics in Spark's UI. Names are those of the connector."""

    logBytes: int = 0  # noqa: N815
    logBatches: int = 0  # noqa: N815
    records: int = 0
    decodeMs: float = 0  # noqa: N815


class Task:
    """The work of a task: batches in the schema that Spark asked for, and what is counted on the way."""

    def __init__(self, split: Split, work: Work) -> None:
        self.split, self.work, self.schema = split, work, arrow_schema(work.schema)
        self.counted, self.losses, self.narrowed = Counted(), TaskLosses(), Narrowed(self.schema)
        self._under_way = 0
        self._batches = self._limited(self._decoded(split, work), work.limit)

    def tables(self, device: "ExecutorDevice") -> "Iterator[DeviceTable]":
        """The same on the JVM's GPU, at least one table: what `next` returns is not decoded then."""
        start = perf_counter()
        for table in tables(device, self.split, self.work, self.schema, self.losses, self._range_done):
            self.counted.records += table.num_rows
            yield table
        self.losses.say()
        self.counted.decodeMs = (perf_counter() - start) * 1000

    def metrics(self) -> dict[str, object]:
        """What was counted so far, for the connector."""
        read = self.counted.logBytes + self._under_way
        values = self.losses.values
        lost = {"damaged": self.losses.stretches_left_out, "lost": self.losses.records_left_out}
        lost |= {"valuesLost": values.values.total(), "fieldsLost": values.fields_lost, "afterOpen": self.losses.after_open}
        return asdict(self.counted) | lost | {"logBytes": read, "decodeMs": round(self.counted.decodeMs)}

    def next(self) -> pa.RecordBatch | None:
        """The next batch that has rows; None at the end."""
        start = perf_counter()
        try:
            batch = next((batch for batch in self._batches if batch.num_rows), None)
            self.counted.records += 0 if batch is None else batch.num_rows
            return batch
        finally:
            self.counted.decodeMs += (perf_counter() - start) * 1000

    def _decoded(self, split: Split, work: Work) -> Iterator[pa.RecordBatch]:
        if work.totals:
            yield from rows_of_totals(split.ranges, work.options.decode, work.totals, self.schema)
            return
        last = -1
        if work.live:
            check_planned(split)
        options = replace(work.options, decode=replace(work.options.decode, on_progress=self._progress))
        for batch in read_split(split, options, self.losses, self._range_done):
            if work.ordered:
                last = ascending(batch.column("offset").to_numpy(), last)
            yield self.narrowed.batch(batch)
        self.losses.say()
        self.narrowed.say()

    def _progress(self, done: int) -> None:
        self._under_way += done

    def _range_done(self, _: Range, tally: Tally) -> None:
        self.counted.logBytes += tally.valid_bytes
        self._under_way = max(0, self._under_way - tally.valid_bytes)
        self.counted.logBatches += tally.batches

    def _limited(self, batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if 0 <= limit <= batch.num_rows:
                yield batch.slice(0, limit)
                return
            limit = max(-1, limit - batch.num_rows)
            yield batch


class _Gone(Exception):  # noqa: N818 (it is no error that the JVM ends)
    """The JVM has closed its end."""


class Worker:
    """One connection to the JVM, by the descriptors of two pipes."""

    def __init__(self, questions: int, answers: int) -> None:
        self.questions, self.answers = questions, answers
        self.blocks: SharedBlocks | None = None
        self.told: Told | None = None
        """What the JVM knows of this process for its GPU."""

    def serve(self) -> None:
        """Answer questions and read until the JVM is gone."""
        while True:
            (size,) = struct.unpack(">i", self.receive(4))
            if not 0 <= size <= _LARGEST:
                raise _Gone
            question: Json = json.loads(self.receive(size))
            if question["op"] == "read":
                self._read(question)
            elif question["op"] == "decode":
                self._decode(question)
            else:
                self._answer(answer(question))

    def _read(self, question: Json) -> None:
        """Decode a split; one batch is decoded ahead while Spark works on the last."""
        asked = True
        try:
            assign(cast(list[str], question["gpus"]), cast(int, question["partition"]))
            task = Task(unpacked(question["split"], Split), unpacked(question["work"], Work))
            in_memory = self._in_memory(bool(question["shared"]), task.schema)
            if not in_memory:
                self._widen()
            self.send((b"M" if in_memory else b"S") + task.schema.serialize().to_pybytes())
            asked = False
            waiting = task.next()
            while self._command() == _NEXT:
                asked = True
                if waiting is None:
                    break
                data = self._described(waiting) if in_memory else waiting.serialize()
                # A task that a limit ends does not hear the end.
                self._answer(self._metrics(task), b"B")
                self.send(data)
                asked = False
                waiting = task.next()
        except _Gone:
            raise
        except Exception as error:
            # The JVM hears of it when it asks for the next batch, and not at all if it stops.
            if asked or self._command() == _NEXT:
                self._answer({"error": in_words(error)}, b"X")
                return
        self._answer(self._metrics(task), b"E")

    def _decode(self, question: Json) -> None:
        """Decode a split on the JVM's GPU."""
        # Most workers have nothing to do with a GPU.
        from kolumn.kernels.machine.executor import ExecutorDevice, Stopped, Told

        if self.told is None:
            blocks = self._shared_blocks() if question["shared"] else None
            if blocks is not None:
                blocks.use_for_uploads()
            self.told = Told(blocks, None if blocks is None else blocks.announced())
        device = ExecutorDevice(self, self.told, *(cast(int, question[name]) for name in ("arch", "multiprocessors", "memory")))
        end: Json = {}
        status = b"E"
        try:
            split = question["split"]
            task = Task(unpacked(split, Split) if split else Split(()), unpacked(question["work"], Work))
            for table in task.tables(device):
                device.hand_over(described(table))
                # The JVM has it.
                del table
            device.finish()
            end = task.metrics()
        except _Gone:
            raise
        except Stopped:
            # The JVM frees what it has allocated.
            pass
        except Exception as error:
            status, end = b"X", {"error": in_words(error)}
        device.flush()
        self._answer(end, status)

    def _metrics(self, task: Task) -> Json:
        """What a task has counted, and the most memory that this process has had."""
        return task.metrics() | {"sharedBytes": 0 if self.blocks is None else self.blocks.peak, "memoryBytes": _most_memory()}

    def _in_memory(self, shared: bool, schema: pa.Schema) -> bool:
        if not shared or not can_describe(schema):
            return False
        self._shared_blocks()
        return True

    def _shared_blocks(self) -> SharedBlocks:
        if self.blocks is None:
            self.blocks = SharedBlocks()
            self.blocks.use()
        return self.blocks

    def _command(self) -> bytes:
        """The next command of a read; the memory of the batches that come with it may be used again."""
        command, count = struct.unpack(">ci", self.receive(5))
        released = struct.unpack(f">{count}i", self.receive(4 * count))
        if self.blocks is not None:
            self.blocks.release(released)
        return bytes(command)

    def _described(self, batch: pa.RecordBatch) -> bytes:
        assert self.blocks is not None
        return _frame(self.blocks.describe(from_start(batch), CONSTANT))

    def _widen(self) -> None:
        """Whole batches go through the pipe from now on."""
        with suppress(OSError, AttributeError):
            fcntl.fcntl(self.answers, fcntl.F_SETPIPE_SZ, _PART)

    def _answer(self, content: Mapping[str, object], status: bytes = b"") -> None:
        """An answer, as the end of a read after its status."""
        self.send(status + _frame(json.dumps(content).encode()))

    def send(self, data: bytes | pa.Buffer) -> None:
        """Send bytes; raises `_Gone` if nobody reads them any more."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self.answers, rest) :]
        except OSError as error:
            raise _Gone from error

    def receive(self, size: int) -> bytearray:
        """So many bytes; raises `_Gone` at the end of the stream."""
        received = bytearray()
        while len(received) < size:
            try:
                part = os.read(self.questions, min(size - len(received), _PART))
            except OSError as error:
                raise _Gone from error
            if not part:
                raise _Gone
            received += part
        return received


def _frame(text: bytes) -> bytes:
    return struct.pack(">i", len(text)) + text


def _most_memory() -> int:
    """The most bytes that were resident in this process, with what it shares; 0 where the system does not tell.

    What `getrusage` tells is the JVM's, which was there before this program.
    """
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            return next((1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM:")), 0)
    except OSError:
        return 0


def _take_over() -> tuple[int, int]:
    """The pipes that are standard input and output, which nothing else of this process can meet then: what prints does so on stderr."""
    questions, answers = (fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY) for descriptor in (0, 1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return questions, answers


def _until_orphaned(questions: int) -> None:
    """The JVM's end of the pipe is gone when the JVM is, also while nobody here reads."""
    poll = select.poll()
    poll.register(questions, 0)
    poll.poll()
    os._exit(0)


def main() -> None:
    """Serve the JVM that has started this process."""
    questions, answers = _take_over()
    # Ctrl-C in a terminal reaches the JVM as well, which decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_until_orphaned, args=(questions,), daemon=True).start()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr, level=logging.WARNING)
    setup_memory_limits(int(os.environ.get("PYSPARK_EXECUTOR_MEMORY_MB", "-1")))
    with suppress(_Gone):
        worker = Worker(questions, answers)
        secret = bytes(worker.receive(_SECRET))
        worker.send(secret + struct.pack(">i", probe(secret)))
        worker.serve()


if __name__ == "__main__":
    main()
