"""What is around a value is taken off it: the schema that Kafka Connect's `JsonConverter` writes beside the payload, the change event that
Debezium puts around the rows of a table, and the attributes of CloudEvents. A decoder of the format reads the whole, without what nobody
asks for; what it returns is taken apart as Arrow arrays.

    connect       {"schema": …, "payload": P}                                        P
    debezium      E or {"schema": …, "payload": E}, E = {"before", "after", "op", …} columns of the row, __op, __deleted, __ts_ms
    cloudevents   {"specversion", "id", …, "data": D}, or D and headers              columns of D, __ce_id, __ce_source, …

The row is ``after``, of a delete ``before``; of an event without a row (truncate, message) its columns are null. Where it is no struct, as
the JSON text of MongoDB's documents, it is the column ``document``, and other data of a CloudEvent is ``data``. The names are those of
Debezium's `ExtractNewRecordState`. Source: https://debezium.io/documentation/reference/stable/transformations/event-flattening.html.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Flags
from kolumn.core.buffers import bools
from kolumn.core.errors import ArgumentError
from kolumn.core.lost import ELEMENTS, WHOLE
from kolumn.values.avro import AvroDecoder
from kolumn.values.avro_types import meant_type
from kolumn.values.by_schema import DOCUMENT, EVENT, BySchema, JsonEnvelope, is_document, rows_of
from kolumn.values.cloud_events import ATTRIBUTES, CloudEventDecoder, Make, data_type, of_json
from kolumn.values.common_types import common_type, exact, fitted
from kolumn.values.connect import DELETED, of_avro, of_connect
from kolumn.values.decoder import Bodies, Salvaged, ValueDecoder, only_rows, with_unit
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.retyped import NOTHING, Failures, retyped

_OPERATION = {"__op": pa.string(), DELETED: pa.bool_(), "__ts_ms": pa.int64()}
"""Columns of a change event beside those of its row."""
_ACTS = frozenset("crudtm")
_MEMBERS = frozenset(("before", "after", "source", "op", "ts_ms", "ts_us", "ts_ns", "transaction", "message"))
"""What an event says that was done, and all that it has."""
Infer = Callable[[Iterable[bytes]], pa.DataType | None]
"""The type that values of JSON have in common."""


def json_envelope(
    kind: str, named: pa.DataType | None, values: Iterable[bytes], infer: Infer, where: str
) -> JsonEnvelope | pa.DataType | None:
    """How some values of JSON, and others like them, are taken apart; a type if there is nothing around them; None if no value says it.
    ``named`` is the type of the row or payload that a caller named. `ArgumentError` for values without such an envelope; ``where`` is the
    option that asks for it.
    """
    if kind == "cloudevents":
        type = named if named is not None else data_type(values, infer)
        return JsonEnvelope(type, type, type)
    objects = [one for one in map(_object, values) if one is not None]
    is_wrapped = [_is_wrapped(one) if kind == "auto" else "payload" in one for one in objects]
    payloads = [one["payload"] if inside else one for one, inside in zip(objects, is_wrapped, strict=True)]
    schemas = [one.get("schema") for one, inside in zip(objects, is_wrapped, strict=True) if inside]
    events = [_is_event(one) if kind == "auto" else _may_be_event(one) for one in payloads]
    # Events of some kinds have no row: only their schema says that others have one.
    have_rows = any(map(rows_of, schemas)) or any(one and _has_row(event) for one, event in zip(events, payloads, strict=True))
    is_event = kind == "debezium" or (kind == "auto" and any(events) and have_rows)
    if objects and not (any(is_wrapped) if kind == "connect" else kind == "auto" or have_rows or (named is not None and any(events))):
        expected = "a change event, an object with op, and with before or after" if kind == "debezium" else "an object with payload"
        raise ArgumentError(f"{where}={kind!r}: none of the first {len(objects)} objects is {expected}: leave {where} out")
    if kind == "auto" and not is_event and not any(is_wrapped):
        return infer(map(_text, objects)) if named is None and objects else named
    rows = [row for one in payloads for row in (_images(one) if is_event else [one]) if row is not None]
    parts = [part for one in schemas for part in (rows_of(one) if is_event else [one])]
    found = _named(named, rows, is_event) if named is not None else _types(parts, rows, infer)
    if found is None:
        return None
    is_bare = [one for one, inside in zip(events if is_event else objects, is_wrapped, strict=True) if one and not inside]
    can_be_bare = is_event or (kind == "auto" and pa.types.is_struct(found.type) and found.type.get_field_index("payload") < 0)
    return replace(
        found,
        is_wrapped=any(is_wrapped) or not objects,
        is_bare=can_be_bare and (bool(is_bare) or not objects),
        is_event=is_event,
        names=frozenset(field.name for field in found.type) if named is None and pa.types.is_struct(found.type) else frozenset(),
    )


def _named(named: pa.DataType, rows: list[object], is_event: bool) -> JsonEnvelope:
    """Rows of a type that a caller named: it may be that of the event."""
    is_whole = is_event and pa.types.is_struct(named) and {"after", *EVENT} <= {field.name for field in named}
    type = named.field("after").type if is_whole else named
    # Documents of MongoDB are text.
    is_text = is_event and bool(rows) and all(isinstance(row, str) for row in rows)
    return JsonEnvelope(pa.string() if is_text else _as_written(type, rows), type, type, is_named=True)


def _types(schemas: list[object], rows: list[object], infer: Infer) -> JsonEnvelope | None:
    """How rows are read, and what is meant, by the schemas that are there, else by the rows."""
    distinct = {json.dumps(one): one for one in schemas}.values()
    pairs = [of_connect(one) for one in distinct if isinstance(one, Mapping)]
    if pairs:
        # Others tell nothing, if there are any.
        pairs = list(dict.fromkeys(pair for pair in pairs if pair != (JSON_TEXT, JSON_TEXT))) or pairs
        type = common_type([meant for _, meant in pairs])
        return JsonEnvelope(*fitted(pairs, type), type)
    type = _inferred(rows, infer)
    return None if type is None else JsonEnvelope(type, type, type)


def _inferred(rows: list[object], infer: Infer) -> pa.DataType | None:
    found = infer(_text({"row": row}) for row in rows) if rows else None
    return None if found is None else found.field("row").type


def _as_written(type: pa.DataType, values: list[object]) -> pa.DataType:
    """A type with integers in place of dates and times where the values have integers."""
    if pa.types.is_struct(type):
        own = [one for one in values if isinstance(one, dict)]
        return pa.struct([field.with_type(_as_written(field.type, [one.get(field.name) for one in own])) for field in type])
    if pa.types.is_list(type):
        return pa.list_(_as_written(type.value_type, [part for one in values if isinstance(one, list) for part in one]))
    if pa.types.is_map(type):
        parts = [part for one in values if isinstance(one, dict) for part in one.values()]
        return pa.map_(type.key_type, _as_written(type.item_type, parts))
    if pa.types.is_temporal(type) and any(isinstance(one, int) for one in values):
        return pa.int32() if type.bit_width == 32 else pa.int64()
    return type


def _images(event: object) -> list[object]:
    """The rows of a change event, null for one that it has not."""
    return [event[name] for name in ("before", "after") if name in event] if isinstance(event, dict) else []


def _has_row(event: object) -> bool:
    return isinstance(event, dict) and "op" in event and bool(_images(event))


def _object(value: bytes) -> dict[str, object] | None:
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _text(value: object) -> bytes:
    return json.dumps(value).encode()


def _is_wrapped(value: Mapping[str, object]) -> bool:
    """Whether an object certainly is what `JsonConverter` writes."""
    schema = value.get("schema")
    return value.keys() == {"schema", "payload"} and (schema is None or (isinstance(schema, Mapping) and "type" in schema))


def _is_event(value: object) -> bool:
    """Whether a value certainly is what Debezium writes."""
    return isinstance(value, dict) and value.keys() <= _MEMBERS and isinstance(value.get("op"), str) and value["op"] in _ACTS


def _may_be_event(value: object) -> bool:
    """Whether a value is a change event if a caller says so."""
    return isinstance(value, dict) and (isinstance(value.get("op"), str) or (bool(value) and value.keys() <= _MEMBERS))


def opened(kind: str, reader: object, columns: Sequence[str] | None, unit: str | None, make: Make, option: str) -> ValueDecoder:
    """The decoder of values that are in an envelope; ``columns`` are paths of what is in it, ``unit`` that of all timestamps. Raises
    `ArgumentError` if the type of the values has no such envelope, which the ``option`` asks for, or no such columns.
    """
    own = None if columns is None else [name for name in columns if name not in _OPERATION and name not in ATTRIBUTES]
    if isinstance(reader, JsonEnvelope):
        where = option.replace("envelope", "columns")
        if kind == "cloudevents":
            return of_json(reader.type, columns, own, make, where)
        how = reader.only(own if reader.is_event else columns, where)
        read, place = BySchema(how, unit, make), PayloadPlace(how.is_wrapped, how.is_bare, is_json=True)
        form = _Form(reader.type, reader.is_wrapped, reader.is_event) if kind == "auto" else None
        if how.is_event:
            return EventDecoder(read, place, with_unit(how.type, unit), None, columns, form)
        return PayloadDecoder(read, place, with_unit(how.type, unit), None, form)
    if isinstance(reader, pa.DataType):
        inner = make(reader, columns)
        return PayloadDecoder(inner, PayloadPlace(is_json=True), inner.type, None, _Form(reader))
    if kind == "cloudevents":
        return CloudEventDecoder(make(reader, own), columns)
    whole = make(reader, None)
    names = [field.name for field in whole.type] if pa.types.is_struct(whole.type) else []
    is_event = {"before", "after", "op"} <= set(names)
    if kind == "debezium" and not is_event:
        raise ArgumentError(f"{option}='debezium': expected the fields before, after and op, found {whole.type}")
    if kind == "connect" or not is_event:
        inner = make(reader, columns)
        return PayloadDecoder(inner, PayloadPlace(), _meant(inner), unit)
    if own is not None and not is_document(_meant(whole).field("after").type, own):
        images = [f"{image}.{name}" for image in ("before", "after") for name in own]
        whole = make(reader, [*images, "op", *(["ts_ms"] if "ts_ms" in names else [])])
    meant = _meant(whole)
    if own == []:
        return EventDecoder(whole, PayloadPlace(), NOTHING, unit, columns)
    before, after = (meant.field(image).type for image in ("before", "after"))
    if before != after:
        raise ArgumentError(f"{option}={kind!r}: before and after have different types: {before} and {after}")
    return EventDecoder(whole, PayloadPlace(), after, unit, columns)


def _meant(decoder: ValueDecoder) -> pa.DataType:
    return meant_type(decoder.node, decoder.type, of_avro) if isinstance(decoder, AvroDecoder) else decoder.type


@dataclass(frozen=True)
class PayloadPlace:
    """Where the payload is in what is decoded: it is the field ``payload`` of some values, and all other fields are it in some. Values
    are JSON, whose text says whether a payload that is null is there.
    """

    is_wrapped: bool = False
    is_bare: bool = True
    is_json: bool = False

    def payload(self, array: pa.Array) -> pa.Array:
        if not self.is_wrapped:
            return array
        inside, *others = array.flatten()
        if not self.is_bare:
            return inside
        bare = pa.StructArray.from_arrays(others, fields=list(array.type)[1:], mask=array.is_null())
        return _either(bools(inside.is_valid()), inside, bare)

    def path(self, path: str) -> str:
        """A path of a value as one of its payload. That the payload is lost itself is seen where it is null."""
        return ELEMENTS if path == "payload" else path.removeprefix("payload.") if self.is_wrapped else path

    def has_none(self, text: bytes) -> bool:
        """Whether the payload of a value is there and null."""
        found = _object(text) if self.is_json and self.is_wrapped else None
        return found is not None and "payload" in found and found["payload"] is None


@dataclass(frozen=True)
class _Form:
    """What values of JSON look like of which nobody said how they look: that they have nothing of a type is not enough."""

    type: pa.DataType
    is_wrapped: bool = False
    is_event: bool = False

    def has(self, text: bytes) -> bool:
        """Whether a value may have nothing of the type."""
        value = _object(text)
        payload = value.get("payload") if self.is_wrapped and value is not None and _is_wrapped(value) else value
        if self.is_event:
            return _is_event(payload)
        return not isinstance(payload, dict) or not payload or any(self.type.get_field_index(name) >= 0 for name in payload)


class PayloadDecoder:
    """Decodes the payloads beside schemas, and gives columns the types that are meant."""

    def __init__(self, inner: ValueDecoder, place: PayloadPlace, meant: pa.DataType, unit: str | None, form: _Form | None = None) -> None:
        self._inner, self._place, self._meant, self._form = inner, place, meant, form
        self.type: pa.DataType = with_unit(meant, unit)
        self._row = self.type

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `ValueDecoder.decode`."""
        array, valid = self._inner.decode(bodies)
        made, failures = self._opened(array)
        for _, rows in failures:
            valid = valid & ~rows
        valid = valid & ~self._unlike(bodies, made, valid)
        return only_rows(made, valid), valid

    def salvage(self, bodies: Bodies) -> Salvaged:
        """As `ValueDecoder.salvage`."""
        array, lost = self._inner.salvage(bodies)
        made, failures = self._opened(array)
        found = [self._paths(paths, array, row) if paths else () for row, paths in enumerate(lost)]
        for path, rows in failures:
            for row in np.flatnonzero(rows).tolist():
                if path != WHOLE or not self._place.has_none(bodies.payload(row)):
                    found[row] = (*found[row], path)
        for row in np.flatnonzero(self._unlike(bodies, made, bools(made.is_valid()))).tolist():
            found[row] = (WHOLE,)
        problems = [(WHOLE,) if WHOLE in paths else tuple(dict.fromkeys(paths)) for paths in found]
        return only_rows(made, np.array([paths != (WHOLE,) for paths in problems], bool)), problems

    def _paths(self, paths: tuple[str, ...], array: pa.Array, row: int) -> tuple[str, ...]:
        return tuple(map(self._place.path, paths))

    def _unlike(self, bodies: Bodies, made: pa.Array, rows: Flags) -> Flags:
        """Which of some rows have nothing of the type because their values have another form."""
        flags = np.zeros(len(made), bool)
        if self._form is not None:
            for row in np.flatnonzero(rows & self._is_empty(made)).tolist():
                flags[row] = not self._form.has(bodies.payload(row))
        return flags

    def _is_empty(self, made: pa.Array) -> Flags:
        """Which rows of a struct have no field that is not null."""
        fields = made.flatten() if pa.types.is_struct(made.type) else []
        return np.logical_and.reduce([bools(one.is_null()) for one in fields]) if fields else np.zeros(len(made), bool)

    def _opened(self, array: pa.Array) -> tuple[pa.Array, Failures]:
        """The column, and what fails; `WHOLE` for a value that has nothing in the envelope."""
        payload = self._place.payload(array)
        made, failures = self._as_meant(payload)
        empty = bools(payload.is_null()) & bools(array.is_valid())
        return made, [*failures, (WHOLE, empty)] if empty.any() else failures

    def _as_meant(self, array: pa.Array) -> tuple[pa.Array, Failures]:
        meant, failures = retyped(array, self._meant)
        made, others = retyped(meant, self._row, leaf=partial(exact, is_cut=True))
        whole = ELEMENTS if pa.types.is_nested(self._meant) else WHOLE
        return made, [(path or whole, rows) for path, rows in (*failures, *others)]


