"""Decodes Avro values: one program for each writer's schema, all of which fill the columns of one reader's schema. A program has steps of
`kolumn.values.wire.avro`, made from a plan: what a value writes into the columns of a layout. It has no calls, so a type that contains
itself is unrolled in it; what it leaves is read by the same plan in `kolumn.values.avro_plain`.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from ctypes import string_at
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Flags, Int64s
from kolumn.core.errors import ArgumentError, shown
from kolumn.core.lost import ELEMENTS, TOLD, WHOLE
from kolumn.cpu_fallback.values.avro import decode_rows
from kolumn.formats.words import load64
from kolumn.values import avro_plain
from kolumn.values import avro_resolve as resolve
from kolumn.values.avro_resolve import (
    Branches,
    Constant,
    Json,
    LostField,
    Member,
    MismatchError,
    Plan,
    RecordFields,
    Skip,
    Steps,
    TooLargeError,
    Value,
    may_be_empty,
)
from kolumn.values.avro_schema import SchemaNode, parse, title
from kolumn.values.avro_types import (
    ArrowTypes,
    AvroShape,
    decimal_bytes,
    is_text_decimal,
    meant_type,
    members,
    per_unit,
    readable,
    uuid_type,
    with_nulls,
)
from kolumn.values.decoder import Bodies, Salvaged, only_rows
from kolumn.values.extensions import column_of
from kolumn.values.memory import LARGEST, ColumnLayout, ColumnMemory, LayoutNode, shared_bytes
from kolumn.values.retyped import retyped
from kolumn.values.schemas.schema import Schema, Schemas, UnreadableSchemasError
from kolumn.values.wire import avro
from kolumn.values.wire.columns import DONE

logger = logging.getLogger("kolumn")
_UNROLLED = (4, 1 << 12), (1, 1 << 17)  # How often types that are skipped are nested, and how many steps a program may have then.
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
    """Words of a program in host memory, and how many frames its stack needs; ``is_whole`` if it leaves no value to the plain reader."""

    words: Int64s
    frames: int
    is_whole: bool = True


def program(plan: Plan, root: LayoutNode) -> AvroProgram:
    """The program for values that fill ``root``, the outermost node of a layout; raises `MismatchError` if it is too long."""
    for unrolled, most in _UNROLLED:
        steps = _Assembler(unrolled, most)
        try:
            steps.plan(plan, root)
            return steps.ended()
        except TooLargeError:
            continue
    raise MismatchError("the schemas are too large")


@dataclass
class _Assembler:
    """Steps so far. Words that count steps, or are places of constants, are made bytes at the end. ``optional`` is what the next step takes
    along: the fills of what becomes null, and the branch of null. ``above`` are the records around what is skipped.
    """

    unrolled: int
    most: int
    rows: list[list[int]] = field(default_factory=list)
    constants: bytearray = field(default_factory=bytearray)
    placed: list[int] = field(default_factory=list)
    depth: int = 0
    frames: int = 1
    optional: list[int] | None = None
    empty: dict[SchemaNode, bool] = field(default_factory=dict)
    above: list[SchemaNode] = field(default_factory=list)
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
        if len(self.rows) > self.most:
            raise TooLargeError
        return len(self.rows) - 1

    def ended(self) -> AvroProgram:
        """All words, with a last step at which the value has to end."""
        self.add(avro.END)
        table = np.array(self.rows, np.int64)
        table[:, 3] *= avro.STEP
        table[self.placed, 2] += table.nbytes
        is_whole = not np.isin(table[:, 0], (avro.FAIL, avro.FAIL + avro.OPTIONAL)).any()
        return AvroProgram(np.concatenate([table.ravel(), np.frombuffer(bytes(self.constants), np.int64)]), self.frames, bool(is_whole))

    def plan(self, plan: Plan, node: LayoutNode) -> None:
        """Steps of a part. All but those of unions write the validity of its ``node``."""
        match plan:
            case Value():
                self._value(plan.writer, plan.reader, node)
            case Skip():
                self.skip(plan.writer)
            case Json():
                self.add(avro.FAIL)
            case LostField():
                self._nulls(node)
                if plan.writer is not None:
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
        pair, column, width = (writer.kind, reader.kind), node.column, decimal_bytes(reader)
        logical, unit = ("", "") if reader.logical is None else (reader.logical.name, reader.logical.unit)
        if is_text_decimal(reader):
            self.add(avro.FAIL)
        elif unit and per_unit(logical, unit) != 1:
            factor = per_unit(logical, unit)
            fitting = (2**63 - 1) // factor if factor > 0 else 2**63 + factor
            self.add(avro.SCALED, column, factor, min(fitting, _RANGES[writer.kind][1]))
        elif logical in resolve.TIMES:
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
        elif not plan.name:
            self.plan(plan.value, node)
        else:
            self._valid(node)
            for child in node.children:
                if child.name == plan.name:
                    self.plan(plan.value, child)
                else:
                    self._nulls(child)
            if isinstance(plan.value, Skip):
                self.skip(plan.value.writer)

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
        if self.skipped > self.most:
            raise TooLargeError
        if node.kind == "record":
            if self.above.count(node) == self.unrolled:
                self.add(avro.FAIL)
                return
            self.above.append(node)
            for part in node.fields:
                self.skip(part.type)
            self.above.pop()
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


@dataclass(frozen=True)
class _Written:
    """How values of one writer's schema are read: ``plan``, None if none of them can be; its program, None if there is none, or if
    ``losses``, the fields that each value loses, are not empty: then ``partial`` is the program, for columns that can be null.
    """

    plan: Plan | None = None
    program: AvroProgram | None = None
    partial: AvroProgram | None = None
    losses: tuple[tuple[Steps, str], ...] = ()


class AvroDecoder:
    """A `kolumn.values.decoder.ValueDecoder` for Avro. Threads may share it. ``reader`` is the reader's schema, whose columns are made;
    ``columns`` are dotted paths of the fields that are wanted, arrays, maps and unions with null have no step in a path; in ``schemas``
    those that others refer to are looked up; ``shape`` says how types become columns. ``node`` is what is read of the reader's schema.
    `ArgumentError` if the schema is not Avro, or has no such columns.
    """

    type: pa.DataType

    def __init__(
        self, reader: Schema, columns: Sequence[str] | None = None, schemas: Schemas | None = None, shape: AvroShape | None = None
    ) -> None:
        self._reader, self._schemas = reader, schemas
        written = parse(reader, self._referenced)
        try:
            self.node = readable(written, columns, shape)
            types = ArrowTypes()
            strict = types.of(self.node)
            self._stored, self._symbols = with_nulls(strict), types.symbols
            self.type = meant_type(self.node, self._stored, uuid_type) if shape is not None and shape.uuids else self._stored
            # What the schema says cannot be null has no validity in memory, and none is written.
            self.layout = ColumnLayout.of(strict, self._symbols)
            self.layout.root = _retyped(self.layout.root, self._stored)
            plan = resolve.resolve(written, self.node)
            self._own = _Written(plan, program(plan, self.layout.root))
        except (ArgumentError, MismatchError) as error:
            raise ArgumentError(f"{title(reader)}: {error}") from None
        self._known: dict[Schema, _Written] = {}
        self._lock = threading.Lock()
        self._elements = 1.0

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `ValueDecoder.decode`, in host memory of its own. A row without a writer's schema is read by the reader's. `OverflowError` if
        a column has more than 2**31 - 1 bytes or elements: decode fewer rows at a time.
        """
        column, valid = self._rows(bodies, self.layout, [None if one is None else one.program for one in self._used(bodies)])
        made, failures = retyped(column, self.type)
        for _, rows in failures:
            valid &= ~rows
        return (only_rows(made, valid) if failures else made), valid

    def fits(self, bodies: Bodies) -> Flags:
        """Which bodies are one value of the reader's schema, of which nothing is lost."""
        _, valid = self._rows(bodies, self.layout, [self._own.program])
        if self._own.program is not None and not self._own.program.is_whole:
            for row in np.flatnonzero(~valid & (bodies.length >= 0)).tolist():
                valid[row] = self._plain(bodies, row, [self._own])[1] == ()
        return valid

    def _used(self, bodies: Bodies) -> list[_Written | None]:
        """How values of the reader's own schema are read, then those of writers'; None for one that no row has: it is not looked at."""
        count = len(bodies.schemas)
        if count > _FEW:
            used = (np.bincount(bodies.schema + 1, minlength=count + 1)[1:] > 0).tolist()
        else:
            used = [(bodies.schema == number).any() for number in range(count)]
        return [self._own, *(self._written(schema) if own else None for schema, own in zip(bodies.schemas, used, strict=True))]

    def _rows(self, bodies: Bodies, layout: ColumnLayout, programs: Sequence[AvroProgram | None]) -> tuple[pa.Array, Flags]:
        """The column of some bodies, by programs that fill a layout: those of the reader's own schema, and of writers'."""
        rows = len(bodies)
        addresses = np.array([0 if program is None else program.words.ctypes.data for program in programs], np.int64)
        stack = np.empty(max(avro.FRAME * program.frames for program in programs if program is not None) // 8, np.int64)
        columns = (bodies.address, bodies.length, bodies.prefix, bodies.schema)
        address, length, prefix, schema = (np.ascontiguousarray(column, np.int64) for column in columns)
        elements = min(int(rows * self._elements), LARGEST) + 1
        memory = ColumnMemory(layout, rows, elements, min(shared_bytes(layout, length), LARGEST))
        root, valid = layout.root, np.empty(rows, np.bool_)
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
        """As `ValueDecoder.salvage`. Values of schemas that lack a field of the reader's are read by programs first, without that field."""
        column, lost = self._salvaged(bodies)
        made, failures = retyped(column, self.type)
        for path, rows in failures:
            for row in np.flatnonzero(rows).tolist():
                lost[row] = tuple(dict.fromkeys((*lost[row], path or (ELEMENTS if pa.types.is_nested(self.type) else WHOLE))))
        return made, lost

    def _salvaged(self, bodies: Bodies) -> Salvaged:
        written, rows = self._used(bodies), len(bodies)
        lost: list[tuple[str, ...]] = [(WHOLE,)] * rows
        order, column = np.full(rows, -1, np.int64), pa.nulls(0, self._stored)
        partial = [None if one is None else one.partial for one in written]
        by_program = np.array([one is not None for one in partial])[bodies.schema + 1]
        if by_program.any():
            (some,) = np.nonzero(by_program)
            column, valid = self._rows(replace(bodies.rows(some), bare=False), self._nullable, partial)
            order[some[valid]] = np.flatnonzero(valid)
            found = self._losses(column, bodies.schema[some], written)
            for number in np.flatnonzero(valid).tolist():
                lost[some[number]] = found.get(number, ())
        values: list[object] = []
        for row in np.flatnonzero(order < 0).tolist():
            order[row] = len(column) + len(values)
            value, lost[row] = self._plain(bodies, row, written)
            values.append(value)
        if not len(column):
            return column_of(values, self._stored), lost
        return pa.concat_arrays([column, column_of(values, self._stored)]).take(pa.array(order)), lost

    def _losses(self, column: pa.Array, schema: Int64s, written: Sequence[_Written | None]) -> dict[int, tuple[str, ...]]:
        """The fields that rows of a column lose because of their schemas, by rows."""
        found: dict[int, tuple[str, ...]] = {}
        for number, one in enumerate(written):
            rows = schema + 1 == number
            for steps, name in () if one is None or not rows.any() else one.losses:
                path = ".".join((*steps, name))
                for row in np.flatnonzero(rows & _has_record(column, steps)).tolist():
                    found[row] = (*found.get(row, ()), path)
        return found

    def _plain(self, bodies: Bodies, row: int, written: Sequence[_Written | None]) -> tuple[object, tuple[str, ...]]:
        """What can be had of one body by the plain reader; a value that only looks as if it had a prefix is read without one."""
        own, best = written[bodies.schema[row] + 1], None
        if own is not None and own.plan is not None:
            best = avro_plain.read(own.plan, bodies.payload(row))
        if bodies.bare and bodies.prefix[row] > 0 and (best is None or best[1]):
            begin, size = int(bodies.address[row] - bodies.prefix[row]), int(bodies.length[row] + bodies.prefix[row])
            assert self._own.plan is not None
            bare = avro_plain.read(self._own.plan, string_at(begin, size))
            best = bare if best is None or (bare is not None and not bare[1]) else best
        return best or (None, (WHOLE,))

    def programs(self, schemas: Sequence[Schema]) -> list[AvroProgram | None]:
        """The reader's own program, then those of writers' schemas; None for schemas that cannot be read as a whole."""
        return [self._own.program, *(self._written(schema).program for schema in schemas)]

    @cached_property
    def _nullable(self) -> ColumnLayout:
        """The layout of columns in which each field can be null."""
        return ColumnLayout.of(self._stored, self._symbols)

    def _written(self, writer: Schema) -> _Written:
        with self._lock:
            if writer not in self._known:
                self._known[writer] = self._resolved(writer)
            return self._known[writer]

    def _resolved(self, writer: Schema) -> _Written:
        try:
            plan = resolve.resolve(parse(writer, self._referenced), self.node)
            lost = dict.fromkeys(resolve.losses(plan))
            if not lost:
                return _Written(plan, program(plan, self.layout.root))
            reasons = list(dict.fromkeys(reason for _, _, reason in lost))
            more = f"; and {len(reasons) - TOLD} other fields" if len(reasons) > TOLD else ""
            text = shown(f"{title(writer)}: {'; '.join(reasons[:TOLD])}{more}")
            logger.warning("fields are null, because %s (read as %s)", text, title(self._reader))
            losses = tuple(dict.fromkeys((steps, name) for steps, name, _ in lost))
            return _Written(plan, None, program(plan, self._nullable.root), losses)
        except UnreadableSchemasError:
            raise
        except (ArgumentError, MismatchError) as error:
            prefix = "" if isinstance(error, ArgumentError) else f"{title(writer)}: "
            logger.warning("values are null, because %s (read as %s)", shown(f"{prefix}{error}"), title(self._reader))
            return _Written()

    def _referenced(self, subject: str, version: int) -> Schema | None:
        return None if self._schemas is None else self._schemas.version(subject, version)


def _retyped(node: LayoutNode, type: pa.DataType) -> LayoutNode:
    """The same node of a layout, for a type that differs in what can be null alone."""
    inner = [type.key_field, type.item_field] if pa.types.is_map(type) else [type.field(number) for number in range(len(node.children))]
    return replace(node, type=type, children=tuple(_retyped(child, one.type) for child, one in zip(node.children, inner, strict=True)))


def _has_record(column: pa.Array, steps: Steps) -> Flags:
    """The rows of a column in which there is a record at the end of some steps."""
    type, here = column.type, column.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_list(type) or pa.types.is_map(type):
        inner = _has_record(column.items if pa.types.is_map(type) else column.values, steps)
        before = np.concatenate([[0], np.cumsum(inner)])[np.asarray(column.offsets)]
        found: Flags = here & (np.diff(before) > 0)
        return found
    return here & _has_record(column.field(steps[0]), steps[1:]) if steps else here
