"""Values of JSON by Arrow's reader: a line for each value, with a marker that tells which line made which row.

    value    {"a": 1, "b": 2}        line    {"<marker>":1,"a": 1, "b": 2}

The reader fails as a whole on a value that it can't read. The values are then halved until such a value is alone, so that it is one row
without a value. A row is valid exactly if Arrow can read its value alone, whatever its neighbours are.

Times and dates of JSON, which are text in it: ISO 8601.
"""

import json
import re
import secrets
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from kolumn.core.arrays import Bytes, Flags, Int64s
from kolumn.cpu_fallback.values.lines import write_lines
from kolumn.values.decoder import Bodies
from kolumn.values.headers import spread

_ZONE = r"(Z|[+-]\d\d(:?\d\d)?)\z"


def readable(kind: pa.DataType) -> pa.DataType:
    """The type in JSON: text in place of times and dates."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, readable(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(readable(kind.value_type))
    return pa.string() if pa.types.is_temporal(kind) else kind


def in_types(found: pa.Array, kind: pa.DataType) -> pa.Array:
    """What was read as `readable`, with its times and dates; `pa.ArrowInvalid` if a text is not one. Copies only what changes."""
    if readable(kind) == kind:
        return found if found.type == kind else found.cast(kind)
    if pa.types.is_struct(kind):
        children = [in_types(found.field(i), one.type) for i, one in enumerate(kind)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=found.is_null())
    if pa.types.is_list(kind):
        values = in_types(found.values, kind.value_type)
        return pa.ListArray.from_buffers(kind, len(found), found.buffers()[:2], found.null_count, found.offset, [values])
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        zoned = pc.match_substring_regex(found, _ZONE)
        found = pc.if_else(zoned, found, pc.binary_join_element_wise(found, "Z", ""))
    return found.cast(kind)


_BLOCK = 64 << 20
"""Bytes of text that are read at a time: Arrow's reader counts them in 32 bits."""
_ROW = re.compile(r"in row (\d+)\Z")


class LinesDecoder:
    """Decodes JSON objects into a struct, see `kolumn.values.json.decoder.JsonDecoder`. What it reads is what is valid."""

    def __init__(self, type: pa.StructType) -> None:
        self.type: pa.DataType = type
        # A value can't contain the name unless it is known.
        self._marker = secrets.token_hex(6)
        self._head = np.frombuffer(f'{{"{self._marker}":1'.encode(), np.uint8)
        wanted = pa.schema([*(pa.field(one.name, readable(one.type)) for one in type), (self._marker, pa.int8())])
        self._options = pj.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `ValueDecoder.decode`."""
        lines = _Lines.of(bodies, self._head)
        pieces, fine = self._read(lines)
        valid = np.zeros(len(bodies), bool)
        valid[lines.rows[fine]] = True
        return spread(pa.concat_arrays([*pieces, pa.array([], self.type)]), valid), valid

    def _read(self, lines: "_Lines") -> tuple[list[pa.StructArray], Flags]:
        """The values of the readable lines, in order, and which lines they are."""
        fine = np.zeros(len(lines.rows), bool)
        found, waiting = [], lines.blocks()
        while waiting:
            start, rows = waiting.pop()
            try:
                parsed = self._parsed(lines, start, rows)
                fits = ~self._overflowing(lines, start, parsed)
                found.append(parsed if fits.all() else parsed.filter(pa.array(fits)))
                fine[start : start + rows] = fits
            except pa.ArrowInvalid as error:
                waiting += reversed([(start + first, size) for first, size in _halves(rows, str(error)) if size])
        return found, fine

    def _overflowing(self, lines: "_Lines", start: int, parsed: pa.StructArray) -> Flags:
        """Flags of the values with a number that no float holds. Arrow refuses 1e400, and reads a number of 400 digits as infinity."""
        wrong = _infinite(parsed)
        for row in np.flatnonzero(wrong).tolist():
            text = bytes(lines.text[lines.begins[start + row] : lines.begins[start + row + 1]])
            try:
                wrong[row] = _overflows(json.loads(text, parse_int=_Number, parse_float=_Number), self.type)
            except RecursionError:
                continue
        return wrong

    def _parsed(self, lines: "_Lines", start: int, rows: int) -> pa.StructArray:
        """The values of some lines; ArrowInvalid if any of them can't be read."""
        begin, end = int(lines.begins[start]), int(lines.begins[start + rows])
        how = pj.ReadOptions(use_threads=False, block_size=end - begin + 1)
        table = pj.read_json(pa.BufferReader(pa.py_buffer(lines.text)[begin:end]), how, self._options)
        marks = table[self._marker]
        if len(marks) != rows or marks.null_count:
            # A value had several objects, or did not end.
            raise pa.ArrowInvalid("lines and rows differ")
        columns = [in_types(table[field.name].combine_chunks(), field.type) for field in self.type]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))


