"""Which module encodes which layout.

Each has three functions: ``group`` decides which rows share an entry, ``regroup`` keeps given entries, ``put`` writes them.
"""

from types import ModuleType

from kolumn.encode import batches, messages, sets, tagged
from kolumn.encode.entries import Encoded, Settings
from kolumn.encode.table import Input
from kolumn.formats import enriched, layouts

_FILES: dict[int, ModuleType] = {
    **dict.fromkeys(layouts.BATCHES, batches),
    **dict.fromkeys(layouts.SETS, sets),
    **dict.fromkeys(layouts.MESSAGES, messages),
    enriched.LAYOUT.number: tagged,
}


def encoder(layout: int) -> ModuleType:
    """The module that encodes a layout."""
    return _FILES[layout]


def encode(given: Input, how: Settings, last: bool) -> tuple[Encoded, int]:
    """Encode the rows that make complete entries.

    Parameters
    ----------
    last : bool
        Whether no rows follow. If more rows follow, the last entry is left for the next call.

    Returns
    -------
    encoded : Encoded
    done : int
        How many of the rows are encoded.

    Raises
    ------
    ArgumentError
        The layout cannot store a record.
    """
    file = encoder(how.layout)
    groups = file.group(given, how, last)
    return file.put(given, groups, how), groups.stop
