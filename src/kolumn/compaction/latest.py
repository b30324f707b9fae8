"""Which records are the last of their key; the result is that of the offset map of Kafka's cleaner (``Cleaner.buildOffsetMap``)."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.arrays import Flags, Int64s

CONSOLIDATE = 1 << 20
"""Keys that are collected before they are merged with the others."""


class LatestOffsets:
    """Last offset of each key of the records that were added.

    Memory: the distinct keys, and at most `CONSOLIDATE` records. Offsets are unique, so a record is the last of its key if its offset is
    in the set of last offsets: in the end only that set is kept.
    """

    def __init__(self) -> None:
        self._found: list[pa.Table] = []
        self._waiting = 0
        self._offsets: Int64s | None = None

    @classmethod
    def of(cls, offsets: Int64s) -> "LatestOffsets":
        """From last offsets that are already known, sorted."""
        made = cls()
        made._offsets = offsets
        return made

    def add(self, keys: pa.Array, offsets: pa.Array) -> None:
        """Add records that are neither control records nor of aborted transactions; those without a key have no effect."""
        table = pa.table({"key": keys, "offset": offsets})
        # Either way the keys are copied: those of a decoded batch are in memory with room for much more.
        some = table.filter(pc.is_valid(keys)) if keys.null_count else pa.concat_tables([table, table.slice(0, 0)]).combine_chunks()
        self._found.append(some)
        self._waiting += table.num_rows
        if self._waiting > CONSOLIDATE and len(self._found) > 1:
            self._consolidate()

    def _consolidate(self) -> None:
        whole = (
            pa.concat_tables(self._found)
            if self._found
            else pa.table({"key": pa.array([], pa.binary()), "offset": pa.array([], pa.int64())})
        )
        self._found = [whole.group_by("key").aggregate([("offset", "max")]).rename_columns(["key", "offset"])]
        self._waiting = 0

    def table(self) -> pa.Table:
        """Keys and their last offsets."""
        self._consolidate()
        return self._found[0]

    def offsets(self) -> Int64s:
        """Last offsets, sorted: int64 array."""
        if self._offsets is None:
            self._offsets = np.sort(self.table()["offset"].to_numpy())
        return self._offsets

    def known(self, keys: pa.Array) -> Flags:
        """Flags of the keys that have been added."""
        return np.asarray(pc.is_in(keys, self.table()["key"].combine_chunks()))

    def is_latest(self, offset: Int64s) -> Flags:
        """Flags of the offsets that are the last ones of a key."""
        known = self.offsets()
        at = np.searchsorted(known, offset)
        return (at < len(known)) & (known[np.minimum(at, max(len(known) - 1, 0))] == offset) if len(known) else np.zeros(len(offset), bool)
