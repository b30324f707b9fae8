"""What `kolumn.verify` remarks about intact records."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.schema import REMARK_SCHEMA

REMARKED = ("segment", "position", "offset", "value", "tombstone")
"""Columns that are looked at."""
_TEXT = "no value and no tombstone bit: readers of formats 0 and 1 take it for a tombstone (KIP-87 forbids to write it)"


def remarks(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Remarks about a batch of KIP-87 records with the columns `REMARKED`."""
    rows = np.flatnonzero(np.asarray(pc.and_not(pc.is_null(batch["value"]), batch["tombstone"])))
    columns = [batch[name].take(pa.array(rows)) for name in ("segment", "position", "offset")]
    return pa.RecordBatch.from_arrays([*columns, pa.repeat(_TEXT, len(rows))], schema=REMARK_SCHEMA)
