"""Payloads without a prefix: the body of a row is its payload."""

import numpy as np
import pyarrow as pa

from kolumn.schemas.schema import Schema
from kolumn.values.decoder import Bodies
from kolumn.values.framing import FrontRules


class BareFramer:
    """What `kolumn.values.framing.Framer` does, for payloads without a prefix.

    Parameters
    ----------
    skip : int
        Bytes in front of every payload that are left out; a shorter payload has no body.

    Attributes
    ----------
    needs_headers : bool
        Whether `bodies` looks at the headers of the records.
    schemas : tuple of Schema
        The schemas that payloads named: none.
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
        _, ends, data = payload.buffers()
        bounds = np.frombuffer(ends, np.int32)[payload.offset : payload.offset + n + 1].astype(np.int64) if n else np.zeros(1, np.int64)
        length = np.diff(bounds)
        if payload.null_count:
            length[payload.is_null().to_numpy(zero_copy_only=False)] = -1
        at = bounds[:-1] + (data.address if data is not None else 0) + self.skip
        length = np.where(length < self.skip, -1, length - self.skip)
        none = np.full(n, -1, np.int64)
        zero = np.zeros(n, np.int64)
        return Bodies(at, length, zero + self.skip, zero, none, (), held=payload), pa.nulls(n, pa.int64())
