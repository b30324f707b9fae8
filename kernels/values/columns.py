"""Typed columns from values, next to the columns of their records, on the device."""

from typing import Any

import numpy as np

from kolumn.kernels.columns.nulls import all_null
from kolumn.kernels.columns.steps import Present, present
from kolumn.kernels.columns.table import Column, bytes_column, nullable
from kolumn.kernels.fields.decoded import DevicePayloads
from kolumn.kernels.machine.runtime import Memory, Runtime
from kolumn.kernels.values.cells import allocate, number
from kolumn.kernels.values.json_values import parse_json
from kolumn.kernels.values.message_columns import parse_messages
from kolumn.kernels.values.numbers_of_text import to_floats
from kolumn.kernels.values.parse import BYTES, FIRST, STRING, Avro, Fixed, avro, fixed
from kolumn.kernels.values.schema import COLUMNS, VALID, Values
from kolumn.kernels.values.separated_values import parse_fields
from kolumn.kernels.values.typed import parse_records


def parse_fixed(device: Runtime, values: DevicePayloads, how: Values) -> dict[str, Column]:
    """Columns of values that have every field at its place."""
    total = sum(kind.itemsize for _, kind in how.fields)
    found, offset = {}, 0
    for name, kind in how.fields:
        target, lengths = device.empty(kind.itemsize * values.count), device.empty(4 * values.count)
        swapped = kind.itemsize > 1 and kind.byteorder == ">"
        args = Fixed(values.at.address, values.length.address, target.address, lengths.address, total, offset, kind.itemsize, int(swapped))
        device.launch(fixed, values.count, args)
        found[name] = nullable(device, kind.name, target, lengths, values.count)
        offset += kind.itemsize
    # A value has all of its fields, or is null in all of them.
    found[VALID] = _flags(device, lengths, values.count)
    return found


def parse_avro(device: Runtime, values: DevicePayloads, how: Values) -> dict[str, Column]:
    """Columns of values that are Avro records."""
    n = values.count
    held, valid = allocate(device, len(how.fields), n), device.empty(n)
    types = device.upload(np.array(how.types, np.int32))
    args = Avro(
        values.at.address, values.length.address, types.address, *held.addresses, valid.address, len(how.types), held.fields, how.skipped
    )
    device.launch(avro, n, args)
    found = {}
    for (name, kind), cell, length in zip(how.fields, held.cells, held.lengths, strict=True):
        kind &= FIRST - 1
        if kind in (BYTES, STRING):
            found[name] = bytes_column(device, DevicePayloads(cell, length, n), text=kind == STRING)
        else:
            found[name] = number(device, COLUMNS[kind], cell, length, n)
    found[VALID] = Column("bool", n, valid)
    return found


def parse_nested(device: Runtime, values: DevicePayloads, how: Values) -> dict[str, Column]:
    """Columns of values that are Avro records with other records, lists, maps or unions in them."""
    assert how.program is not None
    record, valid = parse_records(device, values, how.program, how.skipped)
    return {**{name: child for (name, _), child in zip(how.fields, record.children, strict=True)}, VALID: valid}


def parse_separated(device: Runtime, values: DevicePayloads, how: Values) -> dict[str, Any]:
    """Columns of values with separated fields; a field that is not a number is null in its own column only."""
    found, valid = parse_fields(device, values, how.fields, how.separator)
    flags: Any = Column("bool", values.count, valid)
    for name, kind in how.fields:
        if kind in ("float32", "float64"):
            found[name], flags = to_floats(found[name], kind, flags)
    return {**found, VALID: flags}


def _flags(device: Runtime, lengths: Memory, rows: int) -> Column:
    """1 where a length is not negative."""
    flags = device.empty(rows)
    device.launch(present, rows, Present(lengths.address, flags.address))
    return Column("bool", rows, flags)


def parsed(device: Runtime, values: DevicePayloads, how: Values) -> dict[str, Any]:
    """Columns of values by their names; of JSON they are pylibcudf's."""
    if how.program is not None:
        return parse_nested(device, values, how)
    if how.messages is not None:
        found, valid = parse_messages(device, values, how.messages)
        return {**{name: child for (name, _), child in zip(how.fields, found, strict=True)}, VALID: valid}
    if not values.count:
        # With no text cuDF's readers know no columns.
        return {name: all_null(device, kind, 0) for name, kind in how.kinds().items()}
    if how.format == "json":
        return parse_json(device, values, how)
    return {"fixed": parse_fixed, "avro": parse_avro, "csv": parse_separated}[how.format](device, values, how)
