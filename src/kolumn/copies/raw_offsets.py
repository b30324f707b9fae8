"""The log of a Redpanda partition by consumer offsets: where its ranges begin, and which raw offsets a read asks for.

    raw offset        0      1  2  3   4    5  6
    batches         | own | data    | own | data |          own: of the types `kolumn.formats.redpanda.FILTERED`
    consumer's               0  1  2        3  4
    delta             0      1             2               raw minus consumer's

The delta is 0 at raw offset 0, and a bucket's manifest says it for each segment. Of other logs the caller may say it (``start_delta``), or
the key-value store of the node that they are on, with which the headers of the log are compared (`kolumn.copies.kvstore`). Else it is not
known: then raw offsets are returned, and a warning says so. From there on headers are counted, if a read does not count them itself: one
that reads any other log from its beginning looks at no header twice.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from threading import Lock

import numpy as np

from kolumn.copies.kvstore import Shown, Stores, stores_beside
from kolumn.core.errors import ArgumentError, shown
from kolumn.decode.raw_offsets import filtered
from kolumn.formats import layouts
from kolumn.formats.entries import Entries
from kolumn.formats.redpanda import HEADER
from kolumn.log.pieces import entry_rows
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import HIGHEST, Range, Segment
from kolumn.source.storage import parent

logger = logging.getLogger(__name__)
_WALK = Options(errors="skip", check_crcs=False)


class RawOffsets:
    """The deltas of one log.

    Parameters
    ----------
    parts : list of Range
        All of the log, each raw offset once, in order.
    start_delta : int, optional
        The delta before the first of them, if no manifest says it and it does not begin at raw offset 0. Without it the key-value store of
        the log's node is asked, where there is one.
    copies : sequence of Segment
        Segments of the log of which nothing may be read, but of which a manifest may tell the delta.
    """

    def __init__(self, parts: list[Range], start_delta: int | None, copies: Sequence[Segment] = ()) -> None:
        self._parts = [part for part in parts if part.fault is None]
        self._places: dict[str, list[int]] = {}  # numbers of the parts of a segment, by its path
        for i, part in enumerate(self._parts):
            self._places.setdefault(part.segment.path, []).append(i)
        self._deltas: dict[int, int | None] = {}  # before the first entry of the part with this number
        self._inside: dict[int, list[tuple[int, int]]] = {}  # positions in a part, and the deltas there
        self._lock = Lock()
        begin = 0 if not self._parts or _told(self._parts[0]) is not None or _begins_at_zero(self._parts[0]) else self._told_later(copies)
        self.is_untold = begin is None
        """Whether neither a manifest nor its first raw offset tells how the log begins."""
        self.searched = ""
        """What the key-value store of the node has of a log of which nothing else tells, if it does not tell either."""
        if begin is None and start_delta is not None:
            _compare(start_delta, self._parts[0])
        if self._parts and _told(self._parts[0]) is None:
            self._deltas[0] = start_delta if begin is None else begin
            if self._deltas[0] is None:
                self._ask_store()
            if self._deltas[0] is None:
                self._warn()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=Lock())

    def before(self, part: Range) -> int | None:
        """The delta before the first entry of a range of the log; None if it is not known. Reads headers where it has to."""
        number = self._number(part)
        if number is None:
            return None
        with self._lock:
            delta, own = self._before(number), self._parts[number]
            low = own.start_offset
            if delta is not None and low is not None and low > (own.segment.base_offset or 0):
                # The delta is that of its first offset. It is decoded from a batch before that on, maybe from its beginning.
                delta -= _length(replace(own, start=part.start, start_offset=None, end_offset=low))
                return delta + (_length(replace(own, end=part.start)) if part.start > own.start else 0)
            if delta is None or part.start <= own.start:
                return delta
            # The parts of a segment follow one another.
            position, delta = max((place for place in self._inside.get(number, ()) if place[0] <= part.start), default=(own.start, delta))
            delta += _length(replace(own, start=position, end=part.start))
            self._inside.setdefault(number, []).append((part.start, delta))
            return delta

    def learn(self, part: Range, delta: int | None) -> str | None:
        """Note the delta after the last entry of a range that was read to its end; returns what a manifest says against it."""
        number, raft = self._number(part), part.segment.raft
        if number is None or delta is None or part.end < self._parts[number].end or part.end_offset is not None:
            # Batches after an end offset were counted too, or were not reached.
            return None
        with self._lock:
            self._deltas.setdefault(number + 1, delta)
        if raft is None or raft.delta_end in (None, delta) or part.is_bounded:
            return None
        return f"after its last batch raw offsets are {delta} above consumer offsets by its batches, and {raft.delta_end} by the manifest"

    def _number(self, part: Range) -> int | None:
        return next((i for i in self._places.get(part.segment.path, ()) if _is_of(part, self._parts[i])), None)

    def raw(self, offset: int | None) -> int | None:
        """The first raw offset whose offset for consumers is not below ``offset``; None for None."""
        if offset is None or not self._parts:
            return offset
        with self._lock:
            first = 0
            for number in range(1, len(self._parts)):
                delta, base = self._told(number), self._parts[number].segment.lowest
                if delta is not None and base is not None and base - delta <= offset:
                    first = number
            delta = self._before(first)
            for number in range(first, len(self._parts)):
                if delta is None:
                    return offset
                for entries in own_of(self._parts[number]):
                    for base, last in zip(entries.base_offset.tolist(), entries.last_offset.tolist(), strict=True):
                        if base - delta > offset:
                            return offset + delta
                        delta += last - base + 1
                told = self._told(number + 1) if number + 1 < len(self._parts) else None
                if told is not None and (self._parts[number + 1].segment.lowest or 0) - told > offset:
                    # A delta that grows between two segments, since compaction has removed batches, is not one of offsets before it.
                    return offset + delta
                delta = delta if told is None else told
                self._deltas.setdefault(number + 1, delta)
        return offset + (delta or 0)

    def _before(self, number: int) -> int | None:
        """The delta before a part, from the nearest one before it of which it is known."""
        begin = number
        while begin not in self._deltas and self._told(begin) is None:
            begin -= 1
        delta = self._told(begin) if self._told(begin) is not None else self._deltas[begin]
        for i in range(begin, number):
            delta = None if delta is None else delta + _length(self._parts[i])
            self._deltas[i + 1] = delta
        return delta

    def _told(self, number: int) -> int | None:
        if number >= len(self._parts):
            return None
        told, before = _told(self._parts[number]), self._parts[number - 1].segment.raft if number else None
        if told is None and before is not None and before.last is not None and _begin(self._parts[number]) == before.last + 1:
            return before.delta_end
        return told

    def _told_later(self, copies: Sequence[Segment]) -> int | None:
        """The delta before the first part, from the one that a manifest says of a later offset; None if it says none."""
        first, told = _begin(self._parts[0]), dict[int, int]()
        for segment in (*(part.segment for part in self._parts), *copies):
            raft = segment.raft
            if raft is not None and raft.delta_end is not None and raft.last is not None:
                told.setdefault(raft.last + 1, raft.delta_end)
            if raft is not None and raft.delta is not None and segment.base_offset is not None:
                told[segment.base_offset] = raft.delta
        told = {offset: delta for offset, delta in told.items() if offset >= first}
        if not told or self._parts[0].start > 0:
            return None
        until = min(told)
        before = [replace(part, end_offset=min(until, _end(part))) for part in self._parts if _begin(part) < until]
        delta = told[until] - sum(map(_length, before))
        return delta if delta >= 0 else None

    def _warn(self) -> None:
        path = self._parts[0].segment.path
        logger.warning(
            "%s: the log begins later than at raw offset 0, and nothing says how far raw offsets and consumer offsets differ there, so raw "
            "offsets stay%s. If you know the difference, name it in start_delta, for this log alone",
            shown(path),
            f"; {self.searched}" if self.searched else "",
        )

    def _ask_store(self) -> None:
        """Set the delta before the first part as the key-value store of its node has it, if one fits."""
        segment = self._parts[0].segment
        stores = stores_beside(segment.path) if segment.memory is None else None
        if stores is None:
            return
        lengths = list[int]()
        delta, self.searched = stores.delta_before(self._shown(stores, lengths))
        self._deltas[0] = delta
        if delta is not None:
            # The headers were counted, so that no part has to be walked again.
            for number, length in enumerate(lengths[: len(self._parts) - 1]):
                self._deltas[number + 1] = delta = delta + length

    def _shown(self, stores: Stores, lengths: list[int]) -> Shown | None:
        """What the headers of the log show, up to where the stores tell about any that begins like it; None if they do not, or there is no
        header. ``lengths`` takes how many raw offsets of each part that was walked no consumer has."""
        first: int | None = None
        until = after = -1
        own: list[Entries] = []
        for part in self._parts:
            if first is not None and (part.segment.lowest or 0) > until:
                break
            lengths.append(0)
            for entries in filter(len, _entries_of(part)):
                if first is None:
                    first = int(entries.base_offset[0])
                    until = stores.after(first)
                if until < 0:
                    return None
                after = max(after, int(entries.last_offset.max()) + 1)
                own.append(filtered(entries))
                lengths[-1] += int((own[-1].last_offset - own[-1].base_offset + 1).sum())
        if first is None:
            return None
        base = np.concatenate([entries.base_offset for entries in own])
        return Shown(first, after, base, np.concatenate([entries.last_offset for entries in own]) - base + 1)


def _told(part: Range) -> int | None:
    """The delta before the first entry of a part, as a manifest says it."""
    raft = part.segment.raft
    if raft is None or raft.delta is None or part.start > 0:
        return None
    if part.start_offset is None or part.start_offset <= (part.segment.base_offset or 0):
        return raft.delta
    return raft.delta + _length(replace(part, start_offset=None, end_offset=part.start_offset))


def _compare(start_delta: int, part: Range) -> None:
    most = HIGHEST if part.segment.lowest is None else _begin(part)
    if not 0 <= start_delta <= most:
        found = f"{most}, the raw offset at which {shown(part.segment.path)} begins: no offset of consumers is negative"
        raise ArgumentError(f"start_delta={start_delta}: expected 0 to {found}")


def _begin(part: Range) -> int:
    return (part.segment.lowest or 0) if part.start_offset is None else part.start_offset


def _end(part: Range) -> int:
    return HIGHEST if part.end_offset is None else part.end_offset


def _begins_at_zero(part: Range) -> bool:
    if part.segment.base_offset is not None or part.start > 0:
        return part.segment.lowest == 0 and part.start == 0
    with SegmentFile(part.segment) as file:
        if file.size >= HEADER and layouts.offset_at(file.format, file.read(0, HEADER), 0) == 0:
            return True
        first = next(entry_rows(file, _WALK, part), None)
    return first is None or not len(first) or int(first.base_offset[0]) == 0


def _is_of(part: Range, own: Range) -> bool:
    """Whether a range is a part of another one of the same segment."""
    if not own.start <= part.start <= own.end:
        return False
    # Bounds tell the parts of a segment apart.
    low = own.start_offset if part.start_offset is None else part.start_offset
    return low is None or (own.start_offset or 0) <= low < _end(own)


def _entries_of(part: Range) -> Iterator[Entries]:
    """The entries of a part whose headers are right."""
    # What is damaged in all copies of a log has offsets nevertheless.
    walked = replace(part, start_offset=None, end_offset=None) if part.is_lost else part
    with SegmentFile(part.segment) as file:
        for entries in entry_rows(file, _WALK, walked):
            yield entries.intact()


def own_of(part: Range) -> Iterator[Entries]:
    """The batches of a part that consumers have no offsets of."""
    yield from map(filtered, _entries_of(part))


def _length(part: Range) -> int:
    """How many raw offsets of a part no consumer has."""
    return sum(int((own.last_offset - own.base_offset + 1).sum()) for own in own_of(part))


def logs_of(segments: Iterable[Segment]) -> list[list[Segment]]:
    """Segments by their logs. Where no folder names the topic-partition, those of a folder are one log, in the order of the offsets in
    their names, and what has none is a log by itself."""
    logs: dict[object, list[Segment]] = {}
    for segment in segments:
        apart = segment.path if segment.base_offset is None else parent(segment.path)
        logs.setdefault(segment.key if segment.topic is not None else apart, []).append(segment)
    return [log if log[0].topic is not None else sorted(log, key=lambda one: one.base_offset or 0) for log in logs.values()]


def refuse_start_delta(start_delta: int | None, untold: int, what: str) -> None:
    """Raise `ArgumentError` if the caller says how a log begins, and not exactly one needs it; ``what`` is done to that log, a verb."""
    if start_delta is not None and untold != 1:
        rest = f"found {untold} logs: {what} that log alone" if untold else "found no log: leave it out"
        raise ArgumentError(f"start_delta={start_delta}: expected one log that needs it, {rest}")


def with_raw_offsets(
    segments: list[Segment], options: Options, every: Callable[[list[Segment]], list[Range]],
    chosen: Callable[[list[Segment], Options], list[Range]],
) -> list[Range]:  # fmt: skip
    """Ranges of logs of Redpanda, for options whose offsets are those of consumers: ranges have raw bounds, and what translates them.

    ``every`` makes the ranges of a whole log, ``chosen`` those that the options keep.
    """
    ranges, untold = list[Range](), 0
    for own in logs_of(segments):
        offsets = RawOffsets(every(own), options.start_delta, own)
        untold += offsets.is_untold
        # An end such as 2^63 - 1 stands for none, and has no raw offset.
        bounds = (offsets.raw(_start(own, options)), offsets.raw(options.end_offset))
        start, end = (None if bound is None else min(bound, HIGHEST) for bound in bounds)
        ranges += [_bounded(part, start, end, offsets) for part in chosen(own, replace(options, start_offset=start, end_offset=end))]
    refuse_start_delta(options.start_delta, untold, "read")
    return ranges


def _start(own: list[Segment], options: Options) -> int | None:
    """The first offset of consumers that is read of a log: records that were deleted are not, unless the options ask for them."""
    starts = [segment.raft.log_start for segment in own if segment.raft is not None and segment.raft.log_start is not None]
    if options.include_deleted_records or not starts:
        return options.start_offset
    return max(*starts, options.start_offset or 0)


def whole_with_offsets(segments: list[Segment], start_delta: int | None) -> list[Range]:
    """All of each segment, copies of a log apart, with what translates the raw offsets of those that have some."""
    ranges = list(map(Range.whole, segments))
    logs: dict[object, list[int]] = {}
    for i, segment in enumerate(segments):
        if segment.format in layouts.RAW:
            apart = segment.path if segment.topic is None and segment.base_offset is None else parent(segment.path)
            logs.setdefault((segment.key, apart), []).append(i)
    for places in logs.values():
        offsets = RawOffsets([ranges[i] for i in places], start_delta)
        for i in places:
            ranges[i] = replace(ranges[i], offsets=offsets)
    return ranges


def _bounded(part: Range, start: int | None, end: int | None, offsets: RawOffsets) -> Range:
    both = Options(start_offset=start, end_offset=end).within(part.start_offset, part.end_offset)
    return replace(part, start_offset=both.start_offset, end_offset=both.end_offset, offsets=offsets)
