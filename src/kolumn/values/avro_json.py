"""Values of Avro as text in JSON: as ``kolumn cat --json`` prints columns, and without the names of a union's types around them."""

import base64
import json
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import numpy as np

from kolumn.values.avro_schema import SchemaNode
from kolumn.values.avro_types import PER_SECOND, UNITS, is_text_decimal


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def json_of(node: SchemaNode, value: object) -> str:
    """A value that is no record, array, map or union: bytes are base64, times text, decimals numbers; numbers that JSON lacks are text."""
    name = "" if node.logical is None else node.logical.name
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return quoted(base64.b64encode(value).decode())
    if isinstance(value, float):
        if not math.isfinite(value):
            return quoted("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
        return str(np.float32(value)) if node.kind == "float" else repr(value)
    if isinstance(value, tuple):
        return json.dumps(dict(zip(("months", "days", "nanoseconds"), value, strict=True)), separators=(",", ":"))
    if name == "date" and isinstance(value, int):
        return _moment(value * 86_400, "", 10, str(value))
    kind, _, unit = name.rpartition("-")
    if kind in ("time", "timestamp", "local-timestamp") and isinstance(value, int):
        seconds, rest = divmod(value, PER_SECOND[UNITS[unit]])
        digits = f".{rest:0{len(str(PER_SECOND[UNITS[unit]])) - 1}}"
        if kind == "time":
            return quoted(f"{timedelta(seconds=seconds)!s:0>8}{digits}")
        return _moment(seconds, digits + ("Z" if kind == "timestamp" else ""), 19, str(value))
    return str(value) if is_text_decimal(node) else json.dumps(value, ensure_ascii=False)


def _moment(seconds: int, rest: str, size: int, number: str) -> str:
    """A date, or a moment, as text; the number that it is if the year does not have four digits."""
    try:
        return quoted((datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat()[:size] + rest)
    except OverflowError:
        return number
