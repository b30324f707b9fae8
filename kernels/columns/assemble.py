"""Columns on the device as pylibcudf's, without copies; Arrow record batches to cuDF frames and back.

cuDF has no binary type: bytes go as strings, the same buffers under another name. libcudf has no names of what is inside of nested columns:
cuDF takes them as a dict, of a list {"offsets": {}, "element": names in it}, of a struct {name: names in it, ...}.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kolumn.core.errors import KolumnError
from kolumn.core.packages import GPU, missing_package
from kolumn.core.schema import record_schema
from kolumn.kernels.columns.table import MOST, WIDTHS, Column, DeviceTable, payload_column
from kolumn.kernels.machine.device import runtime
from kolumn.kernels.machine.runtime import Runtime

if TYPE_CHECKING:
    import cudf
    import pylibcudf


def all_null(device: Runtime, kind: str, rows: int) -> Column:
    """A column of nulls; with 0 rows an empty one. ``kind`` is one of `WIDTHS`, "string" or "bytes"."""
    # Null rows are told by the bitmap alone, but what is under them should not depend on what the memory held before.
    bitmap = device.zeros(4 * -(-rows // 32)) if rows else None
    if kind in ("string", "bytes"):
        return payload_column(kind, rows, device.zeros(4 * (rows + 1)), device.empty(0), 0, bitmap, rows)
    return Column(kind, rows, device.zeros(WIDTHS[kind] * rows), bitmap, rows)


def no_rows(device: Runtime, names: list[str], typed: dict[str, Column], payload: str) -> DeviceTable:
    """A table without rows.

    ``names``: of all columns.
    ``typed``: dict, the columns that values are parsed into, without rows; the others are record columns.
    ``payload``: "binary" or "string": what keys, values and headers' values are.
    """
    known = record_schema(tuple(name for name in names if name not in typed))
    columns = [typed[name] if name in typed else _record(device, known.field(name).type, payload) for name in names]
    return DeviceTable(tuple(names), columns, 0)


def _record(device: Runtime, type: pa.DataType, payload: str) -> Column:
    if pa.types.is_list(type):
        key, value = (_record(device, type.value_type.field(number).type, payload) for number in range(2))
        ends = Column("int32", 1, device.zeros(4))
        return Column("list", 0, children=(ends, Column("struct", 0, children=(key, value), fields=("key", "value"))))
    if pa.types.is_binary(type):
        return all_null(device, "bytes" if payload == "binary" else "string", 0)
    return all_null(device, "timestamp" if pa.types.is_timestamp(type) else str(type), 0)


ChildNames = dict[str, Any]


def of_table(table: DeviceTable) -> list[ChildNames]:
    """Of each column of a table on the device."""
    return [_of_column(column) for column in table.columns]


def of_schema(schema: pa.Schema) -> list[ChildNames]:
    """Of each column of a table that is copied to the device as `kolumn.kernels.columns.assemble.in_known_types` has it."""
    return [_of_type(one.type) for one in schema]


def _of_column(column: Column) -> ChildNames:
    if column.kind == "struct":
        return {name: _of_column(child) for name, child in zip(column.fields, column.children, strict=True)}
    if column.kind in ("list", "bytes"):
        return {"offsets": {}, "element": _of_column(column.children[1])}
    return {}


def _of_type(type: pa.DataType) -> ChildNames:
    if pa.types.is_struct(type):
        return {one.name: _of_type(one.type) for one in type}
    if pa.types.is_list(type):
        return {"offsets": {}, "element": _of_type(type.value_type)}
    return {}


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
    decimal128:2 DECIMAL128 of scale -2                  date32      TIMESTAMP_DAYS"""
    import pylibcudf

    name, _, scale = column.kind.partition(":")
    data, mask = (None if one is None else pylibcudf.gpumemoryview(one) for one in (column.data, column.bitmap))
    children = [to_column(child) for child in column.children]
    return pylibcudf.Column(pylibcudf.DataType(type_ids()[name], -int(scale or 0)), column.rows, data, mask, column.nulls, 0, children)


def concatenate(tables: list[DeviceTable], options: Any) -> Named:
    """One table of all, as `kolumn.decode.device.resident.ResidentOptions` ask for. A single table is taken as it is. Several are joined
    column by column, and the pieces of a column are freed when they are in: at most, all pieces and one whole column are on the device.
    ``tables`` and their columns are taken away from the caller."""
    import pylibcudf

    if not tables:
        tables.append(no_rows(runtime(), options.names, options.typed_columns(runtime(), None)[0], options.payload))
    for number, name in enumerate(options.names):
        _check_size(name, [table.columns[number] for table in tables])
    columns, children = [], of_table(tables[0])
    for number in range(len(options.names)):
        pieces = [to_column(table.columns[number]) for table in tables]
        for table in tables:
            table.columns[number] = None
        columns.append(pieces[0] if len(pieces) == 1 else pylibcudf.concatenate.concatenate(pieces))
        del pieces
    tables.clear()
    return pylibcudf.Table(columns), options.names, children


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
    """An Arrow table of records on the device, as `in_known_types`; a copy. It goes there column by column: at most the table and the
    chunks of one column are on the device."""
    import pylibcudf

    known = in_known_types(table, payload)
    for name, column in zip(known.column_names, known.columns, strict=True):
        _check_chunks(name, column.chunks)
    columns = [pylibcudf.Table.from_arrow(known.select([number])).columns()[0] for number in range(known.num_columns)]
    return pylibcudf.Table(columns), known.column_names, of_schema(known.schema)


