"""Fields of values between parsing and columns: for each field an int64 cell of each row, and an int32 length, -1 for null."""

from typing import NamedTuple

import numpy as np

from kolumn.kernels.columns.table import WIDTHS, Column, nullable
from kolumn.kernels.machine.runtime import Memory, Runtime
from kolumn.kernels.values.parse import Narrow, narrow


class Cells(NamedTuple):
    """Columns of ``fields`` fields, and ``given``, their addresses on the device: those of the cells, then those of the lengths."""

    cells: list[Memory]
    lengths: list[Memory]
    given: Memory
    fields: int

    @property
    def addresses(self) -> tuple[int, int]:
        """Where kernels find the addresses of the cells, and of the lengths."""
        return self.given.address, self.given.address + 8 * self.fields


def allocate(device: Runtime, fields: int, rows: int) -> Cells:
    """Memory for the cells of some fields."""
    cells, lengths = ([device.empty(width * rows) for _ in range(fields)] for width in (8, 4))
    given = device.upload(np.array([[one.address for one in cells], [one.address for one in lengths]], np.int64))
    return Cells(cells, lengths, given, fields)


def number(device: Runtime, kind: str, cell: Memory, length: Memory, rows: int) -> Column:
    """A column of numbers whose bits are in cells."""
    target = device.empty(WIDTHS[kind] * rows)
    device.launch(narrow, rows, Narrow(cell.address, target.address, WIDTHS[kind]))
    return nullable(device, kind, target, length, rows)
