"""The answers to what the connector asks on the driver: the schema, whether headers tell, the plan, the topics."""

import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import cast

from kolumn.copies.ranges import every_range
from kolumn.core.errors import KolumnError
from kolumn.log.headers import headers
from kolumn.source.segments import Range, Segment
from kolumn.spark_plugin.connector import streams
from kolumn.spark_plugin.connector.conditions import EVERYTHING, Box, Condition, boxes, is_decided, is_useful, only_asked
from kolumn.spark_plugin.connector.statistics import NAMES, Estimate, estimate, tells
from kolumn.spark_plugin.connector.wire import Json
from kolumn.spark_plugin.connector.work import (
    Job,
    Work,
    are_ordered,
    by_partition,
    by_tasks,
    done,
    given,
    options_of,
    options_with_types,
    packed,
    strings,
    struct,
)
from kolumn.spark_plugin.options.positions import Key
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.batches import PAYLOAD_RATIO
from kolumn.spark_plugin.read.schema import spark_schema
from kolumn.spark_plugin.read.splits import Bounds, Split, limits_of, pack, segments_by_partition, share

_FEW = 1000
"""So many segments are not worth another task, if only their headers are read."""


def answer(question: Json) -> Json:
    """The answer to a question; an error is an answer too."""
    try:
        return _ANSWERS[str(question["op"])](question)
    except (KolumnError, OSError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    except Exception as error:
        return {"error": in_words(error)}


def in_words(error: Exception) -> str:
    """An error with its traceback."""
    return f"{type(error).__name__}: {error}\n\n{''.join(traceback.format_exception(error))}"


def _schema(question: Json) -> Json:
    options = options_with_types(question)
    return {"schema": spark_schema(options.decode.schema, options.payload).json()}


def _topics(question: Json) -> Json:
    return {"topics": sorted({topic for topic, _ in segments_by_partition(LoadOptions.of(given(question))) if topic is not None})}


def _totals(question: Json) -> Json:
    """Whether headers tell exactly what is asked for."""
    options, asked = options_of(question).for_batch(), strings(question["totals"])
    # A field of a value may have the name of a column.
    columns = {name.split(" ")[-1] for name in asked} - {"count"}
    return {"exact": tells(options) and set(asked) <= NAMES and columns <= set(options.decode.columns)}


def _conditions(question: Json) -> Json:
    """Which conditions the plan uses, and which it decides, so that no row has to be compared."""
    columns = options_of(question).decode.columns
    conditions = cast(list[Condition], question["conditions"])
    return {"useful": [is_useful(one, columns) for one in conditions], "decided": [is_decided(one, columns) for one in conditions]}


def _plan(question: Json) -> Json:
    """What all tasks share, their splits, and what Spark's planner wants to know; or the pieces of a job that finds out where to cut."""
    try:
        return _planned(question)
    except Job as job:
        return {"job": job.pieces}


def _planned(question: Json) -> Json:
    options, totals, limit = options_of(question).for_batch(), strings(question["totals"]), cast(int, question["limit"])
    asked = struct(question["asked"])
    conditions = cast(list[Condition], question["conditions"]) + cast(list[Condition], question["found"])
    columns = options.decode.columns
    options = replace(_for_headers(options) if totals else only_asked(options, asked), slots=cast(int, question["slots"]))
    groups = segments_by_partition(options)
    limits = limits_of(options, groups)
    where = boxes(conditions, groups, columns)
    groups = {key: groups[key] for key in where}
    options, limits = _narrowed(options, limits, where)
    keys, ordered = None, False
    if totals:
        splits = _for_totals(options, groups)
        found = Estimate(len(splits), 64 * len(splits))
    else:
        splits = share(options, groups, limits, by_tasks(question))
        found = estimate([one for split in splits for one in split.ranges], options.decode)
        if limit >= 0:
            whole = all(box == EVERYTHING for box in where.values())
            splits = _first(splits, limit) if whole and tells(options) else splits
            found = Estimate(min(limit, found.rows), found.bytes * min(limit, found.rows) // max(1, found.rows))
        elif question["keyed"]:
            splits, keys = by_partition(splits, options.slots or 1, bool(question["mustBeKeyed"]))
            ordered = keys is not None and "offset" in asked.fieldNames() and are_ordered(splits, keys)
    return {
        "work": packed(Work(options, asked, limit, totals, ordered=ordered)),
        "splits": [packed(one) for one in splits],
        "keys": keys,
        "ordered": ordered,
        "rows": found.rows,
        "bytes": found.bytes,
    }


def _narrowed(options: LoadOptions, limits: dict[Key, Bounds], where: dict[Key, Box]) -> tuple[LoadOptions, dict[Key, Bounds]]:
    """The options with the range of times, and the bounds of offsets of each topic partition, as narrow as its box."""
    bounds = {}
    for key, box in where.items():
        inner = Box(*limits.get(key, (None, None))).and_(Box(box.start_offset, box.end_offset))
        bounds[key] = (0, 0) if inner.is_empty else (inner.start_offset, inner.end_offset)
    times = reduce(Box.or_, where.values()) if where else EVERYTHING
    times = times.and_(Box(None, None, options.decode.start_timestamp, options.decode.end_timestamp))
    return replace(
        options, decode=replace(options.decode, start_timestamp=times.start_timestamp, end_timestamp=times.end_timestamp)
    ), bounds


def _for_headers(options: LoadOptions) -> LoadOptions:
    return replace(options, decode=replace(options.decode, columns=("offset", "timestamp"), typed=()))


def _for_totals(options: LoadOptions, groups: dict[Key, list[Segment]]) -> list[Split]:
    whole = [one for segments in groups.values() for one in every_range(segments, options.decode)]
    # Headers of small segments take as long as it takes to open these.
    most = max(_FEW, -(-len(whole) // (options.slots or 1)))
    parts = pack(whole, PAYLOAD_RATIO * options.split_bytes)
    return [Split(some[at : at + most]) for some in parts for at in range(0, len(some), most)] or [Split(())]


def _first(splits: list[Split], limit: int) -> list[Split]:
    """The beginning of the first split, if headers say that it has as many rows as a limit wants; else all splits."""
    found: list[Range] = []
    count = 0
    for one in splits[0].ranges if splits else ():
        if one.fault is not None or one.is_bounded:
            break
        for entries in headers(one.segment, one.start, one.end):
            for position, size, records, control in zip(
                *(column.tolist() for column in (entries.position, entries.size, entries.count, entries.control)), strict=True
            ):
                count += max(0, records) if not control else 0
                if count >= limit:
                    return [Split((*found, replace(one, end=position + size)), splits[0].bounds)]
        found.append(one)
    return splits


_ANSWERS: dict[str, Callable[[Json], Json]] = {
    "schema": _schema,
    "totals": _totals,
    "conditions": _conditions,
    "plan": _plan,
    "piece": done,
    "topics": _topics,
    **streams.ANSWERS,
}
