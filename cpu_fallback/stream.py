"""Reads and decodes batches of format 2 and of Redpanda block by block, while a block is in the CPU's cache: memory limits the speed of
uncompressed data.

    file  | batch | batch | batch | batch | batch | batch | batch |
          |<------ block ------->|<------ block ------->|           a block starts at a batch and ends where the buffer does

`kolumn.decode.host.streamed` decompresses codecs that need a package, and the general path decodes chunks with an error and explains it.
"""

from typing import NamedTuple

from kolumn.core.deferred import register_jitable
from kolumn.core.errors import Code
from kolumn.cpu_fallback.check import Limits, fill, frame, is_intact, keeps
from kolumn.cpu_fallback.fields import target
from kolumn.cpu_fallback.fields.records import batch_records
from kolumn.cpu_fallback.fields.target import POSITIONS, Target, begin_columns, in_microseconds
from kolumn.cpu_fallback.inflate.arena import RATIO_FLOOR
from kolumn.cpu_fallback.inflate.libraries import Decoders
from kolumn.cpu_fallback.inflate.unpack import GIVEN_UP, WRONG_CONTENT, unpack
from kolumn.cpu_fallback.machine.address import PAD, borrowed, fetch
from kolumn.cpu_fallback.machine.arrays import Flags, Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import layouts, table, v2
from kolumn.formats.codecs import GZIP, LZ4, NONE, ZSTD

MOST_BYTES = 16 << 20
"""Largest batch that is streamed, in bytes; the general path decodes larger ones."""
DONE, FULL, LIBRARY, WRONG, WINDOW = range(5)
"""Why a loop stopped: at the end; at a batch that does not fit the columns; at one that needs a package; at an error; at a batch that
is larger than the window."""
ARENA, UNPACKED, LARGEST, PLAIN, PACKED, UNTIMED = range(POSITIONS, POSITIONS + 6)
"""Slots after the columns' write positions. `ARENA` is the number of bytes that were decompressed and decoded; with views it is also the
used length of the arena. `UNPACKED` counts the bytes that decoders wrote, or could have written before they gave up: it is larger if
payloads were decompressed more than once. `LARGEST` is the largest decompressed size of a batch. `PLAIN` and `PACKED` are the bytes of the
decoded batches without a codec and with one. `UNTIMED` is 1 if a timestamp is `NO_TIME`."""
SLOTS = POSITIONS + 6
_OK = int(Code.OK)
_MARGIN = 1.5
"""How much more than expected a payload may decompress to if it is appended to others."""


class Room(NamedTuple):
    """Capacities: rows, bytes of keys and of values, of the arena of decompressed batches; headers, bytes of their keys and values."""

    rows: int
    key_bytes: int
    value_bytes: int
    arena: int
    headers: int = 0
    header_key_bytes: int = 0
    header_value_bytes: int = 0


class Span(NamedTuple):
    """Range of entries to decode.

    ``stop``, ``end``: positions at which to stop, and of the end of the file.
    ``weight``: approximate number of decompressed bytes to decode.
    ``inflates``: expected number of decompressed bytes for each byte of a compressed batch, until some are decompressed.
    ``format``: index into `layouts.FORMATS`, of a format with streamed batches.
    """

    stop: int
    end: int
    weight: float
    inflates: float
    format: int


class Source(NamedTuple):
    """The file that is read, and the memory for its bytes.

    ``file``: as for `fetch`. Batches of a segment in memory are decoded where they are, except at its end, where no `PAD` follows.
    ``views``: address that positions of uncompressed payloads are counted from: where the chunk begins in a segment in memory, else
        ``window``.
    ``window``, ``arena``: addresses of the memory for bytes that are read, and for bytes that are decompressed. Both are padded.
    ``room``, ``block``: bytes of the window, and how many bytes are read at a time; a larger batch is read alone.
    ``whole``, ``keep``: whether the window keeps all bytes that are read, and the arena all bytes that are decompressed, because views
        will point to them. Otherwise they are overwritten.
    """

    file: int
    views: int
    window: int
    arena: int
    room: int
    block: int
    whole: bool
    keep: bool
    libraries: Decoders


@register_jitable
def _row(header: int, pos: int, end: int, format: int, row: Int64s) -> int:
    """Fill a row from the header at an address; returns the size of the entry, or 0 if these loops cannot decode it."""
    code, size, layout = frame(header - pos, pos, end, end, False, format)
    if code != _OK or not layouts.is_streamed(layout) or size > MOST_BYTES:
        return 0
    fill(header - pos, pos, size, layout, row)
    return size if row[table.CODE] == _OK else 0


@register_jitable
def _weight(rows: Table, inflates: float) -> float:
    weight = 0.0
    for b in range(rows.shape[0]):
        weight += rows[b, table.SIZE] * (1.0 if rows[b, table.CODEC] == NONE else inflates)
    return weight


