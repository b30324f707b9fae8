"""A schema of keys or values as text, with what identifies it: id, GUID, Avro's fingerprint. That is the CRC-64-AVRO (Rabin) of the
schema's parsing canonical form: full names, no attributes that don't matter to a parser, a fixed order of the others, no white space.
Source: the Avro specification, "Parsing Canonical Form for Schemas".
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from uuid import UUID

from kolumn.core.errors import ArgumentError

Kind = Literal["AVRO", "PROTOBUF", "JSON"]  # The types of schemas, as schema registries spell them.


@dataclass(frozen=True)
class Reference:
    """A schema that another one uses: its ``name`` in the text that uses it, and where it is registered."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Schema:
    """One registered schema.

    ``text`` is Avro's or JSON Schema's JSON, or .proto source. Python's client of Confluent registers a ``FileDescriptorProto`` in base64
    instead of .proto source; most registries turn it into source. It is empty if only the message in the reader's schema is known. ``id``
    stands in front of values; ``guid`` is that of Confluent's registry, or the schema version id of AWS Glue. ``message_indexes`` are the
    path to the message of a Protobuf schema that the values have: its index in the file, then indexes of nested messages; only a header of
    Confluent's serializers sets it. ``message`` is the name of that message, with or without what it is in; only a header of Apicurio's
    serializers sets it. Both are empty if the values say it themselves, or if it is not known.
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
    """A schema and where a collection has it. ``subject`` is None for schemas that are known by id, GUID or file name alone. A version
    that ``is_deleted`` is still found by its id, as in a registry. One that ``is_gone`` too was deleted for good, or was replaced: a
    registry has it no more, but the topic `_schemas` still has its record.
    """

    subject: str | None
    version: int | None
    schema: Schema
    is_deleted: bool = False
    is_gone: bool = False


class UnreadableSchemasError(ArgumentError):
    """A collection of schemas can't be read now: it is not known whether a schema is there."""


NO_VALUES = "no values"


class UntypedError(ArgumentError):
    """Nothing says the type of some values; ``why`` in two words."""

    why = "no schema"


class UnnamedMessageError(ArgumentError):
    """A .proto file, ``file`` of `kolumn.values.protobuf_schema`, has several messages, and none is named."""

    file: Any = None


class Schemas(Protocol):
    """A collection of schemas: the `_schemas` topic of a cluster, files, a registry, a callable. Several threads call it. Methods return
    None for what is not there, or cannot be asked for; they raise `UnreadableSchemasError` if the collection cannot be read.
    """

    def by_id(self, id: int) -> Schema | None:
        """The schema with a registry's number."""
        return None

    def by_guid(self, guid: UUID) -> Schema | None:
        """The schema with a GUID of Confluent's registry, or a schema version id of AWS Glue."""
        return None

    def by_fingerprint(self, fingerprint: int) -> Schema | None:
        """The Avro schema with that fingerprint, 0 .. 2**64 - 1."""
        return None

    def version(self, subject: str, version: int) -> Schema | None:
        """One version of a subject, deleted or not, for references; the newest one if ``version`` is negative."""
        return None

    def newest(self, subject: str) -> Schema | None:
        """The newest version of a subject that is not deleted; the newest deleted one, which is logged, if all are."""
        return None

    def only(self) -> Schema | None:
        """The schema with the highest id, of a collection without subjects; None if the collection has subjects or cannot be listed."""
        return None


class Collection(Schemas, Protocol):
    """Schemas that can be listed."""

    def registered(self) -> Iterator[Registered]:
        """All schemas, by subject and version; those without a subject by id."""
        return iter(())


_EMPTY = 0xC15D213AA4D7A795
PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAMED = ("record", "error", "enum", "fixed")
_INNER = {"array": "items", "map": "values"}
Definitions = Mapping[str, tuple[dict[str, Any], str]]  # Definitions of named types, and the namespaces around them, by full name.


