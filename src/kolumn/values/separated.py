"""Values of separated fields: https://www.rfc-editor.org/rfc/rfc4180

    value    12,"a ""b"" c",,x          a field may be quoted: then separators and line ends are part of it, and a quote is doubled
    fields   12 | a "b" c | null | x    an empty field is null, a quoted empty one is empty text

A value with more or fewer fields than its schema, or with a quote that is not closed, is null. A field that is not of its type is null in a
value whose other fields stay; such a value is not valid.

Values that have every field at its place, with the width of its type: NumPy's structured arrays, without padding.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import AnyArray, Flags
from kolumn.core.errors import ArgumentError, unknown
from kolumn.core.text import is_utf8
from kolumn.values.decoder import Bodies
from kolumn.values.headers import array_of, spread, within
from kolumn.values.types import NOT_OF_CSV, TYPES, check_separator, fixed_type, mapping_of, named_type

_TEXT = pa.large_string()
_INTEGER = r"\A[+-]?[0-9]+\z"
_FLOAT = r"(?i)\A[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?\z|\A[+-]?(inf|infinity|nan)\z"
_CERTAIN_DIGITS = 18
"""So many digits are a number that 64 bits can hold."""


class SeparatedDecoder:
    """Decodes "csv". ``schema`` has the names of the fields, in order, and of their types: a mapping or its JSON text. Errors name
    ``where``.
    """

    def __init__(self, schema: object, separator: str = ",", where: str = "value_schema") -> None:
        check_separator(separator, "csv", where.partition("_")[0])
        self._separator = separator
        self._fields = [(name, _field_type(name, kind, where)) for name, kind in mapping_of(schema, where).items()]
        self._wanted = tuple(name for name, _ in self._fields)
        self.type: pa.DataType = pa.struct(self._fields)

    def only(self, names: tuple[str, ...], where: str) -> "SeparatedDecoder":
        """The same with some fields alone; `ArgumentError` for one that is not there. The others are still checked."""
        for name in names:
            if name not in self._wanted:
                raise ArgumentError(f"{where}: {unknown('field', name, self._wanted)}")
        self._wanted = names
        self.type = pa.struct([(name, kind) for name, kind in self._fields if name in names])
        return self

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `ValueDecoder.decode`, except that a wrong field makes only itself null, not the value."""
        there = bodies.length >= 0
        text = array_of(bodies, there)
        utf8 = _flags(is_utf8(text))
        lines = pc.replace_substring_regex(text.filter(pa.array(utf8)).cast(_TEXT), pattern=r"(\r\n|\n|\r)\z", replacement="")
        cells, fine = self._split(lines)
        whole = within(there, within(utf8, fine))
        columns, right = [], np.ones(int(fine.sum()), bool)
        for (name, kind), cell in zip(self._fields, cells, strict=True):
            column, wrong = _converted(cell, kind)
            right &= ~wrong
            columns += [column] if name in self._wanted else []
        return spread(pa.StructArray.from_arrays(columns, fields=list(self.type)), whole), within(whole, right)

    def _split(self, lines: pa.LargeStringArray) -> tuple[list[pa.LargeStringArray], Flags]:
        """The fields of lines that have the right number of them, and which lines these are."""
        width = len(self._fields)
        quoted = _flags(pc.match_substring(lines, '"'))
        plain = lines.filter(pa.array(~quoted))
        parts = pc.split_pattern(plain, pattern=self._separator)
        right = _flags(pc.equal(pc.list_value_length(parts), width))
        flat = parts.filter(pa.array(right)).flatten()
        flat = pc.if_else(pc.equal(flat, ""), pa.scalar(None, _TEXT), flat)
        others = [_fields(line, self._separator) for line in lines.filter(pa.array(quoted)).to_pylist()]
        kept = [fields for fields in others if fields is not None and len(fields) == width]
        fine = within(~quoted, right)
        fine[quoted] = [fields is not None and len(fields) == width for fields in others]
        # Rows without quotes come first; they go back to their places.
        order = np.argsort(np.concatenate([np.flatnonzero(fine & ~quoted), np.flatnonzero(fine & quoted)]), kind="stable")
        cells = []
        for k in range(width):
            own = flat.take(pa.array(np.arange(k, len(flat), width)))
            rest = pa.array([fields[k] for fields in kept], _TEXT)
            cells.append(pa.concat_arrays([own, rest]).take(pa.array(order)))
        return cells, fine


