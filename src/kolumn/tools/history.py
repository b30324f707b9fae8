"""`history`: every record of a key that is left anywhere in a log, and what became of it.

The log is read twice. The first pass decodes only the columns that decide which records are meant, and notes in which entries these are;
the second one decodes everything of those entries. So a key that is rare costs about a scan of keys alone.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.copies.ranges import plan_log
from kolumn.core import keywords
from kolumn.core.arrays import Int64s
from kolumn.core.buffers import int64s
from kolumn.core.keywords import known_keywords
from kolumn.core.schema import RECORD_COLUMNS
from kolumn.core.text import in_column
from kolumn.damage.findings import OnDamage
from kolumn.decode.host.aborted import COLUMN as TRANSACTION
from kolumn.decode.host.chunks import header_rows
from kolumn.decode.pipeline import scan_ranges
from kolumn.options import Options
from kolumn.readers.plan import LiveSegments, ReadPlan, plan_read
from kolumn.readers.selection import Condition, Key, Selection, Where, conditions
from kolumn.source.names import DELETED_LOG
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range
from kolumn.tools.coordinators import TRANSACTIONS_TOPIC, transactional_ids

logger = logging.getLogger("kolumn.history")
UNDECIDED = b"kolumn.undecided"
"""Key of the number of undecided records in the metadata of the table's schema."""
_AS_READ = (
    *("topic", "partition", "offset", "timestampType", "producerId", "producerEpoch", "sequence", "leaderEpoch"),
    *("isTransactional", "tombstone", "segment", "position"),
)  # fmt: skip
_MADE = {
    "timestamp": pa.timestamp("ms", tz="UTC"), "transactionalId": pa.string(), "deletes": pa.bool_(), "keySize": pa.int32(),
    "valueSize": pa.int32(), "valueHash": pa.string(),
}  # fmt: skip
_ORDER = (
    *("topic", "partition", "offset", "timestamp", "timestampType", "producerId", "producerEpoch", "sequence", "leaderEpoch"),
    *("transaction", "transactionalId", "isTransactional", "tombstone", "deletes", "keySize", "valueSize", "valueHash"),
    *("segment", "position"),
)  # fmt: skip
HISTORY_SCHEMA = pa.schema([(name, _MADE.get(name) or RECORD_COLUMNS[name]) for name in _ORDER])
"""Columns of `history`, to which headers, keys and values are added on request."""
_REFUSED = {
    **keywords.refused(("columns", "binary"), "history has columns of its own"),
    **keywords.refused(("include_control", "isolation_level"), "history returns every record of a key, with the state of its transaction"),
    **keywords.refused(("key_as", "value_as"), "keys and values are one column each"),
}  # fmt: skip
_KEY = "ofKey"  # the stored key
_NEAR = 1 << 18  # bytes between two entries that cost less to decode than another range to begin


