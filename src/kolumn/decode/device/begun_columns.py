"""Columns of bytes that are begun while it is still open whether their records are right."""

from typing import TYPE_CHECKING, NamedTuple

from kolumn.cpu_fallback.fields.put import COPY, SKIP
from kolumn.cpu_fallback.fields.target import KEY, VALUE
from kolumn.decode.host.run import modes
from kolumn.options import Options

if TYPE_CHECKING:
    from kolumn.kernels.columns.binary import Measured
    from kolumn.kernels.fields.decoded import DeviceRecords
    from kolumn.kernels.machine.runtime import Runtime


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

    Parameters
    ----------
    device : Runtime
    records : DeviceRecords
        Which may turn out to be wrong.
    asked : PayloadsToCopy
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
