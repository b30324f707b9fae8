"""Typed columns from values, next to the columns of their records, on the device."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kolumn.errors import ArgumentError
from kolumn.kernels.columns import Present, present
from kolumn.kernels.decode import Payloads, binary, bitmap_of
from kolumn.kernels.lines import Lines, line_sizes, lines, mark
from kolumn.kernels.parse import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FIRST,
    FLOAT,
    INT,
    LONG,
    NULL,
    SECOND,
    STRING,
    Avro,
    Fixed,
    Narrow,
    avro,
    fixed,
    narrow,
)
from kolumn.kernels.runtime import Memory, Runtime
from kolumn.kernels.separated_values import parse_fields
from kolumn.kernels.table import WIDTHS, Column

VALID = "valueValid"
"""Name of the column that says which values were as their schema says."""
_AVRO = {
    "boolean": BOOLEAN, "int": INT, "long": LONG, "float": FLOAT, "double": DOUBLE, "bytes": BYTES, "string": STRING, "null": NULL,
}  # fmt: skip
_COLUMNS = {BOOLEAN: "bool", INT: "int32", LONG: "int64", FLOAT: "float32", DOUBLE: "float64", NULL: "int8"}
FORMATS = ("json", "csv", "avro", "fixed")


@dataclass(frozen=True)
class Values:
    """How values are to be read, checked.

    Attributes
    ----------
    format : str
        One of `FORMATS`.
    fields : tuple of (str, Any)
        Names of the columns, and of each what the format needs to know: a NumPy dtype, an Avro type, or the name of a type.
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
        """Check what a caller gives.

        Raises
        ------
        ArgumentError
            An unknown format, a schema that makes no sense or has types without a column.
        """
        if format not in FORMATS:
            raise ArgumentError(f"value_format={format!r}: expected one of {', '.join(FORMATS)}")
        if skipped < 0 or (skipped and format != "avro"):
            raise ArgumentError(f"value_skip={skipped!r}: expected 0 or more, and for value_format='avro' only")
        if len(separator.encode()) != 1 or separator in '"\r\n' or (separator != "," and format != "csv"):
            raise ArgumentError(
                f"value_separator={separator!r}: expected one ASCII character but quotes and line ends, for value_format='csv' only"
            )
        if format == "avro":
            return cls(format, _avro_fields(schema), skipped)
        if not isinstance(schema, Mapping) or not schema:
            raise ArgumentError(f"value_schema={schema!r}: expected a mapping of names to types")
        if format == "csv" and (wrong := sorted({"timestamp", "uint64"} & set(schema.values()))):
            raise ArgumentError(f"value_schema: {', '.join(wrong)}: not of value_format='csv'; take int64 or string")
        check = _dtype if format == "fixed" else _type_name
        return cls(format, tuple((str(name), check(name, kind)) for name, kind in schema.items()), 0, ord(separator))


def _dtype(name: str, kind: Any) -> np.dtype[Any]:
    try:
        found = np.dtype(kind)
    except TypeError as error:
        raise ArgumentError(f"value_schema: field {name!r}: {error}") from error
    if found.kind not in "iufb" or found.itemsize > 8 or found.name == "float16":
        raise ArgumentError(f"value_schema: field {name!r}: no column for {found}; expected integers, float32, float64 or bool")
    return found


def _type_name(name: str, kind: Any) -> str:
    if kind not in WIDTHS and kind != "string":
        raise ArgumentError(f"value_schema: field {name!r}: unknown type {kind!r}; expected one of {', '.join([*WIDTHS, 'string'])}")
    return str(kind)


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


def parse_fixed(device: Runtime, values: Payloads, how: Values) -> dict[str, Column]:
    """Columns of values that have every field at its place."""
    total = sum(kind.itemsize for _, kind in how.fields)
    found, offset = {}, 0
    for name, kind in how.fields:
        target, lengths = device.empty(kind.itemsize * values.count), device.empty(4 * values.count)
        swapped = kind.itemsize > 1 and kind.byteorder == ">"
        args = Fixed(values.at.address, values.length.address, target.address, lengths.address, total, offset, kind.itemsize, int(swapped))
        device.launch(fixed, values.count, args)
        found[name] = _column(device, kind.name, target, lengths, values.count)
        found[VALID] = _flags(device, lengths, values.count)
        offset += kind.itemsize
    return found


