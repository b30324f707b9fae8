"""JSON objects on the CPU: a loop over rows that leaves out what it does not decide, and one that writes rows as lines of one columns."""

import kolumn.cpu_fallback.values.words
import kolumn.values.wire.compiled  # noqa: F401
from kolumn.cpu_fallback.machine.address import load8, store8
from kolumn.cpu_fallback.machine.arrays import Flags, Int64s
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.values.wire import columns, json
from kolumn.values.wire.columns import DONE, ColumnTables, put_nulls, restore
from kolumn.values.wire.json import UNDECIDED, JsonProgram

_SHORTEST = 8
_SPACE = ord(" ")


@compiled
def decode_objects(
    target: ColumnTables, program: JsonProgram, at: Int64s, length: Int64s, fill: int, fills: int, short: int, first: int, decided: Flags
) -> tuple[int, int]:
    """Decode rows, as in `Bodies`, into columns, from ``first`` on; ``decided`` is written. A row that is not decided is null. ``fill`` and
    ``fills`` make a whole row null; the eight bytes at ``short`` are overwritten. Returns the row that is to be decoded next, and what has
    no room, or `DONE`."""
    # Constants, where the compiler sees them: no passes, and counts next to each other.
    target = ColumnTables(target.columns, target.levels, target.counts, target.fills, 0, 8, target.level_count, 0)
    for row in range(first, len(at)):
        code, begin, size = UNDECIDED, at[row], length[row]
        if size >= 0:
            end = begin + size
            if size < _SHORTEST:
                # Words are read up to the end of the value, so it is given spaces in front.
                for k in range(_SHORTEST):
                    from_end = _SHORTEST - k
                    store8(short + k, load8(end - from_end) if from_end <= size else _SPACE)
                begin, end = short, short + _SHORTEST
            code = json.decode(target, program, begin, end, row)
        if code != DONE:
            restore(target, row)
            if code != UNDECIDED:
                return row, code
            put_nulls(target, fill, fills, row)
        decided[row] = code == DONE
    return len(at), DONE


_OPEN, _CLOSE, _QUOTE, _COMMA, _LINE = (ord(one) for one in '{}",\n')
_SPACES = (1 << ord(" ")) | (1 << ord("\t")) | (1 << ord("\n")) | (1 << ord("\r"))


@compiled
def write_lines(at: Int64s, length: Int64s, head: int, head_size: int, target: int, begins: Int64s, rows: Int64s) -> int:
    """Write a line for each value that begins as an object and is UTF-8; returns how many there are. ``head`` replaces the brace in front
    of a member's name, without the comma after it. At ``target`` a value has room for its bytes, the head, and two bytes more. ``begins``,
    of n + 1, are set to where each line begins, and the last one ends; ``rows`` to the rows that have one."""
    lines, to = 0, 0
    for row in range(len(at)):
        address, end = at[row], at[row] + length[row]
        byte = 0
        # The brace, and what comes after it: a name, or the brace that closes an object without members.
        for _ in range(2):
            while address < end and load8(address) <= 32 and (_SPACES >> load8(address)) & 1:
                address += 1
            if address >= end or (byte == 0 and load8(address) != _OPEN):
                byte = 0
                break
            byte = load8(address)
            address += 1
        if byte != _QUOTE and byte != _CLOSE:
            continue
        address -= 1
        size = end - address
        begin = to
        columns.copy(target + to, head, head_size)
        to += head_size
        if byte == _QUOTE:
            store8(target + to, _COMMA)
            to += 1
        if columns.copy_ascii(target + to, address, size) >= 0x80 and not columns.is_utf8(address, size):
            to = begin
            continue
        to += size
        store8(target + to, _LINE)
        to += 1
        begins[lines], rows[lines] = begin, row
        lines += 1
    begins[lines] = to
    return lines
