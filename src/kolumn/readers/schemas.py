"""Which collection of schemas a read uses, from what its caller names; and the topic `_schemas`, read from disk, in which Confluent's
registry, Karapace and Redpanda keep everything.

    key    {"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}
    value  {"subject":…,"version":1,"id":1,"md5":"…","schemaType":"AVRO","references":[…],"metadata":{…},"ruleSet":{…},"schema":"…",
            "deleted":false}

A later record of a version replaces an earlier one, and a null value deletes it. Other keys: DELETE_SUBJECT marks all versions, or those up
to one, as deleted, CLEAR_SUBJECT removes those that are; CONFIG may have an alias, a name of another subject; NOOP, MODE and so on concern
no schema. Redpanda's keys have ``seq``, the offset at which the writer expected the record: of two writers that expected the same offset
the first one wins. What a registry has deleted for good is known as long as its record is in the log.

Sources: ``SchemaKey``, ``SchemaValue``, ``KafkaStoreMessageHandler``, ``AliasFilter`` of confluentinc/schema-registry; Redpanda's
``storage.h``.
"""

import base64
import binascii
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pyarrow as pa

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
from kolumn.values.schemas.subjects import context_of, qualified

Given = str | os.PathLike[str] | Mapping[Any, Any] | Callable[[Any], Text | None] | Collection | collections.Client
"""What `schemas_of` takes: a path, a URL, a dict, a function, a collection, a client of confluent-kafka."""
_SERVICE = re.compile(r"(https?|mock)://")
_METHODS = ("by_id", "by_guid", "by_fingerprint", "version", "newest", "only")
TOPIC = "_schemas-0"  # Directory of the topic's only partition.
_ALL = 2**63 - 1
_KINDS: dict[str, Kind] = {"AVRO": "AVRO", "PROTOBUF": "PROTOBUF", "JSON": "JSON"}
UNKNOWN_KEY = "a key of an unknown type"
"""Why a record is left out that a newer registry may have written: it need not be damage."""
_OTHERS = {"NOOP", "MODE", "CONTEXT", "ASSOC"}
_CONTEXT = re.compile(r"(.+)/contexts/:?\.([^:/]*):?/?")


def schemas_of(
    given: Given | None, source: keywords.Source | None = None, kind: Kind | None = None, as_of: int | None = None
) -> Collection:
    """The collection of schemas that a caller names; threads may use it at the same time.

    ``given`` is a path (or a URL of storage): a directory `_schemas-0`, one of its segments, a log directory that has one, a folder of
    files `<id>.avsc`, `<subject>.avsc`, `.proto` or `.json`, or one such file. Or a URL of a registry (http://, https://, mock://), a dict
    with its configuration (``url``), or a client of confluent-kafka; a dict or a function (`kolumn.values.schemas.collections`), or a
    collection. None: the topic `_schemas` that lies beside ``source``, which is read, or in it. ``kind`` is that of schemas that are text.

    As in URLs of Confluent's registry, ``/contexts/.name`` after the path of a topic chooses what is in one context of it. With ``as_of``,
    ms since 1970, later records of the topic do not count. `ArgumentError` if there are no schemas there, or they have no times;
    `MissingError` if a package is missing for the registry or the URL.
    """
    found = _schemas_of(given, source, kind, as_of)
    if as_of is not None and (not isinstance(found, TopicSchemas) or found is given):
        raise ArgumentError(
            "as_of: only a topic _schemas on disk has the times of its schemas; a running registry, files, dicts and functions have none: "
            "name the directory of the topic"
        )
    return found


def _schemas_of(given: Given | None, source: keywords.Source | None, kind: Kind | None, as_of: int | None) -> Collection:
    if given is None:
        return _beside(source, as_of)
    if isinstance(given, str | os.PathLike):
        name = storage.plain(os.fspath(given))
        return ServiceSchemas(name) if _SERVICE.match(name) else _of_path(name, as_of)
    if isinstance(given, Mapping):
        return ServiceSchemas(given) if "url" in given else given_schemas(given, kind)
    if all(hasattr(given, method) for method in _METHODS):
        return cast(Collection, given)
    if hasattr(given, "get_schema"):
        return ServiceSchemas(cast(collections.Client, given))
    if callable(given):
        return AskedSchemas(given, kind)
    raise ArgumentError(f"value_schemas={given!r}: expected a path, a URL, a dict or a function")


