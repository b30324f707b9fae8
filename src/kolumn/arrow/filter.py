"""Filters rows of a record batch by a mask, including views, which Arrow itself cannot filter."""

import pyarrow as pa

from kolumn.arrays import Flags
from kolumn.arrow.arrays import flags as flags_of

_VIEW = pa.binary(16)


def keep(batch: pa.RecordBatch, mask: Flags) -> pa.RecordBatch:
    """The rows for which ``mask``, a bool array, is true. Copies the kept rows; of views only the 16 bytes, not the data."""
    flags = flags_of(mask)
    columns = [_views(column, flags) if pa.types.is_binary_view(column.type) else column.filter(flags) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _views(column: pa.Array, flags: pa.Array) -> pa.Array:
    valid, views, *sources = column.buffers()
    kept = pa.Array.from_buffers(_VIEW, len(column), [valid, views], offset=column.offset).filter(flags)
    return pa.Array.from_buffers(column.type, len(kept), [*kept.buffers(), *sources], kept.null_count, kept.offset)
