"""Values of separated fields, "csv" (https://www.rfc-editor.org/rfc/rfc4180), and of fields of fixed width, "fixed".

    value    12,"a ""b"" c",,x          a field may be quoted: then separators and line ends are part of it, and a quote is doubled
    fields   12 | a "b" c | null | x    an empty field is null, a quoted empty one is empty text

A value of "csv" with more or fewer fields than its schema, or with a quote that is not closed, is null. A field that is not of its type is
null in a value whose other fields stay; such a value is not valid. Values of "fixed" are NumPy's structured arrays, without padding.
"""

from collections.abc import Sequence
from itertools import compress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Flags
from kolumn.core.errors import ArgumentError, unknown
from kolumn.core.lost import WHOLE
from kolumn.core.text import is_utf8
from kolumn.values.decoder import (
    NOT_OF_CSV,
    TYPES,
    Bodies,
    Salvaged,
    array_of,
    fixed_type,
    mapping_of,
    named_type,
    nothing_salvaged,
    only_rows,
    spread,
    within,
)

_TEXT = pa.large_string()
_INTEGER = r"\A[+-]?[0-9]+\z"
_FLOAT = r"(?i)\A[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?\z|\A[+-]?(inf|infinity|nan)\z"
_CERTAIN_DIGITS = 18  # So many digits are a number that 64 bits can hold.


class SeparatedDecoder:
    """Decodes "csv". ``schema`` has the names of the fields, in order, and of their types: a mapping or its JSON text. Only the fields
    ``columns`` are decoded, the others are still checked; None for all. Errors name the option ``where``.
    """

    def __init__(self, schema: object, separator: str, columns: tuple[str, ...] | None, where: str = "value_schema") -> None:
        self._separator = separator
        self._fields = [(name, _field_type(name, type, where)) for name, type in mapping_of(schema, where).items()]
        self._wanted = _chosen([name for name, _ in self._fields], columns, where)
        self.type: pa.DataType = pa.struct([(name, type) for name, type in self._fields if name in self._wanted])

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        array, whole, wrong = self._columns(bodies)
        valid = whole & ~np.logical_or.reduce(wrong)
        return only_rows(array, valid), valid

    def salvage(self, bodies: Bodies) -> Salvaged:
        array, whole, wrong = self._columns(bodies)
        names = [name for name, _ in self._fields]
        rows = zip(whole.tolist(), np.stack(wrong, 1).tolist(), strict=True)
        return array, [tuple(compress(names, own)) if there else (WHOLE,) for there, own in rows]

    def _columns(self, bodies: Bodies) -> tuple[pa.Array, Flags, list[Flags]]:
        """The column, the rows that have the right number of fields, and for each field the rows in which it is wrong."""
        there = bodies.length >= 0
        text = array_of(bodies, there)
        utf8 = _flags(is_utf8(text))
        lines = pc.replace_substring_regex(text.filter(pa.array(utf8)).cast(_TEXT), pattern=r"(\r\n|\n|\r)\z", replacement="")
        cells, fine = self._split(lines)
        whole = within(there, within(utf8, fine))
        columns, wrong = [], []
        for (name, type), cell in zip(self._fields, cells, strict=True):
            column, unfit = _converted(cell, type)
            wrong.append(within(whole, unfit))
            if name in self._wanted:
                columns.append(column)
        return spread(pa.StructArray.from_arrays(columns, fields=list(self.type)), whole), whole, wrong

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


def _chosen(names: Sequence[str], columns: tuple[str, ...] | None, where: str) -> list[str]:
    for name in columns or ():
        if name not in names:
            raise ArgumentError(f"{where.replace('schema', 'columns')}: {unknown('field', name, names)}")
    return [name for name in names if columns is None or name in columns]


def _field_type(name: str, type: object, where: str) -> pa.DataType:
    option = f"{where.partition('_')[0]}_format='csv'"
    if type in NOT_OF_CSV:
        raise ArgumentError(f"{where}: {type}: not of {option}; take int64 or string")
    known = {known: arrow for known, arrow in TYPES.items() if known not in NOT_OF_CSV}
    arrow = type if isinstance(type, pa.DataType) else named_type(name, type, where)
    if arrow not in known.values():
        raise ArgumentError(f"{where}: field {name!r}: {type}: not of {option}; expected one of {', '.join(known)}")
    return arrow


