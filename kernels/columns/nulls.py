"""Columns without any value: all rows are null, or there are no rows."""

import pyarrow as pa

from kolumn.kernels.columns.table import WIDTHS, Column, DeviceTable
from kolumn.kernels.machine.runtime import Runtime
from kolumn.schema import record_schema


def all_null(device: Runtime, kind: str, rows: int) -> Column:
    """A column of nulls; with 0 rows an empty one. ``kind`` is one of `WIDTHS`, "string" or "bytes"."""
    # Null rows are told by the bitmap alone, but what is under them should not depend on what the memory held before.
    bitmap = device.zeros(4 * -(-rows // 32)) if rows else None
    if kind == "string":
        return Column(kind, rows, device.empty(0), bitmap, rows, (_ends(device, rows),))
    if kind == "bytes":
        return Column(kind, rows, None, bitmap, rows, (_ends(device, rows), Column("uint8", 0, device.empty(0))))
    return Column(kind, rows, device.zeros(WIDTHS[kind] * rows), bitmap, rows)


def no_rows(device: Runtime, names: list[str], typed: dict[str, Column], payload: str) -> DeviceTable:
    """A table without rows.

    Parameters
    ----------
    device : Runtime
    names : list of str
        Of all columns.
    typed : dict
        The columns that values are parsed into, without rows; the others are record columns.
    payload : str
        "binary" or "string": what keys, values and headers' values are.
    """
    known = record_schema([name for name in names if name not in typed], "contiguous")
    columns = [typed[name] if name in typed else _record(device, known.field(name).type, payload) for name in names]
    return DeviceTable(tuple(names), columns, 0)


def _record(device: Runtime, kind: pa.DataType, payload: str) -> Column:
    if pa.types.is_list(kind):
        key, value = (_record(device, kind.value_type.field(at).type, payload) for at in range(2))
        return Column("list", 0, children=(_ends(device, 0), Column("struct", 0, children=(key, value), fields=("key", "value"))))
    if pa.types.is_binary(kind):
        return all_null(device, "bytes" if payload == "binary" else "string", 0)
    return all_null(device, "timestamp" if pa.types.is_timestamp(kind) else str(kind), 0)


def _ends(device: Runtime, rows: int) -> Column:
    return Column("int32", rows + 1, device.zeros(4 * (rows + 1)))
