"""The report of `kolumn.verify`: every segment is read to its end, and what is next to it is compared with it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa

from kolumn.copies.copies import Overlap, overlaps
from kolumn.copies.raw_offsets import whole_with_offsets
from kolumn.core.results import Result, counted
from kolumn.core.schema import DAMAGE_SCHEMA, LEFT_OUT_SCHEMA, LOST_VALUES_SCHEMA, SEGMENT_SCHEMA
from kolumn.core.text import in_column
from kolumn.damage.findings import (
    LIMIT,
    MOST_ROWS,
    REMARKED,
    Damage,
    Kind,
    Remark,
    Skipped,
    Tally,
    html_table,
    null_values,
    remark_table,
    rows_table,
)
from kolumn.decode.pipeline import scan_ranges
from kolumn.log.live import snapshots_of
from kolumn.options import Options
from kolumn.readers.index_check import side_file_remarks
from kolumn.readers.lost_values import ValueLosses
from kolumn.readers.topics import by_type
from kolumn.source.segments import Segment
from kolumn.source.storage import base_name

_RESOURCES = ("check_crcs", "chunk_bytes", "threads", "backend", "max_batch_bytes", "max_ratio", "trusted", "on_progress")
"""Options of a verification that are those of its caller."""
_SUFFICES = re.compile(r"\b(max_batch_bytes|max_ratio)=(\d+)")


@dataclass(frozen=True, repr=False)
class Report(Result):
    """Result of a verification.

    Attributes
    ----------
    damage : pa.Table
        One row for each damaged stretch, columns of `kolumn.schema.DAMAGE_SCHEMA`.
    segments : pa.Table
        One row for each segment, columns of `kolumn.schema.SEGMENT_SCHEMA`.
    remarks : pa.Table
        Facts that are not damage, such as absent offsets; columns of `kolumn.schema.REMARK_SCHEMA`, kinds `kolumn.damage.findings.Kind`.
    batches, records, bytes : int
        Number of intact entries, of their records (including control records), and of bytes that were checked.
    control_records : int
        How many of the records are control records: markers of transactions, and those of a quorum.
    inflated_by_cpu : int
        Payloads that the CPU decompressed for a GPU, since nvCOMP cannot decompress them, or must not.
    left_out : pa.Table
        Files and folders of the source that a read does not return, each with its reason; columns of `kolumn.schema.LEFT_OUT_SCHEMA`.
    limits : pa.Table
        One row for each intact batch over a limit, whose records were not looked at; columns of `kolumn.schema.DAMAGE_SCHEMA`.
    values : pa.Table
        With ``value_format`` or ``key_format``: one row for each field that could not be decoded everywhere; columns of
        `kolumn.schema.LOST_VALUES_SCHEMA`. That is no damage.
    """

    damage: pa.Table
    segments: pa.Table
    remarks: pa.Table
    batches: int
    records: int
    bytes: int
    control_records: int = 0
    inflated_by_cpu: int = 0
    left_out: pa.Table = field(default_factory=LEFT_OUT_SCHEMA.empty_table)
    limits: pa.Table = field(default_factory=DAMAGE_SCHEMA.empty_table)
    values: pa.Table = field(default_factory=LOST_VALUES_SCHEMA.empty_table)

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged or over a limit. A truncated last entry and a zero-filled tail of an active segment are not damage."""
        return self.damage.num_rows == 0 and self.limits.num_rows == 0

    @property
    def suffices(self) -> dict[str, int]:
        """Parameters with which a read takes the batches that are over a limit: ``max_batch_bytes``, ``max_ratio``, as far as is known."""
        values: dict[str, int] = {}
        for reason in self.limits["reason"].to_pylist():
            for name, value in _SUFFICES.findall(reason):
                values[name] = max(values.get(name, 0), int(value))
        return values

    def __str__(self) -> str:
        """The verdict and the counts. Tables are left out: they have names of files as they are."""
        wrong = [
            *([counted(self.damage.num_rows, "damaged stretch")] if self.damage.num_rows else ()),
            *([f"{counted(self.limits.num_rows, 'batch')} over a limit"] if self.limits.num_rows else ()),
        ]
        read = counted(self.segments.num_rows, "segment"), counted(self.batches, "intact batch"), counted(self.records, "record")
        more = f", {counted(self.remarks.num_rows, 'remark')}" if self.remarks.num_rows else ""
        lost = f", {counted(self.values.num_rows, 'field')} that cannot be decoded everywhere" if self.values.num_rows else ""
        return f"{' and '.join(wrong) or 'OK'}: {', '.join(read)}, {counted(self.bytes, 'byte')}{more}{lost}"

    def _repr_html_(self) -> str:
        """The verdict, the damage, the remarks, lost fields and what is left out as tables, for notebooks."""
        verdict, _, counts = str(self).partition(": ")
        html = [f"<p><b>{verdict}</b>: {counts}</p>"]
        for table in (self.damage, self.limits, self.remarks, self.values, self.left_out):
            if table.num_rows:
                rows = table.slice(0, MOST_ROWS).to_pylist()
                html.append(html_table(table.schema.names, [list(row.values()) for row in rows], table.num_rows))
        return "".join(html)


