"""`open_transactions`: what no marker has ended yet, in the logs and in the topic `__transaction_state`."""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from kolumn.copies.ranges import log_ranges, whole_ranges
from kolumn.core.keywords import Errors, Progress, Source, Time, known_keywords
from kolumn.decode.pipeline import OnDamage, scan_ranges
from kolumn.log.transactions import of_ranges
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.source.segments import Segment
from kolumn.tools.groups import Key, Newest, newest, partitions_of
from kolumn.values.internal.topics import decode_key, decode_value

logger = logging.getLogger("kolumn.transactions")

TOPIC = "__transaction_state"
STATUS = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence")
"""States of a transaction by the number that a coordinator writes."""
_UNDER_WAY = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
TRANSACTION_SCHEMA = pa.schema(
    [
        ("producerId", pa.int64()),
        ("producerEpoch", pa.int16()),
        ("transactionalId", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("firstOffset", pa.int64()),
        ("firstTimestamp", pa.timestamp("ms", tz="UTC")),
        ("ageMs", pa.int64()),
        ("isHanging", pa.bool_()),
        ("coordinatorState", pa.string()),
        ("coordinatorEpoch", pa.int16()),
        ("timeoutMs", pa.int32()),
        ("startTimestamp", pa.timestamp("ms", tz="UTC")),
        ("lastUpdateTimestamp", pa.timestamp("ms", tz="UTC")),
    ]
)
"""Columns of `open_transactions`: from ``coordinatorState`` on, and ``transactionalId``, the coordinator's view."""


@known_keywords()
def open_transactions(
    source: Source,
    *,
    now: Time | None = None,
    errors: Errors = "raise",
    on_damage: OnDamage | None = None,
    on_progress: Progress | None = None,
) -> pa.Table:
    """Transactions that are open in the logs of a source, or under way for a coordinator.

    Parameters
    ----------
    source : str, PathLike or iterable of those
        Log directories of brokers. Copies of a partition are merged.
    now : int, datetime or str, optional
        The moment at which ages end; the present by default. For a cluster that has died, the moment at which it did.
    errors, on_damage, on_progress
        As in `kolumn.groups`.

    Returns
    -------
    pyarrow.Table
        Columns of `TRANSACTION_SCHEMA`, one row for each producer and partition. ``firstOffset`` is null if the coordinator knows of the
        transaction, and the partition's log has nothing of it, or is not there. ``isHanging``: no coordinator will end the transaction:
        `__transaction_state` does not have it under way with this partition. Null where the source has no `__transaction_state`.

    Raises
    ------
    ArgumentError
        The source has no segments.
    CorruptBatchError
        Damage, with ``errors="raise"``.
    """
    moment = Options.of(start_timestamp=now).start_timestamp
    segments = live_segments(source, Options.of(errors="skip")).segments
    known = None
    if any(one.topic == TOPIC for one in segments):
        known = _coordinated(newest(segments, TOPIC, errors, on_damage, on_progress))
    found = _open(segments, errors, on_damage, on_progress)
    end = int(time.time() * 1000) if moment is None else moment
    rows = [_row(key, producer, first, known, end) for key, producer, first in found]
    seen = {(key, producer) for key, producer, _ in found}
    for producer, one in (known or {}).items():
        if one["coordinatorState"] in _UNDER_WAY:
            rows += [_row(key, producer, None, known, end) for key in sorted(one["partitions"]) if (key, producer) not in seen]
    return pa.Table.from_pylist(rows, TRANSACTION_SCHEMA)


_First = tuple[int, int | None, int | None]
"""First offset, its timestamp, and the producer's epoch."""


def _row(key: Key, producer: int, first: _First | None, known: dict[int, dict[str, Any]] | None, end: int) -> dict[str, Any]:
    one = (known or {}).get(producer, {})
    offset, time_ms, epoch = first or (None, None, None)
    # Without a record of the log the coordinator's start counts.
    begun = time_ms if time_ms is not None else one.get("startTimestamp")
    under_way = one.get("coordinatorState") in _UNDER_WAY and key in one.get("partitions", ())
    return {name: value for name, value in one.items() if name != "partitions"} | {
        "producerId": producer, "producerEpoch": epoch, "topic": key[0], "partition": key[1], "firstOffset": offset,
        "firstTimestamp": time_ms, "ageMs": None if begun is None else end - begun, "isHanging": None if known is None else not under_way,
    }  # fmt: skip


def _open(
    segments: list[Segment], errors: Errors, on_damage: OnDamage | None, on_progress: Progress | None
) -> list[tuple[Key, int, _First]]:
    """Transactions that are open at the end of each log, by partition and first offset."""
    options = Options.of(
        columns=("offset", "timestampMs", "producerId", "producerEpoch"),
        errors=errors,
        replicas="merge",
        backend="cpu",
        on_progress=on_progress,
    )
    found = []
    for key, own in sorted(partitions_of(segments).items()):
        for producer, first in sorted(of_ranges(whole_ranges(own, options), options).open, key=lambda one: one[1]):
            found.append((key, producer, _first(own, producer, first, options, on_damage)))
    return found


def _first(own: list[Segment], producer: int, offset: int, options: Options, on_damage: OnDamage | None) -> _First:
    """The first record of a transaction that is still in the log, at or after an offset."""
    one = replace(options, start_offset=offset, end_offset=offset + 1)
    for batch in scan_ranges(log_ranges(own, one), one, on_damage):
        for at, time_ms, owner, epoch in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if at == offset and owner == producer:
                return offset, time_ms, epoch
    return offset, None, None


def _coordinated(latest: Mapping[bytes, Newest]) -> dict[int, dict[str, Any]]:
    """By producer id, what the coordinator has of its transaction."""
    found: dict[int, dict[str, Any]] = {}
    unknown = 0
    for key, one in latest.items():
        name, value = decode_key(TOPIC, False, key).fields, decode_value(TOPIC, False, key, one.value).fields
        if name is None or value is None:
            unknown += 1
            continue
        status = value["transactionStatus"]
        parts = {(part["topic"], number) for part in value["transactionPartitions"] or () for number in part["partitionIds"]}
        found[value["producerId"]] = {
            "transactionalId": name["transactionalId"], "coordinatorEpoch": value["producerEpoch"], "partitions": parts,
            "coordinatorState": STATUS[status] if 0 <= status < len(STATUS) else f"unknown ({status})",
            "timeoutMs": value["transactionTimeoutMs"], "startTimestamp": _known(value["transactionStartTimestampMs"]),
            "lastUpdateTimestamp": _known(value["transactionLastUpdateTimestampMs"]),
        }  # fmt: skip
    if unknown:
        logger.warning("%s: %d records of messages or versions that are not known were left out", TOPIC, unknown)
    return found


def _known(moment: int) -> int | None:
    return moment if moment >= 0 else None
