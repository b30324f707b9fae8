"""Reads a message by its definition. Every length and count is compared with the bytes that are there before anything is made of it.

    int8 … int64, uint16, uint32, float64    big-endian
    bool       1 byte              uuid       16 bytes
    string     length i16 | UTF-8           flexible versions: uvarint length + 1, 0 for null
    bytes      length i32 | bytes           likewise
    array      count i32 | elements         likewise
    struct     its fields; if it can be null, i8 before them, negative for null; of a tagged one uvarint, 0 for null
    flexible versions: after the fields of every struct   uvarint count | count times: uvarint tag | uvarint size | value

Sources: Kafka's ``MessageDataGenerator`` and ``ByteBufferAccessor``. Strings that are not UTF-8 get replacement characters, as in Java.
"""

import struct
from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa

from kolumn.values.internal.definitions import Definition, FieldDefinition

_NUMBERS = {
    "int8": (">b", pa.int8()), "int16": (">h", pa.int16()), "int32": (">i", pa.int32()), "int64": (">q", pa.int64()),
    "uint16": (">H", pa.uint16()), "uint32": (">I", pa.uint32()), "float64": (">d", pa.float64()), "bool": (">?", pa.bool_()),
}  # fmt: skip
_VARIABLE = {"string": pa.string(), "uuid": pa.string(), "bytes": pa.binary()}
_ZERO_UUID = "A" * 22
MOST_ELEMENTS = 1 << 20
"""Elements of arrays in one message: a byte can be an element, which takes hundreds of bytes in Python."""


class MalformedMessageError(ValueError):
    """The bytes are not of the message."""


class MessageBytes:
    """Bytes of a message, how far they were read, and how many more elements of arrays are taken."""

    def __init__(self, data: bytes, at: int = 0, elements: int = MOST_ELEMENTS) -> None:
        self.data, self.at, self.elements = data, at, elements

    @property
    def left(self) -> int:
        """Bytes that were not read yet."""
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        """The next bytes."""
        end = self.at + size
        if not 0 <= size <= len(self.data) - self.at:
            raise MalformedMessageError(f"{size} bytes are needed at byte {self.at}, {self.left} are there")
        found = self.data[self.at : end]
        self.at = end
        return found

    def uvarint(self) -> int:
        """An unsigned varint of at most 5 bytes."""
        found = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
        raise MalformedMessageError(f"the number at byte {self.at - 5} has more than 5 bytes")

    def int16(self) -> int:
        """A number of two bytes."""
        return int.from_bytes(self.take(2), "big", signed=True)


_Read = Callable[[MessageBytes], Any]
_Step = tuple[str, _Read]


@cache
def reader(message: Definition, version: int) -> _Read:
    """What reads a version of a message from `MessageBytes`, as a dict of its fields; it raises `MalformedMessageError`.

    Fields that the version does not have are absent. Tagged fields that are not there have their default.
    """
    return _struct(message.fields, version, version in message.flexible)


def arrow_type(message: Definition) -> pa.StructType:
    """The struct with the fields of all versions of a message."""
    return _struct_type(message.fields)


def _struct_type(fields: tuple[FieldDefinition, ...]) -> pa.StructType:
    return pa.struct([pa.field(one.name, pa.list_(pa.field("element", _type(one))) if one.is_array else _type(one)) for one in fields])


def _type(field: FieldDefinition) -> pa.DataType:
    if field.kind == "struct":
        return _struct_type(field.fields)
    return _VARIABLE[field.kind] if field.kind in _VARIABLE else _NUMBERS[field.kind][1]


def _struct(fields: tuple[FieldDefinition, ...], version: int, flexible: bool) -> _Read:
    steps: list[_Step] = []
    tagged: dict[int, _Step] = {}
    defaults: dict[str, Any] = {}
    for one in fields:
        if version not in one.versions:
            continue
        read = _field(one, version, flexible)
        if version in one.tagged:
            tagged[one.tag] = one.name, read
            defaults[one.name] = _default(one, version)
        else:
            steps.append((one.name, read))

    def run(source: MessageBytes) -> dict[str, Any]:
        found = {name: read(source) for name, read in steps}
        if flexible:
            found |= defaults
            _tagged(source, tagged, found)
        return found

    return run


