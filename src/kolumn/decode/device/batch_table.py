"""The batch table of a chunk on the device: uploaded once, for all stages and parts."""

from typing import TYPE_CHECKING

import numpy as np

from kolumn.formats import table
from kolumn.formats.entries import Entries

if TYPE_CHECKING:
    from kolumn.kernels.machine.runtime import Memory, Runtime


class BatchTable:
    """Rows of the batch table on the device.

    Kernels read neither codes nor what belongs to them, which is all that changes afterwards.

    Parameters
    ----------
    device : Runtime
    entries : Entries
        All entries of a chunk.
    """

    def __init__(self, device: "Runtime", entries: Entries) -> None:
        self.device, self.positions = device, entries.position.copy()
        self.whole = device.upload(np.ascontiguousarray(entries.array))

    def of(self, some: Entries) -> "Memory":
        """The rows of some of the entries: a view of the table if no entry between them is missing; otherwise they are uploaded."""
        from kolumn.kernels.machine.runtime import View

        n = len(some)
        first = int(np.searchsorted(self.positions, some[0].position)) if n else 0
        if np.array_equal(self.positions[first : first + n], some.position):
            return View(self.whole, 8 * table.WIDTH * first, 8 * table.WIDTH * n)
        return self.device.upload(np.ascontiguousarray(some.array))
