"""What every format's encoder shares: which rows may share an entry, its row of the batch table, its compressed payload."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kolumn.codecs import NONE
from kolumn.cpu_fallback.address import PAD
from kolumn.encode.compress import compress
from kolumn.encode.table import ABSENT, Input
from kolumn.errors import ArgumentError
from kolumn.formats import table
from kolumn.recycle import take

_LARGEST_SEQUENCE = 2**31 - 1
_LARGEST_ENTRY = 2**31 - 1
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


@dataclass(frozen=True)
class Settings:
    """How to encode; attributes as parameters of `kolumn.write`, with the codec's id and its level."""

    magic: int
    codec: int
    level: int
    batch_bytes: int
    batch_records: int


@dataclass
class Encoded:
    """Entries, one behind the other.

    Attributes
    ----------
    data : uint8 array
    rows : int64 array of shape (n, `table.WIDTH`)
        Positions count in ``data``.
    """

    data: Any
    rows: Any


@dataclass
class Layout:
    """Where the records of entries are written, before a codec gets them.

    Attributes
    ----------
    data : uint8 array
        Padded.
    at, size : int64 arrays
        Of each payload: where in ``data``, and its bytes. Without a codec the header's bytes lie in front.
    """

    data: Any
    at: Any
    size: Any


def cuts(given: Input) -> Any:
    """Flags of the rows where the fields that an entry has once change, or can't go on."""
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


def whole(first: Any, size: Any, count: int, rows: int, last: bool) -> tuple[Any, Any, int]:
    """First rows and sizes of the entries that are complete, and the row behind them: unless ``last``, the last one waits."""
    done = rows
    if not last and count:
        count, done = count - 1, int(first[count - 1])
    return first[:count], size[:count], done


def lay_out(first: Any, size: Any, header: int, codec: int) -> Layout:
    """Room for the payloads of entries.

    Raises
    ------
    ArgumentError
        One is larger than an entry may be.
    """
    if len(size) and int(size.max()) > _LARGEST_ENTRY - header - PAD:
        raise ArgumentError(f"row {int(first[size.argmax()])}: a record of {int(size.max())} bytes, and a batch has 2 GiB at most")
    gap = header if codec == NONE else 0
    room, _ = take(int(size.sum()) + gap * len(size) + PAD)
    return Layout(np.frombuffer(room, np.uint8), np.cumsum(size + gap) - size, size)


def place(laid: Layout, rows: Any, header: int, how: Settings) -> Encoded:
    """Payloads, compressed where a codec is asked for, at their places behind headers that are yet to be written."""
    data, size = laid.data, laid.size
    if how.codec != NONE:
        plain = [memoryview(data[at : at + length]) for at, length in zip(laid.at.tolist(), size.tolist(), strict=True)]
        payloads = [compress(how.codec, part, how.level, how.magic) for part in plain]
        size = np.array([len(payload) for payload in payloads], np.int64)
        data = np.frombuffer(bytearray(b"".join(part for payload in payloads for part in (bytes(header), payload))), np.uint8)
    rows[:, table.SIZE] = size + header
    rows[:, table.POSITION] = np.cumsum(rows[:, table.SIZE]) - rows[:, table.SIZE]
    return Encoded(data[: int(rows[:, table.SIZE].sum())], rows)


def batch_rows(given: Input, first: Any, stop: int, how: Settings) -> Any:
    """Rows of the batch table for the entries that begin at rows ``first``; the last of them ends before ``stop``."""
    rows = np.zeros((len(first), table.WIDTH), np.int64)
    if not len(first):
        return rows
    behind = np.append(first[1:], stop)
    rows[:, table.BASE_OFFSET], rows[:, table.LAST_OFFSET] = given.offset[first], given.offset[behind - 1]
    rows[:, table.COUNT], rows[:, table.MAGIC], rows[:, table.CODEC] = behind - first, how.magic, how.codec
    rows[:, table.BASE_TIMESTAMP] = given.timestamp[first]
    rows[:, table.MAX_TIMESTAMP] = np.maximum.reduceat(given.timestamp[:stop], first)
    for name, column in _FIELDS.items():
        rows[:, column] = given.numbers[name][first] if name in given.numbers else ABSENT[name]
    return rows
