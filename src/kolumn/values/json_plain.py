"""One JSON value as a type says, in plain Python, field by field: the reference of the compiled loop, and what decides the values that the
loop does not. Nothing here is limited by the depth of a value: only what a type has is read by calls in each other.
"""

import binascii
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache

import numpy as np
import pyarrow as pa

from kolumn.core.lost import ELEMENTS, WHOLE
from kolumn.values.extensions import JSON_TEXT

_STRING = r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
_SPACE = re.compile(r"[ \t\n\r]*")
_NAME = re.compile(_STRING)
_SCALAR = re.compile(rf"{_STRING}|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+|true|false|null|NaN|-?Infinity")
_NO_NUMBER = re.compile(rf"{_STRING}|(NaN|Infinity)")
_INTEGER = re.compile(r"-?[0-9]{1,20}\Z")
_MOST_DIGITS = 20  # Of an integer of 64 bits.
# Nothing is tried twice: text that others chose would take the square of its length.
_DECIMAL = re.compile(r"([+-]?)(?=\.?[0-9])([0-9]*+)\.?([0-9]*+)(?:[eE]([+-]?[0-9]{1,9}))?\Z")
_ZONE = r"([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)"
_CLOCK = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]+))?)?"
_DATE = r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
_ONLY_DATE, _ONLY_CLOCK = re.compile(rf"{_DATE}\Z"), re.compile(rf"{_CLOCK}\Z")
_MOMENT = re.compile(rf"{_DATE}(?:[Tt ](?:{_CLOCK}|([0-9]{{2}})){_ZONE}?)?\Z")
_BASE64 = re.compile(r"([A-Za-z0-9+/]*)(={0,2})\Z")
_URL_SAFE = str.maketrans("-_", "+/")
DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""Digits of a second's fraction by its unit."""
Reader = Callable[[str], object]


class MalformedError(ValueError):
    """A text that is not JSON, of whatever type."""


@dataclass(frozen=True)
class PlainType:
    """A type, and how its values are read: ``fields`` of an object, the ``element`` of a list or map, or the text of any other value by
    ``read``, which raises ValueError for one that does not fit.
    """

    opens: str
    path: str
    read: Reader
    fields: "dict[str, PlainType]" = field(default_factory=dict)
    element: "PlainType | None" = None

    @classmethod
    def of(cls, type: pa.DataType, truncate: bool = False, path: str = "") -> "PlainType":
        if pa.types.is_struct(type):
            inner = {part.name: cls.of(part.type, truncate, f"{path}.{part.name}" if path else part.name) for part in type}
            return cls("{", path, _refused, inner)
        if pa.types.is_map(type) or pa.types.is_list(type):
            is_map = pa.types.is_map(type)
            element = cls.of(type.item_type if is_map else type.value_type, truncate, path)
            return cls("{" if is_map else "[", path, _refused, element=element)
        return cls("", path, _leaf(type, truncate))

    def value(self, body: bytes) -> tuple[object, frozenset[str]]:
        """The value as Python's, for `kolumn.values.extensions.column_of`, and the paths of what is lost of it."""
        try:
            text = _Text(body.decode("utf-8-sig"))
            if self.opens and text.first() != self.opens:
                return None, frozenset((WHOLE,))
            value = _read(text, self)
            text.end()
            lost = frozenset(path or (ELEMENTS if self.opens else WHOLE) for path in text.lost)
            # Text as it stands, with the white space around it.
            return (text.text if self.read is _json and not lost else value), lost
        except ValueError:
            return None, frozenset((WHOLE,))


