"""Takes apart a column of keys or values: which schema each row names, and where its body is.

Payloads without a prefix: the body of a row is its payload.

Bodies that AWS Glue's serializers have compressed with zlib.
"""

import threading
import zlib
from collections.abc import Callable
from ctypes import c_char
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Bytes, Int64s
from kolumn.core.buffers import numbers
from kolumn.core.errors import ArgumentError, NoMemoryError, unknown
from kolumn.core.recycle import take_array
from kolumn.cpu_fallback.values.framing import INDEX, NO_ID, NO_SCHEMA, NULL, WIDTH, add_key, recognise_prefixes
from kolumn.values.decoder import Bodies
from kolumn.values.headers import BINARY, ENCODING, HEADERS, MESSAGE, Named, named_of, payloads_of, values_of_headers
from kolumn.values.schemas.schema import Schema, Schemas
from kolumn.values.wire import framing as kinds
from kolumn.values.wire.framing import GLUE, GLUE_ZLIB, NONE

_ALL_BYTES = 1 << 30
"""Maximum bytes of all decompressed bodies of a column."""
_PAD = 64


def inflated(at: Int64s, length: Int64s, prefix: Int64s, framing: Int64s, most: int, bare: bool) -> Bytes | None:
    """Decompress the rows with the framing `GLUE_ZLIB`, which becomes `GLUE`; returns the memory of the bodies, None if there are none.

    Address and bytes of those rows are set; the prefix is in front of the decompressed body too. A body that is not exactly one zlib
    stream, or has more than ``most`` bytes, gets the length -1; with ``bare`` it is a value without a prefix instead. Raises
    `NoMemoryError` if all of them together have more than 1 GiB.
    """
    rows = np.flatnonzero((framing == GLUE_ZLIB) & (length >= 0))
    framing[framing == GLUE_ZLIB] = GLUE
    parts: list[bytes] = []
    done, starts = [], []
    total = 0
    for row in rows.tolist():
        front = int(prefix[row])
        payload = memoryview((c_char * (front + int(length[row]))).from_address(int(at[row]) - front))
        body = _one(payload[front:], most)
        if body is not None:
            done.append(row)
            starts.append(total + front)
            parts += [payload[:front].tobytes(), body]
            length[row] = len(body)
            total += front + len(body)
        elif bare:
            at[row], length[row], prefix[row], framing[row] = at[row] - front, len(payload), 0, NONE
        else:
            length[row] = -1
        if total > _ALL_BYTES:
            raise NoMemoryError(f"compressed values of AWS Glue: more than {_ALL_BYTES} bytes in one batch of rows: lower chunk_bytes")
    if not done:
        return None
    held = np.frombuffer(b"".join([*parts, bytes(_PAD)]), np.uint8)
    at[done] = held.ctypes.data + np.array(starts, np.int64)
    return held


def _one(data: memoryview, most: int) -> bytes | None:
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(data, most + 1)
    except zlib.error:
        return None
    return body if stream.eof and not stream.unused_data and len(body) <= most else None


_BY_ID = kinds.CONFLUENT, kinds.APICURIO
_PREFIXES = {
    "auto": kinds.PREFIXES,
    "none": 0,
    "confluent": 1 << kinds.CONFLUENT | 1 << kinds.CONFLUENT_GUID,
    "apicurio": 1 << kinds.CONFLUENT | 1 << kinds.APICURIO,
    "apicurio-8": 1 << kinds.APICURIO,
    "glue": 1 << kinds.GLUE | 1 << kinds.GLUE_ZLIB,
    "single-object": 1 << kinds.SINGLE_OBJECT,
    "confluent-header": 0,
    "apicurio-header": 0,
    "azure": 0,
}
_HEADERS = {
    "auto": (kinds.CONFLUENT_HEADER, kinds.APICURIO_HEADER, kinds.AZURE),
    "confluent-header": (kinds.CONFLUENT_HEADER,),
    "apicurio-header": (kinds.APICURIO_HEADER,),
    "azure": (kinds.AZURE,),
}
FRAMINGS = tuple(_PREFIXES)
"""Names of framings that callers may choose."""
MAX_VALUE_BYTES = 64 << 20
FORGOTTEN = 1 << 16
"""Unknown keys that are remembered. Values that only look as if they had a prefix have any number of them."""
_FIRST_ROWS = 64
_MOST_MESSAGES = 4096
"""Messages that headers choose and that are remembered: damaged headers may choose any number of them."""


class FrontRules(NamedTuple):
    """Where the body of a payload begins, if no header says it.

    ``skip`` bytes in front of every payload are left out; with 0 a prefix is recognised, one of ``wanted``
    (`kolumn.values.wire.framing.recognise`). ``without`` is the index of the schema of a row without a prefix; `NO_SCHEMA` without a body.
    ``fixed``: all rows have the reader's schema. ``bare``: as in `Bodies`.
    """

    skip: int
    wanted: int
    without: int
    fixed: bool
    bare: bool


