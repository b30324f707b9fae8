"""Messages of the drafts become columns: the sets of `kip98_draft` and the tagged messages of `enriched`.

Both write to the same columns as `records.fields`, and like it advance the write positions only when all messages of an entry are right.
"""

from typing import Any

from numba.extending import register_jitable

from kolumn.cpu_fallback.fields.target import HEADERS, KEY, ROWS, VALUE, Target, put_record
from kolumn.cpu_fallback.machine.address import store8, store64
from kolumn.cpu_fallback.machine.scalars import compiled  # noqa: F401 (the formats as compiled functions first)
from kolumn.errors import Code
from kolumn.formats import enriched, kip98_draft, legacy, memory, table

_OK, _MESSAGE_TYPE = int(Code.OK), int(Code.MESSAGE_TYPE)
_BASE_OFFSET, _MAX_TIMESTAMP, _TIMESTAMP_TYPE = table.BASE_OFFSET, table.MAX_TIMESTAMP, table.TIMESTAMP_TYPE
_LOG_APPEND_TIME = table.LOG_APPEND_TIME
_CODEC, _ATTRIBUTES = table.CODEC, table.ATTRIBUTES
_HONOURED, _FIRST_CONTROL, _LAST_CONTROL = enriched.HONOURED, enriched.FIRST_CONTROL, enriched.LAST_CONTROL


@register_jitable
def set_messages(row: Any, buf: int, end: int, buffer: int, origin: int, to: Target, at: Any) -> tuple[int, int, int]:
    """Messages of a set that `index` has hopped through: (code, record, position of the offence)."""
    n, key, value = at[ROWS], at[KEY], at[VALUE]
    append_time = row[_TIMESTAMP_TYPE] == _LOG_APPEND_TIME
    where, record = 0, 0
    while where < end:
        code, body, following = kip98_draft.hop(buf, where, end)
        if code != _OK:
            return code, record, where
        code, wrong, attributes, timestamp, delta, key_at, key_length, value_at, value_length = kip98_draft.message(buf, body, following)
        if code != _OK:
            return code, record, wrong
        if to.attributes:
            store8(to.attributes + n, attributes)
        key, value = put_record(
            to, n, row[_BASE_OFFSET] + delta, row[_MAX_TIMESTAMP] if append_time else timestamp, at[HEADERS], buffer, origin - buf,
            buf + key_at, key_length, buf + value_at, value_length, key, value,
        )  # fmt: skip
        n += 1
        record += 1
        where = following
    at[ROWS], at[KEY], at[VALUE] = n, key, value
    return _OK, -1, -1


@register_jitable
def tagged_messages(
    row: Any, buf: int, end: int, buffer: int, origin: int, count: int, base: int, to: Target, at: Any
) -> tuple[int, int, int]:
    """An enriched message, or the ``count`` messages of a wrapper: (code, record, position of the offence)."""
    n, key, value = at[ROWS], at[KEY], at[VALUE]
    wrapped = row[_CODEC] != 0
    honoured = row[_ATTRIBUTES] & _HONOURED != 0
    where = 0
    for record in range(count):
        stop = end
        if wrapped:
            _, stop = legacy.inner(buf, where, end)
        code, wrong, timestamp, seconds, _, attributes, key_at, key_length, value_at, value_length = enriched.message(buf, where, stop)
        kind = attributes & 15
        if code == _OK and kind > 3 and (kind < _FIRST_CONTROL or kind > _LAST_CONTROL):
            code, wrong = _MESSAGE_TYPE, where + 17
        if code != _OK:
            return code, record, wrong
        inner = memory.i64_at(buf, where)
        offset = (base + inner if honoured else base + record) if wrapped else inner
        if to.seconds:
            store64(to.seconds + 8 * n, seconds)
        if to.attributes:
            store8(to.attributes + n, attributes)
        key, value = put_record(
            to, n, offset, timestamp, at[HEADERS], buffer, origin - buf,
            buf + key_at, key_length, buf + value_at, value_length, key, value,
        )  # fmt: skip
        n += 1
        where = stop
    at[ROWS], at[KEY], at[VALUE] = n, key, value
    return _OK, -1, -1
