"""The types of typed columns, known before a read begins: given by the caller, said by schemas, or inferred from the first values."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from kolumn.core.errors import A_FRAME_EACH, ArgumentError, shown
from kolumn.core.keywords import Source
from kolumn.damage.findings import OnDamage, Skipped
from kolumn.decode.pipeline import scan_ranges
from kolumn.options import Options
from kolumn.source.segments import Range, named_parts
from kolumn.source.storage import base_name, parent, within
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.schemas.collections import AskedSchemas, ListedSchemas, ServiceSchemas
from kolumn.values.schemas.schema import Kind, Registered, Schema, Schemas, UnnamedMessageError, UntypedError
from kolumn.values.schemas.subjects import Naming, record_name
from kolumn.values.typed import INTERNAL, KINDS, Typed, reader_of

if TYPE_CHECKING:
    from kolumn.values.envelopes import Infer
    from kolumn.values.internal.messages import Reading
    from kolumn.values.json_inference import Inferred

logger = logging.getLogger("kolumn.values")
_SUBJECT = re.compile(r"[^\s{}\[\]\";]+")  # What names a subject, and is no schema.
_NAMED = 6  # Topics that an error names.
_NAMING = 100  # Values that are looked at for the message that they name.


def with_types(options: Options, source: Source, ranges: Iterable[Range], of_each_topic: bool = False) -> Options:
    """The options of a read with the types of its typed columns.

    Schemas are looked for beside the ``source``. Only a type that has to be inferred reads the ``ranges``, up to ``value_sample`` values.
    Topics without a schema are read by that of the others, which the log says, unless a schema is needed ``of_each_topic``. Raises
    `ArgumentError` if a schema makes no sense or is not there, topics of the read have different schemas, or no type can be inferred.
    """
    if not options.typed:
        return options
    some = list(ranges)
    known = replace(options, typed=tuple(known_type(typed, options, source, some, of_each_topic) for typed in options.typed))
    # Errors of schemas and names are raised here.
    _ = known.schema, [typed.looks_at for typed in known.typed]
    return known


def known_type(typed: Typed, options: Options, source: Source, ranges: Sequence[Range], of_each_topic: bool = False) -> Typed:
    """A column of a read with its type, and the message of Protobuf that the first values are of; errors as `with_types`."""
    known = _known(typed, options, source, ranges, of_each_topic)
    try:
        _ = None if known.format == INTERNAL else known.decoder
    except UnnamedMessageError as error:
        return _with_message(known, error, options, ranges)
    return known


def _known(typed: Typed, options: Options, source: Source, ranges: Sequence[Range], of_each_topic: bool) -> Typed:
    if typed.reader is not None:
        return typed
    if typed.format == INTERNAL:
        return typed.of(_reading(options, ranges))
    opener = _opener(typed, source, ranges)
    if typed.envelope is not None and typed.format == "json" and typed.schemas is None:
        return typed.of(_in_envelope(typed, options, ranges), opener)
    if typed.schema is not None and typed.format != "registry":
        return typed.of(reader_of(typed), opener)
    if typed.format == "json" and typed.schemas is None:
        return typed.of(_inferred(typed, options, ranges), opener)
    if opener is None:
        raise ArgumentError(f"{typed.option('format')}={typed.format!r} needs {typed.option('schema')}, or {typed.option('schemas')}")
    found = typed.of(None, opener)
    newest = _of_topics(found, ranges, of_each_topic) if typed.subject == "topic" else None
    if typed.schema is not None:
        reader = _of_subject(found) or reader_of(typed, _kind(typed.schema) if newest is None else newest.kind)
    else:
        reader = newest or (_of_first_values if typed.subject == "topic" else _of_records)(found, options, ranges)
        if typed.format in KINDS and reader.kind != KINDS[typed.format]:
            raise ArgumentError(f"{typed.option('format')}={typed.format!r}: the newest schema is of {reader.kind}; take 'registry'")
    # The collection that was opened stays with the read.
    made = found.of(reader, opener)
    made.__dict__["writers"] = found.writers
    return made


def _with_message(typed: Typed, error: UnnamedMessageError, options: Options, ranges: Sequence[Range]) -> Typed:
    """With the message that is named by what precedes the first values. `ArgumentError` if that is none, or they are of several."""
    from kolumn.values.protobuf import named_messages

    named, left = dict[str, None](), _NAMING
    for batch in scan_ranges(ranges, _plain(options, (typed.column, *typed.looks_at))):
        part = batch.filter(batch.column(0).is_valid()).slice(0, left)
        bodies, _ = typed.framer.bodies(part.column(0), part.column(1) if typed.looks_at else None)
        named |= dict.fromkeys(named_messages(bodies, error.file, typed.reader, typed.writers))
        left -= part.num_rows
        if not left:
            break
    if len(named) == 1:
        made = replace(typed, message=next(iter(named)))
        made.__dict__["writers"] = typed.writers
        return made
    several = f"; the first {typed.column}s are of {', '.join(named)}" if named else ""
    example = next(iter(named or error.file.places()), "")
    raise ArgumentError(f"{error}{several}: give one, e.g. {typed.option('message')}={example!r}") from None


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


def _of_subject(typed: Typed) -> Schema | None:
    """The newest schema of the subject that a caller names in place of a schema; None if it is a schema."""
    given, schemas = typed.schema, typed.writers
    if not isinstance(given, str) or schemas is None or not _SUBJECT.fullmatch(given):
        return None
    newest = schemas.newest(given)
    if newest is None and given not in ("true", "false"):
        own = typed.option("schema")
        raise ArgumentError(f"{own}={given!r}: neither a schema nor a subject in {typed.option('schemas')}, which `kolumn schemas` lists")
    return newest


def _kind(schema: object) -> Kind:
    """The type of a caller's schema."""
    if isinstance(schema, str | Mapping | list):
        from kolumn.values.schemas.collections import schema_of

        return schema_of(schema).kind
    return schema.kind if isinstance(schema, Schema) else "PROTOBUF"


