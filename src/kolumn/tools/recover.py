"""`recover`: what is intact in damaged copies of topic-partitions, as folders that a broker starts on.

Report of `kolumn.recover`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Unpack

import pyarrow as pa

from kolumn.copies.copies import Copies, Key
from kolumn.copies.elections import Divergence
from kolumn.copies.examine import subtract
from kolumn.copies.joined import SupersededEntries
from kolumn.copies.merge import Merged, merge
from kolumn.copies.misnamed import by_contents
from kolumn.copies.tiers import apart
from kolumn.core import keywords
from kolumn.core.errors import ArgumentError, shown
from kolumn.core.keywords import known_keywords
from kolumn.core.schema import LEFT_OUT_SCHEMA, REMARK_SCHEMA
from kolumn.damage.findings import MOST_ROWS, Damage, damage_of_fault, html_table
from kolumn.damage.segment_end import absent_after
from kolumn.decode.result import Tally
from kolumn.log.batch_table import entry_chunks
from kolumn.log.transactions import transactions_of
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.readers.verified import verified
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range, Segment
from kolumn.source.storage import parent, within
from kolumn.tools.recovered import Everything, KeptRun, LogFiles, WrittenPartition, kept_runs, missing, write_side_files
from kolumn.writers.outgoing import Place, name_of, outgoing, refuse_data_folder

PARTITIONS_SCHEMA = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("folder", pa.string()), ("segments", pa.int64()), ("batches", pa.int64()),
        ("records", pa.int64()), ("bytes", pa.int64()), ("firstOffset", pa.int64()), ("lastOffset", pa.int64()),
        ("openTransactions", pa.int64()),
    ]
)  # fmt: skip
KEPT_SCHEMA = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("firstOffset", pa.int64()), ("lastOffset", pa.int64()),
        ("batches", pa.int64()), ("bytes", pa.int64()), ("source", pa.string()),
    ]
)  # fmt: skip
LOST_SCHEMA = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("kind", pa.string()), ("firstOffset", pa.int64()), ("lastOffset", pa.int64()),
        ("recordsLost", pa.int64()), ("recordsAtMost", pa.int64()), ("certainty", pa.string()), ("segment", pa.string()),
        ("position", pa.int64()), ("size", pa.int64()), ("reason", pa.string()),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Recovery:
    """Result of a recovery.

    Attributes
    ----------
    partitions : pa.Table
        One row for each topic-partition: its folder in the target, the segments, batches, records (control records too) and bytes in it,
        the first and last offset, and how many transactions have no marker at the end of the log. Records of batches over a limit are
        counted by their headers; the number is null where a header has none (formats 0 and 1).
    kept : pa.Table
        Which offsets come from which source, in the order of offsets: a folder, or a segment in a tier.
    lost : pa.Table
        One row for each stretch of offsets that is not in the result. ``kind`` is "damage": in no copy; "superseded": intact, but of a
        leader that lost an election, or written again later; "tail": the unfinished end of an active segment; "unreadable": kept byte for
        byte with a right checksum, but ``recordsLost`` of its records cannot be decoded; "limit": kept likewise, and nothing is wrong with
        it, but it is over a limit, so its records were not decoded, and counted by its header alone.
        ``certainty`` is "exact": ``recordsLost`` is the number of offsets between intact neighbours, and the damaged batch's header says
        the same; "header": only the damaged header says it, and compaction or other damage can have changed the number; "at most":
        ``recordsAtMost`` offsets are missing, of which some may never have had a record; "unknown": nothing says how far the log went.
        Segment and position are those of the copy that was looked at.
    remarks : pa.Table
        Remarks about what was written, as in `kolumn.verify`: offsets that are absent between segments, where a whole segment is missing in
        all copies, or where compaction or retention removed records.
    divergences : tuple of str
        Where a copy has other records than the log, because of an unclean election; its records are left out from there on, and are in
        ``lost`` as "superseded".
    left_out : pa.Table
        Files and folders of the source that are no part of the log, each with its reason; columns of `schema.LEFT_OUT_SCHEMA`.
    """

    partitions: pa.Table
    kept: pa.Table
    lost: pa.Table
    remarks: pa.Table
    divergences: tuple[str, ...] = ()
    left_out: pa.Table = field(default_factory=LEFT_OUT_SCHEMA.empty_table)

    @property
    def ok(self) -> bool:
        """Whether nothing of the log is lost but unfinished ends of active segments. A batch over a limit is not lost."""
        return not set(self.lost["kind"].to_pylist()) - {"tail", "superseded", "limit"}

    def _repr_html_(self) -> str:
        """The tables, for notebooks."""
        made = [f"<p><b>{'nothing lost' if self.ok else f'{self.lost.num_rows} stretches lost'}</b></p>"]
        for found in (self.partitions, self.lost, self.remarks, self.left_out, self.kept):
            if found.num_rows:
                rows = found.slice(0, MOST_ROWS).to_pylist()
                made.append(html_table(found.schema.names, [list(row.values()) for row in rows], found.num_rows))
        return "".join(made)


_END = 2**62
"""No offset of a log: a stretch that ends above it has no known end."""


@known_keywords(keywords.refused(("errors", "check_crcs", "replicas"), "recover writes what is intact in any of the copies"))
def recover(
    source: keywords.Source,
    target: keywords.Path,
    *,
    index_interval_bytes: int = 4096,
    keys: keywords.Keys | None = None,
    **options: Unpack[keywords.WholeOptions],
) -> Recovery:
    """Write every intact batch of damaged topic-partitions into folders that a broker starts on.

    Batches are copied byte for byte, in the order of offsets, each offset once. Of several copies of a partition (replicas, or a tier
    and a broker's folder) damage of one is filled from the others, as by ``kolumn.read(..., replicas="merge")``. Segments begin where
    those of the source begin. ``.index``, ``.timeindex``, ``.txnindex`` and ``leader-epoch-checkpoint`` are made from the log,
    ``partition.metadata`` is copied. There is no ``.snapshot`` and no sign of a clean shutdown, so a broker that starts on the folder
    reads the log and makes the state of producers from it.

    Every checksum is compared twice, and what was written is read back before any file has its name. All files appear, or none.

    Parameters
    ----------
    source
        As in `kolumn.scan`, with segments named by base offsets, formats 0, 1 and 2.
    target : str or PathLike
        A folder. Each partition is written to ``<topic>-<partition>`` in it, which must not exist, or be empty.
    index_interval_bytes : int
        Bytes between two index entries; Kafka's default is 4096.
    keys, topic, …
        All others as in `kolumn.scan`. ``on_progress`` counts the bytes of all copies.

    Returns
    -------
    Recovery
        What was kept, where it comes from, and what is in no copy.

    Raises
    ------
    ArgumentError
        An option is invalid; the target exists, or has segments; a segment's name is no base offset, or its folder's name no
        topic-partition; copies have different records at an offset and no leader epoch decides.
    KolumnError
        A file cannot be read or written, or changes meanwhile. Nothing is left in the target then, as after an `ArgumentError`.
    """
    if index_interval_bytes < 1:
        raise ArgumentError(f"index_interval_bytes={index_interval_bytes}: expected at least 1")
    chosen = replace(Options.of(keys=keys, **options), errors="skip", replicas="merge")
    root = name_of(target)
    refuse_data_folder(root, directly=True)
    live = live_segments(source, chosen)
    segments = live.segments
    found, unread = _partitions([one for one in segments if one.fault is None], chosen), [one for one in segments if one.fault is not None]
    names = {key: within(root, f"{key[0]}-{key[1]}") for key in found}
    made: list[_Salvaged] = []
    with outgoing(root, names.values()) as place:
        for key, folders in found.items():
            made.append(_salvaged(key, folders, unread, names[key], place, chosen, index_interval_bytes))
    return Recovery(
        pa.Table.from_pylist([one.row for one in made], PARTITIONS_SCHEMA),
        pa.Table.from_pylist([row for one in made for row in one.kept], KEPT_SCHEMA),
        pa.Table.from_pylist([*(row for one in made for row in one.lost), *_alone(unread, found)], LOST_SCHEMA),
        pa.concat_tables([REMARK_SCHEMA.empty_table(), *(one.remarks for one in made)]),
        tuple(text for one in made for text in one.divergences),
        live.left_out(),
    )


_Row = dict[str, object]
_Lost = tuple[Range, int, int]


@dataclass
class _Salvaged:
    """Rows of the report about one topic-partition."""

    row: _Row
    kept: list[_Row]
    lost: list[_Row]
    remarks: pa.Table
    divergences: list[str]


def _partitions(segments: list[Segment], options: Options) -> dict[Key, Copies]:
    """The copies of each topic-partition: segments by folder."""
    found: dict[Key, Copies] = {}
    for one in segments:
        if one.topic is None or one.partition is None:
            raise ArgumentError(f"{one.path}: its folder is not named <topic>-<partition>: name both, with topic= and partition=")
        if one.base_offset is None:
            raise ArgumentError(f"{one.path}: a broker's segment is named by its base offset, 20 digits; rename it, or name the others")
        found.setdefault((one.topic, one.partition), {}).setdefault(parent(one.path) or ".", []).append(one)
    return {key: by_contents(apart(folders), options) for key, folders in found.items()}


def _salvaged(key: Key, folders: Copies, unread: list[Segment], name: str, place: Place, options: Options, interval: int) -> _Salvaged:
    merged = merge(folders, options, account=True)
    lost = [item for item in merged.ranges if item[0].is_lost]
    silent = replace(options, on_progress=None)
    runs = kept_runs(merged.ranges)
    if len(folders) > 1 and not merged.divergences:
        # After a divergence some copies have records that are not the log's.
        lost += list(_unhealed(runs, lost, Everything(folders, silent)))
    lost += _without_manifest([one for one in unread if (one.topic, one.partition) == key], folders, runs)
    lost += _before_first(folders, runs)
    with place(name) as folder:
        with LogFiles(folder, _bases(folders, merged)) as files:
            for run in runs:
                files.copy(run, silent)
        sources = [one for own in folders.values() for one in own]
        segments = write_side_files(folder, sources, files.written, interval)
        report = verified(segments, replace(silent, threads=1))
        open_ones = len(transactions_of(segments, silent).open)
    by_headers = report.limits["recordsLost"].to_pylist()
    said: _Row = {"topic": shown(key[0]), "partition": key[1]}
    row = {
        **said, "folder": shown(name), "segments": len(segments), "batches": sum(files.written.batches),
        "records": None if None in by_headers else report.records + sum(by_headers),
        "bytes": sum(files.written.bytes), "firstOffset": runs[0].low if runs else None,
        "lastOffset": runs[-1].high if runs else None, "openTransactions": open_ones,
    }  # fmt: skip
    rows = [
        *(row for item in lost for row in _lost(*item, runs, silent)),
        *(_superseded(one, merged.divergences) for one in merged.superseded),
    ]
    for one in report.damage.to_pylist():
        # Its checksum is right, so it is kept, and what is wrong with it was written so.
        offsets = {"firstOffset": one["baseOffset"], "lastOffset": one["lastOffset"], "recordsLost": one["recordsLost"]}
        place_of = {"segment": _final(name, one["segment"]), "position": one["position"], "size": one["size"]}
        rows.append({"kind": "unreadable", **offsets, "certainty": "header", **place_of, "reason": one["reason"]})
    for one in report.limits.to_pylist():
        offsets = {"firstOffset": one["baseOffset"], "lastOffset": one["lastOffset"], "recordsLost": 0}
        place_of = {"segment": _final(name, one["segment"]), "position": one["position"], "size": one["size"]}
        rows.append({"kind": "limit", **offsets, "certainty": "header", **place_of, "reason": f"kept, not decoded: {one['reason']}"})
    remarks = report.remarks
    paths = [_final(name, one) for one in remarks["segment"].to_pylist()]
    remarks = remarks.set_column(remarks.schema.get_field_index("segment"), remarks.schema.field("segment"), pa.array(paths, pa.string()))
    kept = [said | one for one in _kept(runs, files.written)]
    return _Salvaged(row, kept, [said | one for one in rows], remarks, [shown(f"{key[0]}-{key[1]}: {one}") for one in merged.divergences])


def _without_manifest(unread: list[Segment], folders: Copies, runs: list[KeptRun]) -> Iterator[_Lost]:
    """Segments of a tier of which nothing can be read, up to where the next one begins."""
    bases = sorted({one.base_offset or 0 for own in folders.values() for one in own} | {one.base_offset or 0 for one in unread})
    for one in unread:
        low = one.base_offset or 0
        high = next((base - 1 for base in bases if base > low), _END)
        if high < _END or not any(run.low <= low <= run.high for run in runs):
            yield Range(one, 0, 0), low, high


def _before_first(folders: Copies, runs: list[KeptRun]) -> Iterator[_Lost]:
    """Segments before the first one of a copy of which only index files are left."""
    reported: list[tuple[int, int]] = []
    for own in folders.values():
        first = min(own, key=lambda one: one.base_offset or 0)
        if not first.orphans:
            continue
        with SegmentFile(first) as file:
            trouble = absent_after(file, (first.base_offset or 0) - 1)
        if trouble is None or trouble.lost is None or trouble.lost[0] >= (first.base_offset or 0):
            continue
        for low, high in missing(*trouble.lost, runs):
            gap = [(low, high)]
            for one in reported:
                gap = subtract(gap, *one)
            reported += gap
            yield from ((Range(first, 0, 0, fault=trouble.error), *part) for part in gap)


def _alone(unread: list[Segment], found: dict[Key, Copies]) -> Iterator[_Row]:
    """Rows of partitions of which no segment can be read."""
    for one in unread:
        if (one.topic, one.partition) not in found:
            yield {
                "topic": None if one.topic is None else shown(one.topic), "partition": one.partition, "kind": "damage",
                "firstOffset": one.base_offset, "certainty": "unknown",
                "segment": shown(one.path), "position": 0, "size": 0, "reason": damage_of_fault(Range(one, 0, 0)).reason,
            }  # fmt: skip


def _final(name: str, staged: str) -> str:
    return shown(within(name, staged.rpartition("/")[2]))


def _bases(folders: Copies, merged: Merged) -> list[int]:
    """Where segments begin: as in the first copy, before and after its offsets as in the others; after a divergence not behind the end."""
    own, *others = [sorted({one.base_offset or 0 for one in segments}) for segments in folders.values()]
    found = set(own)
    if merged.divergences:
        end = max((high for one, _, high in merged.ranges if not one.is_lost), default=-1)
        return sorted(base for base in found if base <= end)
    for other in others:
        found |= {base for base in other if base < min(found) or base > max(found)}
    return sorted(found)


def _unhealed(runs: list[KeptRun], lost: list[_Lost], copies: Everything) -> Iterator[_Lost]:
    """Damage at the ends of segments that the merge took for healed, since another copy goes further: but it begins after the damage."""
    for before, after in pairwise(runs):
        gap = [(before.high + 1, after.low - 1)] if before.high + 1 < after.low else []
        for _, low, high in lost:
            gap = subtract(gap, low, high)
        if not gap:
            continue
        near = copies.near(gap[0][0], gap[-1][1])
        for one in near:
            for low, high in one.sound(gap[0][0], gap[-1][1]) if gap else ():
                gap = subtract(gap, low, high)
        for one in near:
            for stretch in one.stretches:
                for low, high in gap:
                    if stretch.low <= high and (stretch.high is None or stretch.high >= low):
                        part = Range(one.segment, stretch.start, stretch.end, stretch.floor, fault=stretch.fault)
                        yield part, max(low, stretch.low), high
                        gap = subtract(gap, low, high)


def _kept(runs: list[KeptRun], written: WrittenPartition) -> Iterator[_Row]:
    """Runs of neighbours from the same source as one row."""
    for source, own in groupby(zip(runs, written.batches, written.bytes, strict=True), key=lambda one: _source(one[0])):
        some, batches, sizes = zip(*own, strict=True)
        counts = {"batches": sum(batches), "bytes": sum(sizes)}
        yield {"firstOffset": some[0].low, "lastOffset": some[-1].high, **counts, "source": source}


def _source(run: KeptRun) -> str:
    return shown(run.segment.path if run.segment.copy_id is not None else parent(run.segment.path) or ".")


def _superseded(one: SupersededEntries, divergences: list[Divergence]) -> _Row:
    """Entries that are intact and not part of the log."""
    folder = parent(one.segment.path)
    newer = [found for found in divergences if found.offset <= one.first and folder in (found.left, parent(found.left))]
    decided = max(newer, key=lambda found: found.offset, default=None)
    reason = "intact, and not part of the log"
    if decided is not None:
        reason = f"{reason}: {decided}"
    return {
        "kind": "superseded", "firstOffset": one.first, "lastOffset": one.last, "recordsLost": one.records, "recordsAtMost": one.records,
        "certainty": "exact", "segment": shown(one.segment.path), "position": one.position, "size": one.size, "reason": reason,
    }  # fmt: skip


def _lost(one: Range, low: int, high: int, runs: list[KeptRun], options: Options) -> Iterator[_Row]:
    """What is known of a stretch that no copy heals; parts of it may be in another copy."""
    damage, tail = _looked_at(one, options)
    if not damage and tail is None and one.end > one.start:
        return
    reason = damage[0].reason if damage else f"{tail} end of the active segment"
    if len(damage) > 1:
        reason = f"{reason}; {len(damage)} stretches"
    told = [piece.records_lost for piece in damage]
    claimed = sum(count for count in told if count is not None) if damage and None not in told else None
    if high >= _END and not any(run.low <= low <= run.high for run in runs):
        # The end of a copy, of unknown extent: up to where another copy begins.
        high = next((run.low - 1 for run in runs if run.low > low), high)
    gaps: list[tuple[int, int | None]] = [*missing(low, high, runs)] if high < _END else [(low, None)]
    for first, last in gaps:
        whole = last is None or (first, last) == (low, high)
        span = None if last is None else last - first + 1
        yield {
            "kind": "damage" if damage else "tail", "firstOffset": first, "lastOffset": last, **_count(claimed if whole else None, span),
            "segment": shown(one.segment.path), "position": one.start, "size": one.end - one.start, "reason": reason,
        }  # fmt: skip


def _count(claimed: int | None, span: int | None) -> _Row:
    """How many records are lost, by what headers claim and by the number of offsets, and how sure that is."""
    if claimed is None:
        return {"recordsLost": None, "recordsAtMost": span, "certainty": "unknown" if span is None else "at most"}
    return {"recordsLost": claimed, "recordsAtMost": span, "certainty": "exact" if claimed == span else "header"}


def _looked_at(one: Range, options: Options) -> tuple[list[Damage], str | None]:
    """The damage that a reader meets in a lost range, and the state of the tail that it ends with."""
    if one.fault is not None:
        return [damage_of_fault(one)], None
    found = Tally()
    with SegmentFile(one.segment) as file:
        for _ in entry_chunks(file, options, found, part=replace(one, start_offset=None, end_offset=None)):
            pass
    return found.damage, found.tail
