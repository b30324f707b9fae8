"""Typed columns from keys or values, next to the columns of their records, on the device."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.arrow.arrays import flags
from kolumn.kernels.columns.binary import headers_of
from kolumn.kernels.columns.nulls import all_null
from kolumn.kernels.columns.steps import Present, present
from kolumn.kernels.columns.table import Column, bytes_column, nullable
from kolumn.kernels.fields.decoded import DevicePayloads, DeviceRecords
from kolumn.kernels.machine.runtime import Memory, Runtime
from kolumn.kernels.values.bodies import DeviceBodies
from kolumn.kernels.values.cells import allocate, number
from kolumn.kernels.values.json_values import parse_json
from kolumn.kernels.values.message_columns import parse_messages
from kolumn.kernels.values.numbers_of_text import to_floats
from kolumn.kernels.values.parse import BYTES, FIRST, STRING, Avro, Fixed, avro, fixed
from kolumn.kernels.values.schema import COLUMNS, Values
from kolumn.kernels.values.separated_values import parse_fields
from kolumn.kernels.values.typed import fields_of, parse_records, struct_of
from kolumn.kernels.values.uploaded import uploaded
from kolumn.values.avro.decoder import AvroDecoder

Fields = tuple[dict[str, Any], Any]
"""Columns of fields, and flags of validity; of JSON they are pylibcudf's."""


def typed_columns(device: Runtime, records: DeviceRecords | None, how: Values, asked: Collection[str], payload: str) -> dict[str, Any]:
    """The columns of a typed column that are ``asked`` for, by their names; with fields as columns, these under their own.

    Parameters
    ----------
    device : Runtime
    records : DeviceRecords, optional
        None for no rows.
    how : Values
    asked : collection of str
        Columns as callers name them.
    payload : str
        "binary" or "string": what the payload is as a column.
    """
    name, valid, schema_id, raw = how.names
    payloads = _no_payloads(device) if records is None else getattr(records, name)
    headers = None if records is None or not how.typed.framer.needs_headers else _headers(device, records)
    found: dict[str, Any] = {}
    if raw in asked:
        found[raw] = bytes_column(device, payloads, payload == "string")
    if not {name, valid, schema_id} & set(asked):
        return found
    bodies = how.framer.bodies(device, payloads, headers)
    made = None if bodies is None else _of_bodies(device, bodies, how, bool({name, valid} & set(asked)))
    if made is None:
        made = _of_host(device, payloads, headers, how)
    columns, found[valid], found[schema_id] = made
    return {**found, **columns}


def _no_payloads(device: Runtime) -> DevicePayloads:
    return DevicePayloads(device.empty(0), device.empty(0), 0)


def _of_bodies(device: Runtime, bodies: DeviceBodies, how: Values, decodes: bool) -> tuple[dict[str, Any], Any, Any] | None:
    """Columns of values, their flags and their schema ids; None if the host has to decode them. Ids alone unless it ``decodes``."""
    ids = bodies.schema_ids(device)
    if not decodes:
        return {}, None, ids
    if how.fields:
        fields, valid = _by_fields(device, bodies, how)
        if how.is_struct:
            fields = {how.typed.column: struct_of(device, fields, valid.data, bodies.count)}
        return fields, valid, ids
    if how.messages is not None:
        parsed = parse_messages(device, bodies, how.messages)
    else:
        assert isinstance(how.typed.decoder, AvroDecoder)
        parsed = parse_records(device, bodies, how.typed.decoder)
    if parsed is None:
        return None
    column, valid = parsed
    return fields_of(column) if how.typed.flat and column.kind == "struct" else {how.typed.column: column}, valid, ids


def _of_host(device: Runtime, payloads: DevicePayloads, headers: pa.Array | None, how: Values) -> tuple[dict[str, Any], Any, Any]:
    """The same by the decoder of the CPU: the payloads are copied to the host, the columns back."""
    typed = how.typed
    bodies, ids = typed.framer.bodies(_binary(device, payloads), headers)
    column, valid = typed.decoder.decode(bodies)
    if typed.flat and pa.types.is_struct(column.type):
        columns = {one.name: uploaded(device, child) for one, child in zip(column.type, column.flatten(), strict=True)}
    else:
        columns = {typed.column: uploaded(device, column)}
    return columns, uploaded(device, flags(valid)), uploaded(device, ids)


