"""A run of batches in memory becomes columns: locate, decompress, count, fields, columns.

Of an entry in which a record is wrong: its sound records, and in words which ones are lost.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Bytes, Flags, Int64s, Rows
from kolumn.core.errors import Code
from kolumn.cpu_fallback.check import HIGHEST, LOWEST, Limits, select
from kolumn.cpu_fallback.columns import Columns, RecordMemory
from kolumn.cpu_fallback.count import count_headers, count_records
from kolumn.cpu_fallback.fields.records import fields
from kolumn.cpu_fallback.fields.sound import INDEX, OFFSET, sound_records
from kolumn.cpu_fallback.fields.target import COPY, SKIP, VIEW
from kolumn.cpu_fallback.inflate.arena import Share, inflate
from kolumn.cpu_fallback.inflate.blocks import locate, wrong
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.cpu_fallback.stream import Room
from kolumn.formats import layouts, table
from kolumn.formats.codecs import LZ4
from kolumn.formats.entries import Entries, Entry, Lost
from kolumn.formats.memory import i32_at, load8, u32_at
from kolumn.formats.v2 import SMALLEST_HEADER
from kolumn.formats.varint import uvarint32, varint32, varint64
from kolumn.options import MIB, Options
from kolumn.source.segment_file import SizeEstimate

NAMED = 10  # most wrong records of an entry that are named one by one
PACKED_BYTES = 2 * MIB  # compressed bytes that are decompressed at a time, unless a caller says otherwise
RUN_BYTES = 512 * MIB  # uncompressed bytes in one record batch: Arrow's binary offsets end at 2 GiB
_EACH = 64  # approximate bytes of a record in columns, in addition to its key and value
_EVERYTHING = Share()
_VARINTS = {
    *(Code.RECORD_LENGTH, Code.OFFSET_DELTA, Code.OFFSET_RANGE, Code.KEY_LENGTH, Code.VALUE_LENGTH),
    *(Code.HEADER_COUNT, Code.HEADER_KEY, Code.HEADER_VALUE, Code.RECORD_END),
}


@dataclass
class Part:
    """The sound records of an entry, or its messages, in padded memory."""

    row: Entry  # the entry without the other records, and without a code
    payload: Bytes
    in_place: bool  # whether they begin where the payload did; otherwise they are in memory of their own
    lost: Lost


def _readable_part(entry: Entry, payload: Bytes, options: Options, in_place: bool) -> Part | None:
    """The sound records of a damaged entry with a right checksum; None if there are none.

    ``payload`` is decompressed and padded; with ``in_place`` it is overwritten.
    """
    if entry.code == Code.TOO_LARGE:
        return None
    size, format = len(payload), layouts.FORMAT_NAMES.index(options.format)
    memory = payload if in_place else np.empty(size + PAD, np.uint8)
    row, wrong = entry.copy(), np.empty((NAMED, 2), np.int64)
    row.code = 0
    kept, left, bad, framed, broken, before, after = sound_records(
        row.array, payload.ctypes.data, size, memory.ctypes.data, format, options.check_crcs, wrong
    )
    if not kept:
        return None
    span = None if table.UNKNOWN in (entry.base_offset, entry.last_offset) else entry.last_offset - entry.base_offset + 1
    # The header's count, if it fits the offsets.
    count = entry.count if span is not None and 0 <= entry.count <= span else None
    if broken < 0:
        lost: int | None = bad + max(0, (count or 0) - framed)
    else:
        lost = count - kept if count is not None and count >= kept else None
    text = _words(kept, bad, framed if broken < 0 else None, wrong[: min(bad, NAMED)])
    return Part(row, memory[:left], in_place, Lost(lost, _offsets(entry, span, before, after, lost), text))


def _offsets(entry: Entry, span: int | None, before: int, after: int, records: int | None) -> tuple[int, int] | None:
    """Between which offsets the lost records are: between their neighbours, as far as these have offsets in order.

    ``span`` is how many offsets the entry has by its header.
    """
    if span is None and table.UNKNOWN in (before, after):
        return None
    first = entry.base_offset if before == table.UNKNOWN else before + 1
    last = entry.last_offset if after == table.UNKNOWN else after - 1
    if last - first + 1 >= max(records or 0, 1):
        return first, last
    return (entry.base_offset, entry.last_offset) if (span or 0) > 0 else None


def _words(kept: int, bad: int, framed: int | None, wrong: Rows) -> str:
    """What is left out, and that the rest is read; ``framed`` is None if nobody can tell where records begin after the first wrong one."""
    read = f"{kept} {'other ' if bad else ''}record{'s are' if kept != 1 else ' is'} read"
    if framed is None:
        return f"{read}, up to where nobody can tell any more where a record begins"
    if not bad:
        return read
    names = [f"{row[INDEX]}" + (f" (offset {row[OFFSET]})" if row[OFFSET] != table.UNKNOWN else "") for row in wrong.tolist()]
    if bad > len(names):
        names.append(f"{bad - len(names)} more")
    return f"left out: record{'s' if bad != 1 else ''} {', '.join(names)}; {read}"


def _record_found(row: Entry, payload: Bytes) -> str:
    """Description of the records' bytes at the place of the fault in a row."""
    code, where, record, end = Code(row.code), row.where, row.record, len(payload)
    if code in (Code.RECORD_COUNT, Code.RECORDS_MISSING):
        held = f", {record} in the payload of {end} bytes" if record >= 0 else f" of a payload of {end} bytes"
        return f"{row.count} in the header{held}"
    if code == Code.RECORDS_REMAIN:
        return f"{row.count} in the header and {end - where} bytes after them"
    if code == Code.TAG_COUNT:
        return f"{row.count} in the tag, {record} in the payload"
    if code == Code.INNER_OFFSET:
        return f"{row.last_offset} in the wrapper"
    if where < 0 or where >= end:
        return f"the end of the {end} bytes"
    if code == Code.TIMESTAMP_DELTA:
        value, after = varint64(payload, where, end)
    elif code in _VARINTS and not layouts.holds_messages(row.layout):
        value, after = (uvarint32 if layouts.LAYOUTS[row.layout].unsigned else varint32)(payload, where, end)
    elif code in (Code.INNER_MAGIC, Code.INNER_COMPRESSED, Code.MESSAGE_TYPE):
        value, after = load8(payload, where), where + 1
    elif code == Code.RECORD_CRC:
        return f"0x{u32_at(payload, where):08x} stored, and another one over its bytes"
    elif where + 4 <= end:
        value, after = i32_at(payload, where), where + 4
    else:
        return f"{end - where} bytes left"
    return f"{value if after >= 0 else 'a malformed varint'} at byte {where} of {end}"


