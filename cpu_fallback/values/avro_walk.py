"""Reads Avro values of which most fields are skipped: block by block, one field or a few of all rows after the other.

Where a field begins depends on what is before it. A row by itself is a chain of loads that wait for each other, with branches that no
processor predicts between them. The rows of a block do not wait for each other, and here nothing branches on what is in a row. A row never
goes back, and nothing reads after its limit; bytes are loaded before the row's end is looked at, also those of the next row.

Only rows are decided whose numbers are short and whose blocks of lists do not say their size. The others, valid or not, are left to the
program of the row, which writes them again. A plan is int64 words at one address, made by `kolumn.values.avro.decoder`:

    segments | operations | place of each segment's program | operations

An *atom* is a value that has no others in it: its kind, whether a union's branch is in front, whether that of null is the second one,
and an argument: of an index how many there are, else how many bytes follow. Operations are a word, and words after it:

    RUN     number of atoms; they are skipped
    LIST    flags of an atom; number of atoms of an item; they are skipped
    OTHER   place of a program of steps that skip (`kolumn.values.wire.avro`)
    TAKE    an atom; a column of numbers; bytes of a number there
    VALID   a column that is not null
    MARK    -; a segment begins or ends: fields whose bytes are decoded row by row, by the segment's program
"""

from kolumn.cpu_fallback.machine.address import load8, load64, store8, store32, store64, trailing_zeros
from kolumn.formats.machine_code.deferred import register_jitable
from kolumn.values.wire.avro import skip
from kolumn.values.wire.columns import COLUMN
from kolumn.values.wire.json_numbers import number_of_word

BLOCK = 256
"""Rows of a block."""
ROOM = 4
"""Words of memory for each row of a block, besides its marks."""
WORD = 8
"""Bytes that are loaded at once."""
HEAD = 16
RUN, LIST, OTHER, TAKE, VALID, MARK = range(6)
KIND, OPTIONAL, SECOND, SHIFT = 7, 8, 16, 5
BYTES, TEXT, LONG, INT, INDEX, BOOLEAN = range(6)
_AT, _END, _LIMIT, _INSIDE, _MARKS = (8 * BLOCK * k for k in range(5))
"""Where the words of the first row are in the memory of a block: all rows' first words come before the second ones."""
_MORE = -0x7F7F7F7F7F7F7F80
_SIGN = -(2**63)
_ROW, _VALID_AT, _FAR = 0xFFFF, 8, 32
_PAGE = 4096


@register_jitable
def begin_rows(memory: int, ats: int, lengths: int, rows: int, more: bool) -> None:
    """Begin the rows of a block, whose addresses and lengths are at ``ats`` and ``lengths``. ``more``: a row comes after them."""
    last = rows if more else rows - 1
    after = load64(ats)
    after_end = after + load64(lengths)
    for r in range(last):
        place = 8 * r
        at, end = after, after_end
        after = load64(ats + place + 8)
        after_end = after + load64(lengths + place + 8)
        # Words are loaded that reach into the next row. So it has to lie near: then no page is between the two.
        fine = (end >= at) & (after >= end) & (after - end < _PAGE) & (end < after_end - WORD)
        # A row never goes back. So one that passed its end, or has something that is not decided, goes to its limit and stays there.
        store64(memory + _AT + place, at if fine else memory)
        store64(memory + _END + place, end if fine else 0)
        store64(memory + _LIMIT + place, after_end - WORD if fine else memory)
    if not more:
        store64(memory + _AT + 8 * last, memory)
        store64(memory + _END + 8 * last, 0)
        store64(memory + _LIMIT + 8 * last, memory)


@register_jitable
def walk(plan: int, stack: int, memory: int, rows: int, columns: int, first: int) -> None:
    """Read a block, whose ``memory`` is as `begin_rows` left it; write columns of numbers, from their row ``first`` on, and marks, and
    which rows are decided."""
    place, mark = plan + HEAD + 8 * load64(plan), memory + _MARKS
    for _ in range(load64(plan + 8)):
        operation, one, two, three = load64(place), load64(place + 8), load64(place + 16), load64(place + 24)
        if operation == RUN:
            skip_run(place + 16, one, memory, rows)
            place += 16 + 8 * one
        elif operation == LIST:
            skip_lists(one, place + 24, two, memory, rows)
            place += 24 + 8 * two
        elif operation == OTHER:
            skip_others(plan + one, stack, memory, rows)
            place += 16
        elif operation == TAKE:
            column = columns + COLUMN * two
            valid = load64(column + _VALID_AT)
            take(one, load64(column) + three * first, valid + first if valid != 0 else 0, three, memory, rows)
            place += 32
        elif operation == VALID:
            valid = load64(columns + COLUMN * one + _VALID_AT)
            for r in range(rows):
                store8(valid + first + r, 1)
            place += 16
        else:
            for r in range(rows):
                store64(mark + 8 * r, load64(memory + _AT + 8 * r))
            mark += 8 * BLOCK
            place += 16


