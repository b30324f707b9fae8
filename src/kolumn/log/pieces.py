"""Entries of a segment chunk by chunk: as rows, as an Arrow table, and with their records, a bounded number of bytes at a time.

That is the input of conversion, compaction and accounting.
"""

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Bytes, Flags, Int64s
from kolumn.core.buffers import constant, flags, numbers, strings
from kolumn.core.errors import KolumnError
from kolumn.core.schema import BATCH_SCHEMA
from kolumn.core.text import in_column
from kolumn.cpu_fallback.check import check
from kolumn.cpu_fallback.inflate.arena import Share
from kolumn.damage.findings import Damage, OnDamage, Tally, Trouble, damage_of, damage_of_fault, header_error, row_error
from kolumn.damage.search import chain_of
from kolumn.damage.segment_end import at_stop, compare_start, rest_after
from kolumn.decode.host.chunks import HEADER_WINDOW, MOST_ENTRIES, Chunk, chunks
from kolumn.decode.host.record_batch import record_batch
from kolumn.decode.host.run import Payloads, Run, decode_run, decompressed, runs
from kolumn.formats import table, v2
from kolumn.formats.codecs.known import NAMES
from kolumn.formats.entries import Entries
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range, Segment

_COLUMNS = {
    "position": table.POSITION,
    "size": table.SIZE,
    "baseOffset": table.BASE_OFFSET,
    "lastOffset": table.LAST_OFFSET,
    "count": table.COUNT,
    "magic": table.MAGIC,
    "crc": table.CRC,
    "timestampType": table.TIMESTAMP_TYPE,
    "baseTimestampMs": table.BASE_TIMESTAMP,
    "maxTimestampMs": table.MAX_TIMESTAMP,
    "producerId": table.PRODUCER_ID,
    "producerEpoch": table.PRODUCER_EPOCH,
    "baseSequence": table.BASE_SEQUENCE,
    "leaderEpoch": table.LEADER_EPOCH,
    "isTransactional": table.TRANSACTIONAL,
    "isControl": table.CONTROL,
}


def batch_tables(part: Range, options: Options, on_damage: OnDamage | None = None) -> Iterator[pa.Table]:
    """Entries of a range in file order, some thousands at a time; ``on_damage`` is called with damage that ``errors="skip"`` leaves out."""
    return _tables([part], options, on_damage)


def batch_table(ranges: Iterable[Range], options: Options, on_damage: OnDamage | None = None) -> pa.Table:
    """Entries of some ranges, as `batch_tables`; small segments share chunks of the table."""
    tables = list(_tables(ranges, options, on_damage))
    return pa.concat_tables(tables) if tables else BATCH_SCHEMA.empty_table()


def _tables(ranges: Iterable[Range], options: Options, on_damage: OnDamage | None) -> Iterator[pa.Table]:
    """Tables of some thousand entries; those before an error are yielded before it is raised."""
    held: list[tuple[str, Entries]] = []
    count = 0
    try:
        for path, entries in _named_rows(ranges, options, on_damage):
            held.append((path, entries))
            count += len(entries)
            if count >= MOST_ENTRIES:
                yield _arrow(held, options.check_crcs)
                held, count = [], 0
    except KolumnError:
        if held:
            yield _arrow(held, options.check_crcs)
        raise
    if held:
        yield _arrow(held, options.check_crcs)


def _named_rows(ranges: Iterable[Range], options: Options, on_damage: OnDamage | None) -> Iterator[tuple[str, Entries]]:
    """Path and entries of segments, some entries at a time."""
    for part in ranges:
        if part.fault is not None and options.errors == "raise":
            raise part.fault
        tally = Tally(damage=[damage_of_fault(part)] if part.fault is not None else [])
        if part.fault is None:
            with SegmentFile(part.segment) as file:
                for entries in _rows(file, options, tally, part):
                    yield file.path, entries
        if on_damage is not None:
            for damage in tally.damage:
                on_damage(damage)


def entry_rows(file: SegmentFile, options: Options, part: Range | None = None, found: Tally | None = None) -> Iterator[Entries]:
    """Entries as rows of the batch table: int64, shape (n, `table.WIDTH`); of the whole segment by default. Damage and remarks are added
    to ``found``."""
    return _rows(file, options, Tally() if found is None else found, part or Range.whole(file.segment))


