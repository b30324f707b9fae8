"""Values of JSON by Arrow's reader: a line for each value, with a marker that tells which line made which row.

    value    {"a": 1, "b": 2}        line    {"<marker>":1,"a": 1, "b": 2}

The reader fails as a whole on a value that it can't read. The values are then halved until such a value is alone, so that it is one row
without a value. A row is valid exactly if Arrow can read its value alone, whatever its neighbours are.
"""

import re
import secrets

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from kolumn.arrays import Flags
from kolumn.values.bodies import array_of, spread, within
from kolumn.values.decoder import Bodies
from kolumn.values.text.moments import in_types, readable

_BLOCK = 64 << 20
"""Bytes of text that are read at a time: Arrow's reader counts them in 32 bits."""
_OPENING = '{"'
_SPACED = r'\A[ \t\r\n]*\{[ \t\r\n]*"'
_EMPTY = r"\A[ \t\r\n]*\{[ \t\r\n]*\}[ \t\r\n]*\z"
_ROW = re.compile(r"in row (\d+)\Z")


class JsonDecoder:
    """Decodes JSON objects (RFC 8259; NaN and Infinity are numbers, as Python writes them).

    A value is valid if it is UTF-8, one object and nothing after it, names no wanted member twice, and has for every wanted member that
    is there and not null a value of its type: an integer in its range and without a fraction, any number for floating point, text for
    text. Times and dates are ISO 8601 text. Members that are not wanted are ignored.

    Parameters
    ----------
    type : pa.StructType
        Of the column.
    """

    def __init__(self, type: pa.StructType) -> None:
        self.type: pa.DataType = type
        # A value can't contain the name unless it is known.
        self._marker = f"kolumn.{secrets.token_hex(8)}"
        parts = (f'{{"{self._marker}":1,'.encode(), b"\n", b"")
        self._begin, self._end, self._nothing = (pa.scalar(part, pa.large_binary()) for part in parts)
        wanted = pa.schema([*(pa.field(one.name, readable(one.type)) for one in type), (self._marker, pa.int8())])
        self._options = pj.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")

    def decode(self, bodies: Bodies) -> tuple[pa.Array, Flags]:
        """As `kolumn.values.decoder.ValueDecoder.decode`."""
        there = bodies.length >= 0
        text, objects = _objects(array_of(bodies, there))
        whole = text.filter(pa.array(objects))
        pieces, fine = self._read(whole)
        valid = within(there, within(objects, fine))
        return spread(pa.concat_arrays([*pieces, pa.array([], self.type)]), valid), valid

    def _read(self, text: pa.LargeBinaryArray) -> tuple[list[pa.StructArray], Flags]:
        """The values of the readable objects, in order, and which objects they are."""
        fine = np.zeros(len(text), bool)
        found, waiting = [], _blocks(text)
        while waiting:
            start, rows = waiting.pop()
            some = text.slice(start, rows)
            try:
                found.append(self._parsed(some))
                fine[start : start + rows] = True
            except pa.ArrowInvalid as error:
                waiting += reversed([(start + first, size) for first, size in _halves(rows, str(error)) if size])
        return found, fine

    def _parsed(self, text: pa.LargeBinaryArray) -> pa.StructArray:
        """The values of some objects; ArrowInvalid if any of them can't be read."""
        lines = pc.binary_join_element_wise(self._begin, pc.binary_slice(text, 1), self._end, self._nothing)
        # This compares the bytes with UTF-8.
        lines.cast(pa.large_string())
        data = lines.buffers()[2]
        how = pj.ReadOptions(use_threads=False, block_size=data.size + 1)
        table = pj.read_json(pa.BufferReader(data), how, self._options)
        marks = table[self._marker]
        if len(marks) != len(text) or marks.null_count:
            # A value had several objects, or did not end.
            raise pa.ArrowInvalid("lines and rows differ")
        columns = [in_types(table[field.name].combine_chunks(), field.type) for field in self.type]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))


def _objects(text: pa.LargeBinaryArray) -> tuple[pa.LargeBinaryArray, Flags]:
    """The text of each row with the first name right after the brace, and whether it begins as an object."""
    begins = pc.starts_with(text, pattern=_OPENING)
    if pc.all(begins, min_count=0).as_py():
        return text, np.ones(len(text), bool)
    unspaced = pc.replace_substring_regex(text, pattern=_SPACED, replacement=_OPENING, max_replacements=1)
    empty = pc.match_substring_regex(text, pattern=_EMPTY)
    some = pa.scalar(b'{"":0}', pa.large_binary())
    text = pc.if_else(begins, text, pc.if_else(empty, some, unspaced))
    return text, pc.starts_with(text, pattern=_OPENING).to_numpy(zero_copy_only=False)


def _blocks(text: pa.LargeBinaryArray) -> list[tuple[int, int]]:
    """First row and number of rows of parts that are not too large; the first part is the last in the list."""
    if not len(text):
        return []
    ends = np.frombuffer(text.buffers()[1], np.int64)[text.offset : text.offset + len(text) + 1]
    block = (ends[:-1] - ends[0]) // _BLOCK
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    sizes = np.diff(starts, append=len(text))
    return list(zip(starts.tolist(), sizes.tolist(), strict=True))[::-1]


def _halves(rows: int, error: str) -> list[tuple[int, int]]:
    """How to go on after an error: at the row that it names, else with both halves. Nothing for a single row."""
    if rows == 1:
        return []
    named = _ROW.search(error)
    if named and 0 <= (at := int(named[1])) < rows:
        return [(0, at), (at, 1), (at + 1, rows - at - 1)]
    return [(0, rows // 2), (rows // 2, rows - rows // 2)]
