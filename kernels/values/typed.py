"""Columns of any layout on the device: memory for them, the two passes that write them, and the tree of columns that they are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from kolumn.encodings.columns import NULL_BYTES, NULL_LIST, NULL_WORD
from kolumn.errors import ArgumentError, KolumnError
from kolumn.kernels.columns.binary import number_of
from kolumn.kernels.columns.flags import Label, label
from kolumn.kernels.columns.table import Column, bytes_column
from kolumn.kernels.fields.decoded import DevicePayloads
from kolumn.kernels.machine.runtime import Memory, Runtime
from kolumn.kernels.values.bodies import DeviceBodies
from kolumn.kernels.values.records import (
    FRAME,
    EvenEnds,
    FlagBits,
    MeasureValues,
    WriteValues,
    even_ends,
    flag_bits,
    measure_values,
    write_values,
)
from kolumn.values.avro.decoder import AvroDecoder
from kolumn.values.avro.program import AvroProgram
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


@dataclass
class Made:
    """One column of the layout on the device."""

    data: Memory | None
    valid: Memory | None
    ends: Memory | None


def parse_records(device: Runtime, bodies: DeviceBodies, decoder: AvroDecoder) -> tuple[Column, Column]:
    """The column of Avro values and their flags of validity; two waits, for the sizes and for the numbers of nulls."""
    n, layout, programs = bodies.count, decoder.layout, decoder.programs(bodies.schemas)
    rows_of_cells = len(layout.levels) + layout.bytes_columns
    frames = max(one.frames for one in programs if one is not None)
    words, table = _uploaded(device, programs)
    stack, back = device.empty(FRAME * frames * n), device.empty(4 * n)
    cells, valid = device.zeros(8 * (n + 2) * rows_of_cells), device.empty(n)
    shared = MeasureValues(
        bodies.at.address, bodies.length.address, bodies.prefix.address, bodies.schema.address, int(bodies.bare), back.address,
        table.address, stack.address, frames, cells.address, n, len(layout.levels), layout.bytes_columns, valid.address,
    )  # fmt: skip
    device.launch(measure_values, n, shared)
    _, rows, sizes = totals(device, cells, layout, n)
    memory = LayoutMemory(device, layout, rows, sizes)
    device.launch(write_values, n, WriteValues(**shared._asdict(), **memory.addresses))
    del words
    column = ColumnTree(device, layout, memory.made, rows).column()
    return column, Column("bool", n, valid)


def _uploaded(device: Runtime, programs: Sequence[AvroProgram | None]) -> tuple[Memory, Memory]:
    """The steps of all programs, one after the other, and the address of each: 0 for none."""
    words = [np.zeros(0, np.int64) if one is None else one.words for one in programs]
    held = device.upload(np.concatenate(words))
    begins = held.address + np.cumsum([0, *(one.nbytes for one in words[:-1])])
    return held, device.upload(np.where([one is None for one in programs], 0, begins).astype(np.int64))


def struct_of(device: Runtime, fields: dict[str, Column], valid: Memory, rows: int) -> Column:
    """A struct of columns, null where a flag of ``valid`` is 0."""
    bitmap, nulls = _begin_mask(device, valid, rows) if rows else (None, None)
    count = number_of(device.download(*nulls)) if nulls is not None else 0
    return Column("struct", rows, None, bitmap if count else None, count, tuple(fields.values()), tuple(fields))


def fields_of(column: Column) -> dict[str, Column]:
    """The fields of a struct as columns of their own, null where it is: in those that can be null, its rows are null already."""
    found = {}
    for name, one in zip(column.fields, column.children, strict=True):
        found[name] = replace(one, bitmap=column.bitmap, nulls=column.nulls) if column.nulls and one.bitmap is None else one
    return found


def _begin_mask(device: Runtime, flags: Memory, rows: int) -> tuple[Memory, tuple[Memory, int, int]]:
    """The bitmap of some flags, and what to download: how many are 0."""
    words = -(-rows // 32)
    bitmap, nulls = device.pieces([4 * words, 4 * words])
    device.launch(flag_bits, words, FlagBits(flags.address, rows, bitmap.address, nulls.address))
    device.running_sum(nulls, words, 4)
    return bitmap, (nulls, 4, 4 * (words - 1))


class LayoutMemory:
    """Memory of all columns on the device, and the tables that name it.

    Attributes
    ----------
    made : list of Made
        Memory of each column of the layout.
    addresses : dict of str to int
        The arguments that both kinds of kernels take after those of their first pass.
    """

    def __init__(self, device: Runtime, layout: ColumnLayout, rows: list[int], sizes: list[int]) -> None:
        self.made = [_allocate(device, spec, rows[spec.level], sizes[number]) for number, spec in enumerate(layout.columns)]
        table = np.array([[0 if one is None else one.address for one in (c.data, c.valid, c.ends)] + [_MOST] for c in self.made], np.int64)
        levels = np.array([(room, *level, 0) for room, level in zip(rows, layout.levels, strict=True)], np.int64)
        self._tables = [device.upload(one) for one in (table.reshape(-1, 4), levels, layout.fill_table())]
        names = ("column_table", "level_table", "fill_table")
        self.addresses = {name: one.address for name, one in zip(names, self._tables, strict=True)}
        self.addresses |= {"first_fill": layout.root.first_fill, "fills": layout.root.fills, "ended": len(layout.columns)}


def totals(device: Runtime, cells: Memory, layout: ColumnLayout, n: int) -> tuple[int, list[int], list[int]]:
    """The sum of level 0, rows of each level, and bytes of each column; where each value begins takes the place of its sizes."""
    levels, width = len(layout.levels), 8 * (n + 2)
    device.running_sum(cells, (n + 2) * (levels + layout.bytes_columns), 8)
    # All sums go on from row to row: the last cell of each is the first of the next.
    ends = device.downloads([(cells, 8, width * (row + 1) - 8) for row in range(levels + layout.bytes_columns)])
    found = np.diff([0, *(int(one.view(np.int64)[0]) for one in ends)]).tolist()
    for row, total in enumerate(found):
        if total > _MOST:
            what = "elements" if row < levels else "bytes"
            raise KolumnError(
                f"values of one chunk have {total} {what} in one column, and cuDF counts to {_MOST}: take a smaller chunk_bytes"
            )
    return found[0], [n, *found[1:levels]], [*found[levels:], *[0] * (len(layout.columns) - layout.bytes_columns)]


def _allocate(device: Runtime, spec: ColumnSpec, rows: int, size: int) -> Made:
    data = device.empty(spec.width * rows if spec.kind == NULL_WORD else size) if spec.kind in (NULL_WORD, NULL_BYTES) else None
    # Without any value no thread writes where the first one begins.
    ends = (device.empty if rows else device.zeros)(4 * (rows + 1)) if spec.kind in (NULL_BYTES, NULL_LIST) else None
    return Made(data, device.empty(rows) if spec.nullable else None, ends)


class ColumnTree:
    """Makes columns of the memory of a layout."""

    def __init__(self, device: Runtime, layout: ColumnLayout, made: list[Made], rows: list[int]) -> None:
        self.device, self.layout, self.made, self.rows = device, layout, made, rows
        self.masks: dict[int, tuple[Memory, int]] = {}

    def column(self) -> Column:
        """The column of the root."""
        self.mark()
        return self.node(self.layout.root)

    def mark(self) -> None:
        """Make the bitmaps of all flags of validity; a wait."""
        begun = {}
        for number, (spec, one) in enumerate(zip(self.layout.columns, self.made, strict=True)):
            rows = self.rows[spec.level]
            if one.valid is not None and rows:
                begun[number] = _begin_mask(self.device, one.valid, rows)
        counts = self.device.downloads([wanted for _, wanted in begun.values()]) if begun else []
        self.masks = {number: (bitmap, number_of(count)) for (number, (bitmap, _)), count in zip(begun.items(), counts, strict=True)}

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
