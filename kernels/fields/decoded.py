"""Records on the device, as `kolumn.kernels.fields` writes them."""

from dataclasses import dataclass
from typing import Any

from kolumn.arrays import Int64s
from kolumn.kernels.machine.runtime import Memory, Runtime


@dataclass
class DevicePayloads:
    """Keys, values or header parts where they are: device addresses (int64) and lengths (int32, -1 for null)."""

    at: Memory
    length: Memory
    count: int


@dataclass
class DeviceRecords:
    """Records on the device, a row each.

    Attributes
    ----------
    rows : int
    batches : Memory
        The batch table, int64 of shape (n, `table.WIDTH`).
    first : int64 array of n + 1
        Host memory: where each batch's rows begin.
    owner : Memory
        int32: number of each row's batch.
    start : Memory
        int32: where each record begins in its payload; not written of rows that were chosen later.
    offset, timestamp : Memory
        int64; ms.
    key, value : DevicePayloads
    header, headers : Memory
        int64 address of the first header, and int32 how many there are.
    attributes, seconds : Memory, optional
        uint8 and int64, of drafts.
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
