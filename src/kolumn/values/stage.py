"""The stage that turns payloads of record batches into typed columns, in the thread that made the batch."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Flags
from kolumn.core.errors import ArgumentError, PayloadError
from kolumn.core.schema import RECORD_COLUMNS, beside, record_schema
from kolumn.values.decoder import Bodies
from kolumn.values.typed import INTERNAL, Typed

_WHERE = ("offset", "segment")
"""Columns that the error about a value needs."""
_SHOWN = 32
"""Bytes of a value in an error."""


def stored_columns(columns: Iterable[str], typed: Sequence[Typed]) -> tuple[str, ...]:
    """Record columns that a batch needs for these columns; keys and values are payloads in it."""
    found: dict[str, None] = {}
    for name in columns:
        owner = next((one for one in typed if name in one.names or name == _reason(one)), None)
        found[name if owner is None else owner.column] = None
        if owner is not None:
            found |= dict.fromkeys(owner.looks_at)
    return tuple(found)


def watched_columns(columns: tuple[str, ...], typed: Sequence[Typed]) -> tuple[str, ...]:
    """The columns, and those by which an error about a value is found and told, where the options ask for it."""
    strict = [one for one in typed if one.errors == "raise" and any(name in columns for name in one.names)]
    added = (*_WHERE, *map(_reason, strict)) if strict else ()
    return (*columns, *(name for name in added if name not in columns))


def schema_of(columns: Iterable[str], binary: str, typed: Sequence[Typed]) -> pa.Schema:
    """Arrow schema of the columns that a read returns; `ArgumentError` if two columns would have one name."""
    if not typed:
        return record_schema(columns, binary)
    fields = [field for name in columns for field in _fields(name, binary, typed)]
    names = [field.name for field in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ArgumentError(f"two columns would be called {', '.join(twice)}: name others in columns, or take a struct column")
    return pa.schema(fields)


def typed_batch(batch: pa.RecordBatch, columns: Sequence[str], typed: Sequence[Typed]) -> pa.RecordBatch:
    """The columns of a batch with `stored_columns`; a typed column is one struct, whatever the options say."""
    found = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
    stored = dict(found)
    for one in typed:
        if any(name in columns for name in (*one.names, _reason(one))):
            found |= _internal(one, stored) if one.format == INTERNAL else _decoded(one, stored[one.column], stored.get("headers"), columns)
    return pa.RecordBatch.from_arrays([found[name] for name in columns], names=list(columns))


def finished(batches: Iterator[pa.RecordBatch], columns: Sequence[str], binary: str, typed: Sequence[Typed]) -> Iterator[pa.RecordBatch]:
    """Batches as callers get them, from those with `watched_columns`.

    Raises `PayloadError` at the first record whose value or key is not valid, after the records before it.
    """
    schema = schema_of(columns, binary, typed)
    for batch in batches:
        for good, error in _judged(batch, typed):
            if good.num_rows:
                yield _flattened(good, columns, schema, typed)
            if error is not None:
                raise error


def _reason(one: Typed) -> str:
    """Name of the column that says what is wrong with a payload; no column of a caller has a space."""
    return f"{one.column} error"


def _fields(name: str, binary: str, typed: Sequence[Typed]) -> list[pa.Field]:
    for one in typed:
        if name == one.column:
            if one.flat and pa.types.is_struct(one.type):
                # Null in the rows whose value is, whatever the schema of the value says.
                return [field.with_nullable(True) for field in one.type]
            return [pa.field(name, one.type)]
        if name in beside(one.column):
            raw = name.endswith("Raw") and binary == "view"
            return [pa.field(name, pa.binary_view() if raw else beside(one.column)[name])]
    return list(record_schema([name], binary))


def _internal(one: Typed, stored: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    plain = {name: stored[name] if name not in ("key", "value") else _plain(stored[name]) for name in one.looks_at}
    values, valid = one.of_internal.decode(plain)
    valid_name, id_name, raw_name = beside(one.column)
    return {one.column: values, valid_name: pa.array(valid), id_name: pa.nulls(len(values), pa.int64()), raw_name: stored[one.column]}


def _plain(payload: pa.Array) -> pa.BinaryArray:
    return payload if payload.type == pa.binary() else payload.cast(pa.binary())


def _decoded(one: Typed, payload: pa.Array, headers: pa.ListArray | None, columns: Sequence[str]) -> dict[str, pa.Array]:
    plain = _plain(payload)
    bodies, schema_id = one.framer.bodies(plain, headers)
    valid_name, id_name, raw_name = beside(one.column)
    found: dict[str, pa.Array] = {id_name: schema_id, raw_name: payload}
    if any(name in columns for name in (one.column, valid_name, _reason(one))):
        values, valid = one.decoder.decode(bodies)
        found |= {one.column: values, valid_name: pa.array(valid)}
        if _reason(one) in columns:
            found[_reason(one)] = _reasons(one, plain, bodies, valid)
    return found


def _reasons(one: Typed, payload: pa.BinaryArray, bodies: Bodies, valid: Flags) -> pa.Array:
    """What is wrong with each payload, null for those that are right or null."""
    wrong = ~valid
    if payload.null_count:
        wrong &= payload.is_valid().to_numpy(zero_copy_only=False)
    found: list[str | None] = [None] * len(valid)
    for row in np.flatnonzero(wrong).tolist():
        data: bytes = payload[row].as_py()
        begin = repr(data[:_SHOWN]) + ("…" if len(data) > _SHOWN else "")
        if bodies.length[row] < 0:
            found[row] = f"{len(data)} bytes, {begin}: what names its schema is malformed, unknown, or says that it is no binary Avro"
        else:
            found[row] = f"{len(data)} bytes, {begin}: not {one.format} of the type {one.type}"
    return pa.array(found, pa.string())


def _judged(batch: pa.RecordBatch, typed: Sequence[Typed]) -> Iterator[tuple[pa.RecordBatch, PayloadError | None]]:
    first, error = batch.num_rows, None
    for one in typed:
        at = batch.schema.get_field_index(_reason(one))
        if at >= 0 and batch.column(at).null_count < batch.num_rows:
            row = int(np.flatnonzero(batch.column(at).is_valid().to_numpy(zero_copy_only=False))[0])
            if row < first:
                first = row
                offset, segment = (batch.column(name)[row].as_py() for name in _WHERE)
                error = PayloadError(segment, offset, one.column, batch.column(at)[row].as_py())
    yield batch.slice(0, first), error


def _flattened(batch: pa.RecordBatch, columns: Sequence[str], schema: pa.Schema, typed: Sequence[Typed]) -> pa.RecordBatch:
    flat = {one.column for one in typed if one.column in columns and one.flat and pa.types.is_struct(one.type)}
    arrays: list[Any] = []
    for name in columns:
        column = batch.column(name)
        arrays += column.flatten() if name in flat else [column]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def payload_names(columns: Iterable[str], typed: Sequence[Typed]) -> frozenset[str]:
    """Names of the columns that hold payloads, or headers, as they were stored."""
    typed_names = {one.column for one in typed}
    own = {name for name in columns if name in RECORD_COLUMNS and name not in typed_names}
    return frozenset(own | {f"{one}Raw" for one in typed_names})
