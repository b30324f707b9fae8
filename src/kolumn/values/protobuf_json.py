"""Protobuf messages as JSON text, as the package protobuf makes it (https://protobuf.dev/programming-guides/json/): Struct, ListValue
and Value of google.protobuf, and messages in themselves. Names of fields are those in the schema, in alphabetical order. What JSON cannot
represent of a message is null in its text, see `_shown`.
"""

import base64
import json
from typing import TYPE_CHECKING, Any

from kolumn.values.protobuf_schema import is_map

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message


class UnfitError(Exception):
    """These bytes are not a message, or one that JSON cannot represent."""


class JsonTexts:
    """Texts of messages of some types, for one call: what comes twice is made once."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, bytes], tuple[str, bool] | None] = {}

    def text(self, message: "Descriptor", data: bytes) -> tuple[str, bool]:
        """The text of a message, whose descriptor is given, and whether all of the message is in it; `UnfitError` if there is none."""
        key = message.full_name, data
        if key not in self._made:
            self._made[key] = _text(message, data)
        made = self._made[key]
        if made is None:
            raise UnfitError(message.full_name)
        return made


def is_message(message: "Descriptor", data: bytes) -> bool:
    """Whether bytes are a message as the parser sees it, required fields left out of account."""
    from google.protobuf.message import DecodeError

    try:
        _class_of(message).FromString(data)
    except (DecodeError, UnicodeDecodeError):
        return False
    return True


def _class_of(message: "Descriptor") -> "type[Message]":
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(message)


def _text(message: "Descriptor", data: bytes) -> tuple[str, bool] | None:
    from google.protobuf.message import DecodeError

    try:
        made = _class_of(message).FromString(data)
        if not made.IsInitialized():
            return None
        shown, is_whole = _shown(made)
    except (DecodeError, ValueError, RecursionError):
        return None
    if shown is None and not is_whole:
        return None
    # Maps have an order of their own in each process.
    text = json.dumps(shown, sort_keys=True, ensure_ascii=False)
    # A string of proto2 may be any bytes. Then it is the text of Python's bytes here.
    return None if '"b' in text and _has_bytes(made) else (text, is_whole)


def _shown(made: "Message") -> tuple[Any, bool]:
    """The JSON of a message, and whether all of the message is in it. An Any of an unknown type is shown as its fields; other parts that
    JSON cannot represent, such as a Timestamp beyond the year 9999, are null.
    """
    from google.protobuf import json_format
    from google.protobuf.message import DecodeError

    message: Any = made.DESCRIPTOR
    try:
        return json_format.MessageToDict(made, preserving_proto_field_name=True, descriptor_pool=message.file.pool), True
    except (json_format.Error, DecodeError, TypeError, ValueError):
        pass
    if message.full_name == "google.protobuf.Any":
        any: Any = made
        return {"type_url": any.type_url, "value": base64.b64encode(any.value).decode()}, True
    inner = [(field, value) for field, value in made.ListFields() if _holds_messages(field)]
    if message.full_name.startswith("google.protobuf.") or not inner:
        return None, False
    rest = type(made)()
    rest.CopyFrom(made)
    for field, _ in inner:
        rest.ClearField(field.name)
    shown, is_whole = _shown(rest)
    if not is_whole:
        return None, False
    for field, value in inner:
        many = value if is_map(field) else dict(enumerate(value if field.is_repeated else [value]))
        found = {json.dumps(key) if isinstance(key, bool) else str(key): _shown(many[key]) for key in many}
        is_whole &= all(whole for _, whole in found.values())
        parts = {key: part for key, (part, _) in found.items()}
        shown[field.name] = parts if is_map(field) else list(parts.values()) if field.is_repeated else parts["0"]
    return shown, is_whole


def _holds_messages(field: "FieldDescriptor") -> bool:
    """Whether a field is a message, a list of some, or a map to some; of an extension it is not asked."""
    value = field.message_type.fields_by_name["value"] if is_map(field) else field
    return value.message_type is not None and not field.is_extension


def _has_bytes(made: "Message") -> bool:
    """Whether a string in a message is not UTF-8."""
    for field, value in made.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            if any(isinstance(key, bytes) for key in value):
                return True
            field, value = field.message_type.fields_by_name["value"], value.values()
        elif not field.is_repeated:
            value = (value,)
        if field.type == field.TYPE_STRING and any(isinstance(one, bytes) for one in value):
            return True
        if field.message_type is not None and any(_has_bytes(one) for one in value):
            return True
    return False
