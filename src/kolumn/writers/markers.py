"""Control records whose types are named: their keys say them, except in enriched messages."""

import struct
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.errors import ArgumentError
from kolumn.formats import layouts

_KEY, _NUMBER = struct.Struct(">hh"), struct.Struct(">h")  # version and type
_MARKER = struct.pack(">hi", 0, 0)  # version, and epoch of a coordinator
_ENDS = ("COMMIT", "ABORT")
_UNKNOWN = "UNKNOWN"  # What a read calls a type that it does not know: the key stays as it is.


def with_named_types(pieces: Iterable[pa.Table], layout: int) -> Iterator[pa.Table]:
    """Tables for `kolumn.write` in which keys of control records have the types that the column ``controlType`` names, in any case.

    A marker without a key and a value gets both. Raises `ArgumentError` for a type that the layout does not have.
    """
    for piece in pieces:
        if {"isControl", "controlType"} <= set(piece.schema.names) and layouts.LAYOUTS[layout].control_types:
            for name in {"key", "value"} - set(piece.schema.names):
                piece = piece.append_column(name, pa.nulls(piece.num_rows, pa.binary()))
            piece = _named(piece, layout)
        yield piece


def _named(piece: pa.Table, layout: int) -> pa.Table:
    rows = pc.indices_nonzero(pc.and_(pc.fill_null(piece["isControl"], False), pc.is_valid(piece["controlType"]))).to_pylist()
    if not rows:
        return piece
    columns: dict[str, list[Any]] = {name: piece[name].to_pylist() for name in ("controlType", "key", "value")}
    types, keys, values = columns.values()
    known = layouts.LAYOUTS[layout].control_types
    for row in rows:
        given, name = types[row], types[row].upper()
        if name not in (*known, _UNKNOWN):
            raise ArgumentError(f"column 'controlType': {given!r}: expected one of {', '.join(known)}")
        types[row], key = name, keys[row] or b""
        if name == _UNKNOWN or layouts.has_typed_control(layout):
            continue
        key = key.encode() if isinstance(key, str) else key
        if name in _ENDS and keys[row] is None and values[row] is None:
            values[row] = _MARKER
        number = known.index(name)
        keys[row] = key[:2] + _NUMBER.pack(number) + key[4:] if len(key) >= _KEY.size else _KEY.pack(0, number)
    for name, column in columns.items():
        field = piece.schema.field(name)
        piece = piece.set_column(piece.schema.get_field_index(name), field, pa.array(column, field.type))
    return piece
