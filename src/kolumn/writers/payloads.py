"""Columns of structs become the bytes of keys and values: Avro by fastavro, Protobuf by its own classes, JSON by Python's json.

What a read with the same format and schema returns is what is written. These libraries take much that they cannot give back: numbers
that do not fit, missing fields, enums they do not know. So each value is compared with the schema first, and what it cannot represent is an
error with row and field.
"""

import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from io import BytesIO
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from kolumn.core.errors import ArgumentError, MissingPackageError, unknown
from kolumn.core.schema import beside
from kolumn.values.avro_schema import Logical, SchemaNode, parse, title
from kolumn.values.protobuf_schema import TIMES, WRAPPERS, File, file_of, is_closed, is_map, symbols
from kolumn.values.schemas.schema import Schema, fingerprint_of
from kolumn.values.typed import Typed, reader_of

FORMATS = ("avro", "protobuf", "json")
FRAMINGS = ("none", "confluent", "single-object")
NAMES = ("format", "schema", "message", "framing", "schema_id")
"""What is said of values, and of keys, by options with the column's name in front."""
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_AVRO_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_INT_BITS = {"int": 32, "long": 64}
_CONFLUENT = struct.Struct(">bI")
_SINGLE_OBJECT = b"\xc3\x01"


class RefusedError(Exception):
    """A value that the schema cannot represent: the path of the field, and what was expected and found."""

    def __init__(self, path: str, expected: str, found: object) -> None:
        self.path, self.expected = path, expected
        self.found = "null" if found is None else str(found) if isinstance(found, str | pa.DataType) else repr(found)


class _Encoder(Protocol):
    def encode(self, value: Any, type: pa.DataType) -> bytes:
        """The bytes of a value that is not null; raises `RefusedError`."""


@dataclass(frozen=True)
class PayloadEncoder:
    """How the values of one column, "value" or "key", become bytes: the parameters of `kolumn.write` without their prefix."""

    column: str
    format: str
    schema: Any
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
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
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
            return _Avro(reader)
        if self.format == "protobuf":
            return _Protobuf(self._file.message(self.message))
        return _Json(Typed(self.column, "json", self.schema).of(reader).type)

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
        return front + _indexes(self._file, self.message) if self.format == "protobuf" else front

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
        raise ArgumentError(f"{column}_format={format!r} needs {column}_schema: what is written has one schema, and it is given")
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


def plain(column: pa.Array) -> list[Any]:
    """The values as Python's: structs are dicts, maps lists of pairs, and times numbers of the type's unit."""
    type = column.type
    if isinstance(column, pa.ExtensionArray):
        return plain(column.storage)
    if pa.types.is_dictionary(type):
        return plain(column.dictionary_decode())
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


def _in_unit(path: str, value: int, unit: str, wanted: str) -> int:
    """A time in another unit; it has to be one of those."""
    whole, rest = divmod(value * _PER_SECOND[wanted], _PER_SECOND[unit])
    if rest:
        raise RefusedError(path, f"a time of whole {wanted}", f"{value} {unit}")
    return whole


def _unit(type: pa.DataType) -> str:
    return str(type.unit)


def _integer(path: str, value: object, low: int, high: int, name: str) -> int:
    if isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RefusedError(path, f"{name}, {low} to {high}", value)
    return value


def _number(path: str, value: object, name: str, narrow: bool) -> float:
    if isinstance(value, np.floating):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RefusedError(path, name, value)
    number = float(value)
    try:
        same = number == value or math.isnan(number)
        if narrow and same and math.isfinite(number):
            same = struct.unpack("<f", struct.pack("<f", number))[0] == number
    except OverflowError:
        same = False
    if not same:
        raise RefusedError(path, f"{name} that holds the number exactly", value)
    return number


def _text(path: str, value: object) -> str:
    if not isinstance(value, str):
        raise RefusedError(path, "string", value)
    return value


