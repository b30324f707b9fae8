"""The options of a read, which arrive from Spark as text: names in any case, values according to each option's type.

Options of Spark's Kafka source with the same meaning are accepted, and those that apply only to brokers are ignored:
https://spark.apache.org/docs/latest/structured-streaming-kafka-integration.html, ``KafkaSourceProvider`` and ``KafkaOffsetReaderAdmin``.
Positions are offsets of the next record, as everywhere in Kafka: a start is inclusive, an end exclusive.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Unpack, get_args

from kolumn.copies.ranges import log_ranges
from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import MEANT, OPTIONS, RENAMED, Columns, Keys, Option, Payload, ReadOptions, Source, Time, warn_renamed
from kolumn.core.moments import UNITS_MS
from kolumn.core.schema import BATCH_SCHEMA, DAMAGE_SCHEMA, REMARK_SCHEMA
from kolumn.decode.pipeline import scan_ranges
from kolumn.options import TIME, Options, column_list, milliseconds
from kolumn.source.segments import Segment, named_parts
from kolumn.source.storage import plain

logger = logging.getLogger(__name__)

EARLIEST, LATEST = -2, -1
"""Values for the start and the end of a log in a JSON of offsets."""
Key = tuple[str | None, int | None]
"""Topic and partition; None if the directory's name does not contain them."""
Rule = tuple[str, Callable[[str], Any], str]
"""The name that a value is kept under, the parser of its text, and the expected form for the error message."""


def parsed(name: str, text: str, rules: Mapping[str, Rule], title: str) -> tuple[str, Any]:
    """The name that an option is kept under, and its value. ``title`` is what the options are called in an error."""
    known = {rule.lower(): rule for rule in rules}
    if name.lower() not in known:
        meant = camel(MEANT.get(name.lower(), name)).lower()
        (near,) = [meant] if meant in known else get_close_matches(name.lower(), known, n=1, cutoff=0)
        raise ArgumentError(f"unknown option {name!r}, did you mean {known[near]!r}? {title} are {', '.join(rules)}")
    spelled = known[name.lower()]
    kept_as, parse, expected = rules[spelled]
    try:
        return kept_as, parse(text)
    except (AttributeError, KeyError, TypeError, ValueError, re.error) as error:
        raise ArgumentError(f"option {spelled}: expected {expected}, found {text!r}") from error


def refuse_table(texts: Mapping[str, str]) -> None:
    """Raise `ArgumentError` for CREATE TABLE, since Spark does not pass the options of such a table to the source in its queries."""
    if {"provider", "owner"} <= {name.lower() for name in texts}:
        raise ArgumentError(
            "CREATE TABLE: Spark (4.0 to 4.3) does not pass a table's options on to sources written in Python, so that its queries would "
            "know no path. It works with the connector: kolumn.spark_plugin.configure(SparkSession.builder).getOrCreate(), or spark-submit "
            "--jars $(kolumn jar). Without it, CREATE TEMPORARY VIEW ... USING kolumn OPTIONS (path '...') works"
        )


def local(path: str) -> str:
    """A path that means the same in every worker: URLs are kept, others become absolute, without the ``file:`` that Spark writes."""
    path = plain(path)
    return path if "://" in path else os.path.abspath(path)


def _word(meanings: Mapping[str, bool]) -> Callable[[str], bool]:
    return lambda text: meanings[text.strip().lower()]


_flag = _word({"true": True, "false": False})


def _delay_ms(text: str) -> int:
    """A time with a unit, or milliseconds if there is no unit (``JavaUtils.timeStringAs`` of Spark)."""
    match = re.fullmatch(r"(-?\d+)\s*([a-z]*)", text.strip().lower())
    return int(match[1]) * (UNITS_MS[match[2]] if match[2] else 1)  # type: ignore[index]


def _named_paths(text: str) -> dict[str, str]:
    parts = [part.strip().partition("=") for part in text.split(",")]
    if not all(name and path for name, _, path in parts):
        raise ValueError(text)
    return {name: path for name, _, path in parts}


def _assignment(text: str) -> tuple[Key, ...]:
    return tuple((topic, int(partition)) for topic, partitions in json.loads(text).items() for partition in partitions)


def _by_partition(text: str) -> dict[Key, int]:
    return {(topic, int(partition)): int(value) for topic, values in json.loads(text).items() for partition, value in values.items()}


