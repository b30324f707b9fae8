"""Steps of `kolumn.values.wire.avro` from a plan: what a value of one writer's schema writes into the columns of a layout."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from kolumn.core.arrays import Int64s
from kolumn.values.avro import types
from kolumn.values.avro.resolve import Branches, Items, Member, MismatchError, Plan, RecordFields, Skip, Value, may_be_empty
from kolumn.values.avro.schema import SchemaNode
from kolumn.values.avro.types import TIMES, Constant, decimal_bytes, members
from kolumn.values.memory import LayoutNode
from kolumn.values.wire import avro

MOST_STEPS = 1 << 17
_NUMBERS = {
    ("int", "int"): (avro.INT, 0, 0),
    ("int", "long"): (avro.INT_TO_LONG, 0, 0),
    ("long", "long"): (avro.LONG, 0, 0),
    ("int", "float"): (avro.INT_TO_FLOAT, 1, 0),
    ("int", "double"): (avro.INT_TO_DOUBLE, 1, 0),
    ("long", "float"): (avro.INT_TO_FLOAT, 0, 0),
    ("long", "double"): (avro.INT_TO_DOUBLE, 0, 0),
    ("float", "float"): (avro.FLOAT, 0, 4),
    ("float", "double"): (avro.FLOAT_TO_DOUBLE, 0, 4),
    ("double", "double"): (avro.DOUBLE, 0, 8),
    ("boolean", "boolean"): (avro.BOOLEAN, 0, 1),
}
"""Kind, word a, word b for numbers of a writer and a reader."""
_RANGES = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}
_SIZES = {"float": 4, "double": 8}


@dataclass(frozen=True)
class AvroProgram:
    """Words of a program in host memory, and how many frames its stack needs."""

    words: Int64s
    frames: int


def program(plan: Plan, root: LayoutNode) -> AvroProgram:
    """The program for values that fill ``root``, the outermost node of a layout; raises `MismatchError` if it is too long."""
    steps = Steps()
    steps.plan(plan, root)
    return steps.ended()


@dataclass
class Steps:
    """Steps so far. Words that count steps, or are places of constants, are made bytes at the end.

    ``optional`` is what the next step takes along: the fills of what becomes null, and the branch of null.
    """

    rows: list[list[int]] = field(default_factory=list)
    constants: bytearray = field(default_factory=bytearray)
    placed: list[int] = field(default_factory=list)
    depth: int = 0
    frames: int = 1
    optional: list[int] | None = None
    empty: dict[SchemaNode, bool] = field(default_factory=dict)
    skipped: int = 0

    def add(self, kind: int, column: int = 0, a: int = 0, b: int = 0, jump: int = 0, data: bytes | None = None) -> int:
        """Append a step; with ``data``, ``a`` is the place of these bytes."""
        row = [kind, column, a, jump, b, 0, 0, 0]
        if self.optional is not None:
            row[0], row[5:], self.optional = kind + avro.OPTIONAL, self.optional, None
        if data is not None:
            self.placed.append(len(self.rows))
            row[2] = len(self.constants)
            self.constants += data + bytes(-len(data) % 8)
        self.rows.append(row)
        if len(self.rows) > MOST_STEPS:
            raise MismatchError("the schemas are too large")
        return len(self.rows) - 1

    def ended(self) -> AvroProgram:
        """All words, with a last step at which the value has to end."""
        self.add(avro.END)
        table = np.array(self.rows, np.int64)
        table[:, 3] *= avro.STEP
        table[self.placed, 2] += table.nbytes
        return AvroProgram(np.concatenate([table.ravel(), np.frombuffer(bytes(self.constants), np.int64)]), self.frames)

    def plan(self, plan: Plan, place: LayoutNode) -> None:
        """Steps of a part. All but those of unions write ``place``'s validity."""
        match plan:
            case Value():
                self._value(plan.writer, plan.reader, place)
            case Skip():
                self.skip(plan.writer)
            case RecordFields():
                self._valid(place)
                children = {one.name: one for one in place.children}
                for name, part in plan.parts:
                    self.plan(part, children.get(name, place))
            case Items():
                begin = self._begin_list(place.column, place.child_level, plan.empties)
                if plan.is_map:
                    self.add(avro.TEXT, place.children[0].column)
                self.plan(plan.item, place.children[-1])
                self._end_list(begin)
            case Branches():
                self._branches(plan, place)
            case Member():
                self._member(plan, place)
            case Constant():
                self._constant(plan, place)

    def _valid(self, place: LayoutNode) -> None:
        """A step that writes that a struct is not null, if it can be."""
        if place.column >= 0:
            self.add(avro.VALID, place.column)

    def _value(self, writer: SchemaNode, reader: SchemaNode, place: LayoutNode) -> None:
        pair = writer.kind, reader.kind
        width = decimal_bytes(reader)
        if writer.kind == "null":
            return
        times = None if reader.logical is None else TIMES.get(reader.logical.name)
        if times is not None:
            self.add(avro.TIME, place.column, min(times - 1, _RANGES[writer.kind][1]), place.width)
        elif pair in _NUMBERS:
            kind, a, b = _NUMBERS[pair]
            self.add(kind, place.column, a, b)
        elif writer.kind == "enum":
            other = -1 if reader.default is None else reader.symbols.index(reader.default)
            known = {symbol: index for index, symbol in enumerate(reader.symbols)}
            indexes = [known.get(symbol, other) for symbol in writer.symbols]
            self.add(avro.ENUM, place.column, b=len(indexes), data=np.array(indexes, np.int64).tobytes())
        elif width:
            assert reader.logical is not None
            most = 10**reader.logical.precision - 1
            data = b"".join(one.to_bytes(width, "little", signed=True) for one in (most, -most)) + writer.size.to_bytes(8, "little")
            self.add(avro.DECIMAL if writer.kind == "fixed" else avro.DECIMAL_BYTES, place.column, b=width, data=data)
        elif writer.kind == "fixed":
            is_duration = reader.logical is not None and reader.logical.name == "duration"
            self.add(avro.DURATION if is_duration else avro.FIXED, place.column, b=writer.size)
        else:
            self.add(avro.TEXT if reader.kind == "string" else avro.BYTES, place.column)

    def _begin_list(self, column: int, level: int, empties: bool) -> int:
        begin = self.add(avro.LIST if level >= 0 else avro.SKIP_LIST, column, level, int(empties))
        self.depth += 1
        self.frames = max(self.frames, self.depth)
        return begin

    def _end_list(self, begin: int) -> None:
        _, column, level, _, empties = self.rows[begin][:5]
        self.add(avro.NEXT if level >= 0 else avro.SKIP_NEXT, column, level, empties, begin + 1)
        self.rows[begin][3] = len(self.rows)
        self.depth -= 1

    def _branches(self, plan: Branches, place: LayoutNode) -> None:
        nulls = [number for number, one in enumerate(plan.branches) if isinstance(one, Member) and one.number < 0]
        if len(plan.branches) == 2 and len(nulls) == 1:
            other = plan.branches[1 - nulls[0]]
            if isinstance(other, Member) and len(members(other.union)) == 1 and isinstance(other.value, Value | Items | RecordFields):
                value = other.value
                self._optional([place.first_fill, place.fills, nulls[0]], lambda: self.plan(value, place))
                return
        self._union([None if one is None else partial(self.plan, one, place) for one in plan.branches])

    def _optional(self, taken: list[int], value: Callable[[], None]) -> None:
        """A value or null: the first step of the value reads the branch. The value has a step."""
        self.optional = taken
        begin = len(self.rows)
        value()
        if self.rows[begin][0] - avro.OPTIONAL not in (avro.LIST, avro.SKIP_LIST):
            self.rows[begin][3] = len(self.rows)

    def _union(self, branches: Sequence[Callable[[], None] | None], skips: bool = False) -> None:
        jump = avro.SKIP_JUMP if skips else avro.JUMP
        begin = self.add(avro.SKIP_UNION if skips else avro.UNION, b=len(branches))
        for _ in branches:
            self.add(jump)
        ends = []
        for number, branch in enumerate(branches):
            self.rows[begin + 1 + number][3] = len(self.rows)
            if branch is None:
                self.add(avro.FAIL)
            else:
                branch()
                ends.append(self.add(jump))
        for end in ends:
            self.rows[end][3] = len(self.rows)

    def _member(self, plan: Member, place: LayoutNode) -> None:
        if plan.number < 0:
            self._nulls(place)
        elif len(members(plan.union)) == 1:
            self.plan(plan.value, place)
        else:
            self._valid(place)
            for number, child in enumerate(place.children):
                if number == plan.number:
                    self.plan(plan.value, child)
                else:
                    self._nulls(child)

    def _nulls(self, place: LayoutNode) -> None:
        row = self.add(avro.NULLS)
        self.rows[row][5:7] = place.first_fill, place.fills

    def _constant(self, plan: Constant, place: LayoutNode) -> None:
        if plan.kind == types.NULL:
            self._nulls(place)
        elif plan.kind == types.WORD:
            self.add(avro.WORD, place.column, plan.bits, plan.width)
        elif plan.kind == types.BYTES:
            self.add(avro.CONSTANT, place.column, b=len(plan.data), data=plan.data)
        elif plan.kind == types.FIXED:
            self.add(avro.CONSTANT_FIXED, place.column, b=len(plan.data), data=plan.data)
        elif plan.kind == types.FIELDS:
            self._valid(place)
            children = {one.name: one for one in place.children}
            for name, part in plan.parts:
                self._constant(part, children[name])
        else:
            self.add(avro.OPEN)
            self.depth += 1
            self.frames = max(self.frames, self.depth)
            for name, part in plan.parts:
                if name != "value":
                    self.add(avro.ITEM, a=place.child_level)
                self._constant(part, place.children[-1] if name == "value" else place.children[0])
            self.add(avro.CLOSE, place.column, place.child_level)
            self.depth -= 1

    def skip(self, node: SchemaNode) -> None:
        """Steps over a value of the writer's that no column gets."""
        self.skipped += 1
        if self.skipped > MOST_STEPS:
            raise MismatchError("the schemas are too large")
        if node.kind == "record":
            for one in node.fields:
                self.skip(one.type)
        elif node.kind in ("array", "map"):
            begin = self._begin_list(0, -1, node.kind == "array" and may_be_empty(node.inner, self.empty))
            if node.kind == "map":
                self.add(avro.SKIP_LENGTH)
            self.skip(node.inner)
            self._end_list(begin)
        elif node.kind == "union":
            self._skip_union(node)
        elif node.kind == "enum":
            self.add(avro.SKIP_NUMBER, 0, 0, len(node.symbols) - 1)
        elif node.kind == "boolean":
            self.add(avro.SKIP_BOOLEAN)
        elif node.kind == "long":
            self.add(avro.SKIP_LONG)
        elif node.kind in _RANGES:
            self.add(avro.SKIP_NUMBER, 0, *_RANGES[node.kind])
        elif node.kind in ("bytes", "string"):
            self.add(avro.SKIP_LENGTH)
        elif node.kind != "null":
            self._skip_bytes(node.size if node.kind == "fixed" else _SIZES[node.kind])

    def _skip_bytes(self, size: int) -> None:
        """Bytes are skipped together with the length or the bytes before them. Nothing jumps in between: such steps are of other kinds."""
        before = self.rows[-1][0] if self.rows and self.optional is None else -1
        if before == avro.SKIP_LENGTH:
            self.rows[-1][2] += size
        elif before == avro.SKIP_BYTES:
            self.rows[-1][4] += size
        else:
            self.add(avro.SKIP_BYTES, b=size)

    def _skip_union(self, node: SchemaNode) -> None:
        kinds = [one.kind for one in node.branches]
        if len(kinds) == 2 and kinds.count("null") == 1 and "record" not in kinds:
            null = kinds.index("null")
            self._optional([0, 0, null], partial(self.skip, node.branches[1 - null]))
        else:
            self._union([partial(self.skip, one) for one in node.branches], skips=True)
