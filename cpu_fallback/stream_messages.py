"""Reads and decodes messages of formats 0 and 1 block by block, as `stream` does with batches of format 2.

A message is an entry of its own, often of less than 100 bytes, so it gets no row of the batch table. A row stands for a *stretch*:
messages one after the other with the same magic and the same attributes. It has the position of the first, the bytes of all, and the
offset of the last. At an entry with anything unusual the loop stops before it, and the general path decodes from there on.
"""

from kolumn.core.deferred import register_jitable
from kolumn.core.errors import Code
from kolumn.cpu_fallback.check import Limits, fill, in_range
from kolumn.cpu_fallback.fields.records import messages
from kolumn.cpu_fallback.fields.target import COPY, HEADERS, KEY, ROWS, VALUE, Target, begin_columns, forget, put_record
from kolumn.cpu_fallback.inflate.unpack import WRONG_CONTENT
from kolumn.cpu_fallback.machine.address import borrowed, fetch
from kolumn.cpu_fallback.machine.arrays import Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.cpu_fallback.stream import ARENA, DONE, FULL, LARGEST, MOST_BYTES, SLOTS, WINDOW, Room, Source, Span, needs_library, unpacked
from kolumn.formats import crc, layouts, legacy, table
from kolumn.formats.codecs import NONE
from kolumn.formats.entry import OVERHEAD, entry, magic_at
from kolumn.formats.memory import i64_at, load8, u32_at

ODD, SMALL = 5, 6
"""Why a loop stopped, in addition to the reasons of `stream`: at an entry that the general path has to decode; at a wrapper for which the
arena is too small."""
INTACT, STRETCHES, POSITION, WEIGHT = SLOTS, SLOTS + 1, SLOTS + 2, SLOTS + 3
"""Slots after those of `stream`: number of entries and of stretches, position of the next entry, and how many bytes are left to decode."""
MESSAGE_SLOTS = SLOTS + 4
APART, MESSAGES, ALL = range(3)
"""Which entries of a stretch share a row: none, those that are not compressed, or all."""
_OK, _LEGACY = int(Code.OK), legacy.LAYOUT.number
_HIGHEST_MAGIC = layouts.highest_inner_magic(layouts.KAFKA, legacy.LAYOUT.number)
_SMALLEST_DATED = legacy.SMALLEST_V1 + OVERHEAD


@register_jitable
def _framed(buf: int, pos: int, end: int) -> int:
    """Size of the message at ``pos`` by its first 18 bytes; 0 if it is no entry that this loop decodes."""
    code, size = entry(buf, pos, end)
    if code != _OK or size > MOST_BYTES or magic_at(buf, pos) > _HIGHEST_MAGIC:
        return 0
    return 0 if magic_at(buf, pos) >= 1 and size < _SMALLEST_DATED else size


@compiled
def hop_messages(file: int, pos: int, span: Span, window: int, room: int, most: int, row: Int64s) -> tuple[int, int]:
    """Walk over messages by their headers, at most ``most`` of them, and fill the row of the first one. ``window`` is the address of
    ``room`` bytes, `legacy.SMALLEST_ENTRY` or more, into which the file is read. Returns ``count``, ``pos``: number of messages, and the
    position after the last one."""
    count, weight, start, loaded = 0, span.weight, pos, pos
    while pos < span.stop and weight > 0 and count < most and span.end - pos >= legacy.SMALLEST_ENTRY:
        if pos + legacy.SMALLEST_ENTRY > loaded:
            start, loaded = pos, min(pos + room, span.end)
            if fetch(file, window, loaded - start, start) != loaded - start:
                break
        buf = window - start
        size = _framed(buf, pos, span.end)
        if size == 0:
            break
        if count == 0:
            fill(buf, pos, size, _LEGACY, row)
        weight -= size * (1.0 if load8(buf, pos + 17) & 7 == NONE else span.inflates)
        count += 1
        pos += size
    return count, pos


@compiled
def stream_messages(
    source: Source, span: Span, limits: Limits, merge: int, origin: int, ready: int, rows: Table, row: Int64s, records: Int64s, to: Target,
    slots: Int64s, room: Room,
) -> tuple[int, int, int]:  # fmt: skip
    """Read, check, decompress and decode messages.

    ``span``: its ``weight`` is not used: what is left of it is in the slot `WEIGHT`.
    ``merge``: `APART`, `MESSAGES` or `ALL`.
    ``origin``: position of the first byte of a window that keeps all bytes.
    ``ready``: bytes of the first entry that are already decompressed in the arena, 0 if it is not decompressed.
    ``rows``, ``records``: out: stretches, and the number of rows of each. The slot `STRETCHES` says how many are there.
    ``row``: int64 array of `table.WIDTH`, memory for the row of a wrapper.
    ``slots``: as for `stream`, with the slots `INTACT`, `STRETCHES`, `POSITION` and `WEIGHT`.
    Returns ``state``, ``need``, ``ready``: as for `stream`; ``ready`` is for the next call. The output is right up to the entry at
        which it stopped, whatever the reason is.
    """
    rows, records, slots, row = borrowed(rows), borrowed(records), borrowed(slots), borrowed(row)
    begin_columns(to)
    position, weight, count = slots[POSITION], float(slots[WEIGHT]), slots[STRETCHES]
    window, loaded = source.window, position
    state, need = DONE, 0
    while position < span.stop and weight > 0:
        if position + legacy.SMALLEST_ENTRY > loaded and loaded < span.end:
            window, loaded = _load(source, span.end, origin, position, legacy.SMALLEST_ENTRY)
        size = _framed(window, position, span.end) if loaded > position else 0
        if size > source.room and not source.whole:
            state, need = WINDOW, size
            break
        if position + size > loaded:
            window, loaded = _load(source, span.end, origin, position, size)
        if size == 0 or loaded == position:
            break
        if limits.check_crcs and crc.crc32(window, position + legacy.CRC_FROM, position + size) != u32_at(window, position + 12):
            state = ODD
            break
        magic, attributes, offset = magic_at(window, position), load8(window, position + 17), i64_at(window, position)
        codec = attributes & 7
        if source.keep and not source.whole and codec == NONE:
            break
        shared = merge == ALL or (merge == MESSAGES and codec == NONE)
        same = count > 0 and shared and rows[count - 1, table.MAGIC] == magic and rows[count - 1, table.ATTRIBUTES] == attributes
        if not same and count == rows.shape[0]:
            state = FULL
            break
        before = slots[ROWS]
        if codec == NONE:
            if in_range(limits, offset, offset):
                state, need = _message(source, window, position, size, to, slots, room), size
        else:
            # Nothing but the messages in it tells their offsets.
            fill(window, position, size, _LEGACY, row)
            state, need = _wrapper(source, span.inflates, limits.check_crcs, window, row, ready, to, slots, room)
            ready = need if state == FULL else 0
        if state != DONE:
            break
        ready = need = 0
        count = _extended(rows, records, count, same, window, position, size, offset, slots[ROWS] - before)
        slots[INTACT] += 1
        weight -= size * (1.0 if codec == NONE else span.inflates)
        position += size
    slots[POSITION], slots[WEIGHT], slots[STRETCHES] = position, int(weight), count
    return state, need, ready


