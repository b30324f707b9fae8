"""Plans of `kolumn.cpu_fallback.values.json_walk`: how objects of which few members are wanted are passed over."""

from ctypes import string_at
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kolumn.arrays import Int64s
from kolumn.cpu_fallback.machine.address import STEP
from kolumn.cpu_fallback.values import json_walk as walk
from kolumn.paths import JSON_WALK, is_on
from kolumn.values.decoder import Bodies
from kolumn.values.text.json_program import is_plain

_LONGEST = STEP - len('"": ')
"""Bytes of a name that are compared at once."""
_LOOKED_AT = 1024
"""Bytes of a value that are searched for a space."""


@dataclass(frozen=True)
class WalkPlans:
    """Words of the plans for objects without spaces, and for those with one after each comma and colon."""

    dense: Int64s
    spaced: Int64s

    def of(self, bodies: Bodies) -> Int64s:
        """The plan for the way in which the first value is written."""
        at, length = int(bodies.at[0]), int(bodies.length[0])
        return self.spaced if b'": ' in string_at(at, min(max(length, 0), _LOOKED_AT)) else self.dense


def walk_plans(whole: pa.StructType, wanted: pa.StructType) -> WalkPlans | None:
    """The plans for objects that have the members of ``whole``, usually in its order.

    None if more members are wanted than passed over, or if a wanted one has others in it: these are not found faster than they are
    decoded. None too if names are long or need escapes, or two are the same.
    """
    names = [one.name for one in whole]
    parts = [*names, *(child.name for one in whole for child in _members(one.type))]
    if len(set(names)) < len(names) or not all(is_plain(one) and len(one.encode()) <= _LONGEST for one in parts):
        return None
    if not is_on(JSON_WALK) or len(whole) < 2 * len(wanted) or any(pa.types.is_nested(one.type) for one in wanted):
        return None
    return WalkPlans(*(_plan(whole, wanted, space) for space in (b"", b" ")))


def _plan(whole: pa.StructType, wanted: pa.StructType, space: bytes) -> Int64s:
    numbers = {one.name: number for number, one in enumerate(wanted)}
    rows, names = [], bytearray()
    for one in whole:
        inner = _members(one.type) if one.name not in numbers else []
        rows.append(_operation(one, numbers.get(one.name, -1), len(inner), names, space))
        rows += [_operation(child, -1, 0, names, space) for child in inner]
    for row in rows:
        row[2] += walk.HEAD + walk.OPERATION * len(rows)
    comma, between = b"," + space, b"}," + space + b"{"
    head = [len(whole), len(wanted), *_word(comma), len(comma), *_word(between)]
    return np.concatenate([np.array([*head, *(word for row in rows for word in row)], np.int64), np.frombuffer(names, np.int64)])


def _word(text: bytes) -> tuple[int, int]:
    return int.from_bytes(text, "little"), (1 << 8 * len(text)) - 1


def _members(kind: pa.DataType) -> list[pa.Field]:
    """Of a list of objects the members of these."""
    return list(kind.value_type) if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type) else []


def _operation(one: pa.Field, number: int, inner: int, names: bytearray, space: bytes) -> list[int]:
    place, text = len(names), f'"{one.name}":'.encode() + space
    names += text.ljust(STEP, b"\0")
    return [_kind(one.type, inner), len(text), place, (1 << len(text)) - 1, number, inner]


def _kind(kind: pa.DataType, inner: int) -> int:
    if inner:
        return walk.OBJECTS
    if pa.types.is_integer(kind):
        return walk.INTEGER
    if pa.types.is_floating(kind):
        return walk.NUMBER
    return walk.TEXT if pa.types.is_string(kind) else walk.OTHER
