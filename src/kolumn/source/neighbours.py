"""Which segment of a folder follows which, by the names of its files."""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import Any

from kolumn.source import storage
from kolumn.source.log_names import CLEANED, DELETED, INDEXES, LOG, SWAP, base_and_copy, offset_in

_BASE_OFFSET = re.compile(r"[0-9]{20}")


class Order:
    """The order of the segments of one log.

    Parameters
    ----------
    bases : set of int
        Their base offsets.
    orphans : iterable of str
        Names of index files without a log.
    """

    def __init__(self, bases: set[int], orphans: Iterable[str]) -> None:
        ordered = sorted(bases)
        self._after = dict(pairwise(ordered))
        self._before = {following: base for base, following in self._after.items()}
        self._lost: dict[int, list[str]] = {}
        for name in sorted(orphans):
            base = int(storage.base_name(name).partition(".")[0])
            if ordered:
                self._lost.setdefault(ordered[max(0, bisect_right(ordered, base) - 1)], []).append(name)

    def of(self, base: int) -> dict[str, Any]:
        """The attributes of a segment with this base offset that depend on its neighbours."""
        return {"following": self._after.get(base), "preceding": self._before.get(base), "orphans": tuple(self._lost.get(base, ()))}


class NamedNeighbours:
    """What the names of the files in a folder of this machine tell about the order of its segments.

    Attributes
    ----------
    order : Order
    """

    def __init__(self, names: list[str]) -> None:
        self._unfinished = unfinished_from(names)
        bases = {name: base_and_copy(name)[0] for name in names if name.endswith((LOG, SWAP))}
        live = {storage.base_name(name): base for name, base in bases.items() if not self._is_unfinished(name, base)}
        self._live = live.keys()
        # An index without a log counts only if there is something in it.
        lost = [name for name in alone(names) if (found := storage.look(name)) is not None and found.size]
        self.order = Order({base for base in live.values() if base is not None}, lost)

    def has(self, path: str) -> bool:
        """Whether a segment is one of those that count."""
        return storage.base_name(path) in self._live

    def _is_unfinished(self, name: str, base: int | None) -> bool:
        return self._unfinished is not None and base is not None and base >= self._unfinished and name.endswith(SWAP)


def alone(names: Collection[str]) -> list[str]:
    """Names of index files that have no log next to them."""
    indexes = [name for name in names if name.endswith(INDEXES)]
    if not indexes:
        return indexes
    suffixes = (LOG, SWAP, f"{LOG}{CLEANED}", f"{LOG}{DELETED}")
    logs = {storage.base_name(name).partition(".")[0] for name in names if name.endswith(suffixes)}
    return [name for name in indexes if _BASE_OFFSET.fullmatch(stem := storage.base_name(name).partition(".")[0]) and stem not in logs]


def orphans_of(files: Iterable[storage.FolderEntry]) -> list[str]:
    """Names of index files that are not empty and have no log next to them, not even one that is being deleted."""
    sizes = {file.name: file.size for file in files}
    return [name for name in alone(sizes) if sizes[name]]


def unfinished_from(names: Iterable[str]) -> int | None:
    """The lowest offset of a ``.cleaned`` file, of a log or of any other file; None without any."""
    return min((offset for name in names if name.endswith(CLEANED) and (offset := offset_in(name)) is not None), default=None)
