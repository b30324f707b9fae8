"""Columns of Protobuf messages on the device: the tables of a message there, the two passes, and the types that come out."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from kolumn.core.errors import ArgumentError
from kolumn.kernels.columns.table import Column, begin_labels, finished, nullable
from kolumn.kernels.machine.runtime import Runtime
from kolumn.kernels.values.bodies import DeviceBodies
from kolumn.kernels.values.messages import Moments, Symbols, measure_messages, moments, symbols, write_messages
from kolumn.kernels.values.typed import LayoutColumns, address_of, kind_of
from kolumn.values.memory import LayoutNode
from kolumn.values.protobuf.decoder import BARE_FRONTS, FRONTS, ProtobufDecoder
from kolumn.values.protobuf.types import TIMES, Shape, has_required, is_closed
from kolumn.values.protobuf.types import symbols as symbols_of
from kolumn.values.wire.protobuf import BITS, FRAME


@dataclass(frozen=True)
class Messages:
    """A message that a GPU decodes, what decodes it on the host, and how many messages are around a message at most."""

    decoder: ProtobufDecoder
    depth: int

    @classmethod
    def of(cls, decoder: ProtobufDecoder) -> "Messages":
        """Check a message; `ArgumentError` if the host has to decode it: it has a map, a required field, or one of more than 62 fields."""
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
    if len(shape.fields) > BITS:
        raise ArgumentError(f"{shape.name}: a message of more than {BITS} fields is decoded on the host")
    if not shape.special and not shape.fields:
        kind_of(shape.type.value_type if shape.is_list else shape.type)
    return max((1 + _depth(one) for one in shape.fields if one.is_message), default=0)


def parse_messages(device: Runtime, bodies: DeviceBodies, how: Messages) -> tuple[Column, Column] | None:
    """The struct column of messages, and flags of the values that are messages; None if the host has to decode them.

    That is so if the thread of a message leaves it to the host.
    """
    n, decoder = bodies.count, how.decoder
    layout, tables = decoder.layout, decoder.tables
    choices, names = decoder.choices(bodies.schemas, lambda data: device.upload(np.frombuffer(data or b"\0", np.uint8)))
    before = BARE_FRONTS if bodies.bare else FRONTS
    frame_bytes = FRAME * (how.depth + 1)
    given = [before, choices, tables.messages, tables.fields, tables.direct, tables.symbols]
    made = _MessageColumns(device, layout, n, given, [frame_bytes * n])
    fronts, chosen, *program = made.given
    (frames,) = made.room
    own = (
        bodies.at.address, bodies.length.address, bodies.prefix.address, bodies.framing.address, bodies.schema.address,
        int(bodies.bare), fronts, chosen, *program, frames.address, frame_bytes,
    )  # fmt: skip
    left = made.written(own, measure_messages, write_messages)
    del names
    return None if left else (made.message(decoder.shape), made.valid)


class _MessageColumns(LayoutColumns):
    """Makes the columns of a message of its raw ones, as `kolumn.values.protobuf.finish` does on the host."""

    def message(self, shape: Shape) -> Column:
        """The column of the values."""
        self.mark()
        return self.struct(shape, self.layout.root)

    def struct(self, shape: Shape, node: LayoutNode) -> Column:
        """Messages with their fields."""
        bitmap, nulls = self.masks.get(node.column, (None, 0))
        inner = tuple(self.field(one, child) for one, child in zip(shape.fields, node.children, strict=True))
        names = tuple(one.name for one in shape.fields)
        return Column("struct", self.rows[node.level], None, bitmap if nulls else None, nulls, inner, names)

    def field(self, shape: Shape, node: LayoutNode) -> Column:
        """A field."""
        if not shape.is_list:
            return self.value(shape, node)
        rows, ends = self.rows[node.level], self.made[node.column].ends
        return Column("list", rows, children=(Column("int32", rows + 1, ends), self.value(shape, node.children[0])))

    def value(self, shape: Shape, node: LayoutNode) -> Column:
        """A value of a field, or the elements of its list."""
        bitmap, nulls = self.masks.get(node.column, (None, 0))
        type = shape.type.value_type if shape.is_list else shape.type
        if shape.special in TIMES:
            return self.times(node, kind_of(type))
        if shape.special:
            return replace(self.node(node.children[0]), bitmap=bitmap if nulls else None, nulls=nulls)
        if shape.is_message:
            return self.struct(shape, node)
        return self.enum(shape, node) if pa.types.is_dictionary(type) else self.node(node)

    def times(self, node: LayoutNode, kind: str) -> Column:
        """Timestamps or durations of seconds and nanoseconds."""
        rows, device = self.rows[node.level], self.device
        seconds, nanos = (address_of(self.made[child.column].data) for child in node.children)
        target, lengths = device.empty(8 * rows), device.empty(4 * rows)
        device.launch(moments, rows, Moments(seconds, nanos, self.flags(node), target.address, lengths.address))
        return nullable(device, kind, target, lengths, rows)

    def enum(self, shape: Shape, node: LayoutNode) -> Column:
        """Names of the numbers of an open enum, or of the indexes of a closed one."""
        rows, device, names = self.rows[node.level], self.device, symbols_of(shape.field.enum_type)
        order = sorted(range(len(names)), key=list(names).__getitem__)
        known = device.upload(np.array([len(names), *sorted(names), *order], np.int64))
        indexes = device.empty(4 * rows)
        table = 0 if is_closed(shape.field.enum_type) else known.address
        device.launch(symbols, rows, Symbols(address_of(self.made[node.column].data), self.flags(node), table, indexes.address))
        return finished(device, begin_labels(device, indexes.address, list(names.values()), rows))

    def flags(self, node: LayoutNode) -> int:
        """Address of what says which rows are not null; of fields that cannot be null, which values are valid; 0 without any."""
        valid = self.made[node.column].valid if node.column >= 0 else None
        if valid is None and node.level == 0:
            valid = self.made[self.layout.root.column].valid
        return address_of(valid)