class _Avro:
    """Values of an Avro schema, in binary encoding without a header."""

    def __init__(self, schema: Schema) -> None:
        try:
            import fastavro
        except ImportError as error:
            raise MissingPackageError(f"Avro is written by the package fastavro ({error}): pip install 'kolumn[avro]'") from error
        self.root = parse(schema)
        self._write = fastavro.schemaless_writer
        try:
            self._parsed = fastavro.parse_schema(_without_logical(json.loads(schema.text)))
        except fastavro.schema.SchemaParseException as error:
            raise ArgumentError(f"{title(schema)}: {error}") from error

    def encode(self, value: Any, type: pa.DataType) -> bytes:
        out = BytesIO()
        self._write(out, self._parsed, self._datum(self.root, value, type, "$"))
        return out.getvalue()

    def _datum(self, node: SchemaNode, value: Any, type: pa.DataType, path: str) -> Any:
        """A value as fastavro wants it: branches of unions by name, times as numbers of the schema's unit."""
        if node.kind == "union":
            return self._branch(node, value, type, path)
        if node.kind == "null" and value is None:
            return None
        if value is None:
            raise RefusedError(path, str(node), None)
        if node.logical is not None:
            found = self._logical(node, value, type, path)
            if found is not None:
                return found
        if node.kind == "record":
            return self._record(node, value, type, path)
        if node.kind == "array" and isinstance(value, list) and not pa.types.is_map(type):
            return [self._datum(node.inner, one, type.value_type, f"{path}[{number}]") for number, one in enumerate(value)]
        if node.kind == "map" and pa.types.is_map(type):
            return _pairs(
                path, value, lambda key, one: (_text(path, key), self._datum(node.inner, one, type.item_type, f"{path}[{key!r}]"))
            )
        if node.kind in _INT_BITS:
            most = 2 ** (_INT_BITS[node.kind] - 1)
            return _integer(path, value, -most, most - 1, node.kind) if not pa.types.is_temporal(type) else _refuse(path, node, type)
        if node.kind in ("float", "double"):
            return _number(path, value, node.kind, node.kind == "float")
        if node.kind == "string":
            return _text(path, value)
        if node.kind == "enum":
            if value not in node.symbols:
                raise RefusedError(path, f"one of {', '.join(node.symbols)}", value)
            return value
        fits = {"boolean": isinstance(value, bool), "bytes": isinstance(value, bytes)}
        fits["fixed"] = isinstance(value, bytes) and len(value) == node.size
        if not fits.get(node.kind, False):
            raise RefusedError(path, f"{node} of {node.size} bytes" if node.kind == "fixed" else str(node), value)
        return value

    def _branch(self, node: SchemaNode, value: Any, type: pa.DataType, path: str) -> Any:
        """A read returns a union of several types as a struct with a field for each, of which one is not null."""
        others = [branch for branch in node.branches if branch.kind != "null"]
        if value is None:
            if len(others) == len(node.branches):
                raise RefusedError(path, str(node), None)
            return None
        if len(others) == 1:
            return others[0].name or others[0].kind, self._datum(others[0], value, type, path)
        names = [f"member{number}" for number in range(len(others))]
        if not pa.types.is_struct(type) or [field.name for field in type] != names:
            # A read returns a union of numbers as the wider one, and others write what some branch takes.
            for branch in others:
                with suppress(RefusedError):
                    return branch.name or branch.kind, self._datum(branch, value, type, path)
            raise RefusedError(path, f"a struct of {', '.join(names)}, or one of the types of {node}", type)
        chosen = [number for number, name in enumerate(names) if value[name] is not None]
        if len(chosen) != 1:
            raise RefusedError(path, "one field that is not null", value)
        (number,) = chosen
        branch = others[number]
        inner = self._datum(branch, value[names[number]], type.field(number).type, f"{path}.{names[number]}")
        return branch.name or branch.kind, inner

    def _record(self, node: SchemaNode, value: Any, type: pa.DataType, path: str) -> dict[str, Any]:
        if not pa.types.is_struct(type):
            raise RefusedError(path, f"a struct for {node}", type)
        fields = {field.name: field.type for field in type}
        more = fields.keys() - {field.name for field in node.fields}
        if more:
            raise RefusedError(path, f"no other fields than those of {node}", ", ".join(sorted(more)))
        found = {}
        for field in node.fields:
            inner = f"{path}.{field.name}"
            if field.name in fields:
                found[field.name] = self._datum(field.type, value[field.name], fields[field.name], inner)
            elif field.has_default:
                found[field.name] = _default(field.type, field.default)
            else:
                raise RefusedError(inner, f"{field.type}, which has no default", "no such field")
        return found

    def _logical(self, node: SchemaNode, value: Any, type: pa.DataType, path: str) -> Any:
        """The value in the schema's type; None for a logical type that changes nothing."""
        logical = node.logical
        assert logical is not None
        name, _, last = logical.name.rpartition("-")
        if logical.name == "decimal":
            return _unscaled(node, path, value, logical) if logical.precision <= 76 else None
        if logical.name == "duration":
            return _duration(path, value)
        if pa.types.is_integer(type):
            return None
        if logical.name == "date":
            return value if pa.types.is_date(type) else _refuse(path, node, type)
        if name == "time":
            return _in_unit(path, value, _unit(type), _AVRO_UNITS[last]) if pa.types.is_time(type) else _refuse(path, node, type)
        if name in ("timestamp", "local-timestamp"):
            if not pa.types.is_timestamp(type) or (type.tz is None) != (name == "local-timestamp"):
                raise RefusedError(path, f"{logical.name}, a timestamp with{'out' if name != 'timestamp' else ''} a time zone", type)
            return _in_unit(path, value, _unit(type), _AVRO_UNITS[last])
        return None


