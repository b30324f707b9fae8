"""Values with every field at its place, on the device: a thread per value.

    | id i64 | price f64 | flag u8 |        a value that is longer or shorter is null

Bound: the values' bytes, read once, and written once.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.encodings.columns import ColumnTables, put_nulls, put_word, set_valid
from kolumn.formats import memory
from kolumn.kernels.columns.table import Column
from kolumn.kernels.machine.kernel import thread_per_item
from kolumn.kernels.machine.runtime import Runtime
from kolumn.kernels.values.bodies import DeviceBodies
from kolumn.kernels.values.passes import Arguments, Cells, WriteTables, arguments
from kolumn.kernels.values.typed import LayoutColumns
from kolumn.machine_code.words import load32, load64, store8
from kolumn.values.layout import ColumnLayout

_FIELD = 24


class FixedValues(NamedTuple):
    """What `fixed` takes of the values; addresses, but for the numbers.

    Attributes
    ----------
    at, length : int
        As in `kolumn.kernels.values.bodies.DeviceBodies`.
    table, fields, total : int
        Among the tables, int64 of each field, in order: its column, its bytes, and 1 less than these if they are big-endian, else 0; how
        many fields and bytes a value has.
    """

    at: int
    length: int
    table: int
    fields: int
    total: int


Fixed = arguments(__name__, "Fixed", FixedValues, Cells, WriteTables)


@thread_per_item(Fixed)
def fixed(i: int, a: Arguments) -> None:
    """Write all fields of value ``i``."""
    t = ColumnTables(a.tables + a.column_table, 0, 0, a.tables + a.fill_table, 0, 8, 1, 0)
    whole, place = load32(a.length + 4 * i) == a.total, load64(a.at + 8 * i)
    store8(a.valid + i, 1 if whole else 0)
    if not whole:
        put_nulls(t, a.first_fill, a.fills, i)
        return
    set_valid(t, a.root, i, 1)
    field, end = a.tables + a.table, a.tables + a.table + _FIELD * a.fields
    while field < end:
        width, swaps, value, byte = load64(field + 8), load64(field + 16), 0, 0
        while byte < width:
            value |= memory.load8(place, byte ^ swaps) << (8 * byte)
            byte += 1
        put_word(t, load64(field), i, value, width)
        place += width
        field += _FIELD


def parse_fixed(device: Runtime, bodies: DeviceBodies, fields: tuple[tuple[str, np.dtype[Any]], ...]) -> tuple[Column, Column]:
    """The struct column of values, and flags of those that are valid."""
    kinds = [kind for _, kind in fields]
    types = [pa.field(name, pa.from_numpy_dtype(kind.newbyteorder("=")), nullable=False) for name, kind in fields]
    layout = ColumnLayout.of(pa.struct(types))
    swaps = [kind.itemsize - 1 if kind.byteorder == ">" else 0 for kind in kinds]
    numbers = [one.column for one in layout.root.children]
    table = np.array([*zip(numbers, [kind.itemsize for kind in kinds], swaps, strict=True)], np.int64)
    made = LayoutColumns(device, layout, bodies.count, [table])
    own = bodies.at.address, bodies.length.address, *made.given, len(kinds), sum(kind.itemsize for kind in kinds)
    made.written(own, fixed)
    return made.column(), made.valid
