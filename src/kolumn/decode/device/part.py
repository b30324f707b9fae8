"""Records of some entries, decoded and still on the device, and how they are copied back into the columns that the CPU backend makes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Bytes, Int64s
from kolumn.cpu_fallback.columns.columns import SKIPPED, BinaryColumn, Columns
from kolumn.cpu_fallback.fields.put import COPY, SKIP
from kolumn.cpu_fallback.fields.target import HEADER_KEY, HEADER_VALUE, KEY, VALUE
from kolumn.decode.device.inflate import InflatedOnDevice
from kolumn.decode.host.run import Run, modes
from kolumn.options import Options

if TYPE_CHECKING:
    from kolumn.kernels.columns.binary import Binary, Measured
    from kolumn.kernels.fields.records import DeviceRecords
    from kolumn.kernels.machine.runtime import Memory, Runtime


class DevicePart:
    """Records on the device, of the entries with the numbers ``good``.

    ``measures`` were downloaded of what was begun; ``found``, ``parts`` and ``unlike`` are as in `decode.host.run.Run`; ``bytes`` are those
    of the decompressed payloads.
    """

    def __init__(
        self,
        device: "Runtime",
        good: Int64s,
        records: "DeviceRecords",
        measures: list[Bytes],
        inflated: InflatedOnDevice,
    ) -> None:
        self.device, self.good, self.records, self.found, self._kept = device, good, records, inflated.found, inflated.kept
        self.measures, self.parts, self.unlike = measures, inflated.parts, tuple(inflated.unlike)
        self.bytes = int(inflated.size[good].sum())

    def counts(self, entries: int) -> Int64s:
        """Rows of each of ``entries``: int64."""
        counts = np.zeros(entries, np.int64)
        counts[self.good] = np.diff(self.records.first)
        return counts


class PayloadsToCopy(NamedTuple):
    """Which payloads a read copies to the host."""

    keys: int
    values: int
    headers: bool

    @classmethod
    def of(cls, options: Options, need_key: bool) -> "PayloadsToCopy":
        """As options ask for."""
        return cls(*modes(options, COPY, need_key), "headers" in options.columns)


class Begun:
    """Columns of bytes that are begun while the device still looks at records, so that one wait tells how large they are.

    The records may turn out to be wrong.
    """

    def __init__(self, device: "Runtime", records: "DeviceRecords", asked: PayloadsToCopy) -> None:
        from kolumn.kernels.columns.binary import begin_ends, measure

        self.columns: dict[int, Measured] = {}
        for payloads, mode, where in ((records.key, asked.keys, KEY), (records.value, asked.values, VALUE)):
            if mode != SKIP:
                self.columns[where] = measure(device, payloads)
        self.header_ends = begin_ends(device, records.headers, records.rows) if asked.headers else None
        self.wanted = [one for column in self.columns.values() for one in column.wanted]
        if self.header_ends is not None:
            self.wanted.append((self.header_ends, 4, 4 * records.rows))


def to_run(part: DevicePart, begun: Begun, entries: int) -> Callable[[], Run]:
    """Copy what was begun of the records of ``entries`` entries to the host; waits once, and once more if there are headers.

    The function that is returned makes the columns, in ordinary memory, and needs the device no more.
    """
    from kolumn.kernels.columns.binary import header_parts, measure, moved, number_of

    device, records, sums = part.device, part.records, list(map(number_of, part.measures))
    made: dict[int, Binary] = {}
    for k, (where, measured) in enumerate(begun.columns.items()):
        made[where] = moved(device, measured, *sums[2 * k : 2 * k + 2])
    if begun.header_ends is not None:
        parts = [measure(device, one) for one in header_parts(device, records, begun.header_ends, sums[-1])]
        lengths = list(map(number_of, device.downloads([one for column in parts for one in column.wanted])))
        for k, where in enumerate((HEADER_KEY, HEADER_VALUE)):
            made[where] = moved(device, parts[k], *lengths[2 * k : 2 * k + 2])
    drafts, headed = records.attributes is not None and records.seconds is not None, begun.header_ends is not None
    wanted: list[tuple[Memory, int, int]] = [(records.offset, 8 * records.rows, 0), (records.timestamp, 8 * records.rows, 0)]
    if records.attributes is not None and records.seconds is not None:
        wanted += [(records.attributes, records.rows, 0), (records.seconds, 8 * records.rows, 0)]
    if begun.header_ends is not None:
        wanted.append((begun.header_ends, 4 * (records.rows + 1), 0))
    for column in made.values():
        wanted += [(column.data, column.size, 0), (column.ends, 4 * (column.rows + 1), 0)]
        wanted += [(column.bitmap, (column.rows + 7) // 8, 0)] if column.nulls else []
    collected = device.collected(wanted)
    rows, counts, wrong, of_damaged, unlike = records.rows, part.counts(entries), part.found, part.parts, part.unlike
    shapes = {where: (column.rows, column.nulls) for where, column in made.items()}

    def run() -> Run:
        there = iter(collected())
        offset, timestamp = pa.py_buffer(next(there)), pa.py_buffer(next(there))
        of_drafts = (next(there), next(there).view(np.int64)) if drafts else (np.zeros(0, np.uint8), np.zeros(0, np.int64))
        header_ends = pa.py_buffer(next(there)) if headed else None
        found = dict.fromkeys((KEY, VALUE), SKIPPED)
        for where, (count, nulls) in shapes.items():
            data, ends = pa.py_buffer(next(there)), pa.py_buffer(next(there))
            found[where] = BinaryColumn(count, nulls, pa.py_buffer(next(there)) if nulls else None, ends, data)
        columns = Columns(rows, offset, timestamp, *of_drafts, found[KEY], found[VALUE])
        if header_ends is not None:
            columns.header_ends, columns.header_key, columns.header_value = header_ends, found[HEADER_KEY], found[HEADER_VALUE]
        return Run(columns, counts, [], wrong, parts=of_damaged, unlike=unlike)

    return run
