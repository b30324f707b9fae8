"""The decoder of Protobuf: the tables of a message's fields that have columns, for the interpreter in `kolumn.values.wire.protobuf`; bodies
in, a typed column out; and what the interpreter leaves to do: Timestamp, Duration, wrappers and enums get their types, of a map's equal
keys the last one counts. Nothing else is copied.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import AnyArray, Flags, Int64s
from kolumn.core.errors import ArgumentError
from kolumn.cpu_fallback.values.protobuf import Rows, repeated_keys, write_rows
from kolumn.values.decoder import Bodies, Salvaged, nothing_salvaged
from kolumn.values.memory import ColumnLayout, ColumnMemory, LayoutNode, shared_bytes
from kolumn.values.protobuf_schema import TIMES, Place, Shape, file_of, has_required, is_closed, shape, symbols
from kolumn.values.schemas.schema import Schema, Schemas, UnreadableSchemasError
from kolumn.values.wire import framing
from kolumn.values.wire import protobuf_wire as wire
from kolumn.values.wire.protobuf import BITS, FIELD, FRAMES, GROUPS, MESSAGE, ProtobufProgram

logger = logging.getLogger("kolumn")
_BY_FRAMING = {
    framing.CONFLUENT: wire.INDEXES, framing.CONFLUENT_GUID: wire.INDEXES, framing.APICURIO: wire.NAME, framing.GLUE: wire.NUMBER,
    framing.GLUE_ZLIB: wire.NUMBER, framing.APICURIO_HEADER: wire.ANY,
}  # fmt: skip
"""What precedes messages, after a prefix if there is one. Apicurio's serializers of version 3 write it beside headers too."""
FRONTS = np.array([_BY_FRAMING.get(number, wire.NOTHING) for number in range(framing.AZURE + 1)], np.int64)
"""The same by the number of the framing."""
BARE_FRONTS = np.where(np.arange(len(FRONTS)) == framing.NONE, wire.NAME_OR_NOTHING, FRONTS)
"""The same where what precedes a message is recognised by its bytes alone, see `kolumn.values.decoder.Bodies.bare`."""


