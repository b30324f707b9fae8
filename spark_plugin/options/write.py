"""The options of ``df.write.format("kolumn")``: those of `kolumn.write` in camelCase, and where the records go."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kolumn.core.errors import ArgumentError
from kolumn.spark_plugin.options.values import Rule, local, parsed, refuse_table
from kolumn.writers.entries import EntrySettings
from kolumn.writers.outgoing import name_of
from kolumn.writers.write import settings

_RULES: dict[str, Rule] = {
    "path": ("path", str, "a path"),
    "format": ("format", str, "the name of a format"),
    "magic": ("magic", int, "an integer"),
    "codec": ("codec", str, "the name of a codec"),
    "level": ("level", int, "an integer"),
    "batchBytes": ("batch_bytes", int, "an integer"),
    "batchRecords": ("batch_records", int, "an integer"),
    "segmentBytes": ("segment_bytes", int, "an integer"),
    "indexIntervalBytes": ("index_interval_bytes", int, "an integer"),
    "topic": ("topic", str, "a name"),
    "partition": ("partition", int, "an integer"),
}
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True)
class WriteOptions:
    """The options of one ``save``.

    Attributes
    ----------
    path : str
        The log directory, or its URL.
    how : EntrySettings
    segment_bytes, index_interval_bytes : int
        As in `kolumn.write`.
    topic, partition
        Topic and partition of all records, used where the DataFrame has no column of that name.
    """

    path: str
    how: EntrySettings
    segment_bytes: int
    index_interval_bytes: int
    topic: str | None
    partition: int | None

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> "WriteOptions":
        """Read the options of a data source.

        Raises
        ------
        ArgumentError
            An option's name is unknown, a value is not allowed, or the path is missing.
        """
        refuse_table(texts)
        values = dict(parsed(name, text, _RULES, "Options of a write") for name, text in texts.items())
        if "path" not in values:
            raise ArgumentError("no path: name a log directory in save(...)")
        how = settings(
            values.get("format", "kafka"), values.get("magic"), values.get("codec", "none"), values.get("level"),
            values.get("batch_bytes", 16384), values.get("batch_records"),
        )  # fmt: skip
        for name in ("segment_bytes", "index_interval_bytes"):
            if values.get(name, 1) < 1:
                raise ArgumentError(f"{name}={values[name]}: expected at least 1")
        topic, partition = values.get("topic"), values.get("partition")
        if topic is not None:
            check_topic(topic)
        path = name_of(local(values["path"]))
        sizes = values.get("segment_bytes", 1 << 30), values.get("index_interval_bytes", 4096)
        return cls(path, how, *sizes, topic, partition)


def check_topic(name: object) -> str:
    """Check that Kafka would accept a topic name (``Topic.validate``): it becomes part of a folder's name.

    Raises
    ------
    ArgumentError
        The name is not valid.
    """
    if not isinstance(name, str) or not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise ArgumentError(f"topic {name!r}: expected 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'")
    return name
