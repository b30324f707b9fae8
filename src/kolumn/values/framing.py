"""Takes apart a column of keys or values: which schema each row names, by a prefix or by headers, and where its body is."""

import re
import threading
import zlib
from collections.abc import Callable, Iterator
from ctypes import c_char
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Bytes, Flags, Int64s
from kolumn.core.buffers import bools, numbers, strings
from kolumn.core.errors import ArgumentError, NoMemoryError, unknown
from kolumn.core.recycle import take_array
from kolumn.cpu_fallback.values.framing import INDEX, NO_ID, NO_SCHEMA, NULL, WIDTH, add_key, recognise_prefixes
from kolumn.formats.varint import MALFORMED, varint64
from kolumn.values.decoder import Bodies, payloads_of
from kolumn.values.schemas.schema import Schema, Schemas
from kolumn.values.wire import framing as wire

_ALL_BYTES = 1 << 30  # Maximum bytes of all decompressed bodies of a column.
_PAD = 64


def inflated(rows: "_Rows", most: int, bare: bool) -> Bytes | None:
    """Decompress the rows with the framing `GLUE_ZLIB`, which becomes `GLUE`; returns the memory of the bodies, None if there are none. The
    prefix is in front of the decompressed body too. A body that is not exactly one zlib stream, or has more than ``most`` bytes, gets the
    length -1; with ``bare`` it is a value without a prefix instead. Raises `NoMemoryError` if all of them have more than 1 GiB.
    """
    compressed = rows.framing == wire.GLUE_ZLIB
    rows.framing[compressed] = wire.GLUE
    parts: list[bytes] = []
    done, starts, total = [], [], 0
    for row in np.flatnonzero(compressed & (rows.length >= 0)).tolist():
        front = int(rows.prefix[row])
        begin = int(rows.address[row]) - front
        payload = memoryview((c_char * (front + int(rows.length[row]))).from_address(begin))
        body = _decompressed(payload[front:], most)
        if body is not None:
            done.append(row)
            starts.append(total + front)
            parts += [payload[:front].tobytes(), body]
            rows.length[row] = len(body)
            total += front + len(body)
        elif bare:
            rows.address[row], rows.length[row], rows.prefix[row], rows.framing[row] = begin, len(payload), 0, wire.NONE
        else:
            rows.length[row] = -1
        if total > _ALL_BYTES:
            raise NoMemoryError(f"compressed values of AWS Glue: more than {_ALL_BYTES} bytes in one batch of rows: lower chunk_bytes")
    if not done:
        return None
    held = np.frombuffer(b"".join([*parts, bytes(_PAD)]), np.uint8)
    rows.address[done] = held.ctypes.data + np.array(starts, np.int64)
    return held


def _decompressed(data: memoryview, most: int) -> bytes | None:
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(data, most + 1)
    except zlib.error:
        return None
    return body if stream.eof and not stream.unused_data and len(body) <= most else None


