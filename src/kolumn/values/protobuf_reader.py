"""Reads Protobuf messages one by one, in plain Python: what `kolumn.values.wire.protobuf` writes, and of other messages what can be had.

A string that is not UTF-8, and a message or packed numbers that are malformed, cost their field, whose length says where it ends. What is
malformed in the message itself costs all of it. The first step reads fields as they come, so that later ones are merged with earlier ones;
the second one makes the row.
"""

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from kolumn.core.lost import WHOLE
from kolumn.core.times import PER_SECOND
from kolumn.values.protobuf_columns import NEAR
from kolumn.values.protobuf_json import JsonTexts, UnfitError, is_message
from kolumn.values.protobuf_schema import JSON, TIMES, Shape, is_closed, symbols
from kolumn.values.wire.protobuf_wire import (
    BOOL,
    BYTES,
    END_GROUP,
    ENUM,
    FIXED32,
    FIXED64,
    GROUP,
    KINDS,
    LENGTH,
    MOST_NESTED,
    SINGLE_GROUP,
    TEXT,
    VARINT,
    WIRES,
)  # fmt: skip

_SECOND = 1_000_000_000
_FIXED = {1: "<d", 2: "<f", 6: "<Q", 7: "<I", 15: "<i", 16: "<q"}
_BITS = {3: 64, 4: 0, 5: 32, 13: -32, 14: 32, 17: -32, 18: 0}
"""How many low bits of a varint are a number with a sign, -32 for 32 bits without one, 0 for all 64, by types in FieldDescriptorProto."""


class _MalformedError(Exception):
    """The bytes do not end where fields do."""


class _LostError(Exception):
    """What is read cannot be had, nor can what is around it, up to the next thing that can be null. Its path is noted."""


@dataclass
class _Read:
    """A message that is being read: values of its fields by their numbers, and which fields are lost."""

    values: dict[int, Any] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)


class MessageReader:
    """Reads messages of one shape, whose fields have columns, but for ``lost`` ones, by their `id`. Threads may share it."""

    def __init__(self, shape: Shape, lost: Collection[int] = ()) -> None:
        self._message = _Message(shape, "", lost)

    def read(self, data: bytes) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
        """The row that a message is, in the form of `kolumn.values.extensions.column_of`, and the dotted paths of what it lost."""
        found, problems = _Read(), dict[str, None]()
        try:
            _read(self._message, found, _Bytes(data), 0, len(data), 0, 0, problems)
        except _MalformedError:
            return None, (WHOLE,)
        try:
            row = _Row(problems, JsonTexts()).of(self._message, found)
        except _LostError:
            return None, tuple(problems)
        return row, tuple(problems)


class _Field:
    """What is known of a field: its shape, the fields of its message, other members of its oneof, and its path."""

    def __init__(self, shape: Shape, path: str, others: Sequence[int], lost: Collection[int]) -> None:
        self.shape, self.path, self.others, self.is_lost = shape, path, others, id(shape) in lost
        self.number, self.type, self.kind = shape.number, int(shape.field.type), KINDS[shape.field.type]
        self.many = shape.is_list or shape.is_map
        self.wire = WIRES.get(self.kind, VARINT)
        self.message = _Message(shape, path, lost) if shape.is_message else None
        self.names = symbols(shape.field.enum_type) if self.kind == ENUM else {}
        self.closed = self.kind == ENUM and is_closed(shape.field.enum_type)

    def takes(self, wire: int) -> bool:
        """Whether a value of a wire type is one of the field."""
        return not self.is_lost and (wire == self.wire or (wire == LENGTH and self.many and self.kind <= ENUM))

    def default(self) -> object:
        if self.message is not None:
            return _Read()
        if self.kind == ENUM:
            return next(iter(self.names)) if self.closed else 0
        if self.kind == BOOL:
            return False
        return {TEXT: "", BYTES: b""}.get(self.kind, b"" if self.shape.special else 0)


class _Message:
    """The fields of a message that have columns, by their numbers."""

    def __init__(self, shape: Shape, path: str, lost: Collection[int]) -> None:
        # Entries of maps, times and wrappers are no steps.
        is_step = not (shape.is_map or shape.special)
        known = {part.number for part in shape.fields}
        self.fields = {}
        for part in shape.fields:
            oneof = part.field.containing_oneof
            others = [] if oneof is None else [one.number for one in oneof.fields if one.number in known - {part.number}]
            own = (f"{path}.{part.name}" if path else part.name) if is_step else path
            self.fields[part.number] = _Field(part, own, others, lost)


