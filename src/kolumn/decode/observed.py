"""What `kolumn.verify` remarks of intact entries: offsets that go back, and timestamps and checksums that a reader may trip over.

Each decoded run is looked at by arrays, in the thread that decoded it. Only of a run with something odd are the places found, and of a
segment each kind becomes one remark, with the first place and the number of all.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kolumn.core.arrays import Flags, Int64s
from kolumn.damage.findings import Kind, Remark
from kolumn.decode.host.headers import headers
from kolumn.decode.host.run import Run
from kolumn.decode.other_types import OtherTypes, TypeCounts
from kolumn.formats import layouts, legacy, redpanda, table, v2
from kolumn.formats.codecs import NONE
from kolumn.formats.entries import Entries
from kolumn.source.segments import Segment

_LOWEST = -(2**63)
EARLIEST, LATEST = -62_135_596_800_000, 253_402_300_799_999  # milliseconds of the first and the last moment of the years 1 to 9999
_YEAR_2200 = 7_258_118_400
_MICROSECONDS, _NANOSECONDS = _YEAR_2200 * 10**6, _YEAR_2200 * 10**9
_YEAR = 31_556_952_000
_HOLDS_MESSAGES = [number for number in range(len(layouts.LAYOUTS)) if layouts.holds_messages(number)]
_DATED = (v2.LAYOUT.number, redpanda.LAYOUT.number)  # layouts whose header has the largest timestamp of its records
_CONSUMERS = "a broker serves them so, Java's consumer passes over those below its position; kafka-dump-log lists non-consecutive offsets"
_LOOKUPS = "brokers look records up by it, so they do not find those that are later"
_MILLISECONDS = "Kafka's timestamps are milliseconds since 1970; brokers and consumers return the numbers as they are"
_FRAMES = "Kafka's Java client does not compare it; librdkafka refuses the batch"


def moment(ms: int | None) -> int | None:
    """A timestamp in ms for a column of times; None for none (-1), and outside of the years 1 to 9999, which Python's datetime has."""
    return ms if ms is not None and ms != -1 and EARLIEST <= ms <= LATEST else None


class Observed:
    """The offsets, timestamps and headers of the intact entries of a run."""

    def __init__(self, run: Run, entries: Entries) -> None:
        columns = run.columns
        self.offset, self.timestamp = (
            np.frombuffer(column, np.int64, columns.rows) if columns.rows else np.zeros(0, np.int64)
            for column in (columns.offset, columns.timestamp)
        )
        self.unlike = entries[list(run.unlike)] if run.unlike else None
        good = entries.is_intact
        # Of these the sound records are there.
        good[[*run.lost]] = True
        self.entries, self.records = (entries, run.records) if good.all() else (entries[good], run.records[good])
        self.grows = bool((self.offset[1:] > self.offset[:-1]).all()) and bool((self.first[1:] > self.last[:-1]).all())
        self.late = self._late()
        self.is_far = bool(columns.rows) and (int(self._latest.max()) > LATEST or int(self.timestamp.min()) < EARLIEST)

    @cached_property
    def begins(self) -> Int64s:
        """The row at which each entry begins."""
        return np.cumsum(self.records) - self.records

    @cached_property
    def filled(self) -> Int64s:
        """Numbers of the entries with records."""
        return np.flatnonzero(self.records)

    @cached_property
    def is_message(self) -> Flags:
        """Flags of the rows that stand for messages which are not compressed: one row for several of them."""
        flags: Flags = (self.entries.codec == NONE) & np.isin(self.entries.layout, _HOLDS_MESSAGES)
        return flags

    @cached_property
    def _latest(self) -> Int64s:
        """The latest timestamp of each entry with records."""
        latest: Int64s = np.maximum.reduceat(self.timestamp, self.begins[self.filled])
        return latest

    @cached_property
    def first(self) -> Int64s:
        """The first offset of each entry; of a wrapper by its first record."""
        return self._known(self.entries.base_offset, 0)

    @cached_property
    def last(self) -> Int64s:
        """The last offset of each entry."""
        return self._known(self.entries.last_offset, -1)

    def _known(self, offsets: Int64s, which: int) -> Int64s:
        unknown = np.flatnonzero(offsets == table.UNKNOWN)
        if len(unknown):
            offsets = np.where(offsets == table.UNKNOWN, np.maximum(self.entries.base_offset, self.entries.last_offset), offsets)
            some = unknown[self.records[unknown] > 0]
            offsets[some] = self.offset[self.begins[some] if which == 0 else self.begins[some] + self.records[some] - 1]
        return offsets

    def _late(self) -> Int64s:
        """Numbers of the entries with a record that is later than the header's largest timestamp."""
        if not len(self.offset):
            return self.filled
        some = self.entries[self.filled]
        dated = layouts.among(some.layout, _DATED) & (some.batch_type <= redpanda.DATA)
        if not dated.all():
            # A message has its own timestamp alone; so has a wrapper of format 0 none.
            dated |= (some.layout == legacy.LAYOUT.number) & (some.codec != NONE) & (some.magic >= 1)
        late: Int64s = self.filled[dated & (self._latest > some.max_timestamp)]
        return late

    def owners(self, rows: Int64s) -> Int64s:
        """Number of the entry that each of some rows belongs to."""
        owners: Int64s = self.filled[np.searchsorted(self.begins[self.filled], rows, "right") - 1]
        return owners


