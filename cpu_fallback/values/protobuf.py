"""Loops over values of Protobuf: bodies become rows of columns, and entries of maps whose key comes again are found."""

from typing import NamedTuple

import kolumn.cpu_fallback.values.words
import kolumn.values.wire.compiled  # noqa: F401
from kolumn.core.deferred import register_jitable
from kolumn.cpu_fallback.machine.address import load8, load32, load64, store8
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.values.wire import columns, protobuf, protobuf_wire
from kolumn.values.wire.columns import ColumnTables
from kolumn.values.wire.protobuf import ProtobufProgram


class Rows(NamedTuple):
    """Addresses. Those of int64 for each row, ``at`` to ``schema``, are as in `kolumn.values.decoder.Bodies`.

    ``fronts`` says what precedes a message, after a prefix of each framing, see `kolumn.values.wire.protobuf_wire.after_front`.
    ``choices`` has a row for the reader's schema, and one for each writer's. ``valid`` are the flags that are written. With ``bare`` a
    body that is not valid is tried from its prefix on, and with what may precede a message."""

    at: int
    length: int
    prefix: int
    framing: int
    schema: int
    fronts: int
    choices: int
    valid: int
    bare: int


@compiled
def write_rows(target: ColumnTables, program: ProtobufProgram, rows: Rows, first: int, last: int) -> tuple[int, int]:
    """Write rows [first, last): the first row that is not written, and what has no room for it (`kolumn.values.wire.columns`), 0 if all
    are."""
    # Constants, where the compiler sees them: no passes, and counts next to each other.
    target = ColumnTables(target.columns, target.levels, target.counts, target.fills, 0, 8, target.level_count, 0)
    for row in range(first, last):
        at, length = load64(rows.at + 8 * row), load64(rows.length + 8 * row)
        stop, code = at + length, columns.INVALID
        start = -1
        if length >= 0:
            front = load64(rows.fronts + 8 * load64(rows.framing + 8 * row))
            choice = rows.choices + protobuf_wire.CHOICE * (load64(rows.schema + 8 * row) + 1)
            if front < protobuf_wire.PLAIN_INDEXES:
                start = protobuf_wire.after_front(at, stop, front, choice)
            else:
                start = protobuf_wire.after_other_front(at, stop, front, choice)
        tried = start
        for again in range(2):
            if start > 0:
                code = protobuf.write_message(target, program, row, start, stop)
                if code != 0:
                    columns.restore(target, row)
            if again == 1 or code != columns.INVALID or rows.bare == 0 or length < 0:
                break
            start = at - load64(rows.prefix + 8 * row)
            if start == tried:
                break
        if code > 0:
            return row, code
        if code != 0:
            protobuf.write_null(target, program, row)
        store8(rows.valid + row, 1 if code == 0 else 0)
    return last, 0


MOST_COMPARED = 16
"""Entries of a map that are compared each with each."""


@register_jitable
def _key(data: int, key_ends: int, width: int, k: int) -> tuple[int, int]:
    """Address and size of key ``k``."""
    if key_ends == 0:
        return data + width * k, width
    start = load32(key_ends + 4 * k)
    return data + start, load32(key_ends + 4 * k + 4) - start


@compiled
def repeated_keys(offsets: int, maps: int, data: int, key_ends: int, width: int, keep: int) -> int:
    """Clear the flags (``keep``) of entries whose key comes again in their map; returns their number, -1 if a map has more than
    `MOST_COMPARED`. ``offsets`` are int32 of the ``maps``; keys are bytes with the int32 offsets ``key_ends``, or words of ``width``
    bytes."""
    repeated = 0
    for map in range(maps):
        first, last = load32(offsets + 4 * map), load32(offsets + 4 * map + 4)
        if last - first > MOST_COMPARED:
            return -1
        for k in range(first, last - 1):
            address, size = _key(data, key_ends, width, k)
            for other in range(k + 1, last):
                other_address, other_size = _key(data, key_ends, width, other)
                same, byte = size == other_size, 0
                while same and byte < size:
                    same = load8(address + byte) == load8(other_address + byte)
                    byte += 1
                if same:
                    store8(keep + k, 0)
                    repeated += 1
                    break
    return repeated
