"""Memory for the columns of a run of batches: compiled loops write it by address, and what they have written becomes `Columns`.

    numbers | key: ends or views, bitmap, bytes | value: ends or views, bitmap | headers     one block
    bytes of values                                                                          another one

There are few blocks, because to take one, and to give it back, costs some calls of Python. Values are most of the bytes, and have a block
of their own: it is freed when they are dropped, or decoded, and other columns are kept.
"""

import ctypes
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.core.paths import SHORT, is_on
from kolumn.core.recycle import LARGEST, memory
from kolumn.cpu_fallback.columns.columns import SKIPPED, BinaryColumn, Columns
from kolumn.cpu_fallback.fields.put import COPY, SKIP, VIEW, PayloadColumn
from kolumn.cpu_fallback.fields.target import (
    HAS_NULL_HEADER_KEYS,
    HAS_NULL_HEADER_VALUES,
    HAS_NULL_KEYS,
    HAS_NULL_VALUES,
    HEADER_KEY,
    HEADER_VALUE,
    HEADERS,
    KEY,
    POSITIONS,
    ROWS,
    VALUE,
    Target,
)
from kolumn.cpu_fallback.machine.address import PAD

TOGETHER = LARGEST
"""Most bytes of one block for several columns: larger blocks are not used again."""
_OFFSET, _TIMESTAMP, _OF_KEYS, _OF_VALUES = 0, 1, slice(2, 5), slice(5, 8)
_HEADER_ENDS, _OF_HEADER_KEYS, _OF_HEADER_VALUES = 8, slice(9, 12), slice(12, 15)
"""Numbers of the parts. Those of a binary column are its ends or views, its bitmap, and its bytes."""
_VALUE_BYTES = 7
"""The only part with a block of its own."""
_LINE, _VIEW = 64, 16
_NOTHING, _NO_BYTES, _NO_INT64S = PayloadColumn(SKIP), np.zeros(0, np.uint8), np.zeros(0, np.int64)