@dataclass
class _Oddity:
    """How often something odd was found, and where first: its position, the offsets concerned, and words about it.

    ``is_shared`` says that the position is that of a row for several messages, of which the first offset is the one that is meant.
    """

    count: int = 0
    position: int = 0
    offset: int = 0
    last_offset: int = 0
    words: str = ""
    is_shared: bool = False

    def add(self, count: int, seen: Observed, i: int, *first: *tuple[int, int, str]) -> None:
        """Add what was found later, ``first`` in the entry with the number ``i``."""
        if count and not self.count:
            self.offset, self.last_offset, self.words = first
            self.position, self.is_shared = int(seen.entries.position[i]), bool(seen.is_message[i] and seen.records[i] > 1)
        self.count += count

    def remark(self, path: str, kind: Kind, text: str, evidence: str, position: int | None = None) -> Remark:
        """The row of the table of remarks; at another position if one is given."""
        return Remark(path, self.position if position is None else position, kind, self.offset, self.last_offset, text, evidence)


@dataclass
class Observations:
    """What was found in the runs of a segment so far, in file order."""

    last: int = _LOWEST  # offset of the last entry
    highest: int = _LOWEST  # offset of an entry's header
    highest_record: int = _LOWEST  # offset of a record
    back: _Oddity = field(default_factory=_Oddity)
    inside: _Oddity = field(default_factory=_Oddity)
    unset: _Oddity = field(default_factory=_Oddity)
    below: _Oddity = field(default_factory=_Oddity)
    micros: _Oddity = field(default_factory=_Oddity)
    nanos: _Oddity = field(default_factory=_Oddity)
    far: _Oddity = field(default_factory=_Oddity)
    unlike: _Oddity = field(default_factory=_Oddity)
    repeated: int = 0  # records with an offset that is not above those of all records before
    types: TypeCounts = field(default_factory=TypeCounts)

    def add(self, seen: Observed | OtherTypes) -> None:
        """Add the next run, or the batches without records of a chunk."""
        if isinstance(seen, OtherTypes):
            self.types.add(seen)
            return
        entries = seen.entries
        if len(entries):
            if not seen.grows or int(seen.first[0]) <= self.highest:
                self._offsets(seen)
            self.last = int(seen.last[-1])
            self.highest = max(self.highest, int(seen.last.max()))
            self.highest_record = max(self.highest_record, int(seen.offset.max(initial=_LOWEST)))
        if len(seen.late):
            self._late(seen)
        if seen.is_far:
            self._far(seen)
        if seen.unlike is not None:
            i = int(np.searchsorted(entries.position, seen.unlike[0].position))
            self.unlike.add(len(seen.unlike), seen, i, int(seen.first[i]), int(seen.last[i]), "")

    def _offsets(self, seen: Observed) -> None:
        """Where offsets go back."""
        offset = seen.offset
        before = np.concatenate([[self.last], seen.last[:-1]])
        goes_back = seen.first <= before
        down = np.flatnonzero(offset[1:] <= offset[:-1]) + 1
        owner = seen.owners(down)
        begins, alone = seen.begins[owner] == down, seen.is_message[owner]
        goes_back[owner[begins]] = True
        between, within = down[~begins & alone], down[~begins & ~alone]
        places = [(int(i), False, int(before[i]), int(seen.first[i])) for i in np.flatnonzero(goes_back)[:1]]
        places += [(int(seen.owners(j)), True, int(offset[j - 1]), int(offset[j])) for j in between[:1]]
        if places:
            i, inside, last, first = min(places)
            is_new = not self.back.count
            self.back.add(int(goes_back.sum()) + len(between), seen, i, first, last, f"{last} is followed by {first}")
            self.back.is_shared = inside if is_new else self.back.is_shared
        if len(within):
            i, last, first = int(seen.owners(within[0])), int(offset[within[0] - 1]), int(offset[within[0]])
            whole = len(np.unique(owner[~begins & ~alone]))
            self.inside.add(whole, seen, i, min(first, last), max(first, last), f"{last} is followed by {first}")
        highest = np.maximum.accumulate(np.concatenate([[self.highest_record], offset]))
        self.repeated += int((offset <= highest[:-1]).sum())

    def _late(self, seen: Observed) -> None:
        claimed = seen.entries.max_timestamp[seen.late]
        for oddity, those in ((self.unset, seen.late[claimed == -1]), (self.below, seen.late[claimed != -1])):
            if len(those):
                i = int(those[0])
                latest = int(seen.timestamp[seen.begins[i] : seen.begins[i] + seen.records[i]].max())
                words = f"{int(seen.entries.max_timestamp[i])} in its header, {latest} in a record"
                oddity.add(len(those), seen, i, int(seen.first[i]), int(seen.last[i]), words)

    def _far(self, seen: Observed) -> None:
        time = seen.timestamp
        high = time > LATEST
        micros = high & (time <= _MICROSECONDS)
        nanos = (time > LATEST * 1000) & (time <= _NANOSECONDS)
        for oddity, flags in ((self.micros, micros), (self.nanos, nanos), (self.far, ((time < EARLIEST) | high) & ~micros & ~nanos)):
            rows = np.flatnonzero(flags)
            if len(rows):
                value, offset = int(time[rows[0]]), int(seen.offset[rows[0]])
                words = f"{value} at offset {offset}, as milliseconds in the year {1970 + value // _YEAR}"
                oddity.add(len(rows), seen, int(seen.owners(rows[0])), offset, int(seen.offset[rows].max()), words)

    def remarks(self, segment: Segment) -> Iterator[Remark]:
        """What was found, as one row for each kind."""
        path = segment.path
        if (odd := self.back).count:
            position = _place(segment, odd, odd.last_offset)
            repeat = f"{_many(self.repeated, 'record')} {'has' if self.repeated == 1 else 'have'} an offset that is not above all before"
            times = "once" if odd.count == 1 else f"{odd.count} times"
            text = f"offsets go back {times}: at position {position} {odd.words}; {repeat}"
            yield odd.remark(path, Kind.OFFSETS_BACK, text, _CONSUMERS, position)
        if (odd := self.inside).count:
            text = f"offsets do not grow inside of {_many(odd.count, 'batch')}: in the first one {odd.words}"
            yield odd.remark(path, Kind.OFFSETS_IN_BATCH, text, _CONSUMERS)
        for odd, name in ((self.unset, "unset"), (self.below, "below a record's")):
            if odd.count:
                text = f"the largest timestamp is {name} in {_many(odd.count, 'batch')}: in the first one {odd.words}"
                yield odd.remark(path, Kind.MAX_TIMESTAMP, text, _LOOKUPS)
        for odd, unit in ((self.micros, "microseconds"), (self.nanos, "nanoseconds"), (self.far, "")):
            if odd.count:
                like = f"; {'this looks' if odd.count == 1 else 'these look'} like {unit}" if unit else ""
                text = f"{_many(odd.count, 'timestamp')} outside of the years 1 to 9999{like}: the first one is {odd.words}"
                yield odd.remark(path, Kind.FAR_TIMESTAMP, text, _MILLISECONDS, _place(segment, odd))
        if (odd := self.unlike).count:
            text = f"the content checksum of {_many(odd.count, 'lz4 frame')} is wrong, and the checksum of the batch is right"
            yield odd.remark(path, Kind.CONTENT_CHECKSUM, text, _FRAMES)
        yield from self.types.remarks(segment)


def _place(segment: Segment, odd: _Oddity, after: int | None = None) -> int:
    """Position of the first place; where a row stands for several messages, that of the one with the offset, which follows ``after``."""
    last = np.array([_LOWEST])
    for entries in headers(segment, odd.position) if odd.is_shared else ():
        offsets = np.concatenate([last, entries.last_offset])
        there = np.flatnonzero((offsets[1:] == odd.offset) & ((offsets[:-1] == after) if after is not None else True))
        if len(there):
            return int(entries.position[there[0]])
        last = offsets[-1:]
    return odd.position


def _many(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 'es' if name.endswith('ch') else 's'}"
