"""`compact` compacts topics with the result of Kafka's log cleaner; `apply_retention` drops old records by age from the head of the log.

`apply_retention` follows the proposal of the enriched format:

segment 0      segment 1                    segment 2
|--- old ---|  |--- old ---|--- young ---|  |--- young ---|
  dropped        cut here ^                    stays
"""

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Unpack

import numpy as np

from kolumn.copies.copies import one_directory
from kolumn.copies.transactions import transactions_of
from kolumn.core import keywords
from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import known_keywords
from kolumn.core.results import Result, counted
from kolumn.damage.findings import Skipped, Tally
from kolumn.decode.host.aborted import Transactions
from kolumn.decode.host.chunks import chunks, header_rows
from kolumn.decode.host.headers import with_last_offsets
from kolumn.formats import layouts
from kolumn.formats.codecs import NONE
from kolumn.log.pieces import entry_rows, tell
from kolumn.options import Options, duration, moment_of
from kolumn.readers.plan import live_segments
from kolumn.source.segment_file import SegmentFile, side_bytes
from kolumn.source.segments import SIDE_FILES, Segment
from kolumn.source.side_files import ENRICHED_INDEX, index_in
from kolumn.source.storage import beside, modified_ms, parent, read_bytes, with_suffix
from kolumn.writers.commit.staged_file import StagedFile
from kolumn.writers.entries import Encoded, EntrySettings
from kolumn.writers.last_offsets import LatestOffsets
from kolumn.writers.names import refuse_redpanda
from kolumn.writers.outgoing import outgoing
from kolumn.writers.rewriting.cleaner import Cleaner, Producers, Round
from kolumn.writers.rewriting.convert import Rewriting, can_roll, root_of, targets, written
from kolumn.writers.write import SegmentFiles

DAY_MS = 86_400_000
_LARGEST = 2**31 - 1
_LEAST, _COPIED = 1 << 18, 8 << 20
"""Bytes of a file that are worth a copy by the system, and bytes that are copied at a time otherwise."""


@dataclass(repr=False)
class Compaction(Rewriting):
    """Result of a compaction.

    Attributes
    ----------
    segments : list of str
        The segments that it wrote, including copied ones.
    copied : int
        Number of segments that were copied unchanged: active segments, and those that reach the last stable offset.
    records, retained : int
        Records in the cleaned segments before and after, including control records.
    bytes, retained_bytes : int
    skipped, damage : Skipped, list of CorruptBatchError
        As in `kolumn.Conversion`.
    copied_damage : Skipped
        Damage in the segments that were copied: the copies have it too.
    """

    retained: int = 0
    bytes: int = 0
    retained_bytes: int = 0
    copied: int = 0
    copied_damage: Skipped = field(default_factory=Skipped)

    def __str__(self) -> str:
        cleaned = f"{self.retained} of {counted(self.records, 'record')} and {self.retained_bytes} of {counted(self.bytes, 'byte')} stay"
        return self.skipped.after(f"{cleaned}; {counted(self.copied, 'segment')} copied unchanged")


