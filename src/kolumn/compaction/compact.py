"""`compact`: what Kafka's log cleaner would leave of compacted topics."""

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.api import segments_of
from kolumn.compaction.latest import LatestOffsets
from kolumn.compaction.retention import Producers, Round
from kolumn.compaction.rewrite import fate, rewrite
from kolumn.conversion.convert import targets
from kolumn.encode.segments import SegmentFiles
from kolumn.encode.write import no_url
from kolumn.errors import ArgumentError, CorruptBatchError, KolumnError
from kolumn.find_transactions import transactions_of
from kolumn.formats import layouts, table
from kolumn.options import Options
from kolumn.pieces import pieces, whole_options
from kolumn.plan import headers
from kolumn.source import Segment

DAY_MS = 86_400_000
_SIDE_FILES = (".index", ".timeindex", ".txnindex", ".snapshot")


@dataclass
class Compaction:
    """What a compaction did.

    Attributes
    ----------
    segments : list of str
        The segments that it wrote, those that were copied too.
    records, retained : int
        Of the cleaned segments: records before and after, control records too.
    bytes, retained_bytes : int
    damage : list of CorruptBatchError
        Entries that ``errors="skip"`` left out.
    """

    segments: list[str] = field(default_factory=list)
    records: int = 0
    retained: int = 0
    bytes: int = 0
    retained_bytes: int = 0
    damage: list[CorruptBatchError] = field(default_factory=list)


def compact(
    source: Any,
    target: str | os.PathLike[str],
    *,
    format: str = "kafka",
    delete_retention_ms: int = DAY_MS,
    now: int | None = None,
    first_dirty_offset: int = 0,
    include_active: bool = False,
    merge_bytes: int | None = None,
    producer_id_expiration_ms: int = DAY_MS,
    index_interval_bytes: int = 4096,
    **options: Any,
) -> Compaction:
    """Compact topic-partitions as Kafka's log cleaner does: the last record of each key stays.

    Offsets, sequences and the gaps between them stay. Records without a key go, and so do those of aborted transactions. Tombstones
    stay for ``delete_retention_ms``: a batch of format 2 or 3 gets a delete horizon when it is first cleaned; formats without one go
    by the segments' times of modification. A marker stays until the data of its transaction are gone, and then as long as a
    tombstone. A batch that is empty goes, unless it is its producer's last or ends the round. In KIP-87 the tombstone bit decides.
    The last segment of a partition is active and stays as it is, and so do segments that reach the last stable offset.

    Parameters
    ----------
    source
        As of `kolumn.scan`, with whole topic-partitions.
    target : str or PathLike
        A folder, in which each segment comes to ``<topic>-<partition>/<name>.log``, or for segments of one topic-partition that folder
        itself if it is called so.
    format, index_interval_bytes
        As of `kolumn.write`.
    delete_retention_ms, now : int
        ``delete.retention.ms`` of the topic, and the time of the round in ms since 1970, by default the present.
    first_dirty_offset : int
        Where the last round ended (``cleaner-offset-checkpoint``): records before it go only for later records with their keys.
    include_active : bool
        Clean the last segment too: for logs that no broker writes to any more.
    merge_bytes : int, optional
        Put compressed message sets in a row together up to this size, inflated. By default enriched ones, up to 1 MiB, as their
        document wants it.
    producer_id_expiration_ms : int
        ``producer.id.expiration.ms`` of the broker: producers that were silent for so long need no last batch.
    **options
        ``errors``, ``check_crcs``, ``topic``, ``partition`` and limits, and what they raise, as of `kolumn.scan`.

    Raises
    ------
    ArgumentError
        Options that make no sense, a target that is there.
    """
    _check(delete_retention_ms, first_dirty_offset, producer_id_expiration_ms, merge_bytes)
    chosen = whole_options(format, **options)
    moment = int(time.time() * 1000) if now is None else now
    done = Compaction()
    places = dict(targets(segments_of(source, chosen), Path(no_url(target))))
    for _, own in groupby(places, key=lambda segment: str(Path(segment.path).parent)):
        partition = list(own)
        settings = _Settings(chosen, moment, delete_retention_ms, first_dirty_offset, merge_bytes, index_interval_bytes, done)
        settings.partition(partition, [places[one] for one in partition], include_active, producer_id_expiration_ms)
    return done


