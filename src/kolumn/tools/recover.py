"""`recover`: what is intact in damaged copies of topic-partitions, as folders that a broker starts on; and its report."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Unpack

import pyarrow as pa

from kolumn.copies.copies import Copies, Key
from kolumn.copies.elections import Divergence
from kolumn.copies.examine import subtract
from kolumn.copies.merge import Merged, SupersededEntries, merge
from kolumn.copies.ranges import by_contents
from kolumn.copies.tiers import apart
from kolumn.copies.transactions import transactions_of
from kolumn.core import keywords
from kolumn.core.errors import ArgumentError, shown
from kolumn.core.keywords import known_keywords
from kolumn.core.results import Result, counted
from kolumn.core.schema import LEFT_OUT_SCHEMA, REMARK_SCHEMA
from kolumn.damage.findings import MOST_ROWS, Tally, damage_of_fault, html_table
from kolumn.damage.segment_end import absent_after
from kolumn.log.pieces import entry_chunks
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.readers.verified import verified
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range, Segment
from kolumn.source.storage import parent, within
from kolumn.tools.broker_folders import Everything, KeptRun, LogFiles, WrittenPartition, missing, write_side_files
from kolumn.writers.names import refuse_redpanda
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


@dataclass(frozen=True, repr=False)
class Recovery(Result):
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
        Files and folders of the source that are no part of the log, each with its reason; columns of `kolumn.schema.LEFT_OUT_SCHEMA`.
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
        return _NOT_LOST.issuperset(self.lost["kind"].to_pylist())

    def __str__(self) -> str:
        lost = sum(kind not in _NOT_LOST for kind in self.lost["kind"].to_pylist())
        numbers = self.partitions["records"].to_pylist()
        records = "an unknown number of records" if None in numbers else counted(sum(numbers), "record")
        verdict = f"{counted(lost, 'stretch')} lost" if lost else "nothing lost"
        return f"{verdict}: {records} recovered in {counted(len(numbers), 'partition')}"

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{self}</b></p>"]
        for table in (self.partitions, self.lost, self.remarks, self.left_out, self.kept):
            if table.num_rows:
                rows = table.slice(0, MOST_ROWS).to_pylist()
                parts.append(html_table(table.schema.names, [list(row.values()) for row in rows], table.num_rows))
        return "".join(parts)


_NOT_LOST = frozenset(("tail", "superseded", "limit"))
_END = 2**62  # no offset of a log: a stretch that ends above it has no known end
_Row = dict[str, object]
_Lost = tuple[Range, int, int]  # a stretch that is in no copy, and its first and last offset


@known_keywords(keywords.refused(("errors", "check_crcs", "replicas"), "recover writes what is intact in any of the copies"))
def recover(
    source: keywords.Source,
    target: keywords.Path,
    *,
    index_interval_bytes: int = 4096,
    private_keys: keywords.Keys | None = None,
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
    private_keys, topic, …
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
    chosen = replace(Options.of(private_keys=private_keys, **options), errors="skip", replicas="merge")
    root = name_of(target)
    refuse_data_folder(root, directly=True)
    live = live_segments(source, chosen)
    refuse_redpanda(live.segments, "recover writes folders for brokers of Kafka")
    unread = [segment for segment in live.segments if segment.fault is not None]
    partitions = _partitions([segment for segment in live.segments if segment.fault is None], chosen)
    names = {key: within(root, f"{key[0]}-{key[1]}") for key in partitions}
    salvaged: list[_Salvaged] = []
    with outgoing(root, names.values()) as place:
        for key, folders in partitions.items():
            salvaged.append(_salvaged(key, folders, unread, names[key], place, chosen, index_interval_bytes))
    alone = (_unread_row(segment) for segment in unread if (segment.topic, segment.partition) not in partitions)
    return Recovery(
        pa.Table.from_pylist([own.row for own in salvaged], PARTITIONS_SCHEMA),
        pa.Table.from_pylist([row for own in salvaged for row in own.kept], KEPT_SCHEMA),
        pa.Table.from_pylist([*(row for own in salvaged for row in own.lost), *alone], LOST_SCHEMA),
        pa.concat_tables([REMARK_SCHEMA.empty_table(), *(own.remarks for own in salvaged)]),
        tuple(text for own in salvaged for text in own.divergences),
        live.left_out(),
    )


@dataclass
class _Salvaged:
    row: _Row
    kept: list[_Row]
    lost: list[_Row]
    remarks: pa.Table
    divergences: list[str]


def _partitions(segments: list[Segment], options: Options) -> dict[Key, Copies]:
    partitions: dict[Key, Copies] = {}
    for segment in segments:
        if segment.topic is None or segment.partition is None:
            raise ArgumentError(f"{segment.path}: its folder is not named <topic>-<partition>: name both, with topic= and partition=")
        if segment.base_offset is None:
            raise ArgumentError(f"{segment.path}: a broker's segment is named by its base offset, 20 digits; rename it, or name the others")
        partitions.setdefault((segment.topic, segment.partition), {}).setdefault(parent(segment.path) or ".", []).append(segment)
    return {key: by_contents(apart(folders), options) for key, folders in partitions.items()}


def _unread_row(segment: Segment) -> _Row:
    return {
        "topic": None if segment.topic is None else shown(segment.topic), "partition": segment.partition, "kind": "damage",
        "firstOffset": segment.base_offset, "certainty": "unknown", "segment": shown(segment.path), "position": 0, "size": 0,
        "reason": damage_of_fault(Range(segment, 0, 0)).reason,
    }  # fmt: skip


def _salvaged(key: Key, folders: Copies, unread: list[Segment], name: str, place: Place, options: Options, interval: int) -> _Salvaged:
    merged = merge(folders, options, account=True)
    lost = [item for item in merged.ranges if item[0].is_lost]
    silent = replace(options, on_progress=None)
    kept = [item for item in merged.ranges if not item[0].is_lost]
    runs = [KeptRun(part.segment, part.start, part.end, part.floor, low, high, part.is_bounded) for part, low, high in kept]
    runs.sort(key=lambda run: run.low)
    if len(folders) > 1 and not merged.divergences:
        # After a divergence some copies have records that are not the log's.
        lost += list(_unhealed(runs, lost, Everything(folders, silent)))
    lost += _without_manifest([segment for segment in unread if (segment.topic, segment.partition) == key], folders, runs)
    lost += _before_first(folders, runs)
    with place(name) as folder:
        with LogFiles(folder, _bases(folders, merged)) as files:
            for run in runs:
                files.copy(run, silent)
        segments = write_side_files(folder, [segment for own in folders.values() for segment in own], files.written, interval)
        report = verified(segments, replace(silent, threads=1))
        open_transactions = len(transactions_of(segments, silent).open)
    by_headers = report.limits["recordsLost"].to_pylist()
    names: _Row = {"topic": shown(key[0]), "partition": key[1]}
    row = {
        **names, "folder": shown(name), "segments": len(segments), "batches": sum(files.written.batches),
        "records": None if None in by_headers else report.records + sum(by_headers),
        "bytes": sum(files.written.bytes), "firstOffset": runs[0].low if runs else None,
        "lastOffset": runs[-1].high if runs else None, "openTransactions": open_transactions,
    }  # fmt: skip
    rows = [row for item in lost for row in _lost_rows(*item, runs, silent)]
    rows += [_superseded(entries, merged.divergences) for entries in merged.superseded]
    # Their checksums are right, so they are kept: what is wrong with the first ones was written so, the others are over a limit.
    rows += [_kept_as_is(name, "unreadable", piece, piece["recordsLost"], piece["reason"]) for piece in report.damage.to_pylist()]
    rows += [_kept_as_is(name, "limit", piece, 0, f"kept, not decoded: {piece['reason']}") for piece in report.limits.to_pylist()]
    remarks = report.remarks
    paths = [_final(name, path) for path in remarks["segment"].to_pylist()]
    remarks = remarks.set_column(remarks.schema.get_field_index("segment"), remarks.schema.field("segment"), pa.array(paths, pa.string()))
    divergences = [shown(f"{key[0]}-{key[1]}: {divergence}") for divergence in merged.divergences]
    return _Salvaged(row, [names | kept for kept in _kept(runs, files.written)], [names | row for row in rows], remarks, divergences)


def _kept_as_is(name: str, kind: str, piece: _Row, lost: object, reason: str) -> _Row:
    return {
        "kind": kind, "firstOffset": piece["baseOffset"], "lastOffset": piece["lastOffset"], "recordsLost": lost, "certainty": "header",
        "segment": _final(name, str(piece["segment"])), "position": piece["position"], "size": piece["size"], "reason": reason,
    }  # fmt: skip


def _final(name: str, staged: str) -> str:
    return shown(within(name, staged.rpartition("/")[2]))


def _without_manifest(unread: list[Segment], folders: Copies, runs: list[KeptRun]) -> Iterator[_Lost]:
    """Segments of a tier of which nothing can be read, up to where the next one begins."""
    bases = sorted({segment.base_offset or 0 for own in (*folders.values(), unread) for segment in own})
    for segment in unread:
        low = segment.base_offset or 0
        high = next((base - 1 for base in bases if base > low), _END)
        if high < _END or not any(run.low <= low <= run.high for run in runs):
            yield Range(segment, 0, 0), low, high


def _before_first(folders: Copies, runs: list[KeptRun]) -> Iterator[_Lost]:
    """Segments before the first one of a copy of which only index files are left."""
    reported: list[tuple[int, int]] = []
    for own in folders.values():
        first = min(own, key=lambda segment: segment.base_offset or 0)
        if not first.orphans:
            continue
        with SegmentFile(first) as file:
            trouble = absent_after(file, (first.base_offset or 0) - 1)
        if trouble is None or trouble.lost is None or trouble.lost[0] >= (first.base_offset or 0):
            continue
        for low, high in missing(*trouble.lost, runs):
            gap = [(low, high)]
            for stretch in reported:
                gap = subtract(gap, *stretch)
            reported += gap
            yield from ((Range(first, 0, 0, fault=trouble.error), *stretch) for stretch in gap)


def _bases(folders: Copies, merged: Merged) -> list[int]:
    """Where segments begin: as in the first copy, before and after its offsets as in the others; after a divergence not behind the end."""
    bases, *others = [{segment.base_offset or 0 for segment in segments} for segments in folders.values()]
    if merged.divergences:
        end = max((high for part, _, high in merged.ranges if not part.is_lost), default=-1)
        return sorted(base for base in bases if base <= end)
    for other in others:
        bases |= {base for base in other if base < min(bases) or base > max(bases)}
    return sorted(bases)


def _unhealed(runs: list[KeptRun], lost: list[_Lost], copies: Everything) -> Iterator[_Lost]:
    """Damage at the ends of segments that the merge took for healed, since another copy goes further: but it begins after the damage."""
    for before, after in pairwise(runs):
        gap = [(before.high + 1, after.low - 1)] if before.high + 1 < after.low else []
        for _, low, high in lost:
            gap = subtract(gap, low, high)
        if not gap:
            continue
        near = copies.near(gap[0][0], gap[-1][1])
        for strand in near:
            for low, high in strand.sound(gap[0][0], gap[-1][1]) if gap else ():
                gap = subtract(gap, low, high)
        for strand in near:
            for stretch in strand.stretches:
                for low, high in gap:
                    if stretch.low <= high and (stretch.high is None or stretch.high >= low):
                        part = Range(strand.segment, stretch.start, stretch.end, stretch.floor, fault=stretch.fault)
                        yield part, max(low, stretch.low), high
                        gap = subtract(gap, low, high)


def _kept(runs: list[KeptRun], written: WrittenPartition) -> Iterator[_Row]:
    sources = [shown(run.segment.path if run.segment.copy_id is not None else parent(run.segment.path) or ".") for run in runs]
    for source, own in groupby(zip(sources, runs, written.batches, written.bytes, strict=True), key=lambda item: item[0]):
        _, some, batches, sizes = zip(*own, strict=True)
        counts = {"batches": sum(batches), "bytes": sum(sizes)}
        yield {"firstOffset": some[0].low, "lastOffset": some[-1].high, **counts, "source": source}


def _superseded(entries: SupersededEntries, divergences: list[Divergence]) -> _Row:
    folder, reason = parent(entries.segment.path), "intact, and not part of the log"
    newer = [loser for loser in divergences if loser.offset <= entries.first and folder in (loser.left, parent(loser.left))]
    if newer:
        reason = f"{reason}: {max(newer, key=lambda divergence: divergence.offset)}"
    return {
        "kind": "superseded", "firstOffset": entries.first, "lastOffset": entries.last, "recordsLost": entries.records,
        "recordsAtMost": entries.records, "certainty": "exact", "segment": shown(entries.segment.path), "position": entries.position,
        "size": entries.size, "reason": reason,
    }  # fmt: skip


def _lost_rows(part: Range, low: int, high: int, runs: list[KeptRun], options: Options) -> Iterator[_Row]:
    """What is known of a stretch that no copy heals; parts of it may be in another copy."""
    tally = Tally()
    if part.fault is not None:
        tally.damage = [damage_of_fault(part)]
    else:
        # What a reader meets in it.
        with SegmentFile(part.segment) as file:
            for _ in entry_chunks(file, options, tally, part=replace(part, start_offset=None, end_offset=None)):
                pass
    damage = tally.damage
    if not damage and tally.tail is None and part.end > part.start:
        return
    reason = damage[0].reason if damage else f"{tally.tail} end of the active segment"
    if len(damage) > 1:
        reason = f"{reason}; {len(damage)} stretches"
    lost = [piece.records_lost for piece in damage]
    claimed = sum(count for count in lost if count is not None) if damage and None not in lost else None
    if high >= _END and not any(run.low <= low <= run.high for run in runs):
        # The end of a copy, of unknown extent: up to where another copy begins.
        high = next((run.low - 1 for run in runs if run.low > low), high)
    gaps: list[tuple[int, int | None]] = [*missing(low, high, runs)] if high < _END else [(low, None)]
    for first, last in gaps:
        whole = last is None or (first, last) == (low, high)
        known, span = claimed if whole else None, None if last is None else last - first + 1
        certainty = "unknown" if known is span is None else "at most" if known is None else "exact" if known == span else "header"
        yield {
            "kind": "damage" if damage else "tail", "firstOffset": first, "lastOffset": last, "recordsLost": known,
            "recordsAtMost": span, "certainty": certainty, "segment": shown(part.segment.path),
            "position": part.start, "size": part.end - part.start, "reason": reason,
        }  # fmt: skip
