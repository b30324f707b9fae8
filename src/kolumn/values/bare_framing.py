"""Payloads without a prefix: the body of a row is its payload."""

import numpy as np
import pyarrow as pa

from kolumn.schemas.schema import Schema
from kolumn.values.decoder import Bodies
from kolumn.values.framing import FrontRules
from kolumn.values.payloads import payloads_of


class BareFramer:
    """What `kolumn.values.framing.Framer` does, for payloads without a prefix. ``skip`` bytes in front of each are left out; a shorter
    payload has no body.
    """

    needs_headers = False
    schemas: tuple[Schema, ...] = ()

    def __init__(self, skip: int = 0) -> None:
        self.skip = skip

    @property
    def rules(self) -> FrontRules:
        """Where bodies begin."""
        return FrontRules(self.skip, 0, 0, True, False)

    def bodies(self, payload: pa.BinaryArray, headers: pa.ListArray | None = None) -> tuple[Bodies, pa.Array]:
        """Bodies of a column of payloads, and the schema id of each row (int64), which is null. Copies no payload."""
        n = len(payload)
        at, length = np.empty((2, n), np.int64)
        payloads_of(payload, at, length)
        at, length = at + self.skip, np.where(length < self.skip, -1, length - self.skip)
        none = np.full(n, -1, np.int64)
        zero = np.zeros(n, np.int64)
        return Bodies(at, length, zero + self.skip, zero, none, (), held=payload), pa.nulls(n, pa.int64())
