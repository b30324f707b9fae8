"""Bodies of payloads on the device: a thread per payload recognises its prefix, and looks up the schema that the prefix names.

    payload       00 00 00 00 07 | body             body at 5, framing CONFLUENT, key (0, 7)
    known keys    framing | high | low | index | id     int64, sorted by the first three; the index of the schema, or `NO_SCHEMA`

The host downloads the payloads' keys that are not in the table, looks them up, and launches the kernel again: once, as long as no new
schema is met. Bound: the first bytes of each payload, and some 50 bytes written for each.
"""

import threading
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import kolumn.values.wire.compiled  # noqa: F401 (framings as compiled functions first)
from kolumn.core.arrays import AnyArray, Bytes, Int64s
from kolumn.core.deferred import register_jitable
from kolumn.core.errors import KolumnError
from kolumn.formats.words import load32, load64, store8, store32, store64
from kolumn.kernels.columns.assemble import all_null
from kolumn.kernels.columns.table import Column, nullable
from kolumn.kernels.fields.records import DevicePayloads
from kolumn.kernels.machine.kernel import Arguments, arguments, thread_per_item
from kolumn.kernels.machine.runtime import Memory, Runtime
from kolumn.values.framing import FORGOTTEN, Framer, PayloadFramer
from kolumn.values.schemas.schema import Schema
from kolumn.values.wire.framing import APICURIO, CONFLUENT, DOUBTFUL, GLUE_ZLIB, NO_ID, NO_SCHEMA, NONE, PLAUSIBLE, recognise

WIDTH, INDEX = 5, 3
"""Columns of the table of known keys, and which of them is the index of the schema."""
_KEY = 8 * WIDTH
Fronts = arguments(
    __name__, "Fronts",
    "at length skip wanted without known keys named body body_length prefix framing schema ids has_id new left found",
)  # fmt: skip
"""Arguments of `fronts`; addresses, but for ``keys`` and the numbers from ``skip`` to ``without``, which are as in `FrontRules`.

at, length              int64, int32: where payloads are; a length of -1 for null
known, keys             the table of known keys, and how many it has; -1: every prefix names the schema of the reader
named                   1 if headers have named the schemas of the rows whose ``framing`` is not `NONE`: these and ``ids`` are set
body … has_id           what is written, as in `DeviceBodies`
new                     uint8: 1 if the key of a row is not known
left                    three int64 0: become 1 if a key is not known, if a body is compressed, which only the host can decompress, and if
                        a prefix is doubtful, as `kolumn.values.framing.doubtful` says
found                   int64 of (rows, 2): keys that are not known; 0 if no key is looked up"""


@thread_per_item(Fronts)
def fronts(i: int, a: Arguments) -> None:
    """Write where the body of payload ``i`` is, and what its prefix says."""
    at, length = load64(a.at + 8 * i), load32(a.length + 4 * i)
    kind, size, index, id, new = NONE, 0, NO_SCHEMA, NO_ID, 0
    if a.named != 0 and load32(a.framing + 4 * i) != NONE:
        kind, index, id = load32(a.framing + 4 * i), load32(a.schema + 4 * i), load64(a.ids + 8 * i)
        if index == NO_SCHEMA:
            length = -1
    elif length >= 0:
        high, low, index, size = 0, 0, a.without, a.skip
        if size == 0:
            kind, size, high, low = recognise(at, 0, length, a.wanted)
        if kind != NONE:
            index = 0
            if a.keys >= 0:
                row = _row_of(a.known, a.keys, kind, high, low)
                index = load64(row + 24) if row != 0 else NO_SCHEMA
                id = load64(row + 32) if row != 0 else NO_ID
                new = 0 if row != 0 else 1
                if new != 0:
                    store64(a.found + 16 * i, high)
                    store64(a.found + 16 * i + 8, low)
            if kind in (CONFLUENT, APICURIO):
                id = low
            if (kind == CONFLUENT and not 0 < low < PLAUSIBLE) or kind in DOUBTFUL:
                store64(a.left + 16, 1)
        if index == NO_SCHEMA or length < size:
            length = -1
        else:
            at, length = at + size, length - size
            if kind == GLUE_ZLIB:
                store64(a.left + 8, 1)
    store64(a.body + 8 * i, at)
    store32(a.body_length + 4 * i, length)
    store32(a.prefix + 4 * i, size)
    store32(a.framing + 4 * i, kind)
    # Without a table index 0 stands for the reader's schema.
    store32(a.schema + 4 * i, index if a.keys >= 0 else max(index - 1, NO_SCHEMA))
    store64(a.ids + 8 * i, id)
    store32(a.has_id + 4 * i, 0 if id >= 0 else -1)
    store8(a.new + i, new)
    if new != 0:
        store64(a.left, 1)


