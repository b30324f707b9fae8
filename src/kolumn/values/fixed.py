"""Values that have every field at its place, with the width of its type: NumPy's structured arrays, without padding."""

from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.arrays import AnyArray, Flags
from kolumn.errors import ArgumentError, unknown
from kolumn.values.bodies import array_of, spread, within
from kolumn.values.decoder import Bodies
from kolumn.values.types import fixed_type, mapping_of


class FixedDecoder:
    """Decodes "fixed". A value is valid if it has exactly as many bytes as the fields together; no field is ever null in it.

    ``schema`` has the names of the fields, in order, and their NumPy dtypes with byte order: a mapping or its JSON text. Errors name
    ``where``.
    """

    def __init__(self, schema: object, where: str = "value_schema") -> None:
        self._layout = np.dtype([(name, fixed_type(name, kind, where)) for name, kind in mapping_of(schema, where).items()])
        self._names = self._layout.names or ()
        self.type: pa.DataType = self._type()

    def _type(self) -> pa.StructType:
        return pa.struct([(name, pa.from_numpy_dtype(self._dtype(name))) for name in self._names])

    def only(self, names: tuple[str, ...], where: str) -> "FixedDecoder":
        """The same with some fields alone; `ArgumentError` for one that is not there."""
        for name in names:
            if name not in self._names:
                raise ArgumentError(f"{where}: {unknown('field', name, self._names)}")
        self._names = tuple(name for name in self._names if name in names)
        self.type = self._type()
        return self

    def _dtype(self, name: str) -> np.dtype[Any]:
        fields = self._layout.fields
        assert fields is not None
        return fields[name][0].newbyteorder("=")

    @staticmethod
    def _numbers(values: AnyArray, kind: np.dtype[Any]) -> AnyArray:
        # Any byte but 0 is true; NumPy's own cast would keep the byte.
        return values.view(np.uint8) != 0 if kind.kind == "b" else np.ascontiguousarray(values, kind)

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `ValueDecoder.decode`."""
        fine = bodies.length == self._layout.itemsize
        if not fine.any():
            return pa.nulls(len(bodies), self.type), fine
        text = array_of(bodies, fine)
        _, ends, data = text.buffers()
        first = int(np.frombuffer(ends, np.int64)[text.offset])
        rows = np.frombuffer(data, self._layout, len(text), first)
        columns = [pa.array(self._numbers(rows[name], self._dtype(name))) for name in self._names]
        found = pa.StructArray.from_arrays(columns, fields=list(self.type))
        return spread(found, within(fine, np.ones(len(text), bool))), fine
