"""The type that values of several Connect schemas have in common, and columns of one of these in it: exactly, or not at all.

decimals, integers          decimal with the most digits before the point and after it; text if these are over 76
integers                    the wider one
integers, floating point    float64
timestamps, times of day    the finer unit
structs                     the fields of all
others                      JSON text of what the values mean: decimals are numbers, times text in ISO 8601, bytes base64
"""

import base64
import itertools
import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import reduce

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Flags
from kolumn.core.buffers import bools
from kolumn.core.times import PER_SECOND, iso_texts, time_numbers
from kolumn.values.extensions import JSON_TEXT, in_type
from kolumn.values.retyped import NOTHING, TextDecimal, nothing_of, one_by_one

Pair = tuple[pa.DataType, pa.DataType]
"""The type in which JSON has some values, and the one that is meant."""
_MOST_DIGITS = 76
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""Digits of integers by their bits."""


def common_type(types: Sequence[pa.DataType]) -> pa.DataType:
    """The type that values of several types have in common."""
    return leaves(_usual, reduce(_joined, types))


def _usual(type: pa.DataType) -> pa.DataType:
    """Text in place of `TextDecimal`, and no negative scale."""
    if isinstance(type, TextDecimal):
        return pa.string()
    return _joined(type, pa.int8()) if pa.types.is_decimal(type) and type.scale < 0 else type


def _joined(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if left == right:
        return left
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        parts = _parts(left)
        for name, type in _parts(right).items():
            parts[name] = _joined(parts[name], type) if name in parts else type
        return pa.struct(list(parts.items()))
    if _are_alike(left, right):
        return _with_parts(left, [_joined(_parts(left)[""], _parts(right)[""])])
    if all(pa.types.is_integer(one) or pa.types.is_floating(one) for one in (left, right)):
        is_whole = pa.types.is_integer(left) and pa.types.is_integer(right)
        return max(left, right, key=lambda type: type.bit_width) if is_whole else pa.float64()
    if all(isinstance(one, TextDecimal) or pa.types.is_decimal(one) or pa.types.is_integer(one) for one in (left, right)):
        return _decimal(left, right)
    is_moment = _are_moments(left, right) and left.tz == right.tz
    if is_moment or (pa.types.is_time(left) and pa.types.is_time(right)):
        return max(left, right, key=lambda type: PER_SECOND[type.unit])
    return JSON_TEXT


def _decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if isinstance(left, TextDecimal) or isinstance(right, TextDecimal):
        return TextDecimal(0)
    digits = [(_DIGITS[one.bit_width], 0) if pa.types.is_integer(one) else (one.precision - one.scale, one.scale) for one in (left, right)]
    scale = max(0, *(scale for _, scale in digits))
    precision = scale + max(whole for whole, _ in digits)
    if precision > _MOST_DIGITS:
        return TextDecimal(0)
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def fitted(pairs: Sequence[Pair], type: pa.DataType, plain: pa.DataType | None = None) -> Pair:
    """How values of some schemas are read, and what is meant, that become of a type: with its fields alone, and nothing but null where the
    schemas do not say the same of a field. ``plain`` is how values are read of which no schema says more than JSON does.
    """
    if type != NOTHING and all(_are_alike(type, one) for pair in pairs for one in pair) and _are_alike(type, type):
        return _fitted_parts(pairs, type, plain if plain is not None and _are_alike(type, plain) else None)
    if plain is not None and all(read == meant or _is_raw(read, type) for read, meant in pairs):
        return plain, type
    if not pairs or any(pair != pairs[0] for pair in pairs):
        is_plain = bool(pairs) and all(read == meant for read, meant in pairs) and (pa.types.is_integer(type) or type == JSON_TEXT)
        return (type if is_plain else NOTHING), type
    read, meant = pairs[0]
    if plain is not None and _are_moments(meant, type):
        # A caller who names a zone says whose times they are.
        return read, pa.timestamp(meant.unit, type.tz)
    return read, type if plain is not None and (read, meant) == (pa.string(), JSON_TEXT) and pa.types.is_nested(type) else meant


def _is_raw(read: pa.DataType, type: pa.DataType) -> bool:
    """Whether a caller who names a type wants what a value is written as, whatever it means."""
    return pa.types.is_binary(type) or (pa.types.is_integer(read) and (pa.types.is_integer(type) or pa.types.is_floating(type)))


def _fitted_parts(pairs: Sequence[Pair], type: pa.DataType, plain: pa.DataType | None) -> Pair:
    made, others = [], {} if plain is None else _parts(plain)
    every = [(_parts(read), _parts(meant)) for read, meant in pairs]
    for name, part in _parts(type).items():
        own = [(read[name], meant[name]) for read, meant in every if name in read]
        made.append(fitted(own, part, others.get(name)))
    read, meant = (_with_parts(type, types) for types in zip(*made, strict=True))
    return read, meant


def leaves(make: Callable[..., pa.DataType], first: pa.DataType, *others: pa.DataType) -> pa.DataType:
    """A type like the first one, with others in place of all that have no parts, or not the same ones in all types."""
    if all(_are_alike(first, one) for one in (first, *others)):
        own, *every = map(_parts, (first, *others))
        if all(own.keys() == one.keys() for one in every):
            return _with_parts(first, [leaves(make, type, *(one[name] for one in every)) for name, type in own.items()])
    return make(first, *others)


def _are_alike(left: pa.DataType, right: pa.DataType) -> bool:
    return any(is_one(left) and is_one(right) for is_one in (pa.types.is_struct, pa.types.is_list, pa.types.is_map))


def _parts(type: pa.DataType) -> dict[str, pa.DataType]:
    """The types of a struct's fields by name, or of elements."""
    if pa.types.is_struct(type):
        return {field.name: field.type for field in type}
    return {"": type.item_type if pa.types.is_map(type) else type.value_type}