class ProtobufDecoder:
    """Decodes values of one message into one type. Threads may share it.

    The columns are the fields of the reader's message. A writer's schema only says which message its values are; what is common to both is
    found by field numbers. A row is not valid if what precedes its message chooses another one; without the writer's schema the reader's
    file is taken for it. Rows are valid or not, and have the values, as the package protobuf says (upb, and ``IsInitialized``), except that
    strings of proto2 have to be UTF-8 too, and fields that are not in ``columns`` are not looked into: a malformed message or a missing
    required field there is not noticed, and neither is a member of a oneof that removes one with a column.

    ``schema`` is as of `file_of`, ``columns`` as of `shape`. The ``message`` need not be named if the file has one, or the schema is a
    generated class. In ``schemas`` references are looked up. `ArgumentError` if the schema is not valid, there is no such message or
    column, or a column has no type in Arrow; `MissingError` if the packages of ``kolumn[protobuf]`` are missing.
    """

    type: pa.DataType

    def __init__(
        self, schema: Schema | bytes | str | type, message: str | None = None, columns: tuple[str, ...] | None = None, *,
        schemas: Schemas | None = None,
    ) -> None:  # fmt: skip
        self._schemas = schemas
        file = file_of(schema, schemas)
        if message is None and isinstance(schema, type):
            message = getattr(schema, "DESCRIPTOR").full_name  # noqa: B009
        descriptor = file.message(message)
        self._name = str(descriptor.full_name)
        self.shape = shape(descriptor, columns)
        self.type = self.shape.type
        self.layout = ColumnLayout.of(self.shape.raw)
        self.tables = tables(self.shape, self.layout)
        self._required = has_required(self.shape)
        self._reader = schema if isinstance(schema, Schema) else None
        self._places: dict[tuple[object, ...], Place | None] = {}
        self._own = file.places().get(self._name, Place((), -1, (self._name,)))
        self._lock = threading.Lock()

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `ValueDecoder.decode`; `UnreadableSchemasError` if a schema that a writer's imports cannot be asked for, `OverflowError` if a
        column has more bytes or elements than 2**31 - 1.
        """
        length = np.ascontiguousarray(bodies.length, np.int64)
        array, valid = self._raw(bodies, length)
        if self._required:
            lacking = _incomplete(self.shape.fields, array, _valid(array))
            if lacking.any():
                # Written again without these rows, so that nothing of them is left in the column.
                array, valid = self._raw(bodies, np.where(lacking, -1, length))
        return finished(self.shape, array), valid

    def salvage(self, bodies: Bodies) -> Salvaged:
        return nothing_salvaged(self.type, len(bodies))

    def _raw(self, bodies: Bodies, length: Int64s) -> tuple[pa.Array, Flags]:
        count = len(length)
        choices, names = self.choices(bodies.schemas, pa.py_buffer)
        columns = (bodies.address, length, bodies.prefix, bodies.framing, bodies.schema)
        valid, frames = np.empty(count, np.bool_), np.empty((FRAMES + GROUPS) // 8, np.int64)
        arrays: list[AnyArray] = [np.ascontiguousarray(column, np.int64) for column in columns]
        arrays += [BARE_FRONTS if bodies.bare else FRONTS, choices, valid]
        rows = Rows._make([*(array.ctypes.data for array in arrays), int(bodies.bare)])
        tables = (table.ctypes.data for table in vars(self.tables).values())
        program = ProtobufProgram._make((*tables, frames.ctypes.data, frames.ctypes.data + FRAMES))
        memory = ColumnMemory(self.layout, count, count + 64, shared_bytes(self.layout, length))
        row, code = write_rows(memory.target, program, rows, 0, count)
        while code != 0:
            memory.grow(code)
            row, code = write_rows(memory.target, program, rows, row, count)
        del names
        return memory.array(count), valid

    def choices(self, schemas: Sequence[Schema], held: Callable[[bytes], Any]) -> tuple[Int64s, list[Any]]:
        """What the writers' schemas say of the message, one row each after the reader's, as `kolumn.values.wire.protobuf_wire.after_front`
        takes it; and the memory of the names that it points to, which ``held`` makes of each: it has an ``address``.
        """
        places = [self._own, *map(self._place, schemas)]
        memory = {name: held(name.encode()) for name in {name for place in places if place is not None for name in place.names}}
        table = np.zeros((len(places), wire.CHOICE // 8), np.int64)
        table[:, 0] = -1
        for row, place in zip(table, places, strict=True):
            if place is not None:
                last, full = ((memory[name].address, len(name.encode())) for name in (place.names[-1], place.names[0]))
                words = [len(place.path), *last, *full, place.number, *place.path]
                row[: len(words)] = words
        return table.reshape(-1), list(memory.values())

    def _place(self, schema: Schema) -> Place | None:
        """Where the message is in a writer's schema; None if it is not there, or a header of the values chose another one."""
        place = self._known_place(schema) if schema.kind == "PROTOBUF" else None
        if place is None or schema.message_indexes not in ((), place.path):
            return None
        return place if schema.message in ("", *place.names) else None

    def _known_place(self, schema: Schema) -> Place | None:
        key = (schema.text, schema.references)
        if not schema.text or (self._reader is not None and key == (self._reader.text, self._reader.references)):
            return self._own
        with self._lock:
            if key not in self._places:
                try:
                    self._places[key] = file_of(schema, self._schemas).places().get(self._name)
                except UnreadableSchemasError:
                    raise
                except ArgumentError as error:
                    logger.warning("values are null, because %s (read as %s)", error, self._name)
                    self._places[key] = None
            return self._places[key]


_DIRECT = 256  # Numbers below it may be looked up directly.


@dataclass(frozen=True)
class Tables:
    """The tables of a program as int64; they do not change, so threads share them."""

    messages: Int64s
    fields: Int64s
    direct: Int64s
    symbols: Int64s


