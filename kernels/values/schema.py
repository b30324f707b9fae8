"""How values are parsed: the caller's ``value_format`` and ``value_schema``, checked before anything is read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kolumn.errors import ArgumentError
from kolumn.kernels.values.parse import BOOLEAN, BYTES, DOUBLE, FIRST, FLOAT, INT, LONG, NULL, SECOND, STRING
from kolumn.schema import unknown
from kolumn.values.types import NOT_OF_CSV, TYPES, check_separator, fixed_type

VALID = "valueValid"
"""Name of the column that tells which values matched their schema."""
_AVRO = {
    "boolean": BOOLEAN, "int": INT, "long": LONG, "float": FLOAT, "double": DOUBLE, "bytes": BYTES, "string": STRING, "null": NULL,
}  # fmt: skip
COLUMNS = {BOOLEAN: "bool", INT: "int32", LONG: "int64", FLOAT: "float32", DOUBLE: "float64", NULL: "int8"}
"""Columns of Avro's types other than text."""
FORMATS = ("json", "csv", "avro", "fixed")


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
        Bytes in front of each value.
    separator : int
        The byte between fields of "csv".
    """

    format: str
    fields: tuple[tuple[str, Any], ...]
    skipped: int = 0
    separator: int = ord(",")

    @classmethod
    def of(cls, format: str, schema: Any, skipped: int = 0, separator: str = ",") -> "Values":
        """Check the caller's arguments.

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
            return cls(format, _avro_fields(schema), skipped)
        if not isinstance(schema, Mapping) or not schema:
            raise ArgumentError(f"value_schema={schema!r}: expected a mapping of names to types")
        if format == "csv" and (wrong := sorted(name for name in NOT_OF_CSV if name in schema.values())):
            raise ArgumentError(f"value_schema: {', '.join(wrong)}: not of value_format='csv'; take int64 or string")
        check = fixed_type if format == "fixed" else _type_name
        return cls(format, tuple((str(name), check(name, kind)) for name, kind in schema.items()), 0, byte)

    def kinds(self) -> dict[str, str]:
        """Names of the columns that values are parsed into, and their kinds (`kolumn.kernels.columns.table.Column`)."""
        return {**{name: self._kind(kind) for name, kind in self.fields}, VALID: "bool"}

    def _kind(self, kind: Any) -> str:
        if self.format == "fixed":
            return str(kind.name)
        if self.format == "avro":
            return {BYTES: "bytes", STRING: "string", **COLUMNS}[kind & (FIRST - 1)]
        return str(kind)


def _type_name(name: str, kind: Any) -> str:
    if isinstance(kind, str) and kind in TYPES:
        return kind
    raise ArgumentError(f"value_schema: field {name!r}: {unknown('type', str(kind), TYPES)}")


def _avro_fields(schema: Any) -> tuple[tuple[str, int], ...]:
    try:
        record = json.loads(schema) if isinstance(schema, str) else schema
        if record["type"] != "record":
            raise ArgumentError(f"value_schema: type {record['type']!r}: expected a record")
        return tuple((field["name"], _avro_type(field["name"], field["type"])) for field in record["fields"])
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(f"value_schema: no Avro schema of a record: {error!r}") from error


def _avro_type(name: str, kind: Any) -> int:
    if isinstance(kind, dict) and "logicalType" not in kind:
        kind = kind.get("type")
    if isinstance(kind, list) and len(kind) == 2 and "null" in kind:
        other = kind[1 - kind.index("null")]
        if other != "null":
            return _avro_type(name, other) | (FIRST if kind[0] == "null" else SECOND)
    if not isinstance(kind, str) or kind not in _AVRO:
        raise ArgumentError(
            f"value_schema: field {name!r}: no column for {kind!r}; expected {', '.join(_AVRO)}, or a union of one with null"
        )
    return _AVRO[kind]
