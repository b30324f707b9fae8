"""What a device does wrong must not be hidden by the CPU.

The CPU looks again at a batch that kernels call wrong, and decompresses again what nvCOMP did not. So a kernel that calls a good batch
wrong, or a checksum of a gzip member, would only make reads slower. Tests of kernels have to see it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kolumn.core.arrays import Int64s
from kolumn.decode.device.inflate import InflatedOnDevice, Inflater
from kolumn.formats.entries import Entries


class HiddenError(AssertionError):
    """A payload without a flaw was decompressed by the CPU, although it was planned for the device."""


@contextmanager
def nothing_hidden() -> Iterator[None]:
    """Fail a read in which the CPU decompresses what the device should have, and finds nothing wrong with it."""
    whole: Any = Inflater.on_cpu

    def on_cpu(inflater: Inflater, piece: slice, slow: Int64s, entries: Entries, result: InflatedOnDevice) -> None:
        unplanned = ~inflater.todo.on_cpu[piece][slow]
        whole(inflater, piece, slow, entries, result)
        hidden = slow[unplanned & (entries.code[slow] == 0)]
        if len(hidden):
            raise HiddenError(f"the device refused the batches at {entries.position[hidden].tolist()}, and the CPU finds nothing wrong")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Inflater, "on_cpu", on_cpu)
        yield
