"""Batches on the device become records on the device: count, hop, fields, and payloads into columns.

Where something is wrong in a batch, no rows are given: whoever called finds out on the CPU what it is, and comes again without it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kolumn.kernels import check as checking
from kolumn.kernels.batches import Batches
from kolumn.kernels.columns import Sizes, Validity, sizes, validity
from kolumn.kernels.count import Count, count
from kolumn.kernels.fields import Fields, fields
from kolumn.kernels.gather import Gather, gather
from kolumn.kernels.headers import Headers, headers
from kolumn.kernels.hop import Hop, hop, hop_staged
from kolumn.kernels.runtime import Memory, Runtime

FEW = 4096
"""Batches below which a warp is given to each: fewer threads than this leave most of a device idle."""


@dataclass
class Payloads:
    """Keys, values or header parts where they are: device addresses (int64) and lengths (int32, -1 for null)."""

    at: Memory
    length: Memory
    count: int


@dataclass
class Binary:
    """A column of bytes on the device: ``ends`` (int32 of rows + 1), ``data``, and a validity bitmap in words of 32 rows."""

    ends: Memory
    data: Memory
    bitmap: Memory
    rows: int
    size: int
    nulls: int


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


def bad_checksums(device: Runtime, source: int, rows: Any) -> Any:
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
    batches, flags = device.upload(np.ascontiguousarray(rows)), device.zeros(4 * len(rows))
    if "checksums" not in device.kept:
        # Never another one: somebody may be using its address.
        device.kept.setdefault("checksums", device.upload(checking.tables()))
    known = device.kept["checksums"].address
    device.launch(checking.check, len(rows), checking.Check(batches.address, source, known, flags.address))
    return device.download(flags, 4 * len(rows)).view(np.int32) != 0


def decode(device: Runtime, rows: Any, payload: Any, size: Any, format: int, check_crcs: bool, drafts: bool) -> tuple[Any, Records | None]:
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
        None if there are such.
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


def empty_records(device: Runtime, rows: int, batches: Memory, first: Any, owner: Memory, drafts: bool) -> Records:
    """Records whose columns are not written yet."""

    def payloads() -> Payloads:
        return Payloads(device.empty(8 * rows), device.empty(4 * rows), rows)

    return Records(
        rows, batches, first, owner, device.empty(8 * rows), device.empty(8 * rows), payloads(), payloads(),
        device.empty(8 * rows), device.empty(4 * rows),
        device.empty(rows) if drafts else None, device.empty(8 * rows) if drafts else None,
    )  # fmt: skip


def _targets(chain: Hop, to: Records) -> Fields:
    return Fields(
        *chain, to.offset.address, to.timestamp.address, to.key.at.address, to.key.length.address, to.value.at.address,
        to.value.length.address, to.header.address, to.headers.address,
        to.attributes.address if to.attributes else 0, to.seconds.address if to.seconds else 0,
    )  # fmt: skip


def ends_of(device: Runtime, lengths: Memory, rows: int) -> tuple[Memory, int]:
    """Offsets of a column (int32 of rows + 1) by the lengths of its rows, and the last of them.

    Their sum is less than 2 GiB: the payloads of a run of batches are.
    """
    ends = device.zeros(4 * (rows + 1))
    device.launch(sizes, rows, Sizes(lengths.address, ends.address))
    device.running_sum(ends, rows + 1, 4)
    return ends, int(device.download(ends, 4, 4 * rows).view(np.int32)[0])


def bitmap_of(device: Runtime, lengths: Memory, rows: int) -> tuple[Memory, int]:
    """Validity bitmap by the lengths of rows, and how many are null."""
    words = -(-rows // 32)
    bitmap, nulls = device.empty(4 * words), device.empty(4 * words)
    device.launch(validity, words, Validity(lengths.address, rows, bitmap.address, nulls.address))
    return bitmap, int(device.download(nulls, 4 * words).view(np.int32).sum())


def binary(device: Runtime, payloads: Payloads) -> Binary:
    """Payloads copied into a column."""
    ends, size = ends_of(device, payloads.length, payloads.count)
    data = device.empty(size)
    device.launch(gather, payloads.count, Gather(payloads.at.address, ends.address, data.address))
    bitmap, nulls = bitmap_of(device, payloads.length, payloads.count)
    return Binary(ends, data, bitmap, payloads.count, size, nulls)


def headers_of(device: Runtime, records: Records) -> tuple[Memory, Payloads, Payloads]:
    """List offsets of the headers' column (int32 of rows + 1), keys and values of the headers."""
    ends, total = ends_of(device, records.headers, records.rows)
    keys, values = (Payloads(device.empty(8 * total), device.empty(4 * total), total) for _ in range(2))
    args = Headers(records.header.address, ends.address, keys.at.address, keys.length.address, values.at.address, values.length.address)
    device.launch(headers, records.rows if total else 0, args)
    return ends, keys, values
