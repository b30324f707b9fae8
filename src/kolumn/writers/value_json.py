"""Objects of JSON, by Python's json."""

import json
import math

import pyarrow as pa

from kolumn.writers.value_parts import RefusedError, floating, in_unit, integer, members, text, unit_of


class JsonEncoder:
    """Objects in one line, without spaces: numbers as Python writes them, times as ISO 8601 has them."""

    def __init__(self, type: pa.DataType) -> None:
        self.type = type

    def encode(self, value: object, type: pa.DataType) -> bytes:
        return json.dumps(self._of(self.type, value, type, "$"), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()

    def _of(self, wanted: pa.DataType, value: object, type: pa.DataType, path: str) -> object:
        if value is None:
            return None
        if pa.types.is_struct(wanted):
            if not pa.types.is_struct(type):
                raise RefusedError(path, str(wanted), type)
            fields = {field.name: field.type for field in wanted}
            more = [field.name for field in type if field.name not in fields]
            if more:
                raise RefusedError(path, f"no other fields than {', '.join(fields)}", ", ".join(more))
            own = members(value)
            return {field.name: self._of(fields[field.name], own[field.name], field.type, f"{path}.{field.name}") for field in type}
        if pa.types.is_list(wanted):
            if not isinstance(value, list) or pa.types.is_map(type):
                raise RefusedError(path, str(wanted), type)
            return [self._of(wanted.value_type, one, type.value_type, f"{path}[{number}]") for number, one in enumerate(value)]
        if pa.types.is_temporal(wanted):
            return _iso(wanted, value, type, path)
        if pa.types.is_integer(wanted):
            if pa.types.is_temporal(type):
                raise RefusedError(path, str(wanted), type)
            return integer(path, value, wanted.bit_width, pa.types.is_signed_integer(wanted), str(wanted))
        if pa.types.is_floating(wanted):
            number = floating(path, value, str(wanted), wanted.bit_width < 64)
            if not math.isfinite(number):
                raise RefusedError(path, "a number, which JSON has no other for", value)
            return number
        if pa.types.is_boolean(wanted):
            if not isinstance(value, bool):
                raise RefusedError(path, str(wanted), value)
            return value
        return text(path, value)


def _iso(wanted: pa.DataType, value: object, type: pa.DataType, path: str) -> str:
    """A time as text that a read parses: exact to the unit of the wanted type."""
    same = type == wanted or (pa.types.is_timestamp(type) and pa.types.is_timestamp(wanted) and (type.tz is None) == (wanted.tz is None))
    if not same and not (pa.types.is_date(type) and pa.types.is_date(wanted)):
        raise RefusedError(path, str(wanted), type)
    if pa.types.is_timestamp(wanted):
        value = in_unit(path, value, unit_of(type), unit_of(wanted))
        type = pa.timestamp(unit_of(wanted))
    elif pa.types.is_date(wanted):
        type = pa.date32()
    storage = pa.int32() if type.bit_width == 32 else pa.int64()
    text = str(pa.scalar(value, storage).cast(type).cast(pa.string()))
    text = text.replace(" ", "T", 1)
    return f"{text}Z" if pa.types.is_timestamp(wanted) and wanted.tz is not None else text
