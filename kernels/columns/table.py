"""Records on the device become the columns of a table, which stay there. `kolumn.kernels.columns.assemble` makes pylibcudf's of them."""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Sequence_
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Flags
from kolumn.core.errors import KolumnError
from kolumn.core.lost import LostValues
from kolumn.core.text import decode
from kolumn.formats import table
from kolumn.formats.codecs.known import NAMES
from kolumn.formats.layouts import CONTROL_NAMES
from kolumn.kernels.columns.gather import (
    Microseconds,
    NotAscii,
    Repeat,
    begin_bitmap,
    headers_of,
    measure,
    microseconds,
    moved,
    not_ascii,
    number_of,
    repeat,
)
from kolumn.kernels.columns.rows import EVERY_ROW, DraftTimes, Label, Marks, RowLimits, Sequence, draft_times, keep, label, marks, sequence
from kolumn.kernels.fields.records import DevicePayloads, DeviceRecords
from kolumn.kernels.machine.runtime import Memory, Runtime

_FIELDS = {
    "timestampType": (table.TIMESTAMP_TYPE, "int32"),
    "producerId": (table.PRODUCER_ID, "int64"),
    "producerEpoch": (table.PRODUCER_EPOCH, "int16"),
    "leaderEpoch": (table.LEADER_EPOCH, "int32"),
    "isTransactional": (table.TRANSACTIONAL, "bool"),
    "magic": (table.MAGIC, "int8"),
    "position": (table.POSITION, "int64"),
}
"""Columns that repeat a field of the batch table, and their types."""
WIDTHS = {
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1,
    "float64": 8, "float32": 4, "bool": 1, "timestamp": 8,
}  # fmt: skip
MOST = 2**31 - 1
"""Rows of a column, and the bytes that its offsets count."""


@dataclass
class Column:
    """A column on the device.

    ``kind``: one of `WIDTHS`, "string", "bytes" (a list of uint8), "list" or "struct".
    ``data``: of the types in `WIDTHS`, and the bytes of strings.
    ``bitmap``: validity in words of 32 rows; None where nothing is null.
    ``children``: of strings the int32 offsets; of bytes and lists these and what they hold; of structs the fields.
    ``fields``: of structs the names of the fields.
    """

    kind: str
    rows: int
    data: Memory | None = None
    bitmap: Memory | None = None
    nulls: int = 0
    children: tuple["Column", ...] = ()
    fields: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(one.size for one in (self.data, self.bitmap) if one is not None) + sum(child.nbytes for child in self.children)


def payload_column(kind: str, rows: int, ends: Memory, data: Memory, size: int, mask: Memory | None = None, nulls: int = 0) -> Column:
    """A column of strings, or of lists of uint8 ("bytes"), with ``size`` bytes."""
    offsets = Column("int32", rows + 1, ends)
    if kind == "string":
        return Column(kind, rows, data, mask, nulls, (offsets,))
    return Column(kind, rows, None, mask, nulls, (offsets, Column("uint8", size, data)))


@dataclass
class BegunColumn:
    """A column whose sizes are being computed. ``wanted``: memory, size and start of the int32 sums that are to be downloaded. ``finish``:
    makes the column when it is given their values; does not wait."""

    wanted: list[tuple[Memory, int, int]]
    finish: Callable[..., Column]


@dataclass
class DeviceTable:
    """Columns of one chunk's records, and the objects whose memory they use."""

    names: tuple[str, ...]
    columns: list[Any]
    num_rows: int
    lost: LostValues = field(default_factory=LostValues)
    """What could not be decoded of typed columns."""

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns)

    def replaced(self, names: list[str], more: dict[str, Column], lost: LostValues) -> "DeviceTable":
        """A table of these names, some of whose columns come from ``more``, for which ``lost`` was counted."""
        own = dict(zip(self.names, self.columns, strict=True))
        return DeviceTable(tuple(names), [more[name] if name in more else own[name] for name in names], self.num_rows, lost)


