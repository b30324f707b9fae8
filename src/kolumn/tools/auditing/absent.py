"""Offsets that are not in a topic-partition's log, or that no consumer gets, each with its reason and the evidence for it."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from kolumn.copies.copies import Key
from kolumn.core.arrays import Int64s
from kolumn.core.errors import Code
from kolumn.damage.findings import Damage
from kolumn.formats import table
from kolumn.formats.entries import Entries
from kolumn.source.segments import Segment
from kolumn.source.side_files import offsets_in
from kolumn.source.storage import is_url, parent, read_bytes, within
from kolumn.tools.coordinators import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

MOST_STRETCHES = 1000
_MANY = 8
_CLEANER = "cleaner-offset-checkpoint"
_COMPACTED = {OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state", "_schemas"}
"""Topics that brokers, and registries, create with cleanup.policy=compact."""
_PROVED = {Code.SEGMENT_END, Code.SEGMENT_MISSING}
"""Index files list offsets that no log has."""


class Reason(StrEnum):
    """Why no consumer gets an offset."""

    COMPACTION = "compaction"
    """The cleaner removed the record, or its batch."""
    RETENTION = "retention"
    """It is before the log, or below its log start offset."""
    MARKER = "marker"
    """A control record, or a batch of Redpanda's own, is there; consumers do not get it."""
    ABORTED = "aborted"
    """A record of an aborted transaction is there; consumers of committed records do not get it."""
    DAMAGE = "damage"
    """Bytes that could not be read are where the offset would be."""
    LOST = "lost"
    """It was in the log, and nothing that a broker does on purpose takes it out there."""
    UNKNOWN = "unknown"
    """Compaction and a loss would look the same."""


class AbsentStretch(NamedTuple):
    """Absent offsets before the batch at a position of a segment."""

    first: int
    last: int
    segment: str
    position: int
    damage: str  # what is wrong with the bytes before it; "" if nothing
    proved: bool = False  # index files list some of the offsets


_Joined = tuple[int, int, int]  # first and last offset, and how many


@dataclass
class _Own:
    """What is absent in a segment; ``joined`` by kind."""

    is_active: bool
    joined: dict[str, _Joined] = field(default_factory=dict)
    stretches: list[AbsentStretch] = field(default_factory=list)
    has_signs: bool = False
    has_producers: bool = False
    markers: str = "control records"

    @property
    def is_sparse(self) -> bool:
        """Whether so many batches are absent that no loss would do it. Of a producer with an id the cleaner keeps its last batch, and the
        markers of transactions whose records it keeps, which a loss may have taken."""
        return len(self.stretches) >= _MANY and not self.has_producers

    def join(self, kind: str, first: int, last: int, count: int) -> None:
        low, high, known = self.joined.get(kind, (first, last, 0))
        self.joined[kind] = min(low, first), max(high, last), known + count


def bases(entries: Entries, before: int | None) -> Int64s:
    """First offset of each entry; of those whose header does not have it, the one after the entry before, or after ``before``."""
    last = entries.last_offset
    previous = np.concatenate([[last[0] - 1 if before is None else before], last[:-1]])
    return np.where(entries.base_offset == table.UNKNOWN, previous + 1, entries.base_offset)


