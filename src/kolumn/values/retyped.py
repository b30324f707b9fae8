"""Columns in the types that are meant: Kafka Connect and Debezium write times, decimals and bytes as numbers and text, and say in a schema
what these are. The type of a column and the type that it becomes say together how.

    int32, int64               date32, time32, time64, timestamp    the same number
    binary                     decimal, `TextDecimal`               the unscaled number, big-endian
    `JSON_TEXT`                decimal, `TextDecimal`               text is the unscaled number in base64, a number is the decimal
    `JSON_TEXT`                float32, float64                     a number, or "NaN", "Infinity" or "-Infinity"
    text                       binary                               base64
    text                       `JSON_TEXT`                          the same text, if it is JSON
    text                       list, map, struct                    what it is as JSON
    text, 16 bytes             uuid                                 hexadecimal digits with hyphens; the same bytes
    struct of scale and value  text, `TextDecimal`                  a decimal, `io.debezium.data.VariableScaleDecimal`

How values of one meaning become those of another one is in `kolumn.values.common_types`.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Flags
from kolumn.core.buffers import bools
from kolumn.core.times import per_day
from kolumn.values.base64_texts import from_base64
from kolumn.values.decoder import only_rows, spread
from kolumn.values.extensions import JSON_TEXT, in_type
from kolumn.values.framing import BareFramer
from kolumn.values.json import JsonDecoder
from kolumn.values.json_plain import PlainType, unquoted
from kolumn.values.json_texts import typed_texts

Failures = list[tuple[str, Flags]]
"""Dotted paths of fields, and the rows that have a value there which the type has not; its place in the column is null."""
Leaf = Callable[[pa.Array, pa.DataType], tuple[pa.Array, Flags]]
"""Makes a column of values without fields, or whose fields differ, one of another type, and says which of them have not become that."""
NOTHING = pa.struct([])  # As a type to read: of what is there, nobody knows what it means.
_MOST_SCALE = 10_000  # A larger scale is written as an exponent.


class TextDecimal(pa.ExtensionType):
    """Text of decimals that have more digits than a type of Arrow, or a scale that none has, or each its own."""

    def __init__(self, scale: int) -> None:
        self.scale = scale
        super().__init__(pa.string(), "kolumn.text_decimal")

    def __arrow_ext_serialize__(self) -> bytes:
        return str(self.scale).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> "TextDecimal":
        return cls(int(serialized))


def retyped(array: pa.Array, type: pa.DataType, path: str = "", leaf: Leaf | None = None) -> tuple[pa.Array, Failures]:
    """A column in a type that has the same fields, and what could not become of that type. Copies only what changes. ``leaf`` is by default
    what the table above says.
    """
    if array.type == type:
        return array, []
    if array.null_count == len(array):
        return pa.nulls(len(array), type), []
    if pa.types.is_struct(array.type) and pa.types.is_struct(type) and array.type != NOTHING:
        return _struct(array, type, path, leaf)
    if any(is_one(array.type) and is_one(type) for is_one in (pa.types.is_list, pa.types.is_map)):
        return _items(array, type, path, leaf)
    made, failed = nothing_of(array, type) if array.type == NOTHING else (leaf or _leaf)(array, type)
    return made, [(path, failed)] if failed.any() else []


def nothing_of(array: pa.Array, type: pa.DataType) -> tuple[pa.Array, Flags]:
    """What becomes of a column none of whose values the type has."""
    return pa.nulls(len(array), type), bools(array.is_valid())


def _struct(array: pa.StructArray, type: pa.StructType, path: str, leaf: Leaf | None) -> tuple[pa.Array, Failures]:
    children, failures = [], Failures()
    for child, field in zip(array.flatten(), type, strict=True):
        made, failed = retyped(child, field.type, f"{path}.{field.name}" if path else field.name, leaf)
        children.append(made)
        failures += failed
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(type), mask=mask), failures


def _items(array: pa.Array, type: pa.DataType, path: str, leaf: Leaf | None) -> tuple[pa.Array, Failures]:
    """Of a list or a map: what fails in an element is the row's."""
    if pa.types.is_map(type):
        items, failures = retyped(array.items, type.item_type, path, leaf)
        inner = pa.StructArray.from_arrays([array.keys, items], fields=[type.key_field, type.item_field])
    else:
        inner, failures = retyped(array.values, type.value_type, path, leaf)
    ends, there = np.asarray(array.offsets), bools(array.is_valid())
    rows = Failures()
    for name, elements in failures:
        before = np.concatenate([[0], np.cumsum(elements)])
        rows.append((name, there & (before[ends[1:]] > before[ends[:-1]])))
    made = pa.Array.from_buffers(type, len(array), array.buffers()[:2], array.null_count, array.offset, [inner])
    return made, [(name, failed) for name, failed in rows if failed.any()]