def _opener(typed: Typed, source: Source, ranges: Iterable[Range]) -> Callable[[], Schemas] | None:
    """What opens the writers' schemas in any process; None if a read has none."""
    if typed.schemas is not None or typed.format == "registry":
        return partial(_open, typed.schemas, tuple(named_parts(source)), typed.as_of, _naming(typed, ranges))
    if typed.as_of is not None or typed.subject != "topic":
        unused = typed.option("as_of" if typed.as_of is not None else "subject")
        raise ArgumentError(f"{unused} goes with {typed.option('schemas')}: without it no schema is looked up")
    return None


def _naming(typed: Typed, ranges: Iterable[Range]) -> Naming:
    topics = sorted({part.segment.topic for part in ranges if part.segment.topic is not None})
    return Naming(typed.subject, typed.column, tuple(topics))


def _open(given: object, source: Source, as_of: int | None, naming: Naming) -> Schemas:
    found: Schemas
    if hasattr(given, "by_id") and as_of is None:
        found = cast(Schemas, given)
    else:
        from kolumn.readers.schemas import schemas_of

        found = schemas_of(cast(Any, given), source, as_of=as_of)
    return found.within(naming) if isinstance(found, ListedSchemas | ServiceSchemas) else found


def _of_topics(typed: Typed, ranges: Iterable[Range], of_each_topic: bool) -> Schema | None:
    """The newest schema of the topics that are read, None if they have no subjects."""
    schemas, naming = typed.writers, _naming(typed, ranges)
    assert schemas is not None
    newest = zip(naming.topics, map(schemas.newest, naming.by_topic()), strict=True)
    found = {topic: schema for topic, schema in newest if schema is not None}
    # Of a caller's schema only the kind is asked for.
    if len({(schema.kind, schema.text if typed.schema is None else "") for schema in found.values()}) > 1:
        raise ArgumentError(
            f"{typed.column}s of the topics {', '.join(map(shown, found))} have different types, and a table has one: name one topic"
            f"{_example(ranges, next(iter(found)))}, or take {A_FRAME_EACH}"
        )
    others = [shown(topic) for topic in naming.topics if topic not in found]
    if found and others and typed.schema is None and of_each_topic:
        raise ArgumentError(
            f"{', '.join(others)}: no schema of {'its' if len(others) == 1 else 'their'} {typed.column}s, and a table has one type: name "
            f"one topic{_example(ranges, next(iter(found)))}, or leave out {typed.option('format')}, so that {typed.column}s stay bytes"
        )
    if found and others and typed.schema is None:
        logger.warning(
            "%s: no schema; %s %ss are read by the schema of %s, and null where they do not fit it",
            ", ".join(others), "its" if len(others) == 1 else "their", typed.column, ", ".join(map(shown, found)),
        )  # fmt: skip
    return next(iter(found.values()), None) or schemas.only()