def _rows(file: SegmentFile, options: Options, tally: Tally, part: Range) -> Iterator[Entries]:
    if part.fault is not None:
        tally.damage.append(damage_of_fault(part))
        return
    for chunk in entry_chunks(file, options, tally, payloads=options.check_crcs, part=part):
        entries = chunk.entries
        if part.is_lost:
            yield entries[~entries.is_intact]
        else:
            yield entries[part.counts(entries.base_offset, entries.last_offset)] if part.is_bounded else entries


def entry_chunks(file: SegmentFile, options: Options, found: Tally, *, payloads: bool = True, part: Range | None = None) -> Iterator[Chunk]:
    """Entries of a segment, or of a part of it, chunk by chunk, with the bytes that were checked, or without ``payloads`` only headers.
    Damaged entries are included and have a code. Of the options only ``errors``, ``check_crcs`` and ``chunk_bytes`` are used. The damage
    and the tail that ``errors="skip"`` leaves out are added to ``found``, as by a read of the segment; with ``errors="raise"`` it is a
    CorruptBatchError that the chain of entries is lost."""
    whole = part or Range.whole(file.segment)
    rest: Range | None = whole
    while rest is not None:
        rest = rest_after((yield from _until_trouble(file, rest, options, found, payloads)), file, whole, options.errors, found)


def _until_trouble(
    file: SegmentFile, part: Range, options: Options, tally: Tally, payloads: bool
) -> Generator[Chunk, None, Trouble | None]:
    """Entries up to the end or to the place where the chain is lost. Only checksums reveal a wrong length that leads to another entry."""
    window = options.chunk_bytes if payloads else HEADER_WINDOW
    walk, floor = chunks(file, part.start, part.end, window, payloads=payloads, check_crcs=options.check_crcs), part.floor
    while True:
        try:
            chunk = next(walk)
        except StopIteration as end:
            return at_stop(file, end.value, floor, tally)
        entries, chain = chunk.entries, None
        if file.segment.term is not None:
            entries.leader_epoch = file.segment.term
        if options.check_crcs:
            check(chunk.source.ctypes.data, chunk.origin, entries.array)
        if payloads and options.errors == "skip":
            chain = chain_of(file, chunk, options, floor)
            entries = entries[: len(chain.entries) + (chain.trouble is not None)]
        if len(entries):
            compare_start(file, entries, options.errors, tally)
        if chain is not None:
            tally.damage += chain.damage
        yield replace(chunk, entries=entries)
        options.progress(int(entries.size.sum()))
        if chain is not None and chain.trouble is not None:
            return chain.trouble
        floor = entries.intact().last_known_offset(floor)


def _arrow(parts: list[tuple[str, Entries]], checked: bool) -> pa.Table:
    entries = Entries.joined([part for _, part in parts])
    arrays = {name: _column(entries, column, BATCH_SCHEMA.field(name).type) for name, column in _COLUMNS.items()}
    arrays["segment"] = _paths(parts, len(entries))
    codec = pa.DictionaryArray.from_arrays(numbers(entries.codec, pa.int8(), entries.codec >= len(NAMES)), strings(NAMES))
    arrays["codec"] = codec.cast(pa.string())
    arrays["crcValid"] = flags(entries.is_intact) if checked else pa.nulls(len(entries), pa.bool_())
    arrays["deleteHorizonMs"] = numbers(entries.base_timestamp, pa.int64(), entries.delete_horizon == 0)
    arrays["batchType"] = numbers(entries.batch_type, pa.int8(), entries.batch_type == 0)
    return pa.table([arrays[field.name] for field in BATCH_SCHEMA], schema=BATCH_SCHEMA)


def _paths(parts: list[tuple[str, Entries]], rows: int) -> pa.Array:
    names = list(dict.fromkeys(path for path, _ in parts))
    if len(names) == 1:
        return constant(in_column(names[0]), pa.string(), rows)
    number = {path: i for i, path in enumerate(names)}
    which = np.repeat([number[path] for path, _ in parts], [len(part) for _, part in parts])
    return pa.DictionaryArray.from_arrays(numbers(which, pa.int32()), strings([in_column(name) for name in names])).cast(pa.string())


