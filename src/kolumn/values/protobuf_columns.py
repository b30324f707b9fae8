"""What the interpreter of Protobuf leaves to do: raw columns get the types of a message. Timestamp, Duration, wrappers, enums and JSON text
are made, and of a map's equal keys the last one counts. Nothing else is copied.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import AnyArray, Flags, Int64s
from kolumn.core.times import PER_SECOND
from kolumn.cpu_fallback.values.protobuf import repeated_keys
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.protobuf_json import JsonTexts, UnfitError
from kolumn.values.protobuf_schema import JSON, TIMES, Shape, has_required, is_closed, symbols

_SECOND = 1_000_000_000
NEAR = 2**62
"""Seconds of a time that are at least so far from 0 are outside of every unit."""


def finished(shape: Shape, array: pa.Array, lost: Mapping[int, str]) -> tuple[pa.Array, Flags, dict[str, Flags]]:
    """A raw column, without an offset, with the types of a message; the rows that have no such value; and of the ``lost`` fields, by their
    `id`, which become null, the rows that lose each, by its path. There is no value if a required field is missing, a
    time is outside of its unit, or not all of a message can be JSON text. What they have in the column means nothing.
    """
    made = _Finished(np.zeros(len(array), np.bool_), lost)
    found = made.message(shape.fields, array, shape.type, ())
    if has_required(shape):
        made.wrong |= incomplete(shape.fields, array, _valid(array))
    return found, made.wrong, made.losses


def _valid(array: pa.Array) -> Flags:
    return np.asarray(array.is_valid()) if array.null_count else np.ones(len(array), np.bool_)


def incomplete(fields: tuple[Shape, ...], array: pa.Array, there: Flags) -> Flags:
    """Which rows of a raw column lack a required field, of those that are there."""
    rows = np.zeros(len(array), np.bool_)
    for number, part in enumerate(fields):
        if not has_required(part):
            continue
        column = array.field(number)
        if part.is_list or part.is_map:
            inner = column.items if part.is_map else column.values
            element = part.fields[1] if part.is_map else part
            if not len(inner) or not element.is_message:
                continue
            lacking = incomplete(element.fields, inner, _valid(inner))
            keep = _last_keys(column, column.keys) if part.is_map else None
            sums = np.concatenate(([0], np.cumsum(lacking if keep is None else lacking & keep)))
            ends = np.asarray(column.offsets)
            rows |= sums[ends[1:]] > sums[ends[:-1]]
            continue
        present = there & _valid(column)
        if part.field.is_required:
            rows |= there & ~present
        if part.is_message:
            rows |= incomplete(part.fields, column, present)
    return rows


Above = tuple[AnyArray, ...]
"""The offsets of the lists and maps around a column, from the outermost one on."""


@dataclass
class _Finished:
    """Makes the columns of one call; ``wrong`` are the rows without a value, ``losses`` those that lose a field, by its path."""

    wrong: Flags
    lost: Mapping[int, str]
    losses: dict[str, Flags] = field(default_factory=dict)
    texts: JsonTexts = field(default_factory=JsonTexts)

    def message(self, fields: tuple[Shape, ...], array: pa.Array, type: pa.DataType, above: Above) -> pa.Array:
        if array.type == type and not self.lost and not any(_has_map(part) for part in fields):
            return array
        children = [
            self.nulls(part, array, above) if id(part) in self.lost else self.field(part, array.field(number), above)
            for number, part in enumerate(fields)
        ]
        return pa.Array.from_buffers(type, len(array), array.buffers()[:1], array.null_count, children=children)

    def nulls(self, shape: Shape, message: pa.Array, above: Above) -> pa.Array:
        """A lost field of a message."""
        rows = self.losses.setdefault(self.lost[id(shape)], np.zeros(len(self.wrong), np.bool_))
        rows[_outermost(np.flatnonzero(_valid(message)), above)] = True
        return pa.nulls(len(message), shape.type)

    def field(self, shape: Shape, array: pa.Array, above: Above) -> pa.Array:
        if shape.is_map:
            return self.map(shape, array, above)
        if shape.is_list:
            values = self.value(shape, array.values, (*above, np.asarray(array.offsets)))
            return pa.Array.from_buffers(shape.type, len(array), [None, array.buffers()[1]], 0, children=[values])
        value = self.value(shape, array, above)
        return value if shape.null or not value.null_count else _unmasked(value)

    def map(self, shape: Shape, array: pa.Array, above: Above) -> pa.Array:
        keys, offsets = array.keys, array.buffers()[1]
        items = self.field(shape.fields[1], array.items, (*above, np.asarray(array.offsets)))
        keep = _last_keys(array, keys)
        if keep is not None:
            sums = np.concatenate(([0], np.cumsum(keep)))
            offsets = pa.py_buffer(sums[np.asarray(array.offsets)].astype(np.int32))
            keys, items = (part.filter(pa.array(keep)) for part in (keys, items))
        entries = pa.StructArray.from_arrays([keys, items], fields=[shape.type.key_field, shape.type.item_field])
        return pa.Array.from_buffers(shape.type, len(array), [None, offsets], 0, children=[entries])

    def value(self, shape: Shape, array: pa.Array, above: Above) -> pa.Array:
        if shape.special in TIMES:
            return self.times(array, shape.one_type, above)
        if shape.special == JSON:
            return self.json(shape, array, above)
        if shape.special:
            inner = array.field(0)
            return pa.Array.from_buffers(inner.type, len(array), [array.buffers()[0], *inner.buffers()[1:]], array.null_count)
        if shape.is_message:
            return self.message(shape.fields, array, shape.one_type, above)
        return _symbols(shape, array) if pa.types.is_dictionary(shape.one_type) else array

    def times(self, array: pa.Array, type: pa.DataType, above: Above) -> pa.Array:
        seconds, nanos = _words(array.field(0), "i8"), _words(array.field(1), "i4").astype(np.int64)
        per = PER_SECOND[type.unit]
        first, last = divmod(-(2**63), per), divmod(2**63 - 1, per)
        near = (seconds >= -NEAR) & (seconds < NEAR)
        seconds = np.where(near, seconds, 0) + nanos // _SECOND
        part = nanos % _SECOND // (_SECOND // per)
        after = (seconds > first[0]) | ((seconds == first[0]) & (part >= first[1]))
        before = (seconds < last[0]) | ((seconds == last[0]) & (part <= last[1]))
        self.note(~(near & after & before), above)
        data = pa.py_buffer(np.ascontiguousarray(seconds * per + part))
        return pa.Array.from_buffers(type, len(array), [array.buffers()[0], data], array.null_count)

    def json(self, shape: Shape, array: pa.Array, above: Above) -> pa.Array:
        made: list[str | None] = []
        wrong = np.zeros(len(array), np.bool_)
        for number, data in enumerate(array.to_pylist()):
            try:
                text, is_whole = (None, True) if data is None else self.texts.text(shape.field.message_type, data)
            except UnfitError:
                text, is_whole = "null", False
            made.append(text)
            wrong[number] = not is_whole
        self.note(wrong, above)
        return pa.ExtensionArray.from_storage(JSON_TEXT, pa.array(made, pa.string()))

    def note(self, wrong: Flags, above: Above) -> None:
        """Note the rows of level 0 that have values which are wrong."""
        if wrong.any():
            self.wrong[_outermost(np.flatnonzero(wrong), above)] = True


def _outermost(rows: Int64s, above: Above) -> Int64s:
    """The rows of level 0 in which rows of a column are."""
    for ends in reversed(above):
        rows = np.searchsorted(ends, rows, side="right") - 1
    return rows


def _symbols(shape: Shape, array: pa.Array) -> pa.Array:
    names = symbols(shape.field.enum_type)
    symbol = list(names.values())
    if not is_closed(shape.field.enum_type):
        numbers = _words(array, "i4")
        indexes = _indexes(np.array(list(names), np.int64), numbers)
        unknown = indexes < 0
        if unknown.any():
            others, which = np.unique(numbers[unknown], return_inverse=True)
            indexes[unknown] = len(names) + which.reshape(-1)
            symbol += map(str, others.tolist())
        array = pa.Array.from_buffers(pa.int32(), len(array), [array.buffers()[0], pa.py_buffer(indexes)], array.null_count)
    return pa.DictionaryArray.from_arrays(array, pa.array(symbol, pa.string()))


def _has_map(shape: Shape) -> bool:
    return shape.is_map or any(_has_map(part) for part in shape.fields)


def _unmasked(array: pa.Array) -> pa.Array:
    """An array without nulls: those of a required field are in messages that are null themselves."""
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(_unmasked(array.indices), array.dictionary)
    if pa.types.is_struct(array.type):
        children = [array.field(k) for k in range(array.type.num_fields)]
        return pa.Array.from_buffers(array.type, len(array), [None], 0, children=children)
    return pa.Array.from_buffers(array.type, len(array), [None, *array.buffers()[1:]], 0)


def _words(array: pa.Array, dtype: str) -> AnyArray:
    """The words of an array, those of nulls too."""
    return np.frombuffer(array.buffers()[1], dtype, len(array)) if len(array) else np.empty(0, dtype)


def _indexes(known: Int64s, numbers: AnyArray) -> AnyArray:
    """Where numbers are among the known ones, as int32; -1 for others."""
    low, high = int(known.min()), int(known.max())
    if high - low < 65536:
        table = np.full(high - low + 3, -1, np.int32)
        table[known - low + 1] = np.arange(len(known), dtype=np.int32)
        return table[np.clip(numbers.astype(np.int64) - low + 1, 0, high - low + 2)]
    order = np.argsort(known)
    nearest = order[np.minimum(np.searchsorted(known, numbers, sorter=order), len(known) - 1)]
    return np.where(known[nearest] == numbers, nearest, -1).astype(np.int32)


def _last_keys(array: pa.Array, keys: pa.Array) -> Flags | None:
    """Which entries of a map are kept; None if all are."""
    if len(keys) < 2:
        return None
    keep = np.ones(len(keys), np.bool_)
    words: Any = keys.cast(pa.uint8()) if pa.types.is_boolean(keys.type) else keys
    _, *buffers = words.buffers()
    data, ends, width = (buffers[1], buffers[0].address, 0) if len(buffers) == 2 else (buffers[0], 0, words.type.bit_width // 8)
    repeated = repeated_keys(array.buffers()[1].address, len(array), data.address if data else 0, ends, width, keep.ctypes.data)
    if repeated < 0:
        # A map has too many entries to compare each with each.
        codes = np.asarray(pc.dictionary_encode(keys).indices).astype(np.int64)
        rows = np.repeat(np.arange(len(array)), np.diff(np.asarray(array.offsets)))
        order = np.lexsort((codes, rows))
        same = (codes[order][1:] == codes[order][:-1]) & (rows[order][1:] == rows[order][:-1])
        keep = np.ones(len(keys), np.bool_)
        keep[order[:-1][same]] = False
        return keep if same.any() else None
    return keep if repeated else None
