"""Schemas that are named by headers of records.

Where the bytes of each row of a column are, in memory.

Bodies as Arrow arrays, for what reads arrays and not addresses.
"""

import ctypes
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import AnyArray, Flags, Int64s
from kolumn.core.buffers import strings
from kolumn.core.errors import ArgumentError
from kolumn.formats.varint import MALFORMED, varint64
from kolumn.values.decoder import Bodies
from kolumn.values.schemas.schema import Schema, Schemas
from kolumn.values.wire import framing as kinds

HEADERS = {
    kinds.CONFLUENT_HEADER: (("__value_schema_id",), ("__key_schema_id",)),
    kinds.APICURIO_HEADER: (
        ("apicurio.value.contentId", "apicurio.value.globalId", "apicurio.value.artifactId"),
        ("apicurio.key.contentId", "apicurio.key.globalId", "apicurio.key.artifactId"),
    ),
    kinds.AZURE: (("content-type",), ("content-type",)),
}
"""Names of headers by framing: for values and for keys, in the order in which they are looked for."""
ENCODING = ("apicurio.value.encoding", "apicurio.key.encoding")
"""Apicurio's header with the encoding of Avro, `BINARY` or JSON: for values and for keys."""
BINARY = b"BINARY"
MESSAGE = ("apicurio.protobuf.type", "apicurio.protobuf.type.key")
"""Apicurio's header with the name of a message, without what it is in: for values and for keys."""

_CONFLUENT = 1 << kinds.CONFLUENT | 1 << kinds.CONFLUENT_GUID
# A header that was sent by AMQP has that protocol's type and length in front.
_AZURE = re.compile(rb"(?:\xa1.|\xb1....)?avro/binary\+([0-9a-fA-F]{32})", re.DOTALL)


@dataclass(frozen=True)
class Named:
    """The schema that a header's value names by id or GUID; neither if it is malformed. ``message_indexes`` are those of Protobuf, or
    empty.
    """

    id: int | None = None
    guid: UUID | None = None
    message_indexes: tuple[int, ...] = ()

    def schema_of(self, schemas: Schemas) -> Schema | None:
        """The schema of that name."""
        found = schemas.by_guid(self.guid) if self.guid is not None else None if self.id is None else schemas.by_id(self.id)
        return replace(found, message_indexes=self.message_indexes) if found is not None and self.message_indexes else found


def values_of_headers(headers: pa.Array, names: tuple[str, ...]) -> Iterator[tuple[str, Int64s, Int64s, list[bytes]]]:
    """The rows with a header of each name that is there, for each the index of its value, and the distinct values."""
    keys, values = headers.flatten().flatten()
    keys, values = keys.cast(pa.string()), values.cast(pa.binary())
    parents: Int64s | None = None
    for name in names:
        at = _numbers(pc.indices_nonzero(pc.equal(keys, strings([name])[0])))
        if not len(at):
            continue
        if parents is None:
            parents = _numbers(pc.list_parent_indices(headers))
        rows = parents[at]
        # Kafka's clients look at the last header of a name.
        last = np.append(rows[1:] != rows[:-1], True)
        own = values.take(pa.Array.from_buffers(pa.int64(), int(last.sum()), [None, pa.py_buffer(at[last])]))
        rows = rows[last]
        if own.null_count:
            rows = rows[_numbers(pc.is_valid(own).cast(pa.uint8())) != 0]
            own = own.drop_null()
        found = own.dictionary_encode()
        yield name, rows, _numbers(found.indices), found.dictionary.to_pylist()