def _check_chunks(name: str, chunks: list[pa.Array]) -> None:
    """As `_check_size`, of a column that is Arrow's still."""
    _check_rows(name, sum(map(len, chunks)))
    type = chunks[0].type
    if pa.types.is_list(type):
        ends = [(chunk.offsets[0].as_py(), chunk.offsets[-1].as_py()) if len(chunk) else (0, 0) for chunk in chunks]
        _check_chunks(name, [chunk.values[start:end] for chunk, (start, end) in zip(chunks, ends, strict=True)])
    elif pa.types.is_struct(type):
        for number in range(type.num_fields):
            _check_chunks(name, [chunk.field(number) for chunk in chunks])


def in_known_types(table: pa.Table, payload: str) -> pa.Table:
    """The same in types that cuDF has: bytes as lists of uint8 or as strings over the same buffers, moments without a zone. Chunk by chunk:
    an array of Arrow's has less than 2 GiB of bytes, a column of cuDF's strings may have more."""
    # Without chunks there would be no type.
    chunks = [[_nested(chunk, payload) for chunk in column.chunks or [column.combine_chunks()]] for column in table.columns]
    return pa.table([pa.chunked_array(column) for column in chunks], names=table.column_names)


def _bytes(column: pa.Array, payload: str) -> pa.Array:
    mask, ends, data = column.buffers()
    if payload == "string":
        return pa.Array.from_buffers(pa.string(), len(column), [mask, ends, data], column.null_count, column.offset)
    inner = pa.Array.from_buffers(pa.uint8(), data.size if data is not None else 0, [None, data])
    return pa.Array.from_buffers(pa.list_(pa.uint8()), len(column), [mask, ends], column.null_count, column.offset, [inner])


def _nested(column: pa.Array, payload: str) -> pa.Array:
    """Structs, lists and maps with members of known types; a map is a list of structs, labels and JSON are text, times of day
    are numbers."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    type = column.type
    if pa.types.is_struct(type):
        members = [_nested(column.field(i), payload) for i in range(type.num_fields)]
        return pa.StructArray.from_arrays(members, [one.name for one in type], mask=column.is_null() if column.null_count else None)
    if pa.types.is_map(type):
        column = column.cast(pa.list_(pa.struct([type.key_field, type.item_field])))
    if pa.types.is_list(column.type):
        values = _nested(column.values, payload)
        type = pa.list_(pa.field(column.type.value_field.name, values.type))
        return pa.ListArray.from_buffers(type, len(column), column.buffers()[:2], column.null_count, column.offset, [values])
    if pa.types.is_dictionary(type):
        return column.cast(type.value_type)
    if pa.types.is_timestamp(type):
        return column.cast(pa.timestamp(type.unit))
    if pa.types.is_time(type):
        return column.cast(pa.int32() if pa.types.is_time32(type) else pa.int64())
    if pa.types.is_fixed_size_binary(type):
        column = column.cast(pa.binary())
    return _bytes(column, payload) if pa.types.is_binary(column.type) else column


def require_cudf() -> None:
    """Make sure that cuDF is there, before anything is read for it. Raises `MissingError` if it is not."""
    try:
        import_module("cudf")
    except ImportError as error:
        needs = f"a cudf.DataFrame was asked for: {error}; scan_pylibcudf and read_pylibcudf do without it, else"
        raise missing_package(needs, "cudf-cu13", *GPU) from error


def to_cudf(batch: pa.RecordBatch) -> Any:
    """A cudf.DataFrame of a record batch; copies to the device. Keys, values and headers' values are strings that hold their bytes, UTF-8
    or not; moments have no time zone. Raises `MissingError` if cuDF is not there."""
    require_cudf()
    import cudf

    return cudf.DataFrame.from_arrow(in_known_types(pa.table(batch), "string"))


def from_cudf(frame: "cudf.DataFrame") -> list[pa.RecordBatch]:
    """Record batches of a cudf.DataFrame, without its index; copies to the host."""
    table = frame.to_arrow(preserve_index=False)
    return list(table.to_batches()) or [pa.RecordBatch.from_pylist([], schema=table.schema)]


def from_pylibcudf(table: "pylibcudf.Table", names: list[str], children: list[ChildNames]) -> Any:
    """A cudf.DataFrame over the columns of a pylibcudf.Table; copies nothing, but dates, which cuDF has as moments. Raises `MissingError`
    if cuDF is not there."""
    require_cudf()
    import cudf

    return cudf.DataFrame.from_pylibcudf(table, {"columns": names, "child_names": dict(zip(names, children, strict=True))})
