"""How the payloads of a typed column are decoded on the device, or that the host has to decode them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kolumn.errors import ArgumentError
from kolumn.kernels.values.bodies import DeviceFramer
from kolumn.kernels.values.message_columns import Messages
from kolumn.kernels.values.parse import BOOLEAN, BYTES, DOUBLE, FIRST, FLOAT, INT, LONG, NULL, SECOND, STRING, UNWANTED
from kolumn.kernels.values.typed import kind_of
from kolumn.schema import beside
from kolumn.values.avro.decoder import AvroDecoder
from kolumn.values.avro.schema import SchemaNode
from kolumn.values.columns.typed import Typed
from kolumn.values.layout import nodes
from kolumn.values.protobuf.decoder import ProtobufDecoder
from kolumn.values.types import TYPES, check_separator, fixed_type, mapping_of

_AVRO = {
    "boolean": BOOLEAN, "int": INT, "long": LONG, "float": FLOAT, "double": DOUBLE, "bytes": BYTES, "string": STRING, "null": NULL,
}  # fmt: skip
COLUMNS = {BOOLEAN: "bool", INT: "int32", LONG: "int64", FLOAT: "float32", DOUBLE: "float64", NULL: "int8"}
"""Columns of Avro's types other than text."""


@dataclass(frozen=True)
class Values:
    """How the payloads of a column are to be decoded.

    Attributes
    ----------
    typed : Typed
        What the call asks for, with its types.
    framer : DeviceFramer
    fields : tuple of (str, Any)
        Of formats with a kernel of their own: names of the columns, and what the format needs for each: a NumPy dtype, an Avro type, or
        the name of a type.
    separator : int
        The byte between fields of "csv".
    types : tuple of int
        Of flat Avro records: the types of all fields, also of those without a column.
    messages : Messages, optional
        Of "protobuf".
    """

    typed: Typed
    framer: DeviceFramer
    fields: tuple[tuple[str, Any], ...] = ()
    separator: int = ord(",")
    types: tuple[int, ...] = ()
    messages: Messages | None = None

    @classmethod
    def of(cls, typed: Typed) -> "Values":
        """How a device decodes a column, whose types are known.

        Raises
        ------
        ArgumentError
            The host has to decode it.
        """
        if typed.errors == "raise":
            raise ArgumentError("the first value that is not valid is looked for on the host")
        framer, kind = DeviceFramer(typed.framer), typed.kind
        if kind == "avro":
            fields, types = _flat_fields(typed)
            return cls(typed, framer, fields, types=types)
        if kind == "protobuf":
            assert isinstance(typed.decoder, ProtobufDecoder)
            return cls(typed, framer, messages=Messages.of(typed.decoder))
        return cls(typed, framer, _named_fields(typed), check_separator(typed.separator, kind))

    @property
    def is_struct(self) -> bool:
        """Whether the column stays one struct."""
        return not self.typed.flat and pa.types.is_struct(self.typed.type)

    @property
    def names(self) -> tuple[str, ...]:
        """The column and those beside it: flags of validity, schema ids, payloads."""
        return (self.typed.column, *beside(self.typed.column))

    def kinds(self) -> dict[str, str]:
        """Names of the fields of a format with a kernel of its own, and their kinds (`kolumn.kernels.columns.table.Column`)."""
        return {name: self._kind(kind) for name, kind in self.fields}

    def _kind(self, kind: Any) -> str:
        if self.typed.kind == "avro":
            return {BYTES: "bytes", STRING: "string", **COLUMNS}[kind & (FIRST - 1)]
        return str(kind.name if self.typed.kind == "fixed" else kind)


def _named_fields(typed: Typed) -> tuple[tuple[str, Any], ...]:
    """Fields of the formats without a schema of their own."""
    kind = typed.kind
    if kind not in ("json", "csv", "fixed") or typed.columns is not None:
        raise ArgumentError(f"{typed.option('columns') if typed.columns else kind}: decoded on the host")
    if kind != "fixed" and not typed.flat:
        raise ArgumentError(f"{kind}: a struct of the fields that cuDF reads is made on the host")
    if kind == "json" and not isinstance(typed.reader, Mapping):
        raise ArgumentError("json: cuDF's reader is told the names of types, as a mapping")
    check = fixed_type if kind == "fixed" else _type_name
    return tuple((name, check(name, one)) for name, one in mapping_of(typed.reader).items())


def _type_name(name: str, kind: object) -> str:
    if isinstance(kind, str) and kind in TYPES:
        return kind
    raise ArgumentError(f"field {name!r}: cuDF's reader is not told the type {kind}")


def _flat_fields(typed: Typed) -> tuple[tuple[tuple[str, int], ...], tuple[int, ...]]:
    """Columns and types of a record whose fields are all numbers, text or bytes; no fields for other schemas.

    Raises
    ------
    ArgumentError
        cuDF has no type for a column.
    """
    decoder = typed.decoder
    assert isinstance(decoder, AvroDecoder)
    for node in nodes(decoder.layout.root):
        kind_of(node.type)
    written = decoder.written
    if typed.writers is not None or written.kind != "record" or not written.fields or not all(_is_flat(one.type) for one in written.fields):
        return (), ()
    wanted = {one.name for one in decoder.node.fields}
    kinds = [(one.name, _flat(one.type)) for one in written.fields]
    every = tuple(kind if name in wanted else kind | UNWANTED for name, kind in kinds)
    return tuple(one for one in kinds if one[0] in wanted), every


def _is_flat(node: SchemaNode) -> bool:
    """Whether a type has a kernel of its own, which needs one pass."""
    if node.kind == "union":
        kinds = [one.kind for one in node.branches]
        return len(kinds) == 2 and kinds.count("null") == 1 and all(map(_is_flat, node.branches))
    return node.kind in _AVRO and node.logical is None


def _flat(node: SchemaNode) -> int:
    if node.kind != "union":
        return _AVRO[node.kind]
    null = [one.kind for one in node.branches].index("null")
    return _AVRO[node.branches[1 - null].kind] | (SECOND if null else FIRST)