def _binary(device: Runtime, payloads: DevicePayloads) -> pa.BinaryArray:
    """A copy of payloads in host memory."""
    column = bytes_column(device, payloads, False)
    ends, data = (device.download(one.data, one.data.size) for one in column.children if one.data is not None)
    mask = None if column.bitmap is None else pa.py_buffer(device.download(column.bitmap, column.bitmap.size))
    return pa.Array.from_buffers(pa.binary(), column.rows, [mask, pa.py_buffer(ends), pa.py_buffer(data)], column.nulls)


def _headers(device: Runtime, records: DeviceRecords) -> pa.ListArray | None:
    """A copy of the headers in host memory; None if there are none."""
    ends, keys, values = headers_of(device, records)
    if not keys.count:
        return None
    entries = pa.StructArray.from_arrays([_binary(device, keys).view(pa.string()), _binary(device, values)], ["key", "value"])
    bounds = device.download(ends, 4 * (records.rows + 1))
    return pa.Array.from_buffers(pa.list_(entries.type), records.rows, [None, pa.py_buffer(bounds)], 0, 0, [entries])


def _by_fields(device: Runtime, bodies: DeviceBodies, how: Values) -> Fields:
    """Columns of values whose format has a kernel of its own, or a reader of cuDF's."""
    if not bodies.count:
        # With no text cuDF's readers know no columns.
        return {name: all_null(device, kind, 0) for name, kind in how.kinds().items()}, all_null(device, "bool", 0)
    parse = {"json": _parse_json, "fixed": _parse_fixed, "avro": _parse_avro, "csv": _parse_separated}
    return parse[how.typed.kind](device, bodies, how)


def _parse_json(device: Runtime, bodies: DeviceBodies, how: Values) -> Fields:
    return parse_json(device, bodies.payloads, how.fields)


def _parse_fixed(device: Runtime, bodies: DeviceBodies, how: Values) -> Fields:
    """Columns of values that have every field at its place."""
    total, n = sum(kind.itemsize for _, kind in how.fields), bodies.count
    found, offset = {}, 0
    for name, kind in how.fields:
        target, lengths = device.empty(kind.itemsize * n), device.empty(4 * n)
        swapped = kind.itemsize > 1 and kind.byteorder == ">"
        args = Fixed(bodies.at.address, bodies.length.address, target.address, lengths.address, total, offset, kind.itemsize, int(swapped))
        device.launch(fixed, n, args)
        found[name] = nullable(device, kind.name, target, lengths, n)
        offset += kind.itemsize
    # A value has all of its fields, or is null in all of them.
    return found, _flags(device, lengths, n)


def _parse_avro(device: Runtime, bodies: DeviceBodies, how: Values) -> Fields:
    """Columns of values that are flat Avro records."""
    n = bodies.count
    held, valid = allocate(device, len(how.fields), n), device.empty(n)
    types = device.upload(np.array(how.types, np.int32))
    args = Avro(
        bodies.at.address, bodies.length.address, bodies.prefix.address, types.address, *held.addresses, valid.address, len(how.types),
        held.fields, int(bodies.bare),
    )  # fmt: skip
    device.launch(avro, n, args)
    found = {}
    for (name, kind), cell, length in zip(how.fields, held.cells, held.lengths, strict=True):
        kind &= FIRST - 1
        if kind in (BYTES, STRING):
            found[name] = bytes_column(device, DevicePayloads(cell, length, n), text=kind == STRING)
        else:
            found[name] = number(device, COLUMNS[kind], cell, length, n)
    return found, Column("bool", n, valid)


def _parse_separated(device: Runtime, bodies: DeviceBodies, how: Values) -> Fields:
    """Columns of values with separated fields; a field that is not a number is null in its own column only."""
    found, valid = parse_fields(device, bodies.payloads, how.fields, how.separator)
    marks: Any = Column("bool", bodies.count, valid)
    for name, kind in how.fields:
        if kind in ("float32", "float64"):
            found[name], marks = to_floats(found[name], kind, marks)
    return found, marks


def _flags(device: Runtime, lengths: Memory, rows: int) -> Column:
    """1 where a length is not negative."""
    made = device.empty(rows)
    device.launch(present, rows, Present(lengths.address, made.address))
    return Column("bool", rows, made)
