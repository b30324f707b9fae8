"""Change records so that another layout can store them, and count what is lost."""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Flags, Int64s
from kolumn.formats import layout as contents
from kolumn.formats import layouts, table
from kolumn.log.aborted import ABORTED, OPEN, Transactions
from kolumn.writers.conversion import losses
from kolumn.writers.conversion.losses import Losses, holds
from kolumn.writers.entries import EntrySettings

_PRODUCER = {"producerId": -1, "producerEpoch": -1, "sequence": -1}


@dataclass(frozen=True)
class Changes:
    """The requested conversion: into ``how``, with ``timestamp`` as LogAppendTime in ms for records that have no timestamp.

    ``transactions`` are those of the partition, if transactional records are to be dropped.
    """

    how: EntrySettings
    timestamp: int | None
    transactions: Transactions | None


def retarget(records: pa.RecordBatch, entry: Int64s, layout: Int64s, changes: Changes, lost: Losses) -> tuple[pa.RecordBatch, Any]:
    """Records (`pieces.COLUMNS`) as the target can store them, and the entry of each; losses are added to ``lost``.

    ``entry`` and ``layout`` are the number of the source's entry and its layout, for each record.
    """
    held = holds(changes.how.layout, changes.how.magic)
    keep = _kept(records, layout, changes, held, lost)
    if not keep.all():
        records, entry = records.filter(pa.array(keep)), entry[keep]
    columns = dict(zip(records.schema.names, records.columns, strict=True))
    _timestamps(columns, changes, held, lost)
    _producers(columns, changes, held, lost)
    _values(columns, changes.how.layout, held, lost)
    if contents.HEADERS not in held:
        lost.note(contents.HEADERS, pc.sum(pc.list_value_length(columns.pop("headers"))).as_py() or 0)
    if contents.MARKERS in held:
        columns["key"] = _control_keys(columns, changes.how.layout)
    return pa.RecordBatch.from_pydict(columns), entry


def _kept(records: pa.RecordBatch, layout: Int64s, changes: Changes, held: frozenset[str], lost: Losses) -> Flags:
    """Flags of the records that are kept."""
    control = np.asarray(records["isControl"])
    keep = np.ones(len(control), bool)
    if changes.transactions is not None:
        producer, offset = records["producerId"].to_numpy(), records["offset"].to_numpy()
        states = changes.transactions.states(producer, offset, np.asarray(records["isTransactional"]))
        for state, what in ((ABORTED, losses.ABORTED), (OPEN, losses.OPEN)):
            dropped = (states == state) & ~control
            lost.note(what, int(dropped.sum()))
            keep &= ~dropped
    if not control.any():
        return keep
    names = records["controlType"]
    ends = np.asarray(pc.fill_null(pc.is_in(names, pa.array(["COMMIT", "ABORT"])), False))
    typed = layouts.among(layout, layouts.TYPED_CONTROL)
    for what, which in (
        (contents.TYPED_CONTROL, control & typed),
        (contents.MARKERS, control & ~typed & ends),
        (contents.OTHER_CONTROL, control & ~typed & ~ends),
    ):
        if what not in held or changes.transactions is not None:
            lost.note(what, int(which.sum()))
            keep &= ~which
    return keep


def _timestamps(columns: dict[str, pa.Array], changes: Changes, held: frozenset[str], lost: Losses) -> None:
    time = columns["timestampMs"].to_numpy()
    kind = columns["timestampType"].to_numpy()
    if changes.timestamp is not None and contents.APPEND_TIMES in held:
        none = time == -1
        columns["timestampMs"], columns["timestampType"] = (
            pa.array(np.where(none, changes.timestamp, time)),
            pa.array(np.where(none, table.LOG_APPEND_TIME, kind)),
        )
    if contents.TIMESTAMPS not in held:
        lost.note(contents.TIMESTAMPS, int((time != -1).sum()))
    elif contents.APPEND_TIMES not in held:
        lost.note(contents.APPEND_TIMES, int((kind == table.LOG_APPEND_TIME).sum()))
    if contents.APPEND_TIMES not in held:
        columns["timestampType"] = pa.array(np.full(len(time), table.CREATE_TIME, np.int32))
    if contents.SECONDS not in held:
        seconds, broker = columns.pop("timestampSeconds"), columns.pop("brokerTimestampMs")
        if seconds.null_count < len(seconds):
            lost.note(contents.SECONDS, pc.sum(pc.and_(pc.is_valid(seconds), pc.is_valid(broker))).as_py() or 0)


def _producers(columns: dict[str, pa.Array], changes: Changes, held: frozenset[str], lost: Losses) -> None:
    rows = len(columns["offset"])
    if contents.LEADER_EPOCHS not in held:
        lost.note(contents.LEADER_EPOCHS, int((columns.pop("leaderEpoch").to_numpy() != -1).sum()))
    transactional = np.asarray(columns["isTransactional"])
    if (contents.TRANSACTIONS not in held or changes.transactions is not None) and transactional.any():
        lost.note(contents.TRANSACTIONS, int(transactional.sum()))
        columns["isTransactional"] = pa.array(np.zeros(rows, bool))
    if contents.PRODUCERS not in held or changes.transactions is not None:
        gone = columns["producerId"].to_numpy() != -1
        if contents.PRODUCERS in held:
            gone &= transactional
        lost.note(contents.PRODUCERS, int(gone.sum()))
        if gone.any():
            for name, absent in _PRODUCER.items():
                columns[name] = pa.array(np.where(gone, absent, columns[name].to_numpy()), columns[name].type)


def _values(columns: dict[str, pa.Array], layout: int, held: frozenset[str], lost: Losses) -> None:
    """Tombstones with a value become tombstones without one; if the target has no flag, a null value marks them."""
    if contents.DELETES in held:
        return
    dead, empty = columns.pop("tombstone"), pc.is_null(columns["value"])
    payload = pc.and_not(dead, empty)
    control = columns["isControl"]
    alive = pc.and_not(pc.and_not(empty, dead), control)
    lost.note(contents.TOMBSTONES, pc.sum(alive).as_py() or 0)
    if (deleted := pc.sum(payload).as_py() or 0) > 0:
        lost.note(contents.DELETES, deleted)
        columns["value"] = pc.if_else(payload, pa.scalar(None, pa.binary()), columns["value"])


def _control_keys(columns: dict[str, pa.Array], layout: int) -> pa.Array:
    """Keys with control types numbered as in the layout: the numbers of COMMIT and ABORT are swapped in the KIP-98 draft."""
    control = np.asarray(columns["isControl"])
    if not control.any():
        return columns["key"]
    keys, names = columns["key"].to_pylist(), columns["controlType"].to_pylist()
    numbers = layouts.LAYOUTS[layout].control_types
    for row in np.flatnonzero(control).tolist():
        if names[row] in ("COMMIT", "ABORT"):
            keys[row] = keys[row][:2] + struct.pack(">h", numbers.index(names[row])) + keys[row][4:]
    return pa.array(keys, pa.binary())
