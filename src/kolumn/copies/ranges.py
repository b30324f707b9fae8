"""Ranges for readers: each offset of a topic-partition occurs once, even if the source names several directories of it.

A segment is deleted as a whole, so the first one may still have records below the log start offset, which a broker notes when records are
deleted, by DeleteRecords or by retention. No consumer gets them. A broker begins a log at the larger of the noted offset and its first
segment (``LogLoader``), and writes the offsets every minute.

Before several directories are merged, segments are found whose entries have other offsets than their name says: a file was renamed, copied
under another name, or swapped. No entry of a broker's segment has an offset below the segment's name, or one that the next segment begins
with. Where one has, a name is wrong or an offset is damaged, which no checksum tells (`by_contents`).
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.copies.copies import Copies, Key, bounds, copies, in_order, last_offset, linked, one_log
from kolumn.copies.examine import BASE, LAST, MESSAGE, POSITION, examine
from kolumn.copies.tiers import apart, stitched, tiered
from kolumn.copies.transactions import neighbours, of_ranges, transactions_of, with_transactions
from kolumn.core.errors import KolumnError, shown
from kolumn.core.keywords import Errors, Progress
from kolumn.damage.findings import OnDamage
from kolumn.damage.intact import SMALLEST_MESSAGE
from kolumn.decode.host.aborted import Transactions, matter
from kolumn.decode.host.headers import headers
from kolumn.decode.pipeline import scan_ranges
from kolumn.formats import layouts, table
from kolumn.log.seek import select_ranges
from kolumn.options import Options
from kolumn.source.names import DELETED_LOG, LOG, MANIFEST, SWAP, base_and_copy, topic_partition
from kolumn.source.segments import HIGHEST, Range, Segment
from kolumn.source.side_files import offsets_in
from kolumn.source.storage import base_name, is_url, listing, parent, read_bytes, within

if TYPE_CHECKING:
    from kolumn.copies.merge import Merged

logger = logging.getLogger("kolumn.replicas")
Select = Callable[[list[Segment], Options], list[Range]]


def log_ranges(segments: list[Segment], options: Options) -> list[Range]:
    """Ranges that contain every record of ``segments`` that the options' ranges of offsets and timestamps keep.

    ``options.include_deleted_records`` decides about records below the log start offset: if it is None, they are left out of logs with a
    tier. ``options.include_deleted_segments`` puts what only deleted segments have before the rest. If a topic-partition is in several
    directories, ``options.replicas`` decides what is read. The ranges then have the transactions of all directories, if the options need
    transactions.

    Raises
    ------
    ArgumentError
        Directories of a partition overlap and ``replicas`` is "raise", or they are not copies of one log.
    """
    return _of_consumers(segments, options, select_ranges)


def plan_log(segments: list[Segment], options: Options) -> list[Range]:
    """As `log_ranges`, with the transactions of each topic-partition, if the options need them."""
    return with_transactions(log_ranges(segments, options), options)


def every_range(segments: list[Segment], options: Options) -> list[Range]:
    """As `log_ranges`, without regard to the options' offsets and timestamps."""
    return _of_consumers(segments, _unbounded(options), _whole)


def whole_ranges(segments: list[Segment], options: Options) -> list[Range]:
    """As `every_range`, with segments without entries, and what is below the log start offset."""
    return _ranges(segments, _unbounded(options), _whole)


def _of_consumers(segments: list[Segment], options: Options, select: Select) -> list[Range]:
    """The ranges without what was deleted, but for deleted segments that the options include."""
    raw = [segment for segment in segments if segment.format in layouts.RAW]
    if raw:
        from kolumn.copies.raw_offsets import with_raw_offsets

        others = [segment for segment in segments if segment.format not in layouts.RAW]
        rest = _of_consumers(others, options, select) if others else []
        return [*rest, *with_raw_offsets(raw, options, partial(whole_ranges, options=options), partial(_ranges, select=select))]
    deleted = [segment for segment in segments if segment.path.endswith(DELETED_LOG)] if options.include_deleted_segments else []
    if deleted:
        # Few sources have any.
        from kolumn.copies.deleted import ranges_of_deleted

        live = [segment for segment in segments if not segment.path.endswith(DELETED_LOG)]
        ranges = _of_consumers(live, options, select) if live else []
        return [*ranges_of_deleted(deleted, ranges, lambda: every_range(live, options) if live else [], options), *ranges]
    ranges, asked = _ranges(segments, options, select), options.include_deleted_records
    if asked is None:
        segments = [segment for folders in tiered(segments).values() for own in folders.values() for segment in own]
    starts = {} if asked else log_starts(segments)
    return from_log_start(ranges, starts) if starts else ranges


def _unbounded(options: Options) -> Options:
    return replace(options, start_offset=None, end_offset=None, start_timestamp=None, end_timestamp=None)


def _whole(segments: list[Segment], _: Options) -> list[Range]:
    return [Range.whole(segment) for segment in segments]


