"""What a conversion may lose, and counts of what it did lose."""

from collections import Counter

from kolumn.formats import layouts
from kolumn.formats.layout import TRANSACTIONS

ABORTED = "records of aborted transactions"
OPEN = "records of open transactions"


def holds(layout: int, magic: int) -> frozenset[str]:
    """The properties of records that a layout can store, in addition to offsets, keys and values."""
    return layouts.LAYOUTS[layout].holds[magic]


def possible(source_format: int, layout: int, magic: int) -> list[str]:
    """The properties that a conversion may lose: the source's format can store them, and the target's layout cannot."""
    source = layouts.FORMATS[source_format]
    shipped = {what for number, one in source.magics.items() for what in one.holds[number]}
    held = shipped | {what for one in source.own_layouts for own in one.holds.values() for what in own}
    lost = held - holds(layout, magic)
    return sorted(lost | {ABORTED, OPEN} if TRANSACTIONS in lost else lost)


class Losses(Counter[str]):
    """How often each loss happened."""

    def note(self, what: str, count: int) -> None:
        """Count a loss, unless ``count`` is 0."""
        if count:
            self[what] += count
