"""Record columns as text, column by column: a loop over records in Python takes ten times as long as decoding them.

Typed columns as JSON: structs as objects, lists as arrays, at any depth, column by column.
"""

import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Bytes
from kolumn.core.schema import HEADERS
from kolumn.core.text import is_utf8
from kolumn.values.internal.decoder import is_message

TEXT = pa.large_string()
BLOCK_ROWS = 32768
BLOCK_BYTES = 16 << 20
"""Records and bytes that are converted at a time: text is several times larger than the records."""

Part: TypeAlias = str | pa.LargeStringArray
"""Text of the rows: the same for all, or one for each."""

_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that JSON has as they are and a terminal acts on: DEL, C1 controls, ends of lines, marks that turn the direction of text."""
_LEADS = np.isin(np.arange(256), [0x7F, 0xC2, 0xD8, 0xE2])
"""First bytes of these characters."""
_YEAR_1, _YEAR_10000 = -62_135_596_800_000, 253_402_300_800_000


def blocks(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts that are small enough to be converted to text."""
    rows = min(BLOCK_ROWS, max(1, BLOCK_BYTES * batch.num_rows // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def joined(parts: Iterable[Part]) -> Part:
    """Concatenated parts; null in rows where one of them is null."""
    merged: list[Part] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    if len(merged) < 2:
        return merged[0] if merged else ""
    arguments = [pa.scalar(part, TEXT) if isinstance(part, str) else part for part in merged]
    return pc.binary_join_element_wise(*arguments, pa.scalar("", TEXT))


def with_null(part: Part, null: str) -> Part:
    """A part with nulls replaced by ``null``."""
    return part if isinstance(part, str) or not part.null_count else part.fill_null(null)


def data_of(lines: Part, rows: int) -> Any:
    """Bytes of lines, one after the other."""
    return (lines * rows).encode() if isinstance(lines, str) else memoryview(bytes_of(lines))


def constant(column: pa.Array) -> Any:
    """The value of a column in which all values are the same, as a scalar; None if they differ."""
    if not len(column) or column.null_count not in (0, len(column)):
        return None
    first = column[0]
    return first if not first.is_valid or pc.all(pc.equal(column, first)).as_py() else None


def bytes_as_text(column: pa.Array) -> tuple[pa.LargeStringArray, pa.BooleanArray | None]:
    """Binary values as text: UTF-8 if they are valid UTF-8, else base64; and flags of the base64 ones, None if there are none."""
    try:
        return column.cast(pa.large_binary()).cast(TEXT), None
    except pa.ArrowInvalid:
        pass
    column = column.cast(pa.large_binary())
    other = pc.fill_null(pc.invert(is_utf8(column)), False)
    encoded = [binascii.b2a_base64(value, newline=False).decode("ascii") for value in column.filter(other).to_pylist()]
    text = pc.if_else(other, pa.scalar(None, pa.large_binary()), column).cast(TEXT)
    return pc.replace_with_mask(text, other, pa.array(encoded, TEXT)), other


def times_as_text(column: pa.Array, quote: str) -> list[Part]:
    """Timestamps as ``2026-01-31T12:00:00.000Z`` between quotes, in parts; as a number of ms if the year does not have four digits."""
    ms = column.cast(pa.timestamp("ms"), safe=False)
    number = ms.cast(pa.int64())
    strange = pc.or_(pc.less(number, _YEAR_1), pc.greater_equal(number, _YEAR_10000))
    has_strange = pc.any(strange).as_py()
    usual = pc.if_else(strange, pa.scalar(None, ms.type), ms) if has_strange else ms
    parts: list[Part] = [quote, pc.binary_replace_slice(usual.cast(TEXT), 10, 11, "T"), f"Z{quote}"]
    return [pc.if_else(strange, number.cast(TEXT), joined(parts))] if has_strange else parts


def json_text(value: object, default: Callable[[Any], Any] | None = None) -> str:
    """JSON of a value, for terminals too: what could move a cursor or turn the direction of text is an escape of JSON's."""
    return _UNSAFE.sub(lambda found: _escape(found[0]), json.dumps(value, ensure_ascii=False, default=default))


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}"


def escaped(text: pa.LargeStringArray) -> pa.LargeStringArray:
    """Text as `json_text` has it between quotes."""
    data = bytes_of(text)
    # The backslash is replaced first, since the escapes of the others begin with one.
    found = [byte for byte in (ord("\\"), ord('"')) if (data == byte).any()]
    control = data < 0x20
    if control.any():
        found += np.unique(data[control]).tolist()
    for byte in found:
        text = pc.replace_substring(text, chr(byte), json.dumps(chr(byte))[1:-1])
    for char in _unsafe(data):
        text = pc.replace_substring(text, char, _escape(char))
    return text


def _unsafe(data: Bytes) -> list[str]:
    """The characters of UTF-8 text that `_UNSAFE` names."""
    at = np.flatnonzero(_LEADS[data])
    if not len(at):
        return []
    # None of them has more than three bytes.
    first, second, third = (np.take(data, at + i, mode="clip").astype(np.uint32) for i in range(3))
    found = np.unique(first << 16 | second << 8 | third)
    return sorted({match[0] for one in found.tolist() if (match := _UNSAFE.match(one.to_bytes(3, "big").decode("utf-8", "ignore")))})


def base64_of(column: pa.Array) -> pa.LargeStringArray:
    """Binary values as base64."""
    return pa.array([None if one is None else binascii.b2a_base64(one, newline=False).decode("ascii") for one in column.to_pylist()], TEXT)


def bytes_of(text: pa.LargeStringArray) -> Any:
    """All bytes of a column, as a uint8 array; bytes of nulls may be included."""
    _, offsets, data = text.buffers()
    if data is None:
        return np.empty(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]


def rewritten(shown: pa.LargeStringArray, text: pa.LargeStringArray, pattern: str, rewrite: Callable[[str], str]) -> pa.LargeStringArray:
    """``shown`` with ``rewrite`` of each value of ``text`` in which the pattern occurs, one by one."""
    chosen = pc.fill_null(pc.match_substring_regex(text, pattern), False)
    return pc.replace_with_mask(shown, chosen, pa.array([rewrite(value) for value in text.filter(chosen).to_pylist()], TEXT))


def join_lists(column: pa.ListArray, elements: pa.Array | str, separator: str | bytes) -> Any:
    """The text of each list, from the text of the elements of all lists; bytes if the elements are bytes."""
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    if isinstance(elements, str):
        elements = pa.array([elements] * int(offsets[-1]), TEXT)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), elements), pa.scalar(separator, elements.type))


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
