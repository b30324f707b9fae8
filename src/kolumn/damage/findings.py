"""What is wrong with entries: damage, remarks, and the trouble that interrupts a read; errors from codes in the batch table."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from kolumn.core.arrays import Bytes
from kolumn.core.errors import Code, CorruptBatchError, LimitError, error_kind, escaped, shown
from kolumn.core.lost import LostValues
from kolumn.core.results import Result, counted
from kolumn.core.schema import REMARK_SCHEMA
from kolumn.core.text import in_column
from kolumn.cpu_fallback.machine.checksum import crc32c
from kolumn.damage.stopped import StoppedAt, joined, lines
from kolumn.formats import layouts, redpanda, table
from kolumn.formats.entries import Entry, Lost
from kolumn.source.segments import Range

logger = logging.getLogger("kolumn.values")
of_transactions = logging.getLogger("kolumn.transactions")
MOST_ROWS = 50
PAST_IT = 'open_transactions="skip" reads past it'
_NAMES = ("segment", "position", "size", "baseOffset", "lastOffset", "recordsLost", "reason", "kind")
DAMAGE, LIMIT = "damage", "limit"
"""Kinds of what a read leaves out."""
REMARKED = ("segment", "position", "offset", "value", "tombstone")
"""Columns of KIP-87 records that are needed for remarks."""
_OF_ATTRIBUTES = {Code.BAD_CODEC, Code.CODEC_NOT_ALLOWED, Code.MESSAGE_TYPE}


def html_table(names: Sequence[str], rows: Sequence[Iterable[object]], total: int | None = None) -> str:
    """A table of the first rows; ``total`` is how many there are."""
    head = "".join(f"<th>{escape(escaped(name))}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:MOST_ROWS])
    more = (len(rows) if total is None else total) - min(len(rows), MOST_ROWS)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" + (f"<p>and {more} more</p>" if more > 0 else "")


def _cell(value: object) -> str:
    text = "" if value is None else escape(escaped(str(value)))
    return f'<td style="text-align: {"right" if isinstance(value, int) else "left"}">{text}</td>'


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
        return html_table(_NAMES, [self._row()])


OnDamage = Callable[[Damage], None]


@dataclass(repr=False)
class Skipped(Result):
    """Collects what a read with ``errors="skip"`` leaves out. Pass it to `kolumn.read` or `scan` as ``on_damage``.

    Attributes
    ----------
    damage : list of Damage
        Each damaged stretch, in the order of the read: the same rows as in the damage table of `kolumn.verify`.
    limits : list of Damage
        Each batch that is over a limit, likewise. It is not damaged.
    values : LostValues
        What could not be decoded of typed keys and values, whatever ``errors`` says.
    stopped : list of StoppedAt
        Where a read of committed records has stopped before the end of a log, whatever ``errors`` says.
    """

    damage: list[Damage] = field(default_factory=list)
    limits: list[Damage] = field(default_factory=list)
    values: LostValues = field(default_factory=LostValues)
    stopped: list[StoppedAt] = field(default_factory=list)
    _advice = PAST_IT

    def __call__(self, piece: Damage) -> None:
        """Add what was left out at one place."""
        (self.limits if piece.kind == LIMIT else self.damage).append(piece)

    def add(self, other: "Skipped") -> None:
        """Add all that another read left out."""
        self.damage += other.damage
        self.limits += other.limits
        self.values.update(other.values)
        self.stop(other.stopped)

    def stop(self, stopped: Iterable[StoppedAt]) -> None:
        """Add where a read has stopped. Other offsets of a log add up; a query may read the same ones more than once."""
        for own in stopped:
            at = next((i for i, one in enumerate(self.stopped) if one.is_of(own)), None)
            if at is None:
                self.stopped.append(own)
            elif not self.stopped[at].overlaps(own):
                self.stopped[at : at + 1] = joined([self.stopped[at], own])
            elif (own.records or 0) > (self.stopped[at].records or 0):
                self.stopped[at] = own

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
        rows = [piece._row() for piece in self.pieces[:MOST_ROWS]]
        return f"<p>{escape(str(self))}</p>" + (html_table(_NAMES, rows, len(self.pieces)) if rows else "")

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.left_out, str(self.values), *lines(self.stopped, self._advice)))) or "nothing left out"

    def after(self, text: str) -> str:
        """A text, with what was left out after it if anything was."""
        return f"{text}; {self}" if self.pieces else text

    @property
    def left_out(self) -> str:
        """Counts of what was left out, but for values; "" if nothing was."""
        damage = _left_out(self.damage, counted(len(self.damage), "damaged stretch")) if self.damage else ""
        limits = _left_out(self.limits, f"{counted(len(self.limits), 'batch')} over a limit") if self.limits else ""
        return "; ".join(filter(None, (damage, limits)))


def lost_of(on_damage: OnDamage | None) -> LostValues | None:
    """Where a caller wants lost values to be counted."""
    return on_damage.values if isinstance(on_damage, Skipped) else None


def tell_lost(values: LostValues, on_damage: OnDamage | None) -> None:
    """Add what was lost of values to what a caller has passed to collect it, or else log it."""
    counted = lost_of(on_damage)
    if counted is not None:
        counted.update(values)
    elif values.values:
        logger.warning("%s", values.said)


def tell_stops(stopped: list[StoppedAt], on_damage: OnDamage | None, advice: str = PAST_IT) -> None:
    """Add where a read has stopped to what a caller has passed to collect it, or else log it, with what can be done."""
    if isinstance(on_damage, Skipped):
        on_damage.stop(stopped)
        on_damage._advice = advice
        return
    for line in lines(stopped, advice):
        of_transactions.warning("%s", line)


def _left_out(pieces: list[Damage], what: str) -> str:
    size, lost = sum(piece.size for piece in pieces), [piece.records_lost for piece in pieces]
    count = sum(known or 0 for known in lost)
    records = counted(count, "record")
    if None in lost:
        records = f"at least {records}" if count else "an unknown number of records"
    return f"{what} left out: {counted(size, 'byte')}, {records}"


@dataclass
class Trouble:
    """The chain of entries cannot be followed from ``position`` on; ``floor`` is the last intact offset before it."""

    position: int
    floor: int
    error: CorruptBatchError
    resume: int | None = None  # where the chain continues, if that is already known
    row: Entry | None = None  # the damaged entry, if its header was read
    lost: tuple[int, int] | None = None  # first and last lost offset, if neighbours or index files show them
    alone: bool = True  # whether nothing else was lost with the entry, if it is known where the chain continues

    def damage(self, end: int) -> Damage:
        """The damage up to ``end``. It has no bytes if an intact entry begins before the damage."""
        size, error = max(end - self.position, 0), self.error
        if self.row is not None:
            return damage_of(self.row, error, size, self.floor, whole=self.resume is not None and self.alone)
        base = error.base_offset
        first, last = self.lost or (base if base is not None and base > self.floor else None, None)
        return Damage(error.segment, self.position, size, first, last, reason(error), None, error)


def damage_of(row: Entry, error: CorruptBatchError, size: int, floor: int, whole: bool = True, part: Lost | None = None) -> Damage:
    """Damage of one entry; ``whole`` means that nothing else was lost with it, ``part`` is what was lost if other records are read."""
    if part is not None:
        first, last = part.offsets or (None, None)
        return Damage(error.segment, row.position, size, first, last, f"{reason(error)}; {part.text}", part.records, error)
    base, last_offset, count = row.base_offset, row.last_offset, row.count
    starts, ends = base != table.UNKNOWN, last_offset != table.UNKNOWN
    base, last_offset = base if starts else last_offset, last_offset if ends else base
    sane = row.code != Code.BAD_MAGIC and floor < base <= last_offset
    lost = count if whole and sane and count >= 0 and (count <= last_offset - base + 1 or not ends) else None
    first, last = base if sane and starts else None, last_offset if sane and ends else None
    return Damage(error.segment, row.position, size, first, last, reason(error), lost, error)


def damage_of_fault(part: Range) -> Damage:
    """Damage of a range that could not be read at all: its `fault`."""
    error = part.fault
    return Damage(error.segment, part.start, part.end - part.start, None, None, reason(error), None, error)


def reason(error: CorruptBatchError) -> str:
    """Short description of an error."""
    record = "" if error.record is None else f"record {error.record}: "
    return shown(f"{record}{error.field}: expected {error.expected}" + (f", found {error.found}" if error.found else ""))


def header_error(path: str, row: Entry, entry: Bytes) -> CorruptBatchError:
    """Error for a row whose header or checksum is wrong; ``entry`` is the entry's bytes."""
    code = Code(row.code)
    expected, found = None, ""
    if code == Code.BAD_CRC:
        castagnoli = layouts.has_castagnoli(row.layout)
        computed = crc32c(entry, row.crc_from, row.crc_seed) if castagnoli else isal_zlib.crc32(entry[row.crc_from :])
        sealed = layouts.LAYOUTS[row.layout].sealed
        begin, how = (redpanda.FIELDS_FROM, ", fields of the header in big-endian") if sealed else (row.crc_from, "")
        expected, found = f"the stored checksum 0x{row.crc:08x}", f"0x{computed:08x} over bytes {begin} to {len(entry)} of the batch{how}"
    elif code == Code.HEADER_CRC:
        stored, computed = redpanda.header_crc(entry), crc32c(entry[: redpanda.HEADER], redpanda.HEADER_CRC_FROM)
        expected, found = f"the stored checksum 0x{stored:08x}", f"0x{computed:08x} over bytes 4 to 61 of the batch"
    elif code == Code.BAD_MAGIC:
        found = str(row.magic)
    elif code in (Code.BAD_LENGTH, Code.MESSAGE_SIZE):
        found = str(row.size - 12)
    elif code == Code.LAST_OFFSET:
        found = "a last offset that wraps to below the base offset"
    return row_error(path, row, expected, found)


