"""What a task gets from the plan, as text: what all tasks of a scan share, and what is its own; and what the connector's questions share.

Only the JVM can start a Spark job, which reads the headers of many segments to cut them. So the plan stops with the pieces of the job,
tasks do them in their workers, and the plan is asked for once more, with what they found.
"""

import base64
import json
import pickle
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar, cast

from pyspark.sql.types import StructType

from kolumn.core.arrays import Int64s
from kolumn.core.errors import KolumnError
from kolumn.decode.host.headers import headers
from kolumn.source.segments import Range
from kolumn.source.storage import is_url
from kolumn.spark_plugin.read.options import Key, LoadOptions
from kolumn.spark_plugin.read.schema import spark_schema, with_columns
from kolumn.spark_plugin.read.splits import Split, key_of, with_types_of
from kolumn.spark_plugin.session.session import MANY, Run, by_threads

_T = TypeVar("_T")
Json = dict[str, object]


@dataclass(frozen=True)
class Work:
    """What the tasks of a scan share.

    ``schema`` has the columns that Spark asked for, in its order. ``limit`` rows are enough of each task; a negative one means all.
    ``totals`` are asked for of the headers, none for rows. ``live``: the log is being written, so the files have to be those that the
    split was planned from. ``ordered``: Spark was told that offsets ascend in each split.
    """

    options: LoadOptions
    schema: StructType
    limit: int = -1
    totals: tuple[str, ...] = ()
    live: bool = False
    ordered: bool = False


def packed(value: object) -> str:
    """An object as text, compressed: the paths of many segments are much the same."""
    return base64.b64encode(zlib.compress(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), 1)).decode()


def unpacked(text: object, class_: type[_T]) -> _T:
    """The object of a text that `packed` made, in this process or in the driver's."""
    value = pickle.loads(zlib.decompress(base64.b64decode(cast(str, text))))
    assert isinstance(value, class_)
    return value


_PIECE = 100
"""Segments of one piece: enough of them for a task, and few enough for all slots to be busy."""


class Job(Exception):  # noqa: N818 (it is no error)
    """A plan needs a job first, whose tasks do these pieces."""

    def __init__(self, pieces: list[str]) -> None:
        super().__init__(f"{len(pieces)} pieces")
        self.pieces = pieces


def by_tasks(question: Json) -> Run:
    """Applies functions in this process if there are few items; raises `Job` if there are many and no job has been done yet."""

    def run(function: Callable[[Any], Any], items: list[Any]) -> Iterable[Any]:
        told = question.get("pieces")
        if told is None and len(items) >= MANY:
            raise Job([packed((function, items[i : i + _PIECE])) for i in range(0, len(items), _PIECE)])
        known = dict(pair for text in cast(list[str], told or []) for pair in unpacked(text, list))
        # A segment may have grown meanwhile.
        rest = [item for item in items if item not in known]
        known |= zip(rest, by_threads(function, rest), strict=True)
        return [known[item] for item in items]

    return run


def done(question: Json) -> Json:
    """What a task of the job finds."""
    function, items = unpacked(question["piece"], tuple)
    return {"found": packed(list(zip(items, by_threads(function, items), strict=True)))}


_REMEMBERED = 16
_typed: dict[str, LoadOptions] = {}
"""Options with the types of values, by their texts: a query asks for the schema first, and means the same types when it asks for a plan."""


def given(question: Json) -> Mapping[str, str]:
    """The options as the user gave them."""
    return cast(Mapping[str, str], question["options"])


def options_with_types(question: Json) -> LoadOptions:
    """The options of a table whose columns nobody has named yet."""
    options = with_types_of(LoadOptions.of(given(question)))
    if options.decode.typed:
        while len(_typed) >= _REMEMBERED:
            _typed.pop(next(iter(_typed)))
        _typed[_key(question)] = options
    return options


def options_of(question: Json) -> LoadOptions:
    """The options of a table with the columns of its schema."""
    schema = struct(question["schema"])
    known = _typed.get(_key(question))
    if known is None or spark_schema(known.decode.schema, known.payload) != schema:
        known = with_types_of(LoadOptions.of(given(question)))
    return with_columns(known, schema)


def strings(values: object) -> tuple[str, ...]:
    """A list of strings, which may be missing."""
    return tuple(cast(list[str], values or []))


def struct(text: object) -> StructType:
    """A schema from its JSON."""
    return StructType.fromJson(json.loads(cast(str, text)))


def _key(question: Json) -> str:
    return json.dumps(given(question), sort_keys=True)


_HDFS = "hdfs://"


def places(splits: Sequence[Split]) -> list[list[tuple[str, int, int]]] | None:
    """Of each split the ranges that lie in HDFS, by their paths and bytes: the JVM knows the hosts of its blocks. None without any."""
    found = [
        [(part.segment.path.partition("?")[0], part.start, part.end) for part in split.ranges if part.segment.path.startswith(_HDFS)]
        for split in splits
    ]
    return found if any(found) else None


_KEYED = 2
"""Splits are cut by topic partition if that makes at most so many times as many of them as there are, or as tasks run at a time."""
_LOOKED_AT = 1000
"""In at most so many segments headers are read to find out whether offsets ascend."""


def by_partition(splits: list[Split], slots: int, always: bool) -> tuple[list[Split], list[Key] | None]:
    """Splits of one topic partition each, and which; unless that would be too many tasks."""
    parts = [(key, Split(tuple(own), split.bounds)) for split in splits for key, own in groupby(split.ranges, key_of)]
    if len(parts) > _KEYED * max(len(splits), slots) and not always:
        return splits, None
    return [split for _, split in parts], [key for key, _ in parts]


def are_ordered(splits: Sequence[Split], keys: Sequence[Key]) -> bool:
    """Whether each split is a whole topic partition whose headers say that offsets ascend. Of others the order is of no use to Spark."""
    ranges = [part for split in splits for part in split.ranges]
    if len(set(keys)) < len(keys) or len(ranges) > _LOOKED_AT or any(is_url(part.segment.path) for part in ranges):
        return False
    return all(_ascend(split.ranges) for split in splits)


def _ascend(ranges: Sequence[Range]) -> bool:
    last = -1
    for part in ranges:
        if part.fault is not None:
            return False
        for entries in headers(part.segment, part.start, part.end):
            # The first offset of a wrapper is not in its header, and consumers have none for batches of Redpanda's own.
            if (entries.magic != 2).any() or entries.is_own.any():
                return False
            if entries.base_offset[0] <= last or (entries.base_offset[1:] <= entries.last_offset[:-1]).any():
                return False
            last = int(entries.last_offset[-1])
    return True


def ascending(offsets: Int64s, last: int) -> int:
    """The last of some offsets, which Spark was told ascend. Raises `KolumnError` if they do not, which headers did not show."""
    if len(offsets) and (offsets[0] <= last or (offsets[1:] <= offsets[:-1]).any()):
        raise KolumnError("offsets do not ascend within a batch of records: spark.kolumn.reportPartitioning=false reads them as they are")
    return int(offsets[-1]) if len(offsets) else last
