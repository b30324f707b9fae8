"""Plans of `kolumn.cpu_fallback.values.avro_walk`: where the wanted fields of a value are, if most others are skipped."""

from dataclasses import dataclass, field

import numpy as np

from kolumn.core.arrays import Int64s
from kolumn.core.paths import AVRO_WALK, is_on
from kolumn.cpu_fallback.values import avro_walk as walk
from kolumn.values.avro.program import Steps
from kolumn.values.avro.resolve import Branches, Member, MismatchError, Plan, RecordFields, Skip, Value, may_be_empty
from kolumn.values.avro.schema import SchemaNode
from kolumn.values.avro.types import Constant
from kolumn.values.memory import LayoutNode
from kolumn.values.wire import avro as steps

MOST_SEGMENTS = 32
_ATOMS = {
    "int": (walk.INT, 0),
    "long": (walk.LONG, 0),
    "boolean": (walk.BOOLEAN, 0),
    "string": (walk.TEXT, 0),
    "bytes": (walk.TEXT, 0),
    "float": (walk.BYTES, 4),
    "double": (walk.BYTES, 8),
}
_AFTER = (0, 0)
"""Words after the last operation, which are read with it."""
_FLAGS = (1 << walk.SHIFT) - 1
_TAKEN = {steps.LONG: 8, steps.INT: 4, steps.INT_TO_LONG: 8, steps.FLOAT: 4, steps.DOUBLE: 8, steps.BOOLEAN: 1}
"""Bytes in a column of numbers that steps write as they are."""


@dataclass(frozen=True)
class WalkPlan:
    """Words of a plan in host memory; how many segments it has, and how many frames the stack of its programs."""

    words: Int64s
    segments: int
    frames: int


def walk_plan(plan: Plan, root: LayoutNode) -> WalkPlan | None:
    """The plan for values that fill ``root``.

    None if more fields are wanted than skipped, or if a wanted one has others in it: these are not found faster than they are decoded.
    """
    if not isinstance(plan, RecordFields) or not is_on(AVRO_WALK):
        return None
    made = _Walk()
    try:
        made.record(plan, root)
    except (_NotPlannedError, MismatchError):
        return None
    return made.plan() if made.skipped >= max(made.wanted, 1) and len(made.segments) <= MOST_SEGMENTS else None


class _NotPlannedError(Exception):
    pass


