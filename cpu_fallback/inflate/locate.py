"""Locates the payload of each entry: the bytes after the header (format 2), the value of a wrapper, or the message itself."""

from kolumn.core.errors import Code
from kolumn.cpu_fallback.machine.arrays import Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import layouts, table
from kolumn.formats.codecs import NONE
from kolumn.formats.machine_code.deferred import register_jitable

_OK, _NULL_WRAPPER = int(Code.OK), int(Code.NULL_WRAPPER)


@compiled
def locate(buf: int, origin: int, rows: Table, start: Int64s, size: Int64s, codec: Int64s) -> None:
    """Fill ``start`` (position in the segment), ``size`` (bytes) and ``codec`` of each entry's payload.

    An entry whose payload cannot be located, or whose codec is not allowed, gets a code in ``rows``. A batch with a record count of 0, or
    a draft's set, has nothing to decompress if no bytes follow its header, whatever codec that names.
    """
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
