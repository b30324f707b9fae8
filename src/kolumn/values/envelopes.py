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
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Flags
from kolumn.core.buffers import bools
from kolumn.core.errors import ArgumentError
from kolumn.core.lost import ELEMENTS, WHOLE
from kolumn.values.avro import AvroDecoder
from kolumn.values.avro_types import meant_type
from kolumn.values.cloud_events import ATTRIBUTES, CloudEventDecoder, Make, data_type, of_json
from kolumn.values.connect import DELETED, fields_of, merged, of_avro, of_connect
from kolumn.values.decoder import Bodies, Salvaged, ValueDecoder, only_fields, only_rows, with_unit
from kolumn.values.retyped import Failures, retyped

_OPERATION = {"__op": pa.string(), DELETED: pa.bool_(), "__ts_ms": pa.int64()}
"""Columns of a change event beside those of its row."""
_EVENT = {"op": pa.string(), "ts_ms": pa.int64()}
DOCUMENT = "document"
_NOTHING = pa.struct([])
Infer = Callable[[Iterable[bytes]], pa.DataType | None]
"""The type that values of JSON have in common."""


@dataclass(frozen=True)
class JsonEnvelope:
    """How objects of JSON are taken apart: the type in which a row or payload is read, and the one that is meant; whether it is the payload
    beside a schema in some values, and the value itself in some; whether it is the row of a change event.
    """

    read: pa.DataType
    meant: pa.DataType
    is_wrapped: bool = False
    is_bare: bool = False
    is_event: bool = False

    def only(self, columns: Sequence[str] | None, option: str) -> "JsonEnvelope":
        """The same with the fields of the row or payload that dotted paths name."""
        if columns is None or (self.is_event and _is_document(self.read, columns)):
            return self
        if not columns:
            return replace(self, read=_NOTHING, meant=_NOTHING)
        return replace(self, read=only_fields(self.read, tuple(columns), option), meant=only_fields(self.meant, tuple(columns), option))

    @property
    def whole(self) -> pa.StructType:
        """The type of a value with all that is around it and of use."""
        images = {} if self.read == _NOTHING else {"before": self.read, "after": self.read}
        payload = pa.struct({**images, **_EVENT}) if self.is_event else self.read
        wrapped = [pa.field("payload", payload)] if self.is_wrapped else []
        return pa.struct([*wrapped, *(payload if self.is_bare else [])])


def json_envelope(
    kind: str, named: pa.DataType | None, values: Iterable[bytes], infer: Infer, where: str
) -> JsonEnvelope | pa.DataType | None:
    """How some values of JSON, and others like them, are taken apart; a type if there is nothing around them; None if no value says it.
    ``named`` is the type of the row or payload that a caller named. `ArgumentError` for values without such an envelope; ``where`` is the
    option that asks for it.
    """
    if kind == "cloudevents":
        return JsonEnvelope(*(named if named is not None else data_type(values, infer),) * 2)
    objects = [one for one in map(_object, values) if one is not None]
    is_wrapped = [one.keys() >= {"schema", "payload"} if kind == "auto" else "payload" in one for one in objects]
    payloads = [one["payload"] if inside else one for one, inside in zip(objects, is_wrapped, strict=True)]
    events = [_is_event(one) for one in payloads]
    is_event = kind == "debezium" or (kind == "auto" and any(events))
    if objects and not any(events if kind == "debezium" else is_wrapped) and kind != "auto":
        expected = "a change event, an object with op, and with before or after" if kind == "debezium" else "an object with payload"
        raise ArgumentError(f"{where}={kind!r}: none of the first {len(objects)} objects is {expected}: leave {where} out")
    if kind == "auto" and not is_event and not any(is_wrapped):
        return infer(map(_text, objects)) if named is None and objects else named
    rows = [row for one in payloads for row in (_images(one) if is_event else [one]) if row is not None]
    if named is not None:
        meant = named.field("after").type if is_event and {"after", *_EVENT} <= {field.name for field in named} else named
        read = _as_written(meant, rows)
    else:
        schemas = [one.get("schema") for one, inside in zip(objects, is_wrapped, strict=True) if inside]
        found = _types([part for one in schemas for part in (_rows_of(one) if is_event else [one])], rows, infer)
        if found is None:
            return None
        read, meant = found
    is_bare = [one for one, inside in zip(events if is_event else objects, is_wrapped, strict=True) if one and not inside]
    can_be_bare = is_event or (kind == "auto" and pa.types.is_struct(read) and read.get_field_index("payload") < 0)
    return JsonEnvelope(read, meant, any(is_wrapped) or not objects, can_be_bare and (bool(is_bare) or not objects), is_event)