class RecordMemory:
    """Memory for the columns of a run of batches.

    Parameters
    ----------
    rows, key_bytes, value_bytes, headers : int
        Upper bounds.
    keys, values : int
        SKIP, COPY or VIEW.
    want_headers, drafts : bool
        Whether headers are kept; whether messages have attributes of their own.
    header_bytes : sequence of int, optional
        The bounds for the keys and for the values of headers; both are ``value_bytes`` if they are not known.
    microseconds : bool
        As `Columns.microseconds`.
    slots : int
        Length of ``at``: more than `target.POSITIONS` for a loop that counts more.

    Attributes
    ----------
    target : Target
        The addresses, for compiled code.
    at : int64 array
        Write positions, by the numbers of `kolumn.cpu_fallback.fields.target`.
    """

    def __init__(
        self,
        rows: int,
        key_bytes: int,
        value_bytes: int,
        headers: int,
        keys: int,
        values: int,
        want_headers: bool,
        *,
        drafts: bool = False,
        header_bytes: Sequence[int] | None = None,
        microseconds: bool = False,
        slots: int = POSITIONS,
    ) -> None:
        at: Any = np.zeros(slots, np.int64)
        self.at = at
        self._modes = keys, values, COPY if want_headers else SKIP
        self._attributes = np.zeros(rows, np.uint8) if drafts else _NO_BYTES
        self._seconds = np.full(rows, -1, np.int64) if drafts else _NO_INT64S
        of_key, of_value = header_bytes or (value_bytes, value_bytes)
        self._blocks, self._starts = _together(self._sizes(rows, key_bytes, headers, of_key, of_value))
        self._values = memory(value_bytes + PAD) if values == COPY else None
        addresses = self._addresses()
        words = ctypes.addressof(ctypes.c_char.from_buffer(at))
        self.target = Target(
            addresses[_OFFSET],
            addresses[_TIMESTAMP],
            _payloads(keys, rows, addresses[_OF_KEYS], words + 8 * HAS_NULL_KEYS),
            _payloads(values, rows, addresses[_OF_VALUES], words + 8 * HAS_NULL_VALUES),
            addresses[_HEADER_ENDS] if want_headers else 0,
            _payloads(COPY, headers, addresses[_OF_HEADER_KEYS], words + 8 * HAS_NULL_HEADER_KEYS) if want_headers else _NOTHING,
            _payloads(COPY, headers, addresses[_OF_HEADER_VALUES], words + 8 * HAS_NULL_HEADER_VALUES) if want_headers else _NOTHING,
            self._attributes.ctypes.data if drafts else 0,
            self._seconds.ctypes.data if drafts else 0,
            microseconds,
            is_on(SHORT),
        )

    def columns(self, at: Sequence[int]) -> Columns:
        """What loops have written up to the positions ``at``. Memory that is mostly unused is not kept."""
        rows, headers = at[ROWS], at[HEADERS]
        parts = self._used(self._sizes(rows, at[KEY], headers, at[HEADER_KEY], at[HEADER_VALUE]), at[VALUE])
        keys, values, of_headers = self._modes
        columns = Columns(
            rows,
            parts[_OFFSET],
            parts[_TIMESTAMP],
            self._attributes,
            self._seconds,
            _column(keys, rows, at[HAS_NULL_KEYS], parts[_OF_KEYS]),
            _column(values, rows, at[HAS_NULL_VALUES], parts[_OF_VALUES]),
            microseconds=self.target.microseconds,
        )
        if of_headers != SKIP:
            columns.header_ends = parts[_HEADER_ENDS]
            columns.header_key = _column(COPY, headers, at[HAS_NULL_HEADER_KEYS], parts[_OF_HEADER_KEYS])
            columns.header_value = _column(COPY, headers, at[HAS_NULL_HEADER_VALUES], parts[_OF_HEADER_VALUES])
        return columns

    def _sizes(self, rows: int, key_bytes: int, headers: int, header_key_bytes: int, header_value_bytes: int) -> list[int]:
        """Bytes of the parts that are together, for so many rows, headers and bytes."""
        keys, values, of_headers = self._modes
        sizes = [8 * rows, 8 * rows, *_sizes_of(keys, rows), key_bytes if keys == COPY else 0, *_sizes_of(values, rows)]
        if of_headers != SKIP:
            of_header = _sizes_of(COPY, headers)
            sizes += [4 * (rows + 1), *of_header, header_key_bytes, *of_header, header_value_bytes]
        return sizes

    def _addresses(self) -> list[int]:
        """Where each part begins."""
        if self._starts:
            first = self._blocks[0].address
            found = [first + start for start in self._starts]
        else:
            found = [block.address for block in self._blocks]
        found.insert(_VALUE_BYTES, 0 if self._values is None else self._values.address)
        return found

    def _used(self, sizes: Sequence[int], value_bytes: int) -> list[pa.Buffer]:
        """The used bytes of each part."""
        if self._starts:
            found = _used(self._blocks[0], self._starts, sizes)
        else:
            found = [_used(block, [0], [size])[0] for block, size in zip(self._blocks, sizes, strict=True)]
        found.insert(_VALUE_BYTES, None if self._values is None else _used(self._values, [0], [value_bytes])[0])
        return found


def _sizes_of(mode: int, rows: int) -> tuple[int, int]:
    """Bytes of the ends or views of ``rows`` payloads, and of their bitmap."""
    if mode == SKIP:
        return 0, 0
    return rows * _VIEW if mode == VIEW else 4 * (rows + 1), (rows + 7) // 8


def _placed(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where parts of a block begin, each with the padding that wide copies need, and how many bytes the block has."""
    *starts, whole = accumulate([(size + PAD + _LINE - 1) & -_LINE for size in sizes], initial=0)
    return starts, whole


def _together(sizes: Sequence[int]) -> tuple[list[pa.Buffer], list[int]]:
    """A block, and where its parts begin; or a block for each part, and nothing, if one would be too large."""
    starts, whole = _placed(sizes)
    if whole <= TOGETHER:
        return [memory(whole)], starts
    return [memory(size + PAD) for size in sizes], []


def _used(block: pa.Buffer, starts: Sequence[int], sizes: Sequence[int]) -> list[pa.Buffer]:
    """The used parts of a block; copied if they are less than half of it, so that the rest can be freed."""
    places, whole = _placed(sizes)
    if 2 * whole < block.size:
        kept = memory(whole)
        for start, place, size in zip(starts, places, sizes, strict=True):
            # Not by a memoryview, which would keep Python's lock.
            ctypes.memmove(kept.address + place, block.address + start, size)
        block, starts = kept, places
    return [block.slice(start, size) for start, size in zip(starts, sizes, strict=True)]


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
