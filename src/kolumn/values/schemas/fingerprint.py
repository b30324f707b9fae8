"""Avro's fingerprint of a schema: CRC-64-AVRO (Rabin) of its parsing canonical form.

The canonical form has full names, no attributes that don't matter to a parser, a fixed order of the others, and no white space.
Source: the Avro specification, "Parsing Canonical Form for Schemas" and "Schema Fingerprints".

The GUID of a schema in Confluent's registry: the MD5 of its text and of all that belongs to it.

    MD5( text as UTF-8, for each reference: name, subject, i32 big-endian version,
         with metadata: 01, tags, properties, names of sensitive properties, all sorted )

Source: ``Schema.getGuid``, ``SchemaReference.updateHash`` and ``Metadata.updateHash`` of confluentinc/schema-registry. The topic
`_schemas` has the same 16 bytes in the field ``md5`` of recent values.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from kolumn.core.errors import ArgumentError
from kolumn.values.schemas.schema import Reference, Schema, Schemas

EMPTY = 0xC15D213AA4D7A795
PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAMED = ("record", "error", "enum", "fixed")
Definitions = Mapping[str, tuple[dict[str, Any], str]]
"""Definitions of named types, and the namespaces around them, by full name."""


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (EMPTY if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def rabin(data: bytes) -> int:
    """CRC-64-AVRO, 0 .. 2**64 - 1."""
    value = EMPTY
    for byte in data:
        value = (value >> 8) ^ _TABLE[(value ^ byte) & 0xFF]
    return value


def fingerprint_of(schema: Schema, schemas: Schemas | None = None) -> int:
    """The fingerprint of an Avro schema, 0 .. 2**64 - 1.

    Parameters
    ----------
    schema : Schema
    schemas : Schemas, optional
        Where its references are. Types of other schemas belong to the canonical form, where they are used first.

    Raises
    ------
    ArgumentError
        The text is not an Avro schema, or a reference is missing.
    """
    return rabin(canonical_form(schema.text, _referenced(schema.references, schemas, {}, set())).encode())


def canonical_form(text: str, definitions: Definitions | None = None) -> str:
    """The parsing canonical form of an Avro schema.

    Parameters
    ----------
    text : str
        JSON.
    definitions : mapping, optional
        Types that the text uses and does not define.

    Raises
    ------
    ArgumentError
        The text is not an Avro schema.
    """
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
    kind = node["type"]
    if not isinstance(kind, str):
        return _canonical(kind, around, definitions, done)
    if kind in ("array", "map"):
        inner = "items" if kind == "array" else "values"
        return f'{{"type":"{kind}","{inner}":{_canonical(node[inner], around, definitions, done)}}}'
    if kind not in _NAMED:
        return _canonical(kind, around, definitions, done)
    name = full_name(node, around)
    if name in done:
        # A type of a referenced schema that was used before the type around it.
        return f'"{name}"'
    done.add(name)
    if kind == "fixed":
        rest = f'"size":{int(node["size"])}'
    elif kind == "enum":
        rest = f'"symbols":[{",".join(f"{chr(34)}{symbol}{chr(34)}" for symbol in node["symbols"])}]'
    else:
        inside = name.rpartition(".")[0]
        fields = (f'{{"name":"{one["name"]}","type":{_canonical(one["type"], inside, definitions, done)}}}' for one in node["fields"])
        rest = f'"fields":[{",".join(fields)}]'
    return f'{{"name":"{name}","type":"{kind}",{rest}}}'


def full_name(node: Mapping[str, Any], around: str) -> str:
    """Full name of a record, enum or fixed inside of the namespace ``around``, "" for none."""
    name: str = node["name"]
    if "." in name:
        return name.removeprefix(".") if name.rindex(".") == 0 else name
    namespace = node.get("namespace")
    inside = around if namespace is None else namespace
    return f"{inside}.{name}" if inside else name


def _referenced(
    references: tuple[Reference, ...], schemas: Schemas | None, found: dict[str, tuple[dict[str, Any], str]], done: set[tuple[str, int]]
) -> Definitions:
    """The named types of all references, and of theirs."""
    for one in references:
        if (one.subject, one.version) in done:
            continue
        done.add((one.subject, one.version))
        schema = None if schemas is None else schemas.version(one.subject, one.version)
        if schema is None:
            raise ArgumentError(f"schema {one.name!r} is missing: version {one.version} of subject {one.subject!r}")
        _referenced(schema.references, schemas, found, done)
        try:
            _collect(json.loads(schema.text), "", found)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ArgumentError(f"not an Avro schema: {error!r}: {schema.text[:200]}") from error
    return found


def _collect(node: Any, around: str, found: dict[str, tuple[dict[str, Any], str]]) -> None:
    if isinstance(node, list):
        for branch in node:
            _collect(branch, around, found)
    elif isinstance(node, dict):
        kind = node["type"]
        if kind in ("array", "map"):
            _collect(node["items" if kind == "array" else "values"], around, found)
        elif kind in _NAMED:
            name = full_name(node, around)
            found.setdefault(name, (node, around))
            for one in node.get("fields", ()):
                _collect(one["type"], name.rpartition(".")[0], found)
        else:
            _collect(kind, around, found)


def guid_of(text: str, references: Sequence[Reference] = (), metadata: Mapping[str, object] | None = None) -> UUID:
    """The GUID of a schema without rules.

    Parameters
    ----------
    text : str
    references : sequence of Reference
        In the order in which they were registered.
    metadata : mapping, optional
        ``tags``, ``properties`` and ``sensitive``, as in the JSON of a registry.
    """
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    for one in references:
        digest.update(one.name.encode() + one.subject.encode() + (one.version & 0xFFFFFFFF).to_bytes(4, "big"))
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