@register_jitable(forceinline=True)
def decided(memory: int, r: int) -> bool:
    """Whether row ``r`` is decided: what is skipped and taken in it is valid, and the marks are right."""
    return load64(memory + _AT + 8 * r) == load64(memory + _END + 8 * r)


@register_jitable(forceinline=True)
def segment_of(plan: int, memory: int, r: int, segment: int) -> tuple[int, int, int]:
    """Addresses at which a segment of row ``r`` begins and ends, and of its program."""
    place = memory + _MARKS + 8 * (2 * BLOCK * segment + r)
    return load64(place), load64(place + 8 * BLOCK), plan + load64(plan + HEAD + 8 * segment)


@register_jitable(forceinline=True)
def _short(word: int) -> tuple[int, int, int]:
    """A number of one or two bytes at the low end of a word: it, its bytes, and what is not 0 if it is longer or negative."""
    more = -((word >> 7) & 1)
    number = (word & 0x7F) | ((word >> 1) & 0x3F80 & more)
    return number >> 1, 1 - more, (word & 0x8000 & more) | (number & 1)


@register_jitable(forceinline=True)
def _branch(atom: int, word: int) -> tuple[int, int]:
    """Of a value with a union's branch in front: -1 if it is that of null, else 0; and what is not 0 if it is none of two."""
    return -1 if word & 0xFF == (atom >> 3) & 2 else 0, word & 0xFD


@register_jitable(forceinline=True)
def _size(kind: int, argument: int, word: int) -> tuple[int, int]:
    """Bytes of a value that begins a word, with those that follow; and what is not 0 if it is not decided."""
    if kind == TEXT:
        size, count, bad = _short(word)
        return count + size + argument, bad
    if kind == BYTES:
        return argument, 0
    if kind <= INT:
        last = ~word & _MORE
        count = (trailing_zeros(last | _SIGN) + 1) >> 3
        bad = 1 if last == 0 else 0
        if kind == INT:
            bad |= (1 if count > 5 else 0) | ((word >> 32) & 0xF0 if count == 5 else 0)
        return count + argument, bad
    if kind == INDEX:
        index, count, bad = _short(word)
        return count, bad | (1 if index >= argument else 0)
    return 1 + argument, word & 0xFE


@register_jitable(forceinline=True)
def _moved(at: int, size: int, bad: int, limit: int) -> int:
    """Where a row goes on."""
    return min(at + size + (bad << _FAR), limit)


@register_jitable(forceinline=True)
def _after(kind: int, atom: int, at: int, limit: int) -> int:
    """Address after a value of an atom, whose kind is given too; ``limit`` if it is not decided."""
    word = load64(at)
    if atom & OPTIONAL != 0:
        gone, bad = _branch(atom, word)
        size, wrong = _size(kind, atom >> SHIFT, word >> 8)
        return _moved(at, 1 + (size & ~gone), bad | (wrong & ~gone), limit)
    size, bad = _size(kind, atom >> SHIFT, word)
    return _moved(at, size, bad, limit)


@register_jitable
def skip_run(atoms: int, count: int, memory: int, rows: int) -> None:
    """Pass over ``count`` values in each row."""
    for k in range(count):
        atom = load64(atoms + 8 * k)
        for r in range(rows):
            at = _after(atom & KIND, atom, load64(memory + _AT + 8 * r), load64(memory + _LIMIT + 8 * r))
            store64(memory + _AT + 8 * r, at)


