"""`side_files`: the files next to segments as Arrow tables."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from kolumn.errors import ArgumentError, MissingPathError, shown
from kolumn.index_files import parse
from kolumn.index_files.parse import Columns, MalformedFileError
from kolumn.keywords import Path, known_keywords
from kolumn.source import storage
from kolumn.source.log_names import is_partition_folder


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
    FileKind("offsetIndex", re.compile(_STEM + r"\.index"), parse.offset_index, _numbers("offset", "position")),
    FileKind("timeIndex", re.compile(_STEM + r"\.timeindex"), parse.time_index, _numbers("timestampMs", "offset")),
    FileKind(
        "transactionIndex",
        re.compile(_STEM + r"\.txnindex"),
        parse.transaction_index,
        _numbers("producerId", "firstOffset", "lastOffset", "lastStableOffset"),
    ),
    FileKind("producerSnapshot", re.compile(_STEM + r"\.snapshot"), parse.producer_snapshot, _PRODUCER),
    FileKind(
        "leaderEpochs",
        re.compile(rf"leader-epoch-checkpoint|{_STEM}\.leader_epoch_checkpoint"),
        parse.leader_epochs,
        (("leaderEpoch", pa.int32()), ("startOffset", pa.int64())),
    ),
    FileKind(
        "partitionMetadata",
        re.compile(r"partition\.metadata"),
        parse.partition_metadata,
        _METADATA,
    ),
    FileKind(
        "checkpoints", re.compile(r"(?:recovery-point|replication|log-start|cleaner)-offset-checkpoint"), parse.checkpoint, _PARTITION
    ),
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
