"""Values of Avro, by fastavro."""

import json
import struct
from collections.abc import Iterable
from contextlib import suppress
from decimal import Decimal
from io import BytesIO
from typing import Any, cast
from uuid import UUID

import pyarrow as pa

from kolumn.core.errors import ArgumentError, MissingPackageError
from kolumn.values.avro_schema import Logical, SchemaNode, parse, title
from kolumn.values.avro_types import decimal_bytes, is_text_decimal, member_names
from kolumn.values.schemas.schema import Schema
from kolumn.writers.value_parts import RefusedError, floating, in_unit, integer, members, pairs, refuse, text, unit_of

_AVRO_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_INT_BITS = {"int": 32, "long": 64}
_Json = Any


class AvroEncoder:
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

    def encode(self, value: object, type: pa.DataType) -> bytes:
        out = BytesIO()
        self._write(out, self._parsed, self._datum(self.root, value, type, "$"))
        return out.getvalue()

    def _datum(self, node: SchemaNode, value: object, type: pa.DataType, path: str) -> object:
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
            return pairs(path, value, lambda key, one: (text(path, key), self._datum(node.inner, one, type.item_type, f"{path}[{key!r}]")))
        if node.kind in _INT_BITS:
            if pa.types.is_temporal(type):
                raise RefusedError(path, str(node) if node.logical is None else node.logical.name, type)
            return integer(path, value, _INT_BITS[node.kind], True, node.kind)
        if node.kind in ("float", "double"):
            return floating(path, value, node.kind, node.kind == "float")
        if node.kind == "string":
            return text(path, value)
        if node.kind == "enum":
            if value not in node.symbols:
                raise RefusedError(path, f"one of {', '.join(node.symbols)}", value)
            return value
        fits = {"boolean": isinstance(value, bool), "bytes": isinstance(value, bytes)}
        fits["fixed"] = isinstance(value, bytes) and len(value) == node.size
        if not fits.get(node.kind, False):
            raise RefusedError(path, f"{node} of {node.size} bytes" if node.kind == "fixed" else str(node), value)
        return value

    def _branch(self, node: SchemaNode, value: object, type: pa.DataType, path: str) -> object:
        """A read returns a union of several types as a struct with a field for each, of which one is not null: its names are those of the
        types, or numbers.
        """
        others = [branch for branch in node.branches if branch.kind != "null"]
        if value is None:
            if len(others) == len(node.branches):
                raise RefusedError(path, str(node), None)
            return None
        if len(others) == 1:
            return others[0].name or others[0].kind, self._datum(others[0], value, type, path)
        names = member_names(others)
        given = [field.name for field in type] if pa.types.is_struct(type) else []
        if given == member_names(others, "members"):
            names = given
        if given != names:
            # A read returns a union of numbers as the wider one, and others write what some branch takes.
            for branch in others:
                with suppress(RefusedError):
                    return branch.name or branch.kind, self._datum(branch, value, type, path)
            raise RefusedError(path, f"a struct of {', '.join(names)}, or one of the types of {node}", type)
        own = members(value)
        chosen = [number for number, name in enumerate(names) if own[name] is not None]
        if len(chosen) != 1:
            raise RefusedError(path, "one field that is not null", value)
        (number,) = chosen
        branch = others[number]
        inner = self._datum(branch, own[names[number]], type.field(number).type, f"{path}.{names[number]}")
        return branch.name or branch.kind, inner

    def _record(self, node: SchemaNode, value: object, type: pa.DataType, path: str) -> dict[str, object]:
        if not pa.types.is_struct(type):
            raise RefusedError(path, f"a struct for {node}", type)
        fields, own = {field.name: field.type for field in type}, members(value)
        more = fields.keys() - {field.name for field in node.fields}
        if more:
            raise RefusedError(path, f"no other fields than those of {node}", ", ".join(sorted(more)))
        found = {}
        for field in node.fields:
            inner = f"{path}.{field.name}"
            if field.name in fields:
                found[field.name] = self._datum(field.type, own[field.name], fields[field.name], inner)
            elif field.has_default:
                found[field.name] = _default(field.type, field.default)
            else:
                raise RefusedError(inner, f"{field.type}, which has no default", "no such field")
        return found

    def _logical(self, node: SchemaNode, value: object, type: pa.DataType, path: str) -> object:
        """The value in the schema's type; None for a logical type that changes nothing."""
        logical = node.logical
        assert logical is not None
        name, _, last = logical.name.rpartition("-")
        if logical.name == "decimal":
            return _unscaled(node, path, value, logical) if decimal_bytes(node) or is_text_decimal(node) else None
        if logical.name == "uuid":
            return UUID(cast(str, value)).bytes if type == pa.uuid() and node.kind == "fixed" else None
        if logical.name == "duration":
            return _duration(path, value)
        if pa.types.is_integer(type):
            return None
        if logical.name == "date":
            return value if pa.types.is_date(type) else refuse(path, logical.name, type)
        if name == "time":
            return in_unit(path, value, unit_of(type), _AVRO_UNITS[last]) if pa.types.is_time(type) else refuse(path, logical.name, type)
        if name in ("timestamp", "local-timestamp"):
            if not pa.types.is_timestamp(type) or (type.tz is None) != (name == "local-timestamp"):
                raise RefusedError(path, f"{logical.name}, a timestamp with{'out' if name != 'timestamp' else ''} a time zone", type)
            return in_unit(path, value, unit_of(type), _AVRO_UNITS[last])
        return None


def _unscaled(node: SchemaNode, path: str, value: object, logical: Logical) -> bytes:
    """A decimal as Avro has it: the digits as one number, the most significant byte first."""
    name = f"decimal({logical.precision}, {logical.scale})"
    try:
        # Spark has no decimals of more than 38 digits: they are strings there.
        number = Decimal(value) if isinstance(value, str | int | Decimal) and not isinstance(value, bool) else Decimal("NaN")
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


def _duration(path: str, value: object) -> bytes:
    try:
        # Spark has structs for them.
        parts = [value[name] for name in ("months", "days", "nanoseconds")] if isinstance(value, dict) else list(cast(Iterable[int], value))
        months, days, nanos = parts
        millis, rest = divmod(nanos, 10**6)
        if rest:
            raise ValueError
        return struct.pack("<III", months, days, millis)
    except (struct.error, KeyError, TypeError, ValueError):
        raise RefusedError(path, "a duration of months, days and whole milliseconds, none below 0", value) from None


def _without_logical(schema: _Json) -> _Json:
    """A schema for fastavro, which gets values of the types themselves: one that is not valid is ignored, and fastavro refuses it."""
    if isinstance(schema, list):
        return [_without_logical(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name not in ("logicalType", "precision", "scale", "doc")}
    kept |= {name: _without_logical(kept[name]) for name in ("type", "items", "values") if name in kept}
    return kept | ({"fields": [_without_logical(one) for one in kept["fields"]]} if "fields" in kept else {})


def _default(node: SchemaNode, value: _Json) -> object:
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
