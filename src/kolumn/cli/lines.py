"""Records as text, column by column: a loop over records in Python takes ten times as long as decoding them.

Lines are JSON with the text of `json.dumps`, text as ``name=value``, or a template as kcat's ``-f``. In JSON bytes are followed by their
encoding: ``"value": "…", "valueEncoding": "utf-8"`` or ``"base64"``; a null has none. In text values are Python's literals, with two spaces
between columns. Typed columns become JSON in both: structs objects, lists arrays, at any depth.
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
from kolumn.core.errors import ArgumentError
from kolumn.core.schema import HEADERS
from kolumn.core.text import is_utf8
from kolumn.core.times import as_text, far_times
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.internal.messages import is_message
from kolumn.values.narrowing import INTERVAL, Narrowed

TEXT = pa.large_string()
BLOCK_ROWS = 32768
BLOCK_BYTES = 16 << 20  # records and bytes that are converted at a time: text is several times larger than the records

Part: TypeAlias = str | pa.LargeStringArray  # text of the rows: the same for all, or one for each

_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that JSON has as they are and a terminal acts on: DEL, C1 controls, ends of lines, marks that turn the direction of text."""
_LINE_ENDS = np.frombuffer(b"\r\n", np.uint8)
_LEADS = np.isin(np.arange(256), [0x7F, 0xC2, 0xD8, 0xE2])  # first bytes of these characters


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
    return part if isinstance(part, str) or not part.null_count else part.fill_null(null)


def data_of(lines: Part, rows: int) -> Any:
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
    text = pc.if_else(other, pa.scalar(None, pa.large_binary()), column).cast(TEXT)
    return pc.replace_with_mask(text, other, base64_of(column.filter(other))), other


def times_as_text(column: pa.Array, quote: str) -> list[Part]:
    """Timestamps of microseconds as ``2026-01-31T12:00:00.000Z`` between quotes, in parts; with six digits where three are too few."""
    plain = _quoted_times(column.cast(pa.timestamp("ms", column.type.tz), safe=False), quote)
    finer = (column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) % 1000) != 0
    return [pc.if_else(pa.array(finer), joined(_quoted_times(column, quote)), joined(plain))] if finer.any() else plain


def _quoted_times(column: pa.Array, quote: str) -> list[Part]:
    """Times in ISO 8601 between quotes, in parts; years that have not four digits have a sign."""
    far = far_times(column)
    usual = column if far is None else pc.if_else(far, pa.scalar(None, column.type), column)
    text = usual.cast(TEXT)
    if pa.types.is_timestamp(column.type):
        text = pc.binary_replace_slice(text, 10, 11, "T")
    if far is not None:
        text = pc.replace_with_mask(text, pc.fill_null(far, False), pa.array(as_text(column, far), TEXT))
    return [quote, text, quote]


def json_text(value: object, default: Callable[[Any], Any] | None = None) -> str:
    """JSON of a value, for terminals too: what could move a cursor or turn the direction of text is an escape of JSON's."""
    return _UNSAFE.sub(lambda match: _escape(match[0]), json.dumps(value, ensure_ascii=False, default=default))


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}"


def escaped(text: pa.LargeStringArray) -> pa.LargeStringArray:
    """Text as `json_text` has it between quotes."""
    data = bytes_of(text)
    # The backslash is replaced first, since the escapes of the others begin with one.
    special = [byte for byte in (ord("\\"), ord('"')) if (data == byte).any()]
    for byte in (*special, *np.unique(data[data < 0x20]).tolist()):
        text = pc.replace_substring(text, chr(byte), json.dumps(chr(byte))[1:-1])
    return safe(text)


