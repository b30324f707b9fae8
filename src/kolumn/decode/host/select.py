"""Which entries of a chunk a read selects: the options as limits for compiled code."""

import numpy as np

from kolumn.arrays import Flags
from kolumn.cpu_fallback.check.select import HIGHEST, LOWEST, Limits, select
from kolumn.formats.entries import Entries
from kolumn.options import Options


def limits(options: Options) -> Limits:
    """The limits that options set."""
    start, end, time = options.start_offset, options.end_offset, options.start_timestamp
    return Limits(
        options.check_crcs,
        options.include_control,
        LOWEST if start is None else start,
        HIGHEST if end is None else end,
        LOWEST if time is None else time,
    )


def wanted(entries: Entries, options: Options) -> Flags:
    """Flags of the entries that can hold a row that the options keep.

    Parameters
    ----------
    entries : Entries
    """
    flags = np.empty(len(entries), np.bool_)
    select(limits(options), entries.array, flags)
    return flags