class EventDecoder(PayloadDecoder):
    """Decodes change events into the columns of their rows, and those that say what was done; ``columns`` are those that are wanted."""

    def __init__(
        self,
        inner: ValueDecoder,
        place: PayloadPlace,
        row: pa.DataType,
        unit: str | None,
        columns: Sequence[str] | None,
        form: _Form | None = None,
    ) -> None:
        super().__init__(inner, place, row, unit, form)
        self._wanted = [name for name in _OPERATION if columns is None or name in columns]
        # An event without a row has none of its fields.
        self._is_document = not pa.types.is_struct(self._row)
        fields = [pa.field(DOCUMENT, self._row)] if self._is_document else list(self._row)
        twice = [field.name for field in fields if field.name in _OPERATION]
        if twice:
            raise ArgumentError(f"the row of the change events has {', '.join(twice)} itself, as events have that were flattened before")
        fields = [field.with_nullable(True) for field in fields]
        self.type = pa.struct([*fields, *(pa.field(name, _OPERATION[name]) for name in self._wanted)])

    def _opened(self, array: pa.Array) -> tuple[pa.Array, Failures]:
        event = self._place.payload(array)
        parts = dict(zip((field.name for field in event.type), event.flatten(), strict=True))
        op = parts["op"].cast(pa.string())
        deleted = pc.equal(op, "d")
        made = {"__op": op, DELETED: deleted, "__ts_ms": _milliseconds(parts.get("ts_ms"), len(op))}
        children, failures = [made[name] for name in self._wanted], Failures()
        if self._row != NOTHING:
            image = _either(bools(pc.fill_null(deleted, False)), parts["before"], parts["after"])
            row, failures = self._as_meant(image)
            children = [*([row] if self._is_document else row.flatten()), *children]
        none = pc.or_(event.is_null(), op.is_null())
        empty = bools(none) & bools(array.is_valid())
        column = pa.StructArray.from_arrays(children, fields=list(self.type), mask=none)
        return column, [*failures, (WHOLE, empty)] if empty.any() else failures

    def _is_empty(self, made: pa.Array) -> Flags:
        """Which events say nothing that is known of a row, or do something unknown to it."""
        fields = dict(zip((field.name for field in made.type), made.flatten(), strict=True))
        op = fields.get("__op")
        strange = np.zeros(len(made), bool) if op is None else ~bools(pc.is_in(op, pa.array(sorted(_ACTS))))
        own = [bools(one.is_null()) for name, one in fields.items() if name not in _OPERATION]
        return strange | np.logical_and.reduce(own) if own else strange

    def _paths(self, paths: tuple[str, ...], array: pa.Array, row: int) -> tuple[str, ...]:
        """Paths of the row that an event shows; what is lost of the other one, and of what is no column, nobody misses."""
        event = self._place.payload(array.slice(row, 1))
        image = "before" if event.field("op")[0].as_py() == "d" else "after"
        found = []
        for path in map(self._place.path, paths):
            first, _, rest = path.partition(".")
            if first == image:
                found.append(rest or (DOCUMENT if self._is_document else WHOLE))
            elif first in ("op", WHOLE, ELEMENTS):
                found.append(WHOLE)
            elif first == "ts_ms" and "__ts_ms" in self._wanted:
                found.append("__ts_ms")
        return tuple(found)


def _milliseconds(column: pa.Array | None, count: int) -> pa.Array:
    return pa.nulls(count, pa.int64()) if column is None else column.cast(pa.int64())


def _either(rows: Flags, first: pa.Array, second: pa.Array) -> pa.Array:
    """The values of one column in some rows, of another one in the others: `pyarrow.compute.if_else` has no extension types."""
    if not rows.any():
        return second
    return first if rows.all() else pa.concat_arrays([first, second]).take(pa.array(np.arange(len(rows)) + np.where(rows, 0, len(rows))))