_PREFIXES = {
    "auto": wire.PREFIXES, "none": 0, "confluent": 1 << wire.CONFLUENT | 1 << wire.CONFLUENT_GUID,
    "apicurio": 1 << wire.CONFLUENT | 1 << wire.APICURIO, "apicurio-8": 1 << wire.APICURIO, "glue": 1 << wire.GLUE | 1 << wire.GLUE_ZLIB,
    "single-object": 1 << wire.SINGLE_OBJECT, "confluent-header": 0, "apicurio-header": 0, "azure": 0,
    "confluent-deprecated": 1 << wire.CONFLUENT | 1 << wire.CONFLUENT_GUID,
    "confluent-no-index": 1 << wire.CONFLUENT | 1 << wire.CONFLUENT_GUID, "length-delimited": 0,
}  # fmt: skip
_SAID = {
    "confluent-deprecated": wire.CONFLUENT_DEPRECATED, "confluent-no-index": wire.CONFLUENT_NO_INDEX,
    "length-delimited": wire.LENGTH_DELIMITED,
}  # fmt: skip
OF_PROTOBUF = tuple(_SAID)  # Framings of Protobuf alone, which are not recognised.
_HEADERS = {
    "auto": (wire.CONFLUENT_HEADER, wire.APICURIO_HEADER, wire.AZURE), "confluent-header": (wire.CONFLUENT_HEADER,),
    "apicurio-header": (wire.APICURIO_HEADER,), "azure": (wire.AZURE,),
}  # fmt: skip
FRAMINGS = tuple(_PREFIXES)  # Names of framings that callers may choose.
MAX_VALUE_BYTES = 64 << 20
FORGOTTEN = 1 << 16  # Unknown keys that are remembered. Values that only look as if they had a prefix have any number of them.
_FIRST_ROWS = 64
_MOST_MESSAGES = 4096  # Messages that headers choose and that are remembered: damaged headers may choose any number of them.
_ALL64 = (1 << 64) - 1
_APICURIO = ("contentId", "globalId", "artifactId")
_NAMES = {
    wire.CONFLUENT_HEADER: (("__value_schema_id",), ("__key_schema_id",)),
    wire.APICURIO_HEADER: tuple(tuple(f"apicurio.{column}.{name}" for name in _APICURIO) for column in ("value", "key")),
    wire.AZURE: (("content-type",), ("content-type",)),
}
"""Names of headers by framing: for values and for keys, in the order in which they are looked for."""
_ENCODING = ("apicurio.value.encoding", "apicurio.key.encoding")
"""Apicurio's header with the encoding of Avro, BINARY or JSON: for values and for keys."""
_MESSAGE = ("apicurio.protobuf.type", "apicurio.protobuf.type.key")
"""Apicurio's header with the name of a message, without what it is in: for values and for keys."""
# A header that was sent by AMQP has that protocol's type and length in front.
_AZURE = re.compile(rb"(?:\xa1.|\xb1....)?avro/binary\+([0-9a-fA-F]{32})", re.DOTALL)


class FrontRules(NamedTuple):
    """Where the body of a payload begins, if no header says it. ``skip`` bytes in front of every payload are left out; with 0 a prefix is
    recognised, one of ``wanted`` (`kolumn.values.wire.framing.recognise`). ``without`` is the index of the schema of a row without a
    prefix; `NO_SCHEMA` without a body. ``fixed``: all rows have the reader's schema. ``bare``: as in `Bodies`.
    """

    skip: int
    wanted: int
    without: int
    fixed: bool
    bare: bool


