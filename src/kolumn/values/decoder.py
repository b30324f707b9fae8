"""What every format of values offers: bodies in, a typed column out; where the bodies are, as addresses in the memory of a column; and
types of fields as callers name them, for formats without a schema of their own.
"""

import ctypes
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Flags, Int64s
from kolumn.core.errors import ArgumentError, unknown
from kolumn.core.lost import WHOLE
from kolumn.values.schemas.schema import Schema


@dataclass(frozen=True)
class Bodies:
    """The payloads of some rows without what precedes them, in host memory: int64 arrays with a row each.

        address   of the body
        length    its bytes; -1 for null, and where prefix or headers are malformed, name no known schema, or say that it is Avro as JSON
        prefix    bytes of the recognised prefix in front of it, also of a body that was decompressed; 0 without one
        framing   `kolumn.values.wire.framing`. After Confluent's wire format Protobuf bodies begin with message indexes (of its header
                  they are in `Schema.message_indexes`), after Apicurio's, and beside its headers, with a ``Ref`` message
        schema    index into ``schemas`` of the writer's schema; -1: the body has the reader's schema

    ``schemas`` are the writers' schemas so far: later bodies of the same read have them at the same indexes, and may have more. With
    ``bare`` a body that is not valid may be a value that only looks as if it had a prefix: it is decoded again from ``prefix`` bytes before
    it. ``held`` keeps the memory alive.
    """

    address: Int64s
    length: Int64s
    prefix: Int64s
    framing: Int64s
    schema: Int64s
    schemas: Sequence[Schema]
    bare: bool = False
    held: Any = None

    def __len__(self) -> int:
        return len(self.address)

    def rows(self, chosen: Int64s) -> "Bodies":
        """Those of some rows."""
        columns: dict[str, Any] = {name: getattr(self, name)[chosen] for name in ("address", "length", "prefix", "framing", "schema")}
        return replace(self, **columns)

    def payload(self, row: int) -> bytes:
        """A copy of the body of a row."""
        return ctypes.string_at(int(self.address[row]), int(self.length[row]))


Salvaged = tuple[pa.Array, list[tuple[str, ...]]]
"""The column of some bodies, with all that could be had of them, and the paths of what each of them lost, none of a valid one."""


class ValueDecoder(Protocol):
    """Decodes bodies of one format into a column of ``type``, which is known before. Threads use one decoder at the same time."""

    type: pa.DataType

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """The column, of ``type``, and which rows are valid. A row that is not valid is null; no other row is affected."""

    def salvage(self, bodies: Bodies) -> Salvaged:
        """What can be had of bodies that `decode` does not return, by a plain reader, row by row; none of them is null. A field that cannot
        be decoded is null, or what is around it where it cannot be; its dotted path, as in ``value_columns``, without steps for elements,
        is among the row's. `WHOLE` is the path of a value of which nothing can be had: it is null. A row without a path is valid.
        """


def nothing_salvaged(type: pa.DataType, count: int) -> Salvaged:
    """All of some values is lost."""
    return pa.nulls(count, type), [(WHOLE,)] * count


_OFFSETS = {pa.binary(): np.int32, pa.string(): np.int32, pa.large_binary(): np.int64, pa.large_string(): np.int64}
_VIEWS = pa.binary_view(), pa.string_view()
_INLINE = 12  # Bytes of the longest value that a view contains itself.


def payloads_of(column: pa.Array, address: Int64s, length: Int64s) -> None:
    """Set the address of each value of a column in host memory, valid as long as the column is, and its bytes; 0 and -1 for null. Raises
    `ArgumentError` for a type that is neither binary, large_binary, binary_view nor strings likewise.
    """
    n = len(column)
    if column.type not in _OFFSETS and column.type not in _VIEWS:
        raise ArgumentError(f"a column of typed values: expected bytes, found {column.type}")
    if n == 0:
        return
    if column.type in _OFFSETS:
        _, offsets, data = column.buffers()
        width = _OFFSETS[column.type]
        ends = np.frombuffer(offsets, width, n + 1, column.offset * np.dtype(width).itemsize)
        np.add(ends[:-1], np.int64(0 if data is None else data.address), out=address)
        np.subtract(ends[1:], ends[:-1], out=length)
    else:
        _views(column, address, length)
    if column.null_count:
        bits = np.unpackbits(np.frombuffer(column.buffers()[0], np.uint8), bitorder="little")
        null = bits[column.offset : column.offset + n] == 0
        address[null], length[null] = 0, -1


