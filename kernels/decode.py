"""Batches on the device become records on the device: count, hop, fields, and payloads into columns.

If something is wrong in a batch, no rows are returned: the caller finds out on the CPU what it is, and calls again without that batch.
"""

from typing import Any

import numpy as np

from kolumn.arrays import Int64s, Rows
from kolumn.kernels import check as checking
from kolumn.kernels.count import Count, count
from kolumn.kernels.fields.decoded import Records, empty_records
from kolumn.kernels.fields.hop import Hop, hop, hop_staged
from kolumn.kernels.fields.records import Fields, fields
from kolumn.kernels.machine.batches import Batches
from kolumn.kernels.machine.runtime import Runtime

FEW = 4096
"""With fewer batches than this, each gets a warp: fewer threads would leave most of a device idle."""


def bad_checksums(device: Runtime, source: int, rows: Rows) -> Any:
    """Flags of the entries whose checksum is wrong.

    Parameters
    ----------
    source : int
        Device address at which position 0 of the segment would be.
    rows : int64 array of shape (n, `table.WIDTH`)

    Returns
    -------
    bool array of n
    """
    if not len(rows):
        return np.zeros(0, bool)
    flags = checking.compare_checksums(device, device.upload(np.ascontiguousarray(rows)), len(rows), source)
    return device.download(flags, 4 * len(rows)).view(np.int32) != 0


def decode(
    device: Runtime, rows: Rows, payload: Int64s, size: Int64s, format: int, check_crcs: bool, drafts: bool
) -> tuple[Any, Records | None]:
    """Decode batches.

    Parameters
    ----------
    rows : int64 array of shape (n, `table.WIDTH`)
    payload, size : int64 arrays of n
        Device addresses and bytes of the inflated records or messages.
    format : int
        Of `layouts`.
    check_crcs : bool
        Compare the checksums of inner messages.
    drafts : bool
        Whether messages have attributes of their own.

    Returns
    -------
    bad : bool array of n
        Batches in which something is wrong.
    records : Records, optional
        None if there are such batches.
    """
    n = len(rows)
    batches, where, bytes_ = (device.upload(np.ascontiguousarray(one)) for one in (rows, payload, size))
    first, base, bad = device.zeros(8 * (n + 1)), device.zeros(8 * n), device.zeros(4 * n)
    known = Batches(batches.address, where.address, bytes_.address, first.address, base.address, bad.address, format)
    device.launch(count, n, Count(*known, check_crcs))
    device.running_sum(first, n + 1, 8)
    flags = device.download(bad, 4 * n).view(np.int32) != 0
    if flags.any():
        return flags, None
    begins = device.download(first, 8 * (n + 1)).view(np.int64)
    total = int(begins[-1])
    start, owner = device.empty(4 * total), device.empty(4 * total)
    chain = Hop(*known, start.address, owner.address)
    device.launch(hop if n >= FEW else hop_staged, n, chain)
    found = empty_records(device, total, batches, begins, owner, drafts)
    device.launch(fields, total, _targets(chain, found))
    flags = device.download(bad, 4 * n).view(np.int32) != 0
    return flags, None if flags.any() else found


def _targets(chain: Hop, to: Records) -> Fields:
    return Fields(
        *chain, to.offset.address, to.timestamp.address, to.key.at.address, to.key.length.address, to.value.at.address,
        to.value.length.address, to.header.address, to.headers.address,
        to.attributes.address if to.attributes else 0, to.seconds.address if to.seconds else 0,
    )  # fmt: skip
