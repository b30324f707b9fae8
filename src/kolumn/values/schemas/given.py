"""Schemas that a caller hands over: a dict, or a function.

A collection of schemas that are all in memory.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from kolumn.core.errors import ArgumentError
from kolumn.values.schemas.fingerprint import fingerprint_of, guid_of
from kolumn.values.schemas.schema import Kind, Reference, Registered, Schema

_QUALIFIED = re.compile(r":\.([^:]*):(.*)", re.DOTALL)


def context_of(subject: str) -> tuple[str, str]:
    """Context and name of a subject: ``:.context:name``; the default context is ""."""
    match = _QUALIFIED.fullmatch(subject)
    return ("", subject) if match is None else (match[1], match[2])


class ListedSchemas:
    """Schemas by id, GUID, fingerprint, and version of a subject.

    Ids count within a context of a registry, and the prefixes of values name no context: an id means the schema of the default context,
    or else the schema that all other contexts with the id agree on. A subject that is in one other context alone is found without it.

    Parameters
    ----------
    registered : iterable of Registered
        If a context has several schemas with an id, the first one counts.
    """

    def __init__(self, registered: Iterable[Registered]) -> None:
        self._all = tuple(registered)
        self._by_id: dict[int, dict[str, Schema]] = {}
        self._by_guid: dict[UUID, Schema] = {}
        self._subjects: dict[str, dict[int, Registered]] = {}
        self._elsewhere: dict[str, set[str]] = {}
        self._by_fingerprint: dict[int, Schema] | None = None
        for one in self._all:
            context, name = context_of(one.subject or "")
            if one.schema.id is not None:
                self._by_id.setdefault(one.schema.id, {}).setdefault(context, one.schema)
            for guid in (one.schema.guid, guid_of(one.schema.text, one.schema.references)):
                if guid is not None:
                    self._by_guid.setdefault(guid, one.schema)
            if one.subject is not None and one.version is not None:
                self._subjects.setdefault(one.subject, {})[one.version] = one
                self._elsewhere.setdefault(name, set()).add(one.subject)

    def by_id(self, id: int) -> Schema | None:
        """The schema with a registry's number."""
        found = self._by_id.get(id, {})
        if "" in found:
            return found[""]
        same = len({(one.text, one.references) for one in found.values()}) == 1
        return next(iter(found.values())) if same else None

    def by_guid(self, guid: UUID) -> Schema | None:
        """The schema with that GUID, noted or computed from its text."""
        return self._by_guid.get(guid)

    def by_fingerprint(self, fingerprint: int) -> Schema | None:
        """The Avro schema with that fingerprint; those of all schemas are computed at the first call."""
        if self._by_fingerprint is None:
            found: dict[int, Schema] = {}
            for one in self._all:
                if one.schema.kind == "AVRO":
                    try:
                        found.setdefault(fingerprint_of(one.schema, self), one.schema)
                    except ArgumentError:
                        # Values of other schemas can be read all the same.
                        continue
            self._by_fingerprint = found
        return self._by_fingerprint.get(fingerprint)

    def version(self, subject: str, version: int) -> Schema | None:
        """One version of a subject, deleted or not; the newest one if ``version`` is negative."""
        if version < 0:
            return self.newest(subject)
        found = self._versions(subject).get(version)
        return None if found is None else found.schema

    def newest(self, subject: str) -> Schema | None:
        """The highest version of a subject that is not deleted."""
        there = [one for _, one in sorted(self._versions(subject).items()) if not one.is_deleted]
        return there[-1].schema if there else None

    def only(self) -> Schema | None:
        """The schema with the highest id, or the only one; None if there are subjects, or several schemas without an id."""
        if self._subjects or not self._all:
            return None
        schemas = [one.schema for one in self._all]
        numbered = [one for one in schemas if one.id is not None]
        return max(numbered, key=lambda one: one.id or 0) if numbered else schemas[0] if len(schemas) == 1 else None

    def registered(self) -> Iterator[Registered]:
        """All schemas, by subject and version; those without a subject by id."""
        return iter(sorted(self._all, key=lambda one: (one.subject or "", one.version or 0, one.schema.id or 0)))

    def _versions(self, subject: str) -> dict[int, Registered]:
        if subject in self._subjects:
            return self._subjects[subject]
        elsewhere = self._elsewhere.get(subject, set())
        return self._subjects[next(iter(elsewhere))] if len(elsewhere) == 1 else {}


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
        raise ArgumentError(f"a schema: expected text, parsed JSON or kolumn.values.schemas.schema.Schema, found {given!r}")
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