def _offsets(text: str) -> int | dict[Key, int]:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    named = _by_partition(text)
    if min(named.values(), default=0) < EARLIEST:
        raise ValueError(text)
    return named


BROKERS = "kafka.bootstrap.servers"
_ISOLATION = "kafka.isolation.level"
_OFFSETS = 'earliest, latest or JSON like {"topic": {"0": 23, "1": -2}}'
_TIMES = 'JSON like {"topic": {"0": 1700000000000}}, in milliseconds since 1970'
_KAFKA: dict[str, Rule] = {
    "subscribe": ("subscribe", column_list, "names of topics with commas between"),
    "subscribePattern": ("subscribe_pattern", lambda text: re.compile(text).pattern, "a regular expression"),
    "assign": ("assign", _assignment, 'JSON like {"topic": [0, 1]}'),
    "startingOffsets": ("starting_offsets", _offsets, _OFFSETS),
    "endingOffsets": ("ending_offsets", _offsets, _OFFSETS),
    "startingTimestamp": ("starting_time", int, "milliseconds since 1970"),
    "endingTimestamp": ("ending_time", int, "milliseconds since 1970"),
    "startingOffsetsByTimestamp": ("starting_times", _by_partition, _TIMES),
    "endingOffsetsByTimestamp": ("ending_times", _by_partition, _TIMES),
    "startingOffsetsByTimestampStrategy": ("or_latest", _word({"error": False, "latest": True}), "error or latest"),
    "failOnDataLoss": ("fail_on_data_loss", _flag, "true or false"),
    "minPartitions": ("min_partitions", int, "an integer"),
    "maxRecordsPerPartition": ("max_records", int, "an integer"),
    "minOffsetsPerTrigger": ("least", int, "an integer"),
    "maxTriggerDelay": ("delay", _delay_ms, "a time such as 15m or 30s"),
    "maxOffsetsPerTrigger": ("offsets", int, "an integer"),
    "maxBytesPerTrigger": ("bytes", int, "an integer"),
    "maxFilesPerTrigger": ("files", int, "an integer"),
    _ISOLATION: ("kafka_isolation", str, "the name of a level"),
}
_MAX_TRIGGER_DELAY_MS = 15 * 60_000
_LIMITS = {"maxOffsetsPerTrigger": "offsets", "maxBytesPerTrigger": "bytes", "maxFilesPerTrigger": "files"}
_IGNORED = ("groupidprefix", "kafkaconsumer.", "fetchoffset.", "includeconsumermetrics")

NOT_IN_SPARK = {
    "binary": "option 'binary' is about Arrow tables in Python: Spark has one binary type; leave it out",
    "threads": "option 'threads': Spark decides how many tasks run at a time; leave it out",
}
"""Messages for the options of `kolumn.read` that the functions for Spark do not have."""
SPLIT_BYTES = 128 << 20
PAST_IT = "openTransactions=skip reads past it"
"""What can be done where a read of committed records stops."""
TABLES = {"batches": BATCH_SCHEMA, "damage": DAMAGE_SCHEMA, "remarks": REMARK_SCHEMA}
"""What ``option("table", ...)`` reads beside records, and its columns."""


def _rule(name: str, option: Option) -> Rule:
    """How the text of an option of `kolumn.core.keywords.ReadOptions` is parsed, by its type."""
    parsers: dict[Any, tuple[Callable[[str], Any], str]] = {
        bool: (_flag, "true or false"),
        int: (int, "an integer"),
        float: (float, "a number"),
        Columns: (column_list, "names with commas between"),
        Time: (lambda text: milliseconds(name, text), TIME),
        Keys: (_named_paths, "names of keys and paths, key1=/path, with commas between"),
    }
    return name, *next((parser for type_, parser in parsers.items() if option.type in (type_, type_ | None)), (str, option.meaning))


def camel(name: str) -> str:
    return re.sub("_(.)", lambda match: match[1].upper(), name)