def _numbers(array: pa.Array) -> AnyArray:
    """Integers without nulls, as int64."""
    data = array.buffers()[1]
    width = array.type.bit_width // 8
    kind = f"{'u' if pa.types.is_unsigned_integer(array.type) else 'i'}{width}"
    found = np.frombuffer(b"" if data is None else data, kind, 0 if data is None else data.size // width)
    return found[array.offset : array.offset + len(array)].astype(np.int64)


def named_of(value: bytes, framing: int, name: str) -> Named | None:
    """What the value of a header names; None if the header has another purpose."""
    if framing == kinds.AZURE:
        match = _AZURE.fullmatch(value)
        return None if match is None else Named(guid=UUID(match[1].decode()))
    if framing == kinds.APICURIO_HEADER:
        # A schema that only its artifact names is not looked for.
        return Named(id=int.from_bytes(value, "big", signed=True)) if len(value) == 8 and not name.endswith("artifactId") else Named()
    kind, size, _, low = kinds.recognise(value, 0, len(value), _CONFLUENT)
    message_indexes = _message_indexes(value, size) if size < len(value) else ()
    if kind == kinds.NONE or message_indexes is None:
        return Named()
    if kind == kinds.CONFLUENT:
        return Named(low, None, message_indexes)
    return Named(None, UUID(bytes=value[1:17]), message_indexes)


def _message_indexes(value: bytes, at: int) -> tuple[int, ...] | None:
    """Zig-zag varints: how many, then so many; no index means the first message. None if they don't end where the value does."""
    count, at = varint64(value, at, len(value))
    if at == MALFORMED or not 0 <= count <= len(value) - at:
        return None
    indexes = []
    for _ in range(count):
        index, at = varint64(value, at, len(value))
        if at == MALFORMED:
            return None
        indexes.append(index)
    return (tuple(indexes) or (0,)) if at == len(value) else None


_OFFSETS = {pa.binary(): np.int32, pa.string(): np.int32, pa.large_binary(): np.int64, pa.large_string(): np.int64}
_VIEWS = pa.binary_view(), pa.string_view()
_INLINE = 12
"""Bytes of the longest value that a view contains itself."""


def payloads_of(column: pa.Array, at: Int64s, length: Int64s) -> None:
    """Set the address of each value of a column in host memory, valid as long as the column is, and its bytes; 0 and -1 for null.

    Raises `ArgumentError` for a type that is neither binary, large_binary, binary_view nor strings likewise.
    """
    n = len(column)
    if column.type not in _OFFSETS and column.type not in _VIEWS:
        raise ArgumentError(f"a column of typed values: expected bytes, found {column.type}")
    if n == 0:
        return
    if column.type in _OFFSETS:
        _, ends, data = column.buffers()
        found = np.frombuffer(ends, _OFFSETS[column.type], n + 1, column.offset * np.dtype(_OFFSETS[column.type]).itemsize)
        np.add(found[:-1], np.int64(0 if data is None else data.address), out=at)
        np.subtract(found[1:], found[:-1], out=length)
    else:
        _views(column, at, length)
    if column.null_count:
        null = ~_valid(column)
        at[null], length[null] = 0, -1


def _views(column: pa.Array, at: Int64s, length: Int64s) -> None:
    """Each view has 16 bytes: length, four bytes of the value, number of a buffer and position there; or length and the value itself."""
    n, (_, views, *data) = len(column), column.buffers()
    words = np.frombuffer(views, np.int32, 4 * n, 16 * column.offset).reshape(n, 4)
    inline = words[:, 0] <= _INLINE
    starts = np.array([one.address for one in data] or [0], np.int64)
    # The third word of a value that is in its view is a part of the value.
    np.add(starts[np.where(inline, 0, words[:, 2])], words[:, 3], out=at)
    here = views.address + 16 * (column.offset + np.arange(n, dtype=np.int64)) + 4
    np.copyto(at, here, where=inline)
    length[:] = words[:, 0]


def _valid(column: pa.Array) -> Flags:
    bits = np.unpackbits(np.frombuffer(column.buffers()[0], np.uint8), bitorder="little")
    return bits[column.offset : column.offset + len(column)].astype(np.bool_)


def array_of(bodies: Bodies, chosen: Flags) -> pa.LargeBinaryArray:
    """The chosen bodies as one array in host memory; their bytes are copied."""
    at, length = bodies.at[chosen], bodies.length[chosen]
    if not len(at):
        return pa.array([], pa.large_binary())
    ends = at + length
    if (ends[:-1] > at[1:]).any():
        return pa.array([ctypes.string_at(one, size) for one, size in zip(at.tolist(), length.tolist(), strict=True)], pa.large_binary())
    # The bodies, and what is between them, are one array over the memory; taking every second element leaves out what is between.
    bounds = np.empty(2 * len(at), np.int64)
    bounds[0::2], bounds[1::2] = at, ends
    origin = int(at[0])
    memory = pa.foreign_buffer(origin, int(ends[-1]) - origin, base=bodies)
    whole = pa.Array.from_buffers(pa.large_binary(), 2 * len(at) - 1, [None, pa.py_buffer(bounds - origin), memory])
    return whole.take(pa.array(np.arange(0, 2 * len(at), 2)))


def spread(found: pa.Array, rows: Flags) -> pa.Array:
    """An array of all rows from one of those that ``rows`` marks; the others are null."""
    if rows.all():
        return found
    number = np.cumsum(rows) - 1
    return found.take(pa.array(number, mask=~rows))


def within(rows: Flags, chosen: Flags) -> Flags:
    """Flags of all rows, from flags of those that ``rows`` marks."""
    found = np.zeros(len(rows), bool)
    found[rows] = chosen
    return found