@known_keywords()
def compact(
    source: keywords.Source,
    target: keywords.Path,
    *,
    format: keywords.Format = "kafka",
    delete_retention_ms: keywords.Duration = DAY_MS,
    now: keywords.Time | None = None,
    first_dirty_offset: int = 0,
    include_active: bool = False,
    merge_bytes: int | None = None,
    producer_id_expiration_ms: keywords.Duration = DAY_MS,
    index_interval_bytes: int = 4096,
    **options: Unpack[keywords.WholeOptions],
) -> Compaction:
    """Compact topic-partitions as Kafka's log cleaner does: the last record of each key stays.

    Offsets, sequences and the gaps between them stay. Records without a key and records of aborted transactions are dropped. Tombstones
    stay for ``delete_retention_ms``: a batch of format 2 or 3 gets a delete horizon when it is first cleaned; for formats without one,
    the segments' modification times decide. A transaction marker stays until the records of its transaction are dropped, and then as
    long as a tombstone. An empty batch is dropped, unless it is its producer's last batch or the last of the round. In KIP-87 the
    tombstone bit decides. The last segment of a partition is active and is copied unchanged, with its damage, and so are segments that
    reach the last stable offset.

    Parameters
    ----------
    source
        As in `kolumn.scan`, with whole topic-partitions.
    target : str or PathLike
        A folder, in which each segment is written to ``<topic>-<partition>/<name>.log``, and what one segment cannot hold to others.
        For segments of one topic-partition it may be that folder itself, if it has its name.
    format, index_interval_bytes
        As in `kolumn.write`.
    delete_retention_ms : int, timedelta or str
        ``delete.retention.ms`` of the topic, such as ``"1d"``.
    now : int, datetime or str, optional
        The time of the round, as ``start_timestamp`` in `kolumn.scan`; by default the present.
    first_dirty_offset : int
        Where the last round ended (``cleaner-offset-checkpoint``). A record before it is dropped only if a later record has its key.
    include_active : bool
        Clean the last segment too, for logs that no broker writes to any more.
    merge_bytes : int, optional
        Merge neighbouring compressed message sets up to this decompressed size. By default only enriched ones are merged, up to
        1 MiB, as their proposal requires.
    producer_id_expiration_ms : int, timedelta or str
        ``producer.id.expiration.ms`` of the broker: the last batch of a producer that was inactive for longer is not kept.
    errors, check_crcs, …
        All others as in `kolumn.scan`, with the same errors.

    Raises
    ------
    ArgumentError
        An option is invalid, the target exists, or a segment is Redpanda's: convert its log first.
    KolumnError
        The target cannot be written. Nothing is left there then, as after an `ArgumentError` or damage.
    """
    how = CompactionSettings.of(
        Options.of(format=format, **options), delete_retention_ms, now, first_dirty_offset, merge_bytes, producer_id_expiration_ms,
        index_interval_bytes,
    )  # fmt: skip
    names = dict(targets(segments_to_compact(source, how.options), target))
    done = Compaction()
    with outgoing(root_of(target), names.values()) as place:
        for _, own in groupby(names, key=folder_of):
            plan = plan_partition(list(own), how, include_active)
            round = plan.round(how, LatestOffsets())
            for segment in plan.dirty:
                round.add_keys(segment, how.options)
            for segment, deletes in zip(plan.dirty, plan.legacy_deletes, strict=True):
                write = partial(clean_segment, segment, round=round, legacy_deletes=deletes, how=how, rolls=can_roll(target))
                done.add(written(place, names[segment], write))
            for segment in plan.rest:
                done.add(written(place, names[segment], partial(copy_with_damage, segment, how=how)))
    return done


def segments_to_compact(source: keywords.Source, options: Options) -> list[Segment]:
    """The segments of a source, each partition in one directory. Raises `ArgumentError` for those of Redpanda."""
    segments = one_directory(live_segments(source, options).one_log(), "compact")
    refuse_redpanda(segments, "its batches have no delete horizons, by which brokers of Kafka compact")
    return segments


def folder_of(segment: Segment) -> str:
    """Folder of a segment: one topic-partition is cleaned at a time."""
    return parent(segment.path)


@dataclass(frozen=True)
class CompactionSettings:
    options: Options
    now: int
    retention_ms: int
    first_dirty: int
    merge_bytes: int | None
    interval: int
    expiration_ms: int

    @classmethod
    def of(
        cls, options: Options, delete_retention_ms: keywords.Duration, now: keywords.Time | None, first_dirty_offset: int,
        merge_bytes: int | None, producer_id_expiration_ms: keywords.Duration, index_interval_bytes: int,
    ) -> "CompactionSettings":  # fmt: skip
        retention_ms = duration("delete_retention_ms", delete_retention_ms)
        expiration_ms = duration("producer_id_expiration_ms", producer_id_expiration_ms)
        if first_dirty_offset < 0:
            raise ArgumentError(f"first_dirty_offset={first_dirty_offset}: expected 0 or more")
        if merge_bytes is not None and merge_bytes < 1:
            raise ArgumentError(f"merge_bytes={merge_bytes}: expected at least 1")
        return cls(options, moment_of(now), retention_ms, first_dirty_offset, merge_bytes, index_interval_bytes, expiration_ms)


@dataclass(frozen=True)
class CompactionPlan:
    """Plan of a round for a topic-partition: ``dirty`` segments are cleaned, the ``rest`` is copied, and the round ends at the offset
    ``end``. ``legacy_deletes`` says of each dirty segment whether tombstones of formats without a delete horizon stay."""

    dirty: list[Segment]
    rest: list[Segment]
    legacy_deletes: list[bool]
    transactions: Transactions
    producers: Producers
    end: int

    def round(self, how: CompactionSettings, latest: LatestOffsets, observed: frozenset[int] = frozenset()) -> Round:
        """The round; ``observed`` are the producers of which a batch of the current transaction was seen before."""
        return Round(latest, self.transactions, self.producers, how.first_dirty, self.end, how.now, how.retention_ms, set(observed))


