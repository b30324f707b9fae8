"""Headers of records: a thread per record walks its own.

    thread i    | key length | key | value length | value | key length | ...
                writes rows first[i] to first[i + 1] of the headers' columns

Bound: the sectors of 32 bytes that headers' lengths are in, 24 bytes written for each header.
"""

from typing import NamedTuple

from kolumn.formats import v2
from kolumn.kernels.machine.kernel import thread_per_item
from kolumn.machine_code.words import load32, load64, store32, store64

_LARGEST = 2**31 - 1


class Headers(NamedTuple):
    """Arguments of `headers`; addresses.

    ``header`` (int64) is where each record's first one begins, ``ends`` (int32 of n + 1) the list offsets. Written for each header:
    the addresses of its ``key`` and ``value`` (int64) and their lengths (int32, -1 for a null value).
    """

    header: int
    ends: int
    key: int
    key_length: int
    value: int
    value_length: int


@thread_per_item(Headers)
def headers(i: int, a: Headers) -> None:
    """Write the headers of record ``i``, which `fields` has found to be right."""
    row, stop = load32(a.ends + 4 * i), load32(a.ends + 4 * (i + 1))
    if row == stop:
        return
    buf, at = load64(a.header + 8 * i), 0
    while row < stop:
        one = v2.record_header(buf, at, _LARGEST)
        store64(a.key + 8 * row, buf + one.key)
        store32(a.key_length + 4 * row, one.key_length)
        store64(a.value + 8 * row, buf + one.value)
        store32(a.value_length + 4 * row, max(one.value_length, -1))
        at = one.next
        row += 1
