"""Columns of any layout on the device: memory for them, the two passes that write them, and the tree of columns that they are.

Avro records run a program of `kolumn.values.wire.avro`, a thread per value: each that of its own schema. Bound: the values'
bytes, read once, their lists twice, and the columns' bytes, written once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Int64s
from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.formats.words import load32, load64, store8, store64
from kolumn.kernels.columns.table import Column, begin_labels, finished, payload_column
from kolumn.kernels.machine.kernel import Arguments, Kernel, arguments, thread_per_item
from kolumn.kernels.machine.runtime import Memory, Runtime
from kolumn.kernels.values import passes
from kolumn.kernels.values.bodies import DeviceBodies
from kolumn.kernels.values.passes import STAGED, Cells, WriteTables, counting, uncount, writing
from kolumn.values.avro import AvroDecoder
from kolumn.values.memory import ColumnLayout, LayoutNode
from kolumn.values.wire.avro import decode
from kolumn.values.wire.columns import DONE, NULL_BYTES, NULL_LIST, NULL_WORD, put_nulls

FRAME = 24
"""Bytes of a frame of a value's stack."""
_INVALID, _BARE = -1, -(2**63)
Records = arguments(__name__, "Records", "at length prefix schema bare notes programs stack frames")
"""What both passes take of the values; addresses, but for the numbers.

at … schema      as in `kolumn.kernels.values.bodies.DeviceBodies`
bare             1 if a body that is not valid may be a value without a prefix, of the reader's schema
notes            int64: 0, or where the first pass saw the first list, as `kolumn.values.wire.avro.decode` leaves it; negative for a
                 value without a prefix, which begins before its body
programs         place among the tables: int64 of the reader's schema and of each writer's: where its steps are, 0 if not known
stack, frames    memory for so many frames of each value"""
RecordPass = arguments(__name__, "RecordPass", Records, Cells, WriteTables)
"""Arguments of both passes."""


@thread_per_item(RecordPass, block=128, staged=STAGED)
def measure_values(i: int, tables: int, a: Arguments) -> None:
    """Write the columns of value ``i`` itself, what it takes in each level and column, and whether it is valid."""
    t, code, bare = counting(i, tables, a), _INVALID, 0
    while True:
        # Loaded again in the second turn, and after it: registers are few.
        back, schema = (load32(a.prefix + 4 * i), 0) if bare != 0 else (0, load32(a.schema + 4 * i) + 1)
        begin, end = load64(a.at + 8 * i) - back, load64(a.at + 8 * i) + load32(a.length + 4 * i)
        program = a.programs + load64(tables + a.programs + 8 * schema)
        if end < begin + back or program == a.programs:
            break
        code = decode(t, tables + program, a.tables + program, a.stack + FRAME * a.frames * i, begin, end, i, 0)
        if code == DONE:
            break
        uncount(i, a)
        # A value may only look as if there were a prefix.
        if bare != 0 or a.bare == 0 or load32(a.prefix + 4 * i) <= 0:
            break
        bare = 1
    if code != DONE:
        put_nulls(t, a.first_fill, a.fills, i)
    lists = load64(a.stack + FRAME * a.frames * i) if code == DONE else 0
    store64(a.notes + 8 * i, lists | _BARE if bare != 0 and lists != 0 else lists)
    store8(a.valid + i, 1 if code == DONE else 0)


