"""Last offsets that headers do not say: those of enriched wrappers, whose relative offsets may have holes."""

from typing import Any

import numpy as np

from kolumn.cpu_fallback.batches import decode_run
from kolumn.cpu_fallback.walk import check
from kolumn.errors import Code
from kolumn.formats import layouts, table
from kolumn.options import Options
from kolumn.segment_file import SegmentFile

_OPTIONS = Options(format=layouts.FORMAT_NAMES[layouts.ENRICHED_FORMAT], columns=("offset",), include_control=True, errors="skip")


def with_last_offsets(file: SegmentFile, rows: Any) -> Any:
    """Fill what is unknown in ``rows`` of the batch table: by the next entry, and of the last one by inflating it.

    An entry whose records can't be read gets its base offset.
    """
    for i in np.flatnonzero(rows[:, table.LAST_OFFSET] == table.UNKNOWN).tolist():
        base = int(rows[i, table.BASE_OFFSET])
        last = int(rows[i + 1, table.BASE_OFFSET]) - 1 if i + 1 < len(rows) else _inflated(file, rows[i : i + 1].copy())
        rows[i, table.LAST_OFFSET] = max(last, base)
    return rows


def _inflated(file: SegmentFile, alone: Any) -> int:
    start = int(alone[0, table.POSITION])
    end = start + int(alone[0, table.SIZE])
    if end > file.size:
        return -1
    source = file.read(start, end)
    if check(source.ctypes.data, start, alone) != 0:
        return -1
    run = decode_run(source, start, alone, _OPTIONS, False)
    if alone[0, table.CODE] != Code.OK or not run.rows:
        return -1
    return int(run.columns.int64(run.columns.offset, run.rows).max())
