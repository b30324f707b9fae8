"""`compact`: compacts topics with the result of Kafka's log cleaner."""

import time
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Unpack

from kolumn.copies.copies import one_directory
from kolumn.core import keywords
from kolumn.core.errors import ArgumentError, CorruptBatchError
from kolumn.core.keywords import known_keywords
from kolumn.damage.findings import Skipped
from kolumn.formats import layouts
from kolumn.formats.codecs import NONE
from kolumn.log.aborted import Transactions
from kolumn.log.headers import headers
from kolumn.log.pieces import tell
from kolumn.log.transactions import transactions_of
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import SIDE_FILES, Segment
from kolumn.source.storage import modified_ms, parent, read_bytes, with_suffix
from kolumn.writers.commit.staged_file import StagedFile
from kolumn.writers.compaction.latest import LatestOffsets
from kolumn.writers.compaction.retention import Producers, Round
from kolumn.writers.compaction.rewrite import Cleaner
from kolumn.writers.conversion.convert import can_roll, root_of, targets, written
from kolumn.writers.entries import EntrySettings, write_from
from kolumn.writers.outgoing import Place, outgoing
from kolumn.writers.segments import SegmentFiles

DAY_MS = 86_400_000
_LARGEST = 2**31 - 1


@dataclass
class Compaction:
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
    skipped : Skipped
        The damaged stretches that ``errors="skip"`` left out, as `kolumn.verify` finds them, their bytes and records.
    damage : list of CorruptBatchError
        The error of each of these stretches.
    """

    segments: list[str] = field(default_factory=list)
    records: int = 0
    retained: int = 0
    bytes: int = 0
    retained_bytes: int = 0
    skipped: Skipped = field(default_factory=Skipped)
    copied: int = 0

    @property
    def damage(self) -> list[CorruptBatchError]:
        """The error of each damaged stretch that was left out."""
        return self.skipped.errors

    def add(self, other: "Compaction") -> None:
        """Add the counts of another compaction."""
        for name in ("segments", "records", "retained", "bytes", "retained_bytes", "copied"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.skipped.add(other.skipped)


@known_keywords()
def compact(
    source: keywords.Source,
    target: keywords.Path,
    *,
    format: keywords.Format = "kafka",
    delete_retention_ms: int = DAY_MS,
    now: int | None = None,
    first_dirty_offset: int = 0,
    include_active: bool = False,
    merge_bytes: int | None = None,
    producer_id_expiration_ms: int = DAY_MS,
    index_interval_bytes: int = 4096,
    **options: Unpack[keywords.WholeOptions],
) -> Compaction:
    """Compact topic-partitions as Kafka's log cleaner does: the last record of each key stays.

    Offsets, sequences and the gaps between them stay. Records without a key and records of aborted transactions are dropped. Tombstones
    stay for ``delete_retention_ms``: a batch of format 2 or 3 gets a delete horizon when it is first cleaned; for formats without one,
    the segments' modification times decide. A transaction marker stays until the records of its transaction are dropped, and then as
    long as a tombstone. An empty batch is dropped, unless it is its producer's last batch or the last of the round. In KIP-87 the
    tombstone bit decides. The last segment of a partition is active and is copied unchanged, and so are segments that reach the last
    stable offset.

    Parameters
    ----------
    source
        As in `kolumn.scan`, with whole topic-partitions.
    target : str or PathLike
        A folder, in which each segment is written to ``<topic>-<partition>/<name>.log``, and what one segment cannot hold to others.
        For segments of one topic-partition it may be that folder itself, if it has its name.
    format, index_interval_bytes
        As in `kolumn.write`.
    delete_retention_ms, now : int
        ``delete.retention.ms`` of the topic, and the time of the round in ms since 1970, by default the present.
    first_dirty_offset : int
        Where the last round ended (``cleaner-offset-checkpoint``). A record before it is dropped only if a later record has its key.
    include_active : bool
        Clean the last segment too, for logs that no broker writes to any more.
    merge_bytes : int, optional
        Merge neighbouring compressed message sets up to this decompressed size. By default only enriched ones are merged, up to
        1 MiB, as their proposal requires.
    producer_id_expiration_ms : int
        ``producer.id.expiration.ms`` of the broker: the last batch of a producer that was inactive for longer is not kept.
    errors, check_crcs, …
        All others as in `kolumn.scan`, with the same errors.

    Raises
    ------
    ArgumentError
        An option is invalid, or the target exists.
    KolumnError
        The target cannot be written. Nothing is left there then, as after an `ArgumentError` or damage.
    """
    how = CompactionSettings.of(
        Options.of(format=format, **options), delete_retention_ms, now, first_dirty_offset, merge_bytes, producer_id_expiration_ms,
        index_interval_bytes,
    )  # fmt: skip
    places = dict(targets(one_directory(live_segments(source, how.options).one_log(), "compact"), target))
    return _compact(places, target, how, include_active)


def _compact(places: dict[Segment, str], target: keywords.Path, how: "CompactionSettings", include_active: bool) -> Compaction:
    done = Compaction()
    with outgoing(root_of(target), places.values()) as place:
        for _, own in groupby(places, key=folder_of):
            done.add(_clean_partition(plan_partition(list(own), how, include_active), places, place, how, can_roll(target)))
    return done


def _clean_partition(
    plan: "CompactionPlan", places: dict[Segment, str], place: Place, how: "CompactionSettings", rolls: bool
) -> Compaction:
    done, round = Compaction(), plan.round(how, LatestOffsets())
    for segment in plan.dirty:
        round.add_keys(segment, how.options)
    for segment, deletes in zip(plan.dirty, plan.legacy_deletes, strict=True):
        write = partial(clean_segment, segment, round=round, legacy_deletes=deletes, how=how, rolls=rolls)
        done.add(written(place, places[segment], write))
    for segment in plan.rest:
        done.add(written(place, places[segment], partial(copy_segment, segment)))
    return done


def folder_of(segment: Segment) -> str:
    """Folder of a segment: one topic-partition is cleaned at a time."""
    return parent(segment.path)


@dataclass(frozen=True)
class CompactionSettings:
    """How to clean: the parameters of `compact`, checked."""

    options: Options
    now: int
    retention_ms: int
    first_dirty: int
    merge_bytes: int | None
    interval: int
    expiration_ms: int

    @classmethod
    def of(
        cls, options: Options, delete_retention_ms: int, now: int | None, first_dirty_offset: int, merge_bytes: int | None,
        producer_id_expiration_ms: int, index_interval_bytes: int,
    ) -> "CompactionSettings":  # fmt: skip
        """From parameters of `compact`; raises `ArgumentError` for invalid ones."""
        if min(delete_retention_ms, first_dirty_offset, producer_id_expiration_ms) < 0:
            raise ArgumentError("delete_retention_ms, first_dirty_offset and producer_id_expiration_ms: expected 0 or more")
        if merge_bytes is not None and merge_bytes < 1:
            raise ArgumentError(f"merge_bytes={merge_bytes}: expected at least 1")
        moment = int(time.time() * 1000) if now is None else now
        return cls(options, moment, delete_retention_ms, first_dirty_offset, merge_bytes, index_interval_bytes, producer_id_expiration_ms)


@dataclass(frozen=True)
class CompactionPlan:
    """Plan of a round for a topic-partition: ``dirty`` segments are cleaned, the ``rest`` is copied, and the round ends at the offset
    ``end``.

    ``legacy_deletes`` says of each dirty segment whether tombstones of formats without a delete horizon stay.
    """

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
    """Read the headers of a topic-partition and decide what is cleaned."""
    transactions = transactions_of(segments, how.options)
    producers = Producers(how.expiration_ms, how.now)
    last = [-1] * len(segments)
    for i, segment in enumerate(segments):
        for entries in headers(segment):
            producers.see(entries)
            last[i] = max(last[i], int(entries.last_offset.max()))
    count = len(segments) if include_active else len(segments) - 1
    stable = transactions.last_stable_offset
    if stable is not None:
        count = min(count, sum(offset < stable for offset in last[:count]))
    dirty = segments[:count]
    limit = _legacy_horizon(dirty, how)
    deletes = [modified_ms(segment.path) > limit for segment in dirty]
    return CompactionPlan(dirty, segments[count:], deletes, transactions, producers, max(last[:count], default=-1) + 1)


def _legacy_horizon(segments: list[Segment], how: CompactionSettings) -> int:
    """Time in ms: in formats without a delete horizon, tombstones in segments modified before it are dropped."""
    clean = [one for one in segments if (one.base_offset or 0) < how.first_dirty]
    return modified_ms(clean[-1].path) - how.retention_ms if clean else -1


def clean_segment(segment: Segment, place: Path, round: Round, legacy_deletes: bool, how: CompactionSettings, rolls: bool) -> Compaction:
    """Pass two: write the retained records of a segment, with ``rolls`` to several if one has no room.

    The caller names the files; `Compaction.segments` has their names in the folder.
    """
    done = Compaction(bytes=segment.size)
    number = layouts.FORMAT_NAMES.index(segment.format)
    enriched = layouts.FORMATS[number].timed_index
    merge = how.merge_bytes or (1 << 20 if enriched else None)
    settings = EntrySettings(number, 0, 0, NONE, None, merge or _LARGEST, _LARGEST)
    cleaner = Cleaner(segment, round, how.options, settings, legacy_deletes, merge is not None)
    with SegmentFiles(place, 1 << 30, how.interval, enriched, rolls) as files:
        for encoded in cleaner.cleaned():
            done.retained_bytes += int(encoded.entries.size.sum())
            files.append(encoded)
    tell(cleaner.found, done.skipped)
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
        write_from(file, 0, file.size, out)
    return Compaction([place.name], copied=1)
