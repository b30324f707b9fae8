"""Decoding one chunk of entries: checksums, then the effect of damage on the chain, then columns."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kolumn.arrays import Rows
from kolumn.cpu_fallback.inflate.arena import Share
from kolumn.damage.explain import row_error
from kolumn.damage.findings import Trouble, damage_of
from kolumn.decode.backends import opened
from kolumn.decode.chain import Floor, chain_of
from kolumn.decode.host.chunk import HostChunk
from kolumn.decode.host.select import wanted
from kolumn.decode.host.streamed import Streamed, stream_runs
from kolumn.decode.result import Decoded
from kolumn.errors import Code
from kolumn.formats import table
from kolumn.options import Options
from kolumn.plan.chunks import Chunk
from kolumn.source.segment_file import SegmentFile

STREAMED_BATCH = 16 << 20
"""Larger batches are loaded first: streaming would keep their bytes in memory twice."""


def decode_chunk(file: SegmentFile, chunk: Chunk, options: Options, floor: int | Floor, alone: bool) -> Decoded:
    """Check and decode the entries of a chunk; runs in any thread.

    ``floor`` is the last offset of the last intact entry before the chunk, -1 without one. Unless the chunk is ``alone``, an entry
    that needs more than its share of memory is left for later.
    """
    backend = opened(options.backend)
    if chunk.is_unread and backend is HostChunk and int(chunk.rows[:, table.SIZE].max()) <= STREAMED_BATCH:
        assert chunk.span is not None
        share = Share(options.inflated_bytes, alone)
        streamed = stream_runs(file, chunk.rows, chunk.span, options, "controlType" in options.columns, share)
        if not streamed.is_wrong:
            return _of_streamed(file, chunk, streamed, options)
        chunk = chunk.reaching(streamed.rows)
    with backend(file, chunk, options) as held:
        return _by(held, file, chunk, options, floor, alone)


def _of_streamed(file: SegmentFile, chunk: Chunk, streamed: Streamed, options: Options) -> Decoded:
    result = Decoded(chunk.reaching(streamed.rows).end)
    if len(streamed.rows) < len(chunk.rows):
        result.rest = chunk.after(len(streamed.rows))
    for part in streamed.parts:
        _give(part.run, part.rows, file, options, result, HostChunk.batch)
    _count(streamed.rows, {}, result)
    return result


def _give(run: Any, rows: Rows, file: SegmentFile, options: Options, result: Decoded, make: Callable[..., Any]) -> None:
    result.records += run.rows
    if run.rows:
        batch = make(run, rows, file.segment, options)
        if batch.num_rows:
            result.batches.append(batch)


def _by(backend: Any, file: SegmentFile, chunk: Chunk, options: Options, floor: int | Floor, alone: bool) -> Decoded:
    if options.check_crcs:
        backend.check(chunk.rows)
    chain = chain_of(file, chunk, options, floor)
    result = Decoded(chunk.end, damage=chain.damage, trouble=chain.trouble, undecided=chain.undecided)
    if chain.undecided:
        return result
    good = chain.rows[chain.rows[:, table.CODE] == Code.OK]
    taken = good[wanted(good, options)]
    errors: dict[int, Any] = {}
    done = inflated = 0
    for run, run_rows in backend.runs(taken, "controlType" in options.columns, alone):
        done, inflated = done + len(run_rows), inflated + run.bytes
        for i in np.flatnonzero(run_rows[:, table.CODE]):
            row = run_rows[i].copy()
            errors[int(row[table.POSITION])] = row_error(file.path, row, None, run.found.get(int(i), "")), row
        _give(run, run_rows, file, options, result, backend.batch)
        if (errors and options.errors == "raise") or inflated >= options.inflated_bytes:
            break
    if done < len(taken) and not (errors and options.errors == "raise"):
        good = _cut(chunk, good, int(taken[done, table.POSITION]), result)
    _count(good, errors, result)
    result.inflated_by_cpu = backend.inflated_by_cpu
    if errors:
        _set_damage(errors, options, result)
    return result


def _cut(chunk: Chunk, good: Rows, position: int, result: Decoded) -> Any:
    """Leave entries at ``position`` and after it for later; returns the intact entries before it."""
    result.rest = chunk.after(int(np.searchsorted(chunk.rows[:, table.POSITION], position)))
    result.damage = [damage for damage in result.damage if damage.position < position]
    result.trouble = None
    return good[good[:, table.POSITION] < position]


def _set_damage(errors: dict[int, Any], options: Options, result: Decoded) -> None:
    """Record damage of entries with a right checksum and wrong contents: the chain continues, only these entries are lost."""
    if options.errors == "raise":
        position = min(errors)
        result.trouble = Trouble(position, -1, errors[position][0])
        return
    result.damage += [damage_of(row, error, int(row[table.SIZE]), -1) for error, row in errors.values()]
    result.damage.sort(key=lambda damage: damage.position)


def _count(good: Rows, errors: dict[int, Any], result: Decoded) -> None:
    result.intact = len(good) - len(errors)
    result.valid_bytes = int(good[:, table.SIZE].sum() - sum(int(row[table.SIZE]) for _, row in errors.values()))
    result.last_offset = table.last_offset(good, -1)
