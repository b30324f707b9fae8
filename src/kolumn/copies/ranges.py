"""Ranges for readers: each offset of a topic-partition occurs once, even if the source names several directories of it.

Rows of a topic that tells something about others: schemas, groups, transactions, copies in a tier.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kolumn.copies.copies import Copies, Key, copies, in_order, linked, one_log
from kolumn.copies.ends import from_log_start, log_starts
from kolumn.copies.misnamed import by_contents
from kolumn.copies.tiers import apart, stitched, tiered
from kolumn.core.keywords import Errors, Progress
from kolumn.decode.pipeline import OnDamage, scan_ranges
from kolumn.log.aborted import Transactions, matter
from kolumn.log.seek import select_ranges
from kolumn.log.transactions import neighbours, of_ranges, transactions_of, with_transactions
from kolumn.options import Options
from kolumn.source.names import LOG, MANIFEST, SWAP, base_and_copy
from kolumn.source.segments import Range, Segment
from kolumn.source.storage import base_name, listing, parent

if TYPE_CHECKING:
    from kolumn.copies.merge import Merged


Select = Callable[[list[Segment], Options], list[Range]]


def log_ranges(segments: list[Segment], options: Options) -> list[Range]:
    """Ranges that contain every record of ``segments`` that the options' ranges of offsets and timestamps keep.

    ``options.include_deleted_records`` decides about records below the log start offset: if it is None, they are left out of logs with a
    tier.

    If a topic-partition is in several directories, ``options.replicas`` decides what is read. The ranges then have the transactions
    of all directories, if the options need transactions.

    Raises
    ------
    ArgumentError
        Directories of a partition overlap and ``replicas`` is "raise", or they are not copies of one log.
    """
    return _of_consumers(segments, options, select_ranges)


def plan_log(segments: list[Segment], options: Options) -> list[Range]:
    """As `log_ranges`, with the transactions of each topic-partition, if the options need them."""
    ranges = log_ranges(segments, options)
    return with_transactions(ranges, options) if matter(options) else ranges


def every_range(segments: list[Segment], options: Options) -> list[Range]:
    """As `log_ranges`, without regard to the options' offsets and timestamps."""
    return _of_consumers(segments, _unbounded(options), _whole)


def _of_consumers(segments: list[Segment], options: Options, select: Select) -> list[Range]:
    """The ranges without what was deleted."""
    found, asked = _ranges(segments, options, select), options.include_deleted_records
    if asked is None:
        segments = [one for folders in tiered(segments).values() for own in folders.values() for one in own]
    starts = {} if asked else log_starts(segments)
    return from_log_start(found, starts) if starts else found


def _unbounded(options: Options) -> Options:
    return replace(options, start_offset=None, end_offset=None, start_timestamp=None, end_timestamp=None)


def _whole(segments: list[Segment], _: Options) -> list[Range]:
    return [Range.whole(segment) for segment in segments]


def whole_ranges(segments: list[Segment], options: Options) -> list[Range]:
    """Ranges of all segments, without regard to the options' offsets and timestamps; segments without entries are included.

    What is below the log start offset is included too.
    """
    return _ranges(segments, _unbounded(options), _whole)


def _ranges(segments: list[Segment], options: Options, select: Select) -> list[Range]:
    if any(one.fault is not None for one in segments):
        unread = [one for one in segments if one.fault is not None and not _is_after(one, options)]
        found_out = [Range(one, 0, 0, start_offset=one.lowest, end_offset=one.lowest) for one in unread]
        rest = [one for one in segments if one.fault is None]
        return [*(_ranges(rest, options, select) if rest else []), *found_out]
    found, tiers = copies(segments), tiered(segments)
    if not tiers and (not found or options.replicas == "first"):
        return select(one_log(segments, options) if found else segments, options)
    ranges: list[Range] = []
    split = tiers if options.replicas == "first" else found | tiers
    for key, own in _units(segments if options.replicas == "merge" else one_log(segments, options), split):
        if key in tiers and options.replicas != "merge":
            ranges += _of_tiers(key, tiers[key], options, select)
        elif key in tiers:
            ranges += _of_copies(apart(tiers[key]), options, select)
        elif key is not None:
            ranges += _of_copies(found[key], options, select)
        elif own:
            ranges += select(own, options)
    return ranges


