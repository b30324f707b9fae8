"""Which collection of schemas a read uses, from what its caller names; and the topic `_schemas`, read from disk, in which Confluent's
registry, Karapace and Redpanda keep everything.

    key    {"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}
    value  {"subject":…,"version":1,"id":1,"md5":"…","schemaType":"AVRO","references":[…],"metadata":{…},"ruleSet":{…},"schema":"…",
            "deleted":false}

A later record of a version replaces an earlier one, and a null value deletes it. Other keys: DELETE_SUBJECT marks all versions, or those up
to one, as deleted, CLEAR_SUBJECT removes those that are; NOOP, CONFIG, MODE and so on concern no schema. Redpanda's keys have ``seq``, the
offset at which the writer expected the record: of two writers that expected the same offset the first one wins.

Sources: ``SchemaKey``, ``SchemaValue``, ``KafkaStoreMessageHandler`` of confluentinc/schema-registry; Redpanda's ``storage.h``.
"""

import base64
import binascii
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from kolumn.copies.ranges import topic_rows
from kolumn.core import keywords
from kolumn.core.errors import ArgumentError, MissingPathError
from kolumn.core.text import is_text
from kolumn.damage.findings import Skipped
from kolumn.log.live import segments_of_source
from kolumn.source import storage
from kolumn.source.names import LOG
from kolumn.source.segments import named_parts
from kolumn.values.schemas import collections
from kolumn.values.schemas.collections import AskedSchemas, ListedSchemas, ServiceSchemas, Text, given_schemas, named_schemas
from kolumn.values.schemas.schema import Collection, Kind, Reference, Registered, Schema, guid_of

Given = str | os.PathLike[str] | Mapping[Any, Any] | Callable[[Any], Text | None] | Collection | collections.Client
"""What `schemas_of` takes: a path, a URL, a dict, a function, a collection, a client of confluent-kafka."""
_SERVICE = re.compile(r"(https?|mock)://")
_METHODS = ("by_id", "by_guid", "by_fingerprint", "version", "newest", "only")
TOPIC = "_schemas-0"  # Directory of the topic's only partition.
_ALL = 2**63 - 1
_KINDS: dict[str, Kind] = {"AVRO": "AVRO", "PROTOBUF": "PROTOBUF", "JSON": "JSON"}
_OTHERS = {"NOOP", "CONFIG", "MODE", "CONTEXT", "ASSOC"}


def schemas_of(given: Given | None, source: keywords.Source | None = None, kind: Kind | None = None) -> Collection:
    """The collection of schemas that a caller names; threads may use it at the same time.

    ``given`` is a path (or a URL of storage): a directory `_schemas-0`, one of its segments, a log directory that has one, a folder of
    files `<id>.avsc`, `<subject>.avsc`, `.proto` or `.json`, or one such file. Or a URL of a registry (http://, https://, mock://), a dict
    with its configuration (``url``), or a client of confluent-kafka; a dict or a function (`kolumn.values.schemas.collections`), or a
    collection. None: the topic `_schemas` that lies beside ``source``, which is read, or in it. ``kind`` is that of schemas that are text.
    `ArgumentError` if there are no schemas there; `MissingError` if a package is missing for the registry or the URL.
    """
    if given is None:
        return _beside(source)
    if isinstance(given, str | os.PathLike):
        name = storage.plain(os.fspath(given))
        return ServiceSchemas(name) if _SERVICE.match(name) else _of_path(name)
    if isinstance(given, Mapping):
        return ServiceSchemas(given) if "url" in given else given_schemas(given, kind)
    if all(hasattr(given, method) for method in _METHODS):
        return cast(Collection, given)
    if hasattr(given, "get_schema"):
        return ServiceSchemas(cast(collections.Client, given))
    if callable(given):
        return AskedSchemas(given, kind)
    raise ArgumentError(f"value_schemas={given!r}: expected a path, a URL, a dict or a function")


