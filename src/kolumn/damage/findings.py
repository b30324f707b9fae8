"""Damage found in segments, and the trouble that interrupts a read.

Damage and remarks as HTML, for notebooks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from kolumn.core.errors import Code, CorruptBatchError, LimitError, escaped, shown
from kolumn.formats import table
from kolumn.formats.entries import Entry
from kolumn.source.segments import Range

MOST_ROWS = 50


def html_table(names: Sequence[str], rows: Sequence[Iterable[object]], total: int | None = None) -> str:
    """A table of the first rows; ``total`` is how many there are."""
    head = "".join(f"<th>{escape(escaped(name))}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:MOST_ROWS])
    more = (len(rows) if total is None else total) - min(len(rows), MOST_ROWS)
    said = f"<p>and {more} more</p>" if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{said}"


def _cell(value: object) -> str:
    text = "" if value is None else escape(escaped(str(value)))
    return f'<td style="text-align: right">{text}</td>' if isinstance(value, int) else f'<td style="text-align: left">{text}</td>'


_NAMES = ("segment", "position", "size", "baseOffset", "lastOffset", "recordsLost", "reason", "kind")

DAMAGE, LIMIT = "damage", "limit"
"""Kinds of what a read leaves out."""


class WrongChecksumsError(Exception):
    """Checksums of a chunk turned out to be wrong while its records were decoded. Their entries have a code now: decode once more."""


@dataclass(frozen=True)
class Damage:
    """A stretch of a segment from which records could not be read, damaged or over a limit.

    Attributes
    ----------
    segment : str
    position, size : int
        Position and number of its bytes.
    base_offset, last_offset : int, optional
        Offsets from the damaged header, if they are credible. If other records of the entry are read, the lost ones have offsets between
        these.
    reason : str
    records_lost : int, optional
        None if it is not known.
    error : CorruptBatchError, optional
        The error that a read with ``errors="raise"`` raises there.
    """

    segment: str
    position: int
    size: int
    base_offset: int | None
    last_offset: int | None
    reason: str
    records_lost: int | None
    error: CorruptBatchError | None = field(default=None, compare=False, repr=False)

    @property
    def kind(self) -> str:
        """``"damage"``; or ``"limit"``: an intact batch that is larger than ``max_batch_bytes`` or ``max_ratio`` allow."""
        return LIMIT if isinstance(self.error, LimitError) else DAMAGE

    def _row(self) -> tuple[object, ...]:
        offsets = self.base_offset, self.last_offset, self.records_lost
        return shown(self.segment), self.position, self.size, *offsets, self.reason, self.kind

    def _repr_html_(self) -> str:
        """The damage as a table, for notebooks."""
        return html_table(_NAMES, [self._row()])


@dataclass(frozen=True)
class Lost:
    """What is lost of an entry of which other records are read.

    Attributes
    ----------
    records : int, optional
        How many are lost, None if that is not known.
    offsets : tuple of int, optional
        First and last offset that they can have, if that is known.
    text : str
        Which ones, in words.
    """

    records: int | None
    offsets: tuple[int, int] | None
    text: str


@dataclass
class Skipped:
    """Collects what a read with ``errors="skip"`` leaves out. Pass it to `kolumn.read` or `scan` as ``on_damage``.

    Attributes
    ----------
    damage : list of Damage
        Each damaged stretch, in the order of the read: the same rows as in the damage table of `kolumn.verify`.
    limits : list of Damage
        Each batch that is over a limit, likewise. It is not damaged.
    """

    damage: list[Damage] = field(default_factory=list)
    limits: list[Damage] = field(default_factory=list)

    def __call__(self, piece: Damage) -> None:
        """Add what was left out at one place."""
        (self.limits if piece.kind == LIMIT else self.damage).append(piece)

    def add(self, other: "Skipped") -> None:
        """Add all that another read left out."""
        self.damage += other.damage
        self.limits += other.limits

    @property
    def pieces(self) -> list[Damage]:
        """All that was left out, damage first."""
        return self.damage + self.limits

    @property
    def errors(self) -> list[CorruptBatchError]:
        """The error of each place, as a read with ``errors="raise"`` raises it for the first one."""
        return [piece.error for piece in self.pieces if piece.error is not None]

    @property
    def stretches(self) -> int:
        """Number of damaged stretches."""
        return len(self.damage)

    @property
    def bytes(self) -> int:
        """Bytes in all damaged stretches."""
        return sum(piece.size for piece in self.damage)

    @property
    def records(self) -> int:
        """Records lost in those stretches whose number of records is known."""
        return sum(piece.records_lost or 0 for piece in self.damage)

    @property
    def uncounted(self) -> int:
        """Stretches whose number of records is not known."""
        return sum(piece.records_lost is None for piece in self.damage)

    def _repr_html_(self) -> str:
        """What was left out as a table, for notebooks."""
        rows = [piece._row() for piece in self.pieces[:MOST_ROWS]]
        return f"<p>{escape(str(self))}</p>" + (html_table(_NAMES, rows, len(self.pieces)) if rows else "")

    def __str__(self) -> str:
        parts = []
        if self.damage:
            parts.append(_said(self.damage, "damaged stretch", "damaged stretches"))
        if self.limits:
            parts.append(_said(self.limits, "batch over a limit", "batches over a limit"))
        return "; ".join(parts) or "nothing left out"


def _said(pieces: list[Damage], one: str, several: str) -> str:
    name = f"1 {one}" if len(pieces) == 1 else f"{len(pieces)} {several}"
    size, told = sum(piece.size for piece in pieces), [piece.records_lost for piece in pieces]
    count = sum(known or 0 for known in told)
    records = "1 record" if count == 1 else f"{count} records"
    if None in told:
        records = f"at least {records}" if count else "an unknown number of records"
    return f"{name} left out: {size} byte{'' if size == 1 else 's'}, {records}"


@dataclass
class Trouble:
    """The chain of entries cannot be followed from ``position`` on.

    Attributes
    ----------
    position, floor : int
        The position, and the last intact offset before it.
    error : CorruptBatchError
    resume : int, optional
        Where the chain continues, if that is already known.
    row : int64 array, optional
        Row of the damaged entry, if its header was read.
    lost : tuple of int, optional
        First and last lost offset, if neighbours or index files show them.
    alone : bool
        Whether nothing else was lost with the entry, if ``resume`` is known.
    """

    position: int
    floor: int
    error: CorruptBatchError
    resume: int | None = None
    row: Entry | None = None
    lost: tuple[int, int] | None = None
    alone: bool = True

    def damage(self, end: int) -> Damage:
        """The damage up to ``end``. It has no bytes if an intact entry begins before the damage."""
        size = max(end - self.position, 0)
        if self.row is not None:
            return damage_of(self.row, self.error, size, self.floor, whole=self.resume is not None and self.alone)
        if self.lost is not None:
            return Damage(self.error.segment, self.position, size, *self.lost, reason(self.error), None, self.error)
        base = self.error.base_offset
        known = base is not None and base > self.floor
        return Damage(self.error.segment, self.position, size, base if known else None, None, reason(self.error), None, self.error)


def damage_of(row: Entry, error: CorruptBatchError, size: int, floor: int, whole: bool = True, part: Lost | None = None) -> Damage:
    """Damage of one entry; ``whole`` means that nothing else was lost with it, ``part`` is what was lost if other records are read."""
    if part is not None:
        first, last = part.offsets or (None, None)
        return Damage(error.segment, row.position, size, first, last, f"{reason(error)}; {part.text}", part.records, error)
    base, last, count = row.base_offset, row.last_offset, row.count
    starts, ends = base != table.UNKNOWN, last != table.UNKNOWN
    base, last = base if starts else last, last if ends else base
    sane = row.code != Code.BAD_MAGIC and floor < base <= last
    lost = count if whole and sane and count >= 0 and (count <= last - base + 1 or not ends) else None
    return Damage(
        error.segment,
        row.position,
        size,
        base if sane and starts else None,
        last if sane and ends else None,
        reason(error),
        lost,
        error,
    )


def damage_of_fault(one: Range) -> Damage:
    """Damage of a range that could not be read at all: its `fault`."""
    error = one.fault
    return Damage(error.segment, one.start, one.end - one.start, None, None, reason(error), None, error)


def reason(error: CorruptBatchError) -> str:
    """Short description of an error."""
    record = "" if error.record is None else f"record {error.record}: "
    return shown(f"{record}{error.field}: expected {error.expected}" + (f", found {error.found}" if error.found else ""))
