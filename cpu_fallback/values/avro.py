"""Avro values on the CPU: a loop over rows, each by the program of its writer's schema."""

import kolumn.cpu_fallback.values.words
import kolumn.values.wire.compiled  # noqa: F401
from kolumn.core.deferred import implement
from kolumn.cpu_fallback.machine.arrays import Flags, Int64s
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.values.wire import avro
from kolumn.values.wire.avro import decode
from kolumn.values.wire.columns import DONE, INVALID, ColumnTables, put_nulls, restore

implement(avro.skip, avro.skip_steps, target="cpu")


@compiled
def decode_rows(
    target: ColumnTables, programs: Int64s, stack: int, at: Int64s, length: Int64s, prefix: Int64s, schema: Int64s, bare: bool,
    fill: int, fills: int, first: int, valid: Flags,
) -> tuple[int, int]:  # fmt: skip
    """Decode rows, as in `Bodies`, into columns, from ``first`` on; ``valid`` is written.

    ``programs`` are addresses: first of the reader's own schema, for rows without a writer's and for bare ones, then of the writers'; 0:
    rows of this schema are not valid. ``fill`` and ``fills`` make a whole row null; ``stack`` is an address. Returns the row that is to
    be decoded next, and what has no room, or `DONE`.
    """
    # Constants, where the compiler sees them: no passes, and counts next to each other.
    target = ColumnTables(target.columns, target.levels, target.counts, target.fills, 0, 8, target.level_count, 0)
    for row in range(first, len(at)):
        begin, size, program, code = at[row], length[row], programs[schema[row] + 1], INVALID
        # What looks like a prefix may be the beginning of a bare value.
        for _ in range(2):
            if size < 0 or program == 0:
                break
            code = decode(target, program, program, stack, begin, begin + size, row, 0)
            if code == DONE:
                break
            restore(target, row)
            if code != INVALID:
                return row, code
            if not bare or prefix[row] == 0:
                break
            begin, size, program = begin - prefix[row], size + prefix[row], programs[0]
        if code != DONE:
            put_nulls(target, fill, fills, row)
        valid[row] = code == DONE
    return len(at), DONE
