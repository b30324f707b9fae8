"""The decoder of Protobuf: bodies in, a typed column out."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Flags, Int64s
from kolumn.core.errors import ArgumentError
from kolumn.cpu_fallback.values.protobuf import Rows, write_rows
from kolumn.values.decoder import Bodies
from kolumn.values.memory import ColumnLayout, ColumnMemory, shared_bytes
from kolumn.values.protobuf.finish import finished, incomplete
from kolumn.values.protobuf.program import tables
from kolumn.values.protobuf.schema import Place, file_of
from kolumn.values.protobuf.types import has_required, shape
from kolumn.values.schemas.schema import Schema, Schemas, UnreadableSchemasError
from kolumn.values.wire import framing
from kolumn.values.wire.protobuf import FRAMES, GROUPS, ProtobufProgram
from kolumn.values.wire.protobuf_wire import ANY, CHOICE, INDEXES, NAME, NAME_OR_NOTHING, NOTHING, NUMBER

logger = logging.getLogger("kolumn")

_BY_FRAMING = {
    framing.CONFLUENT: INDEXES,
    framing.CONFLUENT_GUID: INDEXES,
    framing.APICURIO: NAME,
    framing.GLUE: NUMBER,
    framing.GLUE_ZLIB: NUMBER,
    framing.APICURIO_HEADER: ANY,
}
"""What precedes messages, after a prefix if there is one. Apicurio's serializers of version 3 write it beside headers too."""
FRONTS = np.array([_BY_FRAMING.get(number, NOTHING) for number in range(framing.AZURE + 1)], np.int64)
"""The same by the number of the framing."""
BARE_FRONTS = np.where(np.arange(len(FRONTS)) == framing.NONE, NAME_OR_NOTHING, FRONTS)
"""The same where what precedes a message is recognised by its bytes alone, see `kolumn.values.decoder.Bodies.bare`."""


class _Name:
    """A name in memory of its own."""

    def __init__(self, name: bytes) -> None:
        self._held = np.frombuffer(name, np.uint8)
        self.address = self._held.ctypes.data


