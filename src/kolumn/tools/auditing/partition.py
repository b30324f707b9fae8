"""The walk of `kolumn.audit` over the log of one topic-partition, and what becomes a finding of it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any

import numpy as np

from kolumn.copies.copies import Key
from kolumn.copies.transactions import begun_at, coordinator_epochs, intact_positions, marker_types, snapshot_of, snapshots
from kolumn.core import amounts
from kolumn.core.arrays import Int64s
from kolumn.core.errors import shown
from kolumn.core.text import in_column
from kolumn.damage.findings import Damage, Remark, Tally, damage_of_fault
from kolumn.damage.findings import Kind as RemarkKind
from kolumn.decode.observed import moment
from kolumn.formats import v2
from kolumn.formats.entries import Entries
from kolumn.log.pieces import entry_rows
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile, side_bytes
from kolumn.source.segments import Range, Segment
from kolumn.source.side_files import aborted_in, producers_in
from kolumn.source.storage import read_bytes
from kolumn.tools.auditing.absent import Absent, AbsentStretch, Reason, bases, cleaned_to
from kolumn.tools.auditing.missing import MOST_OFFSETS, missing_markers
from kolumn.tools.auditing.sequences import Event, FindingKind, ProducerState, ProducerStates
from kolumn.tools.auditing.times import Times
from kolumn.tools.coordinators import UNDER_WAY

MOST_FINDINGS = 1000
"""Rows of one kind and one topic-partition; what is above is counted in ``left_out``."""
_SPAN = 2**31  # offsets of a segment: they are relative to its base in indexes
_MOST_WAITING = 2000
ERROR, WARNING, NOTE = "error", "warning", "note"
_SEVERITIES = {FindingKind.RESET: WARNING, FindingKind.COORDINATOR: WARNING, FindingKind.LEADERS: NOTE}
_WAITING = {
    *(FindingKind.MARKER_MISSING, FindingKind.MARKER_SUSPECTED, FindingKind.MARKER_ALONE, FindingKind.RECORDS_MISSING),
}
_ON_PURPOSE = {Reason.COMPACTION, Reason.RETENTION}
_Row = dict[str, Any]


def _listed(stretches: list[tuple[AbsentStretch, Reason]]) -> str:
    said = [f"{one.first}{'' if one.first == one.last else f' to {one.last}'} ({reason})" for one, reason in stretches[:3]]
    return f"absent there: {', '.join(said)}{f' and {len(stretches) - 3} more stretches' if len(stretches) > 3 else ''}"


@dataclass
class Collected:
    """What all topic-partitions have given so far. ``coordinated`` is what coordinators say by producer; None if nothing does."""

    now: int
    longest: int
    coordinated: dict[int, _Row] | None
    findings: list[_Row] = field(default_factory=list)
    producers: list[_Row] = field(default_factory=list)
    offsets: list[_Row] = field(default_factory=list)
    partitions: list[_Row] = field(default_factory=list)
    opened: list[tuple[tuple[str, int], int, tuple[int, int | None, int | None]]] = field(default_factory=list)
    more: list[_Row] = field(default_factory=list)
    checkpoints: dict[str, dict[Key, int]] = field(default_factory=dict)


class Audited:
    """The log of one topic-partition: `walk` its ranges in order, then `close` it."""

    def __init__(self, segments: list[Segment], start: int | None, options: Options, made: Collected) -> None:
        first = min(segments, key=lambda segment: segment.base_offset or 0)
        cleaned = cleaned_to(first, made.checkpoints)
        self._about: _Row = {"topic": in_column(first.topic) if first.topic is not None else None, "partition": first.partition}
        self._key, self._options, self._made, self._start = first.key, options, made, start
        self._producers, self._absent, self._times = ProducerStates(begun_at(first)), Absent(first, start, cleaned), Times(made.now)
        self._own = segments
        self._first: int | None = None
        self._begin = max(first.base_offset or 0, 0)
        self._last = -1 if first.base_offset is None else first.base_offset - 1
        self._is_named = first.base_offset is not None
        self._at: Segment | None = None
        self._tail: list[Damage] = []  # after the last batch
        self._aborts: set[tuple[int, int]] = set()  # producer and offset of ABORT markers of the segment
        self._waiting: list[tuple[Event, str]] = []
        self._findings: list[_Row] = []
        self._kinds: Counter[str] = Counter()
        self._segments: set[str] = set()
        self._bytes = self._batches = self._records = self._gone = self._more_waiting = 0

    def walk(self, part: Range) -> None:
        """Add the batches of the next range."""
        segment, found, begun = part.segment, Tally(), part.start
        if part.fault is not None:
            return self._damaged([damage_of_fault(part)])
        if part.start == 0 and segment.base_offset is not None and self._first is not None:
            self._compare_snapshot(segment, segment.base_offset, read_bytes(snapshot_of(segment, segment.base_offset)))
        self._segments.add(segment.path)
        # What is lost in all copies is damaged by its checksums too.
        options = replace(self._options, check_crcs=True) if part.is_lost else self._options
        with SegmentFile(segment) as file:
            for entries in entry_rows(file, options, part, found):
                if len(some := self._believed(file, entries.intact())):
                    self._add(file, some, begun, self._tail + found.damage)
                    begun, self._tail = int(some[-1].end), []
        self._tail += [piece for piece in found.damage if piece.position >= begun]
        self._damaged(found.damage)
        for remark in found.remarks:
            self._remarked(remark)
        if part.start == 0 and part.end >= segment.size:
            self._compare_index(segment)
        self._aborts = set()
        self._at = segment

    def _believed(self, file: SegmentFile, entries: Entries) -> Entries:
        """The batches without those that claim offsets outside of their segment, before batches of lower ones: one would hide all after it.
        No checksum covers the base offset."""
        segment = file.segment
        if segment.base_offset is None:
            return entries
        end = segment.following if segment.following is not None else segment.base_offset + _SPAN
        last = entries.last_offset
        wrong = (last < segment.base_offset) | ((last >= end) & (np.append(last[1:], last[-1:] + 1) <= last))
        if not wrong.any():
            return entries
        for entry in entries[wrong]:
            text = f"the batch claims offset {entry.last_offset}, outside of its segment, and is not believed"
            self._found(FindingKind.DAMAGE, ERROR, text, segment=file.path, position=entry.position)
        return entries[~wrong]

    def _add(self, file: SegmentFile, entries: Entries, begun: int, damage: list[Damage]) -> None:
        base = bases(entries, self._last if self._is_named else None)
        if self._first is None:
            self._first = int(base[0])
            self._last = self._last if self._is_named else self._first - 1
            self._begin = self._last + 1
        self._back(file, entries, base)
        absent = self._absent.add(file.segment, entries, base, self._last, begun, damage) + self._gone
        records = np.where(entries.control == 1, 0, np.where(entries.count >= 0, entries.count, entries.last_offset - base + 1))
        ends = np.stack([np.cumsum(records) + self._records, np.cumsum(entries.size) + self._bytes])
        before = ends - np.stack([records, entries.size])
        self._times.add(entries, records, file.segment)
        owned = np.flatnonzero((entries.magic == 2) & (entries.producer_id >= 0) & ~entries.is_own)
        if len(owned):
            self._judge(file, entries[owned], absent[owned], before[:, owned])
        self._last, self._gone = max(self._last, int(entries.last_offset.max())), int(absent[-1])
        self._batches += len(entries)
        self._records, self._bytes = map(int, ends[:, -1])

    def _back(self, file: SegmentFile, entries: Entries, base: Int64s) -> None:
        reach = np.maximum.accumulate(np.concatenate([[self._last], entries.last_offset[:-1]]))
        back = np.flatnonzero(base <= reach)
        if len(back):
            i = int(back[0])
            more = f"; {len(back)} batches here do" if len(back) > 1 else ""
            text = f"expected an offset above {int(reach[i])}, found {int(base[i])}: offsets go back{more}"
            about = {"first": int(base[i]), "last": int(reach[i]), "position": entries[i].position}
            self._found("offsets-back", WARNING, text, segment=file.path, **about)

    def _judge(self, file: SegmentFile, entries: Entries, absent: Int64s, before: Int64s) -> None:
        control = np.flatnonzero(entries.control == 1)
        some = entries[control]
        types = marker_types(file, some)
        markers = dict(zip(control.tolist(), zip(types, coordinator_epochs(file, some), strict=True), strict=True))
        self._aborts |= {(row.producer_id, row.base_offset) for row, type in zip(some, types, strict=True) if type == v2.ABORT}

        def is_intact(position: int) -> bool:
            return bool(intact_positions(file, entries[entries.position == position]))

        is_quiet = self._absent.explains(file.segment, int(entries.last_offset.max()))
        if not is_quiet and len(self._waiting) >= _MOST_WAITING:
            is_quiet, self._more_waiting = True, self._more_waiting + int((np.diff(absent) > 0).sum())
        for event in self._producers.add(entries, absent, before, markers, is_intact, is_quiet):
            self._wait(event, file.path)
        for own, is_committed in self._producers.ended:
            if not is_committed and own.records:
                self._absent.aborted(file.segment, own.first, own.last, own.records)
        self._producers.ended.clear()

    def _wait(self, event: Event, path: str) -> None:
        """Keep what absent offsets may explain until the end of the log tells why they are absent."""
        explained = event.kind in _WAITING or (event.kind == FindingKind.GAP and event.absent >= event.missing)
        if not explained:
            self._told(event, path, _SEVERITIES.get(event.kind, ERROR), event.detail)
        elif len(self._waiting) < _MOST_WAITING:
            self._waiting.append((event, path))
        else:
            self._more_waiting += 1

    def _told(self, event: Event, path: str, severity: str, detail: str) -> None:
        if event.kind == FindingKind.GAP and (own := self._producers.counts.get((event.producer, event.epoch))) is not None:
            own.gaps += 1
        self._found(
            event.kind, severity, detail, producer=event.producer, epoch=event.epoch, first=event.first, last=event.last,
            records=event.records, time_ms=event.time_ms, segment=path, position=event.position,
        )  # fmt: skip

    def _compare_snapshot(self, segment: Segment, offset: int, raw: bytes | None) -> None:
        """Compare the producers of the snapshot at an offset with those of the log up to it."""
        says, producers = f"{offset:020}.snapshot", producers_in(raw)
        for row in () if producers is None else producers:
            number, epoch, last, begun = (int(row[column]) for column in ("producer", "epoch", "last", "open"))
            producer = self._producers.known.get(number, ProducerState())
            own, above = producer.open, max(producer.offset, self._begin - 1)
            if own is not None and producer.offset >= 0 and (begun < 0 or begun > own.first):
                known = "no open transaction of this producer" if begun < 0 else f"one that begins with offset {begun}"
                text = f"{says} has {known}, and no marker ends the one that begins with offset {own.first}"
                first, end = (own.unended(producer.offset), offset) if begun < 0 else (own.first + 1, begun)
                self._wait(Event(FindingKind.MARKER_MISSING, number, epoch, first, end - 1, 0, -1, 0, text), segment.path)
            if own is not None and begun >= 0:
                own.held = offset - 1
            if above < last < offset:
                text = f"{says} says that the producer's last record has offset {last}, in the log it is {producer.offset}"
                self._wait(Event(FindingKind.RECORDS_MISSING, number, epoch, last, last, 0, -1, 0, text), segment.path)

    def _compare_end(self, segment: Segment) -> int:
        """Compare the newest snapshot with the end of the log: a broker writes one when it stops. Returns the last offset of which either
        tells."""
        found = [(offset, read) for offset, read in snapshots(self._own) if offset > self._last] if segment.memory is None else []
        if not found or self._first is None:
            return self._last
        offset, read = max(found, key=lambda one: one[0])
        is_said = any(row["kind"] == RemarkKind.ENDS_EARLY for row in self._findings)
        if producers_in(read()) is None:
            return self._last
        if offset > self._last + 1 and not is_said:
            text = f"{offset:020}.snapshot was written when the log went up to offset {offset - 1}; it may have been copied after the log"
            self._found(RemarkKind.ENDS_EARLY, WARNING, text, first=self._last + 1, last=offset - 1, segment=segment.path)
        self._compare_snapshot(segment, offset, read())
        return offset - 1

    def _compare_index(self, segment: Segment) -> None:
        """Compare the ABORT markers of a segment with its transaction index."""
        for number, first, last in aborted_in(side_bytes(segment, ".txnindex")) or ():
            if (segment.base_offset or 0) <= last <= self._last and (number, last) not in self._aborts:
                text = f"the .txnindex says that an ABORT marker at offset {last} ends the transaction that began at offset {first}"
                self._wait(Event(FindingKind.MARKER_MISSING, number, -1, last, last, 0, -1, 0, text, missing=1), segment.path)

    def _damaged(self, pieces: Iterable[Damage]) -> None:
        for piece in pieces:
            self._absent.damaged(piece)
            self._found(
                FindingKind.DAMAGE, ERROR, piece.reason, first=piece.base_offset, last=piece.last_offset, records=piece.records_lost,
                segment=piece.segment, position=piece.position,
            )  # fmt: skip

    def _remarked(self, remark: Remark) -> None:
        if remark.kind == RemarkKind.ENDS_EARLY:
            text = f"{remark.remark}: {remark.evidence}"
            self._found(
                remark.kind, WARNING, text, first=remark.offset, last=remark.last_offset, segment=remark.segment, position=remark.position
            )

    def _found(
        self, kind: str, severity: str, detail: str, *, producer: int | None = None, epoch: int | None = None, first: int | None = None,
        last: int | None = None, records: int | None = None, time_ms: int | None = None, segment: str = "", position: int | None = None,
    ) -> None:  # fmt: skip
        self._kinds[f"{kind} ({severity})"] += 1
        if self._kinds[f"{kind} ({severity})"] > MOST_FINDINGS:
            return
        known = (self._made.coordinated or {}).get(-1 if producer is None else producer, {})
        row = {
            **self._about, "kind": str(kind), "severity": severity, "producerId": producer,
            "producerEpoch": epoch if epoch is None or -1 <= epoch < 2**15 else None, "transactionalId": known.get("transactionalId"),
            "firstOffset": first, "lastOffset": last, "records": records, "timestamp": moment(time_ms),
            "segment": in_column(segment) if segment else None, "position": None if position is None or position < 0 else position,
            "detail": shown(detail),
        }  # fmt: skip
        self._findings.append(row)

    def close(self) -> None:
        """Judge what had to wait for the end of the log, and add the rows of all tables."""
        end = self._last
        if self._at is not None:
            end = self._compare_end(self._at)
            self._absent.after(self._at, self._last, self._tail)
        for event in self._producers.close(end, self._gone):
            self._wait(event, self._at.path if self._at is not None else "")
        claimed = self._resolve()
        offsets = [row | self._about for row in self._absent.rows(self._begin)]
        self._absences([row for row in offsets if not claimed.issuperset(range(row["firstOffset"], row["lastOffset"] + 1))])
        known = sorted(self._producers.known.items(), key=lambda item: -1 if item[1].open is None else item[1].open.first)
        opened = {number: producer for number, producer in known if producer.open is not None}
        for number, producer in opened.items():
            self._opened(number, producer)
        for kind, severity, text, about in self._times.found():
            self._found(kind, severity, text, **about)
        self._made.offsets += offsets
        self._made.findings += sorted(self._findings, key=lambda row: -1 if row["firstOffset"] is None else row["firstOffset"])
        self._made.producers += self._producer_rows()
        self._made.partitions.append(self._row(opened))
        self._left_out()

    def _absences(self, rows: list[_Row]) -> None:
        """A finding for each stretch that was lost, and one for those of a segment of which nothing tells why they are absent."""
        unknown: dict[str, list[_Row]] = {}
        for row in rows:
            if row["reason"] == Reason.UNKNOWN:
                unknown.setdefault(row["segment"], []).append(row)
        for own in [*([row] for row in rows if row["reason"] == Reason.LOST), *unknown.values()]:
            row, count = own[0], sum(row["offsets"] for row in own)
            which = f"offset {row['firstOffset']}" if row["offsets"] == 1 else f"offsets {row['firstOffset']} to {row['lastOffset']}"
            more = f" and {count - row['offsets']} more up to {own[-1]['lastOffset']}" if len(own) > 1 else ""
            is_one = count == 1
            self._found(
                f"offsets-{row['reason']}", ERROR if row["reason"] == Reason.LOST else WARNING,
                f"{which}{more} {'is' if is_one else 'are'} absent: {row['evidence']}", first=row["firstOffset"],
                last=own[-1]["lastOffset"], records=count, segment=row["segment"], position=row["position"],
            )  # fmt: skip

    def _resolve(self) -> set[int]:
        """Findings about what absent offsets may explain, now that it is known why they are absent. Returns offsets of what is missing."""
        claimed: set[int] = set()
        for event, path in self._waiting:
            if event.kind == FindingKind.GAP and (some := self._absent_on_no_purpose(event.after + 1, event.first - 1)):
                self._told(event, path, NOTE, f"{event.detail}; {_listed(some)}")
            elif event.kind == FindingKind.RECORDS_MISSING and (some := self._absent_on_no_purpose(event.first, event.last)):
                self._told(event, path, ERROR, f"{event.detail}; {_listed(some)}")
                claimed.add(event.first)
            elif event.kind == FindingKind.MARKER_ALONE and not self._absent.is_compacted:
                # The cleaner removes records before the marker that ended their transaction.
                self._told(event, path, NOTE, event.detail)
        markers = [one for one in self._waiting if one[0].kind in (FindingKind.MARKER_MISSING, FindingKind.MARKER_SUSPECTED)]
        for marker in missing_markers(markers, self._absent_offsets):
            first, last = (min(marker.offsets), max(marker.offsets)) if marker.offsets else (marker.first, marker.last)
            some = self._absent_on_no_purpose(first, last)
            texts = [*dict.fromkeys(marker.texts), marker.choice, _listed(some) if some else ""]
            # A log whose end is missing may have been copied before files beside it.
            severity = ERROR if marker.is_sure and (first <= self._last or not marker.offsets) else WARNING
            self._told(marker.event._replace(first=first, last=last), marker.path, severity, "; ".join(filter(None, texts)))
            if marker.is_sure and len(marker.offsets) == 1:
                claimed.add(first)
        for offset in claimed:
            self._absent.claim(offset, "a record or a marker was there, as other files or batches tell")
        return claimed

    def _absent_offsets(self, first: int, last: int) -> set[int]:
        """The first absent offsets from ``first`` to ``last``; those after the end of the log too."""
        stretches = [(one.first, one.last) for one, _ in self._absent_on_no_purpose(first, last)]
        ranges = [range(max(low, first), min(high, last) + 1) for low, high in [*stretches, (self._last + 1, last)]]
        return set(islice(chain.from_iterable(ranges), MOST_OFFSETS))

    def _absent_on_no_purpose(self, first: int, last: int) -> list[tuple[AbsentStretch, Reason]]:
        return [(one, reason) for one, reason in self._absent.within(first, last) if reason not in _ON_PURPOSE]

    def _opened(self, number: int, producer: ProducerState) -> None:
        own, made = producer.open, self._made
        assert own is not None
        topic, partition = self._key
        epoch = None if own.epoch < 0 else own.epoch
        made.opened.append(((topic, partition), number, (own.first, moment(own.time_ms), epoch)))
        age = None if own.time_ms is None else made.now - own.time_ms
        text = f"the transaction that began at offset {own.first} has no marker{'' if age is None else f', and is {amounts.age(age)} old'}"
        kind, severity, more = self._verdict(number, age)
        if severity:
            text = f"{text}; {more}; committed readers wait there" if more else f"{text}; committed readers wait there"
            self._found(
                kind, severity, text, producer=number, epoch=epoch, first=own.first, last=own.last if own.records else None,
                records=own.records, time_ms=own.time_ms,
            )  # fmt: skip

    def _verdict(self, number: int, age: int | None) -> tuple[str, str, str]:
        """FindingKind, severity and reason of the finding about an open transaction; no severity if it may simply go on."""
        is_long = age is None or age >= self._made.longest
        if self._made.coordinated is None:
            return "open-transaction", WARNING if is_long else "", ""
        known = self._made.coordinated.get(number)
        if known is None:
            return "hanging-transaction", WARNING, "no coordinator in this source knows the producer"
        state, when = known["coordinatorState"], f"the coordinator says {known['coordinatorState']} ({shown(known['transactionalId'])})"
        if state in UNDER_WAY:
            if self._key in known["partitions"]:
                return "open-transaction", WARNING if is_long else "", when
            return "hanging-transaction", ERROR, f"{when}, without this partition"
        if state.startswith("Complete"):
            return FindingKind.MARKER_MISSING, ERROR, f"{when}, the marker is missing here"
        return "hanging-transaction", ERROR, when

    def _producer_rows(self) -> list[_Row]:
        rows, latest = [], dict(sorted(self._producers.counts))
        for (number, epoch), own in sorted(self._producers.counts.items()):
            is_open = latest[number] == epoch and self._producers.known[number].open is not None
            row = {
                "producerId": number, "producerEpoch": epoch, "firstOffset": own.first_offset, "lastOffset": own.last_offset,
                "firstSequence": own.first_sequence, "lastSequence": own.last_sequence, "batches": own.batches, "records": own.records,
                "gaps": own.gaps, "duplicates": own.duplicates, "resets": own.resets, "fenced": own.fenced, "committed": own.committed,
                "aborted": own.aborted, "open": int(is_open),
            }  # fmt: skip
            rows.append(self._about | row)
        return rows

    def _row(self, opened: dict[int, ProducerState]) -> _Row:
        begun = [producer.open for producer in opened.values() if producer.open is not None]
        earliest = min(begun, key=lambda own: own.first, default=None)
        records, size = earliest.before if earliest is not None else (self._records, self._bytes)
        errors, warnings = (sum(count for name, count in self._kinds.items() if name.endswith(f"({one})")) for one in (ERROR, WARNING))
        end = None if self._first is None else self._last
        return self._about | {
            "segments": len(self._segments), "bytes": self._bytes, "batches": self._batches, "records": self._records,
            "firstOffset": self._first, "lastOffset": end, "logStartOffset": self._begin if self._start is None else self._start,
            "lastStableOffset": earliest.first if earliest is not None else self._last + 1, "recordsAboveStable": self._records - records,
            "bytesAboveStable": self._bytes - size, "openTransactions": len(opened), "producers": len(self._producers.known),
            **{str(reason): self._absent.counts[reason] for reason in Reason}, "errors": errors, "warnings": warnings,
        }  # fmt: skip

    def _left_out(self) -> None:
        """Say what is above a limit."""
        said = [(count - MOST_FINDINGS, f"more findings: {name}") for name, count in self._kinds.items() if count > MOST_FINDINGS]
        said += [
            (self._absent.untold, "segments in which stretches of absent offsets were joined"),
            (self._producers.unjudged, "batches of more producers than are known at a time were not judged"),
            (self._producers.uncounted, "runs of batches of more epochs than the table of producers has"),
            (self._more_waiting, "more places where offsets are absent before a producer's batch were not judged"),
        ]
        name = "?" if self._about["topic"] is None else f"{shown(self._key[0])}-{self._key[1]}"
        for count, text in said:
            if count:
                self._made.more.append({"path": name, "kind": "limit", "records": count, "reason": text})