class Absent:
    """What is absent in a topic-partition, in the order of its log; ``start`` is its log start offset, ``cleaned`` up to where it was
    cleaned, if that is known."""

    def __init__(self, segment: Segment, start: int | None, cleaned: int | None) -> None:
        self._topic, self._start, self._first = segment.topic, start, segment
        self._segments: dict[str, _Own] = {}
        self._cleaned = cleaned
        self.counts: Counter[str] = Counter()
        self.untold = 0  # stretches that have no row of their own
        self._kept, self._has_signs = 0, False
        self._claims: dict[int, str] = {}
        self._named: list[tuple[int, int, str]] = []  # first and last offset of damage, and what it is
        self._previous: tuple[str, int] | None = None  # the segment of the last batch, and where that ends

    def add(self, segment: Segment, entries: Entries, base: Int64s, before: int, begun: int, damage: list[Damage]) -> Int64s:
        """Add batches; ``before`` is the last offset before them, ``begun`` the position after the batch before them in the segment.
        Returns how many offsets are absent before each of them. ``damage`` that lies directly before a batch explains its stretch."""
        own = self._own(segment)
        reach = np.maximum.accumulate(np.concatenate([[before], entries.last_offset[:-1]]))
        absent = np.where(base > reach, base - reach - 1, 0)
        rows = np.flatnonzero(absent)
        if not damage and len(rows) > MOST_STRETCHES:
            # More than have a row of their own.
            first, last = int(reach[rows[MOST_STRETCHES]]) + 1, int(base[rows[-1]]) - 1
            own.join("between", first, last, int(absent[rows[MOST_STRETCHES:]].sum()))
            rows = rows[:MOST_STRETCHES]
        for i in rows.tolist():
            position = int(entries.position[i])
            start = int(entries.position[i - 1] + entries.size[i - 1]) if i else begun
            piece = next((one for one in damage if one.segment != segment.path or start <= one.position <= position), None)
            first = int(reach[i]) + 1
            # Offsets below those of a segment's name were in the segment before it.
            before_it = self._previous if not i and self._previous is not None and first < (segment.base_offset or 0) else None
            where, position = (segment.path, position) if before_it is None else before_it
            self._stretch(first, int(base[i]) - 1, where, position, piece)
        spans = entries.last_offset - base + 1
        claimed = np.where((entries.magic == 2) & (entries.count >= 0) & ~entries.is_own, spans - entries.count, 0)
        own.has_signs |= bool((claimed > 0).any() or (entries.delete_horizon == 1).any())
        self._has_signs |= own.has_signs
        own.has_producers |= bool(((entries.magic == 2) & (entries.producer_id >= 0) & ~entries.is_own).any())
        control = np.where(entries.is_own, spans, np.where(entries.control == 1, entries.count, 0))
        if entries.is_own.any():
            own.markers = "control records, or batches of Redpanda's own,"
        for kind, counts in (("inside", claimed), (Reason.MARKER, control)):
            rows = np.flatnonzero(counts > 0)
            if len(rows):
                own.join(kind, int(base[rows[0]]), int(entries.last_offset[rows[-1]]), int(counts[rows].sum()))
        self._previous = segment.path, int(entries.position[-1] + entries.size[-1])
        return np.asarray(np.cumsum(absent))

    def explains(self, segment: Segment, last: int) -> bool:
        """Whether offsets that are absent in a segment, up to one of them, are compaction's, as far as is known by now."""
        own = self._own(segment)
        if self._cleaned is not None:
            return last < self._cleaned
        return self._topic in _COMPACTED or own.has_signs or (self._has_signs and not own.is_active)

    def claim(self, offset: int, what: str) -> None:
        """Something that was at an offset is missing: where nothing else tells why its stretch is absent, it is lost."""
        self._claims[offset] = what

    def damaged(self, piece: Damage) -> None:
        """Offsets that damage names explain a stretch wherever the damage is: of several copies, the ranges of one come after another's."""
        if piece.base_offset is not None and len(self._named) < MOST_STRETCHES:
            last = piece.base_offset if piece.last_offset is None else piece.last_offset
            self._named.append((piece.base_offset, last, piece.reason))

    def aborted(self, segment: Segment, first: int, last: int, records: int) -> None:
        self._own(segment).join(Reason.ABORTED, first, last, records)

    def after(self, segment: Segment, end: int, damage: list[Damage]) -> None:
        """Offsets after the end of the log, if damage names them."""
        for piece in damage:
            first, last = piece.base_offset, piece.last_offset
            if first is not None and last is not None and last >= first > end:
                self._own(segment)
                self._stretch(first, last, segment.path, piece.position, piece)
                end = last

    def _own(self, segment: Segment) -> _Own:
        return self._segments.setdefault(segment.path, _Own(segment.following is None))

    def _stretch(self, first: int, last: int, path: str, position: int, piece: Damage | None) -> None:
        own = self._segments[path]
        has_room = own.is_active or piece is not None or self._kept < MOST_STRETCHES
        if has_room and len(own.stretches) < MOST_STRETCHES // 10:
            proved = piece is not None and piece.error is not None and piece.error.code in _PROVED
            own.stretches.append(AbsentStretch(first, last, path, position, piece.reason if piece is not None else "", proved))
            self._kept += 1
        else:
            own.join("between", first, last, last - first + 1)

    def rows(self, begin: int) -> Iterator[dict[str, Any]]:
        """A row for each stretch; those that a broker makes on purpose are one row for each segment. ``begin``: where the log begins."""
        for first, end, why in (
            (0, begin, f"the log begins with offset {begin}: earlier segments were deleted by retention, or on request"),
            (begin, self._start or 0, f"they are there, and below the log start offset {self._start}: no consumer gets them"),
        ):
            if first < end:
                yield self._row(first, end - 1, end - first, Reason.RETENTION, why, self._first.path, 0)
        for path, own in self._segments.items():
            compacted = own.joined.get("inside")
            for one in own.stretches:
                reason, evidence = self._why(one, own)
                size = one.last - one.first + 1
                if reason == Reason.RETENTION:
                    continue
                if reason == Reason.COMPACTION:
                    low, high, count = compacted or (one.first, one.last, 0)
                    compacted = min(low, one.first), max(high, one.last), count + size
                else:
                    yield self._row(one.first, one.last, size, reason, evidence, path, one.position)
            if "between" in own.joined:
                low, high, count = own.joined["between"]
                reason, evidence = self._why(AbsentStretch(low, high, path, 0, ""), own)
                self.untold += reason != Reason.COMPACTION
                yield self._row(low, high, count, reason, f"many stretches together: {evidence}", path, 0)
            if compacted:
                yield self._row(*compacted, Reason.COMPACTION, self._sign(own), path, 0)
            for reason, text in ((Reason.MARKER, own.markers), (Reason.ABORTED, "records of aborted transactions")):
                if reason in own.joined:
                    evidence = f"{text} are there, and consumers of committed records do not get them"
                    yield self._row(*own.joined[reason], reason, evidence, path, 0)

    def _row(self, first: int, last: int, count: int, reason: Reason, evidence: str, segment: str, position: int) -> dict[str, Any]:
        self.counts[reason] += count
        return {
            "firstOffset": first, "lastOffset": last, "offsets": count, "reason": str(reason), "evidence": evidence, "segment": segment,
            "position": position,
        }  # fmt: skip

    @property
    def is_compacted(self) -> bool:
        """Whether the log was compacted, somewhere in it."""
        return self._topic in _COMPACTED or self._cleaned is not None or self._has_signs

    def within(self, first: int, last: int) -> list[tuple[AbsentStretch, Reason]]:
        """Stretches that have offsets from ``first`` to ``last``, with their reasons, as far as they are kept."""
        found = [(one, own) for own in self._segments.values() for one in own.stretches if one.first <= last and first <= one.last]
        return [(one, self._why(one, own)[0]) for one, own in found]

    def _why(self, one: AbsentStretch, own: _Own) -> tuple[Reason, str]:
        if self._start is not None and one.last < self._start:
            return Reason.RETENTION, f"they are below the log start offset {self._start}"
        if one.damage:
            return (Reason.LOST if one.proved else Reason.DAMAGE), one.damage
        named = next((why for first, last, why in self._named if first <= one.last and one.first <= last), None)
        if named is not None:
            return Reason.DAMAGE, named
        if self._topic in _COMPACTED:
            return Reason.COMPACTION, f"{self._topic} is compacted"
        if self._cleaned is not None:
            if one.first < self._cleaned:
                return Reason.COMPACTION, f"{_CLEANER} says that the log was cleaned up to offset {self._cleaned}"
            return Reason.LOST, f"{_CLEANER} says that nothing was cleaned from offset {self._cleaned} on"
        is_active = own.is_active and len(self._segments) > 1
        if own.has_signs or (not is_active and (self.is_compacted or own.is_sparse)):
            return Reason.COMPACTION, self._sign(own)
        if is_active:
            text = "the segment is active, a broker's cleaner never touches it"
            return Reason.LOST, f"{text}, and none of its batches has fewer records than offsets"
        claim = next((what for offset, what in self._claims.items() if one.first <= offset <= one.last), None)
        if claim is not None:
            return Reason.LOST, claim
        text = "whole batches are absent, and no batch has fewer records than offsets: compaction of whole batches and a loss look the same"
        return Reason.UNKNOWN, f"{text}; {_CLEANER} of the broker would tell"

    def _sign(self, own: _Own) -> str:
        if self._topic in _COMPACTED:
            return f"{self._topic} is compacted"
        if self._cleaned is not None:
            return f"{_CLEANER} says that the log was cleaned up to offset {self._cleaned}"
        if not self.is_compacted:
            places = f"at {len(own.stretches)} places of the segment or more"
            return f"offsets are absent {places}, between intact batches, as the cleaner leaves them"
        where = "the segment" if own.has_signs else "another segment of the log"
        return f"{where} has batches with fewer records than offsets, or with a delete horizon, as the cleaner leaves them"


def cleaned_to(segment: Segment, files: dict[str, dict[Key, int]]) -> int | None:
    """Up to which offset the log was cleaned, as the checkpoint of the log directory says; None if nothing tells. ``files`` are those that
    have been read."""
    if segment.memory is not None or segment.copy_id is not None:
        return None
    folder = parent(segment.path if is_url(segment.path) else os.path.abspath(segment.path))
    name = within(parent(folder), _CLEANER)
    if name not in files:
        files[name] = offsets_in(read_bytes(name)) or {}
    return files[name].get(segment.key)