def safe(text: pa.LargeStringArray) -> pa.LargeStringArray:
    """JSON text without characters that a terminal acts on."""
    data = bytes_of(text)
    leads = np.flatnonzero(_LEADS[data])
    if not len(leads):
        return text
    # No character that `_UNSAFE` names has more than three bytes.
    first, second, third = (np.take(data, leads + i, mode="clip").astype(np.uint32) for i in range(3))
    candidates = (number.to_bytes(3, "big").decode("utf-8", "ignore") for number in np.unique(first << 16 | second << 8 | third).tolist())
    for char in sorted({match[0] for candidate in candidates if (match := _UNSAFE.match(candidate))}):
        text = pc.replace_substring(text, char, _escape(char))
    return text


def base64_of(column: pa.Array) -> pa.LargeStringArray:
    values = column.to_pylist()
    return pa.array([None if value is None else binascii.b2a_base64(value, newline=False).decode("ascii") for value in values], TEXT)


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


_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}  # as Python's json writes them


def is_typed(type: pa.DataType) -> bool:
    """Whether a column of the type can only be of decoded keys or values: record columns have no such types."""
    if pa.types.is_timestamp(type):
        return bool(type.unit != "us" or type.tz != "UTC")
    plain = (pa.types.is_string, pa.types.is_binary, pa.types.is_binary_view, pa.types.is_integer, pa.types.is_boolean)
    return type != HEADERS and not any(is_plain(type) for is_plain in plain)


def json_value(column: pa.Array) -> Part:
    """The JSON text of each value; bytes as base64, moments and other kinds of time as text."""
    type = column.type
    if pa.types.is_null(type):
        return "null"
    if pa.types.is_dictionary(type):
        return json_value(column.cast(type.value_type))
    if isinstance(type, pa.BaseExtensionType):
        return _of_extension(column)
    if type == pa.month_day_nano_interval():
        return json_value(Narrowed(pa.schema([])).column(column, INTERVAL, ""))
    text = _nested(column) if type.num_fields or pa.types.is_struct(type) else _plain(column)
    if not column.null_count:
        return text
    return pc.if_else(column.is_valid(), pa.scalar(text, TEXT) if isinstance(text, str) else text, pa.scalar("null", TEXT))


def _nested(column: pa.Array) -> Part:
    type = column.type
    if is_message(type):
        return _message(column)
    if pa.types.is_struct(type):
        members = column.flatten()
        named = [(f"{', ' if i else ''}{json_text(field.name)}: ", json_value(members[i])) for i, field in enumerate(type)]
        return joined(["{", *(part for pair in named for part in pair), "}"])
    if pa.types.is_map(type):
        pairs = column.cast(pa.list_(pa.struct([type.key_field, type.item_field])))
        names, values = pairs.flatten().flatten()
        text = names if pa.types.is_string(names.type) else pa.array([str(name) for name in names.to_pylist()], pa.string())
        return _between("{", pairs, joined([json_value(text), ": ", json_value(values)]), "}")
    return _between("[", column, json_value(column.flatten()), "]")


def _message(column: pa.StructArray) -> Part:
    """A message of an internal topic as Kafka's tools print it: what it is, and its own fields alone."""
    name, version, *fields, kept = column.flatten()
    named = [("bytes", kept), *(("data", field) for field in fields if field.null_count < len(field))]
    contents = [pc.if_else(part.is_valid(), joined([f', "{name}": ', json_value(part)]), pa.scalar(None, TEXT)) for name, part in named]
    return joined(['{"type": ', json_value(name), ', "version": ', json_value(version), pc.coalesce(*contents, pa.scalar("", TEXT)), "}"])


def _between(opening: str, column: pa.ListArray, elements: Part, closing: str) -> Part:
    return joined([opening, join_lists(column, elements, ", "), closing])