def parse_avro(device: Runtime, values: Payloads, how: Values) -> dict[str, Column]:
    """Columns of values that are Avro records."""
    n = values.count
    cells = [device.empty(8 * n) for _ in how.fields]
    lengths = [device.empty(4 * n) for _ in how.fields]
    valid = device.empty(n)
    given = device.upload(np.array([[one.address for one in cells], [one.address for one in lengths]], np.int64))
    types = device.upload(np.array([kind for _, kind in how.fields], np.int32))
    args = Avro(
        values.at.address, values.length.address, types.address, given.address, given.address + 8 * len(cells), valid.address,
        len(cells), how.skipped,
    )  # fmt: skip
    device.launch(avro, n, args)
    found = {}
    for (name, kind), cell, length in zip(how.fields, cells, lengths, strict=True):
        kind &= FIRST - 1
        if kind in (BYTES, STRING):
            made = binary(device, Payloads(cell, length, n))
            mask, ends = made.bitmap if made.nulls else None, Column("int32", n + 1, made.ends)
            if kind == STRING:
                found[name] = Column("string", n, made.data, mask, made.nulls, (ends,))
            else:
                found[name] = Column("bytes", n, None, mask, made.nulls, (ends, Column("uint8", made.size, made.data)))
            continue
        title = _COLUMNS[kind]
        target = device.empty(WIDTHS[title] * n)
        device.launch(narrow, n, Narrow(cell.address, target.address, WIDTHS[title]))
        found[name] = _column(device, title, target, length, n)
    found[VALID] = Column("bool", n, valid)
    return found


def parse_separated(device: Runtime, values: Payloads, how: Values) -> dict[str, Any]:
    """Columns of values with separated fields; what is no number is null in its own column only."""
    found, valid = parse_fields(device, values, how.fields, how.separator)
    flags: Any = Column("bool", values.count, valid)
    for name, kind in how.fields:
        if kind in ("float32", "float64"):
            from kolumn.kernels.numbers_of_text import to_floats

            found[name], flags = to_floats(found[name], kind, flags)
    return {**found, VALID: flags}


def make_lines(device: Runtime, values: Payloads) -> tuple[Memory, int]:
    """Values as lines of JSON, one for each, and their bytes."""
    n = values.count
    ends, text = device.zeros(4 * (n + 1)), device.upload(np.frombuffer(mark(), np.uint8))
    device.launch(line_sizes, n, Lines(values.at.address, values.length.address, ends.address, 0, text.address))
    device.running_sum(ends, n + 1, 4)
    total = int(device.download(ends, 4, 4 * n).view(np.int32)[0])
    target = device.empty(total)
    device.launch(lines, n, Lines(values.at.address, values.length.address, ends.address, target.address, text.address))
    return target, total


def _column(device: Runtime, kind: str, data: Memory, lengths: Memory, rows: int) -> Column:
    bitmap, nulls = bitmap_of(device, lengths, rows)
    return Column(kind, rows, data, bitmap if nulls else None, nulls)


def _flags(device: Runtime, lengths: Memory, rows: int) -> Column:
    """1 where a length is not negative."""
    flags = device.empty(rows)
    device.launch(present, rows, Present(lengths.address, flags.address))
    return Column("bool", rows, flags)


def parsed(device: Runtime, values: Payloads, how: Values) -> dict[str, Any]:
    """Columns of values by their names; of JSON they are pylibcudf's."""
    if how.format == "json":
        from kolumn.kernels.json_values import parse_json

        return parse_json(device, values, how)
    return {"fixed": parse_fixed, "avro": parse_avro, "csv": parse_separated}[how.format](device, values, how)
