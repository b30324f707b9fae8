"""Columns of values with separated fields."""

from typing import Any

import numpy as np

from kolumn.kernels.columns import Sizes, sizes
from kolumn.kernels.decode import Payloads, bitmap_of
from kolumn.kernels.parse import Narrow, narrow
from kolumn.kernels.runtime import Memory, Runtime
from kolumn.kernels.separated import Number, Split, Text, boolean, integer, split, text
from kolumn.kernels.table import WIDTHS, Column

_NUMPY = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")


def parse_fields(device: Runtime, values: Payloads, fields: tuple[tuple[str, str], ...], separator: int) -> tuple[dict[str, Any], Memory]:
    """A column for each field, and flags (uint8) of the values that are as the schema says.

    Integers, booleans and text are `Column`; of float32 and float64 the text is given, for cuDF to convert.
    """
    n = values.count
    cells, lengths = ([device.empty(width * n) for _ in fields] for width in (8, 4))
    valid = device.empty(n)
    given = device.upload(np.array([[one.address for one in cells], [one.address for one in lengths]], np.int64))
    args = Split(
        values.at.address, values.length.address, given.address, given.address + 8 * len(cells), valid.address, len(cells), separator
    )
    device.launch(split, n, args)
    found: dict[str, Any] = {}
    for (name, kind), cell, length in zip(fields, cells, lengths, strict=True):
        if kind in _NUMPY or kind == "bool":
            found[name] = _number(device, kind, cell, length, valid, n)
        else:
            found[name] = _text(device, cell, length, n)
    return found, valid


def _number(device: Runtime, kind: str, cell: Memory, length: Memory, valid: Memory, rows: int) -> Column:
    lowest, highest = (0, 1) if kind == "bool" else (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    wide, null, target = device.empty(8 * rows), device.empty(4 * rows), device.empty(WIDTHS[kind] * rows)
    args = Number(cell.address, length.address, wide.address, null.address, valid.address, lowest, highest)
    device.launch(boolean if kind == "bool" else integer, rows, args)
    device.launch(narrow, rows, Narrow(wide.address, target.address, WIDTHS[kind]))
    bitmap, nulls = bitmap_of(device, null, rows)
    return Column(kind, rows, target, bitmap if nulls else None, nulls)


def _text(device: Runtime, cell: Memory, length: Memory, rows: int) -> Column:
    ends = device.zeros(4 * (rows + 1))
    device.launch(sizes, rows, Sizes(length.address, ends.address))
    device.running_sum(ends, rows + 1, 4)
    target = device.empty(int(device.download(ends, 4, 4 * rows).view(np.int32)[0]))
    device.launch(text, rows, Text(cell.address, ends.address, target.address))
    bitmap, nulls = bitmap_of(device, length, rows)
    return Column("string", rows, target, bitmap if nulls else None, nulls, (Column("int32", rows + 1, ends),))
