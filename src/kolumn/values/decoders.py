"""Which class decodes a format, and which one finds the bodies in payloads: the one place that knows all of them."""

from typing import Any

import pyarrow as pa

from kolumn.core.errors import ArgumentError, unknown
from kolumn.values.avro.decoder import AvroDecoder
from kolumn.values.decoder import ValueDecoder
from kolumn.values.framing import FRAMINGS, BareFramer, Framer
from kolumn.values.json.decoder import JsonDecoder
from kolumn.values.json.schema import type_of
from kolumn.values.protobuf.decoder import ProtobufDecoder
from kolumn.values.schemas.schema import Schema, Schemas
from kolumn.values.separated import FixedDecoder, SeparatedDecoder
from kolumn.values.types import MOST_NESTED, SCHEMALESS, is_deep, nested_type, only_fields

PayloadFramer = Framer | BareFramer


def framer_of(format: str, framing: str, column: str, skip: int, writers: Schemas | None) -> PayloadFramer:
    """The framer of a column; `ArgumentError` if there is no framing of that name."""
    if framing not in FRAMINGS:
        raise ArgumentError(unknown(f"{column}_framing", framing, FRAMINGS))
    if format in SCHEMALESS or skip:
        if framing not in ("auto", "none"):
            raise ArgumentError(f"{column}_framing={framing!r}: not for {f'{column}_skip' if skip else f'{column}_format={format!r}'}")
        return BareFramer(skip)
    return Framer(framing, writers, is_key=column == "key")


def decoder_of(
    kind: str, reader: Any, columns: tuple[str, ...] | None, message: str | None, separator: str, column: str, writers: Schemas | None
) -> ValueDecoder:
    """The decoder of a column.

    ``reader`` is a `Schema` of the ``kind``; of "json", "csv" and "fixed" what callers give as the schema; of "protobuf" also a descriptor
    set or a generated class. In ``writers`` schemas that others refer to are looked up. `ArgumentError` if the schema makes no sense, its
    types are nested too deeply, or ``columns`` has names that it does not have.
    """
    where = f"{column}_schema"

    def made() -> ValueDecoder:
        if kind == "avro":
            return AvroDecoder(reader, columns, writers)
        if kind == "protobuf":
            return ProtobufDecoder(reader, message, columns, schemas=writers)
        if kind == "json":
            type = type_of(reader.text, where) if isinstance(reader, Schema) else nested_type(reader, where)
            return JsonDecoder(type if columns is None else only_fields(type, columns, f"{column}_columns"))
        found = SeparatedDecoder(reader, separator, where) if kind == "csv" else FixedDecoder(reader, where)
        return found if columns is None else found.only(columns, f"{column}_columns")

    try:
        decoder = made()
        if not is_deep(decoder.type, _inner_types):
            return decoder
    except RecursionError:
        pass
    raise ArgumentError(f"{where}: types are nested more than {MOST_NESTED} deep")


def _inner_types(kind: pa.DataType) -> list[pa.DataType]:
    return [kind.field(number).type for number in range(kind.num_fields)]
