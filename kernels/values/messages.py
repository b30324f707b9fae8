"""Protobuf messages on the device: the program of `kolumn.values.wire.protobuf` run by a thread per message.

The passes are those of `passes`. What a thread has written it cannot take back. So it leaves a message to the host in which a string,
bytes or a message come again, or a second member of a oneof, or an unknown group. No serializer writes such messages.

Bound: the messages' bytes, read once, those from the first list or message on twice, and the columns' bytes, written once.
"""

from typing import NamedTuple

from kolumn.formats.machine_code.deferred import register_jitable
from kolumn.formats.machine_code.words import load32, load64, store8, store32, store64
from kolumn.formats.memory import load8
from kolumn.kernels.machine.kernel import Arguments, arguments, thread_per_item
from kolumn.kernels.values.passes import STAGED, Cells, WriteTables, counting, uncount, writing
from kolumn.values.wire.columns import DONE, INVALID, put_nulls
from kolumn.values.wire.protobuf import UNDECIDED, ProtobufProgram, write_message
from kolumn.values.wire.protobuf_wire import CHOICE, after_front, symbol_of

_DONE, _INVALID, _CHOICE, _UNDECIDED = DONE, INVALID, CHOICE, UNDECIDED
_SECOND = 1_000_000_000
_NEAR = 1 << 62
_FIRST_SECOND, _FIRST_NANO = divmod(-(2**63), _SECOND)
_LAST_SECOND, _LAST_NANO = divmod(2**63 - 1, _SECOND)


class MessageValues(NamedTuple):
    """What both passes take of the messages; addresses, but for the numbers.

    at … schema                           as in `kolumn.kernels.values.bodies.DeviceBodies`
    bare                                  1 if a body that is not valid may be a value without a prefix
    fronts, choices                       places among the tables, as `kolumn.values.wire.protobuf_wire.after_front` takes them: int64 of
                                          each framing, and a row of the reader's schema and of each writer's
    messages, fields, direct, symbols     places among the tables
    frames, frame_bytes                   memory for the frames of all threads, and how much one has
    """

    at: int
    length: int
    prefix: int
    framing: int
    schema: int
    bare: int
    fronts: int
    choices: int
    messages: int
    fields: int
    direct: int
    symbols: int
    frames: int
    frame_bytes: int


MessagePass = arguments(__name__, "MessagePass", MessageValues, Cells, WriteTables)
"""Arguments of both passes."""


@thread_per_item(MessagePass, block=128, staged=STAGED)
def measure_messages(i: int, tables: int, a: Arguments) -> None:
    """Write the columns of value ``i`` itself, what it takes elsewhere, and whether it is valid; or that the host has to look at it."""
    t, p, code, bare = counting(i, tables, a), _program(i, tables, a), _INVALID, 0
    while load32(a.length + 4 * i) >= 0:
        # Loaded again in the second turn: registers are few.
        at = load64(a.at + 8 * i)
        stop = at + load32(a.length + 4 * i)
        if bare == 0:
            choice = tables + a.choices + _CHOICE * (load32(a.schema + 4 * i) + 1)
            at = after_front(at, stop, load64(tables + a.fronts + 8 * load32(a.framing + 4 * i)), choice)
        else:
            at -= load32(a.prefix + 4 * i)
        if at >= 0:
            code = write_message(t, p, i, at, stop)
            if code == _DONE:
                break
            uncount(i, a)
        # A message may only look as if there were a prefix.
        if bare != 0 or a.bare == 0 or code > _DONE:
            break
        bare = 1
    if code == _UNDECIDED:
        store64(a.left, 1)
    if code != _DONE:
        put_nulls(t, a.first_fill, a.fills, i)
    store8(a.valid + i, 1 if code == _DONE else 0)


@thread_per_item(MessagePass, block=128, staged=STAGED)
def write_messages(i: int, tables: int, a: Arguments) -> None:
    """Write what is in lists of value ``i`` into the columns, from where the sums say."""
    t = writing(i, tables, a)
    p = _program(i, tables, a)
    begin, stop = load64(p.frames), load64(a.at + 8 * i) + load32(a.length + 4 * i)
    if load8(a.valid, i) != 0 and begin != 0:
        write_message(t, p, i, begin, stop)


@register_jitable
def _program(i: int, tables: int, a: Arguments) -> ProtobufProgram:
    """The tables of messages, and the memory of thread ``i``."""
    return ProtobufProgram(tables + a.messages, tables + a.fields, tables + a.direct, tables + a.symbols, a.frames + a.frame_bytes * i, 0)


class Moments(NamedTuple):
    """Arguments of `moments`: int64 ``seconds`` and int32 ``nanos`` of a Timestamp or Duration, uint8 ``flags`` of what is not null or 0;
    out: int64 ``target``, and int32 ``lengths``, -1 for null."""

    seconds: int
    nanos: int
    flags: int
    target: int
    lengths: int


@thread_per_item(Moments)
def moments(i: int, a: Moments) -> None:
    """Write the nanoseconds of row ``i``, as `kolumn.values.protobuf.finish` does; null if 64 bits do not hold them."""
    seconds, nanos = load64(a.seconds + 8 * i), load32(a.nanos + 4 * i)
    fine = (a.flags == 0 or load8(a.flags, i) != 0) and seconds >= -_NEAR and seconds < _NEAR
    if fine:
        while nanos < 0:
            nanos, seconds = nanos + _SECOND, seconds - 1
        while nanos >= _SECOND:
            nanos, seconds = nanos - _SECOND, seconds + 1
        fine = (seconds > _FIRST_SECOND or (seconds == _FIRST_SECOND and nanos >= _FIRST_NANO)) and (
            seconds < _LAST_SECOND or (seconds == _LAST_SECOND and nanos <= _LAST_NANO)
        )
    store64(a.target + 8 * i, seconds * _SECOND + nanos if fine else 0)
    store32(a.lengths + 4 * i, 0 if fine else -1)


class Symbols(NamedTuple):
    """Arguments of `symbols`: int32 ``numbers``; ``flags`` as in `Moments`; ``known`` as of `symbol_of`, 0 if the numbers are indexes
    already; int32 ``target``, -1 for null and for a number without a symbol."""

    numbers: int
    flags: int
    known: int
    target: int


@thread_per_item(Symbols)
def symbols(i: int, a: Symbols) -> None:
    """Write the index of the symbol of row ``i``."""
    index = -1
    if a.flags == 0 or load8(a.flags, i) != 0:
        index = load32(a.numbers + 4 * i)
        if a.known != 0:
            index = symbol_of(a.known, index)
    store32(a.target + 4 * i, index)
