"""Remarks of `kolumn.verify`: facts that are not damage, but that users should know."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa

from kolumn.core.errors import shown
from kolumn.core.schema import REMARK_SCHEMA
from kolumn.core.text import in_column

REMARKED = ("segment", "position", "offset", "value", "tombstone")
"""Columns of KIP-87 records that are needed for remarks."""


class Kind(StrEnum):
    """Kind of a remark."""

    OFFSET_GAP = "offset-gap"
    """Offsets are absent between two segments, or before the first batch of one. Possible causes: compaction, retention, a lost file."""
    EMPTY_SEGMENT = "empty-segment"
    """A rolled segment has no bytes, and no index file shows that it had any. Compaction is a possible cause."""
    ENDS_EARLY = "ends-early"
    """Files next to the active segment list offsets that the log does not have. They may have been copied later than the log."""
    ZERO_TAIL = "zero-tail"
    """A rolled segment has all its offsets, and zeros after them: it was allocated in advance and not trimmed."""
    COPIES = "copies"
    """Directories of one topic-partition have the same offsets: replicas. Each is verified by itself."""
    NULL_VALUE = "null-value"
    """KIP-87: a record without a value has no tombstone bit."""
    SIDE_FILE = "side-file"
    """A file next to a segment contradicts the log: an index, a snapshot of producers, or the leader epochs."""
    OFFSETS_BACK = "offsets-back"
    """Offsets go back from one entry to the next. A broker that was elected uncleanly, or copied files, leave such logs."""
    OFFSETS_IN_BATCH = "offsets-in-batch"
    """Offsets do not grow from one record to the next inside of a batch."""
    MAX_TIMESTAMP = "max-timestamp"
    """The largest timestamp in the header of a batch is not set, or below that of a record."""
    FAR_TIMESTAMP = "far-timestamp"
    """Timestamps are outside of the years 1 to 9999: a producer may have written microseconds or nanoseconds."""
    CONTENT_CHECKSUM = "content-checksum"
    """The content checksum of an lz4 frame is wrong. Java's client does not compare it (KAFKA-20528), librdkafka does."""
    SNAPSHOTS = "snapshots"
    """KRaft snapshots are beside the log. A read leaves them out unless it is told to include them."""


@dataclass(frozen=True)
class Remark:
    """One row of the table of remarks.

    Attributes
    ----------
    segment : str
    position : int
        Byte position in the segment.
    kind : Kind
    offset, last_offset : int, optional
        First and last offset that the remark concerns.
    remark : str
        What was found.
    evidence : str
        What proves it, such as a file's name.
    """

    segment: str
    position: int
    kind: Kind
    offset: int | None
    last_offset: int | None
    remark: str
    evidence: str

    def row(self) -> dict[str, object]:
        """Values of `schema.REMARK_SCHEMA`."""
        return {
            "segment": in_column(self.segment),
            "position": self.position,
            "offset": self.offset,
            "remark": shown(self.remark),
            "kind": str(self.kind),
            "lastOffset": self.last_offset,
            "evidence": shown(self.evidence),
        }


def remark_table(remarks: Iterable[Remark]) -> pa.Table:
    """Remarks as an Arrow table."""
    return pa.Table.from_pylist([one.row() for one in remarks], REMARK_SCHEMA)


def null_values(batch: pa.RecordBatch) -> pa.Table:
    """Remarks about a batch of KIP-87 records with the columns `REMARKED`."""
    import pyarrow.compute as pc

    rows = np.flatnonzero(np.asarray(pc.and_not(pc.is_null(batch["value"]), batch["tombstone"])))
    found = pa.Table.from_batches([batch.select(["segment", "position", "offset"])]).take(pa.array(rows)).to_pylist()
    text = "the record has no value and no tombstone bit"
    evidence = "KIP-87 does not allow such records; readers of formats 0 and 1 take it for a tombstone"
    return remark_table(
        Remark(one["segment"], one["position"], Kind.NULL_VALUE, one["offset"], one["offset"], text, evidence) for one in found
    )
