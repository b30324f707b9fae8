"""Collections of schemas: those that are all in memory, those that a caller hands over as a dict, files, or a function, and those of a
running registry with Confluent's API. Answers of a registry have bounds: the timeout of confluent-kafka's client is that of each read, and
it reads an answer whatever its size is.
"""

import base64
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from copy import copy
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any, Protocol
from urllib.parse import unquote
from uuid import UUID

from kolumn.core.errors import ArgumentError, shown
from kolumn.core.packages import missing_package
from kolumn.core.text import is_text
from kolumn.values.schemas.schema import Collection, Kind, Reference, Registered, Schema, UnreadableSchemasError, fingerprint_of, guid_of
from kolumn.values.schemas.subjects import Naming, context_of

logger = logging.getLogger("kolumn")


class ListedSchemas(Collection):
    """Schemas by id, GUID, fingerprint, and version of a subject.

    Ids count within a context of a registry, and the prefixes of values name no context. An id means the schema that has it in a subject
    of the read (`within`), as Confluent's registry answers a deserializer; or else in the contexts that these subjects are in, if none is
    in the default one; or else in the default context; or else the schema that all other contexts with the id agree on. If several schemas
    of a context have an id, one that is not deleted for good counts. A subject that is in one other context alone is found without it.
    ``aliases`` are names of subjects that stand for others.
    """

    def __init__(self, registered: Iterable[Registered], aliases: Mapping[str, str] | None = None) -> None:
        self._all = tuple(sorted(registered, key=_rank))
        self.aliases = dict(aliases or {})
        self._by_id: dict[int, list[Registered]] = {}
        self._by_guid: dict[UUID, Schema] = {}
        self._subjects: dict[str, dict[int, Registered]] = {}
        self._qualified: dict[str, set[str]] = {}
        self._by_fingerprint: dict[int, Schema] | None = None
        self._near: set[str] = set()
        self._around: set[str] = set()
        self._told: set[object] = set()
        for entry in self._all:
            schema = entry.schema
            if schema.id is not None:
                self._by_id.setdefault(schema.id, []).append(entry)
            for guid in (schema.guid, guid_of(schema.text, schema.references)):
                if guid is not None:
                    self._by_guid.setdefault(guid, schema)
            if entry.subject is not None and entry.version is not None:
                self._subjects.setdefault(entry.subject, {}).setdefault(entry.version, entry)
                self._qualified.setdefault(context_of(entry.subject)[1], set()).add(entry.subject)
        for entries in self._by_id.values():
            entries.sort(key=lambda entry: (entry.is_gone, context_of(entry.subject)[0], entry.is_deleted))

    def within(self, naming: Naming) -> "ListedSchemas":
        """The same for values whose subjects are named so."""
        made = copy(self)
        made._near = {subject for name, own in self._qualified.items() if naming.may_name(name) for subject in own}
        made._near |= {self._aliased(subject) for subject in naming.by_topic()}
        contexts = {context_of(subject)[0] for subject in made._near if subject in self._subjects}
        made._around = set() if "" in contexts else contexts
        return made

    def by_id(self, id: int) -> Schema | None:
        entries = self._by_id.get(id, [])
        near = [entry for entry in entries if entry.subject in self._near]
        around = [entry for entry in entries if context_of(entry.subject)[0] in self._around]
        default = [entry for entry in entries if not context_of(entry.subject)[0]]
        among = near or around or default
        chosen = among[0] if among else _agreed(entries)
        if chosen is None:
            return None
        context, text = context_of(chosen.subject)[0], chosen.schema.text
        same = [entry for entry in entries if context_of(entry.subject)[0] == context]
        others = [entry for entry in (*same, *among) if entry.schema.text != text]
        if others:
            self._tell(
                id, "several schemas have the id %d: that of %s counts, not that of %s", id, _named(chosen),
                ", ".join(sorted({*map(_named, others)})),
            )  # fmt: skip
        return chosen.schema

    def contexts_of(self, id: int) -> list[str]:
        """The contexts that have an id."""
        return sorted({context_of(entry.subject)[0] for entry in self._by_id.get(id, ())})

    def by_guid(self, guid: UUID) -> Schema | None:
        return self._by_guid.get(guid)

    def by_fingerprint(self, fingerprint: int) -> Schema | None:
        """The Avro schema with that fingerprint; those of all schemas are computed at the first call."""
        if self._by_fingerprint is None:
            schemas: dict[int, Schema] = {}
            for entry in self._all:
                if entry.schema.kind == "AVRO":
                    try:
                        schemas.setdefault(fingerprint_of(entry.schema, self), entry.schema)
                    except ArgumentError:
                        # Values of other schemas can be read all the same.
                        continue
            self._by_fingerprint = schemas
        return self._by_fingerprint.get(fingerprint)

    def version(self, subject: str, version: int) -> Schema | None:
        if version < 0:
            return self.newest(subject)
        meant = self._meant(subject)
        entry = self._subjects[meant[0]].get(version) if len(meant) == 1 else None
        return None if entry is None else entry.schema

    def newest(self, subject: str) -> Schema | None:
        found = [_newest(self._subjects[own]) for own in self._meant(self._aliased(subject))]
        best = min(map(_rank, found), default=0)
        newest = _agreed([entry for entry in found if _rank(entry) == best])
        if newest is None:
            return None
        if newest.is_deleted:
            self._tell(newest.subject, "all versions of %s are deleted: the newest of them, %s, is taken", subject, _named(newest))
        return newest.schema

    def only(self) -> Schema | None:
        if self._subjects or not self._all:
            return None
        schemas = [entry.schema for entry in self._all]
        numbered = [schema for schema in schemas if schema.id is not None]
        return max(numbered, key=lambda schema: schema.id or 0) if numbered else schemas[0] if len(schemas) == 1 else None

    def registered(self) -> Iterator[Registered]:
        def place(entry: Registered) -> tuple[object, ...]:
            return entry.subject or "", entry.version or 0, not entry.is_gone, entry.schema.id or 0

        return iter(sorted(self._all, key=place))

    def contexts_with(self, subject: str) -> list[str]:
        """The contexts other than the default one that have a subject which is named without one, if there are several."""
        meant = self._meant(self._aliased(subject))
        return [context_of(own)[0] for own in meant] if len(meant) > 1 else []

    def _meant(self, subject: str) -> list[str]:
        """The subjects that one may mean which is named without a context."""
        return [subject] if subject in self._subjects else sorted(self._qualified.get(subject, ()))

    def _aliased(self, subject: str) -> str:
        """What a subject stands for: an alias of an alias does not count. An alias of a context is found without it, as a subject is."""
        owners = [owner for owner in self.aliases if context_of(owner)[1] == subject and subject not in self._subjects]
        owner = subject if subject in self.aliases or len(owners) != 1 else owners[0]
        return self.aliases.get(owner, subject)

    def _tell(self, about: object, text: str, *given: object) -> None:
        if about not in self._told:
            self._told.add(about)
            logger.warning(text, *given)


