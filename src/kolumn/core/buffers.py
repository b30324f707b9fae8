"""Arrow arrays made from buffers, in host memory. `pyarrow.array` and `pyarrow.scalar` load pandas where it is installed.

That takes as long as the rest. Only `numbers` shares the memory of its argument. `keep` filters rows of a record batch by a mask, including
views, which Arrow itself cannot filter. Decimals of more than 38 digits, which Polars, DuckDB and Spark do not have, become text.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Flags, Int64s


def numbers(values: np.ndarray[Any, Any], type: pa.DataType, nulls: Flags | None = None) -> pa.Array:
    """Integers as an array of a type of fixed width; those of ``nulls`` are null. Copies unless the type has the same width."""
    held = np.ascontiguousarray(values, np.dtype(f"i{type.bit_width // 8}"))
    valid = None if nulls is None or not nulls.any() else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(type, len(held), [valid, pa.py_buffer(held)])


def flags(values: Flags) -> pa.Array:
    """Flags as an array of booleans, none of them null."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def optional_strings(values: Sequence[str | None]) -> pa.Array:
    """An array of strings; None becomes null."""
    column = strings([value or "" for value in values])
    valid = pa.py_buffer(np.packbits(np.array([value is not None for value in values], bool), bitorder="little"))
    return pa.Array.from_buffers(column.type, len(column), [valid, *column.buffers()[1:]])


def int64s(column: pa.Array) -> Int64s:
    """The numbers of an int64 column without nulls, in its memory: `pyarrow.Array.to_numpy` loads pandas too."""
    buffer = column.buffers()[1]
    return np.frombuffer(buffer, np.int64, len(column), 8 * column.offset) if len(column) else np.empty(0, np.int64)


def bools(column: pa.Array) -> Flags:
    """The flags of a boolean column without nulls: a bool array."""
    bits = np.frombuffer(column.buffers()[1] or b"", np.uint8)
    return np.unpackbits(bits, bitorder="little")[column.offset : column.offset + len(column)].view(np.bool_)


def strings(values: Sequence[str]) -> pa.Array:
    """An array of strings, none of them null."""
    encoded = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def constant(value: str | int | bool | None, type: pa.DataType, rows: int) -> pa.Array:
    """An array with the same value in every row: a slice of memory that all batches share."""
    return _constants(value, type, 1 << (rows - 1).bit_length()).slice(0, rows)


@lru_cache(maxsize=64)
def _constants(value: str | int | bool | None, type: pa.DataType, rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(rows, type)
    if isinstance(value, str):
        repeated = pa.repeat(strings([value])[0], rows)
        # A cast imports `pyarrow.compute`, which takes long.
        return repeated if repeated.type == type else repeated.cast(type)
    if pa.types.is_boolean(type):
        return flags(np.full(rows, value))
    return numbers(np.full(rows, value), type)


_VIEW = pa.binary(16)


def keep(batch: pa.RecordBatch, mask: Flags) -> pa.RecordBatch:
    """The rows for which ``mask``, a bool array, is true. Copies the kept rows; of views only the 16 bytes, not the data."""
    kept = flags(mask)
    columns = [_views(column, kept) if pa.types.is_binary_view(column.type) else column.filter(kept) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _views(column: pa.Array, flags: pa.Array) -> pa.Array:
    valid, views, *sources = column.buffers()
    kept = pa.Array.from_buffers(_VIEW, len(column), [valid, views], offset=column.offset).filter(flags)
    return pa.Array.from_buffers(column.type, len(kept), [*kept.buffers(), *sources], kept.null_count, kept.offset)


def first_rows(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The first rows of some batches, all without a limit; no batch is asked for that is not needed."""
    return batches if limit is None else _first(batches, limit)


def _first(batches: Iterator[pa.RecordBatch], left: int) -> Iterator[pa.RecordBatch]:
    while left and (batch := next(batches, None)) is not None:
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