def _ranges(segments: list[Segment], options: Options, select: Select) -> list[Range]:
    unread = [segment for segment in segments if segment.fault is not None]
    if unread:
        end = HIGHEST if options.end_offset is None else options.end_offset
        before = (segment for segment in unread if segment.base_offset is None or segment.base_offset < end)
        faults = [Range(segment, 0, 0, start_offset=segment.lowest, end_offset=segment.lowest) for segment in before]
        rest = [segment for segment in segments if segment.fault is None]
        return [*(_ranges(rest, options, select) if rest else []), *faults]
    several, tiers = copies(segments), tiered(segments)
    if not tiers and (not several or options.replicas == "first"):
        return select(one_log(segments, options) if several else segments, options)
    ranges: list[Range] = []
    split = tiers if options.replicas == "first" else several | tiers
    for key, own in _units(segments if options.replicas == "merge" else one_log(segments, options), split):
        if key in tiers and options.replicas != "merge":
            ranges += _of_tiers(key, tiers[key], options, select)
        elif key in tiers:
            ranges += _of_copies(apart(tiers[key]), options, select)
        elif key is not None:
            ranges += _of_copies(several[key], options, select)
        elif own:
            ranges += select(own, options)
    return ranges


def _units(segments: list[Segment], split: dict[Key, Copies]) -> Iterator[tuple[Key | None, list[Segment]]]:
    """Partitions in several directories, and the segments between them, in the order of the source."""
    done: set[Key] = set()
    own: list[Segment] = []
    for segment in segments:
        if segment.key not in split or segment.path.endswith(".checkpoint"):
            own.append(segment)
        elif segment.key not in done:
            done.add(segment.key)
            yield None, own
            own = []
            yield segment.key, []
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
    return [replace(span, transactions=transactions) for span in ranges]


def _of_tiers(key: Key, folders: Copies, options: Options, select: Select) -> list[Range]:
    segments = stitched(key, folders, options)
    ranges = select(segments, options)
    if not matter(options) or not ranges:
        return ranges
    whole = {folder: [replace(segment, start_offset=None, end_offset=None) for segment in own] for folder, own in folders.items()}
    every, more = _with_neighbours(whole)
    transactions = transactions_of(stitched(key, every, options) if more else segments, options)
    return [replace(span, transactions=transactions) for span in ranges]


def _with_neighbours(folders: Copies) -> tuple[Copies, bool]:
    """The segments of directories with the others that are in them, and whether there are any."""
    every = {folder: [*own, *_others(own)] for folder, own in folders.items()}
    return every, any(len(every[folder]) > len(own) for folder, own in folders.items())


def _others(own: list[Segment]) -> list[Segment]:
    if own[0].raft is not None and own[0].copy_id is not None:
        # What is beside it in a bucket may not be of the log.
        return []
    names = {base_name(segment.path) for segment in own}
    if own[0].manifest is not None and names >= _manifests_and_logs(parent(own[0].path)):
        # Each manifest would be a request.
        return []
    beside = neighbours(own[0])
    return [replace(one, topic=own[0].topic, partition=own[0].partition) for one in beside if base_name(one.path) not in names]


def _manifests_and_logs(folder: str) -> set[str]:
    """Names of the segments in a folder of Aiven's tier; those of objects have ids, and are left out."""
    names = [base_name(entry.name) for entry in listing(folder)]
    return {name for name in names if name.endswith(MANIFEST) or (name.endswith((LOG, SWAP)) and base_and_copy(name)[1] is None)}


def _transactions(folders: Copies, merged: "Merged | None", options: Options) -> Transactions:
    """Transactions of all directories together; a transaction may begin or end in segments that are not read."""
    every, more = _with_neighbours(folders)
    if merged is None and not more:
        return transactions_of(in_order(folders), options)
    if merged is None or more:
        from kolumn.copies.merge import merge

        merged = merge(every, options)
    return of_ranges([span for span, _, _ in merged.ranges], options)


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


_ANY = 2**62  # no limit to offsets


class _Placed(NamedTuple):
    segment: Segment
    low: int
    high: int
    was_in_doubt: bool = False


def by_contents(folders: Copies, options: Options) -> Copies:
    """The copies of a partition, in which each segment begins where its entries do if its name is wrong. A segment that has offsets of
    another one of its directory becomes a copy of its own. Reads the first and last headers of each segment, and all of those whose headers
    contradict a name."""
    contents: Copies = {}
    names = {segment.base_offset or 0 for own in folders.values() for segment in own}
    for folder, own in folders.items():
        named = all(segment.base_offset is not None and segment.copy_id is None for segment in own)
        placed = [*_placed(own, names, options)] if named else []
        if not any(one.was_in_doubt for one in placed):
            contents[folder] = own
            continue
        kept: list[Segment] = []
        reach = -1
        for segment, low, high, _ in sorted(placed, key=lambda one: (one.segment.base_offset or 0, one.was_in_doubt)):
            if not kept or reach < (segment.base_offset or 0):
                kept.append(segment)
            elif low > reach:
                kept.append(replace(segment, base_offset=reach + 1))
            else:
                contents[segment.path] = linked([segment])
                continue
            reach = high
        contents[folder] = linked(kept)
    return contents


