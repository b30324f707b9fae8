"""Typed columns from values, next to the columns of their records, on the device."""

from typing import Any

import numpy as np

from kolumn.kernels.cells import allocate, number
from kolumn.kernels.columns import Present, present
from kolumn.kernels.decode import Payloads
from kolumn.kernels.lines import Lines, line_sizes, lines, mark
from kolumn.kernels.parse import BYTES, FIRST, STRING, Avro, Fixed, avro, fixed
from kolumn.kernels.runtime import Memory, Runtime
from kolumn.kernels.separated_values import parse_fields
from kolumn.kernels.table import Column, bytes_column, nullable
from kolumn.kernels.value_schema import COLUMNS, VALID, Values


def parse_fixed(device: Runtime, values: Payloads, how: Values) -> dict[str, Column]:
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
    # A value has all of its fields, or none.
    found[VALID] = _flags(device, lengths, values.count)
    return found


def parse_avro(device: Runtime, values: Payloads, how: Values) -> dict[str, Column]:
    """Columns of values that are Avro records."""
    n = values.count
    held, valid = allocate(device, len(how.fields), n), device.empty(n)
    types = device.upload(np.array([kind for _, kind in how.fields], np.int32))
    args = Avro(values.at.address, values.length.address, types.address, *held.addresses, valid.address, held.fields, how.skipped)
    device.launch(avro, n, args)
    found = {}
    for (name, kind), cell, length in zip(how.fields, held.cells, held.lengths, strict=True):
        kind &= FIRST - 1
        if kind in (BYTES, STRING):
            found[name] = bytes_column(device, Payloads(cell, length, n), text=kind == STRING)
        else:
            found[name] = number(device, COLUMNS[kind], cell, length, n)
    found[VALID] = Column("bool", n, valid)
    return found


def parse_separated(device: Runtime, values: Payloads, how: Values) -> dict[str, Any]:
    """Columns of values with separated fields; what is no number is null in its own column only."""
    found, valid = parse_fields(device, values, how.fields, how.separator)
    flags: Any = Column("bool", values.count, valid)
    for name, kind in how.fields:
        if kind in ("float32", "float64"):
            from kolumn.kernels.numbers_of_text import to_floats

            found[name], flags = to_floats(found[name], kind, flags)
    return {**found, VALID: flags}


def make_lines(device: Runtime, values: Payloads) -> tuple[Memory, int]:
    """Values as lines of JSON, one for each, and their bytes."""
    n = values.count
    ends, text = device.zeros(4 * (n + 1)), device.upload(np.frombuffer(mark(), np.uint8))
    device.launch(line_sizes, n, Lines(values.at.address, values.length.address, ends.address, 0, text.address))
    device.running_sum(ends, n + 1, 4)
    total = int(device.download(ends, 4, 4 * n).view(np.int32)[0])
    target = device.empty(total)
    device.launch(lines, n, Lines(values.at.address, values.length.address, ends.address, target.address, text.address))
    return target, total


def _flags(device: Runtime, lengths: Memory, rows: int) -> Column:
    """1 where a length is not negative."""
    flags = device.empty(rows)
    device.launch(present, rows, Present(lengths.address, flags.address))
    return Column("bool", rows, flags)


def parsed(device: Runtime, values: Payloads, how: Values) -> dict[str, Any]:
    """Columns of values by their names; of JSON they are pylibcudf's."""
    if how.format == "json":
        from kolumn.kernels.json_values import parse_json

        return parse_json(device, values, how)
    return {"fixed": parse_fixed, "avro": parse_avro, "csv": parse_separated}[how.format](device, values, how)
