"""One pass over the records of a source, and one over its headers: everything that a report shows, in bounded memory.

What other codecs and batch sizes would save: a sample of the records, written with each of them.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.backend import require
from kolumn.core import keywords
from kolumn.core.errors import shown
from kolumn.damage.findings import Damage, Skipped
from kolumn.damage.remarks import Remark
from kolumn.decode.pipeline import scan_ranges
from kolumn.decode.result import Tally
from kolumn.log.aborted import Transactions
from kolumn.log.transactions import with_transactions
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.source.segments import Range
from kolumn.tools.report.tallies import (
    TOPIC,
    HeaderStatistics,
    Keys,
    Lag,
    Offsets,
    Powers,
    Timeline,
    TransactionStatistics,
    add_headers,
    has_transactions,
    lag_of,
)
from kolumn.tools.statistics import STATISTICS, Totals
from kolumn.writers.write import write

MOST_BYTES, MOST_BYTES_OF_ONE = 16 << 20, 4 << 20
"""Of all partitions, and of one."""
CODECS: tuple[keywords.Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
BATCHES = (16 << 10, 128 << 10, 1 << 20)
"""The default of Kafka's producer, 128 KiB, and 1 MiB."""
COLUMNS = ("key", "value", "headers", "timestampMs")


@dataclass
class Sample:
    """The first records of each partition, of ``partitions`` partitions; ``bytes`` are those of keys, values and headers."""

    parts: list[pa.Table] = field(default_factory=list)
    bytes: int = 0
    partitions: int = 0

    def add(self, batch: pa.RecordBatch, begun: int) -> int:
        """Add the first records of a batch, unless there are enough. Returns how many bytes of this partition there are then."""
        room = min(MOST_BYTES - self.bytes, MOST_BYTES_OF_ONE - begun)
        if room <= 0 or not batch.num_rows:
            return begun
        rows = max(1, min(batch.num_rows, batch.num_rows * room // max(batch.nbytes, 1)))
        # A slice would keep all of the batch in memory.
        part = pa.table(batch.slice(0, rows).select(list(COLUMNS))).take(pa.array(range(rows), pa.int64()))
        self.parts.append(part)
        self.partitions += not begun
        self.bytes += part.nbytes
        return begun + part.nbytes

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(part.num_rows for part in self.parts)

    def table(self) -> pa.Table:
        """The records as one table."""
        return pa.concat_tables(self.parts).combine_chunks()

    def written(self) -> Iterator[tuple[str, int, int]]:
        """Codec, largest batch, and stored bytes of the sample; offsets are counted from 0."""
        whole = self.table()
        for codec in CODECS:
            for batch_bytes in BATCHES:
                with tempfile.TemporaryDirectory(prefix="kolumn-sample-") as folder:
                    path = Path(folder, "sample.log")
                    write(whole, path, codec=codec, batch_bytes=batch_bytes)
                    yield codec, batch_bytes, path.stat().st_size


_COLUMNS = (*STATISTICS, "headers", "isTransactional", "isControl", "controlType")
_MOST_REMARKS = 1000
_MOST_TIMELINES = 50
_SMALL_BYTES = 1 << 20


@dataclass
class Findings:
    """What a report shows. Dictionaries by topic and partition unless said otherwise.

    At most 1000 ``remarks``; ``left_out`` are rows of `schema.LEFT_OUT_SCHEMA`. ``damaged_sizes`` are sizes of the segments with damage, by
    path. ``tails`` counts active segments that end with "zeros" or are "truncated", which is normal. ``timelines`` are by topic, of at most
    50 topics; the others together are None, as are records of which no topic is known. ``lateness``: how many ms the timestamp of a record
    is before the latest one before it in its partition; 0: in order. ``late``: how many records are late, and by how many ms at most.
    ``untimed`` records have no timestamp, those ``ahead`` one later than the moment of the report. ``payloads``: bytes of keys and values
    by codec. ``states``: records by the state of their transaction; ``controls``: control records. ``lag`` is None if `__consumer_offsets`
    is not in the source.
    """

    totals: dict[tuple[str | None, int | None], Totals] = field(default_factory=dict)
    segments: int = 0
    skipped: Skipped = field(default_factory=Skipped)
    damaged_sizes: dict[str, int] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)
    left_out: list[dict[str, Any]] = field(default_factory=list)
    tails: Counter[str] = field(default_factory=Counter)
    headers: HeaderStatistics = field(default_factory=HeaderStatistics)
    offsets: dict[tuple[str | None, int | None], Offsets] = field(default_factory=dict)
    timelines: dict[str | None, Timeline] = field(default_factory=dict)
    lateness: Powers = field(default_factory=Powers)
    late: dict[tuple[str | None, int | None], tuple[int, int]] = field(default_factory=dict)
    untimed: int = 0
    ahead: int = 0
    payloads: Counter[str] = field(default_factory=Counter)
    keys: Keys = field(default_factory=Keys)
    transactions: TransactionStatistics = field(default_factory=TransactionStatistics)
    states: Counter[str] = field(default_factory=Counter)
    controls: Counter[tuple[str | None, int | None]] = field(default_factory=Counter)
    lag: Lag | None = None
    sample: Sample = field(default_factory=Sample)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of `kolumn stats`."""
        return [total.row(*name) for name, total in self.totals.items()]


def gather(source: keywords.Source, **options: Unpack[keywords.ReadOptions]) -> Findings:
    """Read a source once, and its headers twice more; options as `kolumn.scan`. Damage is left out and noted.

    Memory does not depend on the size of the source: sums, sketches, at most 51 times 32,768 bins of time, and a sample of 16 MiB.
    """
    chosen = replace(Options.of(**options), columns=_COLUMNS, include_control=True, errors="skip")
    require(chosen.backend)
    found = Findings()
    parts: dict[tuple[str | None, int | None], _Part] = {}
    segments: set[str] = set()
    quiet = Options(columns=_COLUMNS, errors="skip", format=chosen.format, check_crcs=False)
    live = live_segments(source, chosen)
    found.left_out = live.left_out().to_pylist()
    for one in live.whole_ranges():
        name = one.segment.topic, one.segment.partition
        part = parts.get(name) or parts.setdefault(name, _Part(found, name))
        damage = part.read(one, one.segment.path not in segments, chosen, has_transactions(one, quiet))
        add_headers(one, quiet, damage, found.headers, part.offsets)
        segments.add(one.segment.path)
    for part in parts.values():
        part.close()
    found.segments = len(segments)
    if any(name == TOPIC for name, _ in parts):
        found.lag = lag_of(source)
    return found


class _Part:
    """One partition, while it is read."""

    def __init__(self, found: Findings, name: tuple[str | None, int | None]) -> None:
        self._found, self._name = found, name
        self._total = found.totals.setdefault(name, Totals())
        self.offsets = found.offsets.setdefault(name, Offsets())
        self._latest, self._now = -1, time.time_ns() // 1_000_000
        self._sampled = 0
        self._known: Transactions | None = None
        self._transactions = TransactionStatistics(found.transactions.counts, found.transactions.found)

    def read(self, one: Range, is_new: bool, options: Options, has_transactions: bool) -> list[Damage]:
        """Read a range. Returns its damage."""
        total, found, before = self._total, self._found, len(self._found.skipped.damage)
        total.segments += is_new
        total.bytes += one.end - one.start
        ranges = [one]
        if one.end - one.start <= _SMALL_BYTES:
            # To start threads takes longer than to decode so few bytes, and there may be thousands of such partitions.
            options = replace(options, threads=1)
        if has_transactions:
            options = options.with_columns((*_COLUMNS, "transaction"))
            if self._known is not None and one.transactions is None:
                ranges = [replace(one, transactions=self._known)]
            ranges = with_transactions(ranges, options)
            self._known = ranges[0].transactions
        for batch in scan_ranges(ranges, options, found.skipped, tally=self._tally):
            self._add(batch)
        return found.skipped.damage[before:]

    def close(self) -> None:
        """The end of the partition."""
        self._transactions.close(self._label)
        own, records = self.offsets, self._total.offsets
        if own.first is not None and own.last is not None and records:
            # Headers of formats 0 and 1 do not have the offset of the first record.
            own.first, own.last = min(own.first, records[0]), max(own.last, records[1])

    @property
    def _label(self) -> str:
        topic, partition = self._name
        return "?" if topic is None else f"{shown(topic)}-{partition}"

    def _tally(self, one: Range, tally: Tally) -> None:
        self._total.batches += tally.batches
        for piece in tally.damage:
            self._total.skipped(piece)
            self._found.damaged_sizes[piece.segment] = one.segment.size
        room = _MOST_REMARKS - len(self._found.remarks)
        self._found.remarks += tally.remarks[: max(room, 0)]
        if tally.tail:
            self._found.tails[tally.tail] += 1

    def _add(self, batch: pa.RecordBatch) -> None:
        found = self._found
        if "transaction" in batch.schema.names or batch["isControl"].true_count:
            self._transactions.add(batch, self._label)
            data = batch.filter(pc.invert(batch["isControl"]))
            found.controls[self._name] += batch.num_rows - data.num_rows
            batch = data
        if "transaction" in batch.schema.names:
            found.states.update({one["values"]: one["counts"] for one in pc.value_counts(batch["transaction"]).to_pylist()})
        self._total.add(batch)
        found.keys.add(batch["key"])
        self._sampled = found.sample.add(batch, self._sampled)
        self._add_times(batch)

    def _add_times(self, batch: pa.RecordBatch) -> None:
        found, times = self._found, batch["timestampMs"].to_numpy(zero_copy_only=False)
        sizes = sum(
            pc.fill_null(pc.binary_length(batch[name]), 0).to_numpy(zero_copy_only=False).astype(np.int64) for name in ("key", "value")
        )
        for one in pc.unique(batch["codec"]).to_pylist():
            found.payloads[one] += int(sizes[pc.equal(batch["codec"], one).to_numpy(zero_copy_only=False)].sum())
        timed = times >= 0
        found.untimed += int((~timed).sum())
        if not timed.all():
            times, sizes = times[timed], sizes[timed]
        if not len(times):
            return
        topic = self._name[0]
        if topic not in found.timelines and len(found.timelines) >= _MOST_TIMELINES:
            topic = None
        found.timelines.setdefault(topic, Timeline()).add(times, sizes)
        found.ahead += int((times > self._now).sum())
        latest = np.maximum.accumulate(np.concatenate([[self._latest], times]))
        late = np.maximum(latest[:-1] - times, 0)
        found.lateness.add(late, np.zeros(len(times), np.int64))
        count, most = found.late.get(self._name, (0, 0))
        found.late[self._name] = count + int((late > 0).sum()), max(most, int(late.max()))
        self._latest = int(latest[-1])


def total(found: Findings, of: Callable[[Totals], int]) -> int:
    """A sum over all partitions."""
    return sum(map(of, found.totals.values()))
