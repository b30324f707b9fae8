"""Arrow columns on the CPU: memory for a run of batches, which `fields` writes by address, and the arrays that are built over it."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kolumn.arrays import Bytes, Flags, Int64s
from kolumn.arrow import utf8
from kolumn.arrow.recycle import LARGEST, memory
from kolumn.cpu_fallback.fields.put import COPY, SKIP, VIEW, PayloadColumn
from kolumn.cpu_fallback.fields.target import HEADER_KEY, HEADER_VALUE, HEADERS, KEY, ROWS, VALUE, Target
from kolumn.cpu_fallback.machine.address import PAD

_VIEW = 16
_WORD, _NOT_ASCII = 8, 0x8080808080808080
_LINE = 64

TOGETHER = LARGEST
"""Most bytes of one block for all columns of numbers."""
_ONES = pa.py_buffer(b"\xff" * (1 << 16))
_BINARY_VIEW = pa.binary_view().id
_NO_BYTES, _NO_INT64S = np.zeros(0, np.uint8), np.zeros(0, np.int64)


Positions = Int64s | Sequence[int]
"""Write positions, by the numbers of `kolumn.cpu_fallback.fields.target`."""


def allocate(size: int) -> pa.Buffer:
    """Uninitialised Arrow memory of ``size`` bytes and the padding that wide copies need."""
    return memory(size + PAD)


def together(sizes: Sequence[int]) -> list[pa.Buffer]:
    """As `allocate` for each size, in one block: to take a block, and to give it back, costs some calls of Python."""
    padded = [(size + PAD + _LINE - 1) & -_LINE for size in sizes]
    whole = sum(padded)
    if whole > TOGETHER:
        return [allocate(size) for size in sizes]
    block, at, buffers = memory(whole), 0, list[pa.Buffer]()
    for size in padded:
        buffers.append(block.slice(at, size))
        at += size
    return buffers


def used(buffer: pa.Buffer, size: int) -> pa.Buffer:
    """The first ``size`` bytes of a buffer; copied if they are less than half of it, so that the rest can be freed."""
    if size + PAD >= buffer.size // 2:
        return buffer.slice(0, size)
    kept = memory(size + PAD)
    # Not by a memoryview, which would keep Python's lock.
    ctypes.memmove(kept.address, buffer.address, size)
    return kept.slice(0, size)


def ones(rows: int) -> pa.Buffer:
    """Validity bitmap of ``rows`` rows, with all bits set."""
    size = (rows + 7) // 8 + PAD
    buffer = memory(size)
    ctypes.memset(buffer.address, 0xFF, size)
    return buffer


def bitmap(valid: pa.Buffer, rows: int) -> tuple[pa.Buffer | None, int]:
    """The bitmap for an Arrow array and its null count; no bitmap if nothing is null."""
    size = (rows + 7) // 8
    if size <= _ONES.size and valid.slice(0, size).equals(_ONES.slice(0, size)):
        return None, 0
    whole = np.frombuffer(valid, np.uint8, size)
    if np.bitwise_and.reduce(whole, initial=0xFF) == 0xFF:
        return None, 0
    nulls = rows - int(np.unpackbits(whole, count=rows, bitorder="little").sum())
    return (valid.slice(0, len(whole)), nulls) if nulls else (None, 0)


class BinaryColumn(NamedTuple):
    """Memory of one column of keys or values.

    Attributes
    ----------
    mode : int
        SKIP, COPY or VIEW.
    arena, ends, valid, views : pa.Buffer, optional
        Their addresses are in `PayloadColumn`.
    """

    mode: int
    arena: pa.Buffer | None = None
    ends: pa.Buffer | None = None
    valid: pa.Buffer | None = None
    views: pa.Buffer | None = None

    @staticmethod
    def sizes(mode: int, rows: int) -> tuple[int, ...]:
        """Bytes of the memory for ``rows`` payloads, but for the payloads themselves."""
        if mode == SKIP:
            return ()
        return (rows * _VIEW if mode == VIEW else 4 * (rows + 1)), (rows + 7) // 8

    @classmethod
    def of(cls, mode: int, buffers: Sequence[pa.Buffer], payload_bytes: int) -> "BinaryColumn":
        """A column of at most ``payload_bytes`` in buffers of the `sizes`."""
        if mode == SKIP:
            return SKIPPED
        each, valid = buffers
        ctypes.memset(valid.address, 0xFF, valid.size)
        if mode == VIEW:
            return cls(VIEW, valid=valid, views=each)
        ctypes.memset(each.address, 0, 4)
        return cls(COPY, allocate(payload_bytes), each, valid)

    @property
    def null_bytes(self) -> Bytes:
        """The validity bitmap as an array of bytes; empty if the column is skipped."""
        return np.frombuffer(memoryview(self.valid), np.uint8) if self.valid is not None else np.empty(0, np.uint8)

    @property
    def payloads(self) -> PayloadColumn:
        """The addresses, for compiled code."""
        if self is SKIPPED:
            return _NOTHING
        _, arena, ends, valid, views = self
        return PayloadColumn(
            self.mode,
            0 if arena is None else arena.address,
            0 if ends is None else ends.address,
            0 if valid is None else valid.address,
            0 if views is None else views.address,
        )

    def array(self, kind: pa.DataType, rows: int, used_bytes: int, sources: list[pa.Buffer]) -> pa.Array:
        """Arrow array of the first ``rows`` payloads. Copies nothing; views keep ``sources`` alive."""
        mask, nulls = bitmap(self.valid, rows)
        if self.mode == VIEW:
            assert self.views is not None
            return pa.Array.from_buffers(kind, rows, [mask, used(self.views, rows * _VIEW), *sources], nulls)
        assert self.ends is not None
        assert self.arena is not None
        buffers = [mask, used(self.ends, 4 * (rows + 1)), used(self.arena, used_bytes)]
        if kind.id == _BINARY_VIEW:
            return pa.Array.from_buffers(pa.binary(), rows, buffers, nulls).cast(kind)
        return pa.Array.from_buffers(kind, rows, buffers, nulls)


SKIPPED, _NOTHING = BinaryColumn(SKIP), PayloadColumn(SKIP)


@dataclass
class Columns:
    """Memory for the columns of a run of batches.

    Attributes
    ----------
    offset, timestamp : pa.Buffer
        int64; ms, unless ``microseconds``.
    attributes, seconds : ndarray
        Their addresses are in `Target`; empty if messages have no attributes of their own.
    key, value, header_key, header_value : BinaryColumn
    header_ends : pa.Buffer, optional
    microseconds : bool
        Whether ``timestamp`` is in us, with `microseconds.NO_TIME` where a record has none.
    """

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

    @classmethod
    def of(
        cls,
        rows: int,
        key_bytes: int,
        value_bytes: int,
        headers: int,
        keys: int,
        values: int,
        want_headers: bool,
        drafts: bool = False,
        header_bytes: tuple[int, int] | None = None,
        microseconds: bool = False,
    ) -> "Columns":
        """New memory.

        Parameters
        ----------
        rows, key_bytes, value_bytes, headers : int
            Upper bounds.
        keys, values : int
            SKIP, COPY or VIEW.
        want_headers, drafts : bool
            Whether headers are kept; whether messages have attributes of their own.
        header_bytes : tuple of int, optional
            The bounds for the keys and for the values of headers; both are ``value_bytes`` if they are not known.
        microseconds : bool
            As the attribute.
        """
        of_key, of_value = BinaryColumn.sizes(keys, rows), BinaryColumn.sizes(values, rows)
        offset, timestamp, *buffers = together((8 * rows, 8 * rows, *of_key, *of_value))
        columns = cls(
            offset,
            timestamp,
            np.zeros(rows, np.uint8) if drafts else _NO_BYTES,
            np.full(rows, -1, np.int64) if drafts else _NO_INT64S,
            BinaryColumn.of(keys, buffers[: len(of_key)], key_bytes),
            BinaryColumn.of(values, buffers[len(of_key) :], value_bytes),
            microseconds=microseconds,
        )
        if want_headers:
            of_header = BinaryColumn.sizes(COPY, headers)
            columns.header_ends, *buffers = together((4 * (rows + 1), *of_header, *of_header))
            ctypes.memset(columns.header_ends.address, 0, 4)
            most = header_bytes or (value_bytes, value_bytes)
            columns.header_key, columns.header_value = (
                BinaryColumn.of(COPY, buffers[2 * i : 2 * i + 2], size if headers else 0) for i, size in enumerate(most)
            )
        return columns

    @property
    def target(self) -> Target:
        """The addresses, for compiled code."""
        ends, header_key, header_value = 0, _NOTHING, _NOTHING
        if self.header_ends is not None:
            ends, header_key, header_value = self.header_ends.address, self.header_key.payloads, self.header_value.payloads
        return Target(
            self.offset.address,
            self.timestamp.address,
            self.key.payloads,
            self.value.payloads,
            ends,
            header_key,
            header_value,
            self.attributes.ctypes.data if len(self.attributes) else 0,
            self.seconds.ctypes.data if len(self.seconds) else 0,
            self.microseconds,
        )

    @property
    def value_nulls(self) -> Flags:
        """Flags of the rows whose value is null."""
        return np.unpackbits(self.value.null_bytes, axis=None, bitorder="little") == 0

    def headers_array(self, kind: pa.DataType, at: Positions) -> pa.Array:
        """List array of the headers. Key bytes that are not UTF-8 are replaced by U+FFFD, as in Java."""
        entry = kind.value_type
        count, rows = int(at[HEADERS]), int(at[ROWS])
        raw = self.header_key.array(pa.binary(), count, int(at[HEADER_KEY]), [])
        keys = _as_text(raw)
        values = self.header_value.array(pa.binary(), count, int(at[HEADER_VALUE]), [])
        structs = pa.StructArray.from_arrays([keys, values], fields=list(entry))
        assert self.header_ends is not None
        return pa.Array.from_buffers(kind, rows, [None, used(self.header_ends, 4 * (rows + 1))], 0, children=[structs])

    def key_array(self, kind: pa.DataType, at: Positions, sources: list[pa.Buffer]) -> pa.Array:
        """Keys as an Arrow array."""
        return self.key.array(kind, int(at[ROWS]), int(at[KEY]), sources)

    def value_array(self, kind: pa.DataType, at: Positions, sources: list[pa.Buffer]) -> pa.Array:
        """Values as an Arrow array."""
        return self.value.array(kind, int(at[ROWS]), int(at[VALUE]), sources)


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
        return pa.array([utf8.decode(key) for key in raw.to_pylist()], pa.string())