def _column(entries: Entries, column: int, kind: pa.DataType) -> pa.Array:
    values = entries.array[:, column]
    return flags(values != 0) if pa.types.is_boolean(kind) else numbers(values, kind, values == table.UNKNOWN)


COLUMNS = (
    *("offset", "timestampMs", "timestampType", "key", "value", "headers", "tombstone", "controlType"),
    *("producerId", "producerEpoch", "sequence", "leaderEpoch", "isTransactional", "isControl"),
    *("timestampSeconds", "brokerTimestampMs"),
)
"""Record columns that contain everything that a log stores about a record."""


@dataclass
class Piece:
    """Consecutive intact entries, and the sound records of others if ``errors="skip"`` allows it."""

    entries: Entries
    counts: Int64s  # number of records in each entry
    records: pa.RecordBatch  # all, with the columns that were asked for, by default `COLUMNS`; keys of headers are bytes
    source: Bytes  # bytes of the segment from ``origin`` on, padded
    origin: int
    partial: Flags  # which entries have wrong records beside those that are here: their bytes must not be copied

    @property
    def first(self) -> Int64s:
        """Row of ``records`` at which each entry begins."""
        return np.cumsum(self.counts) - self.counts

    def entry(self, i: int) -> Bytes:
        start = self.entries[i].position - self.origin
        return self.source[start : start + self.entries[i].size]


def pieces(segment: Segment, options: Options, on_damage: OnDamage | None = None, columns: tuple[str, ...] = COLUMNS) -> Iterator[Piece]:
    """Entries of a segment in file order, with some of the `COLUMNS`. Each byte is read once. Limits, checksums and ``errors`` of the
    options count; ranges and columns do not. ``on_damage`` is called with each damaged stretch that ``errors="skip"`` leaves out, as
    `kolumn.verify` finds it, when the segment has been read; else that is an error."""
    tally = Tally()
    for source, origin, entries in intact(segment, options, tally):
        yield from pieces_of(source, origin, entries, segment, options, columns, tally.damage)
    tell(tally, on_damage)


def intact(segment: Segment, options: Options, found: Tally, part: Range | None = None) -> Iterator[tuple[Bytes, int, Entries]]:
    """Entries of a segment, or of a part of it, with right checksums, some at a time: bytes of the segment, the position of the first one,
    and the entries. What ``errors="skip"`` leaves out is added to ``found``."""
    with SegmentFile(segment) as file:
        for chunk in entry_chunks(file, options, found, part=part):
            bad = np.flatnonzero(chunk.entries.code)
            if len(bad) and options.errors == "raise":
                row = chunk.entries[bad[0]]
                start = row.position - chunk.origin
                raise header_error(file.path, row, chunk.source[start : start + row.size])
            for rows in np.split(np.arange(len(chunk.entries)), bad):
                yield chunk.source, chunk.origin, chunk.entries[rows].intact()


def payloads_of_batches(source: Bytes, origin: int, entries: Entries, options: Options) -> Iterator[tuple[Entries, Payloads, Flags]]:
    """The decompressed records of format 2 batches in memory, some batches at a time. Yields copies of the batches, where their records are
    until the next step, and flags of those that can be decompressed and whose count their bytes have room for. It ends before a batch that
    exceeds a limit."""
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
        for damage in sorted(found.damage, key=lambda damage: damage.position):
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
    """As `pieces`, of entries in memory with right checksums; those with wrong contents are added to ``damage``."""
    # Of all records, control records too.
    chosen = replace(
        options, columns=columns, include_control=True, binary="contiguous",
        start_offset=None, end_offset=None, start_timestamp=None, end_timestamp=None,
    )  # fmt: skip
    skip = replace(chosen, errors="skip")
    # Each run costs its users some hundred calls, so one has all entries that the limit of inflated bytes allows.
    for run, some in runs(source, origin, entries, skip, need_key=True, packed_bytes=options.chunk_bytes, in_parts=options.in_parts):
        yield _piece(run, some, source, origin, segment, chosen, damage)


def piece_of(source: Bytes, origin: int, entries: Entries, segment: Segment, options: Options, damage: list[Damage] | None = None) -> Piece:
    """Entries in memory with their records; as `pieces_of`, in one piece."""
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
