"""Values of JSON by cuDF's reader: a line for each value, and a marker that tells which of them were objects."""

from typing import Any

from kolumn.kernels.columns.assemble import type_ids
from kolumn.kernels.fields.decoded import Payloads
from kolumn.kernels.machine.runtime import Runtime
from kolumn.kernels.values.lines import MARKER, make_lines
from kolumn.kernels.values.schema import VALID, Values


def parse_json(device: Runtime, values: Payloads, how: Values) -> dict[str, Any]:
    """pylibcudf columns of the fields and of `VALID`, a row for each value.

    Lines that the reader can't read are rows of nulls, and so is their marker.
    """
    import pylibcudf as plc

    target, total = make_lines(device, values)
    device.synchronize()
    text = plc.Column(plc.DataType(plc.TypeId.UINT8), total, plc.gpumemoryview(target), None, 0, 0, [])
    ids = type_ids()
    wanted = [*how.fields, (MARKER, "int8")]
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
    return {**{name: found[name] for name, _ in how.fields}, VALID: plc.unary.is_valid(found[MARKER])}
