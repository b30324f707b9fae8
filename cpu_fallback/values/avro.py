"""Avro values on the CPU: a loop over rows, each by the program of its writer's schema."""

import kolumn.cpu_fallback.values.text
import kolumn.encodings.compiled  # noqa: F401
from kolumn.cpu_fallback.machine import address
from kolumn.cpu_fallback.machine.arrays import Flags, Int64s
from kolumn.cpu_fallback.machine.scalars import compiled
from kolumn.cpu_fallback.values.varints import after_varint_by_words, uvarint_by_words
from kolumn.encodings import avro_skip, numbers
from kolumn.encodings.avro import decode
from kolumn.encodings.columns import DONE, INVALID, ColumnTables, put_nulls, restore
from kolumn.machine_code.deferred import overload, register_jitable


@overload(numbers.little64, target="cpu")
def _little64(at):  # type: ignore[no-untyped-def]
    return lambda at: address.load64(at)


@overload(numbers.little32, target="cpu")
def _little32(at):  # type: ignore[no-untyped-def]
    return lambda at: address.load32(at)


@register_jitable
def _longer_at(at: int, end: int) -> tuple[int, int]:
    value, at = uvarint_by_words(at, end)
    return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), at


@overload(numbers.after_long, target="cpu")
def _after_long(at, end):  # type: ignore[no-untyped-def]
    return lambda at, end: after_varint_by_words(at, end)


@overload(numbers.longer_at, target="cpu")
def _longer(at, end):  # type: ignore[no-untyped-def]
    return lambda at, end: _longer_at(at, end)


@register_jitable
def _skip(program: int, pc: int, stack: int, at: int, end: int, free: int) -> tuple[int, int, int]:
    return avro_skip.skip_steps(program, pc, stack, at, end, free)


@overload(avro_skip.skip, target="cpu")
def _skipped(program, pc, stack, at, end, free):  # type: ignore[no-untyped-def]
    return lambda program, pc, stack, at, end, free: _skip(program, pc, stack, at, end, free)


@compiled
def decode_rows(
    target: ColumnTables,
    programs: Int64s,
    stack: int,
    at: Int64s,
    length: Int64s,
    prefix: Int64s,
    schema: Int64s,
    bare: bool,
    fill: int,
    fills: int,
    first: int,
    valid: Flags,
) -> tuple[int, int]:
    """Decode rows into columns, from ``first`` on.

    Parameters
    ----------
    target : ColumnTables
    programs : int64 array
        Addresses of the programs: first the one of the reader's own schema, for rows without a writer's and for bare ones, then those of
        the writers'. 0: rows of this schema are not valid.
    stack : int
        Address.
    at, length, prefix, schema, bare
        As in `kolumn.values.decoder.Bodies`.
    fill, fills : int
        The first fill of those that make a whole row null, and how many they are.
    first : int
    valid : bool array
        Written.

    Returns
    -------
    row : int
        The row that is to be decoded next.
    code : int
        What has no room; `DONE` if all rows are decoded.
    """
    # Constants, where the compiler sees them: no cursors, and counts next to each other.
    target = ColumnTables(target.columns, target.levels, target.counts, target.fills, 0, 8, target.level_count)
    for row in range(first, len(at)):
        code, begin, size = INVALID, at[row], length[row]
        program = programs[schema[row] + 1]
        for attempt in range(2):
            if attempt == 1:
                if not bare or prefix[row] == 0:
                    break
                begin, size, program = begin - prefix[row], size + prefix[row], programs[0]
            if size < 0 or program == 0:
                break
            code = decode(target, program, stack, begin, begin + size, row)
            if code == DONE:
                break
            restore(target, row)
            if code != INVALID:
                return row, code
        if code != DONE:
            put_nulls(target, fill, fills, row)
        valid[row] = code == DONE
    return len(at), DONE
