"""Text in columns: which binary values are UTF-8, names of files as values, and keys and values as strings over the same bytes.

Text that is not UTF-8 is decoded as Java's ``String`` does: header keys reach Kafka's users that way. Java and Python replace malformed
bytes by U+FFFD, but not by the same number of them: an encoded surrogate (ED A0 80) becomes one in Java and three in Python, and Java makes
one for an incomplete sequence at the end, however many bytes are missing.
"""

import codecs
import os
import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.buffers import bools, keep
from kolumn.core.errors import ArgumentError, PayloadError, without_secrets

# RE2 matches bytes in a column without an encoding. Unicode's table 3-7: no surrogates, no overlong forms, no code above U+10FFFF.
_UTF8 = (
    r"(?s)\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    r"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


def is_text(value: object) -> TypeGuard[str]:
    """Whether it is a string that UTF-8 has. JSON can hold halves of surrogate pairs, which it has not."""
    return isinstance(value, str) and _SURROGATE.search(value) is None


def is_utf8(column: pa.Array) -> pa.BooleanArray:
    """Whether each value of a binary column is valid UTF-8; null for a null."""
    return pc.match_substring_regex(column, _UTF8)


@lru_cache(maxsize=256)
def in_column(name: str) -> str:
    """A name as a value of a table, which is UTF-8: other bytes (surrogates) are shown as ``\\xff``, a URL's secrets as ``***``."""
    return without_secrets(name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace"))


_NAME = "kolumn.java"


def decode(data: bytes) -> str:
    """The string that ``new String(data, UTF_8)`` makes in Java 17."""
    return data.decode("utf-8", _NAME)


def _malformed(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd", error.start + malformed_length(error.object, error.start)


def malformed_length(data: bytes, start: int) -> int:
    """How many bytes of a malformed sequence one U+FFFD replaces (``malformed3``, ``malformed4`` of Java's String)."""
    first, rest = data[start], data[start + 1 : start + 4]
    is_four = 0xF0 <= first < 0xF5
    if not rest or not (is_four or 0xE0 <= first < 0xF0) or not 0x80 <= rest[0] < 0xC0:
        return 1
    # Overlong forms, and in Java's four bytes codes above U+10FFFF.
    second = rest[0]
    if (first == 0xE0 and second < 0xA0) or (first == 0xF0 and second < 0x90) or (first == 0xF4 and second >= 0x90):
        return 1
    return 3 if len(rest) > 1 and 0x80 <= rest[1] < 0xC0 else 2


codecs.register_error(_NAME, _malformed)


_TEXT = {pa.binary(): pa.string(), pa.binary_view(): pa.string_view()}
NAMED_BY = ("segment", "offset")  # columns by which an error names a record
_NOT_ASCII = 0x8080808080808080


def check_payload(payload: object) -> None:
    """ArgumentError unless ``payload`` is one of the option's values."""
    if payload not in ("binary", "string"):
        raise ArgumentError(f"payload={payload!r}: expected binary or string")


def as_strings(schema: pa.Schema, payloads: Collection[str]) -> pa.Schema:
    """The schema with strings in place of bytes, in the columns that hold payloads or headers."""
    return pa.schema([pa.field(field.name, _text(field.type)) if field.name in payloads else field for field in schema])


def strings_of(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches under that schema, without the columns after it: those of `NAMED_BY` that it lacks. Healthy ones are not copied. A
    PayloadError at the first record with a key, a value or the value of a header that is not UTF-8, after the records before it."""
    for batch in batches:
        viewed, wrong = _viewed(batch, schema), dict[int, str]()
        for field, column, text in zip(schema, batch.columns, viewed.columns, strict=False):
            try:
                if column.type != field.type and not _is_ascii(column):
                    text.validate(full=True)
            except pa.ArrowInvalid:
                wrong.setdefault(_first_wrong(column), field.name)
        if not wrong:
            yield viewed
            continue
        first = min(wrong)
        if first:
            # A copy: a slice of lists would still have the elements of all rows.
            yield _viewed(keep(batch, np.arange(batch.num_rows) < first), schema)
        segment, offset = (batch.column(batch.schema.get_all_field_indices(name)[-1])[first].as_py() for name in NAMED_BY)
        raise PayloadError(segment, offset, wrong[first], "not UTF-8", "Read with payload='binary', and decode what is text.")


def _is_ascii(column: pa.Array) -> bool:
    """Whether a binary column has no byte above 127, by its words: much faster than to look at each value."""
    if column.type != pa.binary():
        return False
    held = column.buffers()[2] or b""
    whole = len(held) // 8
    high = int(np.bitwise_or.reduce(np.frombuffer(held, np.uint64, whole)))
    return not high & _NOT_ASCII and bytes(memoryview(held)[8 * whole :]).isascii()


def _viewed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    pairs = zip(batch.columns, schema, strict=False)
    return pa.RecordBatch.from_arrays([one if one.type == field.type else one.view(field.type) for one, field in pairs], schema=schema)


def _first_wrong(column: pa.Array) -> int:
    """Number of the first row that is not UTF-8."""
    payload = column.flatten().field("value") if pa.types.is_list(column.type) else column
    row = int(np.argmin(bools(pc.fill_null(is_utf8(payload.cast(pa.binary())), True))))
    if payload is column:
        return row
    return int(np.searchsorted(np.cumsum(pc.fill_null(pc.list_value_length(column), 0).to_numpy()), row, side="right"))


def _text(type: pa.DataType) -> pa.DataType:
    if not pa.types.is_list(type):
        return _TEXT.get(type, type)
    header = [pa.field(field.name, _text(field.type)) for field in type.value_type]
    return pa.list_(pa.field(type.value_field.name, pa.struct(header)))
