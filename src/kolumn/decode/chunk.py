"""Decoding one chunk of entries: checksums, then the effect of damage on the chain, then columns; and how a backend does it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import starmap
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
import pyarrow as pa

from kolumn.backend import RESIDENT, require
from kolumn.core.arrays import Int64s
from kolumn.core.errors import CorruptBatchError
from kolumn.core.paths import MESSAGES, STREAMED, turned_off
from kolumn.cpu_fallback.check import check
from kolumn.cpu_fallback.inflate.arena import Share
from kolumn.cpu_fallback.stream import Span
from kolumn.damage.findings import Damage, Trouble, damage_of, row_error
from kolumn.damage.search import Floor, chain_of
from kolumn.decode.host.aborted import Transactions, to_decode
from kolumn.decode.host.chunks import Chunk, Reached, WrongChecksumsError
from kolumn.decode.host.record_batch import HostPart, record_batch
from kolumn.decode.host.run import runs, wanted
from kolumn.decode.host.streamed import Streamed, stream_message_runs, stream_runs
from kolumn.decode.observed import Observed
from kolumn.decode.other_types import OtherTypes
from kolumn.formats import layouts, legacy, table
from kolumn.formats.entries import Entries, Entry, Lost
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.values.typed import typed_batch

if TYPE_CHECKING:
    from kolumn.decode.device.chunk import DeviceChunk
    from kolumn.decode.device.resident import ResidentChunk, ResidentPart
    from kolumn.kernels.columns.table import DeviceTable

STREAMED_BATCH = 16 << 20  # larger batches are loaded first: streaming would keep their bytes in memory twice

Batch: TypeAlias = "pa.RecordBatch | DeviceTable"
"""Records of a chunk in columns: in host memory, or on the device if the options are `device.resident.ResidentOptions`."""
_Wrong = dict[int, tuple[CorruptBatchError, Entry, Lost | None]]
"""What is wrong with the contents of entries, by position, and what of them is lost if the rest is not."""


class HostChunk:
    """A chunk on the CPU: bytes of a segment in host memory. What a GPU has for it has the same methods and attributes.

    The bytes are loaded while the context lasts. ``inflated_by_cpu`` counts the payloads so far that codecs of the CPU decompressed for a
    GPU.
    """

    on_gpu = False
    inflated_by_cpu = 0

    def __init__(self, file: SegmentFile, chunk: Chunk, options: Options) -> None:
        self.source, self.origin, self.options = chunk.loaded(file).source, chunk.origin, options

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    @staticmethod
    def streamed(file: SegmentFile, chunk: Chunk, options: Options, alone: bool) -> Streamed | None:
        """All of the chunk in one pass, without its bytes in memory as a whole; None if this backend, or this chunk, does not allow it.

        Allowed are chunks whose bytes were not read, unless they have very large batches, and those of a file far away, whose bytes were
        read, if all entries are of format 2: columns are then made in one pass too.
        """
        entries, first = chunk.entries, chunk.entries.array[0].tolist()
        path = STREAMED if first[table.LAYOUT] in layouts.STREAMED_LAYOUTS else MESSAGES
        if path in turned_off():
            return None
        need_key, share = "controlType" in options.columns, Share(options.inflated_bytes, alone)
        if chunk.span is None:
            if file.is_local or options.binary == "view" or "headers" in options.columns or STREAMED in turned_off():
                return None
            if not layouts.among(entries.layout, layouts.STREAMED_LAYOUTS).all() or int(entries.size.max()) > STREAMED_BATCH:
                return None
            span = Span(chunk.end, chunk.end, float(options.chunk_bytes), file.sizes.inflates, file.format)
            return stream_runs(file, entries, span, options, need_key, share, chunk.origin - chunk.source.ctypes.data)
        if first[table.LAYOUT] == legacy.LAYOUT.number:
            return stream_message_runs(file, chunk, options, need_key, share)
        if entries.array[:, table.SIZE].max() > STREAMED_BATCH:
            return None
        return stream_runs(file, entries, chunk.span, options, need_key, share)

    @staticmethod
    def settled(options: Options, transactions: Transactions) -> tuple[Options, Transactions | None]:
        """Options for the chunks of a partition, and its transactions if its batches are to be settled on the host."""
        return to_decode(options, transactions), transactions

    def check(self, entries: Entries) -> None:
        """Set BAD_CRC in every entry without a code whose checksum differs from its bytes; `runs` may do it, and raises then."""
        check(self.source.ctypes.data, self.origin, entries.array)

    def runs(self, entries: Entries, need_key: bool, alone: bool = True) -> Iterator[HostPart]:
        """Decode entries, some at a time; damaged ones get a code.

        Keys are decoded with ``need_key`` even if no column holds them. Unless the chunk is ``alone``, it ends before an entry that
        needs more than a chunk's share of memory. Raises `WrongChecksumsError` if a checksum is wrong that `check` left for later: nothing
        was given before, and a second call does not raise it.
        """
        share = Share(self.options.inflated_bytes, alone)
        return starmap(HostPart, runs(self.source, self.origin, entries, self.options, need_key, share, in_parts=self.options.in_parts))


Decoder: TypeAlias = "type[HostChunk | DeviceChunk | ResidentChunk]"


def decoder_of(backend: str) -> Decoder:
    """Class of the chunks of a backend, which must be there: errors as those of `kolumn.backend.require`."""
    if require(backend) != "gpu":
        return HostChunk
    # Only here: most processes have no GPU.
    from kolumn.decode.device.chunk import DeviceChunk
    from kolumn.decode.device.resident import ResidentChunk

    return ResidentChunk if backend == RESIDENT else DeviceChunk


@dataclass
class Decoded:
    """Result of decoding a chunk."""

    reached: Reached  # where the chunk ends, including entries that the decoder found itself: the plan continues there
    batches: list[Batch] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)  # entries that were left out; the chain of entries continues after each
    trouble: Trouble | None = None  # why decoding ended before the chunk did
    last_offset: int = -1  # of the last intact entry, -1 without one; it need not be the largest: offsets are not under the CRC
    undecided: bool = False
    """Nothing was decoded: there is damage before the first intact entry, which cannot be judged without the offsets before the chunk."""
    intact: int = 0  # number of intact entries, of which the bytes are; records are those of the decoded ones
    records: int = 0
    valid_bytes: int = 0
    inflated_by_cpu: int = 0
    rest: Chunk | None = None  # what is left for later, since the entries before it used the chunk's share of memory
    # The decoded runs, and Redpanda's batches without records of clients, if the options ask for remarks.
    observed: list[Observed | OtherTypes] = field(default_factory=list)
    entries: Entries | None = None  # those that were decoded and maybe others; None if rows stand for several messages
    framed: Entries | None = None  # all whose headers were read, damaged ones too, where the entries have raw offsets
    matching: Int64s | None = None  # positions of entries that are to be decoded as a whole (`kolumn.decode.predicate`)


def decode_chunk(
    file: SegmentFile, chunk: Chunk, options: Options, floor: int | Floor, *, alone: bool, backend: "Decoder | None" = None
) -> Decoded:
    """Check and decode the entries of a chunk; runs in any thread.

    ``floor`` is the last offset of the last intact entry before the chunk, -1 without one. Unless the chunk is ``alone``, an entry
    that needs more than its share of memory is left for later. ``backend`` is that of the options, if it is known.
    """
    backend = backend or decoder_of(options.backend)
    stored = options.stored if options.typed else options
    streamed = backend.streamed(file, chunk, stored, alone)
    if streamed is not None and not streamed.is_wrong:
        return _of_streamed(file, chunk, streamed, options, stored)
    if streamed is not None:
        chunk = chunk.reaching(streamed.entries)
    with backend(file, chunk, stored) as decoder:
        if options.check_crcs:
            decoder.check(chunk.entries)
        try:
            return _by(decoder, file, chunk, options, floor, alone)
        except WrongChecksumsError:
            return _by(decoder, file, chunk, options, floor, alone)


def _of_streamed(file: SegmentFile, chunk: Chunk, streamed: Streamed, options: Options, stored: Options) -> Decoded:
    rows = streamed.entries.array
    count, known = len(rows), len(chunk.entries.array)
    result = Decoded(Reached(0), rest=streamed.rest)
    if streamed.intact is None:
        result.entries = result.framed = streamed.entries
        if count < known:
            result.rest = chunk.after(count)
    for part in streamed.parts:
        _give(part, file, options, stored, result)
    if count:
        # They follow one another, so no column of the batch table has to be added up.
        first, last = rows[0].tolist(), rows[-1].tolist()
        end = last[table.POSITION] + last[table.SIZE]
        result.valid_bytes = end - first[table.POSITION]
        result.last_offset = last[table.BASE_OFFSET] if last[table.LAST_OFFSET] == table.UNKNOWN else last[table.LAST_OFFSET]
    if streamed.reached is not None:
        result.reached = Reached(streamed.reached)
    else:
        result.reached = Reached(end, streamed.following) if count >= known else Reached(chunk.end)
    result.intact = count if streamed.intact is None else streamed.intact
    if file.segment.format in layouts.RAW:
        _note_other_types(streamed.entries, file, options, result)
    return result


def _note_other_types(entries: Entries, file: SegmentFile, options: Options, result: Decoded) -> None:
    """Note Redpanda's batches that hold no records of clients, or warn of those that a caller has to know of."""
    other = OtherTypes.among(entries)
    if other is not None and options.remarks:
        result.observed.append(other)
    elif other is not None:
        other.tell(file.path)