class Framer:
    """Takes the bodies out of a column of keys or values, row by row. Several threads may use one at the same time.

    With a collection of schemas a row has the writer's schema that its prefix or header names; a row that names none, or an unknown one,
    has no body. Without a collection, or with a framing that names no schema, every row has the reader's, and a prefix is left out where it
    is recognised: with "auto" a row without a prefix is a body then, and so may be one with a prefix (`Bodies.bare`); with the name of a
    framing a row without its prefix has no body. A decompressed value of more than ``max_value_bytes`` is no body. The first ``skip``
    bytes of every payload are left out before that; a shorter payload has no body.

    ``framing`` is one of `FRAMINGS`. "confluent": an id or a GUID. "apicurio": an id of four bytes or eight; "apicurio-8": always eight.
    "glue": AWS Glue's schema version id, compressed or not. "single-object": Avro's. "confluent-header", "apicurio-header", "azure":
    headers. "none": no prefix. "auto": any of these in each row, headers first, as Confluent's deserializers look for them. Of Protobuf,
    not recognised: "confluent-deprecated", "confluent": with message indexes as plain varints; "confluent-no-index": without any;
    "length-delimited": no prefix but the length of the message.
    """

    def __init__(
        self, framing: str = "auto", schemas: Schemas | None = None, *, is_key: bool = False, max_value_bytes: int = MAX_VALUE_BYTES,
        skip: int = 0,
    ) -> None:  # fmt: skip
        if framing not in _PREFIXES:
            raise ArgumentError(unknown("framing", framing, FRAMINGS))
        self._made = partial(Framer, framing, schemas, is_key=is_key, max_value_bytes=max_value_bytes, skip=skip)
        self._framing, self._is_key, self._max_value_bytes, self._skip = framing, is_key, max_value_bytes, skip
        self.is_of_host = skip > 0 or framing in _SAID
        """Whether a GPU leaves payloads to this framer."""
        self._collection, self._own, self._lock = schemas, threading.local(), threading.Lock()
        self._indexes: dict[object, int] = {}
        self._by_schema: dict[Schema, int] = {}
        self.schemas: tuple[Schema, ...] = ()
        """The schemas met so far, as in `Bodies.schemas`."""
        # Without a collection all rows have the reader's schema: index 0 stands for it, and `schemas` begins at 1.
        wanted, auto = _PREFIXES[framing], framing == "auto"
        self._is_fixed = fixed = schemas is None or not (wanted or framing in _HEADERS)
        self.rules = FrontRules(0, wanted, 0 if fixed and (auto or not wanted) else NO_SCHEMA, fixed, auto and fixed)
        # With "auto" headers can be missing: prefixes alone count then. Where all rows have one schema, headers would change nothing.
        self.needs_headers = framing in _HEADERS and not (auto and fixed)

    def __reduce__(self) -> tuple[Callable[..., "Framer"], tuple[()]]:
        return self._made, ()

    def bodies(self, column: pa.Array, headers: pa.Array | None = None) -> tuple[Bodies, pa.Array]:
        """The bodies of a column, and ``valueSchemaId``, int64: the id in the prefix or header, even if no schema has it; with a GUID or a
        fingerprint the id of the schema, if it has one; null where none is known. ``column`` is binary, large_binary or binary_view, or
        strings likewise, in host memory. ``headers`` are those of the same rows, if `needs_headers` is true. Bodies point into the memory
        of ``column``; only compressed ones are copied. Raises `ArgumentError` for another type or missing headers,
        `UnreadableSchemasError`, and `NoMemoryError` if all decompressed values take more than 1 GiB.
        """
        if headers is None and self.needs_headers and self._framing != "auto":
            raise ArgumentError(f"framing={self._framing!r} needs the column 'headers'")
        rows = _Rows.of(column)
        if self._skip:
            rows.address += self._skip
            rows.length[:] = np.where(rows.length < self._skip, NULL, rows.length - self._skip)
        if headers is not None and self._framing in _HEADERS:
            self._by_headers(rows, headers)
        self._by_prefix(rows)
        if self._framing in _SAID:
            rows.framing[:] = _SAID[self._framing]
        bare = self.rules.bare
        held = inflated(rows, self._max_value_bytes, bare)
        schemas = self.schemas
        if self._is_fixed:
            np.maximum(rows.schema - 1, NO_SCHEMA, out=rows.schema)
        bodies = Bodies(rows.address, rows.length, rows.prefix, rows.framing, rows.schema, schemas, bare, (column, held))
        return bodies, numbers(rows.ids, pa.int64(), rows.ids < 0)

    def _by_headers(self, rows: "_Rows", headers: pa.Array) -> None:
        for framing in _HEADERS[self._framing]:
            for name, row, which, values in values_of_headers(headers, _NAMES[framing][self._is_key]):
                named = [_named(value, framing, name) for value in values]
                indexes = [NO_SCHEMA if one is None else self._index_of_header(one) for one in named]
                ids = [self._id_of(index) if one is None or one.id is None else one.id for index, one in zip(indexes, named, strict=True)]
                means = np.array([one is not None for one in named], np.bool_)
                free = (rows.framing[row] == wire.NONE) & (rows.length[row] >= 0) & means[which]
                row, which = row[free], which[free]
                rows.framing[row] = framing
                rows.schema[row], rows.ids[row] = np.array(indexes, np.int64)[which], np.array(ids, np.int64)[which]
                rows.length[row[rows.schema[row] == NO_SCHEMA]] = NULL
            if framing == wire.APICURIO_HEADER:
                # Rows whose header says that Avro is encoded as JSON have no body.
                for _, row, which, values in values_of_headers(headers, _ENCODING[self._is_key : self._is_key + 1]):
                    row = row[np.array([value != b"BINARY" for value in values], np.bool_)[which]]
                    rows.length[row[rows.framing[row] == wire.APICURIO_HEADER]] = NULL
                self._by_message(rows, headers)

    def _by_message(self, rows: "_Rows", headers: pa.Array) -> None:
        for _, row, which, values in values_of_headers(headers, _MESSAGE[self._is_key : self._is_key + 1]):
            own = (rows.framing[row] == wire.APICURIO_HEADER) & (rows.length[row] >= 0)
            row, which = row[own], which[own]
            pairs, pair = np.unique(np.stack((rows.schema[row], which), 1), axis=0, return_inverse=True)
            chosen = [self._chosen(index, message=values[which].decode("utf-8", "replace")) for index, which in pairs.tolist()]
            rows.schema[row] = np.array(chosen, np.int64)[pair.reshape(-1)]
            rows.length[row[rows.schema[row] == NO_SCHEMA]] = NULL

    def _by_prefix(self, rows: "_Rows") -> None:
        """Set framing and schema of the other rows, and cut off their prefixes."""
        _, wanted, without, fixed, _ = self.rules
        table: _Table = getattr(self._own, "table", None) or _Table()
        self._own.table = table
        columns, row = (rows.address, rows.length, rows.prefix, rows.framing, rows.ids, rows.schema), 0
        while True:
            row = recognise_prefixes(*columns, row, wanted, without, fixed, table.rows)
            if row == len(rows.address):
                return
            framing, _, high, low = wire.recognise(int(rows.address[row]), 0, int(rows.length[row]), wanted)
            table.add(framing, high, low, *self.look_up(framing, high, low))

    def look_up(self, framing: int, high: int, low: int) -> tuple[int, int]:
        """Index and id of the schema that a prefix names: `NO_SCHEMA` and `NO_ID` without one."""
        index = self._index_of_prefix(framing, high, low)
        return index, self._id_of(index)

    def named(self, length: Int64s, headers: pa.Array) -> tuple[Int64s, Int64s, Int64s]:
        """Framing, index of the schema and id of each row, as headers name them; `NONE` for a row whose headers name none. ``length`` has
        the bytes of the payloads, -1 for null. A row whose headers say that it has no body has no schema.
        """
        n = len(length)
        none = np.zeros(n, np.int64)
        rows = _Rows(none, length.copy(), none, np.full(n, wire.NONE), np.full(n, NO_ID), np.full(n, NO_SCHEMA))
        self._by_headers(rows, headers)
        rows.schema[rows.length == NULL] = NO_SCHEMA
        return rows.framing, rows.schema, rows.ids

    def _index_of_prefix(self, framing: int, high: int, low: int) -> int:
        schemas = self._collection
        assert schemas is not None
        if framing in (wire.CONFLUENT, wire.APICURIO):
            return self._index(low, lambda: schemas.by_id(low))
        if framing == wire.SINGLE_OBJECT:
            return self._index(("fingerprint", low), lambda: schemas.by_fingerprint(low & _ALL64))
        guid = UUID(int=(high & _ALL64) << 64 | (low & _ALL64))
        return self._index(guid, lambda: schemas.by_guid(guid))

    def _index_of_header(self, named: "_Named") -> int:
        if self._is_fixed:
            return self._chosen(0, message_indexes=named.message_indexes) if named.message_indexes else 0
        schemas = self._collection
        assert schemas is not None
        return NO_SCHEMA if named.id is None and named.guid is None else self._index(named, lambda: named.schema_of(schemas))

    def _chosen(self, index: int, **choice: Any) -> int:
        own = Schema("PROTOBUF", "") if self._is_fixed else self.schemas[index]
        if own.kind != "PROTOBUF":
            return index
        # No message has an empty name.
        return self._index((index, *choice.values()), lambda: replace(own, **choice) if all(choice.values()) else None)

    def _id_of(self, index: int) -> int:
        id = None if index == NO_SCHEMA or self._is_fixed else self.schemas[index].id
        return NO_ID if id is None else id

    def _index(self, key: object, look_up: Callable[[], Schema | None]) -> int:
        with self._lock:
            if key not in self._indexes:
                if len(self._indexes) > 2 * FORGOTTEN:
                    self._indexes = {key: index for key, index in self._indexes.items() if index != NO_SCHEMA}
                schema = look_up()
                if schema is not None and schema not in self._by_schema:
                    is_chosen = schema.message or schema.message_indexes
                    if not is_chosen or len(self.schemas) < _MOST_MESSAGES:
                        self._by_schema[schema] = len(self.schemas) + self._is_fixed
                        self.schemas = (*self.schemas, schema)
                self._indexes[key] = NO_SCHEMA if schema is None else self._by_schema.get(schema, NO_SCHEMA)
            return self._indexes[key]


