"""The type of JSON values, as callers say it: a mapping of names to types, Arrow's types, or texts of types as Arrow and Spark write them.

{"id": "int64", "price": "decimal(10, 2)", "tags": ["string"], "labels": "map<string, string>", "more": "json", "inner": {"on": "date"}}
"""

import json
import re
from collections.abc import Mapping

import pyarrow as pa

from kolumn.core.errors import ArgumentError, unknown
from kolumn.values.decoder import TYPES
from kolumn.values.extensions import JSON_TEXT

# Arrow's and Spark's other names; ``extension<arrow.json>`` is what Arrow prints of JSON text.
_NAMES = TYPES | {
    "json": JSON_TEXT, "extension<arrow.json>": JSON_TEXT, "variant": JSON_TEXT, "binary": pa.binary(), "date": pa.date32(),
    "date32": pa.date32(), "date32[day]": pa.date32(), "time": pa.time64("us"), "timestamp_ntz": pa.timestamp("us"),
    "boolean": pa.bool_(), "byte": pa.int8(), "tinyint": pa.int8(), "short": pa.int16(), "smallint": pa.int16(), "int": pa.int32(),
    "integer": pa.int32(), "long": pa.int64(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(), "text": pa.string(),
}  # fmt: skip
_SHOWN = (*TYPES, "date", "time", "binary", "json", "decimal(10, 2)", "timestamp[ns]", "list<int64>", "map<string, int64>")
_DECIMAL = re.compile(r"(?:decimal|numeric|decimal128|decimal256)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)\Z")
_TIME = re.compile(r"(timestamp|timestamp_ntz|time|time32|time64)\s*\[\s*(s|ms|us|ns)\s*(?:,\s*(?:tz\s*=\s*)?([\w/+:-]+)\s*)?\]\Z")
_INSIDE = re.compile(r"(list|array|map|struct)\s*<(.*)>\Z", re.DOTALL)
_FIELD = re.compile(r"\s*(?:`([^`]*)`|([^:]*?))\s*:(.*)\Z", re.DOTALL)
_MOST_DIGITS = 76  # Digits of Arrow's decimal256.


def nested_type(schema: object, where: str = "value_schema") -> pa.DataType:
    """The type of the values: of objects, of lists or maps, or `JSON_TEXT` for values of any kind. ``schema`` is a mapping of names to
    types, where a type may be a mapping again, a list of one type, Arrow's, or a text; an Arrow schema; or such a type of the whole value.
    A mapping may also be given as its JSON text.
    """
    if isinstance(schema, str) and schema.lstrip()[:1] in ("{", "["):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise ArgumentError(f"{where}: not the JSON text of a mapping of names to types: {error}") from error
    if isinstance(schema, pa.Schema):
        schema = pa.struct(list(schema))
    if isinstance(schema, Mapping | pa.StructType) and len(schema) and not isinstance(schema, pa.BaseExtensionType):
        return _type("", schema, where)
    if isinstance(schema, str | list | pa.DataType) and schema not in ("", []):
        type = _type("", schema, where)
        if type == JSON_TEXT or pa.types.is_map(type) or pa.types.is_list(type) or (pa.types.is_struct(type) and type.num_fields):
            return type
    raise ArgumentError(f"{where}={schema!r}: expected a mapping of names to types, 'json', or the type of a list or map")


def _type(path: str, given: object, where: str) -> pa.DataType:
    if isinstance(given, pa.DataType):
        return _of_json(path, given, where)
    if isinstance(given, Mapping):
        return pa.struct([pa.field(str(name), _type(_join(path, str(name)), type, where)) for name, type in given.items()])
    if isinstance(given, str):
        return _of_text(path, given.strip(), where)
    if isinstance(given, list) and len(given) == 1:
        return pa.list_(_type(path, given[0], where))
    expected = "a list of one type" if isinstance(given, list) else "a type, a mapping, or a list of one type"
    raise ArgumentError(f"{where}: {_field(path)}expected {expected}, found {given!r}")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _field(path: str) -> str:
    return f"field {path!r}: " if path else ""


def _of_text(path: str, text: str, where: str) -> pa.DataType:
    known = _NAMES.get(text) or _NAMES.get(text.lower())
    if known is not None:
        return known
    inside = _INSIDE.match(text)
    if inside:
        kind, parts = inside[1], _parts(inside[2])
        if kind == "struct":
            return _struct(path, parts, where)
        if kind == "map" and len(parts) == 2 and _of_text(path, parts[0], where) == pa.string():
            return pa.map_(pa.string(), _of_text(path, parts[1], where))
        if kind != "map" and len(parts) == 1:
            return pa.list_(_of_text(path, re.sub(r"\A(item|element)\s*:\s*", "", parts[0]), where))
    decimal = _DECIMAL.match(text)
    if decimal:
        return _decimal(path, int(decimal[1]), int(decimal[2] or 0), where)
    time = _TIME.match(text)
    if time and (made := _time(*time.groups())) is not None:
        return made
    raise ArgumentError(f"{where}: {_field(path)}{unknown('type', text, _SHOWN)}")


def _parts(text: str) -> list[str]:
    """A text cut at the commas that are not in brackets."""
    parts, depth, begin = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "<([") - (sign in ">)]")
        if sign == "," and not depth:
            parts.append(text[begin:at].strip())
            begin = at + 1
    return [*parts, text[begin:].strip()] if text.strip() else []


