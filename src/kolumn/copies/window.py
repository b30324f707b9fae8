"""Which copy each offset is read from: entries of all copies that lie between two offsets are resolved together.

Followers copy a leader's batches byte by byte, so nearly all entries are the same in all copies, and any copy can be read. If entries
overlap but differ, one copy was compacted further than another, was written by another program, or has offsets that two leaders
assigned. The records of such entries are compared (`contested`).
"""

from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

import numpy as np

from kolumn.copies.contested import Claimed, Disagreement, claim
from kolumn.copies.examine import BASE, COUNT, CRC, EPOCH, LAST, MESSAGE, POSITION, SIZE, WRAPS, Examined, misplaced
from kolumn.core.arrays import Flags, Int64s
from kolumn.options import Options

LANE, ROW, LOW, STOP, WHOLE = range(5)
"""Columns of pieces: the part, the entry of its segment, the offsets [LOW, STOP) of it that are used, and whether those are all."""
_CONTESTED_BYTES = 32 << 20
"""Bytes whose records are compared at a time."""


class CopyPart(NamedTuple):
    """Entries [start, end) of a segment; ``rank`` is the preference of its copy, 0 is preferred most."""

    examined: Examined
    start: int
    end: int
    rank: int


@dataclass
class Resolved:
    """Result of a window: ``pieces`` in the order of offsets, or None if the window has to be resolved again, and why.

    Attributes
    ----------
    pieces : int64 array of shape (n, 5), optional
    disagreement : Disagreement, optional
        Two copies have different records at an offset.
    """

    pieces: Int64s | None = None
    disagreement: Disagreement | None = None


def resolve(parts: list[CopyPart], options: Options) -> Resolved:
    """Take each offset once. If entries turn out to be damaged, they become stretches of their segment and nothing is resolved."""
    window = _Window(parts)
    if give_up_misplaced(window.odd()):
        return Resolved()
    contested = window.contested()
    if window.give_up_insides(np.flatnonzero(contested)):
        return Resolved()
    pieces = [window.whole(np.flatnonzero(~contested))]
    for group in window.groups(np.flatnonzero(contested)):
        found = claim(window.claims(group), options)
        if isinstance(found, Disagreement):
            return Resolved(disagreement=found)
        if found is None:
            return Resolved()
        pieces.append(found)
    all_pieces = np.concatenate(pieces)
    return Resolved(all_pieces[np.argsort(all_pieces[:, LOW], kind="stable")])


class Group(NamedTuple):
    """An entry and all copies that have it at its offsets; entries with the same bytes have the same ``number``."""

    number: int
    base: int
    last: int
    members: list[tuple[CopyPart, int]]


