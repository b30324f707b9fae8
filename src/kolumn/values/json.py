"""Values of JSON, and the type of JSON objects: from a JSON Schema (objects, arrays, strings, integers, numbers, booleans, and null beside
one of them), or from some of the objects. A compiled loop decodes the rows that it is sure of, Arrow's reader the others. What is valid is
what Arrow's reader takes; the loop accepts a part of that. Arrow reads a line for each value, with a marker that tells which line made
which row.

    value    {"a": 1, "b": 2}        line    {"<marker>":1,"a": 1, "b": 2}

The reader fails as a whole on a value that it can't read. The values are then halved until such a value is alone.
"""

import json
import math
import re
import secrets
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from kolumn.core.arrays import Bytes, Flags, Int64s
from kolumn.core.paths import JSON, turned_off
from kolumn.cpu_fallback.values.json import decode_objects, write_lines
from kolumn.values.decoder import Bodies, Salvaged, nothing_salvaged, spread
from kolumn.values.memory import ColumnLayout, ColumnMemory, LayoutNode, shared_bytes
from kolumn.values.wire.json import BOOLEAN, DOUBLE, FIELD, FLOAT, FRAME, INTEGER, LIST, OBJECT, TEXT, JsonProgram
from kolumn.values.wire.json_numbers import LEAST, MOST


