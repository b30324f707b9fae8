"""`latest`: the state of a compacted topic at a time or an offset, in bounded memory.

Of each topic-partition the first pass finds the last offset of each key, the second one returns the records with these offsets. Keys, these
offsets and the result go to temporary files where they would take too much memory (`kolumn.writers.spilled`).
"""

import json
import logging
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core import keywords
from kolumn.core.arrays import Flags, Int64s
from kolumn.core.buffers import bools, int64s
from kolumn.core.errors import ArgumentError, shown
from kolumn.core.keywords import Time, known_keywords
from kolumn.core.lost import LostValues
from kolumn.damage.findings import OnDamage, Skipped, tell_lost
from kolumn.decode.host.aborted import COLUMN as TRANSACTION
from kolumn.decode.pipeline import scan_ranges
from kolumn.formats import layouts
from kolumn.options import Options, integer, milliseconds
from kolumn.readers.plan import plan_read
from kolumn.source.segments import HIGHEST, Range
from kolumn.source.storage import parent
from kolumn.values.connect import DELETED
from kolumn.values.typed import Typed, decoded
from kolumn.writers.spilled import SpilledOffsets, SpilledRows, sorted_in_file

logger = logging.getLogger("kolumn.latest")
LEFT_OUT = b"kolumn.leftOut"
"""Key of the partitions of which something was left out, in the metadata of the table's schema: JSON, a list of `LeftOutRecords`."""
_DECIDE = ("key", "offset", "timestampMs", "isControl", TRANSACTION)
_OPERATION, _TRUNCATE = "__op", "t"
_LATER = -1  # in place of the last offset of a key that has only later records
_REFUSED = {
    **keywords.refused(("include_control", "isolation_level"), "latest returns records of transactions that were committed, and no others"),
    **keywords.refused(("start_offset", "end_offset", "start_timestamp", "end_timestamp"), "as_of and as_of_offset say up to where"),
    **keywords.refused(("binary", "include_snapshots"), "latest makes a table of records"),
}  # fmt: skip


@dataclass
class LeftOutRecords:
    """What the state of a topic-partition does not have, though it might be expected there.

    Attributes
    ----------
    topic, partition
        Null without one.
    without_key, without_timestamp : int
        Records that have no key, and those of which it is not known when they were written, if a time was given.
    after_stable : int
        Records from the first open transaction on (the last stable offset), which no consumer of committed records gets.
    unknown_keys : int
        Keys of which the log only has records after the time or the offset, though others may have been there: records are missing in the
        log, which compaction or retention removed.
    truncates : int
        Change events that emptied the table, which have no key. What was in the topic-partition before them was left out; rows in other
        partitions of the topic were not.
    """

    topic: str | None
    partition: int | None
    without_key: int = 0
    without_timestamp: int = 0
    after_stable: int = 0
    unknown_keys: int = 0
    truncates: int = 0


_MEANING = {
    "without_key": "%d records without a key were left out",
    "without_timestamp": "%d records without a timestamp were left out: whether they are older than as_of is not known",
    "after_stable": "%d records from the first open transaction on were left out, which no consumer of committed records gets; "
    "open_transactions says whether those after it count",
    "unknown_keys": "%d keys have later records alone, and records are missing in the log: which they had then is not known",
    "truncates": "%d truncate events emptied the table: what their partitions had before was left out, rows in other partitions were not",
}