@register_jitable
def skip_lists(flags: int, atoms: int, count: int, memory: int, rows: int) -> None:
    """Pass over a list in each row. An item has a byte at least."""
    inside = memory + _INSIDE
    # Rows with items left: how many, and in the low 16 bits the row's number.
    going = 0
    for r in range(rows):
        at, limit = load64(memory + _AT + 8 * r), load64(memory + _LIMIT + 8 * r)
        word, gone, bad = load64(at), 0, 0
        if flags & OPTIONAL != 0:
            gone, bad = _branch(flags, word)
            at += 1
            word >>= 8
        items, size, wrong = _short(word)
        items &= ~gone
        at = _moved(at, size & ~gone, bad | (wrong & ~gone), limit)
        store64(memory + _AT + 8 * r, at)
        store64(inside + 8 * going, (items << 16) | r)
        going += 1 if (items > 0) & (at < limit) else 0
    while going > 0:
        for k in range(count):
            _skip_items(load64(atoms + 8 * k), memory, inside, going)
        going = _next_items(memory, inside, going)


@register_jitable
def _skip_items(atom: int, memory: int, inside: int, going: int) -> None:
    """Pass over a value in each row that has items left. Kinds are constants: each has a loop of its own."""
    kind = atom & KIND
    if kind == TEXT:
        _skip_each(TEXT, atom, memory, inside, going)
    elif kind == LONG:
        _skip_each(LONG, atom, memory, inside, going)
    elif kind == INT:
        _skip_each(INT, atom, memory, inside, going)
    else:
        _skip_each(kind, atom, memory, inside, going)


@register_jitable(forceinline=True)
def _skip_each(kind: int, atom: int, memory: int, inside: int, going: int) -> None:
    for i in range(going):
        row = memory + 8 * (load64(inside + 8 * i) & _ROW)
        store64(row + _AT, _after(kind, atom, load64(row + _AT), load64(row + _LIMIT)))


@register_jitable(forceinline=True)
def _next_items(memory: int, inside: int, going: int) -> int:
    """End an item in each row; returns how many rows have another one."""
    left = 0
    for i in range(going):
        item = load64(inside + 8 * i)
        items, r = (item >> 16) - 1, item & _ROW
        at, limit = load64(memory + _AT + 8 * r), load64(memory + _LIMIT + 8 * r)
        # After the last item of a block follows the number of items of the next one, 0 if there is none.
        last = -1 if items == 0 else 0
        more = load8(at) & last
        items += more >> 1
        at = _moved(at, last & 1, more & 0x81, limit)
        store64(memory + _AT + 8 * r, at)
        store64(inside + 8 * left, (items << 16) | r)
        left += 1 if (items > 0) & (at < limit) else 0
    return left


@register_jitable
def skip_others(program: int, stack: int, memory: int, rows: int) -> None:
    """Pass over values by steps, row by row."""
    for r in range(rows):
        at, limit = load64(memory + _AT + 8 * r), load64(memory + _LIMIT + 8 * r)
        if at < limit:
            at, _, _ = skip(program, 0, stack, at, load64(memory + _END + 8 * r), 0)
            store64(memory + _AT + 8 * r, at if at >= 0 else limit)


@register_jitable
def take(atom: int, data: int, valid: int, width: int, memory: int, rows: int) -> None:
    """Write the number of each row; ``data`` and ``valid`` are the addresses of the first row's, ``valid`` 0 if it cannot be null."""
    kind = atom & KIND
    # Kinds are constants: each has a loop of its own.
    if kind == LONG:
        _take(LONG, atom, data, valid, width, memory, rows)
    elif kind == INT:
        _take(INT, atom, data, valid, width, memory, rows)
    else:
        _take(kind, atom, data, valid, width, memory, rows)


@register_jitable(forceinline=True)
def _take(kind: int, atom: int, data: int, valid: int, width: int, memory: int, rows: int) -> None:
    optional = (atom >> 3) & 1
    for r in range(rows):
        at, limit = load64(memory + _AT + 8 * r), load64(memory + _LIMIT + 8 * r)
        word, gone, bad = load64(at), 0, 0
        if optional != 0:
            gone, bad = _branch(atom, word)
            word >>= 8
        size, wrong = _size(kind, atom >> SHIFT, word)
        number = word
        if kind in (LONG, INT):
            number = number_of_word(word)
            number = ((number >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(number & 1)
        elif optional != 0 and kind == BYTES:
            # Eight bytes after the branch.
            number = load64(min(at + 1, limit))
        number &= ~gone
        at = _moved(at, optional + (size & ~gone), bad | (wrong & ~gone), limit)
        store64(memory + _AT + 8 * r, at)
        if width == 8:
            store64(data + 8 * r, number)
        elif width == 4:
            store32(data + 4 * r, number)
        else:
            store8(data + r, number)
        if valid != 0:
            store8(valid + r, gone + 1)
