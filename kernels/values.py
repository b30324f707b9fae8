"""Typed columns from values, next to the columns of their records, on the device."""

from typing import Any

import numpy as np

from kolumn.kernels.columns import Present, present
from kolumn.kernels.decode import Payloads, binary, bitmap_of
from kolumn.kernels.lines import Lines, line_sizes, lines, mark
from kolumn.kernels.parse import BYTES, FIRST, STRING, Avro, Fixed, Narrow, avro, fixed, narrow
from kolumn.kernels.runtime import Memory, Runtime
from kolumn.kernels.separated_values import parse_fields
from kolumn.kernels.table import WIDTHS, Column
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
        found[name] = _column(device, kind.name, target, lengths, values.count)
        found[VALID] = _flags(device, lengths, values.count)
        offset += kind.itemsize
    return found


def parse_avro(device: Runtime, values: Payloads, how: Values) -> dict[str, Column]:
    """Columns of values that are Avro records."""
    n = values.count
    cells = [device.empty(8 * n) for _ in how.fields]
    lengths = [device.empty(4 * n) for _ in how.fields]
    valid = device.empty(n)
    given = device.upload(np.array([[one.address for one in cells], [one.address for one in lengths]], np.int64))
    types = device.upload(np.array([kind for _, kind in how.fields], np.int32))
    args = Avro(
        values.at.address, values.length.address, types.address, given.address, given.address + 8 * len(cells), valid.address,
        len(cells), how.skipped,
    )  # fmt: skip
    device.launch(avro, n, args)
    found = {}
    for (name, kind), cell, length in zip(how.fields, cells, lengths, strict=True):
        kind &= FIRST - 1
        if kind in (BYTES, STRING):
            made = binary(device, Payloads(cell, length, n))
            mask, ends = made.bitmap if made.nulls else None, Column("int32", n + 1, made.ends)
            if kind == STRING:
                found[name] = Column("string", n, made.data, mask, made.nulls, (ends,))
            else:
                found[name] = Column("bytes", n, None, mask, made.nulls, (ends, Column("uint8", made.size, made.data)))
            continue
        title = COLUMNS[kind]
        target = device.empty(WIDTHS[title] * n)
        device.launch(narrow, n, Narrow(cell.address, target.address, WIDTHS[title]))
        found[name] = _column(device, title, target, length, n)
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


def _column(device: Runtime, kind: str, data: Memory, lengths: Memory, rows: int) -> Column:
    bitmap, nulls = bitmap_of(device, lengths, rows)
    return Column(kind, rows, data, bitmap if nulls else None, nulls)


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
