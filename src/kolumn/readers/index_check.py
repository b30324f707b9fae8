"""Side files compared with the log, by the headers of its entries: where a reader that believes them would miss something.

A file that is right for the log that was there before compaction is right for what compaction has left, so holes are no contradiction:

index files         their sizes are those of whole entries
offset index        each position is that of an entry, and no entry before it reaches the index entry's offset
time index          no entry that ends before the offset has a larger timestamp
transaction index   the ABORT marker is at the offset, and each ABORT marker that ends a transaction of the log has an index entry
producer snapshot   version, length and checksum; offsets are below the one in its name
leader epochs       epochs and offsets grow; each entry after the first offset has the epoch that the file says
partition.metadata  version and id
of a tier           the last offset that a manifest names is that of the last entry, and leader epochs are those of the entries
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np

from kolumn.copies.transactions import abort_markers, begun_at
from kolumn.core.arrays import Flags, Int64s
from kolumn.core.errors import KolumnError
from kolumn.damage.findings import Kind, Remark
from kolumn.decode.host.headers import headers
from kolumn.formats import table
from kolumn.log.index_files import Columns, MalformedFileError, columns_of, kind_of
from kolumn.source import storage
from kolumn.source.names import INDEXES, file_name
from kolumn.source.segment_file import SegmentFile, side_bytes
from kolumn.source.segments import Segment
from kolumn.source.side_files import CHECKPOINT, METADATA, OFFSET_INDEX, TIER_CHECKPOINT, TIME_INDEX, epochs_in
from kolumn.source.storage import base_name, beside, is_url, parent, with_suffix


@dataclass(frozen=True)
class _Log:
    """The entries of a segment, by their headers, up to where the chain of entries ends."""

    segment: Segment
    position: Int64s
    base: Int64s
    last: Int64s
    time: Int64s
    epoch: Int64s
    size: int
    aborts: tuple[tuple[int, int], ...]  # producer and offset of ABORT markers
    ended: tuple[tuple[int, int], ...]  # those whose transaction has entries in the log


def side_file_remarks(segments: list[Segment]) -> Iterator[Remark]:
    """What side files of some segments say against the log. Files at URLs, of drafts and of segments without a base offset in their names
    are not looked at."""
    folders: dict[str, list[Segment]] = {}
    for segment in segments:
        known = segment.base_offset is not None and not segment.is_swap and segment.format == "kafka"
        if known and not is_url(segment.path):
            folders.setdefault(parent(segment.path) or ".", []).append(segment)
    for own in folders.values():
        yield from _of_folder(sorted(own, key=lambda segment: segment.base_offset or 0))


def _of_folder(own: list[Segment]) -> Iterator[Remark]:
    first = own[0]
    epochs = yield from _columns(first, beside(first.path, CHECKPOINT))
    yield from _columns(first, beside(first.path, METADATA))
    starts, numbers = (epochs["startOffset"], epochs["leaderEpoch"]) if epochs else (np.zeros(0, np.int64),) * 2
    if (np.diff(starts) <= 0).any() or (np.diff(numbers) <= 0).any():
        yield _remark(first, 0, None, f"{CHECKPOINT}: epochs or their first offsets do not grow", CHECKPOINT)
        starts = starts[:0]
    # Without a file that is compared with its entries, a segment's headers are not read for it.
    files = (with_suffix(segment.path, suffix) for segment in own for suffix in (*INDEXES, ".txnindex"))
    is_compared = any(segment.copy_id is not None for segment in own) or any(storage.look(name) is not None for name in files)
    if not len(starts) and not is_compared:
        for segment in own:
            yield from _snapshot(segment)
        return
    begun = begun_at(first)
    for segment in own:
        try:
            log = _log(segment, begun)
        except KolumnError:
            # The read reports it.
            return
        yield from _sizes(segment)
        yield from _offsets(log)
        yield from _times(log)
        yield from _transactions(log)
        yield from _snapshot(segment)
        yield from _epochs(log, starts, numbers, CHECKPOINT)
        yield from _tier(log)


def _log(segment: Segment, begun: dict[int, int]) -> _Log:
    columns: list[tuple[Int64s, ...]] = []
    aborts: list[tuple[int, int]] = []
    ended: list[tuple[int, int]] = []
    with SegmentFile(segment) as file:
        for entries in headers(segment):
            some = entries.position, entries.base_offset, entries.last_offset, entries.max_timestamp, entries.leader_epoch, entries.size
            columns.append(some)
            for row, first in abort_markers(file, entries, begun):
                aborts.append((row.producer_id, row.last_offset))
                ended += [aborts[-1]] if first is not None else []
    empty = [np.zeros(0, np.int64)] * 6
    position, base, last, time, epoch, size = map(np.concatenate, zip(*columns, strict=True)) if columns else empty
    end = int(position[-1] + size[-1]) if len(position) else 0
    # A base offset that a header does not have is that of the entry's end.
    base = np.where(base == table.UNKNOWN, last, base)
    return _Log(segment, position, base, last, time, epoch, end, tuple(aborts), tuple(ended))


def _read(path: str) -> Columns | str | None:
    """The columns of a side file, what is wrong with it, or None without one."""
    kind, raw = kind_of(path), storage.read_bytes(path)
    if raw is None or kind is None:
        return None
    try:
        return dict(columns_of(kind, path, raw))
    except MalformedFileError as error:
        return str(error)


def _columns(segment: Segment, path: str) -> Generator[Remark, None, Columns | None]:
    """The columns of a side file; of a malformed one there is a remark instead."""
    columns, name = _read(path), base_name(path)
    if not isinstance(columns, str):
        return columns
    yield _remark(segment, 0, None, f"{name}: {columns}", name)
    return None


def _index(log: _Log, suffix: str) -> tuple[str, Columns | None]:
    """Name and columns of a segment's index file; None without one, or if it is malformed."""
    path = with_suffix(log.segment.path, suffix)
    columns = _read(path)
    return base_name(path), columns if isinstance(columns, dict) else None


