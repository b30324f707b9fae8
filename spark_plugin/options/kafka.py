"""The options of Spark's Kafka source: those with the same meaning here, and those that apply only to brokers and are ignored.

https://spark.apache.org/docs/latest/structured-streaming-kafka-integration.html and ``KafkaSourceProvider``.
"""

import logging
from collections.abc import Iterable
from typing import Any

from kolumn.errors import ArgumentError
from kolumn.spark_plugin.options.positions import EARLIEST, LATEST, Position, Wanted
from kolumn.spark_plugin.options.values import Rule, assignment, column_list, delay_ms, flag, offsets, pattern, strategy, times

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
