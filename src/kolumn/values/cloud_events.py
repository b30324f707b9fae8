"""CloudEvents: data and attributes in one value (structured), or the data alone and attributes in headers (binary). Source:
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Flags, Int64s
from kolumn.core.buffers import bools
from kolumn.core.lost import WHOLE
from kolumn.values.decoder import Bodies, Salvaged, ValueDecoder, nothing_salvaged, only_fields, only_rows
from kolumn.values.framing import values_of_headers

ATTRIBUTES = {f"__ce_{name}": name for name in ("id", "source", "type", "time", "subject")}
"""Columns of the attributes of a CloudEvent, by which those are called ``ce_…`` in headers."""
Make = Callable[[object, Sequence[str] | None], ValueDecoder]
"""Makes the decoder of the format from what it reads and dotted paths of wanted fields."""
_BASE64 = "data_base64"
"""The member that a structured event has instead of ``data``, if that is binary: a column of bytes has what it says."""
_MODE = pa.struct([("specversion", pa.string())])


def of_json(data: pa.DataType, columns: Sequence[str] | None, own: list[str] | None, make: Make, where: str) -> "CloudEventDecoder":
    """The decoder of JSON with data of a type; ``own`` are the wanted ``columns`` without attributes, which the option ``where`` names."""
    if own and (pa.types.is_struct(data) or own != ["data"]):
        data = only_fields(data, tuple(own), where)
    plain = make(data, None) if pa.types.is_struct(data) else None
    attributes = dict.fromkeys(ATTRIBUTES.values(), pa.string())
    in_base64 = {_BASE64: pa.binary() if pa.types.is_binary(data) else pa.string()}
    return CloudEventDecoder(plain, columns, make(pa.struct({"data": data, **in_base64, **attributes}), None), make(_MODE, None))


class CloudEventDecoder:
    """Decodes the data of CloudEvents. Values with the attribute ``specversion`` are read by ``structured``, others by ``plain``; ``mode``
    tells them apart, and is None if no value has attributes. Those in headers are added by `with_headers`.
    """

    def __init__(
        self,
        plain: ValueDecoder | None,
        columns: Sequence[str] | None,
        structured: ValueDecoder | None = None,
        mode: ValueDecoder | None = None,
    ) -> None:
        decoders = {False: plain, True: structured}
        self._decoders, self._mode = decoders, mode
        data: pa.DataType = plain.type if plain is not None else pa.null() if structured is None else structured.type.field("data").type
        self._is_struct = pa.types.is_struct(data)
        self._wanted = [name for name in ATTRIBUTES if columns is None or name in columns]
        has_data = columns is None or len(self._wanted) < len(columns)
        self._fields = [] if not has_data else list(data) if self._is_struct else [pa.field("data", data)]
        fields = [field.with_nullable(True) for field in self._fields]
        self.type: pa.DataType = pa.struct([*fields, *(pa.field(name, pa.string()) for name in self._wanted)])

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `ValueDecoder.decode`."""
        valid, pieces, order = np.zeros(len(bodies), bool), [], []
        for decoder, is_structured, rows in self._parts(bodies):
            array, fine = (pa.nulls(len(rows), self.type), False) if decoder is None else decoder.decode(bodies.rows(rows))
            if is_structured:
                fine = fine & ~self._unfit(array)
                array = only_rows(array, fine)
            valid[rows] = fine
            pieces.append(array if decoder is None else self._columns(array, is_structured))
            order.append(rows)
        return _in_order(pieces, order), valid

    def salvage(self, bodies: Bodies) -> Salvaged:
        """As `ValueDecoder.salvage`."""
        lost: list[tuple[str, ...]] = [(WHOLE,)] * len(bodies)
        pieces, order = [], []
        for decoder, is_structured, rows in self._parts(bodies):
            array, problems = nothing_salvaged(self.type, len(rows)) if decoder is None else decoder.salvage(bodies.rows(rows))
            unfit = self._unfit(array) if is_structured else np.zeros(len(rows), bool)
            for row, paths, is_unfit in zip(rows.tolist(), problems, unfit.tolist(), strict=True):
                every = (*paths, _BASE64) if is_unfit else paths
                lost[row] = tuple(dict.fromkeys(name for path in every for name in self._names(path))) if is_structured else paths
            pieces.append(array if decoder is None else self._columns(array, is_structured))
            order.append(rows)
        return _in_order(pieces, order), lost

    def _unfit(self, array: pa.StructArray) -> Flags:
        """The rows whose data are bytes, in a column of another type."""
        found = array.field(_BASE64)
        return bools(found.is_valid()) if self._fields and not pa.types.is_binary(found.type) else np.zeros(len(array), bool)

    def _parts(self, bodies: Bodies) -> list[tuple[ValueDecoder | None, bool, Int64s]]:
        """Decoders, whether they read attributes, and the rows that they read."""
        structured = np.zeros(len(bodies), bool)
        if self._mode is not None:
            marks, fine = self._mode.decode(bodies)
            structured = fine & bools(marks.field("specversion").is_valid())
        return [(self._decoders[own], own, np.flatnonzero(structured == own)) for own in (False, True) if own in structured]

    def _columns(self, array: pa.StructArray, is_structured: bool) -> pa.Array:
        parts = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        data = parts["data"] if is_structured else array
        if is_structured and pa.types.is_binary(data.type):
            data = pc.coalesce(data, parts[_BASE64])
        children = [] if not self._fields else data.flatten() if self._is_struct else [data]
        none = pa.nulls(len(array), pa.string())
        attributes = [parts[ATTRIBUTES[name]] if is_structured else none for name in self._wanted]
        return pa.StructArray.from_arrays([*children, *attributes], fields=list(self.type), mask=array.is_null())

    def _names(self, path: str) -> tuple[str, ...]:
        """The fields that are lost with one of a structured event."""
        first, _, rest = path.partition(".")
        if first not in ("data", _BASE64):
            return (path,) if path == WHOLE else (f"__ce_{first}",)
        return (rest,) if rest else tuple(field.name for field in self._fields)


def _in_order(pieces: list[pa.Array], rows: list[Int64s]) -> pa.Array:
    if len(pieces) == 1:
        return pieces[0]
    return pa.concat_arrays(pieces).take(pa.array(np.argsort(np.concatenate(rows))))


def with_headers(values: pa.StructArray, headers: pa.ListArray) -> pa.StructArray:
    """Values of CloudEvents with the attributes that are in headers, where the value has none itself."""
    children = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
    names = {name[2:]: name for name in ATTRIBUTES if name in children}
    for header, rows, which, texts in values_of_headers(headers, tuple(names)):
        place = np.full(len(values), -1)
        place[rows] = which
        found = pa.array([text.decode(errors="replace") for text in texts], pa.string()).take(pa.array(place, mask=place < 0))
        children[names[header]] = pc.coalesce(children[names[header]], found)
    return pa.StructArray.from_arrays(list(children.values()), fields=list(values.type), mask=values.is_null())
