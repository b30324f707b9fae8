"""Which records an erasure is about."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Flags
from kolumn.core.text import is_utf8
from kolumn.log.pieces import COLUMNS, Piece
from kolumn.readers.selection import Selection
from kolumn.values.typed import Typed, stored_columns, typed_batch
from kolumn.writers.last_offsets import LatestOffsets


@dataclass(frozen=True)
class Meant:
    """Which records of a piece are meant."""

    selection: Selection
    typed: tuple[Typed, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Record columns that the methods need."""
        return tuple(dict.fromkeys(("offset", "isControl", *stored_columns(self.selection.columns, self.typed))))

    @property
    def all_columns(self) -> tuple[str, ...]:
        """Those, and all that a log stores about a record."""
        return tuple(dict.fromkeys((*COLUMNS, *self.columns)))

    def _batch(self, records: pa.RecordBatch) -> pa.RecordBatch:
        return typed_batch(_with_text_names(records), self.selection.columns, self.typed) if self.typed else records

    @cached_property
    def _keys(self) -> LatestOffsets | None:
        """The keys in a map, which Arrow would make anew for each batch."""
        if self.selection.keys is None:
            return None
        made = LatestOffsets()
        made.add(self.selection.keys, pa.array(np.zeros(len(self.selection.keys), np.int64)))
        return made

    def of(self, piece: Piece) -> tuple[Flags, int]:
        """Flags of the records, never of control records; and of how many others nobody knows, since a payload cannot be decoded."""
        may = ~np.asarray(piece.records["isControl"])
        if self._keys is not None:
            may &= self._keys.known(piece.records["key"])
        rest = replace(self.selection, keys=None, fields=())
        batch = self._batch(piece.records)
        if rest.headers:
            may &= np.asarray(rest.flags(batch))
        if not self.selection.fields:
            return may, 0
        for side in {path.partition(".")[0] for path, _ in self.selection.fields}:
            may &= np.asarray(pc.is_valid(piece.records[side]))
        fields = replace(self.selection, keys=None, headers=())
        return may & np.asarray(fields.flags(batch)), fields.undecided(batch.filter(pa.array(may)))

    def keys(self, piece: Piece, meant: Flags) -> list[bytes]:
        """The keys that a caller named of the records that are meant."""
        return [] if self.selection.keys is None else piece.records["key"].filter(pa.array(meant)).unique().to_pylist()

    def flags(self, piece: Piece) -> Flags:
        """Flags of the records, never of control records."""
        return self.of(piece)[0]


def _with_text_names(records: pa.RecordBatch) -> pa.RecordBatch:
    """The records with empty names of headers in place of those that are not UTF-8: no header that names a schema has one."""
    row = records.schema.get_field_index("headers")
    if row < 0:
        return records
    column = records.column(row)
    names, values = column.flatten().flatten()
    if pc.all(valid := is_utf8(names)).as_py() is not False:
        return records
    pairs = pa.StructArray.from_arrays([pc.if_else(valid, names, b""), values], fields=list(column.type.value_type))
    ends = pc.subtract(column.offsets, column.offsets[0])
    return records.set_column(row, records.schema.field(row), pa.ListArray.from_arrays(ends, pairs, type=column.type))
