"""One pass over the records of a source, and one over its headers: everything that a report shows, in bounded memory.

A sample of the records is written with other codecs and batch sizes, to tell what these would save.
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
from kolumn.copies.transactions import with_transactions
from kolumn.core import keywords
from kolumn.core.errors import shown
from kolumn.damage.findings import Damage, Remark, Skipped, Tally
from kolumn.damage.stopped import StoppedAt, joined
from kolumn.decode.host.aborted import Transactions
from kolumn.decode.pipeline import scan_ranges
from kolumn.decode.stops import stops
from kolumn.formats import layouts
from kolumn.options import Options
from kolumn.readers.lost_values import ValueLosses
from kolumn.readers.plan import live_segments
from kolumn.readers.topics import types_by_topic
from kolumn.source.segments import Range
from kolumn.tools.auditing.audit import Audit, audit
from kolumn.tools.coordinators import OFFSETS_TOPIC
from kolumn.tools.report import tallies
from kolumn.tools.report.tallies import HeaderStatistics, Keys, Lag, Offsets, Powers, Timeline, TransactionStatistics
from kolumn.tools.statistics import STATISTICS, Partition, Totals
from kolumn.writers.write import write

MOST_BYTES, MOST_BYTES_OF_ONE = 16 << 20, 4 << 20  # of all partitions, and of one
CODECS: tuple[keywords.Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
BATCHES = (16 << 10, 128 << 10, 1 << 20)  # the default of Kafka's producer, 128 KiB, and 1 MiB
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
        return sum(part.num_rows for part in self.parts)

    def table(self) -> pa.Table:
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

    At most 1000 ``remarks``; ``left_out`` are rows of `kolumn.schema.LEFT_OUT_SCHEMA`. ``damaged_sizes`` are sizes of the segments with
    damage, by path. ``tails`` counts active segments that end with "zeros" or are "truncated", which is normal.
    ``timelines`` are by topic, of at most 50 topics; the others together are None, as are records of which no topic is known.

    ``lateness``: how many ms the timestamp of a record is before the latest one before it in its partition; 0: in order.
    ``late``: how many records are late, and by how many ms at most. ``untimed`` records have no timestamp, those ``ahead`` one later
        than the moment of the report.
    ``payloads``: bytes of keys and values by codec.
    ``values``: what could not be decoded of typed keys and values.
    ``states``: records by the state of their transaction; ``stopped``: where a committed read of a partition would stop;
    ``controls``: control records. ``lag`` is None if `__consumer_offsets` is not in the source, ``audit`` if it is of a draft.
    """

    totals: dict[Partition, Totals] = field(default_factory=dict)
    segments: int = 0
    skipped: Skipped = field(default_factory=Skipped)
    damaged_sizes: dict[str, int] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)
    left_out: list[dict[str, Any]] = field(default_factory=list)
    tails: Counter[str] = field(default_factory=Counter)
    headers: HeaderStatistics = field(default_factory=HeaderStatistics)
    offsets: dict[Partition, Offsets] = field(default_factory=dict)
    timelines: dict[str | None, Timeline] = field(default_factory=dict)
    lateness: Powers = field(default_factory=Powers)
    late: dict[Partition, tuple[int, int]] = field(default_factory=dict)
    untimed: int = 0
    ahead: int = 0
    payloads: Counter[str] = field(default_factory=Counter)
    keys: Keys = field(default_factory=Keys)
    transactions: TransactionStatistics = field(default_factory=TransactionStatistics)
    states: Counter[str] = field(default_factory=Counter)
    stopped: list[StoppedAt] = field(default_factory=list)
    controls: Counter[Partition] = field(default_factory=Counter)
    lag: Lag | None = None
    audit: Audit | None = None
    values: ValueLosses = field(default_factory=lambda: ValueLosses(()))
    sample: Sample = field(default_factory=Sample)

    def rows(self) -> list[dict[str, Any]]:
        return [total.row(*name) for name, total in self.totals.items()]


def gather(source: keywords.Source, **options: Unpack[keywords.ReadOptions]) -> Findings:
    """Read a source once, and its headers three times more; options as `kolumn.scan`. Damage is left out and noted. Memory does not depend
    on the size of the source: sums, sketches, at most 51 times 32,768 bins of time, a sample of 16 MiB, and what `kolumn.audit` needs."""
    chosen = replace(Options.of(**options), columns=_COLUMNS, include_control=True, errors="skip")
    require(chosen.backend)
    findings, live = Findings(), live_segments(source, chosen)
    if any(segment.format in layouts.RAW for segment in live.segments):
        # They tell of batches without records.
        chosen = replace(chosen, remarks=True)
    known = types_by_topic(chosen, source, list(map(Range.whole, live.segments)))
    findings.values = ValueLosses(chosen.typed)
    parts: dict[Partition, _Part] = {}
    segments: set[str] = set()
    quiet = Options(columns=_COLUMNS, errors="skip", format=chosen.format, check_crcs=False)
    findings.left_out = live.left_out().to_pylist()
    # Of several copies, and of tiers, one folder does not have all markers: ranges come with the transactions of the whole log.
    settled = replace(live, options=replace(live.options, columns=(*_COLUMNS, "transaction")))
    for stretch in settled.whole_ranges():
        name = stretch.segment.topic, stretch.segment.partition
        part = parts.get(name) or parts.setdefault(name, _Part(findings, name))
        own = known[stretch.segment.topic]
        damage = part.read(stretch, stretch.segment.path not in segments, own, tallies.has_transactions(stretch, quiet))
        tallies.add_headers(stretch, quiet, damage, findings.headers, part.offsets)
        segments.add(stretch.segment.path)
    for part in parts.values():
        part.close()
    findings.segments = len(segments)
    if any(name == OFFSETS_TOPIC for name, _ in parts):
        findings.lag = tallies.lag_of(source)
    # It goes by names of segments where a format has to be told.
    if chosen.format == "kafka" or all(segment.raft is not None for segment in live.segments):
        findings.audit = audit(source, topic=chosen.topic, partition=chosen.partition, private_keys=options.get("private_keys"))
    return findings