def _plain(column: pa.Array) -> Part:
    type = column.type
    if pa.types.is_floating(type):
        text = column.cast(TEXT)
        for word, json_word in _NUMBERS.items():
            text = pc.if_else(pc.equal(text, word), pa.scalar(json_word, TEXT), text)
        return with_null(text, "null")
    if pa.types.is_integer(type) or pa.types.is_boolean(type) or pa.types.is_decimal(type):
        return with_null(column.cast(TEXT), "null")
    if pa.types.is_binary(type) or pa.types.is_fixed_size_binary(type) or pa.types.is_binary_view(type):
        text = base64_of(column)
    elif pa.types.is_string(type):
        text = escaped(column.cast(TEXT))
    elif pa.types.is_timestamp(type) or pa.types.is_date(type) or pa.types.is_time(type):
        return with_null(joined(_quoted_times(column, '"')), "null")
    else:
        text = pa.array([None if value is None else str(value) for value in column.to_pylist()], TEXT)
    return with_null(joined(['"', text, '"']), "null")


def _of_extension(column: pa.ExtensionArray) -> Part:
    """JSON text is a part of the line, on one line; a UUID is text, any other value as it is stored."""
    if column.type == pa.uuid():
        return json_value(Narrowed(pa.schema([])).column(column, pa.string(), ""))
    if column.type != JSON_TEXT:
        return json_value(column.storage)
    text = column.storage.cast(TEXT)
    # A line can end only between the tokens of JSON text.
    if np.isin(bytes_of(text), _LINE_ENDS).any():
        text = pc.replace_substring_regex(text, "[\r\n]+", " ")
    return with_null(safe(text), "null")


_UNPRINTABLE = r"[^ -~]"
# Characters that Python's repr may escape or quote differently; for letters that are not ASCII, only Python knows.
_NOT_PLAIN = r"[^ -&(-\[\]-~]"
_BYTES = pa.large_binary()
_Piece: TypeAlias = bytes | str  # bytes that are the same for all records, or the letter of a field
_BytesPart: TypeAlias = bytes | pa.LargeBinaryArray
_FIELDS = {
    "t": "topic", "p": "partition", "o": "offset", "k": "key", "K": "key", "s": "value", "S": "value", "R": "value", "T": "timestampMs",
    "h": "headers",
}  # fmt: skip
"""Letters after ``%``, and the columns that they show; ``K``, ``S`` and ``R`` are lengths."""
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t"}
_TOKEN = re.compile(r"%(.)|\\x([0-9][0-9a-fA-F]*|[0-9a-fA-F]{2})|\\(0[0-7]*|[1-9][0-9]*)|\\(.)|%", re.DOTALL)