_RENAMED = {camel(old).lower(): camel(new) for old, new in RENAMED.items()}
_DECODE: dict[str, Rule] = {
    camel(name): _rule(name, option) for name, option in OPTIONS.items() if name not in {*NOT_IN_SPARK, "on_progress"}
}
_OWN: dict[str, Rule] = {
    "path": ("path", str, "a path"),
    "paths": ("paths", lambda text: tuple(json.loads(text)), "a JSON array of paths"),
    "splitBytes": ("split_bytes", int, "an integer"),
    "payload": ("payload", str.lower, "binary or string"),
    "table": ("table", str.lower, "records, batches, damage or remarks"),
    # For the connector, which does not pass it on; without it everything is read by Python.
    "reader": ("reader", str.lower, "columnar or python"),
}
_ALL = _DECODE | _OWN | _KAFKA
READ_NAMES = frozenset(name.lower() for name in _ALL)
"""Names of options of a read, in lower case."""
_DECODED = {kept_as for kept_as, _, _ in _DECODE.values()}


@dataclass(frozen=True)
class Wanted:
    """The topic partitions of a read. At most one attribute is set; without any, all partitions are read."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: tuple[Key, ...] | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Wanted":
        """Those that the options name."""
        given = [name for name in ("subscribe", "subscribePattern", "assign") if _KAFKA[name][0] in values]
        if len(given) > 1:
            raise ArgumentError(f"options {' and '.join(given)} contradict each other: give one of them")
        topics = values.get("subscribe")
        if topics == []:
            raise ArgumentError("option subscribe: expected at least one topic, found none")
        return cls(tuple(topics) if topics else None, values.get("subscribe_pattern"), values.get("assign"))

    def choose(self, segments: Iterable[Segment]) -> dict[Key, list[Segment]]:
        """Group the selected segments by topic partition. Raises `ArgumentError` if one is named that does not exist."""
        groups: dict[Key, list[Segment]] = {}
        for segment in segments:
            groups.setdefault((segment.topic, segment.partition), []).append(segment)
        chosen = {key: group for key, group in groups.items() if self._has(key)}
        missing = [topic for topic in self.topics or () if topic not in {name for name, _ in chosen}]
        missing += [f"{topic}-{partition}" for topic, partition in self.assigned or () if (topic, partition) not in chosen]
        if missing or not chosen:
            asked = ", ".join(missing) or f"a topic like {self.pattern}"
            there = ", ".join(sorted({f"{topic}-{partition}" for topic, partition in groups}))
            raise ArgumentError(f"asked for {asked}, not found below the path; there are the topic partitions {there}")
        return chosen

    def _has(self, key: Key) -> bool:
        if self.topics is not None:
            return key[0] in self.topics
        if self.pattern is not None:
            return key[0] is not None and re.fullmatch(self.pattern, key[0]) is not None
        return self.assigned is None or key in self.assigned


@dataclass(frozen=True)
class Position:
    """One end of a read: an offset, or a time in ms, for every partition or for each.

    An offset may be `EARLIEST` or `LATEST`. A time after the last record means the end of the log with ``or_latest``, else it is an
    error. ``option`` is the name of the option that sets this end, for messages.
    """

    option: str
    value: int | dict[Key, int]
    is_time: bool = False
    or_latest: bool = True

    @classmethod
    def of(cls, values: Mapping[str, Any], side: str) -> "Position | None":
        """One end; ``side`` is "starting" or "ending". As in Spark, one time overrides times by partition, and both override offsets."""
        or_latest = values.get("or_latest", False) if side == "starting" else True
        for kept_as, option in (("time", "Timestamp"), ("times", "OffsetsByTimestamp"), ("offsets", "Offsets")):
            if f"{side}_{kept_as}" in values:
                return cls(f"{side}{option}", values[f"{side}_{kept_as}"], kept_as != "offsets", or_latest)
        return None

    def refuse(self, end: int, why: str) -> None:
        """Raise `ArgumentError` if this position is ``end`` (`EARLIEST` or `LATEST`) for any partition."""
        if not self.is_time and end in (self.value.values() if isinstance(self.value, dict) else (self.value,)):
            raise ArgumentError(f"option {self.option}: {why}")

    def resolve(self, groups: dict[Key, list[Segment]], decode: Options) -> dict[Key, int]:
        """The offset in each partition, `EARLIEST` and `LATEST` as they are.

        Raises `ArgumentError` if other partitions are named than those that are read, or if a time is later than the last record.
        """
        values = self.value if isinstance(self.value, dict) else dict.fromkeys(groups, self.value)
        differ = sorted(f"{topic}-{partition}" for topic, partition in set(groups) ^ set(values))
        if differ:
            raise ArgumentError(
                f"option {self.option}: has to name every topic partition that is read, and no other: see {', '.join(differ)}"
            )
        return {key: self._from(value, key, groups[key], decode) for key, value in values.items()} if self.is_time else values

    def _from(self, time: int, key: Key, segments: list[Segment], decode: Options) -> int:
        offset = _first_offset_from(segments, time, decode)
        if offset is None and not self.or_latest:
            raise ArgumentError(
                f"option {self.option}: {key[0]}-{key[1]} has no record at or after {time} ms; "
                "startingOffsetsByTimestampStrategy=latest would start at its end"
            )
        return LATEST if offset is None else offset


def _first_offset_from(segments: list[Segment], time: int, decode: Options) -> int | None:
    """Offset of the first record, in log order, whose timestamp is at or after ``time``: what a broker's ``offsetsForTimes`` returns."""
    narrow = replace(decode, columns=("offset",), typed=(), start_timestamp=time, end_timestamp=None, start_offset=None, end_offset=None)
    # The driver plans, and must not open a GPU for that, even if the tasks use one.
    narrow = replace(narrow, include_control=True, isolation_level="read_uncommitted", backend="cpu")
    # Of some records consumers have no offset.
    found = (batch.column("offset").drop_null() for batch in scan_ranges(log_ranges(segments, narrow), narrow))
    return next((int(offsets[0].as_py()) for offsets in found if len(offsets)), None)


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
    delay_ms: int = _MAX_TRIGGER_DELAY_MS
    slots: int | None = None
    payload: Payload = "binary"

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> "LoadOptions":
        """Read the options of a data source.

        Raises `ArgumentError` if an option's name is unknown, a value cannot be parsed, or the path is missing.
        """
        refuse_table(texts)
        texts = {_renamed(name): text for name, text in texts.items()}
        ignored = sorted(filter(is_ignored, texts))
        if ignored:
            logger.warning("options of Spark's Kafka source that mean nothing for files are ignored: %s", ", ".join(ignored))
        values = dict(parsed(name, text, _ALL, "Options") for name, text in texts.items() if name not in ignored)
        # Addresses of brokers (``host:port``) have no slash, a path has.
        brokers = {name.lower(): text for name, text in texts.items()}.get(BROKERS, "")
        paths = (*values.get("paths", ()), *(values[name] for name in ("path",) if name in values)) or (
            (brokers,) if "/" in brokers else ()
        )
        if not paths:
            raise ArgumentError("no path: name a segment file, a topic-partition directory, a log directory or a glob in load(...)")
        return cls(
            tuple(map(local, paths)),
            _positive("splitBytes", values.get("split_bytes", SPLIT_BYTES)),
            "columns" in values or values.get("include_headers", False),
            # A task is one of many on its machine: Spark, not Kolumn, decides how many cores are busy.
            Options.of(**{name: value for name, value in values.items() if name in _DECODED}, **_isolation(values), threads=1),
            _one_of("table", values.get("table", "records"), ("records", *TABLES)),
            Wanted.of(values),
            Position.of(values, "starting"),
            Position.of(values, "ending"),
            values.get("fail_on_data_loss", True),
            _positive("minPartitions", values.get("min_partitions")),
            _positive("maxRecordsPerPartition", values.get("max_records")),
            tuple((limit, _positive(name, values[limit])) for name, limit in _LIMITS.items() if limit in values),
            values.get("check_crcs", False),
            _positive("minOffsetsPerTrigger", values.get("least")) or 0,
            values.get("delay", _MAX_TRIGGER_DELAY_MS),
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


def _renamed(name: str) -> str:
    """The name of an option; a name of version 0.1 warns."""
    new = _RENAMED.get(name.lower())
    if new is not None:
        warn_renamed(f"option {name}", new)
    return new or name


def is_ignored(name: str) -> bool:
    """Whether an option configures a Kafka client, or Spark's cache of Kafka clients. Such options have no effect on files."""
    lower = name.lower()
    return lower.startswith(_IGNORED) or (lower.startswith("kafka.") and lower != _ISOLATION)


def _isolation(values: Mapping[str, Any]) -> dict[str, Any]:
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
