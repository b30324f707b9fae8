"""JSON texts. Numbers, strings and names are written by Python's json."""

import base64
import json
import math
from collections.abc import Iterable
from decimal import Decimal

import pyarrow as pa

from kolumn.values.extensions import JSON_TEXT
from kolumn.values.json_plain import PlainType
from kolumn.writers.value_parts import RefusedError, data, floating, in_unit, integer, members, pairs, text, unit_of


class JsonEncoder:
    """Texts in one line, without spaces: numbers as Python writes them, decimals with all digits of their type, times as ISO 8601 has them,
    bytes in base64. JSON text stays as it is.
    """

    def __init__(self, type: pa.DataType) -> None:
        self.type = type

    def encode(self, value: object, type: pa.DataType) -> bytes:
        return _text(self.type, value, type, "$").encode()


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _text(wanted: pa.DataType, value: object, type: pa.DataType, path: str) -> str:
    if value is None:
        return "null"
    if pa.types.is_struct(wanted):
        if not pa.types.is_struct(type):
            raise RefusedError(path, str(wanted), type)
        fields = {field.name: field.type for field in wanted}
        more = [field.name for field in type if field.name not in fields]
        if more:
            raise RefusedError(path, f"no other fields than {', '.join(fields)}", ", ".join(more))
        own = members(value)
        return _object((field.name, _text(fields[field.name], own[field.name], field.type, f"{path}.{field.name}")) for field in type)
    if pa.types.is_map(wanted):
        if not pa.types.is_map(type):
            raise RefusedError(path, str(wanted), type)

        def entry(key: object, one: object) -> tuple[str, str]:
            return text(path, key), _text(wanted.item_type, one, type.item_type, f"{path}[{key!r}]")

        return _object(pairs(path, value, entry).items())
    if pa.types.is_list(wanted):
        if not isinstance(value, list) or pa.types.is_map(type):
            raise RefusedError(path, str(wanted), type)
        return f"[{','.join(_text(wanted.value_type, one, type.value_type, f'{path}[{number}]') for number, one in enumerate(value))}]"
    return _leaf(wanted, value, type, path)


def _object(found: Iterable[tuple[str, str]]) -> str:
    return f"{{{','.join(f'{_written(name)}:{one}' for name, one in found)}}}"


def _leaf(wanted: pa.DataType, value: object, type: pa.DataType, path: str) -> str:
    if wanted == JSON_TEXT:
        if PlainType.of(wanted).value(text(path, value).encode())[1]:
            raise RefusedError(path, "the text of a JSON value", value)
        return text(path, value)
    if pa.types.is_temporal(wanted):
        return _written(_iso(wanted, value, type, path))
    if pa.types.is_integer(wanted):
        if pa.types.is_temporal(type):
            raise RefusedError(path, str(wanted), type)
        return _written(integer(path, value, wanted.bit_width, pa.types.is_signed_integer(wanted), str(wanted)))
    if pa.types.is_decimal(wanted):
        return _decimal(wanted, value, path)
    if pa.types.is_floating(wanted):
        number = floating(path, value, str(wanted), wanted.bit_width < 64)
        if not math.isfinite(number):
            raise RefusedError(path, "a number, which JSON has no other for", value)
        return _written(number)
    if pa.types.is_boolean(wanted):
        if not isinstance(value, bool):
            raise RefusedError(path, str(wanted), value)
        return _written(value)
    if pa.types.is_binary(wanted):
        found = data(value)
        if found is None:
            raise RefusedError(path, str(wanted), value)
        return _written(base64.b64encode(found).decode())
    return _written(text(path, value))


def _decimal(wanted: pa.DataType, value: object, path: str) -> str:
    """All digits, without an exponent."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise RefusedError(path, str(wanted), value)
    sign, digits, exponent = Decimal(value).as_tuple()
    shift = int(exponent) + wanted.scale if isinstance(exponent, int) else 0
    number = "".join(map(str, digits)) + "0" * shift
    kept, rest = (number[:shift], number[shift:]) if shift < 0 else (number, "")
    if not isinstance(exponent, int) or rest.strip("0") or len(kept.lstrip("0")) > wanted.precision:
        raise RefusedError(path, str(wanted), value)
    kept = kept.lstrip("0").rjust(wanted.scale + 1, "0")
    whole, fraction = kept[: len(kept) - wanted.scale], kept[len(kept) - wanted.scale :]
    return f"{'-' if sign else ''}{whole}{f'.{fraction}' if fraction else ''}"


def _iso(wanted: pa.DataType, value: object, type: pa.DataType, path: str) -> str:
    """A time as text that a read parses: exact to the unit of the wanted type."""
    same = type == wanted or (pa.types.is_timestamp(type) and pa.types.is_timestamp(wanted) and (type.tz is None) == (wanted.tz is None))
    if not same and not any(kind(type) and kind(wanted) for kind in (pa.types.is_date, pa.types.is_time)):
        raise RefusedError(path, str(wanted), type)
    if pa.types.is_time(wanted):
        value, type = in_unit(path, value, unit_of(type), unit_of(wanted)), wanted
    if pa.types.is_timestamp(wanted):
        value = in_unit(path, value, unit_of(type), unit_of(wanted))
        type = pa.timestamp(unit_of(wanted))
    elif pa.types.is_date(wanted):
        type = pa.date32()
    storage = pa.int32() if type.bit_width == 32 else pa.int64()
    text = str(pa.scalar(value, storage).cast(type).cast(pa.string()))
    text = text.replace(" ", "T", 1)
    return f"{text}Z" if pa.types.is_timestamp(wanted) and wanted.tz is not None else text