def _sizes(segment: Segment) -> Iterator[Remark]:
    """Bytes after the last whole entry of an index, which no reader takes: the file was cut, or written by something else."""
    for suffix, kind in ((".index", OFFSET_INDEX), (".timeindex", TIME_INDEX)):
        path = with_suffix(segment.path, suffix)
        size = 0 if (look := storage.look(path)) is None else look.size
        if stray := size % kind.itemsize:
            text = f"{base_name(path)}: {size} bytes, {stray} more than {size // kind.itemsize} entries of {kind.itemsize} bytes take"
            yield _remark(segment, 0, None, text, base_name(path))


def _offsets(log: _Log) -> Iterator[Remark]:
    name, columns = _index(log, ".index")
    if columns is None:
        return
    offset: Int64s = columns["offset"]
    position: Int64s = columns["position"]
    if (np.diff(offset) <= 0).any() or (np.diff(position) <= 0).any():
        yield _remark(log.segment, 0, None, f"{name}: offsets or positions do not grow", name)
        return
    # What lies after the last entry is compared by the read itself.
    inside = position < log.size
    if not inside.any():
        return
    row = np.searchsorted(log.position, position[inside])
    is_entry: Flags = np.isin(position[inside], log.position)
    reached: Int64s = np.maximum.accumulate(log.last)[np.maximum(row - 1, 0)]
    wrong = np.flatnonzero(~is_entry | ((row > 0) & (reached >= offset[inside])))
    if len(wrong):
        i = int(wrong[0])
        what = "no batch begins there" if not is_entry[i] else f"batches before it go up to offset {int(reached[i])}"
        text = f"{name}: offset {int(offset[i])} at position {int(position[i])}: {what}; {len(wrong)} of {len(offset)} entries are wrong"
        yield _remark(log.segment, int(position[i]), int(offset[i]), text, name)


def _times(log: _Log) -> Iterator[Remark]:
    name, columns = _index(log, ".timeindex")
    if columns is None:
        return
    offset: Int64s = columns["offset"]
    time: Int64s = columns["timestampMs"]
    if (np.diff(offset) < 0).any() or (np.diff(time) <= 0).any():
        yield _remark(log.segment, 0, None, f"{name}: timestamps or offsets do not grow", name)
        return
    before = np.searchsorted(log.last, offset)
    largest = np.concatenate([np.full(1, -1, np.int64), np.maximum.accumulate(log.time)])
    wrong = np.flatnonzero(largest[before] > time)
    if len(wrong):
        i = int(wrong[0])
        text = f"{name}: the largest timestamp up to offset {int(offset[i])} is {int(largest[before[i]])}, not {int(time[i])}"
        yield _remark(log.segment, 0, int(offset[i]), f"{text}; {len(wrong)} of {len(offset)} entries are wrong", name)


