"""Stretches after the last intact entry of a copy: part of an entry, preallocated zeros, or damage of unknown extent."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kolumn.replicas.examine import BASE, SIZE, Examined, LostStretch
from kolumn.replicas.window import CopyPart
from kolumn.source.segment_file import SegmentFile

_BLOCK = 1 << 20


@dataclass
class Tail:
    """A stretch without a known end.

    Attributes
    ----------
    examined : Examined
    stretch : LostStretch
    seen : dict
        For each other copy, its bytes after the tail's last intact offset.
    """

    examined: Examined
    stretch: LostStretch
    seen: dict[str, int] = field(default_factory=dict)

    @cached_property
    def size(self) -> int:
        """Bytes without the zeros at the end."""
        with SegmentFile(self.examined.segment) as file:
            for end in range(self.stretch.end, self.stretch.start, -_BLOCK):
                start = max(self.stretch.start, end - _BLOCK)
                filled = np.flatnonzero(file.read(start, end)[: end - start])
                if len(filled):
                    return start + int(filled[-1]) + 1 - self.stretch.start
        return 0

    def see(self, parts: Iterable[CopyPart]) -> None:
        """Count the bytes that other copies have."""
        for part in parts:
            one = part.examined
            if one.folder != self.examined.folder:
                entries = one.entries[part.start : part.end]
                self._add(one.folder, int(entries[entries[:, BASE] > self.stretch.floor, SIZE].sum()))

    def _add(self, folder: str, size: int) -> None:
        self.seen[folder] = self.seen.get(folder, 0) + size


def unhealed(tails: list[Tail], begins: Mapping[str, int]) -> list[Tail]:
    """Tails that may contain more than any other copy has; of those after the same offset only the longest.

    Copies have the same bytes, so a copy with as many bytes after the last intact offset, damaged ones included, has all that was lost:
    unless it begins later, as ``begins``, the first offset of each copy, tells.
    """
    left: dict[int, Tail] = {}
    for tail in sorted(tails, key=lambda tail: tail.size):
        for other in tails:
            if other.examined.folder != tail.examined.folder and other.stretch.floor > tail.stretch.floor:
                tail._add(other.examined.folder, other.size)
        seen = [size for folder, size in tail.seen.items() if begins[folder] <= tail.stretch.floor + 1]
        if tail.size and max(seen, default=0) < tail.size:
            left[tail.stretch.floor] = tail
    return [left[floor] for floor in sorted(left)]