def _refuse(path: str, node: SchemaNode, type: pa.DataType) -> Any:
    raise RefusedError(path, str(node) if node.logical is None else node.logical.name, type)


def _pairs(path: str, value: list[tuple[Any, Any]], of: Callable[[Any, Any], tuple[Any, Any]]) -> dict[Any, Any]:
    found = dict(of(key, one) for key, one in value)
    if len(found) < len(value):
        raise RefusedError(path, "keys that differ", [key for key, _ in value])
    return found


def _unscaled(node: SchemaNode, path: str, value: Any, logical: Logical) -> bytes:
    """A decimal as Avro has it: the digits as one number, the most significant byte first."""
    name = f"decimal({logical.precision}, {logical.scale})"
    try:
        # Spark has no decimals of more than 38 digits: they are strings there.
        number = Decimal(value) if isinstance(value, str | int) and not isinstance(value, bool) else value
        sign, digits, exponent = number.as_tuple()
        shift = int(exponent) + logical.scale
        fits = shift >= 0 or not any(digits[shift:])
        whole = int("".join(map(str, digits[: len(digits) + min(shift, 0)])) + "0" * max(shift, 0) or "0")
        if fits and len(str(whole)) <= logical.precision:
            whole = -whole if sign else whole
            return whole.to_bytes(node.size or (whole.bit_length() + 8) // 8, "big", signed=True)
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        pass
    raise RefusedError(path, name, str(value))


def _duration(path: str, value: Any) -> bytes:
    try:
        months, days, nanos = (value["months"], value["days"], value["nanoseconds"]) if isinstance(value, dict) else value
        millis, rest = divmod(nanos, 10**6)
        if rest:
            raise ValueError
        return struct.pack("<III", months, days, millis)
    except (struct.error, KeyError, TypeError, ValueError):
        raise RefusedError(path, "a duration of months, days and whole milliseconds, none below 0", value) from None


def _without_logical(schema: Any) -> Any:
    """A schema for fastavro, which gets values of the types themselves: one that is not valid is ignored, and fastavro refuses it."""
    if isinstance(schema, list):
        return [_without_logical(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name not in ("logicalType", "precision", "scale", "doc")}
    kept |= {name: _without_logical(kept[name]) for name in ("type", "items", "values") if name in kept}
    return kept | ({"fields": [_without_logical(one) for one in kept["fields"]]} if "fields" in kept else {})


def _default(node: SchemaNode, value: Any) -> Any:
    """The default of a field, from its JSON."""
    if node.kind == "union":
        branch = node.branches[0]
        return None if branch.kind == "null" else (branch.name or branch.kind, _default(branch, value))
    if node.kind in ("bytes", "fixed"):
        return value.encode("latin-1")
    if node.kind == "record":
        return {field.name: _default(field.type, value.get(field.name, field.default)) for field in node.fields}
    if node.kind == "array":
        return [_default(node.inner, one) for one in value]
    if node.kind == "map":
        return {key: _default(node.inner, one) for key, one in value.items()}
    return float(value) if node.kind in ("float", "double") else value


_TEXT, _BYTES_, _ENUM, _BOOL = 9, 12, 14, 8
_FLOATS = {1: False, 2: True}
_INTEGERS = {3: (64, True), 4: (64, False), 5: (32, True), 6: (64, False), 7: (32, False), 13: (32, False), 15: (32, True), 16: (64, True),
             17: (32, True), 18: (64, True)}  # fmt: skip
"""Bits and sign by the numbers of types in FieldDescriptorProto."""


class _Protobuf:
    """Messages, with maps in the order of their keys."""

    def __init__(self, message: Any) -> None:
        from google.protobuf.message import EncodeError
        from google.protobuf.message_factory import GetMessageClass

        self.message, self._made, self._wrong = message, GetMessageClass(message), EncodeError

    def encode(self, value: Any, type: pa.DataType) -> bytes:
        made = self._made()
        self._fill(made, self.message, value, type, "$")
        try:
            return bytes(made.SerializeToString(deterministic=True))
        except self._wrong as error:
            raise RefusedError("$", "all required fields", str(error)) from None

    def _fill(self, made: Any, message: Any, value: Any, type: pa.DataType, path: str) -> None:
        if message.full_name in TIMES:
            made.seconds, made.nanos = _seconds(path, value, type, message.full_name.endswith("Duration"))
            return
        if message.full_name in WRAPPERS:
            made.value = self._scalar(message.fields_by_name["value"], value, path)
            return
        if not pa.types.is_struct(type):
            raise RefusedError(path, f"a struct for {message.full_name}", type)
        known = {field.name: field for field in message.fields}
        chosen: dict[str, str] = {}
        for name, inner in ((field.name, field.type) for field in type):
            if name not in known:
                raise RefusedError(path, f"no other fields than those of {message.full_name}", name)
            field, one = known[name], value[name]
            if one is None:
                if not field.has_presence:
                    raise RefusedError(f"{path}.{name}", "a value: the field cannot be absent", None)
                continue
            around = field.containing_oneof
            if around is not None and chosen.setdefault(around.name, name) != name:
                raise RefusedError(f"{path}.{name}", f"one field of {around.name}", f"{chosen[around.name]} too")
            self._set(made, field, one, inner, f"{path}.{name}")

    def _set(self, made: Any, field: Any, value: Any, type: pa.DataType, path: str) -> None:
        if is_map(field):
            key, inner = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            if not pa.types.is_map(type):
                raise RefusedError(path, "a map", type)
            target = getattr(made, field.name)
            entries = _pairs(path, value, lambda one, other: (self._scalar(key, one, path), other))
            for one, other in entries.items():
                if other is None:
                    raise RefusedError(f"{path}[{one!r}]", "a value", None)
                if inner.message_type is None:
                    target[one] = self._scalar(inner, other, f"{path}[{one!r}]")
                else:
                    # Reading an entry makes it.
                    self._fill(target[one], inner.message_type, other, type.item_type, f"{path}[{one!r}]")
        elif field.is_repeated:
            if not isinstance(value, list) or pa.types.is_map(type):
                raise RefusedError(path, "a list", type)
            target = getattr(made, field.name)
            for number, one in enumerate(value):
                inner = f"{path}[{number}]"
                if one is None:
                    raise RefusedError(inner, "a value", None)
                if field.message_type is None:
                    target.append(self._scalar(field, one, inner))
                else:
                    self._fill(target.add(), field.message_type, one, type.value_type, inner)
        elif field.message_type is not None:
            target = getattr(made, field.name)
            target.SetInParent()
            self._fill(target, field.message_type, value, type, path)
        else:
            setattr(made, field.name, self._scalar(field, value, path))

    def _scalar(self, field: Any, value: Any, path: str) -> Any:
        kind = field.type
        if value is None:
            raise RefusedError(path, "a value", None)
        if kind in _INTEGERS:
            bits, signed = _INTEGERS[kind]
            low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
            return _integer(path, value, low, high, "an integer")
        if kind in _FLOATS:
            return _number(path, value, "a number", _FLOATS[kind])
        if kind == _TEXT:
            return _text(path, value)
        if kind == _ENUM:
            return _enum(field.enum_type, value, path)
        if kind == _BYTES_ and isinstance(value, bytes):
            return value
        if kind == _BOOL and isinstance(value, bool):
            return value
        raise RefusedError(path, "bytes" if kind == _BYTES_ else "a bool", value)


def _enum(enum: Any, value: Any, path: str) -> int:
    numbers = {name: number for number, name in symbols(enum).items()}
    numbers |= {one.name: one.number for one in enum.values}
    if value in numbers:
        return int(numbers[value])
    if isinstance(value, int) and not isinstance(value, bool) and (value in symbols(enum) or not is_closed(enum)):
        return _integer(path, value, -(2**31), 2**31 - 1, "an enum's number")
    raise RefusedError(path, f"one of {', '.join(symbols(enum).values())}", value)


def _seconds(path: str, value: Any, type: pa.DataType, is_duration: bool) -> tuple[int, int]:
    if not (pa.types.is_duration(type) if is_duration else pa.types.is_timestamp(type)):
        raise RefusedError(path, "a duration" if is_duration else "a timestamp", type)
    whole, part = divmod(value, _PER_SECOND[_unit(type)])
    nanos = part * (10**9 // _PER_SECOND[_unit(type)])
    # Both parts of a duration have its sign.
    return (whole + 1, nanos - 10**9) if is_duration and whole < 0 and nanos else (whole, nanos)


def _indexes(file: File, name: str | None) -> bytes:
    """Confluent's message indexes; a single 0, the first message, is shortened."""
    path = file.places()[file.message(name).full_name].path
    if path == (0,):
        return b"\0"
    return b"".join(_zigzag(number) for number in (len(path), *path))


def _zigzag(number: int) -> bytes:
    number, done = 2 * number, bytearray()
    while number > 127:
        done.append(number & 127 | 128)
        number >>= 7
    return bytes([*done, number])


class _Json:
    """Objects in one line, without spaces: numbers as Python writes them, times as ISO 8601 has them."""

    def __init__(self, type: pa.DataType) -> None:
        self.type = type

    def encode(self, value: Any, type: pa.DataType) -> bytes:
        return json.dumps(self._of(self.type, value, type, "$"), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()

    def _of(self, wanted: pa.DataType, value: Any, type: pa.DataType, path: str) -> Any:
        if value is None:
            return None
        if pa.types.is_struct(wanted):
            if not pa.types.is_struct(type):
                raise RefusedError(path, str(wanted), type)
            fields = {field.name: field.type for field in wanted}
            more = [field.name for field in type if field.name not in fields]
            if more:
                raise RefusedError(path, f"no other fields than {', '.join(fields)}", ", ".join(more))
            return {field.name: self._of(fields[field.name], value[field.name], field.type, f"{path}.{field.name}") for field in type}
        if pa.types.is_list(wanted):
            if not isinstance(value, list) or pa.types.is_map(type):
                raise RefusedError(path, str(wanted), type)
            return [self._of(wanted.value_type, one, type.value_type, f"{path}[{number}]") for number, one in enumerate(value)]
        if pa.types.is_temporal(wanted):
            return _iso(wanted, value, type, path)
        if pa.types.is_integer(wanted):
            bits, signed = wanted.bit_width, pa.types.is_signed_integer(wanted)
            low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
            return _integer(path, value, low, high, str(wanted)) if not pa.types.is_temporal(type) else _refuse_type(path, wanted, type)
        if pa.types.is_floating(wanted):
            number = _number(path, value, str(wanted), wanted.bit_width < 64)
            if not math.isfinite(number):
                raise RefusedError(path, "a number, which JSON has no other for", value)
            return number
        if pa.types.is_boolean(wanted):
            if not isinstance(value, bool):
                raise RefusedError(path, str(wanted), value)
            return value
        return _text(path, value)


def _refuse_type(path: str, wanted: pa.DataType, type: pa.DataType) -> Any:
    raise RefusedError(path, str(wanted), type)


def _iso(wanted: pa.DataType, value: int, type: pa.DataType, path: str) -> str:
    """A time as text that a read parses: exact to the unit of the wanted type."""
    same = type == wanted or (pa.types.is_timestamp(type) and pa.types.is_timestamp(wanted) and (type.tz is None) == (wanted.tz is None))
    if not same and not (pa.types.is_date(type) and pa.types.is_date(wanted)):
        raise RefusedError(path, str(wanted), type)
    if pa.types.is_timestamp(wanted):
        value = _in_unit(path, value, _unit(type), _unit(wanted))
        type = pa.timestamp(_unit(wanted))
    elif pa.types.is_date(wanted):
        type = pa.date32()
    storage = pa.int32() if type.bit_width == 32 else pa.int64()
    text = str(pa.scalar(value, storage).cast(type).cast(pa.string()))
    text = text.replace(" ", "T", 1)
    return f"{text}Z" if pa.types.is_timestamp(wanted) and wanted.tz is not None else text


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
