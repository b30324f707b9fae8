"""Protobuf messages as JSON text, as the package protobuf makes it (https://protobuf.dev/programming-guides/json/): Struct, ListValue
and Value of google.protobuf, and messages in themselves. Names of fields are those in the schema, in alphabetical order.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message


class UnfitError(Exception):
    """These bytes are not a message, or one that JSON cannot represent."""


class JsonTexts:
    """Texts of messages of some types, for one call: what comes twice is made once."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, bytes], str | None] = {}

    def text(self, message: "Descriptor", data: bytes) -> str:
        """The text of a message, whose descriptor is given; `UnfitError` if there is none."""
        key = message.full_name, data
        if key not in self._made:
            self._made[key] = _text(message, data)
        text = self._made[key]
        if text is None:
            raise UnfitError(message.full_name)
        return text


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


def _text(message: "Descriptor", data: bytes) -> str | None:
    from google.protobuf import json_format
    from google.protobuf.message import DecodeError

    try:
        made = _class_of(message).FromString(data)
        if not made.IsInitialized():
            return None
        pool = message.file.pool
        # Maps have an order of their own in each process.
        text: str = json_format.MessageToJson(
            made, preserving_proto_field_name=True, indent=None, sort_keys=True, ensure_ascii=False, descriptor_pool=pool
        )
    except (DecodeError, json_format.Error, TypeError, ValueError, RecursionError):
        return None
    # A string of proto2 may be any bytes. Then it is the text of Python's bytes here.
    return None if '"b' in text and _has_bytes(made) else text


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
