"""What single records are: control records, tombstones. Shipped formats say it of a batch, some drafts of each message."""

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.decode.host.run import Run
from kolumn.formats import enriched, kip87, kip98_draft, layouts, table, v2

CONTROL_TYPES = ("ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS")
KIP98_TYPES = ("COMMIT", "ABORT")


class MessageFlags:
    """Flags of the records of a run.

    Parameters
    ----------
    run : Run
    rows : int64 array of shape (n, `table.WIDTH`)
        Its entries.
    """

    def __init__(self, run: Run, rows: Any) -> None:
        self.run, self.rows = run, rows

    @cached_property
    def _layout(self) -> Any:
        return np.repeat(self.rows[:, table.LAYOUT], self.run.records)

    @cached_property
    def _attributes(self) -> Any:
        return self.run.columns.attributes[: self.run.rows]

    @property
    def _drafts(self) -> bool:
        return len(self.run.columns.attributes) > 0

    @cached_property
    def control(self) -> Any:
        """Flags of the control records."""
        found = np.repeat(self.rows[:, table.CONTROL], self.run.records) != 0
        if self._drafts:
            found |= (self._layout == layouts.KIP98) & (self._attributes & kip98_draft.CONTROL != 0)
            found |= (self._layout == layouts.ENRICHED) & (self._attributes & enriched.FIRST_CONTROL != 0)
        return found

    @cached_property
    def some_control(self) -> bool:
        """Whether single messages are control records, which nobody could leave out by the headers of their entries."""
        return self._drafts and bool(self.control.any())

    @property
    def tombstone(self) -> Any:
        """Flags of the tombstones: without a value, or where `kip87` says it by a bit, with that."""
        found = self.run.columns.value_nulls[: self.run.rows] & ~self.control
        if self._drafts:
            by_bit = (self._layout == layouts.KIP87) & (self._attributes & kip87.FLAGGED != 0)
            found = np.where(by_bit, self._attributes & kip87.TOMBSTONE != 0, found)
        return found

    def control_type(self, row: int, key: bytes | None) -> str:
        """Name of a control record's type: in its key, or in the attributes of an enriched message."""
        layout = int(self._layout[row])
        if layout == layouts.ENRICHED:
            return enriched.CONTROL_TYPES[(int(self._attributes[row]) & 15) - enriched.FIRST_CONTROL]
        code = v2.control_type(key or b"")
        names: tuple[str, ...] = KIP98_TYPES if layout == layouts.KIP98 else CONTROL_TYPES
        return names[code] if code is not None and 0 <= code < len(names) else "UNKNOWN"

    def seconds(self, kind: pa.DataType) -> pa.Array:
        """Timestamps of enriched messages as they stand."""
        if not self._drafts:
            return pa.nulls(self.run.rows, kind)
        values = self.run.columns.seconds[: self.run.rows]
        return pa.array(values.astype(np.int32), kind, mask=values == -1)

    def broker_timestamp(self, timestamp: Any) -> pa.Array:
        """Timestamps that brokers gave to enriched messages."""
        if not self._drafts:
            return pa.nulls(self.run.rows, pa.int64())
        given = (self._layout == layouts.ENRICHED) & (self._attributes & enriched.TAGGED != 0)
        return pa.array(timestamp[: self.run.rows], pa.int64(), mask=~given)