@known_keywords(_REFUSED)
def latest(
    source: keywords.Source,
    *,
    as_of: Time | None = None,
    as_of_offset: int | None = None,
    on_damage: OnDamage | None = None,
    **options: Unpack[keywords.ReadOptions],
) -> pa.Table:
    """The state of a compacted topic, now or at an earlier moment: the latest record of each key in each topic-partition.

    A key whose latest record is a tombstone has none. Records of aborted transactions do not count, and neither does what comes from
    the first open transaction on, which a warning tells: ``open_transactions`` "skip" counts what comes after it, and "include" the
    records of open transactions too. A transaction counts by how it ended, also if it ended after the moment.

    Where ``value_envelope`` says that values are change events, a key has no record either if the latest one deletes it: its ``op`` says
    so, whatever else of the event does not fit. If even ``op`` is lost, the record is returned, with null for its value. An event that
    empties the table (truncate) has no key. It removes what is before it in its topic-partition, which a warning tells: what is left in
    other partitions, and whether the topic has the rows of another table too, is not known.

    The log is read twice, and the stretch with records without a key once more if values are change events. Host memory: what a
    `kolumn.scan` takes, less than 400 MiB for keys, and 64 MiB for the result. What is larger is in temporary files without a name (in the
    folder that ``TMPDIR`` names); the returned table maps one, which goes with it.

    Parameters
    ----------
    source
        As in `kolumn.scan`.
    as_of : int, datetime or str, optional
        The moment, inclusive, in milliseconds since 1970, or as in `kolumn.scan`. Records with a later timestamp do not count.
    as_of_offset : int, optional
        The last offset that counts, in each topic-partition.
    on_damage : callable, optional
        As in `kolumn.scan`.
    **options

    Returns
    -------
    pyarrow.Table
        Columns as in `kolumn.read`; rows by topic-partition, in the order of the log. ``schema.metadata[LEFT_OUT]`` is JSON: a list of
        `LeftOutRecords` of the partitions of which something was left out, or is not known. Warnings say the same. Keys that were deleted
        after the moment, and of which nothing is left, cannot be counted.

    Raises
    ------
    ArgumentError
        Both moments are given, or one is invalid; otherwise as `kolumn.scan`.
    CorruptBatchError, FormatError, LimitError, PayloadError
        As in `kolumn.scan`.
    StorageError
        A temporary file cannot be written.
    """
    if as_of is not None and as_of_offset is not None:
        raise ArgumentError("as_of and as_of_offset both say up to where: name one of them")
    moment = HIGHEST if as_of is None else milliseconds("as_of", as_of)
    end = HIGHEST if as_of_offset is None else integer("as_of_offset", as_of_offset)
    options["isolation_level"] = "read_committed"
    plan = plan_read(source, Options.of(**options))
    every = replace(plan.options, isolation_level="read_uncommitted")
    events = _events(every)
    logs = dict[Any, list[Range]]()
    for part in plan.ranges:
        named = part.segment.topic is not None and part.segment.partition is not None
        logs.setdefault(part.segment.key if named else parent(part.segment.path), []).append(part)
    left_out, lost = [], LostValues()
    with SpilledRows(every.schema) as rows:
        for ranges in logs.values():
            search = _Search(ranges, moment, end, plan.options.open_transactions)
            offsets = search.offsets(every, on_damage)
            if events is not None:
                offsets = search.after_truncates(offsets, every, events)
            _add(rows, ranges, offsets, every, events, lost)
            left_out.append(search.left_out)
        table = rows.table()
    some = [asdict(own) for own in left_out if any(getattr(own, name) for name in _MEANING)]
    _warn(some)
    tell_lost(lost, on_damage)
    return table.replace_schema_metadata({LEFT_OUT: json.dumps(some)})


def _warn(left_out: list[dict[str, Any]]) -> None:
    for name, text in _MEANING.items():
        own = [row for row in left_out if row[name]]
        if own:
            topic, partition = own[0]["topic"], own[0]["partition"]
            where = "a log without a topic" if topic is None else f"{shown(topic)}-{partition}"
            logger.warning(f"{text} (%s%s)", sum(row[name] for row in own), where, f" and {len(own) - 1} more" if len(own) > 1 else "")


