"""How decoders of values write typed columns, row by row; copies of strings, and whether they are UTF-8.

A *level* counts rows: level 0 those of the records, every list has a level of its own for its elements. Columns lie in tables of int64:

    columns  | data  | valid | ends   | room      | addresses, and bytes of room in ``data`` for a column with ``ends``
    levels   | room  | list  | parent | 0         | rows of room; the list column whose elements these rows are, and the level of that list
    fills    | kind  | column| width or level | 0 | how one column becomes null
    counts   | rows  |                              rows so far of each level; of level 0 the row that is being written

``valid`` has a byte for each row, 0 for null; its address is 0 if the column cannot be null. ``ends`` has int32: of a column of bytes
``ends[row]`` is where the bytes of the row begin, of a list its first element; ``ends[row + 1]`` is written when the row is. So a row
that is being written is nothing but bytes after the ends, and `restore` undoes it by setting back the counts. For the same reason a
value may be written twice, and the last one wins.

On a GPU a thread writes one record, in two passes. Each writes some of the columns: others have 0 for ``data``, ``valid`` and ``ends``.
The first pass adds up rows in ``counts`` and bytes in ``cursors``, an int64 for each column. Of a column of bytes that it writes, it notes
in ``data`` where the bytes of each row are, int64. Running sums over the records, from column to column, are where the second pass begins:
``room`` has what is before a column. There is always room, and nothing is taken back: the second pass leaves out invalid records.

A function that has no room returns `full_level` or `full_column`; the caller makes room and writes the row of level 0 again.
"""

from typing import NamedTuple

from kolumn.formats.memory import load8
from kolumn.formats.memory import store8 as store_byte
from kolumn.formats.words import load32, load64, store8, store16, store32, store64

COLUMN, LEVEL, FILL = 32, 32, 32  # Bytes of a row of the tables.
NULL_WORD, NULL_BYTES, NULL_LIST, NULL_STRUCT = range(4)  # Kinds of fills.
DONE, INVALID = 0, -1  # Results of writing; from 1 on there is no room.
_DATA, _VALID, _ENDS, _ROOM = 0, 8, 16, 24
_LIST, _PARENT = 8, 16
_FULL = 1 << 20
_HIGH = -0x7F7F7F7F7F7F7F80  # The highest bit of each of eight bytes.


def copy(target: int, source: int, size: int) -> None:
    """Copy ``size`` bytes between addresses. A backend may replace it, and `copy_ascii`, by one that moves words."""
    # No `range`: on a GPU its number of turns takes as many instructions as most strings do.
    shift, end = target - source, source + size
    while source < end:
        store_byte(source, shift, load8(source, 0))
        source += 1


def copy_ascii(target: int, source: int, size: int) -> int:
    """Copy ``size`` bytes; returns their bits, ORed: below 0x80 if all are ASCII."""
    bits = 0
    for k in range(size):
        byte = load8(source, k)
        bits |= byte
        store_byte(target, k, byte)
    return bits


def is_ascii(source: int, size: int) -> bool:
    """Whether bytes are ASCII, by the aligned words of eight that they are in: for memory that goes on before and after them."""
    if size == 0:
        return True
    address, end = source & -8, source + size
    # Without the bytes before the first one, and those after the last one: there may be none, and no shift is by 64.
    word, bits = load64(address) & (-1 << (8 * (source & 7))), 0
    while address + 8 < end:
        bits |= word
        address += 8
        word = load64(address)
    return (bits | (word & ~(-1 << (8 * (end - address - 1)) << 8))) & _HIGH == 0


def is_utf8(source: int, size: int) -> bool:
    """Whether bytes are well-formed UTF-8 (Unicode 15, table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF."""
    position = 0
    while position < size:
        first = load8(source, position)
        position += 1
        if first < 0x80:
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        more = 1 if first < 0xE0 else (2 if first < 0xF0 else 3)
        if size - position < more:
            return False
        low = 0xA0 if first == 0xE0 else (0x90 if first == 0xF0 else 0x80)
        high = 0x9F if first == 0xED else (0x8F if first == 0xF4 else 0xBF)
        second = load8(source, position)
        if second < low or second > high:
            return False
        for k in range(1, more):
            if load8(source, position + k) & 0xC0 != 0x80:
                return False
        position += more
    return True


