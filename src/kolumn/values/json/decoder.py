"""Values of JSON: a compiled loop decodes the rows that it is sure of, Arrow's reader the others.

What is valid is what Arrow's reader takes, see `kolumn.values.json.lines`. The loop accepts a part of that, with the same values.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Flags, Int64s
from kolumn.core.paths import JSON, is_on
from kolumn.cpu_fallback.values.json import decode_objects
from kolumn.values.decoder import Bodies
from kolumn.values.json.lines import LinesDecoder, in_types, readable
from kolumn.values.json.program import JsonTables, json_tables
from kolumn.values.memory import ColumnMemory, shared_bytes
from kolumn.values.wire.json import FIELD, JsonProgram


class JsonDecoder:
    """Decodes JSON objects (RFC 8259; NaN and Infinity are numbers, as Python writes them) into a struct.

    A value is valid if it is UTF-8, one object and nothing after it, names no wanted member twice, and has for every wanted member that is
    there and not null a value of its type: an integer in its range and without a fraction, any number for floating point, text for text.
    Times and dates are ISO 8601 text. Members that are not wanted are ignored.
    """

    def __init__(self, type: pa.StructType) -> None:
        self.type: pa.DataType = type
        self._others = LinesDecoder(type)
        self._tables = json_tables(readable(type)) if is_on(JSON) else None

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `ValueDecoder.decode`; `OverflowError` if a column has more bytes or elements than 2**31 - 1."""
        if self._tables is None or not len(bodies):
            return self._others.decode(bodies)
        array, decided = _decided(self._tables, bodies)
        left = np.flatnonzero(~decided & (np.asarray(bodies.length) >= 0))
        if len(left) == len(bodies):
            return self._others.decode(bodies)
        found, valid = _in_types(array, self.type, decided)
        if len(left):
            others, fine = self._others.decode(_chosen(bodies, left))
            found, valid = _merged(found, valid, others, fine, left)
        return found, valid


def _decided(tables: JsonTables, bodies: Bodies) -> tuple[pa.Array, Flags]:
    """The rows that the loop decides, as `readable` types; the others are null."""
    count, root = len(bodies), tables.layout.root
    at, length = (np.ascontiguousarray(one, np.int64) for one in (bodies.at, bodies.length))
    stamps = np.zeros(8 * len(tables.fields) // FIELD + 1, np.int64)
    frames, short = np.empty(tables.frames // 8, np.int64), np.empty(1, np.int64)
    names = np.frombuffer(tables.names, np.uint8)
    program = JsonProgram(*(one.ctypes.data for one in (tables.fields, names, tables.numbers, stamps, frames)))
    memory = ColumnMemory(tables.layout, count, count + 64, shared_bytes(tables.layout, length))
    decided, row = np.empty(count, np.bool_), 0
    while True:
        row, code = decode_objects(memory.target, program, at, length, root.first_fill, root.fills, short.ctypes.data, row, decided)
        if code == 0:
            return memory.array(count), decided
        memory.grow(code)


def _in_types(array: pa.Array, kind: pa.DataType, decided: Flags) -> tuple[pa.Array, Flags]:
    """The rows with their times and dates, and which of them are valid: a row whose text is not a time or date is null."""
    try:
        return in_types(array, kind), decided
    except pa.ArrowInvalid:
        if len(array) == 1:
            return pa.nulls(1, kind), np.zeros(1, bool)
    half = len(array) // 2
    # Copies: the elements of a slice are still those of all rows.
    parts = [_in_types(array.take(pa.array(np.arange(*ends))), kind, decided[slice(*ends)]) for ends in ((0, half), (half, len(array)))]
    return pa.concat_arrays([part for part, _ in parts]), np.concatenate([fine for _, fine in parts])


def _chosen(bodies: Bodies, rows: Int64s) -> Bodies:
    """Some rows of bodies."""
    at, length, prefix, framing, schema = (one[rows] for one in (bodies.at, bodies.length, bodies.prefix, bodies.framing, bodies.schema))
    return replace(bodies, at=at, length=length, prefix=prefix, framing=framing, schema=schema)


def _merged(found: pa.Array, valid: Flags, others: pa.Array, fine: Flags, rows: Int64s) -> tuple[pa.Array, Flags]:
    """The rows with those of the other reader in their places."""
    if not fine.any():
        return found, valid
    both, place = valid.copy(), np.arange(len(found))
    both[rows] = fine
    place[rows] = len(found) + np.arange(len(rows))
    return pa.concat_arrays([found, others]).take(pa.array(place)), both
