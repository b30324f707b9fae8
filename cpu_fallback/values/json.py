"""JSON objects on the CPU: a loop over rows, which leaves out what it does not decide."""

import kolumn.cpu_fallback.values.json_words
import kolumn.cpu_fallback.values.text
import kolumn.values.wire.compiled  # noqa: F401
from kolumn.cpu_fallback.machine.address import load8, store8
from kolumn.cpu_fallback.machine.arrays import Flags, Int64s
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats.machine_code.deferred import overload, register_jitable
from kolumn.values.wire import json, json_text
from kolumn.values.wire.columns import DONE, ColumnTables, put_nulls, restore
from kolumn.values.wire.json import UNDECIDED, JsonProgram
from kolumn.values.wire.text import is_utf8

_SHORTEST = 8
_SPACE = ord(" ")


@register_jitable
def _is_utf8(at: int, size: int) -> bool:
    return is_utf8(at, size)


@register_jitable
def _escape_of(at: int, end: int) -> tuple[int, int]:
    return json_text.escape_of(at, end)


@register_jitable
def _passed_over(at: int, end: int) -> int:
    return json_text.passed_over(at, end)


@register_jitable
def _searched(p: JsonProgram, inside: int, at: int, end: int) -> tuple[int, int]:
    return json.searched(p, inside, at, end)


@overload(json_text.is_text, target="cpu")
def _is_text(at, size):  # type: ignore[no-untyped-def]
    return lambda at, size: _is_utf8(at, size)


@overload(json_text.escape_at, target="cpu")
def _escape_at(at, end):  # type: ignore[no-untyped-def]
    return lambda at, end: _escape_of(at, end)


@overload(json_text.after_value, target="cpu")
def _after_value(at, end):  # type: ignore[no-untyped-def]
    return lambda at, end: _passed_over(at, end)


@overload(json.field_of, target="cpu")
def _field_of(p, inside, at, end):  # type: ignore[no-untyped-def]
    return lambda p, inside, at, end: _searched(p, inside, at, end)


@compiled
def decode_objects(
    target: ColumnTables, program: JsonProgram, at: Int64s, length: Int64s, fill: int, fills: int, short: int, first: int, decided: Flags
) -> tuple[int, int]:
    """Decode rows, as in `Bodies`, into columns, from ``first`` on; ``decided`` is written. A row that is not decided is null.

    ``fill`` and ``fills`` make a whole row null; the eight bytes at ``short`` are overwritten. Returns the row that is to be decoded next,
    and what has no room, or `DONE`.
    """
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
