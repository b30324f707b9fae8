"""Which file encodes which layout.

Each has three functions: ``group`` says which rows share an entry, ``regroup`` takes entries that are given, ``put`` writes them.
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
    """The file that encodes a layout."""
    return _FILES[layout]


def encode(given: Input, how: Settings, last: bool) -> tuple[Encoded, int]:
    """Encode what makes whole entries.

    Parameters
    ----------
    last : bool
        Whether no rows follow; if some do, the last entry waits for them.

    Returns
    -------
    encoded : Encoded
    done : int
        How many of the rows are in it.

    Raises
    ------
    ArgumentError
        What the layout can't hold.
    """
    file = encoder(how.layout)
    groups = file.group(given, how, last)
    return file.put(given, groups, how), groups.stop
