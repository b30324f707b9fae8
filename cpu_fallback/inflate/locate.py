"""Where the records of each entry lie: after the header (format 2), in the value (wrapper), or the message itself."""

from typing import Any

from numba.extending import register_jitable

from kolumn.codecs import LZ4, NONE, ZSTD
from kolumn.cpu_fallback.machine.arrays import Int64s, Table
from kolumn.cpu_fallback.machine.scalars import compiled
from kolumn.errors import Code
from kolumn.formats import enriched, layouts, legacy, table

_OK, _BAD_CODEC, _CODEC_NOT_ALLOWED = int(Code.OK), int(Code.BAD_CODEC), int(Code.CODEC_NOT_ALLOWED)
_NULL_WRAPPER, _MESSAGE_TYPE = int(Code.NULL_WRAPPER), int(Code.MESSAGE_TYPE)
_POSITION, _SIZE, _CODEC, _COUNT, _CODE = table.POSITION, table.SIZE, table.CODEC, table.COUNT, table.CODE
_LAYOUT, _PAYLOAD, _ATTRIBUTES, _CONTROL = table.LAYOUT, table.PAYLOAD, table.ATTRIBUTES, table.CONTROL
_ENRICHED, _KIP98 = layouts.ENRICHED, layouts.KIP98
_NONE, _LZ4, _ZSTD = NONE, LZ4, ZSTD


@compiled
def locate(buf: int, origin: int, rows: Table, start: Int64s, size: Int64s, codec: Int64s) -> None:
    """Fill ``start`` (position in the segment), ``size`` (bytes) and ``codec`` of each entry's payload.

    Entries that can have no payload get a code in ``rows``. A batch whose header counts no records has an empty payload: as in Java,
    the bytes after its header are ignored. A draft set with nothing after its header has no records either.
    """
    for b in range(rows.shape[0]):
        row = rows[b]
        start[b], size[b], codec[b] = row[_POSITION], 0, 0
        if row[_CODE] != _OK:
            continue
        if layouts.holds_messages(row[_LAYOUT]):
            row[_CODE], start[b], size[b] = _message(buf - origin, row)
        elif row[_COUNT] == 0 or (row[_LAYOUT] == _KIP98 and row[_SIZE] == row[_PAYLOAD]):
            continue
        else:
            row[_CODE] = _codec(row[_CODEC], _LZ4 if row[_LAYOUT] == _KIP98 else _ZSTD)
            start[b], size[b] = row[_POSITION] + row[_PAYLOAD], row[_SIZE] - row[_PAYLOAD]
        if row[_CODE] == _OK:
            codec[b] = row[_CODEC]
        else:
            size[b] = 0


@register_jitable
def _codec(codec: int, highest: int) -> int:
    if codec <= highest:
        return _OK
    return _CODEC_NOT_ALLOWED if codec == _ZSTD else _BAD_CODEC


@register_jitable
def _message(buf: int, row: Any) -> tuple[int, int, int]:
    """Code, start and size of the message itself, or of the payload that it wraps."""
    position, end = row[_POSITION], row[_POSITION] + row[_SIZE]
    if row[_LAYOUT] == _ENRICHED:
        kind = row[_ATTRIBUTES] & 15
        code = _OK if kind <= _LZ4 or row[_CONTROL] != 0 else _MESSAGE_TYPE
    else:
        code = _codec(row[_CODEC], _LZ4)
    if code != _OK or row[_CODEC] == _NONE:
        return code, position, row[_SIZE]
    if row[_LAYOUT] == _ENRICHED:
        code, _, _, _, _, _, _, _, value, length = enriched.message(buf, position, end)
    else:
        code, _, _, _, _, value, length = legacy.message(buf, position, end)
    if code == _OK and length < 0:
        return _NULL_WRAPPER, value, 0
    return code, value, length
