"""Columns of structs become the bytes of keys and values: Avro by fastavro, Protobuf by its own classes, JSON by Python's json.

What a read with the same format and schema returns is what is written. These libraries take much that they cannot give back: numbers
that do not fit, missing fields, enums they do not know. So each value is compared with the schema first, and what it cannot represent is an
error with row and field.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import pyarrow as pa

from kolumn.core.errors import ArgumentError, unknown
from kolumn.core.schema import beside
from kolumn.values.protobuf_schema import File, file_of
from kolumn.values.schemas.schema import fingerprint_of
from kolumn.values.typed import Typed, reader_of
from kolumn.writers.value_avro import AvroEncoder
from kolumn.writers.value_json import JsonEncoder
from kolumn.writers.value_parts import RefusedError
from kolumn.writers.value_protobuf import ProtobufEncoder, message_indexes

FORMATS = ("avro", "protobuf", "json")
FRAMINGS = ("none", "confluent", "single-object")
NAMES = ("format", "schema", "message", "framing", "schema_id")
"""What is said of values, and of keys, by options with the column's name in front."""
_CONFLUENT = struct.Struct(">bI")
_SINGLE_OBJECT = b"\xc3\x01"


class _Encoder(Protocol):
    def encode(self, value: object, type: pa.DataType) -> bytes:
        """The bytes of a value that is not null; raises `RefusedError`."""


@dataclass(frozen=True)
class PayloadEncoder:
    """How the values of one column, "value" or "key", become bytes: the parameters of `kolumn.write` without their prefix."""

    column: str
    format: str
    schema: object
    message: str | None = None
    framing: str = "none"
    schema_id: int | None = None

    def __getstate__(self) -> dict[str, object]:
        """Without what is made of the others: a process that gets this one makes its own."""
        return {name: value for name, value in self.__dict__.items() if name in self.__dataclass_fields__}

    def encode(self, table: pa.Table, first_row: int) -> pa.Table:
        """The table with bytes in the column; the first of its rows has the number ``first_row`` in errors.

        A null value stays null, unless the bytes are in a column beside it, such as ``valueRaw``. Raises `ArgumentError` for a value that
        the schema cannot represent.
        """
        if self.column not in table.schema.names:
            return table
        column = table[self.column].combine_chunks()
        raw_name = list(beside(self.column))[-1]
        raw = table[raw_name].to_pylist() if raw_name in table.schema.names else [None] * len(column)
        done: list[bytes | None] = []
        for row, (value, bytes_) in enumerate(zip(plain(column), raw, strict=True)):
            try:
                done.append(bytes_ if value is None else self._prefix + self._encoder.encode(value, column.type))
            except RefusedError as error:
                where = f"column {self.column!r}, row {first_row + row}: {error.path}"
                raise ArgumentError(f"{where}: expected {error.expected}, found {error.found}") from None
        table = table.drop_columns([name for name in beside(self.column) if name in table.schema.names])
        return table.set_column(table.schema.get_field_index(self.column), self.column, pa.array(done, pa.binary()))

    def in_schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns that `encode` returns."""
        fields = [field for field in schema if field.name not in beside(self.column)]
        return pa.schema([pa.field(field.name, pa.binary()) if field.name == self.column else field for field in fields])

    @cached_property
    def _encoder(self) -> _Encoder:
        reader = reader_of(Typed(self.column, self.format, self.schema, message=self.message))
        if self.format == "avro":
            return AvroEncoder(reader)
        if self.format == "protobuf":
            return ProtobufEncoder(self._file.message(self.message))
        return JsonEncoder(Typed(self.column, "json", self.schema).of(reader).type)

    @cached_property
    def _file(self) -> File:
        return file_of(reader_of(Typed(self.column, self.format, self.schema)))

    @cached_property
    def _prefix(self) -> bytes:
        if self.framing == "single-object":
            return _SINGLE_OBJECT + struct.pack("<Q", fingerprint_of(reader_of(Typed(self.column, self.format, self.schema))))
        if self.framing == "none":
            return b""
        assert self.schema_id is not None
        front = _CONFLUENT.pack(0, self.schema_id)
        return front + message_indexes(self._file, self.message) if self.format == "protobuf" else front

    def check(self) -> None:
        """Raise `ArgumentError` if the schema makes no sense, and `MissingError` if a package is missing."""
        _ = self._encoder, self._prefix


def encoders_of(options: Mapping[str, Any]) -> tuple[PayloadEncoder, ...]:
    """What the options of a write say of keys and values. Raises `ArgumentError` if they contradict each other or make no sense."""
    found = []
    for column in ("key", "value"):
        own = {name: options.get(f"{column}_{name}") for name in NAMES}
        if own["format"] is None:
            given = next((f"{column}_{name}" for name in NAMES if own[name] not in (None, "auto")), None)
            if given is not None:
                raise ArgumentError(f"{given} has no effect without {column}_format: give it, one of {', '.join(FORMATS)}")
            continue
        found.append(_checked(column, own))
    return tuple(found)


def _checked(column: str, own: dict[str, Any]) -> PayloadEncoder:
    format, framing, number = own["format"], own["framing"], own["schema_id"]
    if format not in FORMATS:
        raise ArgumentError(unknown(f"{column}_format", format, FORMATS))
    if own["schema"] is None:
        raise ArgumentError(f"{column}_format={format!r} needs {column}_schema when writing")
    if own["message"] is not None and format != "protobuf":
        raise ArgumentError(f"{column}_message={own['message']!r}: not for {column}_format={format!r}")
    if framing in (None, "auto"):
        framing = "none" if number is None else "confluent"
    if framing not in FRAMINGS:
        raise ArgumentError(f"{column}_framing={framing!r}: expected one of {', '.join(FRAMINGS)}, as which values are written")
    if framing == "single-object" and format != "avro":
        raise ArgumentError(f"{column}_framing={framing!r}: not for {column}_format={format!r}")
    if (framing == "confluent") != (number is not None):
        raise ArgumentError(f"{column}_framing={framing!r} and {column}_schema_id={number!r}: confluent needs the id, and others have none")
    if number is not None and not 0 <= number < 2**32:
        raise ArgumentError(f"{column}_schema_id={number}: expected 0 to {2**32 - 1}")
    encoder = PayloadEncoder(column, format, own["schema"], own["message"], framing, number)
    encoder.check()
    return encoder


def decoded_type(type: pa.DataType) -> pa.DataType:
    """The type of what `decoded` returns. A few long values may be those of many rows, so text is large."""
    if not pa.types.is_dictionary(type):
        return type
    values = type.value_type
    if pa.types.is_string(values) or pa.types.is_string_view(values):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(values) or pa.types.is_binary_view(values) else values


def decoded(column: pa.Array) -> pa.Array:
    """A column without its dictionary, if it has one. Arrow's own decoding does not take views, which Polars has."""
    if not pa.types.is_dictionary(column.type):
        return column
    return column.dictionary.cast(decoded_type(column.type)).take(column.indices)


