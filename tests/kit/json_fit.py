"""Whether a column's type holds a JSON value, slowly and plainly: which parts of the value would be lost."""

import base64
import binascii
from typing import Any

import pyarrow as pa

_JSON_TEXT = pa.json_(pa.string())


def lost(value: Any, kind: pa.DataType, path: str = "$") -> list[str]:
    """The paths of what does not fit, with elements of lists and keys of maps. Members of objects that a struct does not have are left
    out, which is no loss. Text holds text alone, integers have no fraction, and floats hold integers exactly.
    """
    if value is None or kind == _JSON_TEXT:
        return []
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return [each for field in kind if field.name in value for each in lost(value[field.name], field.type, f"{path}.{field.name}")]
    if pa.types.is_map(kind) and isinstance(value, dict):
        return [each for name, inner in value.items() for each in lost(inner, kind.item_type, f"{path}.{name}")]
    if pa.types.is_list(kind) and isinstance(value, list):
        return [each for number, inner in enumerate(value) for each in lost(inner, kind.value_type, f"{path}[{number}]")]
    return [] if _holds(kind, value) else [path]


def _holds(kind: pa.DataType, value: Any) -> bool:
    if pa.types.is_boolean(kind) or isinstance(value, bool):
        return pa.types.is_boolean(kind) and isinstance(value, bool)
    if pa.types.is_string(kind):
        return isinstance(value, str)
    if pa.types.is_binary(kind):
        return isinstance(value, str) and _is_base64(value)
    if pa.types.is_int64(kind):
        return isinstance(value, int) and -(2**63) <= value < 2**63
    if pa.types.is_decimal(kind):
        return isinstance(value, int) and len(str(abs(value))) <= kind.precision - kind.scale
    return pa.types.is_float64(kind) and (isinstance(value, float) or (isinstance(value, int) and _is_exact(value)))


def _is_exact(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True