@dataclass
class _Rows:
    """What is known of each row: int64 arrays of one length."""

    address: Int64s
    length: Int64s
    prefix: Int64s
    framing: Int64s
    ids: Int64s
    schema: Int64s

    @classmethod
    def of(cls, column: pa.Array) -> "_Rows":
        n = len(column)
        address, length, prefix, framing, schema = take_array(5 * n, np.int64).reshape(5, n)
        prefix[:], framing[:], schema[:] = 0, wire.NONE, NO_SCHEMA
        payloads_of(column, address, length)
        # The numbers become a column of the result, which must not keep the memory of the others.
        return cls(address, length, prefix, framing, np.full(n, NO_ID), schema)


class _Table:
    """One thread's table of known keys, for `recognise_prefixes`."""

    def __init__(self) -> None:
        self.rows = np.zeros((_FIRST_ROWS, WIDTH), np.int64)
        self._used = 0

    def add(self, framing: int, high: int, low: int, index: int, id: int) -> None:
        """Note a key. Keys that nobody knows are forgotten when there are too many of them."""
        self._used += int(add_key(self.rows, framing, high, low, index, id))
        if 2 * self._used <= len(self.rows):
            return
        kept = self.rows[self.rows[:, 0] != wire.NONE]
        if len(kept) >= FORGOTTEN:
            kept = kept[kept[:, INDEX] != NO_SCHEMA]
        self.rows = np.zeros((max(_FIRST_ROWS, 1 << (4 * len(kept)).bit_length()), WIDTH), np.int64)
        self._used = len(kept)
        for row in kept.tolist():
            add_key(self.rows, *row)