class _Text:
    """A text, the place that is read next, and the paths of what was lost so far."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.lost: set[str] = set()

    def first(self) -> str:
        """The next character that is no white space; empty at the end."""
        found = _SPACE.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        return self.text[self.at : self.at + 1]

    def end(self) -> None:
        if self.first():
            raise MalformedError

    def token(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise MalformedError
        self.at = found.end()
        return found[0]

    def name(self) -> str:
        """The text of a member's name, up to the value."""
        self.first()
        name = self.token(_NAME)
        if self.first() != ":":
            raise MalformedError
        self.at += 1
        return name

    def parts(self, close: str) -> Iterator[None]:
        """Stops at each element or member of what the next character opens, and passes over what is between them."""
        self.at += 1
        if self.first() == close:
            self.at += 1
            return
        while True:
            yield
            sign = self.first()
            self.at += 1
            if sign == close:
                return
            if sign != ",":
                raise MalformedError

    def value(self) -> str:
        """The text of a value of any kind."""
        self.first()
        begin, opened = self.at, []
        while True:
            sign = self.first()
            if sign in ("{", "["):
                self.at += 1
                opened.append("}" if sign == "{" else "]")
                if self.first() != opened[-1]:
                    if sign == "{":
                        self.name()
                    continue
            else:
                self.token(_SCALAR)
            while opened and self.first() == opened[-1]:
                self.at += 1
                opened.pop()
            if not opened:
                return self.text[begin : self.at]
            if self.first() != ",":
                raise MalformedError
            self.at += 1
            if opened[-1] == "}":
                self.name()


def _read(text: _Text, kind: PlainType) -> object:
    if not kind.opens or text.first() != kind.opens:
        raw = text.value()
        try:
            return None if raw == "null" else kind.read(raw)
        except ValueError:
            text.lost.add(kind.path)
            return None
    if kind.element is None:
        return _members(text, kind)
    return [_read(text, kind.element) for _ in text.parts("]")] if kind.opens == "[" else _entries(text, kind, kind.element)


def _members(text: _Text, kind: PlainType) -> dict[str, object]:
    members: dict[str, object] = dict.fromkeys(kind.fields)
    seen = set()
    for _ in text.parts("}"):
        name = unquoted(text.name(), "surrogatepass")
        inner = kind.fields.get(name)
        if inner is None:
            text.value()
        elif name not in seen:
            seen.add(name)
            members[name] = _read(text, inner)
        else:
            # Which one of them is meant is not known.
            text.value()
            text.lost.add(inner.path)
            members[name] = None
    return members


def _entries(text: _Text, kind: PlainType, element: PlainType) -> list[tuple[str, object]]:
    entries: dict[str, object] = {}
    for _ in text.parts("}"):
        raw = text.name()
        value = _read(text, element)
        try:
            key = unquoted(raw)
        except ValueError:
            # No column of text has such a key.
            text.lost.add(kind.path)
            continue
        if key in entries:
            text.lost.add(kind.path)
            value = None
        entries[key] = value
    return list(entries.items())


def unquoted(text: str, errors: str = "strict") -> str:
    """The characters of a string; UnicodeError for a surrogate without its other half, unless ``errors`` lets it pass."""
    if "\\" not in text:
        return text[1:-1]
    found: str = json.loads(text)
    found.encode("utf-8", errors)
    return found


def _refused(text: str) -> object:
    raise ValueError


def _leaf(type: pa.DataType, truncate: bool) -> Reader:
    if type == JSON_TEXT:
        return _json
    if pa.types.is_string(type):
        return lambda raw: unquoted(raw) if raw.startswith('"') else raw
    if pa.types.is_boolean(type):
        return _boolean
    if pa.types.is_integer(type):
        limits = np.iinfo(type.to_pandas_dtype())
        return lambda raw: _integer(raw, int(limits.min), int(limits.max))
    if pa.types.is_floating(type):
        return _float64 if type.bit_width == 64 else _float32
    of_text = text_reader(type, truncate)
    if pa.types.is_decimal(type):
        return lambda raw: of_text(unquoted(raw) if raw.startswith('"') else raw)
    return lambda raw: of_text(unquoted(raw)) if raw.startswith('"') else _refused(raw)


def _json(raw: str) -> str:
    if ("N" in raw or "I" in raw) and any(found[1] for found in _NO_NUMBER.finditer(raw)):
        raise ValueError
    return raw


def _boolean(raw: str) -> bool:
    if raw not in ("true", "false"):
        raise ValueError
    return raw == "true"


def _integer(raw: str, least: int, most: int) -> int:
    """A number whose value is an integer, such as 1.0 and 1e3."""
    number = int(raw) if _INTEGER.match(raw) is not None else int(_decimal(raw, _MOST_DIGITS, 0))
    if (least == 0 and raw[0] == "-") or not least <= number <= most:
        raise ValueError
    return number


def _float64(raw: str) -> float:
    number = float(raw)
    if math.isinf(number) and not raw.endswith("y"):
        # No float is as large; Infinity is one.
        raise ValueError
    return number


