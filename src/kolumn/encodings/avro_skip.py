"""Values of Avro that no column gets: what their lengths and blocks say is checked, and nothing is written."""

from kolumn.encodings.avro_steps import (
    A_AT,
    B_AT,
    FRAME,
    JUMP_AT,
    LIMIT_AT,
    NULL_AT,
    OPTIONAL,
    SKIP_BYTES,
    SKIP_JUMP,
    SKIP_LENGTH,
    SKIP_LIST,
    SKIP_LONG,
    SKIP_NUMBER,
    SKIP_UNION,
    STEP,
)
from kolumn.encodings.numbers import after_long, long_at, size_at
from kolumn.formats.memory import load8
from kolumn.machine_code.words import load64, store64

_SIGN = -(2**63)


def skip(program: int, pc: int, stack: int, at: int, end: int, free: int) -> tuple[int, int, int]:
    """As `skip_steps`. A backend may make it a function of its own, whose loop then has the registers for itself."""
    return skip_steps(program, pc, stack, at, end, free)


def skip_steps(program: int, pc: int, stack: int, at: int, end: int, free: int) -> tuple[int, int, int]:
    """Run the steps that write nothing, from the place ``pc`` on. ``free`` are the items without bytes that the value may have.

    Returns address, place and ``free`` after the last of these steps; the address is -1 if the value is not valid.
    """
    left, limit = 0, 0
    while at >= 0:
        s = program + pc
        kind = load64(s)
        if kind < SKIP_LENGTH:
            break
        if kind >= OPTIONAL:
            kind -= OPTIONAL
            if kind < SKIP_LENGTH:
                break
            value, at = size_at(at, end)
            if at < 0 or value < 0 or value > 1:
                return -1, pc, free
            if value == load64(s + NULL_AT):
                pc = load64(s + JUMP_AT)
                continue
        pc += STEP
        if kind == SKIP_LENGTH:
            value, at = size_at(at, end)
            if value < 0 or value > end - at - load64(s + A_AT):
                return -1, pc, free
            at = at + load64(s + A_AT) + value if at >= 0 else -1
        elif kind == SKIP_LONG:
            at = after_long(at, end)
        elif kind == SKIP_NUMBER:
            value, at = long_at(at, end)
            if value < load64(s + A_AT) or value > load64(s + B_AT):
                return -1, pc, free
        elif kind <= SKIP_LIST:
            if kind == SKIP_LIST:
                store64(stack, left)
                store64(stack + LIMIT_AT, limit)
                stack, left, limit = stack + FRAME, 0, 0
            if left == 0:
                left, at, limit, free = block(s, at, end, limit, free)
            left -= 1
            if (left < 0) == (kind == SKIP_LIST):
                pc = load64(s + JUMP_AT)
            if left < 0:
                stack -= FRAME
                left, limit = load64(stack), load64(stack + LIMIT_AT)
        elif kind == SKIP_JUMP:
            pc = load64(s + JUMP_AT)
        elif kind == SKIP_UNION:
            at, pc = branch_of(s, pc, at, end)
        elif kind == SKIP_BYTES:
            size = load64(s + B_AT)
            at = at + size if size <= end - at else -1
        else:
            at = at + 1 if at < end and load8(at, 0) <= 1 else -1
    return at, pc, free


def branch_of(s: int, pc: int, at: int, end: int) -> tuple[int, int]:
    """Address after the branch of a union, and place of the next step."""
    value, at = size_at(at, end)
    if at < 0 or value < 0 or value >= load64(s + B_AT):
        return -1, pc
    return at, load64(s + STEP * (value + 1) + JUMP_AT)


def block(s: int, at: int, end: int, limit: int, free: int) -> tuple[int, int, int, int]:
    """Items of the next block, the address after its head, where it has to end (0 if it does not say), items without bytes left.

    Blocks of lists that are skipped are skipped whole if they say their size.
    """
    if limit != 0 and at != limit:
        return 1, -1, 0, free
    limit = 0
    count, at = size_at(at, end)
    while at >= 0 and count < 0:
        size, at = long_at(at, end)
        if at < 0 or size < 0 or size > end - at or count == _SIGN:
            return 1, -1, 0, free
        if load64(s + A_AT) < 0:
            count, at = long_at(at + size, end)
        else:
            count, limit = -count, at + size
    if at < 0 or (load64(s + B_AT) == 0 and count > end - at):
        return 1, -1, 0, free
    if load64(s + B_AT) != 0:
        free -= count
        if free < 0:
            return 1, -1, 0, free
    return count, at, limit, free
