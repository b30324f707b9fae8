"""Where transaction markers that are missing have been: the offsets that are absent, less those at which others have been."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kolumn.tools.auditing.sequences import Event, FindingKind

MOST_OFFSETS = 200
"""Offsets at which one marker can have been that are compared with those of others."""
_MOST_SAID = 5


@dataclass
class MissingMarker:
    """A marker of a producer. ``first`` and ``last`` are the offsets between which it was, ``offsets`` those of them that are absent. It is
    only suspected if not ``is_sure``."""

    event: Event
    path: str
    first: int
    last: int
    offsets: set[int]
    is_sure: bool
    texts: list[str]

    def add(self, event: Event, offsets: set[int]) -> None:
        """Add what else tells of this marker."""
        is_sure = event.kind == FindingKind.MARKER_MISSING
        if is_sure and not self.is_sure:
            self.event, self.is_sure, self.texts = event, True, []
        if is_sure or not self.is_sure:
            self.texts.append(event.detail)
        self.offsets = self.offsets & offsets or self.offsets or offsets
        self.first, self.last = max(self.first, event.first), min(self.last, event.last)

    @property
    def choice(self) -> str:
        """The offsets that are left, if there are several."""
        if len(self.offsets) < 2:
            return ""
        if len(self.offsets) > _MOST_SAID:
            return f"it was at one of the offsets from {min(self.offsets)} to {max(self.last, max(self.offsets))}"
        return f"it was at one of {', '.join(map(str, sorted(self.offsets)))}"


def missing_markers(events: Iterable[tuple[Event, str]], absent: Callable[[int, int], set[int]]) -> list[MissingMarker]:
    """Markers that events tell of, each with the path of its segment. ``absent`` has the first absent offsets of a range. Between two
    batches of a producer there is one marker, so events whose ranges overlap tell of the same one."""
    found: dict[int, list[MissingMarker]] = defaultdict(list)
    for event, path in sorted(events, key=lambda one: one[0].last - one[0].first):
        offsets, own = absent(event.first, event.last), found[event.producer]
        if not offsets and event.missing:
            continue
        same = [one for one in own if one.first <= event.last and event.first <= one.last]
        if same:
            # A snapshot tells of the one right before a transaction.
            max(same, key=lambda one: one.first).add(event, offsets)
        else:
            is_sure = event.kind == FindingKind.MARKER_MISSING
            own.append(MissingMarker(event, path, event.first, event.last, offsets, is_sure, [event.detail]))
    markers = [one for own in found.values() for one in own]
    taken = _eliminate([one for one in markers if one.is_sure and len(one.offsets) < MOST_OFFSETS])
    for one in markers:
        one.offsets -= set() if one.is_sure else taken
    return sorted((one for one in markers if one.is_sure or one.offsets), key=lambda one: one.first)


def _eliminate(markers: list[MissingMarker]) -> set[int]:
    """Where as many markers as offsets can only have been at these, no other one was there. Returns these offsets."""
    before = -1
    while before != (now := sum(len(one.offsets) for one in markers)):
        before = now
        groups = Counter(frozenset(one.offsets) for one in markers)
        full = {offsets for offsets, count in groups.items() if count == len(offsets)}
        taken = set[int]().union(*full)
        for one in markers:
            if frozenset(one.offsets) not in full:
                one.offsets = one.offsets - taken or one.offsets
    return taken
