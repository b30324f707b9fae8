"""Columns of values with separated fields."""

from typing import Any

import numpy as np

from kolumn.kernels.columns.binary import ends_of
from kolumn.kernels.columns.table import Column, nullable
from kolumn.kernels.fields.decoded import DevicePayloads
from kolumn.kernels.machine.runtime import Memory, Runtime
from kolumn.kernels.values.cells import allocate, number
from kolumn.kernels.values.separated import Number, Split, Text, boolean, integer, split, text

_NUMPY = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")


def parse_fields(
    device: Runtime, values: DevicePayloads, fields: tuple[tuple[str, str], ...], separator: int
) -> tuple[dict[str, Any], Memory]:
    """A column for each field, and flags (uint8) of the values that match the schema.

    Integers, booleans and text are `Column`; float32 and float64 are returned as text, which cuDF converts.
    """
    n = values.count
    held, valid = allocate(device, len(fields), n), device.empty(n)
    args = Split(values.at.address, values.length.address, *held.addresses, valid.address, held.fields, separator)
    device.launch(split, n, args)
    found: dict[str, Any] = {}
    for (name, kind), cell, length in zip(fields, held.cells, held.lengths, strict=True):
        if kind in _NUMPY or kind == "bool":
            found[name] = _number(device, kind, cell, length, valid, n)
        else:
            found[name] = _text(device, cell, length, n)
    return found, valid


def _number(device: Runtime, kind: str, cell: Memory, length: Memory, valid: Memory, rows: int) -> Column:
    lowest, highest = (0, 1) if kind == "bool" else (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    wide, null = device.empty(8 * rows), device.empty(4 * rows)
    args = Number(cell.address, length.address, wide.address, null.address, valid.address, lowest, highest)
    device.launch(boolean if kind == "bool" else integer, rows, args)
    return number(device, kind, wide, null, rows)


def _text(device: Runtime, cell: Memory, length: Memory, rows: int) -> Column:
    ends, size = ends_of(device, length, rows)
    target = device.empty(size)
    device.launch(text, rows, Text(cell.address, ends.address, target.address))
    return nullable(device, "string", target, length, rows, (Column("int32", rows + 1, ends),))