@register_jitable(forceinline=True)
def _extended(rows: Table, records: Int64s, count: int, same: bool, buf: int, position: int, size: int, offset: int, found: int) -> int:
    """Add an entry with ``found`` records to the last stretch if it is the ``same``, else begin another one; returns how many there are."""
    if same:
        rows[count - 1, table.SIZE] += size
        rows[count - 1, table.LAST_OFFSET] = offset
        records[count - 1] += found
        return count
    fill(buf, position, size, _LEGACY, rows[count])
    records[count] = found
    return count + 1


@register_jitable
def _load(source: Source, end: int, origin: int, position: int, size: int) -> tuple[int, int]:
    """Read the next block, at least ``size`` bytes at ``position``, except at the end of the file. Returns the address of the segment's
    first byte, as if all of it were in memory, and the position after the bytes that were read. That is ``position`` if the window has no
    room, or if they cannot be read."""
    window = source.window - (origin if source.whole else position)
    room = source.window + source.room - (window + position)
    size, stop = min(size, end - position), min(position + min(max(source.block, size), room), end)
    if stop - position < size or fetch(source.file, window + position, stop - position, position) != stop - position:
        return window, position
    return window, stop


@register_jitable
def _message(source: Source, buf: int, position: int, size: int, to: Target, slots: Int64s, room: Room) -> int:
    """Decode a message that is not compressed; returns the state."""
    message = legacy.message(buf, position, position + size)
    if message.code != _OK:
        return ODD
    n, key, value = slots[ROWS], slots[KEY], slots[VALUE]
    if n == room.rows or (to.key.mode == COPY and key + message.key_length > room.key_bytes):
        return FULL
    if to.value.mode == COPY and value + message.value_length > room.value_bytes:
        return FULL
    slots[KEY], slots[VALUE] = put_record(
        to, n, message.offset, message.timestamp, slots[HEADERS], 0, -source.window,
        buf + message.key, message.key_length, buf + message.value, message.value_length, key, value,
    )  # fmt: skip
    slots[ROWS] = n + 1
    return DONE


@register_jitable
def _wrapper(
    source: Source, inflates: float, check_crcs: bool, buf: int, row: Int64s, ready: int, to: Target, slots: Int64s, room: Room
) -> tuple[int, int]:
    """Decompress a wrapper and decode its messages; returns the state, and the decompressed size where it is known."""
    position, stop, codec = row[table.POSITION], row[table.POSITION] + row[table.SIZE], row[table.ATTRIBUTES] & 7
    if legacy.codec_code(row[table.ATTRIBUTES], codec) != _OK or needs_library(codec, source.libraries):
        return ODD, 0
    code, payload, length = legacy.wrapped(buf, position, stop)
    if code != _OK or length < 0:
        return ODD, 0
    used, size = slots[ARENA] if source.keep else 0, ready
    if ready == 0:
        size = unpacked(source, codec, buf + payload, length, row[table.MAGIC], inflates, used, slots, room)
    if size == WRONG_CONTENT:
        return ODD, 0
    if size < 0:
        return FULL if used else SMALL, 0
    address = source.arena + used
    count, last, code, _ = layouts.inner_messages(address, size, _LEGACY, _HIGHEST_MAGIC, check_crcs)
    if code != _OK:
        return ODD, 0
    code, base = layouts.base_of(_LEGACY, row[table.MAGIC], table.UNKNOWN, row[table.LAST_OFFSET], table.UNKNOWN, last, count)
    if code != _OK:
        return ODD, 0
    first = slots[ROWS]
    if first + count > room.rows or (to.key.mode == COPY and slots[KEY] + size > room.key_bytes):
        return FULL, size
    if to.value.mode == COPY and slots[VALUE] + size > room.value_bytes:
        return FULL, size
    code, _, _ = messages(_LEGACY, row, address, size, 1, used, count, base, to, slots)
    if code != _OK:
        forget(to.key, first, first + count)
        forget(to.value, first, first + count)
        return ODD, 0
    slots[ARENA] += size
    slots[LARGEST] = max(slots[LARGEST], size)
    return DONE, size
