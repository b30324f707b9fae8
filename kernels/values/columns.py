"""Typed columns from keys or values, next to the columns of their records, on the device."""

from collections.abc import Collection
from typing import Any

import pyarrow as pa

from kolumn.arrow.arrays import flags
from kolumn.kernels.columns.binary import headers_of
from kolumn.kernels.columns.nulls import all_null
from kolumn.kernels.columns.table import Column, bytes_column
from kolumn.kernels.fields.decoded import DevicePayloads, DeviceRecords
from kolumn.kernels.machine.runtime import Runtime
from kolumn.kernels.values.bodies import DeviceBodies
from kolumn.kernels.values.fixed import parse_fixed
from kolumn.kernels.values.json_values import parse_json
from kolumn.kernels.values.message_columns import parse_messages
from kolumn.kernels.values.numbers_of_text import to_floats
from kolumn.kernels.values.schema import Values
from kolumn.kernels.values.separated import parse_separated
from kolumn.kernels.values.typed import fields_of, parse_records
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
    if bodies is not None and schema_id in asked:
        found[schema_id] = bodies.schema_ids(device)
    if bodies is not None and not {name, valid} & set(asked):
        return found
    made = None if bodies is None else _of_bodies(device, bodies, how)
    if made is None:
        made, found[schema_id] = _of_host(device, payloads, headers, how)
    columns, found[valid] = made
    return {**found, **columns}


def _no_payloads(device: Runtime) -> DevicePayloads:
    return DevicePayloads(device.empty(0), device.empty(0), 0)


def _of_bodies(device: Runtime, bodies: DeviceBodies, how: Values) -> Fields | None:
    """Columns of values and their flags; None if the host has to decode them."""
    if how.typed.kind == "json":
        if bodies.count:
            return parse_json(device, bodies.payloads, how.fields)
        # With no text cuDF's reader knows no columns.
        return {name: all_null(device, kind, 0) for name, kind in how.fields}, all_null(device, "bool", 0)
    if how.messages is not None:
        parsed = parse_messages(device, bodies, how.messages)
    elif how.typed.kind == "fixed":
        parsed = parse_fixed(device, bodies, how.fields)
    elif how.typed.kind == "csv":
        parsed = parse_separated(device, bodies, how.fields, how.separator)
    else:
        assert isinstance(how.typed.decoder, AvroDecoder)
        parsed = parse_records(device, bodies, how.typed.decoder)
    if parsed is None:
        return None
    column, valid = parsed
    if not how.typed.flat or column.kind != "struct":
        return {how.typed.column: column}, valid
    return _floats(fields_of(column), how, valid) if how.typed.kind == "csv" and bodies.count else (fields_of(column), valid)


def _of_host(device: Runtime, payloads: DevicePayloads, headers: pa.Array | None, how: Values) -> tuple[Fields, Column]:
    """The same by the decoder of the CPU, and schema ids: the payloads are copied to the host, the columns back."""
    typed = how.typed
    bodies, ids = typed.framer.bodies(_binary(device, payloads), headers)
    column, valid = typed.decoder.decode(bodies)
    if typed.flat and pa.types.is_struct(column.type):
        columns = {one.name: uploaded(device, child) for one, child in zip(column.type, column.flatten(), strict=True)}
    else:
        columns = {typed.column: uploaded(device, column)}
    return (columns, uploaded(device, flags(valid))), uploaded(device, ids)


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


def _floats(columns: dict[str, Any], how: Values, valid: Any) -> tuple[dict[str, Any], Any]:
    """Columns of values with separated fields, and flags; a field that is not a number is null in its own column only."""
    for name, kind in how.fields:
        if kind in ("float32", "float64"):
            columns[name], valid = to_floats(columns[name], kind, valid)
    return columns, valid
