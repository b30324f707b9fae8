"""The GUID of a schema in Confluent's registry: the MD5 of its text and of all that belongs to it.

    MD5( text as UTF-8, for each reference: name, subject, i32 big-endian version,
         with metadata: 01, tags, properties, names of sensitive properties, all sorted )

Source: ``Schema.getGuid``, ``SchemaReference.updateHash`` and ``Metadata.updateHash`` of confluentinc/schema-registry. The topic
`_schemas` has the same 16 bytes in the field ``md5`` of recent values.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from kolumn.schemas.schema import Reference


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
