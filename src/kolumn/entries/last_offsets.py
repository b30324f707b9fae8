"""Offsets that headers do not contain: last offsets of enriched wrappers, whose relative offsets may have holes, and first offsets."""

from dataclasses import replace
from typing import Any

import numpy as np

from kolumn.arrays import Row, Rows
from kolumn.cpu_fallback.check.checksums import check
from kolumn.decode.host.run import decode_run
from kolumn.errors import Code
from kolumn.formats import table
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile

_OPTIONS = Options(columns=("offset",), include_control=True, errors="skip")


def with_last_offsets(file: SegmentFile, rows: Rows) -> Any:
    """Fill in unknown last offsets in ``rows`` of the batch table: from the next entry, and for the last entry by decompressing it.

    An entry whose records cannot be read gets its base offset.
    """
    for i in np.flatnonzero(rows[:, table.LAST_OFFSET] == table.UNKNOWN).tolist():
        base = int(rows[i, table.BASE_OFFSET])
        last = int(rows[i + 1, table.BASE_OFFSET]) - 1 if i + 1 < len(rows) else _inflated(file, rows[i : i + 1].copy())
        rows[i, table.LAST_OFFSET] = max(last, base)
    return rows


def first_offset(file: SegmentFile, row: Row) -> int:
    """First offset of an intact entry, from its records; from its header if they cannot be read."""
    offsets = _offsets(file, row.reshape(1, -1).copy())
    return int(row[table.LAST_OFFSET]) if offsets is None else int(offsets.min())


def _inflated(file: SegmentFile, alone: Rows) -> int:
    offsets = _offsets(file, alone)
    return -1 if offsets is None else int(offsets.max())


def _offsets(file: SegmentFile, alone: Rows) -> Any:
    """Offsets of the records of one entry; None if they cannot be read."""
    start = int(alone[0, table.POSITION])
    end = start + int(alone[0, table.SIZE])
    if end > file.size:
        return None
    source = file.read(start, end)
    if check(source.ctypes.data, start, alone) != 0:
        return None
    run = decode_run(source, start, alone, replace(_OPTIONS, format=file.segment.format), False)
    if alone[0, table.CODE] != Code.OK or not run.rows:
        return None
    return run.columns.int64(run.columns.offset, run.rows)
