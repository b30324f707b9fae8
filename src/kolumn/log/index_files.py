"""The contents of side files, one function for each kind, as columns of numbers.

.index, .timeindex          `kolumn.log.seek`
.txnindex, .snapshot, partition.metadata    `kolumn.source.side_files`
leader-epoch-checkpoint     text: version 0, number of lines, then a line ``epoch start-offset`` for each
…-checkpoint of a log directory (recovery-point-offset-, replication-offset-, log-start-offset-, cleaner-offset-)
                            text: version 0, number of lines, then a line ``topic partition offset`` for each

An index may be allocated in advance: its entries end where zeros begin. A fragment of an entry at the end is left out.
Sources: ``OffsetIndex``, ``TimeIndex``, ``TransactionIndex``, ``ProducerStateManager``, ``CheckpointFile`` and ``PartitionMetadataFile``.
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
from kolumn.source import storage
from kolumn.source.names import is_partition_folder
from kolumn.source.side_files import ABORTED, OFFSET_INDEX, PRODUCER, TIME_INDEX

Columns = Mapping[str, Any]

_HEAD = 10


class MalformedFileError(ValueError):
    """The bytes are not of such a file."""


def _whole(raw: bytes, type: np.dtype, empty: Callable[[AnyArray], AnyArray]) -> AnyArray:
    """The entries up to the zeros of a file that was allocated in advance."""
    entries = np.frombuffer(raw, type, len(raw) // type.itemsize)
    zeros = np.flatnonzero(empty(entries))
    return entries[: zeros[0]] if len(zeros) else entries


def offset_index(raw: bytes, base: int) -> Columns:
    """Offsets, and positions of their batches. No entry is for position 0."""
    entries = _whole(raw, OFFSET_INDEX, lambda entries: entries["position"] == 0)
    return {"offset": base + entries["offset"].astype(np.int64), "position": entries["position"].astype(np.int64)}


def time_index(raw: bytes, base: int) -> Columns:
    """Largest timestamps, and offsets of the batches that have them."""
    entries = _whole(raw, TIME_INDEX, lambda entries: (entries["timestamp"] == 0) & (entries["offset"] == 0))
    return {"timestampMs": entries["timestamp"].astype(np.int64), "offset": base + entries["offset"].astype(np.int64)}


def transaction_index(raw: bytes, _base: int) -> Columns:
    entries = np.frombuffer(raw, ABORTED, len(raw) // ABORTED.itemsize)
    if (entries["version"] != 0).any():
        raise MalformedFileError(f"version {int(entries['version'][entries['version'] != 0][0])}, expected 0")
    return {column: entries[field].astype(np.int64) for column, field in _TRANSACTION.items()}


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
    producers = np.frombuffer(raw, PRODUCER, count, _HEAD)
    return {column: producers[field].astype(PRODUCER[field].newbyteorder("=")) for column, field in _PRODUCER.items()}


def _lines(raw: bytes, width: int) -> list[list[str]]:
    """The lines of a checkpoint; a new one is empty until a broker writes it (``CheckpointFile``)."""
    if not raw:
        return []
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedFileError("not UTF-8 text") from error
    lines = text.splitlines()
    if not lines or lines[0].strip() != "0":
        raise MalformedFileError(f"version {lines[0][:20] if lines else ''!r}, expected 0")
    if len(lines) < 2 or not re.fullmatch(r"\d{1,9}", lines[1].strip()) or len(lines) - 2 != int(lines[1]):
        raise MalformedFileError(f"{max(len(lines) - 2, 0)} lines, expected {lines[1][:20] if len(lines) > 1 else 'that in line 2'}")
    split = [line.rsplit(None, width - 1) for line in lines[2:]]
    bad = next((line for line in split if len(line) != width or not all(re.fullmatch(r"-?\d{1,18}", word) for word in line[-2:])), None)
    if bad is not None:
        raise MalformedFileError(f"a line {' '.join(bad)[:80]!r}")
    return split


def leader_epochs(raw: bytes, _base: int) -> Columns:
    lines = np.array(_lines(raw, 2), np.int64).reshape(-1, 2)
    return {"leaderEpoch": lines[:, 0], "startOffset": lines[:, 1]}


def checkpoint(raw: bytes, _base: int) -> Columns:
    lines = _lines(raw, 3)
    partition, offset = np.array([line[1:] for line in lines], np.int64).reshape(-1, 2).T
    return {"topic": [line[0] for line in lines], "partition": partition, "offset": offset}


def partition_metadata(raw: bytes, _base: int) -> Columns:
    match = re.fullmatch(rb"version: *(\d{1,9})\s+topic_id: *([A-Za-z0-9_-]{22})\s*", raw)
    if match is None:
        raise MalformedFileError("expected the lines version: and topic_id:")
    return {"version": np.array([int(match[1])], np.int64), "topicId": [match[2].decode()]}


class FileKind(NamedTuple):
    """A kind of side file: its table, the pattern of its names, what reads it, and its columns after ``file``."""

    table: str
    name: re.Pattern[str]
    read: Callable[[bytes, int], Columns]
    columns: tuple[tuple[str, pa.DataType], ...]


_STEM = r"(?P<base>\d{20})(?:-[A-Za-z0-9_-]{22})?"
_TRANSACTION = {"producerId": "producer", "firstOffset": "first", "lastOffset": "last", "lastStableOffset": "stable"}
_PRODUCER = {
    **{"producerId": "producer", "producerEpoch": "epoch", "lastSequence": "sequence", "lastOffset": "last", "offsetDelta": "delta"},
    **{"timestampMs": "timestamp", "coordinatorEpoch": "coordinator", "currentTransactionFirstOffset": "open"},
}


def _kind(table: str, name: str, read: Callable[[bytes, int], Columns], **columns: pa.DataType) -> FileKind:
    return FileKind(table, re.compile(name), read, tuple(columns.items()))


KINDS = (
    _kind("offsetIndex", rf"{_STEM}\.index", offset_index, offset=pa.int64(), position=pa.int64()),
    _kind("timeIndex", rf"{_STEM}\.timeindex", time_index, timestampMs=pa.int64(), offset=pa.int64()),
    _kind("transactionIndex", rf"{_STEM}\.txnindex", transaction_index, **dict.fromkeys(_TRANSACTION, pa.int64())),
    _kind(
        "producerSnapshot", rf"{_STEM}\.snapshot", producer_snapshot,
        **{column: pa.from_numpy_dtype(PRODUCER[field].newbyteorder("=")) for column, field in _PRODUCER.items()},
    ),
    _kind(
        "leaderEpochs", rf"leader-epoch-checkpoint|{_STEM}\.leader_epoch_checkpoint", leader_epochs,
        leaderEpoch=pa.int32(), startOffset=pa.int64(),
    ),
    _kind("partitionMetadata", r"partition\.metadata", partition_metadata, version=pa.int32(), topicId=pa.string()),
    _kind(
        "checkpoints", r"(?:recovery-point|replication|log-start|cleaner)-offset-checkpoint", checkpoint,
        topic=pa.string(), partition=pa.int32(), offset=pa.int64(),
    ),
)  # fmt: skip
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
    entry = storage.look(name)
    if entry is None:
        raise MissingPathError(f"{name}: no such file or directory")
    if not entry.is_folder and kind_of(name) is None:
        raise ArgumentError(f"{name}: not a side file: expected an index, .snapshot, partition.metadata or a checkpoint")
    parts: dict[str, list[pa.Table]] = {kind.table: [] for kind in KINDS}
    malformed = []
    for file in _files(name) if entry.is_folder else [name]:
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
    return next((kind for kind in KINDS if kind.name.fullmatch(storage.base_name(name))), None)


def columns_of(kind: FileKind, name: str, raw: bytes) -> Columns:
    """The columns of a file; raises `MalformedFileError`."""
    match = kind.name.fullmatch(storage.base_name(name))
    base = match.groupdict().get("base") if match else None
    return kind.read(raw, int(base) if base else 0)


def _files(folder: str) -> Iterator[str]:
    """The files of a folder and of the partitions in it, whose folders have the topic's id after their name in a tier."""
    entries = storage.listing(folder)
    yield from sorted(entry.name for entry in entries if not entry.is_folder)
    for name in sorted(entry.name for entry in entries if entry.is_folder):
        if is_partition_folder(re.sub(r"(-\d+)-[A-Za-z0-9_-]{22}$", r"\1", storage.base_name(name))):
            yield from sorted(entry.name for entry in storage.listing(name) if not entry.is_folder)


def _schema(kind: FileKind) -> pa.Schema:
    return pa.schema([("file", pa.string()), *kind.columns])


def _table(kind: FileKind, file: str, columns: Columns) -> pa.Table:
    arrays = [pa.array(columns[name], pa.int64() if pa.types.is_integer(type) else type).cast(type) for name, type in kind.columns]
    files = pa.repeat(pa.scalar(shown(file), pa.string()), len(arrays[0]))
    return pa.Table.from_arrays([files, *arrays], schema=_schema(kind))
