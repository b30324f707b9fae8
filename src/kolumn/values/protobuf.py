"""The decoder of Protobuf: the tables of a message's fields that have columns, for the interpreter in `kolumn.values.wire.protobuf`; bodies
in, a typed column out. What the interpreter does not return, `kolumn.values.protobuf_reader` reads.
"""

import ctypes
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import AnyArray, Flags, Int64s
from kolumn.core.errors import ArgumentError, shown
from kolumn.core.lost import TOLD, WHOLE
from kolumn.cpu_fallback.values.protobuf import Rows, write_rows
from kolumn.values.decoder import Bodies, Salvaged, only_rows
from kolumn.values.extensions import column_of
from kolumn.values.framing import message_indexes
from kolumn.values.memory import ColumnLayout, ColumnMemory, LayoutNode, shared_bytes
from kolumn.values.protobuf_columns import finished
from kolumn.values.protobuf_reader import MessageReader, is_well_formed
from kolumn.values.protobuf_resolve import lost_fields
from kolumn.values.protobuf_schema import JSON, File, Place, Rules, Shape, file_of, has_json, is_closed, shape, symbols
from kolumn.values.schemas.schema import Schema, Schemas, UnreadableSchemasError
from kolumn.values.wire import framing
from kolumn.values.wire import protobuf_wire as wire
from kolumn.values.wire.protobuf import BITS, FIELD, FRAMES, GROUPS, MESSAGE, ProtobufProgram

logger = logging.getLogger("kolumn")
_BY_FRAMING = {
    framing.CONFLUENT: wire.INDEXES, framing.CONFLUENT_GUID: wire.INDEXES, framing.APICURIO: wire.NAME, framing.GLUE: wire.NUMBER,
    framing.GLUE_ZLIB: wire.NUMBER, framing.APICURIO_HEADER: wire.ANY, framing.CONFLUENT_DEPRECATED: wire.PLAIN_INDEXES,
    framing.LENGTH_DELIMITED: wire.SIZE,
}  # fmt: skip
"""What precedes messages, after a prefix if there is one. Apicurio's serializers of version 3 write it beside headers too."""
FRONTS = np.array([_BY_FRAMING.get(number, wire.NOTHING) for number in range(framing.LENGTH_DELIMITED + 1)], np.int64)
"""The same by the number of the framing."""
BARE_FRONTS = np.where(np.arange(len(FRONTS)) == framing.NONE, wire.NAME_OR_NOTHING, FRONTS)
"""The same where what precedes a message is recognised by its bytes alone, see `kolumn.values.decoder.Bodies.bare`."""


_JSON = 1 << 32  # See `kolumn.values.wire.protobuf`.


