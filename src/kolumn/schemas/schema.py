"""A schema of keys or values as text, with what identifies it."""

from dataclasses import dataclass
from typing import Literal, Protocol
from uuid import UUID

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
        Avro's or JSON Schema's JSON, or .proto source.
    references : tuple of Reference
    id : int, optional
        The number that stands in front of values.
    guid : UUID, optional
    """

    kind: Kind
    text: str
    references: tuple[Reference, ...] = ()
    id: int | None = None
    guid: UUID | None = None


class Schemas(Protocol):
    """A collection of schemas: the `_schemas` topic of a cluster, files, a registry, a callable.

    Methods return None for what is not there; they raise `kolumn.errors.ArgumentError` for a collection that cannot be read.
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