class Framer:
    """Takes the bodies out of a column of keys or values, row by row. Several threads may use one at the same time.

    With a collection of schemas a row has the writer's schema that its prefix or header names; a row that names none, or an unknown one,
    has no body. Without a collection every row has one schema, and a prefix is left out where it is recognised: with "auto" a row without a
    prefix is a body then, and so may be one with a prefix (`Bodies.bare`); with the name of a framing a row without its prefix has no body.

    ``framing`` is one of `FRAMINGS`. "confluent": the wire format, with a schema id or a GUID. "apicurio": an id of four bytes or eight;
    "apicurio-8": always eight. "glue": AWS Glue's schema version id, compressed or not. "single-object": Avro's single-object encoding.
    "confluent-header", "apicurio-header", "azure": headers. "none": no prefix. "auto": any of these in each row, headers first, as
    Confluent's deserializers look for them. ``schema`` is that of every row, where there are no ``schemas``; without both every row has the
    reader's. A decompressed value of more than ``max_value_bytes`` is no body.
    """

    def __init__(
        self,
        framing: str = "auto",
        schemas: Schemas | None = None,
        schema: Schema | None = None,
        *,
        is_key: bool = False,
        max_value_bytes: int = MAX_VALUE_BYTES,
    ) -> None:
        if framing not in _PREFIXES:
            raise ArgumentError(unknown("framing", framing, FRAMINGS))
        if schemas is not None and schema is not None:
            raise ArgumentError("framing: expected either a collection of schemas or one schema")
        self._made = partial(Framer, framing, schemas, schema, is_key=is_key, max_value_bytes=max_value_bytes)
        self._framing, self._is_key, self._max_value_bytes = framing, is_key, max_value_bytes
        self._known = _Known(schemas, schema)
        self._own = threading.local()

    def __reduce__(self) -> tuple[Callable[..., "Framer"], tuple[()]]:
        return self._made, ()

    @property
    def needs_headers(self) -> bool:
        """Whether `bodies` looks into the column ``headers``.

        With "auto" it can do without: then it looks at prefixes alone. Where all rows have one schema, headers would change nothing.
        """
        return self._framing in _HEADERS and not (self._framing == "auto" and self._known.is_fixed)

    @property
    def rules(self) -> FrontRules:
        """Where bodies begin."""
        wanted, fixed = _PREFIXES[self._framing], self._known.is_fixed
        without = 0 if fixed and (self._framing == "auto" or not wanted) else NO_SCHEMA
        return FrontRules(0, wanted, without, fixed, self._framing == "auto" and fixed)

    @property
    def schemas(self) -> tuple[Schema, ...]:
        """The schemas found so far, as in `Bodies.schemas`."""
        return self._known.found

    def bodies(self, column: pa.Array, headers: pa.Array | None = None) -> tuple[Bodies, pa.Array]:
        """The bodies of a column, and ``valueSchemaId``, int64: the id in the prefix or header, even if no schema has it; with a GUID or a
        fingerprint the id of the schema, if it has one; null where none is known.

        ``column`` is binary, large_binary or binary_view, or strings likewise, in host memory; it may be a slice. ``headers`` are those of
        the same rows, if `needs_headers` is true. Bodies point into the memory of ``column``, which they keep alive; only compressed ones
        are copied.

        Raises `ArgumentError` for another type, for missing headers, and if the collection of schemas cannot be read; `NoMemoryError` if
        all decompressed values together take more than 1 GiB.
        """
        if headers is None and self.needs_headers and self._framing != "auto":
            raise ArgumentError(f"framing={self._framing!r} needs the column headers")
        rows = _Rows.of(column)
        if headers is not None and self._framing in _HEADERS:
            self._by_headers(rows, headers)
        self._by_prefix(rows)
        bare = self.rules.bare
        held = inflated(rows.at, rows.length, rows.prefix, rows.framing, self._max_value_bytes, bare)
        found = self._known.found
        if self._known.is_readers:
            np.maximum(rows.schema - 1, NO_SCHEMA, out=rows.schema)
        bodies = Bodies(rows.at, rows.length, rows.prefix, rows.framing, rows.schema, found, bare, (column, held))
        return bodies, numbers(rows.ids, pa.int64(), rows.ids < 0)

    def _by_headers(self, rows: "_Rows", headers: pa.Array) -> None:
        """Set framing and schema of the rows whose headers name a schema."""
        for framing in _HEADERS[self._framing]:
            names = HEADERS[framing][self._is_key]
            for name, row, which, values in values_of_headers(headers, names):
                named = [named_of(value, framing, name) for value in values]
                indexes = [NO_SCHEMA if one is None else self._known.index_of_header(one) for one in named]
                ids = [
                    self._known.id_of(index) if one is None or one.id is None else one.id for index, one in zip(indexes, named, strict=True)
                ]
                means = np.array([one is not None for one in named], np.bool_)
                free = (rows.framing[row] == kinds.NONE) & (rows.length[row] >= 0) & means[which]
                row, which = row[free], which[free]
                rows.framing[row] = framing
                rows.schema[row], rows.ids[row] = np.array(indexes, np.int64)[which], np.array(ids, np.int64)[which]
                rows.length[row[rows.schema[row] == NO_SCHEMA]] = NULL
            if framing == kinds.APICURIO_HEADER:
                self._by_encoding(rows, headers)
                self._by_message(rows, headers)

    def _by_encoding(self, rows: "_Rows", headers: pa.Array) -> None:
        """Leave rows without a body whose header says that Avro is encoded as JSON."""
        for _, row, which, values in values_of_headers(headers, ENCODING[self._is_key : self._is_key + 1]):
            row = row[np.array([one != BINARY for one in values], np.bool_)[which]]
            rows.length[row[rows.framing[row] == kinds.APICURIO_HEADER]] = NULL

    def _by_message(self, rows: "_Rows", headers: pa.Array) -> None:
        """Set the schema of rows whose header names the message."""
        for _, row, which, values in values_of_headers(headers, MESSAGE[self._is_key : self._is_key + 1]):
            own = (rows.framing[row] == kinds.APICURIO_HEADER) & (rows.length[row] >= 0)
            row, which = row[own], which[own]
            pairs, pair = np.unique(np.stack((rows.schema[row], which), 1), axis=0, return_inverse=True)
            chosen = [self._known.index_of_message(index, values[number]) for index, number in pairs.tolist()]
            rows.schema[row] = np.array(chosen, np.int64)[pair.reshape(-1)]
            rows.length[row[rows.schema[row] == NO_SCHEMA]] = NULL

    def _by_prefix(self, rows: "_Rows") -> None:
        """Set framing and schema of the other rows, and cut off their prefixes."""
        _, prefixes, without, fixed, _ = self.rules
        table: _Table = getattr(self._own, "table", None) or _Table()
        self._own.table = table
        row = 0
        while True:
            row = recognise_prefixes(
                rows.at, rows.length, rows.prefix, rows.framing, rows.ids, rows.schema, row, prefixes, without, fixed, table.rows
            )
            if row == len(rows.at):
                return
            kind, _, high, low = kinds.recognise(int(rows.at[row]), 0, int(rows.length[row]), prefixes)
            table.add(kind, high, low, *self.look_up(kind, high, low))

    def look_up(self, kind: int, high: int, low: int) -> tuple[int, int]:
        """Index and id of the schema that a prefix names: `NO_SCHEMA` and `NO_ID` without one."""
        index = self._known.index_of_prefix(kind, high, low)
        return index, self._known.id_of(index)

    def named(self, length: Int64s, headers: pa.Array) -> tuple[Int64s, Int64s, Int64s]:
        """Framing, index of the schema and id of each row, as headers name them; `NONE` for a row whose headers name none.

        ``length`` has the bytes of the payloads, -1 for null. A row whose headers say that it has no body has no schema.
        """
        n = len(length)
        none = np.zeros(n, np.int64)
        rows = _Rows(none, length.copy(), none, np.full(n, kinds.NONE), np.full(n, NO_ID), np.full(n, NO_SCHEMA))
        self._by_headers(rows, headers)
        rows.schema[rows.length == NULL] = NO_SCHEMA
        return rows.framing, rows.schema, rows.ids