def damage_table(pieces: Iterable[Damage]) -> pa.Table:
    """What a read leaves out as an Arrow table."""
    return rows_table(
        ((in_column(d.segment), d.position, d.size, d.base_offset, d.last_offset, d.reason, d.records_lost, d.kind) for d in pieces),
        DAMAGE_SCHEMA,
    )


def verified(segments: list[Segment], asked: Options, known: Mapping[str | None, Options] = {}) -> Report:
    """The report of live segments, each read to its end, with the limits and the resources that are asked for. Keys and values are decoded
    if the topic's options in ``known`` have types of them.
    """
    losses = ValueLosses(asked.typed)
    looked_at = REMARKED if asked.format == "kip87" else ("offset",)
    resources = {name: getattr(asked, name) for name in _RESOURCES}
    columns = (*looked_at, "isControl")
    chosen = Options(columns=columns, include_control=True, errors="skip", binary="view", remarks=True, format=asked.format, **resources)
    by_topic = {topic: losses.asked(chosen, own.typed) if own.typed else chosen for topic, own in known.items()}
    tallies: list[tuple[Segment, Tally]] = []
    control = 0
    remarks = [remark_table(map(_copies, overlaps(segments))), remark_table(side_file_remarks(segments))]
    if not asked.include_snapshots:
        remarks.append(remark_table(_left_out(folder, names) for folder, names in snapshots_of(segments).items()))
    ranges = whole_with_offsets(segments, asked.start_delta)
    groups = by_type(ranges, by_topic) if by_topic else [(chosen, ranges)]
    scans = (scan_ranges(own, how, Skipped(), lambda part, tally: tallies.append((part.segment, tally))) for how, own in groups)
    for batch in chain.from_iterable(scans):
        losses.add(batch)
        batch = batch.select(range(len(columns))).rename_columns(columns)
        control += batch["isControl"].true_count
        if looked_at is REMARKED and (nulls := null_values(batch)).num_rows:
            remarks.append(nulls)
    pieces = [piece for _, tally in tallies for piece in tally.damage]
    rows = [(in_column(s.path), s.size, t.valid_bytes, t.batches, t.records, t.tail, t.tail_bytes, s.state) for s, t in tallies]
    return Report(
        damage_table(piece for piece in pieces if piece.kind != LIMIT),
        rows_table(rows, SEGMENT_SCHEMA),
        pa.concat_tables([remark_table(remark for _, tally in tallies for remark in tally.remarks), *remarks]),
        sum(tally.batches for _, tally in tallies),
        sum(tally.records for _, tally in tallies),
        sum(segment.size for segment, _ in tallies),
        control,
        sum(tally.inflated_by_cpu for _, tally in tallies),
        limits=damage_table(piece for piece in pieces if piece.kind == LIMIT),
        values=losses.table(),
    )


def _left_out(folder: str, names: list[str]) -> Remark:
    text = f"{len(names)} snapshot{'s' if len(names) > 1 else ''} of the metadata beside the log, which a read leaves out"
    return Remark(folder, 0, Kind.SNAPSHOTS, None, None, text, f"include_snapshots reads them; the newest is {base_name(names[-1])}")


def _copies(overlap: Overlap) -> Remark:
    first, second = overlap.folders
    text = f"{overlap.topic}-{overlap.partition}: {first} and {second} both have offsets from {overlap.first} to {overlap.last}"
    evidence = "a read of both needs replicas='merge' or replicas='first'; here each is verified by itself"
    return Remark(first, 0, Kind.COPIES, overlap.first, overlap.last, text, evidence)