@dataclass
class _Walk:
    """Operations and segments so far; ``placed`` are the operations with a program, and the program."""

    operations: list[int] = field(default_factory=list)
    count: int = 0
    segments: list[Steps] = field(default_factory=list)
    others: list[tuple[int, Steps]] = field(default_factory=list)
    within: bool = False
    last: int = 0
    wanted: int = 0
    skipped: int = 0
    seen: int = 0
    empty: dict[SchemaNode, bool] = field(default_factory=dict)

    def record(self, plan: RecordFields, place: LayoutNode) -> None:
        """A record of which all values have all fields."""
        if place.column >= 0:
            self._add(walk.VALID, place.column)
        children = {one.name: one for one in place.children}
        for name, part in plan.parts:
            child = children.get(name, place)
            if isinstance(part, RecordFields):
                self.record(part, child)
            elif isinstance(part, Skip):
                for node in self._spread(part.writer):
                    self._skip(node)
                self.skipped += 1
            else:
                self._want(part, child)
                self.wanted += 1

    def plan(self) -> WalkPlan:
        """All words."""
        self._mark(False)
        programs = [one.ended() for one in [*self.segments, *(other for _, other in self.others)]]
        head = [len(self.segments), self.count, *[0] * len(self.segments)]
        places = 8 * (len(head) + len(self.operations) + len(_AFTER)) + np.cumsum([0, *(one.words.nbytes for one in programs)])[:-1]
        head[2:] = places[: len(self.segments)].tolist()
        for (at, _), place in zip(self.others, places[len(self.segments) :].tolist(), strict=True):
            self.operations[at] = place
        words = np.concatenate([np.array([*head, *self.operations, *_AFTER], np.int64), *(one.words for one in programs)])
        return WalkPlan(words, len(self.segments), max([1, *(one.frames for one in programs)]))

    def _want(self, plan: Plan, place: LayoutNode) -> None:
        writer = _writer(plan)
        atom = None if writer is None else _atom(writer)
        if writer is not None and atom is None:
            raise _NotPlannedError
        own = Steps()
        own.plan(plan, place)
        taken = _taken(own.rows)
        if atom is not None and taken is not None:
            self._mark(False)
            self._add(walk.TAKE, atom, *taken)
            return
        if not self.within:
            self.segments.append(Steps())
        self._mark(True)
        self.segments[-1].plan(plan, place)
        if atom is not None:
            self._run(atom)

    def _mark(self, within: bool) -> None:
        if self.within != within:
            self.within = within
            self._add(walk.MARK, 0)

    def _add(self, *words: int) -> None:
        self.last = len(self.operations)
        self.operations += words
        self.count += 1

    def _run(self, atom: int) -> None:
        """Pass over an atom. Bytes that follow a value are part of its atom."""
        if not self.operations or self.operations[self.last] != walk.RUN:
            self._add(walk.RUN, 0)
        elif atom & _FLAGS == walk.BYTES and self.operations[-1] & walk.OPTIONAL == 0 and self.operations[-1] & walk.KIND != walk.INDEX:
            self.operations[-1] += atom
            return
        self.operations[self.last + 1] += 1
        self.operations.append(atom)

    def _spread(self, node: SchemaNode) -> list[SchemaNode]:
        """A value, or the fields of a record; nulls have no bytes."""
        self.seen += 1
        if self.seen > walk.BLOCK * walk.BLOCK:
            raise _NotPlannedError
        if node.kind == "record":
            return [inner for one in node.fields for inner in self._spread(one.type)]
        return [] if node.kind == "null" else [node]

    def _skip(self, node: SchemaNode) -> None:
        flags, inner = _optional(node)
        alone = _atom(node)
        self._mark(False)
        if alone is not None:
            self._run(alone)
            return
        atoms: list[int | None] = [walk.TEXT] if inner.kind == "map" else [None]
        if inner.kind in ("array", "map") and not (inner.kind == "array" and may_be_empty(inner.inner, self.empty)):
            atoms = atoms[: inner.kind == "map"] + [_atom(one) for one in self._spread(inner.inner)]
        known = [one for one in atoms if one is not None]
        if len(known) == len(atoms):
            self._add(walk.LIST, flags, len(known), *known)
        else:
            own = Steps()
            own.skip(node)
            self._add(walk.OTHER, 0)
            self.others.append((len(self.operations) - 1, own))


def _writer(plan: Plan) -> SchemaNode | None:
    """What the bytes of a wanted field are; None for a constant, which has none."""
    if isinstance(plan, Member):
        return _writer(plan.value)
    if isinstance(plan, Constant):
        return None
    if isinstance(plan, Value | Branches):
        return plan.writer
    raise _NotPlannedError


def _optional(node: SchemaNode) -> tuple[int, SchemaNode]:
    """Flags of an atom, and the type, of a union of a type and null; other types are themselves."""
    others = [one for one in node.branches if one.kind != "null"]
    if node.kind == "union" and len(node.branches) == 2 and len(others) == 1:
        return walk.OPTIONAL | (walk.SECOND if node.branches[1].kind == "null" else 0), others[0]
    return 0, node


def _atom(node: SchemaNode) -> int | None:
    """The atom of a value that has no others in it."""
    flags, node = _optional(node)
    if node.kind == "enum":
        return walk.INDEX | flags | len(node.symbols) << walk.SHIFT
    kind, size = (walk.BYTES, node.size) if node.kind == "fixed" else _ATOMS.get(node.kind, (-1, 0))
    return None if kind < 0 else kind | flags | size << walk.SHIFT


def _taken(rows: list[list[int]]) -> tuple[int, int] | None:
    """Column and bytes of a number, if steps do nothing but write it, or null."""
    kind, column, _, _, _, _, fills, _ = rows[0]
    optional = kind >= steps.OPTIONAL
    width = _TAKEN.get(kind - steps.OPTIONAL if optional else kind)
    return (column, width) if width is not None and len(rows) == 1 and (fills == 1 or not optional) else None
