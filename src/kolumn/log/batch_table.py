"""The batch table of a segment as an Arrow table."""

from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from kolumn.core.buffers import constant, flags, numbers, strings
from kolumn.core.errors import KolumnError
from kolumn.core.schema import BATCH_SCHEMA
from kolumn.core.text import in_column
from kolumn.cpu_fallback.check.checksums import check
from kolumn.damage.chain import chain_of
from kolumn.damage.findings import Trouble, damage_of_fault
from kolumn.damage.segment_end import at_stop, compare_start, resumed
from kolumn.decode.pipeline import OnDamage
from kolumn.decode.result import Tally
from kolumn.formats import table
from kolumn.formats.codecs.known import NAMES
from kolumn.formats.entries import Entries
from kolumn.log.chunks import HEADER_WINDOW, MOST_ENTRIES, Chunk, chunks
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range

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


def batch_tables(one: Range, options: Options, on_damage: OnDamage | None = None) -> Iterator[pa.Table]:
    """Entries of a range in file order, some thousands at a time; ``on_damage`` is called with damage that ``errors="skip"`` leaves out."""
    for parts in _together(_named_rows([one], options, on_damage)):
        yield _arrow(parts, options.check_crcs)


def batch_table(ranges: Iterable[Range], options: Options, on_damage: OnDamage | None = None) -> pa.Table:
    """Entries of some ranges, as `batch_tables`; small segments share chunks of the table."""
    tables = [_arrow(parts, options.check_crcs) for parts in _together(_named_rows(ranges, options, on_damage))]
    return pa.concat_tables(tables) if tables else BATCH_SCHEMA.empty_table()


def _named_rows(ranges: Iterable[Range], options: Options, on_damage: OnDamage | None) -> Iterator[tuple[str, Entries]]:
    """Path and entries of segments, some entries at a time."""
    for one in ranges:
        if one.fault is not None and options.errors == "raise":
            raise one.fault
        found = Tally(damage=[damage_of_fault(one)] if one.fault is not None else [])
        if one.fault is None:
            with SegmentFile(one.segment) as file:
                for entries in _rows(file, options, found, one):
                    yield file.path, entries
        if on_damage is not None:
            for piece in found.damage:
                on_damage(piece)


def _together(parts: Iterator[tuple[str, Entries]]) -> Iterator[list[tuple[str, Entries]]]:
    """The same entries, some thousands at a time; those before an error are yielded before it is raised."""
    held: list[tuple[str, Entries]] = []
    count = 0
    try:
        for part in parts:
            held.append(part)
            count += len(part[1])
            if count >= MOST_ENTRIES:
                yield held
                held, count = [], 0
    except KolumnError:
        if held:
            yield held
        raise
    if held:
        yield held


def entry_rows(file: SegmentFile, options: Options, part: Range | None = None) -> Iterator[Entries]:
    """Entries as rows of the batch table: int64, shape (n, `table.WIDTH`); of the whole segment by default."""
    yield from _rows(file, options, Tally(), part or Range.whole(file.segment))


def _rows(file: SegmentFile, options: Options, found: Tally, one: Range) -> Iterator[Entries]:
    if one.fault is not None:
        found.damage.append(damage_of_fault(one))
        return
    for chunk in entry_chunks(file, options, found, payloads=options.check_crcs, part=one):
        entries = chunk.entries
        if one.is_lost:
            yield entries[~entries.is_intact]
        else:
            yield entries[one.counts(entries.base_offset, entries.last_offset)] if one.is_bounded else entries


def entry_chunks(file: SegmentFile, options: Options, found: Tally, *, payloads: bool = True, part: Range | None = None) -> Iterator[Chunk]:
    """Entries of a segment chunk by chunk, with the bytes that were checked. Damaged entries are included and have a code.

    Parameters
    ----------
    file : SegmentFile
    options : Options
        Only ``errors``, ``check_crcs`` and ``chunk_bytes`` are used.
    found : Tally
        The damage and the tail that ``errors="skip"`` leaves out are added to it, as by a read of the segment.
    payloads : bool
        Load whole entries; without it, only their headers.
    part : Range, optional
        Range of the segment; by default all of it.

    Raises
    ------
    CorruptBatchError
        The chain of entries is lost, with ``errors="raise"``.
    """
    one = part or Range.whole(file.segment)
    yield from resumed(file, one, options.errors, found, lambda rest: _until_trouble(file, rest, options, found, payloads))


def _until_trouble(file: SegmentFile, one: Range, options: Options, tally: Tally, payloads: bool) -> Generator[Chunk, None, Trouble | None]:
    """Entries up to the end or to the place where the chain is lost. Only checksums reveal a wrong length that leads to another entry."""
    window = options.chunk_bytes if payloads else HEADER_WINDOW
    walk, floor = chunks(file, one.start, one.end, window, payloads=payloads, check_crcs=options.check_crcs), one.floor
    while True:
        try:
            chunk = next(walk)
        except StopIteration as end:
            return at_stop(file, end.value, floor, tally)
        entries, chain = chunk.entries, None
        if options.check_crcs:
            check(chunk.source.ctypes.data, chunk.origin, entries.array)
        if payloads and options.errors == "skip":
            chain = chain_of(file, chunk, options, floor)
            entries = entries[: len(chain.entries) + (chain.trouble is not None)]
        if len(entries):
            compare_start(file, entries[0], options.errors, tally)
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
