"""Typed columns from keys or values, next to the columns of their records, on the device."""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from kolumn.core.buffers import numbers
from kolumn.core.errors import ArgumentError
from kolumn.core.lost import WHOLE, LostValues
from kolumn.core.schema import PROBLEMS, beside
from kolumn.kernels.columns.gather import headers_of
from kolumn.kernels.columns.table import Column, bytes_column, on_host
from kolumn.kernels.fields.records import DevicePayloads, DeviceRecords
from kolumn.kernels.machine.runtime import Runtime
from kolumn.kernels.values.bodies import DeviceBodies, DeviceFramer
from kolumn.kernels.values.messages import Messages, parse_messages
from kolumn.kernels.values.typed import fields_of, kind_of, parse_records
from kolumn.kernels.values.uploaded import uploaded
from kolumn.values.avro import AvroDecoder
from kolumn.values.framing import doubtful
from kolumn.values.memory import nodes
from kolumn.values.protobuf import ProtobufDecoder
from kolumn.values.typed import Typed, decoded
from kolumn.values.wire.framing import NONE


@dataclass(frozen=True)
class Values:
    """How the payloads of a column are decoded: what the call asks for, with its types; ``messages`` of "protobuf"."""

    typed: Typed
    framer: DeviceFramer
    messages: Messages | None = None

    @classmethod
    def of(cls, typed: Typed) -> "Values":
        """How a device decodes a column, whose types are known; `ArgumentError` with the reason if the host has to decode it."""
        if typed.errors == "raise":
            raise ArgumentError("the first value that is not valid is looked for on the host")
        if typed.envelope is not None:
            raise ArgumentError("an envelope is taken off on the host")
        if typed.uuids == "arrow":
            raise ArgumentError("cuDF has no type for UUIDs")
        if typed.kind == "avro":
            assert isinstance(typed.decoder, AvroDecoder)
            for node in nodes(typed.decoder.layout.root):
                kind_of(node.type)
            return cls(typed, DeviceFramer(typed.framer))
        if typed.kind == "protobuf":
            assert isinstance(typed.decoder, ProtobufDecoder)
            return cls(typed, DeviceFramer(typed.framer), Messages.of(typed.decoder))
        raise ArgumentError(f"{typed.kind}: decoded on the host")

    @property
    def names(self) -> tuple[str, ...]:
        """The column and those beside it: flags of validity, schema ids, problems, payloads."""
        return (self.typed.column, *beside(self.typed.column))


Fields = dict[str, Column]  # Columns of fields, or of the value, by their names.


def typed_columns(
    device: Runtime, records: DeviceRecords | None, how: Values, asked: Collection[str], payload: str, lost: LostValues
) -> dict[str, Column]:
    """The columns of a typed column that are ``asked`` for, by their names; with fields as columns, these under their own. ``records`` is
    None for no rows; ``payload`` is "binary" or "string": what the payload is as a column. What cannot be decoded is added to ``lost``."""
    name, valid, schema_id, problems, raw = how.names
    payloads = DevicePayloads(device.empty(0), device.empty(0), 0) if records is None else getattr(records, name)
    headers = None if records is None or not how.typed.framer.needs_headers else _headers(device, records)
    found: dict[str, Column] = {}
    if raw in asked:
        found[raw] = bytes_column(device, payloads, payload == "string")
    if not {name, valid, schema_id, problems} & set(asked):
        return found
    bodies = how.framer.bodies(device, payloads, headers)
    if bodies is not None and bodies.bare and bodies.doubtful and how.messages is None:
        bodies = _settled(device, payloads, bodies, how.typed)
    if bodies is not None and schema_id in asked:
        found[schema_id] = bodies.schema_ids(device)
    if bodies is not None and not {name, valid, problems} & set(asked):
        return found
    made = None if bodies is None else _of_bodies(device, payloads, bodies, how, asked, lost)
    return {**found, **(_of_host(device, payloads, headers, how, asked, lost) if made is None else made)}