def _with_parts(type: pa.DataType, parts: Sequence[pa.DataType]) -> pa.DataType:
    if pa.types.is_struct(type):
        return pa.struct(list(zip(_parts(type), parts, strict=True)))
    return pa.map_(type.key_type, *parts) if pa.types.is_map(type) else pa.list_(*parts)


def exact(array: pa.Array, type: pa.DataType, is_cut: bool = False) -> tuple[pa.Array, Flags]:
    """A column in a type that holds its values exactly, as `kolumn.values.retyped.Leaf`. With ``is_cut`` digits of times are cut off."""
    own = array.type
    none = np.zeros(len(array), bool)
    if type == JSON_TEXT or pa.types.is_string(type):
        # Text has any other value as its JSON text, without quotes.
        quote = "" if type == JSON_TEXT or own == JSON_TEXT or pa.types.is_nested(own) else '"'
        texts = [text.strip(quote) for text in _json_texts(array)]
        return in_type(pa.array(texts, pa.string(), mask=~bools(array.is_valid())), type), none
    if (_are_moments(own, type) and own.tz == type.tz) or (pa.types.is_time(own) and pa.types.is_time(type)):
        return _in_unit(array, type, is_cut)
    if isinstance(own, TextDecimal) and _is_number(type):
        return one_by_one(array.storage, lambda text: _exactly(Decimal(text), type), type)
    return _numbers(array, type) if _is_number(own) and _is_number(type) else nothing_of(array, type)


def _are_moments(left: pa.DataType, right: pa.DataType) -> bool:
    return pa.types.is_timestamp(left) and pa.types.is_timestamp(right)


def _is_number(type: pa.DataType) -> bool:
    return pa.types.is_integer(type) or pa.types.is_decimal(type) or pa.types.is_floating(type)