def _beside(source: keywords.Source | None, as_of: int | None) -> Collection:
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
    return topic_schemas(folders, as_of)


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


def _of_path(name: str, as_of: int | None) -> Collection:
    named, context = storage.look(name), None
    if named is None and (chosen := _CONTEXT.fullmatch(name)):
        name, context = chosen[1], chosen[2]
        named = storage.look(name)
    if named is None:
        raise MissingPathError(f"{name}: no such file or directory")
    if not named.is_folder and os.path.splitext(name)[1] not in collections.SUFFIXES:
        return topic_schemas([name], as_of, context)
    entries = storage.listing(named.name) if named.is_folder else []
    if any(entry.is_folder and storage.base_name(entry.name) == TOPIC for entry in entries):
        return topic_schemas([storage.within(named.name, TOPIC)], as_of, context)
    files = [entry for entry in entries if not entry.is_folder]
    if any(file.name.endswith(LOG) for file in files):
        return topic_schemas([name], as_of, context)
    if context is not None:
        raise ArgumentError(f"{name}: contexts are those of a topic _schemas, which is not there")
    if not named.is_folder:
        return _files([named])
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
    """The schemas of a topic `_schemas`. ``skipped`` is damage that was left out; ``left_out`` counts other records by why they were."""

    def __init__(self, registered: Iterable[Registered], aliases: Mapping[str, str], skipped: Skipped, left_out: Counter[str]) -> None:
        super().__init__(registered, aliases)
        self.skipped, self.left_out = skipped, left_out

    @property
    def malformed(self) -> int:
        return self.left_out.total()


def topic_schemas(folders: list[str], as_of: int | None = None, context: str | None = None) -> TopicSchemas:
    """The schemas that a topic `_schemas` has on disk, all of them or those of a context, without which they are named then; of several
    directories that are copies of it, each offset is read once. `ArgumentError` if there are no segments, none of their records belongs to
    such a topic, or nothing is as old as ``as_of`` or in the context.
    """
    skipped, versions, where = Skipped(), _Versions(), ", ".join(folders)
    first: int | None = None
    for key, value, timestamp in records_of(folders, skipped):
        if as_of is None or (timestamp is not None and timestamp <= as_of):
            versions.add(key, value)
        elif timestamp is None:
            versions.left_out["no timestamp"] += 1
        elif first is None:
            first = timestamp
    if versions.left_out and not versions.known:
        raise ArgumentError(f"{where}: not a topic _schemas: none of its {versions.left_out.total()} records has a key of one")
    if first is not None and not versions.known:
        raise ArgumentError(f"{where}: no schemas as of {_time(as_of)}: its first record is of {_time(first)}")
    registered, aliases = versions.listed(), versions.aliases
    if context is not None:
        contexts = {context_of(entry.subject)[0] for entry in registered}
        if context not in contexts:
            raise ArgumentError(f"{where}: no context .{context}: it has {', '.join(f'.{name}' for name in sorted(contexts)) or 'none'}")
        within = ((entry, *context_of(entry.subject)) for entry in registered)
        registered = [replace(entry, subject=name) for entry, own, name in within if own == context]
        aliases = {context_of(name)[1]: context_of(other)[1] for name, other in aliases.items() if context_of(name)[0] == context}
    return TopicSchemas(_with_qualified_references(registered), aliases, skipped, versions.left_out)


def _time(milliseconds: int | None) -> str:
    return str(pa.scalar(milliseconds, pa.timestamp("ms", "UTC")).cast(pa.string()))


def _with_qualified_references(registered: list[Registered]) -> Iterator[Registered]:
    """References are to subjects of the context that the schema is in, unless they name another one."""
    subjects = {entry.subject for entry in registered}
    for entry in registered:
        context, references = context_of(entry.subject)[0], entry.schema.references
        if context and references:
            own = [qualified(context, used.subject) for used in references]
            used = tuple(replace(used, subject=name) if name in subjects else used for used, name in zip(references, own, strict=True))
            yield replace(entry, schema=replace(entry.schema, references=used))
        else:
            yield entry


