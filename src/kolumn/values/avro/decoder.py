"""Decodes Avro values: one program for each writer's schema, all of which fill the columns of one reader's schema."""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Flags
from kolumn.core.errors import ArgumentError, shown
from kolumn.cpu_fallback.values.avro import decode_rows
from kolumn.cpu_fallback.values.avro_walk import BLOCK, ROOM
from kolumn.formats.machine_code.words import load64
from kolumn.values.avro.program import AvroProgram, program
from kolumn.values.avro.resolve import MismatchError, resolve
from kolumn.values.avro.schema import SchemaNode, parse, title
from kolumn.values.avro.types import ArrowTypes, readable
from kolumn.values.avro.walk import WalkPlan, walk_plan
from kolumn.values.decoder import Bodies
from kolumn.values.memory import LARGEST, ColumnLayout, ColumnMemory, shared_bytes
from kolumn.values.schemas.schema import Schema, Schemas, UnreadableSchemasError
from kolumn.values.wire.avro import FRAME
from kolumn.values.wire.columns import DONE

logger = logging.getLogger("kolumn")

_FEW = 4
"""Schemas that are looked for one by one."""


@dataclass(frozen=True)
class _WriterProgram(AvroProgram):
    """With the plan by which most rows are read, if there is one."""

    walk: WalkPlan | None


class AvroDecoder:
    """A `kolumn.values.decoder.ValueDecoder` for Avro. Threads may share it.

    ``reader`` is the reader's schema, whose columns are made; ``columns`` are dotted paths of the fields that are wanted, arrays, maps and
    unions with null have no step in a path; in ``schemas`` those that others refer to are looked up. ``written`` is the reader's schema,
    ``node`` what is read of it. `ArgumentError` if the schema is not Avro, contains itself, or has no such columns.
    """

    type: pa.DataType

    def __init__(self, reader: Schema, columns: Sequence[str] | None = None, schemas: Schemas | None = None) -> None:
        self._reader, self._schemas = reader, schemas
        self.written = parse(reader, self._referenced)
        try:
            self.node = readable(self.written, columns)
            types = ArrowTypes()
            self.type = types.of(self.node)
            self.layout = ColumnLayout.of(self.type, types.symbols)
            self._own = self._program(self.written)
        except (ArgumentError, MismatchError) as error:
            raise ArgumentError(f"{title(reader)}: {error}") from None
        self._programs: dict[Schema, _WriterProgram | None] = {}
        self._lock = threading.Lock()
        self._elements = 1.0

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `ValueDecoder.decode`, in host memory of its own. A row without a writer's schema is read by the reader's.

        `OverflowError` if a column has more than 2**31 - 1 bytes or elements: decode fewer rows at a time.
        """
        rows = len(bodies)
        programs = self._used(bodies)
        addresses = np.array([0 if one is None else one.words.ctypes.data for one in programs], np.int64)
        walks = [None if one is None else one.walk for one in programs]
        plans = np.array([0 if one is None else one.words.ctypes.data for one in walks], np.int64)
        block = np.empty(BLOCK * (ROOM + 2 * max(0 if one is None else one.segments for one in walks)), np.int64)
        stack = np.empty(max(FRAME * one.frames for one in [*programs, *walks] if one is not None) // 8, np.int64)
        at, length, prefix, schema = (
            np.ascontiguousarray(one, np.int64) for one in (bodies.at, bodies.length, bodies.prefix, bodies.schema)
        )
        elements = min(int(rows * self._elements), LARGEST) + 1
        memory = ColumnMemory(self.layout, rows, elements, min(shared_bytes(self.layout, length), LARGEST))
        root, valid = self.layout.root, np.empty(rows, np.bool_)
        row, code = 0, DONE
        while True:
            target = memory.target
            row, code = decode_rows(
                target, addresses, stack.ctypes.data, at, length, prefix, schema, bodies.bare, root.first_fill, root.fills, row, valid,
                plans, block.ctypes.data,
            )  # fmt: skip
            if code == DONE:
                break
            memory.grow(code)
        if rows:
            counts = [load64(target.counts + target.stride * level) for level in range(1, target.level_count)]
            self._elements = max([0.0, *(1.2 * count / rows for count in counts)])
        return memory.array(rows), valid

    def programs(self, schemas: Sequence[Schema]) -> list[AvroProgram | None]:
        """The reader's own program, then those of writers' schemas; None for schemas that cannot be read."""
        return [self._own, *map(self._written, schemas)]

    def _used(self, bodies: Bodies) -> list[_WriterProgram | None]:
        """The reader's own program, then those of the schemas; None for schemas that no row has or that cannot be read."""
        if len(bodies.schemas) > _FEW:
            seen = (np.bincount(bodies.schema + 1, minlength=len(bodies.schemas) + 1)[1:] > 0).tolist()
        else:
            seen = [(bodies.schema == number).any() for number in range(len(bodies.schemas))]
        return [self._own, *(self._written(one) if used else None for one, used in zip(bodies.schemas, seen, strict=True))]

    def _written(self, writer: Schema) -> _WriterProgram | None:
        """The program of a writer's schema, made when it is first met."""
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

    def _program(self, writer: SchemaNode) -> "_WriterProgram":
        plan, root = resolve(writer, self.node), self.layout.root
        made = program(plan, root)
        return _WriterProgram(made.words, made.frames, walk_plan(plan, root))

    def _referenced(self, subject: str, version: int) -> Schema | None:
        return None if self._schemas is None else self._schemas.version(subject, version)
