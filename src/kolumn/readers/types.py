"""The types of typed columns, known before a read begins: given by the caller, said by schemas, or inferred from the first values."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import Source
from kolumn.decode.pipeline import scan_ranges
from kolumn.options import Options
from kolumn.source.segments import Range, named_parts
from kolumn.values.schemas.collections import ListedSchemas
from kolumn.values.schemas.schema import Kind, Schema, Schemas
from kolumn.values.typed import INTERNAL, KINDS, Typed, reader_of

if TYPE_CHECKING:
    from kolumn.values.internal.messages import Reading

logger = logging.getLogger("kolumn.values")


def with_types(options: Options, source: Source, ranges: Iterable[Range]) -> Options:
    """The options of a read with the types of its typed columns.

    Schemas are looked for beside the ``source``. Only a type that has to be inferred reads the ``ranges``, up to ``value_sample`` values.
    Raises `ArgumentError` if a schema makes no sense or is not there, topics of the read have different schemas, or no type can be
    inferred.
    """
    if not options.typed:
        return options
    some = list(ranges)
    known = replace(options, typed=tuple(_known(typed, options, source, some) for typed in options.typed))
    # Errors of schemas and names are raised here.
    _ = known.schema, [typed.looks_at for typed in known.typed]
    return known


def _known(typed: Typed, options: Options, source: Source, ranges: Sequence[Range]) -> Typed:
    if typed.reader is not None:
        return typed
    if typed.format == INTERNAL:
        return typed.of(_reading(options, ranges))
    # It opens the writers' schemas in any process.
    opener = partial(_open, typed.schemas, tuple(named_parts(source))) if typed.schemas is not None or typed.format == "registry" else None
    if typed.schema is not None and typed.format != "registry":
        return typed.of(reader_of(typed), opener)
    if typed.format == "json" and typed.schemas is None:
        return typed.of(_inferred(typed, options, ranges), opener)
    if opener is None:
        raise ArgumentError(f"{typed.option('format')}={typed.format!r} needs {typed.option('schema')}, or {typed.option('schemas')}")
    found = typed.of(None, opener)
    newest = _of_topics(found, ranges)
    if typed.schema is not None:
        reader = reader_of(typed, _kind(typed.schema) if newest is None else newest.kind)
    else:
        reader = newest or _of_first_values(found, options, ranges)
        if typed.format in KINDS and reader.kind != KINDS[typed.format]:
            raise ArgumentError(f"{typed.option('format')}={typed.format!r}: the newest schema is of {reader.kind}; take 'registry'")
    # The collection that was opened stays with the read.
    made = found.of(reader, opener)
    made.__dict__["writers"] = found.writers
    return made


def _reading(options: Options, ranges: Sequence[Range]) -> "Reading":
    from kolumn.values.internal.messages import CLUSTER_METADATA, INTERNAL_TOPICS, Reading

    topics = sorted({part.segment.topic for part in ranges if part.segment.topic is not None})
    nameless = {part.segment.path.endswith(".checkpoint") for part in ranges if part.segment.topic is None} == {True}
    if not options.include_control and not nameless and not set(topics) & set(INTERNAL_TOPICS):
        found = f"the topics {', '.join(topics)}" if topics else "no topic" if ranges else "no segment"
        raise ArgumentError(
            f"decode={INTERNAL!r}: found {found}, expected one of {', '.join(INTERNAL_TOPICS)}: name it by topic=…, or take "
            "include_control=True for the control records of any topic"
        )
    return Reading(tuple(topics), options.include_control, CLUSTER_METADATA if nameless else None)


def _kind(schema: object) -> Kind:
    """The type of a caller's schema."""
    if isinstance(schema, str | Mapping | list):
        from kolumn.values.schemas.collections import schema_of

        return schema_of(schema).kind
    return schema.kind if isinstance(schema, Schema) else "PROTOBUF"