def _example(ranges: Iterable[Range], topic: str) -> str:
    """How a caller names a topic alone, if its folders have its name."""
    folder = next(parent(part.segment.path) for part in ranges if part.segment.topic == topic)
    return f", e.g. {within(parent(folder), f'{topic}-*')!r}" if base_name(folder).startswith(f"{topic}-") else ""


def _of_first_values(typed: Typed, options: Options, ranges: Sequence[Range]) -> Schema:
    """The newest schema of the subject that all schemas of the first values are of: its name may be that of the record. A subject without
    a version that is not deleted counts if there is no other.
    """
    schemas, seen = typed.writers, _seen(typed, options, ranges)
    assert schemas is not None
    if seen and not isinstance(schemas, ListedSchemas):
        return max(seen, key=lambda schema: schema.id or 0)
    own: dict[str, list[Registered]] = {}
    if isinstance(schemas, ListedSchemas):
        _check_contexts(typed, schemas, ranges)
    for version in schemas.registered() if isinstance(schemas, ListedSchemas) else ():
        if version.subject is not None:
            own.setdefault(version.subject, []).append(version)
    texts = {(schema.text, schema.references) for schema in seen}
    there = {subject: texts & {(one.schema.text, one.schema.references) for one in versions} for subject, versions in own.items()}
    fit = [subject for subject, some in there.items() if some and some == texts]
    fit = [subject for subject in fit if not all(version.is_deleted for version in own[subject])] or fit
    newest = {(one.text, one.references): one for subject in fit if (one := schemas.newest(subject)) is not None}
    if len(newest) == 1:
        return next(iter(newest.values()))
    others = sorted(fit or (subject for subject, some in there.items() if some))
    raise (ArgumentError if seen else UntypedError)(_without_subject(typed, ranges, seen, others))


def _check_contexts(typed: Typed, schemas: ListedSchemas, ranges: Iterable[Range]) -> None:
    """Raise `ArgumentError` if the subject of a topic is one of several contexts, and not of the default one."""
    given = typed.option("schemas")
    for subject in _naming(typed, ranges).by_topic():
        contexts = [f".{context}" for context in schemas.contexts_with(subject)]
        if contexts:
            raise ArgumentError(
                f"{subject} has other schemas in the contexts {', '.join(contexts)}: name one by the path of the topic in {given}, as in "
                f"{given}='…/_schemas-0/contexts/{contexts[0]}', or name a schema in {typed.option('schema')}"
            )


def _without_subject(typed: Typed, ranges: Iterable[Range], seen: Sequence[Schema], others: list[str]) -> str:
    """What is said if the names of topics lead to no schema. ``others`` are subjects that have some of the ``seen`` schemas."""
    asked, given = _naming(typed, ranges).by_topic(), typed.option("schemas")
    own = typed.option("schema")
    if any(schema.kind == "PROTOBUF" for schema in seen):
        own = f"{own}, and its message in {typed.option('message')}"
    if not seen:
        why = f"none of the first {typed.column}s names a schema that is there"
    elif not others:
        why = f"the first {typed.column}s have schemas without a subject, {', '.join(str(schema.id or schema.guid) for schema in seen)}"
    else:
        why = f"the first {typed.column}s have schemas of {', '.join(others)}"
    return f"no subject {' or '.join(asked) or 'of a topic without a name'} in {given}, and {why}: name a schema in {own}"