def _views(column: pa.Array, address: Int64s, length: Int64s) -> None:
    """Each view has 16 bytes: length, four bytes of the value, number of a buffer and position there; or length and the value itself."""
    n, (_, views, *data) = len(column), column.buffers()
    words = np.frombuffer(views, np.int32, 4 * n, 16 * column.offset).reshape(n, 4)
    inline = words[:, 0] <= _INLINE
    starts = np.array([buffer.address for buffer in data] or [0], np.int64)
    # The third word of a value that is in its view is a part of the value.
    np.add(starts[np.where(inline, 0, words[:, 2])], words[:, 3], out=address)
    np.copyto(address, views.address + 16 * (column.offset + np.arange(n, dtype=np.int64)) + 4, where=inline)
    length[:] = words[:, 0]


def array_of(bodies: Bodies, rows: Flags) -> pa.LargeBinaryArray:
    """The bodies of some rows as one array in host memory; their bytes are copied."""
    begins, length = bodies.address[rows], bodies.length[rows]
    if not len(begins):
        return pa.array([], pa.large_binary())
    ends = begins + length
    if (ends[:-1] > begins[1:]).any():
        payloads = [ctypes.string_at(begin, size) for begin, size in zip(begins.tolist(), length.tolist(), strict=True)]
        return pa.array(payloads, pa.large_binary())
    # The bodies, and what is between them, are one array over the memory; taking every second element leaves out what is between.
    bounds = np.stack((begins, ends), 1).reshape(-1)
    origin = int(begins[0])
    memory = pa.foreign_buffer(origin, int(ends[-1]) - origin, base=bodies)
    whole = pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, [None, pa.py_buffer(bounds - origin), memory])
    return whole.take(pa.array(np.arange(0, len(bounds), 2)))


def spread(array: pa.Array, rows: Flags) -> pa.Array:
    """An array of all rows from one of those that ``rows`` marks; the others are null."""
    return array if rows.all() else array.take(pa.array(np.cumsum(rows) - 1, mask=~rows))


def only_rows(array: pa.Array, rows: Flags) -> pa.Array:
    """The same column with nulls but in some rows."""
    return array if rows.all() else array.take(pa.array(np.arange(len(array)), mask=~rows))


def within(rows: Flags, chosen: Flags) -> Flags:
    """Flags of all rows, from flags of those that ``rows`` marks."""
    flags = np.zeros(len(rows), bool)
    flags[rows] = chosen
    return flags


TYPES: dict[str, pa.DataType] = {
    "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
    "uint8": pa.uint8(), "uint16": pa.uint16(), "uint32": pa.uint32(), "uint64": pa.uint64(),
    "float32": pa.float32(), "float64": pa.float64(), "bool": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"), "string": pa.string(),
}  # fmt: skip
"""Names of types. ``timestamp`` has no zone in cuDF, and no other unit here."""
MOST_NESTED = 100  # Levels of nested types, and of values from which a type is inferred: as many as messages of Protobuf may have.
SCHEMALESS = ("csv", "fixed")  # Formats without a schema of their own, whose values no serialiser frames.
NOT_OF_CSV = frozenset({"timestamp", "uint64"})


def is_deep(root: object, inner: Callable[[Any], Iterable[object]]) -> bool:
    """Whether something is nested more than `MOST_NESTED` deep; ``inner`` returns the parts of a part."""
    parts = [root]
    for _ in range(MOST_NESTED + 1):
        parts = [child for part in parts for child in inner(part)]
        if not parts:
            return False
    return True