def _transactions(log: _Log) -> Iterator[Remark]:
    path = with_suffix(log.segment.path, ".txnindex")
    columns, name = _read(path), base_name(path)
    if isinstance(columns, str):
        yield _remark(log.segment, 0, None, f"{name}: {columns}", name)
        return
    # A log that was copied without its index files lacks nothing; a broker that aborted nothing has no file either.
    if columns is None and storage.look(with_suffix(log.segment.path, ".index")) is None:
        return
    listed = set() if columns is None else set(zip(columns["producerId"].tolist(), columns["lastOffset"].tolist(), strict=True))
    missing = sorted(offset for _, offset in set(log.ended) - listed)
    if missing:
        which = "transaction aborted at offset" if len(missing) == 1 else "transactions aborted at offsets"
        text = f"{name}: no entry for the {which} {', '.join(map(str, missing[:5]))}"
        yield _remark(log.segment, 0, missing[0], f"{text}{' and others' if len(missing) > 5 else ''}", name)
    # An index may go further than a log that was copied before it.
    end = int(log.last[-1]) if len(log.last) else -1
    extra = sorted(offset for _, offset in listed - set(log.aborts) if offset <= end)
    if extra:
        text = f"{name}: no ABORT marker of the producer is at offset {extra[0]}; {len(extra)} of {len(listed)} entries are wrong"
        yield _remark(log.segment, 0, extra[0], text, name)


def _snapshot(segment: Segment) -> Iterator[Remark]:
    path = beside(segment.path, file_name(segment.base_offset or 0, ".snapshot"))
    columns = yield from _columns(segment, path)
    if columns:
        ahead = np.flatnonzero(np.maximum(columns["lastOffset"], columns["currentTransactionFirstOffset"]) >= (segment.base_offset or 0))
        if len(ahead):
            producer = int(columns["producerId"][ahead[0]])
            text = f"{base_name(path)}: producer {producer} has offsets that are not before the snapshot's"
            yield _remark(segment, 0, segment.base_offset, text, base_name(path))


def _tier(log: _Log) -> Iterator[Remark]:
    segment, manifest = log.segment, log.segment.manifest
    if segment.copy_id is None or not len(log.last):
        return
    name = base_name(segment.path if manifest is not None else with_suffix(segment.path, TIER_CHECKPOINT))
    if manifest is not None and log.size == segment.size and manifest.last != log.last[-1]:
        text = f"{name}: endOffset {manifest.last}, and the last batch ends at offset {int(log.last[-1])}"
        yield _remark(segment, int(log.position[-1]), int(log.base[-1]), text, name)
    epochs = manifest.epochs if manifest is not None else epochs_in(side_bytes(segment, TIER_CHECKPOINT))
    numbers, starts = np.array(epochs or (), np.int64).reshape(-1, 2).T
    yield from _epochs(log, starts, numbers, name)


def _epochs(log: _Log, starts: Int64s, numbers: Int64s, name: str) -> Iterator[Remark]:
    if not len(starts):
        return
    # Before the first offset of the file segments were deleted, or records; formats 0 and 1 have no epochs.
    own = np.searchsorted(starts, log.base, side="right") - 1
    wrong = np.flatnonzero((own >= 0) & (log.epoch >= 0) & (numbers[np.maximum(own, 0)] != log.epoch))
    if len(wrong):
        i = int(wrong[0])
        text = f"{name}: epoch {int(numbers[own[i]])} at offset {int(log.base[i])}, whose batch has {int(log.epoch[i])}"
        text = f"{text}; {len(wrong)} of {len(log.base)} batches differ"
        yield _remark(log.segment, int(log.position[i]), int(log.base[i]), text, name)


def _remark(segment: Segment, position: int, offset: int | None, text: str, name: str) -> Remark:
    repair = "" if segment.copy_id is not None else "; kolumn rebuild-index rebuilds the index files"
    return Remark(segment.path, position, Kind.SIDE_FILE, offset, offset, text, f"{name}{repair}")