def plan_partition(segments: list[Segment], how: CompactionSettings, include_active: bool) -> CompactionPlan:
    transactions = transactions_of(segments, how.options)
    producers = Producers(how.expiration_ms, how.now)
    last = producers.see_all(segments)
    count = len(segments) if include_active else len(segments) - 1
    stable = transactions.last_stable_offset
    if stable is not None:
        count = min(count, sum(offset < stable for offset in last[:count]))
    dirty = segments[:count]
    # In formats without a delete horizon, tombstones in segments modified before this time in ms are dropped.
    clean = [segment for segment in dirty if (segment.base_offset or 0) < how.first_dirty]
    limit = modified_ms(clean[-1].path) - how.retention_ms if clean else -1
    deletes = [modified_ms(segment.path) > limit for segment in dirty]
    return CompactionPlan(dirty, segments[count:], deletes, transactions, producers, max(last[:count], default=-1) + 1)


def clean_segment(segment: Segment, place: Path, round: Round, legacy_deletes: bool, how: CompactionSettings, rolls: bool) -> Compaction:
    """Pass two: write the retained records of a segment, with ``rolls`` to several if one has no room. The caller names the files;
    `Compaction.segments` has their names in the folder."""
    done, number = Compaction(bytes=segment.size), layouts.FORMAT_NAMES.index(segment.format)
    enriched = layouts.FORMATS[number].timed_index
    merge = how.merge_bytes or (1 << 20 if enriched else None)
    settings = EntrySettings(number, 0, 0, NONE, None, merge or _LARGEST, _LARGEST)
    cleaner = Cleaner(segment, round, how.options, settings, legacy_deletes, merge is not None)
    with SegmentFiles(place, 1 << 30, how.interval, number, rolls) as files:
        for encoded in cleaner.cleaned():
            done.retained_bytes += int(encoded.entries.size.sum())
            files.append(encoded)
    tell(cleaner.tally, done.skipped)
    done.records, done.retained = cleaner.records, cleaner.retained
    done.segments = [path.name for path in files.paths]
    return done


def copy_segment(segment: Segment, place: Path) -> Compaction:
    """Copy a segment unchanged, with its side files; raises `KolumnError` if a file cannot be read or written."""
    for suffix in SIDE_FILES:
        if (data := read_bytes(with_suffix(segment.path, suffix))) is not None:
            with StagedFile(place.with_suffix(suffix)) as out:
                out.write(data)
    with SegmentFile(segment) as file, StagedFile(place) as out:
        done = out.copy(file.descriptor, 0, file.size) if file.has_path and file.size >= _LEAST else 0
        for start in range(done, file.size, _COPIED):
            stop = min(start + _COPIED, file.size)
            out.write(file.read(start, stop)[: stop - start])
    return Compaction([place.name], copied=1)


def copy_with_damage(segment: Segment, place: Path, how: CompactionSettings) -> Compaction:
    """Copy a segment unchanged, and find the damage that is copied with it."""
    done, found = copy_segment(segment, place), Tally()
    with SegmentFile(segment) as file:
        for _ in entry_rows(file, replace(how.options, errors="skip"), found=found):
            pass
    tell(found, done.copied_damage)
    return done


@dataclass(repr=False)
class Retention(Result):
    """Result of a cleaning by age.

    Attributes
    ----------
    segments, dropped : list of str
        The segments that it wrote, and the segments of the source that were dropped as a whole.
    cut : dict of str to int
        Bytes that were dropped at the head of a segment of the source.
    """

    segments: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    cut: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        stay, dropped = counted(len(self.segments), "segment"), counted(len(self.dropped), "segment")
        cut = "".join(f"; {counted(size, 'byte')} dropped at the head of one" for size in self.cut.values())
        return f"{stay} written, {dropped} dropped as a whole{cut}"


