"""Names of what is inside of nested columns, as cuDF takes them: libcudf has none, and cuDF would number the fields.

list      {"offsets": {}, "element": names of what is in it}
struct    {name: names of what is in it, ...}
others    {}
"""

from typing import Any

import pyarrow as pa

from kolumn.kernels.columns.table import Column, DeviceTable

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


def _of_type(kind: pa.DataType) -> ChildNames:
    if pa.types.is_struct(kind):
        return {one.name: _of_type(one.type) for one in kind}
    if pa.types.is_list(kind):
        return {"offsets": {}, "element": _of_type(kind.value_type)}
    return {}