def _beside(source: keywords.Source | None) -> Collection:
    """The topic `_schemas` in or beside the directories of a source."""
    is_folder: dict[str, bool] = {}
    for part in named_parts(source):
        for path in _candidates(storage.plain(os.fspath(part))):
            if path not in is_folder:
                entry = storage.look(path)
                is_folder[path] = entry is not None and entry.is_folder
    folders = [path for path, there in is_folder.items() if there]
    if not folders:
        seen = f"there is no {', no '.join(is_folder)}" if is_folder else f"nothing is at {source!r}" if source else "no source is given"
        raise ArgumentError(f"no schemas: {seen}; name them by value_schemas: a path, a URL, a dict or a function")
    return topic_schemas(folders)


def _candidates(name: str) -> Iterable[str]:
    """Where the topic could be for one part of a source: in a log directory, beside a partition's directory, beside a segment's."""
    named = storage.look(name)
    for entry in storage.matches(name) if named is None else [named]:
        own = entry.name if storage.is_url(entry.name) else os.path.abspath(entry.name)
        folder = own.rstrip("/") if entry.is_folder else storage.parent(own)
        yield storage.within(folder, TOPIC)
        if storage.base_name(folder) == TOPIC:
            yield folder
        yield storage.within(storage.parent(folder), TOPIC)


def _of_path(name: str) -> Collection:
    named = storage.look(name)
    if named is None:
        raise MissingPathError(f"{name}: no such file or directory")
    if not named.is_folder:
        return _files([named]) if os.path.splitext(name)[1] in collections.SUFFIXES else topic_schemas([name])
    entries = storage.listing(named.name)
    if any(entry.is_folder and storage.base_name(entry.name) == TOPIC for entry in entries):
        return topic_schemas([storage.within(named.name, TOPIC)])
    files = [entry for entry in entries if not entry.is_folder]
    if any(file.name.endswith(LOG) for file in files):
        return topic_schemas([name])
    files = [file for file in files if os.path.splitext(file.name)[1] in collections.SUFFIXES]
    if not files:
        raise ArgumentError(
            f"{name}: no schemas: there is no {storage.within(name, TOPIC)}, and {name} has no segments (*.log) of a topic _schemas "
            f"and no files *{', *'.join(collections.SUFFIXES)}"
        )
    return _files(files)


def _files(files: list[storage.FolderEntry]) -> ListedSchemas:
    texts: dict[str, bytes] = {}
    for file in files:
        data = storage.read_bytes(file.name)
        if data is None:
            raise ArgumentError(f"{file.name}: cannot be read")
        texts[storage.base_name(file.name)] = data
    return named_schemas(texts)


class TopicSchemas(ListedSchemas):
    """The schemas of a topic `_schemas`. ``skipped`` is damage that was left out, ``malformed`` the number of records that were left out:
    their keys or values are not those of the topic, or their id already has another schema.
    """

    def __init__(self, registered: Iterable[Registered], skipped: Skipped, malformed: int) -> None:
        super().__init__(registered)
        self.skipped, self.malformed = skipped, malformed


def topic_schemas(folders: list[str]) -> TopicSchemas:
    """The schemas that a topic `_schemas` has on disk; of several directories that are copies of it, each offset is read once.
    `ArgumentError` if there are no segments, or none of their records belongs to such a topic.
    """
    skipped, versions = Skipped(), _Versions()
    for key, value in records_of(folders, skipped):
        versions.add(key, value)
    if versions.malformed and not versions.known:
        raise ArgumentError(f"{', '.join(folders)}: not a topic _schemas: none of its {versions.malformed} records has a key of one")
    return TopicSchemas(versions.registered.values(), skipped, versions.malformed)


