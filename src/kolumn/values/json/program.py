"""The table for `kolumn.values.wire.json`: which members of an object have which columns."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Int64s
from kolumn.values.memory import ColumnLayout, LayoutNode
from kolumn.values.wire.json import BOOLEAN, DOUBLE, FIELD, FLOAT, FRAME, INTEGER, LIST, OBJECT, TEXT
from kolumn.values.wire.json_numbers import LEAST, MOST

_WORDS = FIELD // 8
_KINDS = {pa.string(): TEXT, pa.float64(): DOUBLE, pa.float32(): FLOAT, pa.bool_(): BOOLEAN}
_NO_LENGTH = 1 << 62
"""Longer than any text: no bytes are this name."""
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class JsonTables:
    """The tables of a program; they do not change, so threads share them. ``frames`` are bytes of memory; ``names`` have each a quote and a
    colon after it; ``fields`` are rows of `kolumn.values.wire.json`, ``numbers`` the table of `kolumn.values.wire.json_numbers`.
    """

    layout: ColumnLayout
    fields: Int64s
    names: bytes
    numbers: Int64s
    frames: int


def json_tables(type: pa.DataType) -> JsonTables | None:
    """The tables of a type; None if there is no column for a part of it, or two fields of an object have one name."""
    if not _is_known(type):
        return None
    layout = ColumnLayout.of(type)
    rows: list[list[int]] = [[0] * _WORDS]
    names, waiting, depth = bytearray(), [(0, layout.root, "", 0)], 0
    # Children of an object follow each other, so they are numbered before what is in them.
    for number, node, name, _ in waiting:
        first = len(rows)
        rows += [[0] * _WORDS for _ in node.children]
        waiting += [(first + k, child, child.name, first) for k, child in enumerate(node.children)]
        rows[number][:12] = _row(node, number, first)
        rows[number][12:] = _name(name, names)
    for number, node, _, _ in waiting:
        first = rows[number][8] // FIELD
        for k in range(len(node.children)):
            rows[first + k][10] = FIELD * (first + (k + 1) % len(node.children))
        depth += node.child_level >= 0 or bool(node.children)
    return JsonTables(layout, np.array(rows, np.int64).reshape(-1), bytes(names), _numbers(), FRAME * (depth + 1))


def _is_known(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        names = [one.name for one in kind]
        return 0 < len(names) == len(set(names)) and all(one.nullable and _is_known(one.type) for one in kind)
    if pa.types.is_list(kind):
        return kind.value_field.nullable and _is_known(kind.value_type)
    return kind in _KINDS or pa.types.is_integer(kind)


def _row(node: LayoutNode, number: int, first: int) -> list[int]:
    """What a row has in front of the name."""
    kind, least, most = _KINDS.get(node.type, INTEGER), 0, 0
    if pa.types.is_struct(node.type):
        kind = OBJECT
    elif pa.types.is_list(node.type):
        kind = LIST
    elif kind == INTEGER:
        limits = np.iinfo(node.type.to_pandas_dtype())
        least, most = int(limits.min), min(int(limits.max), _LARGEST)
    return [kind, node.column, node.width, least, most, node.first_fill, node.fills, node.child_level, FIELD * first, len(node.children),
            0, 8 * (number + 1)]  # fmt: skip


def _name(name: str, names: bytearray) -> list[int]:
    """Length, first word, mask and place of a name, which is added to ``names``. A name that JSON writes with an escape is not found."""
    place, text = len(names), name.encode() + b'":'
    names += text
    length = len(text) if is_plain(name) else _NO_LENGTH
    word = int.from_bytes(text[:8], "little")
    mask = (1 << 8 * min(len(text), 8)) - 1
    return [length, _signed(word), _signed(mask), place]


def is_plain(name: str) -> bool:
    """Whether JSON writes a name without an escape."""
    return not any(character < " " or character in '"\\' for character in name)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


@cache
def _numbers() -> Int64s:
    made = [_LARGEST // 10**count for count in range(9)] + [10**count for count in range(9)]
    for exponent in range(LEAST, MOST + 1):
        power = _power_of_five(exponent)
        made += [_signed(power >> 64), _signed(power & (1 << 64) - 1)]
    return np.array(made, np.int64)


def _power_of_five(exponent: int) -> int:
    """128 bits of a power of five, of which the highest one is set: cut off, but rounded up where a middle of two numbers could be met."""
    power = 5 ** abs(exponent)
    bits = power.bit_length()
    if exponent >= 0:
        return power << 128 - bits if bits <= 128 else power >> bits - 128
    if exponent >= -27:
        return (1 << bits + 127) // power + 1
    found = (1 << 2 * bits + 128) // power + 1
    return found >> found.bit_length() - 128
