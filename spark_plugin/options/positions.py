"""Which topic partitions a read selects, and which range of offsets: resolves the options of Spark's Kafka source.

Positions are offsets of the next record, as everywhere in Kafka: a start is inclusive, an end exclusive. Sources: Spark's
``KafkaSourceProvider`` and ``KafkaOffsetReaderAdmin``; a time is resolved to the offset that a broker's ``offsetsForTimes`` returns.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kolumn.copies.ranges import log_ranges
from kolumn.core.errors import ArgumentError
from kolumn.decode.pipeline import scan_ranges
from kolumn.options import Options
from kolumn.source.segments import Segment

EARLIEST, LATEST = -2, -1
"""Values for the start and the end of a log in a JSON of offsets."""

Key = tuple[str | None, int | None]
"""Topic and partition; None if the directory's name does not contain them."""


@dataclass(frozen=True)
class Wanted:
    """The topic partitions of a read. At most one attribute is set; without any, all partitions are read."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: tuple[Key, ...] | None = None

    def choose(self, segments: Iterable[Segment]) -> dict[Key, list[Segment]]:
        """Group the selected segments by topic partition.

        Raises
        ------
        ArgumentError
            A topic or partition is named, but does not exist.
        """
        found: dict[Key, list[Segment]] = {}
        for segment in segments:
            found.setdefault((segment.topic, segment.partition), []).append(segment)
        chosen = {key: group for key, group in found.items() if self._has(key)}
        missing = [topic for topic in self.topics or () if topic not in {name for name, _ in chosen}]
        missing += [f"{topic}-{partition}" for topic, partition in self.assigned or () if (topic, partition) not in chosen]
        if missing or not chosen:
            asked = ", ".join(missing) or f"a topic like {self.pattern}"
            there = ", ".join(sorted({f"{topic}-{partition}" for topic, partition in found}))
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
    """One end of a read.

    Attributes
    ----------
    option : str
        Name of the option that sets this end, for messages.
    offset : int, optional
        `EARLIEST` or `LATEST`, for every partition.
    offsets : dict, optional
        An offset, `EARLIEST` or `LATEST` for each partition.
    time : int, optional
        ms, for every partition.
    times : dict, optional
        ms for each partition.
    or_latest : bool
        Whether a time later than every record means the end of the log; otherwise it is an error.
    """

    option: str
    offset: int | None = None
    offsets: dict[Key, int] | None = None
    time: int | None = None
    times: dict[Key, int] | None = None
    or_latest: bool = True

    def refuse(self, end: int, why: str) -> None:
        """Raise `ArgumentError` if this position is ``end`` (`EARLIEST` or `LATEST`) for any partition."""
        if self.offset == end or end in (self.offsets or {}).values():
            raise ArgumentError(f"option {self.option}: {why}")

    def resolve(self, groups: dict[Key, list[Segment]], decode: Options) -> dict[Key, int]:
        """The offset in each partition; `EARLIEST` and `LATEST` are kept as they are.

        Raises
        ------
        ArgumentError
            Partitions are named and one that is read is missing from them, or a time is later than the last record.
        """
        if self.offset is not None:
            return dict.fromkeys(groups, self.offset)
        if self.offsets is not None:
            return self._each(self.offsets, groups)
        if self.times is not None:
            times = self._each(self.times, groups)
        else:
            assert self.time is not None
            times = dict.fromkeys(groups, self.time)
        return {key: self._at(time, key, groups[key], decode) for key, time in times.items()}

    def _each(self, named: dict[Key, int], groups: dict[Key, list[Segment]]) -> dict[Key, int]:
        differ = sorted(f"{topic}-{partition}" for topic, partition in set(groups) ^ set(named))
        if differ:
            raise ArgumentError(
                f"option {self.option}: has to name every topic partition that is read, and no other: see {', '.join(differ)}"
            )
        return named

    def _at(self, time: int, key: Key, segments: list[Segment], decode: Options) -> int:
        offset = first_offset_from(segments, time, decode)
        if offset is None and not self.or_latest:
            raise ArgumentError(
                f"option {self.option}: {key[0]}-{key[1]} has no record at or after {time} ms; "
                "startingOffsetsByTimestampStrategy=latest would start at its end"
            )
        return LATEST if offset is None else offset


def first_offset_from(segments: list[Segment], time: int, decode: Options) -> int | None:
    """Offset of the first record of a partition, in log order, whose timestamp is at or after ``time`` (ms)."""
    narrow = replace(decode, columns=("offset",), typed=(), start_timestamp=time, end_timestamp=None, start_offset=None, end_offset=None)
    # The driver plans, and must not open a GPU for that, even if the tasks use one.
    narrow = replace(narrow, include_control=True, isolation_level="read_uncommitted", backend="cpu")
    for batch in scan_ranges(log_ranges(segments, narrow), narrow):
        return int(batch.column("offset")[0].as_py())
    return None