@known_keywords(
    keywords.refused(
        ("errors", "check_crcs", "chunk_bytes", "memory_bytes", "max_batch_bytes", "max_ratio", "on_progress"),
        "apply_retention decodes nothing",
    )
)
def apply_retention(
    source: keywords.Source,
    target: keywords.Path,
    *,
    retention_ms: keywords.Duration,
    now: keywords.Time | None = None,
    format: keywords.Format = "enriched",
    index_interval_bytes: int = 4096,
    **options: Unpack[keywords.WholeOptions],
) -> Retention:
    """Drop records that are older than a topic's retention from the head of its partitions, including the active segment.

    Whole segments are dropped while their last timestamp is old. In the first segment that stays, the index is searched for the first
    young entry, and the file is cut there; later records stay even if they are old. Indexes are hints: the headers between two index
    entries decide, and without a valid index with times, as in shipped formats, only the headers. An entry without a timestamp is as old
    as the entry before it; a segment without any timestamp is as old as its file.

    Parameters
    ----------
    source
        As in `kolumn.scan`, with whole topic-partitions.
    target : str or PathLike
        As in `kolumn.compact`; segments keep their names.
    retention_ms : int, timedelta or str
        ``retention.ms`` of the topic, such as ``"7d"``.
    now : int, datetime or str, optional
        The moment at which ages end, as in `kolumn.compact`.
    format, index_interval_bytes
        As in `kolumn.write`.
    replicas, topic, partition
        As in `kolumn.scan`.

    Returns
    -------
    Retention

    Raises
    ------
    ArgumentError
        An option is invalid, the target exists, or a segment is Redpanda's: convert its log first.
    KolumnError
        The target cannot be written. Nothing is left there then, as after an `ArgumentError`.
    """
    chosen = Options.of(format=format, **options)
    limit = moment_of(now) - duration("retention_ms", retention_ms)
    segments = one_directory(live_segments(source, chosen).one_log(), "apply_retention")
    refuse_redpanda(segments, "its head cannot be cut off, since it begins at the offset in its name")
    names = dict(targets(segments, target))
    done = Retention()
    with outgoing(root_of(target), names.values()) as place:
        for _, own in groupby(names, key=folder_of):
            young = False
            for segment in own:
                start = 0 if young else _first_young(segment, limit)
                if start is None:
                    done.dropped.append(segment.path)
                    continue
                young = True
                if start:
                    done.cut[segment.path] = start
                with place(names[segment]) as path:
                    files = _from(segment, start, path, index_interval_bytes, can_roll(target))
                done.segments += [beside(names[segment], file) for file in files]
    return done


def _first_young(segment: Segment, limit: int) -> int | None:
    """Position of the first entry that is not older than ``limit``; None if all are older, and the segment is not empty. If a young entry
    follows damage, it is the position of the last entry before the damage: the age of the damaged bytes is unknown."""
    with SegmentFile(segment) as file:
        start, timed = _old_head(file, limit), False
        last, end = start, start
        for entries in header_rows(file, start, file.size):
            times = entries.max_timestamp
            hits = np.flatnonzero(times >= limit)
            if len(hits):
                return int(entries.position[hits[0]])
            timed |= bool((times != -1).any())
            last, end = entries[-1].position, entries[-1].end
        if end < file.size:
            after_damage = entry_rows(file, Options(format=file.segment.format, check_crcs=False, errors="skip"))
            if any(((entries.position >= end) & (entries.max_timestamp >= limit)).any() for entries in after_damage):
                return last
        if timed or start:
            return None
    return None if segment.size and modified_ms(segment.path) < limit else 0


def _old_head(file: SegmentFile, limit: int) -> int:
    """Position up to which all entries are old according to the index of an enriched segment, if the log confirms the index entry."""
    segment = file.segment
    if not layouts.FORMATS[file.format].timed_index or segment.base_offset is None:
        return 0
    index = index_in(side_bytes(segment, ".index"), ENRICHED_INDEX)
    if index is None:
        return 0
    row = int(np.searchsorted(index["timestamp"], limit, side="left")) - 1
    if row < 0:
        return 0
    position, highest, offset = int(index["position"][row]), int(index["timestamp"][row]), segment.base_offset + int(index["offset"][row])
    confirmed = False
    for entries in header_rows(file, 0, min(position + 1, file.size)):
        if (entries.max_timestamp > highest).any():
            return 0
        confirmed = bool(entries.position[-1] == position and entries.base_offset[-1] == offset)
    return position if confirmed else 0


def _from(segment: Segment, start: int, place: Path, interval: int, rolls: bool) -> list[str]:
    """Write the segment from an entry on, with new indexes; it is copied unchanged if that entry is its first. Returns names of files."""
    if start == 0:
        copy_segment(segment, place)
        return [place.name]
    number = layouts.FORMAT_NAMES.index(segment.format)
    with SegmentFile(segment) as file, SegmentFiles(place, 1 << 30, interval, number, rolls) as files:
        end = start
        for chunk in chunks(file, start, file.size, _COPIED):
            entries = with_last_offsets(file, chunk.entries).copy()
            first, end = entries[0].position, entries[-1].end
            data = chunk.source[first - chunk.origin : end - chunk.origin]
            entries.position -= first
            files.append(Encoded(data, entries))
        files.append_tail(file.read(end, file.size)[: file.size - end])
    return [path.name for path in files.paths]
