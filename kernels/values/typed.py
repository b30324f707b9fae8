"""Columns of any layout on the device: memory for them, the two passes that write them, and the tree of columns that they are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from kolumn.arrays import Int64s
from kolumn.encodings.columns import NULL_BYTES, NULL_LIST, NULL_WORD
from kolumn.errors import ArgumentError, KolumnError
from kolumn.kernels.columns.binary import number_of
from kolumn.kernels.columns.flags import Label, label
from kolumn.kernels.columns.table import Column, bytes_column
from kolumn.kernels.fields.decoded import DevicePayloads
from kolumn.kernels.machine.kernel import Kernel
from kolumn.kernels.machine.runtime import Memory, Runtime
from kolumn.kernels.values.bodies import DeviceBodies
from kolumn.kernels.values.passes import EvenEnds, FlagBits, even_ends, flag_bits
from kolumn.kernels.values.records import FRAME, measure_values, write_values
from kolumn.values.avro.decoder import AvroDecoder
from kolumn.values.layout import ColumnLayout, ColumnSpec, LayoutNode

_KINDS = {
    pa.bool_(): "bool", pa.int8(): "int8", pa.int16(): "int16", pa.int32(): "int32", pa.int64(): "int64", pa.uint8(): "uint8",
    pa.uint16(): "uint16", pa.uint32(): "uint32", pa.uint64(): "uint64", pa.float32(): "float32", pa.float64(): "float64",
    pa.date32(): "date32", pa.time32("ms"): "int32", pa.time64("us"): "int64", pa.time64("ns"): "int64", pa.null(): "int8",
    pa.string(): "string", pa.binary(): "bytes",
}  # fmt: skip
_UNITS = {"s": "timestamp_s", "ms": "timestamp_ms", "us": "timestamp", "ns": "timestamp_ns"}
_LENGTHS = {"s": "duration_s", "ms": "duration_ms", "us": "duration_us", "ns": "duration_ns"}
_MOST = 2**31 - 1


def kind_of(type: pa.DataType) -> str:
    """Kind of the column of a type.

    Times of day are their integers, enums strings, fixed sizes bytes, maps lists of key and value; timestamps have no zone.

    Raises
    ------
    ArgumentError
        cuDF has nothing for it.
    """
    if pa.types.is_timestamp(type):
        return _UNITS[type.unit]
    if pa.types.is_duration(type):
        return _LENGTHS[type.unit]
    if pa.types.is_decimal128(type):
        return f"decimal128:{type.scale}"
    if pa.types.is_dictionary(type):
        return "string"
    if pa.types.is_fixed_size_binary(type):
        return "bytes"
    if pa.types.is_struct(type):
        return "struct"
    if pa.types.is_list(type) or pa.types.is_map(type):
        return "list"
    if type not in _KINDS:
        raise ArgumentError(f"{type}: cuDF has no such type; leave the field out by value_columns, or read it on the CPU")
    return _KINDS[type]


def parse_records(device: Runtime, bodies: DeviceBodies, decoder: AvroDecoder) -> tuple[Column, Column]:
    """The column of Avro values and their flags of validity."""
    programs = decoder.programs(bodies.schemas)
    frames = max(one.frames for one in programs if one is not None)
    words = [np.zeros(0, np.int64) if one is None else one.words for one in programs]
    begins = 8 * (len(words) + np.cumsum([0, *map(len, words[:-1])]))
    table = device.upload(np.concatenate([np.where([one is None for one in programs], 0, begins), *words]))
    stack, back = device.pieces([FRAME * frames * bodies.count, 4 * bodies.count])
    own = (
        bodies.at.address, bodies.length.address, bodies.prefix.address, bodies.schema.address, int(bodies.bare), back.address,
        table.address, stack.address, frames,
    )  # fmt: skip
    made, valid, _ = in_two_passes(device, bodies.count, LayoutColumns, decoder.layout, (measure_values, write_values), own)
    return made.column(), valid


Columns = TypeVar("Columns", bound="LayoutColumns")


def in_two_passes(
    device: Runtime, n: int, columns: type[Columns], layout: ColumnLayout, kernels: tuple[Kernel, Kernel], own: tuple[int, ...]
) -> tuple[Columns, Column, bool]:
    """Columns of a layout whose sizes a first pass over ``n`` values finds, flags of the values that are valid, and what is left; a wait.

    Parameters
    ----------
    columns : type
        What makes the columns.
    kernels : tuple of Kernel
        The two passes, as in `kolumn.kernels.values.passes`.
    own : tuple of int
        The arguments that these kernels take before those of all.

    Returns
    -------
    columns : LayoutColumns
    valid : Column
    left : bool
        Whether the first pass leaves a value to the host. Then nothing was written.
    """
    lists, texts, width = len(layout.levels) - 1, layout.bytes_columns, n + 2
    count = width * (lists + texts)
    cells, valid = device.zeros(8 * (count + 1)), device.empty(n)
    shared = (*own, cells.address, n, lists, texts, valid.address, cells.address + 8 * count)
    device.launch(kernels[0], n, kernels[0].args._make(shared))
    if count:
        device.running_sum(cells, count, 8)
    # All sums go on from row to row: the last cell of each is the first of the next.
    places = (count, *range(width - 1, count, width))
    left, *ends = (int(one.view(np.int64)[0]) for one in device.downloads([(cells, 8, 8 * place) for place in places]))
    totals = np.diff([0, *ends]).tolist()
    for row, total in enumerate(totals):
        if total > _MOST:
            what = "elements" if row < lists else "bytes"
            raise KolumnError(
                f"values of one chunk have {total} {what} in one column, and cuDF counts to {_MOST}: take a smaller chunk_bytes"
            )
    made = columns(device, layout, [n, *totals[:lists]], totals[lists:])
    if not left:
        device.launch(kernels[1], n, kernels[1].args._make((*shared, *made.addresses)))
    return made, Column("bool", n, valid), bool(left)


def fields_of(column: Column) -> dict[str, Column]:
    """The fields of a struct as columns of their own, null where it is: in those that can be null, its rows are null already."""
    found = {}
    for name, one in zip(column.fields, column.children, strict=True):
        found[name] = replace(one, bitmap=column.bitmap, nulls=column.nulls) if column.nulls and one.bitmap is None else one
    return found


@dataclass
class Made:
    """One column of a layout on the device."""

    data: Memory | None
    valid: Memory | None
    ends: Memory | None


class LayoutColumns:
    """Columns of a layout on the device: memory that a kernel writes, and the tree of columns that it becomes.

    Parameters
    ----------
    rows : list of int
        Of each level.
    sizes : list of int
        Bytes of each column of bytes.

    Attributes
    ----------
    addresses : tuple of int
        What the kernel is told of the memory: the last fields of `kolumn.kernels.values.passes.WriteTables`.
    """

    def __init__(self, device: Runtime, layout: ColumnLayout, rows: list[int], sizes: list[int]) -> None:
        self.device, self.layout, self.rows = device, layout, rows
        self.masks: dict[int, tuple[Memory, int]] = {}
        flagged = [number for number, spec in enumerate(layout.columns) if spec.nullable and rows[spec.level]]
        counts = [rows[layout.columns[number].level] for number in flagged]
        self._shift = (-(-max(counts, default=1) // 32) - 1).bit_length()
        *flags, self._nulls = device.pieces([*counts, 4 * len(flagged) << self._shift])
        bitmaps = device.pieces([4 * -(-count // 32) for count in counts]) if flagged else []
        self._flags = dict(zip(flagged, zip(flags, bitmaps, strict=True), strict=True))
        self.made = [self._allocate(number, spec, sizes) for number, spec in enumerate(layout.columns)]
        table = [[*(address_of(one) for one in (made.data, made.valid, made.ends)), _MOST] for made in self.made]
        levels = np.array([(room, *level, 0) for room, level in zip(rows, layout.levels, strict=True)], np.int64)
        columns = np.array(
            [(own.address, count, bitmap.address) for count, own, bitmap in zip(counts, flags, bitmaps, strict=True)], np.int64
        )
        self._tables, (*begins, self._columns) = packed(device, [np.array(table, np.int64), levels, layout.fill_table(), columns])
        self.addresses = (*begins, layout.root.column, layout.root.first_fill, layout.root.fills, len(layout.columns))

    def _allocate(self, number: int, spec: ColumnSpec, sizes: list[int]) -> Made:
        rows, data, ends = self.rows[spec.level], None, None
        # Without any value no thread writes where the first one begins.
        if spec.kind == NULL_WORD:
            data = self.device.empty(spec.width * rows)
        elif spec.kind == NULL_BYTES:
            data, ends = self.device.pieces([sizes[number], 4 * (rows + 1)], zeros=not rows)
        elif spec.kind == NULL_LIST:
            (ends,) = self.device.pieces([4 * (rows + 1)], zeros=not rows)
        return Made(data, self._flags[number][0] if number in self._flags else None, ends)

    def column(self) -> Column:
        """The column of the root; a wait."""
        self.mark()
        return self.node(self.layout.root)

    def mark(self) -> None:
        """Make the bitmaps of all flags of validity; a wait."""
        if not self._flags:
            return
        words = len(self._flags) << self._shift
        self.device.launch(flag_bits, words, FlagBits(self._columns, self._shift, self._nulls.address))
        self.device.running_sum(self._nulls, words, 4)
        sums = self.device.downloads([(self._nulls, 4, (4 * at << self._shift) - 4) for at in range(1, len(self._flags) + 1)])
        counts = np.diff([0, *map(number_of, sums)]).tolist()
        self.masks = {number: (bitmap, count) for (number, (_, bitmap)), count in zip(self._flags.items(), counts, strict=True)}

    def node(self, node: LayoutNode) -> Column:
        """The column of a node."""
        rows, kind = self.rows[node.level], kind_of(node.type)
        bitmap, nulls = self.masks.get(node.column, (None, 0))
        mask = bitmap if nulls else None
        if kind == "struct":
            return Column(kind, rows, None, mask, nulls, tuple(map(self.node, node.children)), tuple(one.name for one in node.type))
        one = self.made[node.column]
        if node.child_level >= 0:
            inner = [self.node(child) for child in node.children]
            entries = self.rows[node.child_level]
            items = inner[0] if pa.types.is_list(node.type) else Column("struct", entries, children=tuple(inner), fields=("key", "value"))
            return Column(kind, rows, None, mask, nulls, (Column("int32", rows + 1, one.ends), items))
        if node.symbols:
            return self._named(node, one, bitmap if nulls else None, nulls)
        if self.layout.columns[node.column].kind == NULL_BYTES:
            ends = Column("int32", rows + 1, one.ends)
            assert one.data is not None
            if kind == "string":
                return Column(kind, rows, one.data, mask, nulls, (ends,))
            return Column(kind, rows, None, mask, nulls, (ends, Column("uint8", one.data.size, one.data)))
        if kind == "bytes":
            even, assert_data = self.device.empty(4 * (rows + 1)), one.data
            self.device.launch(even_ends, rows + 1, EvenEnds(even.address, node.width))
            return Column(kind, rows, None, mask, nulls, (Column("int32", rows + 1, even), Column("uint8", node.width * rows, assert_data)))
        return Column(kind, rows, one.data, mask, nulls)

    def _named(self, node: LayoutNode, one: Made, mask: Memory | None, nulls: int) -> Column:
        """Strings for the numbers of an enum; a null's number is that of no name."""
        rows, device = self.rows[node.level], self.device
        encoded = [name.encode() for name in node.symbols]
        lengths = np.array([len(name) for name in encoded], np.int32)
        text = device.upload(np.frombuffer(b"".join(encoded) or b" ", np.uint8))
        begins = text.address + np.cumsum([0, *lengths[:-1]]).astype(np.int64)
        where, sizes = device.upload(begins), device.upload(lengths)
        payloads = DevicePayloads(device.empty(8 * rows), device.empty(4 * rows), rows)
        assert one.data is not None
        device.launch(label, rows, Label(one.data.address, where.address, sizes.address, payloads.at.address, payloads.length.address))
        made = bytes_column(device, payloads, True)
        return Column("string", rows, made.data, mask, nulls, made.children)


def packed(device: Runtime, tables: Sequence[Int64s]) -> tuple[Memory, list[int]]:
    """Tables of int64 by one upload: what has to be held, and the address of each."""
    flat = [one.reshape(-1) for one in tables]
    held = device.upload(np.concatenate(flat))
    return held, (held.address + 8 * np.cumsum([0, *map(len, flat[:-1])])).tolist()


def address_of(memory: Memory | None) -> int:
    """0 without memory."""
    return 0 if memory is None else memory.address
