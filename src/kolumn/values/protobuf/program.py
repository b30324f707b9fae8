"""Programs for the interpreter in `kolumn.values.wire.protobuf`: the tables of a message's fields that have columns."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from kolumn.core.arrays import Int64s
from kolumn.values.memory import ColumnLayout, LayoutNode
from kolumn.values.protobuf.types import Shape, is_closed, symbols
from kolumn.values.wire.protobuf import BITS, FIELD, MESSAGE
from kolumn.values.wire.protobuf_wire import BYTES, ENUM, FIXED8, KINDS, LENGTH, TEXT, VARINT, VARINT4, VARINT8, WIDTHS, WIRES

_DIRECT = 256
"""Numbers below it may be looked up directly."""


@dataclass(frozen=True)
class Tables:
    """The tables of a program as int64; they do not change, so threads share them."""

    messages: Int64s
    fields: Int64s
    direct: Int64s
    symbols: Int64s


@dataclass
class _Writer:
    messages: list[list[int]] = field(default_factory=list)
    fields: list[list[int]] = field(default_factory=list)
    direct: list[int] = field(default_factory=list)
    symbols: list[int] = field(default_factory=list)
    todo: deque[tuple[int, Shape, tuple[LayoutNode, ...]]] = field(default_factory=deque)

    def message(self, shape: Shape, nodes: tuple[LayoutNode, ...], fill: tuple[int, int], entries: tuple[int, int]) -> int:
        """Place of a new message, whose fields are at ``nodes``; they are written later."""
        self.messages.append([0, 0, 0, 0, 0, *fill, *entries, 0, 0])
        self.todo.append((len(self.messages) - 1, shape, nodes))
        return MESSAGE * (len(self.messages) - 1)

    def fill_message(self, number: int, shape: Shape, nodes: tuple[LayoutNode, ...]) -> None:
        """Write the fields of a message, by their numbers."""
        ordered = sorted(zip(shape.fields, nodes, strict=True), key=lambda pair: pair[0].number)
        first = len(self.fields)
        places = {one.number: FIELD * (first + k) for k, (one, _) in enumerate(ordered)}
        for k, (one, node) in enumerate(ordered):
            bit = 1 << k if len(ordered) <= BITS else 0
            after = FIELD * (first + (k + 1) % len(ordered))
            self.fields.append(self.field(one, node, bit, _ring(one, places), FIELD * (first + k), after))
        count = min(max(places, default=-1) + 1, _DIRECT)
        row = self.messages[number]
        row[-1] = 1 | sum(1 << one for one in places if one < 16)
        row[:5] = [FIELD * first, len(ordered), 8 * len(self.direct), count, sum(one[6] for one in self.fields[first:])]
        self.direct += [places.get(one, -1) for one in range(count)]

    def field(self, one: Shape, node: LayoutNode, bit: int, ring: int, own: int, after: int) -> list[int]:
        """Row of a field."""
        kind = KINDS[one.field.type]
        if kind == ENUM and not is_closed(one.field.enum_type):
            kind = VARINT4
        repeated = bool(one.field.is_repeated)
        tag, other, following = one.number << 3 | WIRES.get(kind, VARINT), -1, after
        if repeated and kind <= ENUM:
            other = one.number << 3 | LENGTH
            if one.field.is_packed:
                tag, other = other, tag
        if (repeated and tag & 7 != LENGTH) or kind >= BYTES:
            following = own if repeated else after
        element = node.children[0] if one.is_list else node
        message = -1
        if one.is_map:
            message = self.message(one, node.children, (0, 0), (node.child_level, node.column))
        elif one.is_message:
            message = self.message(one, element.children, (element.first_fill, element.fills), (-1, -1))
        level = node.child_level if repeated else 0
        listed = self.enum(one) if kind == ENUM else -1
        plain = -1 if repeated or ring >= 0 else {VARINT4: VARINT8, VARINT8: VARINT8, FIXED8: FIXED8, TEXT: TEXT}.get(kind, -1)
        return [tag, other, kind, node.column, level, message, bit, ring, following, node.first_fill, node.fills, listed, element.column,
                WIDTHS.get(kind, 0), plain]  # fmt: skip

    def enum(self, one: Shape) -> int:
        """Place of the symbols of a closed enum, in bytes."""
        place = 8 * len(self.symbols)
        index = {number: k for k, number in enumerate(symbols(one.field.enum_type))}
        numbers = sorted(index)
        self.symbols += [len(numbers), *numbers, *(index[number] for number in numbers)]
        return place


def _ring(one: Shape, places: dict[int, int]) -> int:
    """The next member of the oneof that has a column, of the last one the first; -1 without one."""
    oneof = one.field.containing_oneof
    members = [] if oneof is None else sorted(member.number for member in oneof.fields if member.number in places)
    if len(members) < 2:
        return -1
    return places[members[(members.index(one.number) + 1) % len(members)]]


def tables(shape: Shape, layout: ColumnLayout) -> Tables:
    """The tables of a message; ``layout`` is that of its raw type."""
    made = _Writer()
    root = layout.root
    made.message(shape, root.children, (root.first_fill, root.fills), (-1, -1))
    made.messages[0][-2] = root.column
    while made.todo:
        made.fill_message(*made.todo.popleft())
    # A message without fields expects the row after the last field, which no tag matches.
    made.fields.append([-1, -1, *[0] * (FIELD // 8 - 2)])
    for row in made.messages:
        if row[1] == 0:
            row[0] = FIELD * (len(made.fields) - 1)
    assert all(len(row) == MESSAGE // 8 for row in made.messages)
    return Tables(*(np.array(one, np.int64).reshape(-1) for one in (made.messages, made.fields, made.direct, made.symbols)))