@thread_per_item(RecordPass, block=128, staged=STAGED)
def write_values(i: int, tables: int, a: Arguments) -> None:
    """Write what is in lists of value ``i`` into the columns, from where the sums say."""
    t, note = writing(i, tables, a), load64(a.notes + 8 * i)
    if note != 0:
        schema, begin = load32(a.schema + 4 * i) + 1, load64(a.at + 8 * i)
        end = begin + load32(a.length + 4 * i)
        if note < 0:
            schema, begin, note = 0, begin - load32(a.prefix + 4 * i), note ^ _BARE
        program = a.programs + load64(tables + a.programs + 8 * schema)
        decode(t, tables + program, a.tables + program, a.stack + FRAME * a.frames * i, begin, end, i, note)


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
    """Kind of the column of a type; `ArgumentError` if cuDF has nothing for it. Times of day are their integers, enums strings, fixed sizes
    bytes, maps lists of key and value; timestamps have no zone."""
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
    programs, n = decoder.programs(bodies.schemas), bodies.count
    frames = max(one.frames for one in programs if one is not None)
    words = [np.zeros(0, np.int64) if one is None else one.words for one in programs]
    begins = 8 * (len(words) + np.cumsum([0, *map(len, words[:-1])]))
    table = np.concatenate([np.where([one is None for one in programs], 0, begins), *words])
    made = LayoutColumns(device, decoder.layout, n, [table], [FRAME * frames * n, 8 * n])
    stack, notes = made.room
    own = (bodies.at, bodies.length, bodies.prefix, bodies.schema, int(bodies.bare), notes, *made.given, stack, frames)
    made.written(own, measure_values, write_values)
    return made.column(), made.valid


def fields_of(column: Column) -> dict[str, Column]:
    """The fields of a struct as columns of their own, null where it is: in those that can be null, its rows are null already."""
    found = {}
    for name, one in zip(column.fields, column.children, strict=True):
        found[name] = replace(one, bitmap=column.bitmap, nulls=column.nulls) if column.nulls and one.bitmap is None else one
    return found


@dataclass
class Made:
    """One column of a layout on the device; ``sources`` are where its texts are, for `texts`."""

    data: Memory | None = None
    valid: Memory | None = None
    bitmap: Memory | None = None
    ends: Memory | None = None
    sources: Memory | None = None


