"""Schemas of a running registry with Confluent's API, by confluent-kafka's client.

Bounds on what a schema registry answers: how large an answer may be, and how long it may take as a whole.

The client's own timeout is that of each read, so a byte now and then keeps a request alive, and it reads an answer whatever its size is.
"""

import base64
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol
from urllib.parse import unquote
from uuid import UUID

from kolumn.core.errors import ArgumentError, MissingPackageError
from kolumn.values.schemas.schema import Kind, Reference, Registered, Schema, UnreadableSchemasError, is_text

MOST_BYTES = 16 << 20
"""Of an answer, decompressed: the largest schemas, and lists of subjects, have some MiB."""

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


class _Answer(Protocol):
    _content: bytes

    def iter_bytes(self) -> Iterator[bytes]: ...


def _begin(request: object) -> None:
    _thread.begun = time.monotonic()


def _collect(timeout: float | None, response: _Answer) -> None:
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
    results: list[Any] = []
    errors: list[BaseException] = []

    def call() -> None:
        _thread.end = time.monotonic() + seconds
        try:
            results.append(ask())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True, name="kolumn-registry")
    thread.start()
    thread.join(seconds)
    if not results and not errors:
        give_up()
        raise TimeoutError(f"no whole answer within {seconds} s")
    if errors:
        raise errors[0]
    return results[0]


logger = logging.getLogger("kolumn")

_NOT_FOUND = 404
_KINDS: tuple[Kind, ...] = ("AVRO", "PROTOBUF", "JSON")
_REQUEST_SECONDS = 30
"""For a request; confluent-kafka's client would wait without end."""
_ANSWER_SECONDS = 180
"""Until an answer has to be complete, repeated requests included."""
_MOST_ABSENT = 500
"""Ids without a schema after which no other id is asked for. Values without a prefix can look as if each had an id of its own."""
_LEAST_SECRET = 3
_MOST_TOLD = 300
"""Characters of an error of the client that are shown: it may be a whole page."""
_SECRETS = ("basic.auth.user.info", "bearer.auth.token", "bearer.auth.client.secret", "sasl.password", "ssl.key.password")
_HINTS = {
    **dict.fromkeys((301, 302, 303, 307, 308), ", name the URL that it redirects to"),
    **dict.fromkeys((401, 403), ", check its user and password"),
}
_IN_URL = re.compile(r"//([^/@]*)@")


class Client(Protocol):
    """What is used of confluent-kafka's ``SchemaRegistryClient``."""

    def get_schema(self, schema_id: int) -> Any:
        """The schema with an id."""


