"""Entries of a segment: rows of the batch table with names for their columns.

`Entries` and `Entry` hold an array and copy nothing: to read or to set a column reads or sets the array. Compiled loops take the array
itself, and address its columns by the numbers of `kolumn.formats.table`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from kolumn.core.arrays import Flags, Int64s, Row, Rows
from kolumn.formats import redpanda, table

Index = slice | Int64s | Flags | Sequence[int]


class _Field:
    """A column of the batch table: an array in `Entries`, a number in an `Entry`."""

    def __init__(self, column: int) -> None:
        self.column = column

    @overload
    def __get__(self, held: "Entries", owner: type | None = None) -> Int64s: ...
    @overload
    def __get__(self, held: "Entry", owner: type | None = None) -> int: ...
    def __get__(self, held: "Entries | Entry", owner: type | None = None) -> Int64s | int:
        return held.array[:, self.column] if isinstance(held, Entries) else int(held.array[self.column])

    def __set__(self, held: "Entries | Entry", value: int | Int64s | Flags) -> None:
        held.array[..., self.column] = value


class _Fields:
    """One attribute for each column of `kolumn.formats.table`."""

    __slots__ = ()

    position = _Field(table.POSITION)
    size = _Field(table.SIZE)
    base_offset = _Field(table.BASE_OFFSET)
    last_offset = _Field(table.LAST_OFFSET)
    count = _Field(table.COUNT)
    magic = _Field(table.MAGIC)
    codec = _Field(table.CODEC)
    crc = _Field(table.CRC)
    timestamp_type = _Field(table.TIMESTAMP_TYPE)
    base_timestamp = _Field(table.BASE_TIMESTAMP)
    max_timestamp = _Field(table.MAX_TIMESTAMP)
    producer_id = _Field(table.PRODUCER_ID)
    producer_epoch = _Field(table.PRODUCER_EPOCH)
    base_sequence = _Field(table.BASE_SEQUENCE)
    leader_epoch = _Field(table.LEADER_EPOCH)
    transactional = _Field(table.TRANSACTIONAL)
    control = _Field(table.CONTROL)
    delete_horizon = _Field(table.DELETE_HORIZON)
    layout = _Field(table.LAYOUT)
    payload = _Field(table.PAYLOAD)
    crc_from = _Field(table.CRC_FROM)
    attributes = _Field(table.ATTRIBUTES)
    code = _Field(table.CODE)
    record = _Field(table.RECORD)
    where = _Field(table.WHERE)
    crc_seed = _Field(table.CRC_SEED)
    batch_type = _Field(table.BATCH_TYPE)


class Entry(_Fields):
    """One entry. ``array``: int64 array of `table.WIDTH`, its row of the batch table. The attribute of a column reads or sets one number of
    the row."""

    __slots__ = ("array",)

    def __init__(self, array: Row) -> None:
        self.array = array

    @property
    def end(self) -> int:
        """Position after the entry."""
        return self.position + self.size

    @property
    def is_intact(self) -> bool:
        """Whether no error is known of the entry."""
        return self.code == 0

    @property
    def last_known_offset(self) -> int:
        """Last offset; the base offset for a wrapper whose header does not contain the last offset."""
        return self.base_offset if self.last_offset == table.UNKNOWN else self.last_offset

    def copy(self) -> "Entry":
        return Entry(self.array.copy())

    def alone(self) -> "Entries":
        """A copy of the entry as the only one of a table, without its error code."""
        made = Entries(self.array.reshape(1, -1).copy())
        made.code = 0
        return made


class Entries(_Fields):
    """Some entries of a segment. ``array``: int64 array of shape (n, `table.WIDTH`); in host memory. The attribute of a column is a view of
    n numbers in the array; setting the attribute sets the numbers."""

    __slots__ = ("array",)

    def __init__(self, array: Rows) -> None:
        self.array = array

    @classmethod
    def room(cls, count: int) -> "Entries":
        """Uninitialised memory for ``count`` entries, to be filled by a walk."""
        return cls(np.empty((count, table.WIDTH), np.int64))

    @classmethod
    def zeros(cls, count: int) -> "Entries":
        """Entries of which every column is 0."""
        return cls(np.zeros((count, table.WIDTH), np.int64))

    @classmethod
    def joined(cls, parts: "Sequence[Entries]") -> "Entries":
        """All entries of some parts, at least one; copies them unless there is one part."""
        return parts[0] if len(parts) == 1 else cls(np.concatenate([part.array for part in parts]))

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, which: int | np.integer[Any]) -> Entry: ...
    @overload
    def __getitem__(self, which: Index) -> "Entries": ...
    def __getitem__(self, which: int | np.integer[Any] | Index) -> "Entry | Entries":
        """One entry by its number, as a view; or several, as a view for a slice, as a copy for flags or numbers."""
        found = self.array[which]
        return Entry(found) if found.ndim == 1 else Entries(found)

    def __iter__(self) -> Iterator[Entry]:
        return map(Entry, self.array)

    @property
    def end(self) -> Int64s:
        """Position after each entry."""
        return self.position + self.size

    @property
    def is_own(self) -> Flags:
        """Flags of Redpanda's batches that hold no records of clients."""
        return (self.batch_type != 0) & (self.batch_type != redpanda.DATA)

    @property
    def is_intact(self) -> Flags:
        """Flags of the entries of which no error is known."""
        return self.code == 0

    def intact(self) -> "Entries":
        """The entries of which no error is known: a copy, or this table itself if they are all."""
        flags = self.is_intact
        return self if flags.all() else self[flags]

    def copy(self) -> "Entries":
        return Entries(self.array.copy())

    def last_known_offset(self, otherwise: int) -> int:
        """Last offset of the last entry, as `Entry.last_known_offset`; ``otherwise`` if there are no entries."""
        return self[-1].last_known_offset if len(self) else otherwise


@dataclass(frozen=True)
class Lost:
    """What is lost of an entry whose other records are read."""

    records: int | None  # how many, if that is known
    offsets: tuple[int, int] | None  # first and last offset that they can have, if that is known
    text: str  # which ones, in words
