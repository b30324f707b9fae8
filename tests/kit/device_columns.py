"""Columns of an emulated device as Arrow sees their buffers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

import kolumn
from kolumn.copies.transactions import with_transactions
from kolumn.decode.pipeline import scan_ranges
from kolumn.kernels.columns.table import Column, DeviceTable
from kolumn.kernels.fields.records import DevicePayloads
from kolumn.kernels.values.columns import Values
from kolumn.kernels.values.typed import fields_of, parse_records
from kolumn.log.seek import select_ranges
from kolumn.options import Options
from kolumn.readers.gpu import resident_options
from kolumn.readers.plan import live_segments
from kolumn.readers.types import with_types
from kolumn.values.avro import AvroDecoder
from kolumn.values.typed import Typed

TYPES = {
    "int64": pa.int64(), "int32": pa.int32(), "int16": pa.int16(), "int8": pa.int8(), "uint8": pa.uint8(), "uint16": pa.uint16(),
    "uint32": pa.uint32(), "uint64": pa.uint64(), "float32": pa.float32(), "float64": pa.float64(), "bool": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"), "string": pa.binary(),
}  # fmt: skip


def to_arrow(column: Column) -> pa.Array:
    """The column as Arrow sees its buffers, out of an emulated device's memory."""
    return as_type(column, _type_of(column))


def _type_of(column: Column) -> pa.DataType:
    if column.kind in TYPES:
        return TYPES[column.kind]
    inner = [_type_of(child) for child in column.children]
    return pa.struct(list(zip(["key", "value"], inner, strict=True))) if column.kind == "struct" else pa.list_(inner[1])


def resident(source: Any, payload: str, **options: Any) -> list[DeviceTable]:
    """Tables of a source's chunks, on the device. Fields of typed columns are columns, unless the options say otherwise."""
    chosen = Options.of(**_flat(options))
    ranges = list(with_transactions(select_ranges(live_segments(source, chosen).one_log(), chosen), chosen))
    asked = resident_options(with_types(chosen, source, ranges), payload, ranges)
    assert asked is not None, "the host decodes them"
    return list(scan_ranges(ranges, asked))


def _flat(options: dict[str, Any]) -> dict[str, Any]:
    return {f"{name.partition('_')[0]}_as": "columns" for name in options if name.endswith("_format")} | options


def same(source: Any, payload: str = "string", **options: Any) -> list[DeviceTable]:
    """Compare the columns of all chunks of a source with those of `kolumn.read`."""
    expected = kolumn.read(source, **options)
    tables = resident(source, payload, **options)
    for at, field in enumerate(expected.schema):
        found = [row for table in tables for row in as_type(table.columns[at], field.type).to_pylist()]
        assert found == expected[field.name].to_pylist(), field.name
    return tables


def compared(source: Any, **options: Any) -> pa.Table:
    """Compare the columns of a source of one chunk with those of `kolumn.read` on the CPU, which are returned: names, order and rows."""
    expected = kolumn.read(source, backend="cpu", **_flat(options))
    (table,) = resident(source, "binary", **options)
    assert list(table.names) == expected.column_names
    for field, column in zip(expected.schema, table.columns, strict=True):
        found = as_type(column, field.type)
        found.validate(full=True)
        # As text, since a number that is none is not equal to itself.
        assert repr(found.to_pylist()) == repr(expected[field.name].to_pylist()), field.name
    return expected


def parsed_between(device: Any, typed: Typed, given: Sequence[bytes | None], around: bytes) -> None:
    """Compare the flat columns of Avro payloads that a device makes, also of those that are not valid, with those that the loop of the CPU
    makes; some bytes lie before each and after it.
    """
    bodies, _ = typed.framer.bodies(pa.array(given, pa.binary()), None)
    expected, valid = typed.decoder.decode(bodies)
    pieces = [around, *(piece for one in given for piece in (one or b"", around))]
    places = np.cumsum([0, *map(len, pieces)])
    text, lengths = b"".join(pieces), np.array([-1 if one is None else len(one) for one in given], np.int32)
    held = device.upload(np.frombuffer(text, np.uint8))
    payloads = DevicePayloads(device.upload(held.address + places[1:-1:2]), device.upload(lengths), len(given))
    of_device: Any = Values.of(typed).framer.bodies(device, payloads, None)
    assert isinstance(typed.decoder, AvroDecoder)
    column, flags = parse_records(device, of_device, typed.decoder)
    assert to_arrow(flags).to_pylist() == valid.tolist(), (typed, around)
    found = fields_of(column)
    for field, child in zip(expected.type, expected.flatten(), strict=True):
        assert as_type(found[field.name], field.type).to_pylist() == child.to_pylist(), (typed, around, field.name)


def as_type(column: Column, kind: pa.DataType) -> pa.Array:
    """The column as Arrow's ``kind``, out of an emulated device's memory."""
    data: Any = column.data
    mask: Any = column.bitmap
    valid = None if mask is None else pa.py_buffer(mask.bytes)
    if kind == pa.null():
        return pa.nulls(column.rows)
    if kind == pa.bool_():
        null = None if mask is None else np.unpackbits(mask.bytes, bitorder="little")[: column.rows] == 0
        return pa.array(data.bytes[: column.rows].view(np.bool_), mask=null)
    if pa.types.is_struct(kind):
        fields = [as_type(child, one.type) for child, one in zip(column.children, kind, strict=True)]
        return pa.Array.from_buffers(kind, column.rows, [valid], column.nulls, children=fields)
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        inner = pa.struct([kind.key_field, kind.item_field]) if pa.types.is_map(kind) else kind.value_type
        return pa.Array.from_buffers(kind, column.rows, [valid, _ends(column)], column.nulls, children=[as_type(column.children[1], inner)])
    if pa.types.is_dictionary(kind):
        return as_type(column, kind.value_type).dictionary_encode().cast(kind)
    if kind in (pa.string(), pa.binary()) or (pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind)):
        if column.kind != "string":
            data = column.children[1].data
        if pa.types.is_fixed_size_binary(kind):
            assert to_arrow(column.children[0]).to_pylist() == [kind.byte_width * row for row in range(column.rows + 1)]
            return pa.Array.from_buffers(kind, column.rows, [valid, pa.py_buffer(data.bytes)], column.nulls)
        return pa.Array.from_buffers(kind, column.rows, [valid, _ends(column), pa.py_buffer(data.bytes)], column.nulls)
    if pa.types.is_decimal128(kind) and column.kind.startswith(("decimal32", "decimal64")):
        low = data.bytes[: column.rows * int(column.kind[7:9]) // 8].view(f"i{int(column.kind[7:9]) // 8}").astype(np.int64)
        data = pa.py_buffer(np.stack([low, low >> 63], 1))
        return pa.Array.from_buffers(kind, column.rows, [valid, data], column.nulls)
    return pa.Array.from_buffers(kind, column.rows, [valid, pa.py_buffer(data.bytes)], column.nulls)


def _ends(column: Column) -> pa.Buffer:
    ends: Any = column.children[0].data
    return pa.py_buffer(ends.bytes)
