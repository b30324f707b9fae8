"""`audit`: what in the logs of topic-partitions contradicts what brokers and producers do, by the headers of batches.

    headers ──▶ `sequences.Producers`   sequences, epochs, transactions     ──▶ findings, producers, transactions
            ──▶ `absent.Absent`         offsets that are not there, and why ──▶ findings, offsets
            ──▶ `_Times`                timestamps                          ──▶ findings

Whether absent offsets are a loss or compaction is known at the end of a log alone, so what they may explain waits until then.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from kolumn.copies.ranges import log_starts, whole_ranges
from kolumn.core.keywords import Duration, Keys, Progress, Source, Time, known_keywords
from kolumn.core.results import Result, counted
from kolumn.core.schema import LEFT_OUT_SCHEMA
from kolumn.damage.findings import MOST_ROWS, Skipped, html_table
from kolumn.options import Options, duration, moment_of
from kolumn.readers.plan import live_segments
from kolumn.source.segments import Segment
from kolumn.source.storage import parent
from kolumn.tools.auditing.absent import Reason
from kolumn.tools.auditing.partition import ERROR, NOTE, WARNING, Audited, Collected
from kolumn.tools.coordinators import coordinated, transaction_table

_LARGEST = 2**63 - 1
_MOMENT = pa.timestamp("ms", tz="UTC")
_PARTITION = [("topic", pa.string()), ("partition", pa.int32())]
FINDING_SCHEMA = pa.schema(
    [
        *_PARTITION, ("kind", pa.string()), ("severity", pa.string()), ("producerId", pa.int64()), ("producerEpoch", pa.int16()),
        ("transactionalId", pa.string()), ("firstOffset", pa.int64()), ("lastOffset", pa.int64()), ("records", pa.int64()),
        ("timestamp", _MOMENT), ("segment", pa.string()), ("position", pa.int64()), ("detail", pa.string()),
    ]
)  # fmt: skip
PRODUCER_SCHEMA = pa.schema(
    [
        *_PARTITION, ("producerId", pa.int64()), ("producerEpoch", pa.int16()),
        *((name, pa.int64()) for name in (
            "firstOffset", "lastOffset", "firstSequence", "lastSequence", "batches", "records", "gaps", "duplicates", "resets", "fenced",
            "committed", "aborted", "open",
        )),
    ]
)  # fmt: skip
OFFSET_SCHEMA = pa.schema(
    [
        *_PARTITION, ("firstOffset", pa.int64()), ("lastOffset", pa.int64()), ("offsets", pa.int64()), ("reason", pa.string()),
        ("evidence", pa.string()), ("segment", pa.string()), ("position", pa.int64()),
    ]
)  # fmt: skip
AUDITED_SCHEMA = pa.schema(
    [
        *_PARTITION,
        *((name, pa.int64()) for name in (
            "segments", "bytes", "batches", "records", "firstOffset", "lastOffset", "logStartOffset", "lastStableOffset",
            "recordsAboveStable", "bytesAboveStable", "openTransactions", "producers", *Reason, "errors", "warnings",
        )),
    ]
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Audit(Result):
    """Result of an audit.

    Attributes
    ----------
    findings : pa.Table
        One row for each finding, by partition and offset, columns of `FINDING_SCHEMA`; ``detail`` says what was expected and found.
        ``severity`` is "error": the log contradicts what a broker writes; "warning": somebody has to decide whether it is right; or
        "note". Kinds are listed in the how-to guide.
    producers : pa.Table
        One row for each producer id and epoch with data: its offsets and sequences, the number of batches and records, what was found, and
        its transactions; those of the id that are open are counted in its last epoch. Gaps that compaction explains are not counted.
    transactions : pa.Table
        Transactions that are open, as `kolumn.open_transactions` has them.
    offsets : pa.Table
        Offsets that are absent, or are there for no consumer of committed records: a row for each stretch with its ``reason``
        (`kolumn.tools.auditing.absent.Reason`) and the evidence. Those of the reasons "compaction", "marker" and "aborted" are one row
        for each segment: ``offsets`` says how many between the first and the last one. Of an aborted transaction, the segment is that of
        its marker.
    partitions : pa.Table
        One row for each topic-partition: its end, its last stable offset and what is above it, and offsets by reason.
    left_out : pa.Table
        Files of the source that are no part of the log, and rows above a limit, each with its reason; columns of
        `kolumn.schema.LEFT_OUT_SCHEMA`.
    """

    findings: pa.Table
    producers: pa.Table
    transactions: pa.Table
    offsets: pa.Table
    partitions: pa.Table
    left_out: pa.Table = field(default_factory=LEFT_OUT_SCHEMA.empty_table)

    @property
    def ok(self) -> bool:
        """Whether nothing needs attention: no finding is an error or a warning."""
        return not {ERROR, WARNING} & {*self.findings["severity"].to_pylist()}

    def __str__(self) -> str:
        found = Counter(self.findings["severity"].to_pylist())
        findings = ", ".join(counted(found[severity], severity) for severity in (ERROR, WARNING, NOTE) if found[severity])
        return f"{findings or 'no findings'} in {counted(self.partitions.num_rows, 'partition')}"

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{self}</b></p>"]
        for table in (self.findings, self.transactions, self.offsets, self.partitions, self.left_out):
            if table.num_rows:
                rows = table.slice(0, MOST_ROWS).to_pylist()
                parts.append(html_table(table.schema.names, [list(row.values()) for row in rows], table.num_rows))
        return "".join(parts)


@known_keywords()
def audit(
    source: Source,
    *,
    now: Time | None = None,
    open_longer_than_ms: Duration = 900_000,
    topic: str | None = None,
    partition: int | None = None,
    check_crcs: bool = False,
    private_keys: Keys | None = None,
    on_progress: Progress | None = None,
) -> Audit:
    """Find what in logs needs attention: sequences, epochs, transactions, timestamps, and absent offsets.

    Headers of batches and the records of markers are read; no other record is decoded, and checksums are compared only where something is
    found: `kolumn.verify` compares all. Memory grows with the number of producers and segments, not with the log: of a topic-partition
    the last batches of at most 100,000 producers are known, and there are at most 1000 findings of a kind, 10,000 rows of producers, and
    100 stretches of absent offsets of a segment. What is above is counted in ``left_out``.

    Parameters
    ----------
    source : str, PathLike or iterable of those
        As in `kolumn.scan`, in Kafka's formats 0, 1 and 2; copies of a partition are merged. If `__transaction_state` is in it, what
        coordinators say is compared with the logs.
    now : int, datetime or str, optional
        The moment at which ages end, and after which timestamps lie in the future; the present by default. For a cluster that has died,
        the moment at which it did.
    open_longer_than_ms : int, timedelta or str
        Age from which on an open transaction is a finding, such as ``"1h"``. The default is a broker's default of
        transaction.max.timeout.ms, 15 minutes.
    check_crcs : bool
        Compare the checksums of all batches, which reads every byte. By default a batch whose contents are damaged counts as one that is
        there.
    topic, partition, private_keys, on_progress
        As in `kolumn.scan`.

    Returns
    -------
    Audit
        Findings, and tables of producers, transactions, absent offsets and partitions.

    Raises
    ------
    ArgumentError
        An option is invalid, or the source has no segments.
    KolumnError
        A file cannot be read. Damage is a finding.
    """
    end, longest_ms = moment_of(now), duration("open_longer_than_ms", open_longer_than_ms)
    options = Options.of(
        errors="skip", check_crcs=check_crcs, replicas="merge", topic=topic, partition=partition, private_keys=private_keys, backend="cpu",
        on_progress=on_progress,
    )  # fmt: skip
    live, skipped = live_segments(source, options), Skipped()
    known = coordinated(live.segments, "skip", skipped, None)
    starts, made = log_starts(live.segments), Collected(end, longest_ms, known)
    for own in _partitions(live.segments):
        audited = Audited(own, starts.get(own[0].key), options, made)
        for part in whole_ranges(own, options):
            audited.walk(part)
        audited.close()
    return Audit(
        _table(made.findings, FINDING_SCHEMA),
        _table(made.producers, PRODUCER_SCHEMA),
        transaction_table(made.opened, known, made.now),
        _table(made.offsets, OFFSET_SCHEMA),
        _table(made.partitions, AUDITED_SCHEMA),
        pa.concat_tables([live.left_out(), _table(made.more, LEFT_OUT_SCHEMA)]),
    )


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as a table. Damaged headers can claim so many offsets that their number does not fit its column."""
    whole = [{name: min(value, _LARGEST) if isinstance(value, int) else value for name, value in row.items()} for row in rows]
    return pa.Table.from_pylist(whole, schema)


def _partitions(segments: list[Segment]) -> list[list[Segment]]:
    """Segments of each topic-partition; those of unknown ones by their folder, and segments whose names are no offsets alone."""
    partitions: dict[tuple[str, int, str], list[Segment]] = {}
    for segment in segments:
        is_known = segment.topic is not None and segment.partition is not None
        where = segment.path if segment.base_offset is None else "" if is_known else parent(segment.path)
        partitions.setdefault((*segment.key, where), []).append(segment)
    return [partitions[key] for key in sorted(partitions)]
