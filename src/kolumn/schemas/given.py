"""Schemas that a caller hands over: a dict, or a function."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

from kolumn.errors import ArgumentError
from kolumn.schemas.listed import ListedSchemas
from kolumn.schemas.schema import Kind, Reference, Registered, Schema

Text = str | bytes | Schema | Mapping[str, Any] | list[Any]
"""A schema: its text, the JSON of its text already parsed, or a `Schema`."""
SUFFIXES: dict[str, Kind] = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}
"""Suffixes of files with schemas."""

_JSON_SCHEMA = {"$schema", "$ref", "$id", "$defs", "properties", "definitions", "oneOf", "anyOf", "allOf"}
_JSON_TYPES = {"object", "number", "integer"}
_GUID = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"]+)"\s*;', re.MULTILINE)


def kind_of(text: str) -> Kind:
    """Type of a schema by its text: JSON Schema has keywords of its own, other JSON is Avro, and the rest is .proto source."""
    try:
        parsed = json.loads(text)
    except ValueError:
        return "PROTOBUF"
    if isinstance(parsed, bool):
        return "JSON"
    if not isinstance(parsed, dict):
        return "AVRO"
    type = parsed.get("type")
    return "JSON" if _JSON_SCHEMA & parsed.keys() or (isinstance(type, str) and type in _JSON_TYPES) else "AVRO"


def schema_of(given: Text, kind: Kind | None = None) -> Schema:
    """A schema from what a caller hands over.

    Parameters
    ----------
    given : str, bytes, Schema, mapping or list
    kind : str, optional
        Its type; found by its text if it is not given.

    Raises
    ------
    ArgumentError
        It has another type, or is bytes that are not UTF-8.
    """
    if isinstance(given, Schema):
        return given
    if isinstance(given, Mapping | list):
        try:
            text = json.dumps(given)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"a schema: {error}") from error
    elif isinstance(given, bytes):
        try:
            text = given.decode()
        except UnicodeDecodeError as error:
            raise ArgumentError(f"a schema: {error}") from error
    elif isinstance(given, str):
        text = given
    else:
        raise ArgumentError(f"a schema: expected text, parsed JSON or kolumn.schemas.schema.Schema, found {given!r}")
    return Schema(kind or kind_of(text), text)


def given_schemas(given: Mapping[Any, Text], kind: Kind | None = None) -> ListedSchemas:
    """A collection from a dict.

    Parameters
    ----------
    given : mapping
        Keys: an id, as a number or as digits; a GUID, as a UUID or its text; or the name of a subject.
    kind : str, optional
        Type of all schemas that are text.

    Raises
    ------
    ArgumentError
        A key or a value has another type.
    """
    return ListedSchemas([_registered(key, schema_of(value, kind)) for key, value in given.items()])


def named_schemas(texts: Mapping[str, bytes]) -> ListedSchemas:
    """A collection from files: `<id>.avsc`, `<guid>.avsc` or `<subject>.avsc`, and likewise `.proto` and `.json`.

    A subject has version 1. A .proto file that imports another one has a reference to it.
    """
    registered = []
    for name, data in texts.items():
        stem, dot, suffix = name.rpartition(".")
        schema = schema_of(data, SUFFIXES[dot + suffix])
        if schema.kind == "PROTOBUF":
            references = (Reference(one, one.removesuffix(".proto"), 1) for one in _IMPORT.findall(schema.text) if one in texts)
            schema = Schema("PROTOBUF", schema.text, tuple(references))
        registered.append(_registered(stem, schema))
    return ListedSchemas(registered)


def _registered(key: object, schema: Schema) -> Registered:
    if isinstance(key, bytes) or not isinstance(key, int | str | UUID) or isinstance(key, bool):
        raise ArgumentError(f"value_schemas: expected an id, a GUID or a subject, found the key {key!r}")
    id, guid = schema.id, schema.guid
    if isinstance(key, UUID):
        guid = key
    elif isinstance(key, int) or (key.isascii() and key.isdigit() and len(key) < 20):
        id = int(key)
    elif _GUID.fullmatch(key):
        guid = UUID(key)
    else:
        return Registered(key, 1, schema)
    return Registered(None, None, Schema(schema.kind, schema.text, schema.references, id, guid))


class AskedSchemas:
    """Schemas that a function returns, each asked for once.

    Parameters
    ----------
    ask : callable
        Called with an id, an int, or with a GUID, a UUID. Returns the schema (`Text`); None, or a LookupError, if there is none.
    kind : str, optional
        Type of schemas that are text.
    """

    def __init__(self, ask: Callable[[Any], Text | None], kind: Kind | None = None) -> None:
        self._ask, self._kind = ask, kind
        self._known: dict[int | UUID, Schema | None] = {}

    def by_id(self, id: int) -> Schema | None:
        """The schema that the function returns for an id."""
        return self._of(id)

    def by_guid(self, guid: UUID) -> Schema | None:
        """The schema that the function returns for a GUID."""
        return self._of(guid)

    def by_fingerprint(self, fingerprint: int) -> Schema | None:
        """None: a function is not asked for fingerprints."""
        return None

    def version(self, subject: str, version: int) -> Schema | None:
        """None: a function is not asked for versions."""
        return None

    def newest(self, subject: str) -> Schema | None:
        """None: a function is not asked for versions."""
        return None

    def only(self) -> Schema | None:
        """None: a function can't list what it knows."""
        return None

    def registered(self) -> Iterator[Registered]:
        """The schemas that were asked for so far."""
        return iter([Registered(None, None, one) for one in list(self._known.values()) if one is not None])

    def _of(self, key: int | UUID) -> Schema | None:
        if key not in self._known:
            try:
                found = self._ask(key)
            except LookupError:
                found = None
            self._known[key] = None if found is None else _registered(key, schema_of(found, self._kind)).schema
        return self._known[key]
