"""One chunk of entries: checksums, then what damage means for the chain, then columns."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.backend import opened
from kolumn.cpu_fallback.inflate import Share
from kolumn.cpu_fallback.select import wanted
from kolumn.cpu_fallback.tiles import stream_runs
from kolumn.damage import Damage, Trouble, damage_of
from kolumn.errors import Code
from kolumn.explain import header_error, row_error
from kolumn.formats import table
from kolumn.on_host import HostChunk
from kolumn.options import Options
from kolumn.plan import Chunk
from kolumn.resync import Search
from kolumn.segment_file import SegmentFile

STREAMED_BATCH = 16 << 20
"""Larger batches are loaded first: the stream would hold their bytes twice."""


@dataclass
class Decoded:
    """What a chunk gave.

    Attributes
    ----------
    batches : list of pa.RecordBatch
        Or of `kernels.table.DeviceTable`.
    damage : list of Damage
        Entries that were left out; the chain of entries goes on behind each.
    trouble : Trouble, optional
        Why decoding ended before the chunk did.
    last_offset : int
        Of the last intact entry, -1 without one. (Not the largest: offsets are not under the CRC.)
    undecided : bool
        Nothing was decoded: there is damage before the first intact entry, and what it means depends on the offsets before the chunk.
    intact, records, valid_bytes : int
        Intact entries, the records in those that were decoded, and the bytes of the former.
    inflated_by_cpu : int
        Payloads that the codecs of the CPU inflated for a GPU.
    rest : Chunk, optional
        Entries that are left, since those before took the chunk's share of memory.
    """

    batches: list[pa.RecordBatch] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    trouble: Trouble | None = None
    last_offset: int = -1
    undecided: bool = False
    intact: int = 0
    records: int = 0
    valid_bytes: int = 0
    inflated_by_cpu: int = 0
    rest: Chunk | None = None


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


def before_trouble(file: SegmentFile, chunk: Chunk, rows: Any, options: Options, start: int | None, result: Decoded) -> Any:
    """Rows up to where the chain of entries is lost; damaged entries inside the chain are noted."""
    intact = np.flatnonzero(rows[:, table.CODE] == Code.OK)
    for i in np.flatnonzero(rows[:, table.CODE]):
        row = rows[i]
        before = rows[intact[: np.searchsorted(intact, i)][-1:]]
        if not len(before) and start is None and options.errors == "skip":
            result.undecided = True
            return rows[:0]
        floor = table.last_offset(before, -1 if start is None else start)
        position, size = int(row[table.POSITION]), int(row[table.SIZE])
        source, origin = chunk.bytes_of(file, row)
        error = header_error(file.path, row, source[position - origin :][:size])
        resume, alone = None, True
        if options.errors == "skip":
            search = Search(file)
            resume = search.true_end(position, position + size - 1, floor)
            following = rows[i + 1] if i + 1 < len(rows) and rows[i + 1, table.CODE] == Code.OK else None
            if resume is None and (on := search.after(row, floor, following)) is not None:
                resume, alone = on
                if resume == position + size:
                    result.damage.append(damage_of(row, error, size, floor))
                    continue
        result.trouble = Trouble(position, floor, error, resume, row, alone=alone)
        return rows[:i]
    return rows
