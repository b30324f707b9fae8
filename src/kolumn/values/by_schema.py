"""Values of JSON that carry the Connect schema by which they are to be read, in one type."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Flags, Int64s
from kolumn.core.buffers import bools
from kolumn.core.lost import WHOLE
from kolumn.values.cloud_events import Make
from kolumn.values.common_types import Pair, exact, fitted, leaves
from kolumn.values.connect import fields_of, of_connect
from kolumn.values.decoder import Bodies, Salvaged, ValueDecoder, array_of, only_fields, only_rows, with_unit
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.retyped import NOTHING, Failures, retyped

EVENT = {"op": pa.string(), "ts_ms": pa.int64()}
DOCUMENT = "document"
_SCHEMA = pa.struct([("schema", JSON_TEXT)])
_MOST = 64  # Schemas whose decoders are kept.
_FEW = 4  # Beginnings of values that are kept.


@dataclass(frozen=True)
class JsonEnvelope:
    """How objects of JSON are taken apart: ``type`` is that of a row or payload. Values without a schema of their own are read as ``read``,
    which means ``meant``. The row or payload is the payload beside a schema in some values (``is_wrapped``), and the value itself in some
    (``is_bare``); it is the row of a change event (``is_event``). ``is_named``: a caller has named the type. A value
    whose schema has none of the ``names``, of which the type may have some alone, is of something else.
    """

    read: pa.DataType
    meant: pa.DataType
    type: pa.DataType
    is_wrapped: bool = False
    is_bare: bool = False
    is_event: bool = False
    is_named: bool = False
    names: frozenset[str] = frozenset()

    def only(self, columns: Sequence[str] | None, option: str) -> "JsonEnvelope":
        """The same with the fields of the row or payload that dotted paths name."""
        if columns is None or (self.is_event and is_document(self.type, columns)):
            return self
        if not columns:
            return replace(self, read=NOTHING, meant=NOTHING, type=NOTHING)
        type = only_fields(self.type, tuple(columns), option)
        read, meant = fitted([(self.read, self.meant)], type)
        return replace(self, read=read, meant=meant, type=type)

    def whole(self, payload: pa.DataType, bare: pa.DataType) -> pa.StructType:
        """The type of a value with all that is around it and of use, with types of a row or payload that has a schema, and of others."""
        inside, alone = (self._payload(payload), self._payload(bare))
        wrapped = [pa.field("payload", inside)] if self.is_wrapped else []
        return pa.struct([*wrapped, *(alone if self.is_bare else [])])

    def _payload(self, type: pa.DataType) -> pa.DataType:
        images = {} if self.type == NOTHING else {"before": type, "after": type}
        return pa.struct({**images, **EVENT}) if self.is_event else type

    def pair(self, text: str | None) -> Pair:
        """How a value with a schema is read, and what is meant by that."""
        if text is None or self.type == NOTHING:
            return self.read, self.meant
        try:
            schema = json.loads(text)
        except (ValueError, RecursionError):
            schema = None
        pairs = [of_connect(one) for one in (rows_of(schema) if self.is_event else [schema])]
        if not pairs or ((JSON_TEXT, JSON_TEXT) in pairs and self.type != JSON_TEXT):
            # What the schema says is unknown: only what needs none is certain.
            return (self.read if self.is_named else leaves(_of_json, self.read, self.meant)), self.meant
        structs = [meant for _, meant in pairs if pa.types.is_struct(meant)]
        if structs and self.names and not any(field.name in self.names for meant in structs for field in meant):
            return NOTHING, self.type
        return fitted(pairs, self.type, self.read if self.is_named else None)


def _of_json(read: pa.DataType, meant: pa.DataType) -> pa.DataType:
    return read if read == meant else NOTHING


def is_document(row: pa.DataType, columns: Sequence[str]) -> bool:
    """Whether the row of change events is one column, which is all that is wanted of it."""
    return not pa.types.is_struct(row) and list(columns) == [DOCUMENT]


def rows_of(schema: object) -> list[object]:
    """The schemas of the rows in the schema of a change event."""
    fields = fields_of(schema) if isinstance(schema, Mapping) else []
    return [{**field, "field": None} for field in fields if field.get("field") in ("before", "after")]


class _Way(NamedTuple):
    """How some values are decoded, and the type that is meant."""

    decoder: ValueDecoder
    meant: pa.DataType


class BySchema:
    """Decodes values of JSON into `JsonEnvelope.whole` of its type, each by the Connect schema in its member ``schema``. What the type does
    not hold exactly is lost, but for digits of times if there is a ``unit``.
    """

    def __init__(self, how: JsonEnvelope, unit: str | None, make: Make) -> None:
        self.type: pa.DataType = how.whole(*[with_unit(how.type, unit)] * 2)
        self._how, self._unit, self._make = how, unit, make
        self._leaf = partial(exact, is_cut=unit is not None)
        self._texts = make(_SCHEMA, None) if how.is_wrapped else None
        # Threads share both.
        self._ways = lru_cache(_MOST)(self._ways_of)
        self._begins: tuple[tuple[bytes, str | None], ...] = ()

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `ValueDecoder.decode`."""
        valid, pieces, order = np.zeros(len(bodies), bool), [], []
        for text, rows in self._parts(bodies):
            if len(rows):
                way, _ = self._ways(text)
                array, fine = way.decoder.decode(bodies.rows(rows))
                made, failures = self._typed(array, way)
                for _, failed in failures:
                    fine = fine & ~failed
                valid[rows] = fine
                pieces.append(only_rows(made, fine))
                order.append(rows)
        return _in_order(self.type, len(bodies), pieces, order), valid

    def salvage(self, bodies: Bodies) -> Salvaged:
        """As `ValueDecoder.salvage`."""
        lost: list[tuple[str, ...]] = [(WHOLE,)] * len(bodies)
        pieces, order = [], []
        for text, rows in self._parts(bodies):
            if len(rows):
                array, found = self._best(self._ways(text), bodies.rows(rows))
                for row, paths in zip(rows.tolist(), found, strict=True):
                    lost[row] = paths
                pieces.append(array)
                order.append(rows)
        return _in_order(self.type, len(bodies), pieces, order), lost

    def _best(self, ways: tuple[_Way, _Way | None], bodies: Bodies) -> Salvaged:
        array, lost = self._salvaged(ways[0], bodies)
        rows = np.flatnonzero([bool(paths) for paths in lost])
        if ways[1] is None or not len(rows):
            return array, lost
        others, other = self._salvaged(ways[1], bodies.rows(rows))
        order = np.arange(len(array))
        for at, row in enumerate(rows.tolist()):
            if len(other[at]) < len(lost[row]):
                order[row], lost[row] = len(array) + at, other[at]
        return pa.concat_arrays([array, others]).take(pa.array(order)), lost

    def _salvaged(self, way: _Way, bodies: Bodies) -> Salvaged:
        array, lost = way.decoder.salvage(bodies)
        made, failures = self._typed(array, way)
        for path, failed in failures:
            for row in np.flatnonzero(failed).tolist():
                lost[row] = tuple(dict.fromkeys((*lost[row], path)))
        return made, lost

    def _typed(self, array: pa.Array, way: _Way) -> tuple[pa.Array, Failures]:
        meant, unread = retyped(array, way.meant)
        made, unheld = retyped(meant, self.type, leaf=self._leaf)
        return made, [*unread, *unheld]

    def _ways_of(self, text: str | None) -> tuple[_Way, _Way | None]:
        """How values with a schema are decoded; and how those are of which something is lost so: `JsonConverter` has no other way to write
        floating point that is no number than as text.
        """
        how = self._how
        pairs = [how.pair(text), (how.read, how.meant)]
        # Times that JSON has as text are in their unit when they are read.
        meant = how.whole(*(leaves(lambda one, other: with_unit(one, self._unit) if one == other else other, *pair) for pair in pairs))
        read = how.whole(*(one for one, _ in pairs))
        careful = how.whole(*(leaves(lambda one: JSON_TEXT if pa.types.is_floating(one) else one, one) for one, _ in pairs))
        ways = [_Way(self._make(one, None), meant) for one in dict.fromkeys((read, careful))]
        return ways[0], ways[1] if len(ways) > 1 else None

    def _parts(self, bodies: Bodies) -> Iterator[tuple[str | None, Int64s]]:
        """The texts of schemas, None for no schema, and the rows that have them: all but those of which no text can be had."""
        if self._texts is None:
            yield None, np.arange(len(bodies))
            return
        left = np.flatnonzero(np.asarray(bodies.length) >= 0)
        # Usually all values begin alike.
        for begin, text in self._begins:
            some = bodies.rows(left)
            begins = array_of(replace(some, length=np.minimum(some.length, len(begin))), np.ones(len(left), bool))
            alike = bools(pc.equal(begins, pa.scalar(begin, pa.large_binary())))
            yield text, left[alike]
            left = left[~alike]
        found, valid = self._texts.decode(bodies.rows(left))
        texts = found.field("schema").storage.dictionary_encode()
        codes = np.where(valid, texts.indices.fill_null(-1).to_numpy(), -2)
        for code, text in enumerate([*texts.dictionary.to_pylist(), None]):
            rows = left[codes == (-1 if text is None else code)]
            begin = f'{{"schema":{text},"payload":'.encode()
            if len(rows) and bodies.payload(int(rows[0])).startswith(begin) and (begin, text) not in self._begins:
                self._begins = (*self._begins[1 - _FEW :], (begin, text))
            yield text, rows


def _in_order(type: pa.DataType, count: int, pieces: list[pa.Array], rows: list[Int64s]) -> pa.Array:
    """A column of as many rows, null in those that no piece has."""
    if not pieces:
        return pa.nulls(count, type)
    place, found = np.full(count, -1), pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
    place[np.concatenate(rows)] = np.arange(len(found))
    return found if np.array_equal(place, np.arange(len(found))) else found.take(pa.array(place, mask=place < 0))