def _leaf(array: pa.Array, type: pa.DataType) -> tuple[pa.Array, Flags]:
    none = np.zeros(len(array), bool)
    if type == pa.uuid():
        stored, wrong = _uuids(array) if pa.types.is_string(array.type) else (array, none)
        return in_type(stored, type), wrong
    if type == JSON_TEXT or (pa.types.is_string(array.type) and pa.types.is_nested(type)):
        # Debezium has other text in place of JSON that it does not know.
        return _parsed(array, type)
    if array.type == JSON_TEXT:
        return _of_json(array.storage, type)
    if pa.types.is_temporal(type):
        return _times(array, type)
    if pa.types.is_struct(array.type):
        made, failed = one_by_one(array, lambda parts: _text(parts["scale"], parts["value"]), pa.string())
        return in_type(made, type), failed
    return from_base64(array) if pa.types.is_string(array.type) else _unscaled(array, type)


def _unscaled(array: pa.BinaryArray, type: pa.DataType) -> tuple[pa.Array, Flags]:
    """Decimals of their unscaled numbers."""
    if not isinstance(type, TextDecimal):
        return _decimals(array, type)
    made, failed = one_by_one(array, lambda value: _text(type.scale, value), pa.string())
    return in_type(made, type), failed


def _parsed(texts: pa.StringArray, type: pa.DataType) -> tuple[pa.Array, Flags]:
    """Texts as values of JSON."""
    bodies, _ = BareFramer().bodies(texts.cast(pa.binary()))
    found, valid = JsonDecoder(type).decode(bodies)
    return found, bools(texts.is_valid()) & ~valid


def _of_json(texts: pa.StringArray, type: pa.DataType) -> tuple[pa.Array, Flags]:
    if pa.types.is_floating(type):
        read = PlainType.of(type).read
        return one_by_one(texts, lambda text: read(_NUMBERS.get(text, text)), type)
    if not isinstance(type, TextDecimal) and not pa.types.is_decimal(type):
        return nothing_of(texts, type)
    is_text = pc.fill_null(pc.starts_with(texts, '"'), False)
    coded, others = pc.if_else(is_text, texts, None), pc.if_else(is_text, None, texts)
    has_escapes = pc.any(pc.match_substring(coded, "\\")).as_py()
    plain, odd = one_by_one(coded, unquoted, pa.string()) if has_escapes else (pc.ascii_trim(coded, '"'), np.zeros(len(coded), bool))
    data, failed = from_base64(plain)
    made, too_large = _unscaled(data, type)
    failed = failed | too_large | odd
    if others.null_count < len(others):
        numbers, wrong = _of_numbers(others, type)
        made, failed = pa.concat_arrays([made, numbers]).take(pa.array(np.arange(len(made)) + len(made) * ~bools(is_text))), failed | wrong
    return made, failed


_NUMBERS = {f'"{name}"': name for name in ("NaN", "Infinity", "-Infinity")}
"""Numbers that JSON has not, as `JsonConverter` writes them, and as Python reads them."""


def _of_numbers(texts: pa.StringArray, type: pa.DataType) -> tuple[pa.Array, Flags]:
    """Decimals of texts of JSON's numbers (``decimal.format=NUMERIC``)."""
    if isinstance(type, TextDecimal):
        made, failed = one_by_one(texts, lambda text: _shortened(text, type.scale), pa.string())
        return in_type(made, type), failed
    made = typed_texts(texts, type, truncate=False) if type.scale >= 0 else pa.nulls(len(texts), type)
    return made, bools(texts.is_valid()) & bools(made.is_null())


