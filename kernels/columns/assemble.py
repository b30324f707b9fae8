"""Columns on the device as pylibcudf's: no copies, the memory stays with the columns."""

from typing import Any

import pyarrow as pa

from kolumn.errors import KolumnError
from kolumn.kernels.columns.table import WIDTHS, Column, DeviceTable
from kolumn.schema import record_schema

MOST = 2**31 - 1


def to_pylibcudf(table: DeviceTable) -> Any:
    """A pylibcudf.Table over the memory of a table."""
    import pylibcudf

    return pylibcudf.Table([to_column(column) if isinstance(column, Column) else column for column in table.columns])


def type_ids() -> dict[str, Any]:
    """pylibcudf's numbers of the types that columns have."""
    from pylibcudf import TypeId

    numbers = {name: getattr(TypeId, name.upper()) for name in WIDTHS if name not in ("bool", "timestamp")}
    others = {"string": TypeId.STRING, "bytes": TypeId.LIST, "list": TypeId.LIST, "struct": TypeId.STRUCT}
    return {**numbers, **others, "bool": TypeId.BOOL8, "timestamp": TypeId.TIMESTAMP_MICROSECONDS}


def to_column(column: Column) -> Any:
    """A pylibcudf.Column over the memory of a column.

    numbers      the same          bool      BOOL8       timestamp   TIMESTAMP_MICROSECONDS
    string       STRING with int32 offsets               bytes       LIST of UINT8
    """
    import pylibcudf

    data, mask = (None if one is None else pylibcudf.gpumemoryview(one) for one in (column.data, column.bitmap))
    children = [to_column(child) for child in column.children]
    return pylibcudf.Column(pylibcudf.DataType(type_ids()[column.kind]), column.rows, data, mask, column.nulls, 0, children)


def concatenate(tables: list[DeviceTable], options: Any) -> Any:
    """One pylibcudf.Table of all, as `kolumn.decode.device.resident.ResidentOptions` ask for; copies if there are several."""
    import pylibcudf

    for at, name in enumerate(options.names):
        _check_size(name, [table.columns[at] for table in tables if isinstance(table.columns[at], Column)])
    made = [to_pylibcudf(table) for table in tables]
    if not made:
        return _nothing(options)
    return made[0] if len(made) == 1 else pylibcudf.concatenate.concatenate(made)


def _check_size(name: str, pieces: list[Column]) -> None:
    """cuDF counts rows, and what is in lists, in 32 bits; strings alone may have more bytes."""
    if sum(piece.rows for piece in pieces) > MOST:
        raise KolumnError(
            f"column {name!r} would have more than {MOST} rows or bytes, the most that cuDF's lists can hold: "
            "read a range of offsets at a time, leave columns out, or take payload='string'"
        )
    for children in zip(*(piece.children for piece in pieces if piece.kind != "string"), strict=True):
        _check_size(name, list(children))


def _nothing(options: Any) -> Any:
    """A table without rows, of the columns that records would have."""
    kinds = options.values.kinds() if options.values is not None else {}
    types = {"string": pa.string(), "bytes": pa.binary(), "timestamp": pa.timestamp("us")}
    known = record_schema(options.columns, "contiguous")
    fields = [
        (name, (types.get(kinds[name]) or pa.type_for_alias(kinds[name])) if name in kinds else known.field(name).type)
        for name in options.names
    ]
    return from_arrow(pa.schema(fields).empty_table(), options.payload)


def from_arrow(table: pa.Table, payload: str) -> Any:
    """A pylibcudf.Table of an Arrow table of records; copies to the device."""
    import pylibcudf

    return pylibcudf.Table.from_arrow(pa.table([_known(column, payload) for column in table.columns], names=table.column_names))


def _known(column: pa.ChunkedArray, payload: str) -> pa.ChunkedArray:
    """A column in types that cuDF has: bytes as lists or strings, moments without a zone."""
    if pa.types.is_binary(column.type):
        whole = column.combine_chunks()
        mask, ends, data = whole.buffers()
        if payload == "string":
            return pa.chunked_array([pa.Array.from_buffers(pa.string(), len(whole), [mask, ends, data], whole.null_count, whole.offset)])
        inner = pa.Array.from_buffers(pa.uint8(), data.size if data is not None else 0, [None, data])
        kind = pa.list_(pa.uint8())
        return pa.chunked_array([pa.Array.from_buffers(kind, len(whole), [mask, ends], whole.null_count, whole.offset, [inner])])
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us"))
    if pa.types.is_list(column.type):
        whole = column.combine_chunks()
        entries = whole.values
        values = _known(pa.chunked_array([entries.field("value")]), payload).combine_chunks()
        structs = pa.StructArray.from_arrays([entries.field("key"), values], ["key", "value"])
        return pa.chunked_array([pa.ListArray.from_arrays(whole.offsets, structs)])
    return column
