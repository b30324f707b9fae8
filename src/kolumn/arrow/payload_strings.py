"""``payload="string"``: keys and values as strings over the same bytes, as in `read_cudf` and Spark's `read_segments`."""

from collections.abc import Collection, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.arrow.arrays import bools
from kolumn.arrow.filter import keep
from kolumn.arrow.text import is_utf8
from kolumn.errors import ArgumentError, PayloadError

_TEXT = {pa.binary(): pa.string(), pa.binary_view(): pa.string_view()}
NAMED_BY = ("segment", "offset")
"""Columns by which an error names a record."""
_NOT_ASCII = 0x8080808080808080
_ADVICE = "Read with payload='binary', and decode what is text."


def check_payload(payload: object) -> None:
    """ArgumentError unless ``payload`` is one of the option's values."""
    if payload not in ("binary", "string"):
        raise ArgumentError(f"payload={payload!r}: expected binary or string")


def as_strings(schema: pa.Schema, payloads: Collection[str]) -> pa.Schema:
    """The schema with strings in place of bytes, in the columns that hold payloads or headers."""
    return pa.schema([pa.field(one.name, _text(one.type)) if one.name in payloads else one for one in schema])


def strings_of(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches under that schema, without the columns after it: those of `NAMED_BY` that it lacks. Healthy ones are not copied.

    Raises
    ------
    PayloadError
        At the first record with a key, a value or the value of a header that is not UTF-8, after the records before it.
    """
    for batch in batches:
        found, wrong = _viewed(batch, schema), dict[int, str]()
        for one, column, text in zip(schema, batch.columns, found.columns, strict=False):
            try:
                if column.type != one.type and not _is_ascii(column):
                    text.validate(full=True)
            except pa.ArrowInvalid:
                wrong.setdefault(_first_wrong(column), one.name)
        if not wrong:
            yield found
            continue
        first = min(wrong)
        if first:
            # A copy: a slice of lists would still have the elements of all rows.
            yield _viewed(keep(batch, np.arange(batch.num_rows) < first), schema)
        segment, offset = (batch.column(batch.schema.get_all_field_indices(name)[-1])[first].as_py() for name in NAMED_BY)
        raise PayloadError(segment, offset, wrong[first], "not UTF-8", _ADVICE)


def _is_ascii(column: pa.Array) -> bool:
    """Whether a binary column has no byte above 127, by its words: much faster than to look at each value."""
    if column.type != pa.binary():
        return False
    held = column.buffers()[2] or b""
    whole = len(held) // 8
    high = int(np.bitwise_or.reduce(np.frombuffer(held, np.uint64, whole)))
    return not high & _NOT_ASCII and bytes(memoryview(held)[8 * whole :]).isascii()


def _viewed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [one if one.type == field.type else one.view(field.type) for one, field in zip(batch.columns, schema, strict=False)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _first_wrong(column: pa.Array) -> int:
    """Number of the first row that is not UTF-8."""
    payload = column.flatten().field("value") if pa.types.is_list(column.type) else column
    at = int(np.argmin(bools(pc.fill_null(is_utf8(payload.cast(pa.binary())), True))))
    if payload is column:
        return at
    return int(np.searchsorted(np.cumsum(pc.fill_null(pc.list_value_length(column), 0).to_numpy()), at, side="right"))


def _text(kind: pa.DataType) -> pa.DataType:
    if not pa.types.is_list(kind):
        return _TEXT.get(kind, kind)
    header = [pa.field(one.name, _text(one.type)) for one in kind.value_type]
    return pa.list_(pa.field(kind.value_field.name, pa.struct(header)))