class ProtobufDecoder:
    """Decodes values of one message into one type. Threads may share it.

    The columns are the fields of the reader's message. A writer's schema only says which message its values are; what is common to both is
    found by field numbers, as in all of Protobuf. A row is not valid if what precedes its message chooses another one; without the writer's
    schema the reader's file is taken for it.

    Rows are valid or not, and have the values, as the package protobuf says (its parser upb, and ``IsInitialized``). There are two
    exceptions: strings of proto2 have to be UTF-8 too, and fields that are not in ``columns`` are not looked into: a malformed message or a
    missing required field there is not noticed, and neither is a member of a oneof that removes one with a column.

    ``schema`` is as of `file_of`. The ``message`` need not be named if the file has one, or the schema is a generated class. ``columns``
    are as of `shape`. In ``schemas`` the references of the reader's schema and of writers' are looked up.

    Raises `ArgumentError` if the schema is not valid, there is no such message or column, or a column has no type in Arrow; `MissingError`
    if the packages of ``kolumn[protobuf]`` are missing.
    """

    type: pa.DataType

    def __init__(
        self,
        schema: Schema | bytes | str | type,
        message: str | None = None,
        columns: tuple[str, ...] | None = None,
        *,
        schemas: Schemas | None = None,
    ) -> None:
        self._schemas = schemas
        own = file_of(schema, schemas)
        if message is None and isinstance(schema, type):
            message = getattr(schema, "DESCRIPTOR").full_name  # noqa: B009
        descriptor = own.message(message)
        self._name = str(descriptor.full_name)
        self.shape = shape(descriptor, columns)
        self.type = self.shape.type
        self.layout = ColumnLayout.of(self.shape.raw)
        self.tables = tables(self.shape, self.layout)
        self._required = has_required(self.shape)
        self._reader = schema if isinstance(schema, Schema) else None
        self._places: dict[tuple[object, ...], Place | None] = {}
        self._own = own.places().get(self._name, Place((), -1, (self._name,)))
        self._lock = threading.Lock()

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `ValueDecoder.decode`; `UnreadableSchemasError` if a schema that a writer's imports cannot be asked for, `OverflowError` if a
        column has more bytes or elements than 2**31 - 1.
        """
        length = np.ascontiguousarray(bodies.length, np.int64)
        array, valid = self._raw(bodies, length)
        if self._required:
            lacking = incomplete(self.shape, array)
            if lacking.any():
                # Written again without these rows, so that nothing of them is left in the column.
                array, valid = self._raw(bodies, np.where(lacking, -1, length))
        return finished(self.shape, array), valid

    def _raw(self, bodies: Bodies, length: Int64s) -> tuple[pa.Array, Flags]:
        count = len(length)
        choices, names = self.choices(bodies.schemas, _Name)
        at, prefix, kinds, schema = (
            np.ascontiguousarray(one, np.int64) for one in (bodies.at, bodies.prefix, bodies.framing, bodies.schema)
        )
        valid, frames = np.empty(count, np.bool_), np.empty((FRAMES + GROUPS) // 8, np.int64)
        fronts = BARE_FRONTS if bodies.bare else FRONTS
        addresses = [one.ctypes.data for one in (at, length, prefix, kinds, schema, fronts, choices, valid)]
        rows = Rows._make([*addresses, int(bodies.bare)])
        tables = (one.ctypes.data for one in vars(self.tables).values())
        program = ProtobufProgram._make((*tables, frames.ctypes.data, frames.ctypes.data + FRAMES))
        memory = ColumnMemory(self.layout, count, count + 64, shared_bytes(self.layout, length))
        row = 0
        while True:
            row, code = write_rows(memory.target, program, rows, row, count)
            if code == 0:
                break
            memory.grow(code)
        del names
        return memory.array(count), valid

    def choices(self, schemas: Sequence[Schema], held: Callable[[bytes], Any]) -> tuple[Int64s, list[Any]]:
        """What the writers' schemas say of the message, one row each after the reader's, as `kolumn.values.wire.protobuf_wire.after_front`
        takes it; and the memory of the names that it points to, which ``held`` makes of each: it has an ``address``.
        """
        places = [self._own, *map(self._place, schemas)]
        memory = {name: held(name.encode()) for name in {name for place in places if place is not None for name in place.names}}
        table = np.zeros((len(places), CHOICE // 8), np.int64)
        for row, place in zip(table, places, strict=True):
            row[0] = -1 if place is None else len(place.path)
            if place is not None:
                for at, name in ((1, place.names[-1]), (3, place.names[0])):
                    row[at : at + 2] = memory[name].address, len(name.encode())
                row[5] = place.number
                row[6 : 6 + len(place.path)] = place.path
        return table.reshape(-1), list(memory.values())

    def _place(self, schema: Schema) -> Place | None:
        """Where the message is in a writer's schema; None if it is not there, or a header of the values chose another one."""
        place = self._known_place(schema) if schema.kind == "PROTOBUF" else None
        if place is None or schema.message_indexes not in ((), place.path):
            return None
        return place if schema.message in ("", *place.names) else None

    def _known_place(self, schema: Schema) -> Place | None:
        if not schema.text:
            return self._own
        if self._reader is not None and (schema.text, schema.references) == (self._reader.text, self._reader.references):
            return self._own
        key = (schema.text, schema.references)
        with self._lock:
            if key not in self._places:
                self._places[key] = self._written(schema)
            return self._places[key]

    def _written(self, schema: Schema) -> Place | None:
        """Where the message is in a writer's schema, as in `_place`."""
        try:
            return file_of(schema, self._schemas).places().get(self._name)
        except UnreadableSchemasError:
            raise
        except ArgumentError as error:
            logger.warning("values are null, because %s (read as %s)", error, self._name)
            return None