def _open(given: object, source: Source) -> Schemas:
    if hasattr(given, "by_id"):
        return cast(Schemas, given)
    from kolumn.readers.schemas import schemas_of

    return schemas_of(cast(Any, given), source)


def _of_topics(typed: Typed, ranges: Iterable[Range]) -> Schema | None:
    """The newest schema of the topics that are read, None if they have no subjects."""
    schemas = typed.writers
    assert schemas is not None
    topics = sorted({part.segment.topic for part in ranges if part.segment.topic is not None})
    found = {topic: newest for topic in topics if (newest := schemas.newest(f"{topic}-{typed.column}")) is not None}
    # Of a caller's schema only the kind is asked for.
    if len({(newest.kind, newest.text if typed.schema is None else "") for newest in found.values()}) > 1:
        raise ArgumentError(
            f"{typed.column}: the newest schemas of the topics {', '.join(found)} differ: read one of them, or say by topic=… whose schema "
            f"counts, or give {typed.option('schema')}"
        )
    return next(iter(found.values()), None) or schemas.only()


def _of_first_values(typed: Typed, options: Options, ranges: Sequence[Range]) -> Schema:
    """The newest schema of the subject that all schemas of the first values are of: its name may be that of the record."""
    schemas, seen = typed.writers, _seen(typed, options, ranges)
    assert schemas is not None
    if seen and not isinstance(schemas, ListedSchemas):
        return max(seen, key=lambda schema: schema.id or 0)
    own: dict[str, set[object]] = {}
    for version in schemas.registered() if isinstance(schemas, ListedSchemas) else ():
        if version.subject is not None:
            own.setdefault(version.subject, set()).add((version.schema.text, version.schema.references))
    texts = {(schema.text, schema.references) for schema in seen}
    newest = {subject: schemas.newest(subject) for subject, there in own.items() if texts and texts <= there}
    if len({(found.text, found.references) for found in newest.values() if found is not None}) == 1:
        return next(found for found in newest.values() if found is not None)
    topics = sorted({part.segment.topic for part in ranges if part.segment.topic is not None})
    asked = " or ".join(f"{topic}-{typed.column}" for topic in topics) or "a topic without a name"
    others = sorted(newest or {subject for subject, there in own.items() if texts & there})
    why = f", and the first {typed.column}s have schemas of {', '.join(others)}" if others else ""
    raise ArgumentError(f"no schema of {asked} in {typed.option('schemas')}{why}: name one in {typed.option('schema')}")


def _seen(typed: Typed, options: Options, ranges: Sequence[Range]) -> Sequence[Schema]:
    """The schemas that the first values name."""
    walk = _plain(options, (typed.column, *typed.looks_at))
    left = typed.sample
    for batch in scan_ranges(ranges, walk):
        part = batch.slice(0, left)
        typed.framer.bodies(part.column(0), part.column(1) if typed.looks_at else None)
        left -= part.num_rows
        if not left:
            break
    return typed.framer.schemas


def _plain(options: Options, columns: tuple[str, ...]) -> Options:
    """How the first values are read: on the CPU, since Spark's driver calls this too, and must not open a GPU."""
    return replace(options, columns=columns, typed=(), threads=1, backend="cpu", on_progress=None, binary="contiguous")


def _inferred(typed: Typed, options: Options, ranges: Sequence[Range]) -> pa.StructType:
    from kolumn.values.json_inference import inferred

    values: list[bytes] = []
    for batch in scan_ranges(ranges, _plain(options, (typed.column,))):
        values += batch.column(typed.column).drop_null().slice(0, typed.sample - len(values)).to_pylist()
        if len(values) == typed.sample:
            break
    found = inferred(values, typed.option("schema"))
    if found is None:
        raise ArgumentError(
            f"none of the first {len(values)} {typed.column}s is a JSON object with members: say its type in {typed.option('schema')}"
        )
    logger.info("%s: the type inferred from the first %d values is %s", typed.column, len(values), found)
    return found