def _shortened(text: str, scale: int) -> str:
    """The digits of a number, as many after the point as a scale says; ValueError if it has more."""
    sign, digits, exponent = Decimal(text).as_tuple()
    zeros = int(exponent) + scale
    if abs(zeros) > _MOST_SCALE or (zeros < 0 and any(digits[zeros:])):
        raise ValueError
    unscaled = int("".join(map(str, digits[:zeros] if zeros < 0 else digits)) or 0) * 10 ** max(zeros, 0)
    return _digits(scale, -unscaled if sign else unscaled)


def one_by_one(array: pa.Array, make: Callable[[Any], object], type: pa.DataType) -> tuple[pa.Array, Flags]:
    """What a function makes of each value that is there; a value for which it raises an error fails."""
    failed, made = np.zeros(len(array), bool), list[object]()
    for row, value in enumerate(array.to_pylist()):
        try:
            made.append(None if value is None else make(value))
        except (ValueError, TypeError, ArithmeticError):
            failed[row] = True
            made.append(None)
    return pa.array(made, type), failed


def _times(array: pa.Array, type: pa.DataType) -> tuple[pa.Array, Flags]:
    failed = np.zeros(len(array), bool)
    if pa.types.is_time(type):
        # MySQL's type TIME has negative times, and such of more than a day.
        number = pc.fill_null(array, 0).to_numpy()
        failed = (number < 0) | (number >= per_day(type))
    return only_rows(array.cast(pa.int32() if type.bit_width == 32 else pa.int64()), ~failed).view(type), failed


def _uuids(texts: pa.StringArray) -> tuple[pa.FixedSizeBinaryArray, Flags]:
    """The bytes of UUIDs in the form of RFC 9562, with digits of either case, and which texts are none."""
    right = bools(pc.fill_null(pc.match_substring_regex(texts, _UUID), False))
    some = texts.filter(pa.array(right)) if not right.all() else texts
    found = bytes.fromhex("".join(some.to_pylist()).replace("-", ""))
    made = pa.Array.from_buffers(pa.binary(16), len(some), [None, pa.py_buffer(found)])
    return spread(made, right), bools(texts.is_valid()) & ~right


_UUID = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"


def _text(scale: int, value: bytes) -> str:
    """The decimal of an unscaled number; ValueError without a byte."""
    if not value:
        raise ValueError
    return _digits(scale, int.from_bytes(value, "big", signed=True))


def _digits(scale: int, unscaled: int) -> str:
    """The digits as they would be in SQL."""
    if not 0 <= scale <= _MOST_SCALE:
        return f"{unscaled}E{-scale}"
    digits = f"{abs(unscaled):0{scale + 1}}"
    return f"{'-' if unscaled < 0 else ''}{digits[: len(digits) - scale]}{'.' if scale else ''}{digits[len(digits) - scale :]}"


def _decimals(array: pa.BinaryArray, type: pa.DataType) -> tuple[pa.Array, Flags]:
    """Decimals of their unscaled numbers, in two's complement, the highest byte first; Arrow has the lowest first, in all bytes of a type.
    A number without a byte, or with more digits than the type has, fails.
    """
    count, width = len(array), type.bit_width // 8
    _, ends, data = array.buffers()
    ends = np.frombuffer(ends, np.int32, count + 1, 4 * array.offset).astype(np.int64)
    size = np.diff(ends)
    failed = bools(array.is_valid()) & ((size == 0) | (size > width))
    size[(size > width) | ~bools(array.is_valid())] = 0
    words = np.zeros((count, width), np.uint8)
    row = np.repeat(np.arange(count), size)
    place = np.arange(len(row)) - np.repeat(np.cumsum(size) - size, size)
    found = np.frombuffer(b"" if data is None else data, np.uint8)[np.repeat(ends[:-1], size) + place]
    # Bytes above those of a negative number.
    negative = np.zeros(count, bool)
    negative[row[place == 0]] = found[place == 0] >= 128
    words[negative] = 255
    words[row, np.repeat(size, size) - 1 - place] = found
    null = ~bools(array.is_valid()) | failed
    made = pa.Array.from_buffers(type, count, [pa.array(~null).buffers()[1], pa.py_buffer(words)])
    too_large = _too_large(made)
    return only_rows(made, ~too_large), failed | too_large


def _too_large(array: pa.Array) -> Flags:
    flags = np.zeros(len(array), bool)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        if len(array) == 1:
            flags[0] = True
            return flags
        half = len(array) // 2
        flags[:half], flags[half:] = _too_large(array[:half]), _too_large(array[half:])
    return flags