class _Search:
    """The first pass over a log: the last offset of each key, and what is left out."""

    def __init__(self, ranges: list[Range], moment: int, end: int, of_open: str) -> None:
        self.ranges, self.moment, self.end = ranges, moment, end
        segment = ranges[0].segment
        self.left_out = LeftOutRecords(segment.topic, segment.partition)
        self._gone = pa.array(["aborted", "open"] if of_open == "skip" else ["aborted"])
        stable = [part.transactions.last_stable_offset for part in ranges if part.transactions is not None and of_open == "stop"]
        self.stable = min((offset for offset in stable if offset is not None), default=HIGHEST)
        self.first, self.last, self.records = HIGHEST, -1, 0
        self.keyless = range(0)  # Offsets from the first to the last record without a key.
        # Transactions go by the offsets of the log, which are not consumer offsets in one of Redpanda.
        self._stored = "rawOffset" if segment.format in layouts.RAW else "offset"

    def offsets(self, options: Options, on_damage: OnDamage | None) -> Int64s:
        """The last offsets, sorted; in a file if they are many."""
        decide = self._deciding(options)
        with ExitStack() as scope:
            known = SpilledOffsets(scope)
            for batch in scan_ranges(self.ranges, decide, on_damage):
                earlier, later = self._flags(batch)
                offsets = np.where(earlier, int64s(batch["offset"]), _LATER)
                some = pa.array(earlier | later)
                known.add(batch["key"].filter(some), pa.array(offsets).filter(some))
            return sorted_in_file(map(self._of_time, known.offsets()))

    def _deciding(self, options: Options) -> Options:
        columns = tuple(dict.fromkeys((*_DECIDE, self._stored)))
        return replace(options, columns=columns, include_headers=False, include_control=True, typed=())

    def after_truncates(self, offsets: Int64s, options: Options, events: Typed) -> Int64s:
        """Those of some offsets that are after the last event which empties the table."""
        if not self.keyless:
            return offsets
        read = replace(self._deciding(options), typed=(_only(events, _OPERATION),)).with_added(("value",))
        last = -1
        for batch in scan_ranges(self.ranges, read.within(self.keyless.start, self.keyless.stop), Skipped()):
            ended, later, within = self._kinds(batch)
            counts = ended & ~later & within & bools(batch["key"].is_null())
            if self.moment != HIGHEST:
                counts &= int64s(batch["timestampMs"]) >= 0
            found = counts & _are(pc.equal(pc.struct_field(batch["value"], _OPERATION), _TRUNCATE))
            if found.any():
                self.left_out.truncates += int(found.sum())
                last = max(last, int(int64s(batch["offset"])[found].max()))
        self.left_out.without_key -= self.left_out.truncates
        return offsets[np.searchsorted(offsets, last) :]

    def _of_time(self, offsets: Int64s) -> Int64s:
        earlier = offsets[offsets != _LATER]
        if self.records <= self.last - self.first or self.first > 0:
            self.left_out.unknown_keys += len(offsets) - len(earlier)
        return earlier

    def _flags(self, batch: pa.RecordBatch) -> tuple[Flags, Flags]:
        """Which records count, and which would if they were not later; notes what is left out."""
        offset, time = int64s(batch["offset"]), int64s(batch["timestampMs"])
        own = bools(pc.is_valid(batch["offset"]))
        if own.any():
            self.first, self.last = min(self.first, int(offset[own].min())), max(self.last, int(offset[own].max()))
            self.records += int(own.sum())
        ended, later, within = self._kinds(batch)
        self.left_out.after_stable += int((ended & later & within).sum())
        counts = ended & ~later
        keyed = bools(pc.is_valid(batch["key"]))
        keyless = offset[counts & within & ~keyed]
        if len(keyless):
            self.left_out.without_key += len(keyless)
            first, last = int(keyless.min()), int(keyless.max()) + 1
            self.keyless = range(min(first, self.keyless.start), max(last, self.keyless.stop)) if self.keyless else range(first, last)
        counts &= keyed
        if self.moment != HIGHEST:
            self.left_out.without_timestamp += int((counts & (time < 0)).sum())
            counts &= time >= 0
        return counts & within, counts & ~within

    def _kinds(self, batch: pa.RecordBatch) -> tuple[Flags, Flags, Flags]:
        """Which records are data whose transactions count, which come after the last stable offset, and which are not after the moment."""
        ended = ~bools(batch["isControl"]) & bools(pc.invert(pc.is_in(batch[TRANSACTION], self._gone)))
        within = (int64s(batch["offset"]) <= self.end) & (int64s(batch["timestampMs"]) <= self.moment)
        return ended, int64s(batch[self._stored]) >= self.stable, within


