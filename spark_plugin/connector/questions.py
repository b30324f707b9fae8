"""The answers to what the connector asks on the driver: the schema, whether headers tell, the plan, the topics, and about streams.

Answers about a stream are those of `kolumn.spark_plugin.read.stream.RecordStream`, so offsets and guarantees are the same with and without
the jar. A worker may end between two questions. So what a stream remembers is with the JVM, and comes with each question:

    stream      options with the types of values, as the run began with them
    target      where a run of Trigger.AvailableNow ends
    triggered   when the last micro-batch began, in seconds of this machine's monotonic clock
"""

import json
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import cast

from pyspark.sql.types import StructType

from kolumn.copies.ranges import every_range
from kolumn.core.errors import KolumnError
from kolumn.decode.host.headers import headers
from kolumn.source.segments import Range, Segment
from kolumn.spark_plugin.connector.conditions import EVERYTHING, Box, Condition, boxes, is_decided, is_useful, only_asked
from kolumn.spark_plugin.connector.hidden import hidden, record_columns, with_hidden
from kolumn.spark_plugin.connector.statistics import NAMES, Estimate, estimate, tells
from kolumn.spark_plugin.connector.top import Top, first
from kolumn.spark_plugin.connector.work import (
    Job,
    Json,
    Work,
    are_ordered,
    by_partition,
    by_tasks,
    done,
    given,
    options_of,
    options_with_types,
    packed,
    places,
    strings,
    struct,
    unpacked,
)  # fmt: skip
from kolumn.spark_plugin.read.options import Key, LoadOptions
from kolumn.spark_plugin.read.schema import say_spark_types, spark_schema
from kolumn.spark_plugin.read.splits import PAYLOAD_RATIO, Bounds, Split, limits_of, pack, segments_by_partition, share
from kolumn.spark_plugin.read.stream import RecordStream, Topics, behind, from_json

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
    columns = {name.split(" ")[-1] for name in asked} - {"count"}
    return {"exact": tells(options) and set(asked) <= NAMES and columns <= record_columns(options.decode)}


def _top(question: Json) -> Json:
    """Whether headers tell what the first rows of an order are among."""
    options, top = options_of(question).for_batch(), Top.of(question)
    return {"told": top is not None and top.is_told(options, record_columns(options.decode))}


def _hidden(question: Json) -> Json:
    """The columns that a query may name though the table does not have them."""
    options = options_of(question)
    return {"schema": spark_schema(hidden(options.decode), options.payload).json()}


