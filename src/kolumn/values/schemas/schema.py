"""A schema of keys or values as text, with what identifies it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeGuard
from uuid import UUID

from kolumn.core.errors import ArgumentError

Kind = Literal["AVRO", "PROTOBUF", "JSON"]
"""The types of schemas, as schema registries spell them."""


@dataclass(frozen=True)
class Reference:
    """A schema that another one uses: its ``name`` in the text that uses it, and where it is registered."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Schema:
    """One registered schema.

    Attributes
    ----------
    kind : str
        "AVRO", "PROTOBUF" or "JSON".
    text : str
        Avro's or JSON Schema's JSON, or .proto source. Python's client of Confluent registers a ``FileDescriptorProto`` in base64 instead
        of .proto source; most registries turn it into source. Empty if only the message in the reader's schema is known.
    references : tuple of Reference
    id : int, optional
        The number that stands in front of values.
    guid : UUID, optional
        Of Confluent's registry, or the schema version id of AWS Glue.
    message_indexes : tuple of int
        Path to the message of a Protobuf schema that the values have: its place in the file, then places of nested messages. Empty if
        the values say it themselves, or if it is not known. Only a header of Confluent's serializers sets it.
    message : str
        Name of that message, with or without what it is in; only a header of Apicurio's serializers sets it. Empty as the indexes are.
    """

    kind: Kind
    text: str
    references: tuple[Reference, ...] = ()
    id: int | None = None
    guid: UUID | None = None
    message_indexes: tuple[int, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class Registered:
    """A schema and where a collection has it.

    Attributes
    ----------
    subject : str, optional
        None for schemas that are known by id, GUID or file name alone.
    version : int, optional
    schema : Schema
    is_deleted : bool
        The version is deleted and is still found by its id, as in a registry.
    """

    subject: str | None
    version: int | None
    schema: Schema
    is_deleted: bool = False


def is_text(found: object) -> TypeGuard[str]:
    """Whether it is a string that UTF-8 has. JSON can hold halves of surrogate pairs, which it has not."""
    if not isinstance(found, str):
        return False
    try:
        found.encode()
    except UnicodeEncodeError:
        return False
    return True


class UnreadableSchemasError(ArgumentError):
    """A collection of schemas can't be read now: it is not known whether a schema is there."""


class Schemas(Protocol):
    """A collection of schemas: the `_schemas` topic of a cluster, files, a registry, a callable.

    Methods return None for what is not there; they raise `UnreadableSchemasError` for a collection that cannot be read.
    They are called from several threads.
    """

    def by_id(self, id: int) -> Schema | None:
        """The schema with a registry's number."""

    def by_guid(self, guid: UUID) -> Schema | None:
        """The schema with a GUID of Confluent's registry, or a schema version id of AWS Glue."""

    def by_fingerprint(self, fingerprint: int) -> Schema | None:
        """The Avro schema with that CRC-64-AVRO (Rabin) of its parsing canonical form, 0 .. 2**64 - 1."""

    def version(self, subject: str, version: int) -> Schema | None:
        """One version of a subject, for references."""

    def newest(self, subject: str) -> Schema | None:
        """The newest version of a subject that is not deleted."""

    def only(self) -> Schema | None:
        """The schema with the highest id, of a collection without subjects; None if the collection has subjects or cannot be listed."""


class Collection(Schemas, Protocol):
    """Schemas that can be listed."""

    def registered(self) -> Iterator[Registered]:
        """All schemas, by subject and version; those without a subject by id."""
