"""The output of `kolumn cat`, made for one record at a time: the reference for the conversion by columns."""

import base64
import json
import re
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

_EPOCH = datetime(1970, 1, 1)
_CYCLE_MS = 146_097 * 86_400_000
_ACTED_ON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What a terminal acts on, beside what JSON escapes itself: DEL, controls of two bytes, ends of lines, marks of direction."""


def json_lines(batch: pa.RecordBatch) -> str:
    text = "".join(json.dumps(_encoded(row), ensure_ascii=False) + "\n" for row in _rows(batch))
    return _ACTED_ON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def text_lines(batch: pa.RecordBatch) -> str:
    return "".join("  ".join(f"{name}={_cell(value)}" for name, value in row.items()) + "\n" for row in _rows(batch))


def _moment(microseconds: int) -> str:
    """In ISO 8601, whose years have a sign where they have not four digits. The calendar repeats itself every 400 years."""
    cycles, rest = divmod(microseconds // 1000, _CYCLE_MS)
    text = (_EPOCH + timedelta(milliseconds=rest)).isoformat(timespec="milliseconds")
    year = int(text[:4]) + 400 * cycles
    return f"{year:{'04' if 0 <= year <= 9999 else '+05'}d}{text[4:]}Z"


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_timestamp(column.type):
            columns[name] = [None if value is None else _moment(value) for value in column.cast(pa.int64()).to_pylist()]
        else:
            columns[name] = column.to_pylist()
    return [{name: values[i] for name, values in columns.items()} for i in range(batch.num_rows)]


def shown(value: bytes) -> tuple[str, str]:
    """Text of some bytes, and how it stands for them."""
    try:
        return value.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(value).decode("ascii"), "base64"


def _encoded(row: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            result[name], result[f"{name}Encoding"] = shown(value)
        elif name == "headers":
            result[name] = [_encoded(header) for header in value]
        else:
            result[name] = value
    return result


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        text, encoding = shown(value)
        return repr(text) if encoding == "utf-8" else f"base64:{text}"
    if isinstance(value, list):
        return "[" + ", ".join(f"{_cell(header['key'])}: {_cell(header['value'])}" for header in value) + "]"
    if isinstance(value, str):
        return value if value.isprintable() else repr(value)
    return str(value)