def _shifted(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (_EMPTY if value & 1 else 0)
    return value


_TABLE = [_shifted(byte) for byte in range(256)]


def rabin(data: bytes) -> int:
    """CRC-64-AVRO, 0 .. 2**64 - 1."""
    value = _EMPTY
    for byte in data:
        value = (value >> 8) ^ _TABLE[(value ^ byte) & 0xFF]
    return value


def fingerprint_of(schema: Schema, schemas: Schemas | None = None) -> int:
    """The fingerprint of an Avro schema; `ArgumentError` if its text is not Avro, or a reference is not in ``schemas``. Types of referenced
    schemas belong to the canonical form, where they are used first.
    """
    definitions: dict[str, tuple[dict[str, Any], str]] = {}
    _collect_referenced(schema.references, schemas, definitions, set())
    return rabin(canonical_form(schema.text, definitions).encode())


def canonical_form(text: str, definitions: Definitions | None = None) -> str:
    """The parsing canonical form of an Avro schema; ``definitions`` has the types that it uses and does not define."""
    try:
        return _canonical(json.loads(text), "", definitions or {}, set())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArgumentError(f"not an Avro schema: {error!r}: {text[:200]}") from error


def _canonical(node: Any, around: str, definitions: Definitions, done: set[str]) -> str:
    if isinstance(node, list):
        return f"[{','.join(_canonical(branch, around, definitions, done) for branch in node)}]"
    if isinstance(node, str):
        if node in PRIMITIVES:
            return f'"{node}"'
        name = node if "." in node or not around else f"{around}.{node}"
        if name in done or name not in definitions:
            return f'"{name}"'
        definition, outside = definitions[name]
        return _canonical(definition, outside, definitions, done)
    type = node["type"]
    if not isinstance(type, str):
        return _canonical(type, around, definitions, done)
    if type in _INNER:
        return f'{{"type":"{type}","{_INNER[type]}":{_canonical(node[_INNER[type]], around, definitions, done)}}}'
    if type not in _NAMED:
        return _canonical(type, around, definitions, done)
    name = full_name(node, around)
    if name in done:
        # A type of a referenced schema that was used before the type around it.
        return f'"{name}"'
    done.add(name)
    if type == "fixed":
        rest = f'"size":{int(node["size"])}'
    elif type == "enum":
        rest = f'"symbols":[{",".join(f"{chr(34)}{symbol}{chr(34)}" for symbol in node["symbols"])}]'
    else:
        inside = name.rpartition(".")[0]
        fields = (f'{{"name":"{field["name"]}","type":{_canonical(field["type"], inside, definitions, done)}}}' for field in node["fields"])
        rest = f'"fields":[{",".join(fields)}]'
    return f'{{"name":"{name}","type":"{type}",{rest}}}'


def full_name(node: Mapping[str, Any], around: str) -> str:
    """Full name of a record, enum or fixed inside of the namespace ``around``, "" for none."""
    name: str = node["name"]
    if "." in name:
        return name.removeprefix(".") if name.rindex(".") == 0 else name
    namespace = node.get("namespace")
    inside = around if namespace is None else namespace
    return f"{inside}.{name}" if inside else name


def _collect_referenced(
    references: tuple[Reference, ...], schemas: Schemas | None, types: dict[str, tuple[dict[str, Any], str]], done: set[tuple[str, int]]
) -> None:
    """Add the named types of all references, and of theirs."""
    for reference in references:
        version = reference.subject, reference.version
        if version in done:
            continue
        done.add(version)
        schema = None if schemas is None else schemas.version(*version)
        if schema is None:
            raise ArgumentError(f"schema {reference.name!r} is missing: version {version[1]} of subject {version[0]!r}")
        _collect_referenced(schema.references, schemas, types, done)
        try:
            _collect(json.loads(schema.text), "", types)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ArgumentError(f"not an Avro schema: {error!r}: {schema.text[:200]}") from error


def _collect(node: Any, around: str, types: dict[str, tuple[dict[str, Any], str]]) -> None:
    if isinstance(node, list):
        for branch in node:
            _collect(branch, around, types)
    elif isinstance(node, dict):
        type = node["type"]
        if type in ("array", "map"):
            _collect(node[_INNER[type]], around, types)
        elif type in _NAMED:
            name = full_name(node, around)
            types.setdefault(name, (node, around))
            for field in node.get("fields", ()):
                _collect(field["type"], name.rpartition(".")[0], types)
        else:
            _collect(type, around, types)


def guid_of(text: str, references: Sequence[Reference] = (), metadata: Mapping[str, object] | None = None) -> UUID:
    """The GUID that Confluent's registry gives a schema without rules; the topic `_schemas` has it as ``md5`` in recent values.

        MD5( text as UTF-8, for each reference: name, subject, i32 big-endian version,
             with metadata: 01, tags, properties, names of sensitive properties, all sorted )

    Source: ``Schema.getGuid``, ``SchemaReference.updateHash`` and ``Metadata.updateHash`` of confluentinc/schema-registry.
    """
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    for reference in references:
        digest.update(reference.name.encode() + reference.subject.encode() + (reference.version & 0xFFFFFFFF).to_bytes(4, "big"))
    if metadata is not None:
        digest.update(b"\1")
        for part in ("tags", "properties", "sensitive"):
            for word in _words(metadata.get(part)):
                digest.update(word.encode())
    return UUID(bytes=digest.digest())


def _words(part: object) -> Iterable[str]:
    """Strings of a part of the metadata, in Java's order of sorted maps and sets."""
    if isinstance(part, Mapping):
        for name in sorted(part):
            yield str(name)
            yield from [part[name]] if isinstance(part[name], str) else _words(part[name])
    elif isinstance(part, list | tuple):
        yield from sorted(map(str, part))
