"""`follow`: the records of logs, and then what is appended to them.

    listing ──▶ topic-partitions that changed ──▶ ranges after the place that was reached ──▶ batches, and the new place

A place is a position in a segment, and the headers of the last batches before it. As long as the log has the last of them, it has only
grown: the read goes on at the position. If the file no longer has it, the log was truncated after the last batch that is still there. If
the file is gone, or compacted, the read goes on by offset, or where a later leader epoch begins, if that is earlier.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import TIMEOUT_MAX
from time import sleep
from typing import Any, Literal, Unpack

import numpy as np
import pyarrow as pa

from kolumn.copies.copies import begin_of_later_epoch, created_anew, log_end, log_start, topic_ids, whole_end
from kolumn.copies.ranges import plan_log
from kolumn.copies.tiers import log_of
from kolumn.copies.transactions import readable_end, with_transactions
from kolumn.core import keywords
from kolumn.core.errors import ArgumentError, StorageError, shown
from kolumn.core.keywords import known_keywords, refused
from kolumn.core.text import NAMED_BY, as_strings, check_payload, strings_of
from kolumn.damage.findings import Damage, OnDamage, Skipped, tell_lost
from kolumn.decode.chunk import decoder_of
from kolumn.decode.host.headers import headers, position_of
from kolumn.decode.pipeline import scan_ranges
from kolumn.formats import layouts
from kolumn.formats.entries import Entries, Entry
from kolumn.options import Options
from kolumn.readers.plan import live_segments, plan_read
from kolumn.source.names import log_name
from kolumn.source.segments import HIGHEST, Range, Segment, named_parts
from kolumn.source.storage import parent
from kolumn.values.typed import payload_names

logger = logging.getLogger(__name__)
_MARKS = 1024  # batches that are remembered of a segment, to find out where it was truncated
_TICK = 1_000_000_000  # ns: longer than the resolution of a file system's times
_ONE_LOG = "follow reads one growing log, each record once"


@known_keywords(
    refused(("end_offset", "end_timestamp"), "follow has no end: stop the loop")
    | refused(("include_deleted_segments", "include_snapshots"), _ONE_LOG)
    | refused(("open_transactions",), "follow returns the records of a transaction when it has ended")
    | refused(("limit",), "stop the loop")
)
def follow(
    source: keywords.Source,
    *,
    start: Literal["earliest", "latest"] = "earliest",
    poll_seconds: float = 1.0,
    on_damage: OnDamage | None = None,
    payload: keywords.Payload = "binary",
    **options: Unpack[keywords.ReadOptions],
) -> Iterator[pa.RecordBatch]:
    """The records of logs that grow: those that are there, and then those that are appended, without an end.

    New segments, partitions and topics are found. The records of a partition come in order; those of several partitions alternate. A batch
    that is still being written is waited for. With ``isolation_level="read_committed"`` records are returned when their transaction has
    ended. What does not go on as it was read is logged as a warning, with its offsets: retention has deleted segments before they were
    read; a log was truncated, as after a change of leader, and is read again from where it was cut; a topic was created anew, and is read
    from its beginning. Iteration ends by an interrupt, an error, or when the iterator is closed.

    Parameters
    ----------
    source : str, PathLike or iterable of those
        As for `scan`; a directory or a glob, so that new segments are found.
    start : str
        "earliest" begins with the records that are there, from ``start_offset`` or ``start_timestamp`` on if they are given; "latest"
        with those that are appended from now on.
    poll_seconds : float
        Seconds between two looks at the source. Of files that have not changed nothing is read.
    on_damage, payload
        As for `scan`. Each damaged stretch is told once.
    **options

    Returns
    -------
    iterator of pyarrow.RecordBatch
        All with the columns and types of `scan` at the time of the call: types of typed values are those of the records that are there,
        one type for all topics.

    Raises
    ------
    ArgumentError
        As `scan`; or the source is in memory, or a log of Redpanda, which has raw offsets.
    StorageError
        A file cannot be read, twice in a row.
    """
    asked, parts = Options.of(**options), [source] if isinstance(source, str) else named_parts(source)
    if not parts:
        raise ArgumentError("source: expected paths: a segment in memory does not grow")
    if asked.replicas == "merge":
        raise ArgumentError(f"replicas='merge': {_ONE_LOG}: expected replicas='first', or one of the directories alone")
    if start not in ("earliest", "latest"):
        raise ArgumentError(f"start={start!r}: expected one of earliest, latest")
    if start == "latest" and (asked.start_offset, asked.start_timestamp) != (None, None):
        raise ArgumentError("start='latest': expected no start_offset and no start_timestamp with it")
    if isinstance(poll_seconds, bool) or not isinstance(poll_seconds, int | float) or not 0 <= poll_seconds <= TIMEOUT_MAX:
        raise ArgumentError(f"poll_seconds={poll_seconds!r}: expected a number of seconds, 0 or more")
    check_payload(payload)
    # The plan finds the types of typed columns.
    return _Followed(parts, plan_read(parts, asked).options, start == "latest", on_damage, payload).batches(poll_seconds)


@dataclass(frozen=True)
class _Place:
    """How far a log was read: up to the offset ``next``, None if nothing was read, and the leader epoch ``epoch``.

    That is a position in a segment, before which it has the batches ``marks``; by offset alone without a segment. Records below ``low`` are
    not wanted, and those below ``start`` never are.
    """

    next: int | None = None
    low: int | None = None
    start: int = 0
    ids: Mapping[str, str] = field(default_factory=dict)
    epoch: int | None = None
    segment: Segment | None = None
    position: int = 0
    marks: Entries = field(default_factory=lambda: Entries.room(0))

    def found_in(self, segments: list[Segment]) -> Segment | None:
        """The segment, if the log still has a file of that name."""
        return next((one for one in segments if self.segment is not None and one.path == self.segment.path), None)

    def holds(self, segment: Segment) -> bool:
        """Whether a segment has only grown."""
        return segment.size >= self.position and self.kept_in(segment, 1) == min(1, len(self.marks))

    def kept_in(self, segment: Segment, count: int) -> int:
        """How many of the last marks a segment still has, up to the first one that it has not."""
        wanted = self.marks[-count:]
        rows = headers(segment, wanted[0].position, wanted[-1].position + 1) if len(wanted) else ()
        kept = {_mark(entry) for entries in rows for entry in entries}
        return next((i for i, entry in enumerate(wanted) if _mark(entry) not in kept), len(wanted))

    def after(self, part: Range, damage: list[Damage], delivered: int | None) -> "_Place":
        """The place after a range was read, in which some damage was found."""
        follows = self.segment is not None and (self.segment.path, self.position) == (part.segment.path, part.start)
        marks, position = self.marks.array if follows else Entries.room(0).array, part.start
        while True:
            for entries in headers(part.segment, position, part.end):
                marks, position = np.concatenate([marks, entries.array[-_MARKS:]])[-_MARKS:], int(entries.end[-1])
            # Where damage breaks the chain of entries, it goes on after it.
            stretches = [(one.position, one.position + one.size) for one in damage if one.segment == part.segment.path]
            beyond = max([end for start, end in stretches if start <= position < end], default=position)
            if beyond == position:
                break
            position = beyond
        read = Entries(marks)
        last = max(read.last_known_offset(-1) + 1, part.segment.base_offset or 0, delivered or 0, self.next or 0)
        epoch = read[-1].leader_epoch if len(read) else self.epoch
        return replace(self, next=last, epoch=epoch, segment=part.segment, position=position, marks=read)


def _last(batch: pa.RecordBatch, name: str) -> int:
    number: int = batch.column(batch.schema.get_all_field_indices(name)[-1])[-1].as_py()
    return number


def _mark(entry: Entry) -> tuple[int, ...]:
    return entry.position, entry.size, entry.base_offset, entry.last_offset, entry.crc, entry.leader_epoch


class _Told(Skipped):
    """What a read leaves out; ``known`` stretches, which were told before, are not told again."""

    def __init__(self, on_damage: OnDamage | None, known: set[tuple[str, int]]) -> None:
        super().__init__()
        self.on_damage, self.known = on_damage, known

    def __call__(self, piece: Damage) -> None:
        super().__call__(piece)
        where = piece.segment, piece.position
        if self.on_damage is not None and where not in self.known:
            self.on_damage(piece)
        self.known.add(where)


class _Followed:
    """Logs that are followed: the place of each topic-partition, and how it looked when that was reached."""

    def __init__(self, source: list[Any], options: Options, from_end: bool, on_damage: OnDamage | None, payload: str) -> None:
        self.source, self.on_damage, self.decoder = source, on_damage, decoder_of(options.backend)
        self.options = replace(options, start_offset=None)
        self.schema, self.asked = options.schema, self.options.with_added((*NAMED_BY, "leaderEpoch"))
        self.is_text = payload != "binary"
        if self.is_text:
            self.schema = as_strings(self.schema, payload_names(options.columns, options.typed))
        self.places, self.looks, self.failed = dict[str, _Place](), dict[str, object](), dict[str, str]()
        self.known, self.said = set[tuple[str, int]](), set[str]()
        # Those that appear later are read from their beginning.
        for name, own in self._groups().items():
            low = readable_end(log_of(own, options), options) if from_end else options.start_offset
            self.places[name] = _Place(low=low, start=options.start_offset or 0)

    def batches(self, poll_seconds: float) -> Iterator[pa.RecordBatch]:
        while True:
            groups: dict[str, list[Segment]] = {}
            with self._patience(""):
                groups = self._groups()
                self._say_gone(groups)
            for name, own in groups.items():
                with self._patience(name):
                    yield from self._new(name, own)
            sleep(poll_seconds)

    @contextmanager
    def _patience(self, name: str) -> Iterator[None]:
        """Files may be deleted or replaced while they are read, and the next look finds others. The same error twice is raised."""
        try:
            yield
            self.failed.pop(name, None)
        except StorageError as error:
            if self.failed.get(name) == str(error):
                raise
            self.failed[name] = str(error)

    def _groups(self) -> dict[str, list[Segment]]:
        try:
            segments = live_segments(self.source, self.options).segments
        except ArgumentError:
            if not self.places:
                raise
            segments = []
        groups: dict[str, list[Segment]] = {}
        for one in segments:
            if one.format in layouts.RAW:
                raise ArgumentError(
                    f"{shown(one.path)}: follow goes on by the offsets in segments, and those of {one.format} are raw offsets: convert the "
                    "log to Kafka's format"
                )
            name = log_name(one.topic, one.partition, one.path if one.base_offset is None else parent(one.path))
            groups.setdefault(shown(name), []).append(one)
        return groups

    def _say_gone(self, groups: Mapping[str, list[Segment]]) -> None:
        for name in self.looks.keys() - groups.keys():
            del self.looks[name]
            logger.warning("%s: read up to offset %s, and the partition no longer exists", name, self.places[name].next)

    def _new(self, name: str, own: list[Segment]) -> Iterator[pa.RecordBatch]:
        """The new records of a partition, whose place moves on."""
        look = [(one.path, one.identity or one.size) for one in own]
        if self.looks.get(name) == look:
            return
        segments = log_of(own, self.options)
        place = self.places[name] = self._moved(name, segments, self.places.get(name, _Place()))
        ranges = [*self._ranges(segments, place)]
        transactions = next((part.transactions for part in ranges if part.transactions is not None), None)
        stable = transactions.last_stable_offset if transactions and self.options.isolation_level == "read_committed" else None
        parts, told = [*_clipped(ranges, segments[-1], stable)], _Told(self.on_damage, self.known)
        delivered = epoch = None
        try:
            for batch in scan_ranges(parts, self.asked.within(place.low, stable), told, decoder=self.decoder):
                delivered, epoch = _last(batch, "offset") + 1, _last(batch, "leaderEpoch")
                yield from strings_of([batch], self.schema) if self.is_text else [batch.select(range(len(self.schema)))]
            # Of a segment of which no batch is whole nothing could be compared later: the place is in the one before.
            sound = [part for part in reversed(parts) if part.fault is None]
            for part in sound or [replace(part, end=part.start) for part in ranges[:1] if part.fault is None]:
                self.places[name] = place.after(part, told.pieces, delivered)
                if len(self.places[name].marks):
                    break
        except StorageError:
            if delivered is not None:
                self.places[name] = _Place(delivered, delivered, place.start, place.ids, epoch)
            raise
        finally:
            tell_lost(told.values, self.on_damage)
        if not _may_change_unseen(segments[-1]):
            self.looks[name] = look

    def _moved(self, name: str, segments: list[Segment], place: _Place) -> _Place:
        """The place in a log that may have other segments now, or other records in them; a warning tells what does not go on."""
        ids = topic_ids(segments[:1])
        for what in created_anew(place.ids, ids):
            if what not in self.said:
                self.said.add(what)
                logger.warning("%s. It is read from its beginning", what)
            return _Place(ids=ids)
        place, found = replace(place, ids={**place.ids, **ids}), place.found_in(segments)
        if place.next is None or (found is not None and place.holds(found)):
            return place
        start, end, reached = log_start(segments) or 0, log_end(segments), place.next
        if found is not None and place.segment is not None and (found.following is None or _is_same(place.segment, found)):
            kept = place.kept_in(found, len(place.marks))
            end = min(end, place.marks[kept - 1].last_offset + 1 if kept else found.base_offset or 0)
        if place.epoch is not None:
            end = min(end, begin_of_later_epoch(segments, place.epoch, end))
        if end < reached:
            logger.warning(
                "%s: read up to offset %d, and the log was truncated to offset %d meanwhile, as after a change of leader. It is read again "
                "from there, with the records that it has now", name, reached, end,
            )  # fmt: skip
        elif start > (wanted := max(reached, place.start)):
            logger.warning("%s: offsets %d to %d were deleted before they were read", name, wanted, start - 1)
        following = min(end, max(start, reached))
        return _Place(following, max(following, place.start), place.start, place.ids, place.epoch)

    def _ranges(self, segments: list[Segment], place: _Place) -> list[Range]:
        found = place.found_in(segments)
        if found is None:
            return plan_log(segments, self.options.within(place.low, None))
        later = [one for one in segments[segments.index(found) + 1 :] if one.size or one.fault is not None]
        rest = Range(found, place.position, found.size, (place.next or 0) - 1)
        return with_transactions([rest, *map(Range.whole, later)], self.options)


def _clipped(ranges: list[Range], last: Segment, stable: int | None) -> Iterator[Range]:
    """The ranges before a batch that is half written, and before the last stable offset."""
    for part in ranges:
        end = part.end
        if part.segment.path == last.path and part.fault is None:
            end = min(end, whole_end(last, part.start))
        if stable is not None and part.fault is None and stable < (part.segment.following or HIGHEST):
            end = min(end, position_of(part, stable))
        if end > part.start or end == part.end:
            yield replace(part, end=end)
        if end < part.end:
            return


def _is_same(before: Segment, now: Segment) -> bool:
    """Whether a file is the one that it was, maybe with other contents."""
    return before.identity is not None and now.identity is not None and not before.identity.is_another(now.identity)


def _may_change_unseen(last: Segment) -> bool:
    """Whether a batch may be written without another size or time: to room that was allocated, in the same tick of the clock."""
    seen = last.identity
    return seen is not None and seen.tail == b"" and time.time_ns() - (seen.modified or 0) < _TICK
