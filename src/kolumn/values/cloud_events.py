"""CloudEvents: data and attributes in one value (structured), or the data alone and attributes in headers (binary). Source:
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md.

The headers say of an event that it is binary. Without them an object is a structured event if it has all attributes that the specification
requires: data may have a member ``specversion`` of their own.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Flags, Int64s
from kolumn.core.buffers import bools
from kolumn.core.errors import ArgumentError
from kolumn.core.lost import ELEMENTS, WHOLE
from kolumn.values.decoder import Bodies, Salvaged, ValueDecoder, only_fields
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.framing import values_of_headers
from kolumn.values.json import JsonDecoder
from kolumn.values.retyped import NOTHING

ATTRIBUTES = {f"__ce_{name}": name for name in ("id", "source", "type", "time", "subject")}
"""Columns of the attributes of a CloudEvent, by which those are called ``ce_…`` in headers."""
Make = Callable[[object, Sequence[str] | None], ValueDecoder]
"""Makes the decoder of the format from what it reads and dotted paths of wanted fields."""
_BASE64 = "data_base64"
"""The member that a structured event has instead of ``data``, if that is binary: a column of bytes has what it says."""
_REQUIRED = ("specversion", "id", "source", "type")
_MODE = pa.struct([(name, pa.string()) for name in _REQUIRED])
_VERSION, _CONTENT, _STRUCTURED = "ce_specversion", "content-type", b"application/cloudevents"


def data_type(values: Iterable[bytes], infer: Callable[[Iterable[bytes]], pa.DataType | None]) -> pa.DataType:
    """The type of the data of some events in JSON: a struct without fields if they have none, null if there are no events. As without an
    envelope, values that are no objects count where most of them are none.
    """
    data, others = list[object](), list[object]()
    are_coded = are_there = False
    for value in values:
        try:
            event = json.loads(value)
        except (ValueError, RecursionError):
            continue
        are_there = True
        if not isinstance(event, dict):
            others.append(event)
        elif any(event.get(name) is None for name in _REQUIRED):
            data.append(event)
        else:
            are_coded = are_coded or _BASE64 in event
            data.append(event.get("data"))
    wanted = [one for one in (data + others if len(others) > len(data) else data) if one is not None]
    found = infer(json.dumps({"data": one}).encode() for one in wanted) if wanted else None
    if found is not None:
        return found.field("data").type
    return pa.binary() if are_coded else NOTHING if are_there else pa.null()


def of_json(data: pa.DataType, columns: Sequence[str] | None, own: list[str] | None, make: Make, where: str) -> "CloudEventDecoder":
    """The decoder of JSON with data of a type, `data_type`; ``own`` are the wanted ``columns`` without attributes, which the option
    ``where`` names.
    """
    if own == []:
        data = NOTHING
    elif pa.types.is_null(data):
        schema = where.replace("columns", "schema")
        raise ArgumentError(
            f"no type of the data of the CloudEvents: no value says it: name it in {schema}, or attributes alone in {where}"
        )
    elif own and (pa.types.is_struct(data) or own != ["data"]):
        data = only_fields(data, tuple(own), where)
    plain: ValueDecoder | None = None
    if pa.types.is_nested(data) and data != NOTHING:
        plain = make(data, None)
    elif not pa.types.is_binary(data):
        plain = JsonDecoder(JSON_TEXT if data == NOTHING else data)
    attributes = {name: pa.string() for column, name in ATTRIBUTES.items() if columns is None or column in columns}
    in_base64 = {_BASE64: pa.binary() if pa.types.is_binary(data) else pa.string()}
    event = attributes if data == NOTHING else {"data": data, **in_base64, **attributes}
    return CloudEventDecoder(plain, columns, data, make(pa.struct(event), None), make(_MODE, None))


@dataclass(frozen=True)
class EventBodies(Bodies):
    """Bodies of which the headers say whether they are the data of an event alone."""

    is_binary: Flags = field(default_factory=lambda: np.zeros(0, bool))

    @classmethod
    def of(cls, bodies: Bodies, is_binary: Flags) -> "EventBodies":
        return cls(**{one.name: getattr(bodies, one.name) for one in fields(Bodies)}, is_binary=is_binary)

    def rows(self, chosen: Int64s) -> "EventBodies":
        return self.of(super().rows(chosen), self.is_binary[chosen])


def with_modes(bodies: Bodies, headers: pa.ListArray) -> EventBodies:
    """The same with what the headers of the records say."""
    is_binary = np.zeros(len(bodies), bool)
    found = {name: (rows, which, texts) for name, rows, which, texts in values_of_headers(headers, (_VERSION, _CONTENT))}
    if _VERSION in found:
        is_binary[found[_VERSION][0]] = True
        if _CONTENT in found:
            rows, which, texts = found[_CONTENT]
            is_binary[rows[np.array([text.lower().startswith(_STRUCTURED) for text in texts], bool)[which]]] = False
    return EventBodies.of(bodies, is_binary)


class CloudEventDecoder:
    """Decodes the data of CloudEvents. Structured events are read by ``structured``, others by ``plain``, which is None if those are lost;
    ``mode`` tells them apart, and is None if all are binary. ``data`` is the type of the data, by default that of ``plain``. Attributes in
    headers are added by `with_headers`.
    """

    def __init__(
        self,
        plain: ValueDecoder | None,
        columns: Sequence[str] | None,
        data: pa.DataType | None = None,
        structured: ValueDecoder | None = None,
        mode: ValueDecoder | None = None,
    ) -> None:
        self._decoders, self._mode = {False: plain, True: structured}, mode
        if data is None:
            data = pa.null() if plain is None else plain.type
        self._is_struct = pa.types.is_struct(data)
        self._wanted = [name for name in ATTRIBUTES if columns is None or name in columns]
        has_data = columns is None or len(self._wanted) < len(columns)
        self._fields = [] if not has_data else list(data) if self._is_struct else [pa.field("data", data)]
        twice = [field.name for field in self._fields if field.name in ATTRIBUTES]
        if twice:
            raise ArgumentError(f"the data of the CloudEvents have {', '.join(twice)} themselves: name the other columns that you want")
        fields = [field.with_nullable(True) for field in self._fields]
        self.type: pa.DataType = pa.struct([*fields, *(pa.field(name, pa.string()) for name in self._wanted)])

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `ValueDecoder.decode`."""
        valid, pieces, order = np.zeros(len(bodies), bool), [], []
        for decoder, is_structured, rows in self._parts(bodies):
            if decoder is None:
                pieces.append(pa.nulls(len(rows), self.type))
            else:
                array, fine = decoder.decode(bodies.rows(rows))
                valid[rows] = fine = fine & ~self._unfit(array) if is_structured else fine
                pieces.append(self._columns(array, is_structured, fine))
            order.append(rows)
        return _in_order(pieces or [pa.nulls(0, self.type)], order), valid

    def salvage(self, bodies: Bodies) -> Salvaged:
        """As `ValueDecoder.salvage`."""
        lost: list[tuple[str, ...]] = [(WHOLE,)] * len(bodies)
        pieces, order = [], []
        for decoder, is_structured, rows in self._parts(bodies):
            if decoder is None:
                pieces.append(pa.nulls(len(rows), self.type))
            else:
                array, problems = decoder.salvage(bodies.rows(rows))
                unfit = self._unfit(array) if is_structured else np.zeros(len(rows), bool)
                for row, paths, is_unfit in zip(rows.tolist(), problems, unfit.tolist(), strict=True):
                    every = (*paths, _BASE64) if is_unfit else paths
                    lost[row] = tuple(dict.fromkeys(name for path in every for name in self._names(path, is_structured)))
                pieces.append(self._columns(array, is_structured, np.array([paths != (WHOLE,) for paths in problems], bool)))
            order.append(rows)
        return _in_order(pieces or [pa.nulls(0, self.type)], order), lost

    def _unfit(self, array: pa.StructArray) -> Flags:
        """The rows whose data are bytes, in a column of another type."""
        if array.type.get_field_index(_BASE64) < 0 or pa.types.is_binary((found := array.field(_BASE64)).type):
            return np.zeros(len(array), bool)
        return bools(found.is_valid())

    def _parts(self, bodies: Bodies) -> list[tuple[ValueDecoder | None, bool, Int64s]]:
        """Decoders, whether they read structured events, and the rows that they read."""
        structured = np.zeros(len(bodies), bool)
        if self._mode is not None:
            rows = np.flatnonzero(~bodies.is_binary) if isinstance(bodies, EventBodies) else np.arange(len(bodies))
            structured[rows] = _are_structured(self._mode, bodies.rows(rows))
        return [(self._decoders[own], own, np.flatnonzero(structured == own)) for own in (False, True) if own in structured]

    def _columns(self, array: pa.Array, is_structured: bool, there: Flags) -> pa.Array:
        """The columns of some events, null but where they are ``there``."""
        parts = dict(zip((field.name for field in array.type), array.flatten(), strict=True)) if is_structured else {}
        children: list[pa.Array] = []
        if self._fields:
            data = parts["data"] if is_structured else array
            if is_structured and pa.types.is_binary(data.type):
                data = pc.coalesce(data, parts[_BASE64])
            children = data.flatten() if self._is_struct else [data]
        none = pa.nulls(len(array), pa.string())
        attributes = [parts[ATTRIBUTES[name]] if is_structured else none for name in self._wanted]
        return pa.StructArray.from_arrays([*children, *attributes], fields=list(self.type), mask=pa.array(~there))

    def _names(self, path: str, is_structured: bool) -> tuple[str, ...]:
        """The columns that are lost with a path of what was read."""
        if path == WHOLE:
            return (path,)
        if not is_structured:
            return (path if self._is_struct else "data" if path == ELEMENTS else f"data.{path}",)
        first, _, rest = path.partition(".")
        if first not in ("data", _BASE64):
            return (f"__ce_{first}",)
        if rest:
            return (rest if self._is_struct else path,)
        return tuple(field.name for field in self._fields)


