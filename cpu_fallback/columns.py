"""Stage 5 on the CPU: memory for Arrow columns, which compiled loops write by address, and the arrays over what they have written.

    numbers | key: ends or views, bitmap, bytes | value: ends or views, bitmap | headers     one block
    bytes of values                                                                          another one

There are few blocks, because each costs some calls of Python. Values, most of the bytes, can be dropped while other columns are kept.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.core import text
from kolumn.core.arrays import Bytes, Flags, Int64s
from kolumn.core.paths import SHORT, turned_off
from kolumn.core.recycle import LARGEST, memory
from kolumn.cpu_fallback.fields import target
from kolumn.cpu_fallback.fields.target import COPY, POSITIONS, SKIP, VIEW, PayloadColumn, Target
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

    ``valid``: bitmap of the rows that are not null; None if none is.
    ``ends``, ``data``: the int32 offsets and the bytes of an Arrow array; None if there are views.
    ``views``: Arrow's views.
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

    def array(self, type: pa.DataType, sources: list[pa.Buffer]) -> pa.Array:
        """Arrow array of the column. Copies nothing; views keep ``sources`` alive."""
        rows, nulls, valid, ends, data, views = self
        if views is not None:
            return pa.Array.from_buffers(type, rows, [valid, views, *sources], nulls)
        if type.id == _BINARY_VIEW:
            return pa.Array.from_buffers(pa.binary(), rows, [valid, ends, data], nulls).cast(type)
        return pa.Array.from_buffers(type, rows, [valid, ends, data], nulls)


SKIPPED = BinaryColumn(0)
"""A column that was not asked for."""


@dataclass
class Columns:
    """The columns of a run of batches.

    ``offset``, ``timestamp``: int64; ms, unless ``microseconds``.
    ``attributes``, ``seconds``: ndarray, of each message, as in `Target`; empty if messages have no attributes of their own, possibly
        longer than there are rows.
    ``microseconds``: whether ``timestamp`` is in us, with `target.NO_TIME` where a record has none.
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

    def headers_array(self, type: pa.DataType) -> pa.Array:
        """List array of the headers. In keys that are text, bytes that are not UTF-8 are replaced by U+FFFD, as in Java."""
        keys, values = self.header_key.array(pa.binary(), []), self.header_value.array(pa.binary(), [])
        if type.value_type.field("key").type == pa.string():
            keys = _as_text(keys)
        structs = pa.StructArray.from_arrays([keys, values], fields=list(type.value_type))
        return pa.Array.from_buffers(type, self.rows, [None, self.header_ends], 0, children=[structs])


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


TOGETHER = LARGEST
"""Most bytes of one block for several columns: larger blocks are not used again."""
_OFFSET, _TIMESTAMP, _OF_KEYS, _OF_VALUES = 0, 1, slice(2, 5), slice(5, 8)
_HEADER_ENDS, _OF_HEADER_KEYS, _OF_HEADER_VALUES = 8, slice(9, 12), slice(12, 15)
"""Numbers of the parts. Those of a binary column are its ends or views, its bitmap, and its bytes."""
_VALUE_BYTES = 7
"""The only part with a block of its own."""
_LINE = 64
_EACH = {SKIP: 0, COPY: 4, VIEW: 16}
"""Bytes of an end, or of a view, by mode."""
_NOTHING, _NO_BYTES, _NO_INT64S = PayloadColumn(SKIP), np.zeros(0, np.uint8), np.zeros(0, np.int64)