@dataclass(frozen=True)
class _Named:
    """The schema that a header's value names by id or GUID; neither if it is malformed. ``message_indexes`` are those of Protobuf."""

    id: int | None = None
    guid: UUID | None = None
    message_indexes: tuple[int, ...] = ()

    def schema_of(self, schemas: Schemas) -> Schema | None:
        schema = schemas.by_guid(self.guid) if self.guid is not None else None if self.id is None else schemas.by_id(self.id)
        return replace(schema, message_indexes=self.message_indexes) if schema is not None and self.message_indexes else schema


def values_of_headers(headers: pa.Array, names: tuple[str, ...]) -> Iterator[tuple[str, Int64s, Int64s, list[bytes]]]:
    """The rows with a header of each name that is there, for each the index of its value, and the distinct values."""
    keys, values = headers.flatten().flatten()
    keys, values = keys.cast(pa.string()), values.cast(pa.binary())
    parents: Int64s | None = None
    for name in names:
        entries = _int64s(pc.indices_nonzero(pc.equal(keys, strings([name])[0])))
        if not len(entries):
            continue
        if parents is None:
            parents = _int64s(pc.list_parent_indices(headers))
        rows = parents[entries]
        # Kafka's clients look at the last header of a name.
        last = np.append(rows[1:] != rows[:-1], True)
        rows, own = rows[last], values.take(numbers(entries[last], pa.int64()))
        if own.null_count:
            rows, own = rows[_int64s(own.is_valid().cast(pa.uint8())) != 0], own.drop_null()
        encoded = own.dictionary_encode()
        yield name, rows, _int64s(encoded.indices), encoded.dictionary.to_pylist()