def _add(rows: SpilledRows, ranges: list[Range], offsets: Int64s, options: Options, events: Typed | None, lost: LostValues) -> None:
    """The second pass: add the records with some offsets, without tombstones and change events that delete their keys; ``lost`` counts what
    was lost of their values.
    """
    if not len(offsets):
        return
    schema, read = options.schema, replace(options, start_offset=int(offsets[0]), end_offset=int(offsets[-1]) + 1)
    problems = {typed.column: f"{typed.column}Problems" for typed in options.typed}
    added = ["offset", "tombstone", *problems.values()]
    if events is not None:
        read = replace(read, typed=tuple(_with_deleted(one) if one is events else one for one in read.typed))
        added += ["value", "valueRaw", *events.looks_at]
    for batch in scan_ranges(ranges, read.with_added(added), Skipped()):
        offset = int64s(batch["offset"])
        place = np.searchsorted(offsets, offset)
        wanted = (offsets[np.minimum(place, len(offsets) - 1)] == offset) & ~bools(batch["tombstone"])
        some = batch.filter(pa.array(wanted))
        if events is not None:
            some = some.filter(pa.array(~_deletes(some, events)))
        if some.num_rows:
            for column, name in problems.items():
                lost.add(column, some[name])
            rows.add(pa.RecordBatch.from_arrays([_narrowed(some[field.name], field.type) for field in schema], schema=schema))


def _deletes(batch: pa.RecordBatch, events: Typed) -> Flags:
    """Which change events delete their keys. Of one that is lost as a whole its bytes say it."""
    told = batch[DELETED] if DELETED in batch.schema.names else pc.struct_field(batch["value"], DELETED)
    deletes, lost = _are(told), bools(told.is_null())
    if lost.any():
        rows = batch.filter(pa.array(lost))
        headers = rows["headers"] if events.looks_at else None
        found = decoded(_only(events, DELETED), rows["valueRaw"], headers, ("value",))["value"]
        deletes = deletes.copy()
        deletes[lost] = _are(pc.struct_field(found, DELETED))
    return deletes


def _are(flags: pa.BooleanArray) -> Flags:
    return bools(pc.fill_null(flags, False))


def _events(options: Options) -> Typed | None:
    """The values of a read if they are change events."""
    value = next((one for one in options.typed if one.column == "value" and one.envelope is not None), None)
    if value is None:
        return None
    from kolumn.values.envelopes import EventDecoder

    return value if isinstance(value.decoder, EventDecoder) else None


def _with_deleted(events: Typed) -> Typed:
    """The same with the field that says whether a key was deleted."""
    if events.columns is None or DELETED in events.columns:
        return events
    return _other(events, columns=(*events.columns, DELETED))


def _only(events: Typed, field: str) -> Typed:
    """Nothing but one field of what was done: no row around it can be lost."""
    return _other(events, columns=(field,), flat=False, errors="null-field")


def _other(events: Typed, **changes: Any) -> Typed:
    other = replace(events, **changes)
    other.__dict__["writers"] = events.writers
    return other


def _narrowed(column: pa.Array, type: pa.DataType) -> pa.Array:
    """A column without the field that says whether a key was deleted, if it was not asked for."""
    if column.type == type:
        return column
    return pa.StructArray.from_arrays([column.field(field.name) for field in type], fields=list(type), mask=column.is_null())
