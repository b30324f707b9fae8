"""The changes that a broker makes to produced and fetched entries, and a mirror to entries that it forwards (KIP-31, ``LogValidator``).

All functions work on bytes in memory, as in requests: nothing here reads files.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from kolumn.core import keywords
from kolumn.core.arrays import Bytes
from kolumn.core.errors import ArgumentError, Code, CorruptBatchError
from kolumn.core.keywords import known_keywords
from kolumn.cpu_fallback.check import check
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.damage.findings import header_error
from kolumn.decode.host.chunks import Loaded, walk_entries
from kolumn.formats import enriched, layouts, memory, redpanda
from kolumn.formats.codecs import NONE
from kolumn.formats.entries import Entries, Entry
from kolumn.formats.entry import SMALLEST
from kolumn.log.pieces import Piece, piece_of
from kolumn.options import Options
from kolumn.source.segments import Segment
from kolumn.writers.entries import EntrySettings
from kolumn.writers.regroup import Changes, Losses, regroup
from kolumn.writers.rewriting.convert import part
from kolumn.writers.write import settings

_IN_REQUEST = Segment("<entries>", None, None, None, 0)
_CHOICES = ("reassign", "reject")


@dataclass(frozen=True)
class Assignment:
    """Entries as a broker writes them to its log.

    Attributes
    ----------
    data : bytes
    next_offset : int
        The offset after the last record.
    in_place : int
        Entries in which only the offset was changed, eight bytes each; checksums do not cover it.
    inflations, compressions : int
        How many payloads went through a codec, either way.
    """

    data: bytes
    next_offset: int
    in_place: int
    inflations: int
    compressions: int


@dataclass(frozen=True)
class Fetched:
    """Entries as a broker sends them to a consumer.

    Attributes
    ----------
    data : bytes
    zero_copy : bool
        Whether they are the bytes of the log.
    lost : Losses
        What the conversion lost, as in `kolumn.convert`.
    """

    data: bytes
    zero_copy: bool
    lost: Losses


@dataclass(frozen=True)
class Mirrored:
    """Enriched entries as a mirror sends them to another cluster.

    Attributes
    ----------
    data : bytes
    passed_on : int
        Wrappers without keys, in which only one bit was changed.
    inflations, compressions : int
        How many payloads went through a codec, either way.
    """

    data: bytes
    passed_on: int
    inflations: int
    compressions: int


@known_keywords()
def assign_offsets(
    entries: bytes,
    next_offset: int,
    *,
    magic: int | None = None,
    format: keywords.Format = "kafka",
    noncontiguous: Literal["reassign", "reject"] = "reassign",
    timestamp: int | None = None,
) -> Assignment:
    """Assign offsets to entries that a producer sent, in the log's message format.

    Batches, messages and enriched wrappers that stay in their format get an offset and nothing else, and are not decompressed, except
    enriched wrappers without a count of their messages. Wrappers of format 1 are decompressed once, to check that their inner
    offsets are 0, 1, 2 …; then they too get an offset and nothing else. Wrappers of format 0 are always encoded again, with
    absolute offsets.

    Parameters
    ----------
    entries : bytes
        One after the other; offsets in them have no meaning but relative to each other.
    next_offset : int
        Of the first record.
    magic : int, optional
        ``message.format.version`` of the log: entries of another format are converted. By default each keeps its own.
    format : str
        "kafka" or a draft.
    noncontiguous : str
        Wrappers with other inner offsets, as mirrors of compacted topics send them: "reassign" encodes them again, which is what
        KIP-31 chose, "reject" raises.
    timestamp : int, optional
        The broker's time in ms, as LogAppendTime, for records without a timestamp that are converted to a format with timestamps. By
        default they get -1.

    Returns
    -------
    Assignment

    Raises
    ------
    ArgumentError
        Options that make no sense, rejected offsets, records that the log's format can't hold.
    CorruptBatchError, FormatError, LimitError
        Damaged entries; all entries get offsets, or no entry does.
    """
    if noncontiguous not in _CHOICES:
        raise ArgumentError(f"noncontiguous={noncontiguous!r}: expected one of {', '.join(_CHOICES)}")
    if next_offset < 0:
        raise ArgumentError(f"next_offset={next_offset}: expected 0 or more")
    source, walked, options = _walked(entries, format)
    assigner = _Assigner(source, options, next_offset, format, magic, noncontiguous, timestamp)
    data = b"".join(assigner.entry(entry) for entry in walked)
    return Assignment(data, assigner.next, assigner.in_place, assigner.inflations, assigner.compressions)


@known_keywords()
def for_fetch(entries: bytes, magic: int, format: keywords.Format = "kafka") -> Fetched:
    """Entries of a log for a consumer that supports formats up to ``magic``.

    If all entries have such a format, the bytes are returned unchanged; otherwise newer entries are converted down, with their offsets.
    Transactional batches are rejected below format 2.
    """
    source, walked, options = _walked(entries, format)
    lost = Losses()
    if not (walked.magic > magic).any():
        return Fetched(bytes(entries), True, lost)
    how = settings(format, magic, "none", None, 1, None)
    parts = []
    for entry in walked:
        if entry.magic <= magic:
            parts.append(bytes(source[entry.position : entry.end]))
            continue
        if entry.transactional and not entry.control:
            raise ArgumentError(f"base offset {entry.base_offset}: the batch is transactional, and magic {magic} has no transactions")
        piece = piece_of(source, 0, entry.alone(), _IN_REQUEST, options)
        parts += [bytes(encoded.data) for encoded in regroup(piece, Changes(how, None, None), None, lost)]
    return Fetched(b"".join(parts), False, lost)


@known_keywords()
def mirror(entries: bytes) -> Mirrored:
    """Enriched entries for another cluster.

    If a wrapper's header says that its messages have no keys, its payload is passed on unchanged, and its relative offsets are no longer
    honoured: the other cluster's broker assigns it an offset, and its messages count from that without holes. Other wrappers
    are decompressed, since a mirror needs keys to find partitions, and encoded again with offsets 0, 1, 2 …

    Raises
    ------
    CorruptBatchError, FormatError, LimitError
        Damaged entries.
    """
    name: keywords.Format = "enriched"
    source, walked, options = _walked(entries, name)
    assigner = _Assigner(source, options, 0, name, None, _CHOICES[0], None)
    parts, passed_on = [], 0
    for entry in walked:
        assigner.next = 0
        data = bytearray(source[entry.position : entry.end])
        if entry.layout != enriched.LAYOUT.number or entry.codec == NONE:
            parts.append(bytes(data))
        elif entry.attributes & enriched.NON_KEYED:
            data[17] &= ~enriched.HONOURED
            memory.put32(data, 12, isal_zlib.crc32(data[enriched.CRC_FROM :]))
            parts.append(bytes(data))
            passed_on += 1
        else:
            # A wrapper is decompressed and encoded again.
            parts.append(assigner.written(assigner.inflated(entry), settings(name, entry.magic, "none", None, 2**31 - 1, None)))
    return Mirrored(b"".join(parts), passed_on, assigner.inflations, assigner.compressions)


def _walked(request: bytes, format: keywords.Format) -> tuple[Bytes, Entries, Options]:
    """The bytes of a request in padded memory, its entries with checksums compared, and how to decode them."""
    if format == redpanda.FORMAT.name:
        raise ArgumentError(f"format={format!r}: requests to Redpanda have batches of format 2, which is format='kafka'")
    options = Options.of(format=format)
    source = np.zeros(len(request) + PAD, np.uint8)
    source[: len(request)] = np.frombuffer(request, np.uint8)
    entries = Entries.room(len(request) // (SMALLEST + 12) + 1)
    end, number = len(request), layouts.FORMAT_NAMES.index(format)
    count, position, code, _ = walk_entries(Loaded.whole(source, end), 0, end, number, entries, whole=True, decide=True)
    if code != Code.OK:
        raise CorruptBatchError(_IN_REQUEST.path, int(position), Code.BAD_LENGTH, found=f"{end - position} bytes left")
    entries = entries[:count]
    check(source.ctypes.data, 0, entries.array)
    for entry in entries[~entries.is_intact]:
        raise header_error(_IN_REQUEST.path, entry, source[entry.position : entry.end])
    return source, entries, options


class _Assigner:
    def __init__(
        self, source: Bytes, options: Options, next: int, format: str, magic: int | None, noncontiguous: str, timestamp: int | None
    ) -> None:
        self.source, self.options, self.next = source, options, next
        self.how: EntrySettings | None = None if magic is None else settings(format, magic, "none", None, 2**31 - 1, None)
        self.format, self.noncontiguous, self.timestamp = format, noncontiguous, timestamp
        self.in_place = self.inflations = self.compressions = 0

    def entry(self, row: Entry) -> bytes:
        how = self.how or settings(self.format, row.magic, "none", None, 2**31 - 1, None)
        layout, wrapped = row.layout, row.codec != NONE
        same = layouts.same_layout(layout, how.layout) and row.magic == how.magic
        if same and not layouts.holds_messages(layout):
            return self._patched(row, 0, int(row.last_offset - row.base_offset) + 1)
        if same and not wrapped:
            return self._patched(row, 0, 1)
        if same and layouts.begins_at_offset(layout) and row.count > 0:
            return self._patched(row, 0, row.count)
        piece = self.inflated(row)
        count = int(piece.counts[0])
        if same and layouts.begins_at_offset(layout):
            return self._patched(row, 0, count)
        if same and how.magic > 0 and self._contiguous(piece):
            return self._patched(row, count - 1, count)
        return self.written(piece, how)

    def _patched(self, row: Entry, first: int, count: int) -> bytes:
        data = bytearray(self.source[row.position : row.end])
        memory.put64(data, 0, self.next + first)
        self.next += count
        self.in_place += 1
        return bytes(data)

    def inflated(self, row: Entry) -> Piece:
        """The entry with its records. Their offsets are the inner ones, since the wrapper's offset is set to 0."""
        alone, start = row.alone(), row.position
        if layouts.holds_messages(row.layout) and row.codec != NONE:
            alone.last_offset[0] = 0
            self.source[start : start + 8] = 0
        self.inflations += int(row.codec != NONE)
        return piece_of(self.source, 0, alone, _IN_REQUEST, self.options)

    def _contiguous(self, piece: Piece) -> bool:
        inner = piece.records["offset"].to_numpy()
        wrong = np.flatnonzero(inner != np.arange(len(inner)))
        if len(wrong) and self.noncontiguous == "reject":
            row = int(wrong[0])
            raise ArgumentError(
                f"position {piece.entries.position[0]}: inner offset {inner[row]} where {row} was expected: a message set of a compacted "
                "topic; noncontiguous='reassign' takes it"
            )
        return not len(wrong)

    def written(self, piece: Piece, how: EntrySettings) -> bytes:
        count = int(piece.counts[0])
        offsets = pa.array(np.arange(self.next, self.next + count), pa.int64())
        records = piece.records.set_column(piece.records.schema.get_field_index("offset"), "offset", offsets)
        entries = piece.entries.copy()
        entries.base_offset, entries.last_offset = self.next, self.next + count - 1
        self.next += count
        self.compressions += int(entries.codec[0] != NONE)
        changed = replace(piece, records=records, entries=entries)
        encoded = regroup(part(changed, 0, 1), Changes(how, self.timestamp, None), None, Losses())
        return b"".join(bytes(part.data) for part in encoded)