def plain(column: pa.Array) -> list[Any]:
    """The values as Python's: structs are dicts, maps lists of pairs, UUIDs those of Python, and times numbers of the type's unit."""
    type = column.type
    if isinstance(column, pa.ExtensionArray):
        return column.to_pylist() if type == pa.uuid() else plain(column.storage)
    if pa.types.is_dictionary(type):
        return plain(decoded(column))
    if pa.types.is_struct(type):
        names = [field.name for field in type]
        rows = zip(*map(plain, column.flatten()), strict=True)
        return _masked(column, [dict(zip(names, row, strict=True)) for row in rows] if names else [{}] * len(column))
    if pa.types.is_map(type):
        return _lists(column, list(zip(plain(column.keys), plain(column.items), strict=True)), column.offsets)
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return _lists(column, plain(column.values), column.offsets)
    if pa.types.is_date32(type):
        return column.cast(pa.int32()).to_pylist()
    if pa.types.is_date64(type):
        return plain(column.cast(pa.date32()))
    if pa.types.is_time32(type):
        return column.cast(pa.int32()).to_pylist()
    if pa.types.is_timestamp(type) or pa.types.is_time64(type) or pa.types.is_duration(type):
        return column.cast(pa.int64()).to_pylist()
    return column.to_pylist()


def _masked(column: pa.Array, rows: list[Any]) -> list[Any]:
    there = column.is_valid().to_pylist()
    return [row if is_there else None for row, is_there in zip(rows, there, strict=True)] if column.null_count else rows


def _lists(column: pa.Array, values: list[Any], offsets: pa.Array) -> list[Any]:
    ends = offsets.to_pylist()
    return _masked(column, [values[start:end] for start, end in pairwise(ends)])


def written_schema(schema: pa.Schema, encoders: tuple[PayloadEncoder, ...]) -> pa.Schema:
    """The columns that `encoded` returns."""
    for encoder in encoders:
        schema = encoder.in_schema(schema)
    return schema


def encoded(pieces: Iterable[pa.Table], encoders: tuple[PayloadEncoder, ...]) -> Iterable[pa.Table]:
    """Tables whose keys and values are bytes."""
    row = 0
    for piece in pieces:
        first, row = row, row + piece.num_rows
        for encoder in encoders:
            piece = encoder.encode(piece, first)
        yield piece
