"""Protobuf messages on the device: the program of `kolumn.values.wire.protobuf` run by a thread per message, in the passes of `passes`.

What a thread has written it cannot take back. So it leaves a message to the host in which a string, bytes or a message come again, or a
second member of a oneof, or an unknown group. No serializer writes such messages. A time outside of its unit, and a number of an open enum
without a symbol, leave all messages to the host. Bound: the messages' bytes, read once, those from the
first list or message on twice, and the columns' bytes, written once.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from kolumn.core.deferred import register_jitable
from kolumn.core.errors import ArgumentError
from kolumn.formats.memory import load8
from kolumn.formats.words import load32, load64, store8, store32, store64
from kolumn.kernels.columns.table import Column, begin_labels, finished, nullable
from kolumn.kernels.machine.kernel import Arguments, arguments, thread_per_item
from kolumn.kernels.machine.runtime import Memory, Runtime
from kolumn.kernels.values.bodies import DeviceBodies
from kolumn.kernels.values.passes import STAGED, Cells, WriteTables, counting, uncount, writing
from kolumn.kernels.values.typed import LayoutColumns, kind_of
from kolumn.values.memory import LayoutNode
from kolumn.values.protobuf import BARE_FRONTS, FRONTS, ProtobufDecoder
from kolumn.values.protobuf_schema import JSON, TIMES, Shape, has_required, is_closed
from kolumn.values.protobuf_schema import symbols as symbols_of
from kolumn.values.wire.columns import DONE, INVALID, put_nulls
from kolumn.values.wire.protobuf import BITS, FRAME, UNDECIDED, ProtobufProgram, write_message
from kolumn.values.wire.protobuf_wire import CHOICE, after_front, symbol_of

_SECOND = 1_000_000_000
_NEAR = 1 << 62
_FIRST_SECOND, _FIRST_NANO = divmod(-(2**63), _SECOND)
_LAST_SECOND, _LAST_NANO = divmod(2**63 - 1, _SECOND)
MessageValues = arguments(
    __name__, "MessageValues",
    "at length prefix framing schema bare fronts choices messages fields direct symbols frames frame_bytes",
)  # fmt: skip
"""What both passes take of the messages; addresses, but for the numbers.

at … schema                           as in `kolumn.kernels.values.bodies.DeviceBodies`
bare                                  1 if a body that is not valid may be a value without a prefix
fronts, choices                       places among the tables, as `kolumn.values.wire.protobuf_wire.after_front` takes them: int64 of
                                      each framing, and a row of the reader's schema and of each writer's