@dataclass(frozen=True)
class _Bytes:
    """The bytes of a message; positions are counted from its first one."""

    data: bytes

    def uvarint(self, at: int, stop: int) -> tuple[int, int]:
        """64 bits of a varint, and the position after it."""
        value = shift = 0
        while at < stop and shift < 63:
            byte = self.data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
        if at < stop and self.data[at] < 0x80:
            return value | (self.data[at] & 1) << 63, at + 1
        raise _MalformedError

    def tag(self, at: int, stop: int) -> tuple[int, int]:
        value, after = self.uvarint(at, stop)
        if after - at > 5 or value > 0xFFFFFFFF:
            raise _MalformedError
        return value, after

    def length(self, at: int, stop: int) -> tuple[int, int]:
        """Where a value with a length begins and ends."""
        length, at = self.tag(at, stop)
        if length > stop - at:
            raise _MalformedError
        return at, at + length

    def number(self, at: int, stop: int, type: int) -> tuple[Any, int]:
        """A number of a type in FieldDescriptorProto, of an enum its number; and the position after it."""
        if type in _FIXED:
            size = struct.calcsize(_FIXED[type])
            if size > stop - at:
                raise _MalformedError
            return struct.unpack_from(_FIXED[type], self.data, at)[0], at + size
        value, at = self.uvarint(at, stop)
        if type == 8:
            return value != 0, at
        bits = _BITS[type]
        value &= (1 << (abs(bits) or 64)) - 1
        if type in (17, 18):
            return (value >> 1) ^ -(value & 1), at
        return (value - (1 << bits) if bits > 0 and value >> (bits - 1) else value), at

    def after(self, at: int, stop: int, tag: int, depth: int) -> int:
        """Position after the value of an unknown field."""
        wire = tag & 7
        if wire == GROUP:
            return self.group(at, stop, tag >> 3, depth)[1]
        if wire == VARINT:
            return self.uvarint(at, stop)[1]
        if wire == LENGTH:
            return self.length(at, stop)[1]
        size = {FIXED64: 8, FIXED32: 4}.get(wire, stop - at + 1)
        if size > stop - at:
            raise _MalformedError
        return at + size

    def group(self, at: int, stop: int, number: int, depth: int) -> tuple[int, int]:
        """Where the fields of a group end, and the position after it."""
        opened = [number]
        while depth + len(opened) <= MOST_NESTED:
            end = at
            tag, at = self.tag(at, stop)
            if tag & 7 == GROUP:
                opened.append(tag >> 3)
            elif tag & 7 != END_GROUP:
                at = self.after(at, stop, tag, depth)
            elif opened.pop() != tag >> 3:
                break
            elif not opened:
                return end, at
        raise _MalformedError


def is_well_formed(data: bytes) -> bool:
    """Whether bytes can be a message of any type."""
    at, given = 0, _Bytes(data)
    try:
        while at < len(data):
            tag, at = given.tag(at, len(data))
            if tag >> 3 == 0:
                return False
            at = given.after(at, len(data), tag, 0)
    except _MalformedError:
        return False
    return True


def _read(
    message: _Message, found: _Read, given: _Bytes, at: int, stop: int, depth: int, group: int, problems: dict[str, None]
) -> tuple[int, bool]:
    """Read the fields at [at, stop), or up to the end of a ``group``, of a message with ``depth`` messages around it; returns the position
    after them, and whether some were unknown.
    """
    strange = False
    while at < stop:
        tag, at = given.tag(at, stop)
        number, wire = tag >> 3, tag & 7
        if number == 0 and (message.fields or wire == END_GROUP):
            raise _MalformedError
        if wire == END_GROUP:
            if number != group:
                raise _MalformedError
            return at, strange
        part = message.fields.get(number)
        if part is None or not part.takes(wire):
            at, strange = given.after(at, stop, tag, depth), True
        elif part.kind <= ENUM:
            at, odd = _numbers(part, found, given, at, stop, wire, problems)
            strange |= odd
        else:
            at = _sized(part, found, given, at, stop, depth, problems)
    if group:
        raise _MalformedError
    return at, strange


def _numbers(part: _Field, found: _Read, given: _Bytes, at: int, stop: int, wire: int, problems: dict[str, None]) -> tuple[int, bool]:
    """Read a number, or packed ones; whether a closed enum does not have one of them."""
    numbers = []
    if wire != LENGTH:
        number, at = given.number(at, stop, part.type)
        numbers.append(number)
    else:
        at, stop = given.length(at, stop)
        try:
            while at < stop:
                number, at = given.number(at, stop, part.type)
                numbers.append(number)
        except _MalformedError:
            _lose(part, found, problems)
            at = stop
    known = [number for number in numbers if not part.closed or number in part.names]
    for number in known:
        _put(part, found, number)
    return at, len(known) < len(numbers)