@dataclass
class _Rows:
    """What is known of each row: int64 arrays of one length."""

    at: Int64s
    length: Int64s
    prefix: Int64s
    framing: Int64s
    ids: Int64s
    schema: Int64s

    @classmethod
    def of(cls, column: pa.Array) -> "_Rows":
        """Rows whose payloads are those of a column."""
        n = len(column)
        at, length, prefix, framing, schema = take_array(5 * n, np.int64).reshape(5, n)
        # The numbers become a column of the result, which must not keep the memory of the others.
        rows = cls(at, length, prefix, framing, np.full(n, NO_ID), schema)
        payloads_of(column, rows.at, rows.length)
        rows.prefix[:], rows.framing[:], rows.schema[:] = 0, kinds.NONE, NO_SCHEMA
        return rows


class _Table:
    """One thread's table of known keys, for `recognise_prefixes`."""

    def __init__(self) -> None:
        self.rows = np.zeros((_FIRST_ROWS, WIDTH), np.int64)
        self._used = 0

    def add(self, kind: int, high: int, low: int, index: int, id: int) -> None:
        self._used += int(add_key(self.rows, kind, high, low, index, id))
        if 2 * self._used > len(self.rows):
            self._grow()

    def _grow(self) -> None:
        """Make room; keys that nobody knows are forgotten when there are too many of them."""
        kept = self.rows[self.rows[:, 0] != kinds.NONE]
        if len(kept) >= FORGOTTEN:
            kept = kept[kept[:, INDEX] != NO_SCHEMA]
        self.rows = np.zeros((max(_FIRST_ROWS, 1 << (4 * len(kept)).bit_length()), WIDTH), np.int64)
        self._used = len(kept)
        for row in kept.tolist():
            add_key(self.rows, *row)


