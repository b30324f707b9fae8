"""Records on the device, as `kolumn.kernels.fields` writes them."""

from dataclasses import dataclass
from typing import Any

from kolumn.arrays import Int64s
from kolumn.kernels.machine.runtime import Memory, Runtime


@dataclass
class Payloads:
    """Keys, values or header parts where they are: device addresses (int64) and lengths (int32, -1 for null)."""

    at: Memory
    length: Memory
    count: int


@dataclass
class Records:
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
    offset, timestamp : Memory
        int64; ms.
    key, value : Payloads
    header, headers : Memory
        int64 address of the first header, and int32 how many there are.
    attributes, seconds : Memory, optional
        uint8 and int64, of drafts.
    """

    rows: int
    batches: Memory
    first: Any
    owner: Memory
    offset: Memory
    timestamp: Memory
    key: Payloads
    value: Payloads
    header: Memory
    headers: Memory
    attributes: Memory | None
    seconds: Memory | None


def empty_records(device: Runtime, rows: int, batches: Memory, first: Int64s, owner: Memory, drafts: bool) -> Records:
    """Records whose columns are not written yet."""

    def payloads() -> Payloads:
        return Payloads(device.empty(8 * rows), device.empty(4 * rows), rows)

    return Records(
        rows, batches, first, owner, device.empty(8 * rows), device.empty(8 * rows), payloads(), payloads(),
        device.empty(8 * rows), device.empty(4 * rows),
        device.empty(rows) if drafts else None, device.empty(8 * rows) if drafts else None,
    )  # fmt: skip