@register_jitable
def _row_of(known: int, keys: int, kind: int, high: int, low: int) -> int:
    """Address of the row of a key, 0 without one."""
    first, last = 0, keys
    while first < last:
        middle = (first + last) >> 1
        row = known + _KEY * middle
        one, two, three = load64(row), load64(row + 8), load64(row + 16)
        if one == kind and two == high and three == low:
            return row
        if one < kind or (one == kind and (two < high or (two == high and three < low))):
            first = middle + 1
        else:
            last = middle
    return 0


@dataclass(frozen=True)
class DeviceBodies:
    """`kolumn.values.decoder.Bodies` on the device: ``at`` and ``ids`` int64, the others int32. ``has_id`` is -1 for a row without a schema
    id; ``ids`` is None if no row has one. ``doubtful``: whether a prefix is."""

    at: Memory
    length: Memory
    prefix: Memory
    framing: Memory
    schema: Memory
    count: int
    schemas: tuple[Schema, ...] = ()
    bare: bool = False
    ids: Memory | None = None
    has_id: Memory | None = None
    doubtful: bool = False

    def schema_ids(self, device: Runtime) -> Column:
        if self.ids is None or self.has_id is None:
            return all_null(device, "int64", self.count)
        return nullable(device, "int64", self.ids, self.has_id, self.count)


class DeviceFramer:
    """Takes the bodies out of payloads on the device, as a framer of the host does. Several threads may use one at the same time."""

    def __init__(self, framer: PayloadFramer) -> None:
        self.framer, self._own = framer, threading.local()

    def bodies(self, device: Runtime, payloads: DevicePayloads, headers: pa.Array | None) -> DeviceBodies | None:
        """The bodies; None if the host has to take them out, because some are compressed, or by the framer's kind. ``headers`` of the same
        rows are in host memory, None if there are none or nobody asks for them."""
        if self.framer.is_of_host:
            return None
        n, rules = payloads.count, self.framer.rules
        wide, narrow, doubtful = 8 * n, 4 * n, 0
        at, ids, found, length, prefix, framing, schema, has_id, new = device.pieces(
            [wide, wide, 2 * wide if not rules.fixed else 0, *[narrow] * 5, n]
        )
        named = None if headers is None or not isinstance(self.framer, Framer) else self._named(device, payloads, headers)
        while True:
            if named is not None:
                # The kernel writes over them.
                framing, schema, ids = map(device.upload, named)
            known = self._known
            # The last row becomes what is left to do.
            table = device.upload(np.concatenate([known, np.zeros((1, WIDTH), np.int64)]))
            left = _KEY * len(known)
            args = Fronts(
                payloads.at, payloads.length, rules.skip, rules.wanted, rules.without, table, -1 if rules.fixed else len(known),
                int(named is not None), at, length, prefix, framing, schema, ids, has_id, new, table.address + left, found,
            )  # fmt: skip
            device.launch(fronts, n, args)
            if not n or not rules.wanted:
                break
            not_known, compressed, doubtful = device.download(table, 24, left).view(np.int64).tolist()
            if not not_known:
                if compressed:
                    return None
                break
            self._learn(*device.downloads([(new, n, 0), (framing, narrow, 0), (found, 2 * wide, 0)]))
        return DeviceBodies(at, length, prefix, framing, schema, n, self.framer.schemas, rules.bare, ids, has_id, bool(doubtful))

    @property
    def _known(self) -> Int64s:
        """This thread's table of known keys."""
        table: Int64s = self._own.__dict__.setdefault("table", np.zeros((0, WIDTH), np.int64))
        return table

    def _learn(self, new: Bytes, framing: Bytes, found: Bytes) -> None:
        """Look up the keys of the rows whose key is new."""
        assert isinstance(self.framer, Framer)
        rows = np.flatnonzero(new)
        keys = np.column_stack([framing.view(np.int32)[rows].astype(np.int64), found.view(np.int64).reshape(-1, 2)[rows]])
        asked, kept = np.unique(keys, axis=0).tolist(), self._known
        if not set(map(tuple, asked)).isdisjoint(map(tuple, kept[:, :INDEX].tolist())):
            raise KolumnError(
                "the GPU asks for a schema that it has been told, and would again. "
                "That is a defect of Kolumn: please report it, and use backend='cpu'"
            )
        known = [(*key, *self.framer.look_up(*key)) for key in asked]
        if len(kept) > FORGOTTEN:
            kept = kept[kept[:, INDEX] != NO_SCHEMA]
        table = np.concatenate([kept, np.array(known, np.int64)])
        self._own.table = table[np.lexsort((table[:, 2], table[:, 1], table[:, 0]))]

    def _named(self, device: Runtime, payloads: DevicePayloads, headers: pa.Array) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Framing, schema and id of each row whose headers name a schema, in host memory."""
        assert isinstance(self.framer, Framer)
        length = device.download(payloads.length, 4 * payloads.count).view(np.int32)
        framing, schema, ids = self.framer.named(length.astype(np.int64), headers)
        return framing.astype(np.int32), schema.astype(np.int32), ids