def _rank(entry: Registered) -> int:
    return entry.is_deleted + entry.is_gone


def _newest(versions: dict[int, Registered]) -> Registered:
    return min((entry for _, entry in sorted(versions.items(), reverse=True)), key=_rank)


def _agreed(entries: list[Registered]) -> Registered | None:
    """The first of some schemas if they are all the same, without those that are gone if there are others."""
    there = [entry for entry in entries if not entry.is_gone] or entries
    return there[0] if len({(entry.schema.text, entry.schema.references) for entry in there}) == 1 else None


def _named(entry: Registered) -> str:
    own = f"version {entry.version} of {entry.subject}" if entry.subject is not None else f"schema {entry.schema.id}"
    return f"{own}, which only its record still has" if entry.is_gone else own


Text = str | bytes | Schema | Mapping[str, Any] | list[Any]  # A schema: its text, the JSON of its text already parsed, or a `Schema`.
SUFFIXES: dict[str, Kind] = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}  # Suffixes of files with schemas.
_JSON_SCHEMA = {"$schema", "$ref", "$id", "$defs", "properties", "definitions", "oneOf", "anyOf", "allOf"}
_KEYWORDS = _JSON_SCHEMA | {
    "enum",
    "const",
    "items",
    "not",
    "if",
    "patternProperties",
    "additionalProperties",
    "required",
    "title",
    "format",
}
_TYPES = {"object", "array", "string", "number", "integer", "boolean", "null"}
_GUID = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"]+)"\s*;', re.MULTILINE)


