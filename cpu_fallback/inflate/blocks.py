"""Locates the payload of each entry, and lists its compressed blocks in one table by the framing functions of `kolumn.formats.codecs`."""

import numpy as np

import kolumn.formats.codecs.known  # noqa: F401 (the framings as compiled functions first)
from kolumn.core.deferred import register_jitable
from kolumn.core.errors import Code
from kolumn.cpu_fallback.machine.arrays import Constants, Flags, Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import layouts, table
from kolumn.formats.codecs import END, NONE, flaws, gzip, known, lz4

_OK, _NULL_WRAPPER = int(Code.OK), int(Code.NULL_WRAPPER)


@compiled
def locate(buf: int, origin: int, rows: Table, start: Int64s, size: Int64s, codec: Int64s) -> None:
    """Fill ``start`` (position in the segment), ``size`` (bytes) and ``codec`` of each entry's payload. An entry whose payload cannot be
    located, or whose codec is not allowed, gets a code in ``rows``. A batch with a record count of 0, or a draft's set, has nothing to
    decompress if no bytes follow its header, whatever codec that names."""
    for b in range(rows.shape[0]):
        row = rows[b]
        start[b], size[b], codec[b] = row[table.POSITION], 0, 0
        if row[table.CODE] != _OK:
            continue
        if layouts.holds_messages(row[table.LAYOUT]):
            row[table.CODE], start[b], size[b] = _message(buf - origin, row)
        elif row[table.SIZE] == row[table.PAYLOAD] and (row[table.COUNT] == 0 or layouts.is_set(row[table.LAYOUT])):
            continue
        else:
            row[table.CODE] = layouts.codec_code(row[table.LAYOUT], row[table.ATTRIBUTES], row[table.CODEC])
            start[b], size[b] = row[table.POSITION] + row[table.PAYLOAD], row[table.SIZE] - row[table.PAYLOAD]
        if row[table.CODE] == _OK:
            codec[b] = row[table.CODEC]
        else:
            size[b] = 0


@register_jitable
def _message(buf: int, row: Int64s) -> tuple[int, int, int]:
    """Code, start and size of the message itself or, with a codec, of its compressed payload."""
    position, end = row[table.POSITION], row[table.POSITION] + row[table.SIZE]
    code = layouts.codec_code(row[table.LAYOUT], row[table.ATTRIBUTES], row[table.CODEC])
    if code != _OK or row[table.CODEC] == NONE:
        return code, position, row[table.SIZE]
    code, value, length = layouts.wrapped(row[table.LAYOUT], buf, position, end)
    if code == _OK and length < 0:
        return _NULL_WRAPPER, value, 0
    return code, value, length


PAYLOAD, KIND, SOURCE, STOP, BOUND = range(5)
COLUMNS = 5
CODEC, COUNT = flaws.CODEC, known.COUNT


@compiled
def _frame(
    buf: int, start: Constants, size: Constants, codec: Constants, magic: Constants, limit: Constants, first: int, row: int, table: Table,
    flaw: Int64s, where: Int64s, careful: Flags,
) -> tuple[int, int]:  # fmt: skip
    """Fill the table from payload ``first`` and row ``row`` on; stops at a payload for whose blocks the table has no room."""
    for i in range(first, len(start)):
        at, end, c = start[i], start[i] + size[i], codec[i]
        mark, total, state, wrong = row, 0, 0, 0
        if 0 <= c < COUNT:
            wrong, at, state = known.header(c, buf, at, end, magic[i])
        else:
            wrong = CODEC
        while wrong == 0:
            wrong, at, source, stop, bound, kind = known.block(c, buf, at, end, state)
            if wrong != 0 or kind == END:
                break
            if row == len(table):
                return i, mark
            table[row, 0], table[row, 1], table[row, 2], table[row, 3], table[row, 4] = i, kind, source, stop, bound
            row += 1
            total += bound
            if total > limit[i]:
                careful[i] = True
            if known.is_whole(c, state):
                break
        if wrong != 0:
            flaw[i] = wrong
            where[i] = at
            careful[i] = False
            row = mark
    return len(start), row


@compiled
def member_end(buf: int, at: int, end: int, crc: int, size: int) -> tuple[int, int]:
    """`gzip.following`, compiled."""
    return gzip.following(buf, at, end, crc, size)


@compiled
def wrong_contents(start: Constants, size: Constants, magic: Constants, out: Constants, length: Constants, wrong: Flags) -> None:
    """Flag lz4 payloads whose content checksum is not that of the bytes that they were decompressed to. All are at addresses."""
    for i in range(len(start)):
        end, kind = start[i] + size[i], -1
        flaw, at, state = lz4.header(0, start[i], end, magic[i])
        while flaw == 0 and kind != END:
            flaw, at, _, _, _, kind = lz4.block(0, at, end, state)
        wrong[i] = flaw == 0 and not lz4.content_fits(0, at, state, out[i], length[i])


def wrong(start: Int64s, size: Int64s, magic: Int64s, out: Int64s, length: Int64s) -> np.ndarray:
    """Flags of `wrong_contents`."""
    flags = np.zeros(len(start), np.bool_)
    start, size, magic, out, length = (np.ascontiguousarray(one, np.int64) for one in (start, size, magic, out, length))
    wrong_contents(start, size, magic, out, length, flags)
    return flags


def frame(
    buf: np.ndarray, start: np.ndarray, size: np.ndarray, codec: np.ndarray, magic: np.ndarray, limit: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Blocks of all payloads whose framing is valid. Returns ``table``: ndarray of int64, shape (blocks, COLUMNS). ``flaw``, ``where``:
    ndarray of int64, of each payload. The table has no blocks of a payload with a flaw. ``careful``: ndarray of bool, set for payloads
    whose blocks could decompress to more than ``limit``."""
    flaw, where, careful = np.zeros(len(start), np.int64), np.zeros(len(start), np.int64), np.zeros(len(start), np.bool_)
    table = np.empty((len(start) + int(size.sum()) // 8192 + 16, COLUMNS), np.int64)
    payload, rows = 0, 0
    while True:
        payload, rows = _frame(buf.ctypes.data, start, size, codec, magic, limit, payload, rows, table, flaw, where, careful)
        if payload == len(start):
            return table[:rows], flaw, where, careful
        larger = np.empty((2 * len(table), COLUMNS), np.int64)
        larger[:rows] = table[:rows]
        table = larger
