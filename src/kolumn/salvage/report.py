"""Report of `kolumn.recover`."""

from dataclasses import dataclass, field

import pyarrow as pa

from kolumn.damage.html import MOST_ROWS, html_table
from kolumn.schema import LEFT_OUT_SCHEMA

PARTITIONS_SCHEMA = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("folder", pa.string()), ("segments", pa.int64()), ("batches", pa.int64()),
        ("records", pa.int64()), ("bytes", pa.int64()), ("firstOffset", pa.int64()), ("lastOffset", pa.int64()),
        ("openTransactions", pa.int64()),
    ]
)  # fmt: skip
KEPT_SCHEMA = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("firstOffset", pa.int64()), ("lastOffset", pa.int64()),
        ("batches", pa.int64()), ("bytes", pa.int64()), ("source", pa.string()),
    ]
)  # fmt: skip
LOST_SCHEMA = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("kind", pa.string()), ("firstOffset", pa.int64()), ("lastOffset", pa.int64()),
        ("recordsLost", pa.int64()), ("recordsAtMost", pa.int64()), ("certainty", pa.string()), ("segment", pa.string()),
        ("position", pa.int64()), ("size", pa.int64()), ("reason", pa.string()),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Recovery:
    """Result of a recovery.

    Attributes
    ----------
    partitions : pa.Table
        One row for each topic-partition: its folder in the target, the segments, batches, records (control records too) and bytes in it,
        the first and last offset, and how many transactions have no marker at the end of the log. Records of batches over a limit are
        counted by their headers; the number is null where a header has none (formats 0 and 1).
    kept : pa.Table
        Which offsets come from which source, in the order of offsets: a folder, or a segment in a tier.
    lost : pa.Table
        One row for each stretch of offsets that is not in the result. ``kind`` is "damage": in no copy; "superseded": intact, but of a
        leader that lost an election, or written again later; "tail": the unfinished end of an active segment; "unreadable": kept byte for
        byte with a right checksum, but ``recordsLost`` of its records cannot be decoded; "limit": kept likewise, and nothing is wrong with
        it, but it is over a limit, so its records were not decoded, and counted by its header alone.
        ``certainty`` is "exact": ``recordsLost`` is the number of offsets between intact neighbours, and the damaged batch's header says
        the same; "header": only the damaged header says it, and compaction or other damage can have changed the number; "at most":
        ``recordsAtMost`` offsets are missing, of which some may never have had a record; "unknown": nothing says how far the log went.
        Segment and position are those of the copy that was looked at.
    remarks : pa.Table
        Remarks about what was written, as in `kolumn.verify`: offsets that are absent between segments, where a whole segment is missing in
        all copies, or where compaction or retention removed records.
    divergences : tuple of str
        Where a copy has other records than the log, because of an unclean election; its records are left out from there on, and are in
        ``lost`` as "superseded".
    left_out : pa.Table
        Files and folders of the source that are no part of the log, each with its reason; columns of `schema.LEFT_OUT_SCHEMA`.
    """

    partitions: pa.Table
    kept: pa.Table
    lost: pa.Table
    remarks: pa.Table
    divergences: tuple[str, ...] = ()
    left_out: pa.Table = field(default_factory=LEFT_OUT_SCHEMA.empty_table)

    @property
    def ok(self) -> bool:
        """Whether nothing of the log is lost but unfinished ends of active segments. A batch over a limit is not lost."""
        return not set(self.lost["kind"].to_pylist()) - {"tail", "superseded", "limit"}

    def _repr_html_(self) -> str:
        """The tables, for notebooks."""
        made = [f"<p><b>{'nothing lost' if self.ok else f'{self.lost.num_rows} stretches lost'}</b></p>"]
        for found in (self.partitions, self.lost, self.remarks, self.left_out, self.kept):
            if found.num_rows:
                rows = found.slice(0, MOST_ROWS).to_pylist()
                made.append(html_table(found.schema.names, [list(row.values()) for row in rows], found.num_rows))
        return "".join(made)
