"""Decodes messages into columns: one that is an entry of its own, those of a wrapper, and those of a set. Each layout has a loop."""

from collections.abc import Callable
from typing import Any

from kolumn.cpu_fallback.fields.target import HEADERS, KEY, ROWS, VALUE, Target, put_record
from kolumn.cpu_fallback.machine.address import store8, store64
from kolumn.cpu_fallback.machine.arrays import Int64s
from kolumn.cpu_fallback.machine.compile import compiled  # noqa: F401 (the formats as compiled functions first)
from kolumn.errors import Code
from kolumn.formats import layouts, table
from kolumn.formats.layout import Layout, chosen
from kolumn.machine_code.deferred import register_jitable
from kolumn.machine_code.scalar import known

_OK = int(Code.OK)


def _loop(layout: Layout) -> Callable[..., tuple[int, int, int]]:
    hop, message = layout.hop, layout.message
    assert hop is not None
    assert message is not None

    @register_jitable(forceinline=True)
    def loop(
        row: Int64s, buf: int, end: int, buffer: int, origin: int, count: int, base: int, to: Target, at: Int64s
    ) -> tuple[int, int, int]:
        n, key, value = at[ROWS], at[KEY], at[VALUE]
        append_time, wrapped, attributes = row[table.TIMESTAMP_TYPE] == table.LOG_APPEND_TIME, row[table.CODEC], row[table.ATTRIBUTES]
        where = 0
        for record in range(count):
            code, stop = hop(buf, where, end, wrapped)
            if code != _OK:
                return code, record, where
            found = message(buf, where, stop, wrapped, attributes, base, record)
            if found.code != _OK:
                return found.code, record, found.where
            timestamp = row[table.MAX_TIMESTAMP] if append_time and found.dated else found.timestamp
            if to.seconds:
                store64(to.seconds + 8 * n, found.seconds)
            if to.attributes:
                store8(to.attributes + n, found.attributes)
            key, value = put_record(
                to, n, found.offset, timestamp, at[HEADERS], buffer, origin - buf,
                buf + found.key, found.key_length, buf + found.value, found.value_length, key, value,
            )  # fmt: skip
            n += 1
            where = stop
        at[ROWS], at[KEY], at[VALUE] = n, key, value
        return _OK, -1, -1

    return loop


_made: list[Callable[..., Any]] = []
messages = chosen({number: _loop(layouts.LAYOUTS[number]) for number in (*layouts.MESSAGES, *layouts.SETS)}, _made)
"""Decodes the ``count`` messages of an entry: (code, record, position of the error). The first argument is the layout.

The others are those of `records.fields`. The write positions advance only if all messages of the entry are valid.
"""
known(_made)
