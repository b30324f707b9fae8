"""Values of Avro, by fastavro."""

import json
import struct
from collections.abc import Iterable
from contextlib import suppress
from decimal import Decimal
from io import BytesIO
from typing import Any, cast

import numpy as np
import pyarrow as pa

from kolumn.core.errors import ArgumentError
from kolumn.core.packages import missing_package
from kolumn.values.avro_schema import Logical, SchemaNode, parse, title
from kolumn.values.avro_types import MOST_DIGITS, ArrowTypes, decimal_bytes, is_text_decimal, member_names
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.json_plain import text_reader
from kolumn.values.schemas.schema import Schema
from kolumn.writers.value_parts import RefusedError, data, floating, in_unit, integer, members, pairs, refuse, text, unit_of

_AVRO_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_INT_BITS = {"int": 32, "long": 64}
_Json = Any


class AvroEncoder:
    """Values of an Avro schema, in binary encoding without a header."""

    def __init__(self, schema: Schema) -> None:
        try:
            import fastavro
        except ImportError as error:
            raise missing_package(f"Avro is written by fastavro: {error}", "fastavro") from error
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
        if node.kind == "boolean" and isinstance(value, bool):
            return value
        found = data(value)
        if node.kind not in ("bytes", "fixed") or found is None or (node.kind == "fixed" and len(found) != node.size):
            raise RefusedError(path, f"{node} of {node.size} bytes" if node.kind == "fixed" else str(node), value)
        return found

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

    def _record(self, node: SchemaNode, value: object, type: pa.DataType, path: str) -> object:
        if type == JSON_TEXT:
            return _of_text(node, text(path, value), path)
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


def _of_text(node: SchemaNode, value: str, path: str) -> object:
    """A record, as fastavro wants it, from its JSON text, as `kolumn.values.avro_json` writes it."""
    numbers: dict[str, Any] = {"parse_int": _number, "parse_float": _number, "parse_constant": lambda name: refuse(path, "JSON", name)}
    try:
        return _OfText().datum(node, json.loads(value, object_pairs_hook=_object, **numbers), path)
    except ValueError as error:
        raise RefusedError(path, f"JSON text of {node}", f"{value[:100]!r} ({error})") from None
    except RecursionError:
        raise RefusedError(path, f"JSON text of {node}", f"{value[:100]!r}, which is nested too deeply") from None


def _object(members: list[tuple[str, _Json]]) -> dict[str, _Json]:
    found = dict(members)
    if len(found) < len(members):
        raise ValueError("a name comes twice")
    return found


def _number(digits: str) -> Decimal:
    number = Decimal(digits)
    if abs(number.adjusted()) > MOST_DIGITS:
        raise ValueError("a number has too many digits")
    return number


class _OfText:
    """Parts of one JSON text, whose numbers are decimals, as values of a schema. Of a union the first type is taken that fits, as the text
    does not name it. What became of an object is kept: another type of a union may ask for it again.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[int, SchemaNode], object] = {}

    def datum(self, node: SchemaNode, value: _Json, path: str) -> object:
        if node.kind == "union":
            return self._branch(node, value, path)
        if node.kind == "record" and isinstance(value, dict):
            return self._record(node, value, path)
        if node.kind == "array" and isinstance(value, list):
            return [self.datum(node.inner, one, f"{path}[{number}]") for number, one in enumerate(value)]
        if node.kind == "map" and isinstance(value, dict):
            return {key: self.datum(node.inner, one, f"{path}[{key!r}]") for key, one in value.items()}
        if node.kind in ("record", "array", "map") or (value is None) != (node.kind == "null"):
            raise RefusedError(path, str(node), None if value is None else json.dumps(value, default=str)[:100])
        return None if value is None else _leaf(node, value, path)

    def _branch(self, node: SchemaNode, value: _Json, path: str) -> object:
        others = [branch for branch in node.branches if branch.kind != "null"]
        if value is None and len(others) < len(node.branches):
            return None
        if len(others) == 1:
            return others[0].name or others[0].kind, self.datum(others[0], value, path)
        for branch in others:
            with suppress(RefusedError):
                return branch.name or branch.kind, self.datum(branch, value, path)
        raise RefusedError(path, f"a value of {', '.join(map(str, node.branches))}", json.dumps(value, default=str)[:100])

    def _record(self, node: SchemaNode, value: dict[str, _Json], path: str) -> object:
        key = id(value), node
        if key not in self.known:
            try:
                self.known[key] = self._fields(node, value, path)
            except RefusedError as error:
                self.known[key] = error
        found = self.known[key]
        if isinstance(found, RefusedError):
            raise found
        return found

    def _fields(self, node: SchemaNode, value: dict[str, _Json], path: str) -> dict[str, object]:
        # The text has the names of the schema by which the value was written.
        names = {part.name: next((name for name in (part.name, *part.aliases) if name in value), "") for part in node.fields}
        more = value.keys() - names.values()
        if more:
            raise RefusedError(path, f"no other fields than those of {node}", ", ".join(sorted(more)))
        found = {}
        for part in node.fields:
            if names[part.name]:
                found[part.name] = self.datum(part.type, value[names[part.name]], f"{path}.{part.name}")
            elif part.has_default:
                found[part.name] = _default(part.type, part.default)
            else:
                raise RefusedError(f"{path}.{part.name}", f"{part.type}, which has no default", "no such field")
        return found


def _leaf(node: SchemaNode, value: _Json, path: str) -> object:
    """A part of JSON text that is no object or list, or is a duration."""
    type, logical = ArrowTypes().of(node), node.logical
    if logical is not None and logical.name == "decimal" and (decimal_bytes(node) or is_text_decimal(node)):
        return _unscaled(node, path, value if isinstance(value, Decimal) else None, logical)
    if logical is not None and logical.name == "duration":
        return _duration(path, {name: int(one) for name, one in value.items()} if isinstance(value, dict) else value)
    if pa.types.is_temporal(type) or node.kind in ("bytes", "fixed"):
        try:
            found = text_reader(pa.binary() if node.kind in ("bytes", "fixed") else type)(text(path, value))
        except ValueError:
            raise RefusedError(path, f"{node if logical is None else logical.name} as text", value) from None
        if isinstance(found, bytes) and node.kind == "fixed" and len(found) != node.size:
            raise RefusedError(path, f"{node} of {node.size} bytes, as base64", value)
        return found if isinstance(found, bytes) else integer(path, found, _INT_BITS[node.kind], True, node.kind)
    if node.kind in _INT_BITS:
        return integer(path, value, _INT_BITS[node.kind], True, node.kind)
    if node.kind in ("float", "double"):
        return _float(node, value, path)
    if node.kind == "boolean":
        return value if isinstance(value, bool) else refuse(path, str(node), value)
    if node.kind == "enum" and value not in node.symbols:
        raise RefusedError(path, f"one of {', '.join(node.symbols)}", value)
    return text(path, value)


def _float(node: SchemaNode, value: _Json, path: str) -> float:
    """A number with the digits that tell it from its neighbours, or the name of one that JSON lacks."""
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if isinstance(value, Decimal):
        with np.errstate(over="ignore"):
            number = np.float32(value) if node.kind == "float" else np.float64(value)
        if value in (Decimal(str(number)), Decimal(float(number))):
            return float(number)
    raise RefusedError(path, f"{node.kind} that holds the number exactly", value)


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