class _Part:
    def __init__(self, findings: Findings, name: Partition) -> None:
        self._findings, self._name = findings, name
        self._total = findings.totals.setdefault(name, Totals())
        self.offsets = findings.offsets.setdefault(name, Offsets())
        self._latest, self._now = -1, time.time_ns() // 1_000_000
        self._sampled = 0
        self._known: Transactions | None = None
        self._transactions = TransactionStatistics(findings.transactions.counts, findings.transactions.kept)

    def read(self, part: Range, is_new: bool, options: Options, has_transactions: bool) -> list[Damage]:
        total, findings, before = self._total, self._findings, len(self._findings.skipped.damage)
        total.segments += is_new
        total.bytes += part.end - part.start
        ranges = [part]
        if part.end - part.start <= _SMALL_BYTES:
            # To start threads takes longer than to decode so few bytes, and there may be thousands of such partitions.
            options = replace(options, threads=1)
        columns = (*_COLUMNS, "transaction") if has_transactions else _COLUMNS
        if has_transactions:
            options = replace(options, columns=columns)
            if self._known is not None and part.transactions is None:
                ranges = [replace(part, transactions=self._known)]
            ranges = with_transactions(ranges, replace(options, isolation_level="read_committed"))
            self._known = ranges[0].transactions
        if options.typed:
            options = findings.values.asked(options, options.typed)
        for batch in scan_ranges(ranges, options, findings.skipped, tally=self._tally):
            findings.values.add(batch)
            self._add(batch.select(range(len(columns))).rename_columns(columns))
        if self._known is not None:
            # Headers of what is after an open transaction.
            findings.stopped = joined([*findings.stopped, *stops([replace(part, transactions=self._known)], options)])
        return findings.skipped.damage[before:]

    def close(self) -> None:
        self._transactions.close(partition_name(*self._name))
        own, records = self.offsets, self._total.offsets
        if own.first is not None and own.last is not None and records:
            # Headers of formats 0 and 1 do not have the offset of the first record.
            own.first, own.last = min(own.first, records[0]), max(own.last, records[1])

    def _tally(self, part: Range, tally: Tally) -> None:
        self._total.batches += tally.batches
        for piece in tally.damage:
            self._total.skipped(piece)
            self._findings.damaged_sizes[piece.segment] = part.segment.size
        self._findings.remarks += tally.remarks[: max(_MOST_REMARKS - len(self._findings.remarks), 0)]
        if tally.tail:
            self._findings.tails[tally.tail] += 1

    def _add(self, batch: pa.RecordBatch) -> None:
        findings = self._findings
        if "transaction" in batch.schema.names or batch["isControl"].true_count:
            self._transactions.add(batch, partition_name(*self._name))
            data = batch.filter(pc.invert(batch["isControl"]))
            findings.controls[self._name] += batch.num_rows - data.num_rows
            batch = data
        if "transaction" in batch.schema.names:
            findings.states.update({row["values"]: row["counts"] for row in pc.value_counts(batch["transaction"]).to_pylist()})
        self._total.add(batch)
        findings.keys.add(batch["key"])
        self._sampled = findings.sample.add(batch, self._sampled)
        self._add_times(batch)

    def _add_times(self, batch: pa.RecordBatch) -> None:
        findings, times = self._findings, batch["timestampMs"].to_numpy(zero_copy_only=False)
        lengths = (pc.fill_null(pc.binary_length(batch[name]), 0) for name in ("key", "value"))
        sizes = sum(length.to_numpy(zero_copy_only=False).astype(np.int64) for length in lengths)
        for codec in pc.unique(batch["codec"]).to_pylist():
            findings.payloads[codec] += int(sizes[pc.equal(batch["codec"], codec).to_numpy(zero_copy_only=False)].sum())
        timed = times >= 0
        findings.untimed += int((~timed).sum())
        if not timed.all():
            times, sizes = times[timed], sizes[timed]
        if not len(times):
            return
        topic = self._name[0]
        if topic not in findings.timelines and len(findings.timelines) >= _MOST_TIMELINES:
            topic = None
        findings.timelines.setdefault(topic, Timeline()).add(times, sizes)
        findings.ahead += int((times > self._now).sum())
        latest = np.maximum.accumulate(np.concatenate([[self._latest], times]))
        late = np.maximum(latest[:-1] - times, 0)
        findings.lateness.add(late, np.zeros(len(times), np.int64))
        count, most = findings.late.get(self._name, (0, 0))
        findings.late[self._name] = count + int((late > 0).sum()), max(most, int(late.max()))
        self._latest = int(latest[-1])


def total(findings: Findings, of: Callable[[Totals], int]) -> int:
    return sum(map(of, findings.totals.values()))


def partition_name(topic: str | None, partition: int | None) -> str:
    return "?" if topic is None else f"{shown(topic)}-{partition}"