class JsonDecoder:
    """Decodes JSON objects (RFC 8259; NaN and Infinity are numbers, as Python writes them) into a struct. A value is valid if it is UTF-8,
    one object and nothing after it, names no wanted member twice, and has for every wanted member that is there and not null a value of its
    type: an integer in its range and without a fraction, any number for floating point, text for text. Times and dates are ISO 8601 text.
    Members that are not wanted are ignored.
    """

    def __init__(self, type: pa.StructType) -> None:
        self.type: pa.DataType = type
        self._others = LinesDecoder(type)
        self._tables = None if JSON in turned_off() else json_tables(_readable(type))

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `ValueDecoder.decode`; `OverflowError` if a column has more bytes or elements than 2**31 - 1."""
        if self._tables is None or not len(bodies):
            return self._others.decode(bodies)
        array, decided = _decided(self._tables, bodies)
        left = np.flatnonzero(~decided & (np.asarray(bodies.length) >= 0))
        if len(left) == len(bodies):
            return self._others.decode(bodies)
        array, valid = _typed_rows(array, self.type, decided)
        if not len(left):
            return array, valid
        columns = {name: getattr(bodies, name)[left] for name in ("address", "length", "prefix", "framing", "schema")}
        others, fine = self._others.decode(replace(bodies, **columns))
        if not fine.any():
            return array, valid
        valid, order = valid.copy(), np.arange(len(array))
        valid[left], order[left] = fine, len(array) + np.arange(len(left))
        return pa.concat_arrays([array, others]).take(pa.array(order)), valid

    def salvage(self, bodies: Bodies) -> Salvaged:
        return nothing_salvaged(self.type, len(bodies))


def _decided(tables: "JsonTables", bodies: Bodies) -> tuple[pa.Array, Flags]:
    """The rows that the loop decides, as `_readable` types; the others are null."""
    count, root = len(bodies), tables.layout.root
    address, length = (np.ascontiguousarray(column, np.int64) for column in (bodies.address, bodies.length))
    stamps = np.zeros(8 * len(tables.fields) // FIELD + 1, np.int64)
    frames, short = np.empty(tables.frames // 8, np.int64), np.empty(1, np.int64)
    names = np.frombuffer(tables.names, np.uint8)
    program = JsonProgram(*(array.ctypes.data for array in (tables.fields, names, tables.numbers, stamps, frames)))
    memory = ColumnMemory(tables.layout, count, count + 64, shared_bytes(tables.layout, length))
    decided, row = np.empty(count, np.bool_), 0
    while True:
        row, code = decode_objects(memory.target, program, address, length, root.first_fill, root.fills, short.ctypes.data, row, decided)
        if code == 0:
            return memory.array(count), decided
        memory.grow(code)


def _typed_rows(array: pa.Array, type: pa.DataType, decided: Flags) -> tuple[pa.Array, Flags]:
    """The rows with their times and dates, and which of them are valid: a row whose text is not a time or date is null."""
    try:
        return _typed(array, type), decided
    except pa.ArrowInvalid:
        if len(array) == 1:
            return pa.nulls(1, type), np.zeros(1, bool)
    half = len(array) // 2
    # Copies: the elements of a slice are still those of all rows.
    parts = [_typed_rows(array.take(pa.array(np.arange(*ends))), type, decided[slice(*ends)]) for ends in ((0, half), (half, len(array)))]
    return pa.concat_arrays([part for part, _ in parts]), np.concatenate([fine for _, fine in parts])


def _readable(type: pa.DataType) -> pa.DataType:
    """The type in JSON: text in place of times and dates."""
    if pa.types.is_struct(type):
        return pa.struct([pa.field(field.name, _readable(field.type)) for field in type])
    if pa.types.is_list(type):
        return pa.list_(_readable(type.value_type))
    return pa.string() if pa.types.is_temporal(type) else type


_ZONE = r"(Z|[+-]\d\d(:?\d\d)?)\z"


def _typed(array: pa.Array, type: pa.DataType) -> pa.Array:
    """What was read as `_readable`, with its times and dates; `pa.ArrowInvalid` if a text is not one. Copies only what changes."""
    if _readable(type) == type:
        return array if array.type == type else array.cast(type)
    if pa.types.is_struct(type):
        children = [_typed(array.field(number), field.type) for number, field in enumerate(type)]
        return pa.StructArray.from_arrays(children, fields=list(type), mask=array.is_null())
    if pa.types.is_list(type):
        values = _typed(array.values, type.value_type)
        return pa.ListArray.from_buffers(type, len(array), array.buffers()[:2], array.null_count, array.offset, [values])
    if pa.types.is_timestamp(type) and type.tz is not None:
        zoned = pc.match_substring_regex(array, _ZONE)
        array = pc.if_else(zoned, array, pc.binary_join_element_wise(array, "Z", ""))
    return array.cast(type)


_BLOCK = 64 << 20  # Bytes of text that are read at a time: Arrow's reader counts them in 32 bits.
_ROW = re.compile(r"in row (\d+)\Z")


class LinesDecoder:
    """Decodes JSON objects into a struct by Arrow's reader, see `JsonDecoder`. What it reads is what is valid."""

    def __init__(self, type: pa.StructType) -> None:
        self.type: pa.DataType = type
        # A value can't contain the name unless it is known.
        self._marker = secrets.token_hex(6)
        self._head = np.frombuffer(f'{{"{self._marker}":1'.encode(), np.uint8)
        wanted = pa.schema([*(pa.field(field.name, _readable(field.type)) for field in type), (self._marker, pa.int8())])
        self._options = pj.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `ValueDecoder.decode`."""
        n, head = len(bodies), self._head
        address, length = (np.ascontiguousarray(column, np.int64) for column in (bodies.address, bodies.length))
        text = np.empty(int(np.maximum(length, 0).sum()) + n * (len(head) + 2), np.uint8)
        begins, rows = np.empty(n + 1, np.int64), np.empty(n, np.int64)
        count = write_lines(address, length, head.ctypes.data, len(head), text.ctypes.data, begins, rows)
        lines = _Lines(text, begins[: count + 1], rows[:count])
        pieces, fine = self._read(lines)
        valid = np.zeros(len(bodies), bool)
        valid[lines.rows[fine]] = True
        return spread(pa.concat_arrays([*pieces, pa.array([], self.type)]), valid), valid

    def _read(self, lines: "_Lines") -> tuple[list[pa.StructArray], Flags]:
        """The values of the readable lines, in order, and which lines they are."""
        fine = np.zeros(len(lines.rows), bool)
        pieces, waiting = [], lines.blocks()
        while waiting:
            start, rows = waiting.pop()
            try:
                parsed = self._parsed(lines, start, rows)
                fits = ~self._overflowing(lines, start, parsed)
                pieces.append(parsed if fits.all() else parsed.filter(pa.array(fits)))
                fine[start : start + rows] = fits
            except pa.ArrowInvalid as error:
                waiting += reversed([(start + first, size) for first, size in _halves(rows, str(error)) if size])
        return pieces, fine

    def _overflowing(self, lines: "_Lines", start: int, parsed: pa.StructArray) -> Flags:
        """Flags of the values with a number that no float holds. Arrow refuses 1e400, and reads a number of 400 digits as infinity."""
        wrong = _infinite(parsed)
        for row in np.flatnonzero(wrong).tolist():
            try:
                wrong[row] = _overflows(json.loads(lines.line(start + row), parse_int=_Number, parse_float=_Number), self.type)
            except RecursionError:
                continue
        return wrong

    def _parsed(self, lines: "_Lines", start: int, rows: int) -> pa.StructArray:
        """The values of some lines; ArrowInvalid if any of them can't be read. Of a number that no float holds it is infinity."""
        try:
            return self._parsed_as_is(lines, start, rows)
        except pa.ArrowInvalid:
            readable = lines.without_exponents(start) if rows == 1 else None
            if readable is None:
                raise
            return self._parsed_as_is(readable, 0, 1)

    def _parsed_as_is(self, lines: "_Lines", start: int, rows: int) -> pa.StructArray:
        begin, end = int(lines.begins[start]), int(lines.begins[start + rows])
        how = pj.ReadOptions(use_threads=False, block_size=end - begin + 1)
        table = pj.read_json(pa.BufferReader(pa.py_buffer(lines.text)[begin:end]), how, self._options)
        marks = table[self._marker]
        if len(marks) != rows or marks.null_count:
            # A value had several objects, or did not end.
            raise pa.ArrowInvalid("lines and rows differ")
        columns = [_typed(table[field.name].combine_chunks(), field.type) for field in self.type]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))


