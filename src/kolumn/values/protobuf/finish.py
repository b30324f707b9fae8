"""What the interpreter leaves to do: Timestamp, Duration, wrappers and enums get their types, of a map's equal keys the last one counts.

Nothing else is copied.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import AnyArray, Flags, Int64s
from kolumn.cpu_fallback.values.protobuf import repeated_keys
from kolumn.values.protobuf.types import TIMES, Shape, has_required, is_closed, symbols

_SECOND = 1_000_000_000
_FIRST, _LAST = divmod(-(2**63), _SECOND), divmod(2**63 - 1, _SECOND)
"""Seconds and nanoseconds of the first and the last time that 64 bits of nanoseconds can hold."""


def finished(shape: Shape, array: pa.Array) -> pa.Array:
    """A raw column, without an offset, with the types of a message."""
    return _message(shape.fields, array, shape.type)


def incomplete(shape: Shape, array: pa.Array) -> Flags:
    """Which rows of a raw column lack a required field."""
    return _incomplete(shape.fields, array, _valid(array))


def _valid(array: pa.Array) -> Flags:
    return np.asarray(array.is_valid()) if array.null_count else np.ones(len(array), np.bool_)


def _incomplete(fields: tuple[Shape, ...], array: pa.Array, there: Flags) -> Flags:
    """Which rows lack a required field, of those that are there."""
    found = np.zeros(len(array), np.bool_)
    for number, one in enumerate(fields):
        if not has_required(one):
            continue
        column = array.field(number)
        if one.is_list or one.is_map:
            inner = column.items if one.is_map else column.values
            part = one.fields[1].fields if one.is_map else one.fields
            if not len(inner) or (one.is_map and not one.fields[1].is_message):
                continue
            lacking = _incomplete(part, inner, _valid(inner))
            keep = _last_keys(column, column.keys) if one.is_map else None
            sums = np.concatenate(([0], np.cumsum(lacking if keep is None else lacking & keep)))
            ends = np.asarray(column.offsets)
            found |= sums[ends[1:]] > sums[ends[:-1]]
            continue
        present = there & _valid(column)
        if one.field.is_required:
            found |= there & ~present
        if one.is_message:
            found |= _incomplete(one.fields, column, present)
    return found


def _message(fields: tuple[Shape, ...], array: pa.Array, type: pa.DataType) -> pa.Array:
    if array.type == type and not any(_has_map(one) for one in fields):
        return array
    children = [_field(one, array.field(number)) for number, one in enumerate(fields)]
    return pa.Array.from_buffers(type, len(array), array.buffers()[:1], array.null_count, children=children)


def _has_map(shape: Shape) -> bool:
    return shape.is_map or any(_has_map(one) for one in shape.fields)


def _field(shape: Shape, array: pa.Array) -> pa.Array:
    if shape.is_map:
        return _map(shape, array)
    if shape.is_list:
        return pa.Array.from_buffers(shape.type, len(array), [None, array.buffers()[1]], 0, children=[_value(shape, array.values)])
    made = _value(shape, array)
    return made if shape.null or not made.null_count else _unmasked(made)


def _unmasked(array: pa.Array) -> pa.Array:
    """An array without nulls: those of a required field are in messages that are null themselves."""
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(_unmasked(array.indices), array.dictionary)
    if pa.types.is_struct(array.type):
        children = [array.field(k) for k in range(array.type.num_fields)]
        return pa.Array.from_buffers(array.type, len(array), [None], 0, children=children)
    return pa.Array.from_buffers(array.type, len(array), [None, *array.buffers()[1:]], 0)


def _value(shape: Shape, array: pa.Array) -> pa.Array:
    """A value, or the elements of a list."""
    if shape.special in TIMES:
        return _times(array, TIMES[shape.special])
    if shape.special:
        inner = array.field(0)
        return pa.Array.from_buffers(inner.type, len(array), [array.buffers()[0], *inner.buffers()[1:]], array.null_count)
    if shape.is_message:
        return _message(shape.fields, array, shape.type.value_type if shape.is_list else shape.type)
    return _symbols(shape, array) if pa.types.is_dictionary(shape.type.value_type if shape.is_list else shape.type) else array


def _words(array: pa.Array, kind: str) -> AnyArray:
    """The words of an array, those of nulls too."""
    buffer = array.buffers()[1]
    return np.frombuffer(buffer, kind, len(array)) if len(array) else np.empty(0, kind)


def _nullable(type: pa.DataType, data: AnyArray, array: pa.Array, fine: Flags) -> pa.Array:
    """An array whose nulls are those of ``array`` and what is not fine."""
    mask, nulls = array.buffers()[0], array.null_count
    if not fine.all():
        fine = fine & _valid(array)
        mask, nulls = pa.py_buffer(np.packbits(fine, bitorder="little")), len(fine) - int(np.count_nonzero(fine))
    return pa.Array.from_buffers(type, len(array), [mask, pa.py_buffer(np.ascontiguousarray(data))], nulls)


def _times(array: pa.Array, type: pa.DataType) -> pa.Array:
    seconds, nanos = _words(array.field(0), "i8"), _words(array.field(1), "i4").astype(np.int64)
    near = (seconds >= -(2**62)) & (seconds < 2**62)
    seconds = np.where(near, seconds, 0) + nanos // _SECOND
    nanos = nanos % _SECOND
    after = (seconds > _FIRST[0]) | ((seconds == _FIRST[0]) & (nanos >= _FIRST[1]))
    before = (seconds < _LAST[0]) | ((seconds == _LAST[0]) & (nanos <= _LAST[1]))
    return _nullable(type, seconds * _SECOND + nanos, array, near & after & before)


def _symbols(shape: Shape, array: pa.Array) -> pa.Array:
    names = symbols(shape.field.enum_type)
    index = array
    if not is_closed(shape.field.enum_type):
        found = _index(np.array(list(names), np.int64), _words(array, "i4"))
        index = _nullable(pa.int32(), np.maximum(found, 0), array, found >= 0)
    return pa.DictionaryArray.from_arrays(index, pa.array(list(names.values()), pa.string()))


def _index(known: Int64s, numbers: AnyArray) -> AnyArray:
    """Where numbers are among the known ones, as int32; -1 for others."""
    low, high = int(known.min()), int(known.max())
    if high - low < 65536:
        table = np.full(high - low + 3, -1, np.int32)
        table[known - low + 1] = np.arange(len(known), dtype=np.int32)
        return table[np.clip(numbers.astype(np.int64) - low + 1, 0, high - low + 2)]
    order = np.argsort(known)
    place = np.minimum(np.searchsorted(known, numbers, sorter=order), len(known) - 1)
    return np.where(known[order[place]] == numbers, order[place], -1).astype(np.int32)


def _map(shape: Shape, array: pa.Array) -> pa.Array:
    value = shape.fields[1]
    keys, items, offsets = array.keys, _field(value, array.items), array.buffers()[1]
    keep = _last_keys(array, keys)
    if keep is not None:
        sums = np.concatenate(([0], np.cumsum(keep)))
        offsets = pa.py_buffer(sums[np.asarray(array.offsets)].astype(np.int32))
        keys, items = (one.filter(pa.array(keep)) for one in (keys, items))
    entries = pa.StructArray.from_arrays([keys, items], fields=[shape.type.key_field, shape.type.item_field])
    return pa.Array.from_buffers(shape.type, len(array), [None, offsets], 0, children=[entries])


def _last_keys(array: pa.Array, keys: pa.Array) -> Flags | None:
    """Which entries are kept; None if all are."""
    if len(keys) < 2:
        return None
    keep = np.ones(len(keys), np.bool_)
    bits: Any = keys.cast(pa.uint8()) if pa.types.is_boolean(keys.type) else keys
    buffers = bits.buffers()
    text = pa.types.is_string(bits.type)
    width = 0 if text else bits.type.bit_width // 8
    data, ends = (buffers[2], buffers[1].address) if text else (buffers[1], 0)
    found = repeated_keys(array.buffers()[1].address, len(array), data.address if data else 0, ends, width, keep.ctypes.data)
    if found < 0:
        keep, found = _by_sorting(array, keys)
    return keep if found else None


def _by_sorting(array: pa.Array, keys: pa.Array) -> tuple[Flags, int]:
    codes = np.asarray(pc.dictionary_encode(keys).indices).astype(np.int64)
    rows = np.repeat(np.arange(len(array)), np.diff(np.asarray(array.offsets)))
    order = np.lexsort((codes, rows))
    same = (codes[order][1:] == codes[order][:-1]) & (rows[order][1:] == rows[order][:-1])
    keep = np.ones(len(keys), np.bool_)
    keep[order[:-1][same]] = False
    return keep, int(np.count_nonzero(same))
