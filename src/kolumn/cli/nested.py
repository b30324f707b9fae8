"""Typed columns as JSON: structs as objects, lists as arrays, at any depth, column by column."""

import pyarrow as pa
import pyarrow.compute as pc

from kolumn.cli.shown import TEXT, Part, base64_of, escaped, join_lists, joined, json_text, with_null
from kolumn.schema import HEADERS
from kolumn.values.internal.decoder import is_message

_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""As Python's json writes them."""


def is_typed(kind: pa.DataType) -> bool:
    """Whether a column of the type can only be of decoded keys or values: record columns have no such types."""
    if pa.types.is_timestamp(kind):
        return bool(kind.unit != "us" or kind.tz != "UTC")
    plain = (pa.types.is_string, pa.types.is_binary, pa.types.is_binary_view, pa.types.is_integer, pa.types.is_boolean)
    return kind != HEADERS and not any(is_plain(kind) for is_plain in plain)


def json_value(column: pa.Array) -> Part:
    """The JSON text of each value; bytes as base64, moments and other kinds of time as text."""
    kind = column.type
    if pa.types.is_null(kind):
        return "null"
    if pa.types.is_dictionary(kind):
        return json_value(column.cast(kind.value_type))
    found = _nested(column) if kind.num_fields or pa.types.is_struct(kind) else _plain(column)
    if not column.null_count:
        return found
    return pc.if_else(column.is_valid(), pa.scalar(found, TEXT) if isinstance(found, str) else found, pa.scalar("null", TEXT))


def _nested(column: pa.Array) -> Part:
    kind = column.type
    if is_message(kind):
        return _message(column)
    if pa.types.is_struct(kind):
        members = column.flatten()
        named = [(f"{', ' if i else ''}{json_text(one.name)}: ", json_value(members[i])) for i, one in enumerate(kind)]
        return joined(["{", *(part for pair in named for part in pair), "}"])
    if pa.types.is_map(kind):
        pairs = column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        names, values = pairs.flatten().flatten()
        text = names if pa.types.is_string(names.type) else pa.array([str(name) for name in names.to_pylist()], pa.string())
        return _between("{", pairs, joined([json_value(text), ": ", json_value(values)]), "}")
    return _between("[", column, json_value(column.flatten()), "]")


def _message(column: pa.StructArray) -> Part:
    """A message of an internal topic as Kafka's tools print it: what it is, and its own fields alone."""
    type, version, *fields, kept = column.flatten()
    found: list[pa.Array] = [pc.if_else(kept.is_valid(), joined([', "bytes": ', json_value(kept)]), pa.scalar(None, TEXT))]
    for one in fields:
        if one.null_count < len(one):
            found.append(pc.if_else(one.is_valid(), joined([', "data": ', json_value(one)]), pa.scalar(None, TEXT)))
    return joined(['{"type": ', json_value(type), ', "version": ', json_value(version), pc.coalesce(*found, pa.scalar("", TEXT)), "}"])


def _between(opening: str, column: pa.ListArray, elements: Part, closing: str) -> Part:
    return joined([opening, join_lists(column, elements, ", "), closing])


def _plain(column: pa.Array) -> Part:
    kind = column.type
    if pa.types.is_floating(kind):
        text = column.cast(TEXT)
        for found, shown in _NUMBERS.items():
            text = pc.if_else(pc.equal(text, found), pa.scalar(shown, TEXT), text)
        return with_null(text, "null")
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return with_null(column.cast(TEXT), "null")
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind):
        text = base64_of(column)
    elif pa.types.is_string(kind):
        text = escaped(column.cast(TEXT))
    elif pa.types.is_timestamp(kind):
        text = pc.binary_replace_slice(column.cast(TEXT), 10, 11, "T")
    elif pa.types.is_date(kind) or pa.types.is_time(kind):
        text = column.cast(TEXT)
    else:
        text = pa.array([None if one is None else str(one) for one in column.to_pylist()], TEXT)
    return with_null(joined(['"', text, '"']), "null")
