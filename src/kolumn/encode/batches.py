"""Rows become batches of format 2, as bytes and as rows of the batch table."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kolumn.codecs import NONE
from kolumn.cpu_fallback.address import PAD
from kolumn.cpu_fallback.encode import fill, seal, split
from kolumn.encode.compress import compress
from kolumn.encode.table import ABSENT, Input
from kolumn.errors import ArgumentError
from kolumn.formats import table, v2
from kolumn.recycle import take

_LARGEST_SEQUENCE = 2**31 - 1
_SAME = ("timestampType", "producerId", "producerEpoch", "leaderEpoch", "isTransactional", "isControl")
_FIELDS = {
    "timestampType": table.TIMESTAMP_TYPE,
    "producerId": table.PRODUCER_ID,
    "producerEpoch": table.PRODUCER_EPOCH,
    "sequence": table.BASE_SEQUENCE,
    "leaderEpoch": table.LEADER_EPOCH,
    "isTransactional": table.TRANSACTIONAL,
    "isControl": table.CONTROL,
}
_LARGEST_BATCH = 2**31 - 1


@dataclass
class Encoded:
    """Batches, one behind the other.

    Attributes
    ----------
    data : uint8 array
    rows : int64 array of shape (n, `table.WIDTH`)
        Positions count in ``data``.
    """

    data: Any
    rows: Any


def encode(given: Input, codec: int, level: int, batch_bytes: int, batch_records: int, last: bool) -> tuple[Encoded, int]:
    """Encode what makes whole batches.

    Parameters
    ----------
    last : bool
        Whether no rows follow; if some do, the last batch waits for them.

    Returns
    -------
    encoded : Encoded
    done : int
        How many of the rows are in it.

    Raises
    ------
    ArgumentError
        A record that no batch can hold.
    """
    records = given.records
    body, first, size = np.empty(records.rows, np.int32), np.empty(records.rows, np.int64), np.empty(records.rows, np.int64)
    count = split(records, _cuts(given), batch_bytes, batch_records, body.ctypes.data, first, size)
    done = records.rows
    if not last and count:
        count, done = count - 1, int(first[count - 1])
    first, size = first[:count], size[:count]
    if count and int(size.max()) > _LARGEST_BATCH - v2.HEADER - PAD:
        raise ArgumentError(f"row {int(first[size.argmax()])}: a record of {int(size.max())} bytes, and a batch has 2 GiB at most")
    rows = _rows(given, first, done)
    rows[:, table.CODEC] = codec
    gap = v2.HEADER if codec == NONE else 0
    at = np.cumsum(size + gap) - size
    plain = np.frombuffer(take(int(size.sum()) + gap * count + PAD)[0], np.uint8)
    fill(records, first, done, body.ctypes.data, plain.ctypes.data + at)
    data = plain if codec == NONE else _compressed(plain, at, size, codec, level)
    rows[:, table.SIZE] = size + v2.HEADER
    rows[:, table.POSITION] = np.cumsum(rows[:, table.SIZE]) - rows[:, table.SIZE]
    seal(data.ctypes.data, rows)
    return Encoded(data[: int(rows[:, table.SIZE].sum())], rows), done


def _compressed(plain: Any, at: Any, size: Any, codec: int, level: int) -> Any:
    """Payloads compressed, each with room for a header in front; ``size`` becomes what they have then."""
    parts = []
    for b in range(len(size)):
        payload = compress(codec, memoryview(plain[at[b] : at[b] + size[b]]), level)
        size[b] = len(payload)
        parts += [bytes(v2.HEADER), payload]
    return np.frombuffer(bytearray(b"".join(parts)), np.uint8)


def _cuts(given: Input) -> Any:
    """Where the fields that a batch has once change, or can't go on."""
    rows = given.records.rows
    cut = np.zeros(rows, np.bool_)
    if rows < 2:
        return cut
    numbers = given.numbers
    for values in (numbers[name] for name in _SAME if name in numbers):
        cut[1:] |= values[1:] != values[:-1]
    # With LogAppendTime all records of a batch have its one timestamp, and a control batch has one record.
    if "timestampType" in numbers and numbers["timestampType"].any():
        cut[1:] |= (numbers["timestampType"][1:] == 1) & (given.timestamp[1:] != given.timestamp[:-1])
    if "isControl" in numbers:
        cut[1:] |= numbers["isControl"][1:] == 1
    if "sequence" in numbers:
        sequence = numbers["sequence"]
        following = sequence[:-1] + np.diff(given.offset)
        following[following > _LARGEST_SEQUENCE] -= _LARGEST_SEQUENCE + 1
        following[sequence[:-1] < 0] = -1
        cut[1:] |= sequence[1:] != following
    return cut


def _rows(given: Input, first: Any, stop: int) -> Any:
    rows = np.zeros((len(first), table.WIDTH), np.int64)
    if not len(first):
        return rows
    behind = np.append(first[1:], stop)
    rows[:, table.BASE_OFFSET], rows[:, table.LAST_OFFSET] = given.offset[first], given.offset[behind - 1]
    rows[:, table.COUNT], rows[:, table.MAGIC] = behind - first, v2.MAGIC
    rows[:, table.BASE_TIMESTAMP] = given.timestamp[first]
    rows[:, table.MAX_TIMESTAMP] = np.maximum.reduceat(given.timestamp[:stop], first)
    for name, column in _FIELDS.items():
        rows[:, column] = given.numbers[name][first] if name in given.numbers else ABSENT[name]
    return rows
