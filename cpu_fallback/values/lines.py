"""JSON objects as lines of one text, for a reader that takes many at a time.

value   { "a": 1 }     line   {"<marker>":1,"a": 1 }⏎
"""

import kolumn.cpu_fallback.values.text
import kolumn.values.wire.compiled  # noqa: F401
from kolumn.cpu_fallback.machine.address import load8, store8
from kolumn.cpu_fallback.machine.arrays import Int64s
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.values.wire import text

_OPEN, _CLOSE, _QUOTE, _COMMA, _LINE = (ord(one) for one in '{}",\n')
_SPACES = (1 << ord(" ")) | (1 << ord("\t")) | (1 << ord("\n")) | (1 << ord("\r"))


@compiled
def write_lines(at: Int64s, length: Int64s, head: int, head_size: int, target: int, begins: Int64s, rows: Int64s) -> int:
    """Write a line for each value that begins as an object and is UTF-8; returns how many there are.

    ``head`` replaces the brace in front of a member's name, without the comma after it. At ``target`` a value has room for its bytes, the
    head, and two bytes more. ``begins``, of n + 1, are set to where each line begins, and the last one ends; ``rows`` to the rows that have
    one.
    """
    lines, to = 0, 0
    for row in range(len(at)):
        place, end = at[row], at[row] + length[row]
        found = 0
        # The brace, and what comes after it: a name, or the brace that closes an object without members.
        for _ in range(2):
            while place < end and load8(place) <= 32 and (_SPACES >> load8(place)) & 1:
                place += 1
            if place >= end or (found == 0 and load8(place) != _OPEN):
                found = 0
                break
            found = load8(place)
            place += 1
        if found != _QUOTE and found != _CLOSE:
            continue
        place -= 1
        size = end - place
        begin = to
        text.copy(target + to, head, head_size)
        to += head_size
        if found == _QUOTE:
            store8(target + to, _COMMA)
            to += 1
        if text.copy_ascii(target + to, place, size) >= 0x80 and not text.is_utf8(place, size):
            to = begin
            continue
        to += size
        store8(target + to, _LINE)
        to += 1
        begins[lines], rows[lines] = begin, row
        lines += 1
    begins[lines] = to
    return lines