@register_jitable
def _inflates(slots: Int64s, span: Span) -> float:
    """What compressed batches grow to: as those before in the same columns, or as expected."""
    return slots[ARENA] / slots[PACKED] if slots[PACKED] > 0 else span.inflates


@compiled
def hop(file: int, pos: int, span: Span, buf: int, rows: Table) -> tuple[int, int]:
    """Fill the batch table by reading only headers, from ``pos`` on, as long as batches are streamed. ``buf`` is the address of
    memory for one header. Returns ``count``, ``pos``: rows filled, and the position where the walk stopped. The general walk continues
    there."""
    count, weight = 0, span.weight
    while pos < span.stop and weight > 0 and count < rows.shape[0] and pos + v2.HEADER <= span.end:
        if fetch(file, buf, v2.HEADER, pos) != v2.HEADER:
            break
        size = _row(buf, pos, span.end, span.format, rows[count])
        if size == 0:
            break
        weight -= _weight(rows[count : count + 1], span.inflates)
        count += 1
        pos += size
    return count, pos


@compiled
def stream(
    source: Source, span: Span, limits: Limits, rows: Table, known: int, first: int, ready: int, records: Int64s, to: Target, slots: Int64s,
    room: Room,
) -> tuple[int, int, int, int]:  # fmt: skip
    """Read, check, decompress and decode batches from row ``first`` on.

    ``span``: range of entries, including those of the known rows.
    ``limits``: selects the batches to decode; the checksums of the others are compared too.
    ``rows``: int64 array of shape (n, `table.WIDTH`); `hop` has filled the first ``known`` ones, at least one, the others are filled
        here.
    ``ready``: bytes of the first batch that are already decompressed in the arena, 0 if it is not decompressed.
    ``records``: int64 array of n; out: number of records of each batch.
    ``to``, ``slots``: as for `records.fields`; ``slots`` has all `SLOTS`.
    Returns ``row``, ``state``, ``need``, ``known``: the row where it stopped, the reason, and the new number of known rows. After WRONG
        the output must be discarded. With FULL, ``need`` is the batch's decompressed size, if it is known; the arena then has these
        bytes, after the used ones. With WINDOW it is the batch's size. With DONE all known rows are decoded, but for one after them,
        whose header was read although the span's weight is reached: the next chunk begins with it. A batch that does not fit into a
        window for views is not a known row.
    """
    rows, records, slots = borrowed(rows), borrowed(records), borrowed(slots)
    begin_columns(to)
    origin, weight = rows[0, table.POSITION], span.weight - _weight(rows[:known], _inflates(slots, span))
    position = rows[known - 1, table.POSITION] + rows[known - 1, table.SIZE] if first == known else rows[first, table.POSITION]
    loaded, b = position, first
    window = source.window - (origin if source.whole else position)
    while True:
        new = b == known
        size = v2.HEADER if new else rows[b, table.SIZE]
        if new and (position >= span.stop or b == rows.shape[0] or position + v2.HEADER > span.end):
            return b, DONE, 0, known
        if not new and needs_library(rows[b, table.CODEC], source.libraries):
            return b, LIBRARY, 0, known
        mapped = source.file < 0 and position + size + PAD <= span.end
        if not mapped and not source.whole and size > source.room:
            return b, WINDOW, size, known
        if not mapped and source.whole and position + size - origin > source.room:
            return b, DONE, 0, b
        if not mapped and source.whole and source.views != source.window:
            return b, DONE, 0, b
        if mapped and position + size > loaded:
            window, loaded = -source.file, span.end - PAD
        elif position + size > loaded:
            if not source.whole:
                window = source.window - position
            most = source.window + source.room - (window + position)
            wanted = size if new and weight <= 0 else max(source.block, size)
            loaded = min(position + min(wanted, most), span.end)
            if fetch(source.file, window + position, loaded - position, position) != loaded - position:
                return b, DONE if new else WRONG, 0, known
        if new:
            size = _row(window + position, position, span.end, span.format, rows[b])
            if size == 0:
                return b, DONE, 0, known
            known += 1
            if weight <= 0:
                return b, DONE, 0, known
            weight -= _weight(rows[b : b + 1], _inflates(slots, span))
            continue
        if source.keep and not source.whole and rows[b, table.CODEC] == NONE:
            return b, DONE, 0, b
        state, need = _batch(source, span.inflates, limits, rows[b], window + position, ready, records, b, to, slots, room)
        if state != DONE:
            return b, state, need, known
        ready = 0
        position += size
        b += 1


@register_jitable
def needs_library(codec: int, libraries: Decoders) -> bool:
    """Whether `unpack` cannot decompress payloads of a codec, so that a package has to."""
    if codec == GZIP:
        return libraries.deflate.function == 0
    if codec == LZ4:
        return libraries.lz4.function == 0
    if codec == ZSTD:
        return libraries.zstd.function == 0
    return codec > ZSTD


