"""Avro values on the CPU: a loop over rows, each by the program of its writer's schema."""

import kolumn.cpu_fallback.values.words
import kolumn.values.wire.compiled  # noqa: F401
from kolumn.cpu_fallback.machine.arrays import Flags, Int64s
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.cpu_fallback.values.avro_walk import BLOCK, begin_rows, decided, segment_of, walk
from kolumn.formats.machine_code.deferred import implement, register_jitable
from kolumn.formats.machine_code.words import load64, store8
from kolumn.values.wire import avro
from kolumn.values.wire.avro import decode
from kolumn.values.wire.columns import DONE, INVALID, ColumnTables, put_nulls, restore

_FEW = 8
"""Rows of a schema that are fewer are not walked."""
implement(avro.skip, avro.skip_steps, target="cpu")


@register_jitable
def _next_block(
    plans: Int64s, stack: int, memory: int, columns: int, at: Int64s, length: Int64s, schema: Int64s, valid: Flags, first: int
) -> tuple[int, int, bool]:
    """Walk the rows from ``first`` on that have the same schema, at most a block; rows without a plan are passed over. Returns the row
    after them, their plan, 0 if they were not walked, and whether all of them are written. Then they are valid."""
    plan, number, row = plans[schema[first] + 1], schema[first], first
    if plan == 0:
        while row < len(at) and plans[schema[row] + 1] == 0:
            row += 1
        return row, 0, False
    last, schemas, others = min(first + BLOCK, len(at)), schema.ctypes.data, 0
    for one in range(first, last):
        others |= load64(schemas + 8 * one) ^ number
    if others == 0:
        row = last
    while row < last and load64(schemas + 8 * row) == number:
        row += 1
    if row - first < _FEW:
        return row, 0, False
    begin_rows(memory, at.ctypes.data + 8 * first, length.ctypes.data + 8 * first, row - first, row < len(at))
    walk(plan, stack, memory, row - first, columns, first)
    if load64(plan) != 0:
        return row, plan, False
    written, flags = 0, valid.ctypes.data + first
    for r in range(row - first):
        fine = 1 if decided(memory, r) else 0
        store8(flags + r, fine)
        written += fine
    return row, plan, written == row - first


@compiled
def decode_rows(
    target: ColumnTables, programs: Int64s, stack: int, at: Int64s, length: Int64s, prefix: Int64s, schema: Int64s, bare: bool,
    fill: int, fills: int, first: int, valid: Flags, plans: Int64s, memory: int,
) -> tuple[int, int]:  # fmt: skip
    """Decode rows, as in `Bodies`, into columns, from ``first`` on; ``valid`` is written.

    ``programs`` are addresses: first of the reader's own schema, for rows without a writer's and for bare ones, then of the writers'; 0:
    rows of this schema are not valid. ``plans`` are those of `avro_walk` likewise, 0 without one. ``fill`` and ``fills`` make a whole row
    null. ``stack`` and ``memory``, of a block, are addresses. Returns the row that is to be decoded next, and what has no room, or `DONE`.
    """
    # Constants, where the compiler sees them: no passes, and counts next to each other.
    target = ColumnTables(target.columns, target.levels, target.counts, target.fills, 0, 8, target.level_count, 0)
    row, block, started, plan = first, first, first, 0
    while row < len(at):
        if row == block:
            started = row
            block, plan, written = _next_block(plans, stack, memory, target.columns, at, length, schema, valid, row)
            if written:
                row = block
                continue
        segments = load64(plan) if plan != 0 else 0
        found = plan != 0 and decided(memory, row - started)
        if found and segments == 0:
            row += 1
            continue
        begin, size, program = at[row], length[row], programs[schema[row] + 1]
        # A row whose fields were found is decoded segment by segment, others as a whole.
        segment, attempt, code = 0, 0, INVALID
        while True:
            stop = begin + size
            if found:
                begin, stop, program = segment_of(plan, memory, row - started, segment)
            if stop < begin or program == 0:
                break
            code = decode(target, program, program, stack, begin, stop, row, 0)
            if code == DONE:
                segment += 1
                if found and segment < segments:
                    continue
                break
            restore(target, row)
            if code != INVALID:
                return row, code
            if found:
                found, begin, program = False, at[row], programs[schema[row] + 1]
            elif attempt == 0 and bare and prefix[row] != 0:
                attempt, begin, size, program = 1, begin - prefix[row], size + prefix[row], programs[0]
            else:
                break
        if code != DONE:
            put_nulls(target, fill, fills, row)
        valid[row] = code == DONE
        row += 1
    return len(at), DONE