def _types(schemas: list[object], rows: list[object], infer: Infer) -> tuple[pa.DataType, pa.DataType] | None:
    """How rows are read, and what is meant, by the schemas that are there, else by the rows."""
    known: list[Mapping[str, object] | None] = [one for one in schemas if isinstance(one, Mapping)]
    if known:
        read, meant = of_connect(reduce(merged, known))
        return _with_numbers(read, meant, rows), meant
    found = infer(_text({"row": row}) for row in rows) if rows else None
    return None if found is None else (found.field("row").type,) * 2


def _with_numbers(read: pa.DataType, meant: pa.DataType, values: list[object]) -> pa.DataType:
    """A type of rows with decimals that are read as such where the values have numbers (``decimal.format=NUMERIC``), not base64."""
    if pa.types.is_struct(read) and pa.types.is_struct(meant):
        own = [one for one in values if isinstance(one, dict)]
        fields = zip(read, meant, strict=True)
        return pa.struct([one.with_type(_with_numbers(one.type, two.type, [row.get(one.name) for row in own])) for one, two in fields])
    return meant if pa.types.is_decimal(meant) and any(isinstance(one, int | float) for one in values) else read


def _as_written(type: pa.DataType, values: list[object]) -> pa.DataType:
    """A type with integers in place of dates and times where the values have integers."""
    if pa.types.is_struct(type):
        own = [one for one in values if isinstance(one, dict)]
        return pa.struct([field.with_type(_as_written(field.type, [one.get(field.name) for one in own])) for field in type])
    if pa.types.is_temporal(type) and any(isinstance(one, int) for one in values):
        return pa.int32() if type.bit_width == 32 else pa.int64()
    return type


def _rows_of(schema: object) -> list[object]:
    """The schemas of the rows in the schema of a change event."""
    fields = fields_of(schema) if isinstance(schema, Mapping) else []
    return [{**field, "field": None} for field in fields if field.get("field") in ("before", "after")]


def _images(event: object) -> list[object]:
    return [event.get("before"), event.get("after")] if isinstance(event, dict) else []


def _object(value: bytes) -> dict[str, object] | None:
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _text(value: object) -> bytes:
    return json.dumps(value).encode()


def _is_event(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("op"), str) and bool(value.keys() & {"before", "after"})


def opened(kind: str, reader: object, columns: Sequence[str] | None, unit: str | None, make: Make, option: str) -> ValueDecoder:
    """The decoder of values that are in an envelope; ``columns`` are paths of what is in it, ``unit`` that of all timestamps. Raises
    `ArgumentError` if the type of the values has no such envelope, which the ``option`` asks for, or no such columns.
    """
    own = None if columns is None else [name for name in columns if name not in _OPERATION and name not in ATTRIBUTES]
    if isinstance(reader, JsonEnvelope):
        where = option.replace("envelope", "columns")
        if kind == "cloudevents":
            return of_json(reader.read, columns, own, make, where)
        how = reader.only(own if reader.is_event else columns, where)
        inner, place = make(how.whole, None), PayloadPlace(how.is_wrapped, how.is_bare, is_json=True)
        if how.is_event:
            return EventDecoder(inner, place, how.meant, unit, columns)
        return PayloadDecoder(inner, place, how.meant, unit)
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
    if own is not None and not _is_document(_meant(whole).field("after").type, own):
        images = [f"{image}.{name}" for image in ("before", "after") for name in own]
        whole = make(reader, [*images, "op", *(["ts_ms"] if "ts_ms" in names else [])])
    meant = _meant(whole)
    if own == []:
        return EventDecoder(whole, PayloadPlace(), _NOTHING, unit, columns)
    before, after = (meant.field(image).type for image in ("before", "after"))
    if before != after:
        raise ArgumentError(f"{option}={kind!r}: before and after have different types: {before} and {after}")
    return EventDecoder(whole, PayloadPlace(), after, unit, columns)


