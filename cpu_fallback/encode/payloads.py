"""Addresses of the columns of an Arrow table, for compiled encoders, and the copy of a payload from a column to an entry."""

from typing import NamedTuple

from kolumn.cpu_fallback.machine.address import STEP, copy_padded, load8, load32, store8
from kolumn.machine_code.deferred import register_jitable


class ArrowPayloads(NamedTuple):
    """Addresses of a binary column of Arrow: of the first row's 32-bit offset, of the data and the byte after it, and of the validity
    bitmap.

    The bitmap's address is 0 if nothing is null; ``bit`` is the index of the first row's bit in it.
    """

    ends: int
    data: int
    stop: int
    valid: int
    bit: int


class RecordsToEncode(NamedTuple):
    """Columns of the records to encode; addresses of the first row.

    ``header_ends`` are 32-bit offsets into the columns of the headers, 0 if no record has headers. ``offset`` and ``timestamp`` (ms, -1
    for no timestamp) are int64.
    """

    rows: int
    key: ArrowPayloads
    value: ArrowPayloads
    header_ends: int
    header_key: ArrowPayloads
    header_value: ArrowPayloads
    offset: int
    timestamp: int


@register_jitable(forceinline=True)
def payload(column: ArrowPayloads, row: int) -> tuple[int, int]:
    """Address and length of a payload; the length is -1 for null."""
    start = load32(column.ends + 4 * row)
    if column.valid != 0:
        bit = column.bit + row
        if (load8(column.valid + (bit >> 3)) >> (bit & 7)) & 1 == 0:
            return column.data, -1
    return column.data + start, load32(column.ends + 4 * row + 4) - start


@register_jitable(forceinline=True)
def copy_payload(to: int, source: int, length: int, stop: int) -> None:
    """Copy a payload from a column whose memory ends at ``stop``; `STEP` more bytes than ``length`` can be written at ``to``."""
    if source + length + STEP <= stop:
        copy_padded(to, source, length)
    else:
        # Whole steps would read past the column's memory.
        for i in range(length):
            store8(to + i, load8(source + i))
