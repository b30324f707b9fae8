"""`erase`: a log without the records that a selection names; every other record stays at its offset, and every other batch as it was.

Pass two of the log cleaner (`kolumn.writers.rewriting.cleaner`) with another rule for what stays. Entries are decoded as far as the
selection needs it; those without such a record are copied, the others are decoded whole and encoded again. What differs from the cleaner:

* A batch that becomes empty stays where it is the last one of a segment too, or of a transaction that is not decided: no offset moves, and
  no last stable offset. In formats 0 and 1, which have no empty entries, such a batch of format 2 ends the log if need be.
* Control batches and delete horizons are left alone, and records of aborted and open transactions are erased: they are bytes on a disk.
* Bytes that are no entry are not copied: the end of an active segment that was not finished, zeros, and what ``errors="skip"`` leaves out.
* Of a tier every copy of a segment is written anew by itself, also one of which the log needs nothing: its bytes are on a disk too.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby, pairwise
from os import path as paths
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.copies.copies import one_directory
from kolumn.copies.transactions import transactions_of
from kolumn.core import keywords
from kolumn.core.arrays import Flags, Int64s
from kolumn.core.errors import ArgumentError, CorruptBatchError, KolumnError, shown
from kolumn.core.keywords import known_keywords
from kolumn.core.results import Result, counted
from kolumn.core.schema import LEFT_OUT_SCHEMA, RECORD_COLUMNS
from kolumn.damage.findings import Kind, Skipped, Tally
from kolumn.formats import layouts, table
from kolumn.formats.codecs import NONE
from kolumn.formats.entries import Entries
from kolumn.log.pieces import COLUMNS, Piece, intact, pieces_of, tell
from kolumn.options import Options
from kolumn.readers.plan import LiveSegments, live_segments
from kolumn.readers.selection import Keys, Selection, Where
from kolumn.readers.types import with_types
from kolumn.source.names import SWAP, file_name
from kolumn.source.segment_file import side_bytes
from kolumn.source.segments import Segment
from kolumn.source.side_files import ABORTED, CHECKPOINT, METADATA
from kolumn.source.storage import base_name, beside, is_url, listing, parent, read_bytes, real_folder, within
from kolumn.writers.commit.staged_file import StagedFile, writing
from kolumn.writers.entries import Encoded, EntrySettings, Splice
from kolumn.writers.names import refuse_redpanda
from kolumn.writers.outgoing import outgoing
from kolumn.writers.rewriting.cleaner import DROP, EMPTY, REBUILD, Fate, Producers, in_place, per_entry, rebuilt
from kolumn.writers.rewriting.compact import folder_of
from kolumn.writers.rewriting.convert import Rewriting, can_roll, root_of, targets, with_known_offsets, written
from kolumn.writers.rewriting.erasure_proof import Proof
from kolumn.writers.rewriting.meant import Meant
from kolumn.writers.tier import METADATA_SCHEMA, REPLACED_SCHEMA, Written, copy_in_tier, tier_folder, write_in_tier
from kolumn.writers.write import SegmentFiles

PARTITIONS_SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("folder", pa.string()), ("segments", pa.int64()), ("records", pa.int64()),
     ("rewritten", pa.int64()), ("emptied", pa.int64()), ("dropped", pa.int64()), ("undecided", pa.int64()), ("bytes", pa.int64()),
     ("bytesAfter", pa.int64())]
)  # fmt: skip
ERASED_SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("firstOffset", pa.int64()), ("lastOffset", pa.int64()), ("records", pa.int64())]
)  # fmt: skip
_MOST_STRETCHES, _LEAST_STRETCHES = 1 << 18, 1 << 10
"""Stretches of erased records that a result lists: of all segments together, and of each one at least."""
NEXT_STEPS = (
    "Erase on every replica: a follower fetches only what it lacks, so it keeps the records, and gives them back if it becomes leader.",
    "Stop a broker before its folder is replaced. A new log directory needs log-start-offset-checkpoint of the old one too.",
    "Remove the source, what is named as left out, snapshots of disks, and backups: they still have the records.",
    "Remote copies of segments (tiers) are files of their own: erase them too, or let retention delete them.",
    "State of consumers, sinks, mirrors and compacted copies of the topic are not changed.",
)
"""What is to be done so that the records are gone everywhere."""
_EMPTY_BATCH = {table.MAGIC: 2, table.MAX_TIMESTAMP: -1, table.PRODUCER_ID: -1, table.PRODUCER_EPOCH: -1, table.BASE_SEQUENCE: -1}
"""Fields of an empty batch that are not 0. Its leader epoch is 0: followers refuse a negative one."""
_FOREVER = 2**62  # ms for which a producer's last batch stays
_LARGEST = 2**31 - 1
_Row = dict[str, Any]
_Found = Counter[bytes]
_OF_PARTITION = re.compile(rf"[0-9]{{20}}\.snapshot|{re.escape(CHECKPOINT)}|{re.escape(METADATA)}")


@dataclass(frozen=True, repr=False)
class Erasure(Result):
    """Result of an erasure. No key and no value of an erased record is in it.

    Attributes
    ----------
    partitions : pa.Table
        One row for each topic-partition: its folder in the target and the segments there, the ``records`` that were erased, the batches
        that were rewritten, that stay without records and that were dropped, and the bytes of segments before and after. ``undecided``
        records stay, although a key or value that the conditions ask for cannot be decoded.
    erased : pa.Table
        One row for each stretch of erased records at consecutive offsets: the first, the last, and the records in it. At most 262,144
        stretches are listed, of each segment its part of them, but at least 1,024.
    unlisted : int
        Erased records that are not in that table.
    unmatched : list of bytes
        Those of ``keys`` of which no record was erased.
    left_out : pa.Table
        What is not in the target and may hold records that were erased: files and folders of the source that are no part of the log, and
        bytes after the last batch of a segment (kind "tail"); columns of `kolumn.schema.LEFT_OUT_SCHEMA`.
    skipped, damage : Skipped, list of CorruptBatchError
        As in `kolumn.Conversion`.
    verification : pa.Table, optional
        With ``verify``, one row for each topic-partition and check.
    replaced : pa.Table
        One row for each segment of a tier that was written anew: what it replaces, and under which id.
    metadata : pa.Table
        Entries that ``__remote_log_metadata`` needs for segments with a new id, in this order. They are not written.
    next_steps : tuple of str
        What is to be done so that the records are gone everywhere.
    """

    partitions: pa.Table
    erased: pa.Table
    unlisted: int
    left_out: pa.Table
    skipped: Skipped
    verification: pa.Table | None = None
    replaced: pa.Table = field(default_factory=REPLACED_SCHEMA.empty_table)
    metadata: pa.Table = field(default_factory=METADATA_SCHEMA.empty_table)
    next_steps: tuple[str, ...] = NEXT_STEPS
    unmatched: list[bytes] = field(default_factory=list)

    @property
    def damage(self) -> list[CorruptBatchError]:
        """The error of each damaged stretch that was left out."""
        return self.skipped.errors

    @property
    def records(self) -> int:
        """Number of erased records."""
        return pc.sum(self.partitions["records"]).as_py() or 0

    @property
    def undecided(self) -> int:
        """Number of records that stay, of which nobody knows whether they are meant."""
        return pc.sum(self.partitions["undecided"]).as_py() or 0

    @property
    def also_kept(self) -> int:
        """Number of records that stay with the key or the value of an erased one, as ``verify`` has found."""
        rows = [] if self.verification is None else self.verification.to_pylist()
        return sum(row["alsoKept"] for row in rows if row["check"] == "payloads")

    @property
    def ok(self) -> bool:
        """Whether every record could be decided, nothing was damaged, and no check failed."""
        proved = self.verification is None or pc.all(self.verification["ok"]).as_py() is not False
        return proved and not self.skipped.pieces and not self.undecided

    def __str__(self) -> str:
        unmatched = f"; {counted(len(self.unmatched), 'key')} matched no record" if self.unmatched else ""
        undecided = f"; {self.undecided} undecided" if self.undecided else ""
        failed = "; a check failed" if self.verification is not None and False in self.verification["ok"].to_pylist() else ""
        erased = f"{counted(self.records, 'record')} erased in {counted(self.partitions.num_rows, 'partition')}"
        return self.skipped.after(f"{erased}{unmatched}{undecided}{failed}")


refused_by_erase = {
    **keywords.refused(("value_as", "key_as", "value_errors", "key_errors"), "erase returns no value"),
    **keywords.refused(("replicas",), "each copy has the records, so each is erased on its own"),
}


@known_keywords(refused_by_erase)
def erase(
    source: keywords.Source,
    target: keywords.Path,
    *,
    keys: Keys | None = None,
    where: Where | None = None,
    verify: bool = False,
    format: keywords.Format = "kafka",
    index_interval_bytes: int = 4096,
    private_keys: keywords.Keys | None = None,
    **options: Unpack[keywords.ChosenOptions],
) -> Erasure:
    """Write topic-partitions without some records; every other record stays at its offset, and every other batch as it was.

    A batch with such a record is decompressed, and encoded again as Kafka's cleaner does: offsets, sequence, producer, epochs, codec,
    timestamps and delete horizon stay, the count and the checksum are new. A batch without records stays where it is the last one of its
    producer, of a segment, or of a transaction that is not decided; else it is dropped. If the last message of a log in format 0 or 1
    is erased, an empty batch of format 2 keeps its offset. Control batches are never changed.

    Segments keep their names; what one segment cannot hold goes on in others, in a tier that is an error. Indexes are new; ``.snapshot``,
    ``.txnindex``, ``leader-epoch-checkpoint`` and ``partition.metadata`` are copied. Bytes after the last batch of a segment are not.
    All files appear, or none.

    Of a log of Redpanda the result names raw offsets, and batches of its own are never changed. No node of Redpanda was tried on it.

    Memory: as of a read in one thread, and some 100 bytes for each row of `Erasure.erased`. With ``verify`` 64 MiB of erased keys and
    values, or an eighth of ``memory_bytes``, are searched for at a time, in some times as much memory; each time the target is read again.

    Parameters
    ----------
    source
        As in `kolumn.scan`, with whole topic-partitions, each in one folder. Of a tier every copy of a segment is written in its layout.
    target : str or PathLike
        A new folder, in which each segment is written to ``<topic>-<partition>/<name>.log``, or to the folder that its tier has for it; a
        log is never changed in place.
    keys : bytes, str, or iterable of them
        The records with one of these keys: bytes, text, or text that begins with ``hex:`` or ``base64:``.
    where : str, iterable of str, or mapping
        The records with a header (``"name=value"``), or with a field of a typed key or value (``"value.path=value"``). All conditions
        must hold, and a key must be among ``keys`` too if both are given.
    verify : bool
        Afterwards read source and target, and prove that nothing of the erased records is left and that all else is the same.
    format, index_interval_bytes
        As in `kolumn.write`.
    private_keys, errors, check_crcs, …
        All others as in `kolumn.scan`, with the same errors. With ``errors="skip"`` damaged stretches are not copied.

    Returns
    -------
    Erasure

    Raises
    ------
    ArgumentError
        An option is invalid, no record is named, a topic-partition is in several folders, or the target exists or is in one of them.
    CorruptBatchError
        A batch is damaged, so that nobody knows what is in it, and ``errors`` is "raise".
    KolumnError
        The target cannot be written. Nothing is left there then, as after an `ArgumentError` or damage.
    """
    chosen = Options.of(format=format, private_keys=private_keys, **options)
    work = ErasureWork.of(source, target, chosen, keys, where, index_interval_bytes)
    done = dict[Segment, Erased]()
    with outgoing(root_of(target), work.names.values()) as place:
        for segment in work.tiers:
            with place(parent(work.names[segment])) as folder:
                done[segment] = work.job.in_tier(segment, folder, work.names[segment])
        for plan in map(work.job.plan, work.partitions):
            for number, segment in enumerate(plan.segments):
                write = partial(work.job.segment, plan, number, rolls=can_roll(target))
                done[segment] = written(place, work.names[segment], write)
    return work.result(done, verify)


@dataclass
class Erased(Rewriting):
    """What was done to one segment, or to several: ``records`` and ``stretches`` (first and last offset, records) are what was erased."""

    rewritten: int = 0
    emptied: int = 0
    dropped: int = 0
    undecided: int = 0
    bytes: int = 0
    bytes_after: int = 0
    stretches: list[tuple[int, int, int]] = field(default_factory=list)
    unlisted: int = 0
    found: _Found = field(default_factory=Counter)
    tails: list[_Row] = field(default_factory=list)
    in_tier: list[Written] = field(default_factory=list)

    def note(self, offset: Int64s, meant: Flags, most: int) -> None:
        """Add the erased records of a piece, in the order of offsets; no more than ``most`` stretches are listed."""
        gone = offset[meant]
        self.records += len(gone)
        cuts = [0, *(np.flatnonzero(np.diff(gone) != 1) + 1).tolist(), len(gone)]
        for start, stop in pairwise(cuts) if len(gone) else ():
            first, last, count = int(gone[start]), int(gone[stop - 1]), stop - start
            if self.stretches and self.stretches[-1][1] + 1 == first:
                self.stretches[-1] = self.stretches[-1][0], last, self.stretches[-1][2] + count
            elif len(self.stretches) < most:
                self.stretches.append((first, last, count))
            else:
                self.unlisted += count


@dataclass(frozen=True)
class ErasurePlan:
    """The segments of a topic-partition, the ``last`` offset of each, its producers; its last stable offset if a transaction is open."""

    segments: list[Segment]
    last: list[int]
    producers: Producers
    stable: int | None

    def stay_empty(self, number: int, entries: Entries) -> Flags:
        """Which entries of a segment stay if no record of them does."""
        kept = self.producers.is_last(entries) | (entries.last_offset == self.last[number])
        return kept if self.stable is None else kept | ((entries.transactional == 1) & (entries.last_offset >= self.stable))


@dataclass(frozen=True)
class ErasureJob:
    """How segments are written without the records that are ``meant``."""

    meant: Meant
    options: Options
    interval: int
    most: int

    def plan(self, segments: list[Segment]) -> ErasurePlan:
        producers = Producers(_FOREVER, 0)
        last = producers.see_all(segments)
        return ErasurePlan(segments, last, producers, transactions_of(segments, self.options).last_stable_offset)

    def segment(self, plan: ErasurePlan, number: int, place: Path, rolls: bool) -> Erased:
        """Write one segment to ``place`` with its side files; in a folder, with ``rolls``, to several if one has no room, and beside the
        first one the side files of the partition. The caller names the files; `Erased.segments` has their names in the folder."""
        segment = plan.segments[number]
        done, tally, last = Erased(bytes=segment.size), Tally(), -1
        with SegmentFiles(place, 1 << 30, self.interval, self._how.format, rolls) as files:
            for encoded in self._kept(plan, number, done, tally):
                done.bytes_after += int(encoded.entries.size.sum())
                files.append(encoded)
                last = files.last_offset
            # Drafts without batches of format 2 have no brokers that could wait.
            batch = layouts.format_of(segment.format).magics.get(2)
            if batch and last < plan.last[number] == max(plan.last):
                files.append(self._empty_batch(plan.last[number], batch.number))
        done.segments = [path.name for path in files.paths]
        tell(tally, done.skipped)
        done.tails = list(_tails(segment, tally))
        if segment.memory is None:
            _copy_aborted(segment, files.paths)
            if rolls and number == 0:
                _copy_side_files(segment, place)
        return done

    def in_tier(self, segment: Segment, folder: Path, name: str) -> Erased:
        """Write one segment of a tier with its own files into a folder; ``name`` is what its log or manifest has if nothing changes."""
        # It has plain records of an encrypted tier, and `kolumn.tidy` removes it after a kill.
        with writing(folder):
            scratch = TemporaryDirectory(prefix="kolumn-", dir=folder.parent)
        with scratch as plain:
            made = Path(plain, file_name(segment.base_offset or 0))
            plan = self.plan([segment])
            if plan.last[0] - (segment.base_offset or 0) > _LARGEST:
                raise KolumnError(
                    f"{segment.path}: its last offset {plan.last[0]} is more than 2^31 after its first: it cannot be one in a tier"
                )
            done = self.segment(plan, 0, made, rolls=False)
            if done.records or done.bytes_after != segment.size:
                done.in_tier = [write_in_tier(segment, made, folder)]
                name = beside(name, base_name(done.in_tier[0].replaced["segment"]))
            else:
                copy_in_tier(segment, folder)
        done.segments = [name]
        return done

    def _kept(self, plan: ErasurePlan, number: int, done: Erased, tally: Tally) -> Iterator[Encoded]:
        segment = plan.segments[number]
        for source, origin, entries in intact(segment, self.options, tally):
            known, touched = entries.copy(), np.zeros(len(entries), bool)
            out = Splice(source, origin, known)
            for piece in pieces_of(source, origin, entries.copy(), segment, self.options, self.meant.columns, tally.damage):
                rows = np.searchsorted(entries.position, piece.entries.position)
                known.array[rows] = with_known_offsets(piece).array
                meant, undecided = self.meant.of(piece)
                touched[rows] = (per_entry(meant, piece.counts) > 0) | piece.partial
                out.keep(rows[~touched[rows]])
                done.undecided += undecided
            again = np.flatnonzero(touched)
            for piece in pieces_of(source, origin, entries[again], segment, self.options, self.meant.all_columns) if len(again) else ():
                rows = np.searchsorted(entries.position, piece.entries.position)
                fates, made = self._rewritten(piece, partial(plan.stay_empty, number), done)
                out.put(rows[fates != DROP], made)
            if out.stays.any():
                yield out.encoded()

    def _rewritten(self, piece: Piece, stay_empty: Callable[[Entries], Flags], done: Erased) -> tuple[Int64s, Encoded]:
        meant = self.meant.flags(piece)
        entries, kept = with_known_offsets(piece), per_entry(~meant, piece.counts)
        fates = np.full(len(entries), REBUILD)
        can_be_empty = layouts.among(entries.layout, layouts.BATCHES)
        fates[kept == 0] = np.where(can_be_empty & stay_empty(entries), EMPTY, DROP)[kept == 0]
        done.note(piece.records["offset"].to_numpy(), meant, self.most)
        done.found.update(self.meant.keys(piece, meant))
        done.rewritten += int((fates == REBUILD).sum())
        done.emptied += int((fates == EMPTY).sum())
        done.dropped += int((fates == DROP).sum())
        return fates, in_place(piece, Fate(fates, ~meant, np.zeros(len(entries), bool)), 0, self._how)

    @property
    def _how(self) -> EntrySettings:
        return EntrySettings(layouts.FORMAT_NAMES.index(self.options.format), 0, 0, NONE, None, _LARGEST, _LARGEST)

    def _empty_batch(self, offset: int, layout: int) -> Encoded:
        """What keeps the end of a log whose last message is erased. Formats 0 and 1 have nothing empty, so it is a batch of format 2, as in
        a log that was upgraded: without it consumers that read to the end would wait for ever at an offset that no entry has."""
        entries = Entries.zeros(1)
        for column, value in (_EMPTY_BATCH | {table.BASE_OFFSET: offset, table.LAST_OFFSET: offset, table.LAYOUT: layout}).items():
            entries.array[:, column] = value
        none = pa.RecordBatch.from_pylist([], pa.schema([(name, RECORD_COLUMNS[name]) for name in COLUMNS]))
        how = replace(self._how, layout=layout, magic=2)
        return rebuilt(none, entries, np.zeros(1, np.int64), np.zeros(1, bool), 0, how)


def _copy_aborted(segment: Segment, logs: list[Path]) -> None:
    """Copy a segment's ``.txnindex``. If it became several, each has the transactions whose marker is in it."""
    # The index of a swap file has its suffix, or has its own name already.
    swapped = read_bytes(f"{segment.path.removesuffix(SWAP)}.txnindex.swap") if segment.is_swap else None
    data = swapped or side_bytes(replace(segment, path=segment.path.removesuffix(".swap")), ".txnindex")
    if data is None or len(logs) == 1:
        _copy(data, logs[0].with_suffix(".txnindex"))
        return
    entries = np.frombuffer(data, ABORTED, len(data) // ABORTED.itemsize)
    row = np.searchsorted([int(log.stem) for log in logs[1:]], entries["last"], side="right")
    for number, log in enumerate(logs):
        _copy(entries[row == number].tobytes(), log.with_suffix(".txnindex"))


def _copy_side_files(segment: Segment, place: Path) -> None:
    """Copy the files of a partition that have no key and no value of a record, and do not follow from the log: producers, epochs."""
    for name in (file.name for file in listing(parent(segment.path) or ".")):
        if _OF_PARTITION.fullmatch(base_name(name)):
            _copy(read_bytes(name), place.with_name(base_name(name)))


def _copy(data: bytes | None, path: Path) -> None:
    if data is not None:
        with StagedFile(path) as out:
            out.write(data)


def _tails(segment: Segment, tally: Tally) -> Iterator[_Row]:
    """What follows the last batch of a segment, as rows of what is left out."""
    row = {"path": shown(segment.path), "kind": "tail", "files": 1}
    if tally.tail is not None:
        what = "zeros" if tally.tail == "zeros" else "the beginning of an entry"
        yield {**row, "bytes": tally.tail_bytes, "reason": f"{what} after the last batch: it may be what is left of erased records"}
    for remark in tally.remarks:
        if remark.kind is Kind.ZERO_TAIL:
            yield {**row, "bytes": segment.size - remark.position, "reason": "zeros after the last batch"}


@dataclass(frozen=True)
class ErasureWork:
    """The segments of a call with the names that they are written to, and what of the source is no part of the log."""

    live: LiveSegments
    job: ErasureJob
    names: dict[Segment, str]

    @classmethod
    def of(
        cls, source: keywords.Source, target: keywords.Path, chosen: Options, keys: Keys | None, where: Where | None, interval: int
    ) -> "ErasureWork":
        selection = Selection.of(keys, where, (typed.column for typed in chosen.typed))
        live = live_segments(source, chosen)
        chosen = live.options  # with the format, which segments may have told
        tiers = [segment for segment in live.segments if segment.copy_id is not None]
        if tiers and not can_roll(target):
            raise ArgumentError(f"{target}: the files of a tier keep their names: name a folder")
        refuse_redpanda(tiers, "the manifest in its bucket has its size, which an erasure changes")
        for segment in tiers:
            if segment.fault is not None:
                raise segment.fault
        local = one_directory([segment for segment in live.segments if segment.copy_id is None], "erase", hint="")
        names = dict(targets(replace(live, segments=local).one_log(), target)) if local else {}
        names |= {segment: within(root_of(target), tier_folder(segment), base_name(segment.path)) for segment in tiers}
        _refuse_in_place(names)
        typed = with_types(chosen, source, live.whole_ranges()).typed if selection.fields else ()
        most = max(_MOST_STRETCHES // len(names), _LEAST_STRETCHES)
        return cls(live, ErasureJob(Meant(selection, typed), replace(chosen, typed=()), interval, most), names)

    @property
    def partitions(self) -> list[list[Segment]]:
        return [own for own in self._folders if own[0].copy_id is None]

    @property
    def tiers(self) -> list[Segment]:
        return [segment for own in self._folders if own[0].copy_id is not None for segment in own]

    @property
    def _folders(self) -> list[list[Segment]]:
        return [list(own) for _, own in groupby(self.names, key=folder_of)]

    def result(self, done: dict[Segment, Erased], verify: bool) -> Erasure:
        """The result, from what was done to each segment."""
        totals = list[tuple[list[Segment], Erased]]()
        for own in self._folders:
            totals.append((own, Erased()))
            for segment in own:
                totals[-1][1].add(done[segment])
        left_out = [_with_advice(row) for row in self.live.left_out().to_pylist()] + [row for _, total in totals for row in total.tails]
        skipped, found, named = Skipped(), Counter[bytes](), self.job.meant.selection.keys
        for _, total in totals:
            skipped.add(total.skipped)
            found.update(total.found)
        return Erasure(
            pa.Table.from_pylist([self._row(own, total) for own, total in totals], PARTITIONS_SCHEMA),
            pa.concat_tables([ERASED_SCHEMA.empty_table(), *(_erased(_named(own[0]), total.stretches) for own, total in totals)]),
            sum(total.unlisted for _, total in totals),
            pa.Table.from_pylist(left_out, LEFT_OUT_SCHEMA),
            skipped,
            self._proved(done) if verify else None,
            pa.Table.from_pylist([written.replaced for _, total in totals for written in total.in_tier], REPLACED_SCHEMA),
            pa.Table.from_pylist([row for _, total in totals for written in total.in_tier for row in written.metadata], METADATA_SCHEMA),
            unmatched=[] if named is None else [key for key in named.to_pylist() if key not in found],
        )

    def _proved(self, done: dict[Segment, Erased]) -> pa.Table:
        meant = self.job.meant
        names = [{one: done[one].segments for one in own} for own in self._folders]
        return Proof(meant.flags, meant.all_columns, self.job.options).table(names)

    def _row(self, own: list[Segment], total: Erased) -> _Row:
        return {
            **_named(own[0]), "folder": shown(parent(self.names[own[0]])), "segments": len(total.segments), "records": total.records,
            "rewritten": total.rewritten, "emptied": total.emptied, "dropped": total.dropped, "undecided": total.undecided,
            "bytes": total.bytes, "bytesAfter": total.bytes_after,
        }  # fmt: skip


def _erased(names: _Row, stretches: list[tuple[int, int, int]]) -> pa.Table:
    columns = np.array(stretches, np.int64).reshape(-1, 3).T
    repeated = [pa.repeat(pa.scalar(name, field.type), len(stretches)) for name, field in zip(names.values(), ERASED_SCHEMA, strict=False)]
    return pa.Table.from_arrays([*repeated, *map(pa.array, columns)], schema=ERASED_SCHEMA)


def _named(segment: Segment) -> _Row:
    return {"topic": None if segment.topic is None else shown(segment.topic), "partition": segment.partition}


def _with_advice(row: _Row) -> _Row:
    advice = "not copied: if it holds erased records, remove it at the source"
    return {**row, "reason": f"{row['reason']}; {advice}"}


def _refuse_in_place(names: dict[Segment, str]) -> None:
    """Raise `ArgumentError` for a target folder in which the source has segments, by whichever path, or below such a topic-partition."""
    segments = [segment for segment in names if segment.memory is None]
    known, partitions = (
        folders | {real_folder(folder) for folder in folders} - {None}
        for folders in ({parent(one.path) or "." for one in own} for own in (segments, [one for one in segments if one.topic is not None]))
    )
    for name in names.values():
        folder = parent(name) or "."
        if {folder, real_folder(folder)} & known or any({one, real_folder(one)} & partitions for one in _above(folder)):
            raise ArgumentError(f"{name}: a log is never changed in place: name a new folder as the target")


def _above(folder: str) -> Iterator[str]:
    """The folders that a folder is in."""
    folder = folder if is_url(folder) else paths.abspath(folder)
    while (above := parent(folder)) not in ("", folder):
        folder = above
        yield folder
