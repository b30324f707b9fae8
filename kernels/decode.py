"""Batches on the device become records on the device: count, hop, fields, and payloads into columns.

`count`: a thread per batch. A record batch has the number in its header, which is compared with the payload's size; a wrapper or a set is
hopped through. Bound: a sector of 32 bytes for each message of a wrapper, or the bytes of the messages; nothing for record batches.

If something is wrong in a batch, no rows are returned: the caller finds out on the CPU what it is, and calls again without that batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kolumn.core.arrays import Bytes, Flags, Int64s
from kolumn.core.errors import Code
from kolumn.formats import layouts, table
from kolumn.formats.words import load64, store32, store64
from kolumn.kernels import check as checking
from kolumn.kernels.fields.hop import Hop, hop_for
from kolumn.kernels.fields.records import DeviceRecords, Fields, empty_records, fields
from kolumn.kernels.machine.kernel import Arguments, Batches, arguments, field, thread_per_item
from kolumn.kernels.machine.runtime import Memory, Runtime

_OK = int(Code.OK)
Count = arguments(__name__, "Count", Batches, "check_crcs")
"""Arguments of `count`: those of `Batches`, of which ``first`` and ``base`` are written, and whether to compare inner checksums. ``first``
has n + 1 int64: the number of rows of batch b goes to ``first[b + 1]``, and a running sum makes row numbers of them."""


@thread_per_item(Count)
def count(b: int, a: Arguments) -> None:
    """Count the rows of batch ``b``."""
    buf, end = load64(a.payload + 8 * b), load64(a.size + 8 * b)
    layout = field(a, b, table.LAYOUT)
    base = 0
    if layouts.is_set(layout):
        base = field(a, b, table.BASE_OFFSET)
        code, records, _ = layouts.count(layout, buf, end, a.check_crcs != 0)
    elif layouts.holds_records(layout):
        records = field(a, b, table.COUNT)
        code = _OK if 0 <= records <= end // layouts.smallest_record(layout) else 1
    elif field(a, b, table.CODEC) == 0:
        code, records = _OK, 1
    else:
        highest = layouts.highest_inner_magic(a.format, layout)
        records, last, code, _ = layouts.inner_messages(buf, end, layout, highest, a.check_crcs != 0)
        if code == _OK:
            magic, offset, last_offset = field(a, b, table.MAGIC), field(a, b, table.BASE_OFFSET), field(a, b, table.LAST_OFFSET)
            code, base = layouts.base_of(layout, magic, offset, last_offset, field(a, b, table.COUNT), last, records)
    store64(a.first + 8 * (b + 1), records if code == _OK else 0)
    store64(a.base + 8 * b, base)
    if code != _OK:
        store32(a.bad + 4 * b, 1)


Wanted = Sequence[tuple[Memory, int, int]]
"""Bytes of the device: a memory, a size and a start."""


@dataclass
class Outcome:
    """Results of decoding some batches.

    ``bad``: bool array of n, batches in which something is wrong.
    ``records``: None if there are such batches.
    ``measures``: list of uint8 array, the bytes that were wanted of the records; none if counts were wrong already.
    """

    bad: Flags
    records: DeviceRecords | None
    measures: list[Bytes]


def bad_checksums(device: Runtime, source: int, rows: Memory, count: int) -> Flags:
    """Flags of the entries whose checksum is wrong. ``source``: device address at which position 0 of the segment would be. ``rows``: int64
    of shape (count, `table.WIDTH`). Returns bool array of count."""
    if not count:
        return np.zeros(0, bool)
    return _flags(device.download(checking.compare_checksums(device, rows, count, source), 4 * count))


def decode(
    device: Runtime, batches: Memory, payload: Int64s, size: Int64s, format: int, check_crcs: bool, drafts: bool, *,
    measure: Callable[[DeviceRecords], Wanted] = lambda _: [], counts: Int64s | None = None,
) -> Outcome:  # fmt: skip
    """Decode batches; waits for the device once, and once more for counts that headers do not tell.

    ``batches``: the batch table, int64 of shape (n, `table.WIDTH`).
    ``payload``, ``size``: int64 arrays of n, device addresses and bytes of the decompressed records or messages.
    ``format``: of `layouts`.
    ``check_crcs``: compare the checksums of inner messages.
    ``drafts``: whether messages have attributes of their own.
    ``measure``: launches what else to do with records whose batches may turn out to be bad, so that nothing but lengths may be looked
        at; returns what is downloaded together with the flags.
    ``counts``: int64 array of n, records of each batch where all are record batches, no more than their payloads have room for.
    """
    n = len(payload)
    begins = np.concatenate([[0], np.cumsum([] if counts is None else counts)]).astype(np.int64)
    where = device.upload(np.concatenate([payload, size, begins]))
    base, bad, first = device.pieces([8 * n, 4 * n, 8 * (n + 1) if counts is None else 0], zeros=True)
    rows = first.address if counts is None else where.address + 16 * n
    known = Batches(batches, where, where.address + 8 * n, rows, base, bad, format)
    if counts is None:
        device.launch(count, n, Count(*known, check_crcs))
        device.running_sum(first, n + 1, 8)
        flags, ends = device.downloads([(bad, 4 * n, 0), (first, 8 * (n + 1), 0)])
        if _flags(flags).any():
            return Outcome(_flags(flags), None, [])
        begins = ends.view(np.int64)
    records = empty_records(device, int(begins[-1]), batches, begins, drafts)
    chain, key, value = Hop(*known, records.start, records.owner), records.key, records.value
    device.launch(*hop_for(int(size.sum()), n, records.rows), chain)
    args = Fields(
        *chain, records.offset, records.timestamp, key.at, key.length, value.at, value.length, records.header, records.headers,
        records.attributes, records.seconds,
    )  # fmt: skip
    device.launch(fields, records.rows, args)
    flags, *measures = device.downloads([(bad, 4 * n, 0), *measure(records)])
    return Outcome(_flags(flags), None if _flags(flags).any() else records, measures)


def _flags(words: Bytes) -> Flags:
    return words.view(np.int32) != 0
