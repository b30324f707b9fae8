"""Schemas of a running registry with Confluent's API, by confluent-kafka's client."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from kolumn.errors import ArgumentError, MissingError
from kolumn.schemas.schema import Kind, Reference, Registered, Schema

_NOT_FOUND = 404
_KINDS: tuple[Kind, ...] = ("AVRO", "PROTOBUF", "JSON")


class Client(Protocol):
    """What is used of confluent-kafka's ``SchemaRegistryClient``."""

    def get_schema(self, schema_id: int) -> Any:
        """The schema with an id."""


class ServiceSchemas:
    """Schemas of a registry. Each is asked for once; "not found" is remembered too.

    Parameters
    ----------
    to : str, mapping, or SchemaRegistryClient
        URL (http://, https://, or mock:// for an empty registry in memory), which may have a user and a password; the configuration
        of confluent-kafka's ``SchemaRegistryClient``, with ``url``; or such a client.

    Raises
    ------
    MissingError
        confluent-kafka is missing.
    ArgumentError
        The configuration is invalid. Methods raise it if the registry can't be reached, or refuses to answer.
    """

    def __init__(self, to: "str | Mapping[str, Any] | Client") -> None:
        self._to = to
        self._client: Any = to if hasattr(to, "get_schema") else _client({"url": to} if isinstance(to, str) else dict(to))
        url = to if isinstance(to, str) else to.get("url") if isinstance(to, Mapping) else getattr(to, "conf", {}).get("url")
        self._name = re.sub(r"//[^/@]*@", "//", str(url or "the schema registry"))
        self._known: dict[object, Any] = {}

    def __reduce__(self) -> tuple[type["ServiceSchemas"], tuple[Any]]:
        return ServiceSchemas, (self._to,)

    def by_id(self, id: int) -> Schema | None:
        """The schema with an id. The registry is asked only for ids that it could have given: 1 .. 2**31 - 1."""
        if not 0 < id < 1 << 31:
            return None
        return self._asked(("id", id), lambda: _schema(self._client.get_schema(id), id, None))

    def by_guid(self, guid: UUID) -> Schema | None:
        """The schema with a GUID; its id is not known, since the registry does not return it."""
        return self._asked(guid, lambda: _schema(self._client.get_schema_by_guid(str(guid)), None, guid))

    def by_fingerprint(self, fingerprint: int) -> Schema | None:
        """None: a registry can't be asked for fingerprints."""
        return None

    def version(self, subject: str, version: int) -> Schema | None:
        """One version of a subject, deleted or not; the newest one if ``version`` is negative."""
        if version < 0:
            return self.newest(subject)
        return self._asked((subject, version), lambda: _of_version(self._client.get_version(subject, version, deleted=True)))

    def newest(self, subject: str) -> Schema | None:
        """The newest version of a subject. It is remembered too, so that all of a read sees the same one."""
        return self._asked((subject, "newest"), lambda: _of_version(self._client.get_latest_version(subject)))

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
        return self._known[key]

    def _answer(self, ask: Callable[[], Any]) -> Any:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return ask()
        except SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND:
                return None
            raise ArgumentError(f"{self._name}: {error}") from error
        except ArgumentError:
            raise
        except Exception as error:
            # Errors of the HTTP client, of proxies, of authentication: their classes differ between versions.
            raise ArgumentError(f"{self._name}: schemas cannot be read: {type(error).__name__}: {error}") from error


def _client(configuration: dict[str, Any]) -> Any:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise MissingError(f"a schema registry needs confluent-kafka: {error}: pip install 'kolumn[registry]'") from error
    try:
        return SchemaRegistryClient.new_client(configuration)
    except (ValueError, TypeError) as error:
        raise ArgumentError(f"schema registry: {error}") from error


def _of_version(found: Any) -> Schema:
    guid = getattr(found, "guid", None)
    return _schema(found.schema, found.schema_id, UUID(guid) if guid else None)


def _schema(found: Any, id: int | None, guid: UUID | None) -> Schema:
    kind = next((one for one in _KINDS if one == (found.schema_type or "AVRO")), None)
    if kind is None or found.schema_str is None:
        raise ArgumentError(f"schema {id or guid}: expected one of {', '.join(_KINDS)}, found {found.schema_type}")
    references = tuple(Reference(one.name, one.subject, one.version) for one in found.references or ())
    return Schema(kind, found.schema_str, references, id, guid)
