"""Scans that return only some records: columns that decide are decoded of all entries, the others of those that have such records.

    chunks ──▶ columns that decide ──▶ flags ──▶ entries with such records ──▶ all columns ──▶ flags ──▶ records

Entries are decoded as a whole at the end of a range, many at a time, so records of a range come in any order. Where many entries of a chunk
have such a record, that costs more than to decode everything at once, which is done with the chunks after it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Int64s
from kolumn.core.buffers import int64s
from kolumn.core.recycle import take
from kolumn.core.threads import Workers
from kolumn.cpu_fallback.check import gather
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.decode.chunk import Batch, Decoded
from kolumn.decode.host.record_batch import record_batch
from kolumn.decode.host.run import runs
from kolumn.formats.entries import Entries
from kolumn.options import AHEAD, Options
from kolumn.source.segment_file import SegmentFile

_MANY = 1 / 4  # share of the entries of a chunk from which on everything is decoded at once
_TOGETHER = 4 << 20  # bytes of entries that are decoded as a whole by a thread at a time


@dataclass
class Predicate:
    """Which records a scan returns: ``flags`` takes a batch with at least the ``columns`` and says it of each record, without nulls."""

    columns: tuple[str, ...]
    flags: Callable[[pa.RecordBatch], pa.Array]
    is_frequent: bool = False

    def everything(self, options: Options) -> Options:
        """Options to decode what is asked for and what decides."""
        return options.with_added(self.columns)

    def of(self, batch: Batch, options: Options) -> pa.RecordBatch:
        """The records of a batch that are returned, with the columns of the options."""
        assert isinstance(batch, pa.RecordBatch)
        return batch.filter(self.flags(batch)).select(list(options.columns))

    def decoded(self, options: Options, decode: Callable[[Options], Decoded]) -> Decoded:
        """Decode a chunk by ``decode``, which takes other columns; the records that are not returned are counted too."""
        if self.is_frequent:
            done = decode(self.everything(options))
            done.batches = [self.of(batch, options) for batch in done.batches]
            self.is_frequent = sum(batch.num_rows for batch in done.batches) >= _MANY * done.intact
            return done
        done = decode(replace(options, columns=tuple(dict.fromkeys((*self.columns, "position")))))
        done.matching = np.unique(np.concatenate([np.empty(0, np.int64), *map(self._positions, done.batches)]))
        done.batches = []
        self.is_frequent = len(done.matching) > _MANY * done.intact
        return done

    def _positions(self, batch: Batch) -> Int64s:
        assert isinstance(batch, pa.RecordBatch)
        flags = self.flags(batch)
        return int64s(batch["position"].filter(flags)) if flags.true_count else np.empty(0, np.int64)

    def records(self, file: SegmentFile, entries: list[Entries], options: Options, pool: Workers | None) -> Iterator[pa.RecordBatch]:
        """The records of entries that have some, and whose checksums were compared, by threads of the ``pool`` if there is one."""
        rows = Entries.joined(entries)
        cuts = np.flatnonzero(np.diff((np.cumsum(rows.size) - rows.size) // _TOGETHER)) + 1
        parts = (rows[start:stop] for start, stop in pairwise([0, *cuts.tolist(), len(rows)]))
        decode = partial(self._together, file, options=options)
        yield from chain.from_iterable(map(decode, parts) if pool is None else pool.ahead(decode, parts, AHEAD * options.threads))

    def _together(self, file: SegmentFile, entries: Entries, options: Options) -> list[pa.RecordBatch]:
        here = entries.copy()
        window, _ = take(int(here.size.sum()) + PAD)
        data = np.frombuffer(window, np.uint8)
        here.position = np.cumsum(here.size) - here.size
        # Far away, small reads are served from larger ones. A read of what is not there any more is an error.
        read = gather(file.descriptor, entries.array, window.address) if file.is_local else 0
        for start, row in zip(here.position[read:].tolist(), entries[read:], strict=True):
            data[start : start + row.size] = file.read(row.position, row.end)[: row.size]
        every, done, batches = self.everything(options), 0, list[pa.RecordBatch]()
        for run, some in runs(data, 0, here, every, "controlType" in every.columns, in_parts=options.in_parts):
            rows, done = some.copy(), done + len(some)
            rows.position = entries.position[done - len(some) : done]
            batches.append(self.of(record_batch(run, rows, [(file.segment, run.rows)], every), options))
        return batches