@dataclass
class _Writer:
    messages: list[list[int]] = field(default_factory=list)
    fields: list[list[int]] = field(default_factory=list)
    direct: list[int] = field(default_factory=list)
    symbols: list[int] = field(default_factory=list)
    todo: deque[tuple[int, Shape, tuple[LayoutNode, ...]]] = field(default_factory=deque)

    def message(self, shape: Shape, nodes: tuple[LayoutNode, ...], fill: tuple[int, int], entries: tuple[int, int]) -> int:
        """Bytes before a new message, whose fields have the ``nodes``; they are written later."""
        self.messages.append([0, 0, 0, 0, 0, *fill, *entries, 0, 0])
        self.todo.append((len(self.messages) - 1, shape, nodes))
        return MESSAGE * (len(self.messages) - 1)

    def fill_message(self, number: int, shape: Shape, nodes: tuple[LayoutNode, ...]) -> None:
        ordered = sorted(zip(shape.fields, nodes, strict=True), key=lambda pair: pair[0].number)
        first = len(self.fields)
        rows = {part.number: FIELD * (first + k) for k, (part, _) in enumerate(ordered)}
        for k, (part, node) in enumerate(ordered):
            bit = 1 << k if len(ordered) <= BITS else 0
            after = FIELD * (first + (k + 1) % len(ordered))
            self.fields.append(self.field(part, node, bit, _ring(part, rows), FIELD * (first + k), after))
        count = min(max(rows, default=-1) + 1, _DIRECT)
        message = self.messages[number]
        message[-1] = 1 | sum(1 << known for known in rows if known < 16)
        message[:5] = [FIELD * first, len(ordered), 8 * len(self.direct), count, sum(row[6] for row in self.fields[first:])]
        self.direct += [rows.get(known, -1) for known in range(count)]

    def field(self, part: Shape, node: LayoutNode, bit: int, ring: int, own: int, after: int) -> list[int]:
        kind = wire.KINDS[part.field.type]
        if kind == wire.ENUM and not is_closed(part.field.enum_type):
            kind = wire.VARINT4
        repeated = bool(part.field.is_repeated)
        tag, other, following = part.number << 3 | wire.WIRES.get(kind, wire.VARINT), -1, after
        if repeated and kind <= wire.ENUM:
            other = part.number << 3 | wire.LENGTH
            if part.field.is_packed:
                tag, other = other, tag
        if (repeated and tag & 7 != wire.LENGTH) or kind >= wire.BYTES:
            following = own if repeated else after
        element = node.children[0] if part.is_list else node
        message = -1
        if part.is_map:
            message = self.message(part, node.children, (0, 0), (node.child_level, node.column))
        elif part.is_message:
            message = self.message(part, element.children, (element.first_fill, element.fills), (-1, -1))
        level = node.child_level if repeated else 0
        listed = self.enum(part) if kind == wire.ENUM else -1
        plain = -1 if repeated or ring >= 0 else _PLAIN.get(kind, -1)
        return [tag, other, kind, node.column, level, message, bit, ring, following, node.first_fill, node.fills, listed, element.column,
                wire.WIDTHS.get(kind, 0), plain]  # fmt: skip

    def enum(self, part: Shape) -> int:
        """Bytes before the symbols of a closed enum."""
        begin = 8 * len(self.symbols)
        index = {number: k for k, number in enumerate(symbols(part.field.enum_type))}
        numbers = sorted(index)
        self.symbols += [len(numbers), *numbers, *(index[number] for number in numbers)]
        return begin


_PLAIN = {wire.VARINT4: wire.VARINT8, wire.VARINT8: wire.VARINT8, wire.FIXED8: wire.FIXED8, wire.TEXT: wire.TEXT}


def _ring(part: Shape, rows: dict[int, int]) -> int:
    """The next member of the oneof that has a column, of the last one the first; -1 without one."""
    oneof = part.field.containing_oneof
    members = [] if oneof is None else sorted(member.number for member in oneof.fields if member.number in rows)
    return -1 if len(members) < 2 else rows[members[(members.index(part.number) + 1) % len(members)]]


