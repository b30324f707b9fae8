"""Entries with their records, a bounded number of bytes at a time: the input of conversion, compaction and accounting."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Bytes, Flags, Int64s
from kolumn.core.errors import CorruptBatchError
from kolumn.cpu_fallback.inflate.arena import Share
from kolumn.damage.explain import header_error, row_error
from kolumn.damage.findings import Damage, damage_of
from kolumn.decode.host.record_batch import record_batch
from kolumn.decode.host.run import Payloads, Run, decode_run, decompressed, runs
from kolumn.decode.pipeline import OnDamage
from kolumn.decode.result import Tally
from kolumn.formats import v2
from kolumn.formats.entries import Entries, Entry
from kolumn.log.batch_table import entry_chunks
from kolumn.log.chunks import Chunk
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Segment

COLUMNS = (
    *("offset", "timestampMs", "timestampType", "key", "value", "headers", "tombstone", "controlType"),
    *("producerId", "producerEpoch", "sequence", "leaderEpoch", "isTransactional", "isControl"),
    *("timestampSeconds", "brokerTimestampMs"),
)
"""Record columns that contain everything that a log stores about a record."""


@dataclass
class Piece:
    """Consecutive intact entries, and the sound records of others if ``errors="skip"`` allows it.

    Attributes
    ----------
    entries : Entries
        The entries.
    counts : int64 array of n
        Number of records in each entry.
    records : pa.RecordBatch
        All records, with the columns that were asked for, by default `COLUMNS`; keys of headers are bytes.
    source : uint8 array
        Bytes of the segment from ``origin`` on, padded.
    origin : int
    partial : bool array of n
        Which entries have wrong records beside those that are here: their bytes must not be copied.
    """

    entries: Entries
    counts: Int64s
    records: pa.RecordBatch
    source: Bytes
    origin: int
    partial: Flags

    @property
    def first(self) -> Int64s:
        """Row of ``records`` at which each entry begins."""
        return np.cumsum(self.counts) - self.counts

    def entry(self, i: int) -> Bytes:
        """Bytes of an entry."""
        start = self.entries[i].position - self.origin
        return self.source[start : start + self.entries[i].size]


def pieces(segment: Segment, options: Options, on_damage: OnDamage | None = None, columns: tuple[str, ...] = COLUMNS) -> Iterator[Piece]:
    """Entries of a segment in file order. Each byte is read once.

    Parameters
    ----------
    segment : Segment
    options : Options
        Limits, checksums and ``errors``; ranges and columns have no effect.
    on_damage : callable, optional
        Called with each damaged stretch that ``errors="skip"`` leaves out, as `kolumn.verify` finds it, when the segment has been read.
    columns : tuple of str
        Those of `COLUMNS` that are needed.

    Raises
    ------
    CorruptBatchError, FormatError, LimitError
        An entry is damaged, with ``errors="raise"``.
    """
    found = Tally()
    for source, origin, entries in intact(segment, options, found):
        yield from pieces_of(source, origin, entries, segment, options, columns, found.damage)
    tell(found, on_damage)


def intact(segment: Segment, options: Options, found: Tally) -> Iterator[tuple[Bytes, int, Entries]]:
    """Entries of a segment with right checksums, some at a time: bytes of the segment, the position of the first one, and the entries.

    Parameters are those of `pieces`; what ``errors="skip"`` leaves out is added to ``found``.
    """
    with SegmentFile(segment) as file:
        for chunk in entry_chunks(file, options, found):
            bad = np.flatnonzero(chunk.entries.code)
            if len(bad) and options.errors == "raise":
                raise _header_error(file, chunk, chunk.entries[bad[0]])
            for part in np.split(np.arange(len(chunk.entries)), bad):
                yield chunk.source, chunk.origin, chunk.entries[part].intact()


def payloads_of_batches(source: Bytes, origin: int, entries: Entries, options: Options) -> Iterator[tuple[Entries, Payloads, Flags]]:
    """The decompressed records of format 2 batches in memory, some batches at a time.

    Yields copies of the batches, where their records are until the next step, and flags of those that can be decompressed and whose count
    their bytes have room for. It ends before a batch that exceeds a limit.
    """
    while len(entries):
        some = entries.copy()
        payloads, held, _ = decompressed(source, origin, some, options, Share(options.inflated_bytes))
        count = len(payloads.size)
        if not count:
            return
        some, entries = some[:count], entries[count:]
        yield some, payloads, some.is_intact & (some.count >= 0) & (some.count <= payloads.size // v2.SMALLEST_RECORD)
        del held


def tell(found: Tally, on_damage: OnDamage | None) -> None:
    """Report the damage of a segment that has been read."""
    if on_damage is not None:
        for damage in sorted(found.damage, key=lambda one: one.position):
            on_damage(damage)


def pieces_of(
    source: Bytes,
    origin: int,
    entries: Entries,
    segment: Segment,
    options: Options,
    columns: tuple[str, ...] = COLUMNS,
    damage: list[Damage] | None = None,
) -> Iterator[Piece]:
    """As `pieces`, of entries in memory with right checksums.

    Parameters
    ----------
    source : uint8 array
        Bytes of the segment from ``origin`` on, padded.
    entries, segment, options, columns
    damage : list of Damage, optional
        Entries with wrong contents are added to it.
    """
    chosen = of_all_records(options, columns)
    skip = replace(chosen, errors="skip")
    # Each run costs its users some hundred calls, so one has all entries that the limit of inflated bytes allows.
    for run, some in runs(source, origin, entries, skip, need_key=True, packed_bytes=options.chunk_bytes, in_parts=options.in_parts):
        yield _piece(run, some, source, origin, segment, chosen, damage)


def of_all_records(options: Options, columns: tuple[str, ...]) -> Options:
    """The options for some columns of all records, control records too."""
    return replace(
        options, columns=columns, include_control=True, binary="contiguous",
        start_offset=None, end_offset=None, start_timestamp=None, end_timestamp=None,
    )  # fmt: skip


def _header_error(file: SegmentFile, chunk: Chunk, row: Entry) -> CorruptBatchError:
    start = row.position - chunk.origin
    return header_error(file.path, row, chunk.source[start : start + row.size])


def piece_of(source: Bytes, origin: int, entries: Entries, segment: Segment, options: Options, damage: list[Damage] | None = None) -> Piece:
    """Entries in memory with their records.

    Parameters
    ----------
    source : uint8 array
        Bytes of the segment from ``origin`` on, padded.
    entries : Entries
        Entries with right checksums.
    segment, options
        As in `pieces`.
    damage : list of Damage, optional
        Entries with wrong contents are added to it.
    """
    chosen = replace(options, columns=COLUMNS, include_control=True)
    run = decode_run(source, origin, entries, replace(chosen, errors="skip"), need_key=True, in_parts=options.in_parts)
    return _piece(run, entries, source, origin, segment, chosen, damage)


def _piece(
    run: Run, entries: Entries, source: Bytes, origin: int, segment: Segment, options: Options, damage: list[Damage] | None
) -> Piece:
    for i in np.flatnonzero(entries.code).tolist():
        error = row_error(segment.path, entries[i], None, run.found.get(i, ""))
        if options.errors == "raise":
            raise error
        if damage is not None:
            damage.append(damage_of(entries[i], error, entries[i].size, -1, part=run.lost.get(i)))
    batch = record_batch(run, entries, [(segment, run.rows)], options, raw_headers=True)
    partial = np.isin(np.arange(len(entries)), [*run.parts])
    stays = entries.is_intact | partial
    left = entries[stays]
    left.code = 0
    return Piece(left, run.records[stays], batch, source, origin, partial[stays])