@known_keywords(_REFUSED)
def history(
    source: keywords.Source,
    *,
    key: Key | None = None,
    keys: Iterable[Key] | None = None,
    header: Where | None = None,
    where: Where | None = None,
    include_values: bool = False,
    on_damage: OnDamage | None = None,
    **options: Unpack[keywords.ReadOptions],
) -> pa.Table:
    """Every record of a key, or with a header or a field, that a log still has: also those of aborted and open transactions.

    The log is read twice: first the columns that decide, then the entries in which there are such records. In host memory is the result,
    and what a `kolumn.scan` takes.

    Parameters
    ----------
    source
        As in `kolumn.scan`. With a tier, all of its segments; with `__transaction_state` in it, producers get their transactional ids.
    key, keys : bytes or str, or several of those
        A key as bytes, or as text in UTF-8, after ``hex:`` or ``base64:`` in that form. A record has to have one of them.
    header : str, mapping, or iterable
        "NAME=VALUE" of a header, values as keys. Every one of several has to hold.
    where : str, mapping, or iterable
        "value.FIELD=VALUE" or "key.FIELD=VALUE" of typed values and keys (``value_format``, ``key_format``), "key=VALUE" of a typed key
        that has no fields, or "NAME=VALUE" of a header. Every one of several has to hold.
    include_values : bool
        The columns ``key`` and ``value`` too, as a read returns them.
    on_damage : callable, optional
        As in `kolumn.scan`.
    **options

    Returns
    -------
    pyarrow.Table
        Columns of `HISTORY_SCHEMA`, and ``headers``, ``key``, ``value`` if they are asked for; one row for each record, by topic, partition
        and offset. ``transaction`` is "none", "committed", "aborted" or "open". ``transactionalId`` is the one that has the producer id by
        the newest records of `__transaction_state`; null for an earlier producer id of it, and if the source does not say. ``keySize`` and
        ``valueSize`` are bytes, null for null; ``valueHash`` is the SHA-256 of the stored value, as hex. ``deletes`` is true of a tombstone
        that deleted the key: it is not of an aborted or open transaction, and the record of its key before it, if one is left in the
        partition, is no tombstone. Who wrote it is its producer id, its transactional id and its headers: a log does not have the client's
        name or address.
        The schema's metadata has in `UNDECIDED` of how many records a typed payload cannot be decoded, so that nobody knows whether they
        are meant; a warning says so too.

    Raises
    ------
    ArgumentError
        Nothing says which records are meant, or a field does not exist; otherwise as `kolumn.scan`.
    CorruptBatchError, FormatError, LimitError, PayloadError
        As in `kolumn.scan`.
    """
    chosen = Options.of(**options)
    named = [*([] if key is None else [key]), *([keys] if isinstance(keys, bytes | str) else keys or [])]
    wanted = [*conditions(where), *_of_headers(header)]
    selection = Selection.of(named if key is not None or keys is not None else None, wanted, [typed.column for typed in chosen.typed])
    selection = replace(selection, typed=selection.typed & {path.partition(".")[0] for path, _ in selection.fields})
    plan = plan_read(source, chosen)
    hits = _Hits(plan, selection, on_damage)
    table = _with_transactions(partial(_records, hits, plan.options, selection, include_values), plan, hits)
    table = table.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")])
    table = table.append_column("deletes", _deletes(table))
    table = table.append_column("transactionalId", _transactional_ids(table["producerId"], plan.live))
    names = [*HISTORY_SCHEMA.names, *(("headers",) if chosen.include_headers else ()), *(("key", "value") if include_values else ())]
    if hits.undecided:
        logger.warning("of %d records a key or a value cannot be decoded: whether they are meant is not known", hits.undecided)
    return table.select(names).replace_schema_metadata({UNDECIDED: str(hits.undecided)})


def _of_headers(header: Where | None) -> list[Condition]:
    return [(f"header.{name}", value) for name, value in conditions(header)]


class _Hits:
    """The first pass: in which entries the records are that are meant, and of how many nobody knows whether they are."""

    def __init__(self, plan: ReadPlan, selection: Selection, on_damage: OnDamage | None) -> None:
        typed = tuple(typed for typed in plan.options.typed if typed.column in selection.typed)
        decide = replace(plan.options, typed=typed).with_columns([*selection.columns, "segment", "position"])
        self.undecided = 0
        found = dict[str, list[Int64s]]()
        for batch in scan_ranges(plan.ranges, decide, on_damage):
            self.undecided += selection.undecided(batch)
            flags = selection.flags(batch)
            if flags.true_count:
                for segment, positions in _by_segment(batch.select(["segment", "position"]).filter(flags)):
                    found.setdefault(segment, []).append(positions)
        self.positions = {segment: np.unique(np.concatenate(own)) for segment, own in found.items()}

    def ranges(self, ranges: Iterable[Range]) -> Iterator[Range]:
        """The parts of some ranges that have these entries, and some others between them."""
        for part in ranges:
            own = self.positions.get(in_column(part.segment.path), np.empty(0, np.int64))
            yield from _around(part, own[(own >= part.start) & (own < part.end)])


def _by_segment(hits: pa.RecordBatch) -> Iterator[tuple[str, Int64s]]:
    column = hits["segment"]
    for segment in pc.unique(column).to_pylist():
        yield segment, int64s(hits["position"].filter(pc.equal(column, segment)))


def _around(part: Range, positions: Int64s) -> Iterator[Range]:
    """Parts of a range with the entries at some positions; those that are near to each other share one."""
    if not len(positions):
        return
    if part.end - part.start <= _NEAR:
        yield part
        return
    with SegmentFile(part.segment) as file:
        for near in np.split(positions, np.flatnonzero(np.diff(positions) > _NEAR) + 1):
            first, last = int(near[0]), int(near[-1])
            entries = next(iter(header_rows(file, last, min(last + 1, part.end))))
            yield replace(part, start=first, end=min(int(entries.end[0]), part.end), floor=part.floor if first == part.start else -1)


