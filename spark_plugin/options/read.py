"""The options of a read, parsed from text: names in any case, values according to each option's type.

The options of Spark's Kafka source: those with the same meaning here, and those that apply only to brokers and are ignored.

https://spark.apache.org/docs/latest/structured-streaming-kafka-integration.html and ``KafkaSourceProvider``.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Unpack, get_args

from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import OPTIONS, Columns, Keys, Option, Payload, ReadOptions, Source, Time
from kolumn.options import Options
from kolumn.source.segments import named_parts
from kolumn.spark_plugin.options.positions import EARLIEST, LATEST, Position, Wanted
from kolumn.spark_plugin.options.values import (
    Rule,
    assignment,
    column_list,
    delay_ms,
    flag,
    instant,
    local,
    named_paths,
    offsets,
    parsed,
    paths,
    pattern,
    refuse_table,
    strategy,
    times,
)

logger = logging.getLogger(__name__)

BROKERS = "kafka.bootstrap.servers"
_ISOLATION = "kafka.isolation.level"
_OFFSETS = 'earliest, latest or JSON like {"topic": {"0": 23, "1": -2}}'
_TIMES = 'JSON like {"topic": {"0": 1700000000000}}, in milliseconds since 1970'

KAFKA: dict[str, Rule] = {
    "subscribe": ("subscribe", column_list, "names of topics with commas between"),
    "subscribePattern": ("subscribe_pattern", pattern, "a regular expression"),
    "assign": ("assign", assignment, 'JSON like {"topic": [0, 1]}'),
    "startingOffsets": ("starting_offsets", offsets, _OFFSETS),
    "endingOffsets": ("ending_offsets", offsets, _OFFSETS),
    "startingTimestamp": ("starting_time", int, "milliseconds since 1970"),
    "endingTimestamp": ("ending_time", int, "milliseconds since 1970"),
    "startingOffsetsByTimestamp": ("starting_times", times, _TIMES),
    "endingOffsetsByTimestamp": ("ending_times", times, _TIMES),
    "startingOffsetsByTimestampStrategy": ("or_latest", strategy, "error or latest"),
    "failOnDataLoss": ("fail_on_data_loss", flag, "true or false"),
    "minPartitions": ("min_partitions", int, "an integer"),
    "maxRecordsPerPartition": ("max_records", int, "an integer"),
    "minOffsetsPerTrigger": ("least", int, "an integer"),
    "maxTriggerDelay": ("delay", delay_ms, "a time such as 15m or 30s"),
    "maxOffsetsPerTrigger": ("offsets", int, "an integer"),
    "maxBytesPerTrigger": ("bytes", int, "an integer"),
    "maxFilesPerTrigger": ("files", int, "an integer"),
    _ISOLATION: ("kafka_isolation", str, "the name of a level"),
}
MAX_TRIGGER_DELAY_MS = 15 * 60_000
LIMITS = {"maxOffsetsPerTrigger": "offsets", "maxBytesPerTrigger": "bytes", "maxFilesPerTrigger": "files"}
_IGNORED = ("groupidprefix", "kafkaconsumer.", "fetchoffset.", "includeconsumermetrics")


def is_ignored(name: str) -> bool:
    """Whether an option configures a Kafka client, or Spark's cache of Kafka clients. Such options have no effect on files."""
    lower = name.lower()
    return lower.startswith(_IGNORED) or (lower.startswith("kafka.") and lower != _ISOLATION)


def report_ignored(names: Iterable[str]) -> None:
    """Log one warning that lists the ignored options."""
    found = sorted(names)
    if found:
        logger.warning("options of Spark's Kafka source that mean nothing for files are ignored: %s", ", ".join(found))


def path_of_brokers(value: str | None) -> tuple[str, ...]:
    """The path, if ``kafka.bootstrap.servers`` contains a path instead of broker addresses (``host:port``, separated by commas)."""
    return (value,) if value is not None and "/" in value else ()