def _is_after(segment: Segment, options: Options) -> bool:
    return segment.base_offset is not None and options.end_offset is not None and segment.base_offset >= options.end_offset


def _units(segments: list[Segment], found: dict[Key, Copies]) -> Iterator[tuple[Key | None, list[Segment]]]:
    """Partitions in several directories, and the segments between them, in the order of the source."""
    done: set[Any] = set()
    own: list[Segment] = []
    for segment in segments:
        key = segment.topic, segment.partition
        if key not in found or segment.path.endswith(".checkpoint"):
            own.append(segment)
        elif key not in done:
            done.add(key)
            yield None, own
            own = []
            yield key, []
    yield None, own


def _of_copies(folders: Copies, options: Options, select: Select) -> list[Range]:
    merged: Merged | None = None
    if options.replicas == "merge":
        # Here and below: most logs have one copy.
        from kolumn.copies.merge import merge, trimmed

        folders = by_contents(folders, options)
        merged = merge(folders, options)
        ranges = trimmed(merged, options)
    else:
        ranges = select(linked(in_order(folders)), options)
    if not matter(options) or not ranges:
        return ranges
    transactions = _transactions(folders, merged, options)
    return [replace(one, transactions=transactions) for one in ranges]


def _of_tiers(key: Key, folders: Copies, options: Options, select: Select) -> list[Range]:
    segments = stitched(key, folders, options)
    ranges = select(segments, options)
    if not matter(options) or not ranges:
        return ranges
    whole = {folder: [replace(one, start_offset=None, end_offset=None) for one in own] for folder, own in folders.items()}
    every = {folder: _with_neighbours(own) for folder, own in whole.items()}
    more = any(len(every[folder]) > len(own) for folder, own in folders.items())
    transactions = transactions_of(stitched(key, every, options) if more else segments, options)
    return [replace(one, transactions=transactions) for one in ranges]


def _with_neighbours(own: list[Segment]) -> list[Segment]:
    """The segments of a directory, and the others that are in it."""
    names = {base_name(one.path) for one in own}
    if own[0].manifest is not None and names >= _manifests_and_logs(parent(own[0].path)):
        # Each manifest would be a request.
        return own
    beside = [replace(one, topic=own[0].topic, partition=own[0].partition) for one in neighbours(own[0])]
    return [*own, *(one for one in beside if base_name(one.path) not in names)]


def _manifests_and_logs(folder: str) -> set[str]:
    """Names of the segments in a folder of Aiven's tier; those of objects have ids, and are left out."""
    names = [base_name(one.name) for one in listing(folder)]
    return {name for name in names if name.endswith(MANIFEST) or (name.endswith((LOG, SWAP)) and base_and_copy(name)[1] is None)}


def _transactions(folders: Copies, merged: "Merged | None", options: Options) -> Transactions:
    """Transactions of all directories together; a transaction may begin or end in segments that are not read."""
    every = {folder: _with_neighbours(own) for folder, own in folders.items()}
    more = any(len(every[folder]) > len(own) for folder, own in folders.items())
    if merged is None and not more:
        return transactions_of(in_order(folders), options)
    if merged is None or more:
        from kolumn.copies.merge import merge

        merged = merge(every, options)
    return of_ranges([one for one, _, _ in merged.ranges], options)


def topic_rows(
    segments: list[Segment],
    columns: tuple[str, ...],
    errors: Errors = "skip",
    on_damage: OnDamage | None = None,
    on_progress: Progress | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode a topic in the order of offsets, each once if the segments are of several copies; on the CPU, since it is small."""
    options = Options.of(columns=columns, errors=errors, replicas="merge", backend="cpu", threads=1, on_progress=on_progress)
    return scan_ranges(plan_log(segments, options), options, on_damage)