def _in_unit(array: pa.Array, type: pa.DataType, is_cut: bool) -> tuple[pa.Array, Flags]:
    own, wanted = PER_SECOND[array.type.unit], PER_SECOND[type.unit]
    numbers, there = time_numbers(array).fill_null(0).to_numpy(), bools(array.is_valid())
    if wanted >= own:
        most = (2**63 - 1) // (wanted // own)
        fine = (numbers <= most) & (numbers >= -most)
        made = np.where(fine, numbers, 0) * (wanted // own)
    else:
        made, rest = np.divmod(numbers, own // wanted)
        fine = (rest == 0) | is_cut
    words = pa.array(made, pa.int64(), mask=~(there & fine))
    return words.cast(pa.int32() if type.bit_width == 32 else pa.int64()).view(type), there & ~fine


def _numbers(array: pa.Array, type: pa.DataType) -> tuple[pa.Array, Flags]:
    own = array.type
    if pa.types.is_integer(own) and pa.types.is_decimal(type):
        array = array.cast(pa.decimal128(_DIGITS[64], 0))
    # Arrow rounds fractions silently where a type has not all of their digits.
    rounds = pa.types.is_floating(type) and not pa.types.is_integer(own) and own != pa.float32()
    if not rounds and not (pa.types.is_floating(own) and pa.types.is_decimal(type)):
        try:
            return array.cast(type), np.zeros(len(array), bool)
        except pa.ArrowInvalid:
            pass
    return one_by_one(array, lambda value: _exactly(value, type), type)


def _exactly(value: int | float | Decimal, type: pa.DataType) -> object:
    """A number as one of a type; an error if that has not the same number."""
    kind = int if pa.types.is_integer(type) else Decimal if pa.types.is_decimal(type) else float
    with np.errstate(over="ignore"):
        found = pa.scalar(np.float32(value) if type == pa.float32() else kind(value), type).as_py()
    if found != value and not (math.isnan(value) and pa.types.is_floating(type)):
        raise ValueError
    return found


def _json_texts(array: pa.Array) -> list[str]:
    """The JSON text of each value."""
    type, there = array.type, bools(array.is_valid()).tolist()
    if pa.types.is_struct(type):
        names = [json.dumps(field.name, ensure_ascii=False) for field in type]
        rows = zip(*map(_json_texts, array.flatten()), strict=True) if names else [()] * len(array)
        texts = ["{" + ", ".join(f"{name}: {part}" for name, part in zip(names, row, strict=True)) + "}" for row in rows]
    elif pa.types.is_list(type) or pa.types.is_map(type):
        inner = _json_texts(array.values if pa.types.is_list(type) else array.items)
        if pa.types.is_map(type):
            inner = [f"{name}: {text}" for name, text in zip(_json_texts(array.keys), inner, strict=True)]
        ends, (begin, end) = array.offsets.to_pylist(), "{}" if pa.types.is_map(type) else "[]"
        texts = [f"{begin}{', '.join(inner[first:last])}{end}" for first, last in itertools.pairwise(ends)]
    else:
        texts = _leaf_texts(array)
    return [text if own else "null" for text, own in zip(texts, there, strict=True)]


def _leaf_texts(array: pa.Array) -> list[str]:
    type = array.type
    if pa.types.is_temporal(type):
        numbers = time_numbers(array).fill_null(0).to_numpy()
        if pa.types.is_date(type):
            return [f'"{text.partition("T")[0]}"' for text in iso_texts(numbers * 86_400, "s")]
        zone = "Z" if pa.types.is_timestamp(type) and type.tz is not None else ""
        return [f'"{text.partition("T")[2] if pa.types.is_time(type) else text + zone}"' for text in iso_texts(numbers, type.unit)]
    return [_leaf_text(value, type) for value in array.to_pylist()]


def _leaf_text(value: object, type: pa.DataType) -> str:
    if type == JSON_TEXT:
        return str(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    if isinstance(value, float):
        if not math.isfinite(value):
            return '"NaN"' if math.isnan(value) else f'"{"-" if value < 0 else ""}Infinity"'
        return str(np.float32(value)) if type == pa.float32() else repr(value)
    # The text of a decimal is a number.
    return str(value) if isinstance(type, TextDecimal) else json.dumps(value, ensure_ascii=False)
