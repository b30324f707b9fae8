"""Files of a broker next to a segment, about offsets, transactions and the topic. They are hints: an invalid file is treated as missing.

.index      i32 offset - base | i32 position                     ends at the first zero offset after the first entry
.timeindex  i64 largest timestamp so far | i32 offset - base     likewise
.index      of an enriched log, which has no other: i32 offset - base | i64 largest timestamp so far | i32 position
            as its proposal specifies; the offset is the entry's first, and the times are for `kolumn.apply_retention`
.txnindex   version i16 = 0 | producer id i64 | first offset i64 | last offset i64 (of the ABORT marker) | last stable offset i64
            one entry of 34 bytes for each aborted transaction whose marker is in the segment (``AbortedTxn``)
.snapshot   version i16 | CRC-32C u32 over what follows | count i32 | count times 46 bytes of one producer each, of which these count:
            producer id i64 @0, first offset of its open transaction i64 @38, -1 for none (``ProducerStateManager``)
leader-epoch-checkpoint, in a tier .leader_epoch_checkpoint: lines ``0``, the number of epochs, and ``epoch start-offset`` for each
            (``LeaderEpochCheckpointFile``); in a tier those of the log up to the segment's end
partition.metadata  lines ``version: 0`` and ``topic_id: `` with 22 characters of base64 (``PartitionMetadataFile``)
"""

import re
from itertools import pairwise
from typing import Any

import numpy as np

from kolumn.source.storage import read_bytes

AbortedTxn = tuple[int, int, int]  # producer id, first offset, offset of the ABORT marker
Epochs = tuple[tuple[int, int], ...]  # leader epochs, each with the offset at which it begins
CHECKPOINT, TIER_CHECKPOINT = "leader-epoch-checkpoint", ".leader_epoch_checkpoint"
"""Name of the file of a broker's log, and suffix of that of a segment in a tier."""
METADATA = "partition.metadata"
ABORTED = np.dtype([("version", ">i2"), ("producer", ">i8"), ("first", ">i8"), ("last", ">i8"), ("stable", ">i8")])
PRODUCER = np.dtype(
    [("producer", ">i8"), ("epoch", ">i2"), ("sequence", ">i4"), ("last", ">i8"), ("delta", ">i4"), ("timestamp", ">i8"),
     ("coordinator", ">i4"), ("open", ">i8")]
)  # fmt: skip
OFFSET_INDEX = np.dtype([("offset", ">i4"), ("position", ">i4")])
ENRICHED_INDEX = np.dtype([("offset", ">i4"), ("timestamp", ">i8"), ("position", ">i4")])
TIME_INDEX = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_HEAD = 10
_TOPIC_ID = re.compile(rb"^topic_id: *([A-Za-z0-9_-]{22})\s*$", re.MULTILINE)
_NO_ID = "A" * 22
_NUMBER = re.compile(rb"[0-9]{1,19}")


def aborted_in(raw: bytes | None) -> list[AbortedTxn] | None:
    """Aborted transactions of a ``.txnindex`` as (producer id, first offset, offset of the marker), in the order of their markers. A
    fragment of an entry at the end is ignored, as Kafka does. None if the file is missing or not valid."""
    if raw is None:
        return None
    entries = np.frombuffer(raw, ABORTED, len(raw) // ABORTED.itemsize)
    last = entries["last"].astype(np.int64)
    sane = (entries["version"] == 0).all() and (entries["first"] <= entries["last"]).all() and (np.diff(last) >= 0).all()
    if not sane or (entries["first"] < 0).any():
        return None
    return [(int(entry["producer"]), int(entry["first"]), int(entry["last"])) for entry in entries]


def producers_in(raw: bytes | None) -> Any:
    """The producers in a ``.snapshot``, an array of `PRODUCER`; None if it is missing or not valid."""
    if raw is None:
        return None
    if len(raw) < _HEAD or int.from_bytes(raw[:2], "big") != 1:
        return None
    # Only here: it brings compiled loops, and nothing else of a listing needs them.
    from kolumn.cpu_fallback.machine.checksum import crc32c

    count = int.from_bytes(raw[6:_HEAD], "big", signed=True)
    if count * PRODUCER.itemsize != len(raw) - _HEAD or int.from_bytes(raw[2:6], "big") != crc32c(raw, 6):
        return None
    return np.frombuffer(raw, PRODUCER, count, _HEAD)


def open_in(raw: bytes | None) -> dict[int, int] | None:
    """First offset of the open transaction of each producer that has one, from a ``.snapshot``; None if it is missing or not valid."""
    producers = producers_in(raw)
    if producers is None:
        return None
    return {int(producer["producer"]): int(producer["open"]) for producer in producers if producer["open"] >= 0}


def index_in(raw: bytes | None, kind: np.dtype) -> Any:
    """Entries of an index file, or None if it is missing, empty or invalid."""
    if raw is None or len(raw) % kind.itemsize:
        return None
    entries = np.frombuffer(raw, kind)
    zeros = np.flatnonzero(entries["offset"][1:] == 0)
    entries = entries[: zeros[0] + 1] if len(zeros) else entries
    # Offsets of the time index may repeat; all other fields strictly increase.
    growth = {"offset": 0 if kind == TIME_INDEX else 1, "position": 1, "timestamp": 0 if kind == ENRICHED_INDEX else 1}
    grows = all((np.diff(entries[name].astype(np.int64)) >= growth[name]).all() for name in kind.names or ())
    return entries if len(entries) and grows and (entries["offset"] >= 0).all() else None


def read_epochs(name: str) -> Epochs | None:
    return epochs_in(read_bytes(name))


def epochs_in(raw: bytes | None) -> Epochs | None:
    """Leader epochs of a checkpoint with their start offsets, both increasing; None if the file is missing or not valid."""
    words = (raw or b"").split()
    if len(words) < 2 or words[0] != b"0" or not all(word.isdigit() for word in words) or len(words) != 2 + 2 * int(words[1]):
        return None
    numbers = [int(word) for word in words[2:]]
    epochs = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    return epochs if all(before[0] < after[0] and before[1] <= after[1] for before, after in pairwise(epochs)) else None


def offsets_in(raw: bytes | None) -> dict[tuple[str, int], int] | None:
    """Offsets of topic-partitions in a checkpoint of a log directory; None if it is missing or not valid. Lines ``0``, the number of
    partitions, and ``topic partition offset`` for each (``OffsetCheckpointFile``)."""
    lines = [line.split() for line in (raw or b"").splitlines()]
    if len(lines) < 2 or lines[0] != [b"0"] or lines[1] != [b"%d" % (len(lines) - 2)]:
        return None
    if not all(len(line) == 3 and _NUMBER.fullmatch(line[1]) and _NUMBER.fullmatch(line[2]) for line in lines[2:]):
        return None
    return {(line[0].decode("utf-8", "replace"), int(line[1])): int(line[2]) for line in lines[2:]}


def read_topic_id(name: str) -> str | None:
    """The id of the topic, as text; None if the file is missing or has no id."""
    match = _TOPIC_ID.search(read_bytes(name) or b"")
    topic_id = match[1].decode() if match else _NO_ID
    return None if topic_id == _NO_ID else topic_id
