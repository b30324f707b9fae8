"""What a reader's message loses of values of a writer's. Fields with one number are one field, if their types are alike by Protobuf's rules
(https://protobuf.dev/programming-guides/proto3/#updating); names count for nothing. A field that only the reader has is absent.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kolumn.values.protobuf_schema import Shape, is_map

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_NAMES = ("", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message", "bytes", "uint32",
          "enum", "sfixed32", "sfixed64", "sint32", "sint64")  # fmt: skip
"""Of types by their numbers in FieldDescriptorProto."""
_PAIRS = ("int32 uint32 int64 uint64 bool enum", "sint32 sint64", "fixed32 sfixed32", "fixed64 sfixed64", "string bytes", "bytes message")
_ALIKE = [{_NAMES.index(name) for name in names.split()} for names in _PAIRS]
_LISTED = {_NAMES.index(name) for name in ("string", "bytes", "message", "group")}
"""Types of which the last or the merged element of a list is read where there is no list; numbers may be packed."""


def lost_fields(fields: Sequence[Shape], writer: "Descriptor", path: str = "") -> Iterator[tuple[Shape, str, str]]:
    """The fields that are lost of every value of a writer's message, given as a descriptor: path and reason of each. Entries of maps,
    elements of lists and messages that become one value have no parts: they are lost with what is around them.
    """
    for part in fields:
        own, where = writer.fields_by_number.get(part.number), f"{path}.{part.name}" if path else part.name
        if own is None:
            continue
        inner, found = part.fields, _own_message(own, part.field)
        reason = "" if _is_alike(own, part.field) else _differ(own, part.field)
        if part.is_map and found is not None and not reason:
            inner = part.fields[1].fields
            reason = _differ_within(found, part.field.message_type, set(), is_deep=False)
            value = found.fields_by_number.get(2)
            found = None if value is None else _own_message(value, part.fields[1].field)
        one = part.fields[1] if part.is_map else part
        if one.special and found is not None and not reason:
            reason = _differ_within(found, one.field.message_type, set())
        if reason:
            yield part, where, f"field {where}: {reason}"
        elif found is not None and not one.special:
            yield from lost_fields(inner, found, where)


def _own_message(own: "FieldDescriptor", field: "FieldDescriptor") -> "Descriptor | None":
    """The writer's message in a field, if it is one for both."""
    return own.message_type if field.message_type is not None else None


def _is_alike(own: "FieldDescriptor", field: "FieldDescriptor") -> bool:
    if own.is_repeated and not field.is_repeated and own.type not in _LISTED:
        return False
    return own.type == field.type or any({own.type, field.type} <= alike for alike in _ALIKE)


def _differ(own: "FieldDescriptor", field: "FieldDescriptor") -> str:
    return f"{_type(own)} is not read as {_type(field)}"


def _differ_within(writer: "Descriptor", reader: "Descriptor", known: set[tuple[str, str]], *, is_deep: bool = True) -> str:
    """How fields of two messages differ, with ``is_deep`` those of messages in them too; "" if they are alike."""
    if (writer.full_name, reader.full_name) in known:
        return ""
    known.add((writer.full_name, reader.full_name))
    for field in reader.fields:
        own = writer.fields_by_number.get(field.number)
        if own is None:
            continue
        if not _is_alike(own, field):
            return f"{_differ(own, field)} in {field.full_name}"
        inner = _own_message(own, field) if is_deep else None
        found = "" if inner is None else _differ_within(inner, field.message_type, known)
        if found:
            return found
    return ""


def _type(field: "FieldDescriptor") -> str:
    if is_map(field):
        return "map<{}, {}>".format(*(_type(field.message_type.fields_by_name[name]) for name in ("key", "value")))
    named = field.message_type or field.enum_type
    name = _NAMES[field.type] if named is None else f"{_NAMES[field.type]} {named.full_name}"
    return f"repeated {name}" if field.is_repeated else name
