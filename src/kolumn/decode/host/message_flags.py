"""Flags of single records: control records, tombstones. Shipped formats flag control batches, some drafts flag each message."""

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.arrays import Bytes, Flags, Int64s
from kolumn.arrow.arrays import numbers
from kolumn.decode.host.run import Run
from kolumn.formats import layouts, v2
from kolumn.formats.entries import Entries


class MessageFlags:
    """Flags of the records of a run.

    Parameters
    ----------
    run : Run
    entries : Entries
        The run's entries.
    """

    def __init__(self, run: Run, entries: Entries) -> None:
        self.run, self.entries = run, entries

    @cached_property
    def _layout(self) -> Any:
        # The functions of `layouts` are typed for numbers, and take arrays too.
        return np.repeat(self.entries.layout, self.run.records)

    @cached_property
    def _attributes(self) -> Bytes:
        return self.run.columns.attributes[: self.run.rows]

    @property
    def _drafts(self) -> bool:
        return len(self.run.columns.attributes) > 0

    @cached_property
    def control(self) -> Flags:
        """Flags of the control records."""
        found = np.repeat(self.entries.control, self.run.records) != 0
        if self._drafts:
            found |= self._attributes & layouts.control_bit(self._layout) != 0
        return found

    @property
    def some_control(self) -> bool:
        """Whether single messages are control records, which the headers of their entries do not tell."""
        return self._drafts and bool(self.control.any())

    @property
    def tombstone(self) -> Flags:
        """Flags of the tombstones: records without a value, or in `kip87` messages with the tombstone bit."""
        found = self.run.columns.value.null_flags & ~self.control
        if self._drafts:
            by_bit = self._attributes & layouts.flagged_bit(self._layout) != 0
            found = np.where(by_bit, self._attributes & layouts.tombstone_bit(self._layout) != 0, found)
        return found

    def control_type(self, row: int, key: bytes | None) -> str:
        """Name of a control record's type, from its key or from the attributes of an enriched message."""
        layout = int(self._layout[row])
        if layouts.has_typed_control(layout):
            number = (int(self._attributes[row]) & 15) - layouts.control_bit(layout)
        else:
            in_key = v2.control_type(key or b"")
            number = -1 if in_key is None else in_key
        return layouts.CONTROL_NAMES[layouts.control_name(layout, number)]

    def seconds(self, kind: pa.DataType) -> pa.Array:
        """Timestamps of enriched messages in seconds, as stored."""
        if not self._drafts:
            return pa.nulls(self.run.rows, kind)
        values = self.run.columns.seconds[: self.run.rows]
        return numbers(values, kind, values == -1)

    def broker_timestamp(self, timestamp: Int64s) -> pa.Array:
        """Timestamps that brokers assigned to enriched messages, in milliseconds."""
        if not self._drafts:
            return pa.nulls(self.run.rows, pa.int64())
        given = self._attributes & layouts.tagged_bit(self._layout) != 0
        return numbers(timestamp[: self.run.rows], pa.int64(), ~given)