def _check(delete_retention_ms: int, first_dirty_offset: int, producer_id_expiration_ms: int, merge_bytes: int | None) -> None:
    if min(delete_retention_ms, first_dirty_offset, producer_id_expiration_ms) < 0:
        raise ArgumentError("delete_retention_ms, first_dirty_offset and producer_id_expiration_ms: expected 0 or more")
    if merge_bytes is not None and merge_bytes < 1:
        raise ArgumentError(f"merge_bytes={merge_bytes}: expected at least 1")


@dataclass
class _Settings:
    options: Options
    now: int
    retention_ms: int
    first_dirty: int
    merge_bytes: int | None
    interval: int
    done: Compaction

    def partition(self, segments: list[Segment], places: list[Path], include_active: bool, expiration_ms: int) -> None:
        transactions = transactions_of(segments, self.options)
        count = len(segments) if include_active else len(segments) - 1
        stable = transactions.last_stable_offset
        if stable is not None:
            count = min(count, sum(_last_offset(segment) < stable for segment in segments[:count]))
        dirty, latest, producers = segments[:count], LatestOffsets(), Producers(expiration_ms, self.now)
        round = Round(latest, transactions, producers, self.first_dirty, _end(dirty), self.now, self.retention_ms)
        for segment in segments:
            for rows in headers(segment):
                producers.see(rows)
        for segment in dirty:
            self._add_keys(segment, round)
        deletes = self._legacy_horizon(dirty)
        for segment, place in zip(dirty, places, strict=False):
            self._clean(segment, place, round, _modified(segment) > deletes)
        for segment, place in zip(segments[count:], places[count:], strict=True):
            copy_segment(segment, place)
            self.done.segments.append(str(place))

    def _add_keys(self, segment: Segment, round: Round) -> None:
        """Add the keys of a segment's records to the map of last offsets."""
        for piece in pieces(segment, self.options):
            records = piece.records
            usable = ~np.asarray(records["isControl"]) & ~np.repeat(round.aborted(piece.rows), piece.counts)
            usable &= records["offset"].to_numpy() >= self.first_dirty
            mask = pa.array(usable)
            round.latest.add(records["key"].filter(mask), records["offset"].filter(mask))

    def _legacy_horizon(self, segments: list[Segment]) -> int:
        """Formats without a delete horizon lose tombstones in segments that were modified before this."""
        clean = [one for one in segments if (one.base_offset or 0) < self.first_dirty]
        return max((_modified(one) for one in clean[-1:]), default=0) - self.retention_ms if clean else -1

    def _clean(self, segment: Segment, place: Path, round: Round, legacy_deletes: bool) -> None:
        number = layouts.FORMAT_NAMES.index(segment.format)
        enriched = number == layouts.ENRICHED_FORMAT
        merge = self.merge_bytes or (1 << 20 if enriched else None)
        with SegmentFiles(place, 1 << 30, self.interval, enriched) as files:
            for piece in pieces(segment, self.options, self.done.damage):
                what = fate(piece, round, legacy_deletes, merge is not None)
                self.done.records += len(what.keep)
                self.done.retained += int(what.keep.sum())
                for encoded in rewrite(piece, what, round, number, merge or 1):
                    self.done.retained_bytes += int(encoded.rows[:, table.SIZE].sum())
                    files.append(encoded)
        self.done.bytes += segment.size
        self.done.segments.append(str(place))


def copy_segment(segment: Segment, place: Path) -> None:
    """Copy a segment as it is, with its side files.

    Raises
    ------
    ArgumentError
        Something is there already.
    """
    if place.exists():
        raise ArgumentError(f"{place} is there already: name another target, or remove it")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        for path in _files(segment):
            shutil.copyfile(path, place.with_suffix(path.suffix))
        shutil.copyfile(segment.path, place)
    except OSError as error:
        raise KolumnError(f"{place}: cannot be written: {error.strerror}") from error


def _files(segment: Segment) -> Iterator[Path]:
    path = Path(segment.path)
    return (path.with_suffix(suffix) for suffix in _SIDE_FILES if path.with_suffix(suffix).exists())


def _modified(segment: Segment) -> int:
    return os.stat(segment.path).st_mtime_ns // 1_000_000


def _last_offset(segment: Segment) -> int:
    return max((int(rows[:, table.LAST_OFFSET].max()) for rows in headers(segment)), default=-1)


def _end(segments: list[Segment]) -> int:
    """Offset at which the round ends."""
    return max((_last_offset(segment) for segment in segments), default=-1) + 1
