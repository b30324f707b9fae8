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
from kolumn.formats import enriched, kip87, kip98_draft, layouts, legacy, memory, table, v2
from kolumn.kernels.machine.batches import field
from kolumn.kernels.machine.kernel import thread_per_item
from kolumn.kernels.machine.words import load32, load64, store8, store32, store64

_OK, _MESSAGE_TYPE = int(Code.OK), int(Code.MESSAGE_TYPE)
_LAYOUT, _CODEC, _ATTRIBUTES = table.LAYOUT, table.CODEC, table.ATTRIBUTES
_BASE_OFFSET, _BASE_TIMESTAMP = table.BASE_OFFSET, table.BASE_TIMESTAMP
_MAX_TIMESTAMP, _TIMESTAMP_TYPE, _LOG_APPEND_TIME = table.MAX_TIMESTAMP, table.TIMESTAMP_TYPE, table.LOG_APPEND_TIME
_ENRICHED, _KIP98 = layouts.ENRICHED, layouts.KIP98
_HONOURED, _FIRST_CONTROL, _LAST_CONTROL = enriched.HONOURED, enriched.FIRST_CONTROL, enriched.LAST_CONTROL
_TOMBSTONE_MAGIC, _TOMBSTONE, _FLAGGED = kip87.MAGIC, kip87.TOMBSTONE, kip87.FLAGGED


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
    if layouts.has_castagnoli(layout):
        wrong = _record(i, b, start, layout, a)
    elif layout == _KIP98:
        wrong = _set_message(i, b, start, a)
    elif layout == _ENRICHED:
        wrong = _tagged(i, b, start, a)
    else:
        wrong = _message(i, b, start, a)
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
def _set_message(i: int, b: int, start: int, a: Fields) -> bool:
    """A message of a `kip98_draft` set."""
    buf, end = load64(a.payload + 8 * b), load64(a.size + 8 * b)
    _, body, following = kip98_draft.hop(buf, start, end)
    code, _, attributes, timestamp, delta, key, key_length, value, value_length = kip98_draft.message(buf, body, following)
    if code != _OK:
        return True
    if field(a, b, _TIMESTAMP_TYPE) == _LOG_APPEND_TIME:
        timestamp = field(a, b, _MAX_TIMESTAMP)
    store64(a.offset + 8 * i, field(a, b, _BASE_OFFSET) + delta)
    store64(a.timestamp + 8 * i, timestamp)
    _payloads(i, buf, key, key_length, value, value_length, a)
    _others(i, attributes, -1, a)
    return False


@register_jitable
def _tagged(i: int, b: int, start: int, a: Fields) -> bool:
    """An `enriched` message, alone or wrapped."""
    buf, stop = load64(a.payload + 8 * b), load64(a.size + 8 * b)
    wrapped = field(a, b, _CODEC) != 0
    if wrapped:
        _, stop = legacy.inner(buf, start, stop)
    code, _, timestamp, seconds, _, attributes, key, key_length, value, value_length = enriched.message(buf, start, stop)
    kind = attributes & 15
    if code != _OK or (kind > 3 and (kind < _FIRST_CONTROL or kind > _LAST_CONTROL)):
        return True
    offset = memory.i64_at(buf, start)
    if wrapped:
        honoured = field(a, b, _ATTRIBUTES) & _HONOURED != 0
        offset = load64(a.base + 8 * b) + (offset if honoured else i - load64(a.first + 8 * b))
    store64(a.offset + 8 * i, offset)
    store64(a.timestamp + 8 * i, timestamp)
    _payloads(i, buf, key, key_length, value, value_length, a)
    _others(i, attributes, seconds, a)
    return False


@register_jitable
def _message(i: int, b: int, start: int, a: Fields) -> bool:
    """A message of format 0 or 1, or of `kip87`, alone or wrapped."""
    buf, stop = load64(a.payload + 8 * b), load64(a.size + 8 * b)
    if field(a, b, _CODEC) != 0:
        _, stop = legacy.inner(buf, start, stop)
    code, _, timestamp, key, key_length, value, value_length = legacy.message(buf, start, stop)
    if code != _OK:
        return True
    magic = memory.load8(buf, start + 16)
    if magic >= 1 and field(a, b, _TIMESTAMP_TYPE) == _LOG_APPEND_TIME:
        timestamp = field(a, b, _MAX_TIMESTAMP)
    attributes = 0
    if magic == _TOMBSTONE_MAGIC:
        attributes = (memory.load8(buf, start + 17) & _TOMBSTONE) | _FLAGGED
    store64(a.offset + 8 * i, memory.i64_at(buf, start) + load64(a.base + 8 * b))
    store64(a.timestamp + 8 * i, timestamp)
    _payloads(i, buf, key, key_length, value, value_length, a)
    _others(i, attributes, -1, a)
    return False
