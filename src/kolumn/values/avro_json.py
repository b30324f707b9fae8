"""Values of Avro as text in JSON: as ``kolumn cat --json`` prints columns, and without the names of a union's types around them."""

import base64
import json
import math
from datetime import datetime, timedelta
from decimal import Decimal

import numpy as np

from kolumn.core.times import PER_SECOND, iso_texts
from kolumn.values.avro_schema import SchemaNode
from kolumn.values.avro_types import UNITS, is_text_decimal

_EPOCH = datetime(1970, 1, 1)


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
        return quoted(_moment(value * 86_400).partition("T")[0])
    kind, _, unit = name.rpartition("-")
    if kind in ("time", "timestamp", "local-timestamp") and isinstance(value, int):
        seconds, rest = divmod(value, PER_SECOND[UNITS[unit]])
        digits = f".{rest:0{len(str(PER_SECOND[UNITS[unit]])) - 1}}"
        if kind == "time":
            return quoted(f"{timedelta(seconds=seconds)!s:0>8}{digits}")
        return quoted(f"{_moment(seconds)}{digits}{'Z' if kind == 'timestamp' else ''}")
    return str(value) if is_text_decimal(node) else json.dumps(value, ensure_ascii=False)


def _moment(seconds: int) -> str:
    """Seconds since 1970 as a date and a time of day."""
    try:
        return (_EPOCH + timedelta(seconds=seconds)).isoformat()
    except OverflowError:
        return iso_texts(np.array([seconds], np.int64), "s")[0]
