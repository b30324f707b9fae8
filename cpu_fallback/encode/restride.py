"""Converts records of format 2 to format 3 and back: their attributes byte is removed or added, and all else is copied.

format 2   length | attributes | timestamp delta | ...        format 3   length - 1 | timestamp delta | ...
"""

from kolumn.cpu_fallback.machine.address import copy_padded, load8, store8
from kolumn.cpu_fallback.machine.arrays import Int64s
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats.varint import put_varint, varint32


@compiled
def plain_attributes(payload: Int64s, size: Int64s, count: Int64s) -> bool:
    """Whether no record of some format 2 payloads has attributes. The records must have been decoded before, so they are valid."""
    for b in range(payload.shape[0]):
        at = 0
        for _ in range(count[b]):
            length, body = varint32(payload[b], at, size[b])
            if load8(payload[b] + body) != 0:
                return False
            at = body + length
    return True


@compiled
def restride(payload: Int64s, size: Int64s, count: Int64s, target: int, skip: int, out: Int64s) -> int:
    """Rewrite the records of batches.

    Parameters
    ----------
    payload, size, count : int64 arrays of n
        Address, size in bytes and number of the records of each batch. They must have been decoded before, so they are valid.
    target : int
        Address of the output. It needs as many bytes as all records, one more for each record, and padding.
    skip : int
        1 removes the attributes, 0 adds them.
    out : int64 array of n
        Out: bytes of the new records of each batch.

    Returns
    -------
    int
        Bytes of all new records.
    """
    to = target
    for b in range(payload.shape[0]):
        at, begin = 0, to
        for _ in range(count[b]):
            length, body = varint32(payload[b], at, size[b])
            if skip == 1:
                to = put_varint(0, to, length - 1)
                copy_padded(to, payload[b] + body + 1, length - 1)
                to += length - 1
            else:
                to = put_varint(0, to, length + 1)
                store8(to, 0)
                copy_padded(to + 1, payload[b] + body, length)
                to += length + 1
            at = body + length
        out[b] = to - begin
    return to - target
