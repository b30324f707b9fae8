"""How the payloads of a typed column are decoded on the device, or that the host has to decode them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kolumn.errors import ArgumentError
from kolumn.kernels.values.bodies import DeviceFramer
from kolumn.kernels.values.message_columns import Messages
from kolumn.kernels.values.typed import kind_of
from kolumn.schema import beside
from kolumn.values.avro.decoder import AvroDecoder
from kolumn.values.columns.typed import Typed
from kolumn.values.layout import nodes
from kolumn.values.protobuf.decoder import ProtobufDecoder
from kolumn.values.types import TYPES, check_separator, fixed_type, mapping_of


@dataclass(frozen=True)
class Values:
    """How the payloads of a column are to be decoded.

    Attributes
    ----------
    typed : Typed
        What the call asks for, with its types.
    framer : DeviceFramer
    fields : tuple of (str, Any)
        Of formats without a schema of their own: names of the columns, and a NumPy dtype or the name of a type for each.
    separator : int
        The byte between fields of "csv".
    messages : Messages, optional
        Of "protobuf".
    """

    typed: Typed
    framer: DeviceFramer
    fields: tuple[tuple[str, Any], ...] = ()
    separator: int = ord(",")
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
            assert isinstance(typed.decoder, AvroDecoder)
            for node in nodes(typed.decoder.layout.root):
                kind_of(node.type)
            return cls(typed, framer)
        if kind == "protobuf":
            assert isinstance(typed.decoder, ProtobufDecoder)
            return cls(typed, framer, messages=Messages.of(typed.decoder))
        return cls(typed, framer, _named_fields(typed), check_separator(typed.separator, kind))

    @property
    def names(self) -> tuple[str, ...]:
        """The column and those beside it: flags of validity, schema ids, payloads."""
        return (self.typed.column, *beside(self.typed.column))


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