class ServiceSchemas:
    """Schemas of a registry. Each is asked for once; "not found" is remembered too.

    A schema whose type or text is not one of a registry is not there, with a warning: other schemas can be read. After 500 ids without
    a schema no other id is asked for, with a warning too.

    Parameters
    ----------
    to : str, mapping, or SchemaRegistryClient
        URL (http://, https://, or mock:// for an empty registry in memory), which may have a user and a password; the configuration
        of confluent-kafka's ``SchemaRegistryClient``, with ``url``; or such a client. Unless the configuration says otherwise a request
        may take 30 s. An answer may have 16 MiB.

    Raises
    ------
    MissingError
        confluent-kafka is missing.
    ArgumentError
        The configuration is invalid. Methods raise `UnreadableSchemasError` if the registry can't be reached, refuses to answer, answers
        with more, or takes longer, or more than three minutes with all that is asked again.
    """

    def __init__(self, to: "str | Mapping[str, Any] | Client") -> None:
        self._to = to
        given = {"url": to} if isinstance(to, str) else to if isinstance(to, Mapping) else getattr(to, "conf", {})
        self._secrets = _secrets_of(given)
        url = given.get("url")
        self._name = _IN_URL.sub("//", str(url or "the schema registry"))
        self._is_own = not hasattr(to, "get_schema")
        self._client: Any = self._made(dict(given)) if self._is_own else to
        bound(self._client)
        self._known: dict[object, Any] = {}
        self._absent = 0

    def __reduce__(self) -> tuple[type["ServiceSchemas"], tuple[Any]]:
        return ServiceSchemas, (self._to,)

    def by_id(self, id: int) -> Schema | None:
        """The schema with an id. The registry is asked only for ids that it could have given: 1 .. 2**31 - 1."""
        if not 0 < id < 1 << 31:
            return None
        if id in self._known or self._absent < _MOST_ABSENT:
            found: Schema | None = self._asked(id, lambda: self._schema(self._client.get_schema(id), id, None))
            return found
        return None

    def by_guid(self, guid: UUID) -> Schema | None:
        """The schema with a GUID; its id is not known, since the registry does not return it."""
        return self._asked(guid, lambda: self._schema(self._client.get_schema_by_guid(str(guid)), None, guid))

    def by_fingerprint(self, fingerprint: int) -> Schema | None:
        """None: a registry can't be asked for fingerprints."""
        return None

    def version(self, subject: str, version: int) -> Schema | None:
        """One version of a subject, deleted or not; the newest one if ``version`` is negative."""
        if version < 0:
            return self.newest(subject)
        return self._asked((subject, version), lambda: self._of_version(self._client.get_version(subject, version, deleted=True)))

    def newest(self, subject: str) -> Schema | None:
        """The newest version of a subject. It is remembered too, so that all of a read sees the same one."""
        return self._asked((subject, "newest"), lambda: self._of_version(self._client.get_latest_version(subject)))

    def only(self) -> Schema | None:
        """None: a registry has subjects."""
        return None

    def registered(self) -> Iterator[Registered]:
        """All versions of all subjects that are not deleted; one request for each."""
        for subject in sorted(self._answer(self._client.get_subjects) or ()):
            for version in sorted(self._answer(partial(self._client.get_versions, subject)) or ()):
                if (schema := self.version(subject, version)) is not None:
                    yield Registered(subject, version, schema)

    def _asked(self, key: object, ask: Callable[[], Any]) -> Any:
        if key not in self._known:
            self._known[key] = self._answer(ask)
            if self._known[key] is None and isinstance(key, int):
                self._count_absent()
        return self._known[key]

    def _count_absent(self) -> None:
        self._absent += 1
        if self._absent == _MOST_ABSENT:
            logger.warning(
                "%s has no schemas for %d ids of values: other ids are not asked for, and values that have one are null; if values have no "
                "prefix with an id, name value_framing='none'",
                self._name,
                self._absent,
            )  # fmt: skip

    def _answer(self, ask: Callable[[], Any]) -> Any:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return in_time(ask, _ANSWER_SECONDS, self._close)
        except SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND:
                return None
            status = error.http_status_code
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
        """The error, unless a traceback would show credentials."""
        return None if any(secret in str(error) for secret in self._secrets) else error

    def _made(self, configuration: dict[str, Any]) -> Any:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise MissingPackageError(f"a schema registry needs confluent-kafka: {error}: pip install 'kolumn[registry]'") from error
        try:
            return SchemaRegistryClient.new_client({"timeout": _REQUEST_SECONDS} | configuration)
        except (ValueError, TypeError) as error:
            raise ArgumentError(f"schema registry: {self._told(str(error))}") from self._cause(error)

    def _of_version(self, found: Any) -> Schema | None:
        guid = getattr(found, "guid", None)
        return self._schema(found.schema, found.schema_id, UUID(guid) if guid else None)

    def _schema(self, found: Any, id: int | None, guid: UUID | None) -> Schema | None:
        kind = next((one for one in _KINDS if one == (found.schema_type or "AVRO")), None)
        references = tuple(Reference(one.name, one.subject, one.version) for one in found.references or ())
        if kind is None:
            expected, what = " or ".join(_KINDS), repr(found.schema_type)
        elif not is_text(found.schema_str):
            expected, what = "a schema as text", type(found.schema_str).__name__
        elif not all(is_text(one.name) and is_text(one.subject) and isinstance(one.version, int) for one in references):
            expected, what = "references with name, subject and version", repr(references[:3])
        else:
            return Schema(kind, found.schema_str, references, id, guid)
        logger.warning("%s: schema %s is left out: expected %s, found %s", self._name, id or guid, expected, what)
        return None


def _secrets_of(configuration: Mapping[str, Any]) -> list[str]:
    """What must not be shown of a configuration, in each form that a request has, the longest first."""
    quoted = _IN_URL.findall(str(configuration.get("url") or ""))
    users = [*quoted, *map(unquote, quoted)]
    given = [str(configuration[name]) for name in _SECRETS if isinstance(configuration.get(name), str) and configuration[name]]
    found = {*given, *users}
    for one in [*users, str(configuration.get("basic.auth.user.info") or "")]:
        password = one.partition(":")[2]
        found |= {password, base64.b64encode(one.encode()).decode()} if password else set()
    return sorted((one for one in found if len(one) >= _LEAST_SECRET), key=len, reverse=True)