class TableBuilder:
    """Makes the columns of some records.

    ``constants``: dict, "topic", "partition" and "segment", None for null.
    ``text``: keys, values and headers' values as strings; else as lists of uint8.
    ``limits``: which rows to keep; None if all are kept, but those of ``dropped``.
    ``dropped``: bool array of n, batches whose records are all left out.
    ``states``: sequence of str, names for the column ``transaction``; ``constants["transaction"]`` has a number of each batch (int64
        array).
    """

    def __init__(
        self, device: Runtime, records: DeviceRecords, constants: dict[str, Any], text: bool, limits: RowLimits | None,
        dropped: Flags | None = None, states: Sequence_[str] = (),
    ) -> None:  # fmt: skip
        self.device, self.constants, self.text = device, constants, text
        self.records, self.states = records, states
        if limits is None and dropped is None:
            return
        kept = keep(device, records, self._marks[0], limits or EVERY_ROW, dropped)
        if kept is not records:
            self.records = kept
            del self._marks

    def table(self, names: Iterable[str]) -> DeviceTable:
        """The columns of these names. The sizes of all are downloaded together."""
        names = tuple(names)
        begun = [self._begin(name) for name in names]
        wanted = [one.wanted if isinstance(one, BegunColumn) else [] for one in begun]
        sums = iter(self.device.downloads([piece for pieces in wanted for piece in pieces]) if any(wanted) else [])
        columns = [one.finish(*(number_of(next(sums)) for _ in one.wanted)) if isinstance(one, BegunColumn) else one for one in begun]
        return DeviceTable(names, columns, self.records.rows)

    def _begin(self, name: str) -> Column | BegunColumn:
        """One column, or what is left to do for it when its sizes are known."""
        records = self.records
        if name in _FIELDS:
            number, kind = _FIELDS[name]
            return Column(kind, records.rows, self._repeated(records.batches.address + 8 * number, 8 * table.WIDTH, kind))
        if name in ("key", "value"):
            return begin_bytes(self.device, records.key if name == "key" else records.value, self.text)
        if name in ("offset", "timestampMs"):
            return Column("int64", records.rows, records.offset if name == "offset" else records.timestamp)
        if name in ("isControl", "tombstone"):
            return Column("bool", records.rows, self._marks[0 if name == "isControl" else 1])
        if name in ("topic", "segment"):
            return self._labelled(self.device.zeros(4 * records.rows), [self.constants[name]])
        if name in ("timestampSeconds", "brokerTimestampMs"):
            return self._draft_times[0 if name == "timestampSeconds" else 1]
        if name in ("batchType", "rawOffset"):
            # Redpanda's, whose offsets the host translates.
            data, bitmap = (self.device.zeros(size) for size in (8 * records.rows, 4 * (records.rows + 31 >> 5)))
            return Column("int8" if name == "batchType" else "int64", records.rows, data, bitmap, records.rows)
        if name == "codec":
            return self._labelled(self._repeated(records.batches.address + 8 * table.CODEC, 8 * table.WIDTH, "int32"), list(NAMES))
        if name == "controlType":
            return self._labelled(self._marks[2], list(CONTROL_NAMES))
        made: dict[str, Callable[[], Column | BegunColumn]] = {
            "timestamp": self._timestamp, "headers": self._headers, "partition": self._partition,
            "transaction": self._transaction, "sequence": self._sequence,
        }  # fmt: skip
        return made[name]()

    @cached_property
    def _marks(self) -> tuple[Memory, Memory, Memory]:
        device, records, n = self.device, self.records, self.records.rows
        found = device.empty(n), device.empty(n), device.empty(4 * n)
        key, value = records.key, records.value
        device.launch(marks, n, Marks(records.batches, records.owner, key.at, key.length, value.length, records.attributes, *found))
        return found

    @cached_property
    def _draft_times(self) -> tuple[BegunColumn, BegunColumn]:
        device, records, n = self.device, self.records, self.records.rows
        seconds, broker, seconds_length, broker_length = (device.empty(width * n) for width in (4, 8, 4, 4))
        args = DraftTimes(
            records.batches, records.owner, records.timestamp, records.attributes, records.seconds, seconds, seconds_length,
            broker, broker_length,
        )  # fmt: skip
        device.launch(draft_times, n, args)
        return begin_nullable(device, "int32", seconds, seconds_length, n), begin_nullable(device, "int64", broker, broker_length, n)

    def _repeated(self, source: int, stride: int, kind: str) -> Memory:
        """A number of its batch for each row; those of the batches are ``stride`` bytes apart, from ``source`` on."""
        n, width = self.records.rows, WIDTHS[kind]
        target = self.device.empty(width * n)
        self.device.launch(repeat, n, Repeat(source, stride, self.records.owner, target, width))
        return target

    def _timestamp(self) -> BegunColumn:
        n = self.records.rows
        target, lengths = self.device.empty(8 * n), self.device.empty(4 * n)
        self.device.launch(microseconds, n, Microseconds(self.records.timestamp, target, lengths))
        return begin_nullable(self.device, "timestamp", target, lengths, n)

    def _partition(self) -> BegunColumn:
        partition, batches = self.constants["partition"], len(self.records.first) - 1
        numbers = self.device.upload(np.full((2, batches), [[partition or 0], [0 if partition is not None else -1]], np.int64))
        column, null = (self._repeated(numbers.address + 8 * batches * k, 8, "int32") for k in range(2))
        return begin_nullable(self.device, "int32", column, null, self.records.rows)

    def _transaction(self) -> BegunColumn:
        numbers = self.device.upload(np.ascontiguousarray(self.constants["transaction"], np.int64))
        return self._labelled(self._repeated(numbers.address, 8, "int32"), list(self.states))

    def _sequence(self) -> Column:
        records, n = self.records, self.records.rows
        target = self.device.empty(4 * n)
        self.device.launch(sequence, n, Sequence(records.batches, records.owner, records.offset, target))
        return Column("int32", n, target)

    def _labelled(self, numbers: Memory, names: list[str | None]) -> BegunColumn:
        """A column of strings: a name for each number."""
        device, n = self.device, self.records.rows
        longest = max((name or "" for name in names), key=lambda name: len(name.encode()))
        if n * len(longest.encode()) > MOST:
            raise KolumnError(
                f"{n} rows of {longest!r} would be a column of more than {MOST} bytes: "
                "read a range of offsets at a time, or leave the column out"
            )
        return begin_labels(device, numbers.address, names, n)

    def _headers(self) -> Column:
        device = self.device
        ends, keys, values = headers_of(device, self.records)
        key, other, begun = bytes_column(device, keys, True), device.zeros(4), begin_bytes(device, values, self.text)
        assert key.data is not None
        device.launch(not_ascii, -(-key.data.size // 8), NotAscii(key.data, key.data.size, other))
        *sums, found = device.downloads([*begun.wanted, (other, 4, 0)])
        parts = _as_text(device, key) if number_of(found) else key, begun.finish(*map(number_of, sums))
        entries = Column("struct", keys.count, children=parts, fields=("key", "value"))
        return Column("list", self.records.rows, children=(Column("int32", self.records.rows + 1, ends), entries))


def _as_text(device: Runtime, column: Column) -> Column:
    """Strings that may not be UTF-8, as Java has them: the host decodes them, since hardly a log has such keys of headers."""
    _, bounds, text = pa.array([decode(one) for one in on_host(device, column).to_pylist()], pa.string()).buffers()
    words, held_text = np.frombuffer(bounds, np.int32, column.rows + 1), np.frombuffer(text, np.uint8)
    return payload_column("string", column.rows, device.upload(words), device.upload(held_text[: words[-1]]), int(words[-1]))


def on_host(device: Runtime, column: Column) -> pa.BinaryArray:
    """A copy of strings, or of lists of uint8, in host memory; a wait."""
    held = column.children[0].data, column.children[1].data if column.kind == "bytes" else column.data, column.bitmap
    ends, data, *mask = device.downloads([(one, one.size, 0) for one in held if one is not None])
    buffers = [pa.py_buffer(mask[0]) if mask else None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), column.rows, buffers, column.nulls)


def begin_nullable(device: Runtime, kind: str, data: Memory, lengths: Memory, rows: int, children: tuple[Column, ...] = ()) -> BegunColumn:
    """A column whose rows are null where a length (int32) is negative."""
    bitmap, sums = begin_bitmap(device, lengths, rows)

    def finish(nulls: int) -> Column:
        return Column(kind, rows, data, bitmap if nulls else None, nulls, children)

    return BegunColumn([sums], finish)


def begin_bytes(device: Runtime, payloads: DevicePayloads, text: bool, source: Memory | None = None) -> BegunColumn:
    """Payloads copied into a column of strings, or of lists of uint8; their ``source`` is kept until then."""
    measured, held = measure(device, payloads), [source]

    def finish(size: int, nulls: int) -> Column:
        made = moved(device, measured, size, nulls)
        held.clear()
        return payload_column("string" if text else "bytes", made.rows, made.ends, made.data, size, made.bitmap if nulls else None, nulls)

    return BegunColumn(measured.wanted, finish)


def begin_labels(device: Runtime, numbers: int, names: Sequence_[str | None], rows: int) -> BegunColumn:
    """A column of strings: a name for each row's number, int32 at an address; null for None and for a negative number."""
    encoded = [(name or "").encode() for name in names]
    lengths = np.array([-1 if name is None else len(data) for name, data in zip(names, encoded, strict=True)], np.int32)
    text = device.upload(np.frombuffer(b"".join(encoded) or b"\0", np.uint8))
    begins = text.address + np.cumsum([0, *map(len, encoded)])[:-1].astype(np.int64)
    where, sizes = device.upload(begins), device.upload(lengths)
    found = DevicePayloads(device.empty(8 * rows), device.empty(4 * rows), rows)
    device.launch(label, rows, Label(numbers, where, sizes, found.at, found.length))
    return begin_bytes(device, found, True, text)


def finished(device: Runtime, begun: BegunColumn) -> Column:
    """A column that was begun, after a wait of its own."""
    return begun.finish(*map(number_of, device.downloads(begun.wanted)))


def nullable(device: Runtime, kind: str, data: Memory, lengths: Memory, rows: int, children: tuple[Column, ...] = ()) -> Column:
    """As `begin_nullable`, finished."""
    return finished(device, begin_nullable(device, kind, data, lengths, rows, children))


def bytes_column(device: Runtime, payloads: DevicePayloads, text: bool) -> Column:
    """As `begin_bytes`, finished."""
    return finished(device, begin_bytes(device, payloads, text))