def kind_of(text: str) -> Kind:
    """Type of a schema by its text: JSON Schema has keywords of its own, other JSON is Avro, and the rest is .proto source."""
    try:
        parsed = json.loads(text)
    except ValueError:
        return "PROTOBUF"
    if isinstance(parsed, dict):
        return "JSON" if _JSON_SCHEMA & parsed.keys() or parsed.get("type") in ("object", "number", "integer") else "AVRO"
    return "JSON" if isinstance(parsed, bool) else "AVRO"


def schema_of(given: Text, kind: Kind | None = None) -> Schema:
    """A schema from what a caller hands over; its ``kind`` is found by its text if it is not given. `ArgumentError` if it has another type,
    or is bytes that are not UTF-8.
    """
    if isinstance(given, Schema):
        return given
    if isinstance(given, str):
        return Schema(kind or kind_of(given), given)
    if not isinstance(given, Mapping | list | bytes):
        raise ArgumentError(f"a schema: expected text, parsed JSON or kolumn.values.schemas.schema.Schema, found {given!r}")
    try:
        text = given.decode() if isinstance(given, bytes) else json.dumps(given)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"a schema: {error}") from error
    return Schema(kind or kind_of(text), text)


def given_schemas(given: Mapping[Any, Text], kind: Kind | None = None) -> ListedSchemas:
    """A collection from a dict, whose keys are ids, as numbers or digits, GUIDs, as UUIDs or their texts, or names of subjects; ``kind`` is
    that of all schemas that are text. `ArgumentError` if a key or a value has another type.
    """
    return ListedSchemas([_registered(key, schema_of(value, kind)) for key, value in given.items()])


def named_schemas(texts: Mapping[str, bytes]) -> ListedSchemas:
    """A collection from files: `<id>.avsc`, `<guid>.avsc` or `<subject>.avsc`, and likewise `.proto` and `.json`. A subject has version 1.
    A .proto file that imports another one has a reference to it. A .json file that is no JSON Schema is left out with a warning, and an
    `ArgumentError` if there is no other file.
    """
    registered = []
    others = [name for name, data in texts.items() if name.endswith(".json") and not _is_json_schema(data)]
    if others:
        said = f"no JSON Schema, without any of its keywords: {', '.join(map(shown, others))}"
        if len(others) == len(texts):
            raise ArgumentError(f"no schemas: {said}")
        logger.warning("left out, %s", said)
    for name, data in texts.items():
        if name in others:
            continue
        stem, dot, suffix = name.rpartition(".")
        schema = schema_of(data, SUFFIXES[dot + suffix])
        if schema.kind == "PROTOBUF":
            imports = [path for path in _IMPORT.findall(schema.text) if path in texts]
            schema = replace(schema, references=tuple(Reference(path, path.removesuffix(".proto"), 1) for path in imports))
        registered.append(_registered(stem, schema))
    return ListedSchemas(registered)


def _is_json_schema(data: bytes) -> bool:
    try:
        parsed = json.loads(data)
    except ValueError:
        return False
    if not isinstance(parsed, dict) or not parsed:
        return isinstance(parsed, bool | dict)
    types = parsed.get("type")
    return bool(_KEYWORDS & parsed.keys()) or not _TYPES.isdisjoint(map(str, types if isinstance(types, list) else [types]))


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


