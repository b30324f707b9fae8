"""Decodes Avro values: one program for each writer's schema, all of which fill the columns of one reader's schema. A program has steps of
`kolumn.values.wire.avro`, made from a plan: what a value writes into the columns of a layout.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Flags, Int64s
from kolumn.core.errors import ArgumentError, shown
from kolumn.cpu_fallback.values.avro import decode_rows
from kolumn.formats.words import load64
from kolumn.values import avro_resolve as resolve
from kolumn.values.avro_resolve import Branches, Constant, Member, MismatchError, Plan, RecordFields, Skip, Value, may_be_empty, members
from kolumn.values.avro_schema import SchemaNode, parse, title
from kolumn.values.decoder import Bodies, Salvaged, nothing_salvaged
from kolumn.values.memory import LARGEST, ColumnLayout, ColumnMemory, LayoutNode, shared_bytes
from kolumn.values.schemas.schema import Schema, Schemas, UnreadableSchemasError
from kolumn.values.wire import avro
from kolumn.values.wire.columns import DONE

logger = logging.getLogger("kolumn")
MOST_STEPS = 1 << 17
_NUMBERS = {
    ("int", "int"): (avro.INT, 0, 0), ("int", "long"): (avro.INT_TO_LONG, 0, 0), ("long", "long"): (avro.LONG, 0, 0),
    ("int", "float"): (avro.INT_TO_FLOAT, 1, 0), ("int", "double"): (avro.INT_TO_DOUBLE, 1, 0),
    ("long", "float"): (avro.INT_TO_FLOAT, 0, 0), ("long", "double"): (avro.INT_TO_DOUBLE, 0, 0),
    ("float", "float"): (avro.FLOAT, 0, 4), ("float", "double"): (avro.FLOAT_TO_DOUBLE, 0, 4), ("double", "double"): (avro.DOUBLE, 0, 8),
    ("boolean", "boolean"): (avro.BOOLEAN, 0, 1),
}  # fmt: skip
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
    """Steps so far. Words that count steps, or are places of constants, are made bytes at the end. ``optional`` is what the next step takes
    along: the fills of what becomes null, and the branch of null.
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

    def plan(self, plan: Plan, node: LayoutNode) -> None:
        """Steps of a part. All but those of unions write the validity of its ``node``."""
        match plan:
            case Value():
                self._value(plan.writer, plan.reader, node)
            case Skip():
                self.skip(plan.writer)
            case RecordFields():
                self._valid(node)
                children = {child.name: child for child in node.children}
                for name, part in plan.parts:
                    self.plan(part, children.get(name, node))
            case resolve.Items():
                begin = self._begin_list(node.column, node.child_level, plan.empties)
                if plan.is_map:
                    self.add(avro.TEXT, node.children[0].column)
                self.plan(plan.item, node.children[-1])
                self._end_list(begin)
            case Branches():
                self._branches(plan, node)
            case Member():
                self._member(plan, node)
            case Constant():
                self._constant(plan, node)

    def _valid(self, node: LayoutNode) -> None:
        if node.column >= 0:
            self.add(avro.VALID, node.column)

    def _value(self, writer: SchemaNode, reader: SchemaNode, node: LayoutNode) -> None:
        if writer.kind == "null":
            return
        pair, column, width = (writer.kind, reader.kind), node.column, resolve.decimal_bytes(reader)
        logical = "" if reader.logical is None else reader.logical.name
        if logical in resolve.TIMES:
            self.add(avro.TIME, column, min(resolve.TIMES[logical] - 1, _RANGES[writer.kind][1]), node.width)
        elif pair in _NUMBERS:
            kind, a, b = _NUMBERS[pair]
            self.add(kind, column, a, b)
        elif writer.kind == "enum":
            other = -1 if reader.default is None else reader.symbols.index(reader.default)
            known = {symbol: index for index, symbol in enumerate(reader.symbols)}
            indexes = [known.get(symbol, other) for symbol in writer.symbols]
            self.add(avro.ENUM, column, b=len(indexes), data=np.array(indexes, np.int64).tobytes())
        elif width:
            assert reader.logical is not None
            most = 10**reader.logical.precision - 1
            data = b"".join(bound.to_bytes(width, "little", signed=True) for bound in (most, -most)) + writer.size.to_bytes(8, "little")
            self.add(avro.DECIMAL if writer.kind == "fixed" else avro.DECIMAL_BYTES, column, b=width, data=data)
        elif writer.kind == "fixed":
            self.add(avro.DURATION if logical == "duration" else avro.FIXED, column, b=writer.size)
        else:
            self.add(avro.TEXT if reader.kind == "string" else avro.BYTES, column)

    def _deepen(self) -> None:
        self.depth += 1
        self.frames = max(self.frames, self.depth)

    def _begin_list(self, column: int, level: int, empties: bool) -> int:
        self._deepen()
        return self.add(avro.LIST if level >= 0 else avro.SKIP_LIST, column, level, int(empties))

    def _end_list(self, begin: int) -> None:
        _, column, level, _, empties = self.rows[begin][:5]
        self.add(avro.NEXT if level >= 0 else avro.SKIP_NEXT, column, level, empties, begin + 1)
        self.rows[begin][3] = len(self.rows)
        self.depth -= 1

    def _branches(self, plan: Branches, node: LayoutNode) -> None:
        nulls = [number for number, branch in enumerate(plan.branches) if isinstance(branch, Member) and branch.number < 0]
        if len(plan.branches) == 2 and len(nulls) == 1:
            other = plan.branches[1 - nulls[0]]
            if not isinstance(other, Member) or len(members(other.union)) > 1:
                pass
            elif isinstance(other.value, Value | resolve.Items | RecordFields):
                self._optional([node.first_fill, node.fills, nulls[0]], partial(self.plan, other.value, node))
                return
        self._union([None if branch is None else partial(self.plan, branch, node) for branch in plan.branches])

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

    def _member(self, plan: Member, node: LayoutNode) -> None:
        if plan.number < 0:
            self._nulls(node)
        elif len(members(plan.union)) == 1:
            self.plan(plan.value, node)
        else:
            self._valid(node)
            for number, child in enumerate(node.children):
                if number == plan.number:
                    self.plan(plan.value, child)
                else:
                    self._nulls(child)

    def _nulls(self, node: LayoutNode) -> None:
        row = self.add(avro.NULLS)
        self.rows[row][5:7] = node.first_fill, node.fills

    def _constant(self, plan: Constant, node: LayoutNode) -> None:
        if plan.kind == resolve.NULL:
            self._nulls(node)
        elif plan.kind == resolve.WORD:
            self.add(avro.WORD, node.column, plan.bits, plan.width)
        elif plan.kind in (resolve.BYTES, resolve.FIXED):
            kind = avro.CONSTANT if plan.kind == resolve.BYTES else avro.CONSTANT_FIXED
            self.add(kind, node.column, b=len(plan.data), data=plan.data)
        elif plan.kind == resolve.FIELDS:
            self._valid(node)
            children = {child.name: child for child in node.children}
            for name, part in plan.parts:
                self._constant(part, children[name])
        else:
            self.add(avro.OPEN)
            self._deepen()
            for name, part in plan.parts:
                if name != "value":
                    self.add(avro.ITEM, a=node.child_level)
                self._constant(part, node.children[-1] if name == "value" else node.children[0])
            self.add(avro.CLOSE, node.column, node.child_level)
            self.depth -= 1

    def skip(self, node: SchemaNode) -> None:
        """Steps over a value of the writer's that no column gets."""
        self.skipped += 1
        if self.skipped > MOST_STEPS:
            raise MismatchError("the schemas are too large")
        if node.kind == "record":
            for part in node.fields:
                self.skip(part.type)
        elif node.kind in ("array", "map"):
            begin = self._begin_list(0, -1, node.kind == "array" and may_be_empty(node.inner, self.empty))
            if node.kind == "map":
                self.add(avro.SKIP_LENGTH)
            self.skip(node.inner)
            self._end_list(begin)
        elif node.kind == "union":
            kinds = [branch.kind for branch in node.branches]
            if len(kinds) == 2 and kinds.count("null") == 1 and "record" not in kinds:
                null = kinds.index("null")
                self._optional([0, 0, null], partial(self.skip, node.branches[1 - null]))
            else:
                self._union([partial(self.skip, branch) for branch in node.branches], skips=True)
        elif node.kind == "enum":
            self.add(avro.SKIP_NUMBER, 0, 0, len(node.symbols) - 1)
        elif node.kind == "int":
            self.add(avro.SKIP_NUMBER, 0, *_RANGES["int"])
        elif node.kind in _SKIPS:
            self.add(_SKIPS[node.kind])
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


