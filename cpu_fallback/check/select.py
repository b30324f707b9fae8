"""Selects, by their headers alone, the entries that can have records in the requested ranges."""

from typing import NamedTuple

from kolumn.codecs import NONE
from kolumn.cpu_fallback.machine.arrays import Flags, Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import layouts, legacy, table, v2
from kolumn.machine_code.deferred import register_jitable

_V2, _LEGACY = v2.LAYOUT.number, legacy.LAYOUT.number

LOWEST, HIGHEST = -(2**63), 2**63 - 1


class Limits(NamedTuple):
    """Options for compiled code; `LOWEST` and `HIGHEST` mean that there is no limit."""

    check_crcs: bool
    include_control: bool
    start_offset: int
    end_offset: int
    start_timestamp: int


@register_jitable
def keeps(limit: Limits, row: Int64s) -> bool:
    """Whether the entry of a row can hold records within the limits, as far as its header is believed.

    A wrapper's header says nothing of the offsets in it, which need not grow. The largest timestamp of a batch may be unset, or too low,
    unless it is the time of all records (LogAppendTime).
    """
    if row[table.CONTROL] != 0 and not limit.include_control:
        return False
    layout = row[table.LAYOUT]
    tells = layout == _V2 or (layout == _LEGACY and row[table.CODEC] == NONE)
    if tells and not in_range(limit, row[table.BASE_OFFSET], row[table.LAST_OFFSET]):
        return False
    dated = layouts.holds_records(layout) and row[table.TIMESTAMP_TYPE] == table.LOG_APPEND_TIME
    return not dated or row[table.MAX_TIMESTAMP] >= limit.start_timestamp


@register_jitable
def in_range(limit: Limits, base: int, last: int) -> bool:
    """Whether an entry whose records have these offsets can hold records within the limits."""
    return last >= limit.start_offset and (limit.end_offset == HIGHEST or base < limit.end_offset)


@compiled
def select(limit: Limits, rows: Table, wanted: Flags) -> None:
    """Set the flag of each entry that can hold records within the limits."""
    for b in range(rows.shape[0]):
        wanted[b] = keeps(limit, rows[b])
