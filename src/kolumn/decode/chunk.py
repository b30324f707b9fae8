"""One chunk of entries: checksums, then what damage means for the chain, then columns."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kolumn.cpu_fallback.inflate.arena import Share
from kolumn.damage.explain import row_error
from kolumn.damage.findings import Trouble, damage_of
from kolumn.decode.backends import opened
from kolumn.decode.chain import before_trouble
from kolumn.decode.host.chunk import HostChunk
from kolumn.decode.host.select import wanted
from kolumn.decode.host.streamed import stream_runs
from kolumn.decode.result import Decoded
from kolumn.errors import Code
from kolumn.formats import table
from kolumn.options import Options
from kolumn.plan.chunks import Chunk
from kolumn.source.segment_file import SegmentFile

STREAMED_BATCH = 16 << 20
"""Larger batches are loaded first: the stream would hold their bytes twice."""


def decode_chunk(file: SegmentFile, chunk: Chunk, options: Options, floor: int | None, alone: bool) -> Decoded:
    """Check and decode the entries of a chunk; runs in any thread.

    ``floor`` is the last offset of the last intact entry before the chunk, -1 for none, None where that is not known yet. Unless the
    chunk is ``alone``, an entry that takes more than its share of memory is left for later.
    """
    backend = opened(options.backend)
    streams = chunk.source is None and backend is HostChunk and int(chunk.rows[: chunk.known, table.SIZE].max()) <= STREAMED_BATCH
    if streams and (result := _streamed(file, chunk, options, alone)) is not None:
        return result
    with backend(file, chunk, options) as held:
        return _by(held, file, chunk, options, floor, alone)


def _streamed(file: SegmentFile, chunk: Chunk, options: Options, alone: bool) -> Decoded | None:
    assert chunk.span is not None
    share = Share(options.inflated_bytes, alone)
    parts, known = stream_runs(file, chunk.rows, chunk.known, chunk.span, options, "controlType" in options.columns, share)
    result = Decoded()
    if known < chunk.known:
        result.rest = chunk.behind(known)
    else:
        chunk.known = known
    if parts is None:
        return None
    for part in parts:
        _give(part.run, part.rows, file, options, result, HostChunk.batch)
    _count(chunk.rows[:known], {}, result)
    return result


def _give(run: Any, rows: Any, file: SegmentFile, options: Options, result: Decoded, make: Callable[..., Any]) -> None:
    result.records += run.rows
    if run.rows:
        batch = make(run, rows, file.segment, options)
        if batch.num_rows:
            result.batches.append(batch)


def _by(backend: Any, file: SegmentFile, chunk: Chunk, options: Options, floor: int | None, alone: bool) -> Decoded:
    result = Decoded()
    rows = chunk.rows[: chunk.known]
    if options.check_crcs:
        backend.check(rows)
    rows = before_trouble(file, chunk, rows, options, floor, result)
    if result.undecided:
        return result
    good = rows[rows[:, table.CODE] == Code.OK]
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


def _cut(chunk: Chunk, good: Any, position: int, result: Decoded) -> Any:
    """Leave what begins at ``position`` or after it for later; the intact entries before it."""
    result.rest = chunk.behind(int(np.searchsorted(chunk.rows[: chunk.known, table.POSITION], position)))
    result.damage = [damage for damage in result.damage if damage.position < position]
    result.trouble = None
    return good[good[:, table.POSITION] < position]


def _set_damage(errors: dict[int, Any], options: Options, result: Decoded) -> None:
    """Entries with a right checksum and wrong contents: the chain holds, they alone are lost."""
    if options.errors == "raise":
        position = min(errors)
        result.trouble = Trouble(position, -1, errors[position][0])
        return
    result.damage += [damage_of(row, error, int(row[table.SIZE]), -1) for error, row in errors.values()]
    result.damage.sort(key=lambda damage: damage.position)


def _count(good: Any, errors: dict[int, Any], result: Decoded) -> None:
    result.intact = len(good) - len(errors)
    result.valid_bytes = int(good[:, table.SIZE].sum() - sum(int(row[table.SIZE]) for _, row in errors.values()))
    result.last_offset = table.last_offset(good, -1)