def _sized(part: _Field, found: _Read, given: _Bytes, at: int, stop: int, depth: int, problems: dict[str, None]) -> int:
    """Read what is no number; returns the position after it."""
    is_group = part.kind == SINGLE_GROUP
    if is_group and part.message is not None:
        return _message(part, part.message, found, given, at, stop, depth, problems)
    if is_group:
        end, after = given.group(at, stop, part.number, depth)
    else:
        at, end = given.length(at, stop)
        after = end
    if part.message is not None:
        try:
            _message(part, part.message, found, given, at, end, depth, problems)
        except _MalformedError:
            _lose(part, found, problems)
        return after
    data = given.data[at:end]
    value: Any = data
    if part.kind == TEXT:
        try:
            value = data.decode()
        except UnicodeDecodeError:
            _lose(part, found, problems)
            return after
    elif part.shape.special == JSON:
        if not is_message(part.shape.field.message_type, data):
            _lose(part, found, problems)
        if not part.many:
            # The parts of a message make one, one after the other.
            value = found.values.get(part.number, bytearray())
            value += data
    _put(part, found, value)
    return after


def _message(
    part: _Field, message: _Message, found: _Read, given: _Bytes, at: int, stop: int, depth: int, problems: dict[str, None]
) -> int:
    """Read a message at [at, stop), or a group that ends before, into its field."""
    inner = _Read() if part.many else found.values.get(part.number, _Read())
    if not part.shape.is_map:
        _put(part, found, inner)
    after, strange = _read(message, inner, given, at, stop, depth + 1, part.number if part.kind == SINGLE_GROUP else 0, problems)
    if part.shape.is_map and not strange:
        if 1 in inner.lost:
            _lose(part, found, problems)
        entries = found.values.setdefault(part.number, {})
        key = inner.values.get(1, message.fields[1].default())
        entries.pop(key, None)
        entries[key] = inner
    return after


def _put(part: _Field, found: _Read, value: object) -> None:
    for other in part.others:
        found.values.pop(other, None)
    if part.many:
        found.values.setdefault(part.number, []).append(value)
    else:
        found.values[part.number] = value


def _lose(part: _Field, found: _Read, problems: dict[str, None]) -> None:
    found.lost.add(part.number)
    problems[part.path] = None


@dataclass
class _Row:
    """Makes the row of a message that has been read; ``problems`` are the paths of what is lost."""

    problems: dict[str, None]
    texts: JsonTexts

    def of(self, message: _Message, found: _Read) -> dict[str, Any]:
        return {part.shape.name: self.cell(part, found) for part in message.fields.values()}

    def cell(self, part: _Field, found: _Read) -> object:
        try:
            return self.value(part, found)
        except _LostError:
            if part.shape.null:
                return None
            raise

    def value(self, part: _Field, found: _Read) -> object:
        if part.is_lost:
            self.lose(part)
        if part.number in found.lost:
            raise _LostError
        value = found.values.get(part.number)
        if part.shape.is_map:
            assert part.message is not None
            return [(key, self.cell(part.message.fields[2], entry)) for key, entry in (value or {}).items()]
        if part.many:
            return [self.element(part, one) for one in value or ()]
        if value is None:
            if part.shape.field.is_required:
                self.lose(part)
            if part.shape.raw_null:
                return None
            value = part.default()
        return self.one(part, value)

    def element(self, part: _Field, value: object) -> object:
        try:
            return self.one(part, value)
        except _LostError:
            if part.shape.type.value_field.nullable:
                return None
            raise

    def one(self, part: _Field, value: Any) -> object:
        special = part.shape.special
        if special == JSON:
            try:
                text, is_whole = self.texts.text(part.shape.field.message_type, bytes(value))
            except UnfitError:
                self.lose(part)
            if not is_whole:
                self.problems[part.path] = None
            return text
        if special in TIMES:
            return self.time(part, value)
        if part.message is not None:
            return self.value(part.message.fields[1], value) if special else self.of(part.message, value)
        return part.names.get(value, str(value)) if part.kind == ENUM else value

    def time(self, part: _Field, found: _Read) -> int:
        seconds, nanos = found.values.get(1, 0), found.values.get(2, 0)
        per = PER_SECOND[part.shape.one_type.unit]
        time: int = (seconds + nanos // _SECOND) * per + nanos % _SECOND // (_SECOND // per)
        if not (-NEAR <= seconds < NEAR and -(2**63) <= time < 2**63):
            self.lose(part)
        return time

    def lose(self, part: _Field) -> None:
        self.problems[part.path] = None
        raise _LostError
