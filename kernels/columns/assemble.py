"""Columns on the device as pylibcudf's: no copies, the memory stays with the columns."""

from typing import Any

import pyarrow as pa

from kolumn.errors import KolumnError
from kolumn.kernels.columns.child_names import ChildNames, of_schema, of_table
from kolumn.kernels.columns.nulls import no_rows
from kolumn.kernels.columns.table import MOST, WIDTHS, Column, DeviceTable
from kolumn.kernels.machine.device import runtime

Named = tuple[Any, list[str], list[ChildNames]]
"""A pylibcudf.Table, the names of its columns, and of what is inside of each."""


def to_pylibcudf(table: DeviceTable) -> Any:
    """A pylibcudf.Table over the memory of a table."""
    import pylibcudf

    return pylibcudf.Table([to_column(column) for column in table.columns])


def named(table: DeviceTable) -> Named:
    """A pylibcudf.Table over the memory of a table, with the names that libcudf does not keep."""
    return to_pylibcudf(table), list(table.names), of_table(table)


def type_ids() -> dict[str, Any]:
    """pylibcudf's numbers of the types that columns have."""
    from pylibcudf import TypeId

    numbers = {name: getattr(TypeId, name.upper()) for name in WIDTHS if name not in ("bool", "timestamp")}
    others = {"string": TypeId.STRING, "bytes": TypeId.LIST, "list": TypeId.LIST, "struct": TypeId.STRUCT, "date32": TypeId.TIMESTAMP_DAYS}
    units = {"s": "SECONDS", "ms": "MILLISECONDS", "us": "MICROSECONDS", "ns": "NANOSECONDS"}
    moments = {f"timestamp_{unit}": getattr(TypeId, f"TIMESTAMP_{name}") for unit, name in units.items()}
    spans = {f"duration_{unit}": getattr(TypeId, f"DURATION_{name}") for unit, name in units.items()}
    own = {"bool": TypeId.BOOL8, "timestamp": TypeId.TIMESTAMP_MICROSECONDS, "decimal128": TypeId.DECIMAL128}
    return {**numbers, **others, **moments, **spans, **own}


def to_column(column: Column) -> Any:
    """A pylibcudf.Column over the memory of a column.

    numbers      the same          bool      BOOL8       timestamp   TIMESTAMP_MICROSECONDS
    string       STRING with int32 offsets               bytes       LIST of UINT8
    decimal128:2 DECIMAL128 of scale -2                  date32      TIMESTAMP_DAYS
    """
    import pylibcudf

    name, _, scale = column.kind.partition(":")

    data, mask = (None if one is None else pylibcudf.gpumemoryview(one) for one in (column.data, column.bitmap))
    children = [to_column(child) for child in column.children]
    return pylibcudf.Column(pylibcudf.DataType(type_ids()[name], -int(scale or 0)), column.rows, data, mask, column.nulls, 0, children)


def concatenate(tables: list[DeviceTable], options: Any) -> Named:
    """One table of all, as `kolumn.decode.device.resident.ResidentOptions` ask for.

    A single table is taken as it is. Several are joined column by column, and the pieces of a column are freed when they are in: at most,
    all pieces and one whole column are on the device. ``tables`` and their columns are taken away from the caller.
    """
    import pylibcudf

    if not tables:
        typed = options.typed_columns(runtime(), None)
        tables.append(no_rows(runtime(), options.names, typed, options.payload))
    for at, name in enumerate(options.names):
        _check_size(name, [table.columns[at] for table in tables])
    columns, children = [], of_table(tables[0])
    for at in range(len(options.names)):
        pieces = [to_column(table.columns[at]) for table in tables]
        for table in tables:
            table.columns[at] = None
        columns.append(pieces[0] if len(pieces) == 1 else _joined(pieces))
        del pieces
    tables.clear()
    return pylibcudf.Table(columns), options.names, children


def _joined(pieces: list[Any]) -> Any:
    import pylibcudf

    return pylibcudf.concatenate.concatenate(pieces)


