"""How values are parsed: the caller's ``value_format`` and ``value_schema``, checked before anything is read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kolumn.errors import ArgumentError
from kolumn.kernels.values.message_columns import Messages, message_of
from kolumn.kernels.values.parse import BOOLEAN, BYTES, DOUBLE, FIRST, FLOAT, INT, LONG, NULL, SECOND, STRING, UNWANTED
from kolumn.kernels.values.typed import DeviceProgram, kind_of
from kolumn.schema import unknown
from kolumn.schemas.schema import Schema
from kolumn.values.avro.program import program
from kolumn.values.avro.resolve import MismatchError, resolve
from kolumn.values.avro.schema import SchemaNode, parse
from kolumn.values.avro.types import ArrowTypes, readable
from kolumn.values.layout import ColumnLayout
from kolumn.values.types import NOT_OF_CSV, TYPES, check_separator, fixed_type

VALID = "valueValid"
"""Name of the column that tells which values matched their schema."""
_AVRO = {
    "boolean": BOOLEAN, "int": INT, "long": LONG, "float": FLOAT, "double": DOUBLE, "bytes": BYTES, "string": STRING, "null": NULL,
}  # fmt: skip
COLUMNS = {BOOLEAN: "bool", INT: "int32", LONG: "int64", FLOAT: "float32", DOUBLE: "float64", NULL: "int8"}
"""Columns of Avro's types other than text."""
FORMATS = ("json", "csv", "avro", "protobuf", "fixed")


@dataclass(frozen=True)
class Values:
    """How values are to be read, checked.

    Attributes
    ----------
    format : str
        One of `FORMATS`.
    fields : tuple of (str, Any)
        Names of the columns, and what the format needs for each: a NumPy dtype, an Avro type, or the name of a type.
    skipped : int
        Bytes in front of each value of "avro"; -1: a recognised prefix is left out.
    separator : int
        The byte between fields of "csv".
    types : tuple of int
        Of "avro" without a program: the types of all fields, also of those without a column.
    program : DeviceProgram, optional
        Of "avro" whose fields are not all numbers, text or bytes.
    messages : Messages, optional
        Of "protobuf".
    """

    format: str
    fields: tuple[tuple[str, Any], ...]
    skipped: int = 0
    separator: int = ord(",")
    types: tuple[int, ...] = ()
    program: DeviceProgram | None = None
    messages: Messages | None = None

    @classmethod
    def of(
        cls, format: str, schema: object, skipped: int = 0, separator: str = ",", message: str | None = None,
        columns: tuple[str, ...] | None = None,
    ) -> "Values":  # fmt: skip
        """Check the caller's arguments; ``message`` is of "protobuf", ``columns`` are of "avro" and "protobuf".

        Raises
        ------
        ArgumentError
            An unknown format, a schema that makes no sense or has types without a column.
        """
        if format not in FORMATS:
            raise ArgumentError(f"value_format={format!r}: expected one of {', '.join(FORMATS)}")
        if skipped < 0 or (skipped and format != "avro"):
            raise ArgumentError(f"value_skip={skipped!r}: expected 0 or more, and for value_format='avro' only")
        byte = check_separator(separator, format)
        if format == "avro":
            return cls._avro(schema, skipped or -1, columns)
        if format == "protobuf":
            messages = message_of(schema, message, columns)
            return cls("protobuf", messages.fields, -1, messages=messages)
        if not isinstance(schema, Mapping) or not schema:
            raise ArgumentError(f"value_schema={schema!r}: expected a mapping of names to types")
        if format == "csv" and (wrong := sorted(name for name in NOT_OF_CSV if name in schema.values())):
            raise ArgumentError(f"value_schema: {', '.join(wrong)}: not of value_format='csv'; take int64 or string")
        check = fixed_type if format == "fixed" else _type_name
        return cls(format, tuple((str(name), check(name, kind)) for name, kind in schema.items()), 0, byte)

    @classmethod
    def _avro(cls, schema: object, skipped: int, columns: tuple[str, ...] | None) -> "Values":
        text = schema if isinstance(schema, str) else json.dumps(schema)
        try:
            written = parse(Schema("AVRO", text))
            if written.kind != "record":
                raise ArgumentError(f"type {written.kind!r}: expected a record")
            record, types = readable(written, columns), ArrowTypes()
            if all(_is_flat(one.type) for one in written.fields):
                wanted = {one.name for one in record.fields}
                kinds = [(one.name, _flat(one.type)) for one in written.fields]
                every = tuple(kind if name in wanted else kind | UNWANTED for name, kind in kinds)
                return cls("avro", tuple(one for one in kinds if one[0] in wanted), skipped, types=every)
            # Values that are not valid are null in every field, without a struct around them that could be null.
            type = pa.struct([one.with_nullable(True) for one in types.of(record)])
            layout = ColumnLayout.of(type, types.symbols)
            made = program(resolve(written, record), layout.root)
            found = DeviceProgram(made.words, made.frames, layout)
            return cls("avro", tuple((one.name, kind_of(one.type)) for one in layout.root.children), skipped, program=found)
        except (ArgumentError, MismatchError) as error:
            raise ArgumentError(f"value_schema: {error}") from None

    def kinds(self) -> dict[str, str]:
        """Names of the columns that values are parsed into, and their kinds (`kolumn.kernels.columns.table.Column`)."""
        return {**{name: self._kind(kind) for name, kind in self.fields}, VALID: "bool"}

    def _kind(self, kind: Any) -> str:
        if self.format == "protobuf":
            return str(kind)
        if self.format == "fixed":
            return str(kind.name)
        if self.format == "avro":
            if self.program is not None:
                return str(kind)
            return {BYTES: "bytes", STRING: "string", **COLUMNS}[kind & (FIRST - 1)]
        return str(kind)


def _type_name(name: str, kind: object) -> str:
    if isinstance(kind, str) and kind in TYPES:
        return kind
    raise ArgumentError(f"value_schema: field {name!r}: {unknown('type', str(kind), TYPES)}")


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
