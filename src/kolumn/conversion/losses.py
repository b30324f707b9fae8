"""What a conversion loses: listed before, counted after."""

from collections import Counter

from kolumn.formats import layouts
from kolumn.formats.contents import TRANSACTIONS

ABORTED = "records of aborted transactions"
OPEN = "records of open transactions"


def holds(layout: int, magic: int) -> frozenset[str]:
    """What entries of a layout can hold, beyond offsets, keys and values."""
    return layouts.LAYOUTS[layout].holds[magic]


def possible(source_format: int, layout: int, magic: int) -> list[str]:
    """What a conversion may lose: what entries of the source's format can hold, and entries of the target's layout can't."""
    source = layouts.FORMATS[source_format]
    shipped = {what for number, one in source.magics.items() for what in one.holds[number]}
    held = shipped | {what for one in source.own_layouts for own in one.holds.values() for what in own}
    lost = held - holds(layout, magic)
    return sorted(lost | {ABORTED, OPEN} if TRANSACTIONS in lost else lost)


class Losses(Counter[str]):
    """How often each loss happened."""

    def note(self, what: str, count: int) -> None:
        """Count a loss, if it is one."""
        if count:
            self[what] += count