class _Known:
    """The schemas of a read, and which of them keys name; shared by all threads.

    Where the schema of all rows is the reader's (``is_readers``), index 0 stands for it, and those of ``found`` are one higher.
    """

    def __init__(self, schemas: Schemas | None, schema: Schema | None) -> None:
        self._schemas, self.is_fixed = schemas, schemas is None
        self.is_readers = self.is_fixed and schema is None
        self._lock = threading.Lock()
        self._indexes: dict[object, int] = {}
        self._places: dict[Schema, int] = {}
        self.found: tuple[Schema, ...] = () if schema is None else (schema,)

    def index_of_prefix(self, kind: int, high: int, low: int) -> int:
        """Index of the schema that a prefix names."""
        all64 = (1 << 64) - 1
        if kind in _BY_ID:
            return self._index(low, lambda: self._all.by_id(low))
        if kind == kinds.SINGLE_OBJECT:
            return self._index(("fingerprint", low), lambda: self._all.by_fingerprint(low & all64))
        guid = UUID(int=(high & all64) << 64 | (low & all64))
        return self._index(guid, lambda: self._all.by_guid(guid))

    def index_of_header(self, named: Named) -> int:
        """Index of the schema that a header names."""
        if self.is_fixed:
            return self._chosen(0, message_indexes=named.message_indexes) if named.message_indexes else 0
        if named.id is None and named.guid is None:
            return NO_SCHEMA
        return self._index(named, lambda: named.schema_of(self._all))

    @property
    def _all(self) -> Schemas:
        assert self._schemas is not None
        return self._schemas

    def index_of_message(self, index: int, name: bytes) -> int:
        """Index of a schema whose header names the message: ``index`` is that of the schema."""
        return self._chosen(index, message=name.decode("utf-8", "replace"))

    def _chosen(self, index: int, **choice: Any) -> int:
        own = Schema("PROTOBUF", "") if self.is_readers else self.found[index]
        if own.kind != "PROTOBUF":
            return index
        # No message has an empty name.
        return self._index((index, *choice.values()), lambda: replace(own, **choice) if all(choice.values()) else None)

    def id_of(self, index: int) -> int:
        """Id of a schema of the collection."""
        id = None if index == NO_SCHEMA or self.is_fixed else self.found[index].id
        return NO_ID if id is None else id

    def _index(self, key: object, look_up: Callable[[], Schema | None]) -> int:
        with self._lock:
            if key not in self._indexes:
                if len(self._indexes) > 2 * FORGOTTEN:
                    self._indexes = {key: index for key, index in self._indexes.items() if index != NO_SCHEMA}
                schema = look_up()
                self._indexes[key] = NO_SCHEMA if schema is None else self._place(schema)
            return self._indexes[key]

    def _place(self, schema: Schema) -> int:
        if schema not in self._places:
            if (schema.message or schema.message_indexes) and len(self.found) >= _MOST_MESSAGES:
                return NO_SCHEMA
            self._places[schema] = len(self.found) + self.is_readers
            self.found = (*self.found, schema)
        return self._places[schema]


class BareFramer:
    """What `kolumn.values.framing.Framer` does, for payloads without a prefix. ``skip`` bytes in front of each are left out; a shorter
    payload has no body.
    """

    needs_headers = False
    schemas: tuple[Schema, ...] = ()

    def __init__(self, skip: int = 0) -> None:
        self.skip = skip

    @property
    def rules(self) -> FrontRules:
        """Where bodies begin."""
        return FrontRules(self.skip, 0, 0, True, False)

    def bodies(self, payload: pa.BinaryArray, headers: pa.ListArray | None = None) -> tuple[Bodies, pa.Array]:
        """Bodies of a column of payloads, and the schema id of each row (int64), which is null. Copies no payload."""
        n = len(payload)
        at, length = np.empty((2, n), np.int64)
        payloads_of(payload, at, length)
        at, length = at + self.skip, np.where(length < self.skip, -1, length - self.skip)
        none = np.full(n, -1, np.int64)
        zero = np.zeros(n, np.int64)
        return Bodies(at, length, zero + self.skip, zero, none, (), held=payload), pa.nulls(n, pa.int64())
