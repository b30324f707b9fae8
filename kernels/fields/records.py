"""The fields of each record: a thread per record, which knows where its record begins and nothing of its neighbours.

    thread i    reads its record from the length to the end of its last header, skipping the payloads:
                | length | attr | time delta | offset delta | key length | key .... | value length | value .... | headers |
                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^               ^^^^^^^^^^^^               ^^^^^^^^^^^
                writes row i of nine columns; `headers` walks the headers of one record and writes their rows

Bound: two or three sectors of 32 bytes read for each record, 44 bytes written; for headers the sectors that their lengths are in, and 24
bytes written for each.
"""

from dataclasses import dataclass
from typing import Any

from kolumn.core.arrays import Int64s
from kolumn.core.deferred import register_jitable
from kolumn.core.errors import Code
from kolumn.formats import layouts, table, v2
from kolumn.formats.entry import Message, Record
from kolumn.formats.words import load32, load64, store8, store32, store64
from kolumn.kernels.fields.hop import Hop
from kolumn.kernels.machine.kernel import Arguments, arguments, field, thread_per_item
from kolumn.kernels.machine.runtime import Memory, Runtime

_OK = int(Code.OK)
Fields = arguments(
    __name__, "Fields", Hop, "offset", "timestamp", "key", "key_length", "value", "value_length", "header", "headers", "attributes",
    "seconds",
)  # fmt: skip
"""Arguments of `fields`: those of `hop`, and the columns that are written.

    offset, timestamp          int64; ms
    key, value                 int64: addresses of the payloads
    key_length, value_length   int32; -1 for null
    header                     int64: address of the first header
    headers                    int32: how many there are
    attributes, seconds        uint8 and int64, as in `kolumn.cpu_fallback.fields.target.Target`; 0 if they are not wanted"""


@thread_per_item(Fields)
def fields(i: int, a: Arguments) -> None:
    """Write row ``i``."""
    b, start = load32(a.owner + 4 * i), load32(a.start + 4 * i)
    if start < 0:
        return
    layout = field(a, b, table.LAYOUT)
    wrong = _record(i, b, start, layout, a) if layouts.holds_records(layout) else _message(i, b, start, layout, a)
    if wrong:
        store32(a.bad + 4 * b, 1)


@register_jitable
def _payloads(i: int, buf: int, parsed: Record | Message, a: Arguments) -> None:
    store64(a.key + 8 * i, buf + parsed.key)
    store32(a.key_length + 4 * i, max(parsed.key_length, -1))
    store64(a.value + 8 * i, buf + parsed.value)
    store32(a.value_length + 4 * i, max(parsed.value_length, -1))


@register_jitable
def _others(i: int, attributes: int, seconds: int, a: Arguments) -> None:
    """Row ``i`` of what only drafts have, and no headers."""
    store32(a.headers + 4 * i, 0)
    if a.attributes != 0:
        store8(a.attributes + i, attributes)
        store64(a.seconds + 8 * i, seconds)


@register_jitable
def _record(i: int, b: int, start: int, layout: int, a: Arguments) -> bool:
    """A record of format 2 or 3; whether something is wrong."""
    buf, end = load64(a.payload + 8 * b), load64(a.size + 8 * b)
    record = v2.fields(buf, start, end, layouts.attribute_bytes(layout))
    if record.code != _OK:
        return True
    at = record.headers
    for _ in range(record.header_count):
        header = v2.record_header(buf, at, record.next)
        if header.code != _OK:
            return True
        at = header.next
    base = field(a, b, table.BASE_OFFSET)
    if at != record.next or record.offset_delta < 0 or record.offset_delta > field(a, b, table.LAST_OFFSET) - base:
        return True
    timestamp = field(a, b, table.BASE_TIMESTAMP) + record.timestamp_delta
    if field(a, b, table.TIMESTAMP_TYPE) == table.LOG_APPEND_TIME:
        timestamp = field(a, b, table.MAX_TIMESTAMP)
    store64(a.offset + 8 * i, base + record.offset_delta)
    store64(a.timestamp + 8 * i, timestamp)
    _payloads(i, buf, record, a)
    _others(i, 0, -1, a)
    store64(a.header + 8 * i, buf + record.headers)
    store32(a.headers + 4 * i, record.header_count)
    return False