def _settled(device: Runtime, payloads: DevicePayloads, bodies: DeviceBodies, typed: Typed) -> DeviceBodies:
    """The bodies, with values as such that only look as if they had a prefix: the host looks for them where one is doubtful."""
    assert bodies.ids is not None
    assert bodies.has_id is not None
    n = bodies.count
    framing, ids = device.downloads([(bodies.framing, 4 * n, 0), (bodies.ids, 8 * n, 0)])
    found = ids.view(np.int64)
    rows = doubtful(framing.view(np.int32), numbers(found, pa.int64(), found < 0))
    if rows is None:
        return bodies
    wide, narrow = (payloads.at, bodies.at), (payloads.length, bodies.length, bodies.prefix, bodies.framing, bodies.has_id)
    copies = device.downloads([*((memory, 8 * n, 0) for memory in wide), *((memory, 4 * n, 0) for memory in narrow)])
    whole_at, at, *others = [copy.view(np.int64 if number < 2 else np.int32).copy() for number, copy in enumerate(copies)]
    some = DevicePayloads(device.upload(whole_at[rows]), device.upload(others[0][rows]), int(np.count_nonzero(rows)))
    bare = np.flatnonzero(rows)[typed.bodies(_binary(device, some), None)[0].framing == NONE]
    whole, length, prefix, kind, has_id = others
    if not len(bare):
        return bodies
    at[bare], length[bare], prefix[bare], kind[bare], has_id[bare] = whole_at[bare], whole[bare], 0, NONE, -1
    body, size, front, framings, has = map(device.upload, (at, length, prefix, kind, has_id))
    return replace(bodies, at=body, length=size, prefix=front, framing=framings, has_id=has)


def _of_bodies(
    device: Runtime, payloads: DevicePayloads, bodies: DeviceBodies, how: Values, asked: Collection[str], lost: LostValues
) -> Fields | None:
    """The column of values, flags, and problems if they are ``asked`` for; None if the host has to decode them. That is so if a body is not
    valid: what can be had of it is looked for there."""
    if how.messages is not None:
        parsed = parse_messages(device, bodies, how.messages)
    else:
        assert isinstance(how.typed.decoder, AvroDecoder)
        parsed = parse_records(device, bodies, how.typed.decoder)
    if parsed is None:
        return None
    column, valid = parsed
    wrong = np.zeros(bodies.count, bool)
    if column.nulls:
        wanted = [(valid.data, 1), (bodies.length, 4), (payloads.length, 4)]
        flags, *lengths = device.downloads([(memory, size * bodies.count, 0) for memory, size in wanted if memory is not None])
        body, whole = (one.view(np.int32) for one in lengths)
        if ((flags == 0) & (body >= 0)).any():
            return None
        wrong = (flags == 0) & (whole >= 0)
    name, of_flags, _, of_problems, _ = how.names
    found = fields_of(column) if how.typed.flat and column.kind == "struct" else {name: column}
    if of_problems in asked or wrong.any():
        told = pa.array([[WHOLE] if one else None for one in wrong.tolist()], PROBLEMS)
        lost.add(name, told)
        if of_problems in asked:
            found[of_problems] = uploaded(device, told)
    return {of_flags: valid, **found}


def _of_host(
    device: Runtime, payloads: DevicePayloads, headers: pa.Array | None, how: Values, asked: Collection[str], lost: LostValues
) -> Fields:
    """The same by the decoder of the CPU, and schema ids: the payloads are copied to the host, the columns back."""
    name, valid, schema_id, problems, _ = how.names
    arrays = decoded(how.typed, _binary(device, payloads), headers, how.names)
    lost.add(name, arrays[problems])
    column = arrays[name]
    if how.typed.flat and pa.types.is_struct(column.type):
        columns = {one.name: uploaded(device, child) for one, child in zip(column.type, column.flatten(), strict=True)}
    else:
        columns = {name: uploaded(device, column)}
    others = [valid, schema_id, *([problems] if problems in asked else [])]
    return {**{one: uploaded(device, arrays[one]) for one in others}, **columns}


def _binary(device: Runtime, payloads: DevicePayloads) -> pa.BinaryArray:
    """A copy of payloads in host memory."""
    return on_host(device, bytes_column(device, payloads, False))


def _headers(device: Runtime, records: DeviceRecords) -> pa.ListArray | None:
    """A copy of the headers in host memory; None if there are none."""
    ends, keys, values = headers_of(device, records)
    if not keys.count:
        return None
    entries = pa.StructArray.from_arrays([_binary(device, keys).view(pa.string()), _binary(device, values)], ["key", "value"])
    bounds = device.download(ends, 4 * (records.rows + 1))
    return pa.Array.from_buffers(pa.list_(entries.type), records.rows, [None, pa.py_buffer(bounds)], 0, 0, [entries])