def _fields(line: str, separator: str) -> list[str | None] | None:
    """The fields of a line with quotes; None if a quote is not closed, or is closed before the field ends."""
    fields: list[str | None] = []
    position = 0
    while True:
        if line[position : position + 1] == '"':
            end = begin = position + 1
            while (end := line.find('"', end)) >= 0 and line[end + 1 : end + 2] == '"':
                end += 2
            if end < 0:
                return None
            fields.append(line[begin:end].replace('""', '"'))
            position = end + 1
            if position < len(line) and line[position] != separator:
                return None
        else:
            end = line.find(separator, position)
            end = len(line) if end < 0 else end
            fields.append(line[position:end] or None)
            position = end
        if position == len(line):
            return fields
        position += 1


def _converted(cell: pa.LargeStringArray, type: pa.DataType) -> tuple[pa.Array, Flags]:
    """A field in its type, null where the text is not of this type, and flags of those rows."""
    if pa.types.is_string(type):
        return cell.cast(type), np.zeros(len(cell), bool)
    there = _flags(cell.is_valid())
    if pa.types.is_boolean(type):
        small = pc.ascii_lower(cell)
        true, false = (_flags(pc.is_in(small, pa.array(words, _TEXT))) for words in (["1", "true"], ["0", "false"]))
        return pa.array(true, mask=~(true | false)), there & ~true & ~false
    if pa.types.is_floating(type):
        fits = _flags(pc.match_substring_regex(cell, pattern=_FLOAT))
        return _where(fits, _unsigned(cell)).cast(type), there & ~fits
    return _integers(cell, type, there)


def _integers(cell: pa.LargeStringArray, type: pa.DataType, there: Flags) -> tuple[pa.Array, Flags]:
    fits = _flags(pc.match_substring_regex(cell, pattern=_INTEGER))
    digits = pc.replace_substring_regex(_where(fits, _unsigned(cell)), pattern=r"\A(-?)0+([0-9])", replacement=r"\1\2")
    small = _flags(pc.less_equal(pc.utf8_length(digits), _CERTAIN_DIGITS))
    numbers = _where(small, digits).cast(pa.int64()).fill_null(0).to_numpy().copy()
    for row in np.flatnonzero(fits & ~small).tolist():
        exact = int(digits[row].as_py())
        fits[row] = abs(exact) < 2**63 or exact == -(2**63)
        numbers[row] = exact if fits[row] else 0
    limits = np.iinfo(type.to_pandas_dtype())
    fits &= (numbers >= limits.min) & (numbers <= limits.max)
    numbers[~fits] = 0
    return pa.array(numbers.astype(limits.dtype), mask=~fits), there & ~fits


def _unsigned(cell: pa.LargeStringArray) -> pa.LargeStringArray:
    return pc.replace_substring_regex(cell, pattern=r"\A\+", replacement="")


def _where(rows: Flags, text: pa.LargeStringArray) -> pa.LargeStringArray:
    return text if rows.all() else pc.if_else(pa.array(rows), text, pa.scalar(None, _TEXT))


def _flags(found: pa.BooleanArray) -> Flags:
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), bool)


class FixedDecoder:
    """Decodes "fixed". A value is valid if it has exactly as many bytes as the fields together; no field is ever null in it. ``schema`` has
    the names of the fields, in order, and their NumPy dtypes with byte order: a mapping or its JSON text. ``columns`` are the fields that
    are decoded; None for all. Errors name the option ``where``.
    """

    def __init__(self, schema: object, columns: tuple[str, ...] | None, where: str = "value_schema") -> None:
        fields = mapping_of(schema, where)
        dtypes = [fixed_type(name, type, where) for name, type in fields.items()]
        self._layout = np.dtype(list(zip(fields, dtypes, strict=True)))
        names = self._layout.names or ()
        wanted = _chosen(names, columns, where)
        self._dtypes = {name: dtype.newbyteorder("=") for name, dtype in zip(names, dtypes, strict=True) if name in wanted}
        self.type: pa.DataType = pa.struct([(name, pa.from_numpy_dtype(dtype)) for name, dtype in self._dtypes.items()])

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        fine = bodies.length == self._layout.itemsize
        if not fine.any():
            return pa.nulls(len(bodies), self.type), fine
        text = array_of(bodies, fine)
        _, ends, data = text.buffers()
        first = int(np.frombuffer(ends, np.int64)[text.offset])
        rows = np.frombuffer(data, self._layout, len(text), first)
        columns = []
        for name, dtype in self._dtypes.items():
            # Any byte but 0 is true; NumPy's own cast would keep the byte.
            columns.append(pa.array(rows[name].view(np.uint8) != 0 if dtype.kind == "b" else np.ascontiguousarray(rows[name], dtype)))
        return spread(pa.StructArray.from_arrays(columns, fields=list(self.type)), fine), fine

    def salvage(self, bodies: Bodies) -> Salvaged:
        return nothing_salvaged(self.type, len(bodies))