def _struct(path: str, parts: list[str], where: str) -> pa.StructType:
    fields = {}
    for part in parts:
        field = _FIELD.match(part)
        if field is None:
            raise ArgumentError(f"{where}: {_field(path)}expected a name, a colon and a type in struct<…>, found {part!r}")
        name = field[2] if field[1] is None else field[1]
        if name in fields:
            raise ArgumentError(f"{where}: {_field(_join(path, name))}named twice in one struct")
        fields[name] = _of_text(_join(path, name), field[3].strip(), where)
    return pa.struct(list(fields.items()))


def _decimal(path: str, precision: int, scale: int, where: str) -> pa.DataType:
    if not 1 <= precision <= _MOST_DIGITS or not 0 <= scale <= precision:
        digits = f"decimal({precision}, {scale})"
        raise ArgumentError(
            f"{where}: {_field(path)}{digits}: expected 1 to {_MOST_DIGITS} digits, of which as many or fewer after the point"
        )
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _time(kind: str, unit: str, zone: str | None) -> pa.DataType | None:
    if kind == "timestamp":
        type = pa.timestamp(unit, zone or "UTC")
        try:
            pa.scalar(0, type).cast(pa.string())
        except pa.ArrowInvalid:
            # There is no such zone.
            return None
        return type
    if zone is not None:
        return None
    if kind == "timestamp_ntz":
        return pa.timestamp(unit)
    is_narrow = unit in ("s", "ms")
    if kind == ("time64" if is_narrow else "time32"):
        return None
    return pa.time32(unit) if is_narrow else pa.time64(unit)


def _of_json(path: str, type: pa.DataType, where: str) -> pa.DataType:
    """The same type, in which every part may be null; `ArgumentError` if JSON has no values of it."""
    if pa.types.is_struct(type):
        names = [field.name for field in type]
        for name in names:
            if names.count(name) > 1:
                raise ArgumentError(f"{where}: {_field(_join(path, name))}named twice in one struct")
        return pa.struct([pa.field(field.name, _of_json(_join(path, field.name), field.type, where)) for field in type])
    if pa.types.is_list(type):
        return pa.list_(_of_json(path, type.value_type, where))
    if pa.types.is_map(type) and type.key_type == pa.string():
        return pa.map_(pa.string(), _of_json(path, type.item_type, where))
    if isinstance(type, pa.BaseExtensionType) and type.extension_name == "arrow.json":
        return JSON_TEXT
    if pa.types.is_decimal128(type) or pa.types.is_decimal256(type):
        return _decimal(path, type.precision, type.scale, where)
    if type in _NAMES.values() or pa.types.is_timestamp(type) or pa.types.is_time(type):
        return type
    known = ", ".join(("decimals", *TYPES, "dates", "times", "binary", "json", "structs", "lists", "maps with keys of type string"))
    raise ArgumentError(f"{where}: {_field(path)}JSON has no values of {type}; expected one of {known}")
