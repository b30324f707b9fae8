"""What a conversion loses: listed before, counted after."""

from collections import Counter

from kolumn.formats import layouts

TIMESTAMPS = "timestamps"
APPEND_TIMES = "LogAppendTime types"
HEADERS = "headers"
PRODUCERS = "producer ids, epochs and sequences"
TRANSACTIONS = "transactional flags"
MARKERS = "COMMIT and ABORT markers"
OTHER_CONTROL = "control records of other types"
TYPED_CONTROL = "control messages of the enriched format"
ABORTED = "records of aborted transactions"
OPEN = "records of open transactions"
LEADER_EPOCHS = "leader epochs"
HORIZONS = "delete horizons"
EMPTY = "empty batches"
DELETES = "payloads of tombstones"
TOMBSTONES = "records without a value that become tombstones"
SECONDS = "timestamps in seconds beside the broker's"

_BATCH = {TIMESTAMPS, APPEND_TIMES, HEADERS, PRODUCERS, TRANSACTIONS, MARKERS, OTHER_CONTROL, LEADER_EPOCHS, HORIZONS, EMPTY}
_HOLDS: dict[tuple[int, int], set[str]] = {
    (layouts.LEGACY, 0): set(),
    (layouts.LEGACY, 1): {TIMESTAMPS, APPEND_TIMES},
    (layouts.KIP87, 2): {TIMESTAMPS, APPEND_TIMES, DELETES, TOMBSTONES},
    (layouts.ENRICHED, 1): {TIMESTAMPS, TYPED_CONTROL, SECONDS},
    (layouts.KIP98, 2): {TIMESTAMPS, APPEND_TIMES, PRODUCERS, TRANSACTIONS, MARKERS, EMPTY},
    (layouts.V2, 2): _BATCH,
    (layouts.V3, 3): _BATCH,
    (layouts.V3_BARE, 3): _BATCH,
}


def holds(layout: int, magic: int) -> set[str]:
    """What entries of a layout can hold, beyond offsets, keys and values."""
    return _HOLDS[layout, magic]


def possible(source_format: int, layout: int, magic: int) -> list[str]:
    """What a conversion may lose: what entries of the source's format can hold and entries of the target's layout can't."""
    held: set[str] = set()
    for (own, number), what in _HOLDS.items():
        mixed = own in (layouts.V3, layouts.V3_BARE) if number == 3 else layouts.layout_of(source_format, number) == own
        if mixed and (number != 3 or source_format == layouts.V3_FORMAT):
            held |= what
    lost = held - holds(layout, magic)
    return sorted(lost | {ABORTED, OPEN} if TRANSACTIONS in lost else lost)


class Losses(Counter[str]):
    """How often each loss happened."""

    def note(self, what: str, count: int) -> None:
        """Count a loss, if it is one."""
        if count:
            self[what] += count