def _conditions(question: Json) -> Json:
    """Which conditions the plan uses, and which it decides, so that no row has to be compared."""
    columns = record_columns(options_of(question).decode)
    conditions = cast(list[Condition], question["conditions"])
    return {name: [says(condition, columns) for condition in conditions] for name, says in (("useful", is_useful), ("decided", is_decided))}


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
    columns, top = record_columns(options.decode), Top.of(question)
    options = with_hidden(options, asked)
    # Headers have no columns but these.
    headers_alone = replace(options, decode=replace(options.decode, columns=("offset", "timestamp"), typed=()))
    options = replace(headers_alone if totals else only_asked(options, asked), slots=cast(int, question["slots"]))
    say_spark_types(options)
    groups = segments_by_partition(options)
    limits = limits_of(options, groups)
    where = boxes(conditions, groups, columns)
    if top is not None and all(is_decided(condition, columns) for condition in conditions):
        where = first({key: groups[key] for key in where}, options.decode, top, by_tasks(question))
    groups = {key: groups[key] for key in where}
    options, limits = _narrowed(options, limits, where)
    keys, ordered = None, False
    if totals:
        splits = _for_totals(options, groups)
        size = Estimate(len(splits), 64 * len(splits))
    else:
        options = _bounded(options, groups, cast(int, question.get("most", 0)))
        splits = share(options, groups, limits, by_tasks(question))
        size = estimate([part for split in splits for part in split.ranges], options.decode)
        if limit >= 0:
            whole = all(box == EVERYTHING for box in where.values())
            splits = _first(splits, limit) if whole and tells(options) else splits
            size = Estimate(min(limit, size.rows), size.bytes * min(limit, size.rows) // max(1, size.rows))
        elif question["keyed"]:
            splits, keys = by_partition(splits, options.slots or 1, bool(question["mustBeKeyed"]))
            ordered = keys is not None and "offset" in asked.fieldNames() and are_ordered(splits, keys)
    return {
        "work": packed(Work(options, asked, limit, totals, ordered=ordered)),
        "splits": list(map(packed, splits)),
        "places": places(splits),
        "keys": keys,
        "ordered": ordered,
        "rows": size.rows,
        "bytes": size.bytes,
    }


def _narrowed(options: LoadOptions, limits: dict[Key, Bounds], where: dict[Key, Box]) -> tuple[LoadOptions, dict[Key, Bounds]]:
    """The options with the range of times, and the bounds of offsets of each topic partition, as narrow as its box."""
    bounds = {}
    for key, box in where.items():
        inner = Box(*limits.get(key, (None, None))).and_(Box(box.start_offset, box.end_offset))
        bounds[key] = (0, 0) if inner.is_empty else (inner.start_offset, inner.end_offset)
    times = reduce(Box.or_, where.values()) if where else EVERYTHING
    times = times.and_(Box(None, None, options.decode.start_timestamp, options.decode.end_timestamp))
    decode = replace(options.decode, start_timestamp=times.start_timestamp, end_timestamp=times.end_timestamp)
    return replace(options, decode=decode), bounds


def _bounded(options: LoadOptions, groups: dict[Key, list[Segment]], most: int) -> LoadOptions:
    """The options with splits that decode to about ``most`` bytes, however well the log is compressed; 0 is no bound."""
    if not most:
        return options
    whole = [part for segments in groups.values() for part in every_range(segments, options.decode)]
    stored, size = sum(part.end - part.start for part in whole), estimate(whole, options.decode).bytes
    return replace(options, split_bytes=min(options.split_bytes, max(1, stored * most // size))) if size else options


def _for_totals(options: LoadOptions, groups: dict[Key, list[Segment]]) -> list[Split]:
    whole = [part for segments in groups.values() for part in every_range(segments, options.decode)]
    # Headers of small segments take as long as it takes to open these.
    most = max(_FEW, -(-len(whole) // (options.slots or 1)))
    packs = pack(whole, PAYLOAD_RATIO * options.split_bytes)
    return [Split(parts[i : i + most]) for parts in packs for i in range(0, len(parts), most)] or [Split(())]


def _first(splits: list[Split], limit: int) -> list[Split]:
    """The beginning of the first split, if headers say that it has as many rows as a limit wants; else all splits."""
    before: list[Range] = []
    count = 0
    for part in splits[0].ranges if splits else ():
        if part.fault is not None or part.is_bounded:
            break
        for entries in headers(part.segment, part.start, part.end):
            columns = entries.end, entries.count, entries.control
            for end, records, control in zip(*(column.tolist() for column in columns), strict=True):
                count += max(0, records) if not control else 0
                if count >= limit:
                    return [Split((*before, replace(part, end=end)), splits[0].bounds)]
        before.append(part)
    return splits


def _stream(question: Json) -> Json:
    """A stream begins; its options are checked."""
    schema, asked = struct(question["schema"]), struct(question["asked"])
    # What is planned for `transaction` depends on whether it is asked for.
    options = with_hidden(replace(options_of(question), slots=cast(int, question["slots"])), asked)
    RecordStream(options, schema)
    say_spark_types(only_asked(options, asked))
    return {
        "stream": packed((options, schema)),
        "work": packed(Work(only_asked(options, asked), asked, live=True)),
        "hidden": len(hidden(options.decode)),
        "limits": [list(limit) for limit in options.limits],
        "least": options.least,
        "delayMs": options.delay_ms,
    }


def _reader(question: Json) -> RecordStream:
    options, schema = cast(tuple[LoadOptions, StructType], unpacked(question["stream"], tuple))
    return RecordStream(options, schema)


def _offset(text: object) -> Topics:
    return cast(Topics, json.loads(cast(str, text)))


def _latest(question: Json) -> Json:
    """Where the next micro-batch ends, and where the log does."""
    reader = _reader(question)
    if question["target"] is not None:
        reader.target = from_json(_offset(question["target"]))
    if question["triggered"] is not None:
        reader.triggered = cast(float, question["triggered"])
    offset = reader.next_offset(_offset(question["start"]), bool(question["limited"]))
    triggered = reader.triggered if reader.triggered >= 0 else None
    return {"offset": json.dumps(offset), "end": json.dumps(reader.reportLatestOffset()), "triggered": triggered}


def _batch(question: Json) -> Json:
    splits = cast(Sequence[Split], _reader(question).partitions(_offset(question["start"]), _offset(question["end"])))
    return {"splits": list(map(packed, splits)), "places": places(splits)}


_ANSWERS: dict[str, Callable[[Json], Json]] = {
    "schema": _schema,
    "hidden": _hidden,
    "totals": _totals,
    "top": _top,
    "conditions": _conditions,
    "plan": _plan,
    "piece": done,
    "topics": _topics,
    "stream": _stream,
    "initial": lambda question: {"offset": json.dumps(_reader(question).initialOffset())},
    "target": lambda question: {"target": json.dumps(_reader(question).reportLatestOffset())},
    "latest": _latest,
    "batch": _batch,
    # How far a stream is behind the log, for its progress.
    "behind": lambda question: {"metrics": behind(_offset(question["start"]), _offset(question["end"]))},
}
