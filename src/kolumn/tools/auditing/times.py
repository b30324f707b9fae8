"""Timestamps of a log that are no times of its records: later than the present, in another unit, or of the other kind."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from kolumn.core.amounts import age
from kolumn.core.arrays import Flags, Int64s
from kolumn.formats import table
from kolumn.formats.entries import Entries
from kolumn.source.segments import Segment

_HOUR = 3_600_000
_UNITS = {"seconds": (10**9, 10**10), "microseconds": (10**15, 10**16), "nanoseconds": (10**18, 2**63 - 1)}
"""What the years 2001 to 2286 are in another unit. In ms it would be spring of 1970, or after the year 33000."""


class _Some:
    """Batches of one kind: how many, their records, the first one, and the one with the largest excess."""

    def __init__(self) -> None:
        self.batches = self.records = 0
        self.about: dict[str, Any] = {}
        self.most, self.value = -1, 0

    def add(self, which: Flags, entries: Entries, records: Int64s, excess: Int64s, times: Int64s, segment: Segment) -> None:
        rows = np.flatnonzero(which)
        if not len(rows):
            return
        self.batches, self.records = self.batches + len(rows), self.records + int(records[rows].sum())
        row = int(rows[np.argmax(excess[rows])])
        if int(excess[row]) > self.most:
            self.most, self.value = int(excess[row]), int(times[row])
            base, last = entries[row].base_offset, entries[row].last_offset
            self.about = {"first": last if base == table.UNKNOWN else base, "last": last, "time_ms": self.value, "segment": segment.path}
            self.about["position"] = entries[row].position

    def __str__(self) -> str:
        return f"{self.batches} batch{'es' if self.batches != 1 else ''}"


class Times:
    """The timestamps of a topic-partition, by the headers of its batches. Control batches have the times of coordinators, and are left
    out. Formats 0 and 1: a header has the largest timestamp, and format 0 has none."""

    def __init__(self, now: int) -> None:
        self._now, self._latest = now, {table.CREATE_TIME: -1, table.LOG_APPEND_TIME: -1}
        self._back = {kind: _Some() for kind in self._latest}
        self._ahead, self._soon, self._late, self._none = _Some(), _Some(), _Some(), _Some()
        self._units = {unit: _Some() for unit in _UNITS}
        self._kinds = {kind: _Some() for kind in self._latest}

    def add(self, entries: Entries, records: Int64s, segment: Segment) -> None:
        """Add batches with the number of their records."""
        times, kind = entries.max_timestamp, entries.timestamp_type
        data = (entries.control == 0) & (records > 0)
        untimed = data & (entries.magic > 0) & (times < 0)
        self._none.add(untimed, entries, records, np.zeros(len(times), np.int64), times, segment)
        timed = data & (times >= 0)
        for unit, (start, end) in _UNITS.items():
            strange = timed & (times >= start) & (times < end)
            self._units[unit].add(strange, entries, records, np.zeros(len(times), np.int64), times, segment)
            timed &= ~strange
        ahead = times - self._now
        self._soon.add(timed & (ahead > 0) & (ahead <= _HOUR), entries, records, ahead, times, segment)
        self._ahead.add(timed & (ahead > _HOUR), entries, records, ahead, times, segment)
        modified = segment.identity.modified if segment.identity is not None else None
        if modified is not None:
            late = times - modified // 1_000_000
            self._late.add(timed & (ahead <= 0) & (late > _HOUR), entries, records, late, times, segment)
        has_base = (entries.magic == 2) & (entries.delete_horizon == 0) & (entries.base_timestamp >= 0)
        lowest = np.where(has_base, entries.base_timestamp, times)
        for one in self._latest:
            own = timed & (kind == one)
            self._kinds[one].add(own, entries, records, np.zeros(len(times), np.int64), times, segment)
            low: Int64s = times if one == table.LOG_APPEND_TIME else lowest
            latest = np.maximum.accumulate(np.concatenate([[self._latest[one]], np.where(own, times, -1)]))
            self._back[one].add(own & (low < latest[:-1]), entries, records, latest[:-1] - low, low, segment)
            self._latest[one] = int(latest[-1])

    def found(self) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
        """Kind, severity, sentence, and what the row is about, of each finding."""
        create, append = self._back[table.CREATE_TIME], self._back[table.LOG_APPEND_TIME]
        for unit, some in self._units.items():
            if some.batches:
                text = f"timestamps of {some} look like {unit}, such as {some.value}: expected ms since 1970"
                yield "timestamp-unit", "warning", text, some.about | {"records": some.records}
        which = [
            ("timestamps-ahead", "warning", self._ahead, "lie in the future, by {} at most: retention by time keeps them till then"),
            ("timestamps-ahead", "note", self._soon, "lie in the future, by {} at most"),
            ("timestamps-ahead", "note", self._late, "have timestamps after the last change of their file, by {} at most"),
            ("append-time-back", "warning", append, "have a LogAppendTime before an earlier batch's, by {} at most: a broker's clock"),
            ("timestamps-back", "note", create, "have a timestamp before an earlier batch's, by {} at most"),
            ("timestamps-none", "note", self._none, "have no timestamp"),
        ]
        for kind, severity, some, text in which:
            if some.batches:
                yield kind, severity, f"{some} {text.format(age(some.most))}", some.about | {"records": some.records}
        if all(some.batches for some in self._kinds.values()):
            later = max(self._kinds.values(), key=lambda some: some.about["first"])
            text = f"{self._kinds[table.CREATE_TIME]} with CreateTime and {self._kinds[table.LOG_APPEND_TIME]} with LogAppendTime"
            yield "timestamp-types", "note", f"{text}: message.timestamp.type was changed", later.about | {"records": later.records}
