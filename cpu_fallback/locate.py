"""Where the records of each entry lie: behind the header (format 2), in the value (wrapper), or the message itself."""

from typing import Any

from kolumn.cpu_fallback.scalars import compiled
from kolumn.errors import Code
from kolumn.formats import legacy, table, v2

_OK, _BAD_CODEC, _CODEC_NOT_ALLOWED = int(Code.OK), int(Code.BAD_CODEC), int(Code.CODEC_NOT_ALLOWED)
_NULL_WRAPPER = int(Code.NULL_WRAPPER)
_POSITION, _SIZE, _MAGIC, _CODEC, _COUNT, _CODE = table.POSITION, table.SIZE, table.MAGIC, table.CODEC, table.COUNT, table.CODE
_HEADER = v2.HEADER
_ZSTD = 4


@compiled
def locate(buf: int, origin: int, rows: Any, start: Any, size: Any, codec: Any) -> None:
    """Fill ``start`` (position in the segment), ``size`` (bytes) and ``codec`` of each entry's payload.

    Entries that can have no payload get a code in ``rows``. A format 2 batch that says it has no records has an empty
    payload: like Java, nobody looks at the bytes behind its header.
    """
    for b in range(rows.shape[0]):
        row = rows[b]
        start[b], size[b], codec[b] = row[_POSITION], 0, 0
        if row[_CODE] != _OK:
            continue
        position, end = row[_POSITION], row[_POSITION] + row[_SIZE]
        if row[_MAGIC] == 2:
            if row[_COUNT] == 0:
                continue
            if row[_CODEC] > _ZSTD:
                row[_CODE] = _BAD_CODEC
                continue
            start[b], size[b], codec[b] = position + _HEADER, row[_SIZE] - _HEADER, row[_CODEC]
        elif row[_CODEC] == 0:
            size[b] = row[_SIZE]
        elif row[_CODEC] >= _ZSTD:
            row[_CODE] = _CODEC_NOT_ALLOWED if row[_CODEC] == _ZSTD else _BAD_CODEC
        else:
            code, _, _, _, _, value, length = legacy.message(buf - origin, position, end)
            if code == _OK and length < 0:
                code = _NULL_WRAPPER
            row[_CODE] = code
            if code == _OK:
                start[b], size[b], codec[b] = value, length, row[_CODEC]