def _give(part: "HostPart | ResidentPart", file: SegmentFile, options: Options, stored: Options, result: Decoded) -> None:
    batch: Batch
    if isinstance(part, HostPart):
        rows = part.run.columns.rows
        if options.remarks:
            result.observed.append(Observed(part.run, part.entries))
        batch = record_batch(part.run, part.entries, [(file.segment, rows)], stored) if rows else None
    else:
        rows = part.run.rows
        batch = part.batch(file.segment, stored) if rows else None
    result.records += rows
    if batch is not None and batch.num_rows:
        result.batches.append(typed_batch(batch, options.columns, options.typed) if options.typed else batch)


def _by(
    decoder: "HostChunk | DeviceChunk | ResidentChunk", file: SegmentFile, chunk: Chunk, options: Options, floor: int | Floor, alone: bool
) -> Decoded:
    chain = chain_of(file, chunk, options, floor)
    result = Decoded(Reached(chunk.end), damage=chain.damage, trouble=chain.trouble, undecided=chain.undecided)
    if chain.undecided:
        return result
    good, raises = chain.entries.intact(), options.errors == "raise"
    result.entries, result.framed = good, chain.entries
    asked = wanted(good, options)
    # Decoding sets codes: in a copy, which is made at the speed of memory where all entries are taken.
    taken = good.copy() if asked.all() else good[asked]
    errors: _Wrong = {}
    done = inflated = 0
    for part in decoder.runs(taken, "controlType" in options.columns, alone):
        run, entries = part.run, part.entries
        done, inflated = done + len(entries), inflated + run.bytes
        for i in np.flatnonzero(entries.code):
            row = entries[i].copy()
            errors[row.position] = row_error(file.path, row, None, run.found.get(int(i), "")), row, run.lost.get(int(i))
        _give(part, file, options, options.stored, result)
        # The next run is likely to be as large as this one.
        if (errors and raises) or inflated + run.bytes > options.inflated_bytes:
            break
    if done < len(taken) and not (errors and raises):
        position = taken[done].position
        result.rest = chunk.after(int(np.searchsorted(chunk.entries.position, position)))
        result.damage = [damage for damage in result.damage if damage.position < position]
        result.trouble, good = None, good[good.position < position]
        result.framed = chain.entries[chain.entries.position < position]
    result.intact = len(good) - len(errors)
    result.valid_bytes = int(good.size.sum() - sum(row.size for _, row, _ in errors.values()))
    result.last_offset = good.last_known_offset(-1)
    if file.segment.format in layouts.RAW:
        _note_other_types(good, file, options, result)
    result.inflated_by_cpu = decoder.inflated_by_cpu
    # Of entries with a right checksum and wrong contents nothing else is lost: the chain continues after them.
    if errors and raises:
        position = min(errors)
        result.trouble = Trouble(position, -1, errors[position][0])
    elif errors:
        result.damage += [damage_of(row, error, row.size, -1, part=lost) for error, row, lost in errors.values()]
        result.damage.sort(key=lambda damage: damage.position)
    return result
