"""Types of typed columns in Spark, and their columns in those types: Spark has no unsigned numbers, labels or times of day."""

import numpy as np
import pyarrow as pa

_WIDER = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(), pa.date64(): pa.date32(), pa.large_string(): pa.string(), pa.large_binary(): pa.binary(),
    pa.string_view(): pa.string(), pa.binary_view(): pa.binary(),
}  # fmt: skip
_INTERVAL = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("nanoseconds", pa.int64())])
_INTERVAL_LAYOUT = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])


def spark_type(kind: pa.DataType) -> pa.DataType:
    """The type of Arrow that Spark has for a type.

    Labels (dictionaries) are strings, unsigned numbers the next wider ones (uint64 is decimal(20,0)), times of day numbers of their unit,
    moments microseconds, bytes of one length bytes, intervals of months structs, decimals of more than 38 digits strings.
    """
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, spark_type(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(spark_type(kind.key_type), spark_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", spark_type(kind.value_type)))
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_time(kind):
        return pa.int64()
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if kind == pa.month_day_nano_interval():
        return _INTERVAL
    if pa.types.is_decimal256(kind):
        return pa.string()
    return _WIDER.get(kind, kind)


def in_spark(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in the type that Spark expects, which `spark_type` says but for the names of members. Copies what has another type.

    Spark may ask for some of a struct's members; then the names say which.
    """
    own = column.type
    if own == kind:
        return column
    nulls = column.is_null() if column.null_count else None
    if own == pa.month_day_nano_interval():
        return in_spark(_interval(column), kind)
    if pa.types.is_struct(own):
        names = [one.name for one in own]
        places = range(len(names)) if len(names) == kind.num_fields else [names.index(one.name) for one in kind]
        members = [in_spark(column.field(i), one.type) for i, one in zip(places, kind, strict=True)]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=nulls)
    if pa.types.is_map(own):
        entries = [in_spark(member, one) for member, one in ((column.keys, kind.key_type), (column.items, kind.item_type))]
        pairs = pa.StructArray.from_arrays(entries, fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], column.null_count, column.offset, [pairs])
    if pa.types.is_list(own):
        values = in_spark(column.values, kind.value_type)
        return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], column.null_count, column.offset, [values])
    if pa.types.is_binary(own) and pa.types.is_string(kind):
        # The same bytes, valid UTF-8 or not.
        return pa.Array.from_buffers(kind, len(column), column.buffers(), column.null_count, column.offset)
    if pa.types.is_time32(own):
        column = column.cast(pa.int32())
    return column.cast(kind, safe=not pa.types.is_temporal(own))


def _interval(column: pa.Array) -> pa.StructArray:
    """The interval's three numbers, which Arrow keeps one after the other."""
    data = column.buffers()[1]
    rows = np.frombuffer(data, _INTERVAL_LAYOUT)[column.offset : column.offset + len(column)]
    members = [pa.array(np.ascontiguousarray(rows[name])) for name in _INTERVAL_LAYOUT.names or ()]
    return pa.StructArray.from_arrays(members, fields=list(_INTERVAL), mask=column.is_null() if column.null_count else None)
