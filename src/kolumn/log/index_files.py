"""The contents of side files, one function for each kind, as columns of numbers.

.index                      i32 offset - base | i32 position
.timeindex                  i64 largest timestamp so far | i32 offset - base
.txnindex, .snapshot, partition.metadata    `kolumn.source.side_files`
leader-epoch-checkpoint     text: version 0, number of lines, then a line ``epoch start-offset`` for each
…-checkpoint of a log directory (recovery-point-offset-, replication-offset-, log-start-offset-, cleaner-offset-)
                            text: version 0, number of lines, then a line ``topic partition offset`` for each

An index may be allocated in advance: its entries end where zeros begin. A fragment of an entry at the end is left out.
Sources: ``OffsetIndex``, ``TimeIndex``, ``TransactionIndex``, ``ProducerStateManager``, ``CheckpointFile`` and ``PartitionMetadataFile``.

`side_files`: the files next to segments as Arrow tables.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import AnyArray
from kolumn.core.errors import ArgumentError, MissingPathError, shown
from kolumn.core.keywords import Path, known_keywords
from kolumn.cpu_fallback.machine.checksum import crc32c
from kolumn.log.seek import OFFSET_INDEX, TIME_INDEX
from kolumn.source import storage
from kolumn.source.names import is_partition_folder
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


class FileKind(NamedTuple):
    """A kind of side file: its table, the pattern of its names, what reads it, and its columns after ``file``."""

    table: str
    name: re.Pattern[str]
    read: Callable[[bytes, int], Columns]
    columns: tuple[tuple[str, pa.DataType], ...]


def _numbers(*names: str) -> tuple[tuple[str, pa.DataType], ...]:
    return tuple((name, pa.int64()) for name in names)


_STEM = r"(?P<base>\d{20})(?:-[A-Za-z0-9_-]{22})?"
_PRODUCER = (
    *_numbers("producerId"),
    ("producerEpoch", pa.int16()),
    ("lastSequence", pa.int32()),
    *_numbers("lastOffset"),
    ("offsetDelta", pa.int32()),
    *_numbers("timestampMs"),
    ("coordinatorEpoch", pa.int32()),
    *_numbers("currentTransactionFirstOffset"),
)
_PARTITION = (("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()))
_METADATA = (("version", pa.int32()), ("topicId", pa.string()))
KINDS = (
    FileKind("offsetIndex", re.compile(_STEM + r"\.index"), offset_index, _numbers("offset", "position")),
    FileKind("timeIndex", re.compile(_STEM + r"\.timeindex"), time_index, _numbers("timestampMs", "offset")),
    FileKind(
        "transactionIndex",
        re.compile(_STEM + r"\.txnindex"),
        transaction_index,
        _numbers("producerId", "firstOffset", "lastOffset", "lastStableOffset"),
    ),
    FileKind("producerSnapshot", re.compile(_STEM + r"\.snapshot"), producer_snapshot, _PRODUCER),
    FileKind(
        "leaderEpochs",
        re.compile(rf"leader-epoch-checkpoint|{_STEM}\.leader_epoch_checkpoint"),
        leader_epochs,
        (("leaderEpoch", pa.int32()), ("startOffset", pa.int64())),
    ),
    FileKind(
        "partitionMetadata",
        re.compile(r"partition\.metadata"),
        partition_metadata,
        _METADATA,
    ),
    FileKind("checkpoints", re.compile(r"(?:recovery-point|replication|log-start|cleaner)-offset-checkpoint"), checkpoint, _PARTITION),
)
MALFORMED = pa.schema([("file", pa.string()), ("size", pa.int64()), ("reason", pa.string())])


@known_keywords()
def side_files(path: Path) -> dict[str, pa.Table]:
    """The files that brokers keep next to segments, as tables.

    Parameters
    ----------
    path : str or PathLike
        A log directory, a `topic-partition` directory, of a tier of remote storage too, one such file, or a URL of one of those.

    Returns
    -------
    dict of str to pyarrow.Table
        In host memory, each with the column ``file`` and one row for each entry; tables without rows are there too.
        "offsetIndex": offset, position. "timeIndex": timestampMs, offset. "transactionIndex": producerId, firstOffset, lastOffset,
        lastStableOffset of aborted transactions. "producerSnapshot": a producer's state. "leaderEpochs": leaderEpoch, startOffset.
        "partitionMetadata": version, topicId. "checkpoints": topic, partition, offset of the checkpoints of a log directory.
        "malformed": file, size and reason of the files that are not what their names say. Offsets are absolute.

    Raises
    ------
    ArgumentError
        There is no such file or folder, or a file is none of these.
    """
    name = storage.plain(str(path))
    found = storage.look(name)
    if found is None:
        raise MissingPathError(f"{name}: no such file or directory")
    if not found.is_folder and kind_of(name) is None:
        raise ArgumentError(f"{name}: not a side file: expected an index, .snapshot, partition.metadata or a checkpoint")
    parts: dict[str, list[pa.Table]] = {kind.table: [] for kind in KINDS}
    malformed = []
    for file in _files(name) if found.is_folder else [name]:
        kind = kind_of(file)
        raw = storage.read_bytes(file) if kind is not None else None
        if kind is None or raw is None:
            continue
        try:
            parts[kind.table].append(_table(kind, file, columns_of(kind, file, raw)))
        except MalformedFileError as error:
            malformed.append({"file": shown(file), "size": len(raw), "reason": str(error)})
    tables = {kind.table: pa.concat_tables([_schema(kind).empty_table(), *parts[kind.table]]) for kind in KINDS}
    return tables | {"malformed": pa.Table.from_pylist(malformed, MALFORMED)}


def kind_of(name: str) -> FileKind | None:
    """The kind of a file by its name."""
    return next((kind for kind in KINDS if kind.name.fullmatch(storage.base_name(name))), None)


def columns_of(kind: FileKind, name: str, raw: bytes) -> Columns:
    """The columns of a file; raises `MalformedFileError`."""
    match = kind.name.fullmatch(storage.base_name(name))
    base = match.groupdict().get("base") if match else None
    return kind.read(raw, int(base) if base else 0)


def _files(folder: str) -> Iterator[str]:
    """The files of a folder and of the partitions in it."""
    there = storage.listing(folder)
    yield from sorted(one.name for one in there if not one.is_folder)
    for below in sorted(one.name for one in there if one.is_folder and is_partition_folder(_without_id(one.name))):
        yield from sorted(one.name for one in storage.listing(below) if not one.is_folder)


def _without_id(name: str) -> str:
    """The name of a partition's folder without the topic's id that a tier adds to it."""
    return re.sub(r"(-\d+)-[A-Za-z0-9_-]{22}$", r"\1", storage.base_name(name))


def _schema(kind: FileKind) -> pa.Schema:
    return pa.schema([("file", pa.string()), *kind.columns])


def _table(kind: FileKind, file: str, columns: Columns) -> pa.Table:
    schema = _schema(kind)
    arrays = [pa.array(columns[name], pa.int64() if pa.types.is_integer(type) else type).cast(type) for name, type in kind.columns]
    rows = len(arrays[0])
    return pa.Table.from_arrays([pa.repeat(pa.scalar(shown(file), pa.string()), rows), *arrays], schema=schema)
