"""`history`: every record of a key that is left anywhere in a log, and what became of it.

Of all entries only the columns are decoded that decide which records are meant, and everything of the entries that have such records
(`kolumn.decode.predicate`). So a key that is rare costs about a scan of keys alone.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.copies.ranges import plan_log
from kolumn.core import keywords
from kolumn.core.keywords import known_keywords
from kolumn.core.schema import RECORD_COLUMNS
from kolumn.core.text import in_column
from kolumn.damage.findings import OnDamage, lost_of
from kolumn.decode.host.aborted import COLUMN as TRANSACTION
from kolumn.decode.host.aborted import NONE, STATES
from kolumn.decode.observed import LATEST
from kolumn.decode.pipeline import scan_ranges
from kolumn.decode.predicate import Predicate
from kolumn.options import Options
from kolumn.readers.plan import LiveSegments, ReadPlan, plan_read
from kolumn.readers.selection import Condition, Key, Selection, Where, conditions
from kolumn.source.names import DELETED_LOG
from kolumn.tools.coordinators import TRANSACTIONS_TOPIC, transactional_ids
from kolumn.values.typed import finished, typed_batch

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
    **keywords.refused(
        ("include_control", "isolation_level", "open_transactions"),
        "history returns every record of a key, with the state of its transaction",
    ),
    **keywords.refused(("key_as", "value_as"), "keys and values are one column each"),
}  # fmt: skip
_KEY = "ofKey"  # the stored key


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

    Columns that decide are decoded of all records, the others of entries in which there are such records. In host memory is the result, and
    what a `kolumn.scan` takes.

    Parameters
    ----------
    source
        As in `kolumn.scan`. With a tier, all of its segments; with `__transaction_state` in it, producers get their transactional ids.
    key : bytes or str
        A key as bytes, or as text in UTF-8, after ``hex:`` or ``base64:`` in that form.
    keys : iterable of bytes or str
        Several keys. A record has to have one of all that are named.
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
        Columns of `HISTORY_SCHEMA`, and ``headers``, ``key``, ``value`` if they are asked for; one row for each record, by topic,
        partition and offset. ``timestamp`` is null for none, and for one after the year 9999. ``transaction`` is "none", "committed",
        "aborted" or "open". ``transactionalId`` is the one that has the producer id by the newest records of `__transaction_state`; null
        for an earlier producer id of it, and if the source does not say. ``keySize`` and ``valueSize`` are bytes, null for null;
        ``valueHash`` is the SHA-256 of the stored value, as hex. ``deletes`` is true of a tombstone that deleted the key: it is not of an
        aborted or open transaction, and the record of its key before it, if one is left in the partition, is no tombstone. Who wrote it
        is its producer id, its transactional id and its headers: a log does not have the client's name or address.
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
    plan = plan_read(source, chosen)
    found = _Found(plan, selection, include_values, on_damage)
    table = found.table()
    table = table.append_column(TRANSACTION, _states(table, plan))
    table = table.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")])
    table = table.append_column("deletes", _deletes(table))
    table = table.append_column("transactionalId", _transactional_ids(table["producerId"], plan.live))
    names = [*HISTORY_SCHEMA.names, *(("headers",) if chosen.include_headers else ()), *(("key", "value") if include_values else ())]
    if found.undecided:
        logger.warning("of %d records a key or a value cannot be decoded: whether they are meant is not known", found.undecided)
    return table.select(names).replace_schema_metadata({UNDECIDED: str(found.undecided)})


def _of_headers(header: Where | None) -> list[Condition]:
    return [(f"header.{name}", value) for name, value in conditions(header)]


@dataclass
class _Found:
    """The records that are meant. Their entries alone are decoded as a whole, unless typed fields decide. ``undecided`` counts, while they
    are read, records of which nobody knows whether they are meant."""

    plan: ReadPlan
    selection: Selection
    include_values: bool
    on_damage: OnDamage | None
    undecided: int = 0

    def table(self) -> pa.Table:
        """Columns of the result that are as they were read, or made of them."""
        options, sides = self.plan.options, {path.partition(".")[0] for path, _ in self.selection.fields}
        typed = tuple(one for one in options.typed if self.include_values or one.column in sides)
        stored = {name: f"{name}Raw" if name in {one.column for one in typed} else name for name in ("key", "value")}
        asked = [*(("headers",) if options.include_headers else ()), *(stored if self.include_values else ())]
        names = dict.fromkeys([*_AS_READ, "timestampMs", *stored.values(), *asked])
        decoded = replace(options, typed=typed).with_columns(names)
        batches = self._by_fields(decoded) if sides else self._by_entries(decoded)
        return _made(pa.Table.from_batches(batches, decoded.schema), stored, asked)

    def _by_entries(self, options: Options) -> Iterator[pa.RecordBatch]:
        selection, watched = replace(self.selection, typed=frozenset()), options.watched
        predicate = Predicate(selection.columns, selection.flags)
        batches = scan_ranges(self.plan.ranges, watched.stored, self.on_damage, predicate=predicate)
        if not options.typed:
            return batches
        typed = (typed_batch(batch, watched.columns, options.typed) for batch in batches)
        return finished(typed, options.columns, options.binary, options.typed, lost_of(self.on_damage))

    def _by_fields(self, options: Options) -> Iterator[pa.RecordBatch]:
        selection = replace(self.selection, typed=frozenset(one.column for one in options.typed))
        for batch in scan_ranges(self.plan.ranges, options.with_added(selection.columns), self.on_damage):
            self.undecided += selection.undecided(batch)
            yield batch.filter(selection.flags(batch)).select(list(options.columns))


def _states(table: pa.Table, plan: ReadPlan) -> pa.Array:
    """What became of the transaction of each record. Most logs have none, and to look for them takes headers of the whole log."""
    states = np.full(table.num_rows, NONE)
    if pc.any(table["isTransactional"]).as_py():
        segments = set(table["segment"].unique().to_pylist())
        keys = {part.segment.key for part in plan.ranges if in_column(part.segment.path) in segments}
        live = [segment for segment in plan.live.segments if segment.key in keys]
        for part in plan_log(live, replace(plan.options, columns=(TRANSACTION,))):
            rows = np.flatnonzero(pc.equal(table["segment"], in_column(part.segment.path)))
            if len(rows) and part.transactions is not None:
                some = table.take(pa.array(rows)).combine_chunks()
                numbers = (pc.fill_null(some[name], -1).to_numpy() for name in ("producerId", "offset"))
                states[rows] = part.transactions.states(*numbers, np.asarray(some["isTransactional"]))
    return pa.array(STATES).take(pa.array(states))


def _made(records: pa.Table, stored: dict[str, str], asked: list[str]) -> pa.Table:
    key, value, time = records[stored["key"]], records[stored["value"]], records["timestampMs"]
    hashes = [None if one is None else sha256(one).hexdigest() for one in value.to_pylist()]
    columns: dict[str, Any] = {name: records[name] for name in (*_AS_READ, *asked)} | {
        "timestamp": pc.if_else(pc.and_(pc.greater_equal(time, 0), pc.less_equal(time, LATEST)), time, None).cast(_MADE["timestamp"]),
        _KEY: key,
        "keySize": pc.binary_length(key), "valueSize": pc.binary_length(value), "valueHash": pa.array(hashes, pa.string()),
    }  # fmt: skip
    return pa.table(columns)


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
    # What is damaged there was found before.
    known = transactional_ids(segments) if segments and pc.any(pc.greater_equal(producers, 0)).as_py() else {}
    return pa.array(known.values(), pa.string()).take(pc.index_in(producers, pa.array(known.keys(), pa.int64())))
