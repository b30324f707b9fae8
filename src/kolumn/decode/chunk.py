"""Decoding one chunk of entries: checksums, then the effect of damage on the chain, then columns."""

import numpy as np

from kolumn.core.errors import CorruptBatchError
from kolumn.damage.chain import Floor, chain_of
from kolumn.damage.explain import row_error
from kolumn.damage.findings import Lost, Trouble, WrongChecksumsError, damage_of
from kolumn.decode.decoder import ChunkDecoder, DecodedPart, opened
from kolumn.decode.host.record_batch import HostPart
from kolumn.decode.host.run import wanted
from kolumn.decode.host.streamed import Streamed
from kolumn.decode.observed import Observed
from kolumn.decode.result import Decoded
from kolumn.formats import table
from kolumn.formats.entries import Entry
from kolumn.log.chunks import Chunk, Reached
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.values.stage import typed_batch

_Wrong = dict[int, tuple[CorruptBatchError, Entry, Lost | None]]
"""What is wrong with the contents of entries, by position, and what of them is lost if the rest is not."""


def decode_chunk(
    file: SegmentFile, chunk: Chunk, options: Options, floor: int | Floor, *, alone: bool, backend: type[ChunkDecoder] | None = None
) -> Decoded:
    """Check and decode the entries of a chunk; runs in any thread.

    ``floor`` is the last offset of the last intact entry before the chunk, -1 without one. Unless the chunk is ``alone``, an entry
    that needs more than its share of memory is left for later. ``backend`` is that of the options, if it is known.
    """
    backend = backend or opened(options.backend)
    stored = options.stored if options.typed else options
    streamed = backend.streamed(file, chunk, stored, alone)
    if streamed is not None and not streamed.is_wrong:
        return _of_streamed(file, chunk, streamed, options, stored)
    if streamed is not None:
        chunk = chunk.reaching(streamed.entries)
    with backend(file, chunk, stored) as held:
        if options.check_crcs:
            held.check(chunk.entries)
        try:
            return _by(held, file, chunk, options, floor, alone)
        except WrongChecksumsError:
            return _by(held, file, chunk, options, floor, alone)


def _of_streamed(file: SegmentFile, chunk: Chunk, streamed: Streamed, options: Options, stored: Options) -> Decoded:
    rows = streamed.entries.array
    count, known = len(rows), len(chunk.entries.array)
    result = Decoded(Reached(0), rest=streamed.rest)
    if streamed.intact is None and count < known:
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
    return result


def _give(part: DecodedPart, file: SegmentFile, options: Options, stored: Options, result: Decoded) -> None:
    rows = part.run.rows
    result.records += rows
    if options.remarks and isinstance(part, HostPart):
        result.observed.append(Observed(part.run, part.entries))
    if rows:
        batch = part.batch(file.segment, stored)
        if batch.num_rows:
            result.batches.append(typed_batch(batch, options.columns, options.typed) if options.typed else batch)


def _by(backend: ChunkDecoder, file: SegmentFile, chunk: Chunk, options: Options, floor: int | Floor, alone: bool) -> Decoded:
    chain = chain_of(file, chunk, options, floor)
    result = Decoded(Reached(chunk.end), damage=chain.damage, trouble=chain.trouble, undecided=chain.undecided)
    if chain.undecided:
        return result
    good = chain.entries.intact()
    asked = wanted(good, options)
    # Decoding sets codes: in a copy, which is made at the speed of memory where all entries are taken.
    taken = good.copy() if asked.all() else good[asked]
    errors: _Wrong = {}
    done = inflated = 0
    for part in backend.runs(taken, "controlType" in options.columns, alone):
        run, entries = part.run, part.entries
        done, inflated = done + len(entries), inflated + run.bytes
        for i in np.flatnonzero(entries.code):
            row = entries[i].copy()
            errors[row.position] = row_error(file.path, row, None, run.found.get(int(i), "")), row, run.lost.get(int(i))
        _give(part, file, options, options.stored, result)
        # The next run is likely to be as large as this one.
        if (errors and options.errors == "raise") or inflated + run.bytes > options.inflated_bytes:
            break
    if done < len(taken) and not (errors and options.errors == "raise"):
        position = taken[done].position
        result.rest = chunk.after(int(np.searchsorted(chunk.entries.position, position)))
        result.damage = [damage for damage in result.damage if damage.position < position]
        result.trouble, good = None, good[good.position < position]
    result.intact = len(good) - len(errors)
    result.valid_bytes = int(good.size.sum() - sum(row.size for _, row, _ in errors.values()))
    result.last_offset = good.last_known_offset(-1)
    result.inflated_by_cpu = backend.inflated_by_cpu
    if errors:
        _set_damage(errors, options, result)
    return result


def _set_damage(errors: _Wrong, options: Options, result: Decoded) -> None:
    """Record damage of entries with a right checksum and wrong contents: the chain continues, nothing else is lost."""
    if options.errors == "raise":
        position = min(errors)
        result.trouble = Trouble(position, -1, errors[position][0])
        return
    result.damage += [damage_of(row, error, row.size, -1, part=part) for error, row, part in errors.values()]
    result.damage.sort(key=lambda damage: damage.position)
