"""The fields of each record: a thread per record, which knows where its record begins and nothing of its neighbours.

    thread i    reads its record from the length to the end of its last header, skipping the payloads:
                | length | attr | time delta | offset delta | key length | key .... | value length | value .... | headers |
                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^               ^^^^^^^^^^^^               ^^^^^^^^^^^
                writes row i of nine columns

Bound: two or three sectors of 32 bytes read for each record, 44 bytes written.
"""

from typing import NamedTuple

from numba.extending import register_jitable

from kolumn.errors import Code
from kolumn.formats import layouts, table, v2
from kolumn.kernels.machine.batches import field
from kolumn.kernels.machine.kernel import thread_per_item
from kolumn.kernels.machine.words import load32, load64, store8, store32, store64

_OK = int(Code.OK)
_LAYOUT, _CODEC, _ATTRIBUTES = table.LAYOUT, table.CODEC, table.ATTRIBUTES
_BASE_OFFSET, _BASE_TIMESTAMP = table.BASE_OFFSET, table.BASE_TIMESTAMP
_MAX_TIMESTAMP, _TIMESTAMP_TYPE, _LOG_APPEND_TIME = table.MAX_TIMESTAMP, table.TIMESTAMP_TYPE, table.LOG_APPEND_TIME


class Fields(NamedTuple):
    """Arguments of `fields`: those of `hop`, and the columns that are written.

    Attributes
    ----------
    offset, timestamp : int
        int64; ms.
    key, value : int
        int64: addresses of the payloads.
    key_length, value_length : int
        int32; -1 for null.
    header : int
        int64: address of the first header.
    headers : int
        int32: how many there are.
    attributes, seconds : int
        uint8 and int64, as in `kolumn.cpu_fallback.fields.target.Target`; 0 if they are not wanted.
    """

    rows: int
    payload: int
    size: int
    first: int
    base: int
    bad: int
    format: int
    start: int
    owner: int
    offset: int
    timestamp: int
    key: int
    key_length: int
    value: int
    value_length: int
    header: int
    headers: int
    attributes: int
    seconds: int


@thread_per_item(Fields)
def fields(i: int, a: Fields) -> None:
    """Write row ``i``."""
    b, start = load32(a.owner + 4 * i), load32(a.start + 4 * i)
    if start < 0:
        return
    layout = field(a, b, _LAYOUT)
    wrong = _record(i, b, start, layout, a) if layouts.holds_records(layout) else _message(i, b, start, layout, a)
    if wrong:
        store32(a.bad + 4 * b, 1)


@register_jitable
def _payloads(i: int, buf: int, key: int, key_length: int, value: int, value_length: int, a: Fields) -> None:
    store64(a.key + 8 * i, buf + key)
    store32(a.key_length + 4 * i, max(key_length, -1))
    store64(a.value + 8 * i, buf + value)
    store32(a.value_length + 4 * i, max(value_length, -1))


@register_jitable
def _others(i: int, attributes: int, seconds: int, a: Fields) -> None:
    """Row ``i`` of what only drafts have, and no headers."""
    store32(a.headers + 4 * i, 0)
    if a.attributes != 0:
        store8(a.attributes + i, attributes)
        store64(a.seconds + 8 * i, seconds)


@register_jitable
def _record(i: int, b: int, start: int, layout: int, a: Fields) -> bool:
    """A record of format 2 or 3; whether something is wrong."""
    buf, end = load64(a.payload + 8 * b), load64(a.size + 8 * b)
    code, stop, time_delta, offset_delta, key, key_length, value, value_length, header, count = v2.fields(
        buf, start, end, layouts.attribute_bytes(layout)
    )
    if code != _OK:
        return True
    at = header
    for _ in range(count):
        code, at, _, _, _, _ = v2.record_header(buf, at, stop)
        if code != _OK:
            return True
    if at != stop:
        return True
    timestamp = (
        field(a, b, _MAX_TIMESTAMP) if field(a, b, _TIMESTAMP_TYPE) == _LOG_APPEND_TIME else field(a, b, _BASE_TIMESTAMP) + time_delta
    )
    store64(a.offset + 8 * i, field(a, b, _BASE_OFFSET) + offset_delta)
    store64(a.timestamp + 8 * i, timestamp)
    _payloads(i, buf, key, key_length, value, value_length, a)
    _others(i, 0, -1, a)
    store64(a.header + 8 * i, buf + header)
    store32(a.headers + 4 * i, count)
    return False


@register_jitable
def _message(i: int, b: int, start: int, layout: int, a: Fields) -> bool:
    """A message: an entry of its own, or of a wrapper or a set."""
    buf, end, wrapped = load64(a.payload + 8 * b), load64(a.size + 8 * b), field(a, b, _CODEC)
    code, stop = layouts.hop(layout, buf, start, end, wrapped)
    if code != _OK:
        return True
    code, _, offset, timestamp, dated, seconds, attributes, key, key_length, value, value_length = layouts.message(
        layout, buf, start, stop, wrapped, field(a, b, _ATTRIBUTES), load64(a.base + 8 * b), i - load64(a.first + 8 * b)
    )
    if code != _OK:
        return True
    if dated and field(a, b, _TIMESTAMP_TYPE) == _LOG_APPEND_TIME:
        timestamp = field(a, b, _MAX_TIMESTAMP)
    store64(a.offset + 8 * i, offset)
    store64(a.timestamp + 8 * i, timestamp)
    _payloads(i, buf, key, key_length, value, value_length, a)
    _others(i, attributes, seconds, a)
    return False
