"""The topic `_schemas`, in which Confluent's registry, Karapace and Redpanda keep everything, read from disk.

    key    {"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}
    value  {"subject":…,"version":1,"id":1,"md5":"…","schemaType":"AVRO","references":[…],"metadata":{…},"ruleSet":{…},"schema":"…",
            "deleted":false}

Keys and values are JSON; the order of their fields differs. A later record of a version replaces an earlier one, and a null value deletes
it. Other keys: DELETE_SUBJECT marks all versions, or those up to one, as deleted, CLEAR_SUBJECT removes those that are; NOOP, CONFIG, MODE
and so on concern no schema.

Redpanda's keys have ``seq``, the offset at which the writer expected the record, and ``node``. Of two writers that expected the same offset
the first one wins, and the other one writes again. Redpanda's own segments are not Kafka's, but copies of its topic are.

Sources: ``SchemaKey``, ``SchemaValue``, ``KafkaStoreMessageHandler`` and ``InMemoryCache`` of confluentinc/schema-registry; Redpanda's
``schema_registry/storage.h``.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from kolumn.copies.ranges import topic_rows
from kolumn.core.errors import ArgumentError
from kolumn.damage.findings import Skipped
from kolumn.log.live import segments_of_source
from kolumn.values.schemas.fingerprint import guid_of
from kolumn.values.schemas.given import ListedSchemas, context_of
from kolumn.values.schemas.schema import Kind, Reference, Registered, Schema, is_text

TOPIC = "_schemas-0"
"""Directory of the topic's only partition."""
_ALL = 2**63 - 1
_KINDS: dict[str, Kind] = {"AVRO": "AVRO", "PROTOBUF": "PROTOBUF", "JSON": "JSON"}
_OTHERS = {"NOOP", "CONFIG", "MODE", "CONTEXT", "ASSOC"}


class TopicSchemas(ListedSchemas):
    """The schemas of a topic `_schemas`.

    Attributes
    ----------
    skipped : Skipped
        Damage that was left out.
    malformed : int
        Records that were left out: their keys or values are not those of the topic, or their id already has another schema.
    """

    def __init__(self, registered: Iterable[Registered], skipped: Skipped, malformed: int) -> None:
        super().__init__(registered)
        self.skipped, self.malformed = skipped, malformed


def topic_schemas(folders: list[str]) -> TopicSchemas:
    """The schemas that a topic `_schemas` has on disk.

    Parameters
    ----------
    folders : list of str
        Segments or directories of the partition. If several directories are copies of it, each offset is read once.

    Raises
    ------
    ArgumentError
        There are no segments, or none of their records belongs to such a topic.
    """
    skipped = Skipped()
    state = _State()
    for key, value in records_of(folders, skipped):
        state.add(key, value)
    if state.malformed and not state.known:
        raise ArgumentError(f"{', '.join(folders)}: not a topic _schemas: none of its {state.malformed} records has a key of one")
    return TopicSchemas(state.registered(), skipped, state.malformed)


def records_of(folders: list[str], skipped: Skipped) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Keys and values of a partition in the order of offsets, each offset once, without what is damaged."""
    for batch in topic_rows(segments_of_source(folders), ("key", "value"), on_damage=skipped):
        for key, value in zip(*batch.columns, strict=True):
            yield key.as_py(), value.as_py()


@dataclass
class _State:
    """The schemas after some records.

    Attributes
    ----------
    known, malformed : int
        Records that belong to such a topic, and others.
    """

    known: int = 0
    malformed: int = 0
    _versions: dict[tuple[str, int], Registered] = field(default_factory=dict)
    _owners: dict[tuple[str, int], set[tuple[str, int]]] = field(default_factory=dict)
    """Which versions have an id of a context."""
    _sequences: set[int] = field(default_factory=set)

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Take in one record."""
        try:
            self._add(_object(key), None if value is None else _object(value))
            self.known += 1
        except (ValueError, KeyError, TypeError, RecursionError):
            self.malformed += 1

    def registered(self) -> list[Registered]:
        """All versions, those that hold an id first before those that share it."""
        return list(self._versions.values())

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

    def _put(self, name: tuple[str, int], value: dict[str, Any] | None) -> None:
        if value is None:
            self._remove(name)
            return
        schema = _schema(value)
        owners = self._owners.setdefault((context_of(name[0])[0], schema.id or 0), set())
        if any(self._versions[one].schema.text != schema.text for one in owners if one != name):
            # A registry refuses such a record too.
            raise ValueError("another schema has this id")
        self._remove(name)
        self._owners.setdefault((context_of(name[0])[0], schema.id or 0), set()).add(name)
        self._versions[name] = Registered(*name, schema, value.get("deleted") is True)

    def _remove(self, name: tuple[str, int]) -> None:
        old = self._versions.pop(name, None)
        if old is not None:
            self._owners[context_of(name[0])[0], old.schema.id or 0].discard(name)

    def _delete(self, subject: str, last: int | None) -> None:
        """Mark versions up to ``last`` as deleted, or without ``last`` remove those that are."""
        for name, one in [(name, one) for name, one in self._versions.items() if name[0] == subject]:
            if last is None and one.is_deleted:
                self._remove(name)
            elif last is not None and name[1] <= last:
                self._versions[name] = replace(one, is_deleted=True)


def _object(data: bytes | None) -> dict[str, Any]:
    found = json.loads(data or b"")
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def _text(found: object) -> str:
    if not is_text(found):
        raise ValueError("not a string")
    return found


def _number(found: object) -> int:
    if not isinstance(found, int) or isinstance(found, bool):
        raise ValueError("not an integer")
    return found


def _schema(value: dict[str, Any]) -> Schema:
    references = tuple(
        Reference(_text(one["name"]), _text(one["subject"]), _number(one["version"])) for one in value.get("references") or ()
    )
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
    if value.get("ruleSet") or not isinstance(metadata, dict | None):
        return None
    return guid_of(text, references, metadata)
