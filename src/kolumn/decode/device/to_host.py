"""Records on a GPU copied back into the Arrow columns that the CPU backend makes."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kolumn.arrays import Int64s
from kolumn.cpu_fallback.columns.columns import BinaryColumn, Columns, ones
from kolumn.cpu_fallback.fields.put import COPY, SKIP
from kolumn.cpu_fallback.fields.target import HEADER_KEY, HEADER_VALUE, HEADERS, KEY, POSITIONS, ROWS, VALUE
from kolumn.decode.device.part import Part
from kolumn.decode.host.run import Run, modes
from kolumn.options import Options

if TYPE_CHECKING:
    from kolumn.kernels.machine.runtime import Memory, Runtime


def to_run(part: Part, entries: int, options: Options, need_key: bool) -> Run:
    """Copy what the options ask for of the records of ``entries`` entries to the host."""
    from kolumn.kernels.columns.binary import binary, headers_of

    device, records = part.device, part.records
    at = np.zeros(POSITIONS, np.int64)
    at[ROWS] = records.rows
    keys, values = modes(options, COPY, need_key)
    columns = Columns(
        _host(device, records.offset, 8 * records.rows),
        _host(device, records.timestamp, 8 * records.rows),
        _array(device, records.attributes, records.rows, np.uint8),
        _array(device, records.seconds, 8 * records.rows, np.int64),
        *(
            _column(device, binary(device, payloads), at, where) if mode != SKIP else BinaryColumn(SKIP)
            for payloads, mode, where in ((records.key, keys, KEY), (records.value, values, VALUE))
        ),
    )
    if "headers" in options.columns:
        ends, header_keys, header_values = headers_of(device, records)
        at[HEADERS] = header_keys.count
        columns.header_ends = _host(device, ends, 4 * (records.rows + 1))
        columns.header_key = _column(device, binary(device, header_keys), at, HEADER_KEY)
        columns.header_value = _column(device, binary(device, header_values), at, HEADER_VALUE)
    return Run(columns, at, part.counts(entries), [], part.found)


def _host(device: "Runtime", memory: "Memory", size: int) -> pa.Buffer:
    return pa.py_buffer(device.download(memory, size))


def _array(device: "Runtime", memory: Any, size: int, kind: Any) -> Any:
    return device.download(memory, size).view(kind) if memory is not None else np.zeros(0, kind)


def _column(device: "Runtime", column: Any, at: Int64s, where: int) -> BinaryColumn:
    at[where] = column.size
    valid = _host(device, column.bitmap, (column.rows + 7) // 8) if column.nulls else ones(column.rows)
    return BinaryColumn(COPY, _host(device, column.data, column.size), _host(device, column.ends, 4 * (column.rows + 1)), valid)