def wanted(values: dict[str, Any]) -> Wanted:
    """Which topic partitions the options name."""
    given = [name for name in ("subscribe", "subscribePattern", "assign") if KAFKA[name][0] in values]
    if len(given) > 1:
        raise ArgumentError(f"options {' and '.join(given)} contradict each other: give one of them")
    topics = values.get("subscribe")
    if topics == []:
        raise ArgumentError("option subscribe: expected at least one topic, found none")
    return Wanted(tuple(topics) if topics else None, values.get("subscribe_pattern"), values.get("assign"))


def position(values: dict[str, Any], side: str) -> Position | None:
    """One end of a read; ``side`` is "starting" or "ending".

    As in Spark, a single time overrides times by partition, and both override offsets.
    """
    or_latest = values.get("or_latest", False) if side == "starting" else True
    if f"{side}_time" in values:
        return Position(f"{side}Timestamp", time=values[f"{side}_time"], or_latest=or_latest)
    if f"{side}_times" in values:
        return Position(f"{side}OffsetsByTimestamp", times=values[f"{side}_times"], or_latest=or_latest)
    found = values.get(f"{side}_offsets")
    if isinstance(found, str):
        return Position(f"{side}Offsets", offset={"earliest": EARLIEST, "latest": LATEST}[found])
    return None if found is None else Position(f"{side}Offsets", offsets=found)


NOT_IN_SPARK = {
    "binary": "option 'binary' is about Arrow tables in Python: Spark has one binary type; leave it out",
    "threads": "option 'threads': Spark decides how many tasks run at a time; leave it out",
}
"""Messages for the options of `kolumn.read` that the functions for Spark do not have."""
SPLIT_BYTES = 128 << 20


def _rule(name: str, one: Option) -> Rule:
    """How the text of an option of `kolumn.core.keywords.ReadOptions` is parsed, by its type."""
    parsers: dict[Any, tuple[Callable[[str], Any], str]] = {
        bool: (flag, "true or false"),
        int: (int, "an integer"),
        float: (float, "a number"),
        Columns: (column_list, "names with commas between"),
        Time: (instant, "milliseconds since 1970, or a time in ISO 8601"),
        Keys: (named_paths, "names of keys and paths, key1=/path, with commas between"),
    }
    return name, *next((parser for kind, parser in parsers.items() if one.type in (kind, kind | None)), (str, one.meaning))


# Option of Spark -> (option of kolumn.options, how to parse the text, what is expected)
_DECODE: dict[str, Rule] = {
    re.sub("_(.)", lambda match: match[1].upper(), name): _rule(name, one)
    for name, one in OPTIONS.items()
    if name not in {*NOT_IN_SPARK, "on_progress"}
}
_OWN: dict[str, Rule] = {
    "path": ("path", str, "a path"),
    "paths": ("paths", paths, "a JSON array of paths"),
    "splitBytes": ("split_bytes", int, "an integer"),
    "payload": ("payload", str.lower, "binary or string"),
    "table": ("table", str.lower, "records, batches or remarks"),
    # For the connector, which does not pass it on; without it everything is read by Python.
    "reader": ("reader", str.lower, "columnar or python"),
}
_ALL = _DECODE | _OWN | KAFKA
_TABLES = ("records", "batches", "remarks")
_DECODED = {field for field, _, _ in _DECODE.values()}


