"""The types of typed columns, known before a read begins: given by the caller, said by schemas, or inferred from the first values."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import Source
from kolumn.decode.pipeline import scan_ranges
from kolumn.options import Options
from kolumn.source.segments import Range, named_parts
from kolumn.values.schemas.given import ListedSchemas
from kolumn.values.schemas.schema import Kind, Schema, Schemas
from kolumn.values.typed import INTERNAL, Typed

if TYPE_CHECKING:
    from kolumn.values.internal.decoder import Reading

logger = logging.getLogger("kolumn.values")

_KINDS: dict[str, Kind] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}


def with_types(options: Options, source: Source, ranges: Iterable[Range]) -> Options:
    """The options of a read with the types of its typed columns.

    Parameters
    ----------
    options : Options
    source : str, PathLike or iterable of those
        What is read; schemas are looked for beside it.
    ranges : iterable of Range
        The ranges that are read. Only a type that has to be inferred reads them, up to ``value_sample`` values.

    Raises
    ------
    ArgumentError
        A schema makes no sense or is not there, topics of the read have different schemas, or no type can be inferred.
    """
    if not options.typed:
        return options
    some = list(ranges)
    known = replace(options, typed=tuple(_known(one, options, source, some) for one in options.typed))
    # Errors of schemas and names are raised here.
    _ = known.schema, [one.looks_at for one in known.typed]
    return known


def _known(one: Typed, options: Options, source: Source, ranges: Sequence[Range]) -> Typed:
    if one.reader is not None:
        return one
    if one.format == INTERNAL:
        return one.of(_reading(options, ranges))
    opener = _opener(one, source)
    if one.schema is not None and one.format != "registry":
        return one.of(_given(one), opener)
    if one.format == "json" and one.schemas is None:
        return one.of(_inferred(one, options, ranges), opener)
    if opener is None:
        raise ArgumentError(f"{one.option('format')}={one.format!r} needs {one.option('schema')}, or {one.option('schemas')}")
    found = one.of(None, opener)
    newest = _of_topics(found, ranges)
    if one.schema is not None:
        reader = _given(one, _kind(one.schema) if newest is None else newest.kind)
    else:
        reader = newest or _of_first_values(found, options, ranges)
        if one.format in _KINDS and reader.kind != _KINDS[one.format]:
            raise ArgumentError(f"{one.option('format')}={one.format!r}: the newest schema is of {reader.kind}; take 'registry'")
    # The collection that was opened stays with the read.
    made = found.of(reader, opener)
    made.__dict__["writers"] = found.writers
    return made


def _reading(options: Options, ranges: Sequence[Range]) -> "Reading":
    from kolumn.values.internal.decoder import Reading
    from kolumn.values.internal.topics import CLUSTER_METADATA, INTERNAL_TOPICS

    topics = sorted({each.segment.topic for each in ranges if each.segment.topic is not None})
    nameless = {each.segment.path.endswith(".checkpoint") for each in ranges if each.segment.topic is None} == {True}
    if not options.include_control and not nameless and not set(topics) & set(INTERNAL_TOPICS):
        found = f"the topics {', '.join(topics)}" if topics else "no topic" if ranges else "no segment"
        raise ArgumentError(
            f"decode={INTERNAL!r}: found {found}, expected one of {', '.join(INTERNAL_TOPICS)}: name it by topic=…, or take "
            "include_control=True for the control records of any topic"
        )
    return Reading(tuple(topics), options.include_control, CLUSTER_METADATA if nameless else None)


def _given(one: Typed, kind: Kind | None = None) -> Any:
    """What the decoder is made of, from the caller's schema."""
    schema = one.schema
    if isinstance(schema, Schema):
        return schema
    kind = kind or _KINDS.get(one.format)
    if kind == "AVRO":
        return Schema("AVRO", schema if isinstance(schema, str) else json.dumps(schema))
    if kind == "PROTOBUF":
        return Schema("PROTOBUF", schema) if isinstance(schema, str) else schema
    if kind == "JSON" and one.format == "registry":
        return Schema("JSON", schema if isinstance(schema, str) else json.dumps(schema))
    return _json_schema(schema) or schema


def _kind(schema: object) -> Kind:
    """The type of a caller's schema."""
    if isinstance(schema, str | Mapping | list):
        from kolumn.values.schemas.given import schema_of

        return schema_of(schema).kind
    return schema.kind if isinstance(schema, Schema) else "PROTOBUF"