messages, fields, direct, symbols     places among the tables
frames, frame_bytes                   memory for the frames of all threads, and how much one has"""
MessagePass = arguments(__name__, "MessagePass", MessageValues, Cells, WriteTables)
"""Arguments of both passes."""


@thread_per_item(MessagePass, block=128, staged=STAGED)
def measure_messages(i: int, tables: int, a: Arguments) -> None:
    """Write the columns of value ``i`` itself, what it takes elsewhere, and whether it is valid; or that the host has to look at it."""
    t, p, code, bare = counting(i, tables, a), _program(i, tables, a), INVALID, 0
    while load32(a.length + 4 * i) >= 0:
        # Loaded again in the second turn: registers are few.
        at = load64(a.at + 8 * i)
        stop = at + load32(a.length + 4 * i)
        if bare == 0:
            choice = tables + a.choices + CHOICE * (load32(a.schema + 4 * i) + 1)
            at = after_front(at, stop, load64(tables + a.fronts + 8 * load32(a.framing + 4 * i)), choice)
        else:
            at -= load32(a.prefix + 4 * i)
        if at >= 0:
            code = write_message(t, p, i, at, stop)
            if code == DONE:
                break
            uncount(i, a)
        # A message may only look as if there were a prefix.
        if bare != 0 or a.bare == 0 or code > DONE:
            break
        bare = 1
    if code == UNDECIDED:
        store64(a.left, 1)
    if code != DONE:
        put_nulls(t, a.first_fill, a.fills, i)
    store8(a.valid + i, 1 if code == DONE else 0)


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


Moments = arguments(__name__, "Moments", "seconds nanos flags target lengths odd")
"""Arguments of `moments`: int64 ``seconds`` and int32 ``nanos`` of a Timestamp or Duration, uint8 ``flags`` of what is not null or 0;
out: int64 ``target``, int32 ``lengths``, -1 for null, and int64 ``odd``, which becomes 1 if 64 bits do not hold a time."""


@thread_per_item(Moments)
def moments(i: int, a: Arguments) -> None:
    """Write the nanoseconds of row ``i``, as `kolumn.values.protobuf_columns` does."""
    seconds, nanos = load64(a.seconds + 8 * i), load32(a.nanos + 4 * i)
    there = a.flags == 0 or load8(a.flags, i) != 0
    fine = there and seconds >= -_NEAR and seconds < _NEAR
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
    if there and not fine:
        store64(a.odd, 1)


Symbols = arguments(__name__, "Symbols", "numbers flags known target odd")
"""Arguments of `symbols`: int32 ``numbers``; ``flags`` as in `Moments`; ``known`` as of `symbol_of`, 0 if the numbers are indexes
already; int32 ``target``, -1 for null; int64 ``odd``, which becomes 1 if a number has no symbol."""


@thread_per_item(Symbols)
def symbols(i: int, a: Arguments) -> None:
    """Write the index of the symbol of row ``i``."""
    index = -1
    if a.flags == 0 or load8(a.flags, i) != 0:
        index = load32(a.numbers + 4 * i)
        if a.known != 0:
            index = symbol_of(a.known, index)
        if index < 0:
            store64(a.odd, 1)
    store32(a.target + 4 * i, index)


@dataclass(frozen=True)
class Messages:
    """A message that a GPU decodes, what decodes it on the host, and how many messages are around a message at most."""

    decoder: ProtobufDecoder
    depth: int

    @classmethod
    def of(cls, decoder: ProtobufDecoder) -> "Messages":
        """Check a message; `ArgumentError` if the host has to decode it: it has a map, a required field, JSON text, times in another unit
        than ns, or one of more than 62 fields."""
        whole = decoder.shape
        if not whole.fields:
            raise ArgumentError("a message without fields has no columns")
        if has_required(whole):
            raise ArgumentError("required fields are looked for on the host")
        return cls(decoder, _depth(whole))


def _depth(shape: Shape) -> int:
    """Messages around a message in this one, at most; checks each."""
    if shape.is_map:
        raise ArgumentError(f"{shape.name}: keys of a map that come again are looked for on the host")
    for one in shape.fields:
        if one.special == JSON or (one.special in TIMES and one.one_type.unit != "ns"):
            what = "JSON text" if one.special == JSON else "a time in another unit than ns"
            raise ArgumentError(f"{one.name}: {what} is made on the host")
    if len(shape.fields) > BITS:
        raise ArgumentError(f"{shape.name}: a message of more than {BITS} fields is decoded on the host")
    if not shape.special and not shape.fields:
        kind_of(shape.one_type)
    return max((1 + _depth(one) for one in shape.fields if one.is_message), default=0)


def parse_messages(device: Runtime, bodies: DeviceBodies, how: Messages) -> tuple[Column, Column] | None:
    """The struct column of messages, and flags of the values that are messages; None if the host has to decode them. That is so if the
    thread of a message leaves it to the host, or a column does not hold a value."""
    n, decoder, layout, tables = bodies.count, how.decoder, how.decoder.layout, how.decoder.tables
    choices, names = decoder.choices(bodies.schemas, lambda data: device.upload(np.frombuffer(data or b"\0", np.uint8)))
    frame_bytes = FRAME * (how.depth + 1)
    given = [BARE_FRONTS if bodies.bare else FRONTS, choices, tables.messages, tables.fields, tables.direct, tables.symbols]
    made = _MessageColumns(device, layout, n, given, [frame_bytes * n])
    (fronts, chosen, *program), (frames,) = made.given, made.room
    own = (
        bodies.at, bodies.length, bodies.prefix, bodies.framing, bodies.schema, int(bodies.bare), fronts, chosen, *program,
        frames, frame_bytes,
    )  # fmt: skip
    left = made.written(own, measure_messages, write_messages)
    del names
    if left:
        return None
    column = made.message(decoder.shape)
    return None if made.is_odd else (column, made.valid)


class _MessageColumns(LayoutColumns):
    """Makes the columns of a message of its raw ones, as `kolumn.values.protobuf` does on the host."""

    odd: Memory | None = None

    def message(self, shape: Shape) -> Column:
        self.mark()
        return self.struct(shape, self.layout.root)

    @property
    def is_odd(self) -> bool:
        """Whether a column does not hold a value; a wait if one can be so."""
        return self.odd is not None and bool(self.device.download(self.odd, 8).view(np.int64)[0])

    def noted(self) -> Memory:
        """The word that becomes 1 if a column does not hold a value."""
        self.odd = self.odd or self.device.zeros(8)
        return self.odd

    def struct(self, shape: Shape, node: LayoutNode) -> Column:
        mask, nulls = self.masks.get(node.column, (None, 0))
        inner = tuple(self.field(one, child) for one, child in zip(shape.fields, node.children, strict=True))
        names = tuple(one.name for one in shape.fields)
        return Column("struct", self.rows[node.level], None, mask, nulls, inner, names)

    def field(self, shape: Shape, node: LayoutNode) -> Column:
        if not shape.is_list:
            return self.value(shape, node)
        rows, ends = self.rows[node.level], self.made[node.column].ends
        return Column("list", rows, children=(Column("int32", rows + 1, ends), self.value(shape, node.children[0])))

    def value(self, shape: Shape, node: LayoutNode) -> Column:
        mask, nulls = self.masks.get(node.column, (None, 0))
        if shape.special in TIMES:
            return self.times(node, kind_of(shape.one_type))
        if shape.special:
            return replace(self.node(node.children[0]), bitmap=mask, nulls=nulls)
        if shape.is_message:
            return self.struct(shape, node)
        return self.enum(shape, node) if pa.types.is_dictionary(shape.one_type) else self.node(node)

    def times(self, node: LayoutNode, kind: str) -> Column:
        rows, device = self.rows[node.level], self.device
        seconds, nanos = (self.made[child.column].data for child in node.children)
        target, lengths = device.empty(8 * rows), device.empty(4 * rows)
        device.launch(moments, rows, Moments(seconds, nanos, self.flags(node), target, lengths, self.noted()))
        return nullable(device, kind, target, lengths, rows)

    def enum(self, shape: Shape, node: LayoutNode) -> Column:
        """Names of the numbers of an open enum, or of the indexes of a closed one."""
        rows, device, names = self.rows[node.level], self.device, symbols_of(shape.field.enum_type)
        order = sorted(range(len(names)), key=list(names).__getitem__)
        known = device.upload(np.array([len(names), *sorted(names), *order], np.int64))
        indexes = device.empty(4 * rows)
        table = None if is_closed(shape.field.enum_type) else known
        device.launch(symbols, rows, Symbols(self.made[node.column].data, self.flags(node), table, indexes, self.noted()))
        return finished(device, begin_labels(device, indexes.address, list(names.values()), rows))

    def flags(self, node: LayoutNode) -> Memory | None:
        """What says which rows are not null; of fields that cannot be null, which values are valid; None without any."""
        valid = self.made[node.column].valid if node.column >= 0 else None
        if valid is None and node.level == 0:
            valid = self.made[self.layout.root.column].valid
        return valid