@dataclass(frozen=True)
class _Lines:
    """Lines of the values that begin as objects: their text, where each begins and the last one ends, and the rows that they are of."""

    text: Bytes
    begins: Int64s
    rows: Int64s

    @classmethod
    def of(cls, bodies: Bodies, head: Bytes) -> "_Lines":
        """The lines of bodies, copied; ``head`` is the brace and the marker."""
        n = len(bodies)
        length = np.ascontiguousarray(bodies.length, np.int64)
        text = np.empty(int(np.maximum(length, 0).sum()) + n * (len(head) + 2), np.uint8)
        begins, rows = np.empty(n + 1, np.int64), np.empty(n, np.int64)
        at = np.ascontiguousarray(bodies.at, np.int64)
        count = write_lines(at, length, head.ctypes.data, len(head), text.ctypes.data, begins, rows)
        return cls(text, begins[: count + 1], rows[:count])

    def blocks(self) -> list[tuple[int, int]]:
        """First line and number of lines of parts that are not too large; the first part is the last in the list."""
        block = self.begins[:-1] // _BLOCK
        starts = np.flatnonzero(np.diff(block, prepend=-1))
        sizes = np.diff(starts, append=len(self.rows))
        return list(zip(starts.tolist(), sizes.tolist(), strict=True))[::-1]


class _Number(float):
    """A number that is written with digits, and not as Infinity."""


def _overflows(value: object, kind: pa.DataType) -> bool:
    """Whether a float in a value of some type is infinite and was not written so."""
    if pa.types.is_struct(kind):
        return isinstance(value, dict) and any(_overflows(value.get(one.name), one.type) for one in kind)
    if pa.types.is_list(kind):
        return isinstance(value, list) and any(_overflows(one, kind.value_type) for one in value)
    with np.errstate(over="ignore"):
        return isinstance(value, _Number) and pa.types.is_floating(kind) and bool(np.isinf(kind.to_pandas_dtype()(value)))


def _infinite(column: pa.Array) -> Flags:
    """Flags of the rows with an infinite number in them."""
    found = np.zeros(len(column), bool)
    if pa.types.is_floating(column.type):
        return np.isinf(column.to_numpy(zero_copy_only=False))
    if pa.types.is_struct(column.type):
        for one in column.flatten():
            found |= _infinite(one)
    elif pa.types.is_list(column.type):
        inner = _infinite(column.flatten())
        if inner.any():
            found[np.repeat(np.arange(len(column)), pc.fill_null(pc.list_value_length(column), 0).to_numpy())[inner]] = True
    return found


def _halves(rows: int, error: str) -> list[tuple[int, int]]:
    """How to go on after an error: at the row that it names, else with both halves. Nothing for a single row."""
    if rows == 1:
        return []
    named = _ROW.search(error)
    if named and 0 <= (at := int(named[1])) < rows:
        return [(0, at), (at, 1), (at + 1, rows - at - 1)]
    return [(0, rows // 2), (rows // 2, rows - rows // 2)]