class AskedSchemas(Collection):
    """Schemas that a function returns, each asked for once by its id, an int, or its GUID, a UUID. ``ask`` returns the schema (`Text`);
    None, or a LookupError, if there is none. ``kind`` is that of schemas that are text.
    """

    def __init__(self, ask: Callable[[Any], Text | None], kind: Kind | None = None) -> None:
        self._ask, self._kind = ask, kind
        self._known: dict[int | UUID, Schema | None] = {}

    def by_id(self, id: int) -> Schema | None:
        return self._of(id)

    def by_guid(self, guid: UUID) -> Schema | None:
        return self._of(guid)

    def registered(self) -> Iterator[Registered]:
        return iter([Registered(None, None, schema) for schema in list(self._known.values()) if schema is not None])

    def _of(self, key: int | UUID) -> Schema | None:
        if key not in self._known:
            try:
                answer = self._ask(key)
            except LookupError:
                answer = None
            self._known[key] = None if answer is None else _registered(key, schema_of(answer, self._kind)).schema
        return self._known[key]


MOST_BYTES = 16 << 20  # Of an answer, decompressed: the largest schemas, and lists of subjects, have some MiB.
_thread = threading.local()
"""In threads of `in_time`: ``begun``, when the present request was sent, and ``end``, when all of them have to be answered."""


def bound(client: object) -> None:
    """Let requests of a client of confluent-kafka, made within `in_time`, end where an answer passes a bound."""
    rest = getattr(client, "_rest_client", None)
    timeout = getattr(rest, "timeout", None)
    for session in (getattr(rest, "session", None), getattr(getattr(rest, "bearer_field_provider", None), "client", None)):
        hooks = getattr(session, "event_hooks", None)
        if session is not None and hooks is not None:
            session.event_hooks = {"request": [*hooks["request"], _begin], "response": [*hooks["response"], partial(_collect, timeout)]}


def _begin(request: object) -> None:
    _thread.begun = time.monotonic()


def _collect(timeout: float | None, response: Any) -> None:
    """Read an answer. What raises here closes the connection."""
    end = getattr(_thread, "end", None)
    if end is None:
        return
    if isinstance(timeout, int | float):
        end = min(end, _thread.begun + timeout)
    data = bytearray()
    for part in response.iter_bytes():
        data += part
        if len(data) > MOST_BYTES:
            raise ValueError(f"an answer has more than {MOST_BYTES >> 20} MiB")
        if time.monotonic() > end:
            raise TimeoutError(f"an answer is not whole after {time.monotonic() - _thread.begun:.0f} s")
    # As `Response.read` does.
    response._content = bytes(data)


def in_time(ask: Callable[[], Any], seconds: float, give_up: Callable[[], object]) -> Any:
    """What a call returns. After so many seconds ``give_up`` is called, and a TimeoutError raised."""
    answer: Future[Any] = Future()

    def call() -> None:
        _thread.end = time.monotonic() + seconds
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=call, daemon=True, name="kolumn-registry").start()
    if not wait([answer], seconds).done:
        give_up()
        raise TimeoutError(f"no whole answer within {seconds} s")
    return answer.result()


_KINDS: tuple[Kind, ...] = ("AVRO", "PROTOBUF", "JSON")
_REQUEST_SECONDS = 30  # For a request; confluent-kafka's client would wait without end.
_ANSWER_SECONDS = 180  # Until an answer has to be complete, repeated requests included.
_MOST_ABSENT = 500
"""Ids without a schema after which no other id is asked for. Values without a prefix can look as if each had an id of its own."""
_LEAST_SECRET = 3
_MOST_TOLD = 300  # Characters of an error of the client that are shown: it may be a whole page.
_SECRETS = ("basic.auth.user.info", "bearer.auth.token", "bearer.auth.client.secret", "sasl.password", "ssl.key.password")
_HINTS = dict.fromkeys((301, 302, 303, 307, 308), ", name the URL that it redirects to")
_HINTS |= dict.fromkeys((401, 403), ", check its user and password")
_IN_URL = re.compile(r"//([^/@]*)@")


class Client(Protocol):
    """What is used of confluent-kafka's ``SchemaRegistryClient``."""

    def get_schema(self, schema_id: int) -> Any: ...


