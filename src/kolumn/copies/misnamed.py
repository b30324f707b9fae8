"""Segments whose entries have other offsets than their name says: a file was renamed, copied under another name, or swapped.

No entry of a broker's segment has an offset below the segment's name, or one that the next segment begins with. Where one has, a name is
wrong or an offset is damaged, which no checksum tells. Intact entries that adjoin each other in offsets are believed: a damaged offset
rarely adjoins its neighbour's. So is one that begins where another segment should, by its name.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from kolumn.copies.copies import Copies, bounds, linked
from kolumn.copies.ends import last_offset
from kolumn.copies.examine import BASE, LAST, MESSAGE, POSITION, examine
from kolumn.core.errors import KolumnError, shown
from kolumn.damage.intact import RELATIVE
from kolumn.formats import table
from kolumn.log.headers import headers
from kolumn.options import Options
from kolumn.source.segments import Segment

logger = logging.getLogger("kolumn.replicas")
_ANY = 2**62
"""No limit to offsets."""


@dataclass(frozen=True)
class _Placed:
    """A segment, the offsets that its entries have, and whether its name was in doubt."""

    segment: Segment
    low: int
    high: int
    was_in_doubt: bool = False

    @property
    def base(self) -> int:
        return self.segment.base_offset or 0


def by_contents(folders: Copies, options: Options) -> Copies:
    """The copies of a partition, in which each segment begins where its entries do if its name is wrong.

    A segment that has offsets of another one of its directory becomes a copy of its own. Reads the first and last headers of each
    segment, and all of those whose headers contradict a name.
    """
    found: Copies = {}
    names = {one.base_offset or 0 for own in folders.values() for one in own}
    for folder, own in folders.items():
        named = all(one.base_offset is not None and one.copy_id is None for one in own)
        placed = [*_placed(own, names, options)] if named else []
        if not any(one.was_in_doubt for one in placed):
            found[folder] = own
            continue
        kept: list[_Placed] = []
        for one in sorted(placed, key=lambda one: (one.base, one.was_in_doubt)):
            if not kept or kept[-1].high < one.base:
                kept.append(one)
            elif one.low > kept[-1].high:
                kept.append(replace(one, segment=replace(one.segment, base_offset=kept[-1].high + 1)))
            else:
                found[one.segment.path] = linked([one.segment])
        found[folder] = linked([one.segment for one in kept])
    return found


def _placed(own: list[Segment], names: set[int], options: Options) -> Iterator[_Placed]:
    reaches_next = False
    for one, limit in sorted(bounds(own).items(), key=lambda item: item[0].base_offset or 0):
        base, highest = one.base_offset or 0, _ANY if limit is None else limit
        low, high = _ends(one)
        doubt = bool(one.size) and (reaches_next or low < base or high < low or high > highest)
        reaches_next = high > highest
        believed = _believed(one, names, options) if doubt else None
        if believed is None:
            yield _Placed(one, base, min(high, highest))
        elif believed[0] < base or believed[0] > highest:
            logger.warning("%s: its entries have offsets %d to %d, so its name is not believed", shown(one.path), *believed)
            yield _Placed(replace(one, base_offset=believed[0]), *believed, was_in_doubt=True)
        else:
            yield _Placed(one, *believed, was_in_doubt=True)


def _ends(segment: Segment) -> tuple[int, int]:
    """First and last offset by headers; the last one is below the first one if headers do not tell."""
    try:
        first = next((entries for entries in headers(segment) if len(entries)), None)
    except KolumnError:
        first = None
    if first is None:
        return segment.base_offset or 0, -1
    return int(first.last_offset[0] if first.base_offset[0] == table.UNKNOWN else first.base_offset[0]), last_offset(segment)


def _believed(segment: Segment, names: set[int], options: Options) -> tuple[int, int] | None:
    """First and last offset of the intact entries that adjoin others, or with which a segment begins by its name."""
    anywhere = replace(segment, base_offset=0, following=None, preceding=None, orphans=())
    found = examine(anywhere, "", _ANY, options)
    entries = np.concatenate([strand.entries for strand in found])
    damaged = [stretch.start for strand in found for stretch in strand.stretches[:1]]
    if damaged:
        # A damaged wrapper may store its messages as they are, with offsets from 0 on.
        inner = (entries[:, MESSAGE] == 1) & (entries[:, BASE] < RELATIVE) & (entries[:, POSITION] > damaged[0])
        entries = entries[~inner]
    touching = entries[1:, BASE] == entries[:-1, LAST] + 1
    if not touching.any():
        return None
    some = entries[np.append(touching, False) | np.insert(touching, 0, False) | np.isin(entries[:, BASE], [*names])]
    return int(some[:, BASE].min()), int(some[:, LAST].max())