class _Window:
    """Entries of several segments; entries that are the same in several segments are grouped."""

    def __init__(self, parts: list[CopyPart]) -> None:
        self.parts = parts
        rows = np.concatenate([part.examined.entries[part.start : part.end] for part in parts])
        lane = np.concatenate([np.full(part.end - part.start, i) for i, part in enumerate(parts)])
        at = np.concatenate([np.arange(part.start, part.end) for part in parts])
        rank = np.array([part.rank for part in parts], np.int64)[lane]
        is_cut = rows[:, LAST] >= np.array([part.examined.stale for part in parts], np.int64)[lane]
        # Of copies of one entry those count first that belong to the log as a whole, and whose epoch is in order.
        order = np.lexsort((rank, rows[:, EPOCH] < 0, is_cut, rows[:, SIZE], rows[:, CRC], rows[:, LAST], rows[:, BASE]))
        self.rows, self.lane, self.at, self.is_cut = rows[order], lane[order], at[order], is_cut[order]
        identity = self.rows[:, (BASE, LAST, CRC, SIZE)]
        first = np.ones(len(order), np.bool_)
        first[1:] = (identity[1:] != identity[:-1]).any(axis=1)
        self.first = np.flatnonzero(first)
        self.copies = np.diff(np.append(self.first, len(order)))
        self.unique = self.rows[self.first]

    def members(self, i: int) -> list[tuple[CopyPart, int]]:
        """All copies that have an entry: the part, and its row there."""
        some = slice(int(self.first[i]), int(self.first[i] + self.copies[i]))
        return [(self.parts[lane], row) for lane, row in zip(self.lane[some].tolist(), self.at[some].tolist(), strict=True)]

    def contested(self) -> Flags:
        """Flags of the entries that overlap others, or of which not all records belong to the log."""
        base, last = self.unique[:, BASE], self.unique[:, LAST]
        begins = np.ones(len(base), np.bool_)
        begins[1:] = base[1:] > np.maximum.accumulate(last)[:-1]
        self.cluster = np.cumsum(begins) - 1
        return (np.bincount(self.cluster)[self.cluster] > 1) | self.is_cut[self.first] if len(base) else begins

    def give_up_insides(self, contested: Int64s) -> bool:
        """Discard messages of damaged wrappers, which look like entries if the codec stored them uncompressed.

        They lie at the offsets of a wrapper in another copy, and in this copy damage begins where that wrapper begins.
        """
        wraps = self.unique[contested, WRAPS] == 1
        wrappers: dict[int, list[tuple[CopyPart, int]]] = {}
        for i in contested[wraps].tolist():
            wrappers.setdefault(int(self.cluster[i]), []).extend(self.members(i))
        wrong: dict[tuple[int, int], Examined] = {}
        for i in contested[self.unique[contested, MESSAGE] == 1].tolist():
            for part, row in self.members(i) if int(self.cluster[i]) in wrappers else ():
                if any(part.examined.is_inside(row, other.examined, at) for other, at in wrappers[int(self.cluster[i])]):
                    wrong[id(part.examined), row] = part.examined
        for (_, row), examined in sorted(wrong.items(), key=lambda one: -one[0][1]):
            examined.without(row, None)
        return bool(wrong)

    def groups(self, contested: Int64s) -> list[Int64s]:
        """Contested entries in groups of some MiB; overlapping entries are in the same group."""
        if not len(contested):
            return []
        sizes = np.cumsum(self.unique[contested, SIZE])
        cluster = self.cluster[contested]
        begins = np.flatnonzero(np.append(True, np.diff(cluster) > 0))
        number = np.repeat(sizes[begins] // _CONTESTED_BYTES, np.diff(np.append(begins, len(contested))))
        return list(np.split(contested, np.flatnonzero(np.diff(number)) + 1))

    def whole(self, chosen: Int64s) -> Int64s:
        """Pieces of whole entries, each from the preferred copy."""
        of = self.first[chosen]
        rows = self.rows[of]
        return np.stack([self.lane[of], self.at[of], rows[:, BASE], rows[:, LAST] + 1, np.ones(len(of), np.int64)], axis=1)

    def claims(self, group: Int64s) -> list[Claimed]:
        """The contested entries of each segment: its rows, and which other copies have the same ones."""
        found: dict[int, Claimed] = {}
        for i in group.tolist():
            lane, row = int(self.lane[self.first[i]]), int(self.at[self.first[i]])
            part = self.parts[lane]
            one = found.setdefault(lane, Claimed(lane, part.examined, part.rank, [], {}))
            one.rows.append(row)
            one.members[row] = [(other.examined, at) for other, at in self.members(i)]
        return list(found.values())

    def odd(self) -> list[Group]:
        """Entries that some copies lack, and whose bytes also exist at another offset, in this window or after it."""
        folders = len({part.examined.folder for part in self.parts})
        odd = np.flatnonzero(self.copies < folders)
        if not len(odd):
            return []
        found = [(self.unique[odd], [self.members(i) for i in odd.tolist()])]
        for part in self.parts:
            rows = part.examined.entries[part.end :]
            is_later = np.isin(rows[:, CRC], found[0][0][:, CRC]) & (rows[:, BASE] < part.examined.stale)
            later = np.flatnonzero(is_later) + part.end
            found.append((part.examined.entries[later], [[(part, row)] for row in later.tolist()]))
        rows = np.concatenate([some for some, _ in found])
        members = [one for _, some in found for one in some]
        same = np.stack([rows[:, CRC], rows[:, SIZE], rows[:, LAST] - rows[:, BASE], rows[:, COUNT]], axis=1)
        _, number, count = np.unique(same, axis=0, return_inverse=True, return_counts=True)
        twice = np.flatnonzero(count[number.ravel()] > 1)
        return [Group(int(number.ravel()[i]), int(rows[i, BASE]), int(rows[i, LAST]), members[i]) for i in twice.tolist()]


def give_up_misplaced(odd: list[Group]) -> bool:
    """Discard entries whose offset is damaged but still in order: other copies have the same bytes at an offset that fits better."""
    wrong: dict[tuple[int, int], Examined] = {}
    alike: dict[int, list[Group]] = {}
    for group in odd:
        alike.setdefault(group.number, []).append(group)
    for groups in alike.values():
        for loser, winner in permutations(groups, 2):
            if _belongs(loser, winner):
                wrong |= {(id(part.examined), row): part.examined for part, row in loser.members}
    for (_, row), examined in sorted(wrong.items(), key=lambda one: -one[0][1]):
        give_up(examined, row)
    return bool(wrong)


def give_up(examined: Examined, row: int) -> None:
    """Discard an entry whose offset is damaged."""
    entries = examined.entries
    high = int(entries[row + 1, BASE]) - 1 if row + 1 < len(entries) else examined.limit
    examined.without(row, misplaced(examined.segment.path, entries[row].tolist(), examined.floor(row) + 1, high))


def less_believed(one: Examined, row: int, other: Examined, at: int) -> bool | None:
    """Whether of two entries with the same bytes at different offsets the first one's is damaged; None if their bytes differ.

    It is the one with fewer intact neighbours in its file; of two with as many, the one with the higher offset, since most damage
    changes an offset by much.
    """
    mine, theirs = one.entries[row], other.entries[at]
    if (mine[[CRC, SIZE]] != theirs[[CRC, SIZE]]).any() or mine[BASE] == theirs[BASE]:
        return None
    own, others = _neighbours(one.entries, row), _neighbours(other.entries, at)
    return own < others if own != others else bool(mine[BASE] > theirs[BASE])


def _neighbours(entries: Int64s, row: int) -> int:
    """How many intact entries adjoin an entry in its file."""
    ends = entries[:, POSITION] + entries[:, SIZE]
    return int(row > 0 and ends[row - 1] == entries[row, POSITION]) + int(
        row + 1 < len(entries) and ends[row] == entries[row + 1, POSITION]
    )


def _belongs(loser: Group, winner: Group) -> bool:
    """Whether an entry originally had the offset of another entry with the same bytes, before its own offset was damaged."""
    folders, others = ({part.examined.folder for part, _ in group.members} for group in (loser, winner))
    if loser.base == winner.base or folders & others:
        return False
    for part, row in loser.members:
        entries = part.examined.entries
        if part.examined.floor(row) >= winner.base or (row + 1 < len(entries) and winner.last >= entries[row + 1, BASE]):
            return False
        if any(_has_room(part.examined, row, other.examined, at) for other, at in winner.members):
            return False
    own = max(_touches(member, loser) for member in loser.members), len(folders)
    if own[0]:
        # Damage hardly ever produces exactly the next offset, or the one in the segment's name.
        return False
    other = max(_touches(member, winner) for member in (*winner.members, *loser.members)), len(others)
    if own != other:
        return own < other
    # The same bytes follow the same offset, so one of the two offsets is damaged, and most damage changes an offset by much.
    floors = ({part.examined.floor(row) for part, row in group.members} for group in (loser, winner))
    return bool(set.intersection(*floors)) and winner.base < loser.base


def _has_room(examined: Examined, row: int, other: Examined, at: int) -> bool:
    """Whether the damaged bytes before or after an entry are those of the other one, which is next to the same neighbour in its copy.

    Then the log had the same records twice.
    """
    entries, others = examined.entries, other.entries
    size = int(entries[row, SIZE])
    if others[at, BASE] < entries[row, BASE]:
        return examined.floor(row) == other.floor(at) and _gap(entries, row) >= _gap(others, at) + size
    if row + 1 == len(entries) or at + 1 == len(others):
        return False
    return bool(entries[row + 1, BASE] == others[at + 1, BASE]) and _gap(entries, row + 1) >= _gap(others, at + 1) + size


def _gap(entries: Int64s, row: int) -> int:
    """Bytes between an entry and the intact one before it."""
    return int(entries[row, POSITION]) - (int(entries[row - 1, POSITION] + entries[row - 1, SIZE]) if row else 0)


def _touches(member: tuple[CopyPart, int], group: Group) -> int:
    """How many of an entry's neighbours would adjoin the group's offsets, if the entry had them.

    Only neighbours that adjoin it in the file count too: if damage lies between them, other offsets lie between them.
    """
    examined, row = member[0].examined, member[1]
    entries = examined.entries
    start, end = int(entries[row, POSITION]), int(entries[row, POSITION] + entries[row, SIZE])
    follows = start == (int(entries[row - 1, POSITION] + entries[row - 1, SIZE]) if row else 0)
    leads = end == (int(entries[row + 1, POSITION]) if row + 1 < len(entries) else examined.segment.size)
    following = entries[row + 1, BASE] - 1 if row + 1 < len(entries) else examined.limit
    return int(follows and examined.floor(row) + 1 == group.base) + int(leads and group.last == following)
