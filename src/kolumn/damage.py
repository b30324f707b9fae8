"""What is known of damage, and what was found in a range."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kolumn.errors import Code, CorruptBatchError
from kolumn.formats import table

if TYPE_CHECKING:
    from kolumn.chunk import Decoded


@dataclass(frozen=True)
class Damage:
    """A stretch of a segment that gave no records.

    Attributes
    ----------
    segment : str
    position, size : int
        Bytes.
    base_offset, last_offset : int, optional
        As the damaged header says it, where that makes sense.
    reason : str
    records_lost : int, optional
        None where nothing tells.
    """

    segment: str
    position: int
    size: int
    base_offset: int | None
    last_offset: int | None
    reason: str
    records_lost: int | None


@dataclass
class Trouble:
    """The chain of entries can't be followed from ``position`` on.

    Attributes
    ----------
    position, floor : int
        Where, and the last good offset before it.
    error : CorruptBatchError
    resume : int, optional
        Where it goes on, if that is known already.
    row : int64 array, optional
        Of the damaged entry, where its header was read.
    """

    position: int
    floor: int
    error: CorruptBatchError
    resume: int | None = None
    row: Any = None

    def damage(self, end: int) -> Damage:
        """The damage, now that it is known to end at ``end``."""
        if self.row is not None:
            return damage_of(self.row, self.error, end - self.position, self.floor, whole=self.resume is not None)
        base = self.error.base_offset
        known = base is not None and base > self.floor
        return Damage(self.error.segment, self.position, end - self.position, base if known else None, None, reason(self.error), None)


def damage_of(row: Any, error: CorruptBatchError, size: int, floor: int, whole: bool = True) -> Damage:
    """Damage of one entry from its row of the batch table; ``whole`` says that nothing else was lost with it."""
    base, last, count = (int(row[column]) for column in (table.BASE_OFFSET, table.LAST_OFFSET, table.COUNT))
    starts, ends = base != table.UNKNOWN, last != table.UNKNOWN
    base, last = base if starts else last, last if ends else base
    sane = row[table.CODE] != Code.BAD_MAGIC and floor < base <= last
    lost = count if whole and sane and count >= 0 and (count <= last - base + 1 or not ends) else None
    return Damage(
        error.segment,
        int(row[table.POSITION]),
        size,
        base if sane and starts else None,
        last if sane and ends else None,
        reason(error),
        lost,
    )


def reason(error: CorruptBatchError) -> str:
    """What is wrong, in a few words."""
    record = "" if error.record is None else f"record {error.record}: "
    return f"{record}{error.field}: expected {error.expected}" + (f", found {error.found}" if error.found else "")


@dataclass
class Tally:
    """What was found in a range.

    Attributes
    ----------
    batches, records : int
        Intact ones.
    valid_bytes : int
        Bytes of intact entries.
    tail : str, optional
        "truncated" or "zeros": normal states of an active segment.
    tail_bytes : int
    inflated_by_cpu : int
        Payloads that the codecs of the CPU inflated for a GPU.
    damage : list of Damage
    """

    batches: int = 0
    records: int = 0
    valid_bytes: int = 0
    tail: str | None = None
    tail_bytes: int = 0
    inflated_by_cpu: int = 0
    damage: list[Damage] = field(default_factory=list)

    def add(self, decoded: "Decoded") -> None:
        """Count a decoded chunk in."""
        self.batches += decoded.intact
        self.records += decoded.records
        self.valid_bytes += decoded.valid_bytes
        self.inflated_by_cpu += decoded.inflated_by_cpu
        self.damage += decoded.damage