def records_of(folders: list[str], skipped: Skipped) -> Iterator[tuple[bytes | None, bytes | None, int | None]]:
    """Keys, values and times, in ms since 1970, of a partition in the order of offsets, each offset once, without what is damaged."""
    for batch in topic_rows(segments_of_source(folders), ("key", "value", "timestamp"), on_damage=skipped):
        key, value, time = batch.columns
        times = time.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        yield from zip(key.to_pylist(), value.to_pylist(), times.to_pylist(), strict=True)


class _LeftOutError(ValueError):
    """Why a record is left out, if it is well-formed."""


class _Versions:
    """The versions after some records: of ``known`` ones, and of those that belong to no such topic, counted by why they are left out."""

    def __init__(self) -> None:
        self.known = 0
        self.left_out: Counter[str] = Counter()
        self.registered: dict[tuple[str, int], Registered] = {}
        self.aliases: dict[str, str] = {}
        self._gone: dict[object, Registered] = {}
        """What was replaced or deleted for good, the last one at the end."""
        self._owners: dict[tuple[str, int], set[tuple[str, int]]] = {}
        """Which versions have an id of a context."""
        self._sequences: set[int] = set()

    def listed(self) -> list[Registered]:
        there = {_identity(entry) for entry in self.registered.values()}
        return [*self.registered.values(), *(entry for key, entry in reversed(self._gone.items()) if key not in there)]

    def add(self, key: bytes | None, value: bytes | None) -> None:
        try:
            self._add(_object(key), None if value is None else _object(value))
            self.known += 1
        except _LeftOutError as error:
            self.left_out[str(error)] += 1
        except (ValueError, KeyError, TypeError, RecursionError):
            self.left_out["a malformed key or value"] += 1

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
        elif keytype == "CONFIG":
            self._configure(key.get("subject"), value)
        elif keytype not in _OTHERS:
            raise _LeftOutError(UNKNOWN_KEY)

    def _put(self, version: tuple[str, int], value: dict[str, Any] | None) -> None:
        if value is None:
            self._remove(version)
            return
        schema = _schema(value)
        owners = self._owners_of(version, schema)
        if any(self.registered[owner].schema.text != schema.text for owner in owners if owner != version):
            # A registry refuses such a record too.
            raise _LeftOutError("another schema's id")
        self._remove(version)
        owners.add(version)
        self.registered[version] = Registered(*version, schema, value.get("deleted") is True)

    def _owners_of(self, version: tuple[str, int], schema: Schema) -> set[tuple[str, int]]:
        return self._owners.setdefault((context_of(version[0])[0], schema.id or 0), set())

    def _remove(self, version: tuple[str, int]) -> None:
        old = self.registered.pop(version, None)
        if old is not None:
            self._owners_of(version, old.schema).discard(version)
            self._gone.pop(_identity(old), None)
            self._gone[_identity(old)] = replace(old, is_deleted=True, is_gone=True)

    def _delete(self, subject: str, last: int | None) -> None:
        """Mark versions up to ``last`` as deleted, or without ``last`` remove those that are."""
        for version, entry in [(version, entry) for version, entry in self.registered.items() if version[0] == subject]:
            if last is None and entry.is_deleted:
                self._remove(version)
            elif last is not None and version[1] <= last:
                self.registered[version] = replace(entry, is_deleted=True)

    def _configure(self, subject: object, value: dict[str, Any] | None) -> None:
        if is_text(subject):
            alias = None if value is None else value.get("alias")
            self.aliases.pop(subject, None)
            if is_text(alias) and alias:
                context, _ = context_of(subject)
                self.aliases[subject] = alias if context_of(alias)[0] else qualified(context, alias)


def _identity(entry: Registered) -> object:
    """What is the same in records of a version that differ in metadata alone."""
    return entry.subject, entry.version, entry.schema.id, entry.schema.text, entry.schema.references


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
