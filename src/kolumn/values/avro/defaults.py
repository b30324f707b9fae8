"""Defaults of a reader's fields: JSON becomes the bits, bytes and elements that columns get."""

import math
import struct
from dataclasses import dataclass
from typing import Any

from kolumn.schemas.schema import is_text
from kolumn.values.avro.schema import SchemaNode
from kolumn.values.avro.types import TIMES, decimal_bytes, members

NULL, WORD, BYTES, FIXED, FIELDS, ITEMS = range(6)
_INTS = {"int": 31, "long": 63}
_NAMED_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "INF": math.inf, "-Infinity": -math.inf, "-INF": -math.inf}


@dataclass(frozen=True)
class Constant:
    """A value that is the same in every row: NULL; a WORD of ``bits`` and ``width``; ``data`` of BYTES, and of FIXED as the column has
    them; ``parts`` of FIELDS (names of columns with their constants) and ITEMS (elements of an array, without names; of a map "key" and
    "value" by turns).
    """

    kind: int
    bits: int = 0
    width: int = 0
    data: bytes = b""
    parts: "tuple[tuple[str, Constant], ...]" = ()


def constant(node: SchemaNode, value: object) -> Constant | None:
    """The constant for a default, or None if the JSON is not a value of the type. ``node`` is a part of a readable schema."""
    if node.kind == "union":
        return _of_union(node, value)
    if node.kind == "null":
        return Constant(NULL) if value is None else None
    if node.kind == "record":
        return _of_record(node, value)
    if node.kind == "array":
        items = [constant(node.inner, one) for one in value] if isinstance(value, list) else [None]
        return None if None in items else Constant(ITEMS, parts=tuple(("", one) for one in items if one is not None))
    if node.kind == "map":
        return _of_map(node, value)
    if node.kind == "string":
        return Constant(BYTES, data=value.encode()) if is_text(value) else None
    if node.kind in ("bytes", "fixed"):
        return _of_bytes(node, value)
    return _of_word(node, value)


def _of_word(node: SchemaNode, value: Any) -> Constant | None:
    if node.kind == "enum":
        return Constant(WORD, node.symbols.index(value), 4) if isinstance(value, str) and value in node.symbols else None
    if node.kind == "boolean":
        return Constant(WORD, int(value), 1) if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if node.kind in _INTS:
        bits = _INTS[node.kind]
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        day = TIMES.get(node.logical.name) if node.logical is not None else None
        least, most = (0, day) if day is not None else (-(1 << bits), 1 << bits)
        return Constant(WORD, int(value), (bits + 1) // 8) if whole and least <= value < most else None
    if isinstance(value, str):
        value = _NAMED_NUMBERS.get(value)
    if not isinstance(value, int | float):
        return None
    try:
        if node.kind == "float":
            return Constant(WORD, struct.unpack("<i", struct.pack("<f", value))[0], 4)
        return Constant(WORD, struct.unpack("<q", struct.pack("<d", value))[0], 8)
    except OverflowError:
        return None


def _of_bytes(node: SchemaNode, value: object) -> Constant | None:
    """Bytes are text in JSON, whose characters are the bytes."""
    if not isinstance(value, str) or any(ord(one) > 0xFF for one in value):
        return None
    data = value.encode("latin-1")
    if node.kind == "fixed" and len(data) != node.size:
        return None
    width = decimal_bytes(node)
    if width:
        number = int.from_bytes(data, "big", signed=True)
        assert node.logical is not None
        fits = data and abs(number) < 10**node.logical.precision
        return Constant(FIXED, data=number.to_bytes(width, "little", signed=True)) if fits else None
    if node.logical is not None and node.logical.name == "duration":
        months, days, milliseconds = struct.unpack("<III", data)
        fits = max(months, days) < 1 << 31
        return Constant(FIXED, data=struct.pack("<iiq", months, days, milliseconds * 1_000_000)) if fits else None
    return Constant(FIXED if node.kind == "fixed" else BYTES, data=data)


def _of_union(node: SchemaNode, value: object) -> Constant | None:
    """The first type that the JSON is a value of. Types are fields of a struct if there are several."""
    if value is None and len(members(node)) < len(node.branches):
        return Constant(NULL)
    for number, one in enumerate(members(node)):
        made = constant(one, value)
        if made is not None and len(members(node)) == 1:
            return made
        if made is not None:
            parts = [(f"member{other}", made if other == number else Constant(NULL)) for other in range(len(members(node)))]
            return Constant(FIELDS, parts=tuple(parts))
    return None


def _of_record(node: SchemaNode, value: object) -> Constant | None:
    if not isinstance(value, dict):
        return None
    parts = []
    for one in node.fields:
        if one.name not in value and not one.has_default:
            return None
        made = constant(one.type, value.get(one.name, one.default))
        if made is None:
            return None
        parts.append((one.name, made))
    return Constant(FIELDS, parts=tuple(parts))


def _of_map(node: SchemaNode, value: object) -> Constant | None:
    if not isinstance(value, dict) or not all(is_text(key) for key in value):
        return None
    parts: list[tuple[str, Constant]] = []
    for key, one in value.items():
        made = constant(node.inner, one)
        if made is None:
            return None
        parts += [("key", Constant(BYTES, data=key.encode())), ("value", made)]
    return Constant(ITEMS, parts=tuple(parts))
