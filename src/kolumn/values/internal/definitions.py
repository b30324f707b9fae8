"""Kafka's definitions of messages: which fields a version of a message has, in which order, and how they are written.

The files in `definitions/` are Kafka's own (`definitions/README.md`). Their fields mean:

    validVersions, versions    "0", "0-4", "3+" or "none": versions of the message, or versions that have the field
    flexibleVersions           versions with compact lengths, and with tagged fields at the end of every struct
    nullableVersions           versions in which the field can be null
    taggedVersions, tag        versions in which the field is one of the tagged fields, and its tag
    fields, commonStructs      fields of a struct, of this field alone or by name

Source: ``MessageSpec``, ``FieldSpec`` and ``Versions`` of Kafka's generator.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
_LAST = 32767


@dataclass(frozen=True)
class Versions:
    """Versions from ``first`` to ``last``; none if ``last`` is smaller."""

    first: int
    last: int

    @classmethod
    def of(cls, text: str) -> "Versions":
        """From the form in the files."""
        if text == "none":
            return cls(0, -1)
        first, dash, last = text.rstrip("+").partition("-")
        return cls(int(first), int(last) if dash else _LAST if text.endswith("+") else int(first))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


@dataclass(frozen=True)
class FieldDefinition:
    """A field of a message or struct.

    ``name`` is as Kafka's tools print it, with a small first letter; ``kind`` is "string", "int32" and so on, or "struct", whose ``fields``
    these are; ``tag`` is -1 without one; ``default`` the text or number in the file, None without one.
    """

    name: str
    kind: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: object
    fields: "tuple[FieldDefinition, ...]"


@dataclass(frozen=True)
class Definition:
    """A message. Records name it by its ``number`` (``apiKey``), -1 without one; ``kind`` is "coordinator-key", "coordinator-value",
    "metadata" or "data".
    """

    name: str
    number: int
    kind: str
    versions: Versions
    flexible: Versions
    fields: tuple[FieldDefinition, ...]


@cache
def definitions(module: str) -> dict[str, Definition]:
    """The messages of a module of Kafka, by name."""
    folder = files("kolumn.values.internal").joinpath("definitions", module)
    found = [_message(json.loads(_COMMENT.sub("", file.read_text("utf-8")))) for file in folder.iterdir() if file.name.endswith(".json")]
    return {one.name: one for one in sorted(found, key=lambda one: (one.number, one.name))}


def _message(text: Mapping[str, Any]) -> Definition:
    shared = {one["name"]: one["fields"] for one in text.get("commonStructs", ())}
    return Definition(
        text["name"],
        text.get("apiKey", -1),
        text["type"],
        Versions.of(text["validVersions"]),
        Versions.of(text["flexibleVersions"]),
        tuple(_field(one, shared) for one in text["fields"]),
    )


def _field(text: Mapping[str, Any], shared: Mapping[str, Any]) -> FieldDefinition:
    kind, name = text["type"].removeprefix("[]"), text["name"]
    inner = text.get("fields") or shared.get(kind)
    return FieldDefinition(
        name[0].lower() + name[1:],
        "struct" if inner is not None else kind,
        text["type"].startswith("[]"),
        # A tagged field may leave out what it has in common with its tag.
        Versions.of(text.get("versions") or text["taggedVersions"]),
        Versions.of(text.get("nullableVersions", "none")),
        Versions.of(text.get("taggedVersions", "none")),
        text.get("tag", -1),
        # As Jackson's text of a node.
        "null" if "default" in text and text["default"] is None else text.get("default"),
        tuple(_field(one, shared) for one in inner or ()),
    )