def _check_size(name: str, pieces: list[Column]) -> None:
    """cuDF counts rows, and what is in lists, in 32 bits; strings alone may have more bytes."""
    _check_rows(name, sum(piece.rows for piece in pieces))
    for children in zip(*(piece.children for piece in pieces if piece.kind != "string"), strict=True):
        _check_size(name, list(children))


def _check_rows(name: str, rows: int) -> None:
    if rows > MOST:
        raise KolumnError(
            f"column {name!r} would have more than {MOST} rows or bytes, the most that cuDF's lists can hold: "
            "read a range of offsets at a time, leave columns out, or take payload='string'"
        )


def from_arrow(table: pa.Table, payload: str) -> Named:
    """An Arrow table of records on the device, as `in_known_types`; a copy.

    It goes there column by column: at most the table and the chunks of one column are on the device.
    """
    import pylibcudf

    known = in_known_types(table, payload)
    for name, column in zip(known.column_names, known.columns, strict=True):
        _check_chunks(name, column.chunks)
    columns = [pylibcudf.Table.from_arrow(known.select([at])).columns()[0] for at in range(known.num_columns)]
    return pylibcudf.Table(columns), known.column_names, of_schema(known.schema)


def _check_chunks(name: str, chunks: list[pa.Array]) -> None:
    """As `_check_size`, of a column that is Arrow's still."""
    _check_rows(name, sum(map(len, chunks)))
    kind = chunks[0].type
    if pa.types.is_list(kind):
        ends = [(chunk.offsets[0].as_py(), chunk.offsets[-1].as_py()) if len(chunk) else (0, 0) for chunk in chunks]
        _check_chunks(name, [chunk.values[start:end] for chunk, (start, end) in zip(chunks, ends, strict=True)])
    elif pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            _check_chunks(name, [chunk.field(at) for chunk in chunks])


def in_known_types(table: pa.Table, payload: str) -> pa.Table:
    """The same in types that cuDF has: bytes as lists of uint8 or as strings over the same buffers, moments without a zone.

    Chunk by chunk: an array of Arrow's has less than 2 GiB of bytes, a column of cuDF's strings may have more.
    """
    return pa.table([_known(column, payload) for column in table.columns], names=table.column_names)


def _known(column: pa.ChunkedArray, payload: str) -> pa.ChunkedArray:
    # Without chunks there would be no type.
    return pa.chunked_array([_nested(chunk, payload) for chunk in column.chunks or [column.combine_chunks()]])


def _bytes(column: pa.Array, payload: str) -> pa.Array:
    mask, ends, data = column.buffers()
    if payload == "string":
        return pa.Array.from_buffers(pa.string(), len(column), [mask, ends, data], column.null_count, column.offset)
    inner = pa.Array.from_buffers(pa.uint8(), data.size if data is not None else 0, [None, data])
    return pa.Array.from_buffers(pa.list_(pa.uint8()), len(column), [mask, ends], column.null_count, column.offset, [inner])


def _nested(column: pa.Array, payload: str) -> pa.Array:
    """Structs, lists and maps with members of known types; a map is a list of structs, labels are text, times of day are numbers."""
    kind = column.type
    if pa.types.is_struct(kind):
        members = [_nested(column.field(i), payload) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(members, [one.name for one in kind], mask=column.is_null() if column.null_count else None)
    if pa.types.is_map(kind):
        column = column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
    if pa.types.is_list(column.type):
        values = _nested(column.values, payload)
        kind = pa.list_(pa.field(column.type.value_field.name, values.type))
        return pa.ListArray.from_buffers(kind, len(column), column.buffers()[:2], column.null_count, column.offset, [values])
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type)
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp(kind.unit))
    if pa.types.is_time(kind):
        return column.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
    if pa.types.is_fixed_size_binary(kind):
        column = column.cast(pa.binary())
    return _bytes(column, payload) if pa.types.is_binary(column.type) else column