def _float32(raw: str) -> float:
    """The nearest float32. A float64 in the middle between two of them may itself be rounded: then the digits decide."""
    number = _float64(raw)
    if not math.isfinite(number):
        return number
    with np.errstate(over="ignore", under="ignore"):
        near = np.float32(number)
        other = np.nextafter(near, np.float32(math.copysign(math.inf, number - _finite(near))))
        if abs(_finite(other) - number) == abs(_finite(near) - number) and (exact := Decimal(raw)) != (middle := Decimal(number)):
            near = max(near, other) if exact > middle else min(near, other)
    if np.isinf(near):
        raise ValueError
    return float(near)


def _finite(number: np.float32) -> float:
    """A float32 as a float64; for an infinite one what would be the next one."""
    return float(number) if np.isfinite(number) else math.copysign(2.0**128, number)


def text_reader(type: pa.DataType, truncate: bool = False) -> Reader:
    """Reads the characters of a string as a time, a date, a decimal or bytes; ValueError if they are none, or do not fit. With ``truncate``
    the digits of a timestamp that its unit does not have are cut off.
    """
    if pa.types.is_timestamp(type):
        return lambda text: _timestamp(text, type.unit, type.tz is not None, truncate)
    if pa.types.is_date(type):
        return _days
    if pa.types.is_time(type):
        return lambda text: _time(text, type.unit)
    return (lambda text: _decimal(text, type.precision, type.scale)) if pa.types.is_decimal(type) else _bytes


def _found(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.match(text)
    if found is None:
        raise ValueError
    return found


@lru_cache(1 << 12)
def _days(text: str) -> int:
    return int(np.datetime64(_found(_ONLY_DATE, text)[1], "D").astype(np.int64))


def _time(text: str, unit: str) -> int:
    return _ticks(0, *_found(_ONLY_CLOCK, text).groups(), unit=unit)


def _timestamp(text: str, unit: str, is_zoned: bool, truncate: bool) -> int:
    date, hour, minute, second, fraction, only_hour, zone = _found(_MOMENT, text).groups()
    if zone is not None and not is_zoned:
        raise ValueError
    ticks = _ticks(86_400 * _days(date), hour or only_hour, minute, second, fraction, unit=unit, truncate=truncate)
    if zone is not None and zone not in "Zz":
        hours, minutes = int(zone[1:3]), int(zone[-2:]) if len(zone) > 3 else 0
        _check(hours, minutes, 0)
        ticks -= int(f"{zone[0]}1") * (3600 * hours + 60 * minutes) * 10 ** DIGITS[unit]
    if not -(2**63) <= ticks < 2**63:
        raise ValueError
    return ticks


def _ticks(
    seconds: int, hour: str | None, minute: str | None, second: str | None, fraction: str | None, *, unit: str, truncate: bool = False
) -> int:
    """Units since 1970, or since midnight."""
    clock = [int(part or 0) for part in (hour, minute, second)]
    _check(*clock)
    digits = DIGITS[unit]
    kept, rest = (fraction or "")[:digits], (fraction or "")[digits:]
    if rest.strip("0") and not truncate:
        raise ValueError
    return (seconds + 3600 * clock[0] + 60 * clock[1] + clock[2]) * 10**digits + int(kept.ljust(digits, "0") or 0)


def _check(hour: int, minute: int, second: int) -> None:
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError


def _decimal(text: str, precision: int, scale: int) -> Decimal:
    sign, whole, fraction, exponent = _found(_DECIMAL, text).groups()
    digits = (whole + fraction).lstrip("0")
    # How many digits stay, of those of the number without its point.
    kept = len(digits) + int(exponent or 0) - len(fraction) + scale if digits else 0
    if digits[max(kept, 0) :].strip("0") or kept > precision:
        raise ValueError
    number = digits[: max(kept, 0)].ljust(kept, "0") or "0"
    return Decimal(f"{sign}{number}E-{scale}")


def _bytes(text: str) -> bytes:
    plain, end = _found(_BASE64, text.translate(_URL_SAFE)).groups()
    if end and len(text) % 4:
        raise ValueError
    return binascii.a2b_base64(plain + "=" * (-len(plain) % 4))