def _tagged(source: MessageBytes, known: dict[int, _Step], found: dict[str, Any]) -> None:
    for _ in range(_count(source, source.uvarint())):
        tag, size = source.uvarint(), source.uvarint()
        part = MessageBytes(source.take(size), elements=source.elements)
        if tag in known:
            name, read = known[tag]
            found[name] = read(part)
            source.elements = part.elements
            if part.left:
                raise MalformedMessageError(f"{part.left} bytes are left of the tagged field {name}")


def _field(field: FieldDefinition, version: int, flexible: bool) -> _Read:
    nullable = version in field.nullable
    if field.is_array:
        return _array(field, _element(field, version, flexible), flexible, nullable)
    if field.kind == "struct" and nullable:
        inner = _element(field, version, flexible)
        if version in field.tagged:
            return lambda source: None if source.uvarint() == 0 else inner(source)
        return lambda source: None if source.take(1)[0] >= 0x80 else inner(source)
    if field.kind in ("string", "bytes"):
        return _text_or_bytes(field, flexible, nullable)
    return _element(field, version, flexible)


def _element(field: FieldDefinition, version: int, flexible: bool) -> _Read:
    if field.kind == "struct":
        return _struct(field.fields, version, flexible)
    if field.kind in ("string", "bytes"):
        return _text_or_bytes(field, flexible, False)
    if field.kind == "uuid":
        return lambda source: urlsafe_b64encode(source.take(16))[:22].decode()
    form = struct.Struct(_NUMBERS[field.kind][0])
    unpack, size = form.unpack, form.size
    return lambda source: unpack(source.take(size))[0]


def _text_or_bytes(field: FieldDefinition, flexible: bool, nullable: bool) -> _Read:
    wide, is_text = field.kind == "bytes", field.kind == "string"

    def run(source: MessageBytes) -> str | bytes | None:
        length = source.uvarint() - 1 if flexible else int.from_bytes(source.take(4 if wide else 2), "big", signed=True)
        if length < 0:
            _check_null(field, nullable)
            return None
        data = source.take(length)
        return data.decode("utf-8", "replace") if is_text else data

    return run


def _array(field: FieldDefinition, element: _Read, flexible: bool, nullable: bool) -> _Read:
    def run(source: MessageBytes) -> list[Any] | None:
        count = source.uvarint() - 1 if flexible else int.from_bytes(source.take(4), "big", signed=True)
        if count < 0:
            _check_null(field, nullable)
            return None
        return [element(source) for _ in range(_count(source, count))]

    return run


def _check_null(field: FieldDefinition, nullable: bool) -> None:
    if not nullable:
        raise MalformedMessageError(f"{field.name} is null")


def _count(source: MessageBytes, count: int) -> int:
    """A count of things of which each has a byte or more."""
    if count > source.left:
        raise MalformedMessageError(f"{count} elements are said to be in the {source.left} bytes from byte {source.at} on")
    source.elements -= count
    if source.elements < 0:
        raise MalformedMessageError(f"more than {MOST_ELEMENTS} elements")
    return count


def _default(field: FieldDefinition, version: int) -> Any:
    """The value of a tagged field that is not there."""
    given = field.default
    if given == "null":
        return None
    if field.is_array:
        return []
    if field.kind == "struct":
        return {one.name: _default(one, version) for one in field.fields if version in one.versions}
    if field.kind == "uuid":
        return _ZERO_UUID
    if field.kind == "bool":
        return str(given).lower() == "true"
    if field.kind in ("string", "bytes"):
        return given or ("" if field.kind == "string" else b"")
    return (float if field.kind == "float64" else int)(str(given or 0))
