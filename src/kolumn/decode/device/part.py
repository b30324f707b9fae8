"""Records of some entries, decoded and still on the device."""

from typing import TYPE_CHECKING

import numpy as np

from kolumn.arrays import Bytes, Int64s
from kolumn.decode.device.inflate import InflatedOnDevice

if TYPE_CHECKING:
    from kolumn.kernels.fields.decoded import DeviceRecords
    from kolumn.kernels.machine.runtime import Runtime


class DevicePart:
    """Records of some entries on the device.

    Attributes
    ----------
    good : int64 array
        Numbers of the entries that they are of.
    records : kernels.fields.decoded.DeviceRecords
    measures : list of uint8 array
        What was downloaded of what was begun.
    found, parts : dict
        As `decode.host.run.Run` has them.
    unlike : tuple of int
        Likewise.
    bytes : int
        Of the decompressed payloads.
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