_SKIPS = {"boolean": avro.SKIP_BOOLEAN, "long": avro.SKIP_LONG, "bytes": avro.SKIP_LENGTH, "string": avro.SKIP_LENGTH}
_FEW = 4  # Schemas that are looked for one by one.


class AvroDecoder:
    """A `kolumn.values.decoder.ValueDecoder` for Avro. Threads may share it. ``reader`` is the reader's schema, whose columns are made;
    ``columns`` are dotted paths of the fields that are wanted, arrays, maps and unions with null have no step in a path; in ``schemas``
    those that others refer to are looked up. ``written`` is the reader's schema, ``node`` what is read of it. `ArgumentError` if the schema
    is not Avro, contains itself, or has no such columns.
    """

    type: pa.DataType

    def __init__(self, reader: Schema, columns: Sequence[str] | None = None, schemas: Schemas | None = None) -> None:
        self._reader, self._schemas = reader, schemas
        self.written = parse(reader, self._referenced)
        try:
            self.node = resolve.readable(self.written, columns)
            types = resolve.ArrowTypes()
            self.type = types.of(self.node)
            self.layout = ColumnLayout.of(self.type, types.symbols)
            self._own = self._program(self.written)
        except (ArgumentError, MismatchError) as error:
            raise ArgumentError(f"{title(reader)}: {error}") from None
        self._programs: dict[Schema, AvroProgram | None] = {}
        self._lock = threading.Lock()
        self._elements = 1.0

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `ValueDecoder.decode`, in host memory of its own. A row without a writer's schema is read by the reader's. `OverflowError` if
        a column has more than 2**31 - 1 bytes or elements: decode fewer rows at a time.
        """
        rows, count = len(bodies), len(bodies.schemas)
        if count > _FEW:
            used = (np.bincount(bodies.schema + 1, minlength=count + 1)[1:] > 0).tolist()
        else:
            used = [(bodies.schema == number).any() for number in range(count)]
        # Schemas that no row has are not looked at.
        programs = [self._own, *(self._written(schema) if own else None for schema, own in zip(bodies.schemas, used, strict=True))]
        addresses = np.array([0 if program is None else program.words.ctypes.data for program in programs], np.int64)
        stack = np.empty(max(avro.FRAME * program.frames for program in programs if program is not None) // 8, np.int64)
        columns = (bodies.address, bodies.length, bodies.prefix, bodies.schema)
        address, length, prefix, schema = (np.ascontiguousarray(column, np.int64) for column in columns)
        elements = min(int(rows * self._elements), LARGEST) + 1
        memory = ColumnMemory(self.layout, rows, elements, min(shared_bytes(self.layout, length), LARGEST))
        root, valid = self.layout.root, np.empty(rows, np.bool_)
        row, code = 0, DONE
        while True:
            target = memory.target
            row, code = decode_rows(
                target, addresses, stack.ctypes.data, address, length, prefix, schema, bodies.bare, root.first_fill, root.fills, row, valid,
            )  # fmt: skip
            if code == DONE:
                break
            memory.grow(code)
        if rows:
            counts = [load64(target.counts + target.stride * level) for level in range(1, target.level_count)]
            self._elements = max([0.0, *(1.2 * count / rows for count in counts)])
        return memory.array(rows), valid

    def salvage(self, bodies: Bodies) -> Salvaged:
        return nothing_salvaged(self.type, len(bodies))

    def programs(self, schemas: Sequence[Schema]) -> list[AvroProgram | None]:
        """The reader's own program, then those of writers' schemas; None for schemas that cannot be read."""
        return [self._own, *map(self._written, schemas)]

    def _written(self, writer: Schema) -> AvroProgram | None:
        with self._lock:
            if writer not in self._programs:
                try:
                    self._programs[writer] = self._program(parse(writer, self._referenced))
                except UnreadableSchemasError:
                    raise
                except (ArgumentError, MismatchError) as error:
                    self._programs[writer] = None
                    prefix = "" if isinstance(error, ArgumentError) else f"{title(writer)}: "
                    logger.warning("values are null, because %s (read as %s)", shown(f"{prefix}{error}"), title(self._reader))
            return self._programs[writer]

    def _program(self, writer: SchemaNode) -> "AvroProgram":
        return program(resolve.resolve(writer, self.node), self.layout.root)

    def _referenced(self, subject: str, version: int) -> Schema | None:
        return None if self._schemas is None else self._schemas.version(subject, version)
