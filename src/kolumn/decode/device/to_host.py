"""Records on a GPU copied back into the Arrow columns that the CPU backend makes."""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kolumn.cpu_fallback.columns.columns import SKIPPED, BinaryColumn, Columns
from kolumn.cpu_fallback.fields.target import HEADER_KEY, HEADER_VALUE, KEY, VALUE
from kolumn.decode.device.begun_columns import Begun
from kolumn.decode.device.part import DevicePart
from kolumn.decode.host.run import Run

if TYPE_CHECKING:
    from kolumn.kernels.columns.binary import Binary
    from kolumn.kernels.machine.runtime import Memory


def to_run(part: DevicePart, begun: Begun, entries: int) -> Run:
    """Copy what was begun of the records of ``entries`` entries to the host; waits once, and once more if there are headers."""
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
    wanted: list[tuple[Memory, int, int]] = [(records.offset, 8 * records.rows, 0), (records.timestamp, 8 * records.rows, 0)]
    if records.attributes is not None and records.seconds is not None:
        wanted += [(records.attributes, records.rows, 0), (records.seconds, 8 * records.rows, 0)]
    if begun.header_ends is not None:
        wanted.append((begun.header_ends, 4 * (records.rows + 1), 0))
    for column in made.values():
        wanted += [(column.data, column.size, 0), (column.ends, 4 * (column.rows + 1), 0)]
        wanted += [(column.bitmap, (column.rows + 7) // 8, 0)] if column.nulls else []
    there = iter(device.downloads(wanted))
    offset, timestamp = pa.py_buffer(next(there)), pa.py_buffer(next(there))
    drafts = (next(there), next(there).view(np.int64)) if records.attributes is not None else (np.zeros(0, np.uint8), np.zeros(0, np.int64))
    header_ends = pa.py_buffer(next(there)) if begun.header_ends is not None else None
    found = dict.fromkeys((KEY, VALUE), SKIPPED)
    for where, column in made.items():
        data, ends = pa.py_buffer(next(there)), pa.py_buffer(next(there))
        found[where] = BinaryColumn(column.rows, column.nulls, pa.py_buffer(next(there)) if column.nulls else None, ends, data)
    columns = Columns(records.rows, offset, timestamp, *drafts, found[KEY], found[VALUE])
    if header_ends is not None:
        columns.header_ends, columns.header_key, columns.header_value = header_ends, found[HEADER_KEY], found[HEADER_VALUE]
    return Run(columns, part.counts(entries), [], part.found)