def tables(shape: Shape, layout: ColumnLayout) -> Tables:
    writer = _Writer()
    root = layout.root
    writer.message(shape, root.children, (root.first_fill, root.fills), (-1, -1))
    writer.messages[0][-2] = root.column
    while writer.todo:
        writer.fill_message(*writer.todo.popleft())
    # A message without fields expects the row after the last field, which no tag matches.
    writer.fields.append([-1, -1, *[0] * (FIELD // 8 - 2)])
    for row in writer.messages:
        if row[1] == 0:
            row[0] = FIELD * (len(writer.fields) - 1)
    parts = (writer.messages, writer.fields, writer.direct, writer.symbols)
    return Tables(*(np.array(part, np.int64).reshape(-1) for part in parts))


_SECOND = 1_000_000_000
_FIRST, _LAST = divmod(-(2**63), _SECOND), divmod(2**63 - 1, _SECOND)
"""Seconds and nanoseconds of the first and the last time that 64 bits of nanoseconds can hold."""


def finished(shape: Shape, array: pa.Array) -> pa.Array:
    """A raw column, without an offset, with the types of a message."""
    return _message(shape.fields, array, shape.type)


def _valid(array: pa.Array) -> Flags:
    return np.asarray(array.is_valid()) if array.null_count else np.ones(len(array), np.bool_)


def _incomplete(fields: tuple[Shape, ...], array: pa.Array, there: Flags) -> Flags:
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
            lacking = _incomplete(element.fields, inner, _valid(inner))
            keep = _last_keys(column, column.keys) if part.is_map else None
            sums = np.concatenate(([0], np.cumsum(lacking if keep is None else lacking & keep)))
            ends = np.asarray(column.offsets)
            rows |= sums[ends[1:]] > sums[ends[:-1]]
            continue
        present = there & _valid(column)
        if part.field.is_required:
            rows |= there & ~present
        if part.is_message:
            rows |= _incomplete(part.fields, column, present)
    return rows


def _message(fields: tuple[Shape, ...], array: pa.Array, type: pa.DataType) -> pa.Array:
    if array.type == type and not any(_has_map(part) for part in fields):
        return array
    children = [_field(part, array.field(number)) for number, part in enumerate(fields)]
    return pa.Array.from_buffers(type, len(array), array.buffers()[:1], array.null_count, children=children)


def _has_map(shape: Shape) -> bool:
    return shape.is_map or any(_has_map(part) for part in shape.fields)


def _field(shape: Shape, array: pa.Array) -> pa.Array:
    if shape.is_map:
        return _map(shape, array)
    if shape.is_list:
        return pa.Array.from_buffers(shape.type, len(array), [None, array.buffers()[1]], 0, children=[_value(shape, array.values)])
    value = _value(shape, array)
    return value if shape.null or not value.null_count else _unmasked(value)


def _unmasked(array: pa.Array) -> pa.Array:
    """An array without nulls: those of a required field are in messages that are null themselves."""
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(_unmasked(array.indices), array.dictionary)
    if pa.types.is_struct(array.type):
        children = [array.field(k) for k in range(array.type.num_fields)]
        return pa.Array.from_buffers(array.type, len(array), [None], 0, children=children)
    return pa.Array.from_buffers(array.type, len(array), [None, *array.buffers()[1:]], 0)


def _value(shape: Shape, array: pa.Array) -> pa.Array:
    type = shape.type.value_type if shape.is_list else shape.type
    if shape.special in TIMES:
        return _times(array, TIMES[shape.special])
    if shape.special:
        inner = array.field(0)
        return pa.Array.from_buffers(inner.type, len(array), [array.buffers()[0], *inner.buffers()[1:]], array.null_count)
    if shape.is_message:
        return _message(shape.fields, array, type)
    return _symbols(shape, array) if pa.types.is_dictionary(type) else array


def _words(array: pa.Array, dtype: str) -> AnyArray:
    """The words of an array, those of nulls too."""
    return np.frombuffer(array.buffers()[1], dtype, len(array)) if len(array) else np.empty(0, dtype)


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
    if not is_closed(shape.field.enum_type):
        indexes = _indexes(np.array(list(names), np.int64), _words(array, "i4"))
        array = _nullable(pa.int32(), np.maximum(indexes, 0), array, indexes >= 0)
    return pa.DictionaryArray.from_arrays(array, pa.array(list(names.values()), pa.string()))


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


def _map(shape: Shape, array: pa.Array) -> pa.Array:
    keys, items, offsets = array.keys, _field(shape.fields[1], array.items), array.buffers()[1]
    keep = _last_keys(array, keys)
    if keep is not None:
        sums = np.concatenate(([0], np.cumsum(keep)))
        offsets = pa.py_buffer(sums[np.asarray(array.offsets)].astype(np.int32))
        keys, items = (part.filter(pa.array(keep)) for part in (keys, items))
    entries = pa.StructArray.from_arrays([keys, items], fields=[shape.type.key_field, shape.type.item_field])
    return pa.Array.from_buffers(shape.type, len(array), [None, offsets], 0, children=[entries])


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
