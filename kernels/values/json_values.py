"""Values of JSON by cuDF's reader: a line for each value, and a marker that tells which of them were objects."""

from typing import Any

from kolumn.kernels.columns.assemble import type_ids
from kolumn.kernels.columns.nulls import all_null
from kolumn.kernels.columns.table import Column
from kolumn.kernels.fields.decoded import DevicePayloads
from kolumn.kernels.machine.runtime import Memory, Runtime
from kolumn.kernels.values.lines import MARKER, NO_OBJECT_BYTES, make_lines


def parse_json(device: Runtime, values: DevicePayloads, fields: tuple[tuple[str, str], ...]) -> tuple[dict[str, Any], Any]:
    """Columns of the fields, and flags of the values that are objects; pylibcudf's, but where none is.

    Lines that the reader can't read are rows of nulls, and so is their marker.
    """
    n = values.count
    target, total = make_lines(device, values)
    if total == NO_OBJECT_BYTES * n:
        # Of lines that name no column cuDF's reader knows neither columns nor how many rows there are.
        nothing = {name: all_null(device, kind, n) for name, kind in fields}
        return nothing, Column("bool", n, device.zeros(n))
    device.synchronize()
    found = _read(target, total, fields)
    columns = {name: found[name] if name in found else all_null(device, kind, n) for name, kind in fields}
    return columns, found[MARKER]


def _read(target: Memory, total: int, fields: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Columns that cuDF's reader finds in lines, by name, and flags of the lines that it can read under `MARKER`."""
    import pylibcudf as plc

    text = plc.Column(plc.DataType(plc.TypeId.UINT8), total, plc.gpumemoryview(target), None, 0, 0, [])
    ids = type_ids()
    wanted = [*fields, (MARKER, "int8")]
    options = (
        plc.io.json.JsonReaderOptions.builder(plc.io.SourceInfo([text.data()]))
        .lines(True)
        .recovery_mode(plc.io.types.JSONRecoveryMode.RECOVER_WITH_NULL)
        .dtypes([(name, plc.DataType(ids[kind]), []) for name, kind in wanted])
        .prune_columns(True)
        .build()
    )
    read = plc.io.json.read_json(options)
    found = dict(zip(read.column_names(include_children=False), read.columns, strict=True))
    found[MARKER] = plc.unary.is_valid(found[MARKER])
    return found
