"""Which entries can hold a row that the options ask for, by their headers alone."""

from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from kolumn.cpu_fallback.arrays import Flags, Table
from kolumn.cpu_fallback.scalars import compiled
from kolumn.formats import layouts, table
from kolumn.options import Options

_MAGIC, _CODEC, _CONTROL, _UNKNOWN = table.MAGIC, table.CODEC, table.CONTROL, table.UNKNOWN
_LAYOUT, _ENRICHED = table.LAYOUT, layouts.ENRICHED
_BASE_OFFSET, _LAST_OFFSET, _MAX_TIMESTAMP = table.BASE_OFFSET, table.LAST_OFFSET, table.MAX_TIMESTAMP

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


class Limits(NamedTuple):
    """The options that compiled code looks at; the lowest and highest integers where there is no limit."""

    check_crcs: bool
    include_control: bool
    start_offset: int
    end_offset: int
    start_timestamp: int


def limits(options: Options) -> Limits:
    """The limits that options set."""
    start, end, time = options.start_offset, options.end_offset, options.start_timestamp
    return Limits(
        options.check_crcs,
        options.include_control,
        _LOWEST if start is None else start,
        _HIGHEST if end is None else end,
        _LOWEST if time is None else time,
    )


@register_jitable
def keeps(limit: Limits, row: Any) -> bool:
    """Whether the entry of a row can hold records within the limits."""
    if row[_CONTROL] != 0 and not limit.include_control:
        return False
    # A shipped wrapper's offset is its last record's only if its inner offsets count from it: format 1, and not 0.
    messages = layouts.holds_messages(row[_LAYOUT])
    tells = row[_CODEC] == 0 or not messages or row[_LAYOUT] == _ENRICHED or (row[_MAGIC] >= 1 and row[_LAST_OFFSET] != 0)
    if row[_LAST_OFFSET] < limit.start_offset and tells and row[_LAST_OFFSET] != _UNKNOWN:
        return False
    if limit.end_offset != _HIGHEST and row[_BASE_OFFSET] >= limit.end_offset and row[_BASE_OFFSET] != _UNKNOWN:
        return False
    # The largest timestamp of a batch is under its CRC and set by the broker; in a wrapper it may be the last record's.
    return messages or row[_MAX_TIMESTAMP] >= limit.start_timestamp


@compiled
def _select(limit: Limits, rows: Table, wanted: Flags) -> None:
    for b in range(rows.shape[0]):
        wanted[b] = keeps(limit, rows[b])


def wanted(rows: Any, options: Options) -> Any:
    """Flags of the entries that can hold a row that the options keep.

    Parameters
    ----------
    rows : int64 array of shape (n, `table.WIDTH`)
    """
    flags = np.empty(len(rows), np.bool_)
    _select(limits(options), rows, flags)
    return flags