class ServiceSchemas(Collection):
    """Schemas of a registry. Each is asked for once; "not found" is remembered too.

    A schema whose type or text is not one of a registry is not there, and after 500 ids without a schema no other id is asked for, both
    with a warning. ``to`` is a URL (http://, https://, or mock:// for an empty registry in memory), which may have a user and a password;
    the configuration of confluent-kafka's ``SchemaRegistryClient``, with ``url``; or such a client. ``subject`` is that of the values: in
    which context their ids count is decided by the registry, as for a deserializer.

    Raises `MissingError` without confluent-kafka, `ArgumentError` if the configuration is invalid. Methods raise `UnreadableSchemasError`
    if the registry can't be reached, refuses to answer, or an answer has more than 16 MiB or takes longer than 30 s, or than three minutes
    with all that is asked again.
    """

    def __init__(self, to: "str | Mapping[str, Any] | Client", subject: str | None = None) -> None:
        self._to, self._subject = to, subject
        given = {"url": to} if isinstance(to, str) else to if isinstance(to, Mapping) else getattr(to, "conf", {})
        self._secrets = _secrets_of(given)
        self._name = _IN_URL.sub("//", str(given.get("url") or "the schema registry"))
        self._is_own = not hasattr(to, "get_schema")
        self._client: Any = self._made(dict(given)) if self._is_own else to
        bound(self._client)
        self._known: dict[object, Schema | None] = {}
        self._absent = 0

    def __reduce__(self) -> tuple[type["ServiceSchemas"], tuple[Any, str | None]]:
        return ServiceSchemas, (self._to, self._subject)

    def within(self, naming: Naming) -> "ServiceSchemas":
        """The same for values whose subjects are named so."""
        made, subjects = copy(self), naming.by_topic()
        made._subject = subjects[0] if len(subjects) == 1 and _takes(self._client.get_schema, "subject_name") else None
        made._known = {}
        return made

    def by_id(self, id: int) -> Schema | None:
        """The schema with an id. The registry is asked only for ids that it could have given: 1 .. 2**31 - 1."""
        may_ask = 0 < id < 1 << 31 and (id in self._known or self._absent < _MOST_ABSENT)
        if not may_ask:
            return None
        asks = [lambda: self._schema(self._client.get_schema(id), id, None)]
        if self._subject is not None:
            # Registries without contexts do not know an id of another subject by this one.
            asks.insert(0, lambda: self._schema(self._client.get_schema(id, subject_name=self._subject), id, None))
        return self._asked(id, *asks)

    def by_guid(self, guid: UUID) -> Schema | None:
        """The schema with a GUID; its id is not known, since the registry does not return it."""
        return self._asked(guid, lambda: self._schema(self._client.get_schema_by_guid(str(guid)), None, guid))

    def version(self, subject: str, version: int) -> Schema | None:
        if version < 0:
            return self.newest(subject)
        return self._asked((subject, version), lambda: self._of_version(self._client.get_version(subject, version, deleted=True)))

    def newest(self, subject: str) -> Schema | None:
        """The newest version of a subject. It is remembered too, so that all of a read sees the same one."""
        newest = partial(self._client.get_latest_version, subject)
        return self._asked((subject, "newest"), lambda: self._of_version(newest()), lambda: self._newest_deleted(subject))

    def _newest_deleted(self, subject: str) -> Schema | None:
        versions = self._client.get_versions(subject, deleted=True) if _takes(self._client.get_versions, "deleted") else ()
        if not versions:
            return None
        newest = max(versions)
        logger.warning("%s: all versions of %s are deleted: the newest of them, version %d, is taken", self._name, subject, newest)
        return self._of_version(self._client.get_version(subject, newest, deleted=True))

    def registered(self) -> Iterator[Registered]:
        """All versions of all subjects, deleted ones too; two requests for each subject, and one for each version."""
        all = {"deleted": True} if _takes(self._client.get_subjects, "deleted") and _takes(self._client.get_versions, "deleted") else {}
        for subject in sorted(self._answer(partial(self._client.get_subjects, **all)) or ()):
            live = {*(self._answer(partial(self._client.get_versions, subject)) or ())}
            for version in sorted(live.union(self._answer(partial(self._client.get_versions, subject, **all)) or ())):
                if (schema := self.version(subject, version)) is not None:
                    yield Registered(subject, version, schema, version not in live)

    def _asked(self, key: object, *asks: Callable[[], Schema | None]) -> Schema | None:
        """The first answer that is a schema."""
        if key not in self._known:
            self._known[key] = next((found for ask in asks if (found := self._answer(ask)) is not None), None)
            if self._known[key] is None and isinstance(key, int):
                self._absent += 1
                if self._absent == _MOST_ABSENT:
                    logger.warning(
                        "%s has no schemas for %d ids of values: other ids are not asked for, and values that have one are null; if values "
                        "have no prefix with an id, name value_framing='none'", self._name, self._absent,
                    )  # fmt: skip
        return self._known[key]

    def _answer(self, ask: Callable[[], Any]) -> Any:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return in_time(ask, _ANSWER_SECONDS, self._close)
        except SchemaRegistryError as error:
            status = error.http_status_code
            if status == 404:
                return None
            text = f"{self._name} answered {status}{_HINTS.get(status, '')}: {self._told(str(error.error_message))}"
            raise UnreadableSchemasError(text) from self._cause(error)
        except Exception as error:
            # Errors of the HTTP client, of proxies, of authentication: their classes differ between versions.
            text = f"{self._name}: schemas cannot be read: {type(error).__name__}: {self._told(str(error))}"
            raise UnreadableSchemasError(text) from self._cause(error)

    def _close(self) -> None:
        """Close the connections of a client that was made here: nobody waits for the answer."""
        session = getattr(getattr(self._client, "_rest_client", None), "session", None)
        if self._is_own and session is not None:
            session.close()

    def _told(self, text: str) -> str:
        """The text of an error without the credentials of this registry, which a proxy may repeat."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text if len(text) <= _MOST_TOLD else f"{text[:_MOST_TOLD]}…"

    def _cause(self, error: Exception) -> Exception | None:
        return None if any(secret in str(error) for secret in self._secrets) else error

    def _made(self, configuration: dict[str, Any]) -> Any:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise missing_package(f"a schema registry needs confluent-kafka: {error}", "confluent-kafka[schemaregistry]") from error
        try:
            return SchemaRegistryClient.new_client({"timeout": _REQUEST_SECONDS} | configuration)
        except (ValueError, TypeError) as error:
            raise ArgumentError(f"schema registry: {self._told(str(error))}") from self._cause(error)

    def _of_version(self, answer: Any) -> Schema | None:
        guid = getattr(answer, "guid", None)
        return self._schema(answer.schema, answer.schema_id, UUID(guid) if guid else None)

    def _schema(self, answer: Any, id: int | None, guid: UUID | None) -> Schema | None:
        kind = next((kind for kind in _KINDS if kind == (answer.schema_type or "AVRO")), None)
        references = tuple(Reference(used.name, used.subject, used.version) for used in answer.references or ())
        if kind is None:
            expected, what = " or ".join(_KINDS), repr(answer.schema_type)
        elif not is_text(answer.schema_str):
            expected, what = "a schema as text", type(answer.schema_str).__name__
        elif not all(is_text(used.name) and is_text(used.subject) and isinstance(used.version, int) for used in references):
            expected, what = "references with name, subject and version", repr(references[:3])
        else:
            return Schema(kind, answer.schema_str, references, id, guid)
        logger.warning("%s: schema %s is left out: expected %s, found %s", self._name, id or guid, expected, what)
        return None


def _takes(method: Callable[..., Any], name: str) -> bool:
    """Whether a method of a client, which may be an older one or the caller's own, has a parameter."""
    return name in signature(method).parameters


def _secrets_of(configuration: Mapping[str, Any]) -> list[str]:
    """What must not be shown of a configuration, in each form that a request has, the longest first."""
    quoted = _IN_URL.findall(str(configuration.get("url") or ""))
    users = [*quoted, *map(unquote, quoted)]
    given = [str(configuration[name]) for name in _SECRETS if isinstance(configuration.get(name), str) and configuration[name]]
    secrets = {*given, *users}
    for user in [*users, str(configuration.get("basic.auth.user.info") or "")]:
        password = user.partition(":")[2]
        secrets |= {password, base64.b64encode(user.encode()).decode()} if password else set()
    return sorted((secret for secret in secrets if len(secret) >= _LEAST_SECRET), key=len, reverse=True)
