"""Batches of Redpanda's segments that hold no records of clients: `kolumn.verify` counts them, and a read tells of those whose absence a
caller would not expect.

Redpanda's own batches are no loss. Batches that stand for records elsewhere, and those of a type that is not known, may be one.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from kolumn.core.errors import shown
from kolumn.damage.findings import Kind, Remark
from kolumn.formats import redpanda
from kolumn.formats.entries import Entries
from kolumn.source.segments import Segment

logger = logging.getLogger("kolumn")
_told: set[tuple[str, int]] = set()
"""Paths of segments and types that a warning was about."""
_OWN = "Redpanda writes them for itself: no consumer gets them, and a read returns them only with include_control"
_ELSEWHERE = "the records are in objects of a cloud topic, which Kolumn does not read"
_UNKNOWN = (
    f"Kolumn knows the types 1 to {len(redpanda.TYPES) - 1}; a newer Redpanda may have written them, and a newer Kolumn may know them"
)


class OtherTypes:
    """The intact batches of a chunk that are not of the type of records."""

    def __init__(self, entries: Entries) -> None:
        self.entries = entries

    @classmethod
    def among(cls, entries: Entries) -> "OtherTypes | None":
        """Those of some entries of Redpanda, if there are any."""
        other = entries.batch_type != redpanda.DATA
        return cls(entries[other]) if other.any() else None

    def tell(self, path: str) -> None:
        """Warn once for each segment and type that may stand for records which a caller expects."""
        for kind in np.unique(self.entries.batch_type).tolist():
            if (is_known(kind) and kind != redpanda.ELSEWHERE) or (path, kind) in _told:
                continue
            _told.add((path, kind))
            first = self.entries[self.entries.batch_type == kind][0]
            why = _UNKNOWN if kind != redpanda.ELSEWHERE else _ELSEWHERE
            logger.warning(
                "%s: position %d: batches of %s from raw offset %d on are left out: %s. kolumn.verify counts them",
                shown(path), first.position, type_name(kind), first.base_offset, why,
            )  # fmt: skip


@dataclass
class _OfType:
    position: int
    offset: int
    last_offset: int
    batches: int = 0


@dataclass
class TypeCounts:
    """How many batches of other types a segment has, by type."""

    found: dict[int, _OfType] = field(default_factory=dict)

    def add(self, seen: OtherTypes) -> None:
        """Add those of the next chunk."""
        types = seen.entries.batch_type
        for kind in np.unique(types).tolist():
            own = seen.entries[types == kind]
            base, last = int(own.base_offset.min()), int(own.last_offset.max())
            known = self.found.setdefault(kind, _OfType(int(own.position[0]), base, last))
            known.offset, known.last_offset = min(known.offset, base), max(known.last_offset, last)
            known.batches += len(own)

    def remarks(self, segment: Segment) -> Iterator[Remark]:
        """What was found, as one row for each type."""
        for kind, own in sorted(self.found.items()):
            text = f"{own.batches} {'batch' if own.batches == 1 else 'batches'} of {type_name(kind)}"
            remark, evidence = Kind.OWN_BATCHES, _OWN
            if kind == redpanda.ELSEWHERE:
                remark, evidence = Kind.RECORDS_ELSEWHERE, _ELSEWHERE
            elif not is_known(kind):
                remark, evidence = Kind.UNKNOWN_BATCH_TYPE, _UNKNOWN
            yield Remark(segment.path, own.position, remark, own.offset, own.last_offset, text, evidence)


def is_known(kind: int) -> bool:
    """Whether a type of batches has a name."""
    return 0 < kind < len(redpanda.TYPES)


def type_name(kind: int) -> str:
    """A type of batches in words."""
    return f"type {kind} ({redpanda.TYPES[kind]})" if is_known(kind) else f"the unknown type {0 if kind == redpanda.ZERO else kind}"
