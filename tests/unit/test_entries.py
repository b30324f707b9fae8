"""Entries: names for the columns of the batch table, over the same memory."""

import numpy as np
import pytest

from kolumn.errors import Code
from kolumn.formats import table
from kolumn.formats.entries import Entries, Entry

COLUMNS = {name.lower(): number for name, number in vars(table).items() if name.isupper() and isinstance(number, int)}
for _not_a_column in ("width", "no_timestamp_type", "create_time", "log_append_time", "unknown"):
    del COLUMNS[_not_a_column]


def some(count: int) -> Entries:
    return Entries(np.arange(count * table.WIDTH, dtype=np.int64).reshape(count, table.WIDTH))


def test_every_column_has_a_name() -> None:
    assert sorted(COLUMNS.values()) == list(range(table.WIDTH))


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column(name: str) -> None:
    entries = some(3)
    assert getattr(entries, name).tolist() == entries.array[:, COLUMNS[name]].tolist()
    assert [getattr(entry, name) for entry in entries] == getattr(entries, name).tolist()
    setattr(entries, name, 7)
    setattr(entries[1], name, 8)
    getattr(entries, name)[2] = 9
    assert entries.array[:, COLUMNS[name]].tolist() == [7, 8, 9]
    entries.array[:, COLUMNS[name]] = 0
    assert entries.array.sum() == some(3).array.sum() - some(3).array[:, COLUMNS[name]].sum()


def test_what_is_a_view_and_what_a_copy() -> None:
    entries = some(4)
    flags = np.array([True, False, True, False])
    assert np.shares_memory(entries[1:].array, entries.array)
    assert np.shares_memory(entries[1].array, entries.array)
    assert isinstance(entries[np.int64(1)], Entry)
    for part in (entries[flags], entries[[0, 2]], entries[np.array([0, 2])]):
        assert not np.shares_memory(part.array, entries.array)
        assert part.array.tolist() == entries.array[::2].tolist()
    assert not np.shares_memory(entries.copy().array, entries.array)
    assert not np.shares_memory(entries[0].copy().array, entries.array)


def test_what_is_wrong_with_some() -> None:
    entries = Entries.zeros(3)
    entries.code[1] = Code.BAD_CRC
    entries.position = np.array([5, 6, 7])
    assert entries.is_intact.tolist() == [True, False, True]
    assert entries.intact().position.tolist() == [5, 7]
    alone = entries[1].alone()
    assert (len(alone), alone[0].is_intact, alone[0].position, entries[1].code) == (1, True, 6, Code.BAD_CRC)


def test_where_they_end() -> None:
    entries = Entries.zeros(2)
    entries.position, entries.size = np.array([0, 100]), np.array([100, 61])
    assert entries.end.tolist() == [100, 161]
    assert entries[-1].end == 161


def test_the_last_offset_that_is_known() -> None:
    entries = Entries.zeros(2)
    entries.base_offset, entries.last_offset = np.array([1, 5]), np.array([4, 9])
    assert entries.last_known_offset(-1) == 9
    entries.last_offset[1] = table.UNKNOWN
    assert entries.last_known_offset(-1) == 5
    assert entries[:0].last_known_offset(-1) == -1


def test_joined() -> None:
    entries = some(5)
    assert Entries.joined([entries[:2], entries[2:]]).array.tolist() == entries.array.tolist()
    assert Entries.joined([entries]) is entries


def test_room_for_some() -> None:
    assert Entries.room(3).array.shape == (3, table.WIDTH)