def _are_structured(mode: ValueDecoder, bodies: Bodies) -> Flags:
    marks, found = mode.decode(bodies)
    for child in marks.flatten():
        found = found & bools(child.is_valid())
    left = np.flatnonzero(bools(marks.is_null()) & (np.asarray(bodies.length) >= 0))
    if len(left):
        # What comes twice is there.
        marks, lost = mode.salvage(bodies.rows(left))
        there = {name: child.is_valid().to_pylist() for name, child in zip(_REQUIRED, marks.flatten(), strict=True)}
        found = found.copy()
        found[left] = [paths != (WHOLE,) and all(there[name][row] or name in paths for name in _REQUIRED) for row, paths in enumerate(lost)]
    return found


def _in_order(pieces: list[pa.Array], rows: list[Int64s]) -> pa.Array:
    if len(pieces) == 1:
        return pieces[0]
    return pa.concat_arrays(pieces).take(pa.array(np.argsort(np.concatenate(rows))))


Column = tuple[pa.StructArray, Flags, dict[int, tuple[str, ...]]]
"""Values, which of them are valid, and the lost fields of others by their rows."""


def with_headers(column: Column, bodies: EventBodies, payload: pa.Array, headers: pa.ListArray, is_kept: bool) -> Column:
    """The same with the attributes that are in headers, where a value has none itself. A binary event without data has them alone, and so
    has one whose data are lost, if ``is_kept`` or no data are wanted.
    """
    values, valid, fields = column
    names = tuple(one.name for one in values.type if one.name not in ATTRIBUTES)
    is_null, is_empty = bools(values.is_null()), bools(payload.is_null())
    if (alone := is_null & bodies.is_binary).any():
        lost = alone & ~is_empty & (is_kept or not names)
        alone = lost | (alone & is_empty)
        is_null, valid = is_null & ~alone, valid | (alone if not names else alone & is_empty)
        rows = np.flatnonzero(lost).tolist()
        fields = {**fields, **dict.fromkeys(rows, names)} if names else {row: paths for row, paths in fields.items() if not lost[row]}
    children = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
    own = {name[2:]: name for name in ATTRIBUTES if name in children}
    for header, rows_of, which, texts in values_of_headers(headers, tuple(own)):
        place = np.full(len(values), -1)
        place[rows_of] = which
        found = pa.array([text.decode(errors="replace") for text in texts], pa.string()).take(pa.array(place, mask=place < 0))
        children[own[header]] = pc.coalesce(children[own[header]], found)
    return pa.StructArray.from_arrays(list(children.values()), fields=list(values.type), mask=pa.array(is_null)), valid, fields
