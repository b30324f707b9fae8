"""Messages become columns: one that is an entry of its own, those of a wrapper, and those of a set. A loop for each layout."""

from collections.abc import Callable
from typing import Any

from numba.extending import register_jitable

from kolumn.cpu_fallback.fields.target import HEADERS, KEY, ROWS, VALUE, Target, put_record
from kolumn.cpu_fallback.machine.address import store8, store64
from kolumn.cpu_fallback.machine.scalars import compiled  # noqa: F401 (the formats as compiled functions first)
from kolumn.errors import Code
from kolumn.formats import layouts, table
from kolumn.formats.layout import Layout, chosen

_OK, _LOG_APPEND_TIME = int(Code.OK), table.LOG_APPEND_TIME
_MAX_TIMESTAMP, _TIMESTAMP_TYPE = table.MAX_TIMESTAMP, table.TIMESTAMP_TYPE
_CODEC, _ATTRIBUTES = table.CODEC, table.ATTRIBUTES


def _loop(layout: Layout) -> Callable[..., tuple[int, int, int]]:
    hop, fields = layout.hop, layout.message
    assert hop is not None
    assert fields is not None

    @register_jitable(forceinline=True)
    def loop(row: Any, buf: int, end: int, buffer: int, origin: int, count: int, base: int, to: Target, at: Any) -> tuple[int, int, int]:
        n, key, value = at[ROWS], at[KEY], at[VALUE]
        append_time, wrapped, attributes = row[_TIMESTAMP_TYPE] == _LOG_APPEND_TIME, row[_CODEC], row[_ATTRIBUTES]
        where = 0
        for record in range(count):
            code, stop = hop(buf, where, end, wrapped)
            if code != _OK:
                return code, record, where
            code, wrong, offset, timestamp, dated, seconds, marks, key_at, key_length, value_at, value_length = fields(
                buf, where, stop, wrapped, attributes, base, record
            )
            if code != _OK:
                return code, record, wrong
            if append_time and dated:
                timestamp = row[_MAX_TIMESTAMP]
            if to.seconds:
                store64(to.seconds + 8 * n, seconds)
            if to.attributes:
                store8(to.attributes + n, marks)
            key, value = put_record(
                to, n, offset, timestamp, at[HEADERS], buffer, origin - buf,
                buf + key_at, key_length, buf + value_at, value_length, key, value,
            )  # fmt: skip
            n += 1
            where = stop
        at[ROWS], at[KEY], at[VALUE] = n, key, value
        return _OK, -1, -1

    return loop


_made: list[Callable[..., Any]] = []
messages = chosen({number: _loop(layouts.LAYOUTS[number]) for number in (*layouts.MESSAGES, *layouts.SETS)}, _made)
"""Messages of an entry, of which there are ``count``: (code, record, position of the offence). Its first argument is the layout.

Like `fields`, of which the others are, it moves the write positions on only when all messages of the entry are right.
"""
for _one in _made:
    register_jitable(forceinline=True)(_one)
