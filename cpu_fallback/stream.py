"""Format 2 batches straight from the file to the columns, a block at a time, while the block is in the CPU's cache.

Reading a chunk whole, then checking it, then inflating it, then decoding it moves every byte through memory several times, and
memory is what limits plain data. Here one compiled call does all of it for some hundred KiB before it goes on:

    file  | batch | batch | batch | batch | batch | batch | batch |
          |<------ block ------->|<------ block ------->|           a block starts at a batch and ends where the buffer does

What these loops meet and do not know, they leave to others: codecs that need a library to `tiles`, anything wrong to the
general path, which finds out what it is.
"""

from typing import Any, NamedTuple

from numba import types
from numba.extending import register_jitable

from kolumn.codecs import LZ4, NONE, SNAPPY
from kolumn.cpu_fallback.fields import KEY, POSITIONS, ROWS, VALUE, Target, batch_records
from kolumn.cpu_fallback.put import COPY
from kolumn.cpu_fallback.scalars import compiled
from kolumn.cpu_fallback.unpack import unpack
from kolumn.cpu_fallback.walk import HEADERS, fill
from kolumn.errors import Code
from kolumn.formats import crc, table, v2
from kolumn.formats.entry import entry, magic_at

BLOCK = 1 << 18
"""Bytes read at a time, or one batch if that is larger."""
LARGEST = 16 << 20
"""Batches that are larger are left to the general path."""

DONE, FULL, LIBRARY, WRONG = range(4)
"""Why a loop stopped: at the end; at a batch for which the columns have no room; at one that needs a library; at a flaw."""

ARENA = POSITIONS
"""Behind the columns' write positions: how many bytes were inflated; where views keep them, so much of the arena is used."""

_OK, _HEADER, _CRC_FROM = int(Code.OK), v2.HEADER, v2.CRC_FROM
_POSITION, _SIZE, _CRC, _COUNT = table.POSITION, table.SIZE, table.CRC, table.COUNT
_CODE, _CODEC = table.CODE, table.CODEC
_NONE, _LZ4, _SNAPPY = NONE, LZ4, SNAPPY
_BLOCK = BLOCK
_SMALLEST_RECORD = v2.SMALLEST_RECORD

_pread = types.ExternalFunction("pread", types.int64(types.int32, types.int64, types.int64, types.int64))
"""``ssize_t pread(int, void *, size_t, off_t)`` of the C library."""


class Room(NamedTuple):
    """How much fits: rows, bytes of each column of payloads, bytes of the arena of inflated batches."""

    rows: int
    payload_bytes: int
    arena: int


class Source(NamedTuple):
    """Where the bytes come from and through what memory.

    Attributes
    ----------
    file : int
        Descriptor.
    window, arena : int
        Addresses: of the bytes that are read, of those that are inflated. Both are padded.
    whole, keep : bool
        Whether the window has room for all of the chunk, the arena for many batches, because views will point there. Else they are
        written over.
    """

    file: int
    window: int
    arena: int
    whole: bool
    keep: bool


@compiled
def hop(file: int, pos: int, stop: int, end: int, weight: float, inflates: float, buf: int, rows: Any) -> tuple[int, int]:
    """Fill the batch table by reading headers alone, from ``pos`` to ``stop``, as long as entries are format 2 batches.

    ``end`` is where the file ends, ``weight`` how many bytes to take, a compressed one counting ``inflates`` times, ``buf`` the
    address of room for a header.

    Returns
    -------
    count, pos : int
        Rows filled, and where the walk stopped: the general walk says why.
    """
    count = 0
    while pos < stop and weight > 0 and count < rows.shape[0] and pos + HEADERS <= end:
        if _pread(file, buf, HEADERS, pos) != HEADERS:
            break
        code, size = entry(buf - pos, pos, end)
        if code != _OK or magic_at(buf - pos, pos) != 2 or size > LARGEST:
            break
        fill(buf - pos, pos, size, rows[count])
        if rows[count, _CODE] != _OK:
            break
        weight -= size if rows[count, _CODEC] == _NONE else inflates * size
        count += 1
        pos += size
    return count, pos


