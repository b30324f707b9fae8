"""Times and dates of JSON, which are text in it: ISO 8601."""

import pyarrow as pa
import pyarrow.compute as pc

_ZONE = r"(Z|[+-]\d\d(:?\d\d)?)\z"


def readable(kind: pa.DataType) -> pa.DataType:
    """The type in JSON: text in place of times and dates."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, readable(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(readable(kind.value_type))
    return pa.string() if pa.types.is_temporal(kind) else kind


def in_types(found: pa.Array, kind: pa.DataType) -> pa.Array:
    """What was read as `readable`, with its times and dates; `pa.ArrowInvalid` if a text is not one. Copies only what changes."""
    if readable(kind) == kind:
        return found if found.type == kind else found.cast(kind)
    if pa.types.is_struct(kind):
        children = [in_types(found.field(i), one.type) for i, one in enumerate(kind)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=found.is_null())
    if pa.types.is_list(kind):
        values = in_types(found.values, kind.value_type)
        return pa.ListArray.from_buffers(kind, len(found), found.buffers()[:2], found.null_count, found.offset, [values])
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        zoned = pc.match_substring_regex(found, _ZONE)
        found = pc.if_else(zoned, found, pc.binary_join_element_wise(found, "Z", ""))
    return found.cast(kind)