def _is_document(row: pa.DataType, columns: Sequence[str]) -> bool:
    """Whether the row of change events is one column, which is all that is wanted of it."""
    return not pa.types.is_struct(row) and list(columns) == [DOCUMENT]


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


class PayloadDecoder:
    """Decodes the payloads beside schemas, and gives columns the types that are meant."""

    def __init__(self, inner: ValueDecoder, place: PayloadPlace, meant: pa.DataType, unit: str | None) -> None:
        self._inner, self._place, self._meant = inner, place, meant
        self.type: pa.DataType = with_unit(meant, unit)
        self._row = self.type

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `ValueDecoder.decode`."""
        array, valid = self._inner.decode(bodies)
        made, failures = self._opened(array)
        for _, rows in failures:
            valid = valid & ~rows
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
        problems = [(WHOLE,) if WHOLE in paths else tuple(dict.fromkeys(paths)) for paths in found]
        return only_rows(made, np.array([paths != (WHOLE,) for paths in problems], bool)), problems

    def _paths(self, paths: tuple[str, ...], array: pa.Array, row: int) -> tuple[str, ...]:
        return tuple(map(self._place.path, paths))

    def _opened(self, array: pa.Array) -> tuple[pa.Array, Failures]:
        """The column, and what fails; `WHOLE` for a value that has nothing in the envelope."""
        payload = self._place.payload(array)
        made, failures = self._as_meant(payload)
        empty = bools(payload.is_null()) & bools(array.is_valid())
        return made, [*failures, (WHOLE, empty)] if empty.any() else failures

    def _as_meant(self, array: pa.Array) -> tuple[pa.Array, Failures]:
        made, failures = retyped(array, self._meant)
        whole = ELEMENTS if pa.types.is_nested(self._meant) else WHOLE
        return retyped(made, self._row)[0], [(path or whole, rows) for path, rows in failures]


class EventDecoder(PayloadDecoder):
    """Decodes change events into the columns of their rows, and those that say what was done; ``columns`` are those that are wanted."""

    def __init__(self, inner: ValueDecoder, place: PayloadPlace, row: pa.DataType, unit: str | None, columns: Sequence[str] | None) -> None:
        super().__init__(inner, place, row, unit)
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
        if self._row != _NOTHING:
            image = _either(bools(pc.fill_null(deleted, False)), parts["before"], parts["after"])
            row, failures = self._as_meant(image)
            children = [*([row] if self._is_document else row.flatten()), *children]
        none = pc.or_(event.is_null(), op.is_null())
        empty = bools(none) & bools(array.is_valid())
        column = pa.StructArray.from_arrays(children, fields=list(self.type), mask=none)
        return column, [*failures, (WHOLE, empty)] if empty.any() else failures

    def _paths(self, paths: tuple[str, ...], array: pa.Array, row: int) -> tuple[str, ...]:
        """Paths of the row that an event shows; what is lost of the other one nobody misses."""
        event = self._place.payload(array.slice(row, 1))
        image, other = ("before", "after") if event.field("op")[0].as_py() == "d" else ("after", "before")
        found = []
        for path in map(self._place.path, paths):
            first, _, rest = path.partition(".")
            if first == "ts_ms":
                found.append("__ts_ms")
            elif first != other:
                found.append(rest if first == image and rest else DOCUMENT if first == image and self._is_document else WHOLE)
        return tuple(found)


def _milliseconds(column: pa.Array | None, count: int) -> pa.Array:
    return pa.nulls(count, pa.int64()) if column is None else column.cast(pa.int64())


def _either(rows: Flags, first: pa.Array, second: pa.Array) -> pa.Array:
    """The values of one column in some rows, of another one in the others: `pyarrow.compute.if_else` has no extension types."""
    if not rows.any():
        return second
    return first if rows.all() else pa.concat_arrays([first, second]).take(pa.array(np.arange(len(rows)) + np.where(rows, 0, len(rows))))