@dataclass(frozen=True)
class LoadOptions:
    """The options of one ``load``. A field that is None was not given.

    ``names_columns``: a schema given by the user must then have the same columns. ``max_records`` are offsets in one task, unless a
    single batch has more. ``limits`` are the ``offsets``, ``bytes`` and ``files`` of a micro-batch, which waits until ``least`` offsets
    are available, for ``delay_ms`` at most. ``checks_crcs``: checkCrcs=true was given, rather than by default. ``slots`` are tasks that
    run at a time; None for a data source, which is planned without a session.
    """

    paths: tuple[str, ...]
    split_bytes: int
    names_columns: bool
    decode: Options
    table: str = "records"
    wanted: Wanted = field(default_factory=Wanted)
    start: Position | None = None
    end: Position | None = None
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records: int | None = None
    limits: tuple[tuple[str, int], ...] = ()
    checks_crcs: bool = False
    least: int = 0
    delay_ms: int = MAX_TRIGGER_DELAY_MS
    slots: int | None = None
    payload: Payload = "binary"

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> "LoadOptions":
        """Read the options of a data source.

        Raises
        ------
        ArgumentError
            An option's name is unknown, a value cannot be parsed, or the path is missing.
        """
        refuse_table(texts)
        report_ignored(name for name in texts if is_ignored(name))
        values = dict(parsed(name, text, _ALL, "Options") for name, text in texts.items() if not is_ignored(name))
        found = values.pop("paths", ()) + ((values.pop("path"),) if "path" in values else ())
        found = found or path_of_brokers({name.lower(): text for name, text in texts.items()}.get(BROKERS))
        if not found:
            raise ArgumentError("no path: name a segment file, a topic-partition directory, a log directory or a glob in load(...)")
        table = _one_of("table", values.get("table", "records"), _TABLES)
        named = "columns" in values or values.get("include_headers", False)
        return cls(
            tuple(map(local, found)),
            _positive("splitBytes", values.get("split_bytes", SPLIT_BYTES)),
            named,
            # A task is one of many on its machine: Spark, not Kolumn, decides how many cores are busy.
            Options.of(**{name: value for name, value in values.items() if name in _DECODED}, **_isolation(values), threads=1),
            table,
            wanted(values),
            position(values, "starting"),
            position(values, "ending"),
            values.get("fail_on_data_loss", True),
            _positive("minPartitions", values.get("min_partitions")),
            _positive("maxRecordsPerPartition", values.get("max_records")),
            tuple((kind, _positive(name, values[kind])) for name, kind in LIMITS.items() if kind in values),
            values.get("check_crcs", False),
            _positive("minOffsetsPerTrigger", values.get("least")) or 0,
            values.get("delay", MAX_TRIGGER_DELAY_MS),
            payload=_one_of("payload", values.get("payload", "binary"), get_args(Payload)),
        )

    @classmethod
    def given(cls, source: Source, split_bytes: int, slots: int | None, **options: Unpack[ReadOptions]) -> "LoadOptions":
        """Options for a source as `kolumn.read` takes them."""
        return cls(
            tuple(local(os.fspath(path)) for path in named_parts(source)),
            _positive("splitBytes", split_bytes),
            options.get("columns") is not None or options.get("include_headers", False),
            replace(Options.of(**options), threads=1),
            slots=slots,
        )

    def only(self, columns: tuple[str, ...]) -> "LoadOptions":
        """The same read with other columns."""
        return replace(self, decode=self.decode.with_columns(columns))

    def for_batch(self) -> "LoadOptions":
        """The same options, after a check that the read neither starts at the end of the log nor ends at its beginning."""
        if self.start is not None:
            self.start.refuse(LATEST, "a batch read cannot start at the end of the log (latest, -1)")
        if self.end is not None:
            self.end.refuse(EARLIEST, "a batch read cannot end at the beginning of the log (earliest, -2)")
        return self


def _isolation(values: dict[str, Any]) -> dict[str, Any]:
    """The isolation level from ``kafka.isolation.level``; an error if ``isolationLevel`` is given too, with another value."""
    kafka, own = values.get("kafka_isolation"), values.get("isolation_level")
    if kafka is not None and own is not None and kafka != own:
        raise ArgumentError(f"kafka.isolation.level={kafka!r} and isolationLevel={own!r} contradict each other: give one of the two")
    return {"isolation_level": kafka} if kafka is not None and own is None else {}


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> Any:
    if value not in known:
        raise ArgumentError(f"option {name}: expected {', '.join(known[:-1])} or {known[-1]}, found {value!r}")
    return value


def _positive(name: str, value: Any) -> Any:
    if value is not None and value < 1:
        raise ArgumentError(f"option {name}: expected at least 1, found {value}")
    return value