def _field_type(name: str, kind: object, where: str) -> pa.DataType:
    text = str(kind)
    if kind in NOT_OF_CSV:
        raise ArgumentError(f"{where}: {text}: not of {where.partition('_')[0]}_format='csv'; take int64 or string")
    found = kind if isinstance(kind, pa.DataType) else named_type(name, kind, where)
    if found not in [one for known, one in TYPES.items() if known not in NOT_OF_CSV]:
        known = ", ".join(one for one in TYPES if one not in NOT_OF_CSV)
        raise ArgumentError(f"{where}: field {name!r}: {text}: not of {where.partition('_')[0]}_format='csv'; expected one of {known}")
    return found


def _fields(line: str, separator: str) -> list[str | None] | None:
    """The fields of a line with quotes; None if a quote is not closed, or is closed before the field ends."""
    found: list[str | None] = []
    at = 0
    while True:
        if line[at : at + 1] == '"':
            end, begin = at + 1, at + 1
            while (end := line.find('"', end)) >= 0 and line[end + 1 : end + 2] == '"':
                end += 2
            if end < 0:
                return None
            found.append(line[begin:end].replace('""', '"'))
            at = end + 1
            if at < len(line) and line[at] != separator:
                return None
        else:
            end = line.find(separator, at)
            end = len(line) if end < 0 else end
            found.append(line[at:end] or None)
            at = end
        if at == len(line):
            return found
        at += 1


def _converted(cell: pa.LargeStringArray, kind: pa.DataType) -> tuple[pa.Array, Flags]:
    """A field in its type, null where the text is not of this type, and flags of those rows."""
    if pa.types.is_string(kind):
        return cell.cast(kind), np.zeros(len(cell), bool)
    there = _flags(cell.is_valid())
    if pa.types.is_boolean(kind):
        small = pc.ascii_lower(cell)
        true, false = (_flags(pc.is_in(small, pa.array(words, _TEXT))) for words in (["1", "true"], ["0", "false"]))
        return pa.array(true, mask=~(true | false)), there & ~true & ~false
    if pa.types.is_floating(kind):
        fits = _flags(pc.match_substring_regex(cell, pattern=_FLOAT))
        return _where(fits, _unsigned(cell)).cast(kind), there & ~fits
    return _integers(cell, kind, there)


def _integers(cell: pa.LargeStringArray, kind: pa.DataType, there: Flags) -> tuple[pa.Array, Flags]:
    fits = _flags(pc.match_substring_regex(cell, pattern=_INTEGER))
    digits = pc.replace_substring_regex(_where(fits, _unsigned(cell)), pattern=r"\A(-?)0+([0-9])", replacement=r"\1\2")
    small = _flags(pc.less_equal(pc.utf8_length(digits), _CERTAIN_DIGITS))
    numbers = _where(small, digits).cast(pa.int64()).fill_null(0).to_numpy().copy()
    for row in np.flatnonzero(fits & ~small).tolist():
        exact = int(digits[row].as_py())
        fits[row] = abs(exact) < 2**63 or exact == -(2**63)
        numbers[row] = exact if fits[row] else 0
    limits = np.iinfo(kind.to_pandas_dtype())
    fits &= (numbers >= limits.min) & (numbers <= limits.max)
    numbers[~fits] = 0
    return pa.array(numbers.astype(limits.dtype), mask=~fits), there & ~fits


def _unsigned(cell: pa.LargeStringArray) -> pa.LargeStringArray:
    """Text of numbers without a plus."""
    return pc.replace_substring_regex(cell, pattern=r"\A\+", replacement="")


def _where(rows: Flags, text: pa.LargeStringArray) -> pa.LargeStringArray:
    """The text of some rows, null in the others."""
    return text if rows.all() else pc.if_else(pa.array(rows), text, pa.scalar(None, _TEXT))


def _flags(found: pa.BooleanArray) -> Flags:
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), bool)


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