def named_type(name: str, type: object, where: str = "value_schema") -> pa.DataType:
    """The type that a name means; `ArgumentError` with the nearest one for an unknown name."""
    if isinstance(type, str) and type in TYPES:
        return TYPES[type]
    raise ArgumentError(f"{where}: field {name!r}: {unknown('type', str(type), TYPES)}")


def fixed_type(name: str, type: Any, where: str = "value_schema") -> np.dtype[Any]:
    """The NumPy dtype of a field of "fixed"; `ArgumentError` if there is no column for it."""
    try:
        dtype = np.dtype(type)
    except TypeError as error:
        raise ArgumentError(f"{where}: field {name!r}: {error}") from error
    if dtype.kind not in "iufb" or dtype.itemsize > 8 or dtype.name == "float16":
        raise ArgumentError(f"{where}: field {name!r}: no column for {dtype}; expected integers, float32, float64 or bool")
    return dtype


def mapping_of(schema: object, where: str = "value_schema") -> Mapping[str, Any]:
    """The mapping of names to types that a caller has given, as a mapping, as its JSON text or as an Arrow schema."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise ArgumentError(f"{where}: not the JSON text of a mapping of names to types: {error}") from error
    if isinstance(schema, pa.Schema | pa.StructType):
        schema = {field.name: field.type for field in schema}
    if not isinstance(schema, Mapping) or not schema:
        raise ArgumentError(f"{where}={schema!r}: expected a mapping of names to types")
    return {str(name): type for name, type in schema.items()}


Wanted = dict[str, Any] | None  # Names of fields and what is wanted of each; None is everything.


def wanted_fields(columns: Iterable[str]) -> dict[str, Any]:
    """The fields that dotted paths name. A path that names a field as a whole counts more than those that name parts of it."""
    wanted: dict[str, Any] = {}
    for path in columns:
        fields, (*steps, last) = wanted, path.split(".")
        for step in steps:
            fields = fields.setdefault(step, {})
            if fields is None:
                break
        else:
            fields[last] = None
    return wanted


def only_fields(type: pa.DataType, names: tuple[str, ...], where: str) -> pa.DataType:
    """A struct with the named fields alone; dotted names are fields of structs, also of those in lists and maps. `ArgumentError` for
    others.
    """
    if not pa.types.is_struct(type):
        raise ArgumentError(f"{where}: {type} has no fields")
    inner: dict[str, list[str]] = {}
    for name in names:
        # A member may have a point in its own name.
        first, _, rest = (name, "", "") if type.get_field_index(name) >= 0 else name.partition(".")
        if type.get_field_index(first) < 0:
            raise ArgumentError(f"{where}: {unknown('field', first, [field.name for field in type])}")
        inner.setdefault(first, []).append(rest)
    return pa.struct([_narrowed(field, inner[field.name], where) for field in type if field.name in inner])


def _narrowed(field: pa.Field, rests: list[str], where: str) -> pa.Field:
    if "" in rests:
        return field
    return field.with_type(_fields_within(field.type, tuple(rests), where))


def _fields_within(type: pa.DataType, names: tuple[str, ...], where: str) -> pa.DataType:
    if pa.types.is_list(type):
        return pa.list_(_fields_within(type.value_type, names, where))
    if pa.types.is_map(type):
        return pa.map_(type.key_type, _fields_within(type.item_type, names, where))
    return only_fields(type, names, where)


def with_unit(type: pa.DataType, unit: str | None) -> pa.DataType:
    """A type with all its timestamps in a unit; the type itself with none."""
    if unit is None:
        return type
    if pa.types.is_timestamp(type):
        return pa.timestamp(unit, type.tz)
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(with_unit(field.type, unit)) for field in type])
    if pa.types.is_map(type):
        return pa.map_(type.key_field, type.item_field.with_type(with_unit(type.item_type, unit)))
    return pa.list_(type.value_field.with_type(with_unit(type.value_type, unit))) if pa.types.is_list(type) else type