def json_lines(batch: pa.RecordBatch) -> Part:
    members = [_member(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
    return joined(["{", *_separated(members), "}\n"])


def _separated(members: list[list[Part]]) -> list[Part]:
    return [part for i, member in enumerate(members) for part in ([", "] if i else []) + member]


def _member(name: str, column: pa.Array) -> list[Part]:
    type = column.type
    if is_typed(type):
        return [f"{json_text(name)}: ", json_value(column)]
    if pa.types.is_list(type):
        return [f"{json_text(name)}: [", _headers(column, _json_header), "]"]
    if pa.types.is_binary(type):
        parts = _binary_member(name, column)
        return [with_null(joined(parts), f"{json_text(name)}: null")] if column.null_count else parts
    if (value := constant(column)) is not None and not pa.types.is_timestamp(type):
        return [f"{json_text(name)}: {json_text(value.as_py())}"]
    parts = _value(column)
    return [f"{json_text(name)}: ", *([with_null(joined(parts), "null")] if column.null_count else parts)]


def _binary_member(name: str, column: pa.Array) -> list[Part]:
    shown, other = bytes_as_text(column)
    encoding: Part = "utf-8" if other is None else pc.if_else(other, pa.scalar("base64", TEXT), pa.scalar("utf-8", TEXT))
    return [f'{json_text(name)}: "', escaped(shown), f'", {json_text(f"{name}Encoding")}: "', encoding, '"']


def value_text(column: pa.Array) -> list[Any]:
    part = json_value(column) if is_typed(column.type) else joined(_value(column))
    texts = [part] * len(column) if isinstance(part, str) else part.to_pylist()
    return [None if null else text.strip('"') for text, null in zip(texts, column.is_null().to_pylist(), strict=True)]


def _value(column: pa.Array) -> list[Part]:
    type = column.type
    if pa.types.is_timestamp(type):
        return times_as_text(column, '"')
    if pa.types.is_string(type):
        return ['"', escaped(column.cast(TEXT)), '"']
    return [column.cast(TEXT)]


def _headers(column: pa.ListArray, parts_of: Callable[[pa.Array, pa.Array], list[Part]]) -> Part:
    headers = column.flatten()
    return join_lists(column, joined(parts_of(headers.field("key"), headers.field("value"))), ", ") if len(headers) else ""


def _json_header(key: pa.Array, value: pa.Array) -> list[Part]:
    return ["{", *_separated([_member("key", key), _member("value", value)]), "}"]


def text_lines(batch: pa.RecordBatch) -> Part:
    parts: list[Part] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        parts += [f"{'  ' if parts else ''}{name}=", *_cell(column)]
    return joined([*parts, "\n"])


def name(text: str) -> str:
    """A name unchanged, or as Python's literal if it could move a terminal's cursor."""
    return text if text.isprintable() else repr(text)


def _cell(column: pa.Array) -> list[Part]:
    """Parts of a cell. Only where there are nulls they are joined here: joining twice copies all text twice."""
    type = column.type
    if is_typed(type):
        return [json_value(column)]
    if pa.types.is_list(type):
        return ["[", _headers(column, _text_header), "]"]
    if pa.types.is_binary(type):
        return _or_null(column, _text_binary(column))
    if pa.types.is_timestamp(type):
        return _or_null(column, times_as_text(column, ""))
    if (value := constant(column)) is not None:
        plain = value.as_py()
        return ["null" if plain is None else name(plain) if isinstance(plain, str) else str(plain)]
    if pa.types.is_boolean(type):
        return _or_null(column, [pc.if_else(column, pa.scalar("True", TEXT), pa.scalar("False", TEXT))])
    return _or_null(column, [_names(column) if pa.types.is_string(type) else column.cast(TEXT)])


def _or_null(column: pa.Array, parts: list[Part]) -> list[Part]:
    return [with_null(joined(parts), "null")] if column.null_count else parts


def _names(column: pa.StringArray) -> pa.LargeStringArray:
    text = column.cast(TEXT)
    return text if _printable(bytes_of(text)) else rewritten(text, text, _UNPRINTABLE, name)


def _printable(data: Bytes) -> bool:
    return not len(data) or bool(data.min() >= 0x20 and data.max() < 0x7F)


def _text_binary(column: pa.BinaryArray) -> list[Part]:
    text, other = bytes_as_text(column)
    quoted: list[Part] = ["'", text, "'"]
    data = bytes_of(text)
    if not _printable(data) or (data == ord("'")).any() or (data == ord("\\")).any():
        quoted = [rewritten(joined(quoted), text, _NOT_PLAIN, repr)]
    return quoted if other is None else [pc.if_else(other, joined(["base64:", text]), joined(quoted))]


def _text_header(key: pa.Array, value: pa.Array) -> list[Part]:
    return [_names(key), ": ", *_or_null(value, _text_binary(value))]


class Template:
    """A template as kcat's ``-f``, parsed. Raises `ArgumentError` if a letter has no meaning.

    ``%t`` topic, ``%p`` partition, ``%o`` offset, ``%k`` key, ``%s`` value, ``%T`` timestamp in ms, ``%h`` headers as
    ``name=value,…``, ``%K`` and ``%S`` lengths of key and value (-1 for null), ``%R`` the value's length as a big-endian int32,
    ``%%`` a percent sign. ``\\n``, ``\\r`` and ``\\t`` are bytes, and so are numbers to their last digit, as C reads them:
    ``\\x41`` in base 16, ``\\0101`` in base 8, ``\\65`` in base 10. Any other character after a backslash is itself. Keys and
    values are printed as they are, a null as nothing, a header's null as ``NULL``.
    """

    def __init__(self, text: str) -> None:
        self._pieces: list[_Piece] = []
        end = 0
        for token in _TOKEN.finditer(text):
            self._add(text[end : token.start()].encode("utf-8", "surrogateescape"))
            end = token.end()
            letter, hexadecimal, number, escape = token.groups()
            if hexadecimal is not None:
                self._add(bytes([int(hexadecimal, 16) & 0xFF]))
            elif number is not None:
                # The lowest byte, as a char of C has it.
                self._add(bytes([int(number, 8 if number[0] == "0" else 10) & 0xFF]))
            elif escape is not None:
                self._add(_ESCAPES.get(escape) or escape.encode("utf-8", "surrogateescape"))
            elif letter == "%":
                self._add(b"%")
            elif letter in _FIELDS:
                self._pieces.append(letter)
            else:
                known = ", ".join(f"%{field}" for field in _FIELDS)
                raise ArgumentError(f"--template {text!r}: {token[0]!r} has no meaning; fields are {known}, and %% is a percent sign")
        self._add(text[end:].encode("utf-8", "surrogateescape"))

    def _add(self, data: bytes) -> None:
        if self._pieces and isinstance(self._pieces[-1], bytes):
            self._pieces[-1] += data
        elif data:
            self._pieces.append(data)

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(_FIELDS[piece] for piece in self._pieces if isinstance(piece, str)))

    def __call__(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        parts = [piece if isinstance(piece, bytes) else _SHOWN[piece](batch[_FIELDS[piece]]) for piece in self._pieces]
        return _joined_bytes(parts, batch.num_rows)


def _joined_bytes(parts: list[_BytesPart], rows: int) -> pa.LargeBinaryArray:
    arguments = [pa.scalar(part, _BYTES) if isinstance(part, bytes) else part for part in parts]
    if any(isinstance(part, pa.Array) for part in arguments):
        return pc.binary_join_element_wise(*arguments, pa.scalar(b"", _BYTES))
    return pa.array([b"".join(part.as_py() for part in arguments)] * rows, _BYTES)


def _payload_bytes(column: pa.Array) -> pa.LargeBinaryArray:
    if is_typed(column.type):
        text = json_value(column)
        return pa.array([text] * len(column), TEXT).cast(_BYTES) if isinstance(text, str) else text.cast(_BYTES)
    return column.cast(_BYTES).fill_null(b"")


def _lengths(column: pa.Array) -> pa.Array:
    return pc.binary_length(column if not is_typed(column.type) else _payload_bytes(column)).fill_null(-1)


def _binary_length(column: pa.Array) -> pa.LargeBinaryArray:
    data = _lengths(column).to_numpy(zero_copy_only=False).astype(">i4").tobytes()
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(4), len(column), [None, pa.py_buffer(data)]).cast(_BYTES)


def _header_bytes(column: pa.ListArray) -> pa.LargeBinaryArray:
    headers = column.flatten()
    key = headers.field("key").cast(TEXT).cast(_BYTES)
    value = headers.field("value").cast(_BYTES).fill_null(b"NULL")
    return join_lists(column, _joined_bytes([key, b"=", value], len(headers)), b",").fill_null(b"")


_SHOWN: dict[str, Callable[[Any], pa.LargeBinaryArray]] = {
    **dict.fromkeys("tpoT", lambda column: column.cast(TEXT).fill_null("").cast(_BYTES)),
    **dict.fromkeys("KS", lambda column: _lengths(column).cast(TEXT).cast(_BYTES)),
    **dict.fromkeys("ks", _payload_bytes),
    "R": _binary_length,
    "h": _header_bytes,
}
