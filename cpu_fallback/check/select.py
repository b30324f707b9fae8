"""Selects, by their headers alone, the entries that can have records in the requested ranges."""

from typing import NamedTuple

from kolumn.cpu_fallback.machine.arrays import Flags, Int64s, Table
from kolumn.cpu_fallback.machine.scalars import compiled
from kolumn.formats import layouts, table
from kolumn.machine_code.deferred import register_jitable

_MAGIC, _CODEC, _CONTROL, _UNKNOWN = table.MAGIC, table.CODEC, table.CONTROL, table.UNKNOWN
_LAYOUT = table.LAYOUT
_BASE_OFFSET, _LAST_OFFSET, _MAX_TIMESTAMP = table.BASE_OFFSET, table.LAST_OFFSET, table.MAX_TIMESTAMP

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
    """Whether the entry of a row can hold records within the limits."""
    if row[_CONTROL] != 0 and not limit.include_control:
        return False
    # A wrapper's offset equals its last record's only with relative inner offsets: in format 1, and never when it is 0.
    messages = layouts.holds_messages(row[_LAYOUT])
    tells = row[_CODEC] == 0 or not messages or layouts.begins_at_offset(row[_LAYOUT]) or (row[_MAGIC] >= 1 and row[_LAST_OFFSET] != 0)
    # The largest timestamp of a batch is under its CRC and set by the broker; in a wrapper it may be the last record's.
    return in_range(limit, row[_BASE_OFFSET], row[_LAST_OFFSET], tells) and (messages or row[_MAX_TIMESTAMP] >= limit.start_timestamp)


@register_jitable
def in_range(limit: Limits, base: int, last: int, tells: bool) -> bool:
    """Whether an entry with these offsets can hold records within the limits. ``tells``: its last offset is that of its last record."""
    if last < limit.start_offset and tells and last != _UNKNOWN:
        return False
    return limit.end_offset == HIGHEST or base < limit.end_offset or base == _UNKNOWN


@compiled
def select(limit: Limits, rows: Table, wanted: Flags) -> None:
    """Set the flag of each entry that can hold records within the limits."""
    for b in range(rows.shape[0]):
        wanted[b] = keeps(limit, rows[b])
