"""What the encoders of values share: how a value is refused, numbers that have to fit, and times in other units."""

import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Never, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa

from kolumn.core.times import PER_SECOND

Key = TypeVar("Key")
Item = TypeVar("Item")


class RefusedError(Exception):
    """A value that the schema cannot represent: the path of the field, and what was expected and found."""

    def __init__(self, path: str, expected: str, found: object) -> None:
        self.path, self.expected = path, expected
        self.found = "null" if found is None else str(found) if isinstance(found, str | UUID | pa.DataType) else repr(found)


def refuse(path: str, expected: str, found: object) -> Never:
    """Raise `RefusedError`, where an expression has to."""
    raise RefusedError(path, expected, found)


def members(value: object) -> dict[str, object]:
    """The fields of a value whose type is a struct."""
    assert isinstance(value, dict)
    return value


def in_unit(path: str, value: object, unit: str, wanted: str) -> int:
    """A time in another unit; it has to be one of those."""
    assert isinstance(value, int)
    whole, rest = divmod(value * PER_SECOND[wanted], PER_SECOND[unit])
    if rest:
        raise RefusedError(path, f"a time of whole {wanted}", f"{value} {unit}")
    return whole


def unit_of(type: pa.DataType) -> str:
    return str(type.unit)


def integer(path: str, value: object, bits: int, signed: bool, name: str) -> int:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    if isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RefusedError(path, f"{name}, {low} to {high}", value)
    return value


def floating(path: str, value: object, name: str, narrow: bool) -> float:
    if isinstance(value, np.floating):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RefusedError(path, name, value)
    number = float(value)
    try:
        same = number == value or math.isnan(number)
        if narrow and same and math.isfinite(number):
            same = struct.unpack("<f", struct.pack("<f", number))[0] == number
    except OverflowError:
        same = False
    if not same:
        raise RefusedError(path, f"{name} that holds the number exactly", value)
    return number


def text(path: str, value: object) -> str:
    if isinstance(value, UUID):
        return str(value)
    if not isinstance(value, str):
        raise RefusedError(path, "string", value)
    return value


def data(value: object) -> bytes | None:
    """The bytes that a value is, as UUIDs are, too; None for others."""
    return value.bytes if isinstance(value, UUID) else value if isinstance(value, bytes) else None


def pairs(path: str, value: object, of: Callable[[object, object], tuple[Key, Item]]) -> dict[Key, Item]:
    """A map from its list of pairs, each made into another one; no key may come twice."""
    assert isinstance(value, list)
    found = dict(of(key, one) for key, one in value)
    if len(found) < len(value):
        raise RefusedError(path, "keys that differ", [key for key, _ in value])
    return found
