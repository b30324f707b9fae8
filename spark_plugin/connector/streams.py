"""The answers to what the connector asks about a stream.

They are those of `kolumn.spark_plugin.stream.reader.RecordStream`, so offsets and guarantees are the same with and without the jar. A
worker may end between two questions. So what a stream remembers is with the JVM, and comes with each question:

    stream      options with the types of values, as the run began with them
    target      where a run of Trigger.AvailableNow ends
    triggered   when the last micro-batch began, in seconds of this machine's monotonic clock
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from pyspark.sql.types import StructType

from kolumn.spark_plugin.connector.conditions import only_asked
from kolumn.spark_plugin.connector.wire import Json
from kolumn.spark_plugin.connector.work import Work, options_of, packed, struct, unpacked
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.splits import Split
from kolumn.spark_plugin.stream.progress import Topics, behind, from_json
from kolumn.spark_plugin.stream.reader import RecordStream


@dataclass(frozen=True)
class Stream:
    """What a stream began with."""

    options: LoadOptions
    schema: StructType


def _stream(question: Json) -> Json:
    """A stream begins; its options are checked."""
    options = replace(options_of(question), slots=cast(int, question["slots"]))
    schema, asked = struct(question["schema"]), struct(question["asked"])
    RecordStream(options, schema)
    limits = dict(options.limits)
    return {
        "stream": packed(Stream(options, schema)),
        "work": packed(Work(only_asked(options, asked), asked, live=True)),
        "limits": [[kind, limits[kind]] for kind in limits],
        "least": options.least,
        "delayMs": options.delay_ms,
    }


def _initial(question: Json) -> Json:
    return {"offset": json.dumps(_reader(question).initialOffset())}


def _target(question: Json) -> Json:
    reader = _reader(question)
    return {"target": json.dumps(reader.reportLatestOffset())}


def _latest(question: Json) -> Json:
    """Where the next micro-batch ends, and where the log does."""
    reader = _reader(question)
    if question["target"] is not None:
        reader.target = from_json(_offset(question["target"]))
    if question["triggered"] is not None:
        reader.triggered = cast(float, question["triggered"])
    found = reader.next_offset(_offset(question["start"]), bool(question["limited"]))
    triggered = reader.triggered if reader.triggered >= 0 else None
    return {"offset": json.dumps(found), "end": json.dumps(reader.reportLatestOffset()), "triggered": triggered}


def _batch(question: Json) -> Json:
    """The splits of a micro-batch."""
    splits = _reader(question).partitions(_offset(question["start"]), _offset(question["end"]))
    return {"splits": [packed(split) for split in splits if isinstance(split, Split)]}


def _behind(question: Json) -> Json:
    """How far a stream is behind the log, for its progress."""
    return {"metrics": behind(_offset(question["start"]), _offset(question["end"]))}


def _reader(question: Json) -> RecordStream:
    stream = unpacked(question["stream"], Stream)
    return RecordStream(stream.options, stream.schema)


def _offset(text: object) -> Topics:
    found: Topics = json.loads(cast(str, text))
    return found


ANSWERS: dict[str, Callable[[Json], Json]] = {
    "stream": _stream,
    "initial": _initial,
    "target": _target,
    "latest": _latest,
    "batch": _batch,
    "behind": _behind,
}