def row_error(path: str, row: Entry, expected: str | None, found: str) -> CorruptBatchError:
    """Error for the code of a row of the batch table."""
    code, record = Code(row.code), row.record
    base = None if row.base_offset == table.UNKNOWN else row.base_offset
    if not found and code in _OF_ATTRIBUTES:
        found = str(int(row.codec if code != Code.MESSAGE_TYPE else row.attributes & 15))
    place = None if record < 0 or code == Code.RECORDS_MISSING else record
    return error_kind(code)(path, row.position, code, base_offset=base, record=place, expected=expected, found=found)


class Kind(StrEnum):
    """Kind of a remark."""

    OFFSET_GAP = "offset-gap"
    """Offsets are absent between two segments, or before the first batch of one. Possible causes: compaction, retention, a lost file."""
    EMPTY_SEGMENT = "empty-segment"
    """A rolled segment has no bytes, and no index file shows that it had any. Compaction is a possible cause."""
    ENDS_EARLY = "ends-early"
    """Files next to the active segment list offsets that the log does not have. They may have been copied later than the log."""
    ZERO_TAIL = "zero-tail"
    """A rolled segment has all its offsets, and zeros after them: it was allocated in advance and not trimmed."""
    COPIES = "copies"
    """Directories of one topic-partition have the same offsets: replicas. Each is verified by itself."""
    NULL_VALUE = "null-value"
    """KIP-87: a record without a value has no tombstone bit."""
    SIDE_FILE = "side-file"
    """A file next to a segment contradicts the log: an index, a snapshot of producers, or the leader epochs."""
    OFFSETS_BACK = "offsets-back"
    """Offsets go back from one entry to the next. A broker that was elected uncleanly, or copied files, leave such logs."""
    OFFSETS_IN_BATCH = "offsets-in-batch"
    """Offsets do not grow from one record to the next inside of a batch."""
    MAX_TIMESTAMP = "max-timestamp"
    """The largest timestamp in the header of a batch is not set, or below that of a record."""
    FAR_TIMESTAMP = "far-timestamp"
    """Timestamps are outside of the years 1 to 9999: a producer may have written microseconds or nanoseconds."""
    CONTENT_CHECKSUM = "content-checksum"
    """The content checksum of an lz4 frame is wrong. Java's client does not compare it (KAFKA-20528), librdkafka does."""
    RAW_OFFSETS = "raw-offsets"
    """Redpanda: consumer offsets are not known, or not certain."""
    OWN_BATCHES = "own-batches"
    """Redpanda: batches of a type that it writes for itself, such as changes of the configuration. No consumer gets them."""
    RECORDS_ELSEWHERE = "records-elsewhere"
    """Redpanda: batches whose records are in objects of a cloud topic, which Kolumn does not read."""
    UNKNOWN_BATCH_TYPE = "unknown-batch-type"
    """Redpanda: batches of a type that Kolumn does not know. They are left out."""
    SNAPSHOTS = "snapshots"
    """KRaft snapshots are beside the log. A read leaves them out unless it is told to include them."""


