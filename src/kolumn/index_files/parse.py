"""The contents of side files, one function for each kind, as columns of numbers.

.index                      i32 offset - base | i32 position
.timeindex                  i64 largest timestamp so far | i32 offset - base
.txnindex, .snapshot, partition.metadata    `kolumn.source.side_files`
leader-epoch-checkpoint     text: version 0, number of lines, then a line ``epoch start-offset`` for each
…-checkpoint of a log directory (recovery-point-offset-, replication-offset-, log-start-offset-, cleaner-offset-)
                            text: version 0, number of lines, then a line ``topic partition offset`` for each

An index may be allocated in advance: its entries end where zeros begin. A fragment of an entry at the end is left out.
Sources: ``OffsetIndex``, ``TimeIndex``, ``TransactionIndex``, ``ProducerStateManager``, ``CheckpointFile`` and ``PartitionMetadataFile``.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kolumn.arrays import AnyArray
from kolumn.cpu_fallback.machine.checksum import crc32c
from kolumn.plan.seek import OFFSET_INDEX, TIME_INDEX
from kolumn.source.side_files import ABORTED, PRODUCER

Columns = Mapping[str, Any]

_HEAD = 10


class MalformedFileError(ValueError):
    """The bytes are not of such a file."""


def _whole(raw: bytes, kind: np.dtype, empty: Callable[[AnyArray], AnyArray]) -> AnyArray:
    """The entries up to the zeros of a file that was allocated in advance."""
    found = np.frombuffer(raw, kind, len(raw) // kind.itemsize)
    zeros = np.flatnonzero(empty(found))
    return found[: zeros[0]] if len(zeros) else found


def offset_index(raw: bytes, base: int) -> Columns:
    """Offsets, and positions of their batches. No entry is for position 0."""
    found = _whole(raw, OFFSET_INDEX, lambda entries: entries["position"] == 0)
    return {"offset": base + found["offset"].astype(np.int64), "position": found["position"].astype(np.int64)}


def time_index(raw: bytes, base: int) -> Columns:
    """Largest timestamps, and offsets of the batches that have them."""
    found = _whole(raw, TIME_INDEX, lambda entries: (entries["timestamp"] == 0) & (entries["offset"] == 0))
    return {"timestampMs": found["timestamp"].astype(np.int64), "offset": base + found["offset"].astype(np.int64)}


def transaction_index(raw: bytes, _base: int) -> Columns:
    """Aborted transactions."""
    found = np.frombuffer(raw, ABORTED, len(raw) // ABORTED.itemsize)
    if (found["version"] != 0).any():
        raise MalformedFileError(f"version {int(found['version'][found['version'] != 0][0])}, expected 0")
    names = {"producerId": "producer", "firstOffset": "first", "lastOffset": "last", "lastStableOffset": "stable"}
    return {name: found[own].astype(np.int64) for name, own in names.items()}


def producer_snapshot(raw: bytes, _base: int) -> Columns:
    """The producers that a broker knew at an offset."""
    if len(raw) < _HEAD:
        raise MalformedFileError(f"{len(raw)} bytes, expected at least {_HEAD}")
    version, count = int.from_bytes(raw[:2], "big", signed=True), int.from_bytes(raw[6:_HEAD], "big", signed=True)
    if version != 1:
        raise MalformedFileError(f"version {version}, expected 1")
    stored, computed = int.from_bytes(raw[2:6], "big"), crc32c(raw, 6)
    if stored != computed:
        raise MalformedFileError(f"checksum {stored:#010x}, expected {computed:#010x}")
    if count * PRODUCER.itemsize != len(raw) - _HEAD:
        raise MalformedFileError(f"{len(raw) - _HEAD} bytes of producers, expected {count} times {PRODUCER.itemsize}")
    found = np.frombuffer(raw, PRODUCER, count, _HEAD)
    return {
        "producerId": found["producer"].astype(np.int64),
        "producerEpoch": found["epoch"].astype(np.int16),
        "lastSequence": found["sequence"].astype(np.int32),
        "lastOffset": found["last"].astype(np.int64),
        "offsetDelta": found["delta"].astype(np.int32),
        "timestampMs": found["timestamp"].astype(np.int64),
        "coordinatorEpoch": found["coordinator"].astype(np.int32),
        "currentTransactionFirstOffset": found["open"].astype(np.int64),
    }


def _lines(raw: bytes, width: int) -> list[list[str]]:
    """The lines of a checkpoint; a new one is empty until a broker writes it (``CheckpointFile``)."""
    if not raw:
        return []
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedFileError("not text") from error
    lines = text.splitlines()
    if not lines or lines[0].strip() != "0":
        raise MalformedFileError(f"version {lines[0][:20] if lines else ''!r}, expected 0")
    if len(lines) < 2 or not re.fullmatch(r"\d{1,9}", lines[1].strip()) or len(lines) - 2 != int(lines[1]):
        raise MalformedFileError(f"{max(len(lines) - 2, 0)} lines, expected {lines[1][:20] if len(lines) > 1 else 'a number of them'}")
    found = [line.rsplit(None, width - 1) for line in lines[2:]]
    bad = next((line for line in found if len(line) != width or not all(re.fullmatch(r"-?\d{1,18}", word) for word in line[-2:])), None)
    if bad is not None:
        raise MalformedFileError(f"a line {' '.join(bad)[:80]!r}")
    return found


def leader_epochs(raw: bytes, _base: int) -> Columns:
    """The first offset of each leader's epoch."""
    lines = _lines(raw, 2)
    epochs, starts = zip(*lines, strict=True) if lines else ((), ())
    return {"leaderEpoch": np.array(list(map(int, epochs)), np.int64), "startOffset": np.array(list(map(int, starts)), np.int64)}


def checkpoint(raw: bytes, _base: int) -> Columns:
    """An offset of each partition of a log directory."""
    lines = _lines(raw, 3)
    return {
        "topic": [one[0] for one in lines],
        "partition": np.array([int(one[1]) for one in lines], np.int64),
        "offset": np.array([int(one[2]) for one in lines], np.int64),
    }


def partition_metadata(raw: bytes, _base: int) -> Columns:
    """The topic's id."""
    found = re.fullmatch(rb"version: *(\d{1,9})\s+topic_id: *([A-Za-z0-9_-]{22})\s*", raw)
    if found is None:
        raise MalformedFileError("expected the lines version: and topic_id:")
    return {"version": np.array([int(found[1])], np.int64), "topicId": [found[2].decode()]}