@register_jitable(forceinline=True)
def _batch(
    source: Source, inflates: float, limits: Limits, row: Int64s, batch: int, ready: int, records: Int64s, b: int, to: Target,
    slots: Int64s, room: Room,
) -> tuple[int, int]:  # fmt: skip
    """Check, decompress and decode the batch at an address: the state, and the decompressed size, 0 if it is not known."""
    size, codec = row[table.SIZE], row[table.CODEC]
    if limits.check_crcs and not is_intact(row, batch):
        return WRONG, 0
    records[b] = 0
    if (row[table.COUNT] == 0 and size == v2.HEADER) or not keeps(limits, row):
        return DONE, 0
    payload, need, buffer = batch + v2.HEADER, size - v2.HEADER, 0
    origin = payload - source.views
    if codec != NONE:
        used = slots[ARENA] if source.keep else 0
        need = unpacked(source, codec, payload, need, 2, inflates, used, slots, room) if ready == 0 else ready
        if need == WRONG_CONTENT:
            # Only the general path says so.
            return WRONG, 0
        if need < 0:
            return FULL if used else LIBRARY, 0
        payload, buffer, origin = source.arena + used, 1, used
    state = _append(row, payload, need, buffer, origin, records, b, to, slots, room)
    if state == DONE:
        if codec == NONE:
            slots[PLAIN] += size
            slots[LARGEST] = max(slots[LARGEST], size)
        else:
            slots[PACKED] += size
            slots[ARENA] += need
            slots[LARGEST] = max(slots[LARGEST], need)
    return state, need


@register_jitable
def unpacked(
    source: Source, codec: int, payload: int, length: int, magic: int, inflates: float, used: int, slots: Int64s, room: Room
) -> int:
    """Decompress a payload to the arena after its ``used`` bytes: its size, `GIVEN_UP` or `WRONG_CONTENT`."""
    # `max_ratio` can apply to larger payloads, and only `arena.inflate` compares it.
    stop = min(room.arena, used + RATIO_FLOOR)
    if used > 0 and stop - used < _MARGIN * inflates * length:
        # It could fail at the end of the arena, and would then be decompressed twice.
        return GIVEN_UP
    size = unpack(codec, payload, length, magic, source.arena + used, source.arena + stop, source.libraries)
    slots[UNPACKED] += size if size >= 0 else stop - used
    return size


@compiled
def load(file: int, rows: Table, window: int, check_crcs: bool) -> bool:
    """Read the entries of ``rows`` to address ``window`` and compare their checksums; False if the read or a checksum fails."""
    origin, end = rows[0, table.POSITION], rows[-1, table.POSITION] + rows[-1, table.SIZE]
    if fetch(file, window, end - origin, origin) != end - origin:
        return False
    intact = True
    for b in range(rows.shape[0] if check_crcs else 0):
        intact = intact and is_intact(rows[b], window + rows[b, table.POSITION] - origin)
    return intact


@compiled
def append(
    rows: Table, wanted: Flags, payload: Int64s, size: Int64s, buffer: int, origin: Int64s, records: Int64s, to: Target, slots: Int64s,
    room: Room,
) -> tuple[int, int, int]:  # fmt: skip
    """Decode batches that a package has decompressed; parameters as for `records.fields` and `stream`; returns row, state, need."""
    for b in range(rows.shape[0]):
        records[b] = 0
        if wanted[b]:
            state = _append(rows[b], payload[b], size[b], buffer, origin[b], records, b, to, slots, room)
            if state != DONE:
                return b, state, size[b]
            slots[PACKED] += rows[b, table.SIZE]
    return rows.shape[0], DONE, 0


@register_jitable(forceinline=True)
def _append(
    row: Int64s, payload: int, size: int, buffer: int, origin: int, records: Int64s, b: int, to: Target, slots: Int64s, room: Room
) -> int:
    count = row[table.COUNT]
    if count < 0 or count > size // v2.SMALLEST_RECORD:
        return WRONG
    if slots[target.ROWS] + count > room.rows:
        return FULL
    if to.key.mode == target.COPY and slots[target.KEY] + size > room.key_bytes:
        return FULL
    if to.value.mode == target.COPY and slots[target.VALUE] + size > room.value_bytes:
        return FULL
    if to.header_ends:
        fits = slots[target.HEADER_KEY] + size <= room.header_key_bytes and slots[target.HEADER_VALUE] + size <= room.header_value_bytes
        if not fits or slots[target.HEADERS] + size // v2.SMALLEST_HEADER > room.headers:
            return FULL
    first = slots[target.ROWS]
    code, _, _ = batch_records(row, payload, size, buffer, origin, count, 1, to, slots)
    if code != _OK:
        return WRONG
    if to.microseconds and in_microseconds(to.timestamp, first, first + count):
        slots[UNTIMED] = 1
    records[b] = count
    return DONE