class RecordMemory:
    """Memory for the columns of a run of batches.

    ``rows``, ``key_bytes``, ``value_bytes``, ``headers``: upper bounds.
    ``keys``, ``values``: SKIP, COPY or VIEW.
    ``want_headers``, ``drafts``: whether headers are kept; whether messages have attributes of their own.
    ``header_bytes``: sequence of int, the bounds for the keys and for the values of headers; both are ``value_bytes`` if they are not
        known.
    ``microseconds``: as `Columns.microseconds`.
    ``slots``: length of ``at``: more than `target.POSITIONS` for a loop that counts more.
    ``target``: the addresses, for compiled code.
    ``at``: int64 array, write positions, by the numbers of `kolumn.cpu_fallback.fields.target`.
    """

    def __init__(
        self, rows: int, key_bytes: int, value_bytes: int, headers: int, keys: int, values: int, want_headers: bool, *,
        drafts: bool = False, header_bytes: Sequence[int] | None = None, microseconds: bool = False, slots: int = POSITIONS,
    ) -> None:  # fmt: skip
        at: Any = np.zeros(slots, np.int64)
        self.at = at
        self._modes = keys, values, COPY if want_headers else SKIP
        self._attributes = np.zeros(rows, np.uint8) if drafts else _NO_BYTES
        self._seconds = np.full(rows, -1, np.int64) if drafts else _NO_INT64S
        of_key, of_value = header_bytes or (value_bytes, value_bytes)
        sizes, self._starts, whole = self._placed(rows, key_bytes, headers, of_key, of_value)
        addresses = list[int]()
        if whole <= TOGETHER:
            self._blocks = [memory(whole)]
            for start in self._starts:
                addresses.append(self._blocks[0].address + start)
        else:
            self._blocks, self._starts = [memory(size + PAD) for size in sizes], []
            addresses += [block.address for block in self._blocks]
        self._values = memory(value_bytes + PAD) if values == COPY else None
        addresses.insert(_VALUE_BYTES, 0 if self._values is None else self._values.address)
        words = ctypes.addressof(ctypes.c_char.from_buffer(at))
        key = _payloads(keys, rows, addresses[_OF_KEYS], words + 8 * target.HAS_NULL_KEYS)
        value = _payloads(values, rows, addresses[_OF_VALUES], words + 8 * target.HAS_NULL_VALUES)
        of_headers = 0, _NOTHING, _NOTHING
        if want_headers:
            header_key = _payloads(COPY, headers, addresses[_OF_HEADER_KEYS], words + 8 * target.HAS_NULL_HEADER_KEYS)
            header_value = _payloads(COPY, headers, addresses[_OF_HEADER_VALUES], words + 8 * target.HAS_NULL_HEADER_VALUES)
            of_headers = addresses[_HEADER_ENDS], header_key, header_value
        of_drafts = (self._attributes.ctypes.data, self._seconds.ctypes.data) if drafts else (0, 0)
        self.target = Target(
            addresses[_OFFSET], addresses[_TIMESTAMP], key, value, *of_headers, *of_drafts, microseconds, SHORT not in turned_off()
        )

    def columns(self, at: Sequence[int]) -> Columns:
        """What loops have written up to the positions ``at``. Memory that is mostly unused is not kept."""
        rows, headers = at[target.ROWS], at[target.HEADERS]
        sizes, places, whole = self._placed(rows, at[target.KEY], headers, at[target.HEADER_KEY], at[target.HEADER_VALUE])
        if self._starts:
            parts = _used(self._blocks[0], self._starts, sizes, places, whole)
        else:
            parts = [_used(block, [0], [size], [0], size + PAD)[0] for block, size in zip(self._blocks, sizes, strict=True)]
        value_bytes = at[target.VALUE]
        parts.insert(_VALUE_BYTES, None if self._values is None else _used(self._values, [0], [value_bytes], [0], value_bytes + PAD)[0])
        keys, values, of_headers = self._modes
        key = _column(keys, rows, at[target.HAS_NULL_KEYS], parts[_OF_KEYS])
        value = _column(values, rows, at[target.HAS_NULL_VALUES], parts[_OF_VALUES])
        columns = Columns(rows, parts[_OFFSET], parts[_TIMESTAMP], self._attributes, self._seconds, key, value)
        columns.microseconds = self.target.microseconds
        if of_headers != SKIP:
            columns.header_ends = parts[_HEADER_ENDS]
            columns.header_key = _column(COPY, headers, at[target.HAS_NULL_HEADER_KEYS], parts[_OF_HEADER_KEYS])
            columns.header_value = _column(COPY, headers, at[target.HAS_NULL_HEADER_VALUES], parts[_OF_HEADER_VALUES])
        return columns

    def _placed(
        self, rows: int, key_bytes: int, headers: int, header_key_bytes: int, header_value_bytes: int
    ) -> tuple[list[int], list[int], int]:
        """Bytes of the parts that are together, for so many rows, headers and bytes; where each begins in a block, with the padding that
        wide copies need; and how many bytes the block has."""
        keys, values, of_headers = self._modes
        bits = (rows + 7) // 8
        sizes = [8 * rows, 8 * rows, _EACH[keys] * (rows + 1), bits, key_bytes if keys == COPY else 0, _EACH[values] * (rows + 1), bits]
        if of_headers != SKIP:
            of_header = 4 * (headers + 1), (headers + 7) // 8
            sizes += [4 * (rows + 1), *of_header, header_key_bytes, *of_header, header_value_bytes]
        places, end = list[int](), 0
        for size in sizes:
            places.append(end)
            end += (size + PAD + _LINE - 1) & -_LINE
        return sizes, places, end


def _used(block: pa.Buffer, starts: Sequence[int], sizes: Sequence[int], places: Sequence[int], whole: int) -> list[pa.Buffer]:
    """The used parts of a block; copied to other places of one of ``whole`` bytes if that is less than half of it, so that the rest can be
    freed."""
    kept = memory(whole) if 2 * whole < block.size else None
    parts = []
    for start, place, size in zip(starts, places, sizes, strict=True):
        if kept is not None:
            # Not by a memoryview, which would keep Python's lock.
            ctypes.memmove(kept.address + place, block.address + start, size)
        parts.append(block.slice(start, size) if kept is None else kept.slice(place, size))
    return parts


def _payloads(mode: int, rows: int, parts: Sequence[int], has_null: int) -> PayloadColumn:
    each, valid, data = parts
    if mode == SKIP:
        return _NOTHING
    data, ends, views = (0, 0, each) if mode == VIEW else (data, each, 0)
    return PayloadColumn(mode, data, ends, valid, views, has_null, rows)


def _column(mode: int, rows: int, has_null: int, parts: Sequence[pa.Buffer]) -> BinaryColumn:
    each, valid, data = parts
    if mode == SKIP:
        return SKIPPED
    nulls = rows - pa.Array.from_buffers(pa.bool_(), rows, [None, valid]).true_count if has_null and rows else 0
    mask = valid if nulls else None
    return BinaryColumn(rows, nulls, mask, views=each) if mode == VIEW else BinaryColumn(rows, nulls, mask, each, data)