class ProtobufDecoder:
    """Decodes values of one message into one type. Threads may share it.

    The columns are the fields of the reader's message. A writer's schema says which message its values are, in whatever package, and which
    fields of them have other types: these are lost, see `kolumn.values.protobuf_resolve`. A row is not valid if what precedes its message
    chooses another one; without the writer's schema the reader's file is taken for it. Rows are valid or not, and have the values, as the
    package protobuf says (upb, and ``IsInitialized``), except that strings of proto2 have to be UTF-8 too, times have to fit into their
    unit, and fields that are not in ``columns`` are not looked into: a malformed message or a missing required field there is not noticed,
    and neither is a member of a oneof that removes one with a column. Messages within JSON text may be nested 100 deep, from its field on.

    `salvage` knows what older clients of Confluent write after its prefix: message indexes that are no zig-zag numbers (its client for
    Python up to 1.7, or with ``use.deprecated.format``), and none at all. It takes what precedes a message for that if it names no other
    message as it is, and all of the message can be read then.

    ``schema`` is as of `file_of`, ``columns`` as of `shape`. The ``message`` need not be named if the file has one, or the schema is a
    generated class. In ``schemas`` references are looked up. With ``null_fields`` every field can be null, so that one that is lost costs
    no other one. A message is ``max_depth`` times in itself before it is JSON text. ``time_unit`` is that of times, by default ns.
    `ArgumentError` if the schema is not valid, or there is no such message or column; `MissingError` if protobuf
    or grpcio-tools is missing.
    """

    type: pa.DataType

    def __init__(
        self, schema: Schema | bytes | str | type, message: str | None = None, columns: tuple[str, ...] | None = None, *,
        schemas: Schemas | None = None, null_fields: bool = False, max_depth: int = 1, time_unit: str | None = None,
    ) -> None:  # fmt: skip
        self._schemas = schemas
        file = file_of(schema, schemas)
        if message is None and isinstance(schema, type):
            message = getattr(schema, "DESCRIPTOR").full_name  # noqa: B009
        descriptor = file.message(message)
        self._name = str(descriptor.full_name)
        self.shape = shape(descriptor, columns, Rules(null_fields, max_depth, time_unit or "ns"))
        self.type = self.shape.type
        self.layout = ColumnLayout.of(self.shape.raw)
        self._own = _Written(self.shape, self.layout, {self._name: Place((), -1, (self._name,)), **file.places()}, self._name)
        self.tables = self._own.tables
        self._reader = schema if isinstance(schema, Schema) else None
        package = descriptor.file.package
        self._name_in_package = self._name.removeprefix(f"{package}.") if package else self._name
        self._nulls = null_fields
        self._known: dict[tuple[object, ...], _Written] = {}
        self._lock = threading.Lock()

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `ValueDecoder.decode`; `UnreadableSchemasError` if a schema that a writer's imports cannot be asked for, `OverflowError` if a
        column has more bytes or elements than 2**31 - 1.
        """
        found, valid, _ = self._rows(bodies)
        return found, valid

    def _rows(self, bodies: Bodies, written: "_Written | None" = None) -> "Losing":
        """What the loop returns of bodies: of those of the reader's types, or of one writer's schema that loses fields."""
        length = np.ascontiguousarray(bodies.length, np.int64)
        while True:
            array, valid = self._raw(bodies, length, written)
            found, wrong, losses = finished(self.shape, array, {} if written is None else written.lost)
            if not wrong.any():
                return found, valid, losses
            # Written again without these rows, so that nothing of them is left in the column.
            length = np.where(wrong, -1, length)

    def salvage(self, bodies: Bodies) -> Salvaged:
        """As `ValueDecoder.salvage`; raises as `decode` does."""
        order = np.full(len(bodies), -1)
        lost: list[tuple[str, ...]] = [()] * len(bodies)
        columns: list[pa.Array] = []
        for column, valid, losses in (*self._of_old_clients(bodies), *self._of_other_types(bodies)):
            order[valid] = len(bodies) * len(columns) + np.flatnonzero(valid)
            columns.append(column)
            for path, rows in losses.items():
                for row in np.flatnonzero(rows & valid).tolist():
                    lost[row] = (*lost[row], path)
        choices, names = self.choices(bodies.schemas, pa.py_buffer, losing=True)
        left = np.flatnonzero(order < 0)
        values = []
        for row in left.tolist():
            value, lost[row] = self._salvaged(bodies, row, choices)
            values.append(value)
        del names
        if not columns:
            return column_of(values, self.type), lost
        order[left] = len(bodies) * len(columns) + np.arange(len(left))
        return pa.concat_arrays([*columns, column_of(values, self.type)]).take(pa.array(order)), lost

    def _of_other_types(self, bodies: Bodies) -> "Iterator[Losing]":
        """The rows of schemas that lose fields, by the loop, without these fields."""
        for number in np.unique(bodies.schema[bodies.schema >= 0]).tolist():
            written = self._written(bodies.schemas[number])
            if written.lost:
                length = np.where(bodies.schema == number, bodies.length, -1)
                column, valid, losses = self._rows(replace(bodies, length=length, bare=False), written)
                # Where fields cannot be null, a value that loses one has no row.
                whole = valid if self._nulls else valid & ~np.logical_or.reduce([*losses.values()])
                yield only_rows(column, whole), valid, losses

    def _of_old_clients(self, bodies: Bodies) -> "Iterator[Losing]":
        """The rows after whose prefix message indexes are plain varints, by the loop: topics of old clients have nothing else."""
        kinds = bodies.framing
        length = np.where((kinds == framing.CONFLUENT) | (kinds == framing.CONFLUENT_GUID), bodies.length, -1)
        if (length < 0).all():
            return
        kind = np.full(len(bodies), framing.CONFLUENT_DEPRECATED)
        column, valid = self.decode(replace(bodies, framing=kind, length=length, bare=False))
        for row in np.flatnonzero(valid).tolist():
            valid[row] = not self._is_another(bodies, row)
        if valid.any():
            yield column, valid, {}

    def _written_of(self, bodies: Bodies, row: int) -> "_Written":
        own = int(bodies.schema[row])
        return self._own if own < 0 else self._written(bodies.schemas[own])

    def _is_another(self, bodies: Bodies, row: int) -> bool:
        """Whether what precedes a message, as it is written today, names another one than the reader's."""
        at = int(bodies.address[row])
        places = self._written_of(bodies, row).places
        return wire.is_name(at, at + int(bodies.length[row])) or _names_another(bodies.payload(row), places)

    def _salvaged(self, bodies: Bodies, row: int, choices: Int64s) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
        best: tuple[dict[str, Any] | None, tuple[str, ...]] = (None, (WHOLE,))
        stop = int(bodies.address[row]) + int(bodies.length[row])
        for start, written, is_sure in self._starts(bodies, row, choices):
            value, paths = written.reader.read(ctypes.string_at(start, stop - start))
            if not paths:
                return value, paths
            if is_sure and best[1] == (WHOLE,):
                best = value, paths
        return best

    def _starts(self, bodies: Bodies, row: int, choices: Int64s) -> Iterator[tuple[int, "_Written", bool]]:
        """Where the message of a row may begin, the likeliest first; its schema; whether it is also taken if not all of it can be read."""
        at, kind, own = int(bodies.address[row]), int(bodies.framing[row]), int(bodies.schema[row])
        written = self._written_of(bodies, row)
        stop, front = at + int(bodies.length[row]), int((BARE_FRONTS if bodies.bare else FRONTS)[kind])
        choice = choices.ctypes.data + wire.CHOICE * (own + 1)
        start = (wire.after_front if front < wire.PLAIN_INDEXES else wire.after_other_front)(at, stop, front, choice)
        if start > 0:
            yield start, written, True
        if bodies.bare and start != at - int(bodies.prefix[row]):
            yield at - int(bodies.prefix[row]), self._own, True
        if start > 0 or front != wire.INDEXES or choices[wire.CHOICE // 8 * (own + 1)] < 0:
            return
        if self._is_another(bodies, row):
            return
        start = wire.after_other_front(at, stop, wire.PLAIN_INDEXES, choice)
        if start > 0:
            yield start, written, False
        # Without an index a value of another message of the file may look like one of this message.
        if [name for name, place in written.places.items() if len(place.path) == 1] == [written.name]:
            yield at, written, False

    def _raw(self, bodies: Bodies, length: Int64s, written: "_Written | None") -> tuple[pa.Array, Flags]:
        count = len(length)
        choices, names = self.choices(bodies.schemas, pa.py_buffer, losing=written is not None)
        columns = (bodies.address, length, bodies.prefix, bodies.framing, bodies.schema)
        valid, frames = np.empty(count, np.bool_), np.empty((FRAMES + GROUPS) // 8, np.int64)
        arrays: list[AnyArray] = [np.ascontiguousarray(column, np.int64) for column in columns]
        arrays += [BARE_FRONTS if bodies.bare else FRONTS, choices, valid]
        rows = Rows._make([*(array.ctypes.data for array in arrays), int(bodies.bare)])
        tables = (table.ctypes.data for table in vars((written or self._own).tables).values())
        program = ProtobufProgram._make((*tables, frames.ctypes.data, frames.ctypes.data + FRAMES))
        memory = ColumnMemory(self.layout, count, count + 64, shared_bytes(self.layout, length))
        row, code = write_rows(memory.target, program, rows, 0, count)
        while code != 0:
            memory.grow(code)
            row, code = write_rows(memory.target, program, rows, row, count)
        del names
        return memory.array(count), valid

    def choices(self, schemas: Sequence[Schema], held: Callable[[bytes], Any], losing: bool = False) -> tuple[Int64s, list[Any]]:
        """What the writers' schemas say of the message, one row each after the reader's, as `kolumn.values.wire.protobuf_wire.after_front`
        takes it; and the memory of the names that it points to, which ``held`` makes of each: it has an ``address``. Values of schemas
        that lose fields are chosen if ``losing`` is true.
        """
        return _choices([self._own.places[self._name], *(self._place(schema, losing) for schema in schemas)], held)

    def _place(self, schema: Schema, losing: bool) -> Place | None:
        """Where the message is in a writer's schema; None if it is not there, or a header of the values chose another one."""
        written = self._written(schema)
        place = written.places.get(written.name)
        return None if place is None or (written.lost and not losing) or not _is_said(schema, place) else place

    def _written(self, schema: Schema) -> "_Written":
        key = (schema.text, schema.references)
        if not schema.text or (self._reader is not None and key == (self._reader.text, self._reader.references)):
            return self._own
        with self._lock:
            if key not in self._known:
                self._known[key] = self._resolved(schema)
            return self._known[key]

    def _resolved(self, schema: Schema) -> "_Written":
        which = "the writer's schema" if schema.id is None else f"schema {schema.id}"
        try:
            file = file_of(schema, self._schemas)
        except UnreadableSchemasError:
            raise
        except ArgumentError as error:
            logger.warning("values are null, because %s (read as %s)", error, self._name)
            return replace(self._own, places={}, name="")
        # Versions of a message may be in different packages.
        places, package = file.places(), file.descriptor.package
        name = self._name if self._name in places else f"{package}.{self._name_in_package}" if package else self._name_in_package
        if name not in places:
            has = ", ".join(list(places)[:TOLD]) or "none"
            logger.warning("values are null, because %s has no message %s: it has %s (read as %s)", which, name, has, self._name)
            return replace(self._own, places=places, name="")
        lost = list(lost_fields(self.shape.fields, file.message(name)))
        if lost:
            more = f"; and {len(lost) - TOLD} other fields" if len(lost) > TOLD else ""
            text = shown(f"{which}: {'; '.join(reason for _, _, reason in lost[:TOLD])}{more}")
            logger.warning("fields are null, because %s (read as %s)", text, self._name)
        return replace(self._own, places=places, name=name, lost={id(part): path for part, path, _ in lost})


Losing = tuple[pa.Array, Flags, dict[str, Flags]]
"""A column, which rows of it are read, and which of these lose a field, by its path."""


@dataclass(frozen=True)
class _Written:
    """How values of a schema are read: its messages, and the name of the reader's among them, "" if it is not there. The ``lost`` fields of
    the shape, by their `id`, have another type there: their paths.
    """

    shape: Shape
    layout: ColumnLayout
    places: dict[str, Place]
    name: str
    lost: dict[int, str] = field(default_factory=dict)

    @cached_property
    def tables(self) -> "Tables":
        return tables(self.shape, self.layout, self.lost)

    @cached_property
    def reader(self) -> MessageReader:
        return MessageReader(self.shape, self.lost)


def _is_said(schema: Schema, place: Place) -> bool:
    """Whether a message may be the one that a header of the values chose."""
    return schema.message_indexes in ((), place.path) and schema.message in ("", *place.names)


def _choices(places: Sequence[Place | None], held: Callable[[bytes], Any]) -> tuple[Int64s, list[Any]]:
    """A row for each place, as `ProtobufDecoder.choices` returns them."""
    memory = {name: held(name.encode()) for name in {name for place in places if place is not None for name in place.names}}
    table = np.zeros((len(places), wire.CHOICE // 8), np.int64)
    table[:, 0] = -1
    for row, place in zip(table, places, strict=True):
        if place is not None:
            last, full = ((memory[name].address, len(name.encode())) for name in (place.names[-1], place.names[0]))
            words = [len(place.path), *last, *full, place.number, *place.path]
            row[: len(words)] = words
    return table.reshape(-1), list(memory.values())


def named_messages(bodies: Bodies, file: File, reader: object, schemas: Schemas | None) -> Iterator[str]:
    """The messages that what precedes bodies names, in their order: of the file of the writer's schema, else of the reader's, ``file``."""
    files: dict[int, tuple[list[str], Int64s, list[Any]]] = {}
    for row in np.flatnonzero(bodies.length >= 0).tolist():
        at, own, kind = int(bodies.address[row]), int(bodies.schema[row]), int(bodies.framing[row])
        if own not in files:
            written = bodies.schemas[own] if own >= 0 else Schema("PROTOBUF", "")
            is_own = not written.text or (isinstance(reader, Schema) and written.text == reader.text)
            places = (file if is_own else file_of(written, schemas)).places()
            # A header may say it.
            said = {name: place for name, place in places.items() if _is_said(written, place)}
            files[own] = list(said), *_choices([*said.values()], pa.py_buffer)
        names, choices, _ = files[own]
        front = int((BARE_FRONTS if bodies.bare else FRONTS)[kind])
        if front >= wire.PLAIN_INDEXES:
            continue
        stop, rows = at + int(bodies.length[row]), range(choices.ctypes.data, choices.ctypes.data + choices.nbytes, wire.CHOICE)
        fit = [name for name, choice in zip(names, rows, strict=True) if wire.after_front(at, stop, front, choice) > 0]
        # Without anything before it a body may be of any message.
        yield from fit if len(fit) == 1 else ()


def _names_another(body: bytes, places: dict[str, Place]) -> bool:
    """Whether a body begins with message indexes, as they are written today, of a message of the file, and goes on with one."""
    found = message_indexes(body, 0)
    return found is not None and any(place.path == found[0] for place in places.values()) and is_well_formed(body[found[1] :])


_DIRECT = 256  # Numbers below it may be looked up directly.


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
    lost: Collection[int] = ()

    def message(self, shape: Shape, nodes: tuple[LayoutNode, ...], fill: tuple[int, int], entries: tuple[int, int]) -> int:
        """Bytes before a new message, whose fields have the ``nodes``; they are written later."""
        self.messages.append([0, 0, 0, 0, 0, *fill, *entries, 0, 0, _JSON * (shape.is_map and has_json(shape))])
        self.todo.append((len(self.messages) - 1, shape, nodes))
        return MESSAGE * (len(self.messages) - 1)

    def fill_message(self, number: int, shape: Shape, nodes: tuple[LayoutNode, ...]) -> None:
        # Lost fields come last, where no tag leads: they are only filled.
        ordered = sorted(zip(shape.fields, nodes, strict=True), key=lambda pair: (id(pair[0]) in self.lost, pair[0].number))
        first, kept = len(self.fields), [part for part, _ in ordered if id(part) not in self.lost]
        rows = {part.number: FIELD * (first + k) for k, part in enumerate(kept)}
        for k, (part, node) in enumerate(ordered):
            bit = 1 << k if len(ordered) <= BITS else 0
            if k >= len(rows):
                self.fields.append([-1, -1, 0, 0, 0, -1, bit, -1, 0, node.first_fill, node.fills, -1, 0, 0, -1, 0])
                continue
            after = FIELD * (first + (k + 1) % len(rows))
            ring = _ring(part, rows)
            json = ring >= 0 and any(has_json(one) for one in kept if one.field.containing_oneof == part.field.containing_oneof)
            self.fields.append([*self.field(part, node, bit, ring, FIELD * (first + k), after), _JSON * json])
        count = min(max(rows, default=-1) + 1, _DIRECT)
        message = self.messages[number]
        message[-2] = 1 | sum(1 << known for known in rows if known < 16)
        # Of a message with lost fields alone one row is looked at, whose tag no field has.
        begin, looked_at = FIELD * first if ordered else -1, len(rows) or min(len(ordered), 1)
        message[:5] = [begin, looked_at, 8 * len(self.direct), count, sum(row[6] for row in self.fields[first:])]
        self.direct += [rows.get(known, -1) for known in range(count)]

    def field(self, part: Shape, node: LayoutNode, bit: int, ring: int, own: int, after: int) -> list[int]:
        kind = wire.JSON if part.special == JSON else wire.KINDS[part.field.type]
        if kind == wire.ENUM and not is_closed(part.field.enum_type):
            kind = wire.VARINT4
        repeated = bool(part.field.is_repeated)
        own_wire = wire.WIRES.get(wire.KINDS[part.field.type], wire.VARINT)
        tag, other, following = part.number << 3 | own_wire, -1, after
        if repeated and kind <= wire.ENUM:
            other = part.number << 3 | wire.LENGTH
            if part.field.is_packed:
                tag, other = other, tag
        if (repeated and tag & 7 != wire.LENGTH) or kind > wire.ENUM:
            following = own if repeated else after
        element = node.children[0] if part.is_list else node
        message = -1
        if part.is_map:
            message = self.message(part, node.children, (0, 0), (node.child_level, node.column))
        elif part.is_message:
            message = self.message(part, element.children, (element.first_fill, element.fills), (-1, -1))
        level = node.child_level if repeated else 0
        listed = self.enum(part) if kind == wire.ENUM else -1
        plain = -1 if repeated or ring >= 0 else _PLAIN.get(kind, -1)
        return [tag, other, kind, node.column, level, message, bit, ring, following, node.first_fill, node.fills, listed, element.column,
                wire.WIDTHS.get(kind, 0), plain]  # fmt: skip

    def enum(self, part: Shape) -> int:
        """Bytes before the symbols of a closed enum."""
        begin = 8 * len(self.symbols)
        index = {number: k for k, number in enumerate(symbols(part.field.enum_type))}
        numbers = sorted(index)
        self.symbols += [len(numbers), *numbers, *(index[number] for number in numbers)]
        return begin


_PLAIN = {wire.VARINT4: wire.VARINT8, wire.VARINT8: wire.VARINT8, wire.FIXED8: wire.FIXED8, wire.TEXT: wire.TEXT}


def _ring(part: Shape, rows: dict[int, int]) -> int:
    """The next member of the oneof that has a column, of the last one the first; -1 without one."""
    oneof = part.field.containing_oneof
    members = [] if oneof is None else sorted(member.number for member in oneof.fields if member.number in rows)
    return -1 if len(members) < 2 else rows[members[(members.index(part.number) + 1) % len(members)]]


def tables(shape: Shape, layout: ColumnLayout, lost: Collection[int] = ()) -> Tables:
    """The tables of a message; values of its ``lost`` fields, by their `id`, are passed over."""
    writer = _Writer(lost=lost)
    root = layout.root
    writer.message(shape, root.children, (root.first_fill, root.fills), (-1, -1))
    writer.messages[0][-3] = root.column
    while writer.todo:
        writer.fill_message(*writer.todo.popleft())
    # A message without fields expects the row after the last field, which no tag matches.
    writer.fields.append([-1, -1, *[0] * (FIELD // 8 - 2)])
    for row in writer.messages:
        if row[0] < 0:
            row[0] = FIELD * (len(writer.fields) - 1)
    parts = (writer.messages, writer.fields, writer.direct, writer.symbols)
    return Tables(*(np.array(part, np.int64).reshape(-1) for part in parts))
