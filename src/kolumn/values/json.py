"""Values of JSON. A compiled loop decodes the rows that it is sure of, and says which values do not fit their fields; a plain reader, the
reference, decides the other rows (`kolumn.values.json_plain`). Times, dates, decimals and bytes are columns of text first, which are
converted all at once (`kolumn.values.json_texts`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Flags, Int64s
from kolumn.core.lost import ELEMENTS, WHOLE
from kolumn.core.paths import JSON as BY_LOOP
from kolumn.core.paths import turned_off
from kolumn.cpu_fallback.values.json import FULL, are_texts, decode_objects
from kolumn.values.decoder import Bodies, Salvaged, array_of, only_rows, spread, with_unit
from kolumn.values.extensions import JSON_TEXT, column_of, in_type
from kolumn.values.json_plain import PlainType
from kolumn.values.json_texts import typed_texts
from kolumn.values.memory import ColumnLayout, ColumnMemory, LayoutNode, shared_bytes
from kolumn.values.wire.json import (
    BOOLEAN,
    DOUBLE,
    FIELD,
    FLOAT,
    FRAME,
    INTEGER,
    JSON,
    LIST,
    MAP,
    NO_LENGTH,
    NUMBER,
    OBJECT,
    QUOTED,
    TEXT,
    JsonProgram,
)
from kolumn.values.wire.json_numbers import LEAST, MOST


@dataclass
class LostFields:
    """Which fields of which rows are lost, by the numbers of their paths: ``numbers`` of ``rows``, of many at a time; or all of a row."""

    rows: list[Int64s] = field(default_factory=list)
    numbers: list[Int64s] = field(default_factory=list)
    others: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def add(self, rows: Int64s, number: int | Int64s) -> None:
        self.rows.append(rows)
        self.numbers.append(np.broadcast_to(np.asarray(number, np.int64), rows.shape))

    def flags(self, count: int) -> Flags:
        """Which of as many rows have lost something."""
        flags = np.zeros(count, bool)
        for rows in (*self.rows, np.fromiter(self.others, np.int64)):
            flags[rows] = True
        return flags

    def of_rows(self, count: int, paths: tuple[str, ...]) -> list[tuple[str, ...]]:
        """The lost paths of each row, in the order of ``paths``."""
        # Arrays of objects: nearly all rows have lost one field or none.
        found, alone = np.empty(count, object), np.empty(len(paths), object)
        found.fill(())
        alone[:] = [(path,) for path in paths]
        if self.rows:
            pairs = np.unique(np.concatenate(self.rows) * len(paths) + np.concatenate(self.numbers))
            rows, numbers = np.divmod(pairs, len(paths))
            begins = np.flatnonzero(np.diff(rows, prepend=-1))
            sizes = np.diff(begins, append=len(rows))
            found[rows[begins]] = alone[numbers[begins]]
            for begin, size in zip(begins[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True):
                found[rows[begin]] = tuple(paths[number] for number in numbers[begin : begin + size].tolist())
        for row, own in self.others.items():
            found[row] = own
        return found.tolist()


class JsonDecoder:
    """Decodes JSON (RFC 8259; NaN and Infinity are numbers, as Python writes them) into the struct of an object, or into a list, a map or
    one scalar; or keeps any value as `JSON_TEXT`. A value is valid if it is UTF-8, of that kind and nothing after it, names no wanted
    member twice, and has for every wanted member that is there and not null a value of its type:

    * integers in their range, also as 1.0 or 1e3; any number for floating point that is not too large for it;
    * text for text, and the JSON text of any other value, as it stands; for JSON text that of any value;
    * decimals as numbers or as text, without other digits than zeros after those of the type;
    * times and dates as ISO 8601 text: without a zone they are UTC in a type that has one, with a zone they do not fit a type without.
      Digits that the type's unit does not have are zeros, or are cut off from timestamps if ``time_unit`` is given, the unit of them all;
    * bytes as base64, by the standard alphabet or that of URLs, padded or not;
    * of a map no key twice.

    Members that are not wanted are ignored; that the text is JSON is checked.
    """

    def __init__(self, type: pa.DataType, time_unit: str | None = None) -> None:
        self.type: pa.DataType = with_unit(type, time_unit)
        self._truncate = time_unit is not None
        self._plain = PlainType.of(self.type, self._truncate)
        self._tables = json_tables(self.type)
        # The loop reads objects, lists and maps.
        self._by_loop = BY_LOOP not in turned_off() and (pa.types.is_nested(self.type) or self.type == JSON_TEXT)

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `ValueDecoder.decode`; `OverflowError` if a column has more bytes or elements than 2**31 - 1."""
        array, lost = self._read(bodies)
        fine = ~lost.flags(len(bodies))
        return only_rows(array, fine), fine & (np.asarray(bodies.length) >= 0)

    def salvage(self, bodies: Bodies) -> Salvaged:
        array, lost = self._read(bodies)
        return array, lost.of_rows(len(bodies), self._tables.paths)

    def _read(self, bodies: Bodies) -> tuple[pa.Array, LostFields]:
        count, there = len(bodies), np.asarray(bodies.length) >= 0
        if not count:
            return pa.nulls(0, self.type), LostFields()
        if not self._by_loop:
            array, lost, left = pa.nulls(count, self.type), LostFields(), there
        elif self.type == JSON_TEXT:
            fine = _texts(bodies)
            array, lost, left = spread(in_type(array_of(bodies, fine).cast(pa.string()), JSON_TEXT), fine), LostFields(), there & ~fine
        else:
            array, decided, lost = self._decided(bodies)
            left = there & ~decided
        rows = np.flatnonzero(left)
        if not len(rows):
            return array, lost
        values = []
        for row in rows.tolist():
            value, paths = self._plain.value(bodies.payload(row))
            values.append(value)
            if paths:
                lost.others[row] = tuple(sorted(paths, key=self._tables.paths.index))
        order = np.arange(count)
        order[rows] = count + np.arange(len(rows))
        return pa.concat_arrays([array, column_of(values, self.type)]).take(pa.array(order)), lost

    def _decided(self, bodies: Bodies) -> tuple[pa.Array, Flags, LostFields]:
        """The rows that the loop decides; the others are null. And what these have lost."""
        tables, lost = self._tables, LostFields()
        array, decided, noted = _by_loop(tables, bodies)
        if len(noted):
            lost.add(noted[:, 0], tables.numbers_of_paths[noted[:, 1] // FIELD])
        return self._typed(array, tables.root, (), lost), decided, lost

    def _typed(self, array: pa.Array, node: "JsonNode", around: tuple[Int64s, ...], lost: LostFields) -> pa.Array:
        """What was read as `_readable`, as its type. ``around`` are the ends of the lists that the rows are in, the innermost one first."""
        type = node.type
        if not node.has_texts:
            return array
        if not node.children:
            typed = typed_texts(array, type, self._truncate)
            if typed.null_count > array.null_count:
                rows = np.flatnonzero(typed.is_null().to_numpy(zero_copy_only=False) & array.is_valid().to_numpy(zero_copy_only=False))
                for ends in around:
                    rows = np.searchsorted(ends, rows, "right") - 1
                lost.add(rows, node.path)
            return typed
        if pa.types.is_struct(type):
            children = [self._typed(array.field(number), child, around, lost) for number, child in enumerate(node.children)]
            return pa.Array.from_buffers(type, len(array), array.buffers()[:1], array.null_count, children=children)
        inner = (array.offsets.to_numpy(), *around)
        if pa.types.is_map(type):
            entries = [array.keys, self._typed(array.items, node.children[1], inner, lost)]
            values = pa.StructArray.from_arrays(entries, fields=[type.key_field, type.item_field])
        else:
            values = self._typed(array.values, node.children[0], inner, lost)
        return pa.Array.from_buffers(type, len(array), array.buffers()[:2], array.null_count, children=[values])


def _addresses(bodies: Bodies) -> tuple[Int64s, Int64s]:
    address, length = (np.ascontiguousarray(column, np.int64) for column in (bodies.address, bodies.length))
    return address, length


def _texts(bodies: Bodies) -> Flags:
    """Which values are certainly JSON text."""
    fine, short = np.empty(len(bodies), np.bool_), np.empty(1, np.int64)
    are_texts(*_addresses(bodies), short.ctypes.data, fine)
    return fine


def _by_loop(tables: "JsonTables", bodies: Bodies) -> tuple[pa.Array, Flags, Int64s]:
    """The rows that the loop decides, as `_readable` types; the others are null. And rows with what is lost of them, a row of the table."""
    count, root, fields = len(bodies), tables.layout.root, len(tables.fields) // _WORDS
    address, length = _addresses(bodies)
    stamps, marks = np.zeros(fields + 1, np.int64), np.zeros(fields + 1, np.int64)
    frames, short, lost = np.empty(tables.frames // 8, np.int64), np.empty(1, np.int64), np.zeros((fields + 65, 2), np.int64)
    names = np.frombuffer(tables.names, np.uint8)
    memory = ColumnMemory(tables.layout, count, count + 64, shared_bytes(tables.layout, length))
    decided, row = np.empty(count, np.bool_), 0
    while True:
        program = JsonProgram(*(array.ctypes.data for array in (tables.fields, names, tables.numbers, stamps, frames, marks, lost)))
        # The first pair is no field, and a row loses each field once.
        room, fill = len(lost) - fields, (root.first_fill, root.fills)
        row, code = decode_objects(memory.target, program, address, length, *fill, short.ctypes.data, row, decided, room)
        if code == 0:
            return memory.array(count), decided, lost[1 : 1 + lost[0, 0]]
        if code == FULL:
            lost = np.concatenate([lost, np.zeros_like(lost)])
        else:
            memory.grow(code)


def _readable(type: pa.DataType) -> pa.DataType:
    """The type that the loop writes: text in place of times, dates, decimals and bytes."""
    if pa.types.is_struct(type):
        return pa.struct([pa.field(field.name, _readable(field.type)) for field in type])
    if pa.types.is_list(type):
        return pa.list_(_readable(type.value_type))
    if pa.types.is_map(type):
        return pa.map_(type.key_type, _readable(type.item_type))
    return pa.string() if _is_text(type) else type


def _is_text(type: pa.DataType) -> bool:
    return pa.types.is_temporal(type) or pa.types.is_decimal(type) or pa.types.is_binary(type)


_WORDS = FIELD // 8
_KINDS = {pa.string(): TEXT, JSON_TEXT: JSON, pa.float64(): DOUBLE, pa.float32(): FLOAT, pa.bool_(): BOOLEAN}
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class JsonNode:
    """A type, the number of its path, and whether texts in it are to be converted; ``children`` as in `LayoutNode`."""

    type: pa.DataType
    path: int
    has_texts: bool
    children: "tuple[JsonNode, ...]"


@dataclass(frozen=True)
class JsonTables:
    """The tables of a program; they do not change, so threads share them. ``frames`` are bytes of memory; ``names`` have each a quote and a
    colon after it; ``fields`` are rows of `kolumn.values.wire.json`, ``numbers`` the table of `kolumn.values.wire.json_numbers`. ``paths``
    are all that can be lost, and ``numbers_of_paths`` say which of them each row of ``fields`` is.
    """

    layout: ColumnLayout
    root: JsonNode
    fields: Int64s
    names: bytes
    numbers: Int64s
    frames: int
    paths: tuple[str, ...]
    numbers_of_paths: Int64s


def json_tables(type: pa.DataType) -> JsonTables:
    """The tables of a type whose parts all may be null, and whose structs have no name twice."""
    layout, paths = ColumnLayout.of(_readable(type)), {WHOLE: 0, ELEMENTS: 1}
    root = _nodes(type, "", paths)
    rows: list[list[int]] = [[0] * _WORDS]
    names, waiting, own, depth = bytearray(), [(0, layout.root, root)], [root.path], 0
    # Children of an object follow each other, so they are numbered before what is in them.
    for at, node, kind in waiting:
        first, count = len(rows), len(node.children)
        is_empty = pa.types.is_struct(kind.type) and not count
        # An object without fields expects one that has no name.
        rows += [[0] * _WORDS for _ in range(count + is_empty)]
        own += [child.path for child in kind.children] + [0] * is_empty
        waiting += [(first + k, *pair) for k, pair in enumerate(zip(node.children, kind.children, strict=True))]
        rows[at][:10] = _row(node, kind.type, first)
        rows[at][11:] = [8 * (at + 1), *_name(node.name, names)]
        for k in range(count + is_empty):
            rows[first + k][10] = FIELD * (first + (k + 1) % max(count, 1))
            rows[first + k][12] = NO_LENGTH
        depth += node.child_level >= 0 or count > 0 or is_empty
    fields = np.array(rows, np.int64).reshape(-1)
    return JsonTables(layout, root, fields, bytes(names), _numbers(), FRAME * (depth + 1), tuple(paths), np.array(own, np.int64))


def _nodes(type: pa.DataType, path: str, paths: dict[str, int]) -> JsonNode:
    number = paths.setdefault(path or ELEMENTS, len(paths))
    inner: Iterator[JsonNode] = iter(())
    if pa.types.is_struct(type):
        inner = (_nodes(part.type, f"{path}.{part.name}" if path else part.name, paths) for part in type)
    elif pa.types.is_list(type) or pa.types.is_map(type):
        parts = [type.value_type] if pa.types.is_list(type) else [type.key_type, type.item_type]
        inner = (_nodes(part, path, paths) for part in parts)
    children = tuple(inner)
    return JsonNode(type, number, _is_text(type) or any(child.has_texts for child in children), children)


def _row(node: LayoutNode, type: pa.DataType, first: int) -> list[int]:
    """The first words of a row, up to the number of children."""
    kind, least, most = _KINDS.get(type, INTEGER), 0, 0
    if pa.types.is_struct(type):
        kind = OBJECT
    elif pa.types.is_list(type):
        kind = LIST
    elif pa.types.is_map(type):
        kind = MAP
    elif _is_text(type):
        kind = NUMBER if pa.types.is_decimal(type) else QUOTED
    elif kind == INTEGER:
        limits = np.iinfo(type.to_pandas_dtype())
        least, most = int(limits.min), min(int(limits.max), _LARGEST)
    return [kind, node.column, node.width, least, most, node.first_fill, node.fills, node.child_level, FIELD * first, len(node.children)]


def _name(name: str, names: bytearray) -> list[int]:
    """Length, first word, mask and place of a name, which is added to ``names``."""
    place, text = len(names), name.encode() + b'":'
    names += text
    if any(character < " " or character in '"\\' for character in name):
        return [NO_LENGTH, len(text), 0, place]
    word, mask = int.from_bytes(text[:8], "little"), (1 << 8 * min(len(text), 8)) - 1
    return [len(text), _signed(word), _signed(mask), place]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


@cache
def _numbers() -> Int64s:
    words = [_LARGEST // 10**count for count in range(9)] + [10**count for count in range(9)]
    for exponent in range(LEAST, MOST + 1):
        power = _power_of_five(exponent)
        words += [_signed(power >> 64), _signed(power & (1 << 64) - 1)]
    return np.array(words, np.int64)


def _power_of_five(exponent: int) -> int:
    """128 bits of a power of five, of which the highest one is set: cut off, but rounded up where a middle of two numbers could be met."""
    power = 5 ** abs(exponent)
    bits = power.bit_length()
    if exponent >= 0:
        return power << 128 - bits if bits <= 128 else power >> bits - 128
    if exponent >= -27:
        return (1 << bits + 127) // power + 1
    wide = (1 << 2 * bits + 128) // power + 1
    return wide >> wide.bit_length() - 128
