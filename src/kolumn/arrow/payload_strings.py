"""``payload="string"``: keys and values as strings over the same bytes, as in `read_cudf` and Spark's `read_segments`."""

from collections.abc import Collection

import pyarrow as pa

from kolumn.errors import ArgumentError

_TEXT = {pa.binary(): pa.string(), pa.binary_view(): pa.string_view()}


def check_payload(payload: object) -> None:
    """ArgumentError unless ``payload`` is one of the option's values."""
    if payload not in ("binary", "string"):
        raise ArgumentError(f"payload={payload!r}: expected binary or string")


def as_strings(schema: pa.Schema, payloads: Collection[str]) -> pa.Schema:
    """The schema with strings in place of bytes, in the columns that hold payloads or headers."""
    return pa.schema([pa.field(one.name, _text(one.type)) if one.name in payloads else one for one in schema])


def strings_of(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch under that schema. Copies nothing and reads no byte."""
    columns = [column if column.type == one.type else column.view(one.type) for column, one in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _text(kind: pa.DataType) -> pa.DataType:
    if not pa.types.is_list(kind):
        return _TEXT.get(kind, kind)
    header = [pa.field(one.name, _text(one.type)) for one in kind.value_type]
    return pa.list_(pa.field(kind.value_field.name, pa.struct(header)))
