"""Rows that the options keep, before any payload is moved: a thread per row tells, a running sum numbers them, a thread per row packs.

    kept   | 0 | 1 | 1 | 0 | 1 |         numbers   | 0 | 0 | 1 | 2 | 2 | 3 |         row 4 becomes row 2

Bound: 20 bytes read for each row, and for each kept one 60 bytes read and written.
"""

from typing import NamedTuple

import numpy as np

from kolumn.core.arrays import Flags
from kolumn.formats import memory
from kolumn.formats.machine_code.words import load32, load64, store8, store32, store64
from kolumn.kernels.fields.records import DevicePayloads, DeviceRecords, empty_records
from kolumn.kernels.machine.kernel import thread_per_item
from kolumn.kernels.machine.runtime import Memory, Runtime

_NONE = -1
LOWEST, HIGHEST = -(2**63), 2**63 - 1


class RowLimits(NamedTuple):
    """The limits of kept rows; `LOWEST` and `HIGHEST` where there is no limit. Ends are exclusive, except `HIGHEST`."""

    start_offset: int = LOWEST
    end_offset: int = HIGHEST
    start_timestamp: int = LOWEST
    end_timestamp: int = HIGHEST
    include_control: int = 0


EVERY_ROW = RowLimits(include_control=1)


class Keep(NamedTuple):
    """Arguments of `keep_row`; addresses, but for the limits.

    Columns of `DeviceRecords`, the uint8 flags of control records, `RowLimits`, int64 of each batch ``dropped``, 1 if it has no rows (0 in
    place of the address: no batch is dropped), and ``numbers``, int32 of n + 1.
    """

    owner: int
    offset: int
    timestamp: int
    control: int
    start_offset: int
    end_offset: int
    start_timestamp: int
    end_timestamp: int
    include_control: int
    dropped: int
    numbers: int


@thread_per_item(Keep)
def keep_row(i: int, a: Keep) -> None:
    """Note whether row ``i`` is kept."""
    if i == 0:
        store32(a.numbers, 0)
    offset, timestamp = load64(a.offset + 8 * i), load64(a.timestamp + 8 * i)
    kept = a.start_offset <= offset and (offset < a.end_offset or a.end_offset == HIGHEST)
    if a.start_timestamp != LOWEST or a.end_timestamp != HIGHEST:
        within = a.start_timestamp <= timestamp and (timestamp < a.end_timestamp or a.end_timestamp == HIGHEST)
        kept = kept and within and timestamp != _NONE
    if a.dropped != 0 and load64(a.dropped + 8 * load32(a.owner + 4 * i)) != 0:
        kept = False
    if a.include_control == 0 and memory.load8(a.control, i) != 0:
        kept = False
    store32(a.numbers + 4 * (i + 1), 1 if kept else 0)


class Pack(NamedTuple):
    """Arguments of `pack_row`: ``numbers`` after the running sum, and each column before and after; 0 where there is none."""

    numbers: int
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
    to_owner: int
    to_offset: int
    to_timestamp: int
    to_key: int
    to_key_length: int
    to_value: int
    to_value_length: int
    to_header: int
    to_headers: int
    to_attributes: int
    to_seconds: int


@thread_per_item(Pack)
def pack_row(i: int, a: Pack) -> None:
    """Move row ``i`` to its place, if it is kept."""
    to = load32(a.numbers + 4 * i)
    if load32(a.numbers + 4 * (i + 1)) == to:
        return
    store32(a.to_owner + 4 * to, load32(a.owner + 4 * i))
    store64(a.to_offset + 8 * to, load64(a.offset + 8 * i))
    store64(a.to_timestamp + 8 * to, load64(a.timestamp + 8 * i))
    store64(a.to_key + 8 * to, load64(a.key + 8 * i))
    store32(a.to_key_length + 4 * to, load32(a.key_length + 4 * i))
    store64(a.to_value + 8 * to, load64(a.value + 8 * i))
    store32(a.to_value_length + 4 * to, load32(a.value_length + 4 * i))
    store64(a.to_header + 8 * to, load64(a.header + 8 * i))
    store32(a.to_headers + 4 * to, load32(a.headers + 4 * i))
    if a.attributes != 0:
        store8(a.to_attributes + to, memory.load8(a.attributes, i))
        store64(a.to_seconds + 8 * to, load64(a.seconds + 8 * i))


def keep(device: Runtime, records: DeviceRecords, control: Memory, limits: RowLimits, dropped: Flags | None = None) -> DeviceRecords:
    """The records within limits, without those of batches that are ``dropped`` (flags); the same object if all are kept."""
    n = records.rows
    numbers = device.empty(4 * (n + 1)) if n else device.zeros(4)
    gone = device.upload(np.ascontiguousarray(dropped, np.int64)) if dropped is not None else None
    args = Keep(
        records.owner.address, records.offset.address, records.timestamp.address, control.address, *limits,
        gone.address if gone is not None else 0, numbers.address,
    )  # fmt: skip
    device.launch(keep_row, n, args)
    device.running_sum(numbers, n + 1, 4)
    rows = int(device.download(numbers, 4, 4 * n).view(np.int32)[0])
    if rows == n:
        return records
    kept = empty_records(device, rows, records.batches, records.first, records.attributes is not None)
    device.launch(pack_row, n, Pack(numbers.address, *_addresses(records), *_addresses(kept)))
    return kept


def _addresses(records: DeviceRecords) -> list[int]:
    def address(memory: Memory | None) -> int:
        return memory.address if memory is not None else 0

    def both(payloads: DevicePayloads) -> list[int]:
        return [payloads.at.address, payloads.length.address]

    return [
        records.owner.address, records.offset.address, records.timestamp.address, *both(records.key), *both(records.value),
        records.header.address, records.headers.address, address(records.attributes), address(records.seconds),
    ]  # fmt: skip