def _placed(own: list[Segment], names: set[int], options: Options) -> Iterator[_Placed]:
    reaches_next = False
    for segment, limit in sorted(bounds(own).items(), key=lambda item: item[0].base_offset or 0):
        base, highest = segment.base_offset or 0, _ANY if limit is None else limit
        low, high = _ends(segment)
        doubt = bool(segment.size) and (reaches_next or low < base or high < low or high > highest)
        reaches_next = high > highest
        believed = _believed(segment, names, options) if doubt else None
        if believed is None:
            yield _Placed(segment, base, min(high, highest))
        elif believed[0] < base or believed[0] > highest:
            logger.warning("%s: its entries have offsets %d to %d, so its name is not believed", shown(segment.path), *believed)
            yield _Placed(replace(segment, base_offset=believed[0]), *believed, was_in_doubt=True)
        else:
            yield _Placed(segment, *believed, was_in_doubt=True)


def _ends(segment: Segment) -> tuple[int, int]:
    """First and last offset by headers; the last one is below the first one if headers do not tell."""
    try:
        first = next((entries for entries in headers(segment) if len(entries)), None)
    except KolumnError:
        first = None
    if first is None:
        return segment.base_offset or 0, -1
    return int(first.last_offset[0] if first.base_offset[0] == table.UNKNOWN else first.base_offset[0]), last_offset(segment)


def _believed(segment: Segment, names: set[int], options: Options) -> tuple[int, int] | None:
    """First and last offset of the intact entries that adjoin others, or with which a segment begins by its name. A damaged offset rarely
    adjoins its neighbour's."""
    anywhere = replace(segment, base_offset=0, following=None, preceding=None, orphans=())
    strands = examine(anywhere, "", _ANY, options)
    entries = np.concatenate([strand.entries for strand in strands])
    damaged = [stretch.start for strand in strands for stretch in strand.stretches[:1]]
    if damaged:
        # A damaged wrapper may store its messages as they are, with offsets from 0 on.
        inner = (entries[:, MESSAGE] == 1) & (entries[:, BASE] < (entries[:, POSITION] - damaged[0]) // SMALLEST_MESSAGE)
        entries = entries[~inner]
    touching = entries[1:, BASE] == entries[:-1, LAST] + 1
    if not touching.any():
        return None
    some = entries[np.append(touching, False) | np.insert(touching, 0, False) | np.isin(entries[:, BASE], [*names])]
    return int(some[:, BASE].min()), int(some[:, LAST].max())


_LOG_STARTS = "log-start-offset-checkpoint"


def log_starts(segments: Iterable[Segment]) -> dict[Key, int]:
    """Log start offsets that leave out something, of the topic-partitions in brokers' folders that are named after them. An offset counts
    only where it is sure to be of this log: its line names the topic-partition, and the log goes as far. Of a partition in several folders
    all must have one, and the lowest counts. A broker deletes a log that ends before its log start offset; here it is another log's, or was
    written after the log was copied, and nothing is left out."""
    logs: dict[Key, dict[str, list[Segment]]] = {}
    first: dict[Key, int] = {}
    for segment in segments:
        if None in (segment.topic, segment.partition) or segment.base_offset is None or segment.path.endswith(".checkpoint"):
            continue
        key, path = segment.key, segment.path
        first[key] = min(first.get(key, segment.base_offset), segment.base_offset)
        if segment.copy_id is None and segment.memory is None:
            logs.setdefault(key, {}).setdefault(parent(path if is_url(path) else os.path.abspath(path)), []).append(segment)
    files: dict[str, dict[Key, int]] = {}
    lowest = {}
    for key, folders in logs.items():
        starts = [_start(key, folder, own, files) for folder, own in folders.items()]
        known = [start for start in starts if start is not None]
        if len(known) == len(starts) and min(known) > first[key]:
            lowest[key] = min(known)
    return lowest


def _start(key: Key, folder: str, own: list[Segment], files: dict[str, dict[Key, int]]) -> int | None:
    if topic_partition(base_name(folder)) != key:
        return None
    name = within(parent(folder), _LOG_STARTS)
    if name not in files:
        files[name] = offsets_in(read_bytes(name)) or {}
    start = files[name].get(key)
    newest = max(own, key=lambda segment: segment.base_offset or 0)
    if start is None or start <= (newest.base_offset or 0):
        return start
    end = last_offset(newest) + 1
    if start <= end:
        return start
    log = f"{shown(key[0])}-{key[1]}"
    logger.warning("%s: log start offset %d of %s is after the end of the log, %d: nothing is left out", shown(name), start, log, end)
    return None


def from_log_start(ranges: list[Range], starts: dict[Key, int]) -> list[Range]:
    kept = []
    for part in ranges:
        start, following = starts.get(part.segment.key), part.segment.following
        lowest = part.start_offset if part.start_offset is not None else part.segment.lowest
        if start is None or part.is_lost or lowest is None or lowest >= start:
            kept.append(part)
        elif all(end is None or end > start for end in (part.end_offset, following)):
            kept.append(replace(part, start_offset=start))
    return kept
