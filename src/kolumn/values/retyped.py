"""Columns in the types that are meant: Kafka Connect and Debezium write times, decimals and bytes as numbers and text, and say in a schema
what these are. The type of a column and the type that it becomes say together how.

    int32, int64               date32, time32, time64, timestamp    the same number
    text, binary               decimal                              the unscaled number, big-endian; of text in base64
    text                       binary                               base64
    text                       `JSON_TEXT`                          the same text
    text, 16 bytes             uuid                                 hexadecimal digits with hyphens; the same bytes
    struct of scale and value  text                                 a decimal, `io.debezium.data.VariableScaleDecimal`
    timestamp                  timestamp                            in another unit, cut off
"""

import base64

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Bytes, Flags
from kolumn.core.buffers import bools
from kolumn.core.times import per_day
from kolumn.values.decoder import only_rows, spread
from kolumn.values.extensions import JSON_TEXT, in_type

Failures = list[tuple[str, Flags]]
"""Dotted paths of fields, and the rows that have a value there which the type has not; its place in the column is null."""
_MOST_SCALE = 10_000  # A larger scale is written as an exponent.


def retyped(array: pa.Array, type: pa.DataType, path: str = "") -> tuple[pa.Array, Failures]:
    """A column in a type that has the same fields, and what could not become of that type. Copies only what changes."""
    if array.type == type:
        return array, []
    if pa.types.is_struct(array.type) and pa.types.is_struct(type):
        return _struct(array, type, path)
    if pa.types.is_list(array.type) or pa.types.is_map(array.type):
        return _items(array, type, path)
    made, failed = _leaf(array, type)
    return made, [(path, failed)] if failed.any() else []


def _struct(array: pa.StructArray, type: pa.StructType, path: str) -> tuple[pa.Array, Failures]:
    children, failures = [], Failures()
    for child, field in zip(array.flatten(), type, strict=True):
        made, failed = retyped(child, field.type, f"{path}.{field.name}" if path else field.name)
        children.append(made)
        failures += failed
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(type), mask=mask), failures


def _items(array: pa.Array, type: pa.DataType, path: str) -> tuple[pa.Array, Failures]:
    """Of a list or a map: what fails in an element is the row's."""
    if pa.types.is_map(type):
        items, failures = retyped(array.items, type.item_type, path)
        inner = pa.StructArray.from_arrays([array.keys, items], fields=[type.key_field, type.item_field])
    else:
        inner, failures = retyped(array.values, type.value_type, path)
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
    if type == JSON_TEXT:
        return in_type(array, type), none
    if pa.types.is_timestamp(array.type):
        return array.cast(type, safe=False), none
    if pa.types.is_temporal(type):
        return _times(array, type)
    if pa.types.is_struct(array.type):
        return _texts(array)
    failed = none
    if pa.types.is_string(array.type):
        array, failed = from_base64(array)
    if pa.types.is_decimal(type):
        array, too_large = _decimals(array, type)
        failed = failed | too_large
    return array, failed


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


def from_base64(texts: pa.StringArray) -> tuple[pa.BinaryArray, Flags]:
    """Texts in base64, padded, as bytes, and which of them are not that: four characters of six bits are three bytes."""
    there = bools(texts.is_valid())
    size = pc.fill_null(pc.binary_length(texts), 0).to_numpy()
    failed = there & (size % 4 != 0)
    rows = np.flatnonzero(there & ~failed)
    some = texts if len(rows) == len(texts) else texts.take(pa.array(rows))
    _, ends, data = some.buffers()
    ends = np.frombuffer(ends, np.int32, len(some) + 1, 4 * some.offset).astype(np.int64)
    codes = _CODES[np.frombuffer(b"" if data is None else data, np.uint8)[ends[0] : ends[-1]]]
    ends -= ends[0]
    last = ends[1:][ends[1:] > ends[:-1]]
    pads = np.zeros(len(some), np.int64)
    pads[ends[1:] > ends[:-1]] = np.where(codes[last - 1] != _PAD, 0, np.where(codes[last - 2] != _PAD, 1, 2))
    others = np.concatenate([[0], np.cumsum(codes >= _PAD)])
    wrong = others[ends[1:]] - others[ends[:-1]] != pads
    words = (codes.reshape(-1, 4).astype(np.uint32) & 63) << np.array([18, 12, 6, 0], np.uint32)
    found = words.sum(1, dtype=np.uint32).astype(">u4").view(np.uint8).reshape(-1, 4)[:, 1:].reshape(-1)
    keep, bounds = np.ones(len(found), bool), ends[1:] // 4 * 3
    keep[bounds[pads > 0] - 1] = False
    keep[bounds[pads > 1] - 2] = False
    offsets = np.concatenate([[0], bounds - np.cumsum(pads)]).astype(np.int32)
    made = pa.Array.from_buffers(pa.binary(), len(some), [None, pa.py_buffer(offsets), pa.py_buffer(found[keep])])
    failed[rows[wrong]] = True
    return spread(only_rows(made, ~wrong), there & (size % 4 == 0)), failed


def _codes() -> Bytes:
    codes = np.full(256, _PAD + 1, np.uint8)
    codes[list(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")] = np.arange(64)
    codes[ord("=")] = _PAD
    return codes


_PAD = 64
_CODES = _codes()


def _texts(array: pa.StructArray) -> tuple[pa.Array, Flags]:
    """Decimals as text, from scale and unscaled value, one by one."""
    failed, made = np.zeros(len(array), bool), list[str | None]()
    for row, parts in enumerate(array.to_pylist()):
        try:
            made.append(None if parts is None else _text(parts["scale"], parts["value"]))
        except (ValueError, TypeError):
            failed[row] = True
            made.append(None)
    return pa.array(made, pa.string()), failed


def _text(scale: int, value: str | bytes) -> str:
    """The digits as they would be in SQL."""
    unscaled = int.from_bytes(base64.b64decode(value, validate=True) if isinstance(value, str) else value, "big", signed=True)
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