class ColumnTables(NamedTuple):
    """Addresses of the tables. ``stride`` is the number of bytes from one level's count, or column's cursor, to the next: 8 where one
    thread writes all records. ``turn`` is 0 there, and there are no ``cursors``. On a GPU it is 1 or 2, by the pass, and there are no
    ``levels``.
    """

    columns: int
    levels: int
    counts: int
    fills: int
    cursors: int
    stride: int
    level_count: int
    turn: int


def full_level(level: int) -> int:
    """Code for a level without room for another row."""
    return 1 + level


def full_column(column: int) -> int:
    """Code for a column without room for more bytes."""
    return _FULL + column


def is_written(t: ColumnTables, address: int) -> bool:
    """Whether what should be at an address of the table of columns is there: a pass on a GPU does not write all columns."""
    return t.turn == 0 or address != 0


def set_valid(t: ColumnTables, column: int, row: int, flag: int) -> None:
    """Set whether a row is not null, in a column that can be null."""
    valid = load64(t.columns + COLUMN * column + _VALID)
    if valid != 0:
        store8(valid + row, flag)


def is_set(t: ColumnTables, column: int, row: int) -> bool:
    """Whether a row is not null, in a column that can be null and is written."""
    valid = load64(t.columns + COLUMN * column + _VALID)
    return valid != 0 and load8(valid, row) != 0


def store_word(address: int, value: int, width: int) -> None:
    """Store the low 1, 2, 4 or 8 bytes of a value."""
    if width == 8:
        store64(address, value)
    elif width == 4:
        store32(address, value)
    elif width == 1:
        store8(address, value)
    else:
        store16(address, value)


def put_word(t: ColumnTables, column: int, row: int, value: int, width: int) -> None:
    """Write a number of 1, 2, 4 or 8 bytes: its bits are the low ones of ``value``."""
    data = load64(t.columns + COLUMN * column + _DATA)
    if is_written(t, data):
        store_word(data + width * row, value, width)
        set_valid(t, column, row, 1)


def wide(t: ColumnTables, column: int, row: int, width: int) -> int:
    """Address of a row of ``width`` bytes, which the caller fills: decimals, fixed sizes; 0 if the column is not written."""
    data = load64(t.columns + COLUMN * column + _DATA)
    if not is_written(t, data):
        return 0
    set_valid(t, column, row, 1)
    return data + width * row


def begin_of(t: ColumnTables, column: int, row: int) -> int:
    if t.turn != 0:
        return load64(t.cursors + t.stride * column)
    return load32(load64(t.columns + COLUMN * column + _ENDS) + 4 * row)


def bytes_of(t: ColumnTables, column: int, row: int) -> tuple[int, int]:
    """Address and length of the bytes of a row that is written; not on a GPU."""
    entry = t.columns + COLUMN * column
    ends = load64(entry + _ENDS) + 4 * row
    begin = load32(ends)
    return load64(entry + _DATA) + begin, load32(ends + 4) - begin


def elements_of(t: ColumnTables, column: int, row: int) -> tuple[int, int]:
    """The first element of a list that is written, and the one after its last; not on a GPU."""
    ends = load64(t.columns + COLUMN * column + _ENDS) + 4 * row
    return load32(ends), load32(ends + 4)


def space_from(t: ColumnTables, column: int, begin: int) -> tuple[int, int]:
    """Address of the bytes of a column from ``begin`` on, and how many have room; not on a GPU."""
    entry = t.columns + COLUMN * column
    return load64(entry + _DATA) + begin, load64(entry + _ROOM) - begin


def end_row(t: ColumnTables, column: int, row: int, end: int) -> None:
    entry = t.columns + COLUMN * column
    ends = load64(entry + _ENDS)
    if is_written(t, ends):
        store32(ends + 4 * row + 4, end if t.turn == 0 else end - load64(entry + _ROOM))


def end_bytes(t: ColumnTables, column: int, row: int, end: int) -> int:
    end_row(t, column, row, end)
    if t.turn != 0:
        store64(t.cursors + t.stride * column, end)
    set_valid(t, column, row, 1)
    return DONE


