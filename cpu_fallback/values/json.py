"""JSON on the CPU: a loop over rows that leaves out what it does not decide, and one that says which rows are JSON text."""

import kolumn.cpu_fallback.values.words
import kolumn.values.wire.compiled  # noqa: F401
from kolumn.core.deferred import register_jitable
from kolumn.cpu_fallback.machine.address import load8, load64, store8, store64
from kolumn.cpu_fallback.machine.arrays import Flags, Int64s
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.values.wire import json
from kolumn.values.wire.columns import DONE, ColumnTables, put_nulls, restore
from kolumn.values.wire.json import UNDECIDED, JsonProgram

_SHORTEST = 8
_SPACE = ord(" ")
FULL = -2  # There is no room for more lost fields.


@register_jitable
def _padded(begin: int, end: int, short: int) -> tuple[int, int]:
    """Where a value is. Words are read up to the end of the value, so a short one is copied to ``short``, with spaces in front."""
    size = end - begin
    if size >= _SHORTEST:
        return begin, end
    for k in range(_SHORTEST):
        from_end = _SHORTEST - k
        store8(short + k, load8(end - from_end) if from_end <= size else _SPACE)
    return short, short + _SHORTEST


@compiled
def decode_objects(
    target: ColumnTables, program: JsonProgram, at: Int64s, length: Int64s, fill: int, fills: int, short: int, first: int, decided: Flags,
    room: int,
) -> tuple[int, int]:  # fmt: skip
    """Decode rows, as in `Bodies`, into columns, from ``first`` on; ``decided`` is written. A row that is not decided is null. ``fill`` and
    ``fills`` make a whole row null; the eight bytes at ``short`` are overwritten. No row begins where ``room`` values are lost. Returns the
    row that is to be decoded next, and what has no room, `FULL` or `DONE`."""
    # Constants, where the compiler sees them: no passes, and counts next to each other.
    target = ColumnTables(target.columns, target.levels, target.counts, target.fills, 0, 8, target.level_count, 0)
    for row in range(first, len(at)):
        code, lost = UNDECIDED, load64(program.lost)
        if lost >= room:
            return row, FULL
        if length[row] >= 0:
            begin, end = _padded(at[row], at[row] + length[row], short)
            code = json.decode(target, program, begin, end, row)
        if code != DONE:
            restore(target, row)
            store64(program.lost, lost)
            # What this attempt has marked is not what the next one has.
            store64(program.marks, load64(program.marks) + len(at))
            if code != UNDECIDED:
                return row, code
            put_nulls(target, fill, fills, row)
        decided[row] = code == DONE
    return len(at), DONE


@compiled
def are_texts(at: Int64s, length: Int64s, short: int, fine: Flags) -> int:
    """Set which values, as in `Bodies`, are certainly JSON text of any kind; returns how many are. ``short`` as in `decode_objects`."""
    count = 0
    for row in range(len(at)):
        begin, end = at[row], at[row] + length[row]
        fine[row] = False
        if begin < end:
            begin, end = _padded(begin, end, short)
            after = json.after_value(begin, end)
            fine[row] = after >= 0 and json.next_byte(after, end)[0] >= end
            count += fine[row]
    return count