@dataclass(frozen=True)
class Remark:
    """One row of the table of remarks, of facts that are not damage; see `kolumn.schema.REMARK_SCHEMA`."""

    segment: str
    position: int
    kind: Kind
    offset: int | None
    last_offset: int | None
    remark: str
    evidence: str


def remark_table(remarks: Iterable[Remark]) -> pa.Table:
    """Remarks as an Arrow table."""
    return rows_table(
        ((in_column(r.segment), r.position, r.offset, shown(r.remark), str(r.kind), r.last_offset, shown(r.evidence)) for r in remarks),
        REMARK_SCHEMA,
    )


def rows_table(rows: Iterable[Sequence[object]], schema: pa.Schema) -> pa.Table:
    """An Arrow table of rows."""
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def null_values(batch: pa.RecordBatch) -> pa.Table:
    """Remarks about a batch of KIP-87 records with the columns `REMARKED`."""
    import pyarrow.compute as pc

    rows = np.flatnonzero(np.asarray(pc.and_not(pc.is_null(batch["value"]), batch["tombstone"])))
    records = pa.Table.from_batches([batch.select(["segment", "position", "offset"])]).take(pa.array(rows)).to_pylist()
    text = "the record has no value and no tombstone bit"
    evidence = "KIP-87 does not allow such records; readers of formats 0 and 1 take it for a tombstone"
    return remark_table(
        Remark(record["segment"], record["position"], Kind.NULL_VALUE, record["offset"], record["offset"], text, evidence)
        for record in records
    )


@dataclass
class Tally:
    """Counts, damage and remarks of a range."""

    batches: int = 0  # intact ones; records and bytes are theirs
    records: int = 0
    valid_bytes: int = 0
    tail: str | None = None  # "truncated" or "zeros": normal states of an active segment
    tail_bytes: int = 0
    inflated_by_cpu: int = 0  # payloads that were decompressed on the CPU for a GPU
    damage: list[Damage] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