@dataclass
class Run:
    """Decoded columns of a run of batches, before the fixed ones are added; entries are numbered."""

    columns: Columns
    records: Int64s  # number of rows of each of the decoded batches
    sources: list[pa.Buffer]  # buffers that views point into
    found: dict[int, str]  # what is wrong with an entry's compressed stream or records, in words
    untimed: bool = False  # whether a record has no timestamp, if the columns are in microseconds
    parts: dict[int, Part] = field(default_factory=dict)  # what was read of damaged entries
    unlike: tuple[int, ...] = ()  # entries whose lz4 frame has a wrong content checksum, if the options ask for remarks

    @property
    def lost(self) -> dict[int, Lost]:
        """Number of a damaged entry -> what is lost of it, if other records of it were read."""
        return {i: part.lost for i, part in self.parts.items()}

    @property
    def bytes(self) -> int:
        """Bytes of the keys and values, and of the other columns, estimated for each record."""
        return bytes_of(self.rows, self.columns.key.bytes + self.columns.value.bytes)

    @property
    def rows(self) -> int:
        """Number of records."""
        return self.columns.rows


def bytes_of(rows: int, payload_bytes: int) -> int:
    """Bytes of so many records, of which the keys and values have ``payload_bytes``."""
    return payload_bytes + _EACH * rows


def runs(
    source: Bytes,
    origin: int,
    entries: Entries,
    options: Options,
    need_key: bool,
    share: Share | None = None,
    packed_bytes: int = PACKED_BYTES,
    in_parts: bool = False,
) -> Iterator[tuple[Run, Entries]]:
    """Decode entries, some at a time. Yields their records and them; damaged entries get a code.

    Parameters are those of `decode_run`. Without a ``share``, the options limit how much is decompressed at a time. It ends early if
    ``share`` is too small for the next entry. About ``packed_bytes`` compressed bytes are decompressed at a time.
    """
    packed = np.where(entries.codec != 0, entries.size, 0)
    weight, most = (packed, packed_bytes) if packed.any() else (entries.size, RUN_BYTES)
    group = (np.cumsum(weight) - weight) // most
    for start, stop in pairwise([0, *(np.flatnonzero(np.diff(group)) + 1), len(entries)]):
        left = entries[start:stop]
        while len(left):
            run = decode_run(source, origin, left, options, need_key, share or Share(options.inflated_bytes), in_parts)
            done = len(run.records)
            if not done:
                return
            yield run, left[:done]
            left = left[done:]