def _int64s(array: pa.Array) -> Int64s:
    """Integers without nulls. `pyarrow.Array.to_numpy` would import pandas."""
    whole = array.cast(pa.int64())
    data = whole.buffers()[1]
    return np.frombuffer(b"" if data is None else data, np.int64)[whole.offset : whole.offset + len(whole)]


def _named(value: bytes, framing: int, name: str) -> _Named | None:
    """What the value of a header names; None if the header has another purpose."""
    if framing == wire.AZURE:
        match = _AZURE.fullmatch(value)
        return None if match is None else _Named(guid=UUID(match[1].decode()))
    if framing == wire.APICURIO_HEADER:
        # A schema that only its artifact names is not looked for.
        return _Named(id=int.from_bytes(value, "big", signed=True)) if len(value) == 8 and not name.endswith("artifactId") else _Named()
    prefix, size, _, low = wire.recognise(value, 0, len(value), _PREFIXES["confluent"])
    found = message_indexes(value, size) if size < len(value) else ((), len(value))
    if prefix == wire.NONE or found is None or found[1] != len(value):
        return _Named()
    return _Named(low, None, found[0]) if prefix == wire.CONFLUENT else _Named(None, UUID(bytes=value[1:17]), found[0])


def message_indexes(value: bytes, position: int) -> tuple[tuple[int, ...], int] | None:
    """Message indexes as Confluent's serializers write them, and where they end: zig-zag varints, how many, then so many; no index means
    the first message. None if they are malformed.
    """
    count, position = varint64(value, position, len(value))
    if position == MALFORMED or not 0 <= count <= len(value) - position:
        return None
    indexes = []
    for _ in range(count):
        index, position = varint64(value, position, len(value))
        if position == MALFORMED:
            return None
        indexes.append(index)
    return tuple(indexes) or (0,), position


def doubtful(framing: Int64s, ids: pa.Array) -> Flags | None:
    """The rows whose prefix is likelier a part of the value, where all bytes are one, than a prefix: a GUID or eight bytes, after one or
    two that many values begin with, and an id that no registry has. None if there are no such rows. The first four bytes of other ids are
    zero and a small number, and Avro's marker was chosen because it is rare. ``framing`` and ``ids`` are those of `Framer.bodies`.
    """
    most = int(framing.max()) if len(framing) else wire.NONE
    has_ids = most == wire.CONFLUENT and np.count_nonzero(framing == wire.NONE) == ids.null_count
    if most == wire.NONE or (has_ids and (found := pc.min_max(ids))["min"].as_py() > 0 and found["max"].as_py() < wire.PLAUSIBLE):
        return None
    plausible = bools(pc.fill_null(pc.and_(pc.greater(ids, 0), pc.less(ids, wire.PLAUSIBLE)), False))
    rows: Flags = ((framing == wire.CONFLUENT) & ~plausible) | np.isin(framing, wire.DOUBTFUL)
    return rows if rows.any() else None


class BareFramer:
    """What `Framer` does, for payloads without a prefix: a body is the payload, without the ``skip`` bytes in front of it. A shorter
    payload has no body.
    """

    needs_headers = is_of_host = False
    schemas: tuple[Schema, ...] = ()

    def __init__(self, skip: int = 0) -> None:
        self.skip, self.rules = skip, FrontRules(skip, 0, 0, True, False)

    def bodies(self, payload: pa.BinaryArray, headers: pa.ListArray | None = None) -> tuple[Bodies, pa.Array]:
        """Bodies of a column of payloads, and the schema id of each row (int64), which is null. Copies no payload."""
        n = len(payload)
        address, length = np.empty((2, n), np.int64)
        payloads_of(payload, address, length)
        length = np.where(length < self.skip, -1, length - self.skip)
        zero = np.zeros(n, np.int64)
        return Bodies(address + self.skip, length, zero + self.skip, zero, zero - 1, (), held=payload), pa.nulls(n, pa.int64())


PayloadFramer = Framer | BareFramer