def pass_bytes(t: ColumnTables, column: int, row: int, source: int, length: int) -> int:
    """Note, count or copy bytes, on a GPU."""
    data, cursor = load64(t.columns + COLUMN * column + _DATA), t.cursors + t.stride * column
    if t.turn == 2:
        if data == 0:
            return DONE
        begin = load64(cursor)
        copy(data + begin, source, length)
        return end_bytes(t, column, row, begin + length)
    if data == 0:
        store64(cursor, load64(cursor) + length)
        return DONE
    store64(data + 8 * row, source)
    store64(cursor, length)
    set_valid(t, column, row, 1)
    return DONE


def put_bytes(t: ColumnTables, column: int, row: int, source: int, length: int) -> int:
    """Write bytes; returns `DONE` or a code for no room."""
    if t.turn != 0:
        return pass_bytes(t, column, row, source, length)
    begin = begin_of(t, column, row)
    target, room = space_from(t, column, begin)
    if length > room:
        return full_column(column)
    copy(target, source, length)
    return end_bytes(t, column, row, begin + length)


def put_text(t: ColumnTables, column: int, row: int, source: int, length: int) -> int:
    """Write bytes that have to be UTF-8; returns `DONE`, `INVALID` or a code for no room."""
    if t.turn != 0:
        # The second pass need not look at them again.
        if t.turn == 1 and not is_ascii(source, length) and not is_utf8(source, length):
            return INVALID
        return pass_bytes(t, column, row, source, length)
    begin = begin_of(t, column, row)
    target, room = space_from(t, column, begin)
    if length > room:
        return full_column(column)
    if copy_ascii(target, source, length) >= 0x80 and not is_utf8(source, length):
        return INVALID
    return end_bytes(t, column, row, begin + length)


def begin_list(t: ColumnTables, column: int, row: int, child: int) -> None:
    """Drop the elements that a row of a list has so far: its first element is the next one of level ``child``."""
    if t.turn == 0:
        store64(t.counts + t.stride * child, load32(load64(t.columns + COLUMN * column + _ENDS) + 4 * row))


def next_row(t: ColumnTables, level: int) -> int:
    """Begin an element: returns its row, or a negative code: the code for no room, negated."""
    count = t.counts + t.stride * level
    row = load64(count)
    if t.turn == 0 and row >= load64(t.levels + LEVEL * level):
        return -full_level(level)
    store64(count, row + 1)
    return row


def end_list(t: ColumnTables, column: int, row: int, child: int) -> None:
    end_row(t, column, row, load64(t.counts + t.stride * child))
    set_valid(t, column, row, 1)


def put_nulls(t: ColumnTables, first: int, count: int, row: int) -> None:
    """Make some columns null in a row, by fills [first, first + count): those of a value with everything in it, at one level. A column that
    cannot be null has 0, no bytes, or no elements.
    """
    for k in range(first, first + count):
        fill = t.fills + FILL * k
        kind, column = load64(fill), load64(fill + 8)
        set_valid(t, column, row, 0)
        entry = t.columns + COLUMN * column
        if kind == NULL_WORD:
            width, data = load64(fill + 16), load64(entry + _DATA)
            if is_written(t, data):
                data += width * row
                if width == 8 or width == 4 or width == 2 or width == 1:
                    store_word(data, 0, width)
                else:
                    for byte in range(width):
                        store8(data + byte, 0)
        elif kind == NULL_BYTES:
            # In the first pass on a GPU a cell that nobody counts on has no bytes.
            end_row(t, column, row, begin_of(t, column, row))
        elif kind == NULL_LIST:
            begin_list(t, column, row, load64(fill + 16))
            end_list(t, column, row, load64(fill + 16))
            set_valid(t, column, row, 0)


def leave(t: ColumnTables, address: int, word: int) -> None:
    """On a GPU leave a word for the second pass."""
    if t.turn != 0:
        store64(address, word)


def restore(t: ColumnTables, row: int) -> None:
    """Undo what was written of ``row`` of level 0; not on a GPU."""
    store64(t.counts, row)
    for level in range(1, t.level_count):
        entry = t.levels + LEVEL * level
        parent = load64(t.counts + t.stride * load64(entry + _PARENT))
        ends = load64(t.columns + COLUMN * load64(entry + _LIST) + _ENDS)
        store64(t.counts + t.stride * level, load32(ends + 4 * parent))
