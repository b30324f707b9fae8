"""Batches on the device become records on the device: count, hop, fields, and payloads into columns.

If something is wrong in a batch, no rows are returned: the caller finds out on the CPU what it is, and calls again without that batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kolumn.core.arrays import Bytes, Flags, Int64s
from kolumn.kernels import check as checking
from kolumn.kernels.count import Count, count
from kolumn.kernels.fields.hop import Hop
from kolumn.kernels.fields.records import DeviceRecords, Fields, empty_records, fields
from kolumn.kernels.fields.slices import hop_for
from kolumn.kernels.machine.kernel import Arguments, Batches
from kolumn.kernels.machine.runtime import Memory, Runtime

Wanted = Sequence[tuple[Memory, int, int]]
"""Bytes of the device: a memory, a size and a start."""


@dataclass
class Outcome:
    """Results of decoding some batches.

    Attributes
    ----------
    bad : bool array of n
        Batches in which something is wrong.
    records : DeviceRecords, optional
        None if there are such batches.
    measures : list of uint8 array
        The bytes that were wanted of the records; none if counts were wrong already.
    """

    bad: Flags
    records: DeviceRecords | None = None
    measures: list[Bytes] = field(default_factory=list)


def bad_checksums(device: Runtime, source: int, rows: Memory, count: int) -> Flags:
    """Flags of the entries whose checksum is wrong.

    Parameters
    ----------
    source : int
        Device address at which position 0 of the segment would be.
    rows : Memory
        int64 of shape (count, `table.WIDTH`).

    Returns
    -------
    bool array of count
    """
    if not count:
        return np.zeros(0, bool)
    flags = checking.compare_checksums(device, rows, count, source)
    return _flags(device.download(flags, 4 * count))


def decode(
    device: Runtime,
    batches: Memory,
    payload: Int64s,
    size: Int64s,
    format: int,
    check_crcs: bool,
    drafts: bool,
    measure: Callable[[DeviceRecords], Wanted] = lambda _: [],
    counts: Int64s | None = None,
) -> Outcome:
    """Decode batches; waits for the device once, and once more for counts that headers do not tell.

    Parameters
    ----------
    batches : Memory
        The batch table, int64 of shape (n, `table.WIDTH`).
    payload, size : int64 arrays of n
        Device addresses and bytes of the decompressed records or messages.
    format : int
        Of `layouts`.
    check_crcs : bool
        Compare the checksums of inner messages.
    drafts : bool
        Whether messages have attributes of their own.
    measure : callable
        Launches what else to do with records whose batches may turn out to be bad, so that nothing but lengths may be looked at; returns
        what is downloaded together with the flags.
    counts : int64 array of n, optional
        Records of each batch where all are record batches, no more than their payloads have room for.
    """
    n = len(payload)
    begins = np.concatenate([[0], np.cumsum([] if counts is None else counts)]).astype(np.int64)
    where = device.upload(np.concatenate([payload, size, begins]))
    base, bad, first = device.pieces([8 * n, 4 * n, 8 * (n + 1) if counts is None else 0], zeros=True)
    rows = first.address if counts is None else where.address + 16 * n
    known = Batches(batches.address, where.address, where.address + 8 * n, rows, base.address, bad.address, format)
    if counts is None:
        device.launch(count, n, Count(*known, check_crcs))
        device.running_sum(first, n + 1, 8)
        flags, ends = device.downloads([(bad, 4 * n, 0), (first, 8 * (n + 1), 0)])
        if _flags(flags).any():
            return Outcome(_flags(flags))
        begins = ends.view(np.int64)
    found = empty_records(device, int(begins[-1]), batches, begins, drafts)
    chain = Hop(*known, found.start.address, found.owner.address)
    device.launch(*hop_for(int(size.sum()), n, found.rows), chain)
    device.launch(fields, found.rows, _targets(chain, found))
    flags, *measures = device.downloads([(bad, 4 * n, 0), *measure(found)])
    return Outcome(_flags(flags), None if _flags(flags).any() else found, measures)


def _flags(words: Bytes) -> Flags:
    return words.view(np.int32) != 0


def _targets(chain: Arguments, to: DeviceRecords) -> Arguments:
    return Fields(
        *chain, to.offset.address, to.timestamp.address, to.key.at.address, to.key.length.address, to.value.at.address,
        to.value.length.address, to.header.address, to.headers.address,
        to.attributes.address if to.attributes else 0, to.seconds.address if to.seconds else 0,
    )  # fmt: skip