class LayoutColumns:
    """Columns of a layout on the device for ``n`` values: memory that kernels write, and the tree of columns that it becomes. What else the
    kernels are told, ``tables``, goes to the device with the others: ``given`` are their places among the tables of a pass. They need
    ``room`` bytes of memory for themselves. ``valid`` are flags of the values."""

    def __init__(self, device: Runtime, layout: ColumnLayout, n: int, tables: Sequence[Int64s] = (), room: Sequence[int] = ()) -> None:
        self.device, self.layout, self.rows = device, layout, [n] + [0] * (len(layout.levels) - 1)
        self.masks: dict[int, tuple[Memory | None, int]] = {}
        self.made = [Made() for _ in layout.columns]
        self._early = [number for number, spec in enumerate(layout.columns) if spec.level == 0]
        self._late = [number for number in range(len(layout.columns)) if number not in self._early]
        valid, *self.room = self._allocate(self._early, {}, [n], room)
        self.valid = Column("bool", n, valid)
        self._flagged, self._shift, flags = self._flags(self._early)
        self._count = (n + 2) * (len(layout.levels) - 1 + layout.bytes_columns)
        self._cells = device.zeros(8 * (self._count + (len(self._flagged) << self._shift) + 1))
        table = np.zeros((len(layout.columns), 4), np.int64)
        for number in self._early:
            one = self.made[number]
            table[number, :2] = address_of(one.sources or one.data), address_of(one.valid)
        self._given, self._held = tables, list[Memory]()
        (self._columns,) = self._upload(table, [flags])

    def _upload(self, columns: Int64s, others: Sequence[Int64s]) -> list[int]:
        """Send the tables of a pass, and others: the addresses of these. Given tables are at the same places for both passes."""
        flat = [one.reshape(-1) for one in (*self._given, self.layout.fill_table(), columns, *others)]
        held, places = self.device.upload(np.concatenate(flat)), np.cumsum([0, *(8 * len(one) for one in flat)]).tolist()
        self._held.append(held)
        self.given, (fill_table, column_table, *rest) = places[: len(self._given)], places[len(self._given) : -1]
        root = self.layout.root
        self._tables = held.address, rest[0], column_table, fill_table, root.column, root.first_fill, root.fills
        return [held.address + place for place in rest]

    def _allocate(
        self, numbers: Sequence[int], sizes: Mapping[int, int], kept: Sequence[int] = (), room: Sequence[int] = ()
    ) -> list[Memory]:
        """Memory for columns, and pieces that are asked for: what is kept, and by another allocation what only the kernels need. Columns of
        bytes without a size get memory for where their texts are."""
        lasting, passing = [(number, "data", sizes[number]) for number in sizes], []
        for number in numbers:
            spec = self.layout.columns[number]
            rows = self.rows[spec.level]
            if spec.kind == NULL_WORD:
                lasting.append((number, "data", spec.width * rows))
            elif spec.kind == NULL_BYTES and number not in sizes:
                passing.append((number, "sources", 8 * rows))
            if spec.kind in (NULL_BYTES, NULL_LIST):
                lasting.append((number, "ends", 4 * (rows + 1)))
            if spec.nullable and rows:
                lasting.append((number, "bitmap", 4 * -(-rows // 32)))
                passing.append((number, "valid", rows))
        others: list[Memory] = []
        for wanted, more in ((lasting, kept), (passing, room)):
            # Without any value no thread writes where the first one begins.
            sizes_of = [*(size for _, _, size in wanted), *more]
            found = self.device.pieces(sizes_of, zeros=not self.rows[0]) if sizes_of else []
            for (number, what, _), memory in zip(wanted, found, strict=False):
                setattr(self.made[number], what, memory)
            others += found[len(wanted) :]
        return others

    def _flags(self, numbers: Sequence[int]) -> tuple[list[int], int, Int64s]:
        """Of some columns those with flags, and what `flag_bits` is told of them."""
        flagged = [number for number in numbers if self.made[number].valid is not None]
        counts = [self.rows[self.layout.columns[number].level] for number in flagged]
        columns = [
            (address_of(self.made[number].valid), count, address_of(self.made[number].bitmap))
            for number, count in zip(flagged, counts, strict=True)
        ]
        return flagged, (-(-max(counts, default=1) // 32) - 1).bit_length(), np.array(columns, np.int64)

    def written(self, own: tuple[Memory | int, ...], first: Kernel, second: Kernel) -> bool:
        """Write the columns, as `kolumn.kernels.values.passes` says; a wait. ``own`` are the arguments that the passes take before those of
        all. Returns whether the first pass leaves a value to the host. Then the columns are not complete."""
        device, cells, n, lists, width = self.device, self._cells, self.rows[0], len(self.rows) - 1, self.rows[0] + 2
        words = len(self._flagged) << self._shift
        places = cells.address - 8 * width, cells.address + 8 * width * lists, 8 * width, self._count // width
        shared = (*own, *places, self.valid.data, cells.address + cells.size - 8)
        device.launch(first, n, first.args(*shared, *self._tables, 0, 0))
        nulls = cells.address + 8 * self._count
        device.launch(passes.flag_bits, words, passes.FlagBits(self._columns, self._shift, nulls))
        if self._count + words:
            device.running_sum(cells, self._count + words, 8)
        # All sums go on from row to row: the last cell of each is the first of the next.
        ends = [cells.size // 8 - 1, *range(width - 1, self._count, width)]
        ends += [self._count + (at << self._shift) - 1 for at in range(1, len(self._flagged) + 1)]
        left, *sums = (int(one.view(np.int64)[0]) for one in device.downloads([(cells, 8, 8 * at) for at in ends]))
        totals = np.diff([0, *sums]).tolist()
        self._note_masks(totals[self._count // width :])
        if not left and (self._late or self._count):
            self._write_rest(shared, second, totals[: self._count // width])
        return bool(left)

    def _note_masks(self, nulls: Sequence[int]) -> None:
        """Note how many nulls the columns with flags have; their bitmaps are there."""
        for number, count in zip(self._flagged, nulls, strict=True):
            self.masks[number] = self.made[number].bitmap if count else None, count
        self._flagged = []

    def _write_rest(self, shared: tuple[Memory | int | None, ...], second: Kernel, totals: list[int]) -> None:
        """Write texts, ends, and what the second pass writes, by the totals of lists and columns of bytes."""
        device, layout, late, n, lists = self.device, self.layout, self._late, self.rows[0], len(self.rows) - 1
        for row, total in enumerate(totals):
            if total > _MOST:
                what = "elements" if row < lists else "bytes"
                raise KolumnError(
                    f"values of one chunk have {total} {what} in one column, and cuDF counts to {_MOST}: take a smaller chunk_bytes"
                )
        self.rows[1:] = totals[:lists]
        self._allocate(late, dict(enumerate(totals[lists:])))
        self._flagged, self._shift, flags = self._flags(late)
        before, table, of_texts = [0, *np.cumsum(totals).tolist()], np.zeros((len(layout.columns), 4), np.int64), []
        for number, (spec, one) in enumerate(zip(layout.columns, self.made, strict=True)):
            # The row of cells of a list or column of bytes, and how many elements are before those of the column's level.
            row = lists + number if spec.kind == NULL_BYTES else spec.width - 1
            begun, above = (0 if one.ends is None else before[row]), (before[spec.level - 1] if spec.level else 0)
            if number not in self._early:
                data = begun if spec.kind == NULL_BYTES else spec.width * above
                table[number] = address_of(one.data, data), address_of(one.valid, above), address_of(one.ends, 4 * above), begun
            elif one.ends is not None:
                sums = self._cells.address + 8 * ((n + 2) * row + 1)
                of_texts.append((sums, begun, one.ends.address, address_of(one.sources), address_of(one.data)))
        ends = np.array([address_of(self.made[number].ends) for number in late if self.made[number].ends is not None], np.int64)
        self._columns, at, ends_at = self._upload(table, [flags, np.array(of_texts, np.int64), ends])
        device.launch(passes.texts, n if of_texts else 0, passes.Texts(at, at + passes.TEXTS * len(of_texts)))
        if late:
            device.launch(second, n, second.args(*shared, *self._tables, ends_at, len(ends)))

    def mark(self) -> None:
        """Make the bitmaps of the flags of validity that the second pass has written; a wait if there are any."""
        words = len(self._flagged) << self._shift
        if not words:
            return
        nulls = self.device.empty(8 * words)
        self.device.launch(passes.flag_bits, words, passes.FlagBits(self._columns, self._shift, nulls))
        self.device.running_sum(nulls, words, 8)
        places = [(at << self._shift) - 1 for at in range(1, len(self._flagged) + 1)]
        sums = [int(one.view(np.int64)[0]) for one in self.device.downloads([(nulls, 8, 8 * at) for at in places])]
        self._note_masks(np.diff([0, *sums]).tolist())

    def column(self) -> Column:
        """The column of the root; a wait."""
        self.mark()
        return self.node(self.layout.root)

    def node(self, node: LayoutNode) -> Column:
        """The column of a node."""
        rows, kind = self.rows[node.level], kind_of(node.type)
        mask, nulls = self.masks.get(node.column, (None, 0))
        if kind == "struct":
            return Column(kind, rows, None, mask, nulls, tuple(map(self.node, node.children)), tuple(one.name for one in node.type))
        one = self.made[node.column]
        if node.child_level >= 0:
            inner = [self.node(child) for child in node.children]
            entries = self.rows[node.child_level]
            items = inner[0] if pa.types.is_list(node.type) else Column("struct", entries, children=tuple(inner), fields=("key", "value"))
            return Column(kind, rows, None, mask, nulls, (Column("int32", rows + 1, one.ends), items))
        if node.symbols:
            return self._named(node, one, mask, nulls)
        if self.layout.columns[node.column].kind == NULL_BYTES:
            assert one.data is not None
            assert one.ends is not None
            return payload_column(kind, rows, one.ends, one.data, one.data.size, mask, nulls)
        if kind == "bytes":
            even = self.device.empty(4 * (rows + 1))
            self.device.launch(passes.even_ends, rows + 1, passes.EvenEnds(even, node.width))
            assert one.data is not None
            return payload_column(kind, rows, even, one.data, node.width * rows, mask, nulls)
        return Column(kind, rows, one.data, mask, nulls)

    def _named(self, node: LayoutNode, one: Made, mask: Memory | None, nulls: int) -> Column:
        """Strings for the numbers of an enum; a null's number is that of no name."""
        rows = self.rows[node.level]
        made = finished(self.device, begin_labels(self.device, address_of(one.data), node.symbols, rows))
        return Column("string", rows, made.data, mask, nulls, made.children)


def address_of(memory: Memory | None, before: int = 0) -> int:
    """Where some bytes before a memory are; 0 without memory."""
    return 0 if memory is None else memory.address - before
