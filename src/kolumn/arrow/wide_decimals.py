"""Decimals of more than 38 digits, which Polars, DuckDB and Spark do not have: text there, which loses no digit."""

import pyarrow as pa


def without_wide_decimals(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with these decimals as strings, at any depth."""
    schema = pa.schema([field.with_type(_narrow(field.type)) for field in batch.schema])
    return batch if schema == batch.schema else batch.cast(schema)


def _narrow(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal256(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_narrow(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(_narrow(kind.key_type), _narrow(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_narrow(kind.value_type)))
    return kind