def _of_records(typed: Typed, options: Options, ranges: Sequence[Range]) -> Schema:
    """The newest schema of the subject of the record that the first values have, by Confluent's strategies."""
    schemas, seen, naming = typed.writers, _seen(typed, options, ranges), _naming(typed, ranges)
    assert schemas is not None
    strategy, given, own = f"{typed.option('subject')}={typed.subject!r}", typed.option("schemas"), typed.option("schema")
    if not seen:
        raise ArgumentError(f"{strategy}: none of the first {typed.column}s names a schema in {given}: name one in {own}")
    names = dict.fromkeys(name for schema in seen for name in _record_names(typed, schema, schemas))
    if not names:
        raise ArgumentError(f"{strategy}: the schemas of the first {typed.column}s name no record, message or title: name one in {own}")
    asked = {subject: name for name in names for subject in naming.by_record(name)}
    newest = {subject: found for subject in asked if (found := schemas.newest(subject)) is not None}
    records = dict.fromkeys(asked[subject] for subject in newest)
    if len(records) > 1:
        others = f"{typed.column}s of the others are null"
        if {schema.kind for schema in seen} == {"JSON"}:
            others = f"members that {typed.column}s of the others lack are null"
        message = f"or a message in {typed.option('message')}; " if any(schema.kind == "PROTOBUF" for schema in seen) else ""
        raise ArgumentError(
            f"{strategy}: the first {typed.column}s are of several records, {', '.join(records)}: name the schema of one of them in {own}, "
            f"{message}{others} then"
        )
    if len({(found.kind, found.text) for found in newest.values()}) > 1:
        raise ArgumentError(f"{strategy}: the newest schemas of {', '.join(newest)} differ: read one of these topics, or name one in {own}")
    if newest:
        return next(iter(newest.values()))
    if isinstance(schemas, AskedSchemas) and len(names) == 1:
        # A function knows no subjects.
        return max(seen, key=lambda schema: schema.id or 0)
    raise ArgumentError(f"{strategy}: no subject {' or '.join(asked)} in {given}: name a schema in {own}")


def _record_names(typed: Typed, schema: Schema, schemas: Schemas) -> list[str]:
    """Names of the records that a schema may be registered by: of Protobuf all messages of its file, or the one that the caller names."""
    if schema.kind != "PROTOBUF":
        name = record_name(schema)
        return [] if name is None else [name]
    from kolumn.values.protobuf_schema import file_of

    names, wanted = file_of(schema, schemas).places(), typed.message
    return [name for name in names if wanted is None or name == wanted or name.endswith(f".{wanted}")]


def _seen(typed: Typed, options: Options, ranges: Sequence[Range]) -> Sequence[Schema]:
    """The schemas that the first values name."""
    walk = _plain(options, (typed.column, *typed.looks_at))
    left = typed.sample
    for batch in scan_ranges(ranges, walk, Skipped()):
        part = batch.slice(0, left)
        typed.framer.bodies(part.column(0), part.column(1) if typed.looks_at else None)
        left -= part.num_rows
        if not left:
            break
    return typed.framer.schemas


def inference(typed: Typed) -> "Infer":
    """What infers types of JSON for the values of a read."""
    from kolumn.values.json_inference import inferred

    return lambda values: inferred(values, typed.option("schema")).type


