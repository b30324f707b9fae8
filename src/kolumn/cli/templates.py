"""Records by a template, as kcat's ``-f``: ``%o %k %s\\n``."""

import re
from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kolumn.cli.shown import TEXT, is_typed, join_lists, json_value
from kolumn.core.errors import ArgumentError

_BYTES = pa.large_binary()
_Piece: TypeAlias = bytes | str
"""Bytes that are the same for all records, or the letter of a field."""
_Part: TypeAlias = bytes | pa.LargeBinaryArray

FIELDS = {
    "t": "topic",
    "p": "partition",
    "o": "offset",
    "k": "key",
    "K": "key",
    "s": "value",
    "S": "value",
    "R": "value",
    "T": "timestampMs",
    "h": "headers",
}
"""Letters after ``%``, and the columns that they show; ``K``, ``S`` and ``R`` are lengths."""
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t"}
_TOKEN = re.compile(r"%(.)|\\x([0-9][0-9a-fA-F]*|[0-9a-fA-F]{2})|\\(0[0-7]*|[1-9][0-9]*)|\\(.)|%", re.DOTALL)


class Template:
    """A template, parsed.

    ``%t`` topic, ``%p`` partition, ``%o`` offset, ``%k`` key, ``%s`` value, ``%T`` timestamp in ms, ``%h`` headers as
    ``name=value,…``, ``%K`` and ``%S`` lengths of key and value (-1 for null), ``%R`` the value's length as a big-endian int32,
    ``%%`` a percent sign. ``\\n``, ``\\r`` and ``\\t`` are bytes, and so are numbers to their last digit, as C reads them:
    ``\\x41`` in base 16, ``\\0101`` in base 8, ``\\65`` in base 10. Any other character after a backslash is itself. Keys and
    values are printed as they are, a null as nothing, a header's null as ``NULL``.

    Parameters
    ----------
    text : str

    Raises
    ------
    ArgumentError
        A letter has no meaning.
    """

    def __init__(self, text: str) -> None:
        self._pieces = _parsed(text)

    @property
    def columns(self) -> list[str]:
        """The record columns that the template shows."""
        return list(dict.fromkeys(FIELDS[piece] for piece in self._pieces if isinstance(piece, str)))

    def __call__(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        """The text of each record."""
        parts = [piece if isinstance(piece, bytes) else _SHOWN[piece](batch[FIELDS[piece]]) for piece in self._pieces]
        return _joined(parts, batch.num_rows)


def _parsed(text: str) -> list[_Piece]:
    pieces: list[_Piece] = []
    at = 0

    def literal(data: bytes) -> None:
        if pieces and isinstance(pieces[-1], bytes):
            pieces[-1] += data
        elif data:
            pieces.append(data)

    for token in _TOKEN.finditer(text):
        literal(text[at : token.start()].encode("utf-8", "surrogateescape"))
        at = token.end()
        letter, hexadecimal, number, escape = token.groups()
        if hexadecimal is not None:
            literal(_byte(int(hexadecimal, 16)))
        elif number is not None:
            literal(_byte(int(number, 8 if number[0] == "0" else 10)))
        elif escape is not None:
            literal(_ESCAPES.get(escape) or escape.encode("utf-8", "surrogateescape"))
        elif letter == "%":
            literal(b"%")
        elif letter in FIELDS:
            pieces.append(letter)
        else:
            known = ", ".join(f"%{one}" for one in FIELDS)
            raise ArgumentError(f"--template {text!r}: {token[0]!r} has no meaning; fields are {known}, and %% is a percent sign")
    literal(text[at:].encode("utf-8", "surrogateescape"))
    return pieces


def _byte(number: int) -> bytes:
    """The lowest byte, as a char of C has it."""
    return bytes([number & 0xFF])


def _joined(parts: list[_Part], rows: int) -> pa.LargeBinaryArray:
    arguments = [pa.scalar(part, _BYTES) if isinstance(part, bytes) else part for part in parts]
    if any(isinstance(part, pa.Array) for part in arguments):
        return pc.binary_join_element_wise(*arguments, pa.scalar(b"", _BYTES))
    return pa.array([b"".join(part.as_py() for part in arguments)] * rows, _BYTES)


def _payload(column: pa.Array) -> pa.LargeBinaryArray:
    if is_typed(column.type):
        text = json_value(column)
        return pa.array([text] * len(column), TEXT).cast(_BYTES) if isinstance(text, str) else text.cast(_BYTES)
    return column.cast(_BYTES).fill_null(b"")


def _length(column: pa.Array) -> pa.LargeBinaryArray:
    return pc.binary_length(column if not is_typed(column.type) else _payload(column)).fill_null(-1).cast(TEXT).cast(_BYTES)


def _binary_length(column: pa.Array) -> pa.LargeBinaryArray:
    lengths = pc.binary_length(column if not is_typed(column.type) else _payload(column)).fill_null(-1)
    data = lengths.to_numpy(zero_copy_only=False).astype(">i4").tobytes()
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(4), len(column), [None, pa.py_buffer(data)]).cast(_BYTES)


def _number(column: pa.Array) -> pa.LargeBinaryArray:
    return column.cast(TEXT).cast(_BYTES).fill_null(b"")


def _headers(column: pa.ListArray) -> pa.LargeBinaryArray:
    headers = column.flatten()
    key = headers.field("key").cast(TEXT).cast(_BYTES)
    value = headers.field("value").cast(_BYTES).fill_null(b"NULL")
    return join_lists(column, _joined([key, b"=", value], len(headers)), b",").fill_null(b"")


_SHOWN: dict[str, Callable[[Any], pa.LargeBinaryArray]] = {
    "t": lambda column: column.cast(TEXT).fill_null("").cast(_BYTES), "p": _number, "o": _number, "k": _payload, "K": _length,
    "s": _payload, "S": _length, "R": _binary_length, "T": _number, "h": _headers,
}  # fmt: skip