@dataclass(frozen=True)
class _Lines:
    """Lines of the values that begin as objects: their text, where each begins and the last one ends, and the rows that they are of."""

    text: Bytes
    begins: Int64s
    rows: Int64s

    def blocks(self) -> list[tuple[int, int]]:
        """First line and number of lines of parts that are not too large; the first part is the last in the list."""
        starts = np.flatnonzero(np.diff(self.begins[:-1] // _BLOCK, prepend=-1))
        sizes = np.diff(starts, append=len(self.rows))
        return list(zip(starts.tolist(), sizes.tolist(), strict=True))[::-1]

    def line(self, number: int) -> bytes:
        return bytes(self.text[self.begins[number] : self.begins[number + 1]])

    def without_exponents(self, number: int) -> "_Lines | None":
        """One line, with the numbers that Arrow refuses for their exponents written as infinity or zero; None if it has none: a member that
        is not wanted may have any number.
        """
        text = self.line(number)
        rewritten = _EXPONENT.sub(_without_exponent, text)
        if rewritten == text:
            return None
        return _Lines(np.frombuffer(rewritten, np.uint8), np.array([0, len(rewritten)]), self.rows[number : number + 1])


# A string, whose end may be missing, or a number with an exponent. Nothing is tried twice: the time grows with the length alone.
_EXPONENT = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+"?|(?<![\w.+-])-?(?:0|[1-9]\d*+)(?:\.\d++)?+[eE][+-]?\d++(?![\w.+-])', re.DOTALL)


def _without_exponent(found: re.Match[bytes]) -> bytes:
    text = found[0]
    if text.startswith(b'"') or ((number := float(text)) and math.isfinite(number)):
        return text
    return (b"-" if text.startswith(b"-") else b"") + (b"Infinity" if number else b"0.0")


class _Number(float):
    """A number that is written with digits, and not as Infinity."""


def _overflows(value: object, type: pa.DataType) -> bool:
    """Whether a float in a value of some type is infinite and was not written so."""
    if pa.types.is_struct(type):
        return isinstance(value, dict) and any(_overflows(value.get(field.name), field.type) for field in type)
    if pa.types.is_list(type):
        return isinstance(value, list) and any(_overflows(element, type.value_type) for element in value)
    with np.errstate(over="ignore"):
        return isinstance(value, _Number) and pa.types.is_floating(type) and bool(np.isinf(type.to_pandas_dtype()(value)))


def _infinite(column: pa.Array) -> Flags:
    flags = np.zeros(len(column), bool)
    if pa.types.is_floating(column.type):
        return np.isinf(column.to_numpy(zero_copy_only=False))
    if pa.types.is_struct(column.type):
        for child in column.flatten():
            flags |= _infinite(child)
    elif pa.types.is_list(column.type):
        inner = _infinite(column.flatten())
        if inner.any():
            flags[np.repeat(np.arange(len(column)), pc.fill_null(pc.list_value_length(column), 0).to_numpy())[inner]] = True
    return flags


def _halves(rows: int, error: str) -> list[tuple[int, int]]:
    """How to go on after an error: at the row that it names, else with both halves. Nothing for a single row."""
    if rows == 1:
        return []
    named = _ROW.search(error)
    if named and 0 <= (row := int(named[1])) < rows:
        return [(0, row), (row, 1), (row + 1, rows - row - 1)]
    return [(0, rows // 2), (rows // 2, rows - rows // 2)]


_WORDS = FIELD // 8
_KINDS = {pa.string(): TEXT, pa.float64(): DOUBLE, pa.float32(): FLOAT, pa.bool_(): BOOLEAN}
_NO_LENGTH = 1 << 62  # Longer than any text: no bytes are this name.
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class JsonTables:
    """The tables of a program; they do not change, so threads share them. ``frames`` are bytes of memory; ``names`` have each a quote and a
    colon after it; ``fields`` are rows of `kolumn.values.wire.json`, ``numbers`` the table of `kolumn.values.wire.json_numbers`.
    """

    layout: ColumnLayout
    fields: Int64s
    names: bytes
    numbers: Int64s
    frames: int


def json_tables(type: pa.DataType) -> JsonTables | None:
    """The tables of a type; None if there is no column for a part of it, or two fields of an object have one name."""
    if not _is_known(type):
        return None
    layout = ColumnLayout.of(type)
    rows: list[list[int]] = [[0] * _WORDS]
    names, waiting, depth = bytearray(), [(0, layout.root, "")], 0
    # Children of an object follow each other, so they are numbered before what is in them.
    for number, node, name in waiting:
        first, count = len(rows), len(node.children)
        rows += [[0] * _WORDS for _ in node.children]
        waiting += [(first + k, child, child.name) for k, child in enumerate(node.children)]
        rows[number][:10] = _row(node, first)
        rows[number][11:] = [8 * (number + 1), *_name(name, names)]
        for k in range(count):
            rows[first + k][10] = FIELD * (first + (k + 1) % count)
        depth += node.child_level >= 0 or count > 0
    return JsonTables(layout, np.array(rows, np.int64).reshape(-1), bytes(names), _numbers(), FRAME * (depth + 1))


def _is_known(type: pa.DataType) -> bool:
    if pa.types.is_struct(type):
        names = [field.name for field in type]
        return 0 < len(names) == len(set(names)) and all(field.nullable and _is_known(field.type) for field in type)
    if pa.types.is_list(type):
        return type.value_field.nullable and _is_known(type.value_type)
    return type in _KINDS or pa.types.is_integer(type)


def _row(node: LayoutNode, first: int) -> list[int]:
    """The first words of a row, up to the number of children."""
    kind, least, most = _KINDS.get(node.type, INTEGER), 0, 0
    if pa.types.is_struct(node.type):
        kind = OBJECT
    elif pa.types.is_list(node.type):
        kind = LIST
    elif kind == INTEGER:
        limits = np.iinfo(node.type.to_pandas_dtype())
        least, most = int(limits.min), min(int(limits.max), _LARGEST)
    return [kind, node.column, node.width, least, most, node.first_fill, node.fills, node.child_level, FIELD * first, len(node.children)]


def _name(name: str, names: bytearray) -> list[int]:
    """Length, first word, mask and place of a name, which is added to ``names``. A name that JSON writes with an escape is not found."""
    place, text = len(names), name.encode() + b'":'
    names += text
    is_plain = not any(character < " " or character in '"\\' for character in name)
    word, mask = int.from_bytes(text[:8], "little"), (1 << 8 * min(len(text), 8)) - 1
    return [len(text) if is_plain else _NO_LENGTH, _signed(word), _signed(mask), place]


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
