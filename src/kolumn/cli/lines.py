"""Records as JSON lines, with the text of `json.dumps`.

Bytes are followed by their encoding: ``"value": "…", "valueEncoding": "utf-8"`` or ``"base64"``. A null has no encoding.

Records as lines of text: ``name=value``, values as Python's literals, two spaces between columns.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kolumn.cli.shown import (
    TEXT,
    Part,
    bytes_as_text,
    bytes_of,
    constant,
    escaped,
    is_typed,
    join_lists,
    joined,
    json_text,
    json_value,
    rewritten,
    times_as_text,
    with_null,
)


def json_lines(batch: pa.RecordBatch) -> Part:
    """The lines of some records."""
    members = [_member(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
    return joined(["{", *_between(members), "}\n"])


def _between(members: list[list[Part]]) -> list[Part]:
    return [part for i, member in enumerate(members) for part in ([", "] if i else []) + member]


def _member(name: str, column: pa.Array) -> list[Part]:
    """``"name": value`` of each row."""
    kind = column.type
    if is_typed(kind):
        return [f"{json_text(name)}: ", json_value(column)]
    if pa.types.is_list(kind):
        return [f"{json_text(name)}: [", _headers(column), "]"]
    if pa.types.is_binary(kind):
        return [_binary(name, column)] if column.null_count else _binary_parts(name, column)
    if (value := constant(column)) is not None and not pa.types.is_timestamp(kind):
        return [f"{json_text(name)}: {json_text(value.as_py())}"]
    parts = _value(column)
    return [f"{json_text(name)}: ", *([with_null(joined(parts), "null")] if column.null_count else parts)]


def _binary_parts(name: str, column: pa.Array) -> list[Part]:
    shown, other = bytes_as_text(column)
    encoding: Part = "utf-8" if other is None else pc.if_else(other, pa.scalar("base64", TEXT), pa.scalar("utf-8", TEXT))
    return [f'{json_text(name)}: "', escaped(shown), f'", {json_text(f"{name}Encoding")}: "', encoding, '"']


def _binary(name: str, column: pa.Array) -> Part:
    return with_null(joined(_binary_parts(name, column)), f"{json_text(name)}: null")


def value_text(column: pa.Array) -> list[Any]:
    """Each value as text, as a line has it but without quotes around times; None for a null."""
    part = json_value(column) if is_typed(column.type) else joined(_value(column))
    texts = [part] * len(column) if isinstance(part, str) else part.to_pylist()
    return [None if null else text.strip('"') for text, null in zip(texts, column.is_null().to_pylist(), strict=True)]


def _value(column: pa.Array) -> list[Part]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return times_as_text(column, '"')
    if pa.types.is_string(kind):
        return ['"', escaped(column.cast(TEXT)), '"']
    return [column.cast(TEXT)]


def _headers(column: pa.ListArray) -> Part:
    headers = column.flatten()
    if not len(headers):
        return ""
    key, value = headers.field("key"), headers.field("value")
    return join_lists(column, joined(["{", *_between([_member("key", key), _member("value", value)]), "}"]), ", ")


_UNPRINTABLE = r"[^ -~]"
# Characters that Python's repr may escape or quote differently; for letters that are not ASCII, only Python knows.
_NOT_PLAIN = r"[^ -&(-\[\]-~]"


def text_lines(batch: pa.RecordBatch) -> Part:
    """The lines of some records."""
    parts: list[Part] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        parts += [f"{'  ' if parts else ''}{name}=", *_cell(column)]
    return joined([*parts, "\n"])


def name(text: str) -> str:
    """A name unchanged, or as Python's literal if it could move a terminal's cursor."""
    return text if text.isprintable() else repr(text)


def _plain(value: pa.Array) -> str:
    return "null" if value is None else name(value) if isinstance(value, str) else str(value)


def _cell(column: pa.Array) -> list[Part]:
    """Parts of a cell. Only where there are nulls they are joined here: joining twice copies all text twice."""
    kind = column.type
    if is_typed(kind):
        return [json_value(column)]
    if pa.types.is_list(kind):
        return ["[", _text_lines_headers(column), "]"]
    if pa.types.is_binary(kind):
        return _or_null(column, _text_lines_binary(column))
    if pa.types.is_timestamp(kind):
        return _or_null(column, times_as_text(column, ""))
    if (value := constant(column)) is not None:
        return [_plain(value.as_py())]
    if pa.types.is_boolean(kind):
        return _or_null(column, [pc.if_else(column, pa.scalar("True", TEXT), pa.scalar("False", TEXT))])
    return _or_null(column, [_names(column) if pa.types.is_string(kind) else column.cast(TEXT)])


def _or_null(column: pa.Array, parts: list[Part]) -> list[Part]:
    return [with_null(joined(parts), "null")] if column.null_count else parts


def _names(column: pa.StringArray) -> pa.LargeStringArray:
    text = column.cast(TEXT)
    return text if _printable(bytes_of(text)) else rewritten(text, text, _UNPRINTABLE, name)


def _printable(data: Any) -> bool:
    """Whether bytes are printable ASCII."""
    return not len(data) or bool(data.min() >= 0x20 and data.max() < 0x7F)


def _text_lines_binary(column: pa.BinaryArray) -> list[Part]:
    text, other = bytes_as_text(column)
    quoted: list[Part] = ["'", text, "'"]
    data = bytes_of(text)
    if not _printable(data) or (data == ord("'")).any() or (data == ord("\\")).any():
        quoted = [rewritten(joined(quoted), text, _NOT_PLAIN, repr)]
    return quoted if other is None else [pc.if_else(other, joined(["base64:", text]), joined(quoted))]


def _text_lines_headers(column: pa.ListArray) -> Part:
    headers = column.flatten()
    if not len(headers):
        return ""
    values = headers.field("value")
    return join_lists(column, joined([_names(headers.field("key")), ": ", *_or_null(values, _text_lines_binary(values))]), ", ")