def _with_transactions(records: Callable[[Iterable[Range], str | None], pa.Table], plan: ReadPlan, hits: _Hits) -> pa.Table:
    """The records with what became of their transactions. Most logs have none, and to look for them takes headers of the whole log."""
    table = records(plan.ranges, None)
    if not pc.any(table["isTransactional"]).as_py():
        return table.append_column(TRANSACTION, pa.array(["none"]).take(pa.array(np.zeros(table.num_rows, np.int64))))
    keys = {part.segment.key for part in plan.ranges if in_column(part.segment.path) in hits.positions}
    segments = [segment for segment in plan.live.segments if segment.key in keys]
    return records(plan_log(segments, replace(plan.options, columns=(TRANSACTION,))), TRANSACTION)


def _records(
    hits: _Hits, options: Options, selection: Selection, include_values: bool, ranges: Iterable[Range], added: str | None
) -> pa.Table:
    """The second pass: columns of the result that are as they were read or made of them, and another one."""
    typed = frozenset(one.column for one in options.typed) if include_values else selection.typed
    chosen = replace(selection, typed=typed)
    stored = {name: f"{name}Raw" if name in typed else name for name in ("key", "value")}
    asked = [*(("headers",) if options.include_headers else ()), *(stored if include_values else ()), *([added] if added else ())]
    names = dict.fromkeys([*_AS_READ, "timestampMs", *stored.values(), *chosen.columns, *asked])
    decoded = replace(options, typed=tuple(one for one in options.typed if one.column in typed)).with_columns(names)
    empty = pa.RecordBatch.from_pylist([], decoded.schema)
    some = (batch.filter(chosen.flags(batch)) for batch in scan_ranges(hits.ranges(ranges), decoded))
    return pa.Table.from_batches([_made(batch, stored, asked) for batch in (empty, *some)])


def _made(batch: pa.RecordBatch, stored: dict[str, str], asked: list[str]) -> pa.RecordBatch:
    key, value, time = batch[stored["key"]], batch[stored["value"]], batch["timestampMs"]
    hashes = [None if one is None else sha256(one).hexdigest() for one in value.to_pylist()]
    columns: dict[str, Any] = {name: batch[name] for name in (*_AS_READ, *asked)} | {
        "timestamp": pc.if_else(pc.less(time, 0), None, time).cast(_MADE["timestamp"]), _KEY: key,
        "keySize": pc.binary_length(key), "valueSize": pc.binary_length(value), "valueHash": pa.array(hashes, pa.string()),
    }  # fmt: skip
    return pa.RecordBatch.from_pydict(columns)


def _deletes(table: pa.Table) -> pa.Array:
    """Whether each record of a table, which is in the order of offsets, deleted its key."""
    rows = np.flatnonzero(pc.and_(pc.is_in(table[TRANSACTION], pa.array(["none", "committed"])), pc.is_valid(table[_KEY])))
    some, group = table.take(pa.array(rows)), np.zeros(len(rows), np.int64)
    for name in ("topic", "partition", _KEY):
        codes = pc.rank(some[name], tiebreaker="dense").to_numpy()
        group = group * (len(rows) + 1) + codes.astype(np.int64)
        group = np.unique(group, return_inverse=True)[1]
    order = np.argsort(group, kind="stable")
    group, dead = group[order], np.asarray(some["tombstone"])[order]
    dead[1:] &= ~((group[1:] == group[:-1]) & dead[:-1])
    deletes = np.zeros(table.num_rows, bool)
    deletes[rows[order]] = dead
    return pa.array(deletes)


def _transactional_ids(producers: pa.ChunkedArray, live: LiveSegments) -> pa.ChunkedArray:
    segments = [one for one in live.segments if one.topic == TRANSACTIONS_TOPIC and not one.path.endswith(DELETED_LOG)]
    # What is damaged there was found by the first pass.
    known = transactional_ids(segments) if segments and pc.any(pc.greater_equal(producers, 0)).as_py() else {}
    return pa.array(known.values(), pa.string()).take(pc.index_in(producers, pa.array(known.keys(), pa.int64())))