@compiled
def stream(source: Source, rows: Any, wanted: Any, first: int, check_crcs: bool, records: Any, to: Target, at: Any, room: Room) -> Any:
    """Read, check, inflate and decode batches from row ``first`` on.

    Parameters
    ----------
    source : Source
    rows : int64 array of shape (n, `table.WIDTH`)
        As `hop` fills them: each entry begins where the one before it ends.
    wanted : bool array of n
        Which batches to decode; the checksums of the others are compared too.
    records : int64 array of n
        Out: records of each batch.
    to, at
        As for `fields.fields`; ``at`` has `ARENA` too.
    room : Room

    Returns
    -------
    row, state, need : int
        Where and why it stopped. After WRONG nothing that was written counts; with FULL, ``need`` is the batch's inflated size.
    """
    window, arena = source.window, source.arena
    origin, chunk_end = rows[0, _POSITION], rows[-1, _POSITION] + rows[-1, _SIZE]
    loaded = rows[first, _POSITION]
    start = origin if source.whole else loaded
    for b in range(first, rows.shape[0]):
        position, size, codec = rows[b, _POSITION], rows[b, _SIZE], rows[b, _CODEC]
        if codec != _NONE and codec != _LZ4 and codec != _SNAPPY:
            return b, LIBRARY, 0
        if position + size > loaded:
            loaded = min(position + max(_BLOCK, size), chunk_end)
            if not source.whole:
                start = position
            if _pread(source.file, window + position - start, loaded - position, position) != loaded - position:
                return b, WRONG, 0
        batch = window + position - start
        if check_crcs and crc.crc32c(batch, _CRC_FROM, size) != rows[b, _CRC]:
            return b, WRONG, 0
        records[b] = 0
        if not wanted[b] or rows[b, _COUNT] == 0:
            continue
        if codec == _NONE:
            state = _append(rows[b], batch + _HEADER, size - _HEADER, 0, batch + _HEADER - window, records, b, to, at, room)
            need = size
        else:
            used = at[ARENA] if source.keep else 0
            need = unpack(codec, batch + _HEADER, size - _HEADER, 2, arena + used, arena + room.arena)
            if need < 0:
                return b, FULL if used else LIBRARY, 0
            state = _append(rows[b], arena + used, need, 1, used, records, b, to, at, room)
            if state == DONE:
                at[ARENA] += need
        if state != DONE:
            return b, state, need
    return rows.shape[0], DONE, 0


@compiled
def load(file: int, rows: Any, window: int, check_crcs: bool) -> bool:
    """Read the entries of ``rows`` to address ``window`` and compare their checksums; False where anything is wrong."""
    origin, end = rows[0, _POSITION], rows[-1, _POSITION] + rows[-1, _SIZE]
    if _pread(file, window, end - origin, origin) != end - origin:
        return False
    for b in range(rows.shape[0]):
        if check_crcs and crc.crc32c(window + rows[b, _POSITION] - origin, _CRC_FROM, rows[b, _SIZE]) != rows[b, _CRC]:
            return False
    return True


@compiled
def append(
    rows: Any, wanted: Any, payload: Any, size: Any, buffer: int, origin: Any, first: int, records: Any, to: Target, at: Any, room: Room
) -> tuple[int, int, int]:
    """Decode batches that a library has inflated; parameters as for `fields.fields` and `stream`, results as of `stream`."""
    for b in range(first, rows.shape[0]):
        records[b] = 0
        if wanted[b]:
            state = _append(rows[b], payload[b], size[b], buffer, origin[b], records, b, to, at, room)
            if state != DONE:
                return b, state, size[b]
    return rows.shape[0], DONE, 0


@register_jitable
def _append(row: Any, payload: int, size: int, buffer: int, origin: int, records: Any, b: int, to: Target, at: Any, room: Room) -> int:
    count = row[_COUNT]
    if count < 0 or count > size // _SMALLEST_RECORD:
        return WRONG
    if at[ROWS] + count > room.rows:
        return FULL
    if (to.key.mode == COPY and at[KEY] + size > room.payload_bytes) or (to.value.mode == COPY and at[VALUE] + size > room.payload_bytes):
        return FULL
    code, _, _ = batch_records(row, payload, size, buffer, origin, count, to, at)
    if code != _OK:
        return WRONG
    records[b] = count
    return DONE
