"""Messages of Protobuf, by its own classes."""

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from kolumn.core.times import PER_SECOND
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.protobuf_schema import TIMES, WRAPPERS, File, is_closed, is_map, symbols
from kolumn.writers.value_parts import RefusedError, data, floating, integer, members, pairs, text, unit_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
    from google.protobuf.message import Message

_NUMBER = re.compile("-?[0-9]{1,10}")
_TEXT, _BYTES_, _ENUM, _BOOL = 9, 12, 14, 8
_FLOATS = {1: False, 2: True}
_INTEGERS = {3: (64, True), 4: (64, False), 5: (32, True), 6: (64, False), 7: (32, False), 13: (32, False), 15: (32, True), 16: (64, True),
             17: (32, True), 18: (64, True)}  # fmt: skip
"""Bits and sign by the numbers of types in FieldDescriptorProto."""


class ProtobufEncoder:
    """Messages, with maps in the order of their keys."""

    def __init__(self, message: "Descriptor") -> None:
        from google.protobuf.message import EncodeError
        from google.protobuf.message_factory import GetMessageClass

        self.message, self._made, self._wrong = message, GetMessageClass(message), EncodeError

    def encode(self, value: object, type: pa.DataType) -> bytes:
        made = self._made()
        self._fill(made, self.message, value, type, "$")
        try:
            return bytes(made.SerializeToString(deterministic=True))
        except self._wrong as error:
            raise RefusedError("$", "all required fields", str(error)) from None

    def _fill(self, made: "Message", message: "Descriptor", value: object, type: pa.DataType, path: str) -> None:
        if message.full_name in TIMES:
            made.seconds, made.nanos = _seconds(path, value, type, message.full_name.endswith("Duration"))
            return
        if message.full_name in WRAPPERS:
            made.value = self._scalar(message.fields_by_name["value"], value, path)
            return
        if type == JSON_TEXT:
            self._parse(made, value, path)
            return
        if not pa.types.is_struct(type):
            raise RefusedError(path, f"a struct for {message.full_name}", type)
        known = {field.name: field for field in message.fields}
        chosen: dict[str, str] = {}
        for name, inner in ((field.name, field.type) for field in type):
            if name not in known:
                raise RefusedError(path, f"no other fields than those of {message.full_name}", name)
            field, one = known[name], members(value)[name]
            if one is None:
                if not field.has_presence:
                    raise RefusedError(f"{path}.{name}", "a value: the field cannot be absent", None)
                continue
            around = field.containing_oneof
            if around is not None and chosen.setdefault(around.name, name) != name:
                raise RefusedError(f"{path}.{name}", f"one field of {around.name}", f"{chosen[around.name]} too")
            self._set(made, field, one, inner, f"{path}.{name}")

    def _parse(self, made: "Message", value: object, path: str) -> None:
        """Read JSON text, as `kolumn.values.protobuf_json` writes it."""
        from google.protobuf import json_format

        assert isinstance(value, str)
        try:
            json_format.Parse(value, made, descriptor_pool=made.DESCRIPTOR.file.pool)
        except json_format.ParseError as error:
            raise RefusedError(path, f"JSON text of {made.DESCRIPTOR.full_name}", f"{value[:100]!r} ({error})") from None

    def _set(self, made: "Message", field: "FieldDescriptor", value: object, type: pa.DataType, path: str) -> None:
        if is_map(field):
            key, inner = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            if not pa.types.is_map(type):
                raise RefusedError(path, "a map", type)
            target = getattr(made, field.name)
            entries = pairs(path, value, lambda one, other: (self._scalar(key, one, path), other))
            for one, other in entries.items():
                if other is None:
                    raise RefusedError(f"{path}[{one!r}]", "a value", None)
                if inner.message_type is None:
                    target[one] = self._scalar(inner, other, f"{path}[{one!r}]")
                else:
                    # Reading an entry makes it.
                    self._fill(target[one], inner.message_type, other, type.item_type, f"{path}[{one!r}]")
        elif field.is_repeated:
            if not isinstance(value, list) or pa.types.is_map(type):
                raise RefusedError(path, "a list", type)
            target = getattr(made, field.name)
            for number, one in enumerate(value):
                inner = f"{path}[{number}]"
                if one is None:
                    raise RefusedError(inner, "a value", None)
                if field.message_type is None:
                    target.append(self._scalar(field, one, inner))
                else:
                    self._fill(target.add(), field.message_type, one, type.value_type, inner)
        elif field.message_type is not None:
            target = getattr(made, field.name)
            target.SetInParent()
            self._fill(target, field.message_type, value, type, path)
        else:
            setattr(made, field.name, self._scalar(field, value, path))

    def _scalar(self, field: "FieldDescriptor", value: object, path: str) -> object:
        kind = field.type
        if value is None:
            raise RefusedError(path, "a value", None)
        if kind in _INTEGERS:
            return integer(path, value, *_INTEGERS[kind], "an integer")
        if kind in _FLOATS:
            return floating(path, value, "a number", _FLOATS[kind])
        if kind == _TEXT:
            return text(path, value)
        if kind == _ENUM:
            return _enum(field.enum_type, value, path)
        if kind == _BYTES_ and (found := data(value)) is not None:
            return found
        if kind == _BOOL and isinstance(value, bool):
            return value
        raise RefusedError(path, "bytes" if kind == _BYTES_ else "a bool", value)


def _enum(enum: "EnumDescriptor", value: object, path: str) -> int:
    numbers = {name: number for number, name in symbols(enum).items()}
    numbers |= {one.name: one.number for one in enum.values}
    if value in numbers:
        return int(numbers[value])
    if isinstance(value, str) and _NUMBER.fullmatch(value) and not is_closed(enum):
        # As which a number without a symbol is read.
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and (value in symbols(enum) or not is_closed(enum)):
        return integer(path, value, 32, True, "an enum's number")
    raise RefusedError(path, f"one of {', '.join(symbols(enum).values())}", value)


def _seconds(path: str, value: object, type: pa.DataType, is_duration: bool) -> tuple[int, int]:
    if not (pa.types.is_duration(type) if is_duration else pa.types.is_timestamp(type)):
        raise RefusedError(path, "a duration" if is_duration else "a timestamp", type)
    assert isinstance(value, int)
    whole, part = divmod(value, PER_SECOND[unit_of(type)])
    nanos = part * (10**9 // PER_SECOND[unit_of(type)])
    # Both parts of a duration have its sign.
    return (whole + 1, nanos - 10**9) if is_duration and whole < 0 and nanos else (whole, nanos)


def message_indexes(file: File, name: str | None) -> bytes:
    """Confluent's message indexes; a single 0, the first message, is shortened."""
    path = file.places()[file.message(name).full_name].path
    if path == (0,):
        return b"\0"
    return b"".join(_zigzag(number) for number in (len(path), *path))


def _zigzag(number: int) -> bytes:
    number, done = 2 * number, bytearray()
    while number > 127:
        done.append(number & 127 | 128)
        number >>= 7
    return bytes([*done, number])