def _json_schema(schema: object) -> Schema | None:
    """A schema of "json" that is a JSON Schema, told by its properties."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError):
            # What is wrong with it is said where it is read.
            return None
    if isinstance(schema, Mapping) and isinstance(schema.get("properties"), Mapping) and schema.get("type", "object") == "object":
        return Schema("JSON", json.dumps(schema))
    return None


def _opener(one: Typed, source: Source) -> Callable[[], Schemas] | None:
    """Opens the writers' schemas in any process; None without any."""
    if one.schemas is None and one.format != "registry":
        return None
    return partial(_open, one.schemas, tuple(named_parts(source)))


def _open(given: object, source: Source) -> Schemas:
    if hasattr(given, "by_id"):
        return cast(Schemas, given)
    from kolumn.values.schemas.open import schemas_of

    return schemas_of(cast(Any, given), source)


def _of_topics(one: Typed, ranges: Iterable[Range]) -> Schema | None:
    """The newest schema of the topics that are read, None if they have no subjects."""
    schemas = one.writers
    assert schemas is not None
    topics = sorted({each.segment.topic for each in ranges if each.segment.topic is not None})
    found = {topic: newest for topic in topics if (newest := schemas.newest(f"{topic}-{one.column}")) is not None}
    # Of a caller's schema only the kind is asked for.
    if len({(newest.kind, newest.text if one.schema is None else "") for newest in found.values()}) > 1:
        raise ArgumentError(
            f"{one.column}: the newest schemas of the topics {', '.join(found)} differ: read one of them, or say by topic=… whose schema "
            f"counts, or give {one.option('schema')}"
        )
    return next(iter(found.values()), None) or schemas.only()


def _of_first_values(one: Typed, options: Options, ranges: Sequence[Range]) -> Schema:
    """The newest schema of the subject that all schemas of the first values are of: its name may be that of the record."""
    schemas, seen = one.writers, _seen(one, options, ranges)
    assert schemas is not None
    if seen and not isinstance(schemas, ListedSchemas):
        return max(seen, key=lambda schema: schema.id or 0)
    own: dict[str, set[object]] = {}
    for each in schemas.registered() if isinstance(schemas, ListedSchemas) else ():
        if each.subject is not None:
            own.setdefault(each.subject, set()).add((each.schema.text, each.schema.references))
    texts = {(schema.text, schema.references) for schema in seen}
    newest = {subject: schemas.newest(subject) for subject, there in own.items() if texts and texts <= there}
    if len({(found.text, found.references) for found in newest.values() if found is not None}) == 1:
        return next(found for found in newest.values() if found is not None)
    topics = sorted({each.segment.topic for each in ranges if each.segment.topic is not None})
    asked = " or ".join(f"{topic}-{one.column}" for topic in topics) or "a topic without a name"
    others = sorted(newest or {subject for subject, there in own.items() if texts & there})
    why = f", and the first {one.column}s have schemas of {', '.join(others)}" if others else ""
    raise ArgumentError(f"no schema of {asked} in {one.option('schemas')}{why}: name one in {one.option('schema')}")


def _seen(one: Typed, options: Options, ranges: Sequence[Range]) -> Sequence[Schema]:
    """The schemas that the first values name."""
    walk = _plain(options, (one.column, *one.looks_at))
    left = one.sample
    for batch in scan_ranges(ranges, walk):
        part = batch.slice(0, left)
        one.framer.bodies(part.column(0), part.column(1) if one.looks_at else None)
        left -= part.num_rows
        if not left:
            break
    return one.framer.schemas


def _plain(options: Options, columns: tuple[str, ...]) -> Options:
    """How the first values are read: on the CPU, since Spark's driver calls this too, and must not open a GPU."""
    return replace(options, columns=columns, typed=(), threads=1, backend="cpu", on_progress=None, binary="contiguous")


def _inferred(one: Typed, options: Options, ranges: Sequence[Range]) -> pa.StructType:
    from kolumn.values.json.schema import inferred

    values = list(_first(_plain(options, (one.column,)), one.column, one.sample, ranges))
    found = inferred(values, one.option("schema"))
    if found is None:
        raise ArgumentError(
            f"none of the first {len(values)} {one.column}s is a JSON object with members: say its type in {one.option('schema')}"
        )
    logger.info("%s: the type inferred from the first %d values is %s", one.column, len(values), found)
    return found


def _first(walk: Options, column: str, limit: int, ranges: Iterable[Range]) -> Iterator[bytes]:
    """The first values that are not null."""
    for batch in scan_ranges(ranges, walk):
        for value in batch.column(column).drop_null().slice(0, limit).to_pylist():
            yield value
            limit -= 1
        if not limit:
            return