def _in_envelope(typed: Typed, options: Options, ranges: Sequence[Range]) -> object:
    """What JSON is read by, if something is around it, as the first values show."""
    from kolumn.values.by_schema import JsonEnvelope
    from kolumn.values.envelopes import json_envelope

    assert typed.envelope is not None
    named = None if typed.schema is None else typed.whole(reader_of(typed), None).type
    seen = first_values(typed, options, ranges)
    if named is None and seen.are_null:
        # Nothing tells whether an event or a payload is beside a schema.
        is_event = typed.envelope == "debezium"
        how = JsonEnvelope(JSON_TEXT, JSON_TEXT, JSON_TEXT, is_wrapped=True, is_bare=is_event, is_event=is_event)
        return JSON_TEXT if typed.envelope == "auto" else how
    values = [value for value in seen.values if value is not None]
    with seen.naming():
        found = json_envelope(typed.envelope, named, values, inference(typed), typed.option("envelope"))
        if found is None:
            why = f"the first {len(values)} {typed.column}s do not say it"
            raise ArgumentError(f"no type of what is in the envelope: {why}: name it in {typed.option('schema')}")
    logger.info("%s: what the first %d values have around them: %s", typed.column, len(values), found)
    return found


def _plain(options: Options, columns: tuple[str, ...]) -> Options:
    """How the first values are read: on the CPU, since Spark's driver calls this too, and must not open a GPU."""
    how: dict[str, Any] = {"threads": 1, "backend": "cpu", "on_progress": None, "binary": "contiguous"}
    return replace(options, columns=columns, typed=(), include_control=False, **how)


@dataclass
class FirstValues:
    """The bodies of the first values that are there; None where what precedes a body is malformed. ``topics`` are those of the values, or
    of all that was looked at if no value is there; ``are_null``: there are records, and all their values are null.
    """

    values: list[bytes | None]
    topics: list[str]
    are_null: bool

    def inferred(self, where: str) -> "Inferred":
        """The type that the values have in common, JSON text if all of them are null; errors as `kolumn.values.json_inference.inferred`."""
        from kolumn.values.json_inference import Inferred, SeenField, inferred

        if self.are_null:
            return Inferred(JSON_TEXT, 0, (SeenField("$", JSON_TEXT, {}, "every value is null"),))
        with self.naming():
            return inferred(self.values, where)

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Errors about the values name their topics."""
        try:
            yield
        except ArgumentError as error:
            if not self.topics:
                raise
            names = ", ".join(map(shown, self.topics[:_NAMED])) + ("" if len(self.topics) <= _NAMED else ", …")
            error.args = (f"topic{'s' if len(self.topics) > 1 else ''} {names}: {error}",)
            raise


def first_values(typed: Typed, options: Options, ranges: Sequence[Range], on_damage: OnDamage | None = None) -> FirstValues:
    """The first values of each topic of a read, ``sample`` of them at most."""
    values, topics, has_records = list[bytes | None](), dict[str, None](), False
    parts: dict[str | None, list[Range]] = {}
    for one in ranges:
        parts.setdefault(one.segment.topic, []).append(one)
    for topic, own in parts.items():
        end = len(values) + typed.sample
        for batch in scan_ranges(own, _plain(options, (typed.column, *typed.looks_at)), on_damage or Skipped()):
            has_records = has_records or batch.num_rows > 0
            part = batch.filter(batch.column(0).is_valid()).slice(0, end - len(values))
            topics |= {topic: None} if topic is not None and part.num_rows else {}
            bodies, _ = typed.framer.bodies(part.column(0), part.column(1) if typed.looks_at else None)
            values += [bodies.payload(row) if bodies.length[row] >= 0 else None for row in range(len(bodies))]
            if len(values) == end:
                break
    if not values:
        topics = dict.fromkeys(part.segment.topic for part in ranges if part.segment.topic is not None)
    return FirstValues(values, list(topics), has_records and not values)


def _inferred(typed: Typed, options: Options, ranges: Sequence[Range]) -> pa.DataType:
    found = first_values(typed, options, ranges).inferred(typed.option("schema"))
    logger.info("%s: the type inferred from the first %d values is %s", typed.column, found.values, shown(str(found)))
    return found.type
