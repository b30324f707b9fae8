"""The batch table of a chunk on the device: uploaded once, for all stages and parts."""

from typing import TYPE_CHECKING

import numpy as np

from kolumn.arrays import Rows
from kolumn.formats import table

if TYPE_CHECKING:
    from kolumn.kernels.machine.runtime import Memory, Runtime


class BatchTable:
    """Rows of the batch table on the device.

    Kernels read neither codes nor what belongs to them, which is all that changes afterwards.

    Parameters
    ----------
    device : Runtime
    rows : int64 array of shape (n, `table.WIDTH`)
        Of all entries of a chunk.
    """

    def __init__(self, device: "Runtime", rows: Rows) -> None:
        self.device, self.positions = device, rows[:, table.POSITION].copy()
        self.whole = device.upload(np.ascontiguousarray(rows))

    def of(self, rows: Rows) -> "Memory":
        """The rows of some of the entries: where they are, if no entry between them is missing; else they are uploaded."""
        from kolumn.kernels.machine.runtime import View

        n = len(rows)
        first = int(np.searchsorted(self.positions, rows[0, table.POSITION])) if n else 0
        if np.array_equal(self.positions[first : first + n], rows[:, table.POSITION]):
            return View(self.whole, 8 * table.WIDTH * first, 8 * table.WIDTH * n)
        return self.device.upload(np.ascontiguousarray(rows))
