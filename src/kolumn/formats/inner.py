"""Number of messages in a wrapper, and the base of their offsets. Both must be known before any of the messages is decoded."""

from kolumn.errors import Code
from kolumn.formats import crc, layouts, legacy, table
from kolumn.formats.entry import magic_at
from kolumn.formats.memory import Buffer, i64_at, load8, u32_at

_OK, _TRUNCATED = int(Code.OK), int(Code.TRUNCATED)
_INNER_MAGIC, _INNER_COMPRESSED, _INNER_CRC = int(Code.INNER_MAGIC), int(Code.INNER_COMPRESSED), int(Code.INNER_CRC)
_NO_INNER, _INNER_OFFSET = int(Code.NO_INNER), int(Code.INNER_OFFSET)
_TAG_COUNT = int(Code.TAG_COUNT)
_UNKNOWN, _CRC_FROM = table.UNKNOWN, legacy.CRC_FROM


def inner_messages(buf: Buffer, end: int, layout: int, highest: int, check_crcs: bool) -> tuple[int, int, int, int]:
    """Hop through the inner messages: (count, offset field of the last one, code, where)."""
    at = 0
    count = 0
    last = 0
    while True:
        code, following = legacy.inner(buf, at, end)
        if code == _TRUNCATED:
            break
        if code != _OK:
            return count, last, code, following
        if magic_at(buf, at) > highest or magic_at(buf, at) < layouts.lowest_inner_magic(layout):
            return count, last, _INNER_MAGIC, at + 16
        if layouts.inner_codec(layout, load8(buf, at + 17)) != 0:
            return count, last, _INNER_COMPRESSED, at + 17
        if check_crcs and crc.crc32(buf, at + _CRC_FROM, following) != u32_at(buf, at + 12):
            return count, last, _INNER_CRC, at + 12
        last = i64_at(buf, at)
        count += 1
        at = following
    if count == 0:
        return 0, 0, _NO_INNER, -1
    return count, last, _OK, -1


def base_of(layout: int, magic: int, base_offset: int, last_offset: int, told: int, last: int, count: int) -> tuple[int, int]:
    """Base that is added to inner offsets (``DeepRecordsIterator`` of Kafka). It depends on the wrapper's magic, not on the inner ones.

    Parameters
    ----------
    layout, magic, base_offset, last_offset, told : int
        Of the wrapper; ``told`` is the number of messages in its header, or `table.UNKNOWN`.
    last, count : int
        Offset field of the last inner message, and the number of inner messages.

    Returns
    -------
    code, base : int
    """
    if layouts.begins_at_offset(layout):
        return _TAG_COUNT if told not in (_UNKNOWN, count) else _OK, base_offset
    if magic == 0 or last_offset == 0:
        return _OK, 0
    if last_offset < last:
        return _INNER_OFFSET, 0
    return _OK, last_offset - last