def records_of(folders: list[str], skipped: Skipped) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Keys and values of a partition in the order of offsets, each offset once, without what is damaged."""
    for batch in topic_rows(segments_of_source(folders), ("key", "value"), on_damage=skipped):
        for key, value in zip(*batch.columns, strict=True):
            yield key.as_py(), value.as_py()


class _Versions:
    """The versions after some records: of ``known`` ones, and of ``malformed`` ones, which belong to no such topic."""

    def __init__(self) -> None:
        self.known = self.malformed = 0
        self.registered: dict[tuple[str, int], Registered] = {}
        self._owners: dict[tuple[str, int], set[tuple[str, int]]] = {}
        """Which versions have an id of a context."""
        self._sequences: set[int] = set()

    def add(self, key: bytes | None, value: bytes | None) -> None:
        try:
            self._add(_object(key), None if value is None else _object(value))
            self.known += 1
        except (ValueError, KeyError, TypeError, RecursionError):
            self.malformed += 1

    def _add(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        keytype, sequence = key["keytype"], key.get("seq")
        if value is not None and sequence is not None:
            if sequence in self._sequences:
                return
            self._sequences.add(_number(sequence))
        if keytype == "SCHEMA":
            self._put((_text(key["subject"]), _number(key["version"])), value)
        elif keytype in ("DELETE_SUBJECT", "CLEAR_SUBJECT"):
            if value is not None:
                # Redpanda's value has no version: all that are there are deleted.
                version = value.get("version")
                last = _ALL if version is None else _number(version)
                self._delete(_text(value["subject"]), last if keytype == "DELETE_SUBJECT" else None)
        elif keytype not in _OTHERS:
            raise ValueError(keytype)

    def _put(self, version: tuple[str, int], value: dict[str, Any] | None) -> None:
        if value is None:
            self._remove(version)
            return
        schema = _schema(value)
        owners = self._owners_of(version, schema)
        if any(self.registered[owner].schema.text != schema.text for owner in owners if owner != version):
            # A registry refuses such a record too.
            raise ValueError("another schema has this id")
        self._remove(version)
        owners.add(version)
        self.registered[version] = Registered(*version, schema, value.get("deleted") is True)

    def _owners_of(self, version: tuple[str, int], schema: Schema) -> set[tuple[str, int]]:
        return self._owners.setdefault((collections.context_of(version[0])[0], schema.id or 0), set())

    def _remove(self, version: tuple[str, int]) -> None:
        old = self.registered.pop(version, None)
        if old is not None:
            self._owners_of(version, old.schema).discard(version)

    def _delete(self, subject: str, last: int | None) -> None:
        """Mark versions up to ``last`` as deleted, or without ``last`` remove those that are."""
        for version, entry in [(version, entry) for version, entry in self.registered.items() if version[0] == subject]:
            if last is None and entry.is_deleted:
                self._remove(version)
            elif last is not None and version[1] <= last:
                self.registered[version] = replace(entry, is_deleted=True)


def _object(data: bytes | None) -> dict[str, Any]:
    value = json.loads(data or b"")
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _text(value: object) -> str:
    if not is_text(value):
        raise ValueError("not a string")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("not an integer")
    return value


def _schema(value: dict[str, Any]) -> Schema:
    given = value.get("references") or ()
    references = tuple(Reference(_text(entry["name"]), _text(entry["subject"]), _number(entry["version"])) for entry in given)
    text = _text(value["schema"])
    return Schema(_KINDS[value.get("schemaType") or "AVRO"], text, references, _number(value["id"]), _guid(value, text, references))


def _guid(value: dict[str, Any], text: str, references: tuple[Reference, ...]) -> UUID | None:
    """The GUID that the registry has noted, or else the computed one; rules are part of it in a form of Java's own."""
    md5 = value.get("md5")
    if isinstance(md5, str):
        try:
            return UUID(bytes=base64.b64decode(md5, validate=True))
        except (binascii.Error, ValueError):
            pass
    metadata = value.get("metadata")
    return None if value.get("ruleSet") or not isinstance(metadata, dict | None) else guid_of(text, references, metadata)
