"""What a JSON value is in a type, and what of it is lost: from what Python's json makes of all of it, slowly, and with other arithmetic
than Kolumn's plain reader.
"""

import json
import math
import re
from datetime import date
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.core.lost import ELEMENTS, WHOLE
from kolumn.values.extensions import JSON_TEXT

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class Pairs(list[tuple[str, Any]]):
    """The members of an object."""


class Number(str):
    """The text of a number."""


class Raw:
    """A value whose JSON text is wanted, however it is written."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Raw({self.value!r})"


class LostError(Exception):
    """Nothing of a value fits."""


def loads(text: str) -> Any:
    return json.loads(text, object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=Number)


def expected(body: bytes | None, type: pa.DataType, truncate: bool = False) -> tuple[Any, set[str]]:
    """The value, times as numbers, and the paths of what is lost; None and nothing for None."""
    if body is None:
        return None, set()
    lost: set[str] = set()
    try:
        text = body.decode("utf-8-sig")
        value = loads(text)
        if type != JSON_TEXT and not isinstance(value, list if pa.types.is_list(type) else Pairs):
            return None, {WHOLE}
        if pa.types.is_list(type) and isinstance(value, Pairs):
            return None, {WHOLE}
        found = _fit(value, type, "", lost, truncate)
    except ValueError:
        return None, {WHOLE}
    if type == JSON_TEXT:
        return (None, {WHOLE}) if lost else (text, set())
    return found, {path or ELEMENTS for path in lost}


def _fit(value: Any, type: pa.DataType, path: str, lost: set[str], truncate: bool) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(type) and isinstance(value, Pairs):
        members = {}
        for field in type:
            inner = f"{path}.{field.name}" if path else field.name
            found = [member for name, member in value if name == field.name]
            members[field.name] = _fit(found[0], field.type, inner, lost, truncate) if found else None
            if len(found) > 1:
                lost.add(inner)
                members[field.name] = None
        return members
    if pa.types.is_map(type) and isinstance(value, Pairs):
        names = [name for name, _ in value]
        entries: dict[str, Any] = {}
        for name, member in value:
            entries[name] = _fit(member, type.item_type, path, lost, truncate)
            if names.count(name) > 1 or not _is_text(name):
                lost.add(path)
                entries[name] = None
        return [(name, member) for name, member in entries.items() if _is_text(name)]
    if pa.types.is_list(type) and isinstance(value, list) and not isinstance(value, Pairs):
        return [_fit(one, type.value_type, path, lost, truncate) for one in value]
    try:
        return _leaf(value, type, truncate)
    except LostError:
        lost.add(path)
        return None


def _is_text(value: str) -> bool:
    return not any("\ud800" <= sign <= "\udfff" for sign in value)


def _leaf(value: Any, type: pa.DataType, truncate: bool) -> Any:
    is_text = isinstance(value, str) and not isinstance(value, Number)
    if is_text and type != JSON_TEXT and not _is_text(value):
        raise LostError
    if pa.types.is_string(type):
        return value if is_text else Raw(value)
    if type == JSON_TEXT:
        if _has_named(value):
            raise LostError
        return Raw(value)
    if pa.types.is_decimal(type) and isinstance(value, str):
        return _decimal(value, type)
    if pa.types.is_temporal(type) and is_text:
        return _time(value, type, truncate)
    if pa.types.is_binary(type) and is_text:
        return _bytes(value)
    if pa.types.is_boolean(type) and isinstance(value, bool):
        return value
    if pa.types.is_floating(type) and isinstance(value, Number):
        return _float(value, type.bit_width == 32)
    if pa.types.is_integer(type) and isinstance(value, Number):
        limits, number = np.iinfo(type.to_pandas_dtype()), _decimal(value, pa.decimal128(20, 0))
        if (limits.min < 0 or value[0] != "-") and limits.min <= number <= limits.max:
            return int(number)
    raise LostError


def _has_named(value: Any) -> bool:
    if isinstance(value, Pairs):
        return any(_has_named(one) for _, one in value)
    return any(map(_has_named, value)) if isinstance(value, list) else isinstance(value, Number) and value[-1] in "Ny"


def _float(text: str, is_narrow: bool) -> float:
    number = float(text)
    if not math.isfinite(number):
        if text[-1].isdigit():
            raise LostError
        return number
    if not is_narrow or abs(number) < 1e-60 or abs(number) > 1e39:
        if is_narrow and abs(number) > 1e39:
            raise LostError
        return math.copysign(0.0, number) if is_narrow else number
    exact = Fraction(text)
    # The number and those around it: the nearest one, and of two the even one. Beyond the largest there is one more, which is infinite.
    largest = float(np.finfo(np.float32).max)
    middle = np.float32(min(max(number, -largest), largest))
    near = [middle]
    for _ in range(3):
        with np.errstate(all="ignore"):
            near = [np.nextafter(near[0], np.float32(-np.inf)), *near, np.nextafter(near[-1], np.float32(np.inf))]
    values = [Fraction(float(one)) if np.isfinite(one) else Fraction(2) ** 128 * (1 if one > 0 else -1) for one in near]
    best = min(range(len(near)), key=lambda at: (abs(values[at] - exact), int(near[at].view(np.int32)) & 1))
    if np.isinf(near[best]):
        raise LostError
    return math.copysign(float(near[best]), number)


def _decimal(text: str, type: pa.DataType) -> Fraction:
    match = re.fullmatch(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?", text)
    if match is None or len((match[1] or "").lstrip("+-")) > 9:
        raise LostError
    if abs(int(match[1] or 0)) > 10_000:
        if re.search("[1-9]", text.lower().partition("e")[0]):
            raise LostError
        return Fraction(0)
    number = Fraction(text) * 10**type.scale
    if number.denominator > 1 or abs(number) >= 10**type.precision:
        raise LostError
    return number / 10**type.scale


def _time(text: str, type: pa.DataType, truncate: bool) -> int:
    day, clock, zone = 0, text, ""
    if not pa.types.is_time(type):
        day, clock = _days(text[:10]), text[10:]
        if pa.types.is_date(type):
            if clock:
                raise LostError
            return day
        if clock:
            if clock[0] not in "Tt ":
                raise LostError
            match = re.fullmatch(r"([0-9:.,]*)(|[Zz]|[+-][0-9]{2}|[+-][0-9]{2}:?[0-9]{2})", clock[1:])
            if match is None or (match[2] and type.tz is None):
                raise LostError
            clock, zone = match[1], match[2]
            if len(clock) == 2:
                clock += ":00"
        else:
            clock = "00:00"
    match = re.fullmatch(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:[.,]([0-9]+))?)?", clock)
    if match is None:
        raise LostError
    seconds = 86_400 * day + 3600 * int(match[1]) + 60 * int(match[2]) + int(match[3] or 0)
    if zone and zone not in "Zz":
        hours, minutes = int(zone[1:3]), int(zone[3:].strip(":") or 0)
        if hours > 23 or minutes > 59:
            raise LostError
        seconds -= (3600 * hours + 60 * minutes) * (-1 if zone[0] == "-" else 1)
    ticks = (seconds + Fraction(int(match[4] or 0), 10 ** len(match[4] or ""))) * _UNITS[type.unit]
    is_cut = truncate and pa.types.is_timestamp(type)
    if (ticks.denominator > 1 and not is_cut) or not -(2**63) <= math.floor(ticks) < 2**63:
        raise LostError
    return math.floor(ticks)


def _days(text: str) -> int:
    if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        raise LostError
    # Python's years begin with 1; four hundred of them have as many days as any others.
    year, month, day = map(int, text.split("-"))
    try:
        moved = 400 if year < 400 else 0
        return date(year + moved, month, day).toordinal() - date(1970 + moved, 1, 1).toordinal()
    except ValueError:
        raise LostError from None


def _bytes(text: str) -> bytes:
    plain = text.replace("-", "+").replace("_", "/").rstrip("=")
    padding = len(text) - len(plain)
    if any(sign not in _ALPHABET for sign in plain) or len(plain) % 4 == 1 or padding not in (0, -len(plain) % 4):
        raise LostError
    bits = "".join(f"{_ALPHABET.index(sign):06b}" for sign in plain)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8))


def plain(value: Any) -> Any:
    """A scalar of Arrow as Python's value, times as their numbers: no library prints all of them."""
    if not value.is_valid:
        return None
    type = value.type
    if pa.types.is_struct(type):
        return {field.name: plain(value[at]) for at, field in enumerate(type)}
    if pa.types.is_map(type):
        return [(entry[0].as_py(), plain(entry[1])) for entry in value.values]
    if pa.types.is_list(type):
        return [plain(one) for one in value.values]
    return value.value if pa.types.is_temporal(type) else value.as_py()


def is_same(found: Any, wanted: Any) -> bool:
    """Whether a value is the wanted one; NaN is NaN, and -0.0 is not 0.0."""
    if isinstance(wanted, Raw):
        return isinstance(found, str) and found == found.strip() and loads(found) == wanted.value
    if isinstance(wanted, dict):
        return isinstance(found, dict) and list(found) == list(wanted) and all(is_same(found[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list | tuple):
        return type(found) is type(wanted) and len(found) == len(wanted) and all(map(is_same, found, wanted))
    if isinstance(wanted, float):
        return repr(found) == repr(wanted)
    return found == wanted and isinstance(found, bool) == isinstance(wanted, bool)
