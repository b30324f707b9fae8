"""Decoded records as memory of Arrow columns, and the arrays over it."""

import ctypes
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.core import text
from kolumn.core.arrays import Bytes, Flags, Int64s
from kolumn.core.recycle import memory
from kolumn.cpu_fallback.machine.address import PAD

_WORD, _NOT_ASCII = 8, 0x8080808080808080
_BINARY_VIEW = pa.binary_view().id


def ones(rows: int) -> pa.Buffer:
    """Validity bitmap of ``rows`` rows, with all bits set."""
    size = (rows + 7) // 8 + PAD
    buffer = memory(size)
    ctypes.memset(buffer.address, 0xFF, size)
    return buffer


class BinaryColumn(NamedTuple):
    """A column of keys or values.

    Attributes
    ----------
    rows, nulls : int
    valid : pa.Buffer, optional
        Bitmap of the rows that are not null; None if none is.
    ends, data : pa.Buffer, optional
        The int32 offsets and the bytes of an Arrow array; None if there are views.
    views : pa.Buffer, optional
        Arrow's views.
    """

    rows: int
    nulls: int = 0
    valid: pa.Buffer | None = None
    ends: pa.Buffer | None = None
    data: pa.Buffer | None = None
    views: pa.Buffer | None = None

    @property
    def null_flags(self) -> Flags:
        """Flags of the rows that are null."""
        if self.valid is None:
            return np.zeros(self.rows, np.bool_)
        return np.unpackbits(np.frombuffer(self.valid, np.uint8), count=self.rows, bitorder="little") == 0

    @property
    def bytes(self) -> int:
        """Bytes of the payloads, unless there are views."""
        return 0 if self.data is None else self.data.size

    def array(self, kind: pa.DataType, sources: list[pa.Buffer]) -> pa.Array:
        """Arrow array of the column. Copies nothing; views keep ``sources`` alive."""
        rows, nulls, valid, ends, data, views = self
        if views is not None:
            return pa.Array.from_buffers(kind, rows, [valid, views, *sources], nulls)
        if kind.id == _BINARY_VIEW:
            return pa.Array.from_buffers(pa.binary(), rows, [valid, ends, data], nulls).cast(kind)
        return pa.Array.from_buffers(kind, rows, [valid, ends, data], nulls)


SKIPPED = BinaryColumn(0)
"""A column that was not asked for."""


@dataclass
class Columns:
    """The columns of a run of batches.

    Attributes
    ----------
    rows : int
    offset, timestamp : pa.Buffer
        int64; ms, unless ``microseconds``.
    attributes, seconds : ndarray
        Of each message, as in `Target`; empty if messages have no attributes of their own, possibly longer than there are rows.
    key, value, header_key, header_value : BinaryColumn
    header_ends : pa.Buffer, optional
    microseconds : bool
        Whether ``timestamp`` is in us, with `microseconds.NO_TIME` where a record has none.
    """

    rows: int
    offset: pa.Buffer
    timestamp: pa.Buffer
    attributes: Bytes
    seconds: Int64s
    key: BinaryColumn
    value: BinaryColumn
    header_ends: pa.Buffer | None = None
    header_key: BinaryColumn = SKIPPED
    header_value: BinaryColumn = SKIPPED
    microseconds: bool = False

    def headers_array(self, kind: pa.DataType) -> pa.Array:
        """List array of the headers. In keys that are text, bytes that are not UTF-8 are replaced by U+FFFD, as in Java."""
        keys, values = self.header_key.array(pa.binary(), []), self.header_value.array(pa.binary(), [])
        if kind.value_type.field("key").type == pa.string():
            keys = _as_text(keys)
        structs = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
        return pa.Array.from_buffers(kind, self.rows, [None, self.header_ends], 0, children=[structs])


def _as_text(raw: pa.Array) -> pa.Array:
    """Strings over the same bytes; bytes that are not UTF-8 are replaced."""
    mask, ends, held = raw.buffers()
    whole = len(held) // _WORD
    words, rest = np.frombuffer(held, np.uint64, whole), memoryview(held)[whole * _WORD :]
    if not int(np.bitwise_or.reduce(words)) & _NOT_ASCII and bytes(rest).isascii():
        return pa.Array.from_buffers(pa.string(), len(raw), [mask, ends, held], raw.null_count)
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([text.decode(key) for key in raw.to_pylist()], pa.string())