def decode_run(
    source: Bytes, origin: int, entries: Entries, options: Options, need_key: bool, share: Share = _EVERYTHING, in_parts: bool = False
) -> Run:
    """Decode the entries that have no code yet; damaged entries get one.

    ``source`` has the bytes of the segment from position ``origin`` on, padded with `address.PAD` bytes. With ``need_key`` keys are decoded
    even if the key column is not requested (they contain control types). ``share`` says how much may be decompressed: later entries are
    left as they are, and `Run.records` is shorter than ``entries``. With ``in_parts`` the records of an entry that are right are read if
    others are wrong: then an entry with a code may have rows.
    """
    payloads, arena, found = decompressed(source, origin, entries, options, share)
    sources = [pa.py_buffer(source)]
    if arena is not source:
        sources.append(pa.py_buffer(arena))
        entries = entries[: len(payloads.size)]
    good = entries.is_intact
    run = _columns(payloads, sources, entries, found, options, need_key)
    if run is None:
        del arena, sources
        return decode_run(source, origin, entries[: len(entries) // 2], options, need_key, share, in_parts)
    parts: dict[int, Part] = {}
    for b in np.flatnonzero(good & ~entries.is_intact).tolist():
        start, held = int(payloads.start[b]), arena if payloads.buffer[b] else source
        payload = held[start : start + int(payloads.size[b])]
        found[b] = _record_found(entries[b], payload)
        if in_parts and (part := _readable_part(entries[b], payload, options, in_place=held is not source)):
            parts[b] = part
    if parts and (again := _columns(*_with_parts(payloads, sources, entries, parts), found, options, need_key)):
        run = again
        run.parts = parts
    if options.remarks and arena is not source:
        packed, codec = _located(source, origin, entries)
        some = np.flatnonzero((codec == LZ4) & entries.is_intact)
        unlike = wrong(packed.address[some], packed.size[some], entries.magic[some], payloads.address[some], payloads.size[some])
        run.unlike = tuple(some[unlike].tolist())
    return run


class Payloads(NamedTuple):
    """Where the records of each entry are in memory."""

    address: Int64s
    size: Int64s
    buffer: Int64s  # 0 for the segment's bytes and 1 for decompressed ones
    start: Int64s  # position in them


def _columns(
    payloads: Payloads, sources: list[pa.Buffer], entries: Entries, found: dict[int, str], options: Options, need_key: bool
) -> Run | None:
    """Columns of the records of entries without a code; None if there is no memory for those of several entries."""
    n, format = len(entries), layouts.FORMAT_NAMES.index(options.format)
    records, base = np.empty(n, np.int64), np.empty(n, np.int64)
    good = entries.is_intact
    count_records(entries.array, payloads.address, payloads.size, format, options.check_crcs, records, base)
    want_headers = "headers" in options.columns
    headers = count_headers(entries.array, payloads.address, payloads.size, records) if want_headers else 0
    keys, values = modes(options, VIEW if options.binary == "view" else COPY, need_key, VIEW)
    payload_bytes = int(payloads.size[good].sum())
    drafts = not layouts.FORMATS[format].as_shipped
    try:
        memory = RecordMemory(int(records.sum()), payload_bytes, payload_bytes, headers, keys, values, want_headers, drafts=drafts)
    except MemoryError:
        if n > 1:
            return None
        entries.code[0], found[0] = Code.TOO_LARGE, f"{records[0]} records of {payload_bytes} bytes, for which there is no memory"
        records[0], memory = 0, RecordMemory(0, 0, 0, 0, keys, values, want_headers, drafts=drafts)
    fields(
        entries.array, payloads.address, payloads.size, base, payloads.buffer, payloads.start, records,
        memory.target, memory.at, headers, options.errors == "raise",
    )  # fmt: skip
    return Run(memory.columns(memory.at.tolist()), records, sources, found)


def _with_parts(
    payloads: Payloads, sources: list[pa.Buffer], entries: Entries, parts: dict[int, Part]
) -> tuple[Payloads, list[pa.Buffer], Entries]:
    """The same entries, of which some are only what can be read of them."""
    payloads, sources, entries = Payloads(*(column.copy() for column in payloads)), [*sources], entries.copy()
    for b, part in parts.items():
        entries.array[b] = part.row.array
        payloads.address[b], payloads.size[b] = part.payload.ctypes.data, len(part.payload)
        if not part.in_place:
            payloads.buffer[b], payloads.start[b] = len(sources), 0
            sources.append(pa.py_buffer(part.payload))
    return payloads, sources, entries


def modes(options: Options, mode: int, need_key: bool, unseen: int = COPY) -> tuple[int, int]:
    """Modes of keys and of values: copy, view or skip. It is ``unseen`` if only which values are null is asked for."""
    names = options.columns
    keys = mode if "key" in names else COPY if need_key else SKIP
    return keys, mode if "value" in names else unseen if "tombstone" in names else SKIP


def limits(options: Options) -> Limits:
    """The limits that options set."""
    start, end, time = options.start_offset, options.end_offset, options.start_timestamp
    bounds = LOWEST if start is None else start, HIGHEST if end is None else end, LOWEST if time is None else time
    return Limits(options.check_crcs, options.include_control, *bounds)


def wanted(entries: Entries, options: Options) -> Flags:
    """Flags of the entries that can hold a row that the options keep."""
    flags = np.empty(len(entries), np.bool_)
    select(limits(options), entries.array, flags)
    return flags


def memory_for(
    sizes: SizeEstimate,
    payload_bytes: int,
    records: int,
    more: int,
    of_payloads: tuple[int, int],
    options: Options,
    slots: int,
    *,
    arena: int = 0,
    converts: bool = False,
) -> tuple[RecordMemory, Room]:
    """Memory for columns of so many ``records`` with so many ``payload_bytes``, as far as their file lets expect, and its capacities.

    Room for ``more`` bytes is added to each column: a batch is decoded only where all its bytes could be keys, values or headers. A loop
    that ``converts`` timestamps to microseconds does so if nothing but the column ``timestamp`` needs them.
    """
    key, value, *header = [min(int(payload_bytes * share) + more, payload_bytes) for share in sizes.shares]
    names, ranges = options.columns, options.start_timestamp is not None or options.end_timestamp is not None
    microseconds = converts and "timestamp" in names and not (ranges or "timestampMs" in names or "brokerTimestampMs" in names)
    want_headers = "headers" in names
    headers = int(payload_bytes * sizes.header_density) + more // SMALLEST_HEADER if want_headers else 0
    memory = RecordMemory(
        records, key, value, headers, *of_payloads, want_headers, header_bytes=header, microseconds=microseconds, slots=slots
    )
    return memory, Room(records, key, value, arena, headers, *header)


def _located(source: Bytes, origin: int, entries: Entries) -> tuple[Payloads, Int64s]:
    """The payloads as they are in the segment, and the codec of each."""
    start, size, codec = (np.empty(len(entries), np.int64) for _ in range(3))
    locate(source.ctypes.data, origin, entries.array, start, size, codec)
    return Payloads(source.ctypes.data + start - origin, size, np.zeros(len(entries), np.int64), start - origin), codec


def decompressed(
    source: Bytes, origin: int, entries: Entries, options: Options, share: Share = _EVERYTHING
) -> tuple[Payloads, Bytes, dict[int, str]]:
    """The payloads of entries, decompressed if they were not; damaged entries get a code. Parameters are those of `decode_run`.

    Returns the payloads of as many entries as ``share`` has room for, the memory of the decompressed ones, or ``source`` if all were, and
    what is wrong with which entry.
    """
    packed, codec = _located(source, origin, entries)
    if not codec.any():
        return packed, source, {}
    some, found = np.flatnonzero(codec), dict[int, str]()
    result = inflate(
        source, packed.start[some], packed.size[some], codec[some], entries.magic[some], options.max_batch_bytes, options.max_ratio, share
    )
    done = result.done
    n, some = len(entries) if done == len(some) else int(some[done]), some[:done]
    plain = Payloads(*(column[:n].copy() for column in packed))
    plain.address[some], plain.size[some] = result.arena.ctypes.data + result.start[:done], result.size[:done]
    plain.buffer[some], plain.start[some] = 1, result.start[:done]
    for i in np.flatnonzero(result.code[:done]).tolist():
        b = int(some[i])
        entries.code[b], entries.where[b] = result.code[i], result.where[i] - packed.start[b]
        found[b] = result.found[i]
        plain.size[b] = 0
    return plain, result.arena, found