@register_jitable
def _message(i: int, b: int, start: int, layout: int, a: Arguments) -> bool:
    """A message: an entry of its own, or of a wrapper or a set."""
    buf, end, wrapped = load64(a.payload + 8 * b), load64(a.size + 8 * b), field(a, b, table.CODEC)
    code, stop = layouts.hop(layout, buf, start, end, wrapped)
    if code != _OK:
        return True
    message = layouts.message(
        layout, buf, start, stop, wrapped, field(a, b, table.ATTRIBUTES), load64(a.base + 8 * b), i - load64(a.first + 8 * b)
    )
    if message.code != _OK:
        return True
    timestamp = message.timestamp
    if message.dated and field(a, b, table.TIMESTAMP_TYPE) == table.LOG_APPEND_TIME:
        timestamp = field(a, b, table.MAX_TIMESTAMP)
    store64(a.offset + 8 * i, message.offset)
    store64(a.timestamp + 8 * i, timestamp)
    _payloads(i, buf, message, a)
    _others(i, message.attributes, message.seconds, a)
    return False


@dataclass
class DevicePayloads:
    """Keys, values or header parts where they are: device addresses (int64) and lengths (int32, -1 for null)."""

    at: Memory
    length: Memory
    count: int


@dataclass
class DeviceRecords:
    """Records on the device, a row each.

    ``batches``: the batch table, int64 of shape (n, `table.WIDTH`).
    ``first``: int64 array of n + 1, host memory: where each batch's rows begin.
    ``owner``: int32: number of each row's batch.
    ``start``: int32: where each record begins in its payload; not written of rows that were chosen later.
    ``offset``, ``timestamp``: int64; ms.
    ``header``, ``headers``: int64 address of the first header, and int32 how many there are.
    ``attributes``, ``seconds``: uint8 and int64, of drafts.
    """

    rows: int
    batches: Memory
    first: Any
    owner: Memory
    start: Memory
    offset: Memory
    timestamp: Memory
    key: DevicePayloads
    value: DevicePayloads
    header: Memory
    headers: Memory
    attributes: Memory | None
    seconds: Memory | None


def empty_records(device: Runtime, rows: int, batches: Memory, first: Int64s, drafts: bool) -> DeviceRecords:
    """Records whose columns are not written yet. Offsets and timestamps, which can be columns of a result, have memory of their own."""
    wide, narrow = 8 * rows, 4 * rows
    offset, timestamp = device.pieces([wide, wide])
    owner, start, key, key_length, value, value_length, header, headers, *others = device.pieces(
        [narrow, narrow, wide, narrow, wide, narrow, wide, narrow, *([rows, wide] if drafts else [])]
    )
    attributes, seconds = others or (None, None)
    return DeviceRecords(
        rows, batches, first, owner, start, offset, timestamp,
        DevicePayloads(key, key_length, rows), DevicePayloads(value, value_length, rows), header, headers, attributes, seconds,
    )  # fmt: skip


_LARGEST = 2**31 - 1
Headers = arguments(__name__, "Headers", "header ends key key_length value value_length")
"""Arguments of `headers`; addresses. ``header`` (int64) is where each record's first one begins, ``ends`` (int32 of n + 1) the list
offsets. Written for each header: the addresses of its ``key`` and ``value`` (int64) and their lengths (int32, -1 for a null value)."""


@thread_per_item(Headers)
def headers(i: int, a: Arguments) -> None:
    """Write the headers of record ``i``, which `fields` has found to be right."""
    row, stop = load32(a.ends + 4 * i), load32(a.ends + 4 * (i + 1))
    if row == stop:
        return
    buf, at = load64(a.header + 8 * i), 0
    while row < stop:
        header = v2.record_header(buf, at, _LARGEST)
        store64(a.key + 8 * row, buf + header.key)
        store32(a.key_length + 4 * row, header.key_length)
        store64(a.value + 8 * row, buf + header.value)
        store32(a.value_length + 4 * row, max(header.value_length, -1))
        at = header.next
        row += 1
