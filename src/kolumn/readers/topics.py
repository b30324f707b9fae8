"""A read of several topics that may have types of their own: each is typed by itself, and one without a type stays bytes.

A table has one type for all of its values, so `kolumn.read` and the like do not come here. What has an output for each topic does: files,
lines, tables of SQL, frames by name, reports.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from kolumn.core.errors import ArgumentError, shown
from kolumn.core.keywords import Source
from kolumn.core.schema import beside
from kolumn.options import Options, milliseconds
from kolumn.readers.plan import ReadPlan, live_segments, plan_of
from kolumn.readers.schemas import schemas_of
from kolumn.readers.types import known_type, with_types
from kolumn.source.segments import Range
from kolumn.values.schemas.schema import UnreadableSchemasError, UntypedError
from kolumn.values.typed import INTERNAL, Typed

logger = logging.getLogger("kolumn.values")
Topic = str | None
_NAMED = 20  # Topics that a line of the log names.


def plan_topics(source: Source, options: Options, is_one_of_several: bool = False, beside: Source | None = None) -> list[ReadPlan]:
    """Plan a read of a source: a plan for neighbouring topics with the same types, in the order of the source; at least one.

    Errors as `plan_read`, of types as `types_by_topic`. Schemas are looked for beside ``beside``, by default beside the source.
    """
    live = live_segments(source, options)
    plan = plan_of(live, replace(live.options, typed=()))
    known = types_by_topic(live.options, source if beside is None else beside, plan.ranges, is_one_of_several)
    groups = by_type(plan.ranges, known) or [(_of_none(live.options, source), [])]
    return [replace(plan, options=own, ranges=some) for own, some in groups]


def by_type(ranges: Iterable[Range], known: Mapping[Topic, Options]) -> list[tuple[Options, list[Range]]]:
    """Neighbouring ranges of the same options, which their topics have in ``known``."""
    groups = groupby(ranges, lambda part: id(known[part.segment.topic]))
    return [(known[own[0].segment.topic], own) for own in (list(some) for _, some in groups)]


def types_by_topic(options: Options, source: Source, ranges: Sequence[Range], is_one_of_several: bool = False) -> dict[Topic, Options]:
    """The options of a read of each topic of the ranges, with the types of its own columns.

    A column for which a topic has no type stays bytes there, which one line of the log says for all such topics. If no topic has a type of
    it, or there is one topic alone, an `ArgumentError` as of `with_types`. The topic that somebody asks for may be ``is_one_of_several``:
    it stays bytes without a schema, and is an error if it has one that cannot be used.
    """
    parts: dict[Topic, list[Range]] = {}
    for part in ranges:
        parts.setdefault(part.segment.topic, []).append(part)
    several = is_one_of_several or len(parts) > 1
    if not (several and any(map(_is_of_topics, options.typed))):
        return dict.fromkeys(parts, with_types(options, source, ranges))
    found: dict[Topic, list[Typed]] = {topic: [] for topic in parts}
    for typed in options.typed:
        if not _is_of_topics(typed):
            one = known_type(typed, options, source, ranges)
            for known in found.values():
                known.append(one)
            continue
        opened, why = _opened(typed, source), dict[Topic, ArgumentError]()
        for topic, own in parts.items():
            try:
                one = known_type(opened, options, source, own)
                _ = one.type, one.looks_at
            except ArgumentError as error:
                if isinstance(error, UnreadableSchemasError) or (is_one_of_several and not isinstance(error, UntypedError)):
                    raise
                why[topic] = error
            else:
                found[topic].append(one)
        if len(why) == len(parts) and not is_one_of_several:
            # What a read of all of them says.
            known_type(typed, options, source, ranges)
            raise next(iter(why.values()))
        _say(typed.column, why)
    bare = _without(options, ())
    made = {topic: _without(options, known) if known else bare for topic, known in found.items()}
    # Errors of names are raised here.
    _ = [how.schema for how in made.values()]
    return made


def _of_none(options: Options, source: Source) -> Options:
    """The options of a read without ranges, which has nothing to find a type by."""
    try:
        return with_types(options, source, ())
    except UntypedError:
        return _without(options, ())


def _is_of_topics(typed: Typed) -> bool:
    """Whether the type of a column is one of the topic, and not the caller's."""
    return typed.reader is None and typed.schema is None and typed.format != INTERNAL


def _opened(typed: Typed, source: Source) -> Typed:
    """With the collection of schemas, which is opened once for all topics."""
    if typed.schemas is None and typed.format != "registry":
        return typed
    as_of = None if typed.as_of is None else milliseconds(typed.option("as_of"), typed.as_of)
    return replace(typed, schemas=schemas_of(typed.schemas, source, as_of=as_of), as_of=None)


def _without(options: Options, known: Sequence[Typed]) -> Options:
    """The options with types of these columns; others have their bytes, and no columns beside them."""
    others = [typed.column for typed in options.typed if typed.column not in {one.column for one in known}]
    left_out = {name: name.removesuffix("Raw") for column in others for name in beside(column)}
    kept = [left_out.get(name, name) for name in options.columns if not (name in left_out and not name.endswith("Raw"))]
    return replace(options, typed=tuple(known), columns=tuple(dict.fromkeys(kept or others)))


def _say(column: str, why: Mapping[Topic, ArgumentError]) -> None:
    """Name the topics whose keys or values stay bytes, together where the reason is the same."""
    topics: dict[str, list[str]] = {}
    for topic, error in why.items():
        name = shown(topic or "a topic without a name")
        reason = error.why if isinstance(error, UntypedError) else str(error).removeprefix(f"topic {name}: ")
        topics.setdefault(reason, []).append(name)
    for reason, names in topics.items():
        others = len(names) - _NAMED
        told = ", ".join(names) if others < 2 else f"{', '.join(names[:_NAMED])} and {others} other topics"
        logger.warning("%s: %s; %s %ss stay bytes", told, reason, "its" if len(names) == 1 else "their", column)
